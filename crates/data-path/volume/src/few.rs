//! Futures that are awaited together, few of them: the requests of one write to its copies.
//!
//! All that are left are polled whenever one of them may have got on. For a handful that costs less than to know which, as
//! each would need a waker of its own, in memory of its own.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Some futures, of which each ends once.
pub(crate) struct Few<F> {
    left: Vec<F>,
}

impl<F: Future + Unpin> Few<F> {
    /// None yet. Takes no memory.
    pub(crate) fn new() -> Self {
        Self { left: Vec::new() }
    }

    /// None yet, and memory for so many.
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self { left: Vec::with_capacity(count) }
    }

    /// Adds one.
    pub(crate) fn push(&mut self, future: F) {
        self.left.push(future);
    }

    /// What one of them comes to. Pending as well if there are none.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        for index in 0..self.left.len() {
            if let Poll::Ready(output) = Pin::new(&mut self.left[index]).poll(context) {
                // It is not polled again; the others keep their order.
                drop(self.left.remove(index));
                return Poll::Ready(output);
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
#[path = "few_tests.rs"]
mod tests;
