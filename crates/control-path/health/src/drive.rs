//! How a drive is.

use crate::status::{HealthStatus, OperationalStatus, Status};

/// Why a drive is not used, as its node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveTrouble {
    /// It carries something else.
    Foreign,
    /// It belongs to another cluster or node, or its content is an old image.
    OldOrForeignIdentity,
    /// Anything else: it cannot be opened, is damaged, or stopped working.
    Failed,
}

/// What is known of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveFacts {
    /// Whether its node can be reached.
    pub is_node_reachable: bool,
    /// Why its node does not use it, if so.
    pub trouble: Option<DriveTrouble>,
    /// Whether the cluster has given it up.
    pub is_given_up: bool,
    /// Whether the cluster moves its copies away.
    pub is_retired: bool,
    /// Whether it answers much more slowly than others.
    pub is_slow: bool,
    /// Damage that was found on it.
    pub blocks_damaged: u64,
}

/// The status of a drive.
pub fn status(facts: &DriveFacts) -> Status {
    use HealthStatus::{Unhealthy, Warning};
    let mut findings = Vec::new();
    if facts.is_given_up {
        findings.push((Unhealthy, OperationalStatus::FailedMedia));
    }
    if !facts.is_node_reachable {
        findings.push((Warning, OperationalStatus::LostCommunication));
    } else if let Some(trouble) = facts.trouble {
        let operational = match trouble {
            DriveTrouble::Foreign => OperationalStatus::UnrecognizedMetadata,
            DriveTrouble::OldOrForeignIdentity => OperationalStatus::StaleMetadata,
            DriveTrouble::Failed => OperationalStatus::NotUsable,
        };
        findings.push((Unhealthy, operational));
    }
    if facts.is_retired {
        findings.push((Warning, OperationalStatus::RemovingFromPool));
    }
    if facts.is_slow {
        findings.push((Warning, OperationalStatus::AbnormalLatency));
    }
    if facts.blocks_damaged > 0 {
        findings.push((Warning, OperationalStatus::IoError));
    }
    Status::worst_of(findings, OperationalStatus::Ok)
}

#[cfg(test)]
#[path = "drive_tests.rs"]
mod tests;
