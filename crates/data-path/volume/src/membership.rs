//! Which copies a volume has, and which of them hold every answered write.
//!
//! The stale mark belongs to a *leg*: all copies of one volume on one drive. The cluster state
//! knows in sync and stale; that a leg is joining is the owner's knowledge alone, so that an
//! owner that dies leaves it stale.
//!
//! A copy that is *being built* is to take the place of another one, and counts for nothing before it does. All that
//! are being built on one drive are a leg of their own: it is brought up to date like a stale one that holds nothing,
//! and its promotion puts its copies into the drive's other leg, and takes those out whose places they take.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use spandrel_replica::CopyAddress;
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::{
    ConfigurationVersion, CopyId, DriveId, Epoch, Move, NodeId, ShardId, SlabGeometry, SlabIndex, Version,
    VolumeId,
};

/// Copies that a slab has as a rule, and one that is being built.
pub(crate) const MEMBERS_USUAL: usize = 4;

/// One copy of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node that holds it.
    pub shard: ShardId,
    /// The drive that holds it.
    pub drive: DriveId,
    /// The copy's incarnation.
    pub copy: CopyId,
    /// Which copy of the slab it is, from zero; one that is being built is to take the place of the other one of that
    /// number.
    pub part: u8,
    /// Whether it is being built.
    pub is_building: bool,
}

impl Member {
    /// The leg that it belongs to.
    pub fn leg(&self) -> LegId {
        LegId { drive: self.drive, is_building: self.is_building }
    }
}

/// Names a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LegId {
    /// The drive of its copies.
    pub drive: DriveId,
    /// Whether these are being built.
    pub is_building: bool,
}

impl LegId {
    /// The copies on a drive that are built.
    pub const fn standing(drive: DriveId) -> Self {
        Self { drive, is_building: false }
    }

    /// The copies on a drive that are being built.
    pub const fn building(drive: DriveId) -> Self {
        Self { drive, is_building: true }
    }
}

impl fmt::Display for LegId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_building {
            false => write!(formatter, "{}", self.drive),
            true => write!(formatter, "{} (being built)", self.drive),
        }
    }
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
    /// How many copies each slab should have.
    pub copies: u8,
    /// The copies of each slab, in order.
    pub slabs: Vec<Vec<Member>>,
    /// The drives whose copies may lack writes, and the version up to which these are complete. Those that are being
    /// built do not count as them.
    pub stale: BTreeMap<DriveId, Version>,
    /// If the state was set back and nobody has compared the copies since: no mark counts, and no copy.
    pub unsettled: Option<Unsettled>,
}

/// What is known of a volume whose marks are those of an older state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsettled {
    /// The drives that are given up for lost: what they hold is not waited for.
    pub lost: BTreeSet<DriveId>,
    /// All drives of the pool, with their nodes: any may hold copies of the volume that were built since.
    pub pool: BTreeMap<DriveId, NodeId>,
    /// Whether what stands on slabs behind the volume's end is given up.
    pub is_growth_given_up: bool,
}

impl Membership {
    /// The drives that hold copies of the volume, with their nodes.
    pub fn drives(&self) -> BTreeMap<DriveId, ShardId> {
        self.legs().into_iter().map(|(leg, shard)| (leg.drive, shard)).collect()
    }

    /// The legs of the volume, with their nodes.
    pub fn legs(&self) -> BTreeMap<LegId, ShardId> {
        self.slabs.iter().flatten().map(|member| (member.leg(), member.shard)).collect()
    }

    /// The copy as it counts now; none if another one has taken its place.
    pub fn find(&self, slab: SlabIndex, copy: CopyId) -> Option<&Member> {
        self.slabs.get(slab.0 as usize)?.iter().find(|member| member.copy == copy)
    }

    /// Whether each slab would still have an in-sync copy if `drives` were marked stale too.
    pub fn may_mark(&self, drives: &BTreeSet<DriveId>) -> bool {
        let stays = |member: &Member| {
            !member.is_building && !self.stale.contains_key(&member.drive) && !drives.contains(&member.drive)
        };
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

/// All copies of a volume on one drive that are built, or all that are being built there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The drive's node.
    pub shard: ShardId,
    /// How far it takes part.
    pub state: LegState,
}

/// A change that an owner asks the cluster state for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipChange {
    /// The copies on these drives may lack writes from now on. Those that are being built are no matter of it.
    MarkStale(BTreeMap<DriveId, Version>),
    /// This leg is complete. If it was being built, its copies take the places of others, which count no more.
    Promote(LegId),
    /// Copies are to be built, each in the place of another one.
    Build(Vec<Move>),
    /// The copies that are being built on a drive are given up.
    Abandon(DriveId),
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
