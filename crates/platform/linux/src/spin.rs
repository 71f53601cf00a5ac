//! Whether the loop looks for events for a moment before it sleeps.
//!
//! To be woken costs a thread more than the way of a message: tens of microseconds, where the machine under this one has to
//! begin to run a core again. Where one request at a time is served each of its steps waits for that. So a loop whose
//! waits have been short looks for events before it sleeps, and gives its core away between looks, so that whoever else
//! can run there does so first.
//!
//! Where many requests are under way nobody waits for a single step: what comes while the loop sleeps is served together then, and
//! looking would only cost. (Where loops take turns it gives its core away once before it sleeps: others that wait for the core do
//! their work, and whoever sends to this loop meanwhile need not wake it.) Such a loop is known by how often it runs tasks from one
//! wait to the next. (Not by the time that they take: a quick machine does much in little.)
//!
//! Invariant: a loop that has nothing to do sleeps. It looks only after several short waits in a row, and a long one ends that:
//! also one that was long because others had the core between two looks.

use std::time::Duration;

/// More runs of tasks than this, from one wait to the next, are of many requests. A write takes three on its owner's node and five on a
/// copy's; with four at a time there are up to 16, with 32 a copy's node does some 20 and its owner's 40.
const LIGHT_RUNS_MAX: u64 = 16;

/// So many waits in a row must have been short, with few runs before each, before the loop looks.
const SHORT_WAITS_MIN: u32 = 3;

/// What the loop's last waits were like.
#[derive(Debug)]
pub(crate) struct Spin {
    /// How long the loop looks; what lasts longer is no short wait. Zero if it never looks.
    limit: Duration,
    short_waits: u32,
    /// Whether the last wait was short, however much was done before it.
    was_short: bool,
}

impl Spin {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, short_waits: 0, was_short: false }
    }

    /// Whether waits are to be told of.
    pub(crate) fn is_possible(&self) -> bool {
        !self.limit.is_zero()
    }

    /// Whether the next wait is expected to be short.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_possible() && self.short_waits >= SHORT_WAITS_MIN
    }

    /// Whether the last wait was short: then it is worth while to give the core away once before the next sleep.
    pub(crate) fn was_short(&self) -> bool {
        self.was_short
    }

    /// Whether a look is not the last one, if the wait has lasted for `waited`.
    pub(crate) fn goes_on(&self, waited: Duration) -> bool {
        waited < self.limit
    }

    /// Takes note of a wait that something has ended, and of how often tasks were run before it.
    pub(crate) fn note(&mut self, runs: u64, waited: Duration) {
        self.was_short = waited < self.limit;
        let is_short = self.was_short && runs <= LIGHT_RUNS_MAX;
        self.short_waits = if is_short { self.short_waits.saturating_add(1) } else { 0 };
    }
}

#[cfg(test)]
#[path = "spin_tests.rs"]
mod tests;
