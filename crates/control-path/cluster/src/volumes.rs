//! Making, taking and deleting volumes.
//!
//! A volume is made in steps, since its copy sets may not fit into one transaction: first its
//! record (*creating*), its name and the room that it is promised, then the copy sets, then it is
//! *ready*. A creator that dies leaves a volume that anybody may finish, since the room by drive
//! says how many copies go where, or delete. Deleting goes the other way.

use std::collections::{BTreeMap, BTreeSet};

use spandrel_shared::name::validate_name;
use spandrel_shared::{
    BLOCK_BYTES, ConfigurationVersion, CopyId, DriveId, Epoch, Error, NodeId, SlabGeometry, SlabIndex,
    VolumeId,
};

use crate::copy_sets::{CopyBatch, CopySet, Layout, Member, SLABS_MAX, SLABS_PER_CHUNK, SlabChunk};
use crate::keys::{self, StateKey};
use crate::membership::{count_by_drive, room_of};
use crate::records::{
    Record, Stored, VolumeNameRecord, VolumeOwner, VolumeRecord, VolumeRoomRecord, VolumeSettings,
    VolumeState, damaged, decode, encode,
};
use crate::state::{ClusterState, PoolRoom, StateError, next_configuration, tombstone};
use crate::store::{
    Expected, Key, Operation, Selection, StateStore, TRANSACTION_BYTES_MAX, Transaction, Value,
};
use crate::vms::disk_of;

/// Operations that share a transaction, with room for the conditions and the volume's record.
const OPERATIONS_PER_TRANSACTION: usize = 120;

/// Bytes that share a transaction, with room for the same.
const BYTES_PER_TRANSACTION: usize = TRANSACTION_BYTES_MAX - (64 << 10);

/// A volume that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVolume {
    /// Its identity, made anew.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// Its size; a multiple of 4096.
    pub size_bytes: u64,
    /// Copies of each slab.
    pub copies: u8,
    /// In-sync copies that a write needs.
    pub write_copies_min: u8,
    /// The pool's slab size.
    pub slab_bytes: SlabGeometry,
    /// The node that should own it when all is well.
    pub preferred_owner: Option<NodeId>,
    /// The state's generation.
    pub generation: u32,
    /// The time of day.
    pub created_unix_ms: u64,
}

impl NewVolume {
    fn record(&self) -> VolumeRecord {
        VolumeRecord {
            name: self.name.clone(),
            size_bytes: self.size_bytes,
            grows_to_bytes: None,
            copies: self.copies,
            write_copies_min: self.write_copies_min,
            slab_bytes: self.slab_bytes,
            owner: None,
            preferred_owner: self.preferred_owner,
            writer: None,
            epoch: Epoch::ZERO,
            configuration: ConfigurationVersion(0),
            state: VolumeState::Creating,
            growth: None,
            is_growth_given_up: false,
            iops_limit: None,
            is_pinned: false,
            generation: self.generation,
            created_unix_ms: self.created_unix_ms,
        }
    }

    fn validate(&self) -> Result<(), Error> {
        validate_name("volume", &self.name)?;
        let slabs = self.slab_bytes.slabs_for(self.size_bytes);
        let why = if self.size_bytes == 0 || !self.size_bytes.is_multiple_of(BLOCK_BYTES as u64) {
            format!("its size of {} bytes is not a multiple of {BLOCK_BYTES} above zero", self.size_bytes)
        } else if slabs >= u64::from(SLABS_MAX) {
            format!("it would have {slabs} slabs, more than can be numbered")
        } else if self.copies == 0 || self.copies > 8 {
            format!("{} copies are not possible, 1 to 8 are", self.copies)
        } else if self.write_copies_min == 0 || self.write_copies_min > self.copies {
            format!("a write cannot need {} of {} copies", self.write_copies_min, self.copies)
        } else {
            return Ok(());
        };
        Err(Error::new(
            "VOLUME_INVALID",
            format!("the volume {} cannot be made", self.name),
            why,
            "choose other values",
        ))
    }
}

/// The copy sets of a mirrored volume from the drives of each slab, with identities for the copies.
pub fn mirror_sets<'a>(
    slabs: impl IntoIterator<Item = &'a [DriveId]>,
    batch: CopyBatch,
    copies: u8,
) -> Vec<CopySet> {
    mirror_sets_from(0, slabs, batch, copies)
}

