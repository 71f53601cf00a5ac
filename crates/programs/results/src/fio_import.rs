//! Results of fio, read from its JSON (`--output-format=json`).
//!
//! Each job is a load. Jobs with the same load within a file are the clients of one measurement, unless they ran one behind the other
//! (`stonewall`); those and files with the same load are further measurements. Latencies of a measurement of several jobs have means alone, for percentiles cannot be added up; give
//! `--group_reporting` to fio, and it has them together.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use spandrel_fleet::Spread;
use spandrel_shared::Error;
use spandrel_shared::size::parse_size;

use crate::measurement::{LatencyPoints, Load, MeasuredCell, MeasuredRun, Measurement};
use crate::stored::import_broken;

#[derive(Debug, Deserialize)]
struct Results {
    #[serde(rename = "fio version", default)]
    version: String,
    #[serde(rename = "global options", default)]
    global: BTreeMap<String, String>,
    jobs: Vec<Job>,
}

#[derive(Debug, Deserialize)]
struct Job {
    #[serde(rename = "job options", default)]
    options: BTreeMap<String, String>,
    /// Another number than the job before if that had ended.
    #[serde(default)]
    groupid: u64,
    read: Direction,
    write: Direction,
    #[serde(default)]
    total_err: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Direction {
    iops: f64,
    /// Bytes a second; versions before 3.2 say KiB alone.
    bw_bytes: Option<f64>,
    /// KiB a second.
    bw: f64,
    total_ios: u64,
    /// From when an I/O was wanted until it was done.
    lat_ns: Latency,
    /// From when it was handed on.
    clat_ns: Latency,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Latency {
    mean: f64,
    percentile: BTreeMap<String, f64>,
}

/// Reads files of fio's results as one run, each given with its text.
///
/// # Errors
///
/// `FLEET_IMPORT_BROKEN` if one is not what fio writes.
pub fn read_fio(name: &str, files: &[(&Path, String)]) -> Result<MeasuredRun, Error> {
    let mut cells: BTreeMap<Load, Vec<Measurement>> = BTreeMap::new();
    let mut version = String::new();
    for (path, text) in files {
        let broken = |why: String| {
            import_broken(path, why, "give files as fio writes them with --output-format=json, whole")
        };
        // fio writes notes before the object where it has any, and more behind it with --output-format=json,normal.
        let begin = text.find('{').unwrap_or(0);
        let mut objects = serde_json::Deserializer::from_str(&text[begin..]).into_iter::<Results>();
        let results = objects.next().ok_or_else(|| broken("there is nothing in it".to_owned()))?;
        let results = results.map_err(|error| broken(error.to_string()))?;
        if matches!(objects.next(), Some(Ok(_))) {
            let why = "it holds the results of several runs, or those of one that it had on its way";
            return Err(import_broken(path, why, "give each result in a file of its own"));
        }
        if results.jobs.is_empty() {
            return Err(broken("it has no jobs".to_owned()));
        }
        version = results.version;
        // Jobs of one load that ran at the same time.
        let mut together: BTreeMap<(u64, Load), Vec<Job>> = BTreeMap::new();
        let is_stonewalled = |job: &Job| job.options.contains_key("stonewall");
        let has_turns = results.global.contains_key("stonewall") || results.jobs.iter().any(is_stonewalled);
        for job in results.jobs {
            let load = load_of(&job, &results.global).map_err(broken)?;
            let turn = if has_turns { job.groupid } else { 0 };
            together.entry((turn, load)).or_default().push(job);
        }
        for ((_, load), jobs) in together {
            let threads = threads(&jobs, &results.global).map_err(broken)?;
            cells.entry(Load { threads, ..load }).or_default().push(measurement(&jobs));
        }
    }
    let of_cell = |(load, measurements)| MeasuredCell { load, measurements };
    Ok(MeasuredRun {
        name: name.to_owned(),
        title: "results of fio".to_owned(),
        source: format!("{} files of {}", files.len(), if version.is_empty() { "fio" } else { &version }),
        cells: cells.into_iter().map(of_cell).collect(),
        ..MeasuredRun::default()
    })
}

fn option<'a>(job: &'a Job, global: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    job.options.get(name).or_else(|| global.get(name)).map(String::as_str)
}

fn number(job: &Job, global: &BTreeMap<String, String>, name: &str, default: u32) -> Result<u32, String> {
    match option(job, global, name) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| format!("its {name} is {text:?}, which is no number")),
    }
}

