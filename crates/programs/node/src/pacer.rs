//! Lets I/Os go one after the other, as evenly as a clock, so that no more are begun in a second than a limit says.
//!
//! Each I/O is given the next free moment, and moments lie apart by what a limit allows. How long one then takes changes nothing,
//! so clients that always want more get the limit itself, within a small part of a second as over an hour. Moments that nobody
//! wanted are lost, but for the last few: a client that was late by a little does not lose its share.

use std::cell::Cell;
use std::time::Duration;

use spandrel_platform::Instant;
use spandrel_shared::IopsLimit;

/// Moments of so long ago can still be had.
const LATE_MAX: Duration = Duration::from_millis(20);

/// The moments of one volume's clients at a node.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// When the next one is.
    next: Cell<Instant>,
}

impl Pacer {
    /// Gives an I/O of so many bytes, wanted `now`, its moment: when it may begin.
    pub(crate) fn admit(&self, now: Instant, limit: IopsLimit, bytes: u64) -> Instant {
        let oldest = now.nanoseconds().saturating_sub(LATE_MAX.as_nanos() as u64);
        let moment = self.next.get().nanoseconds().max(oldest);
        let gap = 1_000_000_000.0 * limit.cost(bytes) as f64 / limit.iops_max as f64;
        // Rounded, a gap is right to a nanosecond: one in a million at a million I/Os a second, if each were alone in it.
        self.next.set(Instant::from_nanoseconds(moment.saturating_add(gap.round() as u64)));
        Instant::from_nanoseconds(moment).max(now)
    }
}

#[cfg(test)]
#[path = "pacer_tests.rs"]
mod tests;
