//! The proof that the simulator can fail: every bug that can be planted is planted, and must be caught.
//!
//! Seeds are run with one bug until a checker complains. Which checker, and after how many seeds,
//! says how well the simulator watches that rule of the design; a bug that many seeds do not catch shows
//! a state that is never reached, or a promise that nobody checks.

use std::collections::BTreeSet;
use std::fmt;

use spandrel_shared::canary::Bug;

use crate::campaign::{Campaign, Failed};

/// What became of a planted bug.
#[derive(Clone, Debug)]
pub struct Canary {
    /// The bug.
    pub bug: Bug,
    /// Seeds that passed although it was planted.
    pub runs_passed: u64,
    /// The run that caught it.
    pub caught: Option<Failed>,
}

/// Plants a bug in the runs of a campaign, until one fails.
pub fn catch(campaign: &Campaign, bug: Bug) -> Canary {
    let results = Campaign { failures_max: 1, bug: Some(bug), ..campaign.clone() }.run(|_| {});
    Canary { bug, runs_passed: results.totals.runs, caught: results.failed.into_iter().next() }
}

impl fmt::Display for Canary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{:?}", self.bug);
        match &self.caught {
            None => write!(formatter, "{name:<22}  NOT CAUGHT by {} seeds", self.runs_passed),
            Some(failed) => {
                let what = failed.failure.what.lines().next().unwrap_or_default();
                let what: String = what.chars().take(90).collect();
                let (seed, checker) = (failed.plan.seed, &failed.failure.checker);
                write!(formatter, "{name:<22}  seed {seed:>6}  {checker:<12}  {what}")
            }
        }
    }
}

/// The bug with a name, however that is written: `SkipFence`, `skip-fence`, `skipfence`.
///
/// # Errors
///
/// There is no such bug; the text names those that there are.
pub fn named(name: &str) -> Result<Bug, String> {
    let plain = |name: &str| name.replace(['-', '_'], "").to_lowercase();
    let found = Bug::ALL.into_iter().find(|bug| plain(&format!("{bug:?}")) == plain(name));
    found.ok_or_else(|| {
        let names: Vec<String> = Bug::ALL.iter().map(|bug| format!("  {bug:?}")).collect();
        format!("no bug is called {name}; there are\n{}", names.join("\n"))
    })
}

/// `count` of the given bugs, others with each turn, so that a few turns have had all of them.
pub fn by_turns(bugs: &[Bug], turn: u64, count: usize) -> BTreeSet<Bug> {
    let turns = bugs.len().div_ceil(count) as u64;
    let start = (turn % turns) as usize * count;
    bugs.iter().cycle().skip(start).take(count.min(bugs.len())).copied().collect()
}

#[cfg(test)]
#[path = "canaries_tests.rs"]
mod tests;