/// How many threads a job stands for: with `--group_reporting` those of the same job are reported as one.
fn threads(jobs: &[Job], global: &BTreeMap<String, String>) -> Result<u32, String> {
    match jobs {
        [only] => number(only, global, "numjobs", 1),
        _ => Ok(1),
    }
}

fn load_of(job: &Job, global: &BTreeMap<String, String>) -> Result<Load, String> {
    let option = |name: &str| option(job, global, name);
    let number = |name: &str, default: u32| number(job, global, name, default);
    let block = option("bs").or_else(|| option("blocksize")).unwrap_or("4k");
    let block_size_bytes = parse_size(block).and_then(|bytes| u32::try_from(bytes).ok());
    let kind = option("rw").or_else(|| option("readwrite")).unwrap_or("read");
    let write_percent = match kind.trim_start_matches("rand") {
        "read" => 0,
        "write" | "trim" => 100,
        // Half and half is fio's own default.
        _ => match (option("rwmixwrite"), option("rwmixread")) {
            (Some(_), _) => number("rwmixwrite", 50)?,
            (None, Some(_)) => 100_u32.saturating_sub(number("rwmixread", 50)?),
            (None, None) => 50,
        },
    };
    Ok(Load {
        block_size_bytes: block_size_bytes
            .ok_or_else(|| format!("its block size is {block:?}, which is no size"))?,
        pattern: if kind.starts_with("rand") { "random" } else { "sequential" }.to_owned(),
        threads: 1,
        write_percent: u8::try_from(write_percent.min(100)).unwrap_or(100),
        outstanding: number("iodepth", 1)?,
    })
}

fn measurement(jobs: &[Job]) -> Measurement {
    let sum = |of: fn(&Direction) -> f64| -> (f64, f64) {
        (jobs.iter().map(|job| of(&job.read)).sum(), jobs.iter().map(|job| of(&job.write)).sum())
    };
    let ((read_iops, write_iops), (read_bytes, write_bytes)) =
        (sum(|side| side.iops), sum(|side| side.bw_bytes.unwrap_or(side.bw * 1024.0)));
    let reads: Vec<&Direction> = jobs.iter().map(|job| &job.read).collect();
    let writes: Vec<&Direction> = jobs.iter().map(|job| &job.write).collect();
    let all: Vec<&Direction> = reads.iter().chain(&writes).copied().collect();
    Measurement {
        iops: Some(read_iops + write_iops),
        read_iops: Some(read_iops),
        write_iops: Some(write_iops),
        mib_per_second: Some((read_bytes + write_bytes) / (1024.0 * 1024.0)),
        total: points(&all),
        read: points(&reads),
        write: points(&writes),
        client_iops: (jobs.len() > 1)
            .then(|| Spread::of(jobs.iter().map(|job| job.read.iops + job.write.iops))),
        failures: jobs.iter().map(|job| job.total_err).sum(),
        ..Measurement::default()
    }
}

/// The latencies of all of these together.
fn points(sides: &[&Direction]) -> LatencyPoints {
    let busy: Vec<&&Direction> = sides.iter().filter(|side| side.total_ios > 0).collect();
    let ios: u64 = busy.iter().map(|side| side.total_ios).sum();
    if ios == 0 {
        return LatencyPoints::default();
    }
    let of = |side: &Direction| if side.lat_ns.mean > 0.0 { side.lat_ns.mean } else { side.clat_ns.mean };
    let sum_ns: f64 = busy.iter().map(|side| side.total_ios as f64 * of(side)).sum();
    let at = |percent: &str| match busy[..] {
        [only] => {
            let percentiles = [&only.lat_ns.percentile, &only.clat_ns.percentile];
            percentiles.iter().find_map(|of| of.get(percent)).map(|ns| ns / 1000.0)
        }
        _ => None,
    };
    let nines = |percent: &str, ios_min: u64| at(percent).filter(|_| ios >= ios_min);
    LatencyPoints {
        mean_us: Some(sum_ns / ios as f64 / 1000.0),
        p50_us: at("50.000000"),
        p99_us: at("99.000000"),
        p99_9_us: nines("99.900000", 1000),
        p99_99_us: nines("99.990000", 10_000),
        p99_999_us: nines("99.999000", 100_000),
    }
}

#[cfg(test)]
#[path = "fio_import_tests.rs"]
mod tests;
