//! What is counted of each client: latencies, what was done in each second, progress and failures.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer as _, V2DeflateSerializer};
use serde::{Deserialize, Serialize};
use spandrel_platform::Instant;

use crate::times::LoadTimes;

/// Failures that are told one by one for each client. The rest are counted.
const FAILURES_TOLD_PER_CLIENT: usize = 8;

/// The longest latency that is told apart from longer ones: an hour, in microseconds.
const LATENCY_US_MAX: u64 = 3_600_000_000;

/// The latencies of one direction.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Latencies {
    /// In microseconds, to three digits. It grows with the longest: up to a second it takes 90 KiB.
    #[serde(with = "histogram_text")]
    histogram: Histogram<u64>,
    sum_ns: u128,
    /// Of their squares.
    squares_sum_ns2: u128,
    min_ns: u64,
    max_ns: u64,
    bytes: u64,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new(3).expect("three digits are few enough");
        Self { histogram, sum_ns: 0, squares_sum_ns2: 0, min_ns: u64::MAX, max_ns: 0, bytes: 0 }
    }

    pub(crate) fn record(&mut self, latency: Duration, bytes: u32) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let microseconds = ((nanoseconds / 500).div_ceil(2)).min(LATENCY_US_MAX);
        self.histogram.record(microseconds).expect("a histogram grows");
        self.sum_ns += u128::from(nanoseconds);
        self.squares_sum_ns2 += u128::from(nanoseconds).pow(2);
        self.min_ns = self.min_ns.min(nanoseconds);
        self.max_ns = self.max_ns.max(nanoseconds);
        self.bytes += u64::from(bytes);
    }

    pub(crate) fn add(&mut self, other: &Latencies) {
        self.histogram.add(&other.histogram).expect("a histogram grows");
        self.sum_ns += other.sum_ns;
        self.squares_sum_ns2 += other.squares_sum_ns2;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.bytes += other.bytes;
    }

    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// All of them in microseconds, in the text form that other HdrHistograms read: V2, compressed, base 64.
    pub(crate) fn to_text(&self) -> String {
        histogram_text::to_text(&self.histogram)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn mean_us(&self) -> f64 {
        self.sum_ns as f64 / 1000.0 / self.count().max(1) as f64
    }

    /// The standard deviation of all of them (not an estimate from a sample).
    pub(crate) fn standard_deviation_us(&self) -> f64 {
        let count = self.count().max(1) as f64;
        let mean = self.sum_ns as f64 / count;
        // Of numbers that are nearly alike, rounding may leave less than nothing.
        (self.squares_sum_ns2 as f64 / count - mean * mean).max(0.0).sqrt() / 1000.0
    }

    pub(crate) fn min_us(&self) -> f64 {
        self.min_ns.min(self.max_ns) as f64 / 1000.0
    }

    pub(crate) fn max_us(&self) -> f64 {
        self.max_ns as f64 / 1000.0
    }

    /// The latency that `quantile` of all I/Os do not exceed, never above the longest.
    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        (self.histogram.value_at_quantile(quantile) as f64).min(self.max_us())
    }
}

/// A histogram as text: V2, compressed, base 64.
mod histogram_text {
    use hdrhistogram::serialization::Deserializer as HistogramDeserializer;
    use serde::de::Error as _;
    use serde::{Deserializer, Serializer};

    use super::*;

    pub(super) fn to_text(histogram: &Histogram<u64>) -> String {
        let mut bytes = Vec::new();
        let written = V2DeflateSerializer::new().serialize(histogram, &mut bytes);
        written.expect("memory takes all that is written to it");
        BASE64.encode(bytes)
    }

    pub(super) fn serialize<S: Serializer>(
        histogram: &Histogram<u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_text(histogram))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Histogram<u64>, D::Error> {
        let bytes = BASE64.decode(String::deserialize(deserializer)?).map_err(D::Error::custom)?;
        let read = HistogramDeserializer::new().deserialize(&mut &bytes[..]);
        let mut histogram: Histogram<u64> = read.map_err(D::Error::custom)?;
        // As one that was begun here.
        histogram.auto(true);
        Ok(histogram)
    }
}

/// I/Os that ended within one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IntervalCounts {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) errors: u64,
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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClientTally {
    pub(crate) name: String,
    /// By second since the measurement began, if asked for.
    pub(crate) intervals: Option<Vec<IntervalCounts>>,
    pub(crate) read: Latencies,
    pub(crate) write: Latencies,
    pub(crate) longest_pause: Duration,
    /// I/Os that were answered, measured or not.
    pub(crate) answered: u64,
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
    pub(crate) fn new(name: &str, with_intervals: bool) -> Self {
        Self {
            name: name.to_owned(),
            intervals: with_intervals.then(Vec::new),
            read: Latencies::new(),
            write: Latencies::new(),
            longest_pause: Duration::ZERO,
            answered: 0,
            failed: 0,
            unanswered: 0,
            failures: Vec::new(),
            is_lost: false,
        }
    }

    /// Counts an I/O that was done within the measurement, so long after that had begun.
    pub(crate) fn done(&mut self, is_write: bool, latency: Duration, bytes: u32, since_start: Duration) {
        let latencies = if is_write { &mut self.write } else { &mut self.read };
        latencies.record(latency, bytes);
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
