//! The cluster's state as records: reading them, changing them one by one, watching them.
//!
//! Each method that changes something makes one attempt, a transaction that compares what the
//! caller saw. [`StateError::Conflict`] means: read again. An unknown outcome
//! ([`StoreErrorKind::Unknown`]) is met by calling the method again with the same arguments, which
//! has the same effect as once, unless the method says otherwise: changes of a volume's membership
//! must be settled with [`ClusterState::settle_unknown`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use spandrel_shared::canary::{self, Bug};
use spandrel_shared::{ConfigurationVersion, DriveId, Error, NodeId, ShardId, VolumeId};

use crate::copy_sets::SlabChunk;
use crate::keys::{self, StateKey};
use crate::membership::VolumeMembership;
use crate::records::{
    AccessRecord, AliveRecord, AliveShards, AwakeRecord, ClusterRecord, DriveRecord, DriveRole, DriveState,
    MediaClass, NodeRecord, Record, RoomRecord, StaleRecord, Stored, TombstoneRecord, VolumeNameRecord,
    VolumeRecord, VolumeRoomRecord, VolumeState, WitnessRecord, damaged, decode, encode,
};
use crate::stamp::StateStamp;
use crate::store::{
    Entry, Expected, LeaseId, Operation, Outcome, Revision, Selection, Snapshot, StateStore, StoreError,
    StoreErrorKind, Transaction,
};

/// Why a change of the state was not made, or is not known to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateError {
    /// The store failed.
    Store(StoreError),
    /// Something changed since the caller read it. Nothing was done.
    Conflict,
    /// What was asked for is not possible. Nothing was done.
    Refused(Error),
}

impl StateError {
    /// Whether the change may be made or not.
    pub fn is_unknown(&self) -> bool {
        matches!(self, StateError::Store(error) if error.kind == StoreErrorKind::Unknown)
    }
}

impl From<StoreError> for StateError {
    fn from(error: StoreError) -> Self {
        StateError::Store(error)
    }
}

impl From<Error> for StateError {
    fn from(error: Error) -> Self {
        StateError::Refused(error)
    }
}

impl fmt::Display for StateError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateError::Store(error) => error.fmt(formatter),
            StateError::Conflict => formatter.write_str("the cluster state changed meanwhile"),
            StateError::Refused(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for StateError {}

/// The room of the pool, as the state showed it at one revision; by default of one without drives.
#[derive(Clone, Debug, Default)]
pub struct PoolRoom {
    /// What a promise of room compares: see [`RoomRecord`].
    pub(crate) guard: Option<Stored<RoomRecord>>,
    /// All drives.
    pub drives: BTreeMap<DriveId, DriveRecord>,
    /// What each volume was promised.
    pub volumes: BTreeMap<VolumeId, VolumeRoomRecord>,
    /// The sum of that, once somebody has asked for it: there can be thousands of volumes.
    promised: OnceLock<PromisedRoom>,
}

/// What all volumes together were promised on each drive, in copies of slabs.
#[derive(Clone, Debug, Default)]
pub struct PromisedRoom {
    by_drive: BTreeMap<DriveId, Promised>,
}

/// What was promised on a drive.
#[derive(Clone, Copy, Debug, Default)]
struct Promised {
    slabs: u64,
    leaving: u64,
}

impl PromisedRoom {
    /// The sum of what these volumes were promised.
    pub fn sum<'a>(volumes: impl IntoIterator<Item = &'a VolumeRoomRecord>) -> Self {
        let mut by_drive: BTreeMap<DriveId, Promised> = BTreeMap::new();
        for room in volumes {
            for (drive, slabs) in &room.slabs {
                by_drive.entry(*drive).or_default().slabs += u64::from(*slabs);
            }
            for (drive, slabs) in &room.leaving {
                by_drive.entry(*drive).or_default().leaving += u64::from(*slabs);
            }
        }
        Self { by_drive }
    }

    /// Copies that were promised on a drive.
    pub fn slabs(&self, drive: DriveId) -> u64 {
        self.by_drive.get(&drive).map_or(0, |promised| promised.slabs)
    }

    /// Those of them that give their room back when the copies are built that take their places.
    pub fn leaving(&self, drive: DriveId) -> u64 {
        self.by_drive.get(&drive).map_or(0, |promised| promised.leaving)
    }
}

impl PoolRoom {
    /// What all volumes together were promised.
    pub fn promised(&self) -> &PromisedRoom {
        self.promised.get_or_init(|| PromisedRoom::sum(self.volumes.values()))
    }

