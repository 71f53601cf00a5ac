use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use spandrel_platform::Platform;

use super::*;
use crate::membership::VolumeMembership;
use crate::store::StoreErrorKind;
use crate::test_cluster::{
    Dying, TestCluster, TestState, drive, hostile, new_volume, node, owner, plan, volume,
};

fn refused<T: std::fmt::Debug>(result: Result<T, StateError>) -> Error {
    match result {
        Err(StateError::Refused(error)) => error,
        other => panic!("{other:?} is no refusal"),
    }
}

/// Everything that must hold of a volume that is ready.
fn check_ready(membership: &VolumeMembership, slabs: u32, copies: u8) {
    assert_eq!(membership.record.state, VolumeState::Ready);
    assert_eq!(membership.sets.len(), slabs as usize);
    let mut identities = BTreeSet::new();
    for (set, slab) in membership.sets.iter().zip(0..) {
        let nodes: BTreeSet<_> = set.members.iter().map(|member| membership.nodes[&member.drive]).collect();
        assert_eq!(nodes.len(), usize::from(copies), "slab {slab} is on too few nodes");
        assert!(set.members.iter().all(|member| membership.is_in_sync(member)));
        for member in &set.members {
            assert!(identities.insert(member.copy), "copy {:?} is there twice", member.copy);
        }
    }
    assert_eq!(membership.room.slabs, count_by_drive(&membership.sets), "the room is what is used");
}

#[test]
fn a_volume_is_made_in_many_transactions_and_deleted() {
    let cluster = TestCluster::new(1, 4, 2, 60_000);
    let state = cluster.state(1);
    let service = cluster.service.clone();
    cluster.platform.run(async move {
        // 235 chunks of 7 KiB: more than one transaction holds, by count and by bytes.
        let slabs = 60_000;
        let sets = plan(slabs, 3, 4, 2, 1);
        let room = state.pool_room().await.unwrap();
        let before = service.inspect(&[]).revision;
        let stored = state.create_volume(&new_volume(1, slabs, 3), &sets, &room).await.unwrap();
        assert!(service.inspect(&[]).revision.0 - before.0 >= 4);
        let membership = state.membership(volume(1)).await.unwrap().unwrap();
        check_ready(&membership, slabs, 3);
        assert_eq!((&membership.sets, membership.revision), (&sets, stored.revision));
        assert_eq!(state.volume_by_name("vm-1").await.unwrap(), Some(volume(1)));
        let again =
            state.create_volume(&new_volume(1, slabs, 3), &sets, &state.pool_room().await.unwrap()).await;
        assert_eq!(again.unwrap(), stored, "again is no error and no change");

        state.delete_volume(volume(1), 7).await.unwrap();
        state.delete_volume(volume(1), 7).await.expect("again is no error");
        let left = service.inspect(&[Selection::prefix("")]).groups.remove(0);
        let about_it = left.iter().filter(|entry| entry.key.as_str().contains(&volume(1).to_string()));
        let keys: Vec<_> = about_it.map(|entry| entry.key.clone()).collect();
        assert_eq!(keys, [StateKey::VolumeTombstone(volume(1)).key()]);
        let room = state.pool_room().await.unwrap();
        assert_eq!(room.promised().slabs(drive(1, 0)), 0);
        let revived = state.create_volume(&new_volume(1, 1, 2), &plan(1, 2, 2, 1, 1), &room).await;
        assert_eq!(revived, Err(StateError::Conflict), "identities are never reused");
        let renamed = NewVolume { id: volume(2), ..new_volume(1, 1, 2) };
        state.create_volume(&renamed, &plan(1, 2, 2, 1, 1), &room).await.expect("the name is free again");
    });
}

#[test]
fn impossible_volumes_are_refused() {
    let cluster = TestCluster::new(1, 3, 1, 10);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let room = state.pool_room().await.unwrap();
        let good = new_volume(1, 4, 2);
        let sets = plan(4, 2, 3, 1, 1);
        for (wrong, code) in [
            (NewVolume { size_bytes: 0, ..good.clone() }, "VOLUME_INVALID"),
            (NewVolume { size_bytes: 4097, ..good.clone() }, "VOLUME_INVALID"),
            (NewVolume { size_bytes: u64::MAX - 4095, ..good.clone() }, "VOLUME_INVALID"),
            (NewVolume { copies: 0, ..good.clone() }, "VOLUME_INVALID"),
            (NewVolume { write_copies_min: 3, ..good.clone() }, "VOLUME_INVALID"),
            (NewVolume { name: "a/b".to_owned(), ..good.clone() }, "NAME_INVALID"),
        ] {
            let error = refused(state.create_volume(&wrong, &sets, &room).await);
            assert_eq!(error.code, code, "{wrong:?}");
        }
        let one_node =
            mirror_sets([[drive(1, 0), drive(1, 1)].as_slice(); 4], CopyBatch::from_random(1, 1), 2);
        assert_eq!(refused(state.create_volume(&good, &one_node, &room).await).code, "POOL_CHANGED");
        let large = new_volume(1, 16, 2);
        let error = refused(state.create_volume(&large, &plan(16, 2, 3, 1, 1), &room).await);
        assert_eq!(error.code, "POOL_CHANGED");
        assert!(error.why.contains("room for 10 slabs, not for 11"), "{error}");
        state.create_volume(&good, &sets, &room).await.unwrap();
        let room = state.pool_room().await.unwrap();
        let same_name = NewVolume { id: volume(2), ..good };
        assert_eq!(refused(state.create_volume(&same_name, &sets, &room).await).code, "VOLUME_EXISTS");
    });
}

