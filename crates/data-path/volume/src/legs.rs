//! The legs of a volume, with how far each takes part.
//!
//! Invariant: the needed nodes are those of the needed legs. Every answer asks for them, and they change seldom.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use spandrel_shared::ShardId;

use crate::membership::{Leg, LegId, LegState};

/// The legs, by their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Legs {
    legs: BTreeMap<LegId, Leg>,
    needed_shards: Vec<ShardId>,
    changes: u64,
}

impl Legs {
    pub(crate) fn new(legs: BTreeMap<LegId, Leg>) -> Self {
        let mut new = Self::default();
        new.replace(legs);
        new
    }

    /// From now on these are the legs: some have come or gone, or their copies have.
    pub(crate) fn replace(&mut self, legs: BTreeMap<LegId, Leg>) {
        let needed = legs.values().filter(|leg| leg.state.is_needed()).map(|leg| leg.shard);
        self.needed_shards = needed.collect::<BTreeSet<ShardId>>().into_iter().collect();
        self.legs = legs;
        self.changes += 1;
    }

    /// From now on a leg takes part so far. Nothing if there is no such leg.
    pub(crate) fn set_state(&mut self, leg: LegId, state: LegState) {
        let mut legs = std::mem::take(&mut self.legs);
        if let Some(leg) = legs.get_mut(&leg) {
            leg.state = state;
        }
        self.replace(legs);
    }

    /// How often anything has changed: as long as this is the same, so is all that was asked of them.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// The nodes that hold legs which every write waits for, in order, each once.
    pub(crate) fn needed_shards(&self) -> &[ShardId] {
        &self.needed_shards
    }

    /// All of them, to be changed.
    pub(crate) fn to_map(&self) -> BTreeMap<LegId, Leg> {
        self.legs.clone()
    }
}

impl Deref for Legs {
    type Target = BTreeMap<LegId, Leg>;

    fn deref(&self) -> &Self::Target {
        &self.legs
    }
}

#[cfg(test)]
#[path = "legs_tests.rs"]
mod tests;
