//! Shapes: what was expected of a study before it was run, and whether it was found.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::comparison::median;
use crate::result::Spread;
use crate::text::aligned;

/// What a ratio is to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// So much or more.
    AtLeast(f64),
    /// So much or less.
    AtMost(f64),
    /// Anything: it is told beside what is judged.
    Told,
}

impl Goal {
    fn is_met_by(self, ratio: f64) -> bool {
        match self {
            // Written so that what is no number meets nothing.
            Self::AtLeast(least) => ratio >= least,
            Self::AtMost(most) => ratio <= most,
            Self::Told => true,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(formatter, "at least {least:.2}"),
            Self::AtMost(most) => write!(formatter, "at most {most:.2}"),
            Self::Told => write!(formatter, "no bound"),
        }
    }
}

/// An expected shape, and what was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// What of what.
    pub name: String,
    /// The ratio that was measured, of several rounds their median; absent if one of its sides was not, or with failures.
    pub ratio: Option<f64>,
    /// How far the rounds are apart; absent if it was measured once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// What it is to be.
    pub goal: Goal,
    /// Whether it is. What was not measured is not.
    pub holds: bool,
}

impl Shape {
    /// Judges a ratio.
    pub fn judge(name: impl Into<String>, ratio: Option<f64>, goal: Goal) -> Self {
        let holds = ratio.is_some_and(|ratio| goal.is_met_by(ratio));
        Self { name: name.into(), ratio, spread: None, goal, holds }
    }

    /// Judges the median of several rounds' ratios, of which none may lack.
    pub fn judge_rounds(name: impl Into<String>, ratios: &[Option<f64>], goal: Goal) -> Self {
        let ratios: Vec<f64> = ratios.iter().copied().collect::<Option<_>>().unwrap_or_default();
        let spread = (!ratios.is_empty()).then(|| Spread::of(ratios.iter().copied()));
        Self { spread, ..Self::judge(name, median(&ratios), goal) }
    }

    fn verdict(&self) -> &'static str {
        match (self.holds, self.goal) {
            (true, Goal::Told) => "TOLD",
            (false, Goal::Told) => "NOT MEASURED",
            (true, _) => "HOLDS",
            (false, _) => "DOES NOT HOLD",
        }
    }

    /// The ratio, and its spread if it has one.
    pub(super) fn ratio_text(&self) -> String {
        let ratio = self.ratio.map_or("not measured".to_owned(), |ratio| format!("{ratio:.2} x"));
        match self.spread {
            Some(spread) => format!("{ratio} ({:.2} to {:.2})", spread.min, spread.max),
            None => ratio,
        }
    }
}

/// How many times `base` something is; none if one of them was not measured.
pub(super) fn ratio(value: Option<f64>, base: Option<f64>) -> Option<f64> {
    let (value, base) = value.zip(base)?;
    (base > 0.0).then(|| value / base)
}

/// By how much a curve that is to fall lies above the lowest point before at most, as a ratio: 1 or less if it falls
/// everywhere. None if a point was not measured, or there are not two.
pub(super) fn rise_max(points: &[Option<f64>]) -> Option<f64> {
    let points: Vec<f64> = points.iter().copied().collect::<Option<_>>()?;
    let mut lowest = *points.first()?;
    let rises = points[1..].iter().map(|point| {
        let rise = ratio(Some(*point), Some(lowest));
        lowest = lowest.min(*point);
        rise
    });
    rises.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)
}

/// A line for each shape.
pub(super) fn render(shapes: &[Shape]) -> String {
    let line = |shape: &Shape| {
        vec![shape.verdict().to_owned(), shape.ratio_text(), format!("({})", shape.goal), shape.name.clone()]
    };
    aligned(&shapes.iter().map(line).collect::<Vec<_>>(), &[0, 2, 3])
}

#[cfg(test)]
#[path = "shape_tests.rs"]
mod tests;
