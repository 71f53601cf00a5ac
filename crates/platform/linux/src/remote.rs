//! The door through which other threads reach a shard.

use std::sync::Arc;

use crate::LinuxPlatform;
use crate::mailbox::Mailbox;

/// What another thread asks a shard to do.
pub(crate) type RemoteTask = Box<dyn FnOnce(LinuxPlatform) + Send>;

/// Runs closures on a shard's thread from any other thread. Cheap to clone.
#[derive(Clone)]
pub struct RemoteHandle {
    mailbox: Arc<Mailbox<RemoteTask>>,
}

impl RemoteHandle {
    pub(crate) fn new(mailbox: Arc<Mailbox<RemoteTask>>) -> Self {
        Self { mailbox }
    }

    /// Runs `task` on the shard's thread at its next turn, in the order of these calls, and wakes
    /// the shard if it sleeps. Returns false, and drops `task` here, if the runtime has ended. A
    /// task that was taken in may still be dropped without a run if the runtime ends meanwhile, so
    /// whoever waits for an answer should notice that its sending end is gone.
    pub fn spawn(&self, task: Box<dyn FnOnce(LinuxPlatform) + Send>) -> bool {
        self.mailbox.post(task).is_ok()
    }
}
