//! How fast the legs of a volume answer, and which of them is slow.
//!
//! Of each leg ten reads and ten writes a second are measured, one of each at a time; for all others it costs a look into
//! a map. Whoever begins a measurement holds it, and nobody else ends it.
//!
//! An answer is *slow* if it took half a second or more, and ten times as long as the legs on other nodes take in the same
//! time. What a leg takes is the second longest of its last answers, or more if one of those that came meanwhile took
//! longer, or what is under way there is older. The middle one of these legs counts. If none of them has answered
//! meanwhile, nothing is slow: it may be this node, or all of them. What is under way counts by its age.
//!
//! A leg *is slow* since it has been without a fast answer. That says something when it was seen at least twice; and it
//! is forgotten when nothing slow was seen for some seconds.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use spandrel_platform::Instant;
use spandrel_shared::NodeId;

use crate::membership::{LegId, Member};

/// An answer that takes less is not slow, whatever others take.
const SLOW_MIN: Duration = Duration::from_millis(500);

/// So many times as long as others an answer takes that is slow.
const SLOW_FACTOR: u32 = 10;

/// How many answers of a leg are remembered.
const ANSWERS: usize = 32;

/// For how long an answer is remembered.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(60);

/// A leg of which nothing slow was seen for so long is not called slow any more: it may be well again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// So many tenths of a second after a request the next one of its kind to the same leg is measured.
pub(crate) const DUE_TICKS: u64 = 1;

/// How fast the legs answer.
#[derive(Default)]
pub(crate) struct Paces {
    /// Counts the guardian's tenths of a second.
    ticks: Cell<u64>,
    ticked_at: Cell<Option<Instant>>,
    legs: RefCell<BTreeMap<LegId, Pace>>,
}

/// What is measured: a leg may do the one fast and the other one slowly, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// A request that is measured. If it is dropped without an answer, nobody waits for that any more.
#[must_use = "it ends when it is dropped"]
pub(crate) struct Measurement {
    paces: Rc<Paces>,
    leg: LegId,
    kind: Kind,
    asked: Instant,
}

/// For how long a leg has been slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slowness {
    /// When the first of the answers was asked for since which all were slow.
    pub(crate) since: Instant,
    /// When that was seen last.
    pub(crate) until: Instant,
    /// How often it was seen.
    pub(crate) seen: u32,
}

struct Pace {
    node: NodeId,
    /// The last answers of both kinds, the newest last.
    answers: VecDeque<Answer>,
    tracks: [Track; 2],
}

#[derive(Clone, Copy)]
struct Answer {
    at: Instant,
    took: Duration,
}

/// What is known of one kind of requests to a leg.
#[derive(Clone, Copy, Default)]
struct Track {
    /// In which tenth of a second one was measured last.
    measured_in: Option<u64>,
    /// When the request was sent that is measured now.
    asked: Option<Instant>,
    /// Whether it is slow already, as it was judged last.
    is_slow_under_way: bool,
    /// What the answers say since the last fast one.
    answered: Option<Slowness>,
}

impl Paces {
    /// Begins to measure a request that is about to be sent to a copy, if none of its kind is under way there that is
    /// measured, and none has been for so many tenths of a second.
    pub(crate) fn begin(
        self: &Rc<Self>,
        member: &Member,
        kind: Kind,
        pause_ticks: u64,
        now: impl FnOnce() -> Instant,
    ) -> Option<Measurement> {
        let leg = member.leg();
        let mut legs = self.legs.borrow_mut();
        let pace = legs.entry(leg).or_insert_with(|| Pace::new(member.shard.node));
        let track = &mut pace.tracks[kind as usize];
        let is_due = track.measured_in.is_none_or(|tick| self.ticks.get() >= tick + pause_ticks);
        if !is_due || track.asked.is_some() {
            return None;
        }
        let asked = now();
        track.measured_in = Some(self.ticks.get());
        track.asked = Some(asked);
        Some(Measurement { paces: Rc::clone(self), leg, kind, asked })
    }

    /// A tenth of a second is over: what is under way is judged, and forgotten what is long ago, and legs that are none
    /// any more.
    pub(crate) fn tick(&self, now: Instant, is_leg: impl Fn(&LegId) -> bool) {
        self.ticks.set(self.ticks.get() + 1);
        self.ticked_at.set(Some(now));
        let mut legs = self.legs.borrow_mut();
        legs.retain(|leg, _| is_leg(leg));
        for pace in legs.values_mut() {
            pace.tracks.iter_mut().for_each(|track| track.forget(now));
        }
        let is_old = |track: &Track| track.asked.is_some_and(|asked| now.since(asked) >= SLOW_MIN);
        let old = legs.iter().filter(|(_, pace)| pace.tracks.iter().any(is_old));
        let judge = |pace: &Pace, track: Track| {
            track.asked.is_some_and(|asked| is_slow(&legs, pace.node, asked, now))
        };
        let judged: Vec<(LegId, [bool; 2])> =
            old.map(|(leg, pace)| (*leg, pace.tracks.map(|track| judge(pace, track)))).collect();
        for (leg, are_slow) in judged {
            let Some(pace) = legs.get_mut(&leg) else { continue };
            for (track, is_slow) in pace.tracks.iter_mut().zip(are_slow) {
                track.is_slow_under_way = is_slow;
            }
        }
    }

    /// Whether a leg is slow, as it was seen last: reads avoid it. One look into a map, as each read asks it.
    pub(crate) fn is_slow(&self, leg: LegId) -> bool {
        let legs = self.legs.borrow();
        let is_slow = |track: &Track| track.is_slow_under_way || track.answered.is_some();
        legs.get(&leg).is_some_and(|pace| pace.tracks.iter().any(is_slow))
    }