    /// Copies of slabs that may still be promised on a drive.
    pub fn free(&self, drive: DriveId) -> u64 {
        let most = self.drives.get(&drive).map_or(0, |record| u64::from(record.slabs_promised_max));
        most.saturating_sub(self.promised().slabs(drive))
    }

    /// Adds a promise of room to a transaction.
    pub(crate) fn promise(&self, transaction: Transaction) -> Transaction {
        let key = StateKey::Room.key();
        let promises = self.guard.as_ref().map_or(0, |guard| guard.record.promises) + 1;
        let expected = expected_of(self.guard.as_ref());
        transaction.expect(&key, expected).put(&key, encode(&RoomRecord { promises }))
    }
}

/// The condition that a record still is as it was read.
pub(crate) fn expected_of<T>(stored: Option<&Stored<T>>) -> Expected {
    stored.map_or(Expected::Absent, |stored| Expected::ModifiedAt(stored.revision))
}

/// The revision of the last change for good of a state that was read at the store's revision `read_at`. The store's
/// own also rises by itself, when leases expire, and an older state would be taken for a newer one after a while.
pub(crate) fn changed_for_good(changed: Option<&Entry>, read_at: Revision) -> Revision {
    // Without the key no version that knows it has changed anything, and drives remember the store's revision.
    changed.map_or(read_at, |entry| entry.modified)
}

/// The cluster's state. Cheap to clone.
#[derive(Clone)]
pub struct ClusterState<S: StateStore> {
    store: S,
}

