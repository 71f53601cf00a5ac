//! The whole state as a file, and a state made of such a file.
//!
//! It holds keys and values, not the store's own files: so it can be read back by any make of the store, and needs no
//! tool of etcd's. What lives only as long as somebody renews it is left out: who runs is seen anew, and join tokens
//! are made anew.
//!
//! A state that is made of a backup is older than what it takes the place of, and knows nothing of what has happened
//! since. So it gets a generation of its own ([`crate::StateStamp`]), and no volume is served before its copies were
//! compared.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use spandrel_shared::checksum::crc32c;
use spandrel_shared::{ClusterId, Epoch, Error, NodeId, VolumeId};

use crate::keys::{self, StateKey};
use crate::records::{
    ClusterRecord, DriveRecord, DriveState, NodeRecord, Stored, VolumeRecord, VolumeState, WitnessRecord,
    decode, encode,
};
use crate::stamp::{StateStamp, recoveries_between};
use crate::state::{ClusterState, StateError, changed_for_good};
use crate::store::{
    Entry, Expected, Key, Revision, Selection, StateStore, TRANSACTION_OPERATIONS_MAX, Transaction, Value,
};
use crate::vms::VmRecord;
use crate::volumes::in_batches;

/// The format that this version writes, and the newest that it knows.
const FORMAT: u32 = 1;

/// What each volume's epoch is raised by for each time that an older state took the place of a newer one: more
/// ownerships than can have come in between.
const EPOCHS_SKIPPED: u32 = 1 << 16;

/// Prefixes of what is left out.
const LEFT_OUT: [&str; 4] = [keys::ALIVE, keys::AWAKE, keys::JOINS, keys::CHANGED];

/// The whole state at one revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateBackup {
    format: u32,
    /// The cluster.
    pub cluster: ClusterId,
    /// Its name.
    pub name: String,
    /// The state's generation.
    pub generation: u32,
    /// Its revision: that of the last change for good, as in [`StateBackup::stamp`].
    pub revision: u64,
    /// When it was made.
    pub taken_unix_ms: u64,
    /// Of the entries.
    checksum: u32,
    /// Every key with its record.
    entries: BTreeMap<String, String>,
}

impl StateBackup {
    /// Reads what [`StateBackup::to_bytes`] gives.
    ///
    /// Errors: `BACKUP_UNREADABLE`, `BACKUP_TOO_NEW`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct FormatOnly {
            format: u32,
        }
        let refuse = |code: &str, why: String| {
            let next = "use another backup: each server has some of its own, in the folder `backups` of its directory";
            Error::new(code, "this is no backup of a cluster's state that can be used", why, next)
        };
        let unreadable = |error: serde_json::Error| refuse("BACKUP_UNREADABLE", error.to_string());
        let format: FormatOnly = serde_json::from_slice(bytes).map_err(unreadable)?;
        if format.format > FORMAT {
            let why = format!("its format is {}, this version knows up to {FORMAT}", format.format);
            return Err(refuse("BACKUP_TOO_NEW", why));
        }
        let backup: Self = serde_json::from_slice(bytes).map_err(unreadable)?;
        if backup.checksum != checksum(&backup.entries) {
            return Err(refuse(
                "BACKUP_UNREADABLE",
                "it was changed or damaged since it was made".to_owned(),
            ));
        }
        Ok(backup)
    }

    /// The backup as a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("it is plain text");
        bytes.push(b'\n');
        bytes
    }

    /// How new the state is, to be compared with what drives have seen.
    pub fn stamp(&self) -> StateStamp {
        StateStamp::new(self.generation, Revision(self.revision))
    }

    /// How many volumes it knows.
    pub fn volumes(&self) -> usize {
        self.entries.keys().filter(|key| key.starts_with(keys::VOLUMES)).count()
    }

    /// Every server that it knows, with the addresses at which it listens.
    ///
    /// Errors: `STATE_DAMAGED`, `STATE_TOO_NEW`.
    pub fn servers(&self) -> Result<Vec<(String, Vec<String>)>, Error> {
        let mut servers = Vec::new();
        for (key, value) in &self.entries {
            let entry = self.entry(key, value);
            match StateKey::parse(&entry.key) {
                Some(StateKey::Node(_)) => {
                    let node: NodeRecord = decode(&entry)?.record;
                    servers.push((node.name, node.addresses));
                }
                Some(StateKey::Witness(_)) => {
                    let witness: WitnessRecord = decode(&entry)?.record;
                    servers.push((witness.name, witness.addresses));
                }
                _ => {}
            }
        }
        Ok(servers)
    }

    /// The volumes of which it is not known whether they were made: only that this was under way. Left as they are they
    /// would be taken apart, and what may have been written to them since with them.
    ///
    /// Errors: `STATE_DAMAGED`, `STATE_TOO_NEW`.
    pub fn half_made(&self) -> Result<BTreeMap<VolumeId, String>, Error> {
        let mut half_made = BTreeMap::new();
        for (key, value) in &self.entries {
            let entry = self.entry(key, value);
            if let Some(StateKey::Volume(volume)) = StateKey::parse(&entry.key) {
                let stored: Stored<VolumeRecord> = decode(&entry)?;
                if stored.record.state == VolumeState::Creating {
                    half_made.insert(volume, stored.record.name);
                }
            }
        }
        Ok(half_made)
    }

    fn entry(&self, key: &str, value: &str) -> Entry {
        let revision = Revision(self.revision);
        let value = Value::from(value.as_bytes().to_vec());
        Entry { key: Key::new(key), value, created: revision, modified: revision, lease: None }
    }

    /// What stands at the keys of the state that is made of it.
    fn restored(&self, generation: u32) -> Result<Vec<(Key, Value)>, Error> {
        let half_made = self.half_made()?;
        let recoveries = recoveries_between(self.generation, generation);
        let mut restored = Vec::with_capacity(self.entries.len());
        for (key, value) in &self.entries {
            let entry = self.entry(key, value);
            if is_left_out(&entry.key) {
                continue;
            }
            let value = match StateKey::parse(&entry.key) {
                Some(key) if is_of(&key, &half_made) => continue,
                Some(StateKey::Cluster) => {
                    let stored: Stored<ClusterRecord> = decode(&entry)?;
                    encode(&ClusterRecord { generation, ..stored.record })
                }
                Some(StateKey::Volume(_)) => {
                    let stored: Stored<VolumeRecord> = decode(&entry)?;
                    encode(&without_owner(stored.record, recoveries))
                }
                Some(StateKey::Vm(_)) => {
                    let stored: Stored<VmRecord> = decode(&entry)?;
                    encode(&stored.record.restored(recoveries))
                }
                Some(StateKey::Drive(_)) => {
                    let stored: Stored<DriveRecord> = decode(&entry)?;
                    encode(&asked_for_again(stored.record))
                }
                _ => entry.value,
            };
            restored.push((entry.key, value));
        }
        Ok(restored)
    }
}

