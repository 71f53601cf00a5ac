//! How threads of this process reach each other without the kernel: a listener's socket has a door beside it, under the same
//! address, where whoever connects from this process leaves one end of a [`MemoryStream`].
//!
//! A door is open as long as its listener lives. Other processes, and those that find the queue before it full, take the socket.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use spandrel_platform::Address;

use crate::memory_stream::MemoryStream;

/// Streams that wait at a door until they are accepted.
const WAITING_MAX: usize = 1024;

/// The doors of this process.
static DOORS: Mutex<BTreeMap<Address, Arc<Queue>>> = Mutex::new(BTreeMap::new());

/// A listener's door. It closes when dropped; whoever waits before it then is let down.
pub(crate) struct Door {
    address: Address,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    streams: Mutex<VecDeque<MemoryStream>>,
    listener: AtomicWaker,
}

impl Door {
    /// Opens the door of whoever listens at `address`.
    pub(crate) fn open(address: &Address) -> Self {
        let queue = Arc::<Queue>::default();
        locked(&DOORS).insert(address.clone(), Arc::clone(&queue));
        Self { address: address.clone(), queue }
    }

    /// The next stream that waits; wakes `context` when one comes if there is none.
    pub(crate) fn poll_next(&self, context: &Context<'_>) -> Poll<MemoryStream> {
        self.queue.listener.register(context.waker());
        locked(&self.queue.streams).pop_front().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let mut doors = locked(&DOORS);
        // Another listener may have taken the address over, once this one's socket was gone.
        if doors.get(&self.address).is_some_and(|queue| Arc::ptr_eq(queue, &self.queue)) {
            doors.remove(&self.address);
        }
    }
}

/// A stream to whoever of this process has a door at `address`. None if nobody has, or too many wait.
pub(crate) fn knock(address: &Address) -> Option<MemoryStream> {
    let queue = locked(&DOORS).get(address).cloned()?;
    let mut streams = locked(&queue.streams);
    if streams.len() >= WAITING_MAX {
        return None;
    }
    let (here, there) = MemoryStream::pair();
    streams.push_back(there);
    drop(streams);
    queue.listener.wake();
    Some(here)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned lock means a panic between two lines that leave the state whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "door_tests.rs"]
mod tests;
