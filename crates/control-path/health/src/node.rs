//! How a node is.

use crate::status::{HealthStatus, OperationalStatus, Status};

/// What is known of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// Whether its process runs and answers.
    pub is_running: bool,
    /// How many other nodes answer it.
    pub nodes_reached: usize,
    /// How many other nodes run.
    pub nodes_running: usize,
    /// Whether it is in maintenance.
    pub is_in_maintenance: bool,
    /// Whether it owns volumes.
    pub owns_volumes: bool,
}

/// The status of a node.
pub fn status(facts: &NodeFacts) -> Status {
    let mut findings = Vec::new();
    if !facts.is_running {
        findings.push((HealthStatus::Unhealthy, OperationalStatus::Down));
    } else if facts.nodes_running > 0 && facts.nodes_reached == 0 {
        findings.push((HealthStatus::Warning, OperationalStatus::Isolated));
    }
    if facts.is_in_maintenance {
        let maintenance =
            if facts.owns_volumes { OperationalStatus::Draining } else { OperationalStatus::Paused };
        findings.push((HealthStatus::Warning, maintenance));
    }
    Status::worst_of(findings, OperationalStatus::Up)
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
