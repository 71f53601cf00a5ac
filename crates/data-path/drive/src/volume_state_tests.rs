use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::test_support::{version, volume};

fn listed(volume: &VolumeState) -> Vec<(u64, u32, u32, bool)> {
    let entries = volume.list().iter();
    entries
        .map(|((version, _, first), value)| (version.counter, *first, value.count, value.in_doubt))
        .collect()
}

fn list(volume: &mut VolumeState, counter: u64, first: u32, count: u32) {
    volume.list_write((version(2, counter), 5, first), ListValue { count, in_doubt: false });
}

#[test]
fn a_mark_takes_writes_off_the_list_but_not_its_exceptions() {
    let mut volume = VolumeState::new(volume(1));
    (1..=6).for_each(|counter| list(&mut volume, counter, 0, 1));
    let counters = |volume: &VolumeState| listed(volume).iter().map(|entry| entry.0).collect::<Vec<_>>();
    volume.note_mark(version(2, 4), &[version(2, 3), version(2, 2)]);
    assert_eq!(counters(&volume), [2, 3, 5, 6]);
    assert_eq!(volume.exceptions(), [version(2, 2), version(2, 3)]);
    assert_eq!(volume.proven(), version(2, 1));

    volume.note_mark(version(2, 3), &[]);
    assert_eq!(counters(&volume), [2, 3, 5, 6], "an older mark says nothing");
    volume.note_mark(version(2, 4), &[version(2, 2)]);
    assert_eq!(counters(&volume), [2, 5, 6], "at an equal mark the shorter list holds");
    volume.note_mark(version(2, 4), &[version(2, 2), version(2, 1)]);
    assert_eq!(volume.exceptions(), [version(2, 2)]);
    volume.note_mark(version(3, 0), &[]);
    assert_eq!(counters(&volume), [] as [u64; 0]);
    assert_eq!(volume.proven(), version(3, 0));
}

/// An owner that takes over lets the shorter list hold. So a drive must not drop an exception
/// only because it has not seen that write yet: it would be taken for complete.
#[test]
fn exceptions_that_this_drive_has_no_part_in_are_kept() {
    let mut volume = VolumeState::new(volume(1));
    list(&mut volume, 7, 0, 1);
    volume.note_mark(version(2, 7), &[version(2, 6), version(2, 5)]);
    assert_eq!(volume.exceptions(), [version(2, 5), version(2, 6)]);
    assert_eq!(volume.proven(), version(2, 4));
    assert_eq!(volume.begin_checkpoint(0).mark, version(2, 4), "a root has no room for exceptions");
    let record =
        Record::Mark { volume_slot: 9, mark: version(2, 7), exceptions: vec![version(2, 5), version(2, 6)] };
    assert_eq!(volume.records_behind_root(9).collect::<Vec<_>>(), [record]);
}

/// Resync and roll-forward write old versions, and the mark of an idle volume does not move.
#[test]
fn writes_below_the_mark_leave_the_list_when_it_is_noted_again() {
    let mut volume = VolumeState::new(volume(1));
    volume.note_mark(version(2, 9), &[version(2, 4)]);
    list(&mut volume, 3, 0, 1);
    list(&mut volume, 4, 0, 1);
    assert_eq!(listed(&volume).len(), 2);
    volume.note_mark(version(2, 9), &[version(2, 4)]);
    assert_eq!(listed(&volume), [(4, 0, 1, false)]);
}

#[test]
fn pieces_of_one_write_are_one_entry() {
    let mut volume = VolumeState::new(volume(1));
    list(&mut volume, 1, 10, 2);
    list(&mut volume, 1, 12, 3);
    list(&mut volume, 1, 15, 1);
    assert_eq!(listed(&volume), [(1, 10, 6, false)]);
}

/// A new owner rolls a write forward under its old version, whole or in part.
#[test]
fn a_roll_forward_decides_the_blocks_that_it_writes_and_no_others() {
    let mut volume = VolumeState::new(volume(1));
    volume.list_write((version(2, 1), 5, 0), ListValue { count: 4, in_doubt: true });
    list(&mut volume, 1, 1, 2);
    assert_eq!(listed(&volume), [(1, 0, 1, true), (1, 1, 2, false), (1, 3, 1, true)]);
    list(&mut volume, 1, 0, 4);
    assert_eq!(listed(&volume), [(1, 0, 4, false)]);
    list(&mut volume, 1, 0, 1);
    assert_eq!(listed(&volume), [(1, 0, 4, false)], "what was written stays listed");
}

#[test]
fn a_range_that_is_taken_off_the_list_leaves_what_lies_before_and_behind_it() {
    for (first, count, left) in [
        (10, 4, vec![]),
        (8, 9, vec![]),
        (10, 1, vec![(11, 3)]),
        (13, 1, vec![(10, 3)]),
        (11, 2, vec![(10, 1), (13, 1)]),
        (8, 2, vec![(10, 4)]),
        (14, 2, vec![(10, 4)]),
    ] {
        let mut volume = VolumeState::new(volume(1));
        list(&mut volume, 1, 10, 4);
        volume.unlist((version(2, 1), 5, first), count);
        let expected: Vec<_> = left.into_iter().map(|(first, count)| (1, first, count, false)).collect();
        assert_eq!(listed(&volume), expected, "{count} from {first} on");
    }
}

