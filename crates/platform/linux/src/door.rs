//! How threads of this process reach each other's unix sockets without the kernel: who listens on one has a door beside it, under
//! the same path, where whoever connects from this process leaves one end of a [`MemoryStream`].
//!
//! A door is open as long as its listener lives. Other processes, and those that find the queue before it full, take the socket.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

use crate::memory_stream::MemoryStream;

/// Streams that wait at a door until they are accepted.
const WAITING_MAX: usize = 1024;

/// The doors of this process, by path.
static DOORS: Mutex<BTreeMap<String, Arc<Queue>>> = Mutex::new(BTreeMap::new());

/// A listener's door. It closes when dropped; whoever waits before it then is let down.
pub(crate) struct Door {
    path: String,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    streams: Mutex<VecDeque<MemoryStream>>,
    listener: AtomicWaker,
}

impl Door {
    /// Opens the door of whoever listens on the socket at `path`.
    pub(crate) fn open(path: &str) -> Self {
        let queue = Arc::<Queue>::default();
        locked(&DOORS).insert(path.to_owned(), Arc::clone(&queue));
        Self { path: path.to_owned(), queue }
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
        // Another listener may have taken the path over, once this one's socket was removed.
        if doors.get(&self.path).is_some_and(|queue| Arc::ptr_eq(queue, &self.queue)) {
            doors.remove(&self.path);
        }
    }
}

/// A stream to whoever of this process listens on the socket at `path`. None if nobody does, or too many wait.
pub(crate) fn knock(path: &str) -> Option<MemoryStream> {
    let queue = locked(&DOORS).get(path).cloned()?;
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
