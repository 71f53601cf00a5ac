//! Which of the requests of an accepted session is begun next, and what has become of each, whichever path brought it.
//!
//! A request whose path was lost comes again on another one. Its number tells: it holds a count, which grows by one
//! from request to request, and the slot that the other side keeps for it until it has the answer.
//!
//! Invariants:
//! - Requests are begun in the order of their counts, and each once.
//! - An answer is kept until its slot is used again: by then the other side has it. Beyond a bound of bytes the
//!   oldest ones are not.

use std::collections::{BTreeMap, VecDeque};

use crate::calls::{PLACES_MAX, count_of, slot_of};

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
    slots: Option<BTreeMap<u64, Slot<A>>>,
    kept_bytes: u64,
    kept_bytes_max: u64,
}

struct Slot<A> {
    sequence: u64,
    /// What has become of the request: open, answered or gone.
    state: Repeated<A>,
    /// The bytes that a kept answer holds.
    bytes: u64,
}

impl<W, A: Clone> Order<W, A> {
    /// The order of a new session. Requests come a second time only if `repeats`; then answers of so many bytes are
    /// kept.
    pub(crate) fn new(repeats: bool, kept_bytes_max: u64) -> Self {
        let slots = repeats.then(BTreeMap::new);
        Self { next: 1, ready: VecDeque::new(), early: BTreeMap::new(), slots, kept_bytes: 0, kept_bytes_max }
    }

    pub(crate) fn standing(&self, sequence: u64) -> Standing {
        let count = count_of(sequence);
        match self.slots {
            None if count == self.next => Standing::New,
            None => Standing::Wrong,
            Some(_) if count < self.next || self.early.contains_key(&count) => Standing::Repeated,
            Some(_) if count - self.next < PLACES_MAX as u64 => Standing::New,
            Some(_) => Standing::Wrong,
        }
    }

    /// A request has come whole; there is nothing to begin if it needs no turn. Returns false if it came twice.
    pub(crate) fn put(&mut self, sequence: u64, work: Option<W>) -> bool {
        if self.standing(sequence) != Standing::New {
            return false;
        }
        if let Some(slots) = &mut self.slots {
            let former = slots.insert(slot_of(sequence), Slot { sequence, state: Repeated::Open, bytes: 0 });
            self.kept_bytes -= former.map_or(0, |former| former.bytes);
        }
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
        while self.kept_bytes > self.kept_bytes_max {
            let with_bytes = slots.values_mut().filter(|slot| slot.bytes > 0);
            let Some(oldest) = with_bytes.min_by_key(|slot| slot.sequence) else { break };
            self.kept_bytes -= oldest.bytes;
            (oldest.state, oldest.bytes) = (Repeated::Gone, 0);
        }
    }

    /// What has become of a request that comes again.
    pub(crate) fn repeated(&self, sequence: u64) -> Repeated<A> {
        let slot = self.slots.as_ref().and_then(|slots| slots.get(&slot_of(sequence)));
        slot.filter(|slot| slot.sequence == sequence).map_or(Repeated::Over, |slot| slot.state.clone())
    }
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
