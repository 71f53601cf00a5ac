//! What an owner needs from its node: copies to ask, promises to check, a membership to change.
//!
//! The node puts these together from the bus, the replica and the cluster state; tests put them
//! together from memory.

use std::fmt;
use std::future::Future;

use spandrel_platform::{Buffer, Platform};
use spandrel_replica::{ReplicaError, ReplicaRequest, ReplicaResponse};
use spandrel_shared::{DriveId, Epoch, NodeId, ProcessIncarnation, RepairShare, ShardId, VolumeId};

use crate::membership::{Membership, MembershipChange, MembershipError};
use crate::repair_turns::RepairTurns;
use crate::slow_drives::SlowDrives;

/// A request to a copy that brought no answer of that copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskError {
    /// The copy's node refused or failed.
    Replica(ReplicaError),
    /// The node could not be reached, or its session ended before the answer: if the request was a
    /// change, it may have been carried out or not.
    Unreachable(String),
}

impl fmt::Display for AskError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::Replica(error) => error.fmt(formatter),
            AskError::Unreachable(detail) => formatter.write_str(detail),
        }
    }
}

impl std::error::Error for AskError {}

/// The surroundings of an owner. Cheap to clone.
pub trait OwnerContext: Clone + 'static {
    /// The platform that the owner runs on.
    type Platform: Platform;

    /// The platform.
    fn platform(&self) -> &Self::Platform;

    /// The owner's own node.
    fn shard(&self) -> ShardId;

    /// The process that a request to the node would reach now; `None` if there is no session.
    fn process(&self, shard: ShardId) -> Option<ProcessIncarnation>;

    /// How many shards the node has whose first one a request would reach now; none if there is no session with that.
    fn shards_of(&self, node: NodeId) -> Option<u8>;

    /// Whether the process that a request to the shard would reach now is the one to say what a drive holds: it serves that drive,
    /// or no shard of its node does. As long as that is not known, it is not: what it lacks another shard may hold.
    fn answers_for(&self, shard: ShardId, drive: DriveId) -> bool;

    /// A write of a copy that was begun: gives the answer. A volume's write holds one for each copy.
    type Write: Future<Output = Result<(ReplicaResponse, Vec<Buffer>), AskError>> + Unpin;

    /// Asks a node's copy to write. It stands behind what was asked of that node before; before what is asked later only from the first
    /// look at it on, so nothing else is awaited before that.
    fn begin_write(&self, shard: ShardId, request: ReplicaRequest, payload: Option<Buffer>) -> Self::Write;

    /// Asks the copies of a node. A request to the owner's own node does not leave it. Requests
    /// to one node arrive in the order in which they are asked.
    fn ask(
        &self,
        shard: ShardId,
        request: ReplicaRequest,
        payload: Option<Buffer>,
    ) -> impl Future<Output = Result<(ReplicaResponse, Vec<Buffer>), AskError>>;

    /// Whether the node answers at all, as far as is known.
    fn is_reachable(&self, shard: ShardId) -> bool;

    /// Whether `shard` has promised, for longer than until now, to answer no fence against this
    /// ownership. The process of another node has promised nothing before a fence has settled what the drives
    /// that are attached to it hold: what they have lost must be found first.
    fn is_promised(&self, shard: ShardId, volume: VolumeId, epoch: Epoch) -> bool;

    /// Whether all of these have. Every answer asks this.
    fn are_promised(&self, shards: &[ShardId], volume: VolumeId, epoch: Epoch) -> bool {
        shards.iter().all(|shard| self.is_promised(*shard, volume, epoch))
    }

    /// Completes at the next change of what [`OwnerContext::is_reachable`] or
    /// [`OwnerContext::is_promised`] say, or a little later.
    fn surroundings_changed(&self) -> impl Future<Output = ()>;

    /// The drives that were slow, as the owners on the node have met them.
    fn slow_drives(&self) -> &SlowDrives;

    /// The turns in which the owners on the node copy what brings copies back.
    fn repair_turns(&self) -> &RepairTurns;

    /// How much of the work that may be.
    fn repair_share(&self) -> RepairShare;

    /// Changes the membership of the volume in one transaction that compares the ownership's epoch; returns
    /// what the state says afterwards. When this returns, the outcome is known. An owner asks for one such
    /// change at a time.
    fn change_membership(
        &self,
        change: MembershipChange,
    ) -> impl Future<Output = Result<Membership, MembershipError>>;
}
