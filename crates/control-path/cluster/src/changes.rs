//! Changes of a volume's membership, made by its owner.
//!
//! Each is one transaction that compares the revision of the volume's record, which stands for its
//! epoch and configuration version and for every copy set and mark, and raises the configuration
//! version. A change whose outcome is unknown is not settled by reading: it may still be applied
//! after the read. It is settled with [`ClusterState::settle_unknown`], and until then a promotion
//! counts as in sync and a mark as not made.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spandrel_platform::Platform;
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{DriveId, Error, SlabIndex, Version};

use crate::copy_sets::{CopySet, Member, SLABS_PER_CHUNK, SlabChunk, chunk_of};
use crate::keys::StateKey;
use crate::membership::{VolumeMembership, check_set_change, last_copy_error, last_copy_lost, room_of};
use crate::records::{StaleRecord, VolumeOwner, VolumeRecord, VolumeWriter, encode};
use crate::state::{ClusterState, PoolRoom, StateError, next_configuration};
use crate::store::{Expected, StateStore, StoreErrorKind, Transaction};

/// How long [`ClusterState::settle_unknown`] waits before it tries again: from the least, doubled
/// with each attempt, to the most.
const SETTLE_RETRY_MIN: Duration = Duration::from_millis(50);
const SETTLE_RETRY_MAX: Duration = Duration::from_secs(1);

impl<S: StateStore> ClusterState<S> {
    /// Marks the copies on drives stale, each since the version at or below which it is complete.
    /// A drive that is marked keeps the lower version.
    ///
    /// Refused with `LAST_COPY` if a slab would lose its last in-sync copy, with `NOT_OWNER` if
    /// `seen` shows another owner. Whether this node may mark at all is [`crate::majority`]'s. More
    /// than 120 drives are marked in several calls, each with what the one before returned.
    pub async fn mark_stale(
        &self,
        owner: VolumeOwner,
        seen: &VolumeMembership,
        marks: &BTreeMap<DriveId, Version>,
    ) -> Result<VolumeMembership, StateError> {
        check_owner(owner, seen)?;
        let drives: BTreeSet<_> = marks.keys().copied().collect();
        if let Some(slab) = last_copy_lost(&seen.sets, &seen.marks, &drives)
            && !canary::is_planted(Bug::DropLastCopy)
        {
            return Err(last_copy_error(&seen.record.name, slab).into());
        }
        let mut after = raised(seen);
        let mut transaction = change_record(seen, &after.record);
        for (drive, since) in marks {
            let since = seen.marks.get(drive).map_or(*since, |former| *since.min(former));
            after.marks.insert(*drive, since);
            let key = StateKey::Stale(seen.volume, *drive).key();
            transaction = transaction.put(&key, encode(&StaleRecord { since }));
        }
        self.commit_change(transaction, after).await
    }

    /// Takes the stale marks from drives whose copies hold every answered write again.
    pub async fn promote(
        &self,
        owner: VolumeOwner,
        seen: &VolumeMembership,
        drives: &BTreeSet<DriveId>,
    ) -> Result<VolumeMembership, StateError> {
        check_owner(owner, seen)?;
        let mut after = raised(seen);
        let mut transaction = change_record(seen, &after.record);
        for drive in drives {
            after.marks.remove(drive);
            transaction = transaction.delete(&StateKey::Stale(seen.volume, *drive).key());
        }
        self.commit_change(transaction, after).await
    }

