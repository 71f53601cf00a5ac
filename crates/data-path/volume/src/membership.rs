//! Which copies a volume has, and which of them hold every answered write.
//!
//! The stale mark belongs to a *leg*: all copies of one volume on one drive. The cluster state
//! knows in sync and stale; that a leg is joining is the owner's knowledge alone, so that an
//! owner that dies leaves it stale.

use std::collections::{BTreeMap, BTreeSet};

use spandrel_replica::CopyAddress;
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::{
    ConfigurationVersion, CopyId, DriveId, Epoch, NodeId, SlabGeometry, SlabIndex, Version, VolumeId,
};

/// One copy of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node that holds it.
    pub node: NodeId,
    /// The drive that holds it.
    pub drive: DriveId,
    /// The copy's incarnation.
    pub copy: CopyId,
}

/// A volume's copies and marks, as the cluster state has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The volume.
    pub volume: VolumeId,
    /// Its size; a multiple of a block.
    pub size_bytes: u64,
    /// The pool's slab size.
    pub geometry: SlabGeometry,
    /// The ownership that the state names.
    pub epoch: Epoch,
    /// Raised by every change of copies or marks.
    pub configuration: ConfigurationVersion,
    /// The copies of each slab, in order.
    pub slabs: Vec<Vec<Member>>,
    /// The legs that may lack writes, and the version up to which each is complete.
    pub stale: BTreeMap<DriveId, Version>,
    /// If the state was set back and nobody has compared the copies since: no mark counts, and no copy.
    pub unsettled: Option<Unsettled>,
}

/// What is known of a volume whose marks are those of an older state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsettled {
    /// The drives that are given up for lost: what they hold is not waited for.
    pub lost: BTreeSet<DriveId>,
}

impl Membership {
    /// The drives that hold copies of the volume, with their nodes.
    pub fn drives(&self) -> BTreeMap<DriveId, NodeId> {
        self.slabs.iter().flatten().map(|member| (member.drive, member.node)).collect()
    }

    /// Whether each slab would still have an in-sync copy if `drives` were marked stale too.
    pub fn may_mark(&self, drives: &BTreeSet<DriveId>) -> bool {
        let stays =
            |member: &Member| !self.stale.contains_key(&member.drive) && !drives.contains(&member.drive);
        self.slabs.iter().all(|members| members.iter().any(stays)) || canary::is_planted(Bug::DropLastCopy)
    }

    /// The address of a member's copy.
    pub fn address(&self, slab: SlabIndex, member: &Member) -> CopyAddress {
        CopyAddress { volume: self.volume, slab, copy: member.copy }
    }
}

/// How far a leg takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegState {
    /// Holds every answered write: every write waits for it, reads may use it.
    InSync,
    /// May lack writes: takes no part.
    Stale,
    /// Gets every new write, but nobody waits for it and nobody reads it.
    Joining,
    /// Its promotion has been sent: every write waits for it, but nobody reads it yet.
    Promoting,
}

impl LegState {
    /// Whether new writes are sent to it.
    pub fn is_written(self) -> bool {
        self != LegState::Stale
    }

    /// Whether a write is complete only with its answer, and its node's promise is needed.
    pub fn is_needed(self) -> bool {
        matches!(self, LegState::InSync | LegState::Promoting)
    }
}

/// All copies of a volume on one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The drive's node.
    pub node: NodeId,
    /// How far it takes part.
    pub state: LegState,
}

/// A change that an owner asks the cluster state for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipChange {
    /// These legs may lack writes from now on.
    MarkStale(BTreeMap<DriveId, Version>),
    /// This leg is complete.
    Promote(DriveId),
    /// The copies were compared: these legs may lack any write, and all others lack none.
    Settle(BTreeSet<DriveId>),
}

/// Why a change of membership was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipError {
    /// The state names another owner or a higher epoch: the asking owner gives the volume up.
    NotOwner,
    /// It may not be made now, and this is why: no majority, or the last in-sync copy. Ask again
    /// when something has changed.
    Refused(String),
    /// The cluster state cannot be reached, or changed meanwhile. Surely not made; ask again.
    Unavailable(String),
}

#[cfg(test)]
#[path = "membership_tests.rs"]
mod tests;
