//! A sweep: one cell for each combination of load parameters, in the order of the reference
//! architectures' tables.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use spandrel_shared::Error;

use crate::cell::{CellObserver, fill, run_observed_cell};
use crate::layers::{ClusterReading, Layers};
use crate::live::LiveSample;
use crate::meter::{ClusterMeter, TimedReading, Usage};
use crate::progress::Progress;
use crate::result::CellResult;
use crate::spec::{CellSpec, invalid};
use crate::target::Target;

/// Cells that one sweep may have, so that a mistyped list is noticed.
const CELLS_MAX: usize = 10_000;

/// What a sweep varies, and what all its cells have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepSpec {
    /// Block sizes in bytes: the outermost of the loops.
    pub block_sizes_bytes: Vec<u32>,
    /// Threads per client, within that.
    pub threads: Vec<u32>,
    /// Write percentages, within that.
    pub write_percents: Vec<u8>,
    /// Outstanding I/Os per thread: the innermost.
    pub outstanding: Vec<u32>,
    /// Everything else of the cells. Its own values of what is varied are not used.
    pub common: CellSpec,
    /// Whether the working set is written once before the first cell, so that reads find something.
    pub fill: bool,
}

impl SweepSpec {
    /// The cells in their order.
    pub fn cells(&self) -> Vec<CellSpec> {
        let mut cells = Vec::new();
        for block_size_bytes in &self.block_sizes_bytes {
            for threads in &self.threads {
                for write_percent in &self.write_percents {
                    for outstanding in &self.outstanding {
                        cells.push(CellSpec {
                            block_size_bytes: *block_size_bytes,
                            threads: *threads,
                            write_percent: *write_percent,
                            outstanding: *outstanding,
                            ..self.common.clone()
                        });
                    }
                }
            }
        }
        cells
    }

    /// How long the cells take together, filling and drains not counted.
    pub fn duration(&self) -> Duration {
        self.cells().iter().map(CellSpec::duration_in_all).sum()
    }

    /// Refuses what makes no sense, before anything runs.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), Error> {
        let lists = [
            ("block sizes", self.block_sizes_bytes.len()),
            ("numbers of threads", self.threads.len()),
            ("write percentages", self.write_percents.len()),
            ("numbers of outstanding I/Os", self.outstanding.len()),
        ];
        for (name, length) in lists {
            if length == 0 {
                return Err(invalid(
                    "a sweep",
                    format!("its list of {name} is empty"),
                    "give at least one value",
                ));
            }
        }
        let count = lists.iter().try_fold(1_usize, |product, (_, length)| product.checked_mul(*length));
        if count.is_none_or(|count| count > CELLS_MAX) {
            return Err(invalid(
                "a sweep of so many cells",
                format!("its lists multiply to more than {CELLS_MAX} cells"),
                "give shorter lists",
            ));
        }
        self.cells().iter().try_for_each(CellSpec::validate)
    }
}

/// What a sweep has measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepResult {
    /// What was asked for.
    pub spec: SweepSpec,
    /// How many clients there were.
    pub clients: usize,
    /// How many of them were to be on another node than the one that owns their volume, if the volumes were made for the sweep.
    #[serde(default)]
    pub clients_apart: usize,
    /// One row per cell that has run, in order.
    pub rows: Vec<SweepRow>,
    /// Why the sweep ended before its last cell, if it did.
    pub stopped_by: Option<Error>,
    /// What was otherwise than wanted, in words.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// One cell of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepRow {
    /// What the clients saw.
    pub cell: CellResult,
    /// What it took.
    pub usage: Usage,
    /// I/Os per second for each busy core; absent if the meter does not know the processor time.
    pub iops_per_busy_core: Option<f64>,
    /// What went on at every layer of the cluster meanwhile; absent if the meter does not know.
    #[serde(default)]
    pub layers: Option<Layers>,
    /// The same in each of up to 60 equal parts of the measurement, as far as the cluster answered.
    #[serde(default)]
    pub layer_intervals: Vec<Layers>,
}

/// Runs every cell on `targets`, one client each. `meter` is read when each measurement begins and
/// ends.
///
/// # Errors
///
/// The spec makes no sense, or the volumes cannot be filled; then no cell ran. If a later cell cannot
/// run, the result has the rows before it and says why.
pub fn sweep(
    spec: &SweepSpec,
    targets: &[Target],
    meter: &mut impl ClusterMeter,
    progress: &mut dyn Progress,
) -> Result<SweepResult, Error> {
    spec.validate()?;
    let cells = spec.cells();
    progress.begin(cells.len(), targets.len(), spec.duration());
    if spec.fill {
        // From the volume's start on, so that what lies before the working set is there, too.
        let working_set = spec.common.volume_bytes_min();
        fill(targets, working_set, spec.common.seed, |done, total| progress.filling(done, total))?;
        progress.filled();
    }
    let mut result = SweepResult {
        spec: spec.clone(),
        clients: targets.len(),
        clients_apart: 0,
        rows: Vec::new(),
        stopped_by: None,
        warnings: Vec::new(),
    };
    for (index, cell) in cells.iter().enumerate() {
        progress.begin_cell(index, cell);
        match run_metered_cell(cell, targets, meter, progress) {
            Ok(row) => {
                progress.end_cell(index, &row);
                let is_over = row.cell.clients_lost == targets.len() as u64;
                result.rows.push(row);
                if is_over {
                    result.stopped_by = Some(all_lost());
                    break;
                }
            }
            Err(error) => {
                result.stopped_by = Some(error);
                break;
            }
        }
    }
    progress.end();
    Ok(result)
}

