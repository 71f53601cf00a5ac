//! How much of a node's work the repair of copies may be, beside that for clients.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How many pieces of 64 KiB are copied at the same time at most while no client asks for anything: 32 MiB under way, as a drive
/// whose flush takes milliseconds is kept busy only by what is flushed together.
pub const PIECES_WHILE_QUIET: usize = 512;

/// A share of the work, in five steps, as Storage Spaces Direct has them: each doubles what is copied at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RepairShare {
    /// Clients before all: one piece at a time.
    VeryLow,
    /// Two pieces at a time.
    Low,
    /// Four.
    #[default]
    Medium,
    /// Eight.
    High,
    /// Repair before all: sixteen.
    VeryHigh,
}

impl RepairShare {
    /// All of them, from the lowest.
    pub const ALL: [Self; 5] = [Self::VeryLow, Self::Low, Self::Medium, Self::High, Self::VeryHigh];

    /// How many pieces of 64 KiB the owners on one node copy at the same time, all their volumes together.
    pub fn pieces_at_once(self) -> usize {
        match self {
            Self::VeryLow => 1,
            Self::Low => 2,
            Self::Medium => 4,
            Self::High => 8,
            Self::VeryHigh => 16,
        }
    }
}

impl fmt::Display for RepairShare {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::VeryLow => "very-low",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::VeryHigh => "very-high",
        })
    }
}

impl FromStr for RepairShare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|share| share.to_string() == text);
        known.ok_or_else(|| {
            let names = Self::ALL.map(|share| share.to_string());
            format!("it is one of {}", names.join(", "))
        })
    }
}

#[cfg(test)]
#[path = "repair_share_tests.rs"]
mod tests;
