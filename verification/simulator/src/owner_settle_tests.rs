//! What an owner makes of copies when the cluster's state was put back and cannot say which of them are in sync: the
//! marks that were made since are gone.

use std::time::Duration;

use spandrel_platform_simulated::Random;
use spandrel_volume::LegState;

use super::rules::Rules;
use super::*;

const NODES: [usize; 3] = [0, 1, 2];

/// Blocks of a slab.
const SLAB_BLOCKS: u64 = VOLUME_BYTES / 4096 / SLAB_COUNT as u64;

/// All nodes lose their power, the state is put back, and all nodes but `lost` come back.
fn set_back(rules: &Rules, lost: &[usize]) {
    for index in NODES {
        rules.owners.stop(index, true);
    }
    rules.owners.set_back(lost);
    for index in NODES.into_iter().filter(|index| !lost.contains(index)) {
        rules.owners.start(index, false);
    }
    rules.until("they are up", || {
        NODES.iter().all(|index| lost.contains(index) || rules.owners.is_up(*index))
    });
}

#[test]
fn copies_that_were_all_in_sync_stay_so() {
    let rules = Rules::new(1);
    for block in [0, 600, 1500] {
        rules.write(block, block + 7).unwrap();
    }
    set_back(&rules, &[]);
    rules.take(1);
    assert!(rules.owners.membership().stale.is_empty(), "nothing need be brought up to date");
    assert_eq!(rules.owners.membership().unsettled, None);
    for block in [0, 600, 1500] {
        assert_eq!(rules.read(block), Ok(block + 7));
    }
}

/// The copy that was marked stale holds what the others held some time ago; the state does not remember the mark.
#[test]
fn a_copy_that_was_marked_since_is_found_out_whoever_owns_the_volume() {
    for owner in NODES {
        for same_page in [true, false] {
            let rules = Rules::new(owner as u64);
            rules.write(0, 5).unwrap();
            rules.make_stale(2);
            rules.write(if same_page { 1 } else { 1500 }, 6).unwrap();
            // Enough writes that the mark covers the first ones and the lists hold none of them any more.
            for value in 10..90 {
                rules.write(700, value).unwrap();
            }
            set_back(&rules, &[]);
            rules.take(owner);
            assert_eq!(rules.read(0), Ok(5));
            assert_eq!(rules.read(if same_page { 1 } else { 1500 }), Ok(6), "owner {owner}");
            assert_eq!(rules.read(700), Ok(89));
            rules.assert_all_recover(owner, 700, 89);
        }
    }
}

/// What the take-over rolls forward gives the older copy's page the newest version, and hides that the copy lacks what
/// was answered between. So the copies must be compared before.
#[test]
fn a_copy_that_was_marked_since_is_found_out_before_anything_is_rolled_forward() {
    for owner in NODES {
        let rules = Rules::new(owner as u64);
        rules.write(0, 5).unwrap();
        rules.make_stale(2);
        rules.write(0, 6).unwrap();
        // Until the drives have noted a mark that covers the write before.
        for value in 10..150 {
            rules.write(100, value).unwrap();
        }
        rules.owners.judge(|node, request| match request {
            ReplicaRequest::Write { .. } if node == 1 => Fate::Hangs,
            _ => Fate::Carry,
        });
        // In both pages that the copy lacks something of.
        let unanswered = [rules.begin_write(5, 7), rules.begin_write(900, 7)];
        rules.run_for(Duration::from_millis(100));
        assert!(unanswered.iter().all(|outcome| outcome.borrow().is_none()));
        set_back(&rules, &[]);
        rules.owners.judge_no_more();
        rules.take(owner);
        assert_eq!((rules.read(0), rules.read(100)), (Ok(6), Ok(149)), "owner {owner}");
        rules.await_in_sync();
        rules.assert_copies_are_the_same();
        rules.take(2);
        assert_eq!(rules.read(0), Ok(6));
    }
}

/// A leg that joins has the newest writes and lacks older ones, in pages that have the same version on both sides.
#[test]
fn a_copy_that_was_being_brought_up_to_date_does_not_count() {
    for owner in NODES {
        let rules = Rules::new(owner as u64);
        rules.make_stale(2);
        for block in 512..600 {
            rules.write(block, 6).unwrap();
        }
        rules.owners.judge(move |node, request| match request {
            // What is copied does not arrive, what is written does.
            ReplicaRequest::Write { version, .. } if node == 2 && *version == Version::ZERO => {
                Fate::Late(Duration::from_secs(30))
            }
            _ => Fate::Carry,
        });
        rules.owners.start(2, false);
        rules.until("it joins", || rules.leg(2) == LegState::Joining);
        rules.write(700, 7).unwrap();
        rules.run_for(Duration::from_millis(200));
        assert_eq!(rules.leg(2), LegState::Joining);
        set_back(&rules, &[]);
        rules.owners.judge_no_more();
        rules.take(owner);
        assert_eq!((rules.read(520), rules.read(599), rules.read(700)), (Ok(6), Ok(6), Ok(7)));
        rules.assert_all_recover(owner, 599, 6);
    }
}

