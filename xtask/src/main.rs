//! The project's own tools: `cargo xtask tidy`, `cargo xtask ci`, `cargo xtask packages`, `cargo xtask fuzz`.
//!
//! They exist so that a person and the build machine run the same checks with the same command,
//! and so that the rules of STYLE.md which a compiler does not know are refused by a program
//! rather than noticed by a reviewer. Nothing here is part of what ships.

mod ci;
mod commands;
mod fuzz;
mod packages;
mod simulate;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Spandrel's own development tools")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check the house rules: who may name whom, banned calls, dead files, links, text form
    Tidy {
        /// How many of the largest files and functions to list
        #[arg(long, default_value_t = 10, value_name = "COUNT")]
        largest: usize,
    },
    /// Run everything a change must pass, stopping at the first step that fails
    Ci {
        /// Run the later steps too when one fails
        #[arg(long)]
        keep_going: bool,
        /// Install cargo-deny into the target directory if it is missing (done anyway if CI is set)
        #[arg(long)]
        install: bool,
    },
    /// Install the Debian packages that the tests use, or say which are missing
    Packages,
    /// Run whole clusters in simulated worlds, and judge them; see docs/internals/simulator.md
    #[command(disable_help_flag = true)]
    Simulate {
        /// What the simulator is given; `--help` lists it
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<String>,
    },
    /// Feed targets with bytes that nobody expects; see docs/internals/fuzzing.md
    Fuzz(fuzz::FuzzArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments.command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the task found nothing to complain about.
fn run(task: &Task) -> Result<bool, String> {
    let here = std::env::current_dir().map_err(|error| format!("the current folder is unknown: {error}"))?;
    let root = workspace_root(&here)?;
    match task {
        Task::Tidy { largest } => tidy::run(&root, *largest),
        Task::Ci { keep_going, install } => Ok(ci::run(&root, *keep_going, *install)),
        Task::Packages => packages::run(),
        Task::Simulate { arguments } => simulate::run(&root, arguments),
        Task::Fuzz(arguments) => fuzz::run(&root, arguments),
    }
}

/// The folder at or above `start` that holds this workspace.
fn workspace_root(start: &Path) -> Result<PathBuf, String> {
    start.ancestors().find(|folder| folder.join("xtask/Cargo.toml").is_file()).map(Path::to_owned).ok_or_else(
        || {
            format!(
                "{} is not inside the workspace: no folder above it holds xtask/Cargo.toml; run this from a clone",
                start.display()
            )
        },
    )
}
