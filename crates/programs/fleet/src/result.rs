//! What a cell's run comes to: rates, latencies, pauses and failures, and whether they can be believed.
//!
//! Two checks come with every result. By Little's law, I/Os per second times mean latency is the number
//! of I/Os in flight, which is known: where the two differ by more than a tenth, some of the time was
//! not spent waiting for the storage (or clients were lost). And a load thread that was busy nearly all
//! the time has measured itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::generator::ThreadReport;
use crate::spec::CellSpec;
use crate::tally::{ClientTally, Failure, IntervalCounts, Latencies};

/// Little's law counts as broken above this difference.
const RESIDUAL_PERCENT_MAX: f64 = 10.0;

/// A load thread that is busy for more than this share of the time was the bottleneck.
const BUSY_PERCENT_MAX: f64 = 90.0;

const MIB: f64 = 1024.0 * 1024.0;

/// What a cell has measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// The load.
    pub spec: CellSpec,
    /// How long it was measured, in seconds.
    pub measured_seconds: f64,
    /// The reads.
    pub read: Traffic,
    /// The writes.
    pub write: Traffic,
    /// Both.
    pub total: Traffic,
    /// I/Os that failed during the whole load, those of broken connections included.
    pub errors: u64,
    /// I/Os that were not answered when the load ended.
    pub unanswered: u64,
    /// Clients whose connection broke.
    pub clients_lost: u64,
    /// The first failures of each client, by time.
    pub failures: Vec<Failure>,
    /// The longest time in which a client that had I/Os outstanding got none of them done, in
    /// milliseconds.
    pub longest_pause_ms: f64,
    /// How evenly the clients were served.
    pub client_iops: Spread,
    /// Whether rates and latencies agree.
    pub littles_law: LittlesLaw,
    /// What the load generator itself cost.
    pub generator: GeneratorCost,
    /// Each client's part.
    pub clients: Vec<ClientResult>,
    /// Each second's part, if asked for.
    pub intervals: Vec<Interval>,
}

/// The I/Os of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// I/Os done.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// I/Os per second.
    pub iops: f64,
    /// MiB per second.
    pub mib_per_second: f64,
    /// Their latencies; absent if there were none.
    pub latency: Option<Latency>,
}

/// Latencies in microseconds. Percentiles are exact to three digits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The mean.
    pub mean_us: f64,
    /// Half of the I/Os were not slower than this.
    pub p50_us: f64,
    /// 90 % of them.
    pub p90_us: f64,
    /// 95 %.
    pub p95_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// 99.9 %.
    pub p99_9_us: f64,
    /// The slowest.
    pub max_us: f64,
}

/// The least, the mean and the most of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The most.
    pub max: f64,
}

/// I/Os in flight: as set, and as follows from rate and latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LittlesLaw {
    /// Clients times threads times outstanding.
    pub outstanding_set: u64,
    /// I/Os per second times mean latency.
    pub outstanding_measured: f64,
    /// The difference, in percent of what was set.
    pub residual_percent: f64,
    /// Whether the difference is above 10 %.
    pub is_suspicious: bool,
}

/// What the load generator cost within the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GeneratorCost {
    /// Processor time of all load threads, in seconds.
    pub cpu_seconds: f64,
    /// The same per I/O done, in microseconds.
    pub cpu_us_per_io: f64,
    /// How busy the busiest load thread was.
    pub busiest_thread_percent: f64,
    /// Whether that is so much that latencies tell of the load generator.
    pub is_saturated: bool,
}

/// What one client got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientResult {
    /// Its name.
    pub name: String,
    /// I/Os per second.
    pub iops: f64,
    /// Reads per second.
    pub read_iops: f64,
    /// Writes per second.
    pub write_iops: f64,
    /// Mean latency in microseconds; absent without I/Os.
    pub mean_us: Option<f64>,
    /// The longest latency in microseconds.
    pub max_us: f64,
    /// The longest time without an I/O done while some were outstanding, in milliseconds.
    pub longest_pause_ms: f64,
    /// I/Os that failed.
    pub errors: u64,
    /// I/Os not answered at the end.
    pub unanswered: u64,
    /// Whether its connection broke.
    pub is_lost: bool,
}

/// What was done in one second of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Where it ends, in seconds since the measurement began.
    pub end_seconds: f64,
    /// Reads done.
    pub reads: u64,
    /// Writes done.
    pub writes: u64,
    /// I/Os that failed.
    pub errors: u64,
}

impl CellResult {
    /// Whether anything failed, was not answered, or lost its connection.
    pub fn has_failures(&self) -> bool {
        self.errors + self.unanswered + self.clients_lost > 0
    }

