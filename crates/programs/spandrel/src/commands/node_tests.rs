use spandrel_cluster::StateRequests;
use spandrel_health::{HealthStatus, OperationalStatus, Status};
use spandrel_shared::{NodeId, ProcessIncarnation};

use super::*;
use crate::admin::api::{ShardShare, VolumeLeft, VotesLeft};
use crate::table::WIDTH_MAX;

fn details() -> NodeDetails {
    NodeDetails {
        node: NodeStatus {
            name: "n1".to_owned(),
            id: NodeId::from_random(1, 1),
            status: Status::new(HealthStatus::Healthy, OperationalStatus::Up),
            nbd_addresses: vec!["/x/nbd.sock".to_owned()],
            drives_usable: 1,
            drives: 2,
            volumes_owned: (0..50).map(|number| format!("volume-{number}")).collect(),
            maintenance: None,
            connections: 3,
            state_requests: StateRequests { reads: 20, ..StateRequests::default() },
        },
        addresses: vec!["10.0.0.1:7440".to_owned(), "10.1.0.1:7440".to_owned()],
        place: Place { rack: Some("r7".to_owned()), ..Place::default() },
        shards: 1,
        shard_shares: Vec::new(),
        joined_unix_ms: Some(0),
        started_unix_ms: Some(86_400_000 * 9),
        incarnation: Some(ProcessIncarnation::from_random(1, 2)),
        state_role: Some(StateRole::Keeps),
        promisable_bytes: 1 << 40,
        promised_bytes: 1 << 39,
        used_bytes: 1 << 38,
        peers: vec![
            PeerStatus {
                node: "n2".to_owned(),
                silent_ms: Some(12),
                paths: vec![
                    PathStatus { address: "10.0.0.2:7440".to_owned(), carried_bytes: 1 << 20 },
                    PathStatus { address: "10.1.0.2:7440".to_owned(), carried_bytes: 1 << 30 },
                ],
            },
            PeerStatus { node: "n3".to_owned(), silent_ms: None, paths: Vec::new() },
        ],
    }
}

#[test]
fn everything_about_a_node_is_shown_and_nothing_is_cut_off() {
    let text = render_one(&details(), 86_400_000 * 10);
    for expected in ["for 10 d", "for 24 h", "volume-49", "10.1.0.1:7440", "kept here", "1 of 2 can be used"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let paths: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("OTHER NODE")).skip(1).collect();
    assert_eq!(paths.len(), 3, "{text}");
    assert!(paths[1].contains("10.1.0.2:7440") && paths[1].contains("1 GiB"), "{text}");
    assert!(paths[2].contains("never") && paths[2].contains("no connection"), "{text}");
    assert!(paths.iter().all(|line| line.chars().count() <= WIDTH_MAX), "{text}");
}

#[test]
fn several_shards_are_told() {
    assert!(render_one(&details(), 1000).contains("shards          1\n"));
    let share = |shard, volumes| ShardShare { shard, drives: vec![format!("n1/d{}", shard + 1)], volumes };
    let shard_shares = vec![share(0, vec!["v1".to_owned(), "v2".to_owned()]), share(1, Vec::new())];
    let text = render_one(&NodeDetails { shards: 2, shard_shares, ..details() }, 1000);
    assert!(text.contains("shards          2\n"), "{text}");
    assert!(text.contains("shard 0       has n1/d1; owns v1 v2\n"), "{text}");
    assert!(text.contains("shard 1       has n1/d2; owns none\n"), "{text}");
}

#[test]
fn a_node_that_is_down_is_told_as_such() {
    let details = NodeDetails {
        started_unix_ms: None,
        incarnation: None,
        peers: Vec::new(),
        state_role: None,
        ..details()
    };
    let text = render_one(&details, 1000);
    assert!(text.contains("runs            no\n"), "{text}");
    assert!(!text.contains("cluster's state"), "{text}");
}

fn safety() -> NodeSafety {
    let left = |volume: &str, copies_left| VolumeLeft { volume: volume.to_owned(), copies_left };
    NodeSafety {
        node: "n2".to_owned(),
        against: Vec::new(),
        volumes: vec![left("v1", 2), left("v2", 1)],
        votes: Some(VotesLeft { all: 3, left: 2 }),
        copies_held: 12,
        shortage: None,
    }
}

#[test]
fn whether_a_node_may_be_switched_off_is_told_with_the_arithmetic() {
    let text = render_safety(&safety());
    for words in [
        "yes: node n2 may be switched off",
        "of 2 volumes with copies there each part keeps 1 in sync on other nodes, or more (fewest: v2)",
        "2 of 3 on the cluster's state stay",
        "the others have room for its 12 copies",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let against = vec![Error::new("NODE_NEEDED", "no", "n1 is down", "start n1")];
    let needed = NodeSafety {
        against,
        votes: None,
        shortage: Some("6 copies have to be on different nodes".to_owned()),
        ..safety()
    };
    let text = render_safety(&needed);
    for words in
        ["no: node n2 must not", "why:  n1 is down", "next: start n1", "it has none", "6 copies have to be"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
}
