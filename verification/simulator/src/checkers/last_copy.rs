//! The last good copy is never dropped: in the cluster's state every slab has an in-sync copy, always.

use spandrel_cluster::VolumeMembership;

/// Looks at a volume as the cluster's state has it.
///
/// # Errors
///
/// A slab of which no copy is in sync.
pub fn check(volume: &VolumeMembership) -> Result<(), String> {
    let without =
        volume.sets.iter().position(|set| !set.members.iter().any(|member| volume.is_in_sync(member)));
    match without {
        None => Ok(()),
        Some(slab) => Err(format!(
            "volume {}: no copy of slab {slab} is in sync any more (marks: {:?})",
            volume.record.name, volume.marks
        )),
    }
}

#[cfg(test)]
#[path = "last_copy_tests.rs"]
mod tests;
