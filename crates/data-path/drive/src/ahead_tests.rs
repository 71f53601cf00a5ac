use std::rc::Rc;
use std::time::Duration;

use spandrel_platform::Platform;
use spandrel_platform_simulated::World;

use super::*;

fn range(slab_slot: u32, first: u32, count: u32) -> AheadRange {
    AheadRange { slab_slot, first, count }
}

#[test]
fn ranges_overlap_in_the_same_slab_alone() {
    let written = range(1, 10, 5);
    for (other, overlaps) in [
        (range(1, 14, 1), true),
        (range(1, 15, 1), false),
        (range(1, 0, 10), false),
        (range(1, 0, 11), true),
        (range(2, 10, 5), false),
        (range(1, 0, u32::MAX), true),
        (range(1, 12, u32::MAX), true),
    ] {
        assert_eq!((written.overlaps(&other), other.overlaps(&written)), (overlaps, overlaps), "{other:?}");
    }
}

/// Whether a future has completed within a second of a world in which two ranges are being written ahead, of which the first
/// one ends meanwhile.
fn completes<F: Future<Output = ()> + 'static>(wait: impl FnOnce(Rc<AheadWrites>) -> F) -> bool {
    let world = World::new(1);
    let process = world.process("node");
    let platform = process.platform();
    let ahead = Rc::new(AheadWrites::default());
    let first = ahead.begin(range(1, 0, 8));
    let waiting = wait(Rc::clone(&ahead));
    ahead.begin(range(1, 8, 8));
    let done = Rc::new(std::cell::Cell::new(false));
    let completed = Rc::clone(&done);
    process.spawn(async move {
        waiting.await;
        completed.set(true);
    });
    let run = process.block_on(async move {
        platform.sleep(Duration::from_millis(1)).await;
        ahead.end(first);
        platform.sleep(Duration::from_secs(1)).await;
    });
    run.expect("the world goes on");
    done.get()
}

#[test]
fn who_changes_what_is_being_written_waits_for_that_alone() {
    let clear = |range: AheadRange| completes(move |ahead| async move { ahead.clear_of(range).await });
    assert!(clear(range(1, 0, 8)), "that one ends");
    assert!(!clear(range(1, 7, 2)), "the other one does not");
    assert!(clear(range(2, 0, 16)));
    assert!(!completes(|ahead| async move { ahead.clear_of_slab(1).await }));
}

/// A fence may not wait for what is begun later: that could go on without end.
#[test]
fn what_is_begun_later_is_not_waited_for() {
    let settled = completes(|ahead| {
        let settle = Rc::clone(&ahead);
        let last = *ahead.begun.borrow();
        async move {
            assert!(last == 1 && *settle.begun.borrow() == 2, "one was begun before");
            settle.settle_up_to(last).await;
        }
    });
    assert!(settled);
}
