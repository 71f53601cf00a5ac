use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::testing::pool;
use crate::view::NodeRoom;

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

/// Slabs with the most copies first, each on the nodes with the most room left, which never makes it harder for the rest.
fn all_fit_by_trying(room: &[u64], demands: &[Demand]) -> bool {
    let mut room = room.to_vec();
    let mut demands = demands.to_vec();
    demands.sort_by_key(|demand| std::cmp::Reverse(demand.copies));
    for demand in demands {
        for _ in 0..demand.slabs {
            room.sort_unstable_by(|one, two| two.cmp(one));
            let copies = usize::from(demand.copies);
            if room.len() < copies || room[copies - 1] == 0 {
                return false;
            }
            room[..copies].iter_mut().for_each(|room| *room -= 1);
        }
    }
    true
}

proptest! {
    #[test]
    fn all_find_room_exactly_if_they_can_be_placed(
        nodes in prop::collection::vec(prop::collection::vec(0_u32..12, 1..3), 0..6),
        slabs in prop::array::uniform3(0_u64..12),
        leaving in prop::collection::btree_set((1_u8..6, 1_u8..3), 0..4),
    ) {
        let view = pool(&nodes);
        let leaving: BTreeSet<DriveId> = leaving.into_iter()
            .map(|(node, place)| DriveId::from_bytes([node, place, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]))
            .collect();
        let demands: Vec<Demand> = (1..).zip(slabs).map(|(copies, slabs)| Demand { slabs, copies }).collect();
        let room = |node: &NodeRoom| -> u64 {
            let staying = view.drives.iter().filter(|drive| drive.node == node.node && !leaving.contains(&drive.drive));
            staying.map(|drive| u64::from(drive.slabs_total)).sum()
        };
        let rooms: Vec<u64> = view.nodes.iter().map(room).collect();
        let found = check_room_without(&view, &leaving, &demands);
        prop_assert_eq!(found.is_ok(), all_fit_by_trying(&rooms, &demands), "{:?} {:?}", found, rooms);
        if let Err(shortage) = found {
            prop_assert!(shortage.needed > shortage.room);
        }
    }
}

#[test]
fn a_shortage_names_what_lacks_room_and_where_there_is_some() {
    let view = pool(&[[10, 10], [10, 10], [10, 10]]);
    let third_node: BTreeSet<DriveId> = view.drives[4..].iter().map(|drive| drive.drive).collect();
    let demand = |slabs, copies| Demand { slabs, copies };
    assert_eq!(check_room_without(&view, &third_node, &[demand(20, 2)]), Ok(()));
    let nodes = vec![("node-1".to_owned(), 20), ("node-2".to_owned(), 20), ("node-3".to_owned(), 0)];
    let too_few_nodes = check_room_without(&view, &third_node, &[demand(5, 3), demand(3, 1)]).unwrap_err();
    assert_eq!(too_few_nodes, Shortage { needed: 15, slabs: 5, copies: 3, room: 10, nodes: nodes.clone() });
    let too_full = check_room_without(&view, &third_node, &[demand(15, 2), demand(11, 1)]).unwrap_err();
    assert_eq!(too_full, Shortage { needed: 41, slabs: 26, copies: 1, room: 40, nodes });
}

#[test]
fn what_is_on_a_drive_that_is_not_online_stays_there() {
    let mut view = pool(&[[10], [10]]);
    (view.drives[1].is_online, view.drives[1].slabs_used) = (false, 4);
    let fits = |slabs| check_room_without(&view, &BTreeSet::new(), &[Demand { slabs, copies: 2 }]).is_ok();
    assert!(fits(4) && !fits(5));
}