/// They stand in the journal, and a record of no blocks says nothing.
#[test]
fn listing_records_name_what_lies_within_the_range_and_nothing_beside_it() {
    let mut volume = VolumeState::new(volume(1));
    list(&mut volume, 1, 10, 4);
    volume.list_write((version(2, 1), 5, 14), ListValue { count: 2, in_doubt: true });
    list(&mut volume, 1, 16, 2);
    let records = |first, count| {
        let mut records = volume.listing_records((version(2, 1), 5, first), count).into_iter();
        let unlisted = Record::Unlisted { slab_slot: 5, first, count, version: version(2, 1) };
        assert_eq!(records.next(), Some(unlisted));
        let listed = records.map(|record| match record {
            Record::Listed { slab_slot: 5, first, count, in_doubt, .. } => (first, count, in_doubt),
            other => panic!("{other:?}"),
        });
        listed.collect::<Vec<_>>()
    };
    assert_eq!(records(14, 2), [(14, 2, true)]);
    assert_eq!(records(12, 5), [(12, 2, false), (14, 2, true), (16, 1, false)]);
    assert_eq!(records(8, 2), []);
    assert_eq!(records(18, 2), []);
}

#[test]
fn the_writes_to_a_removed_slab_leave_the_list_and_others_stay() {
    let mut volume = VolumeState::new(volume(1));
    list(&mut volume, 1, 0, 1);
    for (slab_slot, counter) in [(4, 2), (6, 3), (4, 4)] {
        volume.list_write((version(2, counter), slab_slot, 0), ListValue { count: 1, in_doubt: false });
    }
    volume.forget_slab(4);
    assert_eq!(listed(&volume), [(1, 0, 1, false), (3, 0, 1, false)]);
}

#[test]
fn a_mark_is_due_after_an_interval_and_recorded_once() {
    let mut volume = VolumeState::new(volume(1));
    let value = ListValue { count: 1, in_doubt: false };
    let due: Vec<u64> =
        (1..=200).filter(|counter| volume.list_write((version(1, *counter), 0, 0), value)).collect();
    assert_eq!(due, [u64::from(MARK_RECORD_INTERVAL)], "it stays due until it is recorded");
    volume.note_mark(version(1, 150), &[]);
    let record = volume.mark_to_record(2);
    assert_eq!(record, Some(Record::Mark { volume_slot: 2, mark: version(1, 150), exceptions: vec![] }));
    volume.mark_is_recorded(version(1, 150));
    assert_eq!(volume.mark_to_record(2), None);
    assert!(
        (1..=MARK_RECORD_INTERVAL)
            .any(|counter| { volume.list_write((version(2, counter.into()), 0, 0), value) })
    );
}

proptest! {
    /// Against one entry a block.
    #[test]
    fn lists_as_a_naive_oracle_does(
        steps in prop::collection::vec((0_u64..3, 0_u32..12, 1_u32..6, 0_u8..3), 1..40),
    ) {
        let mut volume = VolumeState::new(volume(1));
        let mut oracle = BTreeMap::new();
        for (counter, first, count, kind) in steps {
            let key = (version(1, counter), 5, first);
            let blocks = (first..first + count).map(|block| (counter, block));
            if kind == 2 {
                volume.unlist(key, count);
                blocks.for_each(|block| _ = oracle.remove(&block));
            } else {
                let in_doubt = kind == 1;
                volume.list_write(key, ListValue { count, in_doubt });
                oracle.extend(blocks.map(|block| (block, in_doubt)));
            }
            prop_assert_eq!(&blocks_listed(&volume)?, &oracle);
        }
    }

    #[test]
    fn listing_records_bring_a_list_back(
        steps in prop::collection::vec((0_u32..12, 1_u32..6, any::<bool>()), 0..6),
        later in (0_u32..12, 1_u32..9, any::<bool>()),
    ) {
        let mut volume = VolumeState::new(volume(1));
        for (first, count, in_doubt) in steps {
            volume.list_write((version(1, 1), 5, first), ListValue { count, in_doubt });
        }
        let before = blocks_listed(&volume)?;
        let (first, count, in_doubt) = later;
        let records = volume.listing_records((version(1, 1), 5, first), count);
        volume.list_write((version(1, 1), 5, first), ListValue { count, in_doubt });
        for record in records {
            match record {
                Record::Listed { first, count, in_doubt, .. } => {
                    volume.list_write((version(1, 1), 5, first), ListValue { count, in_doubt });
                }
                Record::Unlisted { first, count, .. } => volume.unlist((version(1, 1), 5, first), count),
                other => panic!("{other:?}"),
            }
        }
        prop_assert_eq!(blocks_listed(&volume)?, before);
    }
}

/// One entry a block; fails if entries overlap or are empty.
fn blocks_listed(volume: &VolumeState) -> Result<BTreeMap<(u64, u32), bool>, TestCaseError> {
    let mut blocks = BTreeMap::new();
    for (counter, first, count, in_doubt) in listed(volume) {
        prop_assert!(count > 0, "an entry of no blocks at {}", first);
        for block in first..first + count {
            prop_assert_eq!(blocks.insert((counter, block), in_doubt), None, "entries overlap");
        }
    }
    Ok(blocks)
}
