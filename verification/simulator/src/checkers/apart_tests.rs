use super::*;
use crate::checkers::testing::{drive_id, volume};
use crate::nodes::node_id;

/// A pool with a drive on each of some nodes, each of which stands as a word says: a site, a rack, a chassis, or a point
/// for none.
fn pool(places: &[&str]) -> BTreeMap<DriveId, PoolDrive> {
    let label = |text: &str, index: usize| {
        let label = text.chars().nth(index).filter(|label| *label != '.');
        label.map(|label| label.to_string())
    };
    let drive = |(node, text): (usize, &&str)| {
        let place = Place { site: label(text, 0), rack: label(text, 1), chassis: label(text, 2) };
        (drive_id(node), PoolDrive { node: node_id(node), place, slabs_max: 2, is_usable: true })
    };
    places.iter().enumerate().map(drive).collect()
}

fn two_copies(slabs: &[&[usize]]) -> Vec<VolumeMembership> {
    vec![volume(slabs)]
}

#[test]
fn copies_that_could_be_in_different_racks_are_too_close() {
    let drives = pool(&[".a.", ".a.", ".b."]);
    assert_eq!(check(&two_copies(&[&[0, 2]]), &drives), Ok(()));
    let refused = check(&two_copies(&[&[0, 2], &[0, 1]]), &drives).unwrap_err();
    assert!(refused.contains("slab 1"), "{refused}");
}

#[test]
fn a_kind_counts_only_if_all_nodes_have_it_and_there_are_enough() {
    assert_eq!(check(&two_copies(&[&[0, 1]]), &pool(&[".a.", ".a.", "..."])), Ok(()), "nobody knows of one");
    assert_eq!(check(&two_copies(&[&[0, 1]]), &pool(&[".a.", ".a.", ".a."])), Ok(()), "there is one rack");
    let mut three = two_copies(&[&[0, 1, 2]]);
    three[0].record.copies = 3;
    assert_eq!(check(&three, &pool(&[".a.", ".a.", ".a.", ".b."])), Ok(()), "two racks for three copies");
}

#[test]
fn apartness_gives_way_to_room() {
    let mut drives = pool(&[".a.", ".a.", ".b."]);
    drives.get_mut(&drive_id(2)).unwrap().slabs_max = 1;
    assert_eq!(check(&two_copies(&[&[0, 2], &[0, 1]]), &drives), Ok(()));
    drives.get_mut(&drive_id(2)).unwrap().slabs_max = 2;
    assert!(check(&two_copies(&[&[0, 2], &[0, 1]]), &drives).is_err());
    drives.get_mut(&drive_id(2)).unwrap().is_usable = false;
    assert_eq!(check(&two_copies(&[&[0, 1]]), &drives), Ok(()));
}

#[test]
fn the_widest_kind_comes_first_and_racks_belong_to_sites() {
    let drives = pool(&["1a.", "1b.", "2a."]);
    assert!(check(&two_copies(&[&[0, 1]]), &drives).is_err(), "two racks at one site");
    assert_eq!(check(&two_copies(&[&[0, 2]]), &drives), Ok(()));
    let drives = pool(&["1a.", "1a.", "2a."]);
    assert_eq!(check(&two_copies(&[&[1, 2]]), &drives), Ok(()), "racks of one name at two sites are two");
}

#[test]
fn chassis_count_where_racks_do_not() {
    let drives = pool(&["..1", "..1", "..2"]);
    assert!(check(&two_copies(&[&[0, 1]]), &drives).is_err());
    assert_eq!(check(&two_copies(&[&[1, 2]]), &drives), Ok(()));
}
