//! Makes a run that fails shorter: the same failure with fewer faults tells more.
//!
//! What is left out changes what comes after it, so a shorter plan may fail in another way, or not at
//! all; only the same checker's failure counts. The search is for one that is short, not the shortest.

use std::time::Instant;

use spandrel_shared::canary::Bug;

use crate::campaign::{Failed, run_caught};
use crate::faults::plan::Plan;
use crate::run::{Failure, RunOptions};

/// A shorter plan that fails by the same checker, or the plan itself. Ends at `deadline` with the best
/// that was found by then.
pub fn shorten(failed: Failed, bug: Option<Bug>, deadline: Instant) -> Failed {
    let run = |plan: &Plan| run_caught(plan, RunOptions::default(), bug).err().map(|failure| *failure);
    shorten_by(failed, run, || Instant::now() < deadline)
}

/// The same for any way to run a plan, which says why it failed, while `goes_on`.
fn shorten_by(
    failed: Failed,
    mut run: impl FnMut(&Plan) -> Option<Failure>,
    goes_on: impl Fn() -> bool,
) -> Failed {
    let mut best = failed;
    // What comes behind the failure, and behind the fault that may have shown it, had no part in it.
    let mut first = best.plan.clone();
    first.faults.truncate(best.failure.faults_done + 1);
    if first != best.plan && goes_on() {
        try_plan(&mut best, first, &mut run);
    }
    let mut size = best.plan.faults.len().div_ceil(2);
    while size > 0 && goes_on() {
        let mut start = 0;
        while start < best.plan.faults.len() && goes_on() {
            let shorter = without(&best.plan, start, size);
            if !try_plan(&mut best, shorter, &mut run) {
                start += size;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    best
}

/// The plan without some faults; the time that they took stays.
fn without(plan: &Plan, start: usize, count: usize) -> Plan {
    let mut shorter = plan.clone();
    let end = (start + count).min(shorter.faults.len());
    let time: u64 = shorter.faults.drain(start..end).map(|planned| planned.after_ms).sum();
    if let Some(next) = shorter.faults.get_mut(start) {
        next.after_ms += time;
    }
    shorter
}

/// Takes a plan over that fails as `best` does.
fn try_plan(best: &mut Failed, plan: Plan, run: &mut impl FnMut(&Plan) -> Option<Failure>) -> bool {
    match run(&plan) {
        Some(failure) if failure.checker == best.failure.checker => {
            *best = Failed { plan, failure };
            true
        }
        _ => false,
    }
}

#[cfg(test)]
#[path = "shorten_tests.rs"]
mod tests;
