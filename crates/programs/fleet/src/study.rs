//! Studies: what a part of the system gains or costs, measured from beginning to end by one command and judged by shapes
//! that were fixed beforehand.
//!
//! A study makes its own clusters, puts load on them in the states that are to be compared, and says for each expected shape
//! whether it was found. It measures ratios, not speeds. What the media gain is measured with simulated ones, slow enough that
//! they and not the processor are what is measured; what a feature costs the processor, with media as fast as memory.
//!
//! Reading order: `cluster` (what a study needs of whoever makes its clusters), `bench` (clients on one cluster, and how a
//! row is measured), `settle` (when a measurement may begin), `comparison` (two clusters in turns), `shape` (judgement),
//! `report` (what is said in the end), and then the studies themselves: `cache`, `cache_cost`.
//!
//! Invariants:
//! - A shape is judged by what was measured alone. What was not measured, or with failures, does not hold.
//! - Nothing is measured before it is steady, by conditions and not by times. What does not become so within a bound is
//!   measured as it is, and the report says so.
//! - A cluster is removed however its study ends.

mod bench;
mod cache;
mod cache_cost;
mod cluster;
mod comparison;
mod machine;
mod report;
mod settle;
mod shape;
#[cfg(test)]
mod testing;

use std::io::Write;

use clap::{Args, Subcommand, ValueEnum};
use spandrel_shared::Error;

pub use self::cache::CacheStudyArguments;
pub use self::cache_cost::CacheCostStudyArguments;
pub use self::cluster::{CapacityMedia, SimulatedMedia, StudyCluster, StudyClusterSpec, StudyLab};
pub use self::comparison::{Comparison, Round};
pub use self::machine::MachineUse;
pub use self::report::{StudyReport, StudyRow, StudyTable};
pub use self::shape::{Goal, Shape};
use crate::progress::Progress;

/// `spandrel fleet study`.
#[derive(Clone, Debug, Args)]
pub struct StudyArguments {
    /// Which study.
    #[command(subcommand)]
    pub command: StudyCommand,
}

/// The studies.
#[derive(Clone, Debug, Subcommand)]
pub enum StudyCommand {
    /// The cache tier: what NVMe in front of SATA SSDs and of disks gains, mode by mode
    Cache(CacheStudyArguments),
    /// What a cache drive costs: the processor's time that it takes where media are no limit
    CacheCost(CacheCostStudyArguments),
}

/// How a study's report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum StudyOutput {
    /// Tables for people.
    #[default]
    Table,
    /// Everything that was measured, for programs.
    Json,
}

impl StudyArguments {
    /// Carries the study out and writes its report to `output`.
    ///
    /// # Errors
    ///
    /// What kept the study from its end. That a shape does not hold is no error: see [`StudyReport::all_hold`].
    pub fn run(
        &self,
        lab: &mut impl StudyLab,
        progress: &mut dyn Progress,
        output: &mut impl Write,
    ) -> Result<StudyReport, Error> {
        let (report, output_format) = match &self.command {
            StudyCommand::Cache(arguments) => (arguments.run(lab, progress)?, arguments.output),
            StudyCommand::CacheCost(arguments) => (arguments.run(lab, progress)?, arguments.output),
        };
        let text = match output_format {
            StudyOutput::Table => report.table(),
            StudyOutput::Json => report.json(),
        };
        output.write_all(text.as_bytes()).map_err(|error| {
            let next = "send the output somewhere that can take it";
            Error::new("FLEET_OUTPUT_FAILED", "the report cannot be written", error.to_string(), next)
        })?;
        Ok(report)
    }
}

/// A factor that is more than nothing.
fn parse_factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor > 0.0 && factor <= FACTOR_MAX => Ok(factor),
        _ => Err(format!("{text:?} is no factor: write a number above 0 and up to {FACTOR_MAX}, as 0.5")),
    }
}

/// More is a slip of the hand.
const FACTOR_MAX: f64 = 1000.0;

#[cfg(test)]
#[path = "study_tests.rs"]
mod tests;
