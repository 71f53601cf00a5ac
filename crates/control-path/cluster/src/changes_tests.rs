use std::cell::RefCell;
use std::rc::Rc;

use spandrel_shared::{ConfigurationVersion, Epoch};

use super::*;
use crate::copy_sets::{CopyBatch, Member};
use crate::records::{Stored, VolumeWriter};
use crate::test_cluster::{TestCluster, TestState, drive, hostile, new_volume, owner, plan, quick, volume};
use crate::test_platform::TestPlatform;

fn refused<T: std::fmt::Debug>(result: Result<T, StateError>) -> Error {
    match result {
        Err(StateError::Refused(error)) => error,
        other => panic!("{other:?} is no refusal"),
    }
}

/// A volume of `slabs` slabs in three copies on nodes 1 to 3 of 4, owned by node 1.
async fn owned(state: &TestState, slabs: u32) -> VolumeMembership {
    let room = state.pool_room().await.expect("no faults yet");
    let sets = plan(slabs, 3, 3, 1, 1);
    let ready = state.create_volume(&new_volume(1, slabs, 3), &sets, &room).await.expect("there is room");
    state.take_volume(volume(1), &ready, owner(1)).await.expect("nobody else is there");
    read(state).await
}

async fn read(state: &TestState) -> VolumeMembership {
    state.membership(volume(1)).await.expect("it can be read").expect("the volume is there")
}

fn marks(of: &[(u8, u64)]) -> BTreeMap<DriveId, Version> {
    of.iter().map(|(node, counter)| (drive(*node, 0), Version::new(Epoch(1), *counter))).collect()
}

fn drives(nodes: &[u8]) -> BTreeSet<DriveId> {
    nodes.iter().map(|node| drive(*node, 0)).collect()
}

#[test]
fn marks_come_and_go_and_raise_the_configuration() {
    let cluster = TestCluster::new(1, 4, 1, 20);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = owned(&state, 4).await;
        assert_eq!((seen.record.epoch, seen.record.configuration), (Epoch(1), ConfigurationVersion(1)));
        let marked = state.mark_stale(owner(1), &seen, &marks(&[(2, 7)])).await.unwrap();
        assert_eq!(marked.record.configuration, ConfigurationVersion(2));
        assert_eq!(marked.marks, marks(&[(2, 7)]));
        assert_eq!(read(&state).await, marked, "what is returned is what the state says");

        assert_eq!(state.mark_stale(owner(1), &seen, &marks(&[(3, 8)])).await, Err(StateError::Conflict));
        let lower = state.mark_stale(owner(1), &marked, &marks(&[(2, 5), (3, 8)])).await.unwrap();
        assert_eq!(lower.marks, marks(&[(2, 5), (3, 8)]));
        let not_raised = state.mark_stale(owner(1), &lower, &marks(&[(2, 9)])).await.unwrap();
        assert_eq!(not_raised.marks, marks(&[(2, 5), (3, 8)]), "a mark is lowered, never raised");
        let promoted = state.promote(owner(1), &not_raised, &drives(&[2])).await.unwrap();
        assert_eq!((&promoted.marks, promoted.record.configuration.0), (&marks(&[(3, 8)]), 5));
        assert_eq!(read(&state).await, promoted);
    });
}

#[test]
fn the_last_copy_stays_and_strangers_change_nothing() {
    let cluster = TestCluster::new(1, 4, 1, 20);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = owned(&state, 4).await;
        let error = refused(state.mark_stale(owner(1), &seen, &marks(&[(1, 1), (2, 1), (3, 1)])).await);
        assert_eq!(error.code, "LAST_COPY");
        assert!(error.what.contains("vm-1") && error.why.contains("slab 0"), "{error}");
        let two = state.mark_stale(owner(1), &seen, &marks(&[(1, 1), (2, 1)])).await.unwrap();
        assert_eq!(refused(state.mark_stale(owner(1), &two, &marks(&[(3, 1)])).await).code, "LAST_COPY");

        let error = refused(state.mark_stale(owner(2), &two, &marks(&[(3, 1)])).await);
        assert_eq!(error.code, "NOT_OWNER");
        assert!(error.why.contains(&owner(1).shard.to_string()), "{error}");
        assert_eq!(refused(state.promote(owner(2), &two, &drives(&[1])).await).code, "NOT_OWNER");

        // Once another one has taken the volume, the former owner's changes conflict.
        let taken = Stored { record: two.record.clone(), revision: two.revision };
        state.take_volume(volume(1), &taken, owner(2)).await.unwrap();
        assert_eq!(state.promote(owner(1), &two, &drives(&[1])).await, Err(StateError::Conflict));
        assert_eq!(read(&state).await.marks, two.marks);
    });
}

