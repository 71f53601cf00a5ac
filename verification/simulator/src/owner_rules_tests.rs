//! Single rules of an owner, each with the course of events that breaks it.

use std::cell::Cell;
use std::time::Duration;

use spandrel_replica::CopyAddress;
use spandrel_shared::PAGE_BLOCKS;
use spandrel_volume::{LegState, OwnerError, Phase};

use super::rules::Rules;
use super::*;

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

/// The cluster's state is so slow that a copy has been silent for long when its mark is made, and an attempt fails.
/// The owner goes on all the same.
#[test]
fn an_owner_is_patient_with_a_slow_state() {
    for slowness_ms in [500, 1100] {
        let rules = Rules::new(1);
        rules.make_stale(2);
        rules.owners.slow_state(Duration::from_millis(slowness_ms));
        rules.start_until_promotion(2);
        rules.run_for(Duration::from_millis(100));
        rules.owners.set_mute(1, true);
        rules.until("it is marked", || rules.leg(1) == LegState::Stale);
        rules.owners.set_mute(1, false);
        rules.await_in_sync();
        assert_eq!(rules.owner().statistics().legs_promoted, 2, "it is the same ownership");
    }
    let rules = Rules::new(1);
    rules.owners.slow_state(Duration::from_millis(700));
    let attempts = Cell::new(0);
    rules.owners.fail_changes(move |_| attempts.replace(attempts.get() + 1) == 0);
    rules.owners.set_mute(1, true);
    rules.until("it is marked", || rules.leg(1) == LegState::Stale);
    assert_eq!(rules.write(0, 5), Ok(()));
}

