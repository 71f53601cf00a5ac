use super::*;

fn node(number: u8) -> NodeId {
    NodeId::from_bytes([number; 16])
}

fn report(shard: u8, reachable: &[u8], locations: &[&str]) -> NodeReport {
    let drive = |location: &&str| DriveReport { location: (*location).to_owned(), ..DriveReport::default() };
    NodeReport {
        node: node(1),
        name: "n1".to_owned(),
        incarnation: ProcessIncarnation::from_bytes([shard; 16]),
        further_incarnations: Vec::new(),
        nbd_addresses: vec![format!("socket-{shard}")],
        nbd_connections: 2,
        started_unix_ms: Some(5),
        peers: vec![PeerReport { node: node(2), shard, silent_ms: None, paths: Vec::new() }],
        reachable: reachable.iter().map(|number| node(*number)).collect(),
        alive: vec![node(1), node(2)],
        state_requests: StateRequests {
            reads: 3,
            transaction_bytes_max: shard.into(),
            ..StateRequests::default()
        },
        drives_away: Vec::new(),
        drives_slow: vec![DriveSlow {
            drive: DriveId::from_bytes([7; 16]),
            slow_ms: u64::from(shard) * 10,
            times: 1,
            rest_left_ms: 0,
        }],
        caches_away: Vec::new(),
        drives: locations.iter().map(drive).collect(),
        caches: Vec::new(),
        owned: Vec::new(),
        vms: Vec::new(),
    }
}

#[test]
fn what_the_shards_of_a_node_say_is_one_report() {
    assert_eq!(NodeReport::of_shards([]), None);
    let alone = report(0, &[2], &["a"]);
    assert_eq!(NodeReport::of_shards([alone.clone()]), Some(alone));
    let shards = [report(0, &[2, 3], &["a", "c"]), report(1, &[3], &["b"]), report(2, &[2, 3], &[])];
    let all = NodeReport::of_shards(shards).expect("there are some");
    let locations: Vec<&str> = all.drives.iter().map(|drive| &drive.location[..]).collect();
    assert_eq!(locations, ["a", "b", "c"]);
    assert_eq!(all.nbd_addresses, ["socket-0", "socket-1", "socket-2"]);
    assert_eq!((all.nbd_connections, all.peers.len()), (6, 3));
    assert_eq!(all.reachable, [node(3)], "one of them does not reach the other node");
    assert_eq!((all.state_requests.reads, all.state_requests.transaction_bytes_max), (9, 2));
    let run = |number: u8| ProcessIncarnation::from_bytes([number; 16]);
    let named = |number: u8, of: u8| all.is_of(ShardId { node: node(1), number }, run(of));
    assert_eq!([named(0, 0), named(1, 1), named(2, 2)], [true; 3], "what each of them owns is the node's");
    assert_eq!([named(1, 0), named(0, 1), named(3, 0)], [false; 3]);
    assert!(!all.is_of(ShardId::first(node(2)), run(0)));
    assert_eq!(all.drives_slow.iter().map(|slow| slow.slow_ms).collect::<Vec<_>>(), [20], "the worst counts");
}
