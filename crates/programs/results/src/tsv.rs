//! A run as a table for other programs: tabs between columns, a line for each measurement.
//!
//! The columns are those of VMFleet 2's `result.tsv` that apply here, in its order and with its units: latencies in milliseconds,
//! bandwidths in bytes a second, the processor in percent of all cores. What VMFleet takes from cluster shared volumes are
//! here the front-ends. What is not known is empty. Behind them stands what times and data were multiplied with.

use std::fmt::Write as _;

use spandrel_fleet::{LayerRate, Traffic};

use crate::record::{CellRecord, RunRecord};

const COLUMNS: [&str; 36] = [
    "RunLabel",
    "Workload",
    "BlockSize",
    "Pattern",
    "Threads",
    "Outstanding",
    "WriteRatio",
    "Repeat",
    "VMAlignmentPct",
    "RunType",
    "CutoffType",
    "QOSperVM",
    "VMCount",
    "IOPS",
    "AverageReadIOPS",
    "AverageWriteIOPS",
    "AverageReadBW",
    "AverageWriteBW",
    "ReadMilliseconds50",
    "ReadMilliseconds90",
    "ReadMilliseconds99",
    "WriteMilliseconds50",
    "WriteMilliseconds90",
    "WriteMilliseconds99",
    "AverageReadMilliseconds",
    "AverageWriteMilliseconds",
    "AverageCPU",
    "AverageCSVReadMilliseconds",
    "AverageCSVWriteMilliseconds",
    "AverageCSVReadIOPS",
    "AverageCSVWriteIOPS",
    "AverageCSVIOPS",
    "AverageCSVReadBW",
    "AverageCSVWriteBW",
    "TimeScale",
    "DataScale",
];

/// The table of all that was measured so far.
pub(crate) fn table(run: &RunRecord, cells: &[CellRecord]) -> String {
    let mut text = COLUMNS.join("\t") + "\n";
    for cell in cells {
        let _ = writeln!(text, "{}", row(run, cell).join("\t"));
    }
    text
}

fn row(run: &RunRecord, cell: &CellRecord) -> Vec<String> {
    let (result, spec) = (&cell.result, &cell.result.spec);
    let frontend = cell.layers.as_ref().map(|layers| layers.frontend);
    let cores = f64::from(run.cluster.machine.cores.max(1));
    let mut row = vec![
        // A tab or line end within would end the column.
        run.name.replace(|character: char| character.is_control(), " "),
        run.plan.profile.clone(),
        spec.block_size_bytes.to_string(),
        spec.pattern.to_string(),
        spec.threads.to_string(),
        spec.outstanding.to_string(),
        spec.write_percent.to_string(),
        (cell.number.repeat + 1).to_string(),
        run.aligned_percent.to_string(),
        "Default".to_owned(),
        "No".to_owned(),
        run.plan.iops_max.map_or_else(String::new, |most| most.to_string()),
        result.clients.len().to_string(),
        rate(result.total.iops),
        rate(result.read.iops),
        rate(result.write.iops),
        rate(result.read.mib_per_second * MIB),
        rate(result.write.mib_per_second * MIB),
    ];
    for traffic in [&result.read, &result.write] {
        row.extend(percentiles(traffic));
    }
    row.extend(
        [&result.read, &result.write].map(|traffic| ms(traffic.latency.map(|latency| latency.mean_us))),
    );
    row.push(cell.usage.busy_cores.map_or_else(String::new, |busy| rate(100.0 * busy / cores)));
    let of = |pick: fn(&LayerRate) -> Option<f64>| frontend.as_ref().and_then(pick);
    row.push(ms(of(|rate| rate.read.mean_us)));
    row.push(ms(of(|rate| rate.write.mean_us)));
    let picks: [fn(&LayerRate) -> Option<f64>; 5] = [
        |rate| Some(rate.read.iops),
        |rate| Some(rate.write.iops),
        |rate| Some(rate.iops()),
        |rate| Some(rate.read.mib_per_second * MIB),
        |rate| Some(rate.write.mib_per_second * MIB),
    ];
    row.extend(picks.map(|pick| of(pick).map_or_else(String::new, rate)));
    row.extend([run.plan.time_scale, run.plan.data_scale].map(|scale| scale.to_string()));
    debug_assert_eq!(row.len(), COLUMNS.len());
    row
}

const MIB: f64 = 1024.0 * 1024.0;

fn percentiles(traffic: &Traffic) -> [String; 3] {
    let latency = traffic.latency;
    [
        ms(latency.map(|latency| latency.p50_us)),
        ms(latency.map(|latency| latency.p90_us)),
        ms(latency.map(|latency| latency.p99_us)),
    ]
}

fn rate(value: f64) -> String {
    format!("{value:.2}")
}

fn ms(us: Option<f64>) -> String {
    us.map_or_else(String::new, |us| format!("{:.3}", us / 1000.0))
}
