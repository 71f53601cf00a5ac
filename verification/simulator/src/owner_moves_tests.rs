//! Copies that are built elsewhere and take the places of others, while everything goes on.

use std::time::Duration;

use spandrel_volume::{LegState, Phase};

use super::rules::Rules;
use super::*;

/// Blocks of a slab.
const SLAB_BLOCKS: u64 = 1024;

/// The node that holds no copy at first.
const SPARE: usize = 3;

impl Rules {
    /// Three copies, and a fourth node without; the first node is the owner.
    fn with_spare(seed: u64) -> Self {
        Self::in_world(OwnersWorld::with_spares(seed, 3, 1))
    }

    /// Begins to build a copy of the first slab on the spare node, in the place of the one on node 2.
    fn build(&self) {
        self.build_on(SPARE);
    }

    /// The same on another node. Returns when the state has it.
    fn build_on(&self, index: usize) {
        self.build_all(vec![Move { slab: SlabIndex(0), part: 2, to: drive_id(index) }]);
    }

    fn build_all(&self, moves: Vec<Move>) {
        let (owner, outcome) = (self.owner(), Rc::new(Cell::new(None)));
        let slot = Rc::clone(&outcome);
        self.guests.spawn(async move { slot.set(Some(owner.build(moves).await)) });
        self.until("it is begun", || outcome.get().is_some());
        assert_eq!(outcome.get(), Some(true));
    }

    /// Begins to build a copy of the first slab on the spare node, which takes long. Returns when it takes part in writes.
    fn build_slowly(&self) {
        self.owners.judge(|node, request| match request {
            ReplicaRequest::SetPageVersion { .. } if node == SPARE => Fate::Late(Duration::from_millis(500)),
            _ => Fate::Carry,
        });
        self.build();
        self.until("it is being built", || self.building_leg() == Some(LegState::Joining));
    }

    fn building_leg(&self) -> Option<LegState> {
        self.owner().legs().get(&LegId::building(drive_id(SPARE))).map(|leg| leg.state)
    }

    /// The drives of the first slab's copies that count, as the state has them.
    fn drives(&self) -> Vec<DriveId> {
        let members = self.owners.membership().slabs.swap_remove(0);
        members.iter().filter(|member| !member.is_building).map(|member| member.drive).collect()
    }

    fn is_moved(&self) -> bool {
        self.drives() == [drive_id(0), drive_id(1), drive_id(SPARE)]
    }

    /// The moved copy counts, the former one is gone, and all copies are the same.
    fn assert_moved(&self) {
        self.until("it is moved", || self.is_moved() && self.building_leg().is_none());
        let replica = self.owners.replica(2).expect("it is up");
        self.until("the former copy is gone", || replica.copies_of(self.owner().volume()).len() == 1);
        self.assert_copies_are_the_same();
        assert_eq!(self.leg(SPARE), LegState::InSync);
    }
}

/// Old and new writes are on the new copy, nobody is marked, and what the drive holds of other slabs stays there.
#[test]
fn a_copy_moves_while_it_is_written() {
    for seed in 1..=8 {
        let rules = Rules::with_spare(seed);
        rules.write(3, 5).unwrap();
        rules.write(700, 6).unwrap();
        rules.build();
        let mut value = 100;
        while !rules.is_moved() {
            value += 1;
            rules.write(value % 5, value).unwrap();
        }
        rules.write(4, 7).unwrap();
        rules.assert_moved();
        assert_eq!(rules.leg(2), LegState::InSync, "it holds the second slab");
        assert_eq!(rules.owner().statistics().legs_marked, 0);
        rules.take(SPARE);
        assert_eq!((rules.read(700), rules.read(4)), (Ok(6), Ok(7)));
        rules.owners.stop(0, false);
        rules.owners.stop(1, false);
        rules.take(SPARE);
        assert_eq!((rules.read(700), rules.read(4)), (Ok(6), Ok(7)), "it has all of it");
    }
}

/// Its promotion is on its way when a write is sent to it. The outcome comes before the answer: the write waits on, as
/// the copy counts by then.
#[test]
fn a_write_waits_for_a_copy_that_is_promoted_meanwhile() {
    let rules = Rules::with_spare(1);
    rules.write(3, 5).unwrap();
    rules.owners.judge(|node, request| match request {
        ReplicaRequest::Write { version, .. } if node == SPARE && *version > Version::ZERO => {
            Fate::Late(Duration::from_secs(2))
        }
        _ => Fate::Carry,
    });
    rules.owners.slow_state(Duration::from_millis(500));
    rules.build();
    rules.until("its promotion is on its way", || rules.building_leg() == Some(LegState::Promoting));
    let write = rules.begin_write(3, 6);
    rules.until("it is promoted", || rules.leg(2) == LegState::InSync && rules.is_moved());
    assert_eq!(*write.borrow(), None);
    rules.until("the write is answered", || write.borrow().is_some());
    assert_eq!(write.take(), Some(Ok(())));
    assert_eq!(rules.state_of(SPARE, 3), rules.state_of(0, 3));
    assert_eq!(rules.owner().statistics().legs_marked, 0);
}

