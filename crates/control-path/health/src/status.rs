//! The words.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How something is, in one word. Ordered from the best to the worst; what is not known may be
/// anything, so it counts as the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HealthStatus {
    /// All is well.
    Healthy,
    /// It works, with less to spare than it should have.
    Warning,
    /// It does not work, or has lost something.
    Unhealthy,
    /// It cannot be reached, so nobody can say.
    Unknown,
}

impl fmt::Display for HealthStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            HealthStatus::Healthy => "Healthy",
            HealthStatus::Warning => "Warning",
            HealthStatus::Unhealthy => "Unhealthy",
            HealthStatus::Unknown => "Unknown",
        })
    }
}

macro_rules! operational {
    ($($(#[$documentation:meta])* $name:ident = $text:literal,)*) => {
        /// What is the matter. The names are those that Storage Spaces Direct has for pools, virtual
        /// disks, physical disks and cluster nodes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum OperationalStatus {
            $($(#[$documentation])* #[serde(rename = $text)] $name,)*
        }

        impl OperationalStatus {
            /// The word for people.
            pub fn text(self) -> &'static str {
                match self {
                    $(OperationalStatus::$name => $text,)*
                }
            }
        }
    };
}

operational! {
    /// Nothing.
    Ok = "OK",
    /// A volume: copies are missing whose content others do not have any more.
    NoRedundancy = "No Redundancy",
    /// A volume: copies that its slabs cannot be read without are not there.
    DetachedIncomplete = "Detached - Incomplete",
    /// A volume or a pool: copies are stale, or drives are missing or failed.
    Degraded = "Degraded",
    /// A volume: copies are missing, but what they hold is still current. A pool: most drives are
    /// missing.
    Incomplete = "Incomplete",
    /// A volume: its copies are not spread evenly over the drives.
    Suboptimal = "Suboptimal",
    /// It is being repaired, or does its housekeeping.
    InService = "In Service",
    /// A drive: its node cannot be reached.
    LostCommunication = "Lost Communication",
    /// A drive: takes no new copies, and is on its way out.
    RemovingFromPool = "Removing From Pool",
    /// A drive: reads or writes have failed, or blocks were damaged.
    IoError = "IO Error",
    /// A drive: it holds others up.
    AbnormalLatency = "Abnormal Latency",
    /// A drive: it was given up.
    FailedMedia = "Failed Media",
    /// A drive: it carries something else.
    UnrecognizedMetadata = "Unrecognized Metadata",
    /// A drive: it belongs to another cluster or node, or is an old image.
    StaleMetadata = "Stale Metadata",
    /// A drive: it cannot be used, for another reason.
    NotUsable = "Not Usable",
    /// A node: it runs.
    Up = "Up",
    /// A node: it does not run.
    Down = "Down",
    /// A node: it runs and reaches no other.
    Isolated = "Isolated",
    /// A node: it is in maintenance, and still owns volumes.
    Draining = "Draining",
    /// A node: it is in maintenance, and owns no volume.
    Paused = "Paused",
    /// A volume, drive or node: it is about to be ready.
    Starting = "Starting",
}

impl fmt::Display for OperationalStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.text())
    }
}

/// How something is, and what is the matter: one or several things, the worst first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// In one word.
    pub health: HealthStatus,
    /// What is the matter; never empty.
    pub operational: Vec<OperationalStatus>,
}

impl Status {
    /// A status of one reason.
    pub fn new(health: HealthStatus, operational: OperationalStatus) -> Self {
        Self { health, operational: vec![operational] }
    }

    /// The status of what is found: `Healthy` and `ok` if that is nothing.
    pub(crate) fn worst_of(
        findings: impl IntoIterator<Item = (HealthStatus, OperationalStatus)>,
        ok: OperationalStatus,
    ) -> Self {
        let mut findings: Vec<_> = findings.into_iter().collect();
        findings.sort_by_key(|(health, operational)| (std::cmp::Reverse(*health), *operational));
        findings.dedup();
        let Some((health, _)) = findings.first() else { return Self::new(HealthStatus::Healthy, ok) };
        Self { health: *health, operational: findings.iter().map(|(_, operational)| *operational).collect() }
    }

    /// Whether nothing is the matter.
    pub fn is_healthy(&self) -> bool {
        self.health == HealthStatus::Healthy
    }

    /// What is the matter, separated by commas.
    pub fn operational_text(&self) -> String {
        self.operational.iter().map(|status| status.text()).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.health, self.operational_text())
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
