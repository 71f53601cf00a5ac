//! How fast the legs of a volume answer, and which of them is slow.
//!
//! Ten requests a second are measured, so that the others cost nothing: the guardian says that one is due, and the next one
//! that is sent is it. What is still under way counts by its age.
//!
//! A leg is slow if an answer took half a second or more, and ten times as long as any of the last answers of the legs in sync
//! beside it: where all are slow, none is. It is *slow for so long* since it was without a fast answer in between.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use spandrel_platform::Instant;

use crate::membership::LegId;

/// An answer that takes less is not slow, whatever others take.
const SLOW_MIN: Duration = Duration::from_millis(500);

/// So many times as long as others an answer takes that is slow.
const SLOW_FACTOR: u32 = 10;

/// How many answers of a leg are remembered.
const ANSWERS: usize = 32;

/// A leg that was asked for nothing for so long is not called slow any more: it may be well again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(15);

/// How fast the legs answer.
#[derive(Default)]
pub(crate) struct Paces {
    is_due: Cell<bool>,
    legs: RefCell<BTreeMap<LegId, Pace>>,
}

#[derive(Default)]
struct Pace {
    /// What the last answers took, the newest last.
    answers: VecDeque<Duration>,
    /// When the request was sent that is measured now.
    asked: Option<Instant>,
    /// When the first of the answers was asked for since which all were slow.
    slow_since: Option<Instant>,
    /// When something was measured last.
    last: Option<Instant>,
}

impl Paces {
    /// The next request is to be measured.
    pub(crate) fn set_due(&self) {
        self.is_due.set(true);
    }

    /// Whether a request that is about to be sent is to be measured; then no further one is until one is due again.
    pub(crate) fn take_due(&self) -> bool {
        self.is_due.replace(false)
    }

    /// A request that is measured goes out to a leg. Not if another one is under way: that says more.
    pub(crate) fn ask(&self, leg: LegId, now: Instant) {
        self.legs.borrow_mut().entry(leg).or_default().asked.get_or_insert(now);
    }

    /// The leg has answered, or takes longer than anybody waits.
    pub(crate) fn answer(&self, leg: LegId, now: Instant) {
        let Some(asked) = self.take_asked(leg) else { return };
        let took = now.since(asked);
        let is_slow = self.is_slow_answer(leg, took);
        let mut legs = self.legs.borrow_mut();
        let pace = legs.entry(leg).or_default();
        pace.last = Some(now);
        pace.slow_since = is_slow.then(|| pace.slow_since.unwrap_or(asked));
        if pace.answers.len() == ANSWERS {
            pace.answers.pop_front();
        }
        pace.answers.push_back(took);
    }

    /// The leg has failed to answer: that is another matter.
    pub(crate) fn forget(&self, leg: LegId) {
        self.take_asked(leg);
    }

    fn take_asked(&self, leg: LegId) -> Option<Instant> {
        self.legs.borrow_mut().get_mut(&leg)?.asked.take()
    }

    /// Whether an answer that took so long is slow.
    fn is_slow_answer(&self, leg: LegId, took: Duration) -> bool {
        let legs = self.legs.borrow();
        let others = legs.iter().filter(|(other, _)| other.drive != leg.drive);
        let longest = others.filter_map(|(_, pace)| pace.answers.iter().max()).max();
        longest.is_some_and(|longest| took >= SLOW_MIN && took >= *longest * SLOW_FACTOR)
    }

    /// Since when a leg has been slow without a break.
    pub(crate) fn slow_since(&self, leg: LegId, now: Instant) -> Option<Instant> {
        let (known, asked, last) = {
            let legs = self.legs.borrow();
            let pace = legs.get(&leg)?;
            (pace.slow_since, pace.asked, pace.last)
        };
        let under_way = asked.filter(|asked| self.is_slow_answer(leg, now.since(*asked)));
        let known = known
            .filter(|_| under_way.is_some() || last.is_some_and(|last| now.since(last) < FORGOTTEN_AFTER));
        known.or(under_way)
    }

    /// Whether a leg was slow the last time that it answered. Costs less than [`Self::slow_since`]; for each read.
    pub(crate) fn was_slow(&self, leg: LegId) -> bool {
        self.legs.borrow().get(&leg).is_some_and(|pace| pace.slow_since.is_some())
    }

    /// Forgets what is long ago, and legs that are none any more.
    pub(crate) fn tidy(&self, now: Instant, is_leg: impl Fn(&LegId) -> bool) {
        let mut legs = self.legs.borrow_mut();
        legs.retain(|leg, _| is_leg(leg));
        for pace in legs.values_mut() {
            if pace.asked.is_none() && pace.last.is_some_and(|last| now.since(last) >= FORGOTTEN_AFTER) {
                pace.slow_since = None;
            }
        }
    }
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