/// The same for slabs that come behind others: the first of them is number `first`.
pub fn mirror_sets_from<'a>(
    first: u32,
    slabs: impl IntoIterator<Item = &'a [DriveId]>,
    batch: CopyBatch,
    copies: u8,
) -> Vec<CopySet> {
    let set = |(slab, drives): (u32, &[DriveId])| CopySet {
        layout: Layout::Copies { copies },
        members: drives
            .iter()
            .zip(0..)
            .map(|(drive, part)| mirror_member(*drive, batch, slab, part))
            .collect(),
    };
    (first..).zip(slabs).map(set).collect()
}

fn mirror_member(drive: DriveId, batch: CopyBatch, slab: u32, part: u8) -> Member {
    let copy: CopyId = batch.copy(SlabIndex(slab), part);
    Member { drive, copy, part, building: false }
}

impl<S: StateStore> ClusterState<S> {
    /// Makes a volume with its copies as in `sets`, one by slab, for which `room` must have room.
    ///
    /// After an unknown outcome it is called again with the same arguments, and goes on where it
    /// was. Errors besides the store's: `NAME_INVALID`, `VOLUME_INVALID`, `VOLUME_EXISTS`,
    /// `POOL_CHANGED` if a drive has no room; [`StateError::Conflict`] if room was promised since
    /// `room` was read.
    pub async fn create_volume(
        &self,
        new: &NewVolume,
        sets: &[CopySet],
        room: &PoolRoom,
    ) -> Result<Stored<VolumeRecord>, StateError> {
        self.begin_volume(new, sets, room).await?;
        self.fill_volume(new.id, |_, placed| {
            let own = |chunk: &SlabChunk| {
                let first = (chunk.chunk * SLABS_PER_CHUNK) as usize;
                sets.get(first..first + chunk.sets.len()) == Some(&chunk.sets)
            };
            if placed.values().all(own) { Ok(sets.to_vec()) } else { Err(finished_elsewhere(&new.name)) }
        })
        .await
    }

    /// The first step of [`ClusterState::create_volume`]: the record, the name and the room.
    pub async fn begin_volume(
        &self,
        new: &NewVolume,
        sets: &[CopySet],
        room: &PoolRoom,
    ) -> Result<(), StateError> {
        new.validate()?;
        if room.volumes.contains_key(&new.id) {
            // An earlier attempt was made after all: its own room is no longer free.
            return Ok(());
        }
        check_sets(new, sets, room)?;
        let [record_key, name_key, tombstone_key] = [
            StateKey::Volume(new.id),
            StateKey::VolumeName(new.name.clone()),
            StateKey::VolumeTombstone(new.id),
        ]
        .map(|key| key.key());
        let transaction = Transaction::new()
            .expect(&record_key, Expected::Absent)
            .expect(&name_key, Expected::Absent)
            .expect(&tombstone_key, Expected::Absent)
            .put(&record_key, encode(&new.record()))
            .put(&name_key, encode(&VolumeNameRecord { volume: new.id }))
            .put(&StateKey::VolumeRoom(new.id).key(), encode(&room_of(sets)));
        match self.commit(room.promise(transaction)).await {
            Err(StateError::Conflict) => {}
            result => return result.map(drop),
        }
        match self.volume_by_name(&new.name).await? {
            // An earlier attempt was made after all.
            Some(volume) if volume == new.id => Ok(()),
            Some(_) => Err(Error::new(
                "VOLUME_EXISTS",
                format!("the volume {} cannot be made", new.name),
                "there is one of that name",
                "choose another name",
            )
            .into()),
            None => Err(StateError::Conflict),
        }
    }

    /// Finishes a volume whose creator has died: places what is not placed yet on the drives where
    /// room was promised, with copies from `batch`.
    pub async fn resume_creation(
        &self,
        volume: VolumeId,
        batch: CopyBatch,
    ) -> Result<Stored<VolumeRecord>, StateError> {
        let membership = self.membership(volume).await?.ok_or_else(|| no_volume(volume))?;
        self.fill_volume(volume, |record, placed| {
            place_rest(record, placed, &membership.room, &membership.nodes, batch).ok_or_else(|| {
                let why = "the room that was promised does not suffice for it".to_owned();
                damaged(&StateKey::VolumeRoom(volume).key(), VolumeRoomRecord::KIND, why)
            })
        })
        .await
    }

