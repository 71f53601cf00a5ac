use spandrel_pool::{DriveRoom, NodeRoom};
use spandrel_shared::{NodeId, SlabGeometry};

use super::*;

/// A pool of two drives of 1000 slabs each.
fn pool(used: [u32; 2]) -> PoolView {
    let node = |number: u8| NodeRoom {
        node: NodeId::from_bytes([number; 16]),
        name: format!("n{number}"),
        is_online: true,
        volumes_owned: 0,
        is_in_maintenance: false,
    };
    let drive = |number: u8| DriveRoom {
        drive: DriveId::from_bytes([number; 16]),
        node: NodeId::from_bytes([number; 16]),
        slabs_total: 1000,
        slabs_used: used[usize::from(number)],
        is_online: true,
    };
    let numbers = [0, 1];
    PoolView {
        geometry: SlabGeometry::default(),
        nodes: numbers.map(node).to_vec(),
        drives: numbers.map(drive).to_vec(),
    }
}

fn at_s(seconds: u64) -> Instant {
    Instant::from_nanoseconds(seconds * 1_000_000_000)
}

#[test]
fn copies_are_spread_when_a_pool_stays_uneven() {
    let mut evenness = Evenness::default();
    let mut judge = |changes: u64, second: u64, used: [u32; 2]| {
        evenness.judge(changes, at_s(second), || pool(used));
        evenness.is_lost(at_s(second))
    };
    assert!(!judge(1, 0, [0, 150]), "as even as it need be");
    assert!(!judge(2, 100, [0, 151]), "it may be about to change");
    assert!(!judge(3, 159, [0, 160]));
    assert!(judge(4, 160, [0, 160]));
    assert!(judge(5, 161, [20, 31]), "not even enough yet");
    assert!(!judge(6, 162, [25, 35]));
    assert!(!judge(7, 300, [25, 36]), "as even as it need be");
    assert!(!judge(7, 400, [0, 1000]), "the same pool is not judged twice");
}
