//! An eventfd of somebody else's, by which a shard is woken.
//!
//! It is never read: each write to it is an event of its own, and what it counts is of no interest.

use std::rc::{Rc, Weak};

use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;

use crate::reactor::{EventSource, Readiness};
use crate::shard::Shard;

/// An eventfd that is watched, until this is dropped.
pub struct Watched {
    shard: Rc<Shard>,
    eventfd: OwnedFd,
    readiness: Rc<Readiness>,
    token: u64,
}

impl Watched {
    pub(crate) fn new(shard: &Rc<Shard>, eventfd: OwnedFd) -> std::io::Result<Self> {
        let readiness = Rc::new(Readiness::default());
        let source = Rc::downgrade(&readiness) as Weak<dyn EventSource>;
        let token = shard.reactor.add(&eventfd, source, EventFlags::IN)?;
        Ok(Self { shard: Rc::clone(shard), eventfd, readiness, token })
    }

    /// Completes when it was written to since the last time; at first also if that was before it was watched.
    pub async fn written(&self) {
        self.readiness.ready().await;
        self.readiness.clear();
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.shard.reactor.remove(&self.eventfd, self.token);
    }
}

#[cfg(test)]
#[path = "watched_tests.rs"]
mod tests;
