//! The way of connections from one server to another, where each thread of a process has a server of its own.
//!
//! All connections to one volume are served by one of these servers: they share what the volume keeps for its clients, and with
//! that its promise that a change answered on one of them is seen on all. A client connects to any server, and says in the course
//! of the negotiation which volume it wants. The server that has this volume's clients goes on from there: what the client has
//! sent and nobody has answered is carried along, and the client notices nothing.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_channel::mpsc;
use futures_util::StreamExt as _;

use super::negotiation::Progress;

/// A server's end of the ways between all servers of a process. `D` is a connection that is on its way.
pub struct Exchange<D> {
    number: usize,
    /// To each server, by its number.
    ways: Vec<Way<D>>,
    arriving: Mutex<mpsc::UnboundedReceiver<Passage<D>>>,
}

/// The way to one server.
struct Way<D> {
    sender: mpsc::UnboundedSender<Passage<D>>,
    /// Clients on it.
    waiting: Arc<AtomicUsize>,
}

impl<D> Clone for Way<D> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), waiting: Arc::clone(&self.waiting) }
    }
}

/// The most clients that wait for a server that takes none, as its thread is stuck: those that come later lose their connections.
const WAITING_MAX: usize = 256;

/// A client that changes servers.
pub(super) struct Passage<D> {
    pub(super) connection: D,
    pub(super) progress: Progress,
    /// What it has sent and nobody has answered.
    pub(super) unanswered: Vec<u8>,
}

impl<D> Exchange<D> {
    /// The ends for `count` servers, in the order of their numbers.
    pub fn among(count: usize) -> Vec<Self> {
        let way = |_| {
            let (sender, arriving) = mpsc::unbounded();
            (Way { sender, waiting: Arc::default() }, arriving)
        };
        let (ways, arriving): (Vec<_>, Vec<_>) = (0..count).map(way).unzip();
        let end = |(number, arriving)| Self { number, ways: ways.clone(), arriving: Mutex::new(arriving) };
        arriving.into_iter().enumerate().map(end).collect()
    }

    /// The end of a server that is the only one.
    pub fn alone() -> Self {
        Self::among(1).remove(0)
    }

    /// Sends a client to another server. If that one has ended, or too many wait for it, its connection is closed.
    pub(super) fn send(&self, number: usize, passage: Passage<D>) {
        let way = &self.ways[number];
        if way.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            way.waiting.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!("NBD connection closed: the thread that serves its volume takes none");
            return;
        }
        // What cannot be sent is dropped here, and with it the connection.
        let _ = way.sender.unbounded_send(passage);
    }

    /// The next client that comes from another server.
    pub(super) async fn next(&self) -> Option<Passage<D>> {
        let passage = poll_fn(|context| self.arriving().poll_next_unpin(context)).await?;
        self.ways[self.number].waiting.fetch_sub(1, Ordering::Relaxed);
        Some(passage)
    }

    /// Takes no more clients: those that are on their way, and to come, lose their connections.
    pub(super) fn close(&self) {
        let mut arriving = self.arriving();
        arriving.close();
        while arriving.try_recv().is_ok() {}
    }

    fn arriving(&self) -> MutexGuard<'_, mpsc::UnboundedReceiver<Passage<D>>> {
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
