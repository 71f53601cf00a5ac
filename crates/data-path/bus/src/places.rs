//! Bounds what is asked or served at the same time in one session.
//!
//! The asking side takes a place for a request before it sends it and gives it back when the answer
//! has come; the answering side holds one from the request's arrival until its answer is queued.
//! Both count by the same rule, so that a peer which keeps to it is never made to wait in the
//! connection, where its heartbeats would wait with it.
//!
//! Places are given in the order in which they were asked for. A request that is larger than the
//! bound by itself gets one when no other is taken; one without payload waits for no bytes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use spandrel_platform::sync::Signal;

/// The session is over; no place is given any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// The places of one session.
pub(crate) struct Places {
    requests_max: usize,
    bytes_max: u64,
    requests: Cell<usize>,
    bytes: Cell<u64>,
    closed: Cell<bool>,
    waiting: RefCell<Waiting>,
    emptied: Signal,
}

#[derive(Default)]
struct Waiting {
    /// In the order of their arrival.
    queue: VecDeque<(u64, Waker)>,
    arrivals: u64,
}

impl Places {
    pub(crate) fn new(requests_max: usize, bytes_max: u64) -> Rc<Self> {
        Rc::new(Self {
            requests_max,
            bytes_max,
            requests: Cell::new(0),
            bytes: Cell::new(0),
            closed: Cell::new(false),
            waiting: RefCell::default(),
            emptied: Signal::new(),
        })
    }

    /// A place for a request with `bytes` of payload, once there is room.
    pub(crate) fn take(self: &Rc<Self>, bytes: u64) -> Take<'_> {
        Take { places: self, bytes, ticket: None }
    }

    /// The same if there is room now, and nobody waits for any.
    pub(crate) fn try_take(self: &Rc<Self>, bytes: u64) -> Option<Place> {
        if self.closed.get() || !self.waiting.borrow().queue.is_empty() || !self.fits(bytes) {
            return None;
        }
        self.requests.set(self.requests.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
        Some(Place { places: Rc::clone(self), bytes })
    }

    /// Whether no place is taken and nobody waits for one.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests.get() == 0 && self.waiting.borrow().queue.is_empty()
    }

    /// Gives no place any more, also to those who wait.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        let waiting = std::mem::take(&mut self.waiting.borrow_mut().queue);
        for (_, waker) in waiting {
            waker.wake();
        }
    }

    /// Completes when no place is taken.
    pub(crate) async fn emptied(&self) {
        self.emptied.wait_until(|| self.requests.get() == 0).await;
    }

    fn fits(&self, bytes: u64) -> bool {
        let requests = self.requests.get();
        let bytes_fit = bytes == 0 || self.bytes.get().saturating_add(bytes) <= self.bytes_max;
        requests == 0 || (requests < self.requests_max && bytes_fit)
    }

    fn give_back(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() - bytes);
        self.requests.set(self.requests.get() - 1);
        if self.requests.get() == 0 {
            self.emptied.notify_all();
        }
        self.wake_first();
    }

    fn wake_first(&self) {
        if let Some((_, waker)) = self.waiting.borrow().queue.front() {
            waker.wake_by_ref();
        }
    }
}

/// A place, given back when dropped.
pub(crate) struct Place {
    places: Rc<Places>,
    bytes: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.give_back(self.bytes);
    }
}

/// Waits for a [`Place`].
pub(crate) struct Take<'a> {
    places: &'a Rc<Places>,
    bytes: u64,
    /// Its number in the queue, once it waits.
    ticket: Option<u64>,
}

impl Future for Take<'_> {
    type Output = Result<Place, Closed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let places = self.places;
        if places.closed.get() {
            self.ticket = None;
            return Poll::Ready(Err(Closed));
        }
        let mut waiting = places.waiting.borrow_mut();
        let first = match self.ticket {
            Some(ticket) => waiting.queue.front().is_some_and(|(front, _)| *front == ticket),
            None => waiting.queue.is_empty(),
        };
        if first && places.fits(self.bytes) {
            if self.ticket.take().is_some() {
                waiting.queue.pop_front();
            }
            drop(waiting);
            places.requests.set(places.requests.get() + 1);
            places.bytes.set(places.bytes.get() + self.bytes);
            // What was given back may do for the next one as well.
            places.wake_first();
            return Poll::Ready(Ok(Place { places: Rc::clone(places), bytes: self.bytes }));
        }
        let waker = context.waker().clone();
        match self.ticket {
            Some(ticket) => {
                if let Ok(index) = waiting.queue.binary_search_by_key(&ticket, |(ticket, _)| *ticket) {
                    waiting.queue[index].1 = waker;
                }
            }
            None => {
                waiting.arrivals += 1;
                let ticket = waiting.arrivals;
                waiting.queue.push_back((ticket, waker));
                drop(waiting);
                self.ticket = Some(ticket);
            }
        }
        Poll::Pending
    }
}

impl Drop for Take<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        self.places.waiting.borrow_mut().queue.retain(|(other, _)| *other != ticket);
        self.places.wake_first();
    }
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;
