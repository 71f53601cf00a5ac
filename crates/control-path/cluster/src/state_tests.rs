use std::time::Duration;

use spandrel_platform::Platform;
use spandrel_shared::ClusterId;

use super::*;
use crate::generation_to_recover;
use crate::records::DriveRole;
use crate::store::Operation;
use crate::test_cluster::{TestCluster, drive, drive_record, new_volume, node, owner, plan, volume};

fn refused<T: std::fmt::Debug>(result: Result<T, StateError>) -> Error {
    match result {
        Err(StateError::Refused(error)) => error,
        other => panic!("{other:?} is no refusal"),
    }
}

#[test]
fn a_cluster_is_made_once() {
    let cluster = TestCluster::new(1, 1, 1, 1);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let record = state.cluster().await.unwrap().unwrap().record;
        assert_eq!(state.create_cluster(record.clone()).await.unwrap().record, record, "again is no error");
        let other = ClusterRecord { id: ClusterId::from_bytes([2; 16]), name: "new".to_owned(), ..record };
        let error = refused(state.create_cluster(other).await);
        assert_eq!(error.code, "CLUSTER_EXISTS");
        assert!(error.what.contains("new") && error.why.contains("test"), "{error}");
    });
}

#[test]
fn processes_are_shown_until_their_lease_ends() {
    let cluster = TestCluster::new(1, 2, 1, 1);
    let (state, platform) = (cluster.state(1), cluster.platform.clone());
    cluster.platform.run(async move {
        let lease = state.store().grant_lease(Duration::from_secs(5)).await.unwrap();
        let alive = |number| AliveRecord {
            incarnation: owner(number).incarnation,
            drives: vec![drive(number, 0)],
            vm_host: None,
        };
        for number in [1, 2] {
            state.announce(ShardId::first(node(number)), &alive(number), lease).await.unwrap();
        }
        let shown = state.alive().await.unwrap();
        assert_eq!(shown[&ShardId::first(node(2))].record, alive(2));
        assert_eq!(shown.len(), 2);
        assert_eq!(
            refused(state.announce(ShardId::first(node(7)), &alive(7), lease).await).code,
            "NODE_UNKNOWN"
        );
        platform.sleep(Duration::from_secs(6)).await;
        assert!(state.alive().await.unwrap().is_empty());
        assert_eq!(state.nodes().await.unwrap().len(), 2);
    });
}

#[test]
fn an_old_image_of_a_drive_is_refused() {
    let cluster = TestCluster::new(1, 2, 1, 1);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let one = drive(1, 0);
        let noted = state.note_attach(one, DriveRole::Capacity, node(1), 5).await.unwrap();
        assert_eq!(noted.record.attach_number, 5);
        assert_eq!(
            state.note_attach(one, DriveRole::Capacity, node(1), 5).await.unwrap(),
            noted,
            "again is no error"
        );
        let error = refused(state.note_attach(one, DriveRole::Capacity, node(1), 4).await);
        assert_eq!(error.code, "DRIVE_IS_OLD");
        assert!(error.why.contains("is attach 4") && error.why.contains("seen attach 5"), "{error}");
        let moved = state.note_attach(one, DriveRole::Capacity, node(2), 6).await.unwrap();
        assert_eq!(moved.record.node, node(2), "a drive may move to another node");
        assert_eq!(
            refused(state.note_attach(drive(9, 9), DriveRole::Capacity, node(1), 1).await).code,
            "DRIVE_UNKNOWN"
        );
    });
}

/// A drive is retired, nobody answers, and it is decided to use it after all: if it was not retired yet, it is not
/// afterwards.
#[test]
fn a_decision_that_is_late_does_not_come_behind_a_later_one() {
    let cluster = TestCluster::new(1, 2, 1, 1);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let key = StateKey::Drive(drive(1, 0));
        let seen: Stored<DriveRecord> = state.get(&key).await.unwrap().unwrap();
        assert_eq!(seen.record.state, DriveState::Active);
        state.decide_drive(drive(1, 0), DriveState::Active).await.unwrap();
        let late = DriveRecord { state: DriveState::Retired, ..seen.record };
        let arrives = state.put(&key, Expected::ModifiedAt(seen.revision), late).await;
        assert_eq!(arrives.unwrap_err(), StateError::Conflict);
    });
}

