//! From every state that has an in-sync copy of each slab within reach, the system comes back to full
//! redundancy by itself.
//!
//! *Full redundancy* means: one node serves the volume, and every copy on a drive that is there is in sync, those that
//! were being built included; and what was begun to make it larger has ended. Which drives are there, the world knows.

use std::collections::BTreeSet;

use spandrel_cluster::VolumeMembership;
use spandrel_node::NodeReport;
use spandrel_shared::DriveId;

/// Whether a volume must come back with nothing but the drives in `present`: every slab has an in-sync
/// copy on one of them.
pub fn must_come_back(volume: &VolumeMembership, present: &BTreeSet<DriveId>) -> bool {
    volume.sets.iter().all(|set| {
        set.members.iter().any(|member| volume.is_in_sync(member) && present.contains(&member.drive))
    })
}

/// The drives that the nodes can use.
pub fn usable_drives(reports: &[NodeReport]) -> BTreeSet<DriveId> {
    let drives = reports.iter().flat_map(|report| &report.drives);
    drives.filter(|drive| drive.failure.is_none()).filter_map(|drive| drive.drive).collect()
}

/// Whether a volume has come back as far as the drives in `present` allow.
///
/// # Errors
///
/// What it lacks.
pub fn check(
    volume: &VolumeMembership,
    reports: &[NodeReport],
    present: &BTreeSet<DriveId>,
) -> Result<(), String> {
    let name = &volume.record.name;
    let owned = reports.iter().flat_map(|report| &report.owned);
    let mut serving = owned.filter(|owned| owned.volume == volume.volume && owned.is_serving);
    let owner = serving.next().ok_or_else(|| format!("volume {name}: nobody serves it"))?;
    if serving.next().is_some() {
        return Err(format!("volume {name}: more than one node says that it serves"));
    }
    for leg in owner.legs.iter().filter(|leg| present.contains(&leg.drive)) {
        if leg.state != "in-sync" {
            let progress =
                leg.resync_pages.map_or(String::new(), |(done, all)| format!(", {done} of {all} pages"));
            return Err(format!(
                "volume {name}: its copies on drive {} are {}{progress}",
                leg.drive, leg.state
            ));
        }
        if volume.marks.contains_key(&leg.drive) {
            return Err(format!("volume {name}: drive {} is still marked in the state", leg.drive));
        }
    }
    match volume.record.grows_to_bytes {
        Some(size_bytes) => Err(format!("volume {name}: its growth to {size_bytes} bytes does not end")),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "redundancy_tests.rs"]
mod tests;
