//! Futures that are awaited together, few of them: the requests of one write to its copies.
//!
//! All that are left are polled whenever one of them may have got on. For a handful that costs less than to know which, as
//! each would need a waker of its own, in memory of its own.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Some futures, of which each ends once.
pub(crate) struct Few<F> {
    /// None where one has ended: so the others stay where they are.
    futures: Vec<Option<F>>,
}

impl<F: Future + Unpin> Few<F> {
    /// None yet. Takes no memory.
    pub(crate) fn new() -> Self {
        Self { futures: Vec::new() }
    }

    /// None yet, and memory for so many.
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self { futures: Vec::with_capacity(count) }
    }

    /// Adds one.
    pub(crate) fn push(&mut self, future: F) {
        self.futures.push(Some(future));
    }

    /// What one of them comes to. Pending as well if there are none.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        for future in &mut self.futures {
            let Some(left) = future else { continue };
            if let Poll::Ready(output) = Pin::new(left).poll(context) {
                // It is not polled again.
                *future = None;
                return Poll::Ready(output);
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
#[path = "few_tests.rs"]
mod tests;
