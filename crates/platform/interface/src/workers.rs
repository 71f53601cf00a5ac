//! Tasks that do one job after the other.
//!
//! A task for each request would take memory for its future, some kilobytes, and fill it, for each. Here a task that has finished
//! waits for the next job, so that there come to be as many as there ever were jobs at a time. The one that waits for the
//! shortest time is woken first: its memory is the warmest.
//!
//! Invariants:
//! - Jobs are begun in the order in which they were given: whichever task runs first takes the oldest one.
//! - For each job that is given a task is woken, or started by whoever gives it, so that none is left lying.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// The jobs of a group of tasks, and those of the tasks that wait.
pub struct Workers<T> {
    jobs: RefCell<VecDeque<T>>,
    /// Those that wait, by the ticket of their wait, in the order in which they began to.
    waiting: RefCell<Vec<(u64, Waker)>>,
    waiting_max: usize,
    next_ticket: Cell<u64>,
    is_closed: Cell<bool>,
}

impl<T> Workers<T> {
    /// No tasks yet. Of those that have nothing to do `waiting_max` stay.
    pub fn new(waiting_max: usize) -> Self {
        Self {
            jobs: RefCell::default(),
            waiting: RefCell::default(),
            waiting_max,
            next_ticket: Cell::new(0),
            is_closed: Cell::new(false),
        }
    }

    /// Adds a job. Returns whether the caller has to start one more task, which takes its jobs from [`Workers::next`].
    #[must_use = "a job for which no task waits needs one"]
    pub fn give(&self, job: T) -> bool {
        self.jobs.borrow_mut().push_back(job);
        let woken = self.waiting.borrow_mut().pop();
        match woken {
            Some((_, waker)) => {
                waker.wake();
                false
            }
            None => true,
        }
    }

    /// The next job, once there is one; `None` when the task is to end. A task that waits here may end only together with all
    /// others: a job may have woken it.
    pub async fn next(&self) -> Option<T> {
        let mut ticket = None;
        poll_fn(|context| {
            // One wait has one place, however often it is polled: whoever is woken in vain must not be woken for another's job.
            self.leave(ticket.take());
            if let Some(job) = self.jobs.borrow_mut().pop_front() {
                return Poll::Ready(Some(job));
            }
            let mut waiting = self.waiting.borrow_mut();
            if self.is_closed.get() || waiting.len() >= self.waiting_max {
                return Poll::Ready(None);
            }
            ticket = Some(self.next_ticket.replace(self.next_ticket.get() + 1));
            waiting.extend(ticket.map(|ticket| (ticket, context.waker().clone())));
            Poll::Pending
        })
        .await
    }

    /// Lets the tasks that wait end, and the others when nothing is left to do.
    pub fn close(&self) {
        self.is_closed.set(true);
        for (_, waker) in self.waiting.take() {
            waker.wake();
        }
    }

    fn leave(&self, ticket: Option<u64>) {
        let Some(ticket) = ticket else { return };
        let mut waiting = self.waiting.borrow_mut();
        let place = waiting.binary_search_by_key(&ticket, |(other, _)| *other);
        let former = place.ok().map(|place| waiting.remove(place));
        // The end of a waker may be the end of a task.
        drop(waiting);
        drop(former);
    }
}

#[cfg(test)]
#[path = "workers_tests.rs"]
mod tests;
