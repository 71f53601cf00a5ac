//! Attempts that are made again and again until they succeed: when the next one is due, and what kept the last one from its end.
//!
//! Invariants:
//! - Pauses become longer with each attempt that fails, whatever is told of it, and with each one on trial.
//! - What is told is what kept the last attempt from its end, and nothing while another one goes on.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spandrel_platform::{Instant, Platform};
use spandrel_shared::Error;

/// How long to wait after an attempt that failed, at first and at most.
pub(crate) const RETRY_FIRST: Duration = Duration::from_secs(1);
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(5 * 60);

/// What was attempted and has not succeeded, each by a name.
#[derive(Default)]
pub(crate) struct Attempts {
    last: RefCell<BTreeMap<String, Attempt>>,
}

/// The last attempt at something.
struct Attempt {
    /// When the next one is due.
    due: Instant,
    /// How long that is after this one.
    pause: Duration,
    /// What kept it from its end. `None` while it goes on, and of one on trial that was successful.
    obstacle: Option<Error>,
}

impl Attempts {
    pub(crate) fn is_due(&self, what: &str, now: Instant) -> bool {
        self.last.borrow().get(what).is_none_or(|last| last.due <= now)
    }

    /// Attempts something if it is due. `None` if it is not, or does not succeed.
    pub(crate) async fn make<P: Platform, T>(
        &self,
        platform: &P,
        what: &str,
        attempt: impl Future<Output = Result<T, Error>>,
    ) -> Option<T> {
        let done = self.make_on_trial(platform, what, attempt).await;
        if done.is_some() {
            self.last.borrow_mut().remove(what);
        }
        done
    }

    /// The same where it shows later only whether it was of use: what has to be attempted again within [`RETRY_MAX`] of when
    /// that was due waits longer.
    pub(crate) async fn make_on_trial<P: Platform, T>(
        &self,
        platform: &P,
        what: &str,
        attempt: impl Future<Output = Result<T, Error>>,
    ) -> Option<T> {
        if !self.is_due(what, platform.now()) {
            return None;
        }
        self.begin(what, platform.now());
        let outcome = attempt.await;
        outcome.map_err(|error| self.fail(what, error, platform.now())).ok()
    }

    /// An attempt begins: what was in the way of the last one may not be there any more.
    fn begin(&self, what: &str, now: Instant) {
        let mut all = self.last.borrow_mut();
        let pause = all.get(what).map_or(RETRY_FIRST, |last| RETRY_MAX.min(2 * last.pause));
        all.insert(what.to_owned(), Attempt { due: now + pause, pause, obstacle: None });
    }

    fn fail(&self, what: &str, error: Error, now: Instant) {
        tracing::warn!("{error}");
        if let Some(attempt) = self.last.borrow_mut().get_mut(what) {
            attempt.due = now + attempt.pause;
            attempt.obstacle = Some(error);
        }
    }

    /// Forgets whatever is not wanted any more, and trials that are over.
    pub(crate) fn keep_only(&self, wanted: &BTreeSet<String>, now: Instant) {
        let is_on_trial = |last: &Attempt| last.obstacle.is_none() && now < last.due + RETRY_MAX;
        self.last.borrow_mut().retain(|what, last| wanted.contains(what) || is_on_trial(last));
    }

    /// Whether it was attempted for so long that the pauses are as long as they become.
    pub(crate) fn are_in_vain(&self, what: &str) -> bool {
        self.last.borrow().get(what).is_some_and(|last| last.pause >= RETRY_MAX)
    }

    /// What kept the last attempt from its end.
    pub(crate) fn obstacle(&self, what: &str) -> Option<Error> {
        self.last.borrow().get(what).and_then(|last| last.obstacle.clone())
    }
}

#[cfg(test)]
#[path = "attempts_tests.rs"]
mod tests;
