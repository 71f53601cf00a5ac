//! Finds operations that overlap in place and time, which a store must never issue.
//!
//! Reads may overlap reads. Anything else may not, so the writes in flight are disjoint until the
//! first overlap; each look-up is logarithmic for as long.

use std::collections::BTreeMap;

use crate::drive_faults::Extent;

#[derive(Default)]
pub(crate) struct Overlaps {
    /// Start and operation, to the end.
    writes: BTreeMap<(u64, u64), u64>,
    reads: BTreeMap<(u64, u64), u64>,
    /// No read in flight is longer.
    read_bytes_max: u64,
}

impl Overlaps {
    /// Whether a read overlaps a write in flight.
    pub(crate) fn begin_read(&mut self, operation: u64, extent: Extent) -> bool {
        self.read_bytes_max = self.read_bytes_max.max(extent.end - extent.start);
        self.reads.insert((extent.start, operation), extent.end);
        self.touches_write(extent)
    }

    /// Whether a write overlaps a read or write in flight.
    pub(crate) fn begin_write(&mut self, operation: u64, extent: Extent) -> bool {
        let first = extent.start.saturating_sub(self.read_bytes_max);
        let mut reads = self.reads.range((first, 0)..(extent.end, 0));
        let overlap = self.touches_write(extent) || reads.any(|(_, end)| *end > extent.start);
        self.writes.insert((extent.start, operation), extent.end);
        overlap
    }

    pub(crate) fn end(&mut self, operation: u64, start: u64) {
        self.reads.remove(&(start, operation));
        self.writes.remove(&(start, operation));
    }

    fn touches_write(&self, extent: Extent) -> bool {
        let before = self.writes.range(..(extent.end, 0)).next_back();
        before.is_some_and(|(_, end)| *end > extent.start)
    }
}

#[cfg(test)]
#[path = "overlaps_tests.rs"]
mod tests;
