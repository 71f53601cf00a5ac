use super::*;
use crate::AliveRecord;
use crate::test_cluster::{TestCluster, code, drive, new_volume, node, plan, volume};
use spandrel_shared::ProcessIncarnation;

const PORTS: u16 = 4;

fn server(number: u8, name: &str, address: &str) -> NewServer {
    NewServer {
        id: node(number),
        name: name.to_owned(),
        addresses: vec![address.parse().expect("an address")],
        key_digest: format!("key-{number}"),
        witness: false,
        now_unix_ms: 5,
    }
}

#[test]
fn a_server_is_admitted_once_and_answered_again() {
    let cluster = TestCluster::new(1, 0, 0, 0);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let first = server(1, "a", "10.0.0.1:7440");
        state.admit_server(&first, PORTS).await.unwrap();
        state.admit_server(&first, PORTS).await.expect("the same again");
        let later = NewServer { now_unix_ms: 99, ..first.clone() };
        state.admit_server(&later, PORTS).await.expect("the same again, later");
        assert_eq!(state.nodes().await.unwrap()[&node(1)].record.joined_unix_ms, 5);
        // The same identity with anything else is somebody else's.
        for other in [
            NewServer { key_digest: "key-2".to_owned(), ..first.clone() },
            NewServer { witness: true, ..first.clone() },
            NewServer { name: "b".to_owned(), ..first.clone() },
            NewServer { addresses: vec!["10.0.0.9:7440".parse().unwrap()], ..first.clone() },
        ] {
            assert_eq!(code(state.admit_server(&other, PORTS).await), "SERVER_REFUSED", "{other:?}");
        }
        assert_eq!(state.witnesses().await.unwrap().len(), 0);
    });
}

#[test]
fn names_and_addresses_are_one_servers_alone_whichever_its_kind() {
    let cluster = TestCluster::new(1, 0, 0, 0);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        state.admit_server(&server(1, "a", "10.0.0.1:7440"), PORTS).await.unwrap();
        let witness = NewServer { witness: true, ..server(2, "w", "10.0.0.2:7440") };
        state.admit_server(&witness, PORTS).await.unwrap();
        for (name, address, expected) in [
            ("a", "10.0.0.3:7440", "NAME_TAKEN"),
            ("w", "10.0.0.3:7440", "NAME_TAKEN"),
            ("c", "10.0.0.1:7440", "ADDRESS_TAKEN"),
            ("c", "10.0.0.1:7443", "ADDRESS_TAKEN"),
            ("c", "10.0.0.2:7437", "ADDRESS_TAKEN"),
        ] {
            let refused = state.admit_server(&server(3, name, address), PORTS).await;
            assert_eq!(code(refused), expected, "{name} {address}");
        }
        state.admit_server(&server(3, "c", "10.0.0.1:7444"), PORTS).await.expect("four ports away is free");
    });
}

/// Both look, both find the name free; one of them comes too late.
#[test]
fn of_two_that_come_at_once_one_gets_the_name() {
    for seed in 0..50 {
        let cluster = TestCluster::new(seed, 0, 0, 0);
        let (one, other) = (cluster.state(1), cluster.state(2));
        cluster.platform.run(async move {
            let (first, second) = (server(1, "a", "10.0.0.1:7440"), server(2, "a", "10.0.0.2:7440"));
            let both = futures_util::future::join(
                one.admit_server(&first, PORTS),
                other.admit_server(&second, PORTS),
            );
            let (first, second) = both.await;
            assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
            assert_eq!(one.nodes().await.unwrap().len(), 1);
        });
    }
}

#[test]
fn who_has_left_does_not_come_back() {
    let cluster = TestCluster::new(1, 2, 0, 0);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let witness = NewServer { witness: true, ..server(3, "w", "10.0.0.2:7440") };
        state.admit_server(&witness, PORTS).await.unwrap();
        for gone in [node(2), node(3)] {
            assert!(!state.is_removed(gone).await.unwrap());
            state.remove_server(gone, 7, true).await.unwrap().expect("it is there");
            assert!(!state.is_removed(gone).await.unwrap(), "nothing was done yet");
            state.remove_server(gone, 7, false).await.unwrap().expect("it is there");
            assert!(state.is_removed(gone).await.unwrap());
            assert_eq!(state.remove_server(gone, 7, false).await, Ok(None), "again is no error");
        }
        assert_eq!(code(state.admit_server(&witness, PORTS).await), "SERVER_REFUSED");
        let record = NodeRecord {
            name: "n2".to_owned(),
            addresses: Vec::new(),
            further_shards: Vec::new(),
            joined_unix_ms: 0,
            key_digest: None,
            maintenance_since_unix_ms: None,
            place: Default::default(),
            unknown: Default::default(),
        };
        let started = state.put_node(node(2), Expected::Absent, record).await;
        assert_eq!(code(started), "SERVER_REMOVED", "by a start neither");
        let same_name = server(4, "w", "10.0.0.2:7440");
        state.admit_server(&same_name, PORTS).await.expect("its name and address are free");
    });
}