    /// Writes the chunks that are not there and makes the volume ready. `all_sets` gives the copy
    /// sets of all slabs, in accordance with the chunks that are there.
    async fn fill_volume(
        &self,
        volume: VolumeId,
        all_sets: impl FnOnce(&VolumeRecord, &BTreeMap<u32, SlabChunk>) -> Result<Vec<CopySet>, Error>,
    ) -> Result<Stored<VolumeRecord>, StateError> {
        let record_key = StateKey::Volume(volume).key();
        let selections = [Selection::key(&record_key), Selection::Prefix(keys::slabs_of(volume))];
        let snapshot = self.snapshot(&selections).await?;
        let entry = snapshot.entry(0).ok_or_else(|| no_volume(volume))?;
        let stored: Stored<VolumeRecord> = decode(entry)?;
        match stored.record.state {
            VolumeState::Creating => {}
            VolumeState::Ready => return Ok(stored),
            VolumeState::Deleting => return Err(no_volume(volume).into()),
        }
        let mut placed = BTreeMap::new();
        for entry in &snapshot.groups[1] {
            let chunk: Stored<SlabChunk> = decode(entry)?;
            placed.insert(chunk.record.chunk, chunk.record);
        }
        let sets = all_sets(&stored.record, &placed)?;
        let unchanged = Expected::ModifiedAt(stored.revision);
        let mut writes = Vec::new();
        for (chunk, sets) in (0..).zip(sets.chunks(SLABS_PER_CHUNK as usize)) {
            if !placed.contains_key(&chunk) {
                let value = encode(&SlabChunk { chunk, sets: sets.to_vec() });
                writes.push((StateKey::Slabs(volume, chunk).key(), value));
            }
        }
        for batch in in_batches(writes) {
            let mut transaction = Transaction::new().expect(&record_key, unchanged.clone());
            for (key, value) in batch {
                transaction = transaction.expect(&key, Expected::Absent).put(&key, value);
            }
            self.commit(transaction).await?;
        }
        let configuration = next_configuration(stored.record.configuration);
        let record = VolumeRecord { state: VolumeState::Ready, configuration, ..stored.record };
        self.put(&StateKey::Volume(volume), unchanged, record).await
    }

    /// Takes a volume: `owner` becomes its owner under the next epoch, if the record is as `seen`.
    ///
    /// The copies must be read again, with [`ClusterState::membership`], before they are trusted.
    /// After an unknown outcome it is called again with the same arguments.
    pub async fn take_volume(
        &self,
        volume: VolumeId,
        seen: &Stored<VolumeRecord>,
        owner: VolumeOwner,
    ) -> Result<Stored<VolumeRecord>, StateError> {
        if seen.record.state != VolumeState::Ready {
            return Err(no_volume(volume).into());
        }
        let epoch = seen.record.epoch.next();
        let record = VolumeRecord { owner: Some(owner), epoch, ..seen.record.clone() };
        let key = StateKey::Volume(volume);
        match self.put(&key, Expected::ModifiedAt(seen.revision), record).await {
            Err(StateError::Conflict) => match self.get::<VolumeRecord>(&key).await? {
                // An earlier attempt of this process was made after all: nobody else writes this.
                Some(now) if now.record.owner == Some(owner) && now.record.epoch == epoch => Ok(now),
                _ => Err(StateError::Conflict),
            },
            result => result,
        }
    }

    /// Sets something of a volume.
    ///
    /// # Errors
    ///
    /// There is no such volume, what is wanted is refused, or the volume changes at the same time: then it may be tried again.
    pub async fn set_volume(
        &self,
        volume: VolumeId,
        change: impl FnOnce(VolumeSettings) -> Result<VolumeSettings, Error>,
    ) -> Result<(), StateError> {
        let key = StateKey::Volume(volume);
        let stored = self.get::<VolumeRecord>(&key).await?;
        let stored = stored.filter(|stored| stored.record.state == VolumeState::Ready);
        let Stored { record, revision } = stored.ok_or_else(|| no_volume(volume))?;
        let VolumeSettings { iops_limit, is_pinned } = change(record.settings())?;
        let changed = VolumeRecord { iops_limit, is_pinned, ..record };
        self.put(&key, Expected::ModifiedAt(revision), changed).await.map(drop)
    }

