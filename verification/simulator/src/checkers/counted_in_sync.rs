//! What its owner takes for stale, the cluster's state calls stale.
//!
//! An owner answers without a copy only when the copy's mark is made; a promotion counts from before it is
//! sent. So a copy that the state calls in sync may be needed by the next owner, and the present one must
//! not leave it out.

use spandrel_cluster::VolumeMembership;
use spandrel_node::NodeReport;
use spandrel_shared::DriveId;

/// Looks at the owner that the cluster's state names, if it serves.
///
/// # Errors
///
/// Copies that it leaves out, and that no mark says to be stale.
pub fn check(volume: &VolumeMembership, reports: &[NodeReport]) -> Result<(), String> {
    let owned = reports.iter().flat_map(|report| &report.owned);
    let present = owned.filter(|owned| {
        owned.volume == volume.volume && owned.epoch == volume.record.epoch && owned.is_serving
    });
    let counts = |drive: DriveId| {
        let mut members = volume.sets.iter().flat_map(|set| &set.members);
        members.any(|member| member.drive == drive && volume.is_in_sync(member))
    };
    let mut left_out = present
        .flat_map(|owned| &owned.legs)
        .filter(|leg| !leg.is_building && matches!(&leg.state[..], "stale" | "joining") && counts(leg.drive));
    match left_out.next() {
        None => Ok(()),
        Some(leg) => Err(format!(
            "volume {}: its owner takes drive {} for {}, and the state for in sync",
            volume.record.name, leg.drive, leg.state
        )),
    }
}

#[cfg(test)]
#[path = "counted_in_sync_tests.rs"]
mod tests;