impl<S: StateStore> ClusterState<S> {
    /// The state in `store`.
    pub fn new(store: S) -> Self {
        Self { store }
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    pub(crate) async fn snapshot(&self, selections: &[Selection]) -> Result<Snapshot, StateError> {
        Ok(self.store.read(selections).await?)
    }

    /// The revision of a transaction that was committed. What it changes for good makes the state newer: see
    /// [`Self::stamp`].
    pub(crate) async fn commit(&self, transaction: Transaction) -> Result<Revision, StateError> {
        let vanishes = |operation: &Operation| matches!(operation, Operation::Put { lease: Some(_), .. });
        let transaction = match transaction.operations.iter().all(vanishes) {
            true => transaction,
            false => transaction.put(&StateKey::Changed.key(), Vec::new()),
        };
        match self.store.transact(transaction).await? {
            Outcome::Committed { revision } => Ok(revision),
            Outcome::Conflict { .. } => Err(StateError::Conflict),
        }
    }

    /// The record at a key.
    pub async fn get<T: Record>(&self, key: &StateKey) -> Result<Option<Stored<T>>, StateError> {
        let snapshot = self.snapshot(&[Selection::key(&key.key())]).await?;
        Ok(snapshot.entry(0).map(decode).transpose()?)
    }

    /// Sets a record, if the key is as expected.
    pub async fn put<T: Record>(
        &self,
        key: &StateKey,
        expected: Expected,
        record: T,
    ) -> Result<Stored<T>, StateError> {
        let key = key.key();
        let transaction = Transaction::new().expect(&key, expected).put(&key, encode(&record));
        let revision = self.commit(transaction).await?;
        Ok(Stored { record, revision })
    }

    /// The cluster itself; `None` before it was made.
    pub async fn cluster(&self) -> Result<Option<Stored<ClusterRecord>>, StateError> {
        self.get(&StateKey::Cluster).await
    }

    /// Makes the cluster. Refused with `CLUSTER_EXISTS` if the state holds another one.
    pub async fn create_cluster(&self, record: ClusterRecord) -> Result<Stored<ClusterRecord>, StateError> {
        match self.put(&StateKey::Cluster, Expected::Absent, record.clone()).await {
            Err(StateError::Conflict) => match self.cluster().await? {
                Some(stored) if stored.record.id == record.id => Ok(stored),
                Some(stored) => Err(Error::new(
                    "CLUSTER_EXISTS",
                    format!("the cluster {} cannot be made here", record.name),
                    format!("this state holds the cluster {} ({})", stored.record.name, stored.record.id),
                    "join that cluster, or give the new one a state of its own",
                )
                .into()),
                None => Err(StateError::Conflict),
            },
            result => result,
        }
    }

    /// How new the state is: what drives remember, and are compared with. Its revision is that of the last change for
    /// good.
    pub async fn stamp(&self) -> Result<Option<StateStamp>, StateError> {
        let keys = [StateKey::Cluster.key(), StateKey::Changed.key()];
        let snapshot = self.snapshot(&keys.each_ref().map(Selection::key)).await?;
        let cluster: Option<Stored<ClusterRecord>> = snapshot.entry(0).map(decode).transpose()?;
        let revision = changed_for_good(snapshot.entry(1), snapshot.revision);
        Ok(cluster.map(|cluster| StateStamp::new(cluster.record.generation, revision)))
    }

    /// All nodes.
    pub async fn nodes(&self) -> Result<BTreeMap<NodeId, Stored<NodeRecord>>, StateError> {
        self.list(keys::NODES).await
    }

    /// All witnesses.
    pub async fn witnesses(&self) -> Result<BTreeMap<NodeId, Stored<WitnessRecord>>, StateError> {
        self.list(keys::WITNESSES).await
    }

    /// Says that a server runs that could help to keep the state, for as long as `lease` lives.
    pub async fn stay_awake(&self, server: NodeId, lease: LeaseId) -> Result<(), StateError> {
        let key = StateKey::Awake(server).key();
        self.commit(Transaction::new().put_leased(&key, encode(&AwakeRecord {}), lease)).await.map(drop)
    }

    /// The servers that run and could help to keep the state.
    pub async fn awake(&self) -> Result<BTreeSet<NodeId>, StateError> {
        let awake: BTreeMap<NodeId, Stored<AwakeRecord>> = self.list(keys::AWAKE).await?;
        Ok(awake.into_keys().collect())
    }

    /// The nodes that have left the cluster.
    pub async fn removed_nodes(&self) -> Result<BTreeSet<NodeId>, StateError> {
        let removed: BTreeMap<NodeId, Stored<TombstoneRecord>> = self.list(keys::NODE_TOMBSTONES).await?;
        Ok(removed.into_keys().collect())
    }

    /// Who may use the admin API, by the digests of their secrets.
    pub async fn access(&self) -> Result<BTreeMap<String, Stored<AccessRecord>>, StateError> {
        self.list(keys::ACCESS).await
    }

    /// Removes the record at a key, whatever it is, if there is one.
    pub async fn remove(&self, key: &StateKey) -> Result<(), StateError> {
        self.commit(Transaction::new().delete(&key.key())).await.map(drop)
    }

    /// The shards of the nodes whose processes run, as far as their entries have not expired.
    pub async fn alive(&self) -> Result<AliveShards, StateError> {
        self.list(keys::ALIVE).await
    }

    /// All drives.
    pub async fn drives(&self) -> Result<BTreeMap<DriveId, Stored<DriveRecord>>, StateError> {
        self.list(keys::DRIVES).await
    }

    /// All volumes.
    pub async fn volumes(&self) -> Result<BTreeMap<VolumeId, Stored<VolumeRecord>>, StateError> {
        self.list(keys::VOLUMES).await
    }

    pub(crate) async fn list<I: FromStr + Ord, T: Record>(
        &self,
        prefix: &str,
    ) -> Result<BTreeMap<I, Stored<T>>, StateError> {
        let snapshot = self.snapshot(&[Selection::prefix(prefix)]).await?;
        Ok(decode_group(prefix, &snapshot.groups[0])?)
    }

    /// Says that a shard of a node's process runs and which drives it can use, for as long as `lease` lives.
    pub async fn announce(
        &self,
        shard: ShardId,
        alive: &AliveRecord,
        lease: LeaseId,
    ) -> Result<(), StateError> {
        let key = StateKey::Alive(shard).key();
        let node = StateKey::Node(shard.node).key();
        let known = self.snapshot(&[Selection::key(&node)]).await?;
        let Some(known) = known.entry(0) else { return Err(unknown_node(&node.to_string()).into()) };
        let transaction = Transaction::new().expect(&node, Expected::ModifiedAt(known.modified)).put_leased(
            &key,
            encode(alive),
            lease,
        );
        self.commit(transaction).await.map(drop)
    }

    /// The cache drives of all nodes.
    pub async fn cache_drives(&self) -> Result<BTreeMap<DriveId, Stored<DriveRecord>>, StateError> {
        self.list(keys::CACHES).await
    }

    /// Makes a drive part of the pool. One that is part of it already stays as it is. Refused with `DRIVE_REMOVED` if it
    /// was taken out of it: others have taken the places of all that is on it.
    pub async fn add_drive(
        &self,
        drive: DriveId,
        record: DriveRecord,
    ) -> Result<Stored<DriveRecord>, StateError> {
        let key = StateKey::drive(drive, record.role).key();
        let tombstone = StateKey::DriveTombstone(drive).key();
        let known = self.snapshot(&[Selection::key(&key), Selection::key(&tombstone)]).await?;
        if known.entry(1).is_some() {
            return Err(Error::new(
                "DRIVE_REMOVED",
                format!("drive {drive} cannot be used"),
                "it was taken out of the pool",
                "wipe it with `spandrel drive clean`; then it can be added as a new one",
            )
            .into());
        }
        if let Some(entry) = known.entry(0) {
            return Ok(decode(entry)?);
        }
        let transaction = Transaction::new()
            .expect(&key, Expected::Absent)
            .expect(&tombstone, Expected::Absent)
            .put(&key, encode(&record));
        let revision = self.commit(transaction).await?;
        Ok(Stored { record, revision })
    }

    /// Whether a drive was taken out of the pool.
    pub async fn is_drive_removed(&self, drive: DriveId) -> Result<bool, StateError> {
        Ok(self.removed_drive_name(drive).await?.is_some())
    }

    /// What the drives were called that were taken out of the pool.
    pub async fn removed_drive_names(&self) -> Result<BTreeSet<String>, StateError> {
        let tombstones = self.list::<DriveId, TombstoneRecord>(keys::DRIVE_TOMBSTONES).await?;
        Ok(tombstones.into_values().map(|stored| stored.record.name).collect())
    }

    /// What a drive was called that was taken out of the pool; none if it was not.
    pub async fn removed_drive_name(&self, drive: DriveId) -> Result<Option<String>, StateError> {
        let tombstone = self.get::<TombstoneRecord>(&StateKey::DriveTombstone(drive)).await?;
        Ok(tombstone.map(|stored| stored.record.name))
    }

    /// Takes note that a drive was attached in `node` with an attach number that was raised on the
    /// drive first. Refused with `DRIVE_IS_OLD` if the state knows a higher one: the drive's content
    /// is an old image.
    pub async fn note_attach(
        &self,
        drive: DriveId,
        role: DriveRole,
        node: NodeId,
        attach_number: u64,
    ) -> Result<Stored<DriveRecord>, StateError> {
        let key = StateKey::drive(drive, role);
        let stored: Stored<DriveRecord> = self.get(&key).await?.ok_or_else(|| unknown_drive(drive))?;
        let known = stored.record.attach_number;
        if attach_number < known && !canary::is_planted(Bug::TrustOldImage) {
            return Err(Error::new(
                "DRIVE_IS_OLD",
                format!("drive {drive} cannot be used"),
                format!("by what stands on it this is attach {attach_number}, but the cluster has seen attach {known}: its content is an old image"),
                "attach the drive itself, or remove it from the pool and add it again, empty",
            )
            .into());
        }
        if attach_number == known && stored.record.node == node {
            return Ok(stored);
        }
        let record = DriveRecord { node, attach_number, ..stored.record };
        self.put(&key, Expected::ModifiedAt(stored.revision), record).await
    }

    /// Notes what a drive is called, and what it is made of, as far as that is known.
    pub async fn describe_drive(
        &self,
        drive: DriveId,
        role: DriveRole,
        name: Option<&str>,
        media: Option<MediaClass>,
    ) -> Result<(), StateError> {
        let key = StateKey::drive(drive, role);
        loop {
            let stored: Stored<DriveRecord> = self.get(&key).await?.ok_or_else(|| unknown_drive(drive))?;
            let mut record = stored.record.clone();
            record.name = name.map(str::to_owned).or(record.name);
            record.media = media.or(record.media);
            if record == stored.record {
                return Ok(());
            }
            match self.put(&key, Expected::ModifiedAt(stored.revision), record).await {
                Err(StateError::Conflict) => {}
                put => return put.map(|_| ()),
            }
        }
    }

    /// Decides what a drive, of either role, is used for from now on. Refused with `DRIVE_FAILED` for one that was given up for lost.
    ///
    /// It is written even if the state says so already: a former decision that nobody answered may still be on its way,
    /// and is not to come behind this one.
    pub async fn decide_drive(&self, drive: DriveId, state: DriveState) -> Result<(), StateError> {
        let mut key = StateKey::Drive(drive);
        let mut stored: Option<Stored<DriveRecord>> = self.get(&key).await?;
        if stored.is_none() {
            key = StateKey::CacheDrive(drive);
            stored = self.get(&key).await?;
        }
        let stored = stored.ok_or_else(|| unknown_drive(drive))?;
        if stored.record.state == DriveState::Failed && state != DriveState::Failed {
            return Err(Error::new(
                "DRIVE_FAILED",
                format!("drive {drive} cannot be used again"),
                "it was given up for lost, and what was written since may not be on it",
                "wipe it and add it as a new one",
            )
            .into());
        }
        let record = DriveRecord { state, ..stored.record };
        self.put(&key, Expected::ModifiedAt(stored.revision), record).await.map(|_| ())
    }

    /// The room of the pool.
    pub async fn pool_room(&self) -> Result<PoolRoom, StateError> {
        let selections = [
            Selection::key(&StateKey::Room.key()),
            Selection::prefix(keys::DRIVES),
            Selection::prefix(keys::ROOMS),
        ];
        let snapshot = self.snapshot(&selections).await?;
        let drives: BTreeMap<_, Stored<DriveRecord>> = decode_group(keys::DRIVES, &snapshot.groups[1])?;
        let volumes: BTreeMap<_, Stored<VolumeRoomRecord>> = decode_group(keys::ROOMS, &snapshot.groups[2])?;
        Ok(PoolRoom {
            guard: snapshot.entry(0).map(decode).transpose()?,
            drives: drives.into_iter().map(|(drive, stored)| (drive, stored.record)).collect(),
            volumes: volumes.into_iter().map(|(volume, stored)| (volume, stored.record)).collect(),
            promised: OnceLock::new(),
        })
    }

    /// Removes a drive of which nothing is promised any more, or with `dry_run` only says whether that can be done.
    /// Refused with `DRIVE_HOLDS_COPIES` otherwise.
    pub async fn remove_drive(
        &self,
        drive: DriveId,
        name: &str,
        now_unix_ms: u64,
        dry_run: bool,
    ) -> Result<(), StateError> {
        let room = self.pool_room().await?;
        let Some(stored) = self.get::<DriveRecord>(&StateKey::Drive(drive)).await? else { return Ok(()) };
        let promised = room.promised().slabs(drive);
        if promised > 0 {
            return Err(Error::new(
                "DRIVE_HOLDS_COPIES",
                format!("drive {name} cannot be removed"),
                format!("{promised} copies of slabs are on it"),
                "retire the drive and wait until its copies are built elsewhere",
            )
            .into());
        }
        if dry_run {
            return Ok(());
        }
        let key = StateKey::Drive(drive).key();
        let transaction = Transaction::new()
            .expect(&key, Expected::ModifiedAt(stored.revision))
            .delete(&key)
            .put(&StateKey::DriveTombstone(drive).key(), tombstone(name, now_unix_ms));
        // So that no promise that is made meanwhile counts on it.
        self.commit(room.promise(transaction)).await.map(drop)
    }

    /// Takes a cache drive out of the cluster that is as it was seen: `Conflict` if it was attached, or decided of, since
    /// then. What it holds alone is given up: its node does without it from then on. The outcome may be unknown as with every
    /// transaction.
    pub async fn remove_cache_drive(
        &self,
        drive: DriveId,
        seen: &Stored<DriveRecord>,
        name: &str,
        now_unix_ms: u64,
    ) -> Result<(), StateError> {
        let key = StateKey::CacheDrive(drive).key();
        let transaction = Transaction::new()
            .expect(&key, Expected::ModifiedAt(seen.revision))
            .delete(&key)
            .put(&StateKey::DriveTombstone(drive).key(), tombstone(name, now_unix_ms));
        self.commit(transaction).await.map(drop)
    }

    /// What is known of a cache drive. `None` if it is no part of the cluster, or not any more.
    pub async fn cache_drive(&self, drive: DriveId) -> Result<Option<Stored<DriveRecord>>, StateError> {
        self.get(&StateKey::CacheDrive(drive)).await
    }

    /// The volume of a name.
    pub async fn volume_by_name(&self, name: &str) -> Result<Option<VolumeId>, StateError> {
        let stored: Option<Stored<VolumeNameRecord>> =
            self.get(&StateKey::VolumeName(name.to_owned())).await?;
        Ok(stored.map(|stored| stored.record.volume))
    }

    /// A volume with its copies and marks. `None` if there is no such volume.
    pub async fn membership(&self, volume: VolumeId) -> Result<Option<VolumeMembership>, StateError> {
        let snapshot = self.snapshot(&VolumeMembership::selections(volume)).await?;
        Ok(VolumeMembership::decode(volume, &snapshot)?)
    }
}

impl VolumeMembership {
    /// What of the state tells of a volume, for [`Self::decode`].
    pub fn selections(volume: VolumeId) -> [Selection; 5] {
        [
            Selection::key(&StateKey::Volume(volume).key()),
            Selection::Prefix(keys::slabs_of(volume)),
            Selection::Prefix(keys::stale_of(volume)),
            Selection::key(&StateKey::VolumeRoom(volume).key()),
            Selection::prefix(keys::DRIVES),
        ]
    }

