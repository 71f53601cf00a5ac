//! Single rules of an owner, each with the course of events that breaks it.

use std::cell::Cell;
use std::time::Duration;

use spandrel_volume::{LegState, OwnerError, Phase, ScrubReport};

use super::*;
use crate::history::{BLOCK_SECTORS, content, value_of};

/// The first block of the last 64 KiB of a slab.
const LAST_CHUNK: u32 = 1024 - 16;

const PATIENCE: Duration = Duration::from_secs(60);

/// The outcome of a request, once there is one.
type Outcome<T> = Rc<RefCell<Option<Result<T, OwnerError>>>>;

struct Rules {
    owners: OwnersWorld,
    guests: Process,
}

impl Drop for Rules {
    fn drop(&mut self) {
        self.guests.crash();
    }
}

impl Rules {
    /// Three nodes, all in sync; the first one is the owner.
    fn new(seed: u64) -> Self {
        let owners = OwnersWorld::new(seed, 3);
        let host = owners.world.add_host("guests");
        let guests = owners.world.start_process_on(&host, "guests");
        let rules = Self { owners, guests };
        rules.take(0);
        rules
    }

    fn until(&self, what: &str, condition: impl FnMut() -> bool) {
        let end = self.owners.world.run_until_within(PATIENCE, condition);
        let legs = self.owners.owner().map(|(_, owner)| (owner.phase(), owner.legs()));
        assert_eq!(end, RunEnd::ConditionMet, "{what}: {legs:#?}");
    }

    fn run_for(&self, time: Duration) {
        assert_eq!(self.owners.world.run_for(time), RunEnd::TimeOver);
    }

    /// Makes a node the owner and waits until it serves.
    fn take(&self, index: usize) {
        self.owners.take(index);
        let epoch = self.owners.membership().epoch;
        self.until("it serves", || {
            self.owners
                .owner()
                .is_some_and(|(_, owner)| owner.epoch() == epoch && owner.phase() == Phase::Serving)
        });
    }

    fn owner(&self) -> Owner<Context> {
        self.owners.owner().expect("there is an owner").1
    }

    fn leg(&self, index: usize) -> LegState {
        self.owner().legs()[&drive_id(index)].state
    }

    fn await_in_sync(&self) {
        self.until("all are in sync", || (0..3).all(|index| self.leg(index) == LegState::InSync));
    }

    fn begin_write(&self, block: u64, value: u64) -> Outcome<()> {
        let (owner, outcome) = (self.owner(), Outcome::default());
        let data = content(self.guests.platform().buffers(), value, BLOCK_SECTORS);
        let slot = Rc::clone(&outcome);
        self.guests.spawn(async move {
            let result = owner.write(block * 4096, data).await;
            *slot.borrow_mut() = Some(result);
        });
        outcome
    }

    fn write(&self, block: u64, value: u64) -> Result<(), OwnerError> {
        let outcome = self.begin_write(block, value);
        self.until("the write is answered", || outcome.borrow().is_some());
        outcome.take().expect("it was answered")
    }

    fn read(&self, block: u64) -> Result<u64, OwnerError> {
        let (owner, outcome) = (self.owner(), Outcome::default());
        let slot = Rc::clone(&outcome);
        self.guests.spawn(async move {
            let result = owner.read(block * 4096, 4096).await;
            let result = result.map(|parts| value_of(&parts[0]).expect("no block is torn"));
            *slot.borrow_mut() = Some(result);
        });
        self.until("the read is answered", || outcome.borrow().is_some());
        outcome.take().expect("it was answered")
    }

    /// Stops a node and writes, so that its leg is marked stale.
    fn make_stale(&self, index: usize) {
        self.owners.stop(index, false);
        self.write(1000, 1).expect("the others take it");
        self.until("it is marked", || self.leg(index) == LegState::Stale);
    }

    /// Starts a node, and runs until all that is missing of its leg's resync is the promotion.
    fn start_until_promotion(&self, index: usize) {
        let proven = Rc::new(Cell::new(0));
        let count = Rc::clone(&proven);
        self.owners.judge(move |_, request| {
            count.set(count.get() + u32::from(matches!(request, ReplicaRequest::Prove { .. })));
            Fate::Carry
        });
        self.owners.start(index, false);
        self.until("all its copies are proven", || proven.get() == SLAB_COUNT);
        self.owners.judge_no_more();
    }