/// Each of them would count on the other one.
#[test]
fn of_two_nodes_that_go_into_maintenance_at_once_one_has_to_look_again() {
    let cluster = TestCluster::new(1, 3, 0, 0);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = state.nodes().await.unwrap();
        state.set_maintenance(node(1), Some(7), &seen).await.unwrap();
        assert_eq!(state.set_maintenance(node(2), Some(8), &seen).await, Err(StateError::Conflict));
        let seen = state.nodes().await.unwrap();
        assert_eq!(seen[&node(1)].record.maintenance_since_unix_ms, Some(7));
        assert_eq!(seen[&node(2)].record.maintenance_since_unix_ms, None);
        state.set_maintenance(node(2), Some(8), &seen).await.expect("it was looked again");
        let seen = state.nodes().await.unwrap();
        state.set_maintenance(node(1), None, &seen).await.unwrap();
        assert_eq!(state.nodes().await.unwrap()[&node(1)].record.maintenance_since_unix_ms, None);
        assert_eq!(code(state.set_maintenance(node(9), None, &seen).await), "NODE_UNKNOWN");
    });
}

/// A server of this version drains a node of which a newer one has said more than it knows.
#[test]
fn what_a_later_version_has_said_of_a_node_is_kept() {
    let cluster = TestCluster::new(1, 1, 0, 0);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let key = StateKey::Node(node(1)).key();
        let text = r#"{"format":1,"name":"n1","addresses":[],"joined_unix_ms":1,"row":{"number":7}}"#;
        state.store().transact(Transaction::new().put(&key, text.as_bytes().to_vec())).await.unwrap();
        let seen = state.nodes().await.unwrap();
        state.set_maintenance(node(1), Some(7), &seen).await.unwrap();
        state.set_place(node(1), |place| place.rack = Some("r1".to_owned())).await.unwrap();
        let snapshot = state.store().read(&[Selection::key(&key)]).await.unwrap();
        let value = snapshot.entry(0).expect("it is there").value.to_vec();
        let written: serde_json::Value = serde_json::from_slice(&value).unwrap();
        assert_eq!(written["row"]["number"], 7, "{written}");
        assert_eq!((&written["format"], &written["place"]["rack"]), (&1.into(), &"r1".into()));
        assert_eq!(String::from_utf8(value).unwrap().matches("format").count(), 1);
    });
}

#[test]
fn a_node_with_copies_or_alive_with_drives_stays() {
    let cluster = TestCluster::new(1, 4, 1, 8);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let room = state.pool_room().await.unwrap();
        state.create_volume(&new_volume(1, 4, 2), &plan(4, 2, 2, 1, 1), &room).await.unwrap();
        let refused = state.remove_server(node(1), 7, false).await;
        let Err(StateError::Refused(error)) = refused else { panic!("{refused:?}") };
        assert_eq!(error.code, "NODE_HOLDS_COPIES");
        assert!(error.why.contains("vm-1"), "{error}");

        let lease = state.store().grant_lease(std::time::Duration::from_secs(1000)).await.unwrap();
        let alive = AliveRecord {
            incarnation: ProcessIncarnation::from_random(1, 2),
            drives: vec![drive(3, 0)],
            vm_host: None,
        };
        for number in 0..2 {
            state.announce(ShardId { node: node(3), number }, &alive, lease).await.unwrap();
        }
        assert_eq!(code(state.remove_server(node(3), 7, false).await), "NODE_RUNNING");
        state.remove_drive(drive(3, 0), "sda", 7, false).await.unwrap();
        state.remove_server(node(3), 7, false).await.expect("without drives it may be alive");
        assert!(state.alive().await.unwrap().is_empty(), "none of its shards is any more");

        let removal = state.remove_server(node(4), 7, false).await.unwrap().expect("it is there");
        assert_eq!(removal.drives, [drive(4, 0)]);
        assert!(!state.drives().await.unwrap().contains_key(&drive(4, 0)), "its drives leave with it");
        state.delete_volume(volume(1), 9).await.unwrap();
        state.remove_server(node(1), 7, false).await.expect("nothing is on it any more");
        assert_eq!(code(state.remove_server(node(2), 7, false).await), "LAST_NODE");
    });
}

/// A volume that was planned with a node's drive is not made after the node has left.
#[test]
fn removing_a_node_voids_older_plans() {
    let cluster = TestCluster::new(1, 3, 1, 8);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let room = state.pool_room().await.unwrap();
        state.remove_server(node(3), 7, false).await.unwrap();
        let created = state.create_volume(&new_volume(1, 4, 2), &plan(4, 2, 3, 1, 1), &room).await;
        assert_eq!(created.map(drop), Err(StateError::Conflict));
    });
}
