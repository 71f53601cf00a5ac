//! What is counted: latencies by thread of the load generator, progress and failures by client.
//!
//! Histograms are large (190 KiB each), so all clients of a load thread share one per direction. What
//! is told of a single client are exact sums and extremes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use spandrel_platform::Instant;

use crate::times::LoadTimes;

/// Failures that are told one by one for each client. The rest are counted.
const FAILURES_TOLD_PER_CLIENT: usize = 8;

/// The longest latency that is told apart from longer ones: an hour, in microseconds.
const LATENCY_US_MAX: u64 = 3_600_000_000;

/// The latencies of one direction.
#[derive(Clone)]
pub(crate) struct Latencies {
    /// In microseconds, to three digits.
    histogram: Histogram<u64>,
    sum_ns: u128,
    max_ns: u64,
    bytes: u64,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3);
        let histogram = histogram.expect("an hour of microseconds to three digits is a valid range");
        Self { histogram, sum_ns: 0, max_ns: 0, bytes: 0 }
    }

    pub(crate) fn record(&mut self, latency: Duration, bytes: u32) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record((nanoseconds + 500) / 1000);
        self.sum_ns += u128::from(nanoseconds);
        self.max_ns = self.max_ns.max(nanoseconds);
        self.bytes += u64::from(bytes);
    }

    pub(crate) fn add(&mut self, other: &Latencies) {
        self.histogram.add(&other.histogram).expect("all histograms have the same range");
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.bytes += other.bytes;
    }

    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn mean_us(&self) -> f64 {
        self.sum_ns as f64 / 1000.0 / self.count().max(1) as f64
    }

    pub(crate) fn max_us(&self) -> f64 {
        self.max_ns as f64 / 1000.0
    }

    /// The latency that `quantile` of all I/Os do not exceed, never above the longest.
    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        (self.histogram.value_at_quantile(quantile) as f64).min(self.max_us())
    }
}

/// What all clients of a load thread count together.
pub(crate) struct ThreadTally {
    pub(crate) read: Latencies,
    pub(crate) write: Latencies,
    /// By second since the measurement began, if asked for.
    pub(crate) intervals: Option<Vec<IntervalCounts>>,
}

/// I/Os that ended within one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IntervalCounts {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) errors: u64,
}

impl ThreadTally {
    pub(crate) fn new(with_intervals: bool) -> Self {
        let intervals = with_intervals.then(Vec::new);
        Self { read: Latencies::new(), write: Latencies::new(), intervals }
    }

    /// Counts an I/O that was done within the measurement.
    pub(crate) fn done(&mut self, is_write: bool, latency: Duration, bytes: u32, since_start: Duration) {
        if is_write {
            self.write.record(latency, bytes);
        } else {
            self.read.record(latency, bytes);
        }
        if let Some(counts) = self.interval(since_start) {
            *(if is_write { &mut counts.writes } else { &mut counts.reads }) += 1;
        }
    }

    /// The counts of the second that is `since_start` behind the beginning of the measurement.
    pub(crate) fn interval(&mut self, since_start: Duration) -> Option<&mut IntervalCounts> {
        let intervals = self.intervals.as_mut()?;
        let index = usize::try_from(since_start.as_secs()).ok()?;
        if intervals.len() <= index {
            intervals.resize(index + 1, IntervalCounts::default());
        }
        intervals.get_mut(index)
    }
}

/// An I/O that failed, or a connection that broke.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Whose it was.
    pub client: String,
    /// Seconds since the load began, warm-up included.
    pub at_seconds: f64,
    /// `read`, `write` or `connection`.
    pub operation: String,
    /// Where on the volume; absent for a connection.
    pub offset: Option<u64>,
    /// What the server or the machine said.
    pub reason: String,
}

/// What is counted of one client.
#[derive(Clone, Debug)]
pub(crate) struct ClientTally {
    pub(crate) name: String,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) latency_sum: Duration,
    pub(crate) latency_max: Duration,
    pub(crate) longest_pause: Duration,
    /// I/Os that failed, those of a broken connection included.
    pub(crate) failed: u64,
    /// I/Os without an answer at the end.
    pub(crate) unanswered: u64,
    /// The first failures.
    pub(crate) failures: Vec<Failure>,
    /// Whether the connection broke.
    pub(crate) is_lost: bool,
}

impl ClientTally {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            reads: 0,
            writes: 0,
            latency_sum: Duration::ZERO,
            latency_max: Duration::ZERO,
            longest_pause: Duration::ZERO,
            failed: 0,
            unanswered: 0,
            failures: Vec::new(),
            is_lost: false,
        }
    }

    /// Counts an I/O that was done within the measurement.
    pub(crate) fn done(&mut self, is_write: bool, latency: Duration) {
        *(if is_write { &mut self.writes } else { &mut self.reads }) += 1;
        self.latency_sum += latency;
        self.latency_max = self.latency_max.max(latency);
    }

    /// Keeps what there is to say of a failure, if not enough is kept.
    pub(crate) fn tell(&mut self, at: Duration, operation: &str, offset: Option<u64>, reason: String) {
        if self.failures.len() < FAILURES_TOLD_PER_CLIENT {
            let (client, operation) = (self.name.clone(), operation.to_owned());
            self.failures.push(Failure { client, at_seconds: at.as_secs_f64(), operation, offset, reason });
        }
    }
}

/// What other threads may see of a client while it runs. Only the client's own thread writes.
#[derive(Debug, Default)]
pub(crate) struct ClientCounters {
    pub(crate) done: AtomicU64,
    pub(crate) done_bytes: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) latency_sum_ns: AtomicU64,
    pub(crate) outstanding: AtomicU64,
    /// When the client last made progress.
    waiting_since_ns: AtomicU64,
    longest_pause_ns: AtomicU64,
    pub(crate) is_lost: AtomicBool,
}

impl ClientCounters {
    /// Adds to a counter that no other thread writes.
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Publishes how the client waits.
    pub(crate) fn set_waiting(&self, since: Instant, outstanding: usize, longest_pause: Duration) {
        self.waiting_since_ns.store(since.nanoseconds(), Ordering::Relaxed);
        self.outstanding.store(outstanding as u64, Ordering::Relaxed);
        let longest = u64::try_from(longest_pause.as_nanos()).unwrap_or(u64::MAX);
        self.longest_pause_ns.store(longest, Ordering::Relaxed);
    }

    /// How long the client has waited for any of its I/Os to be done, as of `now`.
    pub(crate) fn present_pause(&self, times: &LoadTimes, now: Instant) -> Duration {
        if self.outstanding.load(Ordering::Relaxed) == 0 {
            return Duration::ZERO;
        }
        let since = Instant::from_nanoseconds(self.waiting_since_ns.load(Ordering::Relaxed));
        times.measured_between(since, now)
    }

    /// The longest pause so far, the present one included.
    pub(crate) fn longest_pause(&self, times: &LoadTimes, now: Instant) -> Duration {
        let ended = Duration::from_nanos(self.longest_pause_ns.load(Ordering::Relaxed));
        ended.max(self.present_pause(times, now))
    }
}

#[cfg(test)]
#[path = "tally_tests.rs"]
mod tests;