    /// Flips a bit in every place of a drive that holds `value`.
    fn rot(&self, index: usize, value: u64) {
        let drive = self.owners.drive(index);
        let image = drive.snapshot();
        let mut found = 0;
        for block in (0..image.size_bytes()).step_by(4096) {
            let bytes = image.read_vec(block, 4096);
            if bytes.chunks_exact(8).all(|chunk| chunk == value.to_le_bytes()) {
                drive.flip_bit(block + 99, 3);
                found += 1;
            }
        }
        assert!(found > 0, "the drive holds {value}");
    }

    fn scrub(&self) -> ScrubReport {
        let owner = self.owner();
        let (_, process) =
            self.owners.owner().map(|(index, _)| (index, self.owners.process(index))).expect("owner");
        let process = process.expect("the owner's process runs");
        let scrubbed = process.block_on(async move { owner.scrub_slab(SlabIndex(0), true).await });
        scrubbed.expect("nothing stops it").expect("it serves")
    }

    fn assert_copies_are_the_same(&self) {
        let report = self.scrub();
        assert_eq!((report.blocks_different, report.pieces_unchecked), (0, 0));
    }

    /// Holds up the resync of the leg on node 2 in its last step but the promotion: page 1 of the first
    /// slab gets its version only `delay` later. Page 0 is whole by then.
    fn hold_up_resync(request: &ReplicaRequest, delay: Duration) -> Option<Fate> {
        match request {
            ReplicaRequest::SetPageVersion { page: 1, .. } => Some(Fate::Late(delay)),
            _ => None,
        }
    }

    /// Completes when page 0 is whole on the joining leg of node 2, and page 1 is held up.
    fn await_held_up(&self) {
        let drive = drive_id(2);
        self.until("a page is whole", || {
            self.owner().resync_progress().get(&drive).is_some_and(|progress| progress.pages_done > 0)
        });
        assert_eq!(self.leg(2), LegState::Joining);
    }
}

/// A leg that joins gets new writes without anybody waiting for them. It misses one that is on its way
/// when its last page has been copied.
#[test]
fn a_leg_that_missed_a_write_while_it_joined_is_not_promoted() {
    for failure_ms in [30, 60, 90] {
        let rules = Rules::new(failure_ms);
        rules.write(0, 5).unwrap();
        rules.make_stale(2);
        rules.write(0, 6).unwrap();
        let missed = Rc::new(Cell::new(false));
        let first = Rc::clone(&missed);
        rules.owners.judge(move |node, request| match request {
            ReplicaRequest::Write { version, first: 0, .. }
                if node == 2 && *version > spandrel_shared::Version::ZERO && !first.replace(true) =>
            {
                Fate::Fails(Duration::from_millis(failure_ms))
            }
            _ if node == 2 => {
                Rules::hold_up_resync(request, Duration::from_millis(50)).unwrap_or(Fate::Carry)
            }
            _ => Fate::Carry,
        });
        rules.owners.start(2, false);
        rules.await_held_up();
        rules.write(0, 7).unwrap();
        assert!(missed.get());
        rules.await_in_sync();
        rules.owners.judge_no_more();
        rules.assert_copies_are_the_same();
        rules.take(2);
        assert_eq!(rules.read(0), Ok(7), "after {failure_ms} ms");
    }
}

/// A leg falls silent while its promotion is on its way to a slow cluster's state: its mark is asked for when the
/// promotion's outcome is known, and what the owner believes of the leg is what the state says.
#[test]
fn a_leg_that_falls_silent_while_it_is_promoted_is_marked_afterwards() {
    let rules = Rules::new(1);
    rules.make_stale(2);
    rules.owners.slow_state(Duration::from_millis(800));
    rules.start_until_promotion(2);
    rules.run_for(Duration::from_millis(100));
    rules.owners.set_mute(2, true);
    let agree =
        || (rules.leg(2) == LegState::Stale) == rules.owners.membership().stale.contains_key(&drive_id(2));
    rules.until("it is promoted in the state", || rules.owners.membership().stale.is_empty());
    assert_eq!(rules.leg(2), LegState::Promoting, "the owner does not know yet");
    rules.until("it is marked", || {
        assert!(rules.leg(2) != LegState::Stale || agree());
        rules.leg(2) == LegState::Stale
    });
    rules.owners.slow_state(Duration::ZERO);
    rules.write(0, 7).unwrap();
    rules.owners.set_mute(2, false);
    rules.await_in_sync();
    rules.assert_copies_are_the_same();
}

