//! The thread that holds the state: takes requests, commits what they change, answers.
//!
//! Requests that wait together are served together and share one commit, so that many shards that
//! ask at the same time pay for one flush.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use futures_channel::oneshot;
use spandrel_cluster::memory::{Memory, Pending};
use spandrel_cluster::store::{
    LeaseId, Outcome, Revision, Selection, Snapshot, StoreError, StoreErrorKind, Transaction,
};
use spandrel_platform::Instant;
use spandrel_shared::Error;

use crate::file::{Changes, FileSource, StateFile};

/// Requests that share one commit.
const BATCH_MAX: usize = 256;

/// Events that are remembered for watches.
const HISTORY_EVENTS_MAX: usize = 10_000;

/// How long a file that cannot be opened again is left alone.
const REOPEN_INTERVAL: Duration = Duration::from_secs(1);

/// Where an answer goes. Nobody may be waiting for it any more, which harms nothing.
pub type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// What a handle asks of the thread.
pub enum Request {
    Read { selections: Vec<Selection>, answer: Answer<Snapshot> },
    Transact { transaction: Transaction, answer: Answer<Outcome> },
    Events { prefix: String, from: Revision, answer: Answer<Pending> },
    GrantLease { time_to_live: Duration, answer: Answer<LeaseId> },
    KeepAlive { lease: LeaseId, answer: Answer<()> },
    RevokeLease { lease: LeaseId, answer: Answer<()> },
    Compact { revision: Revision, answer: Answer<()> },
}

/// A request's answer, held back until the commit.
enum Reply {
    Snapshot(Answer<Snapshot>, Snapshot),
    Outcome(Answer<Outcome>, Result<Outcome, StoreError>),
    Lease(Answer<LeaseId>, LeaseId),
    Done(Answer<()>, Result<(), StoreError>),
    Compact(Answer<()>, Revision),
}

/// A watch that waits for a change.
struct Parked {
    prefix: String,
    from: Revision,
    answer: Answer<Pending>,
}

/// The thread's state.
pub struct Worker {
    source: FileSource,
    /// `None` from a commit that failed until the file is read anew.
    file: Option<StateFile>,
    memory: Memory,
    requests: Receiver<Request>,
    parked: Vec<Parked>,
    started: std::time::Instant,
}

impl Worker {
    /// Opens the file.
    pub fn open(source: FileSource, requests: Receiver<Request>) -> Result<Self, Error> {
        let started = std::time::Instant::now();
        let (file, memory) = source.open(Instant::from_nanoseconds(0))?;
        Ok(Self { source, file: Some(file), memory, requests, parked: Vec::new(), started })
    }

    /// Serves requests until no handle is left.
    pub fn run(mut self) {
        while let Some(batch) = self.next_batch() {
            self.parked.retain(|parked| !parked.answer.is_canceled());
            self.serve(batch);
        }
    }

    /// The time since the thread's start, as leases count it.
    fn now(&self) -> Instant {
        Instant::from_nanoseconds(0) + self.started.elapsed()
    }

    /// The requests that wait; none when there is something else to do first. `None` at the end.
    fn next_batch(&self) -> Option<Vec<Request>> {
        let timeout = match self.memory.next_expiry() {
            _ if self.file.is_none() => Some(REOPEN_INTERVAL),
            expiry => expiry.map(|expiry| expiry.since(self.now())),
        };
        let first = match timeout {
            Some(timeout) => match self.requests.recv_timeout(timeout) {
                Ok(request) => request,
                Err(RecvTimeoutError::Timeout) => return Some(Vec::new()),
                Err(RecvTimeoutError::Disconnected) => return None,
            },
            None => self.requests.recv().ok()?,
        };
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX
            && let Ok(request) = self.requests.try_recv()
        {
            batch.push(request);
        }
        Some(batch)
    }

