//! Comparisons: two clusters under the same load in alternation, and what the ratios of all rounds say.
//!
//! A machine that others use is slower in one minute than in the next, and both clusters with it. So the two sides are
//! measured one right after the other, in rounds, and only ratios within a round are judged: by their median, which a few
//! disturbed rounds do not move. Their least and most stand beside it.

use serde::{Deserialize, Serialize};

use super::report::StudyRow;
use super::shape::{Goal, Shape, ratio};
use crate::output::{count_text, short};
use crate::text::aligned;

/// Two clusters under one load, in rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What was measured.
    pub title: String,
    /// The rounds, in order.
    pub rounds: Vec<Round>,
}

/// The two measurements of a round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// What is compared with.
    pub base: StudyRow,
    /// What is compared.
    pub row: StudyRow,
}

/// What is measured of a row.
type Measure = fn(&StudyRow) -> Option<f64>;

impl Comparison {
    /// The ratio of each round: none where a side was not measured, or with failures.
    fn ratios(&self, measure: Measure) -> Vec<Option<f64>> {
        self.rounds.iter().map(|round| ratio(measure(&round.row), measure(&round.base))).collect()
    }

    /// Judges the median of the rounds' ratios.
    pub(super) fn judge(&self, name: &str, measure: Measure, goal: Goal) -> Shape {
        Shape::judge_rounds(name, &self.ratios(measure), goal)
    }

    /// A line for each side with its medians, and one for the ratios.
    pub(super) fn render(&self) -> String {
        let heads = ["", "CPU us/IO", "of clients", "mean us", "IOPS", "from cache", "moved", "dirty"];
        let mut lines = vec![heads.map(str::to_owned).to_vec()];
        let sides: [fn(&Round) -> &StudyRow; 2] = [|round| &round.base, |round| &round.row];
        for side in sides {
            let Some(first) = self.rounds.first() else { continue };
            let of = |measure: Measure, text: fn(f64) -> String| {
                let values: Vec<f64> = self.rounds.iter().filter_map(|round| measure(side(round))).collect();
                median(&values).map_or("-".to_owned(), text)
            };
            lines.push(vec![
                side(first).name.clone(),
                of(StudyRow::cluster_cpu_us, short),
                of(StudyRow::clients_cpu_us, short),
                of(StudyRow::mean_us, short),
                of(StudyRow::iops, count_text),
                of(|row| row.cache.hit_percent(), |percent| format!("{percent:.0} %")),
                of(StudyRow::moved_ratio, |ratio| format!("{ratio:.1} x")),
                of(StudyRow::dirty_percent, |percent| format!("{percent:.0} %")),
            ]);
        }
        let of = |measure: Measure| self.judge("", measure, Goal::AtLeast(0.0)).ratio_text();
        let measures: [Measure; 4] =
            [StudyRow::cluster_cpu_us, StudyRow::clients_cpu_us, StudyRow::mean_us, StudyRow::iops];
        lines.push(["ratio".to_owned()].into_iter().chain(measures.map(of)).collect());
        format!("{}\n{}", self.title, aligned(&lines, &[0]))
    }
}

/// The value in the middle; of two in the middle, what is between them. None if there are none.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some((sorted[sorted.len() / 2 - 1] + upper) / 2.0)
}

#[cfg(test)]
#[path = "comparison_tests.rs"]
mod tests;
