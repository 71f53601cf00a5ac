use std::cell::Cell;
use std::future::Future;

use proptest::prelude::*;
use spandrel_platform::Executor;

use super::*;

/// A task that holds a lock until it is told to let go.
struct Holder {
    range: BlockRange,
    shared: bool,
    granted: Rc<Cell<bool>>,
    release: Option<OneshotSender<()>>,
}

fn hold(executor: &Executor, locks: &RangeLocks, range: BlockRange, shared: bool) -> Holder {
    let (release, released) = oneshot();
    let granted = Rc::new(Cell::new(false));
    let (own_locks, own_granted) = (locks.clone(), Rc::clone(&granted));
    executor.spawn(async move {
        let guard = own_locks.lock(range, shared).await;
        own_granted.set(true);
        released.await;
        drop(guard);
    });
    Holder { range, shared, granted, release: Some(release) }
}

fn settle(executor: &Executor) {
    while executor.run_ready() {}
}

#[test]
fn readers_share_and_a_writer_waits_in_line() {
    let (executor, locks) = (Executor::new(), RangeLocks::default());
    let mut first = hold(&executor, &locks, BlockRange::new(0, 10), true);
    let mut second = hold(&executor, &locks, BlockRange::new(5, 10), true);
    let mut writer = hold(&executor, &locks, BlockRange::new(8, 1), false);
    let late_reader = hold(&executor, &locks, BlockRange::new(8, 1), true);
    let elsewhere = hold(&executor, &locks, BlockRange::new(100, 1), false);
    settle(&executor);
    assert!(!locks.is_idle());
    assert!(first.granted.get() && second.granted.get() && elsewhere.granted.get());
    assert!(
        !writer.granted.get() && !late_reader.granted.get(),
        "the later reader must not starve the writer"
    );
    drop(first.release.take());
    settle(&executor);
    assert!(!writer.granted.get());
    drop(second.release.take());
    settle(&executor);
    assert!(writer.granted.get() && !late_reader.granted.get());
    drop(writer.release.take());
    settle(&executor);
    assert!(late_reader.granted.get());
}

#[test]
fn a_dropped_waiter_frees_its_place() {
    let (executor, locks) = (Executor::new(), RangeLocks::default());
    let mut first = hold(&executor, &locks, BlockRange::new(0, 10), true);
    settle(&executor);
    {
        let mut waiting = Box::pin(locks.exclusive(BlockRange::new(0, 1)));
        let waker = std::task::Waker::noop();
        assert!(waiting.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
    }
    let behind = hold(&executor, &locks, BlockRange::new(0, 1), true);
    settle(&executor);
    assert!(behind.granted.get());
    drop(first.release.take());
    drop(behind);
    settle(&executor);
    assert!(locks.is_idle());
}

proptest! {
    /// At every moment: no two granted ranges conflict, and nobody waits without a reason.
    #[test]
    fn grants_are_exclusive_and_nobody_waits_in_vain(
        steps in prop::collection::vec((0u64..20, 1u64..6, any::<bool>(), any::<Option<usize>>()), 1..60)
    ) {
        let (executor, locks) = (Executor::new(), RangeLocks::default());
        let mut holders: Vec<Holder> = Vec::new();
        for (first, count, shared, release) in steps {
            holders.push(hold(&executor, &locks, BlockRange::new(first, count), shared));
            settle(&executor);
            if let Some(index) = release {
                let granted: Vec<usize> = (0..holders.len()).filter(|index| holders[*index].granted.get()).collect();
                let index = granted[index % granted.len()];
                drop(holders.remove(index).release.take());
                settle(&executor);
            }
            for (index, holder) in holders.iter().enumerate() {
                let conflicts = |other: &&Holder| {
                    other.range.overlaps(holder.range) && !(other.shared && holder.shared)
                };
                let blocked = holders[..index].iter().any(|other| conflicts(&other));
                prop_assert_eq!(holder.granted.get(), !blocked);
            }
        }
    }
}
