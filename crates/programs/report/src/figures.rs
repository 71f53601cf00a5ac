//! The figures of a block, as options of Apache ECharts.
//!
//! Colours are not among them: the page gives them, for light and dark. Axes have names with units, and a figure says in its
//! caption what it shows.

use serde_json::{Value, json};
use spandrel_results::{MeasuredCell, MeasuredRun};

use crate::block::{Block, mix_text};
use crate::economics::{DUTY_HOURS, Economics, expected_queue, writes_of_a_drive};
use crate::metric::{
    AMPLIFICATION, AT_CAP, CPU, IOPS, MEAN, Metric, P99_9, P99_999, QUEUE, THROUGHPUT, grouped,
};

/// A figure.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// Unique in the page.
    pub(crate) id: String,
    pub(crate) caption: String,
    pub(crate) option: Value,
}

/// One series of a figure: a value for each category, none where there is none.
struct Series {
    name: String,
    values: Vec<Option<f64>>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bar,
    Line,
    /// A line at the axis of its own, on the right.
    LineOnTheRight,
    /// What was expected, beside what was measured.
    Expected,
}

/// The figures that a block's data allow.
pub(crate) fn figures(block: &Block<'_>, number: usize, economics: &Economics) -> Vec<Figure> {
    let rate = if block.is_large() { THROUGHPUT } else { IOPS };
    let mut figures = vec![
        rate_with_latency(block, rate),
        latencies(block),
        one_metric(block, CPU, "How busy the processors of the servers were."),
        queues(block),
        one_metric(
            block,
            AMPLIFICATION,
            "Bytes that all drives wrote for each byte of the clients, copies included.",
        ),
        endurance(block, economics),
        one_metric(
            block,
            AT_CAP,
            "How many of the clients had at least 99 % of the most that they were to have.",
        ),
        balance(block),
    ];
    let figures = figures.drain(..).flatten().enumerate();
    figures.map(|(index, figure)| Figure { id: format!("figure-{number}-{index}"), ..figure }).collect()
}

/// The places of an axis: the lines of the tables, and an empty one between two shares of writes, so that no line of a figure
/// leads from one to the other.
fn places(block: &Block<'_>) -> Vec<Option<(u8, u32)>> {
    let mut places: Vec<Option<(u8, u32)>> = Vec::new();
    for (write_percent, outstanding) in block.rows() {
        if matches!(places.last(), Some(Some((before, _))) if *before != write_percent) {
            places.push(None);
        }
        places.push(Some((write_percent, outstanding)));
    }
    places
}

/// What stands below them: the I/Os in flight, and in the middle of each share of writes what it is.
fn categories(block: &Block<'_>) -> Vec<String> {
    let middle = (block.outstanding.len() - 1) / 2;
    let text = |place: Option<(u8, u32)>| match place {
        Some((write_percent, depth)) if block.outstanding.get(middle) == Some(&depth) => {
            // In two lines, as four of them stand beside each other on a telephone.
            format!("{depth}\n{}", mix_text(write_percent).replacen(" % ", " %\n", 1))
        }
        Some((_, depth)) => depth.to_string(),
        None => String::new(),
    };
    places(block).into_iter().map(text).collect()
}

/// A value for each place, of one run.
fn values(
    block: &Block<'_>,
    run: &MeasuredRun,
    of: impl Fn(&MeasuredCell) -> Option<f64>,
) -> Vec<Option<f64>> {
    let run = block.runs.iter().find(|known| std::ptr::eq(*known, run));
    let value = |place: Option<(u8, u32)>| {
        let (write_percent, outstanding) = place?;
        of(block.cell(run?, write_percent, outstanding)?)
    };
    places(block).into_iter().map(value).collect()
}

/// The name of something of a run, where there are several.
fn named(block: &Block<'_>, run: &MeasuredRun, what: &str) -> String {
    if block.runs.len() > 1 { format!("{}: {what}", run.name) } else { what.to_owned() }
}

fn rate_with_latency(block: &Block<'_>, rate: Metric) -> Option<Figure> {
    let of = |metric: Metric, kind| {
        block.runs.iter().map(move |run| Series {
            name: named(block, run, metric.name),
            values: values(block, run, |cell| metric.mean(cell)),
            kind,
        })
    };
    let series = of(rate, Kind::Bar).chain(of(MEAN, Kind::LineOnTheRight)).collect();
    let caption = format!("{}, and mean latency, by share of reads and outstanding I/Os.", rate.title());
    figure(block, series, &rate.title(), Some(&MEAN.title()), false, caption)
}

fn latencies(block: &Block<'_>) -> Option<Figure> {
    let of_run = |run| {
        [MEAN, P99_9, P99_999].into_iter().map(move |metric| Series {
            name: named(block, run, metric.name),
            values: values(block, run, |cell| metric.mean(cell)),
            kind: Kind::Line,
        })
    };
    let series = block.runs.iter().flat_map(of_run).collect();
    let caption = "Latencies: the mean, and what 99.9 % and 99.999 % of the I/Os did not exceed. The axis is logarithmic.";
    figure(block, series, "latency (ms)", None, true, caption.to_owned())
}

fn one_metric(block: &Block<'_>, metric: Metric, caption: &str) -> Option<Figure> {
    let of_run = |run| Series {
        name: named(block, run, metric.name),
        values: values(block, run, |cell| metric.mean(cell)),
        kind: Kind::Bar,
    };
    let series = block.runs.iter().map(of_run).collect();
    figure(block, series, &metric.title(), None, false, caption.to_owned())
}

