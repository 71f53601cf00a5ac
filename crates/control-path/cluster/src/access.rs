//! Who may use the admin API, and what lets servers join.
//!
//! Of secrets only digests are kept. A name has access once: a key reserves it, and goes with it.

use std::collections::BTreeMap;

use spandrel_shared::Error;

use crate::keys::{self, StateKey};
use crate::records::{AccessNameRecord, AccessRecord, JoinRecord, Stored, encode};
use crate::state::{ClusterState, StateError};
use crate::store::{Expected, LeaseId, StateStore, Transaction};

impl<S: StateStore> ClusterState<S> {
    /// Gives somebody access who shows the secret of this digest. Refused with `NAME_TAKEN` if the name has it already.
    pub async fn give_access(&self, digest: &str, record: &AccessRecord) -> Result<(), StateError> {
        let key = StateKey::Access(digest.to_owned()).key();
        let name_key = StateKey::AccessName(record.name.clone()).key();
        let transaction = Transaction::new()
            .expect(&key, Expected::Absent)
            .expect(&name_key, Expected::Absent)
            .put(&key, encode(record))
            .put(&name_key, encode(&AccessNameRecord { digest: digest.to_owned() }));
        match self.commit(transaction).await {
            Err(StateError::Conflict) => {}
            outcome => return outcome.map(drop),
        }
        let holder: Option<Stored<AccessNameRecord>> =
            self.get(&StateKey::AccessName(record.name.clone())).await?;
        match holder {
            // An earlier attempt was made after all.
            Some(holder) if holder.record.digest == digest => Ok(()),
            Some(_) => Err(Error::new(
                "NAME_TAKEN",
                format!("no access can be given to {:?}", record.name),
                "somebody of this name has it already",
                "choose another name, or take that one's access back first",
            )
            .into()),
            None => Err(StateError::Conflict),
        }
    }

    /// Takes the access back that a name has. Whether it had any.
    pub async fn take_access_back(&self, name: &str) -> Result<bool, StateError> {
        let key = StateKey::AccessName(name.to_owned());
        let Some(holder) = self.get::<AccessNameRecord>(&key).await? else { return Ok(false) };
        let transaction = Transaction::new()
            .expect(&key.key(), Expected::ModifiedAt(holder.revision))
            .delete(&key.key())
            .delete(&StateKey::Access(holder.record.digest).key());
        self.commit(transaction).await?;
        Ok(true)
    }

    /// Lets whoever shows the secret of this digest join, for as long as `lease` lives.
    pub async fn give_join(
        &self,
        digest: &str,
        record: &JoinRecord,
        lease: LeaseId,
    ) -> Result<(), StateError> {
        let key = StateKey::Join(digest.to_owned()).key();
        self.commit(Transaction::new().put_leased(&key, encode(record), lease)).await.map(drop)
    }

    /// What lets servers join, by the digests of the secrets.
    pub async fn joins(&self) -> Result<BTreeMap<String, Stored<JoinRecord>>, StateError> {
        self.list(keys::JOINS).await
    }
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
