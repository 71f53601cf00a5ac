//! When a load begins, is measured and ends. All threads of the load generator share one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::ClockId;
use spandrel_platform::Instant;

use crate::spec::CellSpec;

/// The time by the clock of the Linux platform, for the threads that have no platform.
pub(crate) fn now() -> Instant {
    let time = rustix::time::clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant::from_nanoseconds(seconds * 1_000_000_000 + nanoseconds)
}

/// The points in time of one load.
#[derive(Debug)]
pub(crate) struct LoadTimes {
    pub(crate) start: Instant,
    pub(crate) measure_from: Instant,
    /// In nanoseconds; `u64::MAX` while nobody knows.
    measure_until: AtomicU64,
    stop_at: AtomicU64,
}

impl LoadTimes {
    /// The times of a cell that begins at `start`.
    pub(crate) fn of_cell(spec: &CellSpec, start: Instant) -> Self {
        let measure_from = start + spec.warmup;
        let measure_until = measure_from + spec.duration;
        let stop_at = measure_until + spec.cooldown;
        Self {
            start,
            measure_from,
            measure_until: AtomicU64::new(measure_until.nanoseconds()),
            stop_at: AtomicU64::new(stop_at.nanoseconds()),
        }
    }

    /// The times of a load that begins at `start`, is measured after `warmup` and goes on until
    /// [`LoadTimes::stop`].
    pub(crate) fn open_ended(start: Instant, warmup: Duration) -> Self {
        Self {
            start,
            measure_from: start + warmup,
            measure_until: AtomicU64::new(u64::MAX),
            stop_at: AtomicU64::new(u64::MAX),
        }
    }

    /// The times of a load that begins at `start`, with what is known of its end.
    pub(crate) fn between(
        start: Instant,
        measure_from: Instant,
        measure_until: Option<Instant>,
        stop_at: Option<Instant>,
    ) -> Self {
        let known = |at: Option<Instant>| AtomicU64::new(at.map_or(u64::MAX, Instant::nanoseconds));
        Self { start, measure_from, measure_until: known(measure_until), stop_at: known(stop_at) }
    }

    pub(crate) fn measure_until(&self) -> Instant {
        Instant::from_nanoseconds(self.measure_until.load(Ordering::Relaxed))
    }

    /// From here on no I/O is begun.
    pub(crate) fn stop_at(&self) -> Instant {
        Instant::from_nanoseconds(self.stop_at.load(Ordering::Relaxed))
    }

    /// Ends measurement and load at `at`, unless they end before.
    pub(crate) fn stop(&self, at: Instant) {
        self.measure_until.fetch_min(at.nanoseconds(), Ordering::Relaxed);
        self.stop_at.fetch_min(at.nanoseconds(), Ordering::Relaxed);
    }

    /// Whether what completes at `at` counts.
    pub(crate) fn is_measured(&self, at: Instant) -> bool {
        self.measure_from <= at && at < self.measure_until()
    }

    /// How much of the time between two points is measured.
    pub(crate) fn measured_between(&self, from: Instant, until: Instant) -> Duration {
        until.min(self.measure_until()).since(from.max(self.measure_from))
    }
}

#[cfg(test)]
#[path = "times_tests.rs"]
mod tests;
