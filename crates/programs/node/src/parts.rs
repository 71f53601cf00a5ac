//! What the modules of a node share, and what every request to its copies goes through.
//!
//! Nothing here names an owner of a volume: owners hold these parts, so the parts must not hold them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use spandrel_bus::{Bus, BusError, BusRequest, BusResponse, Call};
use spandrel_cluster::promises::Peer;
use spandrel_cluster::store::StateStore;
use spandrel_cluster::{ClusterRecord, ClusterState, CountedStore, VolumeOwner, VolumeWriter};
use spandrel_platform::{Buffer, Instant, Platform};
use spandrel_replica::{CopyWrite, Replica, ReplicaError, ReplicaRequest, ReplicaResponse};
use spandrel_shared::{DriveId, Epoch, NodeId, ProcessIncarnation, ShardId, VolumeId};
use spandrel_volume::{AskError, RepairTurns, SlowDrives};

use crate::caches::NodeCache;
use crate::liveness::Liveness;
use crate::shards::DriveHomes;
use crate::view::ClusterView;

/// What copies answer.
pub(crate) type ReplicaAnswer = Result<(ReplicaResponse, Vec<Buffer>), ReplicaError>;

/// The parts of a node. Cheap to clone; all clones are the same.
pub(crate) struct NodeParts<P: Platform, S: StateStore> {
    pub(crate) platform: P,
    /// This shard of this process, as the cluster's state names owners.
    pub(crate) own: VolumeOwner,
    /// How many shards this node has.
    pub(crate) shards: u8,
    /// Which of them has each drive.
    pub(crate) homes: DriveHomes,
    pub(crate) cluster: ClusterRecord,
    pub(crate) state: ClusterState<CountedStore<S>>,
    pub(crate) bus: Bus<P>,
    pub(crate) liveness: Liveness<P>,
    pub(crate) replica: Replica<P>,
    /// The cache drives of this node.
    pub(crate) caches: Rc<RefCell<Vec<Rc<NodeCache<P>>>>>,
    /// Cache drives that its drives are or were bound to, and that were taken out of the cluster.
    pub(crate) caches_removed: Rc<RefCell<BTreeSet<DriveId>>>,
    pub(crate) view: Rc<ClusterView>,
    pub(crate) repair_turns: RepairTurns,
    pub(crate) slow_drives: SlowDrives,
    pub(crate) started: Instant,
}

impl<P: Platform, S: StateStore> Clone for NodeParts<P, S> {
    fn clone(&self) -> Self {
        Self {
            platform: self.platform.clone(),
            own: self.own,
            shards: self.shards,
            homes: self.homes.clone(),
            cluster: self.cluster.clone(),
            state: self.state.clone(),
            bus: self.bus.clone(),
            liveness: self.liveness.clone(),
            replica: self.replica.clone(),
            caches: Rc::clone(&self.caches),
            caches_removed: Rc::clone(&self.caches_removed),
            view: Rc::clone(&self.view),
            repair_turns: self.repair_turns.clone(),
            slow_drives: self.slow_drives.clone(),
            started: self.started,
        }
    }
}

/// A write of a copy that was begun, here or on another node.
pub enum NodeWrite<P: Platform> {
    Here(CopyWrite<P>),
    There(Call<P>),
}

impl<P: Platform> Future for NodeWrite<P> {
    type Output = Result<(ReplicaResponse, Vec<Buffer>), AskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Here(write) => Pin::new(write).poll(context).map_err(AskError::Replica),
            Self::There(call) => Pin::new(call).poll(context).map(copies_answer),
        }
    }
}

/// What the copies of another node have answered.
fn copies_answer(
    answer: Result<(BusResponse, Vec<Buffer>), BusError>,
) -> Result<(ReplicaResponse, Vec<Buffer>), AskError> {
    match answer {
        Ok((BusResponse::Replica(Ok(response)), parts)) => Ok((response, parts)),
        Ok((BusResponse::Replica(Err(error)), _)) => Err(AskError::Replica(error)),
        Ok(_) => Err(AskError::Unreachable("the answer is to another question".to_owned())),
        Err(error) => Err(AskError::Unreachable(error.to_string())),
    }
}

impl<P: Platform, S: StateStore> NodeParts<P, S> {
    /// Serves a request of `from` from the copies of this node.
    pub(crate) async fn serve_replica(
        &self,
        from: Peer,
        request: ReplicaRequest,
        payload: Option<Buffer>,
    ) -> ReplicaAnswer {
        match request {
            fence @ ReplicaRequest::Fence { volume, epoch, settles, .. } => {
                Box::pin(self.serve_fence(from, volume, epoch, settles, fence)).await
            }
            request => self.replica.serve(request, payload).await,
        }
    }

