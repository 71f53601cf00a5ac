//! How new a state is, as drives remember it.
//!
//! A cluster's state that was restored from a backup knows nothing of what happened since: acting
//! on it could bring back copies that lack writes. So every drive remembers the newest state that
//! its node has seen, and a state that is older than that is refused, until somebody says on
//! purpose that it counts. That raises the state's *generation*, which outweighs every revision.
//!
//! A state's revision here is that of its last change for good, not the store's own: that one also rises when entries
//! vanish with their leases, so an older state that somebody has put in the place of the newest one would soon seem to
//! be newer than what drives have seen, with nobody having changed anything.

use std::fmt;

use spandrel_shared::Error;

use crate::store::Revision;

/// Bits of a stamp that hold the revision.
const REVISION_BITS: u32 = 40;

/// The highest generation.
pub const GENERATION_MAX: u32 = (1 << (u64::BITS - REVISION_BITS)) - 1;

/// How many generations lie between one recovery and the next: which of them counts is left to chance, so that two
/// recoveries that know nothing of each other do not take each other's state for their own.
const GENERATIONS_PER_RECOVERY: u32 = 1 << 12;

/// A state's generation and revision in one number, for the drives' root: higher is newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateStamp(pub u64);

impl StateStamp {
    /// The stamp of a state.
    pub fn new(generation: u32, revision: Revision) -> Self {
        assert!(
            generation <= GENERATION_MAX,
            "generation {generation} does not fit: every record's is checked"
        );
        assert!(
            revision.0 < 1 << REVISION_BITS,
            "revision {revision} does not fit: at a thousand changes a second that takes 34 years"
        );
        Self(u64::from(generation) << REVISION_BITS | revision.0)
    }

    /// The state's generation.
    pub fn generation(self) -> u32 {
        (self.0 >> REVISION_BITS) as u32
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
}

/// The generation under which an older state counts again, although others up to `newest` did already: one that
/// `random` chooses among those that nobody else is likely to choose. `None` if there is none left, after some 4,000
/// recoveries.
pub fn generation_to_recover(newest: u32, random: u64) -> Option<u32> {
    let next = newest / GENERATIONS_PER_RECOVERY + 1;
    let chosen = (random % u64::from(GENERATIONS_PER_RECOVERY)) as u32;
    let generation = next.checked_mul(GENERATIONS_PER_RECOVERY)?.checked_add(chosen)?;
    (generation <= GENERATION_MAX).then_some(generation)
}

/// How many recoveries made `later` of `former`; at least one.
pub(crate) fn recoveries_between(former: u32, later: u32) -> u32 {
    (later / GENERATIONS_PER_RECOVERY).saturating_sub(former / GENERATIONS_PER_RECOVERY).max(1)
}

impl fmt::Display for StateStamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "revision {} of generation {}", self.revision(), self.generation())
    }
}

#[cfg(test)]
#[path = "stamp_tests.rs"]
mod tests;
