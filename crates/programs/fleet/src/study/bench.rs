//! Clients on one cluster of a study, and how a row is measured.

use std::cell::{Cell, RefCell, RefMut};
use std::ops::Range;
use std::time::Duration;

use spandrel_shared::size::format_size;
use spandrel_shared::{CacheMode, Error};

use super::cluster::StudyCluster;
use super::machine::{MachineReading, MachineUse};
use super::report::StudyRow;
use super::settle::{is_emptied_as_filled, is_steady, is_warm};
use crate::arguments::VolumeRequest;
use crate::cell::{fill, read_through, run_while};
use crate::meter::CacheReading;
use crate::progress::Progress;
use crate::result::CellResult;
use crate::spec::CellSpec;
use crate::sweep::run_metered_cell;
use crate::target::Target;

/// How long a row is measured, and the windows in which it is looked whether it is steady yet.
const MEASURED: Duration = Duration::from_secs(8);
const WINDOW: Duration = Duration::from_secs(1);
/// A row must have I/Os to be one: on a machine that compiles beside, one client alone had none done in 30 ms.
const MEASURED_MIN: Duration = Duration::from_millis(200);
const WINDOW_MIN: Duration = Duration::from_millis(20);

/// A rate that is not steady after so many windows is measured as it is.
const WINDOWS_MAX: usize = 20;

/// The same of windows in which caches are filled.
const RIPE_WINDOWS_MAX: usize = 150;

/// The same of passes over the working set.
const PASSES_MAX: usize = 8;

/// How long a study's measurements take.
#[derive(Clone, Copy, Debug)]
pub(super) struct StudyTimes {
    scale: f64,
}

impl StudyTimes {
    pub(super) fn new(scale: f64) -> Self {
        Self { scale }
    }

    /// The same, for measurements of which so many take the place of one.
    pub(super) fn shared(self, turns: u32) -> Self {
        Self { scale: self.scale / f64::from(turns) }
    }

    fn window(self) -> Duration {
        WINDOW.mul_f64(self.scale).max(WINDOW_MIN)
    }

    fn measured(self) -> Duration {
        MEASURED.mul_f64(self.scale).max(MEASURED_MIN)
    }

    /// How long a row is measured, and before that, at least.
    pub(super) fn of_row(self) -> Duration {
        self.window() + self.measured()
    }
}

/// What all clusters of a study have in common: who hears how it gets on, how long measurements take, and their numbers.
pub(super) struct Course<'progress> {
    progress: RefCell<&'progress mut dyn Progress>,
    pub(super) times: StudyTimes,
    /// The number of the next row.
    row: Cell<usize>,
}

impl<'progress> Course<'progress> {
    /// Begins a study of so many rows.
    pub(super) fn begin(
        progress: &'progress mut dyn Progress,
        times: StudyTimes,
        rows: usize,
        clients: u32,
    ) -> Self {
        progress.begin(rows, clients as usize, times.of_row() * u32::try_from(rows).unwrap_or(u32::MAX));
        Self { progress: RefCell::new(progress), times, row: Cell::new(0) }
    }

    /// Something begins that is no row.
    pub(super) fn step(&self, text: &str) {
        self.progress().step(text);
    }

    /// The study has ended.
    pub(super) fn end(self) {
        self.progress().end();
    }

    fn progress(&self) -> RefMut<'_, &'progress mut dyn Progress> {
        self.progress.borrow_mut()
    }
}

/// A cluster under study.
pub(super) struct Bench<'study, 'progress, C> {
    cluster: &'study mut C,
    course: &'study Course<'progress>,
    targets: Vec<Target>,
    /// The seed of the last load. Each has its own: one that went where the load before it went would find all of that in
    /// the cache, however large the working set is.
    seed: u64,
    mode: CacheMode,
    /// Whether the caches have what they will of what the clients use, or are emptied as fast as they are filled where that
    /// was waited for.
    are_caches_settled: bool,
}

