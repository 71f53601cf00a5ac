//! What a copy is known to have lost is brought back by itself: nobody has to read it first.

use std::time::Duration;

use spandrel_replica::BlockState;
use spandrel_volume::{LegState, OwnerError};

use super::rules::Rules;
use super::*;

impl Rules {
    /// Has a node's copy of the first slab lose a block, as it does with a leaf of its map.
    fn lose(&self, index: usize, block: u32) {
        let (copy, authority) = self.copy_of(index);
        let lost = self.serve(index, ReplicaRequest::Lose { copy, authority, block });
        assert_eq!(lost, Ok(ReplicaResponse::Done));
        assert!(self.is_lost(index, block));
    }

    /// Whether a node's copy is known to have lost a block.
    fn is_lost(&self, index: usize, block: u32) -> bool {
        self.state_of(index, block) == BlockState::Lost
    }
}

/// A new ownership looks at the pages of all copies in sync: what one of them lacks is healed from another one.
#[test]
fn a_take_over_heals_what_a_copy_has_lost() {
    let rules = Rules::new(1);
    rules.write(3, 5).unwrap();
    rules.lose(2, 3);
    rules.lose(2, 700);
    rules.take(1);
    rules.until("all is healed", || rules.owner().statistics().blocks_healed == 2);
    assert_eq!(rules.state_of(2, 3), rules.state_of(0, 3), "data");
    assert_eq!(rules.state_of(2, 700), BlockState::Hole);
    assert_eq!(rules.owner().statistics().legs_marked, 0, "it was in sync all the time");
}

/// What is lost on the owner's own node, and what two copies have lost of one page.
#[test]
fn copies_that_have_lost_different_blocks_heal_each_other() {
    let rules = Rules::new(1);
    rules.write(3, 5).unwrap();
    rules.write(4, 6).unwrap();
    rules.lose(0, 3);
    rules.lose(1, 4);
    rules.take(0);
    rules.until("all is healed", || rules.owner().statistics().blocks_healed == 2);
    assert_eq!(rules.state_of(0, 3), rules.state_of(2, 3));
    assert_eq!(rules.state_of(1, 4), rules.state_of(2, 4));
    rules.run_for(Duration::from_secs(3));
    assert_eq!(rules.owner().statistics().blocks_healed, 2, "each is healed once");
    assert_eq!((rules.read(3), rules.read(4)), (Ok(5), Ok(6)));
}

/// The only copy in sync has lost a block, and the one that comes back another one. Nobody has changed the page
/// meanwhile, so each has the newest content of what the other one lacks.
#[test]
fn a_copy_that_comes_back_heals_the_one_that_was_left() {
    let rules = Rules::with_nodes(1, 2);
    rules.write(3, 5).unwrap();
    rules.write(4, 6).unwrap();
    rules.lose(0, 3);
    rules.lose(1, 4);
    rules.make_stale(1);
    rules.take(0);
    rules.run_for(Duration::from_secs(5));
    rules.owners.start(1, false);
    rules.until("it is promoted", || rules.leg(1) == LegState::InSync);
    assert_eq!(rules.state_of(1, 4), rules.state_of(0, 4));
    rules.until("the other one is healed", || !rules.is_lost(0, 3));
    assert_eq!(rules.state_of(0, 3), rules.state_of(1, 3));
    assert_eq!((rules.read(3), rules.read(4)), (Ok(5), Ok(6)));
}

/// The copy that has what another one has lost fails when it is to be read, is marked stale, and comes back.
#[test]
fn what_could_not_be_healed_is_tried_again() {
    let rules = Rules::with_nodes(1, 2);
    rules.write(3, 5).unwrap();
    rules.lose(0, 3);
    let fails = Cell::new(true);
    rules.owners.judge(move |node, request| match request {
        ReplicaRequest::Read { .. } if node == 1 && fails.replace(false) => Fate::Fails(Duration::ZERO),
        _ => Fate::Carry,
    });
    rules.take(0);
    rules.until("it is marked", || rules.owner().statistics().legs_marked == 1);
    rules.until("it is promoted", || rules.leg(1) == LegState::InSync);
    rules.until("all is healed", || !rules.is_lost(0, 3));
    assert_eq!(rules.read(3), Ok(5));
}

/// The connection to a copy breaks for a moment, just when it is asked what it has lost. It stays in sync: no promotion
/// follows that would have the owner look again.
#[test]
fn a_copy_that_could_not_be_asked_is_asked_again() {
    let rules = Rules::new(1);
    rules.write(3, 5).unwrap();
    rules.lose(2, 3);
    let failures = Rc::new(Cell::new(0));
    let failed = Rc::clone(&failures);
    rules.owners.judge(move |node, request| match request {
        ReplicaRequest::BlockStates { first: 0, .. } if node == 1 && failed.get() < 2 => {
            failed.set(failed.get() + 1);
            Fate::Fails(Duration::ZERO)
        }
        _ => Fate::Carry,
    });
    rules.take(0);
    rules.until("it was asked in vain", || failures.get() == 2);
    rules.until("all is healed", || !rules.is_lost(2, 3));
    let statistics = rules.owner().statistics();
    assert_eq!((statistics.legs_marked, statistics.legs_promoted), (0, 0));
}

