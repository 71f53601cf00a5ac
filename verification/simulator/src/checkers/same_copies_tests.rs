use spandrel_platform_simulated::DriveImage;

use super::*;
use crate::checkers::testing::{
    BLOCK, DATA_OFFSET_BYTES, copy_report, drive_id, inspection, live_block, marked, volume,
};

/// A drive of a server with blocks of the first slab: which ones, and the byte that each is full of.
/// They stand on the drive in an order of its own.
fn drive(node: usize, blocks: &[(u32, u8)]) -> (DriveId, InspectedDrive) {
    let mut image = DriveImage::new(2 * DATA_OFFSET_BYTES);
    let mut inspection = inspection(node);
    inspection.copies.push(copy_report(0));
    for (place, (block, byte)) in blocks.iter().enumerate() {
        let place = (place * (node + 2) + node) as u64;
        image.write(DATA_OFFSET_BYTES + place * BLOCK, &[*byte; BLOCK as usize]);
        inspection.blocks.push(live_block(0, *block, place));
    }
    (drive_id(node), InspectedDrive { images: Images::alone(image), inspection })
}

#[test]
fn equal_copies_pass_wherever_their_blocks_stand() {
    let drives = BTreeMap::from([drive(0, &[(3, 7), (9, 8)]), drive(1, &[(9, 8), (3, 7)])]);
    assert_eq!(check(&volume(&[&[0, 1]]), &drives), Ok(()));
}

#[test]
fn a_hole_is_the_same_as_zeros() {
    let drives = BTreeMap::from([drive(0, &[(3, 7), (4, 0)]), drive(1, &[(3, 7)])]);
    assert_eq!(check(&volume(&[&[0, 1]]), &drives), Ok(()));
}

#[test]
fn other_bytes_are_found() {
    let drives = BTreeMap::from([drive(0, &[(3, 7), (9, 8)]), drive(1, &[(3, 7), (9, 9)])]);
    let found = check(&volume(&[&[0, 1]]), &drives).expect_err("block 9 differs");
    assert!(found.contains("block 9:"), "{found}");
}

#[test]
fn a_single_bit_is_found() {
    let mut drives = BTreeMap::from([drive(0, &[(3, 7)]), drive(1, &[(3, 7)])]);
    let (place, other) = (DATA_OFFSET_BYTES + BLOCK, drives.get_mut(&drive_id(1)).unwrap());
    other.images.drive.flip_bit(place + 4095, 7);
    assert!(check(&volume(&[&[0, 1]]), &drives).is_err());
}

#[test]
fn a_block_that_one_copy_lacks_is_found() {
    let drives = BTreeMap::from([drive(0, &[(3, 7)]), drive(1, &[(3, 7)]), drive(2, &[])]);
    let found = check(&volume(&[&[0, 1, 2]]), &drives).expect_err("the third lacks it");
    assert!(found.contains("block 3:"), "{found}");
}

#[test]
fn a_copy_that_its_drive_does_not_have_is_found() {
    let mut drives = BTreeMap::from([drive(0, &[]), drive(1, &[])]);
    drives.get_mut(&drive_id(1)).unwrap().inspection.copies.clear();
    let found = check(&volume(&[&[0, 1]]), &drives).expect_err("there is no such copy");
    assert!(found.contains("has no such copy"), "{found}");
}

#[test]
fn stale_copies_and_absent_drives_are_not_compared() {
    let drives = BTreeMap::from([drive(0, &[(3, 7)]), drive(1, &[(3, 9)])]);
    assert_eq!(check(&marked(volume(&[&[0, 1, 2]]), 1), &drives), Ok(()));
}
