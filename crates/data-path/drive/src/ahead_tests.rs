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
        (AheadRange::whole(1), true),
        (range(1, 12, u32::MAX), true),
    ] {
        assert_eq!((written.overlaps(&other), other.overlaps(&written)), (overlaps, overlaps), "{other:?}");
    }
}

/// Which of these waits have ended after a second, where the first turn, for blocks 0 to 7, ends meanwhile. They come in this
/// order, `None` for one that settles.
fn ended(waits: &[Option<AheadRange>]) -> Vec<bool> {
    let world = World::new(1);
    let process = world.process("node");
    let platform = process.platform();
    let ahead = AheadWrites::default();
    let done: Rc<RefCell<Vec<bool>>> = Rc::new(RefCell::new(vec![false; waits.len()]));
    let (waits, outcome) = (waits.to_vec(), Rc::clone(&done));
    let run = process.block_on(async move {
        let first = ahead.turn(range(1, 0, 8)).await;
        for (index, wait) in waits.into_iter().enumerate() {
            let (ahead, done, sleeping) = (ahead.clone(), Rc::clone(&done), platform.clone());
            platform.spawn(async move {
                let turn = match wait {
                    Some(range) => Some(ahead.turn(range).await),
                    None => {
                        ahead.settle().await;
                        None
                    }
                };
                done.borrow_mut()[index] = true;
                // For as long as anybody looks.
                sleeping.sleep(Duration::from_secs(100)).await;
                drop(turn);
            });
            platform.sleep(Duration::from_millis(1)).await;
        }
        drop(first);
        platform.sleep(Duration::from_secs(1)).await;
    });
    run.expect("the world goes on");
    outcome.borrow().clone()
}

#[test]
fn changes_of_the_same_blocks_come_one_after_the_other() {
    assert_eq!(
        ended(&[Some(range(1, 0, 8)), Some(range(1, 7, 2)), Some(range(2, 0, 16))]),
        [true, false, true]
    );
    assert_eq!(ended(&[Some(range(1, 8, 8)), Some(AheadRange::whole(1))]), [true, false]);
}

/// A fence stands behind all that was asked for before it: also behind what waits for its turn, but not behind what comes later.
#[test]
fn who_settles_waits_for_all_that_came_before() {
    assert_eq!(ended(&[Some(range(1, 0, 1)), None]), [true, false], "that one has its turn, and keeps it");
    assert_eq!(ended(&[None, Some(range(1, 0, 1))]), [true, true]);
}

/// Who is gone is not waited for.
#[test]
fn a_turn_that_nobody_waits_for_any_more_is_given_back() {
    let world = World::new(1);
    let process = world.process("node");
    let platform = process.platform();
    let ahead = AheadWrites::default();
    let run = process.block_on(async move {
        let first = ahead.turn(range(1, 0, 8)).await;
        let waiting = ahead.clone();
        let second = platform.spawn(async move { drop(waiting.turn(range(1, 0, 8)).await) });
        platform.sleep(Duration::from_millis(1)).await;
        second.abort();
        platform.sleep(Duration::from_millis(1)).await;
        drop(first);
        ahead.turn(range(1, 0, 8)).await;
    });
    run.expect("nobody waits for ever");
}
