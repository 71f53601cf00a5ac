use super::*;

fn volume(number: u64) -> VolumeId {
    VolumeId::from_random(1, number)
}

fn drive(number: u64) -> DriveId {
    DriveId::from_random(2, number)
}

fn copy(number: u64) -> CopyId {
    CopyId::from_random(3, number)
}

fn address(of_volume: u64, slab: u32, number: u64) -> CopyAddress {
    CopyAddress { volume: volume(of_volume), slab: SlabIndex(slab), copy: copy(number) }
}

/// Two slabs of a volume on two drives, and one of another volume.
fn copies() -> Copies<u64> {
    let mut copies = Copies::default();
    for (of_volume, slab, on_drive, number) in [(1, 0, 1, 10), (1, 0, 2, 11), (1, 1, 1, 12), (2, 0, 1, 13)] {
        copies.insert((volume(of_volume), SlabIndex(slab), drive(on_drive)), copy(number), number);
    }
    copies
}

#[test]
fn a_copy_is_found_by_its_whole_address() {
    let copies = copies();
    assert_eq!(copies.find(address(1, 0, 11)), Some((drive(2), &11)));
    assert_eq!(copies.find(address(1, 1, 11)), None, "it is of another slab");
    assert_eq!(copies.find(address(2, 0, 11)), None, "it is of another volume");
    assert_eq!(copies.find(address(1, 0, 14)), None);
}

#[test]
fn copies_of_two_slabs_may_have_the_same_identity() {
    let mut copies = copies();
    copies.insert((volume(1), SlabIndex(2), drive(2)), copy(11), 31);
    assert_eq!(copies.find(address(1, 0, 11)), Some((drive(2), &11)));
    assert_eq!(copies.find(address(1, 2, 11)), Some((drive(2), &31)));
    copies.remove(&(volume(1), SlabIndex(2), drive(2)));
    assert_eq!(copies.find(address(1, 0, 11)), Some((drive(2), &11)));
}

#[test]
fn the_copies_of_a_volume_are_in_the_order_of_its_slabs() {
    let of_volume: Vec<_> =
        copies().of_volume(volume(1)).map(|(slab, id, copy)| (slab.0, id, *copy)).collect();
    assert_eq!(of_volume.len(), 3);
    assert!(of_volume.is_sorted_by_key(|(slab, ..)| *slab));
    assert!(of_volume.iter().all(|(_, id, number)| *id == copy(*number)));
}

#[test]
fn a_copy_takes_the_place_of_the_one_that_was_there() {
    let mut copies = copies();
    let place = (volume(1), SlabIndex(0), drive(2));
    copies.insert(place, copy(20), 20);
    assert_eq!(copies.find(address(1, 0, 11)), None);
    assert_eq!(copies.at(&place), Some(copy(20)));
    assert_eq!(copies.remove(&place), Some((copy(20), 20)));
    assert_eq!(copies.find(address(1, 0, 20)), None);
    assert_eq!(copies.remove(&place), None);
}

#[test]
fn a_copy_that_is_put_elsewhere_leaves_its_place() {
    let mut copies = copies();
    let (former, place) = ((volume(1), SlabIndex(0), drive(2)), (volume(1), SlabIndex(0), drive(3)));
    copies.insert(place, copy(11), 21);
    assert_eq!(copies.at(&former), None);
    assert_eq!(copies.find(address(1, 0, 11)), Some((drive(3), &21)));
    assert_eq!(copies.places().count(), 4);
}

#[test]
fn a_drive_takes_its_copies_along() {
    let mut copies = copies();
    copies.remove_drive(drive(1));
    assert_eq!(copies.places().count(), 1);
    assert_eq!(copies.find(address(1, 0, 10)), None);
    assert_eq!(copies.find(address(1, 0, 11)), Some((drive(2), &11)));
}
