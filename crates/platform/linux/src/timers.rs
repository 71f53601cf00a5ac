//! The deadlines that tasks of one thread sleep towards.
//!
//! Timers with equal deadlines fire in the order in which they were set. A timer that fired is
//! gone: that is how a sleeper, polled again, knows.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::task::Waker;

use spandrel_platform::Instant;

/// Names one timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey {
    deadline: Instant,
    number: u64,
}

/// All timers of one thread.
#[derive(Default)]
pub(crate) struct Timers {
    entries: RefCell<BTreeMap<TimerKey, Waker>>,
    next_number: Cell<u64>,
}

impl Timers {
    /// Sets a timer that wakes `waker` at `deadline`.
    pub(crate) fn set(&self, deadline: Instant, waker: Waker) -> TimerKey {
        let key = TimerKey { deadline, number: self.next_number.get() };
        self.next_number.set(key.number + 1);
        self.entries.borrow_mut().insert(key, waker);
        key
    }

    /// Names the task to wake anew. Returns false if the timer has fired.
    pub(crate) fn renew(&self, key: TimerKey, waker: &Waker) -> bool {
        match self.entries.borrow_mut().get_mut(&key) {
            Some(current) => {
                current.clone_from(waker);
                true
            }
            None => false,
        }
    }

    /// Takes a timer back, if it has not fired.
    pub(crate) fn cancel(&self, key: TimerKey) {
        self.entries.borrow_mut().remove(&key);
    }

    /// When the next timer is due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.entries.borrow().first_key_value().map(|(key, _)| key.deadline)
    }

    /// Wakes the tasks of all timers that are due at `now` and returns how many those were.
    pub(crate) fn fire(&self, now: Instant) -> u64 {
        let mut fired = 0;
        while let Some(waker) = self.take_due(now) {
            waker.wake();
            fired += 1;
        }
        fired
    }

    fn take_due(&self, now: Instant) -> Option<Waker> {
        let mut entries = self.entries.borrow_mut();
        let first = entries.first_entry().filter(|entry| entry.key().deadline <= now)?;
        Some(first.remove())
    }
}

#[cfg(test)]
#[path = "timers_tests.rs"]
mod tests;