/// The copy sets of `seen` with a change to one slab.
fn changed(
    seen: &VolumeMembership,
    slab: u32,
    change: impl FnOnce(&mut Vec<Member>),
) -> BTreeMap<SlabIndex, CopySet> {
    let mut set = seen.sets[slab as usize].clone();
    change(&mut set.members);
    BTreeMap::from([(SlabIndex(slab), set)])
}

#[test]
fn a_copy_is_rebuilt_on_another_drive() {
    let cluster = TestCluster::new(1, 4, 1, 300);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = owned(&state, 300).await;
        let room = state.pool_room().await.unwrap();
        let copy = CopyBatch::from_random(9, 9).copy(SlabIndex(299), 2);
        let fresh = Member { drive: drive(4, 0), copy, part: 2, building: true };
        let added = changed(&seen, 299, |members| members.push(fresh));
        let building = state.change_copies(owner(1), &seen, &added, &room).await.unwrap();
        assert_eq!(read(&state).await, building);
        assert_eq!(building.room.slabs[&drive(4, 0)], 1);
        assert!(!building.is_in_sync(&building.sets[299].members[3]));
        let next_room = state.pool_room().await.unwrap();
        assert_eq!(next_room.promised().slabs(drive(4, 0)), 1);

        let finished = changed(&building, 299, |members| {
            let former = members.iter().position(|member| member.part == 2).unwrap();
            members.remove(former);
            members[2].building = false;
        });
        let rebuilt = state.change_copies(owner(1), &building, &finished, &next_room).await.unwrap();
        assert_eq!(read(&state).await, rebuilt);
        assert_eq!(rebuilt.sets[299].on(drive(4, 0)).map(|member| member.building), Some(false));
        assert_eq!(rebuilt.record.configuration.0, seen.record.configuration.0 + 2);
        assert_eq!(rebuilt.room.slabs.values().sum::<u32>(), 900, "the former copy's room is free again");
        assert_eq!(rebuilt.sets[..299], seen.sets[..299], "the other slabs are as they were");
    });
}

#[test]
fn room_for_new_copies_is_promised_once() {
    let cluster = TestCluster::new(1, 4, 1, 4);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = owned(&state, 4).await;
        let room = state.pool_room().await.unwrap();
        let add = |seen: &VolumeMembership, slab: u32, to: u8| {
            let copy = CopyBatch::from_random(u64::from(slab), 9).copy(SlabIndex(slab), 3);
            let fresh = Member { drive: drive(to, 0), copy, part: 3, building: true };
            changed(seen, slab, |members| members.push(fresh))
        };
        let first = state.change_copies(owner(1), &seen, &add(&seen, 0, 4), &room).await.unwrap();
        let late = state.change_copies(owner(1), &first, &add(&first, 1, 4), &room).await;
        assert_eq!(late, Err(StateError::Conflict), "room was promised since it was read");
        let mut last = first;
        for slab in 1..4 {
            let room = state.pool_room().await.unwrap();
            last = state.change_copies(owner(1), &last, &add(&last, slab, 4), &room).await.unwrap();
        }
        let room = state.pool_room().await.unwrap();
        assert_eq!(room.free(drive(4, 0)), 0);
        let new = new_volume(2, 1, 2);
        let refusal = state.create_volume(&new, &plan(1, 2, 2, 1, 5), &room).await;
        assert_eq!(refused(refusal).code, "POOL_CHANGED", "drives 1 and 2 are full of the first volume");
        // Giving room back needs no guard.
        let less = changed(&last, 0, |members| members.truncate(3));
        state.change_copies(owner(1), &last, &less, &room).await.unwrap();
        assert_eq!(state.pool_room().await.unwrap().free(drive(4, 0)), 1);
    });
}

/// An owner marks and promotes at random while everything goes wrong on the way to the state, and
/// settles what is unknown. What it believes is what the state says, also long after.
async fn change_at_random(
    state: TestState,
    platform: TestPlatform,
    believed: Rc<RefCell<VolumeMembership>>,
) -> (u32, u32) {
    let (mut made_after_all, mut never_made) = (0, 0);
    for _ in 0..60 {
        let seen = believed.borrow().clone();
        let random = platform.random_u64();
        let target = drive((random % 3) as u8 + 1, 0);
        let since = Version::new(Epoch(1), random % 100);
        let is_marked = seen.marks.contains_key(&target);
        let result = if is_marked {
            state.promote(owner(1), &seen, &BTreeSet::from([target])).await
        } else {
            state.mark_stale(owner(1), &seen, &BTreeMap::from([(target, since)])).await
        };
        match result {
            Ok(after) => *believed.borrow_mut() = after,
            Err(error) if error.is_unknown() => {
                let settled =
                    state.settle_unknown(&platform, &seen).await.unwrap().expect("it is not deleted");
                let was_made = settled.marks.contains_key(&target) != is_marked;
                made_after_all += u32::from(was_made);
                never_made += u32::from(!was_made);
                *believed.borrow_mut() = settled;
            }
            Err(StateError::Refused(error)) => assert_eq!(error.code, "LAST_COPY"),
            Err(StateError::Store(_)) => {}
            Err(StateError::Conflict) => panic!("only this owner changes the volume"),
        }
    }
    (made_after_all, never_made)
}

