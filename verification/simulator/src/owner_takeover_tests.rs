//! What a take-over finds, and what it makes of it; and what is left for it.

use std::time::Duration;

use spandrel_replica::Heeded;
use spandrel_volume::{LegState, OwnerError, Phase};

use super::rules::Rules;
use super::*;

/// A write that was never answered and is on some copies only: the next owner brings it to the others.
#[test]
fn a_write_that_some_copies_have_is_rolled_forward() {
    // Whose copy has it, and to how many it must be brought.
    for (holders, rolled) in [(vec![0, 1], 1), (vec![2], 2), (vec![0, 1, 2], 0)] {
        let rules = Rules::new(1);
        rules.write(0, 5).unwrap();
        let has_it = holders.clone();
        rules.owners.judge(move |node, request| match request {
            ReplicaRequest::Write { .. } if !has_it.contains(&node) => Fate::Hangs,
            _ => Fate::Carry,
        });
        let write = rules.begin_write(0, 6);
        rules.run_for(Duration::from_millis(20));
        assert_eq!(write.borrow().is_some(), holders.len() == 3);
        rules.owners.judge_no_more();
        rules.take(1);
        assert_eq!(rules.owner().statistics().blocks_rolled_forward, rolled, "held by {holders:?}");
        assert_eq!(rules.owners.membership().stale, BTreeMap::new());
        assert_eq!(rules.read(0), Ok(6));
        rules.assert_copies_are_the_same();
    }
}

/// A drive that has forgotten a write which it had confirmed.
#[test]
fn a_copy_that_lacks_what_it_confirmed_is_found() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.run_for(Duration::from_secs(3));
    let before = rules.owners.drive(1).snapshot();
    rules.write(0, 6).unwrap();
    rules.run_for(Duration::from_secs(3));
    rules.owners.stop(1, true);
    rules.owners.drive(1).restore(before);
    rules.owners.start(1, false);
    rules.until("it is back", || rules.owners.is_up(1));
    rules.take(2);
    assert_eq!(rules.owner().statistics().legs_found_lacking, 1);
    rules.assert_all_recover(1, 0, 6);
    assert_eq!(rules.owner().statistics().legs_found_lacking, 0);
}

/// A take-over that meets a higher epoch ends, and blames nobody: at its fence, and later.
#[test]
fn a_take_over_that_meets_a_higher_epoch_ends() {
    for late in [false, true] {
        let rules = Rules::new(1);
        rules.write(0, 5).unwrap();
        rules.owners.judge(move |node, request| match request {
            ReplicaRequest::Fence { .. } if node == 2 && !late => Fate::Late(Duration::from_millis(200)),
            ReplicaRequest::Pages { .. } if node == 2 && late => Fate::Late(Duration::from_millis(200)),
            _ => Fate::Carry,
        });
        let epoch = rules.begin_take(1);
        rules.run_for(Duration::from_millis(50));
        assert_eq!(rules.owner().phase(), Phase::TakingOver);
        let (volume, epoch) = (rules.owner().volume(), epoch.next());
        let fenced =
            rules.serve(2, ReplicaRequest::Fence { volume, epoch, settles: true, heeds: Heeded::All });
        assert!(fenced.is_ok(), "{fenced:?}");
        rules.until("it ends", || rules.owner().phase() == Phase::Deposed);
        assert_eq!(rules.owners.membership().stale, BTreeMap::new());
    }
}

/// The copies that a resync compares a leg with do not answer for a moment.
#[test]
fn a_leg_whose_resync_lost_its_source_begins_anew() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.make_stale(2);
    rules.write(0, 6).unwrap();
    let failures = Cell::new(2);
    rules.owners.judge(move |node, request| match request {
        ReplicaRequest::Pages { .. } if node == 0 && failures.get() > 0 => {
            failures.set(failures.get() - 1);
            Fate::Refused(Duration::ZERO, ReplicaError::NotFound)
        }
        _ => Fate::Carry,
    });
    rules.owners.start(2, false);
    rules.assert_all_recover(2, 0, 6);
}

/// A node answers, but has lost a copy.
#[test]
fn a_take_over_goes_on_without_a_leg_that_lacks_a_copy() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    let membership = rules.owners.membership();
    let copy = membership.address(SlabIndex(1), &membership.slabs[1][2]);
    let replica = rules.owners.replica(2).expect("it is up");
    assert_eq!(rules.serve(2, ReplicaRequest::RemoveCopy { copy }), Ok(ReplicaResponse::Done));
    rules.take(1);
    assert_eq!(rules.owner().statistics().legs_marked, 1);
    rules.await_in_sync();
    assert!(replica.has_copy(copy), "it is made anew");
    rules.take(2);
    assert_eq!(rules.read(0), Ok(5));
}

