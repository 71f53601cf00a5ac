//! `--cores`: on which cores data are served.

use spandrel_platform_linux::Cores;
use spandrel_shared::Error;

use crate::failure::system_error;

/// Refuses cores that this process may not run on, before anything is begun.
pub fn check_cores(cores: Option<&Cores>) -> Result<(), Error> {
    let Some(cores) = cores else { return Ok(()) };
    let available =
        Cores::available().map_err(|error| system_error("the cores of this machine are unknown", &error))?;
    if cores.are_among(&available) {
        return Ok(());
    }
    Err(Error::new(
        "CORES_UNUSABLE",
        format!("--cores {cores} cannot be used"),
        format!("this process may run on {available}"),
        "name some of these; what a process may use is set by its machine, its container, `taskset`, and by CPUAffinity= and \
         AllowedCPUs= of its service",
    ))
}

#[cfg(test)]
#[path = "cores_tests.rs"]
mod tests;
