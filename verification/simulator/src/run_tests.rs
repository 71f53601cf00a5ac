use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use super::*;
use crate::campaign::{Campaign, Totals, run_caught};
use crate::report::explain;

/// The seeds that every change must pass.
const FIXED_SEEDS: u64 = 300;

/// And some that each commit draws for itself, so that in the course of time very many are run.
const COMMIT_SEEDS: u64 = 50;

/// What so few seeds do not reach for certain.
const SELDOM: [Rare; 3] = [Rare::CopiesAbandoned, Rare::WritePastFullCache, Rare::CacheOfAnotherTime];

fn trace_hash(seed: u64) -> u64 {
    run_caught(&Plan::of_seed(seed), RunOptions::default(), None).expect("the seed passes").trace_hash
}

fn number_in(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Runs seeds on all cores. A failure is told as `cargo xtask simulate` tells it.
fn all_pass(seed_first: u64, seeds: u64) -> Totals {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let campaign =
        Campaign { seed_first, cached: false, seeds, deadline: None, threads, failures_max: 1, bug: None };
    let results = campaign.run(|_| {});
    match results.failed.into_iter().next() {
        None => results.totals,
        Some(failed) => panic!("{}", explain(failed, None, Duration::from_secs(60))),
    }
}

/// The first of the seeds of the commit that is being tested; none outside of a repository.
fn seed_of_commit() -> Option<u64> {
    let from_git = || {
        let output = Command::new("git").args(["rev-parse", "HEAD"]).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = std::env::var("SPANDREL_COMMIT").ok().or_else(from_git)?;
    // Short enough to be said aloud, and far behind the fixed ones.
    u64::from_str_radix(commit.get(..8)?, 16).ok().map(|number| (1 << 32) | number)
}

/// What CI runs. `SPANDREL_SEEDS` and `SPANDREL_SEED_FIRST` choose other seeds.
#[test]
fn whole_clusters_keep_their_promises_under_faults() {
    let (first, count) = (number_in("SPANDREL_SEED_FIRST"), number_in("SPANDREL_SEEDS"));
    if first.is_some() || count.is_some() {
        all_pass(first.unwrap_or(0), count.unwrap_or(FIXED_SEEDS));
        return;
    }
    reached_what_they_claim(&all_pass(0, FIXED_SEEDS));
    match seed_of_commit() {
        Some(seed) => _ = all_pass(seed, COMMIT_SEEDS),
        None => println!("no commit is known: only the fixed seeds were run"),
    }
}

/// Runs that passed because nothing happened would prove nothing.
fn reached_what_they_claim(totals: &Totals) {
    let planned = (0..FIXED_SEEDS).flat_map(|seed| Plan::of_seed(seed).faults);
    let planned: BTreeSet<&str> = planned.map(|planned| planned.fault.kind()).collect();
    let injected: BTreeSet<&str> = totals.faults.keys().copied().collect();
    assert_eq!(injected, planned, "every kind of fault strikes");
    assert_eq!(totals.runs, FIXED_SEEDS);
    let per_run = |number: u64| number / totals.runs;
    assert!(per_run(totals.operations) >= 1000, "{totals:#?}");
    assert!(per_run(totals.completions) >= 200, "{totals:#?}");
    assert!(per_run(totals.node_crashes) >= 5, "{totals:#?}");
    assert!(
        totals.faults["power cut of the cluster"] > 0 && totals.bits_flipped > totals.runs,
        "{totals:#?}"
    );
    let reached = |rare: &Rare| totals.rare.get(rare).is_some_and(|count| *count > 0);
    let missed = Rare::ALL.into_iter().filter(|rare| !SELDOM.contains(rare) && !reached(rare));
    let missed: Vec<Rare> = missed.collect();
    assert!(missed.is_empty(), "never reached, and so not tested: {missed:?}; {totals:#?}");
    assert!(totals.faults_left_out < totals.faults.values().sum(), "{totals:#?}");
}

#[test]
fn a_seed_is_the_same_run_on_every_thread() {
    let seeds = [0, 3, 8, 21, 77];
    let here = seeds.map(trace_hash);
    let there = std::thread::spawn(move || seeds.map(trace_hash)).join().expect("they pass");
    assert_eq!(here, there);
    assert_eq!(here, seeds.map(trace_hash), "what ran before leaves nothing behind");
    assert_eq!(BTreeSet::from(here).len(), seeds.len(), "every seed is another run");
}

#[test]
fn the_timeline_does_not_change_the_run() {
    let plan = Plan::of_seed(5);
    let told = run(&plan, RunOptions { timeline_events: 50 });
    assert_eq!(told, run(&plan, RunOptions::default()));
}
