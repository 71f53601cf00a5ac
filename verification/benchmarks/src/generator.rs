//! Whether the fleet's load generator measures what fio measures: the same loads on the same volume of a cluster, in turns.
//!
//! The cluster has one half of the cores and whoever loads it the other. fio holds a rate by keeping its core busy; were that one of
//! the cluster's, its latencies would be those of a smaller cluster. The generator sleeps instead, so at a rate the load's cores are
//! kept awake for both: how long a core takes to wake up is the machine's.
//!
//! At a part of what the storage can do both are to find the same rate and the same latencies: what differs then is of the generator's
//! own making. Without a rate it is told how they differ. In all cases the generator is to have counted just what the volume's owner
//! has served, and to cost less than fio. A ratio is taken within a round, and the median of the rounds is what is judged. Of the
//! slowest hundredth it is each one's lower quartile of all rounds that is compared: whatever else goes on with the machine only makes
//! that slower, many times in some rounds, and comes to one of the two as chance has it.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use spandrel_fleet::{CellResult, CellSpec, RateLimit, Target, aligned, count_text, run_cell, short};
use spandrel_platform_linux::Cores;

use crate::Common;
use crate::awake::Awake;
use crate::cell::{Load, Medium};
use crate::contender::{Contender, Setup, run};
use crate::contenders::{COPIES, Cluster, NODES};
use crate::fio;
use crate::processor_time::Mark;
use crate::results::Median;

const VOLUME: &str = "generator";

/// Drives of each node, each as large as the volume: four times as much as its copies need.
const DRIVES: u64 = 3;

/// At saturation each client has so many I/Os under way, at a part of it one.
const OUTSTANDING: u32 = 32;

/// Of the most I/Os a second, in percent.
const PARTS_PERCENT: [u32; 2] = [30, 60];

/// How often it is measured how many that are: a single time may be a bad one.
const MOST_ROUNDS: usize = 5;

/// How much rates may differ, in percent.
const IOPS_WITHIN: f64 = 1.0;

/// How much latencies may differ, in percent.
const LATENCY_WITHIN: f64 = 10.0;

/// Compares the fleet's load generator with fio: the same loads on the same volume, in turns.
///
/// The exit status is 1 if they differ by more than they may, or if the generator costs more.
#[derive(Args)]
pub struct GeneratorArguments {
    #[command(flatten)]
    common: Common,

    /// How often each load is put on the volume by each of them
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Clients, each with a connection of its own; fio is to have a core for each
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    clients: u32,

    /// How much is read and written within, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(64..=65536))]
    size: u64,

    /// How much each I/O reads or writes, in KiB
    #[arg(long, value_name = "KIB", default_value_t = 4, value_parser = clap::value_parser!(u32).range(4..=1024))]
    block: u32,

    /// What the cluster's drives are on
    #[arg(long, value_enum, default_value_t = Medium::Memory)]
    medium: Medium,
}

/// How much of what the storage can do is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Rate {
    /// As much as it can, with many under way.
    Saturated,
    /// As much as it can, with one under way: a loop in which what each of them takes for itself counts in full.
    One,
    /// So many percent of what it can with one I/O of each client under way, as I/Os a second of each client.
    Part { percent: u32, iops_of_client: u32 },
}

/// What one of them has measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Measured {
    iops: f64,
    p50_us: f64,
    p99_us: f64,
    /// Its own processor time for each I/O.
    cpu_us: f64,
}

/// What both have measured, one right after the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Pair {
    write_percent: u32,
    rate: Rate,
    fio: Measured,
    own: Measured,
    /// I/Os that the generator has counted.
    counted: u64,
    /// I/Os that the owner has served meanwhile.
    served: u64,
}

/// The cluster, and how both reach the volume.
struct Storage<'a> {
    arguments: &'a GeneratorArguments,
    setup: Setup,
    cluster: Cluster,
    contender: Contender,
    target: Target,
    /// The cores of whoever loads it.
    of_load: Cores,
}

/// Measures, and prints what came of it. Whether all is as it is to be.
pub fn run_all(arguments: &GeneratorArguments) -> Result<bool, String> {
    let folder = arguments.common.scratch(arguments.medium)?;
    let setup = Setup {
        folder: folder.path().to_owned(),
        medium: arguments.medium,
        size_bytes: arguments.size << 20,
        spandrel: arguments.common.spandrel.clone(),
        mark: Mark::new("generator"),
    };
    let storage = Storage::start(arguments, setup)?;
    let mut pairs = Vec::new();
    for write_percent in [0, 100] {
        let iops_max = storage.iops_max(write_percent)?;
        for round in 0..arguments.rounds {
            for rate in rates(iops_max, arguments.clients) {
                let pair = storage.measure(write_percent, rate, round % 2 == 1)?;
                eprintln!(
                    "round {}/{}: {}: fio {}, own {}",
                    round + 1,
                    arguments.rounds,
                    title(write_percent, rate),
                    text(&pair.fio),
                    text(&pair.own)
                );
                pairs.push(pair);
            }
        }
    }
    arguments.common.save(&pairs)?;
    let verdicts = judge(&pairs);
    print!("{}", render(&verdicts));
    Ok(verdicts.iter().all(|verdict| verdict.holds != Some(false)))
}

