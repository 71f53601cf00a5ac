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
}

/// The status of a node.
pub fn status(facts: &NodeFacts) -> Status {
    if !facts.is_running {
        return Status::new(HealthStatus::Unhealthy, OperationalStatus::Down);
    }
    if facts.nodes_running > 0 && facts.nodes_reached == 0 {
        return Status::new(HealthStatus::Warning, OperationalStatus::Isolated);
    }
    Status::new(HealthStatus::Healthy, OperationalStatus::Up)
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
