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
    /// I/Os that were answered during the whole load, warm-up, cool-down and what was still under way then included: as many as
    /// the server has done, if nothing failed.
    #[serde(default)]
    pub answered: u64,
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

/// Latencies in microseconds. Percentiles are exact to three digits; one that would need more I/Os than there were is absent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The mean.
    pub mean_us: f64,
    /// The standard deviation of all I/Os.
    pub standard_deviation_us: f64,
    /// The quickest.
    pub min_us: f64,
    /// Half of the I/Os were not slower than this.
    pub p50_us: f64,
    /// 90 % of them.
    pub p90_us: f64,
    /// 95 %.
    pub p95_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// 99.9 %, of a thousand I/Os or more.
    pub p99_9_us: Option<f64>,
    /// 99.99 %, of ten thousand or more, and so on.
    pub p99_99_us: Option<f64>,
    /// 99.999 %.
    pub p99_999_us: Option<f64>,
    /// 99.9999 %.
    pub p99_9999_us: Option<f64>,
    /// 99.99999 %.
    pub p99_99999_us: Option<f64>,
    /// The slowest.
    pub max_us: f64,
}

/// The least, the mean and the most of something, and how it varies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// Half are not above it.
    #[serde(default)]
    pub median: f64,
    /// The most.
    pub max: f64,
    /// The standard deviation of all.
    #[serde(default)]
    pub standard_deviation: f64,
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
    /// Whether the difference is above 10 % where the clients kept as many in flight as they could: those with a rate limit do not.
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
    /// The node that served it, as far as somebody has said.
    #[serde(default)]
    pub node: Option<String>,
    /// Its reads.
    pub read: Traffic,
    /// Its writes.
    pub write: Traffic,
    /// Both.
    pub total: Traffic,
    /// The longest time without an I/O done while some were outstanding, in milliseconds.
    pub longest_pause_ms: f64,
    /// I/Os that failed.
    pub errors: u64,
    /// I/Os not answered at the end.
    pub unanswered: u64,
    /// Whether its connection broke.
    pub is_lost: bool,
    /// Each second's part, if asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// The latencies of all reads in microseconds, if asked for and if there were any: an HdrHistogram in its compressed V2 form,
    /// as base 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_histogram: Option<String>,
    /// The same of writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_histogram: Option<String>,
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
        let in_guests = reports.iter().flat_map(|report| &report.outcome.guests);
        let costs: Vec<(Duration, Duration)> = reports
            .iter()
            .map(|report| (report.cpu, report.wall))
            .chain(in_guests.map(|guest| (guest.cpu, guest.wall)))
            .collect();
        let generator_cpu: Duration = costs.iter().map(|(cpu, _)| *cpu).sum();
        let busy = costs.iter().map(|(cpu, wall)| percent(cpu.as_secs_f64(), wall.as_secs_f64()));
        let busiest_thread_percent = busy.fold(0.0, f64::max);
        let (mut read, mut write) = (Latencies::new(), Latencies::new());
        let mut intervals = Vec::new();
        let mut clients = Vec::new();
        for report in reports {
            for (_, client) in &report.outcome.clients {
                read.add(&client.read);
                write.add(&client.write);
                add_intervals(&mut intervals, client.intervals.as_deref().unwrap_or_default());
            }
            clients.extend(report.outcome.clients);
        }
        clients.sort_by_key(|(number, _)| *number);
        let clients: Vec<ClientTally> = clients.into_iter().map(|(_, tally)| tally).collect();
        let mut both = read.clone();
        both.add(&write);
        let total = Traffic::new(&both, seconds);
        let results: Vec<ClientResult> =
            clients.iter().map(|tally| ClientResult::new(tally, seconds, spec.histograms)).collect();
        let mut failures: Vec<Failure> = clients.iter().flat_map(|tally| tally.failures.clone()).collect();
        failures.sort_by(|one, other| one.at_seconds.total_cmp(&other.at_seconds));
        let cpu_seconds = generator_cpu.as_secs_f64();
        Self {
            spec: spec.clone(),
            measured_seconds: seconds,
            read: Traffic::new(&read, seconds),
            write: Traffic::new(&write, seconds),
            total,
            answered: clients.iter().map(|tally| tally.answered).sum(),
            errors: clients.iter().map(|tally| tally.failed).sum(),
            unanswered: clients.iter().map(|tally| tally.unanswered).sum(),
            clients_lost: clients.iter().filter(|tally| tally.is_lost).count() as u64,
            failures,
            longest_pause_ms: results.iter().map(|result| result.longest_pause_ms).fold(0.0, f64::max),
            client_iops: Spread::of(results.iter().map(|result| result.total.iops)),
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
        let nines = |count: i32| {
            let enough = latencies.count() as f64 >= 10_f64.powi(count);
            enough.then(|| latencies.quantile_us(1.0 - 10_f64.powi(-count)))
        };
        Self {
            mean_us: latencies.mean_us(),
            standard_deviation_us: latencies.standard_deviation_us(),
            min_us: latencies.min_us(),
            p50_us: latencies.quantile_us(0.5),
            p90_us: latencies.quantile_us(0.9),
            p95_us: latencies.quantile_us(0.95),
            p99_us: latencies.quantile_us(0.99),
            p99_9_us: nines(3),
            p99_99_us: nines(4),
            p99_999_us: nines(5),
            p99_9999_us: nines(6),
            p99_99999_us: nines(7),
            max_us: latencies.max_us(),
        }
    }
}

impl Spread {
    /// Of so many numbers; nothing but zeros if there are none.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (values.first(), values.last()) else { return Self::default() };
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        Self {
            min: *min,
            mean,
            median: (values[(count - 1) / 2] + values[count / 2]) / 2.0,
            max: *max,
            standard_deviation: (squares / count as f64).sqrt(),
        }
    }
}

impl LittlesLaw {
    fn new(spec: &CellSpec, clients: usize, total: &Traffic) -> Self {
        let outstanding_set = clients as u64 * spec.outstanding_per_client();
        let mean_us = total.latency.map_or(0.0, |latency| latency.mean_us);
        let outstanding_measured = total.iops * mean_us / 1e6;
        let residual_percent = percent(outstanding_measured - outstanding_set as f64, outstanding_set as f64);
        let is_suspicious = spec.rate_limit.is_none() && residual_percent.abs() > RESIDUAL_PERCENT_MAX;
        Self { outstanding_set, outstanding_measured, residual_percent, is_suspicious }
    }
}

impl ClientResult {
    fn new(tally: &ClientTally, seconds: f64, with_histograms: bool) -> Self {
        let mut both = tally.read.clone();
        both.add(&tally.write);
        Self {
            name: tally.name.clone(),
            node: None,
            read: Traffic::new(&tally.read, seconds),
            write: Traffic::new(&tally.write, seconds),
            total: Traffic::new(&both, seconds),
            longest_pause_ms: tally.longest_pause.as_secs_f64() * 1e3,
            errors: tally.failed,
            unanswered: tally.unanswered,
            is_lost: tally.is_lost,
            intervals: rows(tally.intervals.as_deref().unwrap_or_default(), seconds),
            read_histogram: (with_histograms && tally.read.count() > 0).then(|| tally.read.to_text()),
            write_histogram: (with_histograms && tally.write.count() > 0).then(|| tally.write.to_text()),
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
