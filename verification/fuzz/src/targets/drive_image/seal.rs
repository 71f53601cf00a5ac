//! Makes every checksum of a changed drive right again, leaves first: a parent holds its child's.
//!
//! | structure | its checksum stands |
//! |---|---|
//! | leaf | in its slab root: entries of 32 bytes, block and checksum in the first 8 |
//! | slab root | in the root: in entries of 128 bytes behind those of volumes, at 52, behind the block |
//! | root, superblock | in its first 4 bytes |
//! | journal group | in its first 4 bytes; the next group repeats it at 12, and the root that of the one before |
//!
//! What is changed may name other children than before. Then those are sealed.

use spandrel_drive::format::seal;
use spandrel_inspect::{DamageKind, Structure};
use spandrel_platform_simulated::DriveImage;
use spandrel_shared::BLOCK_BYTES;
use spandrel_shared::checksum::crc32c;

const ROOT_HEADER_BYTES: usize = 128;
const ROOT_VOLUME_BYTES: usize = 64;
const ROOT_SLAB_BYTES: usize = 128;
/// Where a slab's entry in the root names its map: the block, then the checksum.
const ROOT_SLAB_MAP: usize = 48;

/// Seals all `structures` of a drive.
pub fn seal_all(image: &mut DriveImage, structures: &[Structure]) {
    let of_kind = |kind| structures.iter().filter(move |structure| structure.kind == kind);
    for page in of_kind(DamageKind::SlabRoot) {
        change(image, page, |image, bytes| {
            bytes.chunks_exact_mut(32).for_each(|entry| seal_child(image, entry))
        });
    }
    let mut groups: Vec<&Structure> = of_kind(DamageKind::JournalGroup).collect();
    groups.sort_by_key(|group| group.sequence);
    let mut former = None;
    for group in groups {
        change(image, group, |_, bytes| {
            if let Some(former) = former {
                put(bytes, 12, former);
            }
            former = Some(seal(bytes));
        });
    }
    for root in of_kind(DamageKind::Root) {
        change(image, root, |image, bytes| {
            let volumes = number_at(bytes, 12) as usize;
            let slabs = ROOT_HEADER_BYTES.saturating_add(volumes.saturating_mul(ROOT_VOLUME_BYTES));
            if let Some(slabs) = bytes.get_mut(slabs..) {
                let slabs = slabs.chunks_exact_mut(ROOT_SLAB_BYTES);
                slabs.for_each(|slab| seal_child(image, &mut slab[ROOT_SLAB_MAP..]));
            }
            seal(bytes);
        });
    }
    for superblock in of_kind(DamageKind::Superblock) {
        change(image, superblock, |_, bytes| {
            seal(bytes);
        });
    }
}

fn change(image: &mut DriveImage, structure: &Structure, change: impl FnOnce(&DriveImage, &mut [u8])) {
    let mut bytes = image.read_vec(structure.offset_bytes, structure.length_bytes as usize);
    change(image, &mut bytes);
    image.write(structure.offset_bytes, &bytes);
}

/// An entry that begins with a block's number and its checksum gets the right one.
fn seal_child(image: &DriveImage, entry: &mut [u8]) {
    let offset = u64::from(number_at(entry, 0)) * BLOCK_BYTES as u64;
    if offset > 0 && offset + BLOCK_BYTES as u64 <= image.size_bytes() {
        let checksum = crc32c(&image.read_vec(offset, BLOCK_BYTES));
        put(entry, 4, checksum);
    }
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes[at..at + 4].try_into().expect("four bytes");
    u32::from_le_bytes(bytes)
}

fn put(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}
