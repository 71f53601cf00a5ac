//! Where the journal stands: the place of its next group, and how much room it has.
//!
//! Invariant: what lies between tail and head is not overwritten.

use spandrel_shared::canary::{self, Bug};

use crate::format::journal::GROUP_BYTES_MAX;
use crate::format::root::JournalPosition;
use crate::layout::Layout;

/// Where the journal stands. Positions are counted in sectors since the drive was attached, skipped
/// ones included, so that head minus tail is what is in use.
#[derive(Clone)]
pub(crate) struct JournalState {
    /// The next group's place.
    pub(crate) next: JournalPosition,
    head: u64,
    tail: u64,
    /// The generation of the newest durable root.
    pub(crate) root_generation: u64,
    /// The newest group that is durable with all its data.
    pub(crate) confirmed_sequence: u64,
    /// Whether the last group holds nothing but marks, or none has come since the last root.
    pub(crate) is_closed: bool,
}

impl JournalState {
    pub(crate) fn new(next: JournalPosition, used_sectors: u64, root_generation: u64) -> Self {
        // The root that the attach writes makes all groups before it unneeded.
        let confirmed_sequence = next.sequence - 1;
        Self { next, head: used_sectors, tail: 0, root_generation, confirmed_sequence, is_closed: true }
    }

    fn used_sectors(&self) -> u64 {
        self.head - self.tail
    }

    /// What the journal is given back to, once a root names the place of the next group.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    pub(crate) fn release_to(&mut self, tail: u64) {
        self.tail = tail;
    }

    /// Whether it is time for a checkpoint: three quarters of what ordinary groups may use are in use. Each writes all map pages that
    /// have changed, which under random writes are nearly all: the later, the less they cost for each write. What is left is
    /// far more than comes while they are written; and so much more is read after a crash.
    pub(crate) fn is_filling_up(&self, layout: &Layout, reserve_bytes: u64) -> bool {
        let ordinary_bytes =
            layout.journal_bytes().saturating_sub(2 * GROUP_BYTES_MAX as u64 + reserve_bytes);
        4 * self.used_sectors() * u64::from(layout.sector_bytes) >= 3 * ordinary_bytes
    }

    pub(crate) fn has_room(&self, bytes: usize, layout: &Layout, reserve_bytes: u64) -> bool {
        // A group that does not fit before the ring's end wastes fewer sectors than it takes.
        let sectors = 2 * bytes.div_ceil(layout.sector_bytes as usize) as u64;
        let reserve = reserve_bytes.div_ceil(u64::from(layout.sector_bytes));
        self.used_sectors() + sectors + reserve <= u64::from(layout.journal_sectors())
    }

    /// Chooses the place of a group of `bytes` and moves on behind it.
    pub(crate) fn place(&mut self, bytes: usize, layout: &Layout) -> u32 {
        let sectors = bytes.div_ceil(layout.sector_bytes as usize) as u32;
        let left = layout.journal_sectors() - self.next.sector;
        if sectors > left {
            self.head += u64::from(left);
            self.next.sector = 0;
            self.next.lap += 1;
        }
        let sector = self.next.sector;
        self.head += u64::from(sectors);
        self.next.sector += sectors;
        let misplaced = u32::from(canary::is_planted(Bug::MisplaceGroupBefore));
        self.next.previous_sector = Some(sector + misplaced);
        sector
    }

    /// Takes back that places were chosen since the journal stood as `before`: nothing was written there.
    pub(crate) fn go_back_to(&mut self, before: Self) {
        *self = Self { tail: self.tail, root_generation: self.root_generation, ..before };
    }
}

#[cfg(test)]
#[path = "journal_state_tests.rs"]
mod tests;