    /// Adds up what the load threads have counted within `measured`.
    pub(crate) fn new(spec: &CellSpec, measured: Duration, reports: Vec<ThreadReport>) -> Self {
        let seconds = measured.as_secs_f64();
        let generator_cpu: Duration = reports.iter().map(|report| report.cpu).sum();
        let busy = reports.iter().map(|report| percent(report.cpu.as_secs_f64(), report.wall.as_secs_f64()));
        let busiest_thread_percent = busy.fold(0.0, f64::max);
        let (mut read, mut write) = (Latencies::new(), Latencies::new());
        let mut intervals = Vec::new();
        let mut clients = Vec::new();
        for report in reports {
            read.add(&report.outcome.tally.read);
            write.add(&report.outcome.tally.write);
            add_intervals(&mut intervals, &report.outcome.tally.intervals.unwrap_or_default());
            clients.extend(report.outcome.clients);
        }
        clients.sort_by_key(|(number, _)| *number);
        let clients: Vec<ClientTally> = clients.into_iter().map(|(_, tally)| tally).collect();
        let mut both = read.clone();
        both.add(&write);
        let total = Traffic::new(&both, seconds);
        let results: Vec<ClientResult> =
            clients.iter().map(|tally| ClientResult::new(tally, seconds)).collect();
        let mut failures: Vec<Failure> = clients.iter().flat_map(|tally| tally.failures.clone()).collect();
        failures.sort_by(|one, other| one.at_seconds.total_cmp(&other.at_seconds));
        let cpu_seconds = generator_cpu.as_secs_f64();
        Self {
            spec: spec.clone(),
            measured_seconds: seconds,
            read: Traffic::new(&read, seconds),
            write: Traffic::new(&write, seconds),
            total,
            errors: clients.iter().map(|tally| tally.failed).sum(),
            unanswered: clients.iter().map(|tally| tally.unanswered).sum(),
            clients_lost: clients.iter().filter(|tally| tally.is_lost).count() as u64,
            failures,
            longest_pause_ms: results.iter().map(|result| result.longest_pause_ms).fold(0.0, f64::max),
            client_iops: Spread::of(results.iter().map(|result| result.iops)),
            littles_law: LittlesLaw::new(spec, clients.len(), &total),
            generator: GeneratorCost {
                cpu_seconds,
                cpu_us_per_io: cpu_seconds * 1e6 / total.count.max(1) as f64,
                busiest_thread_percent,
                is_saturated: busiest_thread_percent > BUSY_PERCENT_MAX,
            },
            clients: results,
            intervals: rows(&intervals, seconds),
        }
    }
}

impl Traffic {
    fn new(latencies: &Latencies, seconds: f64) -> Self {
        let (count, bytes) = (latencies.count(), latencies.bytes());
        Self {
            count,
            bytes,
            iops: per_second(count as f64, seconds),
            mib_per_second: per_second(bytes as f64 / MIB, seconds),
            latency: (count > 0).then(|| Latency::new(latencies)),
        }
    }
}

impl Latency {
    fn new(latencies: &Latencies) -> Self {
        Self {
            mean_us: latencies.mean_us(),
            p50_us: latencies.quantile_us(0.5),
            p90_us: latencies.quantile_us(0.9),
            p95_us: latencies.quantile_us(0.95),
            p99_us: latencies.quantile_us(0.99),
            p99_9_us: latencies.quantile_us(0.999),
            max_us: latencies.max_us(),
        }
    }
}

impl Spread {
    pub(crate) fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let count = values.clone().count();
        if count == 0 {
            return Self::default();
        }
        Self {
            min: values.clone().fold(f64::INFINITY, f64::min),
            mean: values.clone().sum::<f64>() / count as f64,
            max: values.fold(0.0, f64::max),
        }
    }
}

impl LittlesLaw {
    fn new(spec: &CellSpec, clients: usize, total: &Traffic) -> Self {
        let outstanding_set = clients as u64 * spec.outstanding_per_client();
        let mean_us = total.latency.map_or(0.0, |latency| latency.mean_us);
        let outstanding_measured = total.iops * mean_us / 1e6;
        let residual_percent = percent(outstanding_measured - outstanding_set as f64, outstanding_set as f64);
        let is_suspicious = residual_percent.abs() > RESIDUAL_PERCENT_MAX;
        Self { outstanding_set, outstanding_measured, residual_percent, is_suspicious }
    }
}

impl ClientResult {
    fn new(tally: &ClientTally, seconds: f64) -> Self {
        let count = tally.reads + tally.writes;
        let sum_us = tally.latency_sum.as_secs_f64() * 1e6;
        Self {
            name: tally.name.clone(),
            iops: per_second(count as f64, seconds),
            read_iops: per_second(tally.reads as f64, seconds),
            write_iops: per_second(tally.writes as f64, seconds),
            mean_us: (count > 0).then(|| sum_us / count as f64),
            max_us: tally.latency_max.as_secs_f64() * 1e6,
            longest_pause_ms: tally.longest_pause.as_secs_f64() * 1e3,
            errors: tally.failed,
            unanswered: tally.unanswered,
            is_lost: tally.is_lost,
        }
    }
}

fn per_second(count: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { count / seconds } else { 0.0 }
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole * 100.0 } else { 0.0 }
}

fn add_intervals(sum: &mut Vec<IntervalCounts>, part: &[IntervalCounts]) {
    if sum.len() < part.len() {
        sum.resize(part.len(), IntervalCounts::default());
    }
    for (sum, part) in sum.iter_mut().zip(part) {
        sum.reads += part.reads;
        sum.writes += part.writes;
        sum.errors += part.errors;
    }
}

/// The intervals as rows. The last one may be shorter than a second.
fn rows(intervals: &[IntervalCounts], seconds: f64) -> Vec<Interval> {
    let row = |(index, counts): (usize, &IntervalCounts)| Interval {
        end_seconds: ((index + 1) as f64).min(seconds),
        reads: counts.reads,
        writes: counts.writes,
        errors: counts.errors,
    };
    intervals.iter().enumerate().map(row).collect()
}

#[cfg(test)]
#[path = "result_tests.rs"]
mod tests;
