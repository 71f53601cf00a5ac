//! The state itself, as pure logic: keys with revisions, history, leases.
//!
//! Every make of the store that is not etcd keeps its state in this and adds what it is about:
//! durability, or faults. Time comes in with each call that needs it.
//!
//! Invariants:
//! - `revision` only grows, by one for every transaction, expiry or revocation that changed
//!   something.
//! - The history holds every change above `compacted`, in order, and nothing at or below it.
//! - A lease names exactly the keys whose entries name it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use spandrel_platform::Instant;

use crate::store::{
    Entry, Event, Expected, Key, LeaseId, Operation, Outcome, Revision, Selection, Snapshot, StoreError,
    StoreErrorKind, Transaction,
};

/// Events that one call to [`Memory::events`] gives, except that a revision is never split.
const EVENTS_PER_BATCH: usize = 1000;

/// The state: what stands at the keys, what happened lately, and which leases live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    revision: Revision,
    compacted: Revision,
    entries: BTreeMap<Key, Entry>,
    history: VecDeque<Event>,
    leases: BTreeMap<LeaseId, Lease>,
    /// The lease granted last. Kept apart from `leases` so that no identity is used twice.
    last_lease: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lease {
    time_to_live: Duration,
    expires: Instant,
    keys: BTreeSet<Key>,
}

/// What of a [`Memory`] outlives a restart: everything but the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The store's revision.
    pub revision: Revision,
    /// What stands at the keys.
    pub entries: Vec<Entry>,
    /// The leases with their time to live.
    pub leases: Vec<(LeaseId, Duration)>,
    /// The number of the lease granted last.
    pub last_lease: u64,
}

/// What a watch at some revision finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The changes, all of one or more whole revisions; may be empty.
    pub events: Vec<Event>,
    /// From where the watch goes on.
    pub next: Revision,
}

impl Memory {
    /// An empty state at revision zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// The state of `image`. Its leases live their whole time from `now` on: how long nobody could
    /// renew them is not known. `None` if a key names a lease that the image does not have.
    pub fn restore(image: Image, now: Instant) -> Option<Self> {
        let mut memory = Self {
            revision: image.revision,
            compacted: image.revision,
            last_lease: image.last_lease,
            ..Self::default()
        };
        for (id, time_to_live) in image.leases {
            let lease = Lease { time_to_live, expires: now + time_to_live, keys: BTreeSet::new() };
            memory.leases.insert(id, lease);
        }
        for entry in image.entries {
            if let Some(lease) = entry.lease {
                memory.leases.get_mut(&lease)?.keys.insert(entry.key.clone());
            }
            memory.entries.insert(entry.key.clone(), entry);
        }
        Some(memory)
    }

    /// What outlives a restart.
    pub fn image(&self) -> Image {
        Image {
            revision: self.revision,
            entries: self.entries.values().cloned().collect(),
            leases: self.leases.iter().map(|(id, lease)| (*id, lease.time_to_live)).collect(),
            last_lease: self.last_lease,
        }
    }

    /// The revision of the last change.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The number of the lease granted last.
    pub fn last_lease(&self) -> u64 {
        self.last_lease
    }

    /// The leases that live, with their time to live.
    pub fn leases(&self) -> impl Iterator<Item = (LeaseId, Duration)> {
        self.leases.iter().map(|(id, lease)| (*id, lease.time_to_live))
    }

