//! What happened in a world: folded into one hash, and on request kept as text.
//!
//! Two runs are the same if and only if (but for a chance of 1 in 2^64) their hashes are: every
//! event goes in with its time, its kind, the things it concerned and a digest of its data.
//! The text of an event is built only while a timeline is kept.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt::Write;

use crate::digest::fold;

/// What kind of thing happened.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Host = 1,
    ProcessStart,
    ProcessEnd,
    ProcessPause,
    Turn,
    Timers,
    DriveSubmit,
    DriveComplete,
    DriveState,
    DriveFault,
    Send,
    Deliver,
    LinkState,
    ConnectionState,
    Note,
}

pub(crate) struct Trace {
    hash: Cell<u64>,
    events: Cell<u64>,
    timeline: RefCell<VecDeque<(u64, String)>>,
    timeline_events: usize,
}

impl Trace {
    /// A trace that keeps the text of the newest `timeline_events` events.
    pub(crate) fn new(timeline_events: usize) -> Self {
        Self { hash: Cell::new(0), events: Cell::new(0), timeline: RefCell::default(), timeline_events }
    }

    /// Adds an event to the hash, and its text to the timeline if there is one.
    pub(crate) fn record(&self, time: u64, kind: Kind, numbers: [u64; 3], describe: impl FnOnce() -> String) {
        self.record_silently(time, kind, numbers);
        if self.timeline_events == 0 {
            return;
        }
        let mut timeline = self.timeline.borrow_mut();
        if timeline.len() == self.timeline_events {
            timeline.pop_front();
        }
        timeline.push_back((time, describe()));
    }

    /// Adds an event that is too common to be told.
    pub(crate) fn record_silently(&self, time: u64, kind: Kind, numbers: [u64; 3]) {
        let mut hash = fold(self.hash.get(), time);
        hash = fold(hash, kind as u64);
        for number in numbers {
            hash = fold(hash, number);
        }
        self.hash.set(hash);
        self.events.set(self.events.get() + 1);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.get()
    }

    pub(crate) fn events(&self) -> u64 {
        self.events.get()
    }

    /// The kept events, oldest first, one line each: seconds, then what happened.
    pub(crate) fn timeline(&self) -> String {
        let mut text = String::new();
        for (time, event) in self.timeline.borrow().iter() {
            let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{seconds:>5}.{rest:09}  {event}");
        }
        text
    }
}