/// The outcome of a promotion cannot be learned, as the cluster's state does not answer this owner. When a copy that it
/// needs falls silent as well, it gives the volume up instead of waiting: another node may reach both.
#[test]
fn an_owner_whose_change_does_not_end_begins_anew_when_a_copy_falls_silent() {
    let rules = Rules::new(1);
    rules.make_stale(2);
    rules.owners.slow_state(Duration::from_secs(1000));
    rules.start_until_promotion(2);
    rules.run_for(Duration::from_secs(3));
    assert_eq!(rules.owner().phase(), Phase::Serving);
    rules.owners.set_mute(1, true);
    rules.until("it gives up", || rules.owner().phase() == Phase::Deposed);
}

/// The same when what does not end is the mark of the silent copy itself.
#[test]
fn an_owner_whose_mark_does_not_end_begins_anew() {
    let rules = Rules::new(1);
    rules.owners.slow_state(Duration::from_secs(1000));
    rules.owners.set_mute(1, true);
    rules.until("it gives up", || rules.owner().phase() == Phase::Deposed);
}

/// While a copy joins and just nothing is asked of it, its node's power fails, and its drive has forgotten a page that
/// has been copied. The next write must not reach it before it has told what it holds: the page would get the version
/// that the others have, and nothing would show any more what it lacks.
#[test]
fn a_process_that_has_not_told_what_its_copies_hold_gets_no_write() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.make_stale(2);
    rules.write(0, 6).unwrap();
    rules.owners.judge(|node, request| match request {
        ReplicaRequest::SetPageVersion { page: 0, .. } => Fate::Late(Duration::from_millis(50)),
        ReplicaRequest::Read { first, .. } if node != 2 && *first >= LAST_CHUNK => {
            Fate::Late(Duration::from_millis(500))
        }
        _ => Fate::Carry,
    });
    rules.owners.start(2, false);
    rules.until("it joins", || rules.leg(2) == LegState::Joining);
    let before = rules.owners.drive(2).snapshot();
    rules.await_held_up();
    rules.owners.stop(2, true);
    rules.owners.drive(2).restore(before);
    rules.owners.start(2, false);
    rules.until("it is back", || rules.owners.is_up(2));
    assert_eq!(rules.leg(2), LegState::Joining, "nobody has missed it");
    rules.write(1, 7).unwrap();
    rules.owners.judge_no_more();
    rules.await_in_sync();
    rules.assert_copies_are_the_same();
    rules.take(2);
    assert_eq!(rules.read(0), Ok(6));
}

/// The only copy in sync is on a node that starts anew: it cannot be marked stale, and its new process promises
/// nothing to an ownership that it has told nothing. So the owner gives up, and the next ownership asks it.
#[test]
fn an_owner_whose_last_copy_starts_anew_gives_up() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.owners.judge(|node, request| match request {
        ReplicaRequest::Write { .. } if node != 1 => Fate::Fails(Duration::ZERO),
        ReplicaRequest::Fence { .. } if node != 1 => Fate::Hangs,
        _ => Fate::Carry,
    });
    rules.write(0, 6).unwrap();
    assert_eq!(rules.owners.membership().stale.len(), 2);
    rules.owners.stop(1, true);
    rules.owners.start(1, false);
    let write = rules.begin_write(1, 7);
    rules.until("it gives up", || rules.owner().phase() == Phase::Deposed);
    rules.until("the write ends", || write.borrow().is_some());
    assert_eq!(write.take(), Some(Err(OwnerError::Deposed)));
    rules.owners.judge_no_more();
    rules.take(0);
    assert_eq!(rules.read(0), Ok(6));
    rules.await_in_sync();
    rules.assert_copies_are_the_same();
}