/// A copy that is not there may be the only one that is right.
#[test]
fn nothing_is_decided_while_a_copy_is_away() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.make_stale(2);
    rules.write(0, 6).unwrap();
    rules.owners.stop(1, true);
    rules.run_for(Duration::from_millis(1500));
    rules.write(0, 7).unwrap();
    // Only node 0 has the last write.
    for index in NODES {
        rules.owners.stop(index, true);
    }
    rules.owners.set_back(&[]);
    rules.owners.start(1, false);
    rules.owners.start(2, false);
    rules.until("two are up", || rules.owners.is_up(1) && rules.owners.is_up(2));
    rules.owners.take(1);
    rules.until("it begins", || rules.owners.owner().is_some());
    rules.run_for(Duration::from_secs(20));
    assert_eq!(rules.owner().phase(), spandrel_volume::Phase::TakingOver);
    assert!(rules.owners.membership().unsettled.is_some());
    rules.owners.start(0, false);
    rules.until("it serves", || rules.owner().phase() == spandrel_volume::Phase::Serving);
    assert_eq!(rules.read(0), Ok(7));
    rules.assert_all_recover(2, 0, 7);
}

/// The volume has grown since the state was current that is gone by: what was written to what came is not lost by mistake.
#[test]
fn what_stands_behind_the_former_end_is_waited_for_until_it_is_given_up() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.write(SLAB_BLOCKS, 6).unwrap();
    let mut slabs = rules.owners.membership().slabs;
    slabs.truncate(1);
    for index in NODES {
        rules.owners.stop(index, true);
    }
    rules.owners.set_back_to(slabs, &[]);
    for index in NODES {
        rules.owners.start(index, false);
    }
    rules.until("all are up", || NODES.iter().all(|index| rules.owners.is_up(*index)));
    rules.owners.take(1);
    rules.until("it waits", || rules.owners.owner().is_some_and(|(_, owner)| owner.obstacle().is_some()));
    rules.run_for(Duration::from_secs(20));
    assert_eq!(rules.owner().phase(), spandrel_volume::Phase::TakingOver);
    let obstacle = rules.owner().obstacle().expect("it is told");
    assert!(obstacle.contains("settle --without-growth"), "{obstacle}");
    rules.owners.give_up_growth();
    rules.take(2);
    assert_eq!(rules.read(0), Ok(5));
    assert_eq!(rules.owner().obstacle(), None);
}

#[test]
fn a_node_that_is_given_up_is_not_waited_for_and_comes_back_empty_handed() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    set_back(&rules, &[2]);
    rules.take(0);
    assert_eq!(rules.read(0), Ok(5));
    assert_eq!(rules.leg(2), LegState::Stale);
    rules.write(0, 6).unwrap();
    rules.owners.start(2, false);
    rules.assert_all_recover(2, 0, 6);
}

/// Writes that were under way are on some copies and not on others; nobody was told that they are there.
#[test]
fn writes_that_were_under_way_take_no_copy_out() {
    for seed in 0..20 {
        let rules = Rules::new(seed);
        for block in 0..8 {
            rules.write(block, 5).unwrap();
        }
        rules.owners.judge(move |node, request| match request {
            ReplicaRequest::Write { first, .. } if (*first as usize + node).is_multiple_of(2) => Fate::Hangs,
            _ => Fate::Carry,
        });
        let _unanswered: Vec<_> = (0..8).map(|block| rules.begin_write(block, 6)).collect();
        rules.run_for(Duration::from_millis(100));
        set_back(&rules, &[]);
        rules.owners.judge_no_more();
        rules.take(1);
        assert!(rules.owners.membership().stale.is_empty(), "{:?}", rules.owners.membership().stale);
        for block in 0..8 {
            let value = rules.read(block).unwrap();
            assert!(value == 5 || value == 6, "{value}");
        }
        rules.assert_copies_are_the_same();
    }
}

/// Whatever has happened before the state was put back: what was answered is there.
#[test]
fn nothing_that_was_answered_is_lost_whatever_happened_before() {
    for seed in 0..60 {
        let rules = Rules::new(seed);
        let random = Random::new(seed);
        let mut answered: BTreeMap<u64, u64> = BTreeMap::new();
        let mut away: Option<usize> = None;
        for value in 10..10 + 40 + random.below(40) {
            match random.below(12) {
                0 if away.is_none() => {
                    let owner = rules.owners.owner().expect("there is one").0;
                    let index = (owner + 1 + random.below(2) as usize) % 3;
                    rules.owners.stop(index, random.below(2) == 0);
                    away = Some(index);
                }
                1 => {
                    if let Some(index) = away.take() {
                        rules.owners.start(index, false);
                        rules.run_for(Duration::from_millis(random.below(400)));
                    }
                }
                2 => rules.run_for(Duration::from_millis(random.below(1500))),
                _ => {
                    let block = [0, 1, 511, 512, 700, 1023, 1024, 2047][random.below(8) as usize];
                    rules.write(block, value).unwrap();
                    answered.insert(block, value);
                }
            }
        }
        set_back(&rules, &[]);
        rules.take(random.below(3) as usize);
        for (block, value) in answered {
            assert_eq!(rules.read(block), Ok(value), "block {block} with seed {seed}");
        }
        rules.await_in_sync();
        rules.assert_copies_are_the_same();
    }
}