    /// Says which copies hold every answered write in this `generation` of the state, after all of them were compared:
    /// those on `stale` drives may lack any, all others lack none, whatever marks there were.
    ///
    /// Refused with `LAST_COPY` if a slab would have no in-sync copy, with `NOT_OWNER` if `seen` shows another owner.
    pub async fn settle_copies(
        &self,
        owner: VolumeOwner,
        seen: &VolumeMembership,
        stale: &BTreeSet<DriveId>,
        generation: u32,
    ) -> Result<VolumeMembership, StateError> {
        check_owner(owner, seen)?;
        if let Some(slab) = last_copy_lost(&seen.sets, &BTreeMap::<DriveId, Version>::new(), stale) {
            return Err(last_copy_error(&seen.record.name, slab).into());
        }
        let mut after = raised(seen);
        after.record.generation = generation;
        after.record.is_growth_given_up = false;
        after.marks = stale.iter().map(|drive| (*drive, Version::ZERO)).collect();
        let mut transaction = change_record(seen, &after.record);
        for drive in seen.marks.keys().filter(|drive| !stale.contains(drive)) {
            transaction = transaction.delete(&StateKey::Stale(seen.volume, *drive).key());
        }
        for drive in stale {
            let key = StateKey::Stale(seen.volume, *drive).key();
            transaction = transaction.put(&key, encode(&StaleRecord { since: Version::ZERO }));
        }
        self.commit_change(transaction, after).await
    }

    /// Lets another front-end write, or none. Whether the former one may be replaced is for the
    /// owner to know.
    ///
    /// Why this is in the state: a front-end that lost its connection repeats its last writes when
    /// it comes back, and must not overwrite what another one has written since, whoever owns the
    /// volume by then.
    pub async fn set_writer(
        &self,
        owner: VolumeOwner,
        seen: &VolumeMembership,
        writer: Option<VolumeWriter>,
    ) -> Result<VolumeMembership, StateError> {
        check_owner(owner, seen)?;
        let mut after = raised(seen);
        after.record.writer = writer;
        let transaction = change_record(seen, &after.record);
        self.commit_change(transaction, after).await
    }

    /// Replaces the copy sets of some slabs: adds copies that are to be built, promotes those that
    /// are built (by taking their flag), removes some. The room by drive follows; if any drive gets
    /// more copies, `room` must have room for them, and nobody may have been promised any since it
    /// was read. The mark of a drive on which no copy stands any more goes, too.
    ///
    /// The changes must fit into one transaction: some 30 chunks. Refused with `LAST_COPY`,
    /// `COPY_SET_INVALID`, `NOT_OWNER` or `POOL_CHANGED`.
    pub async fn change_copies(
        &self,
        owner: VolumeOwner,
        seen: &VolumeMembership,
        changes: &BTreeMap<SlabIndex, CopySet>,
        room: &PoolRoom,
    ) -> Result<VolumeMembership, StateError> {
        check_owner(owner, seen)?;
        let mut after = raised(seen);
        for (slab, set) in changes {
            check_set_change(seen, *slab, set)?;
            after.sets[slab.0 as usize] = set.clone();
        }
        let mut transaction = change_record(seen, &after.record);
        let chunks: BTreeSet<_> = changes.keys().map(|slab| chunk_of(*slab)).collect();
        for chunk in chunks {
            transaction = put_chunk(transaction, &after, chunk);
        }
        let standing: BTreeSet<DriveId> = standing_members(&after.sets).map(|member| member.drive).collect();
        for drive in seen.marks.keys().filter(|drive| !standing.contains(drive)) {
            after.marks.remove(drive);
            transaction = transaction.delete(&StateKey::Stale(seen.volume, *drive).key());
        }
        transaction = put_room(transaction, seen, &mut after, room)?;
        self.commit_change(transaction, after).await
    }

    /// Finds out what became of a change of membership whose outcome is unknown, or makes sure that
    /// nothing will: a transaction that compares the same revision and raises the configuration
    /// version, repeated until its own outcome is known. Returns what the state says then, which no
    /// earlier change can alter any more; the caller looks whether its change is in it. `None` if
    /// the volume is gone.
    ///
    /// `seen` must be what the unknown change was made with. Waits for as long as the store cannot
    /// be reached.
    pub async fn settle_unknown(
        &self,
        platform: &impl Platform,
        seen: &VolumeMembership,
    ) -> Result<Option<VolumeMembership>, StateError> {
        let after = raised(seen);
        let mut wait = SETTLE_RETRY_MIN;
        loop {
            let attempt = self.commit_change(change_record(seen, &after.record), after.clone()).await;
            let result = match attempt {
                // The record is no longer as it was compared, and revisions never come back.
                Err(StateError::Conflict) => self.membership(seen.volume).await,
                result => result.map(Some),
            };
            match result {
                Err(StateError::Store(error))
                    if matches!(error.kind, StoreErrorKind::Unknown | StoreErrorKind::Unavailable) =>
                {
                    platform.sleep(wait).await;
                    wait = (wait * 2).min(SETTLE_RETRY_MAX);
                }
                result => {
                    witness::reached(Rare::OutcomeSettled);
                    return result;
                }
            }
        }
    }

