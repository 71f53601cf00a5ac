use super::*;
use crate::store::Expected;
use crate::test_cluster::{TestCluster, new_volume, node, owner, plan, volume};

fn backup_of(cluster: &TestCluster) -> StateBackup {
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let room = state.pool_room().await.unwrap();
        let made = state.create_volume(&new_volume(1, 4, 2), &plan(4, 2, 3, 1, 1), &room).await.unwrap();
        state.take_volume(volume(1), &made, owner(2)).await.unwrap();
        let lease = state.store().grant_lease(std::time::Duration::from_secs(100)).await.unwrap();
        state.stay_awake(node(1), lease).await.unwrap();
        state.backup(77).await.unwrap().expect("it holds a cluster")
    })
}

#[test]
fn a_backup_is_read_back_and_one_that_was_changed_is_not() {
    let backup = backup_of(&TestCluster::new(1, 3, 1, 8));
    let bytes = backup.to_bytes();
    assert_eq!(StateBackup::from_bytes(&bytes), Ok(backup.clone()));
    assert_eq!((backup.volumes(), backup.taken_unix_ms, backup.generation), (1, 77, 0));
    assert!(backup.entries.keys().all(|key| !key.starts_with("awake/")), "who runs is seen anew");
    let text = String::from_utf8(bytes.clone()).unwrap();
    let code = |bytes: &[u8]| StateBackup::from_bytes(bytes).expect_err("it is refused").code;
    assert_eq!(code(&bytes[..bytes.len() / 2]), "BACKUP_UNREADABLE");
    assert_eq!(code(text.replace("vm-1", "vm-2").as_bytes()), "BACKUP_UNREADABLE");
    assert_eq!(
        code(text.replace("\"format\": 1,\n  \"cluster\"", "\"format\": 2,\n  \"cluster\"").as_bytes()),
        "BACKUP_TOO_NEW"
    );
}

/// Or an operator who puts it back was told that drives have seen nothing newer, since entries have expired meanwhile.
#[test]
fn a_backup_is_as_new_as_the_state_that_it_was_made_of() {
    let cluster = TestCluster::new(1, 3, 1, 8);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let lease = state.store().grant_lease(std::time::Duration::from_secs(100)).await.unwrap();
        state.stay_awake(node(1), lease).await.unwrap();
        let stamp = state.stamp().await.unwrap().expect("it holds a cluster");
        let read_at = state.snapshot(&[]).await.unwrap().revision;
        assert!(stamp.revision() < read_at, "the store itself has gone on");
        assert_eq!(state.backup(77).await.unwrap().map(|backup| backup.stamp()), Some(stamp));
    });
}

/// What such a version wrote would be put twice in one transaction, which etcd refuses.
#[test]
fn a_backup_of_a_version_that_left_less_out_can_be_restored() {
    let mut backup = backup_of(&TestCluster::new(1, 3, 1, 8));
    backup.entries.insert("changed".to_owned(), String::new());
    let other = TestCluster::new(2, 0, 0, 0);
    let state = other.state(1);
    other.platform.run(async move {
        state.clear().await.unwrap();
        state.restore(&backup, 1).await.unwrap();
        assert!(state.cluster().await.unwrap().is_some());
    });
}

#[test]
fn a_state_that_was_made_of_a_backup_trusts_nobody_who_used_the_former_one() {
    let backup = backup_of(&TestCluster::new(1, 3, 1, 8));
    let other = TestCluster::new(2, 0, 0, 0);
    let state = other.state(1);
    other.platform.run(async move {
        let code = |error: StateError| match error {
            StateError::Refused(error) => error.code,
            error => panic!("{error:?}"),
        };
        assert_eq!(code(state.restore(&backup, 1).await.unwrap_err()), "STATE_NOT_EMPTY");
        state.clear().await.unwrap();
        assert_eq!(state.backup(1).await, Ok(None));
        // What an attempt that was interrupted has left.
        let record = NodeRecord {
            name: "x".to_owned(),
            addresses: Vec::new(),
            further_shards: Vec::new(),
            joined_unix_ms: 0,
            key_digest: None,
            maintenance_since_unix_ms: None,
            place: Default::default(),
            unknown: Default::default(),
        };
        state.put(&StateKey::Node(node(9)), Expected::Absent, record).await.unwrap();
        let generation = 4096 + 4;
        state.restore(&backup, generation).await.unwrap();
        let cluster = state.cluster().await.unwrap().expect("it is there").record;
        assert_eq!((cluster.generation, cluster.id), (generation, backup.cluster));
        assert_eq!(state.nodes().await.unwrap().len(), 3);
        let membership = state.membership(volume(1)).await.unwrap().expect("it is there");
        let record = membership.record;
        assert_eq!((record.owner, record.writer, record.generation), (None, None, 0));
        assert_eq!(record.epoch, Epoch(1 + EPOCHS_SKIPPED));
        assert_eq!(membership.sets.len(), 4);
        assert!(state.stamp().await.unwrap() > Some(crate::StateStamp::new(4096, Revision((1 << 40) - 1))));
    });
}

