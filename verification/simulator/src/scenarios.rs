//! The bugs that the simulator has found, each with the shortest plan that showed it: they stay found.
//!
//! A scenario is a file in the folder `scenarios`: its name, what was wrong, and the plan. Any failure's
//! plan can become one. The plan says all that its run needs but the code under test; when that changes
//! its order of events, a scenario may no longer meet what it was made for, but it must pass all the same.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::faults::plan::Plan;

/// Where the files are.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");

/// A bug that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is called: the name of its file, too.
    pub name: String,
    /// What was wrong, in a sentence or two.
    pub what: String,
    /// The run that showed it.
    pub plan: Plan,
}

/// All scenarios, by name.
///
/// # Errors
///
/// A file that cannot be read, or is no scenario.
pub fn all() -> Result<Vec<Scenario>, String> {
    let entries = fs::read_dir(FOLDER).map_err(|error| format!("{FOLDER}: {error}"))?;
    let mut scenarios = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| format!("{FOLDER}: {error}"))?.path();
        scenarios.push(load(&path).map_err(|error| format!("{}: {error}", path.display()))?);
    }
    scenarios.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(scenarios)
}

/// The scenario with a name.
///
/// # Errors
///
/// There is none; the text names those that there are. Those of [`all`].
pub fn named(name: &str) -> Result<Scenario, String> {
    let scenarios = all()?;
    let names: Vec<String> = scenarios.iter().map(|scenario| scenario.name.clone()).collect();
    let found = scenarios.into_iter().find(|scenario| scenario.name == name);
    found.ok_or_else(|| format!("no scenario is called {name}; there are {}", names.join(", ")))
}

fn load(path: &Path) -> Result<Scenario, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let scenario: Scenario = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if path.file_name().is_none_or(|file| file.to_string_lossy() != format!("{}.json", scenario.name)) {
        return Err(format!("it calls itself {}", scenario.name));
    }
    Ok(scenario)
}

#[cfg(test)]
#[path = "scenarios_tests.rs"]
mod tests;
