//! How other threads hand something to a shard's thread and get it out of its sleep.
//!
//! One eventfd per shard ends the sleep. It is registered edge-triggered and never read: each
//! write is an event of its own. A mailbox writes to it once per batch, not once per item.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use spandrel_platform::Unpark;

/// The eventfd that ends a shard's sleep.
pub(crate) struct WakeFd {
    eventfd: OwnedFd,
}

impl WakeFd {
    pub(crate) fn new() -> rustix::io::Result<Self> {
        Ok(Self { eventfd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Ends the shard's present sleep, or its next one if it is awake.
    pub(crate) fn wake(&self) {
        // This fails only when the counter is full, and then the event is there already.
        let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
    }
}

impl AsFd for WakeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

/// Ends the sleep for the executor.
pub(crate) struct Unparker(pub(crate) Arc<WakeFd>);

impl Unpark for Unparker {
    fn unpark(&self) {
        self.0.wake();
    }
}

/// Items on their way to a shard's thread.
pub(crate) struct Mailbox<T> {
    state: Mutex<State<T>>,
    /// Set while there are items, so that the shard looks without taking the lock.
    pending: AtomicBool,
    wake: Arc<WakeFd>,
}

struct State<T> {
    items: Vec<T>,
    closed: bool,
}

impl<T> Mailbox<T> {
    pub(crate) fn new(wake: Arc<WakeFd>) -> Self {
        let state = State { items: Vec::new(), closed: false };
        Self { state: Mutex::new(state), pending: AtomicBool::new(false), wake }
    }

    /// Adds an item and wakes the shard. Gives the item back if the shard has ended.
    pub(crate) fn post(&self, item: T) -> Result<(), T> {
        let mut state = self.lock();
        if state.closed {
            return Err(item);
        }
        state.items.push(item);
        drop(state);
        if !self.pending.swap(true, Ordering::SeqCst) {
            self.wake.wake();
        }
        Ok(())
    }

    /// Whether there are items.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::SeqCst)
    }

    /// Takes all items.
    pub(crate) fn take(&self) -> Vec<T> {
        // Cleared first: an item that comes after the taking sets it again.
        if !self.pending.swap(false, Ordering::SeqCst) {
            return Vec::new();
        }
        std::mem::take(&mut self.lock().items)
    }

    /// Refuses all further items and takes those that are there.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut state = self.lock();
        state.closed = true;
        std::mem::take(&mut state.items)
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A poisoned lock means a panic between two lines that leave the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
