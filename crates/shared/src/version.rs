//! What orders the writes and the changes of a volume.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a volume's ownership. Every change of owner raises it; the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u32);

impl Epoch {
    /// Before the first owner.
    pub const ZERO: Epoch = Epoch(0);

    /// The next ownership.
    pub fn next(self) -> Epoch {
        Epoch(self.0.checked_add(1).expect("four billion changes of owner do not happen"))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// Names one write of a volume. Grows with every write of the volume and is never used twice:
/// each owner counts from one within its own epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// The ownership under which the write was ordered.
    pub epoch: Epoch,
    /// The write's number in that ownership.
    pub counter: u64,
}

impl Version {
    /// Before every write.
    pub const ZERO: Version = Version { epoch: Epoch::ZERO, counter: 0 };

    /// The write numbered `counter` of ownership `epoch`.
    pub const fn new(epoch: Epoch, counter: u64) -> Self {
        Self { epoch, counter }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.epoch.0, self.counter)
    }
}

/// The number of a volume's membership. Every change of its copy sets or stale marks raises it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConfigurationVersion(pub u64);
