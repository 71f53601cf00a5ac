//! The cluster's state in a file on this machine, for clusters whose nodes are all one process.
//!
//! The state itself is a [`Memory`](spandrel_cluster::memory::Memory); this crate makes it
//! durable in a redb database. One thread of its own holds both, since committing blocks; every
//! other thread talks to it through a [`RedbState`], whose futures can be awaited on any executor.
//!
//! Invariants:
//! - A transaction is answered, and shown to reads and watches, only when it is durable.
//! - What a file holds is checked as a whole when it is opened. A file that is not a state, that
//!   is damaged or that a newer version wrote is refused and left as it is.
//! - A file is open in one process at a time.
//! - A commit that fails leaves it open whether its changes are there. Their senders are told so,
//!   and the file is read anew before anything else is answered.

mod file;
mod worker;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_channel::oneshot;
use spandrel_cluster::store::{
    Event, LeaseId, Outcome, Revision, Selection, Snapshot, StateStore, StateWatch, StoreError,
    StoreErrorKind, Transaction,
};
use spandrel_shared::Error;

use crate::file::FileSource;
use crate::worker::{Answer, Request, Worker};

/// The state in a file. Cheap to clone and to send to other threads; all clones are the same
/// state. Dropping the last one closes the file.
#[derive(Clone)]
pub struct RedbState {
    connection: Arc<Connection>,
}

struct Connection {
    /// `None` only while it is being dropped.
    requests: Option<mpsc::Sender<Request>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl RedbState {
    /// Opens the state in the file at `path`, or begins a new one if there is no such file or
    /// nothing in it.
    ///
    /// Blocks while the file is read. Errors: `STATE_FILE_IN_USE`, `STATE_FILE_FOREIGN`,
    /// `STATE_FILE_DAMAGED`, `STATE_FILE_TOO_NEW`, `STATE_FILE_UNAVAILABLE`.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::start(FileSource::at(path))
    }

    fn start(source: FileSource) -> Result<Self, Error> {
        let (requests, receiver) = mpsc::channel();
        let worker = Worker::open(source, receiver)?;
        let thread = std::thread::Builder::new().name("spandrel-state".to_owned());
        let thread = thread.spawn(move || worker.run()).map_err(|error| {
            Error::new(
                "STATE_FILE_UNAVAILABLE",
                "the thread for the cluster's state cannot be started",
                error.to_string(),
                "raise the limit of threads for this user, or end other processes",
            )
        })?;
        let connection = Connection { requests: Some(requests), thread: Mutex::new(Some(thread)) };
        Ok(Self { connection: Arc::new(connection) })
    }

    /// Sends a request and waits for its answer. `silence` is what no answer means.
    async fn call<T>(
        &self,
        silence: StoreErrorKind,
        request: impl FnOnce(Answer<T>) -> Request,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = oneshot::channel();
        let requests =
            self.connection.requests.as_ref().expect("it is there until the last handle is dropped");
        if requests.send(request(sender)).is_err() {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "the state's thread has ended"));
        }
        receiver
            .await
            .unwrap_or_else(|_| Err(StoreError::new(silence, "the state's thread ended before it answered")))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The thread ends when there is nobody left who could ask. Waiting for it means that the
        // file is closed when the last handle is gone.
        self.requests = None;
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread of the cluster's state had panicked");
        }
    }
}

impl StateStore for RedbState {
    type Watch = RedbWatch;

    async fn read(&self, selections: &[Selection]) -> Result<Snapshot, StoreError> {
        let selections = selections.to_vec();
        self.call(StoreErrorKind::Unavailable, |answer| Request::Read { selections, answer }).await
    }

    async fn transact(&self, transaction: Transaction) -> Result<Outcome, StoreError> {
        transaction.validate()?;
        self.call(StoreErrorKind::Unknown, |answer| Request::Transact { transaction, answer }).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<RedbWatch, StoreError> {
        Ok(RedbWatch { state: self.clone(), prefix: prefix.to_owned(), next: from })
    }

    async fn grant_lease(&self, time_to_live: Duration) -> Result<LeaseId, StoreError> {
        self.call(StoreErrorKind::Unknown, |answer| Request::GrantLease { time_to_live, answer }).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.call(StoreErrorKind::Unknown, |answer| Request::KeepAlive { lease, answer }).await
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.call(StoreErrorKind::Unknown, |answer| Request::RevokeLease { lease, answer }).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.call(StoreErrorKind::Unknown, |answer| Request::Compact { revision, answer }).await
    }
}

/// A watch on the state. Keeps the file open.
pub struct RedbWatch {
    state: RedbState,
    prefix: String,
    /// Moves on only when events are handed out, so that a dropped `next` loses none.
    next: Revision,
}

impl StateWatch for RedbWatch {
    async fn next(&mut self) -> Result<Vec<Event>, StoreError> {
        let (prefix, from) = (self.prefix.clone(), self.next);
        let request = |answer| Request::Events { prefix, from, answer };
        let pending = self.state.call(StoreErrorKind::Unavailable, request).await?;
        self.next = pending.next;
        Ok(pending.events)
    }
}

#[cfg(test)]
#[path = "lib_tests.rs"]
mod tests;
