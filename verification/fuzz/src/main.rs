//! The program behind `cargo xtask fuzz`: lists targets, runs one, or tries one input.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use spandrel_fuzz::{Target, engine, targets};

#[derive(Parser)]
#[command(name = "spandrel-fuzz", about = "Runs Spandrel's fuzz targets; see docs/internals/fuzzing.md")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Name all targets
    List,
    /// Write a target's seeds and corpus into a folder, for a fuzzer to begin with
    Seed {
        /// The target
        target: String,
        /// The folder, which exists
        folder: PathBuf,
    },
    /// Run a target
    Run {
        /// The target
        target: String,
        /// How long, without guidance; a guided run is bounded by its own settings
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Equal seeds try equal inputs, without guidance
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Where an input goes on which the target fails
        #[arg(long, default_value = ".")]
        failures: PathBuf,
    },
    /// Try the input in a file
    Try {
        /// The target
        target: String,
        /// The file
        file: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), String> {
    match command {
        Command::List => {
            targets::ALL.iter().for_each(|target| println!("{:<16} {}", target.name, target.about));
            Ok(())
        }
        Command::Seed { target, folder } => write_seeds(&find(&target)?, &folder),
        Command::Run { target, seconds, seed, failures } => {
            run_target(&find(&target)?, seconds, seed, &failures)
        }
        Command::Try { target, file } => {
            let input = std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            find(&target)?.try_input(&input);
            println!("{target} bears {}", file.display());
            Ok(())
        }
    }
}

fn find(name: &str) -> Result<Target, String> {
    targets::find(name).ok_or_else(|| format!("there is no target {name:?}; --list names them"))
}

fn write_seeds(target: &Target, folder: &Path) -> Result<(), String> {
    let committed = engine::corpus(target).map_err(|error| error.to_string())?;
    let inputs = (target.seeds)().into_iter().chain(committed.into_iter().map(|(_, bytes)| bytes));
    for (number, input) in inputs.enumerate() {
        let path = folder.join(format!("seed-{number}"));
        std::fs::write(&path, input).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// Hands the target to libFuzzer, which ends the process itself.
#[cfg(feature = "guided")]
fn run_target(target: &Target, _: u64, _: u64, _: &Path) -> Result<(), String> {
    // What is made only once must not count for the input that happens to come first.
    drop((target.seeds)());
    guide(*target);
    Ok(())
}

#[cfg(feature = "guided")]
fn guide(target: Target) {
    bolero::check!(name = target.name).for_each(move |input: &[u8]| target.try_input(input));
}

#[cfg(not(feature = "guided"))]
fn run_target(target: &Target, seconds: u64, seed: u64, failures: &Path) -> Result<(), String> {
    let duration = std::time::Duration::from_secs(seconds);
    let failure = match engine::run_for(target, seed, duration) {
        Ok(count) => {
            println!("{}: {count} inputs, none of which broke it", target.name);
            return Ok(());
        }
        Err(failure) => failure,
    };
    let path = failures.join(format!("{}-failure", target.name));
    std::fs::write(&path, failure.input).map_err(|error| format!("{}: {error}", path.display()))?;
    Err(format!("{} fails on {}, which is in {} now", target.name, failure.origin, path.display()))
}
