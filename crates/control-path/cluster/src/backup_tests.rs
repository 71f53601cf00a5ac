use super::*;
use crate::NodeRecord;
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
            joined_unix_ms: 0,
            key_digest: None,
            maintenance_since_unix_ms: None,
        };
        state.put(&StateKey::Node(node(9)), Expected::Absent, record).await.unwrap();
        state.restore(&backup, 4).await.unwrap();
        let cluster = state.cluster().await.unwrap().expect("it is there").record;
        assert_eq!((cluster.generation, cluster.id), (4, backup.cluster));
        assert_eq!(state.nodes().await.unwrap().len(), 3);
        let membership = state.membership(volume(1)).await.unwrap().expect("it is there");
        let record = membership.record;
        assert_eq!((record.owner, record.writer, record.generation), (None, None, 0));
        assert_eq!(record.epoch, Epoch(1 + EPOCHS_SKIPPED));
        assert_eq!(membership.sets.len(), 4);
        assert!(state.stamp().await.unwrap() > Some(crate::StateStamp::new(3, Revision(1 << 40))));
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
