//! Tells the tasks of a server that it stops.
//!
//! Each task that must notice has a [`StopListener`], whose place is given back when it is
//! dropped: a server that lives for years remembers nothing of connections that are gone.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The raising side. Clones raise the same signal.
#[derive(Clone, Default)]
pub(super) struct StopSignal {
    state: Rc<StopState>,
}

#[derive(Default)]
struct StopState {
    stopping: Cell<bool>,
    places: RefCell<Places>,
}

#[derive(Default)]
struct Places {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl StopSignal {
    /// Tells all listeners, those to come included.
    pub(super) fn raise(&self) {
        self.state.stopping.set(true);
        let wakers: Vec<_> =
            self.state.places.borrow_mut().wakers.iter_mut().filter_map(Option::take).collect();
        for waker in wakers {
            waker.wake();
        }
    }

    pub(super) fn is_raised(&self) -> bool {
        self.state.stopping.get()
    }

    pub(super) fn listen(&self) -> StopListener {
        let mut places = self.state.places.borrow_mut();
        let place = places.free.pop().unwrap_or_else(|| {
            places.wakers.push(None);
            places.wakers.len() - 1
        });
        StopListener { state: Rc::clone(&self.state), place }
    }
}

/// The listening side, for one task.
pub(super) struct StopListener {
    state: Rc<StopState>,
    place: usize,
}

impl StopListener {
    /// Ready once the signal is raised; wakes `context` then if it is not.
    pub(super) fn poll_stopped(&self, context: &Context<'_>) -> Poll<()> {
        if self.state.stopping.get() {
            return Poll::Ready(());
        }
        let waker = &mut self.state.places.borrow_mut().wakers[self.place];
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Completes once the signal is raised.
    pub(super) async fn stopped(&self) {
        poll_fn(|context| self.poll_stopped(context)).await;
    }
}

impl Drop for StopListener {
    fn drop(&mut self) {
        let mut places = self.state.places.borrow_mut();
        places.wakers[self.place] = None;
        places.free.push(self.place);
    }
}

#[cfg(test)]
#[path = "stop_tests.rs"]
mod tests;