    /// Deletes a volume: from here on nobody can own it, and its name is free. Goes on where an
    /// earlier attempt was; no error if there is no such volume. `VOLUME_OF_VM` if it is the disk of a virtual machine.
    pub async fn delete_volume(&self, volume: VolumeId, now_unix_ms: u64) -> Result<(), StateError> {
        let key = StateKey::Volume(volume);
        let Some(mut stored) = self.get::<VolumeRecord>(&key).await? else { return Ok(()) };
        if stored.record.state != VolumeState::Deleting {
            let record = VolumeRecord {
                state: VolumeState::Deleting,
                owner: None,
                epoch: stored.record.epoch.next(),
                configuration: next_configuration(stored.record.configuration),
                ..stored.record.clone()
            };
            let transaction = Transaction::new()
                .expect(&key.key(), Expected::ModifiedAt(stored.revision))
                .expect(&StateKey::VmDisk(volume).key(), Expected::Absent)
                .put(&key.key(), encode(&record))
                .delete(&StateKey::VolumeName(record.name.clone()).key());
            let revision = match self.commit(transaction).await {
                Err(StateError::Conflict) => {
                    let vm = self.vm_of_disk(volume).await?;
                    let refused = vm.map(|vm| disk_of(&record.name, &vm, "is not deleted").into());
                    return Err(refused.unwrap_or(StateError::Conflict));
                }
                outcome => outcome?,
            };
            stored = Stored { record, revision };
        }
        let unchanged = Expected::ModifiedAt(stored.revision);
        let selections =
            [Selection::Prefix(keys::slabs_of(volume)), Selection::Prefix(keys::stale_of(volume))];
        let parts = self.snapshot(&selections).await?;
        let parts: Vec<Key> = parts.groups.into_iter().flatten().map(|entry| entry.key).collect();
        for batch in parts.chunks(OPERATIONS_PER_TRANSACTION) {
            let mut transaction = Transaction::new().expect(&key.key(), unchanged.clone());
            for part in batch {
                transaction = transaction.operation(Operation::Delete { key: part.clone() });
            }
            self.commit(transaction).await?;
        }
        let transaction = Transaction::new()
            .expect(&key.key(), unchanged)
            .delete(&key.key())
            .delete(&StateKey::VolumeRoom(volume).key())
            .delete(&StateKey::Scrub(volume).key())
            .put(&StateKey::VolumeTombstone(volume).key(), tombstone(&stored.record.name, now_unix_ms));
        self.commit(transaction).await.map(drop)
    }
}

/// Puts writes together that fit into one transaction.
pub(crate) fn in_batches(writes: Vec<(Key, Value)>) -> Vec<Vec<(Key, Value)>> {
    let mut batches: Vec<Vec<_>> = Vec::new();
    let mut bytes = 0;
    for (key, value) in writes {
        // A key is counted twice: in its condition too.
        let own = 2 * key.as_str().len() + value.len();
        let fits =
            |batch: &Vec<_>| batch.len() < OPERATIONS_PER_TRANSACTION && bytes + own <= BYTES_PER_TRANSACTION;
        match batches.last_mut() {
            Some(batch) if fits(batch) => batch.push((key, value)),
            _ => {
                bytes = 0;
                batches.push(vec![(key, value)]);
            }
        }
        bytes += own;
    }
    batches
}

/// Whether the copy sets of new slabs, from `first` on, have so many copies each, on different nodes.
pub(crate) fn check_new_sets(
    name: &str,
    first: u32,
    sets: &[CopySet],
    copies: u8,
    room: &PoolRoom,
) -> Result<(), Error> {
    for (set, slab) in sets.iter().zip(first..) {
        assert_eq!(set.members.len(), usize::from(copies), "slab {slab} has as many copies as asked for");
        assert!(set.members.iter().all(|member| !member.building), "a new slab's copies hold all there is");
        let nodes: BTreeSet<_> = set
            .members
            .iter()
            .filter_map(|member| room.drives.get(&member.drive))
            .map(|drive| drive.node)
            .collect();
        if nodes.len() != set.members.len() {
            let why = format!("the copies of slab {slab} would not be on {copies} nodes");
            return Err(not_as_planned(name, why));
        }
    }
    Ok(())
}

