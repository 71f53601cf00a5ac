//! A run: every cell of a plan, as often as the plan says, each kept as soon as it is measured.
//!
//! A run goes through all cells once, and then once more for each further repeat: what changes over hours then falls on all
//! cells alike. What is kept already is not measured again, so a run that was broken off goes on where it was.
//!
//! Invariants:
//! - A cell counts as measured when whoever keeps it has said so. Whatever ends the run, what was kept stays.
//! - A cell in which a client lost its connection counts as not measured, and ends the run.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use spandrel_shared::Error;

use crate::cell::fill;
use crate::meter::ClusterMeter;
use crate::profile::RunPlan;
use crate::progress::Progress;
use crate::spec::CellSpec;
use crate::sweep::{SweepRow, run_metered_cell};
use crate::target::Target;
use crate::text::counted;

/// Which measurement of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CellNumber {
    /// Which of the plan's cells, from 0.
    pub cell: u32,
    /// Which time, from 0.
    pub repeat: u32,
}

/// Keeps what was measured.
pub trait ResultKeeper {
    /// Whether a cell is kept already.
    fn has(&self, number: CellNumber) -> bool;

    /// Keeps a cell.
    ///
    /// # Errors
    ///
    /// It cannot be kept. The run ends then.
    fn keep(&mut self, number: CellNumber, row: &SweepRow) -> Result<(), Error>;

    /// Whether the run is to pause before the next cell. It goes on when this says no.
    fn is_paused(&mut self) -> bool {
        false
    }
}

/// How often it is looked whether a run still pauses.
const PAUSE_LOOK: Duration = Duration::from_millis(200);

/// The cells of a plan in the order in which they are measured.
pub fn order(plan: &RunPlan) -> impl Iterator<Item = CellNumber> + use<> {
    let cells = u32::try_from(plan.cells.len()).expect("the lists of a profile are bounded");
    let repeats = plan.repeat;
    (0..repeats).flat_map(move |repeat| (0..cells).map(move |cell| CellNumber { cell, repeat }))
}

/// Measures the cells of `plan` that are not kept yet. The `volumes` are written over, and filled before the first cell; `filled` is
/// called then, may have something to keep, and tells what the clients use, one for each volume.
///
/// # Errors
///
/// What ended the run before its last cell. What was kept until then stays.
pub fn run_plan<K: ResultKeeper>(
    plan: &RunPlan,
    volumes: &[Target],
    meter: &mut impl ClusterMeter,
    keeper: &mut K,
    filled: impl FnOnce(&mut K) -> Result<Vec<Target>, Error>,
    progress: &mut dyn Progress,
) -> Result<(), Error> {
    let left: Vec<CellNumber> = order(plan).filter(|number| !keeper.has(*number)).collect();
    let cell_of = |number: &CellNumber| &plan.cells[number.cell as usize];
    let duration = left.iter().map(|number| cell_of(number).duration_in_all()).sum();
    progress.begin(left.len(), volumes.len(), duration);
    let targets = match left.is_empty() {
        true => Vec::new(),
        false => {
            fill(volumes, Some(plan.volume_bytes()), 0, |done, total| progress.filling(done, total))?;
            progress.filled();
            filled(keeper)?
        }
    };
    for (index, number) in left.into_iter().enumerate() {
        if keeper.is_paused() {
            progress.step("paused");
            while keeper.is_paused() {
                std::thread::park_timeout(PAUSE_LOOK);
            }
        }
        progress.begin_cell(index, cell_of(&number));
        // Places that an earlier cell has just been to would be found in caches.
        let seed = 1 + u64::from(number.repeat) * plan.cells.len() as u64 + u64::from(number.cell);
        let cell = CellSpec { seed, ..cell_of(&number).clone() };
        let row = run_metered_cell(&cell, &targets, meter, progress)?;
        progress.end_cell(index, &row);
        if row.cell.clients_lost > 0 {
            return Err(clients_lost(row.cell.clients_lost));
        }
        keeper.keep(number, &row)?;
    }
    progress.end();
    Ok(())
}

fn clients_lost(count: u64) -> Error {
    Error::new(
        "FLEET_CLIENTS_LOST",
        "the run was stopped, and its last cell counts as not measured",
        format!("{} lost the connection", counted(count, "client")),
        "see the servers' logs, and go on with `spandrel fleet run --resume DIR`",
    )
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
