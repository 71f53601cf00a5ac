//! The cluster's state in etcd, for clusters whose nodes are processes or machines of their own.
//!
//! etcd's client works on tokio. A thread of its own runs it; every other thread talks to it through an
//! [`EtcdState`], whose futures can be awaited on any executor.
//!
//! Invariants:
//! - A change is sent once. It is tried at another member only after a failure that is sure to have changed
//!   nothing; after any other failure its sender is told that nobody knows.
//! - What only reads, or does the same when it is done twice, is tried at one member after the other.
//! - Keys are kept below a namespace, so that several clusters, and others, can share an etcd.

mod convert;
mod failure;
pub mod member;
mod members;
mod membership;
#[cfg(test)]
mod testing;
mod watch;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvError};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_channel::oneshot;
use spandrel_cluster::store::{
    LeaseId, Outcome, Revision, Selection, Snapshot, StateStore, StoreError, StoreErrorKind, Transaction,
};
use spandrel_shared::Error;
use tokio::runtime::{Builder, Handle};

use crate::convert::Namespace;
use crate::members::{Member, Members};
pub use crate::membership::{MemberDescription, client_endpoints};
pub use crate::watch::EtcdWatch;

/// Where something listens without encryption, as etcd and its clients write it.
pub fn url(address: &SocketAddr) -> String {
    format!("http://{address}")
}

/// Where something listens with TLS, as etcd and its clients write it.
pub fn secured_url(address: &SocketAddr) -> String {
    format!("https://{address}")
}

/// Where the state is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdOptions {
    /// Where each member answers clients, like `http://127.0.0.1:2379` or `https://etcd.example:2379`. They are tried in turn, the first one
    /// first.
    pub endpoints: Vec<String>,
    /// What each key begins with, in etcd alone.
    pub namespace: String,
    /// With what this side proves who it is, where the endpoints are `https://`.
    pub identity: Option<EtcdIdentity>,
}

/// With what a client of etcd proves who it is, and knows its members. All in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdIdentity {
    /// The certificate of the authority that has signed for the members.
    pub authority_pem: String,
    /// This side's own certificate.
    pub certificate_pem: String,
    /// Its private key.
    pub key_pem: String,
    /// A name that every member's certificate carries; if absent, each member's carries the name or address by which
    /// it is reached.
    pub member_name: Option<String>,
}

/// Keys are in no log.
impl std::fmt::Debug for EtcdIdentity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "EtcdIdentity({:?})", self.member_name)
    }
}

/// The state in etcd. Cheap to clone and to send to other threads. Dropping the last clone ends the connections.
#[derive(Clone)]
pub struct EtcdState {
    connection: Arc<Connection>,
    namespace: Namespace,
}

struct Connection {
    runtime: Handle,
    members: Arc<Members>,
    /// Ends the thread by being dropped. `None` only then.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread says when it is ready.
type Ready = Result<(Handle, Members), Error>;

impl EtcdState {
    /// The state that the members at `options.endpoints` hold. They need not be there yet: requests fail until one
    /// is.
    ///
    /// Errors: `STATE_ADDRESS_INVALID`, `STATE_IDENTITY_INVALID`, `STATE_THREAD_FAILED`.
    pub fn connect(options: &EtcdOptions) -> Result<Self, Error> {
        let (stop, stopped) = oneshot::channel();
        let (ready, started) = mpsc::channel();
        let described = options.clone();
        let thread = std::thread::Builder::new().name("spandrel-etcd".to_owned());
        let thread = thread.spawn(move || run(&described, &ready, stopped)).map_err(thread_failed)?;
        let ended = |error: RecvError| Err(thread_failed(std::io::Error::other(error)));
        let (runtime, members) = started.recv().unwrap_or_else(ended)?;
        let connection =
            Connection { runtime, members: Arc::new(members), stop: Some(stop), thread: Some(thread) };
        let namespace = Namespace::new(&options.namespace);
        Ok(Self { connection: Arc::new(connection), namespace })
    }

    /// The state in another namespace of the same etcd, over the same connections.
    pub fn within(&self, namespace: &str) -> Self {
        Self { connection: Arc::clone(&self.connection), namespace: Namespace::new(namespace) }
    }

    /// From now on the members are those at `endpoints`. What was begun with others goes on.
    ///
    /// Error: `STATE_ADDRESS_INVALID`; nothing has changed then.
    pub async fn set_endpoints(&self, endpoints: &[String]) -> Result<(), Error> {
        let (members, endpoints) = (self.members(), endpoints.to_vec());
        let (sender, receiver) = oneshot::channel();
        self.connection.runtime.spawn(async move {
            // Nobody may be waiting any more, which harms nothing.
            drop(sender.send(members.set(&endpoints).await));
        });
        receiver.await.unwrap_or(Ok(()))
    }

