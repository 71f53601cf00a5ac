use spandrel_cluster::StateRequests;
use spandrel_node::{DriveReport, OwnedVolumeReport};
use spandrel_shared::NodeId;

use super::*;

fn report(run: u64, drive_written_bytes: u64, owned: &[(u64, u32, u64)]) -> NodeReport {
    let owned = owned.iter().map(|(volume, epoch, write_bytes)| OwnedVolumeReport {
        volume: VolumeId::from_random(0, *volume),
        epoch: Epoch(*epoch),
        is_serving: true,
        writer: None,
        legs: Vec::new(),
        copies_without_place: 0,
        reads: 0,
        writes: 0,
        read_bytes: 0,
        write_bytes: *write_bytes,
        blocks_read_elsewhere: 0,
        blocks_healed: 0,
        legs_marked: 0,
        legs_promoted: 0,
        blocks_rolled_forward: 0,
        blocks_resynced: 0,
    });
    let drive = |written_bytes| DriveReport { written_bytes, ..DriveReport::default() };
    NodeReport {
        node: NodeId::from_random(0, 1),
        name: "n1".to_owned(),
        incarnation: ProcessIncarnation::from_random(0, run),
        nbd_addresses: Vec::new(),
        nbd_connections: 0,
        started_unix_ms: None,
        peers: Vec::new(),
        alive: Vec::new(),
        drives_away: Vec::new(),
        state_requests: StateRequests::default(),
        reachable: Vec::new(),
        drives: vec![drive(drive_written_bytes), drive(1)],
        owned: owned.collect(),
    }
}

#[test]
fn totals_go_on_when_a_node_starts_anew_and_a_volume_changes_its_owner() {
    let mut counters = Counters::default();
    counters.take(&report(1, 100, &[(1, 1, 50), (2, 1, 5)]));
    counters.take(&report(1, 200, &[(1, 1, 70)]));
    assert_eq!((counters.drive_written_bytes(), counters.user_written_bytes()), (201, 75));
    counters.take(&report(2, 10, &[(1, 2, 7)]));
    assert_eq!((counters.drive_written_bytes(), counters.user_written_bytes()), (212, 82));
}

#[test]
fn a_report_that_comes_late_takes_nothing_back() {
    let mut counters = Counters::default();
    counters.take(&report(1, 200, &[(1, 1, 70)]));
    counters.take(&report(1, 100, &[(1, 1, 50)]));
    assert_eq!((counters.drive_written_bytes(), counters.user_written_bytes()), (201, 70));
}