    fn serve(&mut self, batch: Vec<Request>) {
        if let Err(error) = self.reopen_if_needed() {
            let unavailable = StoreError::new(StoreErrorKind::Unavailable, error.to_string());
            for request in batch {
                refuse(request, &unavailable);
            }
            for parked in std::mem::take(&mut self.parked) {
                drop(parked.answer.send(Err(unavailable.clone())));
            }
            return;
        }
        let revision_before = self.memory.revision();
        let mut leases_changed = self.memory.expire_leases(self.now());
        let mut replies = Vec::with_capacity(batch.len());
        for request in batch {
            leases_changed |= matches!(request, Request::GrantLease { .. } | Request::RevokeLease { .. });
            replies.extend(self.apply(request));
        }
        let changes = Changes::since(&self.memory, revision_before, leases_changed);
        let file = self.file.as_mut().expect("it was opened above");
        if let Some(changes) = changes
            && let Err(detail) = file.commit(&changes)
        {
            tracing::error!(detail, "the cluster's state could not be committed");
            self.file = None;
            for reply in replies {
                reply.fail(&detail);
            }
            return;
        }
        for reply in replies {
            self.answer(reply);
        }
        self.memory.trim_history(HISTORY_EVENTS_MAX);
        self.wake_watches();
    }

    /// After a commit that failed: reads from the file what became of it.
    fn reopen_if_needed(&mut self) -> Result<(), Error> {
        if self.file.is_none() {
            let (file, memory) = self.source.open(self.now())?;
            (self.file, self.memory) = (Some(file), memory);
        }
        Ok(())
    }

    /// Does what a request asks, in memory. A watch's request has no reply yet.
    fn apply(&mut self, request: Request) -> Option<Reply> {
        Some(match request {
            Request::Read { selections, answer } => Reply::Snapshot(answer, self.memory.read(&selections)),
            Request::Transact { transaction, answer } => {
                Reply::Outcome(answer, self.memory.transact(&transaction))
            }
            Request::Events { prefix, from, answer } => {
                self.parked.push(Parked { prefix, from, answer });
                return None;
            }
            Request::GrantLease { time_to_live, answer } => {
                Reply::Lease(answer, self.memory.grant_lease(self.now(), time_to_live))
            }
            Request::KeepAlive { lease, answer } => {
                Reply::Done(answer, self.memory.keep_alive(self.now(), lease))
            }
            Request::RevokeLease { lease, answer } => Reply::Done(answer, self.memory.revoke_lease(lease)),
            Request::Compact { revision, answer } => Reply::Compact(answer, revision),
        })
    }

    fn answer(&mut self, reply: Reply) {
        // Nobody waits for an answer whose receiver is gone.
        match reply {
            Reply::Snapshot(answer, snapshot) => drop(answer.send(Ok(snapshot))),
            Reply::Outcome(answer, outcome) => drop(answer.send(outcome)),
            Reply::Lease(answer, lease) => drop(answer.send(Ok(lease))),
            Reply::Done(answer, result) => drop(answer.send(result)),
            Reply::Compact(answer, revision) => {
                self.memory.compact(revision);
                drop(answer.send(Ok(())));
            }
        }
    }

    /// Answers the watches that have something to tell.
    fn wake_watches(&mut self) {
        for mut parked in std::mem::take(&mut self.parked) {
            match self.memory.events(&parked.prefix, parked.from) {
                Ok(pending) if pending.events.is_empty() => {
                    // So that a quiet prefix does not fall behind what is compacted.
                    parked.from = pending.next;
                    self.parked.push(parked);
                }
                result => drop(parked.answer.send(result)),
            }
        }
    }
}

impl Reply {
    /// Answers that the commit failed: a change may be there or not.
    fn fail(self, detail: &str) {
        let error = |kind| StoreError::new(kind, detail);
        match self {
            Reply::Snapshot(answer, _) => drop(answer.send(Err(error(StoreErrorKind::Unavailable)))),
            Reply::Outcome(answer, _) => drop(answer.send(Err(error(StoreErrorKind::Unknown)))),
            Reply::Lease(answer, _) => drop(answer.send(Err(error(StoreErrorKind::Unknown)))),
            Reply::Done(answer, _) | Reply::Compact(answer, _) => {
                drop(answer.send(Err(error(StoreErrorKind::Unknown))));
            }
        }
    }
}

/// Answers a request without having looked at it.
fn refuse(request: Request, error: &StoreError) {
    match request {
        Request::Read { answer, .. } => drop(answer.send(Err(error.clone()))),
        Request::Transact { answer, .. } => drop(answer.send(Err(error.clone()))),
        Request::Events { answer, .. } => drop(answer.send(Err(error.clone()))),
        Request::GrantLease { answer, .. } => drop(answer.send(Err(error.clone()))),
        Request::KeepAlive { answer, .. }
        | Request::RevokeLease { answer, .. }
        | Request::Compact { answer, .. } => drop(answer.send(Err(error.clone()))),
    }
}
