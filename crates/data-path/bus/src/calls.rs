//! The unanswered calls of one session.
//!
//! A call's sequence number holds its slot in the low bits and a count in the high ones, which grows by one
//! from call to call, so that an answer finds its call without a search. A call that its caller has given up
//! keeps its slot and its place until the answer comes: the peer is still busy with it.
//!
//! A call keeps its request until the answer comes, so that it can be sent again when its path is lost.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use spandrel_platform::Buffer;
use spandrel_platform::sync::wake_later;

use crate::places::Place;
use crate::{BusError, BusRequest, BusResponse};

/// Calls that can be unanswered at the same time: 2 to the power of this.
const SLOT_BITS: u32 = 20;

/// The places that a session can have, so that its calls always find a slot.
pub(crate) const PLACES_MAX: usize = 1 << 19;

/// Heartbeats that can be unanswered at the same time. They take no place.
const HEARTBEATS_MAX: usize = 32;

/// The slot in a call's number.
pub(crate) fn slot_of(sequence: u64) -> u64 {
    sequence & ((1 << SLOT_BITS) - 1)
}

/// The count in a call's number: one for the first call of a session.
pub(crate) fn count_of(sequence: u64) -> u64 {
    sequence >> SLOT_BITS
}

/// The number of a call.
pub(crate) fn sequence_of(count: u64, slot: u64) -> u64 {
    count << SLOT_BITS | slot
}

/// What was asked, and on which path.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) request: BusRequest,
    pub(crate) payload: Vec<Buffer>,
    pub(crate) path: u32,
}

/// What a call comes to.
pub(crate) type Outcome = Result<(BusResponse, Option<Buffer>), BusError>;

/// The unanswered calls of one session.
#[derive(Default)]
pub(crate) struct Calls {
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    slots: Vec<Slot>,
    free: Vec<usize>,
    count: u64,
    /// Unanswered calls without a place.
    heartbeats: usize,
    ended: bool,
}

struct Slot {
    /// Of the call that is or was here.
    sequence: u64,
    place: Option<Place>,
    sent: Option<Sent>,
    state: State,
}

impl Slot {
    fn is_open(&self) -> bool {
        matches!(self.state, State::Waiting(_) | State::GivenUp)
    }
}

enum State {
    Free,
    Waiting(Option<Waker>),
    /// Nobody waits for the answer any more.
    GivenUp,
    Settled(Outcome),
}

impl Calls {
    /// Begins a call. Its place is given back when its answer comes.
    pub(crate) fn begin(self: &Rc<Self>, place: Option<Place>) -> Result<Answer, BusError> {
        let mut inner = self.inner.borrow_mut();
        let heartbeat = place.is_none();
        if inner.ended {
            return Err(BusError::NotConnected);
        }
        if heartbeat && inner.heartbeats >= HEARTBEATS_MAX {
            return Err(BusError::TooManyHeartbeats);
        }
        let index = inner.free.pop().unwrap_or_else(|| {
            inner.slots.push(Slot { sequence: 0, place: None, sent: None, state: State::Free });
            inner.slots.len() - 1
        });
        assert!(index < 1 << SLOT_BITS, "the places of a session bound its calls");
        inner.heartbeats += usize::from(heartbeat);
        inner.count += 1;
        let sequence = sequence_of(inner.count, index as u64);
        inner.slots[index] = Slot { sequence, place, sent: None, state: State::Waiting(None) };
        Ok(Answer { calls: Rc::clone(self), sequence })
    }

    /// Whether a call of this number is unanswered.
    pub(crate) fn is_open(&self, sequence: u64) -> bool {
        self.inner.borrow_mut().open_slot(sequence).is_some()
    }

    /// Keeps what a call has asked until its answer comes.
    pub(crate) fn keep(&self, sequence: u64, sent: Sent) {
        if let Some(slot) = self.inner.borrow_mut().open_slot(sequence) {
            slot.sent = Some(sent);
        }
    }

