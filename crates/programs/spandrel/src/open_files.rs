//! How many files this process may have open at the same time.
//!
//! Each client of a volume, each path to another node and each drive is one. Service managers and shells start programs
//! with a soft limit of 1,024, for the sake of those that use select(2), which nothing here does; the hard limit is what
//! the machine's owner has set.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit as far as this process may. What it starts has it, too.
pub fn raise() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!("the limit of open files cannot be raised: {error}");
    }
}

#[cfg(test)]
#[path = "open_files_tests.rs"]
mod tests;
