//! Many runs: on all cores, each in a world of its own, with what they did added up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use spandrel_shared::canary::{self, Bug};
use spandrel_shared::witness::Rare;

use crate::faults::plan::Plan;
use crate::run::{Failure, Outcome, RunOptions, run};
use crate::shape::Shape;

thread_local! {
    /// Where and why this thread last panicked.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// What many runs did together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Runs that passed.
    pub runs: u64,
    /// Operations that clients began.
    pub operations: u64,
    /// How often a client asked for a change again, on another server.
    pub changes_repeated: u64,
    /// Changes that owners answered.
    pub completions: u64,
    /// Virtual time.
    pub virtual_time: Duration,
    /// Events.
    pub events: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// In how many runs each kind of fault struck.
    pub runs_with_fault: BTreeMap<&'static str, u64>,
    /// Faults that were not permitted, or met nothing to break.
    pub faults_left_out: u64,
    /// Bits that flipped.
    pub bits_flipped: u64,
    /// Node processes that ended without a warning.
    pub node_crashes: u64,
    /// Starts that were refused since the cluster's state was older than the drives knew.
    pub starts_refused: u64,
    /// How often each of [`Rare::ALL`] was reached.
    pub rare: BTreeMap<Rare, u64>,
    /// In how many runs each of them was reached.
    pub runs_with_rare: BTreeMap<Rare, u64>,
}

impl Totals {
    /// Adds a run.
    pub fn add(&mut self, outcome: &Outcome) {
        self.runs += 1;
        self.operations += outcome.operations;
        self.changes_repeated += outcome.changes_repeated;
        self.completions += outcome.completions;
        self.virtual_time += outcome.virtual_time;
        self.events += outcome.events;
        self.faults_left_out += outcome.faults_left_out;
        self.bits_flipped += outcome.bits_flipped;
        self.node_crashes += outcome.node_crashes;
        self.starts_refused += outcome.starts_refused;
        for (kind, count) in &outcome.faults {
            *self.faults.entry(kind).or_insert(0) += count;
            *self.runs_with_fault.entry(kind).or_insert(0) += u64::from(*count > 0);
        }
        for (rare, count) in &outcome.rare {
            *self.rare.entry(*rare).or_insert(0) += count;
            *self.runs_with_rare.entry(*rare).or_insert(0) += u64::from(*count > 0);
        }
    }
}

/// Which seeds to run, and how.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The first seed; the others follow it.
    pub seed_first: u64,
    /// Only seeds whose world has cache drives.
    pub cached: bool,
    /// How many at most.
    pub seeds: u64,
    /// When to stop beginning new ones.
    pub deadline: Option<Instant>,
    /// Runs at once.
    pub threads: usize,
    /// After so many failed runs no new ones begin.
    pub failures_max: usize,
    /// A bug to plant in all of them.
    pub bug: Option<Bug>,
}

/// What became of the runs of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// What those that passed did together.
    pub totals: Totals,
    /// Those that failed; in the end that with the lowest seed is the first.
    pub failed: Vec<Failed>,
}

/// A plan that failed.
#[derive(Clone, Debug)]
pub struct Failed {
    /// The plan.
    pub plan: Plan,
    /// Why.
    pub failure: Failure,
}

impl fmt::Display for Failed {
    /// In a line.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.failure.what.lines().next().unwrap_or_default();
        write!(formatter, "seed {} failed: {}: {what}", self.plan.seed, self.failure.checker)
    }
}

/// Runs one plan. A panic of the code under test is a failure like any other.
///
/// # Errors
///
/// Why it failed.
pub fn run_caught(plan: &Plan, options: RunOptions, bug: Option<Bug>) -> Result<Outcome, Box<Failure>> {
    keep_panics_quiet();
    canary::plant(bug);
    PANIC.take();
    let result = panic::catch_unwind(AssertUnwindSafe(|| run(plan, options)));
    canary::plant(None);
    result.unwrap_or_else(|_| {
        Err(Box::new(Failure {
            checker: "panic".to_owned(),
            what: PANIC.take().unwrap_or_else(|| "a panic without a word".to_owned()),
            at: Duration::ZERO,
            faults_done: plan.faults.len(),
            world: String::new(),
            timeline: String::new(),
        }))
    })
}

/// Panics of the simulation's threads are kept for the report instead of being printed.
fn keep_panics_quiet() {
    static DONE: std::sync::Once = std::sync::Once::new();
    DONE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let is_simulated =
                std::thread::current().name().is_some_and(|name| name.starts_with("simulation"));
            if is_simulated {
                PANIC.with(|kept| *kept.borrow_mut() = Some(panic.to_string()));
            } else {
                usual(panic);
            }
        }));
    });
}

impl Campaign {
    /// Runs the seeds until as many have failed as may, all are done or the time is over. `progress` is told
    /// after every run what there is so far. A few more may fail than was asked for: runs on other threads are
    /// carried to their end.
    pub fn run(&self, mut progress: impl FnMut(&Results)) -> Results {
        let (next, stop) = (Mutex::new(self.seeds()), AtomicBool::new(false));
        let mut results = Results::default();
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            for number in 0..self.threads.max(1) {
                let (sender, next, stop) = (sender.clone(), &next, &stop);
                let work = move || self.work(next, stop, &sender);
                let thread = std::thread::Builder::new().name(format!("simulation {number}"));
                thread.spawn_scoped(scope, work).expect("the machine has room for a thread");
            }
            drop(sender);
            for (seed, result) in receiver {
                match result {
                    Ok(outcome) => results.totals.add(&outcome),
                    Err(failure) => {
                        results.failed.push(Failed { plan: Plan::of_seed(seed), failure: *failure });
                        stop.fetch_or(results.failed.len() >= self.failures_max, Ordering::Relaxed);
                    }
                }
                progress(&results);
            }
        });
        results.failed.sort_by_key(|failed| failed.plan.seed);
        results
    }

    fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let (seed_first, cached) = (self.seed_first, self.cached);
        let is_wanted = move |seed: &u64| !cached || Shape::of_seed(*seed).cache.is_some();
        (0..=u64::MAX)
            .map(move |number| seed_first.wrapping_add(number))
            .filter(is_wanted)
            .take(self.seeds as usize)
    }

    fn work(
        &self,
        next: &Mutex<impl Iterator<Item = u64>>,
        stop: &AtomicBool,
        sender: &mpsc::Sender<SeedResult>,
    ) {
        while !stop.load(Ordering::Relaxed) && self.deadline.is_none_or(|deadline| Instant::now() < deadline)
        {
            let Some(seed) = next.lock().expect("no thread panics while it has it").next() else { return };
            let result = run_caught(&Plan::of_seed(seed), RunOptions::default(), self.bug);
            if sender.send((seed, result)).is_err() {
                return;
            }
        }
    }
}

type SeedResult = (u64, Result<Outcome, Box<Failure>>);

#[cfg(test)]
#[path = "campaign_tests.rs"]
mod tests;
