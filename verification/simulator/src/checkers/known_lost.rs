//! What a drive knows to have lost is brought back from other copies by itself, without a reader or a scrub.
//!
//! A copy that is in sync and has lost blocks is no copy of these: one failure more, and nobody has them. Only one
//! server's drives are damaged at a time, so what one in-sync copy has lost, any other one has.

use std::collections::BTreeMap;

use spandrel_cluster::VolumeMembership;
use spandrel_inspect::Inspection;
use spandrel_shared::{DriveId, SlabIndex};

/// Whether in-sync copies on `drives` have lost blocks, where a slab has another in-sync copy.
///
/// # Errors
///
/// Which copy still lacks how many.
pub fn check(volume: &VolumeMembership, drives: &BTreeMap<DriveId, Inspection>) -> Result<(), String> {
    for (set, slab) in volume.sets.iter().zip((0..).map(SlabIndex)) {
        let in_sync = set.members.iter().filter(|member| volume.is_in_sync(member));
        let in_sync: Vec<DriveId> = in_sync.map(|member| member.drive).collect();
        if in_sync.len() < 2 {
            continue;
        }
        for drive in in_sync {
            let copy = drives.get(&drive).and_then(|inspection| inspection.copy_of(volume.volume, slab));
            if let Some(copy) = copy.filter(|copy| copy.lost_blocks > 0) {
                let (name, lost) = (&volume.record.name, copy.lost_blocks);
                return Err(format!("volume {name}, slab {slab}: drive {drive} has lost {lost} blocks"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "known_lost_tests.rs"]
mod tests;
