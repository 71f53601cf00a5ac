//! The cluster's state as a node of this program has it: in a file where all nodes live in one process, in etcd
//! where they do not.

use std::time::Duration;

use spandrel_cluster::store::{
    Event, LeaseId, Outcome, Revision, Selection, Snapshot, StateStore, StateWatch, StoreError, Transaction,
};
use spandrel_state_etcd::{EtcdState, EtcdWatch};
use spandrel_state_redb::{RedbState, RedbWatch};

/// Either make of the state. Cheap to clone and to send to other threads.
#[derive(Clone)]
pub enum NodeState {
    /// In a file.
    File(RedbState),
    /// In etcd.
    Etcd(EtcdState),
}

/// A watch on either.
pub enum NodeStateWatch {
    /// On a file.
    File(RedbWatch),
    /// On etcd.
    Etcd(EtcdWatch),
}

impl StateWatch for NodeStateWatch {
    async fn next(&mut self) -> Result<Vec<Event>, StoreError> {
        match self {
            Self::File(watch) => watch.next().await,
            Self::Etcd(watch) => watch.next().await,
        }
    }
}

impl StateStore for NodeState {
    type Watch = NodeStateWatch;

    async fn read(&self, selections: &[Selection]) -> Result<Snapshot, StoreError> {
        match self {
            Self::File(state) => state.read(selections).await,
            Self::Etcd(state) => state.read(selections).await,
        }
    }

    async fn transact(&self, transaction: Transaction) -> Result<Outcome, StoreError> {
        match self {
            Self::File(state) => state.transact(transaction).await,
            Self::Etcd(state) => state.transact(transaction).await,
        }
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<NodeStateWatch, StoreError> {
        match self {
            Self::File(state) => state.watch(prefix, from).await.map(NodeStateWatch::File),
            Self::Etcd(state) => state.watch(prefix, from).await.map(NodeStateWatch::Etcd),
        }
    }

    async fn grant_lease(&self, time_to_live: Duration) -> Result<LeaseId, StoreError> {
        match self {
            Self::File(state) => state.grant_lease(time_to_live).await,
            Self::Etcd(state) => state.grant_lease(time_to_live).await,
        }
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        match self {
            Self::File(state) => state.keep_alive(lease).await,
            Self::Etcd(state) => state.keep_alive(lease).await,
        }
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), StoreError> {
        match self {
            Self::File(state) => state.revoke_lease(lease).await,
            Self::Etcd(state) => state.revoke_lease(lease).await,
        }
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        match self {
            Self::File(state) => state.compact(revision).await,
            Self::Etcd(state) => state.compact(revision).await,
        }
    }
}
