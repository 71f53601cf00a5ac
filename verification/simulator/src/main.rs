//! `cargo xtask simulate` runs this: seeds on all cores, and what is behind a failure.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use spandrel_shared::canary::Bug;
use spandrel_shared::witness::Rare;
use spandrel_simulator::campaign::{Campaign, Failed, Results, run_caught};
use spandrel_simulator::canaries;
use spandrel_simulator::faults::plan::Plan;
use spandrel_simulator::report::{TIMELINE_EVENTS, explain};
use spandrel_simulator::run::RunOptions;
use spandrel_simulator::scale::{self, Scale};
use spandrel_simulator::scenarios;

/// Where no progress bar can be shown, a line is written for so many runs that passed.
const LOG_EVERY: u64 = 1000;

/// How long the search for a shorter failing run may take.
const SHORTEN_MAX: Duration = Duration::from_secs(60);

/// A world takes and gives back memory all the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "cargo xtask simulate", about = "Runs whole clusters in simulated worlds, and judges them")]
struct Arguments {
    /// How many seeds to run
    #[arg(long, default_value_t = 1000, value_name = "COUNT")]
    seeds: u64,
    /// Run this seed alone, twice, and compare the two runs
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// The first of the seeds
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    seed_first: u64,
    /// Only seeds whose cluster has cache drives, which are two of five
    #[arg(long)]
    cached: bool,
    /// Begin no further seed after so many minutes
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<f64>,
    /// Runs at once; by default one for each core
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
    /// Go on until so many seeds have failed: all are named, the first is explained
    #[arg(long, default_value_t = 1, value_name = "COUNT")]
    failures: usize,
    /// Plant a bug and see what catches it; without a name all of them, one after the other, a line each. Ends with
    /// success if it is caught
    #[arg(long, value_name = "BUG", num_args = 0..=1, default_missing_value = "all")]
    canary: Option<String>,
    /// Run a plan that a failure has left behind
    #[arg(long, value_name = "FILE")]
    plan: Option<std::path::PathBuf>,
    /// Run the plan of a bug that was found once
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Say which bugs were found
    #[arg(long)]
    list_scenarios: bool,
    /// Build the largest cluster that Spandrel is made for, and take the node away that owns the most: some minutes
    /// and some GiB; with the word small a cluster that takes seconds
    #[arg(long, value_name = "SIZE", num_args = 0..=1, default_missing_value = "full")]
    scale: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runs = std::thread::Builder::new().name("simulation".to_owned()).spawn(move || carry_out(&arguments));
    match runs.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(()))) => ExitCode::SUCCESS,
        Ok(Ok(Err(text))) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
        Ok(Err(_)) | Err(_) => ExitCode::FAILURE,
    }
}

fn carry_out(arguments: &Arguments) -> Result<(), String> {
    let named = arguments.canary.as_deref().filter(|name| *name != "all");
    let bug = named.map(canaries::named).transpose()?;
    let is_single = arguments.plan.is_some() || arguments.scenario.is_some() || arguments.seed.is_some();
    if arguments.canary.is_some() && bug.is_none() && is_single {
        return Err("which bug is to be planted in this run? --canary BUG names one".to_owned());
    }
    if let Some(path) = &arguments.plan {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let plan = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        return run_twice(&plan, bug);
    }
    if let Some(name) = &arguments.scenario {
        return run_twice(&scenarios::named(name)?.plan, bug);
    }
    if arguments.list_scenarios {
        for scenario in scenarios::all()? {
            println!("{}\n    {}", scenario.name, scenario.what);
        }
        return Ok(());
    }
    if let Some(size) = &arguments.scale {
        return measure_scale(size, arguments.seed_first);
    }
    if let Some(seed) = arguments.seed {
        return run_twice(&Plan::of_seed(seed), bug);
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let campaign = Campaign {
        seed_first: arguments.seed_first,
        cached: arguments.cached,
        seeds: arguments.seeds,
        deadline: arguments.minutes.map(|minutes| Instant::now() + Duration::from_secs_f64(minutes * 60.0)),
        threads: arguments.threads.unwrap_or(cores),
        failures_max: arguments.failures,
        bug,
    };
    if arguments.canary.is_some() && bug.is_none() {
        return plant_all(&campaign);
    }
    run_campaign(&campaign)
}

/// Runs seeds, with a progress bar or a line from time to time, and says what they did together.
fn run_campaign(campaign: &Campaign) -> Result<(), String> {
    let bar = ProgressBar::new(campaign.seeds);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} seeds, {per_sec}, {eta} left  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut told = 0;
    let results = campaign.run(|Results { totals, failed }| {
        bar.set_position(totals.runs + failed.len() as u64);
        bar.set_message(format!("{} operations, {} crashes", totals.operations, totals.node_crashes));
        if bar.is_hidden() && totals.runs.is_multiple_of(LOG_EVERY) {
            eprintln!("{} of {} seeds, {:.0} s", bar.position(), campaign.seeds, bar.elapsed().as_secs_f64());
        }
        if let Some(newest) = failed.last().filter(|_| failed.len() > told) {
            bar.suspend(|| eprintln!("{newest}"));
            told = failed.len();
        }
    });
    bar.finish_and_clear();
    println!("{}", summary(&results, bar.elapsed()));
    match (results.failed.into_iter().next(), campaign.bug) {
        (None, None) => Ok(()),
        (None, Some(bug)) => Err(format!("{bug:?} is not caught by {} seeds", results.totals.runs)),
        (Some(failed), bug) => tell(failed, bug),
    }
}

