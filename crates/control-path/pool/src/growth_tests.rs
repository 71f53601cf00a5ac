use std::collections::BTreeSet;

use spandrel_shared::{DriveId, SlabGeometry};

use super::*;
use crate::view::{DriveRoom, NodeRoom};

const SLAB_BYTES: u64 = 16 << 20;

fn node_id(number: u8) -> NodeId {
    NodeId::from_bytes([number; 16])
}

/// Nodes with one drive each of so many slabs, all empty.
fn pool(drives: &[u32]) -> PoolView {
    let node = |number: u8| NodeRoom {
        node: node_id(number),
        name: format!("node-{number}"),
        is_online: true,
        volumes_owned: 0,
        place: Default::default(),
        is_in_maintenance: false,
    };
    let drive = |(number, slabs_total): (u8, &u32)| DriveRoom {
        drive: DriveId::from_bytes([number; 16]),
        node: node_id(number),
        slabs_total: *slabs_total,
        slabs_used: 0,
        slabs_leaving: 0,
        is_online: true,
    };
    PoolView {
        geometry: SlabGeometry::new(SLAB_BYTES).expect("it is an allowed size"),
        nodes: (1..).zip(drives).map(|(number, _)| node(number)).collect(),
        drives: (1..).zip(drives).map(drive).collect(),
    }
}

fn request(size_bytes: u64, grows_to_bytes: u64) -> GrowthRequest<'static> {
    GrowthRequest { name: "data", size_bytes, grows_to_bytes, copies: 2, owner: Some(node_id(1)) }
}

#[test]
fn slabs_come_on_different_nodes_one_copy_with_the_owner() {
    let view = pool(&[20, 20, 20]);
    let plan = plan_growth(&view, &request(3 * SLAB_BYTES, 7 * SLAB_BYTES)).expect("there is room");
    assert_eq!(plan.slabs.len(), 4);
    for drives in &plan.slabs {
        assert_eq!(drives.iter().collect::<BTreeSet<_>>().len(), 2);
    }
    // As long as it keeps its part of the reserve, which is its only drive here, the owner gets its proportion.
    assert!(plan.slabs.iter().any(|drives| drives[0] == DriveId::from_bytes([1; 16])));
}

#[test]
fn an_owner_that_is_away_stands_in_nobodys_way() {
    let mut view = pool(&[20, 20, 20]);
    (view.nodes[0].is_online, view.drives[0].is_online) = (false, false);
    let plan = plan_growth(&view, &request(SLAB_BYTES, 2 * SLAB_BYTES)).expect("there is room");
    assert!(!plan.slabs[0].contains(&DriveId::from_bytes([1; 16])));
    view.nodes[0] = NodeRoom { is_online: true, is_in_maintenance: true, ..view.nodes[0].clone() };
    assert!(plan_growth(&view, &request(SLAB_BYTES, 2 * SLAB_BYTES)).is_ok());
}

#[test]
fn what_the_last_slab_has_left_takes_no_room() {
    let full = pool(&[0, 0]);
    let plan = plan_growth(&full, &request(SLAB_BYTES + 4096, 2 * SLAB_BYTES)).expect("nothing comes");
    assert_eq!(plan, GrowthPlan::default());
}

#[test]
fn without_room_the_refusal_says_how_much_there_is() {
    let view = pool(&[3, 3]);
    let error = plan_growth(&view, &request(SLAB_BYTES, 6 * SLAB_BYTES)).expect_err("5 do not fit");
    let text = error.to_string();
    assert_eq!(error.code, "POOL_FULL");
    for part in ["5 more slabs", "6 are free", "let it grow by at most 48 MiB"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("keep"), "the number of its copies stays: {text}");
}

#[test]
fn without_nodes_nothing_is_said_of_fewer_copies() {
    let mut view = pool(&[20, 20]);
    (view.nodes[1].is_online, view.drives[1].is_online) = (false, false);
    let error = plan_growth(&view, &request(SLAB_BYTES, 2 * SLAB_BYTES)).expect_err("one node is there");
    assert_eq!(error.code, "TOO_FEW_NODES");
    assert!(error.what.contains("cannot grow") && !error.next.contains("ask for"), "{error}");
}

#[test]
fn a_volume_never_shrinks_and_keeps_whole_blocks() {
    let view = pool(&[20, 20]);
    let smaller = plan_growth(&view, &request(2 * SLAB_BYTES, SLAB_BYTES)).expect_err("it is less");
    assert_eq!(smaller.code, "SIZE_SMALLER");
    assert!(smaller.why.contains("32 MiB") && smaller.why.contains("16 MiB"), "{smaller}");
    let uneven = plan_growth(&view, &request(SLAB_BYTES, SLAB_BYTES + 5)).expect_err("it is no multiple");
    assert_eq!(uneven.code, "SIZE_UNALIGNED");
    assert!(uneven.next.contains(&(SLAB_BYTES + 4096).to_string()), "{uneven}");
}
