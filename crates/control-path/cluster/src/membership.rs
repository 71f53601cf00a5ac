//! Which copies a volume has and which of them hold every answered write, and what may become of
//! them: the rules, without the store.
//!
//! A copy is *in sync* if it is not being built and its drive has no stale mark for the volume.
//!
//! Invariants that every allowed change keeps:
//! - A slab that has an in-sync copy keeps one.
//! - The copies of a slab are on different drives, and new ones on different nodes.
//! - A copy becomes in sync only by being promoted.

use std::collections::{BTreeMap, BTreeSet};

use spandrel_shared::{DriveId, Error, NodeId, SlabIndex, Version, VolumeId};

use crate::copy_sets::{CopySet, Member};
use crate::records::{VolumeRecord, VolumeRoomRecord};
use crate::store::Revision;

/// A volume with its copies and marks, all as the state showed them at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeMembership {
    /// The volume.
    pub volume: VolumeId,
    /// Its record: owner, epoch, configuration version.
    pub record: VolumeRecord,
    /// The revision of the record. Every change of anything here changes the record too, so this
    /// is what a transaction compares.
    pub revision: Revision,
    /// The copy sets, by slab.
    pub sets: Vec<CopySet>,
    /// Those of the slabs that are to come behind these, if the volume grows: they have their places, and count for
    /// nothing yet.
    pub to_come: Vec<CopySet>,
    /// The drives whose copies may lack writes, and the version up to which they are complete.
    pub marks: BTreeMap<DriveId, Version>,
    /// The room that the volume was promised.
    pub room: VolumeRoomRecord,
    /// The nodes of all drives of the pool.
    pub nodes: BTreeMap<DriveId, NodeId>,
    /// The drives of the pool that were given up for lost.
    pub lost: BTreeSet<DriveId>,
    /// The state's revision at the read.
    pub read_at: Revision,
}

impl VolumeMembership {
    /// The drives that hold copies of the volume.
    pub fn drives(&self) -> BTreeSet<DriveId> {
        self.sets.iter().flat_map(|set| &set.members).map(|member| member.drive).collect()
    }

    /// The copy sets of all slabs, also of those that are to come.
    pub fn all_sets(&self) -> impl Iterator<Item = &CopySet> + Clone {
        self.sets.iter().chain(&self.to_come)
    }

    /// Whether a copy holds every answered write.
    pub fn is_in_sync(&self, member: &Member) -> bool {
        is_in_sync(member, &self.marks)
    }

    /// The nodes that hold an in-sync copy of any slab: those whose promises the owner needs.
    /// `None` if a drive's node is not known.
    pub fn in_sync_nodes(&self) -> Option<BTreeSet<NodeId>> {
        let in_sync = self.sets.iter().flat_map(|set| &set.members).filter(|member| self.is_in_sync(member));
        let drives: BTreeSet<_> = in_sync.map(|member| member.drive).collect();
        drives.iter().map(|drive| self.nodes.get(drive).copied()).collect()
    }

    /// The slabs that have fewer in-sync copies than they should.
    pub fn degraded_slabs(&self) -> impl Iterator<Item = SlabIndex> {
        let is_degraded = |set: &CopySet| {
            set.members.iter().filter(|member| self.is_in_sync(member)).count()
                < usize::from(self.record.copies)
        };
        self.sets.iter().zip(0..).filter(move |(set, _)| is_degraded(set)).map(|(_, slab)| SlabIndex(slab))
    }
}

fn is_in_sync<T>(member: &Member, marks: &BTreeMap<DriveId, T>) -> bool {
    !member.building && !marks.contains_key(&member.drive)
}

/// The slab that would lose its last in-sync copy if the copies on `drives` were marked stale too.
pub fn last_copy_lost<T>(
    sets: &[CopySet],
    marks: &BTreeMap<DriveId, T>,
    drives: &BTreeSet<DriveId>,
) -> Option<SlabIndex> {
    let in_sync = |set: &CopySet, without: &BTreeSet<DriveId>| {
        set.members.iter().any(|member| is_in_sync(member, marks) && !without.contains(&member.drive))
    };
    let lost = |set: &CopySet| in_sync(set, &BTreeSet::new()) && !in_sync(set, drives);
    sets.iter().position(lost).map(|slab| SlabIndex(slab as u32))
}

