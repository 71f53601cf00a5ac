//! What a scrub says of a slab.

use std::time::Duration;

use spandrel_replica::Mark;
use spandrel_shared::Version;
use spandrel_shared::checksum::BlockChecksum;
use spandrel_volume::{OwnerError, ScrubReport};

use super::rules::Rules;
use super::*;
use crate::history::{BLOCK_SECTORS, content};

/// Blocks of a slab.
const SLAB_BLOCKS: u64 = VOLUME_BYTES / 4096 / SLAB_COUNT as u64;

impl Rules {
    fn scrub_without_heal(&self) -> ScrubReport {
        let owner = self.owner();
        let scrubbed = self.guests.block_on(async move { owner.scrub_slab(SlabIndex(0), false).await });
        scrubbed.expect("nothing stops it").expect("it serves")
    }

    /// Brings other content to one copy behind the owner's back.
    fn change_copy(&self, index: usize, block: u32, value: u64) {
        let (copy, authority) = self.copy_of(index);
        let data = content(self.guests.platform().buffers(), value, BLOCK_SECTORS);
        let checksums = vec![BlockChecksum::new(copy.volume, copy.slab).of(block, &data)];
        let (mark, version) = (Mark::default(), Version::ZERO);
        let fill = ReplicaRequest::Write {
            copy,
            authority,
            mark,
            first: block,
            version,
            checksums: checksums.into(),
        };
        let replica = self.owners.replica(index).expect("it is up");
        let filled = self.guests.block_on(async move { replica.serve(fill, Some(data)).await.map(|_| ()) });
        assert_eq!(filled, Ok(Ok(())));
    }
}

#[test]
fn a_scrub_of_equal_copies_finds_nothing() {
    let rules = Rules::new(1);
    rules.write(3, 5).unwrap();
    let expected = ScrubReport { blocks_checked: 3 * SLAB_BLOCKS, ..ScrubReport::default() };
    assert_eq!(rules.scrub(), expected);
    assert_eq!(rules.owner().slab_count(), SLAB_COUNT);
}

#[test]
fn a_scrub_finds_every_difference() {
    let rules = Rules::new(1);
    rules.write(3, 5).unwrap();
    rules.change_copy(1, 3, 6);
    rules.change_copy(2, 700, 7);
    assert_eq!(rules.scrub().blocks_different, 2);
    rules.write(3, 8).unwrap();
    rules.write(700, 8).unwrap();
    assert_eq!(rules.scrub().blocks_different, 0, "what is written is the same again");
}

#[test]
fn a_scrub_names_and_heals_what_is_damaged() {
    let rules = Rules::new(1);
    rules.write(3, 5).unwrap();
    rules.write(700, 6).unwrap();
    rules.rot(1, 5);
    rules.rot(2, 5);
    rules.rot(2, 6);
    let damaged = BTreeMap::from([(drive_id(1), 1), (drive_id(2), 2)]);
    let found = rules.scrub_without_heal();
    assert_eq!((found.damaged, found.blocks_healed, found.blocks_different), (damaged.clone(), 0, 0));
    let healed = rules.scrub();
    assert_eq!((healed.damaged, healed.blocks_healed, healed.blocks_different), (damaged, 3, 0));
    assert_eq!(rules.owner().statistics().blocks_healed, 3);
    assert_eq!(rules.scrub().damaged, BTreeMap::new());
}

#[test]
fn what_is_damaged_on_every_copy_is_lost() {
    let rules = Rules::new(1);
    rules.write(3, 5).unwrap();
    (0..3).for_each(|index| rules.rot(index, 5));
    let found = rules.scrub();
    assert_eq!((found.blocks_lost, found.blocks_damaged(), found.blocks_healed), (1, 3, 0));
    assert_eq!((found.blocks_different, found.is_whole()), (0, true), "all of it was checked");
    rules.write(3, 6).unwrap();
    assert_eq!(rules.scrub().blocks_lost, 0, "what is written is whole again");
}

/// The versions of pages say which copy is the older one.
#[test]
fn a_copy_that_lacks_a_write_is_brought_up_to_date() {
    let rules = Rules::new(1);
    rules.write(3, 5).unwrap();
    for index in [0, 2] {
        let (copy, authority) = rules.copy_of(index);
        let version = Version::new(authority.epoch, 1000);
        let raise = ReplicaRequest::SetPageVersion { copy, authority, page: 1, version, whole: true };
        rules.serve(index, raise).unwrap();
    }
    assert_eq!(rules.scrub_without_heal().pages_lacking, 1);
    assert_eq!(rules.owner().statistics().legs_found_lacking, 0, "it was only looked at");
    assert_eq!(rules.scrub().pages_lacking, 1);
    rules.until("it is marked", || rules.owner().statistics().legs_marked == 1);
    rules.await_in_sync();
    let found = rules.scrub();
    assert_eq!((found.pages_lacking, rules.owner().statistics().legs_found_lacking), (0, 1));
}

