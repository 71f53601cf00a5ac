use std::cell::Cell;
use std::time::Duration;

use super::*;
use crate::faults::Fault;
use crate::faults::plan::PlannedFault;

/// A plan of `count` faults, each a millisecond after the one before, which their numbers tell apart.
fn plan(count: usize) -> Plan {
    let fault = |volume| PlannedFault { after_ms: 1, fault: Fault::Scrub { volume } };
    Plan { faults: (0..count).map(fault).collect(), ..Plan::of_seed(1) }
}

fn numbers(plan: &Plan) -> Vec<usize> {
    let number = |planned: &PlannedFault| match planned.fault {
        Fault::Scrub { volume } => volume,
        _ => usize::MAX,
    };
    plan.faults.iter().map(number).collect()
}

/// A failure of `checker` when so many faults were done.
fn failure(checker: &str, faults_done: usize) -> Failure {
    Failure {
        checker: checker.to_owned(),
        what: String::new(),
        at: Duration::ZERO,
        faults_done,
        world: String::new(),
        timeline: String::new(),
    }
}

/// Shortens a plan of `count` faults that fails as soon as all of `needed` have struck.
fn shortened(count: usize, needed: &[usize]) -> Plan {
    let run = |plan: &Plan| {
        let numbers = numbers(plan);
        let done = needed.iter().map(|number| numbers.iter().position(|other| other == number));
        done.collect::<Option<Vec<usize>>>()
            .map(|done| failure("checker", done.into_iter().max().unwrap_or(0)))
    };
    let plan = plan(count);
    let failure = run(&plan).expect("the whole plan fails");
    shorten_by(Failed { plan, failure }, run, || true).plan
}

#[test]
fn of_many_faults_the_one_that_matters_is_left() {
    for count in 1..40 {
        for needed in 0..count {
            let shorter = shortened(count, &[needed]);
            assert_eq!(numbers(&shorter), [needed]);
            assert_eq!(shorter.faults[0].after_ms, needed as u64 + 1, "its time stays");
        }
    }
}

#[test]
fn faults_that_only_fail_together_stay_together() {
    assert_eq!(numbers(&shortened(30, &[3, 17])), [3, 17]);
    assert_eq!(numbers(&shortened(30, &[0, 1, 29])), [0, 1, 29]);
    assert_eq!(numbers(&shortened(2, &[0, 1])), [0, 1]);
}

#[test]
fn a_run_that_fails_without_a_fault_needs_none() {
    assert_eq!(numbers(&shortened(20, &[])), [0; 0]);
}

#[test]
fn another_failure_does_not_count() {
    let run = |plan: &Plan| {
        let checker = if numbers(plan).contains(&7) { "one owner" } else { "panic" };
        Some(failure(checker, plan.faults.len()))
    };
    let failed = Failed { plan: plan(20), failure: failure("one owner", 20) };
    let shorter = shorten_by(failed, run, || true);
    assert_eq!((numbers(&shorter.plan), &shorter.failure.checker[..]), (vec![7], "one owner"));
}

#[test]
fn what_was_found_when_the_time_is_over_is_kept() {
    let runs = Cell::new(0);
    let run = |plan: &Plan| {
        runs.set(runs.get() + 1);
        numbers(plan).contains(&7).then(|| failure("checker", 8))
    };
    let failed = Failed { plan: plan(20), failure: failure("checker", 8) };
    let shorter = shorten_by(failed.clone(), run, || runs.get() < 2);
    assert_eq!(runs.get(), 2);
    assert!(shorter.plan.faults.len() < 20 && numbers(&shorter.plan).contains(&7));
    let same = shorten_by(failed, run, || false);
    assert_eq!(same.plan, plan(20));
}