fn rates(iops_max: f64, clients: u32) -> impl Iterator<Item = Rate> {
    let part = move |percent: u32| Rate::Part {
        percent,
        // Clients have no more than some 100,000 each.
        iops_of_client: (iops_max * f64::from(percent) / 100.0 / f64::from(clients)).round().max(1.0) as u32,
    };
    [Rate::Saturated, Rate::One].into_iter().chain(PARTS_PERCENT.map(part))
}

impl<'a> Storage<'a> {
    /// Starts the cluster on one half of the cores, and keeps the calling thread, and with it all that will load, on as many of the
    /// other as there are clients.
    fn start(arguments: &'a GeneratorArguments, setup: Setup) -> Result<Self, String> {
        let cores = Cores::available();
        let cores = cores.map_err(|error| format!("the cores of this machine are unknown: {error}"))?;
        let clients = arguments.clients as usize;
        let (of_cluster, of_load) = (cores.share(0, 2).to_string(), cores.share(1, 2).first(clients));
        if cores.count() < 2 || of_load.count() < clients {
            return Err(format!(
                "{clients} clients, and a cluster, need cores of their own: here are {} in all, and half of them are the cluster's",
                cores.count()
            ));
        }
        let (cluster, server) = Cluster::start(&setup, DRIVES, setup.size_bytes, &["--cores", &of_cluster])?;
        of_load
            .keep_thread()
            .map_err(|error| format!("the load cannot be kept on the cores {of_load}: {error}"))?;
        let reach = cluster.create_volume(VOLUME, setup.size_bytes)?;
        let uri = reach.iter().find_map(|argument| argument.strip_prefix("--uri="));
        let target = uri.ok_or("the volume has no URI")?.parse::<Target>()?;
        let contender = Contender { reach: vec![reach], environment: Vec::new(), servers: vec![server] };
        // All over the drives, whose places cost more when they are written for the first time: writes go elsewhere each time.
        for _ in 0..=DRIVES * NODES / COPIES {
            fio::fill(&contender, &setup.mark, &setup.folder, setup.size_bytes)?;
        }
        Ok(Self { arguments, setup, cluster, contender, target, of_load })
    }

    /// How many I/Os a second there are with one of each client under way, as fio finds on cores that do not sleep.
    fn iops_max(&self, write_percent: u32) -> Result<f64, String> {
        let _awake = Awake::keep(&self.of_load)?;
        let measured = (0..MOST_ROUNDS).map(|_| self.by_fio(write_percent, 1, None));
        let iops = measured.map(|measured| Ok(measured?.iops)).collect::<Result<Vec<f64>, String>>()?;
        Ok(Median::of(iops).expect("it was measured").value)
    }

    fn measure(&self, write_percent: u32, rate: Rate, own_first: bool) -> Result<Pair, String> {
        let (outstanding, iops_of_client) = match rate {
            Rate::Saturated => (OUTSTANDING, None),
            Rate::One => (1, None),
            Rate::Part { iops_of_client, .. } => (1, Some(iops_of_client)),
        };
        let _awake = iops_of_client.map(|_| Awake::keep(&self.of_load)).transpose()?;
        let by_fio = || self.by_fio(write_percent, outstanding, iops_of_client);
        let before = own_first.then(|| self.by_itself(write_percent, outstanding, iops_of_client));
        let fio = by_fio()?;
        let own = match before {
            Some(own) => own?,
            None => self.by_itself(write_percent, outstanding, iops_of_client)?,
        };
        let (own, served) = own;
        Ok(Pair { write_percent, rate, fio, own: measured(&own)?, counted: own.answered, served })
    }

    fn by_fio(
        &self,
        write_percent: u32,
        outstanding: u32,
        iops_of_client: Option<u32>,
    ) -> Result<Measured, String> {
        let load = Load { write_percent, block_bytes: self.arguments.block << 10, outstanding };
        let Setup { mark, folder, size_bytes, .. } = &self.setup;
        let times = self.arguments.common.times();
        let mut arguments = fio::load_arguments(&load);
        arguments.extend(
            ["--time_based", "--norandommap", "--output-format=json", "--thread", "--lat_percentiles=1"]
                .map(str::to_owned),
        );
        arguments.push(format!("--numjobs={}", self.arguments.clients));
        arguments.push(format!("--ramp_time={}ms", times.warm_up.as_millis()));
        arguments.push(format!("--runtime={}ms", times.measured.as_millis()));
        arguments.extend(iops_of_client.map(|iops| format!("--rate_iops={iops}")));
        let said = run(&mut fio::command(&self.contender, mark, folder, *size_bytes, &arguments))?;
        measured_by_fio(&said, write_percent, self.arguments.clients)
            .ok_or_else(|| format!("fio did not say what it was to say: {said}"))
    }