#[test]
fn an_ownership_that_ends_during_its_take_over_never_serves() {
    let rules = Rules::new(1);
    rules.owners.judge(|_, request| match request {
        ReplicaRequest::Pages { .. } => Fate::Late(Duration::from_millis(100)),
        _ => Fate::Carry,
    });
    rules.begin_take(1);
    rules.run_for(Duration::from_millis(50));
    assert_eq!(rules.owner().phase(), Phase::TakingOver);
    rules.owner().depose();
    rules.run_for(Duration::from_secs(1));
    assert_eq!(rules.owner().phase(), Phase::Deposed);
    assert_eq!(rules.read(0), Err(OwnerError::Deposed));
}

/// All copies have a write, or one has been read, but a node does not promise any more: there may be another owner,
/// which has not got the write, or which has answered newer ones.
#[test]
fn nothing_is_answered_while_a_promise_is_outstanding() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.owners.judge(|node, request| match request {
        ReplicaRequest::Write { .. } | ReplicaRequest::Read { .. } | ReplicaRequest::BlockStates { .. }
            if node == 0 =>
        {
            Fate::Late(Duration::from_millis(200))
        }
        _ => Fate::Carry,
    });
    let owner = rules.owner();
    let (write, read, extents) =
        (rules.begin_write(1, 6), Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let (reader, is_read) = (owner.clone(), Rc::clone(&read));
    rules.guests.spawn(async move { is_read.set(reader.read(0, 4096).await.is_ok()) });
    let (reader, is_told) = (owner, Rc::clone(&extents));
    rules.guests.spawn(async move { is_told.set(reader.extents(0, 4096).await.is_ok()) });
    rules.run_for(Duration::from_millis(100));
    rules.owners.set_mute(1, true);
    rules.run_for(Duration::from_millis(400));
    assert!(write.borrow().is_none(), "though it is durable on every copy");
    assert!(!read.get() && !extents.get(), "though the copy has answered");
    rules.until("all is answered", || write.borrow().is_some() && read.get() && extents.get());
    assert_eq!(write.take(), Some(Ok(())));
    assert_eq!(rules.leg(1), LegState::Stale);
}

/// Nobody knows which copies have a write whose request was given up half done: the next owner finds out.
#[test]
fn a_write_that_is_given_up_ends_the_ownership() {
    let rules = Rules::new(1);
    rules.owners.judge(|node, request| match request {
        ReplicaRequest::Write { .. } if node == 1 => Fate::Hangs,
        _ => Fate::Carry,
    });
    let write = rules.begin_write(0, 5);
    rules.run_for(Duration::from_millis(20));
    assert_eq!(rules.owner().phase(), Phase::Serving);
    rules.guests.crash();
    assert!(write.borrow().is_none());
    assert_eq!(rules.owner().phase(), Phase::Deposed);
}

/// A copy that joins and is slower than the guests does not fall behind without bound: they wait a little for it,
/// and go on without it if that does not help.
#[test]
fn a_joining_copy_that_is_too_slow_begins_anew() {
    let rules = Rules::new(1);
    rules.make_stale(2);
    let sent = Rc::new(Cell::new(0));
    let count = Rc::clone(&sent);
    rules.owners.judge(move |node, request| match request {
        ReplicaRequest::Write { version, .. } if node == 2 && *version > spandrel_shared::Version::ZERO => {
            count.set(count.get() + 1);
            Fate::Late(Duration::from_secs(4))
        }
        _ if node == 2 => Rules::hold_up_resync(request, Duration::from_secs(4)).unwrap_or(Fate::Carry),
        _ => Fate::Carry,
    });
    rules.write(0, 5).unwrap();
    rules.owners.start(2, false);
    rules.await_held_up();
    let outcomes: Vec<_> = (0..70).map(|number| rules.begin_write(number % 500, number + 10)).collect();
    let answered = || outcomes.iter().filter(|outcome| outcome.borrow().is_some()).count();
    rules.run_for(Duration::from_millis(500));
    assert_eq!((answered(), sent.get()), (64, 64), "so many may be on their way to it");
    rules.run_for(Duration::from_millis(1000));
    assert_eq!(
        (answered(), sent.get(), rules.leg(2)),
        (70, 64, LegState::Stale),
        "the others go on without it"
    );
    assert!(outcomes.iter().all(|outcome| outcome.take() == Some(Ok::<(), OwnerError>(()))));
    rules.owners.judge_no_more();
    rules.await_in_sync();
    rules.assert_copies_are_the_same();
}

#[test]
fn a_resync_tells_how_far_it_is() {
    let rules = Rules::new(1);
    rules.make_stale(2);
    rules.write(0, 6).unwrap();
    rules.owners.judge(|node, request| match node {
        2 => Rules::hold_up_resync(request, Duration::from_millis(200)).unwrap_or(Fate::Carry),
        _ => Fate::Carry,
    });
    rules.owners.start(2, false);
    rules.await_held_up();
    rules.run_for(Duration::from_millis(50));
    let progress = rules.owner().resync_progress()[&LegId::standing(drive_id(2))];
    assert_eq!((progress.pages_done, progress.pages_total, progress.bytes_copied), (1, 2, 2 * 4096));
    rules.await_in_sync();
    assert_eq!(rules.owner().resync_progress(), BTreeMap::new());
    assert_eq!(rules.owner().statistics().blocks_resynced, 2);
}
