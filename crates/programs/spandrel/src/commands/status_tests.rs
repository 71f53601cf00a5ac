use spandrel_cluster::{MediaClass, StateRequests};
use spandrel_health::{HealthStatus, OperationalStatus};
use spandrel_shared::{ClusterId, NodeId};

use super::*;
use crate::admin::api::{DriveStatus, NodeStatus, PoolStatus, Usage};
use crate::commands::volume::tests::long_volume;
use crate::table::WIDTH_MAX;

fn ok() -> Status {
    Status::new(HealthStatus::Healthy, OperationalStatus::Ok)
}

fn node(number: u32) -> NodeStatus {
    NodeStatus {
        name: format!("n{number}"),
        id: NodeId::from_random(1, u64::from(number)),
        status: if number == 2 {
            Status::new(HealthStatus::Unhealthy, OperationalStatus::Down)
        } else {
            Status::new(HealthStatus::Healthy, OperationalStatus::Up)
        },
        nbd_addresses: vec![format!("/x/n{number}/nbd.sock")],
        drives_usable: 24,
        drives: 24,
        volumes_owned: (0..300).map(|number| format!("volume-{number}")).collect(),
        maintenance: None,
        connections: 300,
        state_requests: StateRequests { reads: 20, transactions: 10, ..StateRequests::default() },
    }
}

fn drive(number: u32) -> DriveStatus {
    DriveStatus {
        name: format!("n{number}/d24"),
        id: None,
        node: format!("n{number}"),
        status: ok(),
        failure: None,
        location: None,
        media: Some(MediaClass::Nvme),
        size_bytes: (1 << 44) - 1,
        promisable_bytes: 1 << 44,
        promised_bytes: 1 << 44,
        used_bytes: (1 << 44) - 1,
        written_bytes: (1 << 50) - 1,
        data_bytes: 0,
        flushes: 1_000_000_000,
        journal_laps: 3,
        map_memory_bytes: 1 << 30,
        map_pages_read: 1_000_000,
        blocks_damaged: 1_000_000,
        damage_found: 1_000_000,
        blocks_healed: 1_000_000,
        bound_to: None,
        cache: None,
        without_cache_ms: None,
        cache_obstacle: None,
        memory: None,
    }
}

fn cluster() -> ClusterStatus {
    ClusterStatus {
        version: "0.1.0".to_owned(),
        cluster: ClusterId::from_random(1, 2),
        name: "demo".to_owned(),
        directory: "/x".to_owned(),
        process: 1,
        started_unix_ms: 0,
        memory: false,
        flush_us: Some(1234.0),
        usage: Usage::default(),
        pool: PoolStatus {
            status: ok(),
            slab_bytes: 1 << 28,
            total_bytes: 1 << 40,
            promised_bytes: 1 << 39,
            free_bytes: 1 << 39,
            reserve_bytes: 1 << 38,
            copies_default: 3,
            volume_bytes_max: 1 << 37,
        },
        nodes: (1..=16).map(node).collect(),
        drives: (1..=16).map(drive).collect(),
        caches: Vec::new(),
        volumes: vec![long_volume()],
    }
}

#[test]
fn the_largest_cluster_fits_the_width() {
    let text = render(&cluster());
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH_MAX, "{line}");
    }
    assert!(text.contains("not healthy: 1 node, 1 volume\n"), "{text}");
    assert!(text.contains("one flush took 1.2 ms"), "{text}");
    assert!(text.contains("512 GiB of 1 TiB promised to volumes (50 %)"), "{text}");
}

#[test]
fn a_healthy_cluster_without_volumes_says_what_to_do_next() {
    let mut cluster = ClusterStatus { volumes: Vec::new(), ..cluster() };
    cluster.nodes.retain(|node| node.status.is_healthy());
    let text = render(&cluster);
    assert!(text.contains("spandrel volume create NAME --size 1G"), "{text}");
    assert!(!text.contains("not healthy"), "{text}");
}