/// A node is away, and the cluster's state does not let the owner mark its copies: another ownership could not do more,
/// so this one waits.
#[test]
fn an_owner_waits_for_a_node_that_is_away() {
    let rules = Rules::new(1);
    rules.owners.fail_changes(|_| true);
    rules.owners.stop(1, true);
    let write = rules.begin_write(0, 5);
    rules.run_for(Duration::from_secs(20));
    assert_eq!(rules.owner().phase(), Phase::Serving);
    assert!(write.borrow().is_none());
    rules.owners.fail_changes(|_| false);
    rules.until("it is answered", || write.borrow().is_some());
    assert_eq!(write.take(), Some(Ok(())));
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
        // What was written when the copy fell out is in page 1.
        ReplicaRequest::Read { first, .. } if node != 2 && *first >= PAGE_BLOCKS => {
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
    rules.assert_all_recover(2, 0, 6);
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

/// A copy misses a write, and the next one to the same page reaches it before it is marked: the page has the same
/// version everywhere, and differs.
#[test]
fn what_a_copy_missed_is_brought_to_it_though_it_has_what_came_later() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.owners.judge(|node, request| match request {
        ReplicaRequest::Write { first: 0, .. } if node == 2 => Fate::Fails(Duration::from_millis(50)),
        _ => Fate::Carry,
    });
    let missed = rules.begin_write(0, 6);
    rules.run_for(Duration::from_millis(5));
    let newer = rules.begin_write(1, 7);
    rules.until("both are answered", || missed.borrow().is_some() && newer.borrow().is_some());
    assert!(rules.owner().statistics().legs_marked > 0);
    rules.owners.judge_no_more();
    rules.assert_all_recover(2, 0, 6);
}

/// A copy that is not there any more, or in whose place there is an older one of the same slab, is made anew and gets
/// all that the others hold.
#[test]
fn a_copy_that_is_gone_is_made_anew() {
    for former in [None, Some(CopyId::from_random(77, 77))] {
        let rules = Rules::new(1);
        let second_slab = VOLUME_BYTES / 4096 / 2;
        rules.write(0, 5).unwrap();
        rules.write(second_slab, 6).unwrap();
        rules.make_stale(2);
        rules.owners.judge(|node, request| match request {
            ReplicaRequest::Fence { .. } if node == 2 => Fate::Late(Duration::from_millis(500)),
            _ => Fate::Carry,
        });
        rules.owners.start(2, false);
        rules.until("it is back", || rules.owners.is_up(2));
        let (replica, membership) = (rules.owners.replica(2).expect("it is up"), rules.owners.membership());
        let gone = membership.address(SlabIndex(1), &membership.slabs[1][2]);
        let kept = membership.address(SlabIndex(0), &membership.slabs[0][2]);
        assert_eq!(rules.serve(2, ReplicaRequest::RemoveCopy { copy: gone }), Ok(ReplicaResponse::Done));
        if let Some(former) = former {
            let copy = CopyAddress { copy: former, ..gone };
            let epoch = replica.accepted_epoch(gone.volume);
            let new = NewCopy { copy, drive: drive_id(2), copies: 3, part: 2, epoch };
            assert_eq!(rules.serve(2, ReplicaRequest::AddCopy(new)), Ok(ReplicaResponse::Done));
        }
        assert!(replica.has_copy(kept) && !replica.has_copy(gone));
        rules.await_in_sync();
        assert!(replica.has_copy(kept) && replica.has_copy(gone));
        rules.owners.judge_no_more();
        rules.take(2);
        assert_eq!((rules.read(0), rules.read(second_slab)), (Ok(5), Ok(6)));
    }
}

/// A promotion is tried again and again, as the cluster's state cannot be reached for it. Meanwhile the leg misses a
/// write and is marked: the next attempt must not take that mark off.
#[test]
fn a_promotion_that_is_tried_again_looks_at_its_leg_first() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.make_stale(2);
    rules.owners.fail_changes(|change| matches!(change, MembershipChange::Promote(_)));
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
    rules.owners.fail_changes(|_| false);
    rules.assert_all_recover(2, 0, 6);
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

/// What fails while a change of membership is on its way is dealt with together afterwards. If all copies are in
/// doubt by then, the one stays that is most likely to answer again.
#[test]
fn of_copies_that_are_all_in_doubt_the_best_one_stays() {
    let drive_failed = || Fate::Refused(Duration::ZERO, ReplicaError::DriveFailed("it is broken".to_owned()));
    let fails = || Fate::Fails(Duration::ZERO);
    // Whether the own drive has failed, whether node 1 is there, and who stays.
    for (own_failed, is_there, stays) in
        [(false, true, 0), (false, false, 0), (true, true, 1), (true, false, 2)]
    {
        let rules = Rules::with_nodes(1, 4);
        rules.owners.slow_state(Duration::from_millis(400));
        rules.owners.judge(move |node, request| match request {
            ReplicaRequest::Write { .. } if node == 3 => fails(),
            _ => Fate::Carry,
        });
        let first = rules.begin_write(0, 5);
        rules.run_for(Duration::from_millis(100));
        rules.owners.judge(move |node, request| match (node, request) {
            (0, ReplicaRequest::Write { .. }) if own_failed => drive_failed(),
            (_, ReplicaRequest::Write { .. }) => fails(),
            _ => Fate::Carry,
        });
        let second = rules.begin_write(1, 6);
        rules.run_for(Duration::from_millis(100));
        rules.owners.stop(if is_there { 2 } else { 1 }, true);
        rules.until("three are marked", || rules.owners.membership().stale.len() == 3);
        let in_sync: Vec<usize> =
            (0..4).filter(|index| !rules.owners.membership().stale.contains_key(&drive_id(*index))).collect();
        assert_eq!(in_sync, [stays], "own failed: {own_failed}, node 1 there: {is_there}");
        rules.owners.judge_no_more();
        rules.until("they are answered", || first.borrow().is_some() && second.borrow().is_some());
        assert_eq!((first.take(), second.take()), (Some(Ok(())), Some(Ok(()))));
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
    rules.assert_all_recover(2, 0, 0);
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