fn restored_in(backup: &StateBackup, generation: u32) -> BTreeMap<Key, Value> {
    backup.restored(generation).expect("it can be read").into_iter().collect()
}

/// The one may have been made of a backup that the other was made of, too, while its copies were elsewhere.
#[test]
fn each_recovery_begins_with_epochs_of_its_own() {
    let backup = backup_of(&TestCluster::new(1, 3, 1, 8));
    let epoch_in = |generation| {
        let restored = restored_in(&backup, generation);
        let value = &restored[&StateKey::Volume(volume(1)).key()];
        let text = std::str::from_utf8(value).unwrap();
        let (_, rest) = text.split_once("\"epoch\":").expect("it has one");
        rest.split(',').next().unwrap().parse::<u32>().unwrap()
    };
    assert_eq!(epoch_in(4096 + 7), 1 + EPOCHS_SKIPPED);
    assert_eq!(epoch_in(2 * 4096), 1 + 2 * EPOCHS_SKIPPED);
    assert_eq!(epoch_in(crate::stamp::GENERATION_MAX), 1 + 4095 * EPOCHS_SKIPPED);
}

/// It may have been finished since, and written to: then taking it apart would delete what was written.
#[test]
fn a_volume_that_was_just_being_made_is_left_out() {
    let cluster = TestCluster::new(1, 3, 1, 8);
    backup_of(&cluster);
    let state = cluster.state(1);
    let backup = cluster.platform.run(async move {
        let room = state.pool_room().await.unwrap();
        state.begin_volume(&new_volume(2, 2, 2), &plan(2, 2, 3, 1, 2), &room).await.unwrap();
        state.backup(78).await.unwrap().expect("it holds a cluster")
    });
    assert_eq!(backup.half_made(), Ok(BTreeMap::from([(volume(2), "vm-2".to_owned())])));
    let restored = restored_in(&backup, 4096);
    let left_out: Vec<&str> = backup
        .entries
        .keys()
        .map(String::as_str)
        .filter(|key| !restored.contains_key(&Key::new(key)))
        .collect();
    let second = volume(2);
    let expected =
        [format!("rooms/{second}"), "volumes-by-name/vm-2".to_owned(), format!("volumes/{second}")];
    assert_eq!(left_out, expected);
}

/// What it held when it was given up says nothing of what it holds by the recovered state.
#[test]
fn a_drive_that_was_given_up_is_asked_for_again_in_a_later_recovery() {
    let cluster = TestCluster::new(1, 3, 1, 8);
    backup_of(&cluster);
    let state = cluster.state(1);
    let backup = cluster.platform.run(async move {
        state.go_on_without(&BTreeSet::from([node(2)]), &BTreeSet::new(), 0).await.unwrap();
        state.backup(78).await.unwrap().expect("it holds a cluster")
    });
    let other = TestCluster::new(2, 0, 0, 0);
    let state = other.state(1);
    other.platform.run(async move {
        state.clear().await.unwrap();
        state.restore(&backup, 4096).await.unwrap();
        assert!(
            state.drives().await.unwrap().values().all(|stored| stored.record.state == DriveState::Active)
        );
        assert!(state.membership(volume(1)).await.unwrap().expect("it is there").lost.is_empty());
    });
}

/// No transaction of somebody who has seen the former state is made in the new one.
#[test]
fn who_has_seen_the_former_state_changes_nothing_once_it_is_cleared() {
    let cluster = TestCluster::new(1, 3, 1, 8);
    backup_of(&cluster);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = state.membership(volume(1)).await.unwrap().expect("it is there");
        state.clear().await.unwrap();
        let marks = BTreeMap::from([(*seen.drives().first().unwrap(), spandrel_shared::Version::ZERO)]);
        let marked = state.mark_stale(owner(2), &seen, &marks).await;
        assert_eq!(marked.map(drop), Err(StateError::Conflict));
    });
}
