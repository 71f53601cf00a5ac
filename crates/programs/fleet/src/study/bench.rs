//! Clients on one cluster of a study, and how a row is measured.

use std::time::Duration;

use spandrel_shared::size::format_size;
use spandrel_shared::{CacheMode, Error};

use super::cluster::StudyCluster;
use super::machine::{MachineReading, MachineUse};
use super::report::StudyRow;
use super::settle::{is_steady, is_warm};
use crate::arguments::VolumeRequest;
use crate::cell::{fill, read_through, run_while};
use crate::progress::Progress;
use crate::result::CellResult;
use crate::spec::CellSpec;
use crate::sweep::run_metered_cell;
use crate::target::Target;

/// How long a row is measured, and the windows in which it is looked whether it is steady yet.
const MEASURED: Duration = Duration::from_secs(8);
const WINDOW: Duration = Duration::from_secs(1);
const WINDOW_MIN: Duration = Duration::from_millis(20);

/// A rate that is not steady after so many windows is measured as it is.
const WINDOWS_MAX: usize = 20;

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

    fn window(self) -> Duration {
        WINDOW.mul_f64(self.scale).max(WINDOW_MIN)
    }

    /// How long a row is measured, and before that, at least.
    pub(super) fn of_row(self) -> Duration {
        self.window() + MEASURED.mul_f64(self.scale)
    }
}

/// A cluster under study.
pub(super) struct Bench<'study, C> {
    cluster: &'study mut C,
    progress: &'study mut dyn Progress,
    times: StudyTimes,
    targets: Vec<Target>,
    /// The number of the next row among all of the study.
    row: usize,
    /// The seed of the last load. Each has its own: one that went where the load before it went would find all of that in
    /// the cache, however large the working set is.
    seed: u64,
    mode: CacheMode,
    /// Whether the caches have what they will of what the clients use.
    is_warm: bool,
}

impl<'study, C: StudyCluster> Bench<'study, C> {
    /// A cluster without clients yet, whose first row is the study's number `row`.
    pub(super) fn new(
        cluster: &'study mut C,
        progress: &'study mut dyn Progress,
        times: StudyTimes,
        row: usize,
    ) -> Self {
        Self {
            cluster,
            progress,
            times,
            targets: Vec::new(),
            row,
            seed: 0,
            mode: CacheMode::Off,
            is_warm: true,
        }
    }

    /// The room of all cache drives.
    pub(super) fn cache_room_bytes(&mut self) -> Result<u64, Error> {
        Ok(self.cluster.read_caches()?.room_bytes)
    }

    /// Gives each client a volume, and writes all of it past the cache.
    pub(super) fn fill(&mut self, clients: u32, volume_bytes: u64) -> Result<(), Error> {
        self.set_mode(CacheMode::Off)?;
        self.targets =
            self.cluster.make_volumes(&VolumeRequest { count: clients, size_bytes: volume_bytes })?;
        let progress = &mut *self.progress;
        fill(&self.targets, Some(volume_bytes), 0, |done, total| progress.filling(done, total))?;
        self.progress.filled();
        self.drain()
    }

    /// Uses the cache drives like this from now on.
    pub(super) fn set_mode(&mut self, mode: CacheMode) -> Result<(), Error> {
        self.cluster.set_cache_mode(mode)?;
        (self.mode, self.is_warm) = (mode, true);
        Ok(())
    }

    /// Moves all that stands on cache drives alone to the drives behind them; they cache nothing then.
    pub(super) fn drain(&mut self) -> Result<(), Error> {
        self.set_mode(CacheMode::Off)?;
        if self.cluster.read_caches()?.dirty_bytes == 0 {
            return Ok(());
        }
        self.progress.step("moving what stands on cache drives alone to the drives behind them");
        let progress = &mut *self.progress;
        self.cluster
            .await_clean(&mut |left| progress.step_detail(&format!("{} to be moved", format_size(left))))
    }

    /// Reads what the clients use again and again, until the cache drives have of it what they will.
    pub(super) fn warm(&mut self, working_set_bytes: u64) -> Result<(), Error> {
        self.progress.step(&format!("warming the cache ({})", self.mode));
        let mut hit_percents = Vec::new();
        while !is_warm(&hit_percents) && hit_percents.len() < PASSES_MAX {
            let before = self.cluster.read_caches()?;
            let (progress, pass) = (&mut *self.progress, hit_percents.len() + 1);
            let last = hit_percents.last().map(|hit: &f64| format!("; the one before had {hit:.0} %"));
            let last = last.unwrap_or_default();
            read_through(&self.targets, working_set_bytes, |done, _| {
                progress.step_detail(&format!("pass {pass}, {} read{last}", format_size(done)));
            })?;
            let pass = self.cluster.read_caches()?.since(&before);
            hit_percents.push(pass.hit_percent().unwrap_or(0.0));
        }
        self.is_warm = is_warm(&hit_percents);
        Ok(())
    }

    /// Puts a load on the cluster, and measures it when it is steady.
    pub(super) fn measure(&mut self, name: impl Into<String>, load: &CellSpec) -> Result<StudyRow, Error> {
        let is_steady = self.settle(load)? && self.is_warm;
        let cell = CellSpec {
            seed: self.next_seed(),
            warmup: self.times.window(),
            duration: MEASURED.mul_f64(self.times.scale),
            ..load.clone()
        };
        let cache_before = self.cluster.read_caches()?;
        let machine_before = MachineReading::take();
        self.progress.begin_cell(self.row, &cell);
        let row = run_metered_cell(&cell, &self.targets, self.cluster, self.progress)?;
        let machine = MachineUse::between(machine_before, MachineReading::take());
        self.progress.end_cell(self.row, &row);
        self.row += 1;
        Ok(StudyRow {
            name: name.into(),
            cache_mode: self.mode,
            working_set_bytes: cell.working_set_bytes.unwrap_or(0) * self.targets.len() as u64,
            cell: row.cell,
            usage: row.usage,
            cache: self.cluster.read_caches()?.since(&cache_before),
            machine,
            is_steady,
        })
    }

    fn next_seed(&mut self) -> u64 {
        self.seed += 1;
        self.seed
    }

    /// Puts a load on the cluster until its rate is steady; whether it has become so.
    fn settle(&mut self, load: &CellSpec) -> Result<bool, Error> {
        self.progress.step(&format!("waiting until the rate is steady ({})", self.mode));
        let load = CellSpec { seed: self.next_seed(), ..load.clone() };
        let progress = &mut *self.progress;
        let mut windows = Vec::new();
        let result = run_while(&self.targets, &load, self.times.window(), |sample| {
            progress.step_detail(&format!("{:.0} IOPS", sample.iops));
            windows.push((sample.iops * sample.interval.as_secs_f64()).round() as u64);
            !is_steady(&windows) && windows.len() < WINDOWS_MAX
        })?;
        match result.has_failures() {
            false => Ok(is_steady(&windows)),
            true => Err(load_failed(&result)),
        }
    }
}

fn load_failed(result: &CellResult) -> Error {
    let why = match result.failures.first() {
        Some(failure) => format!("client {}: {}", failure.client, failure.reason),
        None => format!("{} I/Os were not answered", result.unanswered),
    };
    Error::new(
        "FLEET_STUDY_FAILED",
        "the study cannot go on: I/Os of its clients failed",
        why,
        "run it again when the machine does nothing else; if it fails again, report this",
    )
}