/// A promotion is tried again and again, as the cluster's state cannot be reached for it. Meanwhile the leg misses a
/// write and is marked: the next attempt must not take that mark off.
#[test]
fn a_promotion_that_is_tried_again_looks_at_its_leg_first() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.make_stale(2);
    rules.owners.fail_promotions(true);
    rules.start_until_promotion(2);
    rules.run_for(Duration::from_millis(100));
    assert_eq!(rules.leg(2), LegState::Promoting);
    rules.owners.judge(|node, request| match request {
        ReplicaRequest::Write { .. } if node == 2 => Fate::Fails(Duration::from_millis(5)),
        _ => Fate::Carry,
    });
    rules.write(0, 6).unwrap();
    assert_ne!(rules.leg(2), LegState::Promoting, "it was answered without the leg");
    rules.owners.judge_no_more();
    rules.owners.fail_promotions(false);
    rules.await_in_sync();
    rules.assert_copies_are_the_same();
    rules.take(2);
    assert_eq!(rules.read(0), Ok(6));
}

/// No copy has room for a write while a promotion is on its way: the write has changed nothing anywhere, and the
/// promoted leg goes on with the others.
#[test]
fn a_write_that_is_refused_does_not_take_a_leg_out_whose_promotion_is_on_its_way() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.make_stale(2);
    rules.owners.slow_state(Duration::from_secs(1));
    rules.start_until_promotion(2);
    rules.run_for(Duration::from_millis(100));
    assert_eq!(rules.leg(2), LegState::Promoting);
    rules.owners.judge(|_, request| match request {
        ReplicaRequest::Write { .. } => Fate::Refused(Duration::ZERO, ReplicaError::NoRoom),
        _ => Fate::Carry,
    });
    assert_eq!(rules.write(0, 6), Err(OwnerError::NoRoom));
    rules.owners.judge_no_more();
    rules.write(0, 7).unwrap();
    rules.await_in_sync();
    rules.assert_copies_are_the_same();
    rules.owners.slow_state(Duration::ZERO);
    rules.take(2);
    assert_eq!(rules.read(0), Ok(7));
}

/// A write that no in-sync copy has room for changes nothing; a leg that joins may have had room.
#[test]
fn a_leg_that_joins_does_not_keep_a_write_that_was_refused() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.make_stale(2);
    rules.write(0, 6).unwrap();
    rules.owners.judge(move |node, request| match request {
        ReplicaRequest::Write { .. } if node != 2 => Fate::Refused(Duration::ZERO, ReplicaError::NoRoom),
        _ if node == 2 => Rules::hold_up_resync(request, Duration::from_millis(50)).unwrap_or(Fate::Carry),
        _ => Fate::Carry,
    });
    rules.owners.start(2, false);
    rules.await_held_up();
    assert_eq!(rules.write(0, 7), Err(OwnerError::NoRoom));
    rules.await_in_sync();
    rules.owners.judge_no_more();
    rules.assert_copies_are_the_same();
    assert_eq!(rules.read(0), Ok(6));
}

#[test]
fn a_copy_without_room_is_marked_and_the_write_answered() {
    let rules = Rules::new(1);
    rules.owners.judge(move |node, request| match request {
        ReplicaRequest::Write { .. } if node == 1 => Fate::Refused(Duration::ZERO, ReplicaError::NoRoom),
        _ => Fate::Carry,
    });
    assert_eq!(rules.write(0, 5), Ok(()));
    assert_ne!(rules.leg(1), LegState::InSync);
    rules.owners.judge_no_more();
    rules.await_in_sync();
    rules.assert_copies_are_the_same();
}

/// The only copy that had room is gone: those that remain have none.
#[test]
fn a_write_that_only_a_lost_copy_had_room_for_is_refused() {
    let rules = Rules::new(1);
    rules.take(1);
    rules.owners.judge(move |node, request| match request {
        ReplicaRequest::Write { .. } if node != 0 => {
            Fate::Refused(Duration::from_millis(200), ReplicaError::NoRoom)
        }
        _ => Fate::Carry,
    });
    let outcome = rules.begin_write(0, 5);
    rules.run_for(Duration::from_millis(100));
    rules.owners.stop(0, false);
    rules.until("it is answered", || outcome.borrow().is_some());
    assert_eq!(outcome.take(), Some(Err(OwnerError::NoRoom)));
    rules.owners.judge_no_more();
    rules.owners.start(0, false);
    rules.await_in_sync();
    rules.assert_copies_are_the_same();
    assert_eq!(rules.read(0), Ok(0));
}

