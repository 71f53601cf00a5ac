use proptest::prelude::*;

use spandrel_shared::SlabIndex;

use super::*;

const PIECE: SlabRange = SlabRange { slab: SlabIndex(0), first: 0, count: 1 };

#[test]
fn one_hanging_write_pins_nothing() {
    let mut tracker = VersionTracker::new(Epoch(3));
    tracker.settle();
    let hanging = tracker.begin(PIECE);
    for _ in 0..EXCEPTION_DISTANCE + 10 {
        let version = tracker.begin(PIECE);
        tracker.complete(version);
    }
    let mark = tracker.mark();
    assert_eq!(mark.version, tracker.newest());
    assert_eq!(mark.exceptions, [hanging]);
    assert!(!mark.covers(hanging));
    tracker.complete(hanging);
    assert_eq!(tracker.mark().exceptions, []);
}

#[test]
fn a_write_becomes_an_exception_when_others_are_far_ahead() {
    let mut tracker = VersionTracker::new(Epoch(3));
    tracker.settle();
    let earlier = tracker.begin(PIECE);
    tracker.complete(earlier);
    let hanging = tracker.begin(PIECE);
    for ahead in 1..EXCEPTION_DISTANCE + 5 {
        let version = tracker.begin(PIECE);
        tracker.complete(version);
        let expected = match ahead >= EXCEPTION_DISTANCE {
            true => Mark { version, exceptions: vec![hanging] },
            false => Mark { version: earlier, exceptions: Vec::new() },
        };
        assert_eq!(tracker.mark(), expected, "{ahead} ahead");
    }
}

#[test]
fn a_mark_has_so_many_exceptions_and_no_more() {
    let mut tracker = VersionTracker::new(Epoch(3));
    tracker.settle();
    let hanging: Vec<Version> = (0..EXCEPTIONS_MAX + 3).map(|_| tracker.begin(PIECE)).collect();
    for _ in 0..2 * EXCEPTION_DISTANCE {
        let version = tracker.begin(PIECE);
        tracker.complete(version);
    }
    let (exceptions, behind) = hanging.split_at(EXCEPTIONS_MAX);
    let last = Version::new(Epoch(3), behind[0].counter - 1);
    assert_eq!(tracker.mark(), Mark { version: last, exceptions: exceptions.to_vec() });
}

proptest! {
    #[test]
    fn the_mark_covers_exactly_what_it_may(ends in prop::collection::vec((any::<bool>(), any::<usize>()), 1..400)) {
        let mut tracker = VersionTracker::new(Epoch(1));
        tracker.settle();
        let mut under_way: Vec<Version> = Vec::new();
        let mut last = tracker.mark();
        for (begin, index) in ends {
            if begin || under_way.is_empty() {
                under_way.push(tracker.begin(PIECE));
            } else {
                let version = under_way.swap_remove(index % under_way.len());
                tracker.complete(version);
            }
            let mark = tracker.mark();
            prop_assert!(under_way.iter().all(|version| !mark.covers(*version)));
            prop_assert!(mark.version >= last.version, "the mark went back");
            if under_way.is_empty() {
                prop_assert_eq!(mark.version, tracker.newest());
            }
            last = mark;
        }
    }
}

#[test]
fn an_inherited_mark_holds_until_all_is_settled() {
    let mut tracker = VersionTracker::new(Epoch(5));
    assert_eq!(tracker.mark(), Mark::default());
    let old = Mark { version: Version::new(Epoch(4), 7), exceptions: vec![Version::new(Epoch(4), 3)] };
    tracker.inherit(old.clone());
    assert_eq!(tracker.mark(), old);
    tracker.settle();
    assert_eq!(tracker.mark(), Mark { version: Version::new(Epoch(5), 0), exceptions: Vec::new() });
}