/// What one copy has lost has rotted on the others: it is looked for again, but more and more rarely, as each look reads
/// it all.
#[test]
fn what_nobody_has_whole_is_not_read_over_and_over() {
    let rules = Rules::with_nodes(1, 2);
    rules.write(3, 5).unwrap();
    rules.lose(0, 3);
    rules.rot(1, 5);
    let checks = Rc::new(Cell::new(0));
    let counted = Rc::clone(&checks);
    rules.owners.judge(move |node, request| {
        counted.set(counted.get() + u32::from(node == 1 && matches!(request, ReplicaRequest::Check { .. })));
        Fate::Carry
    });
    rules.take(0);
    rules.run_for(Duration::from_secs(60));
    assert!((2..=6).contains(&checks.get()), "it was checked {} times", checks.get());
    assert_eq!(rules.read(3), Err(OwnerError::Lost { block: 3 }));
}

/// A copy had to lose a block in a page that was changed while it was away, since the block had rotted on the one that
/// was left. One that comes back later has it.
#[test]
fn what_a_resync_had_to_lose_is_healed_by_a_copy_that_comes_back_later() {
    let rules = Rules::new(1);
    rules.write(3, 5).unwrap();
    rules.make_stale(1);
    rules.write(3, 6).unwrap();
    rules.make_stale(2);
    rules.rot(0, 6);
    rules.owners.start(1, false);
    rules.until("it is promoted", || rules.leg(1) == LegState::InSync);
    assert!(rules.is_lost(1, 3));
    rules.run_for(Duration::from_secs(5));
    rules.owners.start(2, false);
    rules.until("it is healed", || !rules.is_lost(1, 3));
    assert_eq!(rules.state_of(1, 3), rules.state_of(2, 3));
    assert_eq!(rules.read(3), Ok(6));
}

/// The same, but the copy that had to lose the block is promoted just when the others are asked what they have lost: what
/// they say is no word on it.
#[test]
fn a_copy_that_is_promoted_while_the_others_are_asked_is_asked_later() {
    let rules = Rules::new(1);
    rules.write(3, 5).unwrap();
    rules.make_stale(1);
    rules.write(3, 6).unwrap();
    rules.make_stale(2);
    rules.rot(0, 6);
    rules.owners.judge(|node, request| match request {
        ReplicaRequest::Prove { .. } if node == 1 => Fate::Late(Duration::from_secs(2)),
        // A resync asks for less.
        ReplicaRequest::BlockStates { count: 256, .. } if node == 2 => Fate::Late(Duration::from_secs(2)),
        _ => Fate::Carry,
    });
    rules.owners.start(1, false);
    rules.until("it joins and has lost the block", || {
        rules.leg(1) == LegState::Joining && rules.is_lost(1, 3)
    });
    rules.owners.start(2, false);
    rules.until("the whole copy is promoted", || rules.leg(2) == LegState::InSync);
    assert_ne!(rules.leg(1), LegState::InSync);
    rules.until("the other one is promoted", || rules.leg(1) == LegState::InSync);
    assert!(rules.is_lost(1, 3));
    rules.until("it is healed", || !rules.is_lost(1, 3));
    assert_eq!(rules.read(3), Ok(6));
}

/// The only copy in sync has lost a block of a page that was changed while the other one was away. What that has there
/// may be old.
#[test]
fn a_copy_that_comes_back_keeps_nothing_that_may_be_old() {
    let rules = Rules::with_nodes(1, 2);
    rules.write(3, 5).unwrap();
    rules.make_stale(1);
    rules.write(3, 6).unwrap();
    rules.lose(0, 3);
    rules.take(0);
    rules.owners.start(1, false);
    rules.until("it is promoted", || rules.leg(1) == LegState::InSync);
    assert!(rules.is_lost(1, 3));
    assert_eq!(rules.read(3), Err(OwnerError::Lost { block: 3 }));
}

/// A block that a stale copy has lost lies in a page that nobody has changed meanwhile. If it were counted in sync
/// without that block, the next failure could leave the block to nobody.
#[test]
fn a_copy_is_in_sync_only_with_what_it_had_lost() {
    let rules = Rules::new(1);
    rules.write(3, 5).unwrap();
    rules.lose(2, 3);
    rules.make_stale(2);
    rules.owners.start(2, false);
    rules.until("it is promoted", || rules.leg(2) == LegState::InSync);
    assert_eq!(rules.state_of(2, 3), rules.state_of(0, 3));
    assert_eq!(rules.owner().statistics().blocks_healed, 0, "its resync has brought it");
}