    /// Does something on the thread, and waits for what it gives. `silence` is what no answer means.
    async fn call<T: Send + 'static>(
        &self,
        silence: StoreErrorKind,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = oneshot::channel();
        self.connection.runtime.spawn(async move {
            // Nobody may be waiting any more, which harms nothing.
            drop(sender.send(work.await));
        });
        receiver.await.unwrap_or_else(|_| Err(StoreError::new(silence, "the request was given up")))
    }

    /// The place of the member that is asked at present.
    #[cfg(test)]
    pub(crate) fn asked(&self) -> usize {
        self.connection.members.asked()
    }

    /// Where the member answers that is asked at present.
    #[cfg(test)]
    pub(crate) fn asked_endpoint(&self) -> String {
        self.connection.members.asked_endpoint()
    }

    fn members(&self) -> Arc<Members> {
        Arc::clone(&self.connection.members)
    }
}

/// The thread on which etcd's client runs, until `stopped`.
fn run(options: &EtcdOptions, ready: &mpsc::Sender<Ready>, stopped: oneshot::Receiver<()>) {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(thread_failed(error)));
            return;
        }
    };
    let members = runtime.block_on(Members::at(&options.endpoints, options.identity.as_ref()));
    let is_ready = members.is_ok();
    // Whoever began this waits for it.
    let _ = ready.send(members.map(|members| (runtime.handle().clone(), members)));
    if is_ready {
        let _ = runtime.block_on(stopped);
    }
    // A name that is being resolved is waited for by nobody.
    runtime.shutdown_background();
}

fn thread_failed(error: std::io::Error) -> Error {
    Error::new(
        "STATE_THREAD_FAILED",
        "the thread for the cluster's state cannot be started",
        error.to_string(),
        "raise the limits of threads and open files for this user, or end other processes",
    )
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the cluster's state had panicked");
        }
    }
}

impl StateStore for EtcdState {
    type Watch = EtcdWatch;

    async fn read(&self, selections: &[Selection]) -> Result<Snapshot, StoreError> {
        let (members, namespace) = (self.members(), self.namespace.clone());
        let selections = selections.to_vec();
        let work = async move {
            let reads = namespace.reads(&selections);
            let response = members.repeat(StoreErrorKind::Unavailable, |member| {
                let reads = reads.clone();
                async move { member.kv().txn(reads).await }
            });
            namespace
                .snapshot(&selections, &response.await?)
                .map_err(|nonsense| nonsense.error(StoreErrorKind::Unavailable))
        };
        self.call(StoreErrorKind::Unavailable, work).await
    }

    async fn transact(&self, transaction: Transaction) -> Result<Outcome, StoreError> {
        transaction.validate()?;
        let (members, namespace) = (self.members(), self.namespace.clone());
        let work = async move {
            let request = namespace.transaction(&transaction);
            let response = members.change(|member| {
                let request = request.clone();
                async move { member.kv().txn(request).await }
            });
            let outcome = namespace.outcome(&transaction, &response.await?);
            outcome.map_err(|nonsense| nonsense.error(StoreErrorKind::Unknown))
        };
        self.call(StoreErrorKind::Unknown, work).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<EtcdWatch, StoreError> {
        let (members, namespace) = (self.members(), self.namespace.clone());
        let prefix = prefix.to_owned();
        let work = async move { watch::begin(members, namespace, &prefix, from).await };
        let messages = self.call(StoreErrorKind::Unavailable, work).await?;
        Ok(EtcdWatch::new(Arc::clone(&self.connection), messages))
    }

    async fn grant_lease(&self, time_to_live: Duration) -> Result<LeaseId, StoreError> {
        let (members, seconds) = (self.members(), convert::lease_seconds(time_to_live));
        let work = async move {
            let grant = |member: Member| async move { member.lease().grant(seconds, None).await };
            let lease = convert::lease_id(members.change(grant).await?.id());
            lease.map_err(|nonsense| nonsense.error(StoreErrorKind::Unknown))
        };
        self.call(StoreErrorKind::Unknown, work).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        let (members, id) = (self.members(), convert::lease_number(lease));
        let work = async move {
            let keep = |member: Member| async move { member.lease().keep_alive(id).await };
            members.repeat(StoreErrorKind::Unknown, keep).await.map(drop)
        };
        self.call(StoreErrorKind::Unknown, work).await
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), StoreError> {
        let (members, id) = (self.members(), convert::lease_number(lease));
        let work = async move {
            let revoke = |member: Member| async move { member.lease().revoke(id).await };
            members.change(revoke).await.map(drop)
        };
        self.call(StoreErrorKind::Unknown, work).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        let (members, number) = (self.members(), convert::revision_number(revision));
        let work = async move {
            let compact = |member: Member| async move {
                failure::done_before(member.kv().compact(number, None).await, failure::COMPACTED)
            };
            members.repeat(StoreErrorKind::Unknown, compact).await
        };
        self.call(StoreErrorKind::Unknown, work).await
    }
}

#[cfg(test)]
#[path = "lib_tests.rs"]
mod tests;
