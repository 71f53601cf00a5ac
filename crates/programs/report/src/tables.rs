//! The tables of a block.

use spandrel_results::MeasuredRun;

use crate::block::{Block, mix_text};
use crate::metric::{
    AMPLIFICATION, AT_CAP, Better, CACHE_HITS, CPU, IOPS, LITTLES_LAW, MEAN, MEAN_TO_CAP, Metric,
    NODE_UNEVENNESS, P99, P99_9, P99_999, PER_CORE, QUEUE, READ_MEAN, THROUGHPUT, WRITE_MEAN,
};
use crate::summary::RESIDUAL_PERCENT;

/// A table: a line for each share of writes and number of I/Os in flight, and in each a value for each run.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) metric: Metric,
    pub(crate) rows: Vec<Row>,
}

/// A line of a table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) mix: String,
    /// How many lines have this share of writes, on the first of them; none on the others.
    pub(crate) mix_rows: Option<usize>,
    pub(crate) outstanding: u32,
    /// A value for each run.
    pub(crate) values: Vec<Option<Value>>,
}

/// A value of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    pub(crate) mean: f64,
    pub(crate) text: String,
    /// How the repeats spread, in words; none of a single one.
    pub(crate) detail: Option<String>,
    /// Their standard deviation; none of a single one.
    pub(crate) deviation: Option<String>,
    /// The change against the first run, in percent.
    pub(crate) change_percent: Option<f64>,
    /// Whether it is among the best quarter of its share of writes.
    pub(crate) is_among_best: bool,
    /// Whether it gives reason to doubt.
    pub(crate) is_doubtful: bool,
}

/// The metrics that tables are made of, for a block of small I/Os or large ones.
pub(crate) fn metrics(is_large: bool) -> Vec<Metric> {
    let rate = if is_large { [THROUGHPUT, IOPS] } else { [IOPS, THROUGHPUT] };
    let others = [
        MEAN,
        READ_MEAN,
        WRITE_MEAN,
        P99,
        P99_9,
        P99_999,
        CPU,
        PER_CORE,
        QUEUE,
        AMPLIFICATION,
        CACHE_HITS,
        AT_CAP,
        MEAN_TO_CAP,
        NODE_UNEVENNESS,
        LITTLES_LAW,
    ];
    rate.into_iter().chain(others).collect()
}

/// The table of a metric; none if no cell has it.
pub(crate) fn table(block: &Block<'_>, metric: Metric) -> Option<Table> {
    let mut rows: Vec<Row> = Vec::new();
    for write_percent in &block.write_percents {
        let begin = rows.len();
        for outstanding in &block.outstanding {
            let of_run = |run: &MeasuredRun| value(block, metric, run, *write_percent, *outstanding);
            let mut values: Vec<Option<Value>> = Vec::new();
            for run in block.runs {
                let mut value = of_run(run);
                let baseline =
                    values.first().and_then(|first: &Option<Value>| first.as_ref()).map(|first| first.mean);
                if let (Some(value), Some(baseline)) =
                    (&mut value, baseline.filter(|baseline| *baseline != 0.0))
                {
                    value.change_percent = Some(100.0 * (value.mean / baseline - 1.0));
                }
                values.push(value);
            }
            if values.iter().any(Option::is_some) {
                let mix = mix_text(*write_percent);
                rows.push(Row { mix, mix_rows: None, outstanding: *outstanding, values });
            }
        }
        let count = rows.len() - begin;
        if let Some(first) = rows.get_mut(begin) {
            first.mix_rows = Some(count);
        }
        mark_best(metric, &mut rows[begin..]);
    }
    (!rows.is_empty()).then_some(Table { metric, rows })
}

fn value(
    block: &Block<'_>,
    metric: Metric,
    run: &MeasuredRun,
    write_percent: u8,
    outstanding: u32,
) -> Option<Value> {
    let run = block.runs.iter().find(|known| std::ptr::eq(*known, run))?;
    let values = metric.values(block.cell(run, write_percent, outstanding)?)?;
    let spread = values.spread;
    let detail = (values.count > 1).then(|| {
        format!(
            "mean {} of {}, median {}, {} to {}, standard deviation {}",
            metric.text(spread.mean),
            values.count,
            metric.text(spread.median),
            metric.text(spread.min),
            metric.text(spread.max),
            metric.text(spread.standard_deviation)
        )
    });
    Some(Value {
        mean: spread.mean,
        text: metric.text(spread.mean),
        detail,
        deviation: (values.count > 1).then(|| metric.text(spread.standard_deviation)),
        change_percent: None,
        is_among_best: false,
        is_doubtful: metric.name == LITTLES_LAW.name && spread.mean.abs() > RESIDUAL_PERCENT,
    })
}

/// Marks the best quarter of the lines of one share of writes.
fn mark_best(metric: Metric, rows: &mut [Row]) {
    let mut means: Vec<f64> =
        rows.iter().flat_map(|row| row.values.iter().flatten()).map(|value| value.mean).collect();
    if means.len() < 4 {
        return;
    }
    match metric.better {
        Better::Higher => means.sort_by(|one, other| other.total_cmp(one)),
        Better::Lower => means.sort_by(f64::total_cmp),
        Better::Neither => return,
    }
    let limit = means[means.len() / 4 - 1];
    for value in rows.iter_mut().flat_map(|row| row.values.iter_mut().flatten()) {
        value.is_among_best = match metric.better {
            Better::Higher => value.mean >= limit,
            _ => value.mean <= limit,
        };
    }
}

#[cfg(test)]
#[path = "tables_tests.rs"]
mod tests;