    /// The legs that are slow, and for how long: of reads and writes what has been slow for longer.
    pub(crate) fn slow_legs(&self, now: Instant) -> Vec<(LegId, Slowness)> {
        let legs = self.legs.borrow();
        let slowness = |pace: &Pace| {
            let slow = pace.tracks.iter().filter_map(|track| track.slowness(now));
            slow.max_by_key(|slow| (slow.seen >= 2, slow.duration()))
        };
        legs.iter().filter_map(|(leg, pace)| Some((*leg, slowness(pace)?))).collect()
    }

    fn note_answer(&self, measurement: &Measurement, now: Instant) {
        let Measurement { leg, kind, asked, .. } = *measurement;
        let mut legs = self.legs.borrow_mut();
        let Some(node) = legs.get(&leg).map(|pace| pace.node) else { return };
        let took = now.since(asked);
        let is_slow = is_slow(&legs, node, asked, now);
        let Some(pace) = legs.get_mut(&leg) else { return };
        pace.remember(Answer { at: now, took });
        let track = &mut pace.tracks[kind as usize];
        if track.end(asked) {
            track.note(is_slow, asked, now);
        }
    }

    /// The leg has failed to answer: that is another matter.
    fn forget(&self, measurement: &Measurement) {
        let mut legs = self.legs.borrow_mut();
        if let Some(pace) = legs.get_mut(&measurement.leg) {
            pace.tracks[measurement.kind as usize].end(measurement.asked);
        }
    }

    /// Nobody waits any more. If it was slow already, it would have been slower yet; otherwise that says nothing.
    fn give_up(&self, measurement: &Measurement) {
        let mut legs = self.legs.borrow_mut();
        let Some(pace) = legs.get_mut(&measurement.leg) else { return };
        let track = &mut pace.tracks[measurement.kind as usize];
        let was_slow = track.is_slow_under_way;
        if track.end(measurement.asked)
            && was_slow
            && let Some(seen_at) = self.ticked_at.get()
        {
            track.note(true, measurement.asked, seen_at);
        }
    }
}

/// Whether what was asked of a leg on this node is slow if it was answered now, or is not yet.
fn is_slow(legs: &BTreeMap<LegId, Pace>, node: NodeId, asked: Instant, now: Instant) -> bool {
    let age = now.since(asked);
    if age < SLOW_MIN {
        return false;
    }
    let others = || legs.values().filter(|pace| pace.node != node);
    let has_answered = |pace: &Pace| pace.answers.back().is_some_and(|answer| answer.at > asked);
    if !others().any(has_answered) {
        return false;
    }
    let mut took: Vec<Duration> = others().filter_map(|pace| pace.takes(asked, now)).collect();
    took.sort_unstable();
    took.get(took.len() / 2).is_some_and(|took| age >= *took * SLOW_FACTOR)
}

impl Measurement {
    /// The leg has answered.
    pub(crate) fn answered(self, now: Instant) {
        self.paces.note_answer(&self, now);
    }

    /// The leg has failed to answer.
    pub(crate) fn failed(self) {
        self.paces.forget(&self);
    }
}

impl Drop for Measurement {
    fn drop(&mut self) {
        self.paces.give_up(self);
    }
}

impl Slowness {
    /// For how long.
    pub(crate) fn duration(&self) -> Duration {
        self.until.since(self.since)
    }
}

impl Pace {
    fn new(node: NodeId) -> Self {
        Self { node, answers: VecDeque::new(), tracks: Default::default() }
    }

    fn remember(&mut self, answer: Answer) {
        if self.answers.len() == ANSWERS {
            self.answers.pop_front();
        }
        self.answers.push_back(answer);
    }

    /// What the leg takes for an answer, of late and since something was asked of another one.
    fn takes(&self, since: Instant, now: Instant) -> Option<Duration> {
        let (mut longest, mut second, mut meanwhile) = (None, None, None);
        for answer in self.answers.iter().filter(|answer| now.since(answer.at) < ANSWER_AGE_MAX) {
            let took = Some(answer.took);
            (longest, second) = (longest.max(took), second.max(longest.min(took)));
            if answer.at > since {
                meanwhile = meanwhile.max(took);
            }
        }
        let oldest = self.tracks.iter().filter_map(|track| track.asked).min();
        let age = oldest.map(|asked| now.since(asked));
        second.or(longest).max(meanwhile).max(age)
    }
}

impl Track {
    /// The request that was asked for at that time is over. Whether it was this one.
    fn end(&mut self, asked: Instant) -> bool {
        let is_it = self.asked == Some(asked);
        if is_it {
            self.asked = None;
            self.is_slow_under_way = false;
        }
        is_it
    }

    /// Takes note of an answer.
    fn note(&mut self, is_slow: bool, asked: Instant, until: Instant) {
        let (since, seen) = self.answered.map_or((asked, 0), |slow| (slow.since, slow.seen));
        self.answered = is_slow.then(|| Slowness { since, until, seen: seen + 1 });
    }

    fn forget(&mut self, now: Instant) {
        let is_old = |slow: &Slowness| now.since(slow.until) >= FORGOTTEN_AFTER;
        if self.asked.is_none() && self.answered.as_ref().is_some_and(is_old) {
            self.answered = None;
        }
    }

    fn slowness(&self, now: Instant) -> Option<Slowness> {
        let Some(asked) = self.asked.filter(|_| self.is_slow_under_way) else { return self.answered };
        let (since, seen) = self.answered.map_or((asked, 0), |slow| (slow.since, slow.seen));
        Some(Slowness { since, until: now, seen: seen + 1 })
    }
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
