//! `cargo xtask ci`: everything that a change must pass, in one command, here and on the build
//! machine alike.
//!
//! The steps stand in the order in which they are likely to fail and cheap to run. Each leaves
//! what it compiled to the later ones. The tests of processes wait most of their time: they run beside
//! the steps behind them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::commands::{self, cargo, command, find_program, path_folders, succeeds_silently};
use crate::tidy;

/// The cargo-deny that is installed where none is found.
const CARGO_DENY_VERSION: &str = "0.20.2";
/// How long fetching the advisories may take before they are skipped.
const FETCH_LIMIT_SECONDS: &str = "60";
/// How many of the largest files and functions `tidy` lists here.
const LARGEST_SHOWN: usize = 10;

/// What all steps need to know.
struct Context<'a> {
    root: &'a Path,
    /// Whether this runs on a build machine: the lock file must be right and nothing is compiled
    /// for a second build.
    on_build_machine: bool,
    /// Whether cargo-deny may be installed.
    install: bool,
}

/// How a step ended, when nothing kept it from running.
enum Outcome {
    Passed,
    /// Passed, as far as it could be checked. Says what could not.
    PassedExcept(String),
    Failed,
}

/// A program that has been begun. What it prints is shown when it has ended.
struct Begun {
    program: Child,
    log: PathBuf,
}

impl Begun {
    fn end(mut self) -> Result<Outcome, String> {
        let status = self.program.wait().map_err(|error| format!("it cannot be waited for: {error}"))?;
        let log = std::fs::read(&self.log);
        let log = log.map_err(|error| format!("{} cannot be read: {error}", self.log.display()))?;
        println!("{}", String::from_utf8_lossy(&log));
        Ok(status.success().into())
    }
}

impl From<bool> for Outcome {
    fn from(success: bool) -> Self {
        if success { Self::Passed } else { Self::Failed }
    }
}