/// Whoever makes a volume dies after any of its transactions; somebody else finishes it, or deletes
/// it. Deleting is interrupted everywhere too.
#[test]
fn creation_and_deletion_are_resumed_from_everywhere() {
    let slabs = 60_000;
    let mut interrupted = 0;
    for transactions in 0..8 {
        for finishes in [true, false] {
            let cluster = TestCluster::new(u64::from(transactions), 4, 2, 60_000);
            let store = cluster.state(1).store().clone();
            let transactions_left = Rc::new(Cell::new(transactions));
            let dying = ClusterState::new(Dying { store, transactions_left: Rc::clone(&transactions_left) });
            let other = cluster.state(2);
            interrupted += cluster.platform.run(async move {
                let room = other.pool_room().await.unwrap();
                let new = new_volume(1, slabs, 3);
                let created = dying.create_volume(&new, &plan(slabs, 3, 4, 2, 1), &room).await;
                if finishes && transactions > 0 {
                    let batch = CopyBatch::from_random(2, 2);
                    other.resume_creation(volume(1), batch).await.unwrap();
                    check_ready(&other.membership(volume(1)).await.unwrap().unwrap(), slabs, 3);
                    return u32::from(created.is_err());
                }
                transactions_left.set(transactions.saturating_sub(1));
                drop(dying.delete_volume(volume(1), 7).await);
                other.delete_volume(volume(1), 7).await.unwrap();
                assert_eq!(other.volumes().await.unwrap(), BTreeMap::new());
                assert_eq!(other.pool_room().await.unwrap().volumes, BTreeMap::new());
                u32::from(created.is_err())
            });
        }
    }
    assert!(interrupted >= 8, "only {interrupted} creations were interrupted");
}

/// Creators and finishers at the same time, on a way where everything goes wrong: the volume is
/// whole in the end, whoever made which part.
#[test]
fn many_may_finish_at_once() {
    for seed in 0..30 {
        let cluster = TestCluster::new(seed, 4, 2, 2000);
        let [creator, first, second] = [1, 2, 3].map(|number| cluster.state(number));
        cluster.service.set_faults(hostile());
        let service = cluster.service.clone();
        cluster.platform.run(async move {
            let slabs = 1500;
            let create = async {
                let sets = plan(slabs, 3, 4, 2, 1);
                loop {
                    let Ok(room) = creator.pool_room().await else { continue };
                    match creator.create_volume(&new_volume(1, slabs, 3), &sets, &room).await {
                        Ok(_) => break,
                        Err(StateError::Refused(error)) => {
                            assert!(error.why.contains("another node finishes"), "seed {seed}: {error}");
                            break;
                        }
                        Err(_) => {}
                    }
                }
            };
            let finish = |state: TestState, batch: u64| async move {
                for _ in 0..200 {
                    if state.resume_creation(volume(1), CopyBatch::from_random(batch, batch)).await.is_ok() {
                        return;
                    }
                }
                panic!("seed {seed}: the volume is never finished");
            };
            join(create, join(finish(first, 2), finish(second.clone(), 3))).await;
            service.set_faults(crate::test_cluster::quick());
            check_ready(&second.membership(volume(1)).await.unwrap().unwrap(), slabs, 3);
        });
    }
}

