//! How a volume is.
//!
//! | health | operational | meaning |
//! |---|---|---|
//! | Healthy | OK | every copy is whole and can be reached |
//! | Healthy | Suboptimal | its copies lie on drives that are filled unevenly, and some are to move |
//! | Warning | Incomplete | copies cannot be reached, or used yet, but nothing was written since: they are still current |
//! | Warning | Degraded | fewer copies than there should be hold all writes |
//! | Warning | In Service | copies are being brought up to date |
//! | Unknown | Detached - Incomplete | a slab has whole copies, but none of them can be reached: I/O waits |
//! | Unhealthy | No Redundancy | a slab has no whole copy left: data is lost |
//! | Warning | Starting | no node serves the volume at the moment, though it could be served: I/O waits |

use crate::status::{HealthStatus, OperationalStatus, Status};

/// One copy of one slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFacts {
    /// Whether it holds every answered write: it is not marked stale, and not being built. One that is being built stands
    /// beside the one whose place it is to take, and is no reason to call the volume degraded.
    pub is_in_sync: bool,
    /// Whether its drive works, the drive's node can be reached, and the volume's owner does not wait for that node.
    pub is_reachable: bool,
    /// Whether its drive was given up: what it held counts as lost.
    pub is_lost: bool,
    /// Whether it is being brought up to date.
    pub is_repairing: bool,
}

/// What is known of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFacts {
    /// The copies of each slab. Slabs whose copies are alike may be given once.
    pub slabs: Vec<Vec<CopyFacts>>,
    /// How many copies each slab should have.
    pub copies: u8,
    /// Whether a node serves it now.
    pub is_served: bool,
    /// Whether drives are filled unevenly, and copies of it can be moved to mend that.
    pub is_uneven: bool,
}

/// The status of a volume.
pub fn status(facts: &VolumeFacts) -> Status {
    let mut findings = Vec::new();
    for slab in &facts.slabs {
        findings.extend(slab_findings(slab, facts.copies));
    }
    let is_served_or_cannot_be =
        facts.is_served || findings.iter().any(|(health, _)| *health != HealthStatus::Warning);
    if !is_served_or_cannot_be {
        findings.push((HealthStatus::Warning, OperationalStatus::Starting));
    }
    let at_best = if facts.is_uneven { OperationalStatus::Suboptimal } else { OperationalStatus::Ok };
    Status::worst_of(findings, at_best)
}

fn slab_findings(slab: &[CopyFacts], copies: u8) -> Vec<(HealthStatus, OperationalStatus)> {
    let mut findings = Vec::new();
    let is_whole = |copy: &&CopyFacts| copy.is_in_sync && !copy.is_lost;
    if !slab.iter().any(|copy| is_whole(&copy)) {
        findings.push((HealthStatus::Unhealthy, OperationalStatus::NoRedundancy));
    } else if !slab.iter().filter(is_whole).any(|copy| copy.is_reachable) {
        findings.push((HealthStatus::Unknown, OperationalStatus::DetachedIncomplete));
    }
    if slab.iter().filter(is_whole).count() < usize::from(copies) {
        findings.push((HealthStatus::Warning, OperationalStatus::Degraded));
    }
    if slab.iter().any(|copy| is_whole(&copy) && !copy.is_reachable) {
        findings.push((HealthStatus::Warning, OperationalStatus::Incomplete));
    }
    if slab.iter().any(|copy| copy.is_repairing) {
        findings.push((HealthStatus::Warning, OperationalStatus::InService));
    }
    findings
}

#[cfg(test)]
#[path = "volume_tests.rs"]
mod tests;
