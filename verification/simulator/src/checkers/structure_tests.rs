use spandrel_inspect::{CacheReport, CacheState};
use spandrel_shared::DriveId;

use super::*;
use crate::checkers::testing::{BLOCK, DATA_OFFSET_BYTES, damage, inspection, live_block, map_page};

/// A drive with two blocks of data and a page of a map.
fn drive() -> Inspection {
    let mut drive = inspection(0);
    drive.blocks = vec![live_block(0, 3, 0), live_block(0, 4, 1)];
    drive.structures = vec![map_page(DATA_OFFSET_BYTES + 2 * BLOCK)];
    drive
}

fn on_drive(blocks: u64) -> Used {
    Used { on_drive: blocks, ..Used::default() }
}

/// The same drive, of which one block stands in its area on a cache drive.
fn bound_drive() -> Inspection {
    let mut drive = drive();
    let chunk_bytes = 64 * BLOCK;
    drive.cache = Some(CacheReport {
        cache: DriveId::from_random(5, 5),
        number: 1,
        state: CacheState::Present,
        offset_bytes: 2 * DATA_OFFSET_BYTES,
        size_bytes: chunk_bytes,
        chunk_bytes,
        chunk_offsets_bytes: vec![DATA_OFFSET_BYTES],
    });
    drive.blocks[1].offset_bytes = 2 * DATA_OFFSET_BYTES + 3 * BLOCK;
    drive
}

#[test]
fn blocks_of_an_area_are_counted_for_themselves() {
    let used = Used { on_drive: 2, in_area: 1, dirty: 1 };
    assert_eq!(check_used(&bound_drive(), used), Ok(()));
    for wrong in [Used { on_drive: 3, ..used }, Used { in_area: 2, ..used }, Used { dirty: 0, ..used }] {
        assert!(check_used(&bound_drive(), wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_drive_that_is_whole_passes() {
    assert_eq!(check(&drive()), Ok(()));
}

#[test]
fn blocks_that_are_leaked_or_free_by_mistake_are_found() {
    assert_eq!(check_used(&drive(), on_drive(3)), Ok(()));
    assert_eq!(
        check_used(&drive(), on_drive(4)),
        Err("n1: 4 blocks of the drive count as used, and 3 are named".to_owned())
    );
    assert!(check_used(&drive(), on_drive(2)).is_err(), "a block that is named may be given out");
}

#[test]
fn damage_is_found_unless_a_crash_explains_it() {
    let mut drive = drive();
    drive.damage = vec![damage(true)];
    assert_eq!(check(&drive), Ok(()));
    drive.damage.push(damage(false));
    assert_eq!(check(&drive), Err("n1: data damaged: block 3 is bad".to_owned()));
}

#[test]
fn a_physical_block_with_two_owners_is_found() {
    let mut two_blocks = drive();
    two_blocks.blocks.push(live_block(1, 77, 1));
    let found = check(&two_blocks).expect_err("two blocks in one place");
    assert!(found.contains("two owners"), "{found}");
    let mut page_and_block = drive();
    page_and_block.blocks.push(live_block(0, 5, 2));
    assert!(check(&page_and_block).is_err(), "a map page and a block in one place");
    let mut two_pages = drive();
    two_pages.structures.push(map_page(DATA_OFFSET_BYTES + 2 * BLOCK));
    assert!(check(&two_pages).is_err(), "two map pages in one place");
}

#[test]
fn the_journal_and_superblocks_own_no_data_blocks() {
    let mut drive = drive();
    // Journal groups follow each other within one block.
    let group = |offset_bytes| Structure { kind: DamageKind::JournalGroup, ..map_page(offset_bytes) };
    drive.structures.extend([group(BLOCK), group(BLOCK + 512)]);
    let at_end = DATA_OFFSET_BYTES + 100 * BLOCK;
    drive.structures.push(Structure { kind: DamageKind::Superblock, ..map_page(at_end) });
    assert_eq!(check(&drive), Ok(()));
    assert_eq!(check_used(&drive, on_drive(3)), Ok(()));
}