/// Volumes that are made at the same time do not count the same room as free.
#[test]
fn room_is_promised_once() {
    for seed in 0..20 {
        let cluster = TestCluster::new(seed, 2, 1, 10);
        cluster.service.set_faults(hostile());
        let states: Vec<_> = (1..=6).map(|number| cluster.state(number)).collect();
        let service = cluster.service.clone();
        let reader = cluster.state(0);
        cluster.platform.run(async move {
            let create = |(state, number): (TestState, u8)| async move {
                let new = new_volume(number, 3, 2);
                loop {
                    let Ok(room) = state.pool_room().await else { continue };
                    match state.create_volume(&new, &plan(3, 2, 2, 1, u64::from(number)), &room).await {
                        Ok(_) => return true,
                        Err(StateError::Refused(error)) => {
                            assert_eq!(error.code, "POOL_CHANGED", "seed {seed}: {error}");
                            return false;
                        }
                        Err(_) => {}
                    }
                }
            };
            let made = join_all(states.into_iter().zip(1..).map(create)).await;
            service.set_faults(crate::test_cluster::quick());
            let room = reader.pool_room().await.unwrap();
            let made = made.into_iter().filter(|made| *made).count();
            assert_eq!(made, 3, "seed {seed}: each of two drives has room for three volumes of three slabs");
            assert_eq!(room.promised().slabs(drive(1, 0)), 9);
        });
    }
}

#[test]
fn a_volume_is_taken_by_one() {
    for seed in 0..30 {
        let cluster = TestCluster::new(seed, 3, 1, 10);
        let states: Vec<_> = (1..=3).map(|number| cluster.state(number)).collect();
        let (service, platform) = (cluster.service.clone(), cluster.platform.clone());
        let reader = cluster.state(0);
        cluster.platform.run(async move {
            let room = reader.pool_room().await.unwrap();
            let ready =
                reader.create_volume(&new_volume(1, 2, 2), &plan(2, 2, 3, 1, 1), &room).await.unwrap();
            service.set_faults(hostile());
            let take = |(state, number): (TestState, u8)| {
                let ready = ready.clone();
                async move {
                    loop {
                        match state.take_volume(volume(1), &ready, owner(number)).await {
                            Ok(taken) => return Some(taken),
                            Err(StateError::Conflict) => return None,
                            Err(error) => {
                                assert!(matches!(error, StateError::Store(_)), "seed {seed}: {error}")
                            }
                        }
                    }
                }
            };
            let taken = join_all(states.into_iter().zip(1..).map(take)).await;
            platform.sleep(Duration::from_secs(2)).await;
            service.set_faults(crate::test_cluster::quick());
            let now: Stored<VolumeRecord> = reader.get(&StateKey::Volume(volume(1))).await.unwrap().unwrap();
            assert_eq!(now.record.epoch, Epoch(1), "seed {seed}: each attempt would have raised it");
            let winners: Vec<_> = taken.into_iter().flatten().collect();
            assert_eq!(winners, [now], "seed {seed}");
        });
    }
}

#[test]
fn only_a_ready_volume_is_taken() {
    let cluster = TestCluster::new(1, 3, 1, 10);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let room = state.pool_room().await.unwrap();
        let sets = plan(2, 2, 3, 1, 1);
        state.begin_volume(&new_volume(1, 2, 2), &sets, &room).await.unwrap();
        let key = StateKey::Volume(volume(1));
        let creating: Stored<VolumeRecord> = state.get(&key).await.unwrap().unwrap();
        assert_eq!(refused(state.take_volume(volume(1), &creating, owner(1)).await).code, "VOLUME_NOT_FOUND");
        state.resume_creation(volume(1), CopyBatch::from_random(1, 1)).await.unwrap();
        assert_eq!(
            state.take_volume(volume(1), &creating, owner(1)).await.map(drop).map_err(|error| match error {
                StateError::Refused(error) => error.code,
                other => other.to_string(),
            }),
            Err("VOLUME_NOT_FOUND".to_owned())
        );
        let ready: Stored<VolumeRecord> = state.get(&key).await.unwrap().unwrap();
        let first = state.take_volume(volume(1), &ready, owner(1)).await.unwrap();
        let second = state.take_volume(volume(1), &first, owner(2)).await.unwrap();
        assert_eq!((second.record.epoch, second.record.owner.unwrap().shard.node), (Epoch(2), node(2)));
        assert_eq!(state.take_volume(volume(1), &first, owner(1)).await, Err(StateError::Conflict));
        state.delete_volume(volume(1), 7).await.unwrap();
        assert_eq!(state.take_volume(volume(1), &second, owner(1)).await, Err(StateError::Conflict));
    });
}

#[test]
fn a_dead_store_is_told_from_a_refusal() {
    let cluster = TestCluster::new(1, 3, 1, 10);
    let state = cluster.state(1);
    let service = cluster.service.clone();
    cluster.platform.run(async move {
        let room = state.pool_room().await.unwrap();
        service.set_outage(true);
        let created = state.create_volume(&new_volume(1, 2, 2), &plan(2, 2, 3, 1, 1), &room).await;
        let Err(StateError::Store(error)) = created else { panic!("{created:?}") };
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
    });
}
