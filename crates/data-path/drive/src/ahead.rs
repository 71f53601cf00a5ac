//! Writes past the cache: their data are durable before their records are queued.
//!
//! In a store that is bound to a cache drive, a group waits for that drive alone: what goes to the capacity drive beside it
//! would make all others of the group wait for a slow one. So such data are written and flushed first.
//!
//! Invariants:
//! - A change of a block is queued behind every earlier one of the same block: whoever changes what is being written ahead
//!   waits. Callers see to that as long as they wait for their own changes, and not when they stop waiting.
//! - Blocks that are being written are not free, also if nobody waits any more.

use std::cell::RefCell;

use spandrel_platform::sync::Signal;

/// The blocks of a slab that are being written ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AheadRange {
    pub(crate) slab_slot: u32,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl AheadRange {
    fn overlaps(&self, other: &Self) -> bool {
        self.slab_slot == other.slab_slot
            && self.first < other.first.saturating_add(other.count)
            && other.first < self.first.saturating_add(self.count)
    }
}

/// What is being written ahead.
#[derive(Default)]
pub(crate) struct AheadWrites {
    ranges: RefCell<Vec<(u64, AheadRange)>>,
    begun: RefCell<u64>,
    ended: Signal,
}

impl AheadWrites {
    pub(crate) fn begin(&self, range: AheadRange) -> u64 {
        let mut begun = self.begun.borrow_mut();
        *begun += 1;
        self.ranges.borrow_mut().push((*begun, range));
        *begun
    }

    pub(crate) fn end(&self, number: u64) {
        self.ranges.borrow_mut().retain(|(known, _)| *known != number);
        self.ended.notify_all();
    }

    /// Completes when nothing of `range` is being written ahead.
    pub(crate) async fn clear_of(&self, range: AheadRange) {
        if !self.ranges.borrow().is_empty() {
            let is_clear = || !self.ranges.borrow().iter().any(|(_, other)| other.overlaps(&range));
            self.ended.wait_until(is_clear).await;
        }
    }

    /// Completes when nothing of a slab is being written ahead.
    pub(crate) async fn clear_of_slab(&self, slab_slot: u32) {
        self.clear_of(AheadRange { slab_slot, first: 0, count: u32::MAX }).await;
    }

    /// Completes when all that is being written ahead at this moment has been queued.
    pub(crate) async fn settle(&self) {
        let last = *self.begun.borrow();
        self.settle_up_to(last).await;
    }

    async fn settle_up_to(&self, last: u64) {
        self.ended.wait_until(|| self.ranges.borrow().iter().all(|(number, _)| *number > last)).await;
    }
}

#[cfg(test)]
#[path = "ahead_tests.rs"]
mod tests;
