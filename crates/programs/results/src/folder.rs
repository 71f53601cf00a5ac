//! A run's folder.
//!
//! Whoever measures makes it, keeps each cell as soon as it is measured, and ends it. Whoever reports opens it at any time,
//! also while the run goes on or after it was broken off.

use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use spandrel_fleet::{CellNumber, ResultKeeper, RunPlan, SweepRow};
use spandrel_shared::Error;

use crate::record::{CellRecord, FORMAT, RunRecord};
use crate::{diskspd_xml, tsv};

const RECORD_FILE: &str = "run.json";
const CELLS_FOLDER: &str = "cells";
const XML_FOLDER: &str = "xml";
const TABLE_FILE: &str = "result.tsv";
/// Whoever measures has it locked.
const LOCK_FILE: &str = "lock";
/// While it is there, the run pauses before its next cell.
const PAUSE_FILE: &str = "pause";

/// A run, and where it is kept.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
    record: RunRecord,
    cells: Vec<CellRecord>,
}

#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

impl RunFolder {
    /// Makes the folder of a run that begins.
    ///
    /// # Errors
    ///
    /// `FLEET_RESULTS_EXIST` if something is there already; `FLEET_RESULTS_UNWRITABLE` if it cannot be made.
    pub fn create(path: &Path, record: RunRecord) -> Result<Self, Error> {
        if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Error::new(
                "FLEET_RESULTS_EXIST",
                format!("the run cannot be kept in {}", path.display()),
                "there is something in it already",
                "name another folder with --results, or go on with a run that was broken off: `spandrel fleet run --resume DIR`",
            ));
        }
        let folder = Self { path: path.to_owned(), record, cells: Vec::new() };
        for part in [CELLS_FOLDER, XML_FOLDER] {
            fs::create_dir_all(path.join(part)).map_err(|error| folder.unwritable(&error))?;
        }
        folder.write_record()?;
        Ok(folder)
    }

    /// Opens the folder of a run.
    ///
    /// # Errors
    ///
    /// There is none (`FLEET_RESULTS_NOT_FOUND`), it is of a newer version (`FLEET_RESULTS_NEWER`), or something in it is not
    /// what it should be (`FLEET_RESULTS_BROKEN`).
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = path.join(RECORD_FILE);
        let text = fs::read(&file).map_err(|error| not_found(path, &error))?;
        let format: FormatOnly = parse(&file, &text)?;
        if format.format > FORMAT {
            return Err(Error::new(
                "FLEET_RESULTS_NEWER",
                format!("the run in {} cannot be read", path.display()),
                format!("its version is {}, and this program knows those up to {FORMAT}", format.format),
                "read it with the newer program that made it",
            ));
        }
        let record: RunRecord = parse(&file, &text)?;
        let mut cells = Vec::new();
        let entries = fs::read_dir(path.join(CELLS_FOLDER)).map_err(|error| not_found(path, &error))?;
        for entry in entries {
            let file = entry.map_err(|error| not_found(path, &error))?.path();
            if file.extension().is_some_and(|extension| extension == "json") {
                let text = fs::read(&file).map_err(|error| not_found(path, &error))?;
                let cell: CellRecord = parse(&file, &text)?;
                if !is_of(&record.plan, cell.number) {
                    return Err(broken(&file, "it is of a cell that the run does not have"));
                }
                if cells.iter().any(|known: &CellRecord| known.number == cell.number) {
                    return Err(broken(&file, "another file has the same measurement"));
                }
                cells.push(cell);
            }
        }
        cells.sort_by_key(|cell| (cell.number.repeat, cell.number.cell));
        Ok(Self { path: path.to_owned(), record, cells })
    }

    /// Keeps others from measuring this run at the same time, until what is returned is dropped.
    ///
    /// # Errors
    ///
    /// `FLEET_RESULTS_IN_USE` if somebody does; `FLEET_RESULTS_UNWRITABLE`.
    pub fn lock(&self) -> Result<File, Error> {
        let file = File::create(self.path.join(LOCK_FILE)).map_err(|error| self.unwritable(&error))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(Error::new(
                "FLEET_RESULTS_IN_USE",
                format!("the run in {} cannot be gone on with", self.path.display()),
                "it goes on already, by another process",
                "wait until that has ended, or end it",
            )),
            Err(TryLockError::Error(error)) => Err(self.unwritable(&error)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is kept of the run as a whole.
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    /// What was measured so far, in the order in which it was to be measured.
    pub fn cells(&self) -> &[CellRecord] {
        &self.cells
    }

    /// Whether everything was measured.
    pub fn is_complete(&self) -> bool {
        self.cells.len() as u64 == self.record.plan.cells.len() as u64 * u64::from(self.record.plan.repeat)
    }

    /// Writes down what is to be minded about the run, beside what was known before.
    ///
    /// # Errors
    ///
    /// `FLEET_RESULTS_UNWRITABLE`.
    pub fn warn(&mut self, warnings: impl IntoIterator<Item = String>) -> Result<(), Error> {
        let known = self.record.warnings.len();
        for warning in warnings {
            if !self.record.warnings.contains(&warning) {
                self.record.warnings.push(warning);
            }
        }
        if self.record.warnings.len() == known { Ok(()) } else { self.write_record() }
    }

    /// Writes down how the run has ended.
    ///
    /// # Errors
    ///
    /// `FLEET_RESULTS_UNWRITABLE`.
    pub fn end(&mut self, stopped_by: Option<Error>) -> Result<(), Error> {
        self.record.ended_unix_ms = stopped_by.is_none().then(unix_ms);
        self.record.stopped_by = stopped_by;
        self.write_record()
    }

    /// Has the run pause before its next cell, or go on.
    ///
    /// # Errors
    ///
    /// `FLEET_RESULTS_UNWRITABLE`.
    pub fn set_paused(&self, is_paused: bool) -> Result<(), Error> {
        let file = self.path.join(PAUSE_FILE);
        let changed = if is_paused { fs::write(&file, b"") } else { fs::remove_file(&file) };
        match changed {
            Err(error) if is_paused || error.kind() != ErrorKind::NotFound => Err(self.unwritable(&error)),
            _ => Ok(()),
        }
    }

    fn write_record(&self) -> Result<(), Error> {
        self.write_json(Path::new(RECORD_FILE), &self.record)
    }

    fn write_json(&self, name: &Path, value: &impl serde::Serialize) -> Result<(), Error> {
        let text =
            serde_json::to_vec(value).expect("results are numbers, texts and lists, all of which JSON has");
        self.write(name, &text)
    }

    /// Writes a file of the folder whole, in place of one that is there.
    fn write(&self, name: &Path, bytes: &[u8]) -> Result<(), Error> {
        let path = self.path.join(name);
        let draft = path.with_extension("draft");
        let write = || {
            let mut file = File::create(&draft)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            drop(file);
            fs::rename(&draft, &path)?;
            // That it is called so must last, too.
            path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
        };
        write().map_err(|error| self.unwritable(&error))
    }

    fn unwritable(&self, error: &std::io::Error) -> Error {
        Error::new(
            "FLEET_RESULTS_UNWRITABLE",
            format!("the run cannot be kept in {}", self.path.display()),
            error.to_string(),
            "make room there or let this user write there, and go on with `spandrel fleet run --resume DIR`; or name another \
             folder with --results",
        )
    }
}

impl ResultKeeper for RunFolder {
    fn has(&self, number: CellNumber) -> bool {
        self.cells.iter().any(|cell| cell.number == number)
    }

    fn keep(&mut self, number: CellNumber, row: &SweepRow) -> Result<(), Error> {
        let cell = CellRecord::new(number, row, unix_ms());
        let load = load_name(&cell);
        for client in &cell.result.clients {
            let name =
                format!("result-{load}-c{}r{}-{}.xml", number.cell + 1, number.repeat + 1, client.name);
            let text = diskspd_xml::of_client(&self.record, &cell, client);
            // All that stands there is in the cell's own file, too: it need not last by itself.
            let path = self.path.join(XML_FOLDER).join(name);
            fs::write(path, text).map_err(|error| self.unwritable(&error))?;
        }
        let name = format!("{:03}-{load}-r{}.json", number.cell + 1, number.repeat + 1);
        // It counts from here on.
        self.write_json(&Path::new(CELLS_FOLDER).join(name), &cell)?;
        self.cells.push(cell);
        self.write(Path::new(TABLE_FILE), tsv::table(&self.record, &self.cells).as_bytes())
    }

    fn is_paused(&mut self) -> bool {
        self.path.join(PAUSE_FILE).exists()
    }
}

/// Whether a plan has a measurement.
fn is_of(plan: &RunPlan, number: CellNumber) -> bool {
    (number.cell as usize) < plan.cells.len() && number.repeat < plan.repeat
}

/// A cell's load in VMFleet's letters, for names of files: `b4t1o8w30pr`, with the block size in KiB.
fn load_name(cell: &CellRecord) -> String {
    let spec = &cell.result.spec;
    let block = f64::from(spec.block_size_bytes) / 1024.0;
    let pattern = match spec.pattern {
        spandrel_fleet::Pattern::Random => "r",
        spandrel_fleet::Pattern::Sequential => "s",
        spandrel_fleet::Pattern::Interlocked => "si",
    };
    format!("b{block}t{}o{}w{}p{pattern}", spec.threads, spec.outstanding, spec.write_percent)
}

fn parse<T: DeserializeOwned>(file: &Path, text: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(text).map_err(|error| broken(file, &error.to_string()))
}

fn broken(file: &Path, why: &str) -> Error {
    Error::new(
        "FLEET_RESULTS_BROKEN",
        format!("{} is no part of a run's results", file.display()),
        why,
        "take the file away, or get it from where it came from once more; the run can be gone on with, `spandrel fleet run \
         --resume DIR` measures what is not there",
    )
}

fn not_found(path: &Path, error: &std::io::Error) -> Error {
    Error::new(
        "FLEET_RESULTS_NOT_FOUND",
        format!("there is no run in {}", path.display()),
        error.to_string(),
        "name the folder of a run: `spandrel fleet run` tells it when it begins",
    )
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "folder_tests.rs"]
pub(crate) mod tests;
