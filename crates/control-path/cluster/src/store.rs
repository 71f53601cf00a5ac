//! Where the cluster keeps its state: a small key-value store that all nodes agree on.
//!
//! [`StateStore`] asks for no more than etcd v3 gives, so that etcd is one make of it: keys with
//! the revision of their last change, transactions that compare such revisions, watches from a
//! revision on, leases. What the store holds is small and changes rarely; no read or write of a
//! volume waits for it.
//!
//! Invariants:
//! - The store has one revision, which every transaction that changes something raises by one.
//!   All changes of a transaction carry the same revision.
//! - Reads are linearizable: they see every transaction that was answered before they began.
//! - An error of kind [`StoreErrorKind::Unknown`] to a transaction settles nothing. It may be
//!   applied already, later, or never; a read does not tell. Only a further transaction that
//!   changes what the unknown one compared makes sure that it can no longer be applied.
//! - A watch delivers every change of its prefix once and in order, and the changes of one
//!   revision together, or ends with an error.
//! - A key with a lease vanishes when the lease expires, never earlier.

use std::borrow::Borrow;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// The most comparisons, and the most changes, in one transaction.
pub const TRANSACTION_OPERATIONS_MAX: usize = 128;

/// The most bytes of keys and values in one transaction.
pub const TRANSACTION_BYTES_MAX: usize = 1 << 20;

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 512;

/// A point in the history of the store. Zero is before everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// Before every change.
    pub const ZERO: Revision = Revision(0);

    /// The revision behind this one.
    pub fn next(self) -> Revision {
        Revision(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// A key. Cheap to clone, also across threads.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// The key that `text` names.
    pub fn new(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", &*self.0)
    }
}

/// What stands at a key: bytes that the store does not look into.
pub type Value = Arc<[u8]>;

/// A lease: what keeps keys alive as long as somebody renews it. Never zero, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// A key with its value and its history in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// What stands there.
    pub value: Value,
    /// The revision that made the key, or made it anew after its last deletion.
    pub created: Revision,
    /// The revision that last changed it: what transactions compare.
    pub modified: Revision,
    /// The lease with which the key vanishes.
    pub lease: Option<LeaseId>,
}

/// What a read asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// One key.
    Key(Key),
    /// All keys that begin with this text.
    Prefix(String),
}

impl Selection {
    /// The selection of one key.
    pub fn key(key: &Key) -> Self {
        Self::Key(key.clone())
    }

    /// The selection of all keys that begin with `text`.
    pub fn prefix(text: &str) -> Self {
        Self::Prefix(text.to_owned())
    }
}

/// What a read saw, all of it at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The store's revision at the read.
    pub revision: Revision,
    /// For each selection, in their order, the entries in the order of their keys.
    pub groups: Vec<Vec<Entry>>,
}

impl Snapshot {
    /// The entry of the selection `index`, which named one key.
    pub fn entry(&self, index: usize) -> Option<&Entry> {
        self.groups[index].first()
    }
}

/// What a transaction expects of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// There is no such key.
    Absent,
    /// The key was last changed at this revision.
    ModifiedAt(Revision),
}

/// One condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The key.
    pub key: Key,
    /// What must hold for it.
    pub expected: Expected,
}

/// One change of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sets a key, and the lease with which it vanishes; any former lease lets go of it.
    Put {
        /// The key.
        key: Key,
        /// Its new value.
        value: Value,
        /// The lease to attach it to.
        lease: Option<LeaseId>,
    },
    /// Removes a key; no error and no change if there is none.
    Delete {
        /// The key.
        key: Key,
    },
}

impl Operation {
    /// The key that it changes.
    pub fn key(&self) -> &Key {
        match self {
            Operation::Put { key, .. } | Operation::Delete { key } => key,
        }
    }
}

/// Conditions, and what is done if all of them hold: everything or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The conditions.
    pub compares: Vec<Compare>,
    /// The changes, each of another key.
    pub operations: Vec<Operation>,
}

impl Transaction {
    /// No condition and no change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also expects `expected` of `key`.
    pub fn expect(mut self, key: &Key, expected: Expected) -> Self {
        self.compares.push(Compare { key: key.clone(), expected });
        self
    }

    /// Also sets `key` to `value`.
    pub fn put(self, key: &Key, value: impl Into<Value>) -> Self {
        self.operation(Operation::Put { key: key.clone(), value: value.into(), lease: None })
    }

    /// Also sets `key` to `value` until `lease` expires.
    pub fn put_leased(self, key: &Key, value: impl Into<Value>, lease: LeaseId) -> Self {
        self.operation(Operation::Put { key: key.clone(), value: value.into(), lease: Some(lease) })
    }

    /// Also removes `key`.
    pub fn delete(self, key: &Key) -> Self {
        self.operation(Operation::Delete { key: key.clone() })
    }

    /// Also does `operation`.
    pub fn operation(mut self, operation: Operation) -> Self {
        self.operations.push(operation);
        self
    }

    /// The bytes of all its keys and values.
    pub fn bytes(&self) -> usize {
        let compared: usize = self.compares.iter().map(|compare| compare.key.as_str().len()).sum();
        let changed: usize = self
            .operations
            .iter()
            .map(|operation| match operation {
                Operation::Put { key, value, .. } => key.as_str().len() + value.len(),
                Operation::Delete { key } => key.as_str().len(),
            })
            .sum();
        compared + changed
    }

