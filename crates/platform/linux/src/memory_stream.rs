//! A byte stream between two threads of one process: bytes are copied into memory that both see, and out of it, without a call of
//! the kernel for either. The kernel is asked only to end the sleep of the thread on the other side.
//!
//! Each direction is a ring with one end that sends and one that receives. Whoever finds it empty, or full, leaves a waker, and looks
//! once more: either it sees then what the other side has done, or the other side sees the waker.
//!
//! Invariants:
//! - What one end has sent before it closed is received by the other one before that hears of the end.
//! - An end that is dropped is closed.

use std::cell::RefCell;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::io::Errno;

/// Bytes that are on their way in one direction, at most: enough for what a turn of a busy node has to say to another one, and little
/// enough to stay in a processor's caches.
const RING_BYTES: usize = 128 << 10;

/// One end. It may go to another thread.
pub(crate) struct MemoryStream {
    outgoing: RefCell<Producer<u8>>,
    incoming: RefCell<Consumer<u8>>,
    here: Arc<Side>,
    there: Arc<Side>,
}

/// What the other end has to know of one.
#[derive(Default)]
struct Side {
    closed: AtomicBool,
    /// Waits for bytes, or for the other end to close.
    receiver: AtomicWaker,
    /// Waits for room to send, or for an end to close.
    sender: AtomicWaker,
}

impl MemoryStream {
    /// Both ends of a new stream.
    pub(crate) fn pair() -> (Self, Self) {
        let (one, other) = (Arc::<Side>::default(), Arc::<Side>::default());
        let (to_other, from_one) = RingBuffer::new(RING_BYTES);
        let (to_one, from_other) = RingBuffer::new(RING_BYTES);
        let end = |outgoing, incoming, here: &Arc<Side>, there: &Arc<Side>| Self {
            outgoing: RefCell::new(outgoing),
            incoming: RefCell::new(incoming),
            here: Arc::clone(here),
            there: Arc::clone(there),
        };
        (end(to_other, from_other, &one, &other), end(to_one, from_one, &other, &one))
    }

    /// Ready when there is something to receive, if only the end; wakes `context` then if there is nothing yet.
    pub(crate) fn poll_receivable(&self, context: &Context<'_>) -> Poll<()> {
        if self.is_receivable() {
            return Poll::Ready(());
        }
        self.here.receiver.register(context.waker());
        if self.is_receivable() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn is_receivable(&self) -> bool {
        !self.incoming.borrow().is_empty() || self.is_closed_there()
    }

    /// Receives what there is into the front of `into`. Zero means that the other end has closed.
    pub(crate) fn receive(&self, into: &mut [u8]) -> Result<usize, Errno> {
        // Asked first: all that was sent before is seen then.
        let closed = self.is_closed_there();
        let count = self.incoming.borrow_mut().pop_partial_slice(into).0.len();
        if count > 0 {
            self.there.sender.wake();
        } else if !closed {
            return Err(Errno::AGAIN);
        }
        Ok(count)
    }

    /// Sends as much of `slices`, one behind the other, as there is room for.
    pub(crate) fn send(&self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        if self.is_closed_there() {
            return Err(Errno::PIPE);
        }
        let mut outgoing = self.outgoing.borrow_mut();
        let mut sent = 0;
        for slice in slices {
            let (taken, left) = outgoing.push_partial_slice(slice);
            sent += taken.len();
            if !left.is_empty() {
                break;
            }
        }
        if sent == 0 {
            return Err(Errno::AGAIN);
        }
        self.there.receiver.wake();
        Ok(sent)
    }

    /// Ready when there is room to send, or an end has closed; wakes `context` then if there is none.
    pub(crate) fn poll_room(&self, context: &Context<'_>) -> Poll<()> {
        self.here.sender.register(context.waker());
        let is_closed = self.here.closed.load(Ordering::SeqCst) || self.is_closed_there();
        let is_full = self.outgoing.borrow().is_full();
        if is_full && !is_closed { Poll::Pending } else { Poll::Ready(()) }
    }

    fn is_closed_there(&self) -> bool {
        self.there.closed.load(Ordering::SeqCst)
    }

    /// Ends both directions.
    pub(crate) fn close(&self) {
        self.here.closed.store(true, Ordering::SeqCst);
        self.there.receiver.wake();
        self.there.sender.wake();
        self.here.sender.wake();
    }
}

impl Drop for MemoryStream {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
#[path = "memory_stream_tests.rs"]
mod tests;