    /// What the generator finds, and how many I/Os the owner has served meanwhile.
    fn by_itself(
        &self,
        write_percent: u32,
        outstanding: u32,
        iops_of_client: Option<u32>,
    ) -> Result<(CellResult, u64), String> {
        let times = self.arguments.common.times();
        let block_size_bytes = self.arguments.block << 10;
        let spec = CellSpec {
            block_size_bytes,
            // As much memory as fio writes from: a block for each I/O under way. More of it would be in no cache of the processor.
            write_source_bytes: u64::from(block_size_bytes) * u64::from(outstanding),
            outstanding,
            write_percent: u8::try_from(write_percent).expect("it is a part of 100"),
            rate_limit: iops_of_client.map(RateLimit::IosPerSecond),
            warmup: times.warm_up,
            duration: times.measured,
            cooldown: Duration::ZERO,
            ..CellSpec::default()
        };
        let targets = vec![self.target.clone(); self.arguments.clients as usize];
        let before = self.served()?;
        let result = run_cell(&targets, &spec).map_err(|error| error.to_string())?;
        if result.has_failures() {
            return Err(format!("I/Os of the generator failed: {:?}", result.failures));
        }
        let served = self.served()?.checked_sub(before);
        Ok((result, served.ok_or("the volume has another owner, which counts anew: run it again")?))
    }

    /// How many I/Os the volume's owner has served.
    fn served(&self) -> Result<u64, String> {
        let said = run(self.cluster.command().args(["volume", "get", VOLUME, "-o", "json"]))?;
        let volume: serde_json::Value =
            serde_json::from_str(&said).map_err(|error| format!("spandrel says {said}: {error}"))?;
        let count = |kind: &str| volume["traffic"][kind].as_u64();
        count("reads").zip(count("writes")).map(|(reads, writes)| reads + writes).ok_or(said)
    }
}

impl Drop for Storage<'_> {
    fn drop(&mut self) {
        self.contender.servers.clear();
        self.setup.mark.end_all();
    }
}

fn measured(result: &CellResult) -> Result<Measured, String> {
    let latency = result.total.latency.ok_or("the generator had no answer")?;
    Ok(Measured {
        iops: result.total.iops,
        p50_us: latency.p50_us,
        p99_us: latency.p99_us,
        cpu_us: result.generator.cpu_us_per_io,
    })
}

/// Reads fio's JSON of a load of one kind; all its jobs are reported as one.
fn measured_by_fio(text: &str, write_percent: u32, jobs: u32) -> Option<Measured> {
    let said: serde_json::Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let job = said["jobs"].get(0)?;
    let kind = &job[if write_percent == 0 { "read" } else { "write" }];
    let iops = kind["iops"].as_f64().filter(|iops| *iops > 0.0)?;
    let percentile_us = |name: &str| Some(kind["lat_ns"]["percentile"][name].as_f64()? / 1000.0);
    // Of a job's time, in the mean of all jobs.
    let busy_percent = job["usr_cpu"].as_f64()? + job["sys_cpu"].as_f64()?;
    Some(Measured {
        iops,
        p50_us: percentile_us("50.000000")?,
        p99_us: percentile_us("99.000000")?,
        cpu_us: busy_percent / 100.0 * f64::from(jobs) * 1e6 / iops,
    })
}

/// What is to be said of one number of a load.
struct Verdict {
    load: String,
    what: &'static str,
    /// fio's, and the generator's: the medians.
    values: Option<(f64, f64)>,
    /// The generator's to fio's; of counts, to what the owner served.
    ratio: Median,
    wanted: String,
    /// None if nothing is asked of it.
    holds: Option<bool>,
}

fn judge(pairs: &[Pair]) -> Vec<Verdict> {
    let mut loads: Vec<(u32, Rate)> = Vec::new();
    for pair in pairs {
        if !loads.contains(&(pair.write_percent, pair.rate)) {
            loads.push((pair.write_percent, pair.rate));
        }
    }
    let rounds_of = |load: (u32, Rate)| -> Vec<Pair> {
        pairs.iter().copied().filter(|pair| (pair.write_percent, pair.rate) == load).collect()
    };
    loads.into_iter().flat_map(|load| judge_load(&rounds_of(load))).collect()
}

