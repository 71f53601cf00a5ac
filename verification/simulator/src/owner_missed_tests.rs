//! What a copy has missed is copied and nothing else: as the owner has seen it, or as the contents show.

use std::cell::Cell;
use std::time::Duration;

use spandrel_shared::canary::{self, Bug};
use spandrel_shared::knob::{self, Knob};
use spandrel_shared::witness::{self, Rare};
use spandrel_volume::LegState;

use super::rules::Rules;
use super::*;

/// Checksums that call any two blocks with data the same: what is copied then is what is known.
struct BlindChecksums;

impl BlindChecksums {
    fn put_on() -> Self {
        knob::turn(Knob::ComparedChecksumBits, Some(0));
        Self
    }
}

impl Drop for BlindChecksums {
    fn drop(&mut self) {
        knob::turn(Knob::ComparedChecksumBits, None);
        canary::plant(None);
    }
}

/// The block that [`Rules::make_stale`] writes.
const STALE_BLOCK: u64 = 1000;

impl Rules {
    /// Three copies that hold data in the same blocks, of which the one on node 2 has missed some of the newest.
    fn with_missed(seed: u64, missed: &[u64]) -> Self {
        let rules = Self::new(seed);
        for block in (0..600).step_by(10).chain([STALE_BLOCK]) {
            rules.write(block, 5).unwrap();
        }
        rules.make_stale(2);
        for block in missed {
            rules.write(*block, 6).unwrap();
        }
        rules
    }

    fn bring_back(&self) {
        self.owners.start(2, false);
        self.await_in_sync();
    }

    /// Whether the copies hold the same.
    fn are_the_same(&self) -> bool {
        self.scrub().blocks_different == 0
    }
}

fn contents_compared() -> u64 {
    let index = Rare::ALL.iter().position(|rare| *rare == Rare::ContentsCompared);
    witness::take_reached()[index.expect("it is one of them")]
}

#[test]
fn what_the_owner_has_seen_is_copied_block_by_block() {
    let _blind = BlindChecksums::put_on();
    let rules = Rules::with_missed(1, &[10, 20, 30, 520]);
    contents_compared();
    rules.bring_back();
    assert_eq!(
        rules.owner().statistics().blocks_resynced,
        4 + 1,
        "each on its own, and the one that was under way"
    );
    assert_eq!(contents_compared(), 0, "nothing is read of what was not missed");
    assert!(rules.are_the_same());
    rules.assert_all_recover(2, 520, 6);
}

#[test]
fn an_owner_that_has_not_seen_it_compares_contents() {
    let _blind = BlindChecksums::put_on();
    let rules = Rules::with_missed(2, &[10, 520]);
    rules.take(1);
    contents_compared();
    rules.bring_back();
    assert!(contents_compared() > 0);
    assert_eq!(rules.owner().statistics().blocks_resynced, 3);
    assert!(rules.are_the_same());
    rules.assert_all_recover(2, 10, 6);
}

#[test]
fn copies_would_differ_without_what_was_under_way_or_if_checksums_were_trusted() {
    let _blind = BlindChecksums::put_on();
    canary::plant(Some(Bug::ForgetUnderWay));
    let rules = Rules::with_missed(3, &[]);
    rules.bring_back();
    assert!(!rules.are_the_same());

    canary::plant(Some(Bug::TrustEqualChecksums));
    let rules = Rules::with_missed(3, &[10]);
    rules.take(1);
    rules.bring_back();
    assert!(!rules.are_the_same());
}

/// Trims are missed as well, and so are writes to where nothing was.
#[test]
fn what_was_trimmed_and_what_is_new_is_copied() {
    let rules = Rules::with_missed(4, &[11, 700]);
    let owner = rules.owner();
    let trimmed = rules.guests.block_on(async move { owner.trim(20 * 4096, 11 * 4096).await });
    trimmed.expect("nothing stops it").expect("it serves");
    rules.bring_back();
    assert_eq!(rules.state_of(2, 20), spandrel_replica::BlockState::Hole);
    assert_eq!(rules.state_of(2, 30), spandrel_replica::BlockState::Hole);
    assert!(rules.are_the_same());
    rules.assert_all_recover(2, 700, 6);
}

/// A page that was made whole is not copied again, when the leg falls back: but for what it has missed since.
#[test]
fn a_resync_that_is_interrupted_goes_on_where_it_was() {
    let _blind = BlindChecksums::put_on();
    let rules = Rules::with_missed(5, &[10, 20, 520]);
    rules.owners.judge(|node, request| match Rules::hold_up_resync(request, Duration::from_secs(20)) {
        Some(fate) if node == 2 => fate,
        _ => Fate::Carry,
    });
    rules.owners.start(2, false);
    rules.await_held_up();
    let before = rules.owner().statistics().blocks_resynced;
    assert!(before >= 2);
    rules.owners.stop(2, false);
    rules.owners.judge_no_more();
    rules.write(30, 6).unwrap();
    rules.until("it has fallen back", || rules.leg(2) == LegState::Stale);
    rules.bring_back();
    let behind = rules.owner().statistics().blocks_resynced - before;
    assert!((2..=3).contains(&behind), "block 30, those of page 1, and not 10 and 20 again: {behind}");
    assert!(rules.are_the_same());
    rules.assert_all_recover(2, 30, 6);
}

/// What breaks off the copying of one page breaks off that of all others: what each of them lacks is remembered.
#[test]
fn all_pages_that_were_being_copied_lack_the_same_as_before_when_one_of_them_fails() {
    let _blind = BlindChecksums::put_on();
    let rules = Rules::with_missed(6, &[10, 20, 520]);
    let fills = Rc::new(Cell::new(0));
    let count = Rc::clone(&fills);
    rules.owners.judge(move |node, request| match request {
        ReplicaRequest::Write { version, .. } if node == 2 && *version == Version::ZERO => {
            count.set(count.get() + 1);
            Fate::Late(Duration::from_secs(20))
        }
        _ => Fate::Carry,
    });
    rules.owners.start(2, false);
    rules.until("both pages are being copied", || fills.get() == 2);
    rules.owners.stop(2, false);
    rules.owners.judge_no_more();
    rules.until("it has fallen back", || rules.leg(2) == LegState::Stale);
    rules.bring_back();
    assert!(rules.are_the_same());
    rules.assert_all_recover(2, 520, 6);
}
