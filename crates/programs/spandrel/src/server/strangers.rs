//! Connections whose other side has proven nothing yet: so many at a time, each for so long.
//!
//! Whoever can reach a server's port can open connections. So a connection has a place until its other side has shown
//! who it is, and a time; when all places are taken, the oldest one is closed, so that somebody who means well gets
//! through a crowd that waits for nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::Sleep;

/// The places of connections that have proven nothing.
pub struct Places {
    count_max: usize,
    time_max: Duration,
    inner: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    /// In the order in which they were taken. Dropping one closes the connection.
    taken: BTreeMap<u64, oneshot::Sender<()>>,
    /// Whether it was said that there are too many, since all places were free last.
    told: bool,
}

/// One of the places. It is free again when this is dropped, or something was proven.
pub struct Place {
    places: Arc<Places>,
    number: u64,
    closing: oneshot::Receiver<()>,
    deadline: Pin<Box<Sleep>>,
    proof: Proof,
}

/// Whether the other side of a connection has proven who it is.
#[derive(Clone, Default)]
pub struct Proof(Arc<AtomicBool>);

impl Proof {
    /// It has.
    pub fn give(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_given(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Proof({})", self.is_given())
    }
}

impl Places {
    /// So many places, each for so long.
    pub fn new(count_max: usize, time_max: Duration) -> Arc<Self> {
        Arc::new(Self { count_max, time_max, inner: Mutex::default() })
    }

    fn locked(&self) -> MutexGuard<'_, Taken> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place. If there is none, the connection that has had its place for the longest time is closed.
    pub fn take(self: &Arc<Self>) -> Place {
        let (close, closing) = oneshot::channel();
        let mut inner = self.locked();
        let number = inner.next;
        inner.next += 1;
        inner.taken.insert(number, close);
        if inner.taken.len() > self.count_max {
            inner.taken.pop_first();
            if !std::mem::replace(&mut inner.told, true) {
                tracing::warn!(
                    "more than {} connections to the admin API show no proof of who they are: the oldest are closed",
                    self.count_max
                );
            }
        }
        drop(inner);
        let deadline = Box::pin(tokio::time::sleep(self.time_max));
        Place { places: Arc::clone(self), number, closing, deadline, proof: Proof::default() }
    }

    fn give_back(&self, number: u64) {
        let mut inner = self.locked();
        inner.taken.remove(&number);
        if inner.taken.is_empty() {
            inner.told = false;
        }
    }

    #[cfg(test)]
    fn taken(&self) -> usize {
        self.locked().taken.len()
    }
}

impl Place {
    /// What the other side's proof is told to.
    pub fn proof(&self) -> Proof {
        self.proof.clone()
    }

    /// Whether the connection must end now. Asked again when it might.
    pub fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let is_closed = Pin::new(&mut self.closing).poll(context).is_ready();
        if is_closed || self.deadline.as_mut().poll(context).is_ready() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Waits until the connection must end.
    pub async fn over(&mut self) {
        std::future::poll_fn(|context| self.poll_over(context)).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.give_back(self.number);
    }
}

/// A connection that ends with its place, unless something is proven before.
pub struct Guarded<T> {
    stream: T,
    place: Option<Place>,
}

impl<T> Guarded<T> {
    /// `stream`, with a place if its other side has proven nothing yet.
    pub fn new(stream: T, place: Option<Place>) -> Self {
        Self { stream, place }
    }

    fn check(&mut self, context: &mut Context<'_>) -> Result<()> {
        if self.place.as_ref().is_some_and(|place| place.proof.is_given()) {
            self.place = None;
        }
        match self.place.as_mut().map(|place| place.poll_over(context)) {
            Some(Poll::Ready(())) => Err(Error::new(ErrorKind::TimedOut, "nothing was proven in time")),
            _ => Ok(()),
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Guarded<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Guarded<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
#[path = "strangers_tests.rs"]
mod tests;
