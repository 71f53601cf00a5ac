use spandrel_shared::DriveId;

use super::*;

const LEG: LegId = LegId::standing(DriveId::from_bytes([1; 16]));

fn piece(slab: u32, first: u32, count: u32) -> SlabRange {
    SlabRange { slab: SlabIndex(slab), first, count }
}

fn set(blocks: impl IntoIterator<Item = u32>) -> BlockSet {
    let mut set = BlockSet::default();
    blocks.into_iter().for_each(|block| set.insert(block));
    set
}

#[test]
fn stretches_are_the_blocks_in_order() {
    assert_eq!(BlockSet::default().stretches(), []);
    let blocks = set([0, 1, 2, 63, 64, 65, 66, 67, 200, 511]);
    assert_eq!(blocks.stretches(), [(0, 3), (63, 5), (200, 1), (511, 1)]);
    assert_eq!(set(0..PAGE_BLOCKS).stretches(), [(0, PAGE_BLOCKS)]);
}

#[test]
fn a_leg_that_fell_out_lacks_what_was_under_way_and_what_came_since() {
    let missed = MissedBlocks::default();
    missed.note(piece(0, 7, 1));
    missed.begin(LEG, [piece(0, 3, 2)].into_iter());
    missed.note(piece(1, PAGE_BLOCKS - 1, 2));
    let known = |blocks| MissedInPage { is_known: true, blocks };
    assert_eq!(
        missed.take(LEG, SlabIndex(0), 0).missed,
        known(set([3, 4])),
        "block 7 was written while it was in sync"
    );
    assert_eq!(missed.take(LEG, SlabIndex(1), 0).missed, known(set([PAGE_BLOCKS - 1])));
    assert_eq!(missed.take(LEG, SlabIndex(1), 1).missed, known(set([0])));
    assert_eq!(missed.take(LEG, SlabIndex(2), 5).missed, known(set([])));
}

#[test]
fn of_a_leg_that_was_out_already_a_page_is_known_once_it_was_made_whole() {
    let missed = MissedBlocks::default();
    missed.follow(LEG);
    missed.note(piece(0, 9, 1));
    let taken = missed.take(LEG, SlabIndex(0), 0);
    assert_eq!(taken.missed, MissedInPage { is_known: false, blocks: set([9]) });
    missed.note(piece(0, 10, 1));
    taken.made_whole();
    assert_eq!(missed.take(LEG, SlabIndex(0), 0).missed, MissedInPage { is_known: true, blocks: set([10]) });
    assert!(!missed.take(LEG, SlabIndex(0), 1).missed.is_known);
}

#[test]
fn what_was_not_copied_after_all_is_missed_yet() {
    let missed = MissedBlocks::default();
    missed.begin(LEG, [piece(0, 3, 1)].into_iter());
    let taken = missed.take(LEG, SlabIndex(0), 0);
    missed.note(piece(0, 4, 1));
    drop(taken);
    assert_eq!(
        missed.take(LEG, SlabIndex(0), 0).missed,
        MissedInPage { is_known: true, blocks: set([3, 4]) }
    );
}

#[test]
fn nothing_is_known_of_a_leg_that_is_not_followed_or_was_in_sync_since() {
    let missed = MissedBlocks::default();
    assert!(!missed.take(LEG, SlabIndex(0), 0).missed.is_known);
    missed.begin(LEG, std::iter::empty());
    missed.retain(|leg| leg != LEG);
    assert!(!missed.take(LEG, SlabIndex(0), 0).missed.is_known);
}

#[test]
fn what_becomes_too_much_is_forgotten_and_unknown_then() {
    let missed = MissedBlocks::default();
    missed.begin(LEG, std::iter::empty());
    let pages_per_slab = 128;
    for page in 0..=PAGES_MAX as u32 {
        missed.note(piece(page / pages_per_slab, page % pages_per_slab * PAGE_BLOCKS, 1));
    }
    for slab in [0, PAGES_MAX as u32 / pages_per_slab] {
        missed.take(LEG, SlabIndex(slab), 0).made_whole();
        assert_eq!(missed.take(LEG, SlabIndex(slab), 0).missed, MissedInPage::default());
    }
}

#[test]
fn of_a_leg_that_lacks_what_nobody_has_seen_nothing_is_known_but_what_was_noted() {
    let missed = MissedBlocks::default();
    missed.begin(LEG, [piece(0, 3, 1)].into_iter());
    missed.distrust(LEG);
    assert_eq!(missed.take(LEG, SlabIndex(0), 0).missed, MissedInPage { is_known: false, blocks: set([3]) });
    assert!(!missed.take(LEG, SlabIndex(4), 0).missed.is_known);
    missed.take(LEG, SlabIndex(4), 0).made_whole();
    assert!(missed.take(LEG, SlabIndex(4), 0).missed.is_known);
}