impl<'study, 'progress, C: StudyCluster> Bench<'study, 'progress, C> {
    /// A cluster without clients yet.
    pub(super) fn new(cluster: &'study mut C, course: &'study Course<'progress>) -> Self {
        Self { cluster, course, targets: Vec::new(), seed: 0, mode: CacheMode::Off, are_caches_settled: true }
    }

    /// What all cache drives hold.
    pub(super) fn read_caches(&mut self) -> Result<CacheReading, Error> {
        self.cluster.read_caches()
    }

    /// Gives each client a volume, and writes all of it past the cache.
    pub(super) fn fill(&mut self, clients: u32, volume_bytes: u64) -> Result<(), Error> {
        self.set_mode(CacheMode::Off)?;
        self.targets = self.cluster.make_volumes(&VolumeRequest {
            count: clients,
            size_bytes: volume_bytes,
            aligned_percent: 100,
        })?;
        let mut progress = self.course.progress();
        fill(&self.targets, Some(volume_bytes), 0, |done, total| progress.filling(done, total))?;
        progress.filled();
        drop(progress);
        self.drain()
    }

    /// Writes the first so many bytes of each client's volume, as the mode has it.
    pub(super) fn write_through(&mut self, bytes: u64) -> Result<(), Error> {
        let (seed, mut progress) = (self.next_seed(), self.course.progress());
        progress.step(&format!("writing part of it anew ({})", self.mode));
        fill(&self.targets, Some(bytes), seed, |done, _| {
            progress.step_detail(&format!("{} written", format_size(done)));
        })
    }

    /// Writes until the cache drives have moved as much as stands there alone: they are emptied as fast as they are filled
    /// from then on. What is measured after it knows whether it has come to that.
    pub(super) fn ripen(&mut self, load: &CellSpec) -> Result<(), Error> {
        let load = CellSpec { seed: self.next_seed(), ..load.clone() };
        let before = self.cluster.read_caches()?;
        let (cluster, mut progress) = (&mut *self.cluster, self.course.progress());
        progress.step(&format!(
            "writing until the cache drives are emptied as fast as they are filled ({})",
            self.mode
        ));
        let (mut windows, mut reading) = (0, Ok(before));
        let result = run_while(&self.targets, &load, self.course.times.window(), |sample| {
            windows += 1;
            reading = cluster.read_caches().map(|now| now.since(&before));
            let Ok(now) = &reading else { return false };
            progress.step_detail(&format!(
                "{:.0} IOPS, {} moved",
                sample.iops,
                format_size(now.destaged_bytes)
            ));
            !is_emptied_as_filled(now) && windows < RIPE_WINDOWS_MAX
        })?;
        drop(progress);
        self.are_caches_settled = is_emptied_as_filled(&reading?);
        refuse_failures(&result)
    }

    /// Uses the cache drives like this from now on.
    pub(super) fn set_mode(&mut self, mode: CacheMode) -> Result<(), Error> {
        self.cluster.set_cache_mode(mode)?;
        (self.mode, self.are_caches_settled) = (mode, true);
        Ok(())
    }

    /// Moves all that stands on cache drives alone to the drives behind them; they cache nothing then.
    pub(super) fn drain(&mut self) -> Result<(), Error> {
        self.set_mode(CacheMode::Off)?;
        if self.cluster.read_caches()?.dirty_bytes == 0 {
            return Ok(());
        }
        let mut progress = self.course.progress();
        progress.step("moving what stands on cache drives alone to the drives behind them");
        self.cluster
            .await_clean(&mut |left| progress.step_detail(&format!("{} to be moved", format_size(left))))
    }

