use std::cell::RefCell;
use std::future::{pending, poll_fn};
use std::sync::mpsc;
use std::task::Poll;

use futures_util::future::join_all;
use spandrel_platform::{Connection, Platform, before};

use super::*;
use crate::test_support::{Gate, Numbers, any_port, pair, receive_exactly, run, run_with};

async fn yield_once() {
    let mut yielded = false;
    poll_fn(move |context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn timers_never_fire_early() {
    run(|platform| async move {
        let mut numbers = Numbers::new(1);
        let sleeps = (0..500).map(|_| {
            let deadline = platform.now() + Duration::from_nanos(numbers.below(20_000_000) as u64);
            let platform = platform.clone();
            async move {
                platform.sleep_until(deadline).await;
                assert!(platform.now() >= deadline);
            }
        });
        join_all(sleeps).await;
        assert!(platform.statistics().timers_fired > 0);
    });
}

#[test]
fn a_deadline_that_has_passed_needs_no_timer() {
    run(|platform| async move {
        let past = platform.now() - Duration::from_secs(1);
        platform.sleep_until(past).await;
        assert_eq!(platform.statistics().timers_fired, 0);
    });
}

#[test]
fn an_earlier_timer_is_not_held_up_by_a_later_one() {
    run(|platform| async move {
        let later = platform.sleep(Duration::from_secs(3600));
        platform.spawn(later);
        // The loop sleeps towards the later one first.
        platform.sleep(Duration::from_millis(1)).await;
        platform.sleep(Duration::from_millis(1)).await;
    });
}

#[test]
fn a_dropped_sleep_leaves_no_timer() {
    let mut runtime = Runtime::new(RuntimeConfig::default()).unwrap();
    let platform = runtime.platform();
    runtime.block_on(async move {
        let deadline = platform.now() + Duration::from_secs(3600);
        assert!(before(&platform, deadline, yield_once()).await.is_some());
    });
    assert_eq!(runtime.shard.timers.next_deadline(), None);
}

#[test]
fn what_takes_too_long_is_dropped_at_its_deadline() {
    run(|platform| async move {
        let deadline = platform.now() + Duration::from_millis(2);
        assert!(before(&platform, deadline, pending::<()>()).await.is_none());
        assert!(platform.now() >= deadline);
    });
}

#[test]
fn an_idle_loop_sleeps() {
    for spin_us_max in [0, 100] {
        let config = RuntimeConfig { spin_us_max, ..RuntimeConfig::default() };
        run_with(config, |platform| async move {
            let before = platform.statistics();
            for _ in 0..10 {
                platform.sleep(Duration::from_millis(20)).await;
            }
            let after = platform.statistics();
            assert!(after.turns - before.turns <= 40, "{before:?} {after:?}");
            assert!(after.polls - before.polls <= 40, "it looks for what never comes: {before:?} {after:?}");
            assert!(after.sleeps > before.sleeps);
        });
    }
}

#[test]
fn a_loop_whose_waits_are_short_looks_for_events_instead_of_sleeping() {
    let config = RuntimeConfig { spin_us_max: 60_000_000, ..RuntimeConfig::default() };
    run_with(config, |platform| async move {
        let waits = 20;
        for _ in 0..waits {
            platform.sleep(Duration::from_millis(1)).await;
        }
        let RuntimeStatistics { polls, sleeps, .. } = platform.statistics();
        assert!(sleeps < waits && polls > sleeps + waits, "{polls} looks, {sleeps} sleeps");
    });
}

#[test]
fn a_loop_that_runs_many_tasks_sleeps_at_once_though_its_waits_are_short() {
    let config = RuntimeConfig { spin_us_max: 60_000_000, ..RuntimeConfig::default() };
    run_with(config, |platform| async move {
        let waits = 40;
        for _ in 0..waits {
            for _ in 0..30 {
                platform.spawn(std::future::ready(()));
            }
            platform.sleep(Duration::from_millis(1)).await;
        }
        let RuntimeStatistics { polls, sleeps, .. } = platform.statistics();
        assert!(sleeps >= waits && polls <= 4 * waits, "{polls} looks, {sleeps} sleeps");
    });
}

#[test]
fn a_loop_that_looks_finds_what_other_threads_leave() {
    let config = RuntimeConfig { spin_us_max: 60_000_000, ..RuntimeConfig::default() };
    run_with(config, |platform| async move {
        for _ in 0..100 {
            let gate = Arc::new(Gate::default());
            let (remote, theirs) = (platform.remote(), Arc::clone(&gate));
            let thread = std::thread::spawn(move || remote.spawn(Box::new(move |_| theirs.open())));
            gate.passed().await;
            assert!(thread.join().unwrap());
        }
        let RuntimeStatistics { polls, sleeps, .. } = platform.statistics();
        assert!(sleeps < 100 && polls > sleeps + 100, "{polls} looks, {sleeps} sleeps");
    });
}

#[test]
fn closures_of_other_threads_run_in_order_and_wake_the_loop() {
    const THREADS: u64 = 4;
    const EACH: u64 = 500;
    let mut runtime = Runtime::new(RuntimeConfig::default()).unwrap();
    let shard_thread = std::thread::current().id();
    let (arrivals, arrived) = mpsc::channel();
    let senders: Vec<_> = (0..THREADS)
        .map(|sender| {
            let (remote, arrivals) = (runtime.remote(), arrivals.clone());
            std::thread::spawn(move || {
                for number in 0..EACH {
                    let arrivals = arrivals.clone();
                    let task = Box::new(move |_: LinuxPlatform| {
                        let thread = std::thread::current().id();
                        arrivals.send((thread, sender, number)).unwrap();
                    });
                    assert!(remote.spawn(task));
                }
            })
        })
        .collect();
    let platform = runtime.platform();
    runtime.block_on(async move {
        while platform.statistics().remote_tasks < THREADS * EACH {
            platform.sleep(Duration::from_millis(1)).await;
        }
    });
    let mut next = [0; THREADS as usize];
    for (thread, sender, number) in arrived.try_iter() {
        assert_eq!((thread, number), (shard_thread, next[sender as usize]));
        next[sender as usize] += 1;
    }
    assert_eq!(next, [EACH; THREADS as usize]);
    for sender in senders {
        sender.join().unwrap();
    }
}

#[test]
fn a_remote_closure_can_spawn_tasks_and_answer() {
    let (handles, handle) = mpsc::channel();
    let stop = Arc::new(Gate::default());
    let stopped = Arc::clone(&stop);
    let shard = std::thread::spawn(move || {
        let mut runtime = Runtime::new(RuntimeConfig::default()).unwrap();
        handles.send(runtime.remote()).unwrap();
        runtime.block_on(async move { stopped.passed().await });
    });
    let remote = handle.recv().unwrap();
    let (answers, answer) = mpsc::channel();
    remote.spawn(Box::new(move |platform| {
        let own = platform.clone();
        platform.spawn(async move {
            own.sleep(Duration::from_millis(1)).await;
            answers.send(own.random_u64()).unwrap();
        });
    }));
    answer.recv().unwrap();
    remote.spawn(Box::new(move |_| stop.open()));
    shard.join().unwrap();
}

#[test]
fn a_runtime_that_has_ended_takes_no_closures() {
    let runtime = Runtime::new(RuntimeConfig::default()).unwrap();
    let remote = runtime.remote();
    let (sender, receiver) = mpsc::channel::<()>();
    let waiting = sender.clone();
    assert!(remote.spawn(Box::new(move |_| drop(waiting))));
    drop(runtime);
    assert!(!remote.spawn(Box::new(move |_| drop(sender))));
    assert!(receiver.recv().is_err(), "both closures are dropped, and what they held with them");
}

#[test]
fn a_waker_used_by_another_thread_ends_the_sleep() {
    run(|platform| async move {
        let gate = Arc::new(Gate::default());
        let theirs = Arc::clone(&gate);
        let thread = std::thread::spawn(move || {
            while !theirs.is_awaited() {
                std::thread::yield_now();
            }
            theirs.open();
        });
        gate.passed().await;
        thread.join().unwrap();
        assert_eq!(platform.statistics().timers_fired, 0);
    });
}

#[test]
fn a_task_that_is_always_ready_holds_up_nobody() {
    run(|platform| async move {
        platform.spawn(async {
            loop {
                yield_once().await;
            }
        });
        platform.sleep(Duration::from_millis(2)).await;
        let (sender, receiver) = mpsc::channel();
        let remote = platform.remote();
        let thread = std::thread::spawn(move || remote.spawn(Box::new(move |_| sender.send(()).unwrap())));
        while receiver.try_recv().is_err() {
            platform.sleep(Duration::from_micros(100)).await;
        }
        assert!(thread.join().unwrap());
        let (near, far) = pair(&platform, &any_port()).await;
        for number in 0..20 {
            near.send(&[number], &[]);
            assert_eq!(receive_exactly(&far, 1).await, [number]);
        }
    });
}

#[test]
fn the_tasks_left_over_are_dropped_in_order() {
    struct Named(u32, Rc<RefCell<Vec<u32>>>);
    impl Drop for Named {
        fn drop(&mut self) {
            self.1.borrow_mut().push(self.0);
        }
    }
    let dropped = Rc::new(RefCell::new(Vec::new()));
    let mut runtime = Runtime::new(RuntimeConfig::default()).unwrap();
    let platform = runtime.platform();
    let names = Rc::clone(&dropped);
    let output = runtime.block_on(async move {
        for name in 0..5 {
            let named = Named(name, Rc::clone(&names));
            platform.spawn(async move {
                let _named = named;
                pending::<()>().await;
            });
        }
        yield_once().await;
        "done"
    });
    assert_eq!((output, &*dropped.borrow()), ("done", &vec![0, 1, 2, 3, 4]));
    assert_eq!(runtime.block_on(async { 2 }), 2, "the runtime can be used again");
}

#[test]
fn random_numbers_do_not_repeat() {
    run(|platform| async move {
        let numbers: std::collections::BTreeSet<u64> = (0..1000).map(|_| platform.random_u64()).collect();
        assert_eq!(numbers.len(), 1000);
    });
}

#[test]
fn the_clocks_agree_with_the_systems() {
    run(|platform| async move {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        // Read later, and told in hundredths there.
        assert!(platform.now().nanoseconds() as f64 / 1e9 >= seconds - 0.011);
        let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert!(platform.unix_time().0 >= u64::try_from(before.as_millis()).unwrap());
    });
}
