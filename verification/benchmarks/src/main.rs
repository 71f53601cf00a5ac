//! `make bench`: Spandrel and others under the same loads of fio, in turns, and how they compare.
//!
//! Each contender serves on this machine; the loads go round them in rounds, so that what else the machine does falls on all
//! alike. What counts is the processor time of everything that a load sets to work, since storage of this kind lives on the cores
//! of those whom it serves; and ratios within a round.

mod awake;
mod cell;
mod contender;
mod contenders;
mod curves;
mod fio;
mod generator;
mod mapped;
mod processor_time;
mod report;
mod results;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use tempfile::TempDir;

use crate::cell::{CELLS, Cell, Medium};
use crate::contender::{Contender, Known, Setup};
use crate::contenders::CONTENDERS;
use crate::curves::CurvesArguments;
use crate::fio::Times;
use crate::generator::GeneratorArguments;
use crate::processor_time::Mark;
use crate::results::{OWN, Results, Sample};

/// Measures Spandrel and others in turns on this machine, with fio, and prints how they compare.
///
/// Those that are not installed are left out, and it is said with which package they come. The exit status is 1 if a floor
/// does not hold.
#[derive(Parser)]
#[command(name = "spandrel-benchmarks", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    other: Option<Other>,

    #[command(flatten)]
    common: Common,

    /// How often each load is put on each contender
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// How much is read and written within, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(64..=65536))]
    size: u64,

    /// Measure these loads alone
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    cells: Vec<String>,

    /// Measure these contenders alone
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    contenders: Vec<String>,
}

/// What all that can be measured needs to be told.
#[derive(Args)]
struct Common {
    /// The program `spandrel`, as built for release
    #[arg(long, value_name = "FILE", default_value = "target/release/spandrel")]
    spandrel: PathBuf,

    /// How long each measurement takes, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,

    /// Keep all that was measured in this file, as JSON
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    /// The folder on a disk for what needs one
    #[arg(long, value_name = "FOLDER", default_value = "/var/tmp")]
    disk: PathBuf,

    /// The folder in memory
    #[arg(long, value_name = "FOLDER", default_value = "/dev/shm")]
    memory: PathBuf,
}

impl Common {
    fn times(&self) -> Times {
        Times { warm_up: Duration::from_secs(1), measured: Duration::from_secs(self.seconds.into()) }
    }

    /// A folder on a medium that is gone when it is dropped.
    fn scratch(&self, medium: Medium) -> Result<TempDir, String> {
        let parent = if medium == Medium::Memory { &self.memory } else { &self.disk };
        let scratch = tempfile::Builder::new().prefix("spandrel-benchmark-").tempdir_in(parent);
        scratch.map_err(|error| format!("no folder can be made in {}: {error}", parent.display()))
    }

    /// Keeps what was measured, if that is wished for.
    fn save(&self, results: &impl Serialize) -> Result<(), String> {
        let Some(path) = &self.save else { return Ok(()) };
        let text =
            serde_json::to_string_pretty(results).expect("results are numbers and names, which JSON has");
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        std::fs::write(path, text + "\n")
            .map_err(|error| format!("{} cannot be written: {error}", path.display()))
    }
}