/// Whether a key has no place in a backup, nor in a state that is made of one: that of a version that knew less may
/// hold it all the same.
fn is_left_out(key: &Key) -> bool {
    LEFT_OUT.iter().any(|prefix| key.as_str().starts_with(prefix))
}

/// Whether a key belongs to one of some volumes.
fn is_of(key: &StateKey, volumes: &BTreeMap<VolumeId, String>) -> bool {
    match key {
        StateKey::Volume(volume)
        | StateKey::Slabs(volume, _)
        | StateKey::Stale(volume, _)
        | StateKey::Scrub(volume)
        | StateKey::VolumeRoom(volume) => volumes.contains_key(volume),
        StateKey::VolumeName(name) => volumes.values().any(|known| known == name),
        _ => false,
    }
}

/// A volume that nobody owns and nobody writes to, with an epoch above all that its copies may have accepted.
fn without_owner(record: VolumeRecord, recoveries: u32) -> VolumeRecord {
    let skipped = EPOCHS_SKIPPED.saturating_mul(recoveries);
    let epoch = Epoch(record.epoch.0.saturating_add(skipped));
    VolumeRecord { owner: None, writer: None, epoch, is_growth_given_up: false, ..record }
}

/// A drive that may hold what nobody else does: that it was given up once, for what it held then, says nothing now.
fn asked_for_again(record: DriveRecord) -> DriveRecord {
    match record.state {
        DriveState::Failed => DriveRecord { state: DriveState::Active, ..record },
        DriveState::Active | DriveState::Retired => record,
    }
}

fn checksum(entries: &BTreeMap<String, String>) -> u32 {
    let bytes = serde_json::to_vec(entries).expect("they are plain text");
    crc32c(&bytes)
}

impl<S: StateStore> ClusterState<S> {
    /// The whole state. `None` if it holds no cluster.
    pub async fn backup(&self, now_unix_ms: u64) -> Result<Option<StateBackup>, StateError> {
        let snapshot = self.snapshot(&[Selection::prefix("")]).await?;
        let mut entries = BTreeMap::new();
        let mut cluster: Option<Stored<ClusterRecord>> = None;
        let mut changed = None;
        for entry in snapshot.groups.iter().flatten() {
            if entry.key == StateKey::Cluster.key() {
                cluster = Some(decode(entry)?);
            }
            if entry.key == StateKey::Changed.key() {
                changed = Some(entry);
            }
            if is_left_out(&entry.key) {
                continue;
            }
            let text = String::from_utf8(entry.value.to_vec());
            let text = text.map_err(|error| {
                crate::records::damaged(&entry.key, "record", format!("it is no text: {error}"))
            })?;
            entries.insert(entry.key.as_str().to_owned(), text);
        }
        let Some(cluster) = cluster else { return Ok(None) };
        Ok(Some(StateBackup {
            format: FORMAT,
            cluster: cluster.record.id,
            name: cluster.record.name,
            generation: cluster.record.generation,
            revision: changed_for_good(changed, snapshot.revision).0,
            taken_unix_ms: now_unix_ms,
            checksum: checksum(&entries),
            entries,
        }))
    }

