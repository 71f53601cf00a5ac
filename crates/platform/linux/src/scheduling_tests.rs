use std::sync::mpsc;

use crate::{Runtime, RuntimeConfig};

/// The scheduling policy of the calling thread: the 41st word of its `stat`, the 39th behind its name.
fn policy() -> String {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let (_, behind_name) = stat.rsplit_once(')').unwrap();
    behind_name.split_whitespace().nth(38).unwrap().to_owned()
}

#[test]
fn a_runtime_and_the_threads_that_are_started_on_its_thread_give_way_if_they_are_to() {
    let usual = policy();
    if usual != libc::SCHED_OTHER.to_string() {
        eprintln!("left out: somebody has chosen another policy for this process, and it stays");
        return;
    }
    let (sender, receiver) = mpsc::channel();
    for gives_way in [false, true] {
        let sender = sender.clone();
        let thread = std::thread::spawn(move || {
            let config = RuntimeConfig { gives_way, ..RuntimeConfig::default() };
            Runtime::new(config).unwrap().block_on(async move {
                let inner = sender.clone();
                std::thread::spawn(move || inner.send(policy()).unwrap()).join().unwrap();
                sender.send(policy()).unwrap();
            });
        });
        thread.join().unwrap();
    }
    let batch = libc::SCHED_BATCH.to_string();
    drop(sender);
    assert_eq!(receiver.iter().collect::<Vec<_>>(), [&usual, &usual, &batch, &batch].map(String::clone));
}

#[test]
fn a_thread_that_is_to_runs_when_nothing_else_does() {
    let thread = std::thread::spawn(|| {
        crate::run_when_idle().unwrap();
        policy()
    });
    assert_eq!(thread.join().unwrap(), libc::SCHED_IDLE.to_string());
}
