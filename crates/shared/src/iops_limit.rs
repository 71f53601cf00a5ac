//! How many I/Os a second a volume's clients may do at most.

use serde::{Deserialize, Serialize};

/// The most that clients of a volume may do at each node. An I/O counts once for each unit of its size that it begins, so that
/// large ones do not get more than their share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IopsLimit {
    /// I/Os a second, of one unit each.
    pub iops_max: u64,
    /// How many bytes an I/O of one unit has at most.
    pub normalized_bytes: u32,
}

impl IopsLimit {
    /// The unit where nobody says another: 64 KiB count as eight.
    pub const NORMALIZED_BYTES_DEFAULT: u32 = 8 << 10;

    /// The smallest unit.
    pub const NORMALIZED_BYTES_MIN: u32 = 1 << 10;

    /// More than that no volume does.
    pub const IOPS_MAX: u64 = 100_000_000;

    /// Whether it is one that can be held.
    pub fn is_valid(&self) -> bool {
        (1..=Self::IOPS_MAX).contains(&self.iops_max) && self.normalized_bytes >= Self::NORMALIZED_BYTES_MIN
    }

    /// How often an I/O of so many bytes counts.
    pub fn cost(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.normalized_bytes.max(1).into()).max(1)
    }
}

#[cfg(test)]
#[path = "iops_limit_tests.rs"]
mod tests;