fn all_lost() -> Error {
    Error::new(
        "FLEET_CLIENTS_LOST",
        "the sweep was stopped",
        "every client lost its connection during the last cell",
        "see the failures of that cell and the servers' logs",
    )
}

/// Runs a cell and counts what the cluster used meanwhile.
pub(crate) fn run_metered_cell(
    cell: &CellSpec,
    targets: &[Target],
    meter: &mut impl ClusterMeter,
    progress: &mut dyn Progress,
) -> Result<SweepRow, Error> {
    let mut observer = Metering::new(cell, meter, progress);
    let cell = run_observed_cell(targets, cell, &mut observer)?;
    let (begin, end) = observer.begin.zip(observer.end).expect("a cell that ran was measured");
    let usage = end?.since(&begin?, cell.write.bytes);
    let iops_per_busy_core =
        usage.busy_cores.filter(|cores| *cores > 0.0).map(|cores| cell.total.iops / cores);
    let layers = observer.first.zip(observer.last).map(|(first, last)| Layers::between(&first, &last));
    Ok(SweepRow { cell, usage, iops_per_busy_core, layers, layer_intervals: observer.intervals })
}

/// Parts of a measurement for which it is told what goes on at every layer, at most.
const LAYER_INTERVALS_MAX: u32 = 60;

/// None of them is shorter: the cluster looks ten times a second at what is under way.
const LAYER_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Reads the meter at the ends of the measurement, and the layers in between as well.
struct Metering<'sweep, M> {
    meter: &'sweep mut M,
    progress: &'sweep mut dyn Progress,
    begin: Option<Result<TimedReading, Error>>,
    end: Option<Result<TimedReading, Error>>,
    /// What the layers had done when the measurement began, when they were last asked, and when it ended.
    first: Option<ClusterReading>,
    latest: Option<ClusterReading>,
    last: Option<ClusterReading>,
    intervals: Vec<Layers>,
    /// How long one of these is, and when the next one ends, counted from where the load begins.
    interval: Duration,
    interval_end: Duration,
    measured_until: Duration,
}

impl<'sweep, M: ClusterMeter> Metering<'sweep, M> {
    fn new(cell: &CellSpec, meter: &'sweep mut M, progress: &'sweep mut dyn Progress) -> Self {
        let interval = (cell.duration / LAYER_INTERVALS_MAX).max(LAYER_INTERVAL_MIN);
        Self {
            meter,
            progress,
            begin: None,
            end: None,
            first: None,
            latest: None,
            last: None,
            intervals: Vec::new(),
            interval,
            interval_end: cell.warmup + interval,
            measured_until: cell.warmup + cell.duration,
        }
    }

    /// Ends the present interval with what the layers have done by now.
    fn end_interval(&mut self, reading: Option<ClusterReading>) {
        if let Some((before, after)) = self.latest.as_ref().zip(reading.as_ref()) {
            self.intervals.push(Layers::between(before, after));
        }
        self.latest = reading.or(self.latest.take());
    }
}

impl<M: ClusterMeter> CellObserver for Metering<'_, M> {
    fn begin_measurement(&mut self) {
        self.first = self.meter.layers();
        self.latest = self.first.clone();
        self.begin = Some(TimedReading::take(self.meter));
    }

    fn end_measurement(&mut self) {
        self.end = Some(TimedReading::take(self.meter));
        self.last = self.meter.layers();
        // What is left is not much, as a rule.
        let left = self.measured_until.saturating_sub(self.interval_end - self.interval);
        if 2 * left >= self.interval || self.intervals.is_empty() {
            self.end_interval(self.last.clone());
        }
    }

    fn tick(&mut self, elapsed: Duration, total: Duration, sample: &LiveSample) {
        if self.first.is_some() && self.last.is_none() && elapsed >= self.interval_end {
            self.interval_end += self.interval;
            let reading = self.meter.layers();
            self.end_interval(reading);
        }
        self.progress.tick(elapsed, total, sample);
    }
}

#[cfg(test)]
#[path = "sweep_tests.rs"]
mod tests;
