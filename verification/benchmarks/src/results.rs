//! All that was measured in a run, and what it says: the medians, the ratios and whether floors hold.
//!
//! A machine that others use is slower in one minute than in the next. So each load is put on all contenders one right after
//! the other, in rounds; a ratio is taken within a round, and the median of the rounds is what counts.

use serde::{Deserialize, Serialize};

use crate::cell::{Cell, Figure};
use crate::fio::Measurement;

/// The contender that floors and goals are about.
pub const OWN: &str = "spandrel";

/// A measurement, and of what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The name of the cell.
    pub cell: String,
    /// The name of the contender.
    pub contender: String,
    /// From 0 on.
    pub round: u32,
    /// What came of it.
    pub measurement: Measurement,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Cores of the machine.
    pub cores: usize,
    /// How much was read and written within, in bytes.
    pub size_bytes: u64,
    /// How long each measurement took, in seconds.
    pub measured_seconds: f64,
    /// All measurements, in the order in which they were taken.
    pub samples: Vec<Sample>,
}

/// The middle of some values, the least and the most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// The value in the middle; of two in the middle, what is between them.
    pub value: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Median {
    /// None if there are no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let upper = *values.get(values.len() / 2)?;
        let lower = if values.len() % 2 == 1 { upper } else { values[values.len() / 2 - 1] };
        Some(Self { value: (lower + upper) / 2.0, least: values[0], most: *values.last()? })
    }
}

/// Whether a cell came to what it was to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// Its figure against that of the contender that the floor names.
    pub ratio: Median,
    /// Whether the median is within the floor.
    pub holds: bool,
}

impl Results {
    /// The measurements of a contender in a cell, by their rounds.
    fn of<'run>(&'run self, cell: &Cell, contender: &str) -> impl Iterator<Item = (u32, &'run Measurement)> {
        let is_meant = move |sample: &&'run Sample| sample.cell == cell.name && sample.contender == contender;
        self.samples.iter().filter(is_meant).map(|sample| (sample.round, &sample.measurement))
    }

    /// A value of each measurement of a contender in a cell.
    pub fn median(&self, cell: &Cell, contender: &str, value: fn(&Measurement) -> f64) -> Option<Median> {
        Median::of(self.of(cell, contender).map(|(_, measurement)| value(measurement)))
    }

    /// What is judged, of a contender.
    pub fn figure(&self, cell: &Cell, contender: &str) -> Option<Median> {
        self.median(cell, contender, value_of(cell.figure))
    }

    /// Our figure against that of a contender, round by round.
    pub fn ratio(&self, cell: &Cell, contender: &str) -> Option<Median> {
        let value = value_of(cell.figure);
        let ratio = |(round, own): (u32, &Measurement)| {
            let (_, other) = self.of(cell, contender).find(|(other, _)| *other == round)?;
            Some(value(own) / value(other))
        };
        Median::of(self.of(cell, OWN).filter_map(ratio))
    }

    /// None if the cell has no floor, or one of the two was not measured.
    pub fn judge(&self, cell: &Cell) -> Option<Judgement> {
        let (contender, floor) = cell.floor?;
        let ratio = self.ratio(cell, contender)?;
        let holds = if cell.figure.is_rate() { ratio.value >= floor } else { ratio.value <= floor };
        Some(Judgement { ratio, holds })
    }

    /// Whether the goal is reached; none if there is none, or it was not measured.
    pub fn reaches_goal(&self, cell: &Cell) -> Option<bool> {
        let (figure, goal) = (self.figure(cell, OWN)?.value, cell.goal?);
        Some(if cell.figure.is_rate() { figure >= goal } else { figure <= goal })
    }
}

impl Measurement {
    /// I/Os a second for each busy core.
    pub fn iops_per_core(&self) -> f64 {
        self.iops / self.busy_cores
    }
}

fn value_of(figure: Figure) -> fn(&Measurement) -> f64 {
    match figure {
        Figure::IopsPerCore => Measurement::iops_per_core,
        Figure::LatencyMean => |measurement| measurement.latency_mean_us,
        Figure::Iops => |measurement| measurement.iops,
    }
}

#[cfg(test)]
#[path = "results_tests.rs"]
mod tests;