    /// The volume that a snapshot of [`Self::selections`] shows. `None` if there is no such volume.
    ///
    /// # Errors
    ///
    /// `STATE_DAMAGED` and `STATE_TOO_NEW`.
    pub fn decode(volume: VolumeId, snapshot: &Snapshot) -> Result<Option<Self>, Error> {
        let Some(entry) = snapshot.entry(0) else { return Ok(None) };
        let stored: Stored<VolumeRecord> = decode(entry)?;
        let mut sets = Vec::new();
        for (entry, number) in snapshot.groups[1].iter().zip(0..) {
            let chunk: Stored<SlabChunk> = decode(entry)?;
            if chunk.record.chunk != number && stored.record.state == VolumeState::Ready {
                return Err(damaged(&entry.key, SlabChunk::KIND, format!("chunk {number} is missing")));
            }
            sets.extend(chunk.record.sets);
        }
        let slabs = stored.record.slab_count_grown() as usize;
        if stored.record.state == VolumeState::Ready && sets.len() != slabs {
            let why = format!("{} of {slabs} slabs have copies", sets.len());
            return Err(damaged(&entry.key, VolumeRecord::KIND, why));
        }
        let to_come = sets.split_off(sets.len().min(stored.record.slab_count() as usize));
        let marks: BTreeMap<_, Stored<StaleRecord>> =
            decode_group(&keys::stale_of(volume), &snapshot.groups[2])?;
        let room: Option<Stored<VolumeRoomRecord>> = snapshot.entry(3).map(decode).transpose()?;
        let drives: BTreeMap<_, Stored<DriveRecord>> = decode_group(keys::DRIVES, &snapshot.groups[4])?;
        Ok(Some(Self {
            volume,
            record: stored.record,
            revision: stored.revision,
            sets,
            to_come,
            marks: marks.into_iter().map(|(drive, mark)| (drive, mark.record.since)).collect(),
            room: room.map(|room| room.record).unwrap_or_default(),
            lost: drives
                .iter()
                .filter(|(_, stored)| stored.record.state == DriveState::Failed)
                .map(|(drive, _)| *drive)
                .collect(),
            nodes: drives.into_iter().map(|(drive, stored)| (drive, stored.record.node)).collect(),
            read_at: snapshot.revision,
        }))
    }
}

/// The records below a prefix, by what follows it in their keys.
pub(crate) fn decode_group<I: FromStr + Ord, T: Record>(
    prefix: &str,
    entries: &[Entry],
) -> Result<BTreeMap<I, Stored<T>>, Error> {
    let mut records = BTreeMap::new();
    for entry in entries {
        let identity = entry.key.as_str()[prefix.len()..].parse();
        let identity = identity
            .map_err(|_| damaged(&entry.key, T::KIND, "its key does not end in an identity".to_owned()))?;
        records.insert(identity, decode(entry)?);
    }
    Ok(records)
}

pub(crate) fn tombstone(name: &str, now_unix_ms: u64) -> crate::store::Value {
    encode(&TombstoneRecord { name: name.to_owned(), deleted_unix_ms: now_unix_ms })
}

/// The version behind another one.
pub(crate) fn next_configuration(configuration: ConfigurationVersion) -> ConfigurationVersion {
    ConfigurationVersion(configuration.0 + 1)
}

pub(crate) fn unknown_node(node: &str) -> Error {
    Error::new(
        "NODE_UNKNOWN",
        format!("{node} does not belong to this cluster"),
        "it never joined, or it was removed",
        "join the node to the cluster",
    )
}

fn unknown_drive(drive: DriveId) -> Error {
    Error::new(
        "DRIVE_UNKNOWN",
        format!("drive {drive} does not belong to the pool"),
        "it was never added, or it was removed",
        "add the drive to the pool",
    )
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
