use spandrel_node::{LegReport, OwnedVolumeReport};
use spandrel_shared::{Epoch, ProcessIncarnation};

use super::*;
use crate::checkers::testing::{drive_id, marked, volume, volume_id};
use crate::nodes::node_id;

/// The report of an owner that takes its second copy for `state`.
fn report(epoch: u32, is_serving: bool, state: &str) -> NodeReport {
    let leg = |node, state: &str| LegReport {
        drive: drive_id(node),
        node: node_id(node),
        state: state.to_owned(),
        resync_pages: None,
    };
    let owned = OwnedVolumeReport {
        volume: volume_id(),
        epoch: Epoch(epoch),
        is_serving,
        writer: None,
        legs: vec![leg(0, "in-sync"), leg(1, state)],
        reads: 0,
        writes: 0,
        read_bytes: 0,
        write_bytes: 0,
        blocks_read_elsewhere: 0,
        blocks_healed: 0,
        legs_marked: 0,
        legs_promoted: 0,
        blocks_rolled_forward: 0,
        blocks_resynced: 0,
    };
    NodeReport {
        node: node_id(0),
        name: "n1".to_owned(),
        incarnation: ProcessIncarnation::from_random(1, 1),
        nbd_addresses: Vec::new(),
        nbd_connections: 0,
        reachable: Vec::new(),
        alive: Vec::new(),
        drives: Vec::new(),
        owned: vec![owned],
    }
}

#[test]
fn a_copy_that_is_left_out_is_marked() {
    let unmarked = volume(&[&[0, 1]]);
    for state in ["stale", "joining"] {
        let refused = check(&unmarked, &[report(1, true, state)]);
        assert!(refused.is_err_and(|what| what.contains(state)));
        assert_eq!(check(&marked(unmarked.clone(), 1), &[report(1, true, state)]), Ok(()));
    }
    for state in ["in-sync", "promoting"] {
        assert_eq!(check(&unmarked, &[report(1, true, state)]), Ok(()));
    }
}

#[test]
fn only_the_owner_that_serves_counts() {
    let unmarked = volume(&[&[0, 1]]);
    assert_eq!(check(&unmarked, &[report(1, false, "stale")]), Ok(()), "it is taking over");
    assert_eq!(check(&unmarked, &[report(0, true, "stale")]), Ok(()), "another one has followed it");
}
