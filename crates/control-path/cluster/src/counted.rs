//! Counts what is asked of a state: around any make of it, and the same for whoever asks.
//!
//! The promise that it makes visible: between changes of membership nobody who reads or writes a volume asks the
//! state anything. So reads and transactions stand still however much is read and written, and only leases are kept
//! alive, which goes by time.
//!
//! A request counts when it is sent, whatever becomes of it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::store::{LeaseId, Outcome, Revision, Selection, Snapshot, StateStore, StoreError, Transaction};

/// What was asked of the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateRequests {
    /// Reads, of keys or of all keys below a prefix.
    pub reads: u64,
    /// Transactions.
    pub transactions: u64,
    /// Leases that were granted, renewed or ended.
    pub lease_renewals: u64,
    /// Watches that were begun. What a watch tells is no request.
    pub watches: u64,
    /// The most bytes of keys and values in one transaction.
    pub transaction_bytes_max: u64,
    /// The most conditions, or the most changes, in one transaction.
    pub transaction_operations_max: u64,
}

impl StateRequests {
    /// What was asked by both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            transactions: self.transactions + other.transactions,
            lease_renewals: self.lease_renewals + other.lease_renewals,
            watches: self.watches + other.watches,
            transaction_bytes_max: self.transaction_bytes_max.max(other.transaction_bytes_max),
            transaction_operations_max: self.transaction_operations_max.max(other.transaction_operations_max),
        }
    }
}

/// A state whose requests are counted. Cheap to clone; all clones count together.
#[derive(Clone)]
pub struct CountedStore<S: StateStore> {
    store: S,
    requests: Rc<Cell<StateRequests>>,
}

impl<S: StateStore> CountedStore<S> {
    /// Counts from here on what is asked of `store` through this.
    pub fn new(store: S) -> Self {
        Self { store, requests: Rc::default() }
    }

    /// What was asked so far.
    pub fn requests(&self) -> StateRequests {
        self.requests.get()
    }

    fn count(&self, add: impl FnOnce(&mut StateRequests)) {
        let mut requests = self.requests.get();
        add(&mut requests);
        self.requests.set(requests);
    }
}

impl<S: StateStore> StateStore for CountedStore<S> {
    type Watch = S::Watch;

    async fn read(&self, selections: &[Selection]) -> Result<Snapshot, StoreError> {
        self.count(|requests| requests.reads += 1);
        self.store.read(selections).await
    }

    async fn transact(&self, transaction: Transaction) -> Result<Outcome, StoreError> {
        let bytes = transaction.bytes() as u64;
        let operations = transaction.compares.len().max(transaction.operations.len()) as u64;
        self.count(|requests| {
            requests.transactions += 1;
            requests.transaction_bytes_max = requests.transaction_bytes_max.max(bytes);
            requests.transaction_operations_max = requests.transaction_operations_max.max(operations);
        });
        self.store.transact(transaction).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<S::Watch, StoreError> {
        self.count(|requests| requests.watches += 1);
        self.store.watch(prefix, from).await
    }

    async fn grant_lease(&self, time_to_live: Duration) -> Result<LeaseId, StoreError> {
        self.count(|requests| requests.lease_renewals += 1);
        self.store.grant_lease(time_to_live).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.count(|requests| requests.lease_renewals += 1);
        self.store.keep_alive(lease).await
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.count(|requests| requests.lease_renewals += 1);
        self.store.revoke_lease(lease).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        // Like a transaction it changes what the state keeps, and the state agrees on it.
        self.count(|requests| requests.transactions += 1);
        self.store.compact(revision).await
    }
}

#[cfg(test)]
#[path = "counted_tests.rs"]
mod tests;