/// Builds a large cluster, and says what its size costs.
fn measure_scale(size: &str, seed: u64) -> Result<(), String> {
    let scale = match size {
        "full" => Scale::FULL,
        "small" => Scale::SMALL,
        other => return Err(format!("no cluster is called {other}: full or small?")),
    };
    let started = Instant::now();
    let findings = scale::measure(seed, scale, |step| {
        eprintln!("{:>6.1} s  {step}", started.elapsed().as_secs_f64());
    })?;
    print!("{findings}");
    println!("the run took {:.0} s and {} of memory", started.elapsed().as_secs_f64(), memory_text());
    findings.check()
}

/// The most memory that this process has had.
fn memory_text() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB")?.trim().parse().ok());
    peak.map_or("an unknown amount".to_owned(), |kib: f64| format!("{:.2} GiB", kib / f64::from(1 << 20)))
}

/// Tells a failure. That of a run with a planted bug is what was to be seen.
fn tell(failed: Failed, bug: Option<Bug>) -> Result<(), String> {
    let text = explain(failed, bug, SHORTEN_MAX);
    if bug.is_none() {
        return Err(text);
    }
    println!("{text}");
    Ok(())
}

/// Plants all bugs, and prints a line for each.
fn plant_all(campaign: &Campaign) -> Result<(), String> {
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        if campaign.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(format!("no time was left for {bug:?} and those behind it; not caught: {missed:?}"));
        }
        let canary = canaries::catch(campaign, bug);
        println!("{canary}");
        missed.extend(canary.caught.is_none().then_some(bug));
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("not caught: {missed:?}")) }
}

/// Runs a plan twice: the same both times, or the simulation is not deterministic.
fn run_twice(plan: &Plan, bug: Option<Bug>) -> Result<(), String> {
    let started = Instant::now();
    let options = RunOptions { timeline_events: TIMELINE_EVENTS };
    let outcome = match run_caught(plan, options, bug) {
        Ok(outcome) => outcome,
        Err(failure) => return tell(Failed { plan: plan.clone(), failure: *failure }, bug),
    };
    let again = run_caught(plan, RunOptions::default(), bug).map(|again| again.trace_hash);
    if again != Ok(outcome.trace_hash) {
        return Err(format!("seed {}: two runs are not the same", plan.seed));
    }
    println!(
        "seed {}: {:?} of virtual time, trace {:016x}, the same twice",
        plan.seed, outcome.virtual_time, outcome.trace_hash
    );
    let mut results = Results::default();
    results.totals.add(&outcome);
    println!("{}", summary(&results, started.elapsed()));
    bug.map_or(Ok(()), |bug| Err(format!("{bug:?} is not caught by this run")))
}

fn summary(Results { totals, failed }: &Results, took: Duration) -> String {
    let failures = if failed.is_empty() { String::new() } else { format!(", {} FAILED", failed.len()) };
    let mut text = format!(
        "{} runs passed{failures} in {:.0} s: {} operations, {} changes repeated by clients, {} answered, {} node crashes, {} starts refused, {} bits flipped, {:.1} h of virtual time\n",
        totals.runs,
        took.as_secs_f64(),
        totals.operations,
        totals.changes_repeated,
        totals.completions,
        totals.node_crashes,
        totals.starts_refused,
        totals.bits_flipped,
        totals.virtual_time.as_secs_f64() / 3600.0,
    );
    let row = |count: u64, runs: u64, what: &str| format!("  {count:>9}  in {runs:>6} runs  {what}\n");
    for (kind, count) in &totals.faults {
        text += &row(*count, totals.runs_with_fault[kind], kind);
    }
    text += &format!("  {:>9}  left out\n", totals.faults_left_out);
    let reached = |rare: &Rare| totals.rare.get(rare).copied().unwrap_or(0);
    for rare in &Rare::ALL {
        let runs = totals.runs_with_rare.get(rare).copied().unwrap_or(0);
        text += &row(reached(rare), runs, &format!("{rare:?}"));
    }
    let never = Rare::ALL.iter().filter(|rare| reached(rare) == 0);
    let never: Vec<String> = never.map(|rare| format!("{rare:?}")).collect();
    if !never.is_empty() {
        text += &format!("never reached, and so not tested: {}\n", never.join(", "));
    }
    text
}
