//! Clusters of servers take turns: many at once on a small machine disturb each other's timing. Two are let in, since
//! most of their time is waiting.
//!
//! Invariants:
//! - So many turns are there in a process at most. One may be shared by several clusters of one test.

use std::sync::{Condvar, Mutex, PoisonError};

const AT_ONCE: usize = 2;

static TAKEN: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// A place among those that run.
pub struct Turn;

impl Turn {
    /// Waits for a place.
    pub fn take() -> Self {
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = ENDED.wait_while(taken, |taken| *taken >= AT_ONCE);
        *waited.unwrap_or_else(PoisonError::into_inner) += 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}
