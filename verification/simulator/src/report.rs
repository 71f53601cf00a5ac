//! What people read of a failed run: the story of its end, and the plan with as few faults as can be
//! found.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use spandrel_shared::canary::Bug;

use crate::campaign::{Failed, run_caught};
use crate::logbook;
use crate::run::RunOptions;
use crate::shorten::shorten;

/// How many events of a failed run are shown.
pub const TIMELINE_EVENTS: usize = 60;

/// What went wrong, with `bug` planted as it was then, and a plan that was made shorter for at most
/// `shorten_max`. The plan is left in a new file in the system's folder for temporary files, which is named by the
/// seed and the bug.
pub fn explain(failed: Failed, bug: Option<Bug>, shorten_max: Duration) -> String {
    let seed = failed.plan.seed;
    let faults = failed.plan.faults.len();
    let first = failed.failure.what.lines().next().unwrap_or_default().to_owned();
    let planted = bug.map_or(String::new(), |bug| format!(" --canary {bug:?}"));
    let shorter = shorten(failed, bug, Instant::now() + shorten_max);
    let options = RunOptions { timeline_events: TIMELINE_EVENTS };
    let (shortened, lines) = logbook::keep(|| run_caught(&shorter.plan, options, bug));
    let failure = shortened.err().map_or(shorter.failure, |failure| *failure);
    let lines = named(logbook::text(&lines), &failure.world);
    let path = free_path(seed, bug);
    let saved = serde_json::to_string_pretty(&shorter.plan).map_err(|error| error.to_string());
    let saved = saved.and_then(|text| std::fs::write(&path, text).map_err(|error| error.to_string()));
    let again = saved.map_or_else(
        |error| format!("the plan could not be kept in {}: {error}", path.display()),
        |()| format!("run it again: cargo xtask simulate{planted} --plan {}", path.display()),
    );
    let list = shorter.plan.faults.iter();
    let list: Vec<String> =
        list.map(|planned| format!("  +{} ms {:?}", planned.after_ms, planned.fault)).collect();
    let begin = match failure.what.starts_with(&first) {
        true => String::new(),
        false => format!("the whole run failed otherwise: {first}\n"),
    };
    format!(
        "{}\nthe world:\n{}\nwhat the nodes logged:\n{lines}\nseed {seed} failed after {:?} of virtual time\n\
         {}: {}\n{begin}\n{} of its {faults} faults are enough:\n{}\n\n\
         {again}\n",
        failure.timeline,
        failure.world,
        failure.at,
        failure.checker,
        failure.what,
        shorter.plan.faults.len(),
        list.join("\n")
    )
}

/// A name that no file has: an older plan of the seed may be the very one that was run.
fn free_path(seed: u64, bug: Option<Bug>) -> PathBuf {
    let planted = bug.map_or(String::new(), |bug| format!("-{bug:?}"));
    let number = |count: u32| if count == 1 { String::new() } else { format!("-{count}") };
    let path = |count| {
        std::env::temp_dir().join(format!("spandrel-simulation-{seed}{planted}{}.json", number(count)))
    };
    let mut paths = (1..).map(path);
    paths.find(|path| !path.exists()).expect("no folder holds that many files")
}

/// A text in which the world's servers, drives and volumes have their names.
fn named(text: String, world: &str) -> String {
    let names = world.lines().filter_map(|line| line.trim().split_once(": "));
    names.fold(text, |text, (name, identity)| text.replace(identity, name))
}