    /// The numbers of the unanswered calls that were sent on a path: those of heartbeats, and the others.
    pub(crate) fn sent_on(&self, path: u32) -> (Vec<u64>, Vec<u64>) {
        let inner = self.inner.borrow();
        let open = inner.slots.iter().filter(|slot| slot.is_open());
        let sent = open.filter_map(|slot| Some((slot.sequence, slot.sent.as_ref()?)));
        let there = sent.filter(|(_, sent)| sent.path == path);
        let (mut heartbeats, mut others) = (Vec::new(), Vec::new());
        for (sequence, sent) in there {
            let is_heartbeat = matches!(sent.request, BusRequest::Heartbeat(_));
            if is_heartbeat { &mut heartbeats } else { &mut others }.push(sequence);
        }
        (heartbeats, others)
    }

    /// What a call has asked, if it is unanswered.
    pub(crate) fn sent(&self, sequence: u64) -> Option<Sent> {
        self.inner.borrow_mut().open_slot(sequence)?.sent.clone()
    }

    /// Whether a call of this number was begun, at any time.
    pub(crate) fn was_begun(&self, sequence: u64) -> bool {
        (1..=self.inner.borrow().count).contains(&count_of(sequence))
    }

    /// Brings a call its outcome. Returns false if there is no such call.
    pub(crate) fn settle(&self, sequence: u64, outcome: Outcome) -> bool {
        let mut inner = self.inner.borrow_mut();
        let Some(slot) = inner.open_slot(sequence) else { return false };
        let (place, sent) = (slot.place.take(), slot.sent.take());
        let heartbeat = place.is_none();
        let former = std::mem::replace(&mut slot.state, State::Settled(outcome));
        inner.heartbeats -= usize::from(heartbeat);
        let unwanted = matches!(former, State::GivenUp).then(|| inner.free(sequence));
        // What is dropped and woken from here on may come back to these calls.
        drop(inner);
        drop((place, sent, unwanted));
        if let State::Waiting(Some(waker)) = former {
            waker.wake();
        }
        true
    }

    /// Ends all calls: their outcome is not known.
    pub(crate) fn end(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.ended = true;
        let open: Vec<u64> =
            inner.slots.iter().filter(|slot| slot.is_open()).map(|slot| slot.sequence).collect();
        drop(inner);
        for sequence in open {
            self.settle(sequence, Err(BusError::SessionLost));
        }
    }

    /// Calls that are unanswered, given up or not.
    pub(crate) fn unanswered(&self) -> usize {
        let inner = self.inner.borrow();
        inner.slots.iter().filter(|slot| slot.is_open()).count()
    }
}

impl Inner {
    fn slot(&mut self, sequence: u64) -> Option<&mut Slot> {
        let index = slot_of(sequence) as usize;
        self.slots.get_mut(index).filter(|slot| slot.sequence == sequence)
    }

    fn open_slot(&mut self, sequence: u64) -> Option<&mut Slot> {
        self.slot(sequence).filter(|slot| slot.is_open())
    }

    fn free(&mut self, sequence: u64) -> State {
        let Some(slot) = self.slot(sequence) else { return State::Free };
        let former = std::mem::replace(&mut slot.state, State::Free);
        self.free.push(slot_of(sequence) as usize);
        former
    }
}

/// Waits for the outcome of a call.
pub(crate) struct Answer {
    calls: Rc<Calls>,
    sequence: u64,
}

impl Answer {
    /// The call's number in its session.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Ends a call whose request was not sent after all. None was begun after it.
    pub(crate) fn withdraw(self) {
        self.calls.inner.borrow_mut().count -= 1;
        self.calls.settle(self.sequence, Err(BusError::NotConnected));
    }
}

impl Future for Answer {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut inner = self.calls.inner.borrow_mut();
        let Some(slot) = inner.slot(self.sequence) else { return Poll::Pending };
        match &mut slot.state {
            State::Waiting(waker) => {
                wake_later(waker, context);
                return Poll::Pending;
            }
            State::Settled(_) => {}
            // It has been completed before.
            State::Free | State::GivenUp => return Poll::Pending,
        }
        match inner.free(self.sequence) {
            State::Settled(outcome) => Poll::Ready(outcome),
            _ => Poll::Pending,
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let mut inner = self.calls.inner.borrow_mut();
        let Some(slot) = inner.slot(self.sequence) else { return };
        let former = match &mut slot.state {
            State::Waiting(_) => std::mem::replace(&mut slot.state, State::GivenUp),
            State::Settled(_) => inner.free(self.sequence),
            State::Free | State::GivenUp => return,
        };
        drop(inner);
        drop(former);
    }
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