#[test]
fn an_unknown_change_is_settled_for_good() {
    let (mut made_after_all, mut never_made) = (0, 0);
    for seed in 0..60 {
        let cluster = TestCluster::new(seed, 4, 1, 20);
        let (state, platform) = (cluster.state(1), cluster.platform.clone());
        let (service, reader) = (cluster.service.clone(), cluster.state(2));
        let counts = cluster.platform.run(async move {
            let seen = owned(&state, 4).await;
            service.set_faults(hostile());
            let believed = Rc::new(RefCell::new(seen));
            let counts = change_at_random(state, platform.clone(), Rc::clone(&believed)).await;
            service.set_faults(quick());
            let now = read(&reader).await;
            assert_eq!(now.marks, believed.borrow().marks, "seed {seed}: the owner is wrong");
            assert_eq!(now.revision, believed.borrow().revision);
            // Everything that was still on its way has arrived by then.
            platform.sleep(Duration::from_secs(3)).await;
            assert_eq!(read(&reader).await.marks, now.marks, "seed {seed}: a settled change came back");
            counts
        });
        (made_after_all, never_made) = (made_after_all + counts.0, never_made + counts.1);
    }
    assert!(made_after_all > 50 && never_made > 50, "{made_after_all} made after all, {never_made} never");
}

/// Settling by reading alone would be wrong: this shows the case, so that the test above can fail.
#[test]
fn reading_does_not_settle() {
    let mut surprises = 0;
    for seed in 0..40 {
        let cluster = TestCluster::new(seed, 4, 1, 20);
        let (state, platform) = (cluster.state(1), cluster.platform.clone());
        let (service, reader) = (cluster.service.clone(), cluster.state(2));
        surprises += cluster.platform.run(async move {
            let seen = owned(&state, 4).await;
            service.set_faults(hostile());
            let result = state.mark_stale(owner(1), &seen, &marks(&[(2, 1)])).await;
            service.set_faults(quick());
            if !result.is_err_and(|error| error.is_unknown()) {
                return 0;
            }
            let before = read(&reader).await.marks;
            platform.sleep(Duration::from_secs(3)).await;
            u32::from(before != read(&reader).await.marks)
        });
    }
    assert!(surprises > 0, "no transaction was ever late");
}

#[test]
fn settling_waits_for_an_outage_to_end() {
    let cluster = TestCluster::new(1, 4, 1, 20);
    let (state, platform) = (cluster.state(1), cluster.platform.clone());
    let service = cluster.service.clone();
    cluster.platform.run(async move {
        let seen = owned(&state, 4).await;
        service.set_outage(true);
        let (own, later) = (service.clone(), platform.clone());
        platform.spawn(async move {
            later.sleep(Duration::from_secs(30)).await;
            own.set_outage(false);
        });
        let settled = state.settle_unknown(&platform, &seen).await.unwrap().expect("it is there");
        assert_eq!(settled.record.configuration.0, seen.record.configuration.0 + 1);
        assert_eq!(read(&state).await, settled);
        state.delete_volume(volume(1), 7).await.unwrap();
        assert_eq!(state.settle_unknown(&platform, &seen).await, Ok(None), "the volume is gone");
    });
}

#[test]
fn one_writer_takes_the_place_of_another() {
    let cluster = TestCluster::new(1, 4, 1, 20);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let volume = owned(&state, 1).await;
        let writer = |attachment| VolumeWriter {
            shard: owner(2).shard,
            incarnation: owner(2).incarnation,
            attachment,
        };
        let first = state.set_writer(owner(1), &volume, Some(writer(1))).await.expect("the owner may");
        assert_eq!(read(&state).await, first);
        assert_eq!(first.record.writer, Some(writer(1)));
        let late = state.set_writer(owner(1), &volume, Some(writer(2))).await;
        assert_eq!(late, Err(StateError::Conflict), "what was compared has changed");
        assert_eq!(refused(state.set_writer(owner(2), &first, None).await).code, "NOT_OWNER");
        let none = state.set_writer(owner(1), &first, None).await.expect("the owner may");
        assert_eq!(none.record.writer, None);
    });
}
