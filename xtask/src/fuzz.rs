//! `cargo xtask fuzz`: runs a fuzz target of `verification/fuzz` for a while, or tries one input.
//!
//! With a C++ compiler, libFuzzer looks for inputs and coverage guides it: the code is compiled with
//! counters at its branches, which a stable compiler does as well as any. Without one, or with
//! `--unguided`, inputs are made up from the corpus alone. What is found stands in the target directory:
//! the working corpus of each target, from which the next run goes on, and inputs that broke something.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::commands::{cargo, find_program, path_folders, run as run_command, succeeds_silently};

/// What makes the compiler count branches and report comparisons. `fuzzing_libfuzzer` is for bolero, which
/// holds libFuzzer.
const GUIDED_FLAGS: [&str; 8] = [
    "--cfg=fuzzing",
    "--cfg=fuzzing_libfuzzer",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];

/// The longest input, in bytes.
const INPUT_BYTES_MAX: u32 = 4096;
/// How long one input may take.
const INPUT_SECONDS_MAX: u32 = 20;
/// Memory that a target may hold, in MiB. Targets have far narrower bounds of their own; this one stops
/// what runs away.
const MEMORY_MIB_MAX: u32 = 2048;

/// `cargo xtask fuzz`.
#[derive(Args)]
pub struct FuzzArguments {
    /// Which target; all of them, one after the other, if absent
    target: Option<String>,
    /// Name the targets
    #[arg(long)]
    list: bool,
    /// How long each target runs
    #[arg(long, default_value_t = 1, value_name = "MINUTES")]
    minutes: u64,
    /// Try the input in this file, and nothing else
    #[arg(long, value_name = "FILE", requires = "target")]
    input: Option<PathBuf>,
    /// Make inputs up from the corpus, without coverage
    #[arg(long)]
    unguided: bool,
}

/// Runs what is asked for. Returns whether nothing broke.
///
/// # Errors
///
/// When a program cannot be started or a folder cannot be made.
pub fn run(root: &Path, arguments: &FuzzArguments) -> Result<bool, String> {
    if arguments.list {
        return run_command(plain(root).arg("list"));
    }
    if let (Some(target), Some(input)) = (&arguments.target, &arguments.input) {
        let input = std::path::absolute(input).map_err(|error| format!("{}: {error}", input.display()))?;
        return run_command(plain(root).args(["try", target]).arg(input));
    }
    let names = match &arguments.target {
        Some(target) => vec![target.clone()],
        None => target_names(root)?,
    };
    let is_guided = !arguments.unguided && has_cpp_compiler();
    if !is_guided && !arguments.unguided {
        println!("no C++ compiler (c++) is here: inputs are made up without looking at coverage");
    }
    let mut all_hold = true;
    for name in names {
        let folders = Folders::make(root, &name)?;
        all_hold &= if is_guided {
            run_guided(root, &name, arguments.minutes, &folders)?
        } else {
            let seconds = (arguments.minutes * 60).to_string();
            run_command(
                plain(root).args(["run", &name, "--seconds", &seconds, "--failures"]).arg(&folders.failures),
            )?
        };
    }
    Ok(all_hold)
}

/// Where a target's inputs are kept from one run to the next.
struct Folders {
    /// What is worth keeping, by coverage.
    working_corpus: PathBuf,
    /// What the run begins with besides.
    seeds: PathBuf,
    /// What broke something.
    failures: PathBuf,
}

impl Folders {
    fn make(root: &Path, name: &str) -> Result<Self, String> {
        let base = target_directory(root).join("fuzz").join(name);
        let folders = Self {
            working_corpus: base.join("corpus"),
            seeds: base.join("seeds"),
            failures: base.join("failures"),
        };
        for folder in [&folders.working_corpus, &folders.seeds, &folders.failures] {
            std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        Ok(folders)
    }
}

fn target_directory(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root.join(target)
}

/// The names of all targets, in their order.
fn target_names(root: &Path) -> Result<Vec<String>, String> {
    let output =
        plain(root).arg("list").output().map_err(|error| format!("cargo cannot be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("the targets cannot be listed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(names_of(&String::from_utf8_lossy(&output.stdout)))
}

/// The first word of each line.
fn names_of(listing: &str) -> Vec<String> {
    listing.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// The program of the targets, without guidance. Its arguments follow.
fn plain(root: &Path) -> Command {
    let mut command = cargo(root);
    command.args(["run", "--quiet", "--package", "spandrel-fuzz", "--"]);
    command
}

fn run_guided(root: &Path, name: &str, minutes: u64, folders: &Folders) -> Result<bool, String> {
    if !run_command(plain(root).args(["seed", name]).arg(&folders.seeds))? {
        return Ok(false);
    }
    let mut command = cargo(root);
    // With a target named, programs that run while compiling are compiled without these flags.
    let host = host_target()?;
    command.args(["run", "--package", "spandrel-fuzz", "--features", "guided", "--profile", "fuzz"]);
    command.args(["--target", &host, "--", "run", name]);
    command.env("CARGO_ENCODED_RUSTFLAGS", GUIDED_FLAGS.join("\x1f"));
    // Apart from everything else that is compiled: other flags would have it compiled anew each time.
    command.env("CARGO_TARGET_DIR", target_directory(root).join("fuzz").join("build"));
    command.env("BOLERO_LIBFUZZER_ARGS", libfuzzer_arguments(minutes, folders));
    run_command(&mut command)
}

/// What libFuzzer is told. It takes one text and divides it at blanks.
fn libfuzzer_arguments(minutes: u64, folders: &Folders) -> String {
    [
        folders.working_corpus.display().to_string(),
        folders.seeds.display().to_string(),
        format!("-artifact_prefix={}/", folders.failures.display()),
        format!("-max_total_time={}", minutes * 60),
        format!("-max_len={INPUT_BYTES_MAX}"),
        format!("-timeout={INPUT_SECONDS_MAX}"),
        format!("-rss_limit_mb={MEMORY_MIB_MAX}"),
        "-use_value_profile=1".to_owned(),
    ]
    .join(" ")
}

/// The target that this machine's compiler compiles for.
fn host_target() -> Result<String, String> {
    let output = Command::new("rustc").arg("-vV").output();
    let output = output.map_err(|error| format!("rustc cannot be started: {error}"))?;
    host_of(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| "rustc does not name its host".to_owned())
}

/// The host in what `rustc -vV` prints.
fn host_of(version: &str) -> Option<String> {
    version.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
}

fn has_cpp_compiler() -> bool {
    let names = ["c++", "g++", "clang++"];
    let found = names.iter().find_map(|name| find_program(name, path_folders()));
    found.is_some_and(|compiler| succeeds_silently(Command::new(compiler).arg("--version")))
}

#[cfg(test)]
#[path = "fuzz_tests.rs"]
mod tests;
