use spandrel_pool::NodeRoom;
use spandrel_shared::{NodeId, SlabGeometry};

use super::*;

fn drive(number: u8) -> DriveId {
    DriveId::from_bytes([number; 16])
}

/// A pool of as many nodes with a drive of 100 slabs each, of which so many are used.
fn pool(used: &[u32]) -> PoolView {
    let node = |number: u8| NodeRoom {
        node: NodeId::from_bytes([number; 16]),
        name: format!("n{number}"),
        is_online: true,
        volumes_owned: 0,
        place: Default::default(),
        is_in_maintenance: false,
    };
    let room = |(number, used): (u8, &u32)| DriveRoom {
        drive: drive(number),
        node: NodeId::from_bytes([number; 16]),
        slabs_total: 100,
        slabs_used: *used,
        slabs_leaving: 0,
        is_online: true,
    };
    PoolView {
        geometry: SlabGeometry::default(),
        nodes: (0..).take(used.len()).map(node).collect(),
        drives: (0..).zip(used).map(room).collect(),
    }
}

#[test]
fn one_slow_drive_is_retired_at_a_time_and_only_if_the_others_have_room() {
    let demands = [Demand { slabs: 30, copies: 3 }];
    let check = |used: &[u32], leaving: &[u8], retired| {
        check(&pool(used), &leaving.iter().copied().map(drive).collect(), drive(retired), &demands)
    };
    assert_eq!(check(&[30, 30, 30, 0], &[], 0), Ok(()));
    assert_eq!(check(&[30, 30, 30, 0, 0], &[3], 0), Ok(()), "nothing is there that has to go");
    let why = check(&[30, 30, 10, 20, 0], &[3], 0).unwrap_err();
    assert!(why.contains("have to go from drive"), "{why}");
    let why = check(&[30, 30, 30], &[], 0).unwrap_err();
    assert!(why.contains("have room for 60 of 90 copies"), "{why}");
    let why = check(&[30, 30, 30, 0], &[3], 0).unwrap_err();
    assert!(why.contains("have room for"), "the fourth one is on its way out: {why}");
}

#[test]
fn a_drive_that_somebody_uses_again_is_told_once() {
    use DriveState::{Active, Failed, Retired};
    let mut decided = Decided::default();
    for (states, used_again) in [
        ([Active, Retired, Active], None),
        ([Active, Retired, Retired], None),
        ([Active, Active, Retired], Some(drive(1))),
        ([Active, Active, Failed], None),
        ([Active, Active, Active], Some(drive(2))),
        ([Active, Active, Active], None),
    ] {
        let told = decided.note((0..).map(drive).zip(states));
        assert_eq!(told, Vec::from_iter(used_again), "{states:?}");
    }
}
