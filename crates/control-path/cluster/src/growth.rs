//! Slabs that are to come to a volume: written down, then counted or taken back.
//!
//! 1. [`ClusterState::begin_growth`] writes down to which size the volume grows, which copies its further slabs will have,
//!    and the room that these take. They stand in the chunks behind those that count, and count for nothing.
//! 2. Their copies are made on the drives. That is not the state's concern.
//! 3. [`ClusterState::finish_growth`] changes the size, under a new epoch: the slabs count from then on. Or
//!    [`ClusterState::abandon_growth`] takes all of it back.
//!
//! Each is one transaction that the owner makes, like every change of a volume. So whoever owns the volume finds in its
//! record whether it grows, and can finish that or take it back.
//!
//! Invariants:
//! - A copy is written down before it is made, and its room is promised as long as it is.
//! - Why a new epoch: the owner that counts the slabs is not the one that writes to them. That one takes the volume over,
//!   and so has had every node that holds an in-sync copy of any slab, old or new, accept its epoch before.
//! - A slab counts only with an in-sync copy.

use std::collections::BTreeMap;

use spandrel_shared::{BLOCK_BYTES, DriveId, Error, GrowthId, SlabIndex};

use crate::changes::{change_record, check_owner, put_chunk, put_room, raised};
use crate::copy_sets::{CopySet, SLABS_MAX, SLABS_PER_CHUNK};
use crate::keys::StateKey;
use crate::membership::{VolumeMembership, last_copy_lost};
use crate::records::VolumeOwner;
use crate::state::{ClusterState, PoolRoom, StateError};
use crate::store::StateStore;
use crate::volumes::check_new_sets;

/// The most slabs that can come at once: their chunks, and one that is there in part, fit into one transaction.
pub const SLABS_TO_COME_MAX: u32 = 29 * SLABS_PER_CHUNK;

impl<S: StateStore> ClusterState<S> {
    /// Writes down that a volume grows to `size_bytes`, as `growth` asks for, with copies as in `to_come` for its further
    /// slabs, for which `room` must have room.
    ///
    /// Refused with `VOLUME_GROWING`, `SIZE_NOT_LARGER`, `VOLUME_INVALID`, `VOLUME_DEGRADED` if a slab would have no
    /// in-sync copy, `NOT_OWNER` or `POOL_CHANGED`.
    pub async fn begin_growth(
        &self,
        owner: VolumeOwner,
        seen: &VolumeMembership,
        (size_bytes, growth): (u64, GrowthId),
        to_come: &[CopySet],
        room: &PoolRoom,
    ) -> Result<VolumeMembership, StateError> {
        check_owner(owner, seen)?;
        check_size(seen, size_bytes)?;
        let record = &seen.record;
        let mut after = raised(seen);
        after.record.grows_to_bytes = Some(size_bytes);
        after.record.growth = Some(growth);
        let more = after.record.slab_count_grown() - record.slab_count();
        assert_eq!(to_come.len(), more as usize, "a plan has a copy set for each slab");
        assert!(more <= SLABS_TO_COME_MAX, "more slabs come in several steps");
        check_new_sets(&record.name, record.slab_count(), to_come, record.copies, room)?;
        after.to_come = to_come.to_vec();
        check_in_sync(&after)?;
        let mut transaction = change_record(seen, &after.record);
        for chunk in chunks_to_come(&after) {
            transaction = put_chunk(transaction, &after, chunk);
        }
        transaction = put_room(transaction, seen, &mut after, room)?;
        self.commit_change(transaction, after).await
    }

    /// The slabs that were to come count: the volume has the size to which it was to grow, and begins a new ownership.
    /// The caller knows that their copies are durable, and that none of these may lack anything.
    ///
    /// After an unknown outcome it is called again with the same arguments: whether an earlier attempt was made shows in
    /// the epoch and the size. Refused with `VOLUME_DEGRADED`, `NOT_OWNER`, or `VOLUME_NOT_GROWING`.
    pub async fn finish_growth(
        &self,
        owner: VolumeOwner,
        seen: &VolumeMembership,
    ) -> Result<VolumeMembership, StateError> {
        check_owner(owner, seen)?;
        check_in_sync(seen)?;
        let size_bytes = seen.record.grows_to_bytes.ok_or_else(|| not_growing(seen))?;
        let mut after = raised(seen);
        after.record.size_bytes = size_bytes;
        after.record.grows_to_bytes = None;
        after.record.epoch = seen.record.epoch.next();
        after.sets.append(&mut after.to_come);
        self.commit_change(change_record(seen, &after.record), after).await
    }

