//! How long requests of a volume have waited with none of them being answered.
//!
//! Somebody looks now and then, and tells how many requests wait and how many were answered. So a pause is known as exactly
//! as the looks are apart: it has begun after the last look but one before it showed, and ended before the one at which it
//! was over. Its length is wrong by the time between two looks at most, in either direction. What is shorter than
//! [`PAUSE_MIN`] is no pause.
//!
//! A look that comes late was kept from coming: the thread of the node stood still, and answered nothing.
//!
//! The pauses of the last minutes are kept, but for those that were followed by a longer one.

use std::collections::VecDeque;
use std::time::Duration;

use spandrel_platform::Instant;

/// How far apart looks are.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The shortest pause.
const PAUSE_MIN: Duration = LOOK_INTERVAL;

/// How long pauses are remembered.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(300);

/// A time in which requests waited and none was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) length: Duration,
    /// `None` while it goes on.
    pub(crate) ended: Option<Instant>,
}

/// The pauses of one volume's clients.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    looked_at: Instant,
    /// What was answered until then.
    done: u64,
    /// Since which look requests have waited of which none was answered.
    waiting_since: Option<Instant>,
    /// Pauses that are over: when, and how long they were. Each is longer than those behind it.
    over: VecDeque<(Instant, Duration)>,
}

impl Pauses {
    /// What shows now: how many requests wait, and how many were answered so far.
    pub(crate) fn look(&mut self, now: Instant, waiting: u64, done: u64) {
        let is_late = now.since(self.looked_at) >= 2 * LOOK_INTERVAL;
        let goes_on = waiting > 0 && done == self.done;
        let (looked_at, since) = (self.looked_at, self.waiting_since);
        (self.looked_at, self.done) = (now, done);
        if let Some(since) = since {
            if goes_on {
                return;
            }
            if looked_at > since || is_late {
                self.end(now, now.since(since));
            }
        }
        self.waiting_since = (waiting > 0).then_some(now);
    }

    fn end(&mut self, ended: Instant, length: Duration) {
        if length < PAUSE_MIN {
            return;
        }
        while self.over.back().is_some_and(|(_, shorter)| *shorter <= length) {
            self.over.pop_back();
        }
        self.over.push_back((ended, length));
        self.forget(ended);
    }

    fn forget(&mut self, now: Instant) {
        while self.over.front().is_some_and(|(ended, _)| now.since(*ended) > REMEMBERED) {
            self.over.pop_front();
        }
    }

    /// The longest pause that was not over for long, as it showed at the last look.
    pub(crate) fn longest(&mut self) -> Option<Pause> {
        self.forget(self.looked_at);
        let over = self.over.front().map(|(ended, length)| Pause { length: *length, ended: Some(*ended) });
        let since = self.waiting_since.map(|since| self.looked_at.since(since));
        let present = since.filter(|length| *length >= PAUSE_MIN).map(|length| Pause { length, ended: None });
        [over, present].into_iter().flatten().max_by_key(|pause| pause.length)
    }
}

#[cfg(test)]
#[path = "pauses_tests.rs"]
mod tests;
