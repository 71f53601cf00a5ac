use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use super::*;

type StoredWaker = Rc<RefCell<Option<Waker>>>;

fn run_until_idle(executor: &Executor) {
    while executor.run_ready() {}
}

#[test]
fn tasks_run_in_the_order_of_their_wake_ups() {
    let executor = Executor::new();
    let order = Rc::new(RefCell::new(Vec::new()));
    for name in 0..3 {
        let order = Rc::clone(&order);
        executor.spawn(async move {
            order.borrow_mut().push(name);
            yield_once().await;
            order.borrow_mut().push(name + 10);
        });
    }
    assert!(executor.run_ready());
    assert_eq!(*order.borrow(), [0, 1, 2]);
    run_until_idle(&executor);
    assert_eq!(*order.borrow(), [0, 1, 2, 10, 11, 12]);
    assert_eq!(executor.live_tasks(), 0);
}

#[test]
fn many_wake_ups_before_a_run_are_one_run() {
    let executor = Executor::new();
    let runs = Rc::new(Cell::new(0));
    let stored = StoredWaker::default();
    let (seen, slot) = (Rc::clone(&runs), Rc::clone(&stored));
    executor.spawn(poll_fn(move |context| {
        seen.set(seen.get() + 1);
        *slot.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }));
    run_until_idle(&executor);
    let waker = stored.borrow().clone().expect("the task has run");
    waker.wake_by_ref();
    waker.wake_by_ref();
    run_until_idle(&executor);
    assert_eq!(runs.get(), 2);
}

