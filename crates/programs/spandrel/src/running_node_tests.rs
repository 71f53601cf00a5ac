use spandrel_platform_linux::Cores;
use spandrel_shared::ClusterId;
use spandrel_state_redb::RedbState;

use super::*;

fn start(drives: usize, further_shards: usize) -> (tempfile::TempDir, NodeStart) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = |name: String| Address::Unix(directory.path().join(name).display().to_string());
    let start = NodeStart {
        config: NodeConfig {
            cluster: ClusterId::from_random(1, 1),
            node: NodeId::from_random(2, 2),
            shard: 0,
            shards: 1,
            name: "n1".to_owned(),
            bus_addresses: vec![socket("bus".to_owned())],
            nbd_addresses: vec![socket("nbd".to_owned())],
            drives: (0..drives).map(|number| DrivePlace::capacity(format!("d{number}"))).collect(),
            leaves_unfit_drives_out: false,
        },
        further_bus_addresses: (1..=further_shards).map(|shard| vec![socket(format!("b{shard}"))]).collect(),
        runtime: RuntimeConfig { cores: Some("0-3".parse::<Cores>().expect("cores")), ..Default::default() },
        store: NodeState::File(RedbState::open(&directory.path().join("state")).expect("a new state")),
        tls: None,
    };
    (directory, start)
}

#[test]
fn shards_have_their_share_of_all_and_the_first_one_the_clients() {
    let (_directory, start) = start(5, 1);
    let shards = start.shards();
    let numbers: Vec<_> = shards.iter().map(|shard| (shard.config.shard, shard.config.shards)).collect();
    assert_eq!(numbers, [(0, 2), (1, 2)]);
    let drives = shards.iter().map(|shard| {
        shard.config.drives.iter().map(|drive| drive.location.as_str()).collect::<Vec<_>>().join(" ")
    });
    assert_eq!(drives.collect::<Vec<_>>(), ["d0 d2 d4", "d1 d3"]);
    let cores = shards.iter().map(|shard| shard.runtime.cores.as_ref().expect("cores").to_string());
    assert_eq!(cores.collect::<Vec<_>>(), ["0-1", "2-3"]);
    assert_eq!(shards.iter().map(|shard| shard.config.nbd_addresses.len()).collect::<Vec<_>>(), [1, 0]);
    assert!(shards[1].config.bus_addresses[0].to_string().ends_with("/b1"));
}

#[test]
fn a_cache_drive_needs_a_node_of_one_shard() {
    let drives = [("d1", DriveRole::Capacity), ("c1", DriveRole::Cache)];
    check_roles(drives, 1).expect("one thread has them all");
    check_roles(drives[..1].iter().copied(), 2).expect("there is none");
    let refused = check_roles(drives, 2).expect_err("they may be apart");
    assert_eq!(refused.code, "CACHE_WITH_SHARDS");
    assert!(refused.what.starts_with("c1 "), "{refused}");
}

#[test]
fn a_drive_that_is_added_comes_to_the_shard_that_had_it() {
    let seen = |is_here, count| DrivesSeen { is_here, count };
    assert_eq!(shard_for_drive(None, &[seen(false, 2), seen(false, 1)]), 1, "the one with the fewest");
    assert_eq!(shard_for_drive(None, &[seen(true, 2), seen(false, 1)]), 0, "one is there that failed");
    // Another drive was where this one is now.
    assert_eq!(shard_for_drive(Some(1), &[seen(true, 1), seen(false, 5)]), 1);
}