    /// Reads what the clients use again and again, until the cache drives have of it what they will.
    pub(super) fn warm(&mut self, working_set_bytes: u64) -> Result<(), Error> {
        let mut progress = self.course.progress();
        progress.step(&format!("warming the cache ({})", self.mode));
        let mut hit_percents = Vec::new();
        while !is_warm(&hit_percents) && hit_percents.len() < PASSES_MAX {
            let before = self.cluster.read_caches()?;
            let pass = hit_percents.len() + 1;
            let last = hit_percents.last().map(|hit: &f64| format!("; the one before had {hit:.0} %"));
            let last = last.unwrap_or_default();
            read_through(&self.targets, working_set_bytes, |done, _| {
                progress.step_detail(&format!("pass {pass}, {} read{last}", format_size(done)));
            })?;
            let pass = self.cluster.read_caches()?.since(&before);
            hit_percents.push(pass.hit_percent().unwrap_or(0.0));
        }
        self.are_caches_settled = is_warm(&hit_percents);
        Ok(())
    }

    /// Puts a load on the cluster, and measures it when it is steady.
    pub(super) fn measure(&mut self, name: impl Into<String>, load: &CellSpec) -> Result<StudyRow, Error> {
        self.measure_clients(name, load, 0..self.targets.len(), self.course.times)
    }

    /// The same with some of the clients, for another time.
    pub(super) fn measure_clients(
        &mut self,
        name: impl Into<String>,
        load: &CellSpec,
        clients: Range<usize>,
        times: StudyTimes,
    ) -> Result<StudyRow, Error> {
        let is_steady = self.settle(load, clients.clone(), times)?;
        let cell = CellSpec {
            seed: self.next_seed(),
            warmup: times.window(),
            duration: times.measured(),
            ..load.clone()
        };
        let cache_before = self.cluster.read_caches()?;
        let machine_before = MachineReading::take();
        let (number, mut progress) = (self.course.row.get(), self.course.progress());
        progress.begin_cell(number, &cell);
        let row = run_metered_cell(&cell, &self.targets[clients.clone()], self.cluster, &mut **progress)?;
        let machine = MachineUse::between(machine_before, MachineReading::take());
        progress.end_cell(number, &row);
        self.course.row.set(number + 1);
        Ok(StudyRow {
            name: name.into(),
            cache_mode: self.mode,
            working_set_bytes: cell.working_set_bytes.unwrap_or(0) * clients.len() as u64,
            cell: row.cell,
            usage: row.usage,
            cache: self.cluster.read_caches()?.since(&cache_before),
            machine,
            is_steady,
            are_caches_settled: self.are_caches_settled,
        })
    }

    fn next_seed(&mut self) -> u64 {
        self.seed += 1;
        self.seed
    }

    /// Puts a load on the cluster until its rate is steady; whether it has become so.
    fn settle(&mut self, load: &CellSpec, clients: Range<usize>, times: StudyTimes) -> Result<bool, Error> {
        let load = CellSpec { seed: self.next_seed(), ..load.clone() };
        let mut progress = self.course.progress();
        progress.step(&format!("waiting until the rate is steady ({})", self.mode));
        let mut windows = Vec::new();
        let result = run_while(&self.targets[clients], &load, times.window(), |sample| {
            progress.step_detail(&format!("{:.0} IOPS", sample.iops));
            windows.push((sample.iops * sample.interval.as_secs_f64()).round() as u64);
            !is_steady(&windows) && windows.len() < WINDOWS_MAX
        })?;
        refuse_failures(&result)?;
        Ok(is_steady(&windows))
    }
}

fn refuse_failures(result: &CellResult) -> Result<(), Error> {
    if !result.has_failures() {
        return Ok(());
    }
    let why = match result.failures.first() {
        Some(failure) => format!("client {}: {}", failure.client, failure.reason),
        None => format!("{} I/Os were not answered", result.unanswered),
    };
    Err(Error::new(
        "FLEET_STUDY_FAILED",
        "the study cannot go on: I/Os of its clients failed",
        why,
        "run it again when the machine does nothing else; if it fails again, report this",
    ))
}