#[test]
fn an_aborted_task_is_dropped_and_its_slot_reused_safely() {
    struct SetOnDrop(Rc<Cell<bool>>);
    impl Drop for SetOnDrop {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let executor = Executor::new();
    let dropped = Rc::new(Cell::new(false));
    let guard = SetOnDrop(Rc::clone(&dropped));
    let handle = executor.spawn(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    run_until_idle(&executor);
    handle.abort();
    assert!(dropped.get() && handle.is_finished());

    let second = executor.spawn(std::future::pending());
    handle.abort();
    assert!(!second.is_finished(), "an old handle must not end the slot's next task");
}

#[test]
fn a_task_may_abort_itself() {
    let executor = Executor::new();
    let handle: Rc<RefCell<Option<TaskHandle>>> = Rc::default();
    let own = Rc::clone(&handle);
    let after = Rc::new(Cell::new(false));
    let reached = Rc::clone(&after);
    *handle.borrow_mut() = Some(executor.spawn(async move {
        let handle = own.borrow().clone().expect("set before the first run");
        handle.abort();
        yield_once().await;
        reached.set(true);
    }));
    run_until_idle(&executor);
    assert!(!after.get());
    assert_eq!(executor.live_tasks(), 0);
}

#[test]
fn dropping_all_tasks_includes_those_that_drops_spawn() {
    struct SpawnOnDrop(Executor);
    impl Drop for SpawnOnDrop {
        fn drop(&mut self) {
            self.0.spawn(std::future::pending());
        }
    }
    let executor = Executor::new();
    let guard = SpawnOnDrop(executor.clone());
    executor.spawn(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    run_until_idle(&executor);
    executor.drop_all_tasks();
    assert_eq!(executor.live_tasks(), 0);
}

#[test]
fn a_wake_up_unparks_a_sleeping_driver_wherever_it_comes_from() {
    struct Flag(Arc<AtomicBool>);
    impl Unpark for Flag {
        fn unpark(&self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let unparked = Arc::new(AtomicBool::new(false));
    let executor = Executor::with_unpark(Flag(Arc::clone(&unparked)));
    let stored = StoredWaker::default();
    let slot = Rc::clone(&stored);
    executor.spawn(poll_fn(move |context| {
        *slot.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }));
    assert!(!executor.prepare_sleep(), "a spawned task is ready");
    run_until_idle(&executor);
    assert!(executor.prepare_sleep());
    let waker = stored.borrow().clone().expect("the task has run");
    let remote = waker.clone();
    std::thread::spawn(move || remote.wake()).join().expect("it does not panic");
    assert!(unparked.swap(false, Ordering::SeqCst));
    executor.end_sleep();
    run_until_idle(&executor);
    assert!(executor.prepare_sleep());
    waker.wake();
    assert!(unparked.load(Ordering::SeqCst));
    executor.end_sleep();
    assert!(executor.run_ready());
}

/// A task that counts its runs and never ends, and its waker once it has run.
fn counting(executor: &Executor) -> (TaskHandle, Rc<Cell<u32>>, StoredWaker) {
    let (runs, stored) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(None)));
    let (seen, slot) = (Rc::clone(&runs), Rc::clone(&stored));
    let handle = executor.spawn(poll_fn(move |context| {
        seen.set(seen.get() + 1);
        *slot.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }));
    run_until_idle(executor);
    (handle, runs, stored)
}

#[test]
fn a_waker_wakes_its_own_task_among_those_of_several_executors() {
    let executors = [Executor::new(), Executor::new(), Executor::new()];
    let tasks = executors.each_ref().map(|executor| [counting(executor), counting(executor)]);
    let [_, (_, runs, stored)] = &tasks[1];
    stored.borrow().as_ref().expect("it has run").wake_by_ref();
    executors.iter().for_each(run_until_idle);
    assert_eq!(runs.replace(0), 2);
    let others: Vec<u32> = tasks.iter().flatten().map(|(_, runs, _)| runs.get()).collect();
    assert_eq!(others, [1, 1, 1, 0, 1, 1]);
}

#[test]
fn a_waker_that_outlives_its_task_or_its_executor_wakes_nobody() {
    let executor = Executor::new();
    let (handle, _, stored) = counting(&executor);
    let late = stored.take().expect("it has run");
    handle.abort();
    let (_, runs, _) = counting(&executor);
    late.wake_by_ref();
    assert!(!executor.has_ready(), "the slot's next task was not meant");
    let remote = late.clone();
    std::thread::spawn(move || remote.wake()).join().expect("it does not panic");
    run_until_idle(&executor);
    assert_eq!(runs.get(), 1);

    drop(executor);
    let successor = Executor::new();
    let (_, runs, _) = counting(&successor);
    late.wake_by_ref();
    std::thread::spawn(move || late.wake()).join().expect("it does not panic");
    run_until_idle(&successor);
    assert_eq!(runs.get(), 1);
}

#[test]
fn a_waker_that_is_old_enough_is_a_spurious_wake_up_at_most() {
    /// As many as a waker can tell apart.
    const GENERATIONS: u32 = 1 << 18;
    let executor = Executor::new();
    let (handle, _, stored) = counting(&executor);
    let late = stored.take().expect("it has run");
    handle.abort();
    for _ in 1..GENERATIONS {
        executor.spawn(async {});
        run_until_idle(&executor);
    }
    // Nobody is in the slot now.
    late.wake_by_ref();
    run_until_idle(&executor);
    let (handle, runs, _) = counting(&executor);
    late.wake_by_ref();
    run_until_idle(&executor);
    assert!(!handle.is_finished() && (1..=2).contains(&runs.get()), "{} runs", runs.get());
}

#[test]
fn tasks_that_are_dropped_with_their_executor_may_wake_each_other() {
    struct WakeOnDrop(StoredWaker);
    impl Drop for WakeOnDrop {
        fn drop(&mut self) {
            self.0.borrow().clone().expect("it has run").wake();
        }
    }
    let executor = Executor::new();
    let (_, _, stored) = counting(&executor);
    let guard_of = Rc::clone(&stored);
    let guard = WakeOnDrop(stored);
    executor.spawn(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    run_until_idle(&executor);
    let waker = guard_of.borrow().clone().expect("it has run");
    drop(executor);
    // Nobody is there any more, and nothing was left half done by which this would panic.
    waker.wake();
}

/// Where both threads have one core, the other one gets on.
fn give_way(looks: &mut u64) {
    *looks += 1;
    if looks.is_multiple_of(100) {
        std::thread::yield_now();
    }
}

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
fn what_another_thread_left_before_a_wake_up_is_seen_by_the_run_that_follows() {
    /// How long it is tried: on a machine that does nothing else a hundred thousand times.
    const EFFORT: Duration = Duration::from_secs(1);
    let executor = Executor::new();
    let (left, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (stored, to_see, told) = (Arc::new(Mutex::new(None)), Arc::clone(&left), Arc::clone(&seen));
    let slot = Arc::clone(&stored);
    executor.spawn(async move {
        poll_fn(|context| {
            *slot.lock().expect("nobody panics") = Some(context.waker().clone());
            Poll::Ready(())
        })
        .await;
        poll_fn(|_| {
            told.store(to_see.load(Ordering::Relaxed), Ordering::Relaxed);
            Poll::Pending
        })
        .await
    });
    run_until_idle(&executor);
    let waker: Waker = stored.lock().expect("nobody panics").take().expect("the task has run");
    let woken = Arc::new(AtomicU64::new(0));
    let (tells, has_run) = (Arc::clone(&woken), Arc::clone(&seen));
    let other = std::thread::spawn(move || {
        let begun = Instant::now();
        for round in 1.. {
            if begun.elapsed() > EFFORT {
                return;
            }
            // The task is about to run, or runs, when the second wake-up comes.
            left.store(2 * round - 1, Ordering::Relaxed);
            waker.wake_by_ref();
            (0..round % 256).for_each(|_| std::hint::spin_loop());
            left.store(2 * round, Ordering::Relaxed);
            waker.wake_by_ref();
            tells.store(round, Ordering::Release);
            let mut looks = 0;
            while has_run.load(Ordering::Relaxed) != 2 * round {
                give_way(&mut looks);
            }
        }
    });
    let (mut lost, mut looks) = (None, 0);
    while !other.is_finished() {
        let round = woken.load(Ordering::Acquire);
        run_until_idle(&executor);
        // Whatever was woken for by then has been seen by now.
        if seen.load(Ordering::Relaxed) < 2 * round {
            lost = lost.or(Some(round));
            // Lets the other thread go on to its end.
            seen.store(2 * round, Ordering::Relaxed);
        }
        give_way(&mut looks);
    }
    other.join().expect("it does not panic");
    assert_eq!(lost, None, "this round was woken for, and not seen");
}
