//! What people read of a failed run: the story of its end, and the plan with as few faults as can be
//! found.

use std::time::{Duration, Instant};

use spandrel_shared::canary::Bug;

use crate::campaign::{Failed, run_caught};
use crate::logbook;
use crate::run::RunOptions;
use crate::shorten::shorten;

/// How many events of a failed run are shown.
pub const TIMELINE_EVENTS: usize = 60;

/// What went wrong, with `bug` planted as it was then, and a plan that was made shorter for at most
/// `shorten_max`. The plan is left in a file in the system's folder for temporary files.
pub fn explain(failed: Failed, bug: Option<Bug>, shorten_max: Duration) -> String {
    let seed = failed.plan.seed;
    let faults = failed.plan.faults.len();
    let shorter = shorten(failed, bug, Instant::now() + shorten_max);
    let options = RunOptions { timeline_events: TIMELINE_EVENTS };
    let (again, lines) = logbook::keep(|| run_caught(&shorter.plan, options, bug));
    let failure = again.err().map_or(shorter.failure, |failure| *failure);
    let lines = logbook::text(&lines);
    let path = std::env::temp_dir().join(format!("spandrel-simulation-{seed}.json"));
    let saved = serde_json::to_string_pretty(&shorter.plan).map_err(|error| error.to_string());
    let saved = saved.and_then(|text| std::fs::write(&path, text).map_err(|error| error.to_string()));
    let place = saved.map_or_else(|error| format!("not saved: {error}"), |()| path.display().to_string());
    let list = shorter.plan.faults.iter();
    let list: Vec<String> =
        list.map(|planned| format!("  +{} ms {:?}", planned.after_ms, planned.fault)).collect();
    format!(
        "{}\nthe world:\n{}\nwhat the nodes logged:\n{lines}\nseed {seed} failed after {:?} of virtual time\n\
         {}: {}\n\n{} of its {faults} faults are enough (the plan: {place}):\n{}\n",
        failure.timeline,
        failure.world,
        failure.at,
        failure.checker,
        failure.what,
        shorter.plan.faults.len(),
        list.join("\n")
    )
}