    /// The slabs that were to come do not, and their room is free. Their copies, as far as they were made, count in no
    /// case any more. Refused with `NOT_OWNER` or `VOLUME_NOT_GROWING`.
    pub async fn abandon_growth(
        &self,
        owner: VolumeOwner,
        seen: &VolumeMembership,
    ) -> Result<VolumeMembership, StateError> {
        check_owner(owner, seen)?;
        seen.record.grows_to_bytes.ok_or_else(|| not_growing(seen))?;
        let mut after = raised(seen);
        after.record.grows_to_bytes = None;
        after.to_come.clear();
        let mut transaction = change_record(seen, &after.record);
        for chunk in chunks_to_come(seen) {
            let is_left = chunk * SLABS_PER_CHUNK < after.record.slab_count();
            transaction = match is_left {
                true => put_chunk(transaction, &after, chunk),
                false => transaction.delete(&StateKey::Slabs(seen.volume, chunk).key()),
            };
        }
        transaction = put_room(transaction, seen, &mut after, &PoolRoom::default())?;
        self.commit_change(transaction, after).await
    }
}

/// The chunks in which the slabs that are to come stand.
fn chunks_to_come(volume: &VolumeMembership) -> std::ops::Range<u32> {
    let (first, end) = (volume.record.slab_count(), volume.record.slab_count_grown());
    if first == end { 0..0 } else { first / SLABS_PER_CHUNK..end.div_ceil(SLABS_PER_CHUNK) }
}

fn check_size(seen: &VolumeMembership, size_bytes: u64) -> Result<(), Error> {
    let record = &seen.record;
    let refuse = |code: &str, why: String, next: &str| {
        Err(Error::new(code, format!("volume {} cannot grow", record.name), why, next))
    };
    if let Some(size_bytes) = record.grows_to_bytes {
        let why = format!("it is growing to {size_bytes} bytes already");
        return refuse("VOLUME_GROWING", why, "wait until it has grown");
    }
    if size_bytes <= record.size_bytes {
        let why = format!("it has {} bytes, and {size_bytes} are not more", record.size_bytes);
        return refuse("SIZE_NOT_LARGER", why, "give a larger size");
    }
    let slabs = record.slab_bytes.slabs_for(size_bytes);
    if slabs >= u64::from(SLABS_MAX) || !size_bytes.is_multiple_of(BLOCK_BYTES as u64) {
        let why = format!(
            "{size_bytes} bytes are no multiple of {BLOCK_BYTES}, or more slabs than can be numbered ({slabs})"
        );
        return refuse("VOLUME_INVALID", why, "choose another size");
    }
    Ok(())
}

/// Whether each slab that is to come has a copy on a drive whose copies of the volume lack nothing. On the others its
/// copies count as those that are there, and are brought up to date with them.
fn check_in_sync(volume: &VolumeMembership) -> Result<(), Error> {
    let stale = volume.marks.keys().copied().collect();
    let Some(lost) = last_copy_lost(&volume.to_come, &BTreeMap::<DriveId, ()>::new(), &stale) else {
        return Ok(());
    };
    let slab = SlabIndex(volume.record.slab_count() + lost.0);
    Err(Error::new(
        "VOLUME_DEGRADED",
        format!("volume {} cannot grow", volume.record.name),
        format!("on all drives that slab {slab} would lie on, its copies are being brought up to date"),
        "wait until the volume is healthy (`spandrel volume get`), then try again",
    ))
}

fn not_growing(seen: &VolumeMembership) -> Error {
    Error::new(
        "VOLUME_NOT_GROWING",
        format!("the growth of volume {} cannot be ended", seen.record.name),
        "it does not grow",
        "nothing: it has the size that it should have",
    )
}

#[cfg(test)]
#[path = "growth_tests.rs"]
mod tests;
