//! Whether the loop looks for events for a moment before it sleeps.
//!
//! To be woken costs a thread more than the way of a message: tens of microseconds, where the machine under this one has to
//! begin to run a core again. Where one request at a time is served each of its steps waits for that. So a loop whose
//! waits have been short looks for events before it sleeps, and gives its core away between looks, so that whoever else
//! can run there does so first.
//!
//! Where many requests are under way nobody waits for a single step: what comes while the loop sleeps is served together then, and
//! looking would only cost. Such a loop is known by the time that its work takes from one wait to the next.
//!
//! Invariant: a loop that has nothing to do sleeps. It looks only after several short waits in a row, and a long one ends that:
//! also one that was long because others had the core between two looks.

use std::time::Duration;

/// Work that takes longer than this, from one wait to the next, is of many requests.
const LIGHT_WORK_MAX: Duration = Duration::from_micros(60);

/// So many waits in a row must have been short, with little work before each, before the loop looks.
const SHORT_WAITS_MIN: u32 = 3;

/// What the loop's last waits were like.
#[derive(Debug)]
pub(crate) struct Spin {
    /// How long the loop looks; what lasts longer is no short wait. Zero if it never looks.
    limit: Duration,
    short_waits: u32,
}

impl Spin {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, short_waits: 0 }
    }

    /// Whether waits are to be told of.
    pub(crate) fn is_possible(&self) -> bool {
        !self.limit.is_zero()
    }

    /// Whether the next wait is expected to be short.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_possible() && self.short_waits >= SHORT_WAITS_MIN
    }

    /// Whether a look is not the last one, if the wait has lasted for `waited`.
    pub(crate) fn goes_on(&self, waited: Duration) -> bool {
        waited < self.limit
    }

    /// Takes note of a wait that something has ended, and of the work before it.
    pub(crate) fn note(&mut self, worked: Duration, waited: Duration) {
        let is_short = waited < self.limit && worked < LIGHT_WORK_MAX;
        self.short_waits = if is_short { self.short_waits.saturating_add(1) } else { 0 };
    }
}

#[cfg(test)]
#[path = "spin_tests.rs"]
mod tests;
