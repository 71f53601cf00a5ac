//! Writes past the cache: their data are durable before their records are queued.
//!
//! In a store that is bound to a cache drive, a group waits for that drive alone: what goes to the capacity drive beside it
//! would make all others of the group wait for a slow one. So such data are written and flushed first.
//!
//! Changes of the same blocks come in turns, in the order in which they were asked for. Whoever stops waiting for a change that
//! is being written ahead still has its turn, until its records are queued.
//!
//! Invariants:
//! - A change of a block is queued behind every earlier one of the same block, also if nobody waits for that one any more.
//! - What settles waits for all that was asked for before, whether it has begun or waits for its turn.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use spandrel_platform::sync::Signal;

/// Blocks of a slab that are to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AheadRange {
    pub(crate) slab_slot: u32,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl AheadRange {
    /// All blocks of a slab.
    pub(crate) fn whole(slab_slot: u32) -> Self {
        Self { slab_slot, first: 0, count: u32::MAX }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.slab_slot == other.slab_slot
            && self.first < other.first.saturating_add(other.count)
            && other.first < self.first.saturating_add(self.count)
    }
}

/// Who changes which blocks. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub(crate) struct AheadWrites {
    shared: Rc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// All that have a turn or wait for one, by the order in which they came.
    turns: RefCell<Vec<(u64, AheadRange)>>,
    last: Cell<u64>,
    ended: Signal,
}

/// A turn to change blocks, for as long as it lives.
pub(crate) struct AheadTurn {
    shared: Rc<Shared>,
    number: u64,
}

impl AheadWrites {
    /// Completes when nobody who came before changes any of these blocks.
    pub(crate) async fn turn(&self, range: AheadRange) -> AheadTurn {
        let Shared { turns, last, ended } = &*self.shared;
        let number = last.get() + 1;
        last.set(number);
        turns.borrow_mut().push((number, range));
        // From here on it is given back when this is dropped.
        let turn = AheadTurn { shared: Rc::clone(&self.shared), number };
        let is_first = || {
            let turns = turns.borrow();
            turns.iter().all(|(other, other_range)| *other >= number || !other_range.overlaps(&range))
        };
        ended.wait_until(is_first).await;
        turn
    }

    /// Completes when all that came before has been queued.
    pub(crate) async fn settle(&self) {
        let Shared { turns, last, ended } = &*self.shared;
        let last = last.get();
        ended.wait_until(|| turns.borrow().iter().all(|(number, _)| *number > last)).await;
    }
}

impl Drop for AheadTurn {
    fn drop(&mut self) {
        self.shared.turns.borrow_mut().retain(|(number, _)| *number != self.number);
        self.shared.ended.notify_all();
    }
}

#[cfg(test)]
#[path = "ahead_tests.rs"]
mod tests;
