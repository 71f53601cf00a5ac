//! How the pool is: all drives together.

use crate::status::{HealthStatus, OperationalStatus, Status};

/// What is known of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFacts {
    /// The drives of the pool.
    pub drives: usize,
    /// How many of them work and can be reached.
    pub drives_usable: usize,
}

/// The status of the pool.
///
/// When most drives are missing, too little is left to judge the rest by; volumes whose copies are
/// on the others go on all the same.
pub fn status(facts: &PoolFacts) -> Status {
    if facts.drives_usable >= facts.drives {
        return Status::new(HealthStatus::Healthy, OperationalStatus::Ok);
    }
    if 2 * facts.drives_usable > facts.drives {
        return Status::new(HealthStatus::Warning, OperationalStatus::Degraded);
    }
    Status::new(HealthStatus::Unhealthy, OperationalStatus::Incomplete)
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
