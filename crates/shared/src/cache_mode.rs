//! What a cache drive is used for, in front of capacity drives of one class.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A mode of the cache, as Storage Spaces Direct has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheMode {
    /// For what is read again, and for writes.
    ReadWrite,
    /// For writes. What was written is read from the cache drive until it has been moved.
    #[default]
    WriteOnly,
    /// For what is read again.
    ReadOnly,
    /// For the journal alone.
    Off,
}

impl CacheMode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ReadWrite, Self::WriteOnly, Self::ReadOnly, Self::Off];

    /// Whether what is written goes to the cache drive first.
    pub fn caches_writes(self) -> bool {
        matches!(self, Self::ReadWrite | Self::WriteOnly)
    }

    /// Whether copies of what is read are kept.
    pub fn caches_reads(self) -> bool {
        matches!(self, Self::ReadWrite | Self::ReadOnly)
    }
}

impl fmt::Display for CacheMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::ReadWrite => "read-write",
            Self::WriteOnly => "write-only",
            Self::ReadOnly => "read-only",
            Self::Off => "off",
        })
    }
}

impl FromStr for CacheMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|mode| mode.to_string() == text);
        known.ok_or_else(|| format!("it is one of {}", Self::ALL.map(|mode| mode.to_string()).join(", ")))
    }
}

#[cfg(test)]
#[path = "cache_mode_tests.rs"]
mod tests;