/// The node of a copy that is being built falls silent, or its process ends. No write waits for it, nothing is marked,
/// and it is built on when it is back.
#[test]
fn nobody_waits_for_a_copy_that_is_being_built() {
    for crashes in [false, true] {
        let rules = Rules::with_spare(1);
        rules.write(3, 5).unwrap();
        rules.build_slowly();
        if crashes {
            rules.owners.stop(SPARE, false);
        } else {
            rules.owners.set_mute(SPARE, true);
        }
        for value in 10..20 {
            rules.write(value % 4, value).unwrap();
            rules.run_for(Duration::from_secs(1));
        }
        assert!(!rules.is_moved());
        assert_eq!(rules.owner().statistics().legs_marked, 0);
        rules.owners.judge_no_more();
        if crashes {
            rules.owners.start(SPARE, false);
        } else {
            rules.owners.set_mute(SPARE, false);
        }
        rules.assert_moved();
    }
}

/// The owner dies while a copy is built: the next one builds on.
#[test]
fn the_next_owner_builds_on() {
    let rules = Rules::with_spare(1);
    rules.write(3, 5).unwrap();
    rules.build_slowly();
    rules.owners.stop(0, false);
    rules.owners.start(0, false);
    rules.owners.judge_no_more();
    rules.take(1);
    rules.write(4, 6).unwrap();
    rules.until("the former owner is in sync", || rules.leg(0) == LegState::InSync);
    rules.assert_moved();
    assert_eq!((rules.read(3), rules.read(4)), (Ok(5), Ok(6)));
}

/// What a drive held that does not come back is built anew elsewhere: three copies again, and no mark remains.
#[test]
fn a_lost_copy_is_built_anew() {
    let rules = Rules::with_spare(1);
    rules.write(3, 5).unwrap();
    rules.make_stale(2);
    rules.write(3, 6).unwrap();
    rules.build();
    rules.until("it is built", || rules.is_moved() && rules.building_leg().is_none());
    rules.assert_copies_are_the_same();
    assert_eq!(rules.state_of(SPARE, 3), rules.state_of(0, 3));
    assert_eq!(rules.leg(2), LegState::Stale, "what it holds of the second slab is as it was");
    rules.take(SPARE);
    assert_eq!(rules.read(3), Ok(6));
}

/// A copy joins those that its drive holds already. While these are stale it would be stale with them.
#[test]
fn a_copy_counts_only_beside_others_that_are_in_sync() {
    let rules = Rules::with_spare(1);
    rules.write(3, 5).unwrap();
    rules.build();
    rules.assert_moved();
    // Node 2 has a copy of the second slab alone now; the first one is to come back to it.
    rules.owners.stop(2, false);
    rules.write(SLAB_BLOCKS, 1).unwrap();
    rules.until("it is marked", || rules.leg(2) == LegState::Stale);
    rules.build_on(2);
    rules.run_for(Duration::from_secs(3));
    assert!(rules.is_moved(), "node 2 is away");
    rules.owners.judge(|node, request| match request {
        // The stale one needs long.
        ReplicaRequest::Prove { copy, .. } if node == 2 && copy.slab == SlabIndex(1) => {
            Fate::Late(Duration::from_secs(2))
        }
        _ => Fate::Carry,
    });
    rules.owners.start(2, false);
    rules.until("both are in sync", || {
        assert!(rules.is_moved() || rules.leg(2) == LegState::InSync);
        rules.drives() == [drive_id(0), drive_id(1), drive_id(2)]
    });
    rules.assert_copies_are_the_same();
}

/// A read that is under way to a copy whose place is taken ends well, and nobody is suspected for it.
#[test]
fn a_read_from_a_replaced_copy_ends_well() {
    let rules = Rules::with_spare(1);
    rules.take(2);
    rules.write(3, 5).unwrap();
    rules.owners.judge(|node, request| match request {
        ReplicaRequest::Read { count: 1, .. } if node == 2 => Fate::Late(Duration::from_secs(1)),
        _ => Fate::Carry,
    });
    rules.build();
    rules.until("its promotion is on its way", || rules.building_leg() == Some(LegState::Promoting));
    let read = rules.begin_read(3);
    rules.until("it is moved", || rules.is_moved());
    assert_eq!(*read.borrow(), None);
    rules.until("the read is answered", || read.borrow().is_some());
    assert_eq!(read.take(), Some(Ok(5)));
    rules.assert_moved();
    assert_eq!(rules.owner().statistics().legs_marked, 0);
}

