//! Which faults were told to people, for whoever tells them next: when one is over that another server has told, that is to
//! be told, too.
//!
//! Like the dates of scrubs this makes the state no newer: in a state that was put back something is told twice.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::keys::StateKey;
use crate::records::{Record, Stored, encode, record};
use crate::state::{ClusterState, StateError};
use crate::store::{Expected, Outcome, Revision, StateStore, Transaction};

/// A fault that was told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ToldFault {
    /// Its kind, as in `drive.failed`.
    pub kind: String,
    /// What it is the matter with.
    pub object: String,
}

/// The faults that were told last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldRecord {
    /// All of them.
    pub faults: BTreeSet<ToldFault>,
}
record!(ToldRecord, "list of faults that were told", 1);

impl<S: StateStore> ClusterState<S> {
    /// The faults that were told last; none if none ever were.
    pub async fn told(&self) -> Result<Option<Stored<ToldRecord>>, StateError> {
        self.get(&StateKey::Told).await
    }

    /// Writes down which faults were told. `known` is the revision of what stands there. `Conflict` if that is something else.
    pub async fn note_told(
        &self,
        known: Option<Revision>,
        record: ToldRecord,
    ) -> Result<Stored<ToldRecord>, StateError> {
        let key = StateKey::Told.key();
        let transaction = Transaction::new()
            .expect(&key, known.map_or(Expected::Absent, Expected::ModifiedAt))
            .put(&key, encode(&record));
        // Not by `commit`, which would make the state newer.
        match self.store().transact(transaction).await? {
            Outcome::Committed { revision } => Ok(Stored { record, revision }),
            Outcome::Conflict { .. } => Err(StateError::Conflict),
        }
    }
}

#[cfg(test)]
#[path = "told_tests.rs"]
mod tests;