#[test]
fn drives_and_nodes_that_are_in_use_stay() {
    let cluster = TestCluster::new(1, 3, 1, 8);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let room = state.pool_room().await.unwrap();
        assert_eq!(room.free(drive(1, 0)), 8);
        state.create_volume(&new_volume(1, 4, 2), &plan(4, 2, 2, 1, 1), &room).await.unwrap();
        let room = state.pool_room().await.unwrap();
        assert_eq!(
            (room.promised().slabs(drive(1, 0)), room.free(drive(1, 0)), room.free(drive(3, 0))),
            (4, 4, 8)
        );
        assert_eq!(room.free(drive(9, 9)), 0);

        let error = refused(state.remove_drive(drive(1, 0), "sda", 7, false).await);
        assert_eq!(error.code, "DRIVE_HOLDS_COPIES");
        assert!(error.what.contains("sda") && error.why.contains("4 copies"), "{error}");
        state.remove_drive(drive(3, 0), "sdb", 7, false).await.unwrap();
        state.remove_drive(drive(3, 0), "sdb", 7, false).await.expect("again is no error");
        state.remove_server(node(3), 8, false).await.unwrap();
        state.remove_server(node(3), 8, false).await.expect("again is no error");
        assert_eq!((state.nodes().await.unwrap().len(), state.drives().await.unwrap().len()), (2, 2));
        for key in [StateKey::DriveTombstone(drive(3, 0)), StateKey::NodeTombstone(node(3))] {
            assert!(state.get::<TombstoneRecord>(&key).await.unwrap().is_some(), "{key}");
        }
        state.delete_volume(volume(1), 9).await.unwrap();
        state.remove_drive(drive(1, 0), "sda", 10, false).await.expect("nothing is on it any more");
    });
}

/// A plan that was made before a drive was removed cannot count on it.
#[test]
fn removing_a_drive_voids_older_plans() {
    let cluster = TestCluster::new(1, 3, 1, 8);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let room = state.pool_room().await.unwrap();
        state.remove_drive(drive(3, 0), "sdc", 7, false).await.unwrap();
        let created = state.create_volume(&new_volume(1, 4, 2), &plan(4, 2, 3, 1, 1), &room).await;
        assert_eq!(created, Err(StateError::Conflict));
        let room = state.pool_room().await.unwrap();
        let created = state.create_volume(&new_volume(1, 4, 2), &plan(4, 2, 3, 1, 1), &room).await;
        assert_eq!(refused(created).code, "POOL_CHANGED");
    });
}

#[test]
fn a_record_is_changed_only_as_it_was_seen() {
    let cluster = TestCluster::new(1, 1, 1, 1);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let key = StateKey::Drive(drive(1, 0));
        let seen: Stored<DriveRecord> = state.get(&key).await.unwrap().unwrap();
        let retired = DriveRecord { state: crate::DriveState::Retired, ..seen.record.clone() };
        let unchanged = Expected::ModifiedAt(seen.revision);
        let stored = state.put(&key, unchanged.clone(), retired).await.unwrap();
        assert_eq!(state.get(&key).await.unwrap(), Some(stored));
        let late = state.put(&key, unchanged, drive_record(1, 9)).await;
        assert_eq!(late, Err(StateError::Conflict));
    });
}

#[test]
fn gaps_in_a_ready_volume_are_damage() {
    let cluster = TestCluster::new(1, 3, 1, 2000);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let room = state.pool_room().await.unwrap();
        state.create_volume(&new_volume(1, 600, 2), &plan(600, 2, 3, 1, 1), &room).await.unwrap();
        let membership = state.membership(volume(1)).await.unwrap().unwrap();
        assert_eq!(membership.sets.len(), 600);
        assert_eq!(state.membership(volume(2)).await, Ok(None));
        for chunk in [1, 2] {
            let key = StateKey::Slabs(volume(1), chunk).key();
            let value =
                state.snapshot(&[Selection::key(&key)]).await.unwrap().entry(0).unwrap().value.clone();
            let delete = Transaction::new().operation(Operation::Delete { key: key.clone() });
            state.commit(delete).await.unwrap();
            let error = refused(state.membership(volume(1)).await);
            assert_eq!(error.code, "STATE_DAMAGED", "{error}");
            state.commit(Transaction::new().put(&key, value)).await.unwrap();
        }
        assert_eq!(state.membership(volume(1)).await.unwrap().unwrap().sets, membership.sets);
    });
}