/// Copies that are given up leave nothing behind, and what they were to replace stays.
#[test]
fn a_copy_that_is_being_built_can_be_given_up() {
    let rules = Rules::with_spare(1);
    rules.write(3, 5).unwrap();
    rules.build_slowly();
    let (owner, given_up) = (rules.owner(), Rc::new(Cell::new(false)));
    let slot = Rc::clone(&given_up);
    rules.guests.spawn(async move { slot.set(owner.abandon(drive_id(SPARE)).await) });
    rules.until("it is given up", || given_up.get());
    assert_eq!(rules.drives(), [drive_id(0), drive_id(1), drive_id(2)]);
    let replica = rules.owners.replica(SPARE).expect("it is up");
    rules.until("nothing remains", || replica.copies_of(rules.owner().volume()).is_empty());
    rules.write(3, 6).unwrap();
    rules.assert_copies_are_the_same();
}

/// The state is put back to one that knows nothing of a move. The copy that was built since may hold what no other one
/// does; where the others hold it all, it is not needed.
#[test]
fn a_state_from_before_a_move_does_not_bring_old_content_back() {
    for others_are_stale in [false, true] {
        let rules = Rules::with_spare(1);
        rules.write(3, 5).unwrap();
        let slabs = rules.owners.membership().slabs;
        rules.build();
        rules.assert_moved();
        rules.write(3, 6).unwrap();
        if others_are_stale {
            rules.take(SPARE);
            for index in [0, 1] {
                rules.owners.stop(index, false);
                rules.write(3, 7 + index as u64).unwrap();
            }
        }
        (0..=SPARE).for_each(|index| rules.owners.stop(index, true));
        rules.owners.set_back_to(slabs, &[]);
        (0..=SPARE).for_each(|index| rules.owners.start(index, false));
        rules.until("all are up", || (0..=SPARE).all(|index| rules.owners.is_up(index)));
        if others_are_stale {
            rules.owners.take(1);
            rules.until("it begins", || rules.owners.owner().is_some());
            rules.run_for(Duration::from_secs(20));
            assert_eq!(rules.owner().phase(), Phase::TakingOver, "node 3 alone has the last write");
        } else {
            rules.take(1);
            assert_eq!(rules.read(3), Ok(6));
            rules.until("node 2 has it again", || rules.leg(2) == LegState::InSync);
            assert_eq!(rules.state_of(2, 3), rules.state_of(0, 3));
        }
    }
}

/// A write to a copy that is about to count is lost on the way, and repeated when it counts: by then it belongs to another
/// leg, which has done nothing wrong.
#[test]
fn a_write_is_repeated_to_a_copy_that_counts_meanwhile() {
    let rules = Rules::with_spare(1);
    rules.write(3, 5).unwrap();
    let counts = Rc::new(Cell::new(false));
    let arrives = Rc::clone(&counts);
    rules.owners.judge(move |node, request| match request {
        ReplicaRequest::Write { version, .. }
            if node == SPARE && *version > Version::ZERO && !arrives.get() =>
        {
            Fate::Fails(Duration::ZERO)
        }
        _ => Fate::Carry,
    });
    rules.owners.slow_state(Duration::from_millis(500));
    rules.build();
    rules.until("its promotion is on its way", || rules.building_leg() == Some(LegState::Promoting));
    rules.run_for(Duration::from_millis(200));
    let write = rules.begin_write(3, 6);
    rules.until("it counts", || {
        counts.set(rules.owner().legs().contains_key(&LegId::standing(drive_id(SPARE))));
        counts.get()
    });
    rules.until("the write is answered", || write.borrow().is_some());
    assert_eq!(write.take(), Some(Ok(())));
    assert_eq!(rules.owner().statistics().legs_marked, 0);
    assert_eq!(rules.state_of(SPARE, 3), rules.state_of(0, 3));
}

/// All that a drive held of the volume is elsewhere when the state is put back to one that has it there: the drive is
/// there, and empty.
#[test]
fn a_state_from_before_a_drive_was_emptied_waits_for_nothing() {
    let rules = Rules::with_spare(1);
    rules.write(3, 5).unwrap();
    rules.write(SLAB_BLOCKS, 6).unwrap();
    let slabs = rules.owners.membership().slabs;
    let all = |slab| Move { slab: SlabIndex(slab), part: 2, to: drive_id(SPARE) };
    rules.build_all(vec![all(0), all(1)]);
    let replica = rules.owners.replica(2).expect("it is up");
    rules.until("the drive is empty", || replica.copies_of(rules.owner().volume()).is_empty());
    rules.run_for(Duration::from_secs(1));
    (0..=SPARE).for_each(|index| rules.owners.stop(index, true));
    rules.owners.set_back_to(slabs, &[]);
    (0..=SPARE).for_each(|index| rules.owners.start(index, false));
    rules.until("all are up", || (0..=SPARE).all(|index| rules.owners.is_up(index)));
    rules.take(1);
    assert_eq!((rules.read(3), rules.read(SLAB_BLOCKS)), (Ok(5), Ok(6)));
    rules.until("node 2 has it again", || rules.leg(2) == LegState::InSync);
}
