use proptest::prelude::*;
use spandrel_shared::{DriveId, SlabGeometry};

use super::*;
use crate::view::{DriveRoom, NodeRoom};

/// A pool of nodes with drives of these many slabs, all empty.
fn pool<Drives: AsRef<[u32]>>(nodes: &[Drives]) -> PoolView {
    let mut view = PoolView { geometry: SlabGeometry::default(), nodes: Vec::new(), drives: Vec::new() };
    for (number, drives) in (1..).zip(nodes) {
        let node = NodeId::from_bytes([number; 16]);
        view.nodes.push(NodeRoom {
            node,
            name: format!("node-{number}"),
            is_online: true,
            volumes_owned: 0,
            is_in_maintenance: false,
        });
        for (place, slabs_total) in (1..).zip(drives.as_ref()) {
            let drive = DriveId::from_bytes([number, place, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            view.drives.push(DriveRoom {
                drive,
                node,
                slabs_total: *slabs_total,
                slabs_used: 0,
                is_online: true,
            });
        }
    }
    view
}

/// Takes the nodes with the most room for each slab, until there are too few.
fn usable_by_trying(free: &[u64], copies: usize) -> u64 {
    let mut free = free.to_vec();
    for slabs in 0.. {
        free.sort_unstable_by(|one, two| two.cmp(one));
        if free.len() < copies || free[copies - 1] == 0 {
            return slabs;
        }
        free[..copies].iter_mut().for_each(|free| *free -= 1);
    }
    unreachable!()
}

proptest! {
    #[test]
    fn usable_is_what_can_be_placed(free in prop::collection::vec(0_u64..40, 0..7), copies in 1_u8..=3) {
        prop_assert_eq!(usable_slabs(&free, copies), usable_by_trying(&free, usize::from(copies)));
    }
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    assert_eq!(usable_slabs(&[u64::MAX; 3], 3), u64::MAX);
    assert_eq!(usable_slabs(&[u64::MAX; 2], 1), u64::MAX);
    assert_eq!(usable_slabs(&[7, 8], 0), 0, "no copies are no volume");
}

/// Terabytes of 4,096 slabs of 256 MiB.
const TERABYTE: u32 = 4096;

#[test]
fn the_larger_of_three_nodes_has_room_that_nobody_can_use() {
    let three = pool(&[&[10 * TERABYTE], &[10 * TERABYTE], &[15 * TERABYTE]]);
    let space = Space::of(&three);
    assert_eq!(space.usable_slabs(3), u64::from(10 * TERABYTE));
    let stranded = space.stranded(3);
    assert_eq!(stranded, vec![(&space.nodes[2], u64::from(5 * TERABYTE))]);
    // With two copies each slab can choose: 15 TB with one half each of the others, 2.5 TB among these.
    assert_eq!(space.usable_slabs(2), u64::from(TERABYTE) * 35 / 2);
    assert_eq!(space.stranded(2), vec![]);
}

#[test]
fn with_a_fourth_node_nothing_is_stranded() {
    let four = pool(&[&[10 * TERABYTE], &[10 * TERABYTE], &[10 * TERABYTE], &[15 * TERABYTE]]);
    let space = Space::of(&four);
    assert_eq!(space.usable_slabs(3), u64::from(15 * TERABYTE));
    assert_eq!(space.stranded(3), vec![]);
}

#[test]
fn the_reserve_is_a_drive_per_node_and_four_at_most() {
    let drives = [2 * TERABYTE; 16];
    let four = Space::of(&pool(&[&drives; 4]));
    assert_eq!(four.total(), u64::from(128 * TERABYTE));
    assert_eq!(four.reserve, u64::from(8 * TERABYTE));
    assert_eq!(four.advised_slabs(3), u64::from(40 * TERABYTE));
    assert_eq!(four.usable_slabs(3), u64::from(128 * TERABYTE) / 3);
    assert_eq!(Space::of(&pool(&[&drives; 16])).reserve, u64::from(8 * TERABYTE));
    assert_eq!(
        Space::of(&pool(&[&drives[..], &[TERABYTE], &[]])).reserve,
        u64::from(4 * TERABYTE),
        "two have drives"
    );
    assert_eq!(Space::of(&pool::<&[u32]>(&[])).reserve, 0);
}

#[test]
fn what_is_offline_is_there_but_not_free() {
    let mut view = pool(&[&[100, 50][..], &[100], &[100]]);
    view.drives[0].slabs_used = 30;
    view.drives[1].is_online = false;
    view.drives[2].slabs_used = 120;
    view.nodes[2].is_online = false;
    let space = Space::of(&view);
    let rooms: Vec<(u64, u64, u64)> =
        space.nodes.iter().map(|node| (node.total, node.used, node.free)).collect();
    assert_eq!(rooms, [(150, 30, 70), (100, 120, 0), (100, 0, 0)], "a drive can be fuller than full");
    assert_eq!((space.total(), space.used(), space.free()), (350, 150, 70));
    assert_eq!(space.advised_slabs(1), 0);
    assert_eq!(space.advised_slabs(0), 0);
}
