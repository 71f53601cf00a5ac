//! Results of DISKSPD, read from its XML (`-Rxml`): those of one machine, or of the virtual machines of a fleet together.
//!
//! What one run of DISKSPD has measured is a time span of a file. Those of different files that had the same load are taken for
//! the virtual machines of one measurement, as VMFleet's are: their I/Os are added up, and their latencies are put
//! together from the percentiles of each, so that they are right to about a hundredth of the I/Os.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use spandrel_fleet::Spread;
use spandrel_shared::Error;

use crate::measurement::{LatencyPoints, Load, MeasuredCell, MeasuredRun, Measurement};
use crate::stored::import_broken;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Results {
    system: Option<System>,
    profile: Option<Profile>,
    #[serde(default)]
    time_span: Vec<TimeSpan>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct System {
    computer_name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Profile {
    time_spans: ProfileTimeSpans,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProfileTimeSpans {
    #[serde(default)]
    time_span: Vec<ProfileTimeSpan>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProfileTimeSpan {
    targets: Option<ProfileTargets>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProfileTargets {
    #[serde(default)]
    target: Vec<ProfileTarget>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProfileTarget {
    block_size: Option<u32>,
    random: Option<u64>,
    random_ratio: Option<u8>,
    interlocked_sequential: Option<bool>,
    request_count: Option<u32>,
    write_ratio: Option<u8>,
    threads_per_file: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TimeSpan {
    test_time_seconds: f64,
    cpu_utilization: Option<CpuUtilization>,
    latency: Option<SpanLatency>,
    #[serde(default)]
    thread: Vec<Thread>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CpuUtilization {
    average: Option<CpuAverage>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CpuAverage {
    usage_percent: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpanLatency {
    average_read_milliseconds: Option<f64>,
    average_write_milliseconds: Option<f64>,
    average_total_milliseconds: Option<f64>,
    #[serde(default)]
    bucket: Vec<LatencyBucket>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LatencyBucket {
    percentile: f64,
    read_milliseconds: Option<f64>,
    write_milliseconds: Option<f64>,
    total_milliseconds: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Thread {
    #[serde(default)]
    target: Vec<Target>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Target {
    #[serde(default)]
    read_bytes: u64,
    #[serde(default)]
    read_count: u64,
    #[serde(default)]
    write_bytes: u64,
    #[serde(default)]
    write_count: u64,
}

/// What one machine has measured of a load.
#[derive(Debug)]
struct Part {
    machine: String,
    span: TimeSpan,
}

/// The I/Os of a time span: reads and their bytes, writes and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
}

/// Reads files of DISKSPD's results as one run, each given with its text.
///
/// # Errors
///
/// `FLEET_IMPORT_BROKEN` if one is not what DISKSPD writes.
pub fn read_diskspd(name: &str, files: &[(&Path, String)]) -> Result<MeasuredRun, Error> {
    let mut cells: BTreeMap<Load, Vec<Part>> = BTreeMap::new();
    let mut machines = 0;
    for (path, text) in files {
        let broken =
            |why: String| import_broken(path, why, "give files as DISKSPD writes them with -Rxml -L, whole");
        let results: Results = quick_xml::de::from_str(text).map_err(|error| broken(error.to_string()))?;
        let machine = results.system.and_then(|system| system.computer_name).unwrap_or_default();
        let spans = results.profile.map(|profile| profile.time_spans.time_span).unwrap_or_default();
        if results.time_span.is_empty() {
            return Err(broken(
                "it has no time span: the measurement was broken off, or it is something else".to_owned(),
            ));
        }
        machines += 1;
        for (number, span) in results.time_span.into_iter().enumerate() {
            if span.test_time_seconds <= 0.0 {
                return Err(broken(format!("a time span of {} s was measured", span.test_time_seconds)));
            }
            let targets = spans.get(number).and_then(|span| span.targets.as_ref());
            let mut loads: Vec<Load> = targets.into_iter().flat_map(|all| &all.target).map(load_of).collect();
            loads.sort();
            loads.dedup();
            let load = match loads.len() {
                0 => return Err(broken("its profile names no target".to_owned())),
                1 => loads.remove(0),
                count => {
                    let why = format!(
                        "it has {count} targets with loads of their own, and latencies of all together"
                    );
                    return Err(import_broken(path, why, "measure one load at a time"));
                }
            };
            cells.entry(load).or_default().push(Part { machine: machine.clone(), span });
        }
    }
    let of_cell = |(load, parts): (Load, Vec<Part>)| MeasuredCell { load, measurements: measurements(parts) };
    Ok(MeasuredRun {
        name: name.to_owned(),
        title: "results of DISKSPD".to_owned(),
        source: format!("{machines} files of DISKSPD's XML"),
        cells: cells.into_iter().map(of_cell).collect(),
        ..MeasuredRun::default()
    })
}

fn load_of(target: &ProfileTarget) -> Load {
    let pattern = match target {
        ProfileTarget { random_ratio: Some(percent), .. } if *percent < 100 => format!("random {percent} %"),
        ProfileTarget { random: Some(_), .. } | ProfileTarget { random_ratio: Some(_), .. } => {
            "random".to_owned()
        }
        ProfileTarget { interlocked_sequential: Some(true), .. } => "interlocked sequential".to_owned(),
        _ => "sequential".to_owned(),
    };
    Load {
        // DISKSPD's own defaults stand for what a profile does not say.
        block_size_bytes: target.block_size.unwrap_or(64 << 10),
        pattern,
        threads: target.threads_per_file.unwrap_or(1),
        write_percent: target.write_ratio.unwrap_or(0),
        outstanding: target.request_count.unwrap_or(2),
    }
}

/// The measurements of one load: a machine that comes again has measured it once more.
fn measurements(parts: Vec<Part>) -> Vec<Measurement> {
    let mut repeats: Vec<Vec<Part>> = Vec::new();
    for part in parts {
        let is_there = |repeat: &&mut Vec<Part>| repeat.iter().all(|other| other.machine != part.machine);
        match repeats.iter_mut().find(is_there) {
            Some(repeat) => repeat.push(part),
            None => repeats.push(vec![part]),
        }
    }
    repeats.iter().map(|repeat| measurement(repeat)).collect()
}

fn measurement(parts: &[Part]) -> Measurement {
    let rates = |count: fn(&Sums) -> u64| -> f64 {
        parts.iter().map(|part| count(&sums(&part.span)) as f64 / part.span.test_time_seconds).sum()
    };
    let (read_iops, write_iops) = (rates(|sums| sums.reads), rates(|sums| sums.writes));
    let of_client = |part: &Part| {
        let sums = sums(&part.span);
        (sums.reads + sums.writes) as f64 / part.span.test_time_seconds
    };
    let cpu: Vec<f64> = parts
        .iter()
        .filter_map(|part| Some(part.span.cpu_utilization.as_ref()?.average.as_ref()?.usage_percent))
        .collect();
    Measurement {
        iops: Some(read_iops + write_iops),
        read_iops: Some(read_iops),
        write_iops: Some(write_iops),
        mib_per_second: Some(rates(|sums| sums.read_bytes + sums.write_bytes) / (1024.0 * 1024.0)),
        total: points(
            parts,
            |sums| sums.reads + sums.writes,
            |latency| latency.average_total_milliseconds,
            |bucket| bucket.total_milliseconds,
        ),
        read: points(
            parts,
            |sums| sums.reads,
            |latency| latency.average_read_milliseconds,
            |bucket| bucket.read_milliseconds,
        ),
        write: points(
            parts,
            |sums| sums.writes,
            |latency| latency.average_write_milliseconds,
            |bucket| bucket.write_milliseconds,
        ),
        cpu_percent: (!cpu.is_empty()).then(|| cpu.iter().sum::<f64>() / cpu.len() as f64),
        client_iops: (parts.len() > 1).then(|| Spread::of(parts.iter().map(of_client))),
        ..Measurement::default()
    }
}

fn sums(span: &TimeSpan) -> Sums {
    let targets = span.thread.iter().flat_map(|thread| &thread.target);
    targets.fold(Sums::default(), |sums, target| Sums {
        reads: sums.reads + target.read_count,
        read_bytes: sums.read_bytes + target.read_bytes,
        writes: sums.writes + target.write_count,
        write_bytes: sums.write_bytes + target.write_bytes,
    })
}

/// The latencies of one direction of all parts together.
fn points(
    parts: &[Part],
    count: fn(&Sums) -> u64,
    mean: fn(&SpanLatency) -> Option<f64>,
    bucket: fn(&LatencyBucket) -> Option<f64>,
) -> LatencyPoints {
    let (mut ios, mut sum_ms) = (0.0, 0.0);
    // Latencies, each with how many I/Os had it: those between two percentiles count as the upper one.
    let mut steps: Vec<(f64, f64)> = Vec::new();
    for part in parts {
        let weight = count(&sums(&part.span)) as f64;
        let Some(latency) = part.span.latency.as_ref().filter(|_| weight > 0.0) else { continue };
        if let Some(mean_ms) = mean(latency) {
            ios += weight;
            sum_ms += weight * mean_ms;
        }
        let mut before = 0.0;
        for (percentile, value_ms) in
            latency.bucket.iter().filter_map(|step| Some((step.percentile, bucket(step)?)))
        {
            steps.push((value_ms, weight * (percentile - before).max(0.0) / 100.0));
            before = percentile;
        }
    }
    steps.sort_by(|one, other| one.0.total_cmp(&other.0));
    let all: f64 = steps.iter().map(|(_, weight)| weight).sum();
    let at = |quantile: f64| {
        // What rounding leaves must not move a percentile to the next step.
        let wanted = all * quantile * (1.0 - 1e-9);
        let mut sum = 0.0;
        let reached = steps.iter().find(|(_, weight)| {
            sum += weight;
            sum >= wanted
        });
        reached.map(|(value_ms, _)| value_ms * 1000.0)
    };
    let nines = |quantile: f64, ios_min: f64| (all >= ios_min).then(|| at(quantile)).flatten();
    LatencyPoints {
        mean_us: (ios > 0.0).then(|| sum_ms / ios * 1000.0),
        p50_us: at(0.5),
        p99_us: at(0.99),
        p99_9_us: nines(0.999, 1e3),
        p99_99_us: nines(0.9999, 1e4),
        p99_999_us: nines(0.99999, 1e5),
    }
}

#[cfg(test)]
#[path = "diskspd_import_tests.rs"]
mod tests;
