//! Requests and answers in etcd's terms and in ours.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    Compare as EtcdCompare, CompareOp, Event as EtcdEvent, EventType, GetOptions, GetResponse, KeyValue,
    PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use spandrel_cluster::store::{
    Compare, Entry, Event, Expected, Key, LeaseId, Operation, Outcome, Revision, Selection, Snapshot,
    StoreError, StoreErrorKind, Transaction,
};

/// A revision that no key has: etcd takes 0 for that of a key that is not there.
const NO_REVISION: i64 = i64::MAX;

/// What our keys begin with in etcd.
#[derive(Clone, Debug)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// Keys that begin with `text`.
    pub fn new(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// What stands in etcd for one of our keys, or for the beginning of some.
    pub fn outer(&self, key: &str) -> Vec<u8> {
        format!("{}{key}", self.0).into_bytes()
    }

    /// Our key, of what stands in etcd.
    fn inner(&self, key: &[u8]) -> Result<Key, Nonsense> {
        let text = std::str::from_utf8(key).ok().and_then(|key| key.strip_prefix(&*self.0));
        text.map(Key::new).ok_or_else(|| nonsense(format!("the key {:?}", String::from_utf8_lossy(key))))
    }

    /// All selections at one revision: a transaction that only reads.
    pub fn reads(&self, selections: &[Selection]) -> Txn {
        let read = |selection: &Selection| match selection {
            Selection::Key(key) => self.get(key),
            Selection::Prefix(prefix) => TxnOp::get(self.outer(prefix), Some(self.all_from(prefix))),
        };
        let reads: Vec<_> = selections.iter().map(read).collect();
        Txn::new().and_then(if reads.is_empty() { vec![self.read_of_nothing()] } else { reads })
    }

    /// A read of no use but to be there: etcd answers a transaction that does nothing at all from what a single
    /// member knows.
    fn read_of_nothing(&self) -> TxnOp {
        TxnOp::get(self.outer("\0"), None)
    }

    /// Everything that begins with `prefix`. If it is empty out there as well, that is every key.
    fn all_from(&self, prefix: &str) -> GetOptions {
        match self.outer(prefix).is_empty() {
            true => GetOptions::new().with_all_keys(),
            false => GetOptions::new().with_prefix(),
        }
    }

    fn get(&self, key: &Key) -> TxnOp {
        TxnOp::get(self.outer(key.as_str()), None)
    }

    /// What the reads found.
    pub fn snapshot(&self, selections: &[Selection], response: &TxnResponse) -> Result<Snapshot, Nonsense> {
        let found = response.op_responses();
        if found.len() != selections.len().max(1) {
            return Err(nonsense(format!("{} answers to {} reads", found.len(), selections.len())));
        }
        let groups = found.iter().take(selections.len()).map(|group| self.entries(answer_of_read(group)?));
        Ok(Snapshot { revision: revision_of(response)?, groups: groups.collect::<Result<_, _>>()? })
    }

    /// A transaction that, if a condition does not hold, reads what stands at the compared keys.
    pub fn transaction(&self, transaction: &Transaction) -> Txn {
        let compare = |compare: &Compare| {
            let key = self.outer(compare.key.as_str());
            match compare.expected {
                Expected::Absent => EtcdCompare::create_revision(key, CompareOp::Equal, 0),
                Expected::ModifiedAt(revision) => {
                    let number =
                        if revision == Revision::ZERO { NO_REVISION } else { revision_number(revision) };
                    EtcdCompare::mod_revision(key, CompareOp::Equal, number)
                }
            }
        };
        let change = |operation: &Operation| match operation {
            Operation::Put { key, value, lease } => {
                let lease = lease.map_or(0, lease_number);
                let options = PutOptions::new().with_lease(lease);
                TxnOp::put(self.outer(key.as_str()), &**value, Some(options))
            }
            Operation::Delete { key } => TxnOp::delete(self.outer(key.as_str()), None),
        };
        let mut changes: Vec<_> = transaction.operations.iter().map(change).collect();
        if changes.is_empty() {
            changes.push(self.read_of_nothing());
        }
        Txn::new()
            .when(transaction.compares.iter().map(compare).collect::<Vec<_>>())
            .and_then(changes)
            .or_else(transaction.compares.iter().map(|compare| self.get(&compare.key)).collect::<Vec<_>>())
    }

    /// What became of it.
    pub fn outcome(&self, transaction: &Transaction, response: &TxnResponse) -> Result<Outcome, Nonsense> {
        let revision = revision_of(response)?;
        if response.succeeded() {
            return Ok(Outcome::Committed { revision });
        }
        let found = response.op_responses();
        if found.len() != transaction.compares.len() {
            return Err(nonsense(format!("{} answers to {} reads", found.len(), transaction.compares.len())));
        }
        let current = found.iter().map(|found| Ok(self.entries(answer_of_read(found)?)?.pop()));
        Ok(Outcome::Conflict { revision, current: current.collect::<Result<_, Nonsense>>()? })
    }

    fn entries(&self, response: &GetResponse) -> Result<Vec<Entry>, Nonsense> {
        response.kvs().iter().map(|found| self.entry(found)).collect()
    }

    fn entry(&self, found: &KeyValue) -> Result<Entry, Nonsense> {
        Ok(Entry {
            key: self.inner(found.key())?,
            value: found.value().into(),
            created: revision(found.create_revision())?,
            modified: revision(found.mod_revision())?,
            lease: match found.lease() {
                0 => None,
                lease => Some(lease_id(lease)?),
            },
        })
    }

    /// What a watch saw.
    pub fn event(&self, event: &EtcdEvent) -> Result<Event, Nonsense> {
        let found = event.kv().ok_or_else(|| nonsense("a change of no key"))?;
        match event.event_type() {
            EventType::Put => Ok(Event::Put(self.entry(found)?)),
            EventType::Delete => Ok(Event::Deleted {
                key: self.inner(found.key())?,
                revision: revision(found.mod_revision())?,
            }),
        }
    }
}

