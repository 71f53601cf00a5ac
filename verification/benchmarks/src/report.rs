//! The results for people: a table for each load, then the floors and the goals.

use std::fmt::Write as _;

use spandrel_fleet::{aligned, count_text, short};

use crate::cell::Cell;
use crate::contender::Known;
use crate::fio::Measurement;
use crate::results::{Median, OWN, Results};

/// All of it.
pub fn render(results: &Results, cells: &[Cell], contenders: &[Known]) -> String {
    let mut text = String::new();
    for cell in cells {
        let _ = writeln!(text, "{}\n{}", title(cell), aligned(&lines(results, cell, contenders), &[0, 6]));
    }
    text + &aligned(&verdicts(results, cells), &[0, 3])
}

/// Whether no floor was missed. One that was not measured is none that holds.
pub fn all_hold(results: &Results, cells: &[Cell]) -> bool {
    let has_floor = |cell: &&Cell| cell.floor.is_some();
    cells.iter().filter(has_floor).all(|cell| results.judge(cell).is_some_and(|judgement| judgement.holds))
}

fn title(cell: &Cell) -> String {
    let medium = match cell.medium {
        crate::cell::Medium::Memory => "files in memory",
        crate::cell::Medium::Disk => "files on a disk, O_DIRECT",
    };
    format!("{}: {}, {medium}", cell.name, cell.load.title())
}

fn lines(results: &Results, cell: &Cell, contenders: &[Known]) -> Vec<Vec<String>> {
    let heads = ["", "IOPS", "busy cores", "IOPS per core", "mean us", "p99 us", "Spandrel's ratio"];
    let mut lines = vec![heads.map(str::to_owned).to_vec()];
    for contender in contenders {
        let median = |value: fn(&Measurement) -> f64| results.median(cell, contender.name, value);
        let Some(iops) = median(|measurement| measurement.iops) else { continue };
        let of = |value: fn(&Measurement) -> f64, text: fn(f64) -> String| {
            median(value).map_or("-".to_owned(), |median| text(median.value))
        };
        lines.push(vec![
            format!("{} ({})", contender.name, contender.what),
            count_text(iops.value),
            of(|measurement| measurement.busy_cores, |cores| format!("{cores:.2}")),
            of(Measurement::iops_per_core, count_text),
            of(|measurement| measurement.latency_mean_us, short),
            of(|measurement| measurement.latency_p99_us, short),
            match contender.name {
                OWN => "of what is judged:".to_owned(),
                other => results.ratio(cell, other).map_or("-".to_owned(), ratio_text),
            },
        ]);
    }
    lines
}

/// A line for each floor and each goal.
fn verdicts(results: &Results, cells: &[Cell]) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    for cell in cells {
        let bound = if cell.figure.is_rate() { "at least" } else { "at most" };
        if let Some((contender, floor)) = cell.floor {
            let (verdict, ratio) = match results.judge(cell) {
                Some(judgement) => {
                    (if judgement.holds { "HOLDS" } else { "DOES NOT HOLD" }, ratio_text(judgement.ratio))
                }
                None => ("NOT MEASURED", "-".to_owned()),
            };
            let wanted = format!("({bound} {floor:.1} x {contender})");
            lines.push(vec![
                verdict.to_owned(),
                ratio,
                wanted,
                format!("{}, {}", cell.name, cell.figure.title()),
            ]);
        }
        if let (Some(goal), Some(figure)) = (cell.goal, results.figure(cell, OWN)) {
            let verdict = if results.reaches_goal(cell) == Some(true) { "reached" } else { "missed" };
            let range = format!(
                "{} ({} to {})",
                count_text(figure.value),
                count_text(figure.least),
                count_text(figure.most)
            );
            let wanted = format!("(goal {bound} {})", count_text(goal));
            lines.push(vec![
                verdict.to_owned(),
                range,
                wanted,
                format!("{}, {}", cell.name, cell.figure.title()),
            ]);
        }
    }
    lines
}

fn ratio_text(ratio: Median) -> String {
    format!("{:.2} x ({:.2} to {:.2})", ratio.value, ratio.least, ratio.most)
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
