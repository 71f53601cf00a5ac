//! How new a state is, as drives remember it.
//!
//! A cluster's state that was restored from a backup knows nothing of what happened since: acting
//! on it could bring back copies that lack writes. So every drive remembers the newest state that
//! its node has seen, and a state that is older than that is refused, until somebody says on
//! purpose that it counts. That raises the state's *generation*, which outweighs every revision.

use std::fmt;

use spandrel_shared::Error;

use crate::store::Revision;

/// Bits of a stamp that hold the revision.
const REVISION_BITS: u32 = 48;

/// A state's generation and revision in one number, for the drives' root: higher is newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateStamp(pub u64);

impl StateStamp {
    /// The stamp of a state.
    pub fn new(generation: u16, revision: Revision) -> Self {
        assert!(
            revision.0 < 1 << REVISION_BITS,
            "revision {revision} does not fit: at a million changes a second that takes nine years"
        );
        Self(u64::from(generation) << REVISION_BITS | revision.0)
    }

    /// The state's generation.
    pub fn generation(self) -> u16 {
        (self.0 >> REVISION_BITS) as u16
    }

    /// The state's revision.
    pub fn revision(self) -> Revision {
        Revision(self.0 & ((1 << REVISION_BITS) - 1))
    }

    /// Refuses this state if a drive has seen a newer one, with `STATE_OLDER_THAN_DRIVES`.
    pub fn check_not_older(self, seen: StateStamp) -> Result<(), Error> {
        if self >= seen {
            return Ok(());
        }
        Err(Error::new(
            "STATE_OLDER_THAN_DRIVES",
            "the cluster's state cannot be used",
            format!(
                "it is at {self}, but this node's drives have seen {seen}: it was restored from an older backup"
            ),
            "put the newest state in its place; if there is none, `spandrel cluster recover` makes this one count",
        ))
    }

    /// The generation under which an older state counts again, although drives have seen `self`.
    /// `None` if there is none left.
    pub fn generation_to_recover(self) -> Option<u16> {
        self.generation().checked_add(1)
    }
}

impl fmt::Display for StateStamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "revision {} of generation {}", self.revision(), self.generation())
    }
}

#[cfg(test)]
#[path = "stamp_tests.rs"]
mod tests;
