//! Copies that are built in the place of others: each drive's are begun together, and count together.

use std::collections::{BTreeMap, BTreeSet};

use spandrel_shared::{DriveId, Error, Move, SlabIndex};

use crate::copy_sets::{CopyBatch, CopySet, Member};
use crate::membership::VolumeMembership;
use crate::records::VolumeOwner;
use crate::state::{ClusterState, PoolRoom, StateError};
use crate::store::StateStore;

impl<S: StateStore> ClusterState<S> {
    /// Adds copies that are to be built, with identities from `batch`, which must be new. As
    /// [`ClusterState::change_copies`].
    pub async fn begin_copies(
        &self,
        owner: VolumeOwner,
        seen: &VolumeMembership,
        moves: &[Move],
        batch: CopyBatch,
        room: &PoolRoom,
    ) -> Result<VolumeMembership, StateError> {
        self.change_copies(owner, seen, &begun(seen, moves, batch)?, room).await
    }

    /// The copies that were being built on a drive count from now on, and those whose places they take do not any more.
    /// As [`ClusterState::change_copies`].
    pub async fn finish_copies(
        &self,
        owner: VolumeOwner,
        seen: &VolumeMembership,
        drive: DriveId,
    ) -> Result<VolumeMembership, StateError> {
        let finish = |set: &mut CopySet, built: Member| {
            set.members.retain(|member| member.part != built.part);
            set.members.push(Member { building: false, ..built });
            set.members.sort_by_key(|member| member.part);
        };
        self.change_copies(owner, seen, &changed(seen, drive, finish), &PoolRoom::default()).await
    }

    /// Gives up the copies that are being built on a drive. As [`ClusterState::change_copies`].
    pub async fn abandon_copies(
        &self,
        owner: VolumeOwner,
        seen: &VolumeMembership,
        drive: DriveId,
    ) -> Result<VolumeMembership, StateError> {
        let abandon =
            |set: &mut CopySet, built: Member| set.members.retain(|member| member.copy != built.copy);
        self.change_copies(owner, seen, &changed(seen, drive, abandon), &PoolRoom::default()).await
    }
}

/// The copy sets with the copies that are to be built.
fn begun(
    seen: &VolumeMembership,
    moves: &[Move],
    batch: CopyBatch,
) -> Result<BTreeMap<SlabIndex, CopySet>, Error> {
    let mut sets: BTreeMap<SlabIndex, CopySet> = BTreeMap::new();
    let members = seen.sets.iter().flat_map(|set| &set.members).filter(|member| member.building);
    let building: BTreeSet<DriveId> = members.map(|member| member.drive).collect();
    for Move { slab, part, to } in moves {
        // Its copies count together: one that comes late would count unbuilt.
        if building.contains(to) {
            return Err(Error::new(
                "COPY_BEING_BUILT",
                format!("no copy of volume {} can be begun on drive {to}", seen.record.name),
                "others are being built there",
                "wait until these are built",
            ));
        }
        let Some(before) = seen.sets.get(slab.0 as usize) else { continue };
        let set = sets.entry(*slab).or_insert_with(|| before.clone());
        if set.members.iter().any(|member| member.part == *part && member.building) {
            return Err(Error::new(
                "COPY_BEING_BUILT",
                format!("copy {part} of slab {slab} of volume {} cannot be moved", seen.record.name),
                "another copy is being built in its place",
                "wait until that one is built",
            ));
        }
        let copy = batch.copy(*slab, *part);
        set.members.push(Member { drive: *to, copy, part: *part, building: true });
    }
    Ok(sets)
}

/// The copy sets in which copies are being built on a drive, after `change`.
fn changed(
    seen: &VolumeMembership,
    drive: DriveId,
    change: impl Fn(&mut CopySet, Member),
) -> BTreeMap<SlabIndex, CopySet> {
    let slabs = (0..).map(SlabIndex).zip(&seen.sets);
    let with_building = slabs.filter_map(|(slab, set)| {
        let built = set.on(drive).filter(|member| member.building)?;
        let mut after = set.clone();
        change(&mut after, *built);
        Some((slab, after))
    });
    with_building.collect()
}

#[cfg(test)]
#[path = "moves_tests.rs"]
mod tests;