/// What a step does.
enum Work {
    /// The next step waits for it.
    Run(fn(&Context<'_>) -> Result<Outcome, String>),
    /// The steps behind it run beside it.
    Begin(fn(&Context<'_>) -> Result<Begun, String>),
}

type Step = (&'static str, Work);

const STEPS: [Step; 9] = [
    ("format", Work::Run(check_format)),
    ("lints", Work::Run(check_lints)),
    ("tidy", Work::Run(check_rules)),
    ("program", Work::Run(build_program)),
    ("tests of processes", Work::Begin(begin_tests_of_processes)),
    ("build of tests", Work::Run(build_tests)),
    ("third-party crates", Work::Run(check_third_party)),
    ("tests", Work::Run(run_tests)),
    ("documentation", Work::Run(check_documentation)),
];

/// Runs all steps; after a failure the later ones only with `keep_going`. `install` lets cargo-deny
/// be installed, as a set `CI` does. Returns whether all passed.
pub fn run(root: &Path, keep_going: bool, install: bool) -> bool {
    let on_build_machine = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
    let context = Context { root, on_build_machine, install: install || on_build_machine };
    run_steps(&STEPS, keep_going, &context)
}

fn run_steps(steps: &[Step], keep_going: bool, context: &Context<'_>) -> bool {
    let started = Instant::now();
    let mut results = Vec::new();
    let mut begun = Vec::new();
    for (number, (name, work)) in steps.iter().enumerate() {
        println!("\n==> {}/{} {name}", number + 1, steps.len());
        let step_started = Instant::now();
        let outcome = match work {
            Work::Run(run) => failed_unless_run(run(context)),
            Work::Begin(begin) => {
                begun.push((*name, begin(context), step_started));
                continue;
            }
        };
        let failed = matches!(outcome, Outcome::Failed);
        results.push((*name, outcome, step_started.elapsed()));
        if failed && !keep_going {
            break;
        }
    }
    for (name, begun, step_started) in begun {
        println!("\n==> {name}: ran beside the others, now to the end");
        results.push((name, failed_unless_run(begun.and_then(Begun::end)), step_started.elapsed()));
    }
    print!("\n{}", summary(&results, steps.len(), started.elapsed()));
    !results.iter().any(|(_, outcome, _)| matches!(outcome, Outcome::Failed))
}

/// A step that cannot be run has failed.
fn failed_unless_run(outcome: Result<Outcome, String>) -> Outcome {
    outcome.unwrap_or_else(|error| {
        println!("error: {error}");
        Outcome::Failed
    })
}

fn summary(results: &[(&str, Outcome, Duration)], steps: usize, total: Duration) -> String {
    let mut lines = String::new();
    let mut failed = 0;
    for (name, outcome, duration) in results {
        let (word, note) = match outcome {
            Outcome::Passed => ("passed", String::new()),
            Outcome::PassedExcept(note) => ("passed", format!("  ({note})")),
            Outcome::Failed => {
                failed += 1;
                ("FAILED", String::new())
            }
        };
        lines += &format!("  {word}  {name:<20} {:>7.1} s{note}\n", duration.as_secs_f64());
    }
    let not_run = match steps - results.len() {
        0 => String::new(),
        count => format!(", {count} not run"),
    };
    let verdict = if failed == 0 { "all steps passed".to_owned() } else { format!("{failed} failed") };
    format!("{lines}ci: {verdict}{not_run}, {:.1} s\n", total.as_secs_f64())
}

impl Context<'_> {
    /// A cargo command that compiles.
    fn cargo(&self, subcommand: &str) -> Command {
        let mut cargo = cargo(self.root);
        cargo.arg(subcommand);
        if self.on_build_machine {
            cargo.arg("--locked").env("CARGO_INCREMENTAL", "0");
        }
        cargo
    }

    /// Where everything that is built goes.
    fn target(&self) -> PathBuf {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
        self.root.join(target)
    }

    /// The program that tests start: it has drives that lose what was not flushed.
    fn program_with_test_faults(&self) -> PathBuf {
        self.target().join(PROFILE_TESTED).join("spandrel-with-test-faults")
    }
}

fn check_format(context: &Context<'_>) -> Result<Outcome, String> {
    let passed = commands::run(cargo(context.root).args(["fmt", "--all", "--check"]))?;
    Ok(passed.into())
}

fn check_lints(context: &Context<'_>) -> Result<Outcome, String> {
    let mut clippy = context.cargo("clippy");
    clippy.args(["--workspace", "--all-targets", "--", "--deny", "warnings"]);
    Ok(commands::run(&mut clippy)?.into())
}

fn check_rules(context: &Context<'_>) -> Result<Outcome, String> {
    Ok(tidy::run(context.root, LARGEST_SHOWN)?.into())
}

fn check_third_party(context: &Context<'_>) -> Result<Outcome, String> {
    let Some(program) = cargo_deny(context)? else {
        return Ok(Outcome::PassedExcept(
            "licences, bans, sources and advisories skipped: no cargo-deny; --install gets it".to_owned(),
        ));
    };
    let run = |arguments: &str| {
        commands::run(command(&program).current_dir(context.root).args(arguments.split(' ')))
    };
    if !run("check bans licenses sources --hide-inclusion-graph")? {
        return Ok(Outcome::Failed);
    }
    let mut fetch = command("timeout");
    fetch.current_dir(context.root).arg(FETCH_LIMIT_SECONDS).arg(&program).args(["fetch", "db"]);
    if !succeeds_silently(&mut fetch) {
        return Ok(Outcome::PassedExcept(
            "advisories and yanked versions skipped: their database cannot be fetched".to_owned(),
        ));
    }
    Ok(run("check advisories --hide-inclusion-graph")?.into())
}

/// The cargo-deny of this machine. It is installed where cargo keeps programs, if it may be: to compile it takes minutes, and the next
/// clone finds it there.
fn cargo_deny(context: &Context<'_>) -> Result<Option<PathBuf>, String> {
    let find =
        || find_program("cargo-deny", path_folders().into_iter().chain(folder_of_installed_programs()));
    let found = find();
    if found.is_some() || !context.install {
        return Ok(found);
    }
    // Compiled without optimisation it is there in a quarter of the time, and its work is small.
    let mut install = cargo(context.root);
    install.args("install cargo-deny --locked --debug --version".split(' ')).arg(CARGO_DENY_VERSION);
    install.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    if !commands::run(&mut install)? {
        return Err("cargo-deny cannot be installed, so third-party crates cannot be checked".to_owned());
    }
    Ok(Some(find().ok_or("cargo-deny was installed and is not found")?))
}

/// Where `cargo install` puts programs, which need not be on the PATH.
fn folder_of_installed_programs() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    Some(home.join("bin"))
}

/// The profile in which the program is built that tests start.
const PROFILE_TESTED: &str = "tested";

/// Builds what ships about as it ships: other optimisation, other panics than tests have; with the feature that the tests
/// of processes need, which two crates know, and kept under a name of its own. That it compiles without the feature the lints have
/// shown.
fn build_program(context: &Context<'_>) -> Result<Outcome, String> {
    let mut build = context.cargo("build");
    build.args(["--package", "spandrel", "--profile", PROFILE_TESTED, "--features", "test-faults"]);
    if !commands::run(&mut build)? {
        return Ok(Outcome::Failed);
    }
    let kept = context.program_with_test_faults();
    keep(&kept.with_file_name("spandrel"), &kept)
        .map_err(|error| format!("{} cannot be written: {error}", kept.display()))?;
    Ok(Outcome::Passed)
}

/// Copies a program that was built to a name of its own. What was there may be another name of the same file, or
/// run: so it is replaced, not written to.
fn keep(built: &Path, kept: &Path) -> std::io::Result<()> {
    let fresh = kept.with_file_name(format!("fresh-program-{}", std::process::id()));
    std::fs::copy(built, &fresh)?;
    std::fs::rename(&fresh, kept)
}

fn build_tests(context: &Context<'_>) -> Result<Outcome, String> {
    Ok(commands::run(context.cargo("test").args(["--workspace", "--no-run"]))?.into())
}

/// The package whose tests start programs that wait for each other.
const PACKAGE_OF_PROCESSES: &str = "spandrel-process-cluster";

/// These tests.
const TESTS_OF_PROCESSES: &str = "process";

/// Runs tests. Those that start the program would build one of their own, with every crate that it needs once more.
fn cargo_test(context: &Context<'_>) -> Command {
    let mut tests = context.cargo("test");
    tests.env("SPANDREL_TEST_PROGRAM", context.program_with_test_faults());
    tests
}

fn begin_tests_of_processes(context: &Context<'_>) -> Result<Begun, String> {
    let mut tests = cargo_test(context);
    // Of their package alone, crates would have other features, and many be compiled once more.
    tests.args(["--workspace", "--test", TESTS_OF_PROCESSES]);
    let log = context.target().join("tests-of-processes.log");
    let program = commands::begin(&mut tests, &log)?;
    println!("runs beside the next steps; what it prints is in {} and shown at the end", log.display());
    Ok(Begun { program, log })
}

fn run_tests(context: &Context<'_>) -> Result<Outcome, String> {
    let mut tests = cargo_test(context);
    tests.args(["--workspace", "--exclude", PACKAGE_OF_PROCESSES]);
    Ok(commands::run(&mut tests)?.into())
}

fn check_documentation(context: &Context<'_>) -> Result<Outcome, String> {
    let mut doc = context.cargo("doc");
    doc.args(["--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings");
    Ok(commands::run(&mut doc)?.into())
}

#[cfg(test)]
#[path = "ci_tests.rs"]
mod tests;