    pub(crate) async fn commit_change(
        &self,
        transaction: Transaction,
        mut after: VolumeMembership,
    ) -> Result<VolumeMembership, StateError> {
        let revision = self.commit(transaction).await?;
        (after.revision, after.read_at) = (revision, revision);
        Ok(after)
    }
}

/// The members that are not being built.
fn standing_members(sets: &[CopySet]) -> impl Iterator<Item = &Member> {
    sets.iter().flat_map(|set| &set.members).filter(|member| !member.building)
}

/// The membership under the next configuration version.
pub(crate) fn raised(seen: &VolumeMembership) -> VolumeMembership {
    let mut after = seen.clone();
    after.record.configuration = next_configuration(seen.record.configuration);
    after
}

/// A transaction that changes the volume's record, if it is as it was seen.
pub(crate) fn change_record(seen: &VolumeMembership, record: &VolumeRecord) -> Transaction {
    let key = StateKey::Volume(seen.volume).key();
    Transaction::new().expect(&key, Expected::ModifiedAt(seen.revision)).put(&key, encode(record))
}

/// Writes a chunk of the copy sets as they are `after` a change, those that are to come among them.
pub(crate) fn put_chunk(transaction: Transaction, after: &VolumeMembership, chunk: u32) -> Transaction {
    let first = (chunk * SLABS_PER_CHUNK) as usize;
    let sets = after.all_sets().skip(first).take(SLABS_PER_CHUNK as usize).cloned().collect();
    let key = StateKey::Slabs(after.volume, chunk).key();
    transaction.put(&key, encode(&SlabChunk { chunk, sets }))
}

/// Has the room by drive follow the copy sets. An error if `room` lacks what any drive gets more of.
pub(crate) fn put_room(
    transaction: Transaction,
    seen: &VolumeMembership,
    after: &mut VolumeMembership,
    room: &PoolRoom,
) -> Result<Transaction, Error> {
    after.room = room_of(after.all_sets());
    if after.room == seen.room {
        return Ok(transaction);
    }
    let key = StateKey::VolumeRoom(seen.volume).key();
    let transaction = transaction.put(&key, encode(&after.room));
    Ok(if needs_room(seen, after, room)? { room.promise(transaction) } else { transaction })
}

pub(crate) fn check_owner(owner: VolumeOwner, seen: &VolumeMembership) -> Result<(), Error> {
    if seen.record.owner == Some(owner) {
        return Ok(());
    }
    let now = match seen.record.owner {
        Some(other) => {
            format!("the cluster's state names node {} under epoch {}", other.shard, seen.record.epoch)
        }
        None => "the cluster's state names no owner".to_owned(),
    };
    Err(Error::new(
        "NOT_OWNER",
        format!("copies of volume {} cannot be changed by node {}", seen.record.name, owner.shard),
        now,
        "ask the owner",
    ))
}

/// Whether any drive gets more copies than before. An error if it has no room for them.
fn needs_room(seen: &VolumeMembership, after: &VolumeMembership, room: &PoolRoom) -> Result<bool, Error> {
    let mut grows = false;
    for (drive, slabs) in &after.room.slabs {
        let more = slabs.saturating_sub(seen.room.slabs.get(drive).copied().unwrap_or(0));
        grows |= more > 0;
        let free = room.free(*drive);
        if u64::from(more) > free {
            return Err(Error::new(
                "POOL_CHANGED",
                format!("copies of volume {} cannot be built on drive {drive}", seen.record.name),
                format!("it has room for {free} slabs, not for {more}"),
                "choose another drive",
            ));
        }
    }
    Ok(grows)
}

#[cfg(test)]
#[path = "changes_tests.rs"]
mod tests;