/// What is to be said of all rounds of a load.
fn judge_load(pairs: &[Pair]) -> Vec<Verdict> {
    let Some(first) = pairs.first() else { return Vec::new() };
    let load = title(first.write_percent, first.rate);
    let is_part = matches!(first.rate, Rate::Part { .. });
    let verdict = |what, of: fn(&Measured) -> f64, within: Option<f64>| {
        let ratio = Median::of(pairs.iter().map(|pair| of(&pair.own) / of(&pair.fio)))?;
        let value = |side: fn(&Pair) -> &Measured| {
            Median::of(pairs.iter().map(|pair| of(side(pair)))).map(|median| median.value)
        };
        let holds = within.map(|percent| (100.0 * (ratio.value - 1.0)).abs() <= percent);
        let wanted = within.map_or_else(String::new, |percent| format!("(within {percent:.0} %)"));
        let values = value(|pair| &pair.fio).zip(value(|pair| &pair.own));
        Some(Verdict { load: load.clone(), what, values, ratio, wanted, holds })
    };
    let undisturbed = |verdict: Verdict, of: fn(&Measured) -> f64| {
        let quartile = |side: fn(&Pair) -> &Measured| lower_quartile(pairs.iter().map(|pair| of(side(pair))));
        let (fio, own) = quartile(|pair| &pair.fio).zip(quartile(|pair| &pair.own))?;
        let ratio = Median { value: own / fio, ..verdict.ratio };
        let holds = verdict.holds.map(|_| (100.0 * (ratio.value - 1.0)).abs() <= LATENCY_WITHIN);
        Some(Verdict { values: Some((fio, own)), ratio, holds, ..verdict })
    };
    let only = |bound: f64| is_part.then_some(bound);
    let mut verdicts: Vec<Verdict> = [
        verdict("IOPS", |measured| measured.iops, only(IOPS_WITHIN)),
        verdict("median, us", |measured| measured.p50_us, only(LATENCY_WITHIN)),
        verdict("p99, us", |measured| measured.p99_us, only(LATENCY_WITHIN))
            .and_then(|verdict| undisturbed(verdict, |measured| measured.p99_us)),
        verdict("CPU us/IO", |measured| measured.cpu_us, None).map(|verdict| Verdict {
            holds: Some(verdict.ratio.value < 1.0),
            wanted: "(below 1)".to_owned(),
            ..verdict
        }),
    ]
    .into_iter()
    .flatten()
    .collect();
    let counts = pairs.iter().map(|pair| pair.counted as f64 / pair.served.max(1) as f64);
    verdicts.extend(Median::of(counts).map(|ratio| Verdict {
        load,
        what: "counted",
        values: None,
        ratio,
        wanted: "(each time as many as were served)".to_owned(),
        holds: Some(pairs.iter().all(|pair| pair.counted == pair.served)),
    }));
    verdicts
}

/// A quarter of the values are not above it.
fn lower_quartile(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 4).copied()
}

fn render(verdicts: &[Verdict]) -> String {
    let mut lines = vec![["load", "", "fio", "fleet", "ratio", "", ""].map(str::to_owned).to_vec()];
    for verdict in verdicts {
        let value = |side: fn((f64, f64)) -> f64| {
            verdict.values.map_or_else(String::new, |values| number(side(values)))
        };
        let says = verdict.holds.map_or("", |holds| if holds { "HOLDS" } else { "DOES NOT HOLD" });
        let Median { value: ratio, least, most } = verdict.ratio;
        lines.push(vec![
            verdict.load.clone(),
            verdict.what.to_owned(),
            value(|(fio, _)| fio),
            value(|(_, own)| own),
            format!("{ratio:.3} ({least:.3} to {most:.3})"),
            says.to_owned(),
            verdict.wanted.clone(),
        ]);
    }
    aligned(&lines, &[0, 1, 5, 6])
}

fn number(value: f64) -> String {
    if value >= 1000.0 { count_text(value) } else { short(value) }
}

fn title(write_percent: u32, rate: Rate) -> String {
    let kind = if write_percent == 0 { "read" } else { "write" };
    match rate {
        Rate::Saturated => format!("{kind}, {OUTSTANDING} outstanding"),
        Rate::One => format!("{kind}, 1 outstanding"),
        Rate::Part { percent, .. } => format!("{kind}, {percent} % of the most"),
    }
}

fn text(measured: &Measured) -> String {
    format!(
        "{:.0} IOPS, {:.0} and {:.0} us, {:.2} us of processor time",
        measured.iops, measured.p50_us, measured.p99_us, measured.cpu_us
    )
}

#[cfg(test)]
#[path = "generator_tests.rs"]
mod tests;