fn queues(block: &Block<'_>) -> Option<Figure> {
    let of_run = |run: &MeasuredRun| {
        let measured = Series {
            name: named(block, run, "measured"),
            values: values(block, run, |cell| QUEUE.mean(cell)),
            kind: Kind::Bar,
        };
        let is_measured = |cell: &MeasuredCell| QUEUE.mean(cell).is_some();
        let expected = Series {
            name: named(block, run, "all I/Os by drives"),
            values: values(block, run, |cell| expected_queue(run, cell).filter(|_| is_measured(cell))),
            kind: Kind::Expected,
        };
        [measured, expected]
    };
    let series = block.runs.iter().flat_map(of_run).collect();
    let caption = "Operations under way at a drive, in the mean of all; and what they would be if all I/Os of the clients were at \
                   drives all the time.";
    figure(block, series, "operations under way at a drive", None, false, caption.to_owned())
}

fn endurance(block: &Block<'_>, economics: &Economics) -> Option<Figure> {
    economics.drive_endurance_tbw?;
    let of_run = |run: &MeasuredRun| Series {
        name: named(block, run, "writes of a drive"),
        values: values(block, run, |cell| writes_of_a_drive(run, cell)),
        kind: Kind::Bar,
    };
    let mut series: Vec<Series> = block.runs.iter().map(of_run).collect();
    let count = places(block).len();
    for hours in DUTY_HOURS {
        let rate = economics.warranty_mib_per_second(hours);
        series.push(Series {
            name: format!("warranted at {hours} h a day"),
            values: vec![rate; count],
            kind: Kind::Expected,
        });
    }
    let caption = "What each drive wrote in the mean, against what its warranty allows if the load lasts so many hours of each day.";
    figure(block, series, "writes of a drive (MiB/s)", None, false, caption.to_owned())
}

/// How evenly the nodes shared the I/Os of each cell.
fn balance(block: &Block<'_>) -> Option<Figure> {
    let mut series = Vec::new();
    for run in block.runs {
        let mut names: Vec<&str> = Vec::new();
        let nodes =
            block.cells_of(run).flat_map(|cell| &cell.measurements).flat_map(|measured| &measured.nodes);
        for node in nodes {
            if !names.contains(&node.name.as_str()) {
                names.push(&node.name);
            }
        }
        for name in names {
            let of_cell = |cell: &MeasuredCell| {
                let of = |measured: &spandrel_results::Measurement| {
                    measured.nodes.iter().find(|node| node.name == name).map(|node| node.iops)
                };
                let rates: Vec<f64> = cell.measurements.iter().filter_map(of).collect();
                (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
            };
            let values = values(block, run, of_cell);
            series.push(Series { name: named(block, run, name), values, kind: Kind::Bar });
        }
    }
    let caption = "I/Os a second of the clients of each node.";
    (series.len() > 1).then(|| figure(block, series, "IOPS", None, false, caption.to_owned())).flatten()
}

/// Puts a figure together; none if no series has a value.
fn figure(
    block: &Block<'_>,
    series: Vec<Series>,
    axis: &str,
    axis_on_the_right: Option<&str>,
    is_logarithmic: bool,
    caption: String,
) -> Option<Figure> {
    let series: Vec<Series> =
        series.into_iter().filter(|series| series.values.iter().any(Option::is_some)).collect();
    if series.iter().all(|series| series.kind == Kind::Expected) {
        return None;
    }
    let has_right = series.iter().any(|series| series.kind == Kind::LineOnTheRight);
    let left = json!({
        "type": if is_logarithmic { "log" } else { "value" },
        "name": axis,
        "nameLocation": "middle",
        "nameGap": 52,
    });
    let mut axes = vec![left];
    if let Some(name) = axis_on_the_right.filter(|_| has_right) {
        axes.push(json!({
            "type": "value",
            "name": name,
            "nameLocation": "middle",
            "nameGap": 40,
            "splitLine": { "show": false },
        }));
    }
    let option = json!({
        "animation": false,
        "aria": { "enabled": true },
        "tooltip": { "trigger": "axis", "confine": true },
        "legend": { "type": "scroll", "top": 0 },
        "grid": { "left": 76, "right": if axes.len() > 1 { 64 } else { 20 }, "top": 40, "bottom": 80 },
        "xAxis": {
            "type": "category",
            "data": categories(block),
            "name": "outstanding I/Os of each thread",
            "nameLocation": "middle",
            "nameGap": 58,
            "axisLabel": { "interval": 0, "lineHeight": 16 },
            "axisTick": { "show": false },
        },
        "yAxis": axes,
        "series": series.iter().map(series_option).collect::<Vec<_>>(),
    });
    Some(Figure { id: String::new(), caption, option })
}

fn series_option(series: &Series) -> Value {
    // More digits say nothing that was measured.
    let data: Vec<Option<f64>> =
        series.values.iter().map(|value| value.map(|value| (value * 1e6).round() / 1e6)).collect();
    let mut option = json!({ "name": series.name, "data": data });
    let more = match series.kind {
        Kind::Bar => json!({ "type": "bar" }),
        Kind::Line => json!({ "type": "line", "symbolSize": 7 }),
        Kind::LineOnTheRight => json!({ "type": "line", "yAxisIndex": 1, "symbolSize": 7 }),
        Kind::Expected => json!({ "type": "line", "symbol": "none", "lineStyle": { "type": "dashed" } }),
    };
    if let (Value::Object(option), Value::Object(more)) = (&mut option, more) {
        option.extend(more);
    }
    option
}

/// A number for a text beside figures.
pub(crate) fn plain(value: f64) -> String {
    grouped(value, if value.abs() < 10.0 { 3 } else { 0 })
}

#[cfg(test)]
#[path = "figures_tests.rs"]
mod tests;