/// Whether the copy sets are those of such a volume and fit into the room.
fn check_sets(new: &NewVolume, sets: &[CopySet], room: &PoolRoom) -> Result<(), Error> {
    let slabs = new.slab_bytes.slabs_for(new.size_bytes);
    assert_eq!(sets.len() as u64, slabs, "a plan has a copy set for each slab");
    check_new_sets(&new.name, 0, sets, new.copies, room)?;
    for (drive, slabs) in count_by_drive(sets) {
        let free = room.free(drive);
        if u64::from(slabs) > free {
            let why = format!("drive {drive} has room for {free} slabs, not for {slabs}");
            return Err(not_as_planned(&new.name, why));
        }
    }
    Ok(())
}

fn not_as_planned(name: &str, why: String) -> Error {
    Error::new(
        "POOL_CHANGED",
        format!("the volume {name} cannot be placed as planned"),
        why,
        "try again: the pool has changed since the plan was made",
    )
}

/// Places the slabs of the chunks that are missing on the drives where room was promised and is
/// not used: for each slab on the nodes with the most of it left, which leaves no node with more
/// than one copy for each slab to come. `None` if the room does not suffice.
fn place_rest(
    record: &VolumeRecord,
    placed: &BTreeMap<u32, SlabChunk>,
    room: &VolumeRoomRecord,
    nodes: &BTreeMap<DriveId, NodeId>,
    batch: CopyBatch,
) -> Option<Vec<CopySet>> {
    let mut left = room.slabs.clone();
    for (drive, used) in count_by_drive(placed.values().flat_map(|chunk| &chunk.sets)) {
        let room = left.get_mut(&drive)?;
        *room = room.checked_sub(used)?;
    }
    let mut by_node: BTreeMap<NodeId, BTreeMap<DriveId, u32>> = BTreeMap::new();
    for (drive, slabs) in left {
        by_node.entry(*nodes.get(&drive)?).or_default().insert(drive, slabs);
    }
    let mut sets = Vec::with_capacity(record.slab_count() as usize);
    while sets.len() < record.slab_count() as usize {
        let slab = sets.len() as u32;
        if let Some(chunk) = placed.get(&(slab / SLABS_PER_CHUNK)) {
            sets.extend(chunk.sets.iter().cloned());
            continue;
        }
        let mut most: Vec<_> =
            by_node.iter().map(|(node, drives)| (drives.values().sum::<u32>(), *node)).collect();
        most.sort_by_key(|(slabs, node)| (std::cmp::Reverse(*slabs), *node));
        let mut members = Vec::with_capacity(usize::from(record.copies));
        for (part, (_, node)) in (0..record.copies).zip(&most) {
            let drives = by_node.get_mut(node)?;
            let (drive, left) = drives.iter_mut().max_by_key(|(drive, left)| (**left, **drive))?;
            *left = left.checked_sub(1)?;
            members.push(mirror_member(*drive, batch, slab, part));
        }
        if members.len() < usize::from(record.copies) {
            return None;
        }
        sets.push(CopySet { layout: Layout::Copies { copies: record.copies }, members });
    }
    Some(sets)
}

/// The error that another process took the creation for abandoned.
fn finished_elsewhere(name: &str) -> Error {
    Error::new(
        "POOL_CHANGED",
        format!("the volume {name} cannot be placed as planned"),
        "another node finishes its creation, since this one took so long",
        "wait until the volume is ready",
    )
}

fn no_volume(volume: VolumeId) -> Error {
    Error::new(
        "VOLUME_NOT_FOUND",
        format!("there is no volume {volume}"),
        "it was never made, is being deleted, or is not ready yet",
        "list the volumes",
    )
}

#[cfg(test)]
#[path = "volumes_tests.rs"]
mod tests;