/// When all copies are in doubt at the same moment, the one that answers again must be the one that
/// stays: for the last one the volume waits.
#[test]
fn of_copies_that_are_all_in_doubt_a_living_one_stays() {
    for survivor in 0..3 {
        let rules = Rules::new(survivor as u64);
        rules.take(survivor);
        let stumbled = Cell::new(false);
        rules.owners.judge(move |node, request| match request {
            ReplicaRequest::Write { .. } if node == survivor && !stumbled.replace(true) => {
                Fate::Fails(Duration::ZERO)
            }
            _ => Fate::Carry,
        });
        (0..3).filter(|index| *index != survivor).for_each(|index| rules.owners.stop(index, true));
        assert_eq!(rules.write(0, 5), Ok(()), "node {survivor} lives");
        assert_eq!(rules.read(0), Ok(5));
    }
}

/// The guardian tells the mark when the volume falls idle. A node that is silent just then is marked
/// nevertheless.
#[test]
fn a_node_that_falls_silent_when_the_volume_falls_idle_is_marked() {
    let rules = Rules::new(1);
    let owners = Rc::downgrade(&rules.owners.shared);
    rules.owners.judge(move |node, request| {
        if node == 2
            && let ReplicaRequest::NoteMark { .. } = request
        {
            owners.upgrade().expect("the world lives").mute.borrow_mut().insert(2);
            return Fate::Hangs;
        }
        Fate::Carry
    });
    rules.write(0, 5).unwrap();
    rules.until("it falls silent", || rules.owners.shared.mute.borrow().contains(&2));
    assert_eq!(rules.write(0, 6), Ok(()));
    assert_eq!(rules.leg(2), LegState::Stale);
    rules.owners.set_mute(2, false);
    rules.owners.judge_no_more();
    rules.await_in_sync();
}

/// The node of a drive that hangs is alive and promises.
#[test]
fn a_drive_that_hangs_is_taken_out_and_comes_back() {
    for hanging in 0..3 {
        let rules = Rules::new(hanging as u64);
        rules.write(0, 5).unwrap();
        rules.owners.drive(hanging).fall_silent();
        assert_eq!(rules.write(0, 6), Ok(()), "drive {hanging}");
        assert_eq!(rules.leg(hanging), LegState::Stale);
        assert_eq!(rules.read(0), Ok(6));
        rules.owners.drive(hanging).revive();
        rules.await_in_sync();
        rules.assert_copies_are_the_same();
    }
}

/// Nobody writes, and the nearest copy answers no read.
#[test]
fn a_drive_that_hangs_under_a_read_is_taken_out() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.owners.drive(0).fall_silent();
    assert_eq!(rules.read(0), Ok(5));
}

#[test]
fn a_take_over_does_not_wait_for_a_drive_that_hangs() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.owners.drive(2).fall_silent();
    rules.take(1);
    assert_eq!(rules.read(0), Ok(5));
    rules.owners.drive(2).revive();
    rules.await_in_sync();
}

/// What is copied is locked meanwhile; the locks do not outlast a drive that hangs.
#[test]
fn a_drive_that_hangs_while_it_joins_holds_no_lock() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.make_stale(2);
    rules.write(0, 6).unwrap();
    rules.owners.judge(|node, request| match request {
        ReplicaRequest::Write { .. } if node == 2 => Fate::Hangs,
        _ => Fate::Carry,
    });
    rules.owners.start(2, false);
    rules.until("it joins", || rules.leg(2) == LegState::Joining);
    rules.run_for(Duration::from_millis(100));
    assert_eq!(rules.write(0, 7), Ok(()));
    rules.owners.judge_no_more();
    rules.await_in_sync();
    rules.assert_copies_are_the_same();
}

/// All others are stale, but one of them holds the very content whose checksum the map still says.
#[test]
fn a_damaged_block_on_the_last_copy_is_healed_from_a_stale_one() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.write(1, 50).unwrap();
    rules.make_stale(1);
    rules.make_stale(2);
    rules.rot(0, 5);
    assert_eq!(rules.read(0), Err(OwnerError::Lost { block: 0 }), "while nobody else is there");
    rules.owners.judge(|node, request| match request {
        // No resync meanwhile.
        ReplicaRequest::SetPageVersion { .. } if node == 2 => Fate::Hangs,
        _ => Fate::Carry,
    });
    rules.owners.start(2, false);
    rules.until("it is there", || rules.owners.is_up(2));
    assert_eq!(rules.read(0), Ok(5));
    rules.owners.judge_no_more();
    rules.owners.start(1, false);
    rules.await_in_sync();
    rules.assert_copies_are_the_same();
    assert_eq!(rules.scrub().damaged, BTreeMap::new());
}

