//! Bounds what one connection, or one queue, may have in flight.
//!
//! Only the task that takes requests waits here, so there is one place for a waker.
//! A request is admitted before memory is taken for its data. One that is larger than the bound
//! by itself is admitted when nothing else is in flight.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// The requests in flight of one connection or queue.
pub(crate) struct InFlight {
    requests: Cell<usize>,
    bytes: Cell<u64>,
    requests_max: usize,
    bytes_max: u64,
    waiter: Cell<Option<Waker>>,
}

impl InFlight {
    pub(crate) fn new(requests_max: usize, bytes_max: u64) -> Rc<Self> {
        Rc::new(Self {
            requests: Cell::new(0),
            bytes: Cell::new(0),
            requests_max,
            bytes_max,
            waiter: Cell::new(None),
        })
    }

    /// Takes a place for a request with `bytes` of data, or `None` if it must wait.
    pub(crate) fn try_admit(self: &Rc<Self>, bytes: u64) -> Option<Admission> {
        let (requests, bytes_before) = (self.requests.get(), self.bytes.get());
        let fits = requests < self.requests_max && bytes_before + bytes <= self.bytes_max;
        if !fits && requests != 0 {
            return None;
        }
        self.requests.set(requests + 1);
        self.bytes.set(bytes_before + bytes);
        Some(Admission { in_flight: Rc::clone(self), bytes })
    }

    /// Takes a place for a request with `bytes` of data, once there is room.
    pub(crate) async fn admit(self: &Rc<Self>, bytes: u64) -> Admission {
        poll_fn(|context| match self.try_admit(bytes) {
            Some(admission) => Poll::Ready(admission),
            None => {
                self.waiter.set(Some(context.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }

    /// Completes when nothing is in flight.
    pub(crate) async fn drained(&self) {
        poll_fn(|context| {
            if self.requests.get() == 0 {
                return Poll::Ready(());
            }
            self.waiter.set(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

/// A request's place, given back when dropped.
pub(crate) struct Admission {
    in_flight: Rc<InFlight>,
    bytes: u64,
}

impl Drop for Admission {
    fn drop(&mut self) {
        let in_flight = &self.in_flight;
        in_flight.requests.set(in_flight.requests.get() - 1);
        in_flight.bytes.set(in_flight.bytes.get() - self.bytes);
        if let Some(waiter) = in_flight.waiter.take() {
            waiter.wake();
        }
    }
}

#[cfg(test)]
#[path = "in_flight_tests.rs"]
mod tests;
