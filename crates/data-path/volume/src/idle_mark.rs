//! When the copies of a volume are told its mark, though nobody writes: once it has been at rest for a while.
//!
//! As long as there are writes each of them brings the mark of those before it. A volume is idle whenever no write is under
//! way, which with a client that waits for each answer is after every one: to tell the copies each time would cost as many requests
//! as the writes do. A copy that is told later lists a few more writes if its owner dies meanwhile.

use std::cell::Cell;

/// Whether the copies know the mark. Looked at by the guardian ten times a second.
#[derive(Debug)]
pub(crate) struct IdleMark {
    standing: Cell<Standing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// A write has begun since the last look.
    Written,
    /// None has, and the copies were not told since.
    Resting,
    Told,
}

impl IdleMark {
    /// Nothing was written yet.
    pub(crate) fn new() -> Self {
        Self { standing: Cell::new(Standing::Told) }
    }

    /// A write begins, or for another reason there is a mark that the copies do not know.
    pub(crate) fn renew(&self) {
        self.standing.set(Standing::Written);
    }

    /// Whether the copies are to be told now. `is_complete` says whether the mark covers all that was begun.
    pub(crate) fn look(&self, is_complete: impl FnOnce() -> bool) -> bool {
        match self.standing.get() {
            Standing::Written => self.standing.set(Standing::Resting),
            Standing::Resting if is_complete() => {
                self.standing.set(Standing::Told);
                return true;
            }
            Standing::Resting | Standing::Told => {}
        }
        false
    }
}

#[cfg(test)]
#[path = "idle_mark_tests.rs"]
mod tests;
