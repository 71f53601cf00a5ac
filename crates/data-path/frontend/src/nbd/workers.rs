//! Tasks that do one job after the other.
//!
//! A task per request would allocate its future, some kilobytes, for each. Here a task that has
//! finished waits for the next job, so that a connection makes as many as it ever had in flight.
//! The task that waits for the shortest time is taken first: its memory is the warmest.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// The tasks that wait for jobs of type `T`.
pub(super) struct Workers<T> {
    idle: RefCell<Vec<Rc<Desk<T>>>>,
    closed: Cell<bool>,
}

/// Where one task gets its jobs.
pub(super) struct Desk<T> {
    job: Cell<Option<T>>,
    waker: Cell<Option<Waker>>,
}

impl<T> Desk<T> {
    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl<T> Workers<T> {
    pub(super) fn new() -> Self {
        Self { idle: RefCell::default(), closed: Cell::new(false) }
    }

    /// A place for a new task to wait at.
    pub(super) fn desk() -> Rc<Desk<T>> {
        Rc::new(Desk { job: Cell::new(None), waker: Cell::new(None) })
    }

    /// Gives `job` to a task that waits, or back if none does.
    pub(super) fn assign(&self, job: T) -> Result<(), T> {
        let Some(desk) = self.idle.borrow_mut().pop() else { return Err(job) };
        desk.job.set(Some(job));
        desk.wake();
        Ok(())
    }

    /// Waits for the next job; `None` when there will be none.
    pub(super) async fn next(&self, desk: &Rc<Desk<T>>) -> Option<T> {
        if self.closed.get() {
            return None;
        }
        // Listed once, however often this is polled: one listing is one job.
        self.idle.borrow_mut().push(Rc::clone(desk));
        poll_fn(|context| {
            if let Some(job) = desk.job.take() {
                return Poll::Ready(Some(job));
            }
            if self.closed.get() {
                return Poll::Ready(None);
            }
            desk.waker.set(Some(context.waker().clone()));
            Poll::Pending
        })
        .await
    }

    /// Lets the tasks that wait end, and the others when they have done their job.
    pub(super) fn close(&self) {
        self.closed.set(true);
        for desk in self.idle.take() {
            desk.wake();
        }
    }
}

#[cfg(test)]
#[path = "workers_tests.rs"]
mod tests;