/// A block that is lost for good is an error for its readers, and for nobody else: all copies come
/// back, none shows older content, and a write makes the block good.
#[test]
fn a_lost_block_is_an_error_and_no_standstill() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.write(1, 50).unwrap();
    rules.make_stale(1);
    rules.make_stale(2);
    rules.write(0, 6).unwrap();
    rules.write(2, 60).unwrap();
    rules.rot(0, 6);
    rules.owners.start(1, false);
    rules.owners.start(2, false);
    rules.await_in_sync();
    let half = rules.guests.platform().buffers().copy_of(&[1; 512]).freeze();
    for node in 0..3 {
        rules.take(node);
        rules.await_in_sync();
        assert_eq!(rules.read(0), Err(OwnerError::Lost { block: 0 }), "node {node}");
        assert_eq!((rules.read(1), rules.read(2)), (Ok(50), Ok(60)));
        let (owner, half) = (rules.owner(), half.clone());
        let process = rules.owners.process(node).expect("up");
        let part = process.block_on(async move { owner.write(512, half).await }).expect("it serves");
        assert_eq!(part, Err(OwnerError::Lost { block: 0 }), "a part of it is not written");
    }
    rules.write(0, 7).unwrap();
    for node in 0..3 {
        rules.take(node);
        assert_eq!(rules.read(0), Ok(7));
    }
    rules.assert_copies_are_the_same();
    assert_eq!(rules.scrub().damaged, BTreeMap::new());
}

/// A write reaches one copy alone, is never answered, and rots there before the next owner can make it
/// the same on the others.
#[test]
fn an_unanswered_write_that_has_rotted_does_not_stop_a_take_over() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.owners.judge(|node, request| match request {
        ReplicaRequest::Write { .. } if node != 1 => Fate::Hangs,
        _ => Fate::Carry,
    });
    let outcome = rules.begin_write(0, 6);
    rules.run_for(Duration::from_millis(200));
    assert_eq!(*outcome.borrow(), None);
    rules.rot(1, 6);
    rules.owners.judge_no_more();
    rules.take(2);
    assert_eq!(rules.read(0), Ok(5));
    rules.await_in_sync();
    rules.assert_copies_are_the_same();
    assert_eq!(rules.scrub().damaged, BTreeMap::new());
}

/// A drive that hung carries out what was given up long ago when it works again, but before anything
/// that is asked of it later.
#[test]
fn what_a_drive_does_late_is_done_before_its_leg_joins_again() {
    let rules = Rules::new(3);
    rules.write(0, 5).unwrap();
    rules.make_stale(2);
    rules.write(0, 6).unwrap();
    rules.owners.start(2, false);
    rules.until("it joins", || rules.leg(2) == LegState::Joining);
    rules.owners.drive(2).fall_silent();
    let owner = rules.owner();
    let trimmed = Rc::new(Cell::new(false));
    let slot = Rc::clone(&trimmed);
    rules.guests.spawn(async move {
        owner.trim(0, 4096).await.expect("it serves");
        slot.set(true);
    });
    rules.until("the trim is answered", || trimmed.get());
    rules.run_for(Duration::from_secs(20));
    rules.owners.drive(2).revive();
    rules.await_in_sync();
    rules.assert_copies_are_the_same();
    rules.take(2);
    assert_eq!(rules.read(0), Ok(0));
}

/// A stale copy holds less than its mark says: its drive has lost what it had confirmed. It is brought
/// what it lacks all the same.
#[test]
fn a_stale_leg_that_has_lost_more_than_its_mark_says_gets_it_back() {
    let rules = Rules::new(31);
    let before = rules.owners.drive(2).durable_image();
    rules.write(5, 77).expect("all take it");
    // One more page, which the leg will lack by its mark too.
    rules.make_stale(2);
    rules.owners.drive(2).restore(before);
    rules.owners.start(2, false);
    rules.await_in_sync();
    rules.assert_copies_are_the_same();
}