    /// From its first step on no former owner is promised anything for the volume, from its second
    /// on none can change a copy here, and it is answered when none counts on a promise any more.
    async fn serve_fence(
        &self,
        from: Peer,
        volume: VolumeId,
        epoch: Epoch,
        settles: bool,
        fence: ReplicaRequest,
    ) -> ReplicaAnswer {
        let fenced = |epoch| ReplicaError::Fenced { epoch };
        self.liveness.begin_fence(from, volume, epoch).map_err(fenced)?;
        let answer = self.replica.serve(fence, None).await?;
        self.liveness.may_answer_fence(from, volume, epoch).await.map_err(fenced)?;
        if settles {
            self.liveness.copies_settled(volume);
        }
        Ok(answer)
    }

    /// The process of a shard that is asked now, if there is a session with it.
    pub(crate) fn process(&self, shard: ShardId) -> Option<ProcessIncarnation> {
        let peer = if shard == self.own.shard { Some(self.own_peer()) } else { self.liveness.peer(shard) };
        peer.map(|peer| peer.incarnation)
    }

    /// The shard of a node to ask for a copy on one of its drives.
    pub(crate) fn shard_of(&self, node: NodeId, drive: DriveId) -> ShardId {
        match node == self.node() && self.replica.has_drive(drive) {
            true => self.own.shard,
            false => self.view.shard_of(node, drive),
        }
    }

    /// See [`OwnerContext::shards_of`](spandrel_volume::OwnerContext::shards_of).
    pub(crate) fn shards_of(&self, node: NodeId) -> Option<u8> {
        self.shards_beside(ShardId::first(node))
    }

    /// How many shards the process of a node has that is asked now at one of them; none if there is no session with it.
    fn shards_beside(&self, shard: ShardId) -> Option<u8> {
        if shard.node == self.node() {
            return Some(self.shards);
        }
        self.bus.session(shard).map(|session| session.shards)
    }

    /// See [`OwnerContext::answers_for`](spandrel_volume::OwnerContext::answers_for).
    pub(crate) fn answers_for(&self, shard: ShardId, drive: DriveId) -> bool {
        let Some(shards) = self.shards_beside(shard) else { return false };
        if shards == 1 || self.serves(shard, drive) == Some(true) {
            return true;
        }
        ShardId::all(shard.node, shards).all(|shard| self.serves(shard, drive) == Some(false))
    }

    /// Whether the process of a shard that is asked now serves a drive, as far as it has said.
    fn serves(&self, shard: ShardId, drive: DriveId) -> Option<bool> {
        if shard == self.own.shard {
            return Some(self.replica.has_drive(drive));
        }
        let alive = self.view.alive.borrow();
        let entry = &alive.get(&shard)?.record;
        (self.process(shard) == Some(entry.incarnation)).then(|| entry.drives.contains(&drive))
    }

    /// Asks the copies of any shard.
    pub(crate) async fn ask(
        &self,
        shard: ShardId,
        request: ReplicaRequest,
        payload: Option<Buffer>,
    ) -> Result<(ReplicaResponse, Vec<Buffer>), AskError> {
        if shard == self.own.shard {
            return self.serve_replica(self.own_peer(), request, payload).await.map_err(AskError::Replica);
        }
        // Whoever answers one that settles nothing may have copies that nobody has compared: that is no promise.
        let fence = match &request {
            ReplicaRequest::Fence { volume, epoch, settles: true, .. } => Some((*volume, *epoch)),
            _ => None,
        };
        // Whoever answers is the process that there was a session with before.
        let peer = fence.and_then(|_| self.liveness.peer(shard));
        let payload = payload.into_iter().collect();
        let answer = copies_answer(self.bus.call(shard, BusRequest::Replica(request), payload).await)?;
        if let (Some((volume, epoch)), Some(peer)) = (fence, peer) {
            self.liveness.fence_answered(peer, volume, epoch);
        }
        Ok(answer)
    }

    /// Asks a copy on any shard to write. With the first look at what this returns, at the latest, it is in line: for its drive, or
    /// for the other shard.
    pub(crate) fn begin_write(
        &self,
        shard: ShardId,
        request: ReplicaRequest,
        payload: Option<Buffer>,
    ) -> NodeWrite<P> {
        if shard == self.own.shard {
            return NodeWrite::Here(self.replica.begin_write(request, payload));
        }
        let payload = payload.into_iter().collect();
        NodeWrite::There(self.bus.begin_call(shard, BusRequest::Replica(request), payload))
    }

    /// This node.
    pub(crate) fn node(&self) -> NodeId {
        self.own.shard.node
    }

    /// This shard of this process, as others make promises to it.
    pub(crate) fn own_peer(&self) -> Peer {
        Peer { shard: self.own.shard, incarnation: self.own.incarnation }
    }

    /// Why a front-end may not write.
    pub(crate) fn describe_writer(&self, writer: Option<VolumeWriter>) -> String {
        match writer {
            Some(writer) => {
                let name = self.name_of(writer.shard.node);
                format!("a client of node {name} has the volume open for writing")
            }
            None => "the right to write was lost meanwhile: open the volume anew".to_owned(),
        }
    }

    /// What people call a node.
    pub(crate) fn name_of(&self, node: NodeId) -> String {
        let nodes = self.view.nodes.borrow();
        nodes.get(&node).map_or_else(|| node.to_string(), |stored| stored.record.name.clone())
    }
}