#[test]
fn a_restored_backup_counts_only_when_recovered() {
    let cluster = TestCluster::new(1, 1, 1, 1);
    let state = cluster.state(1);
    let service = cluster.service.clone();
    cluster.platform.run(async move {
        let backup = service.backup();
        state.note_attach(drive(1, 0), DriveRole::Capacity, node(1), 5).await.unwrap();
        let seen = state.stamp().await.unwrap().unwrap();
        service.restore(backup);
        let older = state.stamp().await.unwrap().unwrap();
        assert!(older.check_not_older(seen).is_err());
        let backup = state.backup(1).await.unwrap().expect("it holds a cluster");
        state.clear().await.unwrap();
        state.restore(&backup, generation_to_recover(seen.generation(), 1).unwrap()).await.unwrap();
        let recovered = state.stamp().await.unwrap().unwrap();
        assert_eq!(recovered.check_not_older(seen), Ok(()));
    });
}

#[test]
fn a_state_is_newer_after_a_change_for_good_alone() {
    let cluster = TestCluster::new(1, 2, 1, 1);
    let (state, platform) = (cluster.state(1), cluster.platform.clone());
    cluster.platform.run(async move {
        let stamp = async || state.stamp().await.unwrap().unwrap();
        let revision = async || state.snapshot(&[]).await.unwrap().revision;
        let before = (stamp().await, revision().await);
        assert_eq!(before.0.revision(), before.1, "the cluster was made for good");
        let lease = state.store().grant_lease(Duration::from_secs(5)).await.unwrap();
        let alive = AliveRecord { incarnation: owner(1).incarnation, drives: Vec::new(), vm_host: None };
        state.announce(ShardId::first(node(1)), &alive, lease).await.unwrap();
        state.stay_awake(node(2), lease).await.unwrap();
        platform.sleep(Duration::from_secs(6)).await;
        assert!(state.alive().await.unwrap().is_empty());
        assert!(revision().await > before.1, "the store itself has gone on");
        assert_eq!(stamp().await, before.0);
        state.note_attach(drive(1, 0), DriveRole::Capacity, node(1), 5).await.unwrap();
        assert_eq!(stamp().await.revision(), revision().await);
        state.remove(&StateKey::Drive(drive(1, 0))).await.unwrap();
        assert_eq!(stamp().await.revision(), revision().await);
    });
}

#[test]
fn what_is_told_of_a_drive_stays_and_brings_no_removed_one_back() {
    let cluster = TestCluster::new(1, 2, 1, 1);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let one = drive(1, 0);
        state.describe_drive(one, DriveRole::Capacity, Some("n1/sda"), None).await.unwrap();
        state.describe_drive(one, DriveRole::Capacity, None, Some(crate::MediaClass::Ssd)).await.unwrap();
        let record = || async { state.get::<DriveRecord>(&StateKey::Drive(one)).await.unwrap() };
        let known = record().await.unwrap();
        let (name, media) = (known.record.name.as_deref(), known.record.media);
        assert_eq!((name, media), (Some("n1/sda"), Some(crate::MediaClass::Ssd)));
        state.describe_drive(one, DriveRole::Capacity, Some("n1/sda"), None).await.unwrap();
        assert_eq!(record().await.unwrap().revision, known.revision, "nothing is new");
        state.remove_drive(one, "n1/sda", 7, false).await.unwrap();
        let error = refused(state.describe_drive(one, DriveRole::Capacity, Some("n1/sdb"), None).await);
        assert_eq!((error.code.as_str(), record().await.is_none()), ("DRIVE_UNKNOWN", true));
    });
}

/// A drive that has left the pool does not come back by being attached once more.
#[test]
fn a_drive_that_was_removed_is_not_taken_up_again() {
    let cluster = TestCluster::new(1, 2, 1, 1);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let one = drive(1, 0);
        let known: Stored<DriveRecord> = state.get(&StateKey::Drive(one)).await.unwrap().unwrap();
        let other = DriveRecord { attach_number: 99, ..known.record.clone() };
        assert_eq!(state.add_drive(one, other.clone()).await.unwrap(), known, "it stays as it is");
        state.remove_drive(one, "sda", 7, true).await.unwrap();
        assert!(!state.is_drive_removed(one).await.unwrap(), "it was only asked");
        state.remove_drive(one, "sda", 7, false).await.unwrap();
        assert!(state.is_drive_removed(one).await.unwrap());
        assert_eq!(state.removed_drive_names().await.unwrap(), ["sda".to_owned()].into());
        let error = refused(state.add_drive(one, other.clone()).await);
        assert_eq!(error.code, "DRIVE_REMOVED");
        state.add_drive(drive(9, 9), other).await.expect("a new one");
        assert_eq!(state.drives().await.unwrap().len(), 2);
    });
}