    /// Makes this state of a backup, as one of `generation`. What an earlier attempt has left is replaced; a state that
    /// is whole is not. The cluster's own record comes last: before it is there the state is none.
    ///
    /// Errors besides the store's: `STATE_NOT_EMPTY`, `STATE_DAMAGED`, `STATE_TOO_NEW`.
    pub async fn restore(&self, backup: &StateBackup, generation: u32) -> Result<(), StateError> {
        let present = self.snapshot(&[Selection::prefix("")]).await?;
        let present: Vec<Key> = present.groups.into_iter().flatten().map(|entry| entry.key).collect();
        if present.contains(&StateKey::Cluster.key()) {
            return Err(Error::new(
                "STATE_NOT_EMPTY",
                "the cluster's state cannot be made anew here",
                "there is one already",
                "start the server: it uses that one",
            )
            .into());
        }
        self.erase(&present).await?;
        let restored = backup.restored(generation)?;
        let (cluster, others): (Vec<_>, Vec<_>) =
            restored.into_iter().partition(|(key, _)| *key == StateKey::Cluster.key());
        for batch in in_batches(others).into_iter().chain([cluster]) {
            let mut transaction = Transaction::new();
            for (key, value) in batch {
                transaction = transaction.put(&key, value);
            }
            self.commit(transaction).await?;
        }
        Ok(())
    }

    /// The names of the volumes whose copies were not compared in this generation of the state.
    pub async fn unsettled(&self, generation: u32) -> Result<Vec<String>, StateError> {
        let volumes = self.volumes().await?.into_values().map(|stored| stored.record);
        let waits =
            |record: &VolumeRecord| record.state == VolumeState::Ready && record.generation != generation;
        Ok(volumes.filter(waits).map(|record| record.name).collect())
    }

    /// Goes on without the drives of some nodes, which count as lost, and without what was written behind the end of some
    /// volumes, by their names: they had grown since the backup that the state was put back to. Volumes whose copies are to
    /// be compared get an owner that does so by what is decided now; those that were compared are left as they are.
    ///
    /// `Conflict` if something changes at the same time: what was decided by then counts, and may be decided again.
    pub async fn go_on_without(
        &self,
        nodes: &BTreeSet<NodeId>,
        growth_of: &BTreeSet<String>,
        generation: u32,
    ) -> Result<(), StateError> {
        for (drive, stored) in self.drives().await? {
            if nodes.contains(&stored.record.node) && stored.record.state != DriveState::Failed {
                let failed = DriveRecord { state: DriveState::Failed, ..stored.record };
                self.put(&StateKey::Drive(drive), Expected::ModifiedAt(stored.revision), failed).await?;
            }
        }
        for (volume, stored) in self.volumes().await? {
            let record = stored.record;
            if record.state == VolumeState::Ready && record.generation != generation {
                let is_growth_given_up = record.is_growth_given_up || growth_of.contains(&record.name);
                let anew =
                    VolumeRecord { owner: None, epoch: record.epoch.next(), is_growth_given_up, ..record };
                self.put(&StateKey::Volume(volume), Expected::ModifiedAt(stored.revision), anew).await?;
            }
        }
        Ok(())
    }

    /// Deletes the whole state: nobody who still uses it finds anything there.
    pub async fn clear(&self) -> Result<(), StateError> {
        let present = self.snapshot(&[Selection::prefix("")]).await?;
        let keys: Vec<Key> = present.groups.into_iter().flatten().map(|entry| entry.key).collect();
        // Without the cluster's own record the rest counts for nothing.
        let (cluster, others): (Vec<Key>, Vec<Key>) =
            keys.into_iter().partition(|key| *key == StateKey::Cluster.key());
        self.erase(&cluster).await?;
        self.erase(&others).await
    }

    /// Deletes keys, and makes nothing newer by that: the key that says how new the state is may be among them.
    async fn erase(&self, keys: &[Key]) -> Result<(), StateError> {
        for some in keys.chunks(TRANSACTION_OPERATIONS_MAX) {
            let delete = some.iter().fold(Transaction::new(), |transaction, key| transaction.delete(key));
            self.store().transact(delete).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "backup_tests.rs"]
mod tests;
