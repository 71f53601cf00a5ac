//! What stands out, in words: from the numbers, and never beyond them.

use spandrel_results::{MeasuredCell, MeasuredRun};

use crate::block::{Block, mix_text};
use crate::metric::{
    AT_CAP, CPU, IOPS, LITTLES_LAW, MEAN, MEAN_TO_CAP, Metric, NODE_UNEVENNESS, QUEUE, THROUGHPUT, grouped,
};

/// Twice the I/Os in flight count as worth it where they bring at least so much more.
const WORTHWHILE: f64 = 1.10;

/// Processors this busy, in percent, are what limits.
const CPU_BUSY_PERCENT: f64 = 85.0;

/// From here on a residual of Little's law is told.
pub(crate) const RESIDUAL_PERCENT: f64 = 10.0;

/// A load generator that is busier than this, in percent, has measured itself.
const GENERATOR_PERCENT: f64 = 90.0;

/// Drives with fewer operations under way than this have nothing to do with it.
const QUEUE_TOLD: f64 = 0.1;

/// Nodes that differ by more than this, in percent, are told.
const UNEVEN_PERCENT: f64 = 10.0;

/// What is to be said of a block, run by run and share of writes by share of writes.
pub(crate) fn sentences(block: &Block<'_>) -> Vec<String> {
    let mut sentences = Vec::new();
    for run in block.runs {
        let of = if block.runs.len() > 1 { format!("{}: ", run.name) } else { String::new() };
        for write_percent in &block.write_percents {
            let cells: Vec<&MeasuredCell> = block
                .outstanding
                .iter()
                .filter_map(|depth| block.cell(run, *write_percent, *depth))
                .collect();
            sentences
                .extend(of_mix(block, *write_percent, &cells).into_iter().map(|text| format!("{of}{text}")));
        }
        sentences.extend(doubts(block, run).into_iter().map(|text| format!("{of}{text}")));
    }
    sentences
}

fn of_mix(block: &Block<'_>, write_percent: u8, cells: &[&MeasuredCell]) -> Option<String> {
    let rate = if block.is_large() { THROUGHPUT } else { IOPS };
    let unit = if rate.unit.is_empty() { "IOPS" } else { rate.unit };
    let rates: Vec<(&MeasuredCell, f64)> =
        cells.iter().filter_map(|cell| Some((*cell, rate.mean(cell)?))).collect();
    let (best, most) = rates.iter().max_by(|one, other| one.1.total_cmp(&other.1))?;
    let mut text = format!(
        "{}: up to {} {unit}, with {} outstanding",
        mix_text(write_percent),
        rate.text(*most),
        best.load.outstanding
    );
    if let Some(latency) = MEAN.mean(best) {
        text += &format!(" and a mean latency of {} ms", MEAN.text(latency));
    }
    if rates.len() > 1 {
        text += &knee(&rates);
    }
    text += &limit(best);
    Some(text + ".")
}

/// From which number of I/Os in flight on more of them bring little.
fn knee(rates: &[(&MeasuredCell, f64)]) -> String {
    let is_flat = |pair: &&[(&MeasuredCell, f64)]| {
        let doublings =
            (f64::from(pair[1].0.load.outstanding) / f64::from(pair[0].0.load.outstanding)).log2();
        pair[1].1 < pair[0].1 * WORTHWHILE.powf(doublings)
    };
    match rates.windows(2).find(is_flat) {
        Some(pair) => {
            let change = 100.0 * (pair[1].1 / pair[0].1 - 1.0);
            format!(
                "; from {} outstanding to {} it changes by {} %",
                pair[0].0.load.outstanding,
                pair[1].0.load.outstanding,
                signed(change)
            )
        }
        None => "; it still grows with the most that were outstanding".to_owned(),
    }
}

/// What limits a cell, as far as that was measured.
fn limit(cell: &MeasuredCell) -> String {
    match (CPU.mean(cell), AT_CAP.mean(cell)) {
        (_, Some(percent)) => {
            let mean = MEAN_TO_CAP.mean(cell).map_or_else(String::new, |mean| {
                format!(", and {} % of it in the mean of all", MEAN_TO_CAP.text(mean))
            });
            format!("; {} % of the clients had the most that they were to have{mean}", AT_CAP.text(percent))
        }
        (Some(percent), None) if percent >= CPU_BUSY_PERCENT => {
            format!("; the processors were {} % busy, nearly all that they have", CPU.text(percent))
        }
        (Some(percent), None) => {
            let queue = QUEUE.mean(cell).filter(|queue| *queue >= QUEUE_TOLD);
            let queue = queue.map_or_else(String::new, |queue| {
                format!(", with {} operations under way at a drive", QUEUE.text(queue))
            });
            format!("; the processors were {} % busy{queue}", CPU.text(percent))
        }
        (None, None) => String::new(),
    }
}

/// What gives reason to doubt the cells of a block.
fn doubts(block: &Block<'_>, run: &MeasuredRun) -> Vec<String> {
    let worst = |metric: Metric, limit: f64| {
        let values = block.cells_of(run).filter_map(|cell| Some((cell, metric.mean(cell)?)));
        values
            .filter(|(_, value)| value.abs() > limit)
            .max_by(|one, other| one.1.abs().total_cmp(&other.1.abs()))
    };
    let place = |cell: &MeasuredCell| {
        format!("{} with {} outstanding", mix_text(cell.load.write_percent), cell.load.outstanding)
    };
    let mut doubts = Vec::new();
    if let Some((cell, residual)) = worst(LITTLES_LAW, RESIDUAL_PERCENT) {
        doubts.push(format!(
            "by Little's law, rate times latency should be the I/Os in flight; it is off by {} % at {}: these numbers do not \
             fit each other.",
            signed(residual),
            place(cell)
        ));
    }
    if let Some((cell, percent)) = worst(NODE_UNEVENNESS, UNEVEN_PERCENT) {
        doubts.push(format!(
            "nodes differed: what a client of each had deviates by {} % of the mean at {}.",
            grouped(percent, 0),
            place(cell)
        ));
    }
    let busiest = block
        .cells_of(run)
        .flat_map(|cell| &cell.measurements)
        .filter_map(|measured| measured.generator_percent);
    let busiest = busiest.fold(0.0, f64::max);
    if busiest > GENERATOR_PERCENT {
        doubts.push(format!(
            "the load generator's thread was {} % busy: latencies are partly its own.",
            grouped(busiest, 0)
        ));
    }
    let failures: u64 =
        block.cells_of(run).flat_map(|cell| &cell.measurements).map(|measured| measured.failures).sum();
    if failures > 0 {
        doubts.push(format!("{failures} I/Os failed or were not answered."));
    }
    doubts
}

pub(crate) fn signed(value: f64) -> String {
    format!(
        "{}{}",
        if value >= 0.0 { "+" } else { "-" },
        grouped(value.abs(), if value.abs() < 10.0 { 1 } else { 0 })
    )
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
