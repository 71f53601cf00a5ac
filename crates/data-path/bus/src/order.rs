//! Which of the requests of an accepted session is begun next, and what has become of each, whichever path brought it.
//!
//! A request whose path was lost comes again on another one. Its number tells: it holds a count, which grows by one
//! from request to request, and the slot that the other side keeps for it until it has the answer.
//!
//! Invariants:
//! - Requests are begun in the order of their counts, and each once.
//! - An answer is kept until its slot is used again: by then the other side has it. Beyond bounds of their bytes and
//!   their number the oldest ones are not.
//! - What comes before its turn is bounded in number.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::FxHashMap;

use crate::calls::{count_of, slot_of};

/// So many times the requests that may be unanswered can have come after one that is missing: heartbeats, above all, which
/// wait for nothing and are answered meanwhile.
const EARLY_FACTOR: usize = 8;

/// The answers of so many times the requests that may be unanswered are kept. The other side may use more slots for a
/// while: one is its own until whoever asked has taken the answer.
const SLOTS_FACTOR: usize = 4;

/// What a request's number says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has not come before.
    New,
    /// It has.
    Repeated,
    /// No request has this number here.
    Wrong,
}

/// What has become of a request that comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeated<A> {
    /// It waits or is being served.
    Open,
    /// This.
    Answered(A),
    /// It was answered, and the answer was not kept.
    Gone,
    /// The other side has had the answer: its slot is used again.
    Over,
}

/// The order of a session's requests. `W` is what there is to begin, `A` an answer.
pub(crate) struct Order<W, A> {
    /// The count of the request that is to be begun next.
    next: u64,
    ready: VecDeque<W>,
    /// What has come before its turn, by count; nothing where there is nothing to begin.
    early: BTreeMap<u64, Option<W>>,
    /// What came of the last request of each slot, by slot; none where no request can come a second time.
    slots: Option<FxHashMap<u64, Slot<A>>>,
    /// The answered ones whose answers hold bytes: by number, the oldest first.
    holding: BTreeSet<u64>,
    kept_bytes: u64,
    kept_bytes_max: u64,
    early_max: u64,
    slots_max: usize,
}

struct Slot<A> {
    sequence: u64,
    /// What has become of the request: open, answered or gone.
    state: Repeated<A>,
    /// The bytes that a kept answer holds.
    bytes: u64,
}

impl<W, A: Clone> Order<W, A> {
    /// The order of a new session, in which so many requests may be unanswered. They come a second time only if
    /// `repeats`; then answers of so many bytes are kept.
    pub(crate) fn new(repeats: bool, requests_max: usize, kept_bytes_max: u64) -> Self {
        Self {
            next: 1,
            ready: VecDeque::new(),
            early: BTreeMap::new(),
            slots: repeats.then(FxHashMap::default),
            holding: BTreeSet::new(),
            kept_bytes: 0,
            kept_bytes_max,
            early_max: requests_max.saturating_mul(EARLY_FACTOR) as u64,
            slots_max: requests_max.saturating_mul(SLOTS_FACTOR),
        }
    }

    pub(crate) fn standing(&self, sequence: u64) -> Standing {
        let count = count_of(sequence);
        match self.slots {
            None if count == self.next => Standing::New,
            None => Standing::Wrong,
            Some(_) if count == 0 => Standing::Wrong,
            Some(_) if count < self.next || self.early.contains_key(&count) => Standing::Repeated,
            Some(_) if count - self.next < self.early_max => Standing::New,
            Some(_) => Standing::Wrong,
        }
    }

    /// A request has come whole; there is nothing to begin if it needs no turn. Returns false if it came twice.
    pub(crate) fn put(&mut self, sequence: u64, work: Option<W>) -> bool {
        if self.standing(sequence) != Standing::New {
            return false;
        }
        self.take_slot(sequence);
        let count = count_of(sequence);
        if count != self.next {
            self.early.insert(count, work);
            return true;
        }
        self.ready.extend(work);
        self.next += 1;
        while let Some(work) = self.early.remove(&self.next) {
            self.ready.extend(work);
            self.next += 1;
        }
        true
    }

    /// What is to be begun now, one after the other.
    pub(crate) fn take_ready(&mut self) -> Option<W> {
        self.ready.pop_front()
    }

    /// What was not begun, for whoever ends the session to drop.
    pub(crate) fn take_unbegun(&mut self) -> impl Sized + use<W, A> {
        (std::mem::take(&mut self.ready), std::mem::take(&mut self.early))
    }

    /// Whether requests may come a second time.
    pub(crate) fn repeats(&self) -> bool {
        self.slots.is_some()
    }

    /// Keeps the answer to a request, which holds `bytes`, in case that the request comes again.
    pub(crate) fn keep(&mut self, sequence: u64, bytes: u64, answer: impl FnOnce() -> A) {
        let Some(slots) = &mut self.slots else { return };
        let Some(slot) = slots.get_mut(&slot_of(sequence)).filter(|slot| slot.sequence == sequence) else {
            return;
        };
        (slot.state, slot.bytes) = (Repeated::Answered(answer()), bytes);
        self.kept_bytes += bytes;
        if bytes > 0 {
            self.holding.insert(sequence);
        }
        while self.kept_bytes > self.kept_bytes_max {
            let Some(oldest) = self.holding.pop_first() else { break };
            if let Some(slot) = slots.get_mut(&slot_of(oldest)) {
                self.kept_bytes -= slot.bytes;
                (slot.state, slot.bytes) = (Repeated::Gone, 0);
            }
        }
    }

    /// Gives a request its slot. Its former one is over.
    fn take_slot(&mut self, sequence: u64) {
        let Some(slots) = &mut self.slots else { return };
        let former = slots.insert(slot_of(sequence), Slot { sequence, state: Repeated::Open, bytes: 0 });
        let oldest = if slots.len() > self.slots_max { oldest_answered(slots) } else { None };
        let oldest = oldest.and_then(|oldest| slots.remove(&slot_of(oldest)));
        for slot in former.into_iter().chain(oldest) {
            self.holding.remove(&slot.sequence);
            self.kept_bytes -= slot.bytes;
        }
    }

    /// What has become of a request that comes again.
    pub(crate) fn repeated(&self, sequence: u64) -> Repeated<A> {
        let Some(slots) = &self.slots else { return Repeated::Over };
        match slots.get(&slot_of(sequence)) {
            Some(slot) if slot.sequence == sequence => slot.state.clone(),
            Some(slot) if slot.sequence > sequence => Repeated::Over,
            // It was forgotten with its slot.
            _ => Repeated::Gone,
        }
    }
}

/// The number of the oldest request that is answered, or its answer gone. Looked for only where there are too many.
fn oldest_answered<A>(slots: &FxHashMap<u64, Slot<A>>) -> Option<u64> {
    let answered = slots.values().filter(|slot| !matches!(slot.state, Repeated::Open));
    answered.map(|slot| slot.sequence).min()
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
