//! Lets I/Os go one after the other, as evenly as a clock, so that no more are begun in a second than a limit says, but for what
//! was not wanted in the last moments.
//!
//! A limit is a clock that counts units, as many a second as it allows. Each I/O is given the next place in a row of units, and
//! begins when the clock has come there. How long one then takes changes nothing, so clients that always want more get the limit
//! itself, within a small part of a second as over an hour. Places belong to no time: if the limit changes, those who wait
//! come as fast as the new one says. A clock that is far ahead of everybody's places is of no use: but for the last few, units
//! that nobody wanted are lost.

use std::cell::Cell;
use std::time::Duration;

use spandrel_platform::Instant;
use spandrel_shared::IopsLimit;

/// Units of so long ago can still be had: a client that was late by a little does not lose its share.
const LATE_MAX: Duration = Duration::from_millis(20);

/// The places of one volume's clients at a node.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// When the clock was looked at last.
    at: Cell<Instant>,
    /// What it showed then.
    units: Cell<f64>,
    /// The next place.
    next: Cell<f64>,
}

/// Where an I/O stands in the row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place(f64);

impl Pacer {
    /// Gives an I/O of so many bytes its place.
    pub(crate) fn admit(&self, now: Instant, limit: IopsLimit, bytes: u64) -> Place {
        let units = self.advance(now, limit);
        let oldest = units - limit.iops_max as f64 * LATE_MAX.as_secs_f64();
        let place = self.next.get().max(oldest);
        self.next.set(place + limit.cost(bytes) as f64);
        Place(place)
    }

    /// Ends the row, as the limit has ended: whoever is limited next waits behind nobody.
    pub(crate) fn end_row(&self) {
        self.next.set(0.0);
    }

    /// When an I/O may begin, if the limit stays as it is.
    pub(crate) fn moment(&self, now: Instant, limit: IopsLimit, place: Place) -> Instant {
        let left = place.0 - self.advance(now, limit);
        if left <= 0.0 {
            return now;
        }
        // Rounded up: who comes a little early would have to wait once more.
        let nanoseconds = (left * 1e9 / limit.iops_max as f64).ceil();
        Instant::from_nanoseconds(now.nanoseconds().saturating_add(nanoseconds as u64))
    }

    /// What the clock shows, under a limit that holds since it was looked at last.
    fn advance(&self, now: Instant, limit: IopsLimit) -> f64 {
        let passed = now.nanoseconds().saturating_sub(self.at.get().nanoseconds());
        self.at.set(self.at.get().max(now));
        self.units.set(self.units.get() + limit.iops_max as f64 * (passed as f64 / 1e9));
        self.units.get()
    }
}

#[cfg(test)]
#[path = "pacer_tests.rs"]
mod tests;