fn answer_of_read(response: &TxnOpResponse) -> Result<&GetResponse, Nonsense> {
    match response {
        TxnOpResponse::Get(response) => Ok(response),
        other => Err(nonsense(format!("the answer to a read is {other:?}"))),
    }
}

fn revision_of(response: &TxnResponse) -> Result<Revision, Nonsense> {
    let header = response.header().ok_or_else(|| nonsense("an answer without a header"))?;
    revision(header.revision())
}

/// A revision, of etcd's number.
pub fn revision(number: i64) -> Result<Revision, Nonsense> {
    u64::try_from(number).map(Revision).map_err(|_| nonsense(format!("the revision {number}")))
}

/// etcd's number of a revision. No store lives to reach the largest.
pub fn revision_number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// A lease, of etcd's number.
pub fn lease_id(number: i64) -> Result<LeaseId, Nonsense> {
    match u64::try_from(number) {
        Ok(number) if number > 0 => Ok(LeaseId(number)),
        _ => Err(nonsense(format!("the lease {number}"))),
    }
}

/// etcd's number of a lease that [`lease_id`] gave.
pub fn lease_number(lease: LeaseId) -> i64 {
    i64::try_from(lease.0).unwrap_or(i64::MAX)
}

/// Whole seconds, as etcd counts, and no fewer than asked for.
pub fn lease_seconds(time_to_live: Duration) -> i64 {
    let seconds = time_to_live.as_secs().saturating_add(u64::from(time_to_live.subsec_nanos() > 0));
    i64::try_from(seconds.max(1)).unwrap_or(i64::MAX)
}

/// An answer that is none.
#[derive(Debug, PartialEq, Eq)]
pub struct Nonsense(String);

impl Nonsense {
    /// The error for whom it was to answer.
    pub fn error(self, kind: StoreErrorKind) -> StoreError {
        StoreError::new(kind, format!("etcd's answer is not understood: {}", self.0))
    }
}

fn nonsense(detail: impl Into<String>) -> Nonsense {
    Nonsense(detail.into())
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
