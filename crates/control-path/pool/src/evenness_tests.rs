use super::*;
use crate::testing::pool;

/// Three nodes with two drives each, of these sizes, and so many slab copies on each.
fn filled(sizes: [u32; 2], used: [u32; 6]) -> PoolView {
    let mut view = pool(&[sizes; 3]);
    view.drives.iter_mut().zip(used).for_each(|(drive, used)| drive.slabs_used = used);
    view
}

/// Drives that take nothing now do not count: what they hold does not change.
#[test]
fn a_pool_is_as_uneven_as_its_drives_that_take_copies() {
    let mut view = filled([10, 20], [1, 4, 2, 10, 10, 0]);
    assert_eq!(spread_per_mille(&view), 1000);
    view.drives[4].is_online = false;
    assert_eq!(spread_per_mille(&view), 500);
    view.nodes[2].is_in_maintenance = true;
    assert_eq!(spread_per_mille(&view), 400);
    view.nodes[1].is_online = false;
    assert_eq!(spread_per_mille(&view), 100);
    view.drives.clear();
    assert_eq!((spread_per_mille(&view), copies_to_even_out(&view)), (0, 0));
}

#[test]
fn what_is_on_its_way_is_counted_where_it_goes() {
    let mut view = filled([100, 100], [50, 50, 50, 50, 50, 20]);
    assert_eq!((spread_per_mille(&view), copies_to_even_out(&view)), (300, 25));
    assert!(is_settled(&view));
    (view.drives[5].slabs_used, view.drives[0].slabs_leaving) = (40, 20);
    assert_eq!((spread_per_mille(&view), copies_to_even_out(&view)), (200, 20));
    assert!(!is_settled(&view));
    view.drives[0].is_online = false;
    assert!(is_settled(&view), "that is no spreading");
}

/// A pool of small drives is never more even than by a copy or two.
#[test]
fn what_is_even_enough_depends_on_the_smallest_drive() {
    assert_eq!(even_per_mille(&pool(&[[1000, 200], [400, 400]])), 10);
    assert_eq!(even_per_mille(&pool(&[[1000, 50], [400, 400]])), 40);
    assert_eq!(even_per_mille(&pool::<[u32; 0]>(&[])), 10);
}

#[test]
fn nothing_is_left_to_move_when_drives_differ_by_a_copy() {
    assert_eq!(copies_to_even_out(&filled([10, 20], [3, 6, 3, 6, 3, 7])), 0);
    assert_eq!(copies_to_even_out(&filled([20, 20], [5, 5, 5, 5, 5, 3])), 1, "below the average");
    assert_eq!(copies_to_even_out(&filled([20, 20], [5, 5, 5, 5, 5, 7])), 1, "above it");
}

#[test]
fn all_owners_together_move_as_much_as_there_is() {
    for (copies, owners) in [(0, 4), (1, 4), (3, 4), (4, 4), (23, 5), (7, 1)] {
        let parts = (0..owners).map(|random| part_of_one(copies, owners, random));
        assert_eq!(parts.sum::<u64>(), copies, "{copies} among {owners}");
    }
    assert_eq!(part_of_one(3, 0, 9), 3, "it is alone");
}
