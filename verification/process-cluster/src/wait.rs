//! Waiting for what nothing tells of: what other processes do, most of which are no children of this one.

use std::time::{Duration, Instant};

/// How long something may take to come true.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often it is asked for. There is nothing else to wait for.
const INTERVAL: Duration = Duration::from_millis(20);

/// Waits until something is so. Whether it came to that in time.
pub fn comes_true(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        // tidy-allow(sleep): the condition is another process's, which can only be asked again.
        std::thread::sleep(INTERVAL);
    }
    true
}

/// Waits until something is so.
///
/// # Panics
///
/// If it does not come to that.
pub fn await_that(what: &str, condition: impl FnMut() -> bool) {
    assert!(comes_true(condition), "it does not come to {what}");
}