    /// Whether it keeps to the limits that every make of the store has, as an error of kind
    /// [`StoreErrorKind::Invalid`] if not.
    pub fn validate(&self) -> Result<(), StoreError> {
        let invalid = |detail| Err(StoreError::new(StoreErrorKind::Invalid, detail));
        let count = self.compares.len().max(self.operations.len());
        if count > TRANSACTION_OPERATIONS_MAX {
            return invalid(format!("{count} operations are more than {TRANSACTION_OPERATIONS_MAX}"));
        }
        if self.bytes() > TRANSACTION_BYTES_MAX {
            return invalid(format!("{} bytes are more than {TRANSACTION_BYTES_MAX}", self.bytes()));
        }
        let keys = self.compares.iter().map(|compare| &compare.key);
        for key in keys.chain(self.operations.iter().map(Operation::key)) {
            if key.as_str().is_empty() || key.as_str().len() > KEY_BYTES_MAX {
                return invalid(format!("a key of {} bytes", key.as_str().len()));
            }
        }
        let mut changed: Vec<_> = self.operations.iter().map(Operation::key).collect();
        changed.sort();
        match changed.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => invalid(format!("{:?} is changed twice", pair[0])),
            None => Ok(()),
        }
    }
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every condition held, and every change is made, durably.
    Committed {
        /// The revision of the changes; the store's own if there was nothing to change.
        revision: Revision,
    },
    /// A condition did not hold; nothing was changed.
    Conflict {
        /// The store's revision.
        revision: Revision,
        /// What stands at each compared key, in the order of the conditions.
        current: Vec<Option<Entry>>,
    },
}

/// One change that a watch saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The key was set.
    Put(Entry),
    /// The key was removed, by a transaction or because its lease ended.
    Deleted {
        /// The key.
        key: Key,
        /// The revision that removed it.
        revision: Revision,
    },
}

impl Event {
    /// The key that changed.
    pub fn key(&self) -> &Key {
        match self {
            Event::Put(entry) => &entry.key,
            Event::Deleted { key, .. } => key,
        }
    }

    /// The revision of the change.
    pub fn revision(&self) -> Revision {
        match self {
            Event::Put(entry) => entry.modified,
            Event::Deleted { revision, .. } => *revision,
        }
    }
}

/// The state of the cluster, as one thread of one process sees it. Cheap to clone.
///
/// Any method may fail with [`StoreErrorKind::Unavailable`]; those that change something also
/// with [`StoreErrorKind::Unknown`].
pub trait StateStore: Clone + 'static {
    /// What [`StateStore::watch`] gives.
    type Watch: StateWatch;

    /// Reads all `selections` at one revision, linearizably.
    fn read(&self, selections: &[Selection]) -> impl Future<Output = Result<Snapshot, StoreError>>;

    /// Does `transaction` as a whole or not at all. It must keep to
    /// [`TRANSACTION_OPERATIONS_MAX`] and [`TRANSACTION_BYTES_MAX`]. Fails with
    /// [`StoreErrorKind::LeaseGone`] if it attaches a key to a lease that does not exist.
    fn transact(&self, transaction: Transaction) -> impl Future<Output = Result<Outcome, StoreError>>;

    /// Watches the keys that begin with `prefix`, from the changes of revision `from` on. To miss
    /// nothing after a read, `from` is the revision behind the read's.
    fn watch(&self, prefix: &str, from: Revision) -> impl Future<Output = Result<Self::Watch, StoreError>>;

    /// A new lease that lives `time_to_live` from now on, or a little longer if the store counts
    /// more coarsely.
    fn grant_lease(&self, time_to_live: Duration) -> impl Future<Output = Result<LeaseId, StoreError>>;

    /// Lets `lease` live its whole time from now on. Fails with [`StoreErrorKind::LeaseGone`] if
    /// it has expired.
    fn keep_alive(&self, lease: LeaseId) -> impl Future<Output = Result<(), StoreError>>;

    /// Ends `lease`, and its keys with it. Fails with [`StoreErrorKind::LeaseGone`] if it has
    /// expired.
    fn revoke_lease(&self, lease: LeaseId) -> impl Future<Output = Result<(), StoreError>>;

    /// Forgets the history up to and including `revision`. What stands at the keys remains.
    fn compact(&self, revision: Revision) -> impl Future<Output = Result<(), StoreError>>;
}

/// A watch. Ends when dropped.
pub trait StateWatch: 'static {
    /// The next changes, once there are any: all of one or more whole revisions, in order. A
    /// future that is dropped before it completes takes no change with it.
    ///
    /// After an error the watch is over. After [`StoreErrorKind::Unavailable`] a new one from the
    /// revision behind the last event goes on where it stopped; after
    /// [`StoreErrorKind::Compacted`] the prefix must be read again.
    fn next(&mut self) -> impl Future<Output = Result<Vec<Event>, StoreError>>;
}

/// What a failure of the store means to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// The store cannot be reached or cannot work. Nothing was changed and nothing will be.
    Unavailable,
    /// There was no answer. The change may be made already, later, or never.
    Unknown,
    /// The history that a watch asked for is gone.
    Compacted {
        /// The oldest revision from which a watch is possible.
        oldest: Revision,
    },
    /// The lease does not exist or has expired. Nothing was changed.
    LeaseGone,
    /// The request breaks the store's limits. Nothing was changed.
    Invalid,
}

/// A failure of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    /// What it means.
    pub kind: StoreErrorKind,
    /// What happened, for the log.
    pub detail: String,
}

impl StoreError {
    /// A failure of `kind`.
    pub fn new(kind: StoreErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meaning = match self.kind {
            StoreErrorKind::Unavailable => "cluster state unavailable",
            StoreErrorKind::Unknown => "cluster state did not answer, the change may be made or not",
            StoreErrorKind::Compacted { .. } => "cluster state no longer has that history",
            StoreErrorKind::LeaseGone => "the lease has expired",
            StoreErrorKind::Invalid => "not a valid request to the cluster state",
        };
        write!(formatter, "{meaning}: {}", self.detail)
    }
}

impl std::error::Error for StoreError {}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