/// Of one slab the one copy lacks a write, of another slab the others do. Whoever is brought up to date from others is so
/// in all slabs, and would lose there what only it has.
#[test]
fn copies_that_lack_writes_of_each_other_are_not_brought_up_to_date() {
    let rules = Rules::new(1);
    rules.write(3, 5).unwrap();
    for (slab, newer) in [(0, [1, 2].as_slice()), (1, &[0])] {
        for index in newer {
            let (copy, authority) = rules.copy_in(SlabIndex(slab), *index);
            let version = Version::new(authority.epoch, 1000);
            let raise = ReplicaRequest::SetPageVersion { copy, authority, page: 1, version, whole: true };
            rules.serve(*index, raise).unwrap();
        }
    }
    for slab in [0, 1, 0] {
        let owner = rules.owner();
        let found = rules.guests.block_on(async move { owner.scrub_slab(SlabIndex(slab), true).await });
        assert_eq!(found.expect("nothing stops it").expect("it serves").pages_lacking, 1);
    }
    rules.write(3, 6).unwrap();
    assert_eq!(rules.owner().statistics().legs_marked, 0, "each has what others lack");
}

/// A scrub at leisure rests after each MiB, for as long as it is told at least, and finds and heals the same.
#[test]
fn a_scrub_at_leisure_leaves_time_to_others() {
    let rules = Rules::new(1);
    rules.write(3, 5).unwrap();
    rules.rot(1, 5);
    let (owner, began) = (rules.owner(), rules.owners.world.now());
    let pause = Duration::from_millis(100);
    let found = rules.guests.block_on(async move { owner.scrub_slab_slowly(SlabIndex(0), pause).await });
    let found = found.expect("nothing stops it").expect("it serves");
    assert_eq!((found.blocks_healed, found.is_whole()), (1, true));
    let pieces = (SLAB_BLOCKS / 256) as u32;
    assert!(rules.owners.world.now() - began >= pieces * pause);
}

/// A write that hangs holds its blocks. The scrub gives up, and says what it has left out.
#[test]
fn a_scrub_gives_up_on_a_volume_that_waits() {
    let rules = Rules::new(1);
    rules.owners.judge(|_, request| match request {
        ReplicaRequest::Write { .. } => Fate::Hangs,
        _ => Fate::Carry,
    });
    let hanging = rules.begin_write(300, 5);
    rules.run_for(Duration::from_millis(10));
    let pieces = SLAB_BLOCKS / 256;
    let found = rules.scrub_without_heal();
    assert!(hanging.borrow().is_none());
    assert_eq!(found.blocks_checked, 3 * 256, "the first MiB of each copy");
    assert_eq!((found.pieces_unchecked, found.gave_up), (3 * (pieces - 1), true));
    let left = rules.owner().slab_unchecked(SlabIndex(1));
    assert_eq!((left.blocks_checked, left.pieces_unchecked, left.gave_up), (0, 3 * pieces, true));
}

#[test]
fn copies_that_are_not_in_sync_are_counted_as_unchecked() {
    let rules = Rules::new(1);
    rules.make_stale(2);
    let found = rules.scrub();
    assert_eq!(found.blocks_checked, 2 * SLAB_BLOCKS);
    assert_eq!((found.pieces_unchecked, found.gave_up), (SLAB_BLOCKS / 256, false));
}

#[test]
fn copies_that_do_not_answer_are_counted_as_unchecked() {
    let rules = Rules::new(1);
    rules.owners.judge(|node, request| match request {
        ReplicaRequest::Check { .. } if node == 2 => Fate::Fails(Duration::ZERO),
        _ => Fate::Carry,
    });
    let found = rules.scrub();
    assert_eq!((found.pieces_unchecked, found.blocks_checked), (SLAB_BLOCKS / 256, 2 * SLAB_BLOCKS));
}

#[test]
fn reports_of_parts_add_up() {
    let part = |number: u64, gave_up| ScrubReport {
        blocks_checked: number,
        damaged: BTreeMap::from([(drive_id(0), number), (drive_id(number as usize), 1)]),
        blocks_healed: 2 * number,
        blocks_different: 3 * number,
        blocks_lost: 5 * number,
        pages_lacking: 6 * number,
        pieces_unchecked: 4 * number,
        gave_up,
    };
    let mut sum = part(1, false);
    sum.add(&part(2, true));
    sum.add(&part(3, false));
    let damaged = BTreeMap::from([(drive_id(0), 6), (drive_id(1), 1), (drive_id(2), 1), (drive_id(3), 1)]);
    let expected = ScrubReport {
        blocks_checked: 6,
        damaged,
        blocks_healed: 12,
        blocks_different: 18,
        blocks_lost: 30,
        pages_lacking: 36,
        pieces_unchecked: 24,
        gave_up: true,
    };
    assert_eq!(sum, expected);
}

#[test]
fn an_ended_ownership_scrubs_nothing() {
    let rules = Rules::new(1);
    let owner = rules.owner();
    owner.depose();
    let scrubbed = rules.guests.block_on(async move { owner.scrub_slab(SlabIndex(0), true).await });
    assert_eq!(scrubbed, Ok(Err(OwnerError::Deposed)));
}
