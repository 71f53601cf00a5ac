//! Copies that are in sync and idle are the same, byte by byte.
//!
//! The offline reader says where each block stands on each drive; the bytes there are compared. So the
//! store's own opinion, and the scrub's, have no part in it.

use std::collections::BTreeMap;

use spandrel_cluster::VolumeMembership;
use spandrel_inspect::Inspection;
use spandrel_shared::{DriveId, SlabIndex};

use crate::inspection::Images;

/// A drive's bytes and what the offline reader found in them.
pub struct InspectedDrive {
    /// The bytes.
    pub images: Images,
    /// What was found.
    pub inspection: Inspection,
}

/// Compares all in-sync copies of a volume that are on `drives`.
///
/// # Errors
///
/// A copy that its drive does not have, or a block that is not the same on two copies.
pub fn check(volume: &VolumeMembership, drives: &BTreeMap<DriveId, InspectedDrive>) -> Result<(), String> {
    for (set, number) in volume.sets.iter().zip(0..) {
        let slab = SlabIndex(number);
        let mut first: Option<(DriveId, BTreeMap<u32, Vec<u8>>)> = None;
        for member in set.members.iter().filter(|member| volume.is_in_sync(member)) {
            let Some(inspected) = drives.get(&member.drive) else { continue };
            let content = content(volume, slab, member.drive, inspected)?;
            match &first {
                None => first = Some((member.drive, content)),
                Some((other, expected)) => {
                    if let Some(block) = first_difference(expected, &content) {
                        return Err(format!(
                            "volume {}, slab {slab}, block {block}: drives {other} and {} differ",
                            volume.record.name, member.drive
                        ));
                    }
                }
            }
        }
    }
    Ok(())
}

/// The blocks of a copy that hold anything but zeros.
fn content(
    volume: &VolumeMembership,
    slab: SlabIndex,
    drive: DriveId,
    inspected: &InspectedDrive,
) -> Result<BTreeMap<u32, Vec<u8>>, String> {
    if inspected.inspection.copy_of(volume.volume, slab).is_none() {
        let name = &volume.record.name;
        return Err(format!("volume {name}, slab {slab}: in sync, but drive {drive} has no such copy"));
    }
    let own = |block: &&spandrel_inspect::LiveBlock| block.volume == volume.volume && block.slab == slab;
    let blocks = inspected.inspection.blocks.iter().filter(own);
    let read = |block: &spandrel_inspect::LiveBlock| {
        (block.block, inspected.images.block(&inspected.inspection, block.offset_bytes))
    };
    Ok(blocks.map(read).filter(|(_, bytes)| bytes.iter().any(|byte| *byte != 0)).collect())
}

fn first_difference(one: &BTreeMap<u32, Vec<u8>>, other: &BTreeMap<u32, Vec<u8>>) -> Option<u32> {
    let mut blocks: Vec<&u32> = one.keys().chain(other.keys()).collect();
    blocks.sort_unstable();
    blocks.into_iter().find(|block| one.get(block) != other.get(block)).copied()
}

#[cfg(test)]
#[path = "same_copies_tests.rs"]
mod tests;
