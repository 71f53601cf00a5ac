//! A descriptor whose events a task of the shard awaits, until it is dropped: a listener, a connect in progress, an eventfd of somebody
//! else's.
//!
//! An eventfd is never read: each write to it is an event of its own, and what it counts is of no interest.

use std::rc::{Rc, Weak};

use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::reactor::{EventSource, Readiness};
use crate::shard::Shard;

/// A descriptor that is watched.
pub struct Watched {
    shard: Rc<Shard>,
    /// None only once it was taken out.
    descriptor: Option<OwnedFd>,
    readiness: Rc<Readiness>,
    token: u64,
}

impl Watched {
    pub(crate) fn new(shard: &Rc<Shard>, descriptor: OwnedFd, interest: EventFlags) -> Result<Self, Errno> {
        let readiness = Rc::new(Readiness::default());
        let source = Rc::downgrade(&readiness) as Weak<dyn EventSource>;
        let token = shard.reactor.add(&descriptor, source, interest)?;
        Ok(Self { shard: Rc::clone(shard), descriptor: Some(descriptor), readiness, token })
    }

    /// Completes when it was written to since the last time; at first also if that was before it was watched. For an eventfd.
    pub async fn written(&self) {
        self.ready().await;
        self.clear();
    }

    /// Completes when it is ready, and has not been cleared since.
    pub(crate) async fn ready(&self) {
        self.readiness.ready().await;
    }

    /// Forgets the event: the descriptor has nothing more to give.
    pub(crate) fn clear(&self) {
        self.readiness.clear();
    }

    pub(crate) fn descriptor(&self) -> &OwnedFd {
        self.descriptor.as_ref().expect("it stays until into_descriptor takes all of this")
    }

    /// Ends the watch, and goes on with the descriptor.
    pub(crate) fn into_descriptor(mut self) -> OwnedFd {
        let descriptor = self.descriptor.take().expect("it is taken out once, with all of this");
        self.shard.reactor.remove(&descriptor, self.token);
        descriptor
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(descriptor) = &self.descriptor {
            self.shard.reactor.remove(descriptor, self.token);
        }
    }
}

#[cfg(test)]
#[path = "watched_tests.rs"]
mod tests;
