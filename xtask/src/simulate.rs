//! `cargo xtask simulate`: builds the simulator for long runs and hands it its arguments.

use std::path::Path;

use crate::commands::{cargo, run as run_command};

/// Fast, with all assertions; see the workspace's `Cargo.toml`.
const PROFILE: &str = "simulation";

/// Runs the simulator. Returns whether it found nothing.
///
/// # Errors
///
/// When cargo cannot be started.
pub fn run(root: &Path, arguments: &[String]) -> Result<bool, String> {
    let mut simulator = cargo(root);
    simulator.args(["run", "--profile", PROFILE, "--package", "spandrel-simulator", "--"]);
    simulator.args(arguments);
    run_command(&mut simulator)
}
