//! A load that runs until it is stopped, and can be looked at meanwhile: what a demonstration shows
//! while it breaks things.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use spandrel_platform::Instant;
use spandrel_shared::Error;

use crate::generator::{Client, Generator};
use crate::load_thread::Task;
use crate::result::CellResult;
use crate::spec::CellSpec;
use crate::target::Target;
use crate::times::{LoadTimes, now};

/// What happened since the sample before, and what is so now.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveSample {
    /// Since the load began.
    pub at: Duration,
    /// Since the sample before.
    pub interval: Duration,
    /// I/Os done per second in the interval.
    pub iops: f64,
    /// MiB done per second in the interval.
    pub mib_per_second: f64,
    /// Mean latency of the I/Os done in the interval, in microseconds; absent if there were none.
    pub mean_us: Option<f64>,
    /// I/Os that have failed since the load began.
    pub errors: u64,
    /// Clients whose connection broke.
    pub clients_lost: usize,
    /// The longest pause of any client so far.
    pub longest_pause: Duration,
    /// Each client, in the order of the targets.
    pub clients: Vec<LiveClient>,
}

/// One client in a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveClient {
    /// Its name.
    pub name: String,
    /// I/Os done per second in the interval.
    pub iops: f64,
    /// I/Os that have failed since the load began.
    pub errors: u64,
    /// How long it has waited for any of its outstanding I/Os now.
    pub present_pause: Duration,
    /// The longest it has waited so, after the warm-up; the present pause included.
    pub longest_pause: Duration,
    /// Whether its connection broke.
    pub is_lost: bool,
}

/// Turns counters that only grow into rates.
pub(crate) struct Sampler {
    times: Arc<LoadTimes>,
    last_at: Instant,
    last: Vec<Counts>,
}

/// A client's counters at one time.
#[derive(Clone, Copy, Default)]
struct Counts {
    done: u64,
    bytes: u64,
    latency_sum_ns: u64,
}

impl Sampler {
    /// A sampler whose first interval begins with the load.
    pub(crate) fn new(times: &Arc<LoadTimes>) -> Self {
        Self { times: Arc::clone(times), last_at: times.start, last: Vec::new() }
    }

    /// What happened up to `at`.
    pub(crate) fn sample(&mut self, clients: &[Client], at: Instant) -> LiveSample {
        self.last.resize(clients.len(), Counts::default());
        let interval = at.since(self.last_at);
        let rate = |count: u64| {
            if interval.is_zero() { 0.0 } else { count as f64 / interval.as_secs_f64() }
        };
        let mut sum = Counts::default();
        let mut rows = Vec::with_capacity(clients.len());
        for (client, last) in clients.iter().zip(&mut self.last) {
            let now = client.counts();
            let done = now.done - last.done;
            sum.done += done;
            sum.bytes += now.bytes - last.bytes;
            sum.latency_sum_ns += now.latency_sum_ns.wrapping_sub(last.latency_sum_ns);
            *last = now;
            rows.push(LiveClient {
                name: client.name.clone(),
                iops: rate(done),
                errors: client.counters.failed.load(Ordering::Relaxed),
                present_pause: client.counters.present_pause(&self.times, at),
                longest_pause: client.counters.longest_pause(&self.times, at),
                is_lost: client.counters.is_lost.load(Ordering::Relaxed),
            });
        }
        self.last_at = at;
        LiveSample {
            at: at.since(self.times.start),
            interval,
            iops: rate(sum.done),
            mib_per_second: rate(sum.bytes) / f64::from(1 << 20),
            mean_us: (sum.done > 0).then(|| sum.latency_sum_ns as f64 / 1000.0 / sum.done as f64),
            errors: rows.iter().map(|client| client.errors).sum(),
            clients_lost: rows.iter().filter(|client| client.is_lost).count(),
            longest_pause: rows.iter().map(|client| client.longest_pause).max().unwrap_or_default(),
            clients: rows,
        }
    }
}

impl Client {
    fn counts(&self) -> Counts {
        let counters = &self.counters;
        Counts {
            done: counters.done.load(Ordering::Relaxed),
            bytes: counters.done_bytes.load(Ordering::Relaxed),
            latency_sum_ns: counters.latency_sum_ns.load(Ordering::Relaxed),
        }
    }

    /// Bytes of the I/Os done since the load began.
    pub(crate) fn done_bytes(&self) -> u64 {
        self.counts().bytes
    }
}

/// A load that runs on threads of its own. Dropping it ends the load without a result.
pub struct LiveLoad {
    generator: Generator,
    times: Arc<LoadTimes>,
    sampler: Sampler,
    spec: CellSpec,
}

impl LiveLoad {
    /// Connects a client to each target and starts them together. Of the spec's times, the warm-up
    /// says from when on pauses and latencies count; duration and cool-down have no meaning here.
    ///
    /// # Errors
    ///
    /// As [`run_cell`](crate::run_cell).
    pub fn start(targets: &[Target], spec: &CellSpec) -> Result<Self, Error> {
        spec.validate()?;
        let mut generator = Generator::connect(targets, spec, Task::Load)?;
        let times = generator.start(|start| LoadTimes::open_ended(start, spec.warmup));
        let sampler = Sampler::new(&times);
        Ok(Self { generator, times, sampler, spec: spec.clone() })
    }

    /// What happened since the last sample, or since the start.
    pub fn sample(&mut self) -> LiveSample {
        self.sampler.sample(self.generator.clients(), now())
    }

    /// Whether nothing runs any more, because every client has lost its connection.
    pub fn is_over(&self) -> bool {
        self.generator.is_over()
    }

    /// Ends the load, waits for what is in flight as long as the spec's `drain`, and adds up what was
    /// done since the warm-up.
    ///
    /// # Errors
    ///
    /// A fault of the program itself.
    pub fn stop(mut self) -> Result<CellResult, Error> {
        self.generator.stop();
        let measured = self.times.measure_until().since(self.times.measure_from);
        let reports = self.generator.finish()?;
        Ok(CellResult::new(&self.spec, measured, reports))
    }
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
