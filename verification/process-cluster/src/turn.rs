//! Clusters of servers take turns: several at once on a small machine disturb each other's timing.
//!
//! Invariants:
//! - At most one turn is there in a process. It may be shared by several clusters of one test.

use std::sync::{Condvar, Mutex, PoisonError};

static IS_TAKEN: Mutex<bool> = Mutex::new(false);
static ENDED: Condvar = Condvar::new();

/// While it is there, nobody else has it.
pub struct Turn;

impl Turn {
    /// Waits for those who have it.
    pub fn take() -> Self {
        let is_taken = IS_TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = ENDED.wait_while(is_taken, |is_taken| *is_taken);
        *waited.unwrap_or_else(PoisonError::into_inner) = true;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *IS_TAKEN.lock().unwrap_or_else(PoisonError::into_inner) = false;
        ENDED.notify_one();
    }
}
