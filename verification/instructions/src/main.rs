//! `make instructions`: how many instructions one write and one read take, all nodes together, and whether that has grown.
//!
//! A cluster in a made-up world does the same in each run, so its instructions can be counted to a few in ten thousand, where times
//! differ from minute to minute. Valgrind counts them, in the program itself, which it runs once for each load. What the made-up
//! world takes, in place of a kernel, is left out as far as functions tell.
//!
//! The figures are kept in `figures.json`: a change that raises or lowers one by more than 2 % has to write the new one there.

// The futures of a whole cluster are nested deeply.
#![recursion_limit = "256"]

mod callgrind;
mod figures;
mod load;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;

use crate::callgrind::Profile;
use crate::figures::Figures;
use crate::load::{LOADS, Load};

/// As in the program that ships.
#[global_allocator]
static ALLOCATOR: spandrel_platform_linux::Allocator = spandrel_platform_linux::Allocator;

/// How many functions are listed.
const LISTED: usize = 70;

/// Counts the instructions of one write and one read, and compares them with the figures that are kept.
///
/// The exit status is 1 if one differs by more than 2 %, and 2 if they cannot be counted. Needs valgrind.
#[derive(Parser)]
#[command(name = "spandrel-instructions")]
struct Arguments {
    /// The figures that are kept
    #[arg(long, value_name = "FILE", default_value = "verification/instructions/figures.json")]
    figures: PathBuf,

    /// Keep what is counted
    #[arg(long)]
    update: bool,

    /// Say in which functions of this load the instructions are, and keep nothing
    #[arg(long, value_name = "LOAD")]
    list: Option<String>,

    /// Do a load, for whoever counts
    #[arg(long, value_name = "LOAD", hide = true)]
    perform: Option<String>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether all are what is kept.
fn run(arguments: &Arguments) -> Result<bool, String> {
    if let Some(name) = &arguments.perform {
        return load::perform(&named(name)?).map(|()| true);
    }
    if let Some(name) = &arguments.list {
        let load = named(name)?;
        let profile = counted(&load)?;
        println!("{}", profile.listing(load.operations, LISTED));
        return Ok(true);
    }
    let mut now = Figures::default();
    for load in LOADS {
        let instructions = counted(&load)?.own_instructions() / load.operations;
        eprintln!("{}: {instructions}", load.name);
        now.set(load.name, instructions);
    }
    if arguments.update {
        now.save(&arguments.figures)?;
        return Ok(true);
    }
    let kept = Figures::read(&arguments.figures)?;
    let compared = kept.compare(&now);
    for (name, verdict) in &compared {
        println!("{name:<24} {verdict}");
    }
    Ok(compared.iter().all(|(_, verdict)| verdict.is_same()))
}

fn named(name: &str) -> Result<Load, String> {
    let found = LOADS.into_iter().find(|load| load.name == name);
    let names = || LOADS.map(|load| load.name).join(", ");
    found.ok_or_else(|| format!("there is no load {name}; there are {}", names()))
}

/// Has valgrind count what this program takes for a load.
fn counted(load: &Load) -> Result<Profile, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no folder can be made: {error}"))?;
    let counts = folder.path().join("counts");
    let program = std::env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--quiet", "--collect-atstart=no", "--compress-strings=yes"]);
    valgrind.arg(format!("--toggle-collect={}", load::COUNTED));
    valgrind.arg(format!("--callgrind-out-file={}", counts.display()));
    valgrind.arg(program).args(["--perform", load.name]);
    let output = valgrind.output().map_err(|error| {
        format!("valgrind cannot be started: {error}; on Debian `apt-get install valgrind` installs it")
    })?;
    if !output.status.success() {
        return Err(format!("valgrind: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    read_profile(&counts)
}

fn read_profile(path: &Path) -> Result<Profile, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let profile = Profile::parse(&text)?;
    if profile.own_instructions() == 0 {
        return Err("nothing was counted: the function that does the load was not found".to_owned());
    }
    Ok(profile)
}