    /// Reads the selections.
    pub fn read(&self, selections: &[Selection]) -> Snapshot {
        let group = |selection: &Selection| match selection {
            Selection::Key(key) => self.entries.get(key).cloned().into_iter().collect(),
            Selection::Prefix(prefix) => self
                .entries
                .range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded))
                .take_while(|(key, _)| key.as_str().starts_with(prefix))
                .map(|(_, entry)| entry.clone())
                .collect(),
        };
        Snapshot { revision: self.revision, groups: selections.iter().map(group).collect() }
    }

    /// Does the transaction, or nothing.
    pub fn transact(&mut self, transaction: &Transaction) -> Result<Outcome, StoreError> {
        transaction.validate()?;
        let holds = |key: &Key, expected: &Expected| match (expected, self.entries.get(key)) {
            (Expected::Absent, None) => true,
            (Expected::ModifiedAt(revision), Some(entry)) => entry.modified == *revision,
            _ => false,
        };
        if !transaction.compares.iter().all(|compare| holds(&compare.key, &compare.expected)) {
            let current =
                transaction.compares.iter().map(|compare| self.entries.get(&compare.key).cloned()).collect();
            return Ok(Outcome::Conflict { revision: self.revision, current });
        }
        for operation in &transaction.operations {
            if let Operation::Put { lease: Some(lease), .. } = operation {
                self.lease(*lease)?;
            }
        }
        self.change(&transaction.operations);
        Ok(Outcome::Committed { revision: self.revision })
    }

    /// The changes of keys with `prefix` from revision `from` on.
    pub fn events(&self, prefix: &str, from: Revision) -> Result<Pending, StoreError> {
        if from <= self.compacted {
            let oldest = self.compacted.next();
            let detail = format!("revision {from} is asked for, the oldest known is {oldest}");
            return Err(StoreError::new(StoreErrorKind::Compacted { oldest }, detail));
        }
        let mut events: Vec<Event> = Vec::new();
        let start = self.history.partition_point(|event| event.revision() < from);
        for event in self.history.range(start..) {
            let whole = events.last().is_none_or(|last| last.revision() != event.revision());
            if whole && events.len() >= EVENTS_PER_BATCH {
                return Ok(Pending { events, next: event.revision() });
            }
            if event.key().as_str().starts_with(prefix) {
                events.push(event.clone());
            }
        }
        Ok(Pending { events, next: from.max(self.revision.next()) })
    }

    /// A new lease.
    pub fn grant_lease(&mut self, now: Instant, time_to_live: Duration) -> LeaseId {
        self.last_lease += 1;
        let id = LeaseId(self.last_lease);
        self.leases.insert(id, Lease { time_to_live, expires: now + time_to_live, keys: BTreeSet::new() });
        id
    }

    /// Lets the lease live its whole time from `now` on.
    pub fn keep_alive(&mut self, now: Instant, id: LeaseId) -> Result<(), StoreError> {
        let lease = self.leases.get_mut(&id).ok_or_else(|| lease_gone(id))?;
        lease.expires = lease.expires.max(now + lease.time_to_live);
        Ok(())
    }

    /// Lets every lease live its whole time from `now` on, as after an outage in which none could
    /// be renewed.
    pub fn keep_all_alive(&mut self, now: Instant) {
        for lease in self.leases.values_mut() {
            lease.expires = lease.expires.max(now + lease.time_to_live);
        }
    }

    /// Ends the lease and removes its keys.
    pub fn revoke_lease(&mut self, id: LeaseId) -> Result<(), StoreError> {
        let lease = self.leases.remove(&id).ok_or_else(|| lease_gone(id))?;
        let operations: Vec<_> = lease.keys.into_iter().map(|key| Operation::Delete { key }).collect();
        self.change(&operations);
        Ok(())
    }

    /// Ends the leases whose time has run out at `now`. Returns whether there were any.
    pub fn expire_leases(&mut self, now: Instant) -> bool {
        let over = |lease: &Lease| lease.expires <= now;
        let expired: Vec<_> =
            self.leases.iter().filter(|(_, lease)| over(lease)).map(|(id, _)| *id).collect();
        for id in &expired {
            self.revoke_lease(*id).expect("it was listed just now");
        }
        !expired.is_empty()
    }

    /// When the next lease expires.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.leases.values().map(|lease| lease.expires).min()
    }

    /// Forgets the history up to and including `revision`.
    pub fn compact(&mut self, revision: Revision) {
        let revision = revision.min(self.revision);
        if revision > self.compacted {
            self.compacted = revision;
            let forgotten = self.history.partition_point(|event| event.revision() <= revision);
            self.history.drain(..forgotten);
        }
    }

    /// Forgets the oldest revisions until at most `events_max` events remain.
    pub fn trim_history(&mut self, events_max: usize) {
        if let Some(last_forgotten) = self.history.len().checked_sub(events_max + 1) {
            self.compact(self.history[last_forgotten].revision());
        }
    }

    fn lease(&self, id: LeaseId) -> Result<&Lease, StoreError> {
        self.leases.get(&id).ok_or_else(|| lease_gone(id))
    }

    /// Makes the changes under one new revision. Deleting what is not there is none.
    fn change(&mut self, operations: &[Operation]) {
        let revision = self.revision.next();
        for operation in operations {
            let key = operation.key();
            let former = self.entries.remove(key);
            if let Some(lease) = former.as_ref().and_then(|entry| entry.lease)
                && let Some(lease) = self.leases.get_mut(&lease)
            {
                lease.keys.remove(key);
            }
            let event = match operation {
                Operation::Put { key, value, lease } => {
                    if let Some(lease) = lease {
                        let lease = self.leases.get_mut(lease).expect("checked before any change");
                        lease.keys.insert(key.clone());
                    }
                    let entry = Entry {
                        key: key.clone(),
                        value: value.clone(),
                        created: former.map_or(revision, |entry| entry.created),
                        modified: revision,
                        lease: *lease,
                    };
                    self.entries.insert(key.clone(), entry.clone());
                    Event::Put(entry)
                }
                Operation::Delete { .. } if former.is_none() => continue,
                Operation::Delete { key } => Event::Deleted { key: key.clone(), revision },
            };
            self.history.push_back(event);
            self.revision = revision;
        }
    }
}

fn lease_gone(id: LeaseId) -> StoreError {
    StoreError::new(StoreErrorKind::LeaseGone, format!("lease {} is not there", id.0))
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
