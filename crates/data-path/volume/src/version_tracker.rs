//! Gives versions to writes and knows the committed mark.
//!
//! The mark is the version below which every write is complete on every in-sync copy. A write
//! that hangs far behind the others becomes an exception, so that it does not pin the mark.
//!
//! Invariants:
//! - A counter is given once.
//! - The mark never covers a write that is under way, and never goes back.

use std::collections::BTreeMap;

use spandrel_replica::Mark;
use spandrel_shared::geometry::SlabRange;
use spandrel_shared::knob::{self, Knob};
use spandrel_shared::{Epoch, Version};

/// Exceptions that a mark carries at most: it travels with every message.
const EXCEPTIONS_MAX: usize = 8;

/// A write this far behind the newest one becomes an exception.
const EXCEPTION_DISTANCE: u64 = 1024;

/// The versions of one ownership.
pub struct VersionTracker {
    epoch: Epoch,
    next_counter: u64,
    /// By counter: what is written.
    under_way: BTreeMap<u64, SlabRange>,
    /// The mark of the owners before, as long as not all of their writes are settled.
    inherited: Option<Mark>,
}

impl VersionTracker {
    /// No write of `epoch` was made yet; of the earlier ones nothing is known.
    pub fn new(epoch: Epoch) -> Self {
        Self { epoch, next_counter: 1, under_way: BTreeMap::new(), inherited: Some(Mark::default()) }
    }

    /// The copies know of this mark of an earlier owner.
    pub fn inherit(&mut self, mark: Mark) {
        self.inherited = Some(mark);
    }

    /// Every write of earlier owners is complete on every in-sync copy, or will never be.
    pub fn settle(&mut self) {
        self.inherited = None;
    }

    /// The version for a new write of these blocks, which is under way from now on.
    pub fn begin(&mut self, piece: SlabRange) -> Version {
        let counter = self.next_counter;
        self.next_counter += 1;
        self.under_way.insert(counter, piece);
        Version::new(self.epoch, counter)
    }

    /// The write is complete on every in-sync copy, or has changed nothing anywhere.
    pub fn complete(&mut self, version: Version) {
        let removed = self.under_way.remove(&version.counter);
        assert!(removed.is_some(), "write {version} is complete twice");
    }

    /// The newest version that was given.
    pub fn newest(&self) -> Version {
        Version::new(self.epoch, self.next_counter - 1)
    }

    /// Whether a write at or below `version` is under way.
    pub fn is_under_way_up_to(&self, version: Version) -> bool {
        self.under_way.first_key_value().is_some_and(|(first, _)| *first <= version.counter)
    }

    /// What is being written.
    pub fn under_way(&self) -> impl Iterator<Item = SlabRange> + '_ {
        self.under_way.values().copied()
    }

    /// The committed mark.
    pub fn mark(&self) -> Mark {
        if let Some(inherited) = &self.inherited {
            return inherited.clone();
        }
        let distance = knob::value(Knob::ExceptionDistance, EXCEPTION_DISTANCE);
        let far_behind = (self.next_counter - 1).saturating_sub(distance);
        let mut exceptions = Vec::new();
        let mut end = self.next_counter;
        for counter in self.under_way.keys() {
            if *counter > far_behind || exceptions.len() == EXCEPTIONS_MAX {
                end = *counter;
                break;
            }
            exceptions.push(Version::new(self.epoch, *counter));
        }
        Mark { version: Version::new(self.epoch, end - 1), exceptions }
    }
}

#[cfg(test)]
#[path = "version_tracker_tests.rs"]
mod tests;
