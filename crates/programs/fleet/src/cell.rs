//! Runs one cell: connects the clients, starts them together, measures, and adds up.

use std::time::Duration;

use spandrel_platform::Instant;
use spandrel_shared::Error;

use crate::generator::{Client, Generator};
use crate::live::{LiveSample, Sampler};
use crate::load_thread::Task;
use crate::result::CellResult;
use crate::spec::CellSpec;
use crate::tally::Failure;
use crate::target::Target;
use crate::times::{LoadTimes, now};

/// How often whoever watches a cell hears of it.
const TICK: Duration = Duration::from_millis(200);

/// The size of the I/Os that go over a whole volume, and how many are in flight.
const PASS_BLOCK_BYTES: u32 = 256 << 10;
const PASS_OUTSTANDING: u32 = 8;

/// Who watches a cell while it runs. All is called on the thread that runs the cell.
pub(crate) trait CellObserver {
    /// The measurement has begun.
    fn begin_measurement(&mut self) {}

    /// The measurement has ended; the load may go on.
    fn end_measurement(&mut self) {}

    /// Some time has passed: `elapsed` of `total` since the load began.
    fn tick(&mut self, _elapsed: Duration, _total: Duration, _sample: &LiveSample) {}
}

struct Nobody;

impl CellObserver for Nobody {}

/// Runs one cell: a client for each target, all started together, warm-up, measured window and
/// cool-down. Returns when all of it is over.
///
/// # Errors
///
/// The load makes no sense, or a client cannot connect or does not fit its volume; then nothing ran.
/// What goes wrong later is part of the result.
pub fn run_cell(targets: &[Target], spec: &CellSpec) -> Result<CellResult, Error> {
    run_observed_cell(targets, spec, &mut Nobody)
}

/// The same, watched.
pub(crate) fn run_observed_cell(
    targets: &[Target],
    spec: &CellSpec,
    observer: &mut impl CellObserver,
) -> Result<CellResult, Error> {
    spec.validate()?;
    let mut generator = Generator::connect(targets, spec, Task::Load)?;
    let times = generator.start(|start| LoadTimes::of_cell(spec, start));
    let total = spec.duration_in_all();
    let mut sampler = Sampler::new(&times);
    let mut watch = |observer: &mut dyn CellObserver, now: Instant| {
        let sample = sampler.sample(generator.clients(), now);
        observer.tick(now.since(times.start).min(total), total, &sample);
    };
    generator.wait_until(times.measure_from, TICK, |now| watch(observer, now));
    observer.begin_measurement();
    generator.wait_until(times.measure_until(), TICK, |now| watch(observer, now));
    observer.end_measurement();
    generator.wait_until(times.stop_at(), TICK, |now| watch(observer, now));
    let reports = generator.finish()?;
    let mut result = CellResult::new(spec, spec.duration, reports);
    for (client, target) in result.clients.iter_mut().zip(targets) {
        client.node = target.node.clone();
    }
    Ok(result)
}

/// Runs a load as long as `goes_on` says so of what was done in each window of time, or until nothing
/// runs any more. The result counts all of it.
///
/// # Errors
///
/// As [`run_cell`].
pub(crate) fn run_while(
    targets: &[Target],
    spec: &CellSpec,
    window: Duration,
    mut goes_on: impl FnMut(&LiveSample) -> bool,
) -> Result<CellResult, Error> {
    spec.validate()?;
    let mut generator = Generator::connect(targets, spec, Task::Load)?;
    let times = generator.start(|start| LoadTimes::open_ended(start, Duration::ZERO));
    let mut sampler = Sampler::new(&times);
    let mut until = times.start + window;
    loop {
        generator.wait_until(until, TICK, |_| {});
        let sample = sampler.sample(generator.clients(), now());
        if generator.is_over() || !goes_on(&sample) {
            break;
        }
        until = until + window;
    }
    generator.stop();
    let measured = times.measure_until().since(times.start);
    Ok(CellResult::new(spec, measured, generator.finish()?))
}

/// Writes the working set of every target once, from start to end, with random data, so that reads
/// find something and the first writes are not the only ones that allocate. `tick` hears how many of
/// how many bytes are written.
///
/// # Errors
///
/// A client cannot connect, or a write failed.
pub fn fill(
    targets: &[Target],
    working_set_bytes: Option<u64>,
    seed: u64,
    tick: impl FnMut(u64, Option<u64>),
) -> Result<(), Error> {
    let spec = CellSpec { write_percent: 100, seed, ..pass_spec(working_set_bytes) };
    match pass_over(targets, &spec, tick)? {
        None => Ok(()),
        Some(failure) => Err(Error::new(
            "FLEET_FILL_FAILED",
            format!("the volume of client {} could not be filled", failure.client),
            failure.reason,
            "see why its volume is not healthy, then run again",
        )),
    }
}

/// Reads the working set of every target once, from start to end, so that caches in the way have seen
/// all of it. `tick` hears how many of how many bytes are read.
///
/// # Errors
///
/// A client cannot connect, or a read failed.
pub(crate) fn read_through(
    targets: &[Target],
    working_set_bytes: u64,
    tick: impl FnMut(u64, Option<u64>),
) -> Result<(), Error> {
    let spec = pass_spec(Some(working_set_bytes));
    match pass_over(targets, &spec, tick)? {
        None => Ok(()),
        Some(failure) => Err(Error::new(
            "FLEET_READ_FAILED",
            format!("the volume of client {} could not be read", failure.client),
            failure.reason,
            "see why its volume is not healthy, then run again",
        )),
    }
}

fn pass_spec(working_set_bytes: Option<u64>) -> CellSpec {
    let least = working_set_bytes.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(PASS_BLOCK_BYTES);
    CellSpec {
        block_size_bytes: PASS_BLOCK_BYTES.min(least),
        outstanding: PASS_OUTSTANDING,
        working_set_bytes,
        ..CellSpec::default()
    }
}

/// Goes over the working set of every target once. The first failure, if there is one.
fn pass_over(
    targets: &[Target],
    spec: &CellSpec,
    mut tick: impl FnMut(u64, Option<u64>),
) -> Result<Option<Failure>, Error> {
    spec.validate()?;
    let mut generator = Generator::connect(targets, spec, Task::Pass)?;
    generator.start(|start| LoadTimes::open_ended(start, Duration::ZERO));
    let total = spec.working_set_bytes.map(|bytes| bytes * targets.len() as u64);
    let done = |generator: &Generator| generator.clients().iter().map(Client::done_bytes).sum();
    generator.wait_until(Instant::from_nanoseconds(u64::MAX), TICK, |_| tick(done(&generator), total));
    tick(done(&generator), total);
    let outcomes = generator.finish()?.into_iter().map(|report| report.outcome);
    let clients = outcomes.flat_map(|outcome| outcome.clients).map(|(_, tally)| tally);
    Ok(clients.flat_map(|tally| tally.failures).next())
}

#[cfg(test)]
#[path = "cell_tests.rs"]
mod tests;