/// Whether a slab's copy set may be replaced by another one: the error says why not.
pub fn check_set_change(
    membership: &VolumeMembership,
    slab: SlabIndex,
    after: &CopySet,
) -> Result<(), Error> {
    let name = &membership.record.name;
    let refuse = |why: String| {
        Err(Error::new(
            "COPY_SET_INVALID",
            format!("the copies of slab {slab} of volume {name} cannot be changed"),
            why,
            "this is a defect of spandrel: report it with the log of this node",
        ))
    };
    let Some(before) = membership.sets.get(slab.0 as usize) else {
        return refuse(format!("the volume has {} slabs", membership.sets.len()));
    };
    if after.layout != before.layout {
        return refuse("the layout of a slab never changes".to_owned());
    }
    let drives: BTreeSet<_> = after.members.iter().map(|member| member.drive).collect();
    if drives.len() != after.members.len() {
        return refuse("a drive would hold two of its copies".to_owned());
    }
    for member in &after.members {
        match before.members.iter().find(|former| former.copy == member.copy) {
            Some(former) if former.drive != member.drive => {
                return refuse("a copy does not change its drive".to_owned());
            }
            Some(former) if !former.building && member.building => {
                return refuse("a copy that is built is marked stale, not built again".to_owned());
            }
            Some(former)
                if former.building && !member.building && membership.marks.contains_key(&member.drive) =>
            {
                return refuse(format!("the copies that drive {} holds already are stale", member.drive));
            }
            Some(_) => {}
            None if !member.building => return refuse("a new copy holds nothing yet".to_owned()),
            None => {
                let node = membership.nodes.get(&member.drive);
                let beside =
                    |other: &&Member| other.copy != member.copy && membership.nodes.get(&other.drive) == node;
                // A copy that is moved within its node stands beside its former place meanwhile.
                let is_kept = |other: &&Member| other.part != member.part;
                if node.is_none() || after.members.iter().filter(is_kept).any(|other| beside(&other)) {
                    return refuse(format!(
                        "its node holds another copy, or drive {} is unknown",
                        member.drive
                    ));
                }
            }
        }
    }
    let had = before.members.iter().any(|member| membership.is_in_sync(member));
    if had && !after.members.iter().any(|member| membership.is_in_sync(member)) {
        return Err(last_copy_error(name, slab));
    }
    Ok(())
}

/// The refusal to give up the last in-sync copy of a slab.
pub(crate) fn last_copy_error(volume: &str, slab: SlabIndex) -> Error {
    Error::new(
        "LAST_COPY",
        format!("copies of volume {volume} cannot be given up"),
        format!("slab {slab} has no other copy that holds every answered write"),
        "bring the other drives or nodes of the volume back, and wait until it is healthy",
    )
}

/// How many copies of slabs each drive holds.
pub(crate) fn count_by_drive<'a>(sets: impl IntoIterator<Item = &'a CopySet>) -> BTreeMap<DriveId, u32> {
    let mut counts = BTreeMap::new();
    for member in sets.into_iter().flat_map(|set| &set.members) {
        *counts.entry(member.drive).or_default() += 1;
    }
    counts
}

/// The room that these copy sets take.
pub(crate) fn room_of<'a>(sets: impl IntoIterator<Item = &'a CopySet> + Clone) -> VolumeRoomRecord {
    let mut leaving = BTreeMap::new();
    for set in sets.clone() {
        let replaced = |member: &&Member| {
            !member.building && set.members.iter().any(|other| other.building && other.part == member.part)
        };
        for member in set.members.iter().filter(replaced) {
            *leaving.entry(member.drive).or_default() += 1;
        }
    }
    VolumeRoomRecord { slabs: count_by_drive(sets), leaving }
}

#[cfg(test)]
#[path = "membership_tests.rs"]
mod tests;