/// What else can be measured.
#[derive(Subcommand)]
enum Other {
    Curves(CurvesArguments),
    Generator(GeneratorArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.other {
        Some(Other::Curves(arguments)) => curves::run_all(arguments).map(|()| true),
        Some(Other::Generator(arguments)) => generator::run_all(arguments),
        None => run(&arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether all floors hold.
fn run(arguments: &Arguments) -> Result<bool, String> {
    let cells = chosen(&CELLS, |cell| cell.name, &arguments.cells, "load")?;
    let contenders = chosen(&CONTENDERS, |known| known.name, &arguments.contenders, "contender")?;
    let contenders: Vec<Known> = contenders.into_iter().filter(is_installed).collect();
    let mut results = Results {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        size_bytes: arguments.size << 20,
        measured_seconds: f64::from(arguments.common.seconds),
        samples: Vec::new(),
    };
    for medium in [Medium::Memory, Medium::Disk] {
        let cells: Vec<Cell> = cells.iter().copied().filter(|cell| cell.medium == medium).collect();
        if !cells.is_empty() {
            measure_all(arguments, medium, &cells, &contenders, &mut results)?;
        }
    }
    arguments.common.save(&results)?;
    print!("{}", report::render(&results, &cells, &contenders));
    Ok(report::all_hold(&results, &cells))
}

/// Those that were named, or all.
fn chosen<T: Copy>(
    known: &[T],
    name: fn(&T) -> &'static str,
    wanted: &[String],
    kind: &str,
) -> Result<Vec<T>, String> {
    if let Some(unknown) = wanted.iter().find(|wanted| !known.iter().any(|known| name(known) == *wanted)) {
        let names: Vec<&str> = known.iter().map(name).collect();
        return Err(format!("there is no {kind} {unknown}; there are {}", names.join(", ")));
    }
    let is_wanted = |known: &&T| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name(known));
    Ok(known.iter().filter(is_wanted).copied().collect())
}

fn is_installed(known: &Known) -> bool {
    let missing = known.missing();
    if !missing.is_empty() {
        eprintln!("{} is left out: it comes with Debian's package {}", known.name, missing.join(", "));
    }
    missing.is_empty()
}

/// One that serves, with what marks it.
struct Serving {
    known: Known,
    mark: Mark,
    folder: PathBuf,
    contender: Contender,
}

impl Drop for Serving {
    /// Some of what a contender has started outlives its servers.
    fn drop(&mut self) {
        self.contender.servers.clear();
        self.mark.end_all();
    }
}

/// Starts all contenders on one medium, and puts the loads on them in turns.
fn measure_all(
    arguments: &Arguments,
    medium: Medium,
    cells: &[Cell],
    contenders: &[Known],
    results: &mut Results,
) -> Result<(), String> {
    let scratch = arguments.common.scratch(medium)?;
    let wanted = |known: &&Known| {
        medium == Medium::Memory
            || known.name == OWN
            || cells.iter().any(|cell| cell.floor.is_some_and(|(contender, _)| contender == known.name))
    };
    let mut serving = Vec::new();
    for known in contenders.iter().filter(wanted) {
        serving.push(start(known, arguments, medium, scratch.path(), results.size_bytes)?);
    }
    let times = arguments.common.times();
    for round in 0..arguments.rounds {
        for cell in cells {
            for at in 0..serving.len() {
                // Each in another place of the order from round to round.
                let one = &serving[(at + round as usize) % serving.len()];
                let measurement = fio::measure(
                    &one.contender,
                    &one.mark,
                    &one.folder,
                    results.size_bytes,
                    &cell.load,
                    times,
                )
                .map_err(|error| format!("{}, {}: {error}", one.known.name, cell.name))?;
                eprintln!(
                    "round {}/{}: {}, {}: {:.0} IOPS, {:.0} per core, {:.1} us",
                    round + 1,
                    arguments.rounds,
                    cell.name,
                    one.known.name,
                    measurement.iops,
                    measurement.iops_per_core(),
                    measurement.latency_mean_us
                );
                results.samples.push(Sample {
                    cell: cell.name.to_owned(),
                    contender: one.known.name.to_owned(),
                    round,
                    measurement,
                });
            }
        }
    }
    Ok(())
}

fn start(
    known: &Known,
    arguments: &Arguments,
    medium: Medium,
    scratch: &Path,
    size_bytes: u64,
) -> Result<Serving, String> {
    eprintln!("{}: starting, and writing all of it several times", known.name);
    let of_it = |error: String| format!("{}: {error}", known.name);
    let folder = scratch.join(known.name);
    std::fs::create_dir(&folder).map_err(|error| of_it(format!("no folder: {error}")))?;
    let mark = Mark::new(known.name);
    let spandrel = arguments.common.spandrel.clone();
    let setup = Setup { folder: folder.clone(), medium, size_bytes, spandrel, mark: mark.clone() };
    let contender = (known.start)(&setup).map_err(of_it)?;
    fio::fill(&contender, &mark, &folder, size_bytes).map_err(of_it)?;
    Ok(Serving { known: *known, mark, folder, contender })
}
