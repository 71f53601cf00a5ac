use super::*;

/// How many threads of this process run only when a core has nothing else to do: the 41st word of their `stat`, the 39th behind the name.
fn idle_threads() -> usize {
    let stats = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let stats = stats.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    stats.filter(|stat| stat.rsplit_once(')').unwrap().1.split_whitespace().nth(38) == Some("5")).count()
}

#[test]
fn each_core_is_kept_awake_by_a_thread_that_gives_way_until_the_end() {
    let cores = Cores::available().unwrap();
    let awake = Awake::keep(&cores).unwrap();
    assert_eq!(idle_threads(), cores.count());
    drop(awake);
    // A thread that has been waited for may be listed for a moment still.
    while idle_threads() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn cores_that_are_not_there_are_named() {
    let error = Awake::keep(&"1023".parse().unwrap()).err().unwrap();
    assert!(error.starts_with("core 1023 cannot be kept awake: "), "{error}");
}
