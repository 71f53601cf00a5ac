//! The world around an owner: other nodes over the bus, promises, and the cluster's state.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use spandrel_cluster::majority::{Surroundings, Verdict, may_mark};
use spandrel_cluster::store::StateStore;
use spandrel_cluster::{CopyBatch, CopySet, PoolRoom, StateError, VolumeMembership, VolumeWriter};
use spandrel_platform::{Buffer, Instant, Platform};
use spandrel_replica::{ReplicaRequest, ReplicaResponse};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::{
    DriveId, Epoch, Error, GrowthId, NodeId, ProcessIncarnation, RepairShare, ShardId, Version, VolumeId,
};
use spandrel_volume::{
    AskError, Member, Membership, MembershipChange, MembershipError, OwnerContext, RepairTurns, SlowDrives,
    Unsettled,
};

use crate::parts::{NodeParts, NodeWrite};

/// Promises run out without a message that would tell: an owner that waits looks again so often.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The surroundings of one ownership. Cheap to clone; all clones are the same.
pub struct NodeContext<P: Platform, S: StateStore> {
    parts: NodeParts<P, S>,
    /// The volume as the state showed it last, with the revision that the next change compares.
    seen: Rc<RefCell<VolumeMembership>>,
    promised: Rc<RefCell<Option<Promised>>>,
}

/// What was found out last of the promises that the owner needs. Every answer asks for them, and they change some times a second.
struct Promised {
    /// By whom, and for which ownership.
    shards: Vec<ShardId>,
    epoch: Epoch,
    /// See [`Liveness::promise_changes`](crate::liveness::Liveness::promise_changes).
    changes: (u64, u64),
    until: Instant,
}

impl<P: Platform, S: StateStore> Clone for NodeContext<P, S> {
    fn clone(&self) -> Self {
        Self { parts: self.parts.clone(), seen: Rc::clone(&self.seen), promised: Rc::clone(&self.promised) }
    }
}

impl<P: Platform, S: StateStore> NodeContext<P, S> {
    /// The surroundings of the ownership that `seen` shows.
    pub(crate) fn new(parts: NodeParts<P, S>, seen: VolumeMembership) -> Self {
        Self { parts, seen: Rc::new(RefCell::new(seen)), promised: Rc::default() }
    }

    /// Why legs may not be marked stale now, if so.
    fn refusal_to_mark(&self, drives: impl Iterator<Item = DriveId>) -> Option<String> {
        let seen = self.seen.borrow();
        let view = &self.parts.view;
        let mut alive = view.alive_nodes();
        // Whoever owns volumes here must be able to go on with them, whatever becomes of the node's other shards.
        if view.alive.borrow().contains_key(&self.parts.own.shard) {
            alive.insert(self.parts.node());
        }
        let reachable = view.whole_nodes(&self.parts.liveness.reachable());
        let surroundings = Surroundings {
            own: self.parts.node(),
            alive: &alive,
            reachable: &reachable,
            seen: &view.seen.borrow(),
            running_for: self.parts.platform.now().since(self.parts.started),
        };
        for drive in drives {
            let Some(holder) = seen.nodes.get(&drive) else { continue };
            if let Verdict::Wait(reason) = may_mark(&surroundings, *holder) {
                return Some(reason.to_string());
            }
        }
        None
    }

    async fn try_change(
        &self,
        seen: &VolumeMembership,
        change: &MembershipChange,
    ) -> Result<VolumeMembership, StateError> {
        let state = &self.parts.state;
        match change {
            MembershipChange::MarkStale(marks) => state.mark_stale(self.parts.own, seen, marks).await,
            MembershipChange::Promote(leg) if leg.is_building => {
                state.finish_copies(self.parts.own, seen, leg.drive).await
            }
            MembershipChange::Promote(leg) => state.promote(self.parts.own, seen, &[leg.drive].into()).await,
            MembershipChange::Build(moves) => {
                let room = state.pool_room().await?;
                // Drives may have come to the pool since the volume was read.
                let mut seen = seen.clone();
                seen.nodes.extend(room.drives.iter().map(|(drive, record)| (*drive, record.node)));
                let platform = &self.parts.platform;
                let batch = CopyBatch::from_random(platform.random_u64(), platform.random_u64());
                state.begin_copies(self.parts.own, &seen, moves, batch, &room).await
            }
            MembershipChange::Abandon(drive) => state.abandon_copies(self.parts.own, seen, *drive).await,
            MembershipChange::Settle(stale) => {
                state.settle_copies(self.parts.own, seen, stale, self.parts.cluster.generation).await
            }
        }
    }

    /// The volume as the state showed it last.
    pub(crate) fn seen(&self) -> Ref<'_, VolumeMembership> {
        self.seen.borrow()
    }

    /// Who may write, as the state showed it last.
    pub(crate) fn writer(&self) -> Option<VolumeWriter> {
        self.seen.borrow().record.writer
    }

    /// Lets another front-end write, if `present` is still the one that may. Returns who may
    /// afterwards.
    pub(crate) async fn replace_writer(
        &self,
        present: Option<VolumeWriter>,
        writer: Option<VolumeWriter>,
    ) -> Result<Option<VolumeWriter>, MembershipError> {
        let seen = self.seen.borrow().clone();
        if seen.record.writer != present {
            return Ok(seen.record.writer);
        }
        let now =
            self.settle(&seen, self.parts.state.set_writer(self.parts.own, &seen, writer).await).await?;
        Ok(now.record.writer)
    }

    /// Writes down that the volume grows to a size, by a request, with copies of its further slabs as in `to_come`, for which
    /// `room` has room.
    /// A conflict if the state has changed since it was read: plan anew.
    pub(crate) async fn begin_growth(
        &self,
        (size_bytes, growth): (u64, GrowthId),
        to_come: &[CopySet],
        room: &PoolRoom,
    ) -> Result<(), StateError> {
        let mut seen = self.seen.borrow().clone();
        // Drives may have come to the pool since the volume was read.
        seen.nodes.extend(room.drives.iter().map(|(drive, record)| (*drive, record.node)));
        let attempt =
            self.parts.state.begin_growth(self.parts.own, &seen, (size_bytes, growth), to_come, room).await;
        if let Err(StateError::Refused(error)) = attempt {
            return Err(error.into());
        }
        match self.settle(&seen, attempt).await {
            Ok(now) if now.to_come == to_come && now.record.grows_to_bytes == Some(size_bytes) => Ok(()),
            Ok(_) | Err(MembershipError::Unavailable(_)) => Err(StateError::Conflict),
            Err(MembershipError::NotOwner | MembershipError::Refused(_)) => Err(Error::new(
                "NOT_OWNER",
                format!("volume {} does not grow", seen.record.name),
                "another node has taken it meanwhile",
                "try again: the owner is asked then",
            )
            .into()),
        }
    }

    /// Takes back that the volume grows. Returns what it was like before.
    pub(crate) async fn abandon_growth(&self) -> Result<VolumeMembership, MembershipError> {
        let seen = self.seen.borrow().clone();
        if seen.record.grows_to_bytes.is_none() {
            return Ok(seen);
        }
        let attempt = self.parts.state.abandon_growth(self.parts.own, &seen).await;
        let now = self.settle(&seen, attempt).await?;
        if now.record.grows_to_bytes.is_none() {
            return Ok(seen);
        }
        Err(MembershipError::Unavailable("the membership has changed meanwhile".to_owned()))
    }

    /// What the state says after an attempt to change it, when that can no longer come to anything
    /// else.
    async fn settle(
        &self,
        seen: &VolumeMembership,
        attempt: Result<VolumeMembership, StateError>,
    ) -> Result<VolumeMembership, MembershipError> {
        let outcome = match attempt {
            // It may still be applied, also after a read that does not show it.
            Err(error) if error.is_unknown() && canary::is_planted(Bug::SettleByReading) => {
                self.parts.state.membership(seen.volume).await
            }
            Err(error) if error.is_unknown() => {
                self.parts.state.settle_unknown(&self.parts.platform, seen).await
            }
            Err(StateError::Conflict) => self.parts.state.membership(seen.volume).await,
            outcome => outcome.map(Some),
        };
        match outcome {
            Ok(now) => self.adopt(now),
            Err(StateError::Refused(error)) if error.code == "NOT_OWNER" => Err(MembershipError::NotOwner),
            Err(StateError::Refused(error)) => Err(MembershipError::Refused(error.to_string())),
            Err(error) => Err(MembershipError::Unavailable(error.to_string())),
        }
    }

    /// Takes over what the state says now, and returns the newest that it is known to say. `Ok` if
    /// this ownership still stands.
    pub(crate) fn adopt(&self, now: Option<VolumeMembership>) -> Result<VolumeMembership, MembershipError> {
        adopt(&mut self.seen.borrow_mut(), now)
    }
}

/// Takes `now` over, what the state answered to an owner that has `seen` this. A change of who may write can be
/// under way beside one of the copies, and their answers overtake each other: what comes back is the newest of
/// both, so that nobody believes in what was changed again since.
fn adopt(
    seen: &mut VolumeMembership,
    now: Option<VolumeMembership>,
) -> Result<VolumeMembership, MembershipError> {
    let now = now.ok_or(MembershipError::NotOwner)?;
    if now.record.owner != seen.record.owner || now.record.epoch != seen.record.epoch {
        return Err(MembershipError::NotOwner);
    }
    if now.revision >= seen.revision {
        *seen = now;
    }
    Ok(seen.clone())
}

impl<P: Platform, S: StateStore> OwnerContext for NodeContext<P, S> {
    type Platform = P;
    type Write = NodeWrite<P>;

    fn begin_write(&self, shard: ShardId, request: ReplicaRequest, payload: Option<Buffer>) -> NodeWrite<P> {
        self.parts.begin_write(shard, request, payload)
    }

    fn platform(&self) -> &P {
        &self.parts.platform
    }

    fn shard(&self) -> ShardId {
        self.parts.own.shard
    }

    fn process(&self, shard: ShardId) -> Option<ProcessIncarnation> {
        self.parts.process(shard)
    }

    fn shards_of(&self, node: NodeId) -> Option<u8> {
        self.parts.shards_of(node)
    }

    fn answers_for(&self, shard: ShardId, drive: DriveId) -> bool {
        self.parts.answers_for(shard, drive)
    }

    async fn ask(
        &self,
        shard: ShardId,
        request: ReplicaRequest,
        payload: Option<Buffer>,
    ) -> Result<(ReplicaResponse, Vec<Buffer>), AskError> {
        self.parts.ask(shard, request, payload).await
    }

    fn is_reachable(&self, shard: ShardId) -> bool {
        self.parts.liveness.is_reachable(shard)
    }

    fn is_promised(&self, shard: ShardId, volume: VolumeId, epoch: Epoch) -> bool {
        self.parts.liveness.is_promised(shard, volume, epoch)
    }

    fn are_promised(&self, shards: &[ShardId], volume: VolumeId, epoch: Epoch) -> bool {
        debug_assert_eq!(volume, self.seen.borrow().volume, "the surroundings are those of one volume");
        let liveness = &self.parts.liveness;
        let changes = liveness.promise_changes();
        let mut promised = self.promised.borrow_mut();
        let is_present =
            |known: &Promised| known.changes == changes && known.epoch == epoch && known.shards == shards;
        if !promised.as_ref().is_some_and(is_present) {
            let until = liveness.all_promised_until(shards, volume, epoch);
            *promised = until.map(|until| Promised { shards: shards.to_vec(), epoch, changes, until });
        }
        promised.as_ref().is_some_and(|promised| self.parts.platform.now() < promised.until)
    }

    async fn surroundings_changed(&self) {
        let changed = std::pin::pin!(self.parts.liveness.changed().notified());
        let later = std::pin::pin!(self.parts.platform.sleep(LOOK_AGAIN));
        futures_util::future::select(changed, later).await;
    }

    fn slow_drives(&self) -> &SlowDrives {
        &self.parts.slow_drives
    }

    fn repair_turns(&self) -> &RepairTurns {
        &self.parts.repair_turns
    }

    fn repair_share(&self) -> RepairShare {
        self.parts.view.settings().unwrap_or_default().repair_share
    }

    async fn change_membership(&self, change: MembershipChange) -> Result<Membership, MembershipError> {
        if let MembershipChange::MarkStale(marks) = &change
            && let Some(reason) = self.refusal_to_mark(marks.keys().copied())
        {
            return Err(MembershipError::Refused(reason));
        }
        let seen = self.seen.borrow().clone();
        let generation = self.parts.cluster.generation;
        if seen.record.generation != generation && !matches!(change, MembershipChange::Settle(_)) {
            // Marks would be lost among those of the older state.
            return Err(MembershipError::Refused("the copies were not compared yet".to_owned()));
        }
        let now = self.settle(&seen, self.try_change(&seen, &change).await).await?;
        if is_made(&now, &change, generation) {
            Ok(self.parts.membership_of(&now))
        } else {
            Err(MembershipError::Unavailable("the membership has changed meanwhile".to_owned()))
        }
    }
}

/// Whether the state shows what a change asked for.
fn is_made(now: &VolumeMembership, change: &MembershipChange, generation: u32) -> bool {
    let builds_on =
        |drive: DriveId| now.sets.iter().any(|set| set.on(drive).is_some_and(|member| member.building));
    match change {
        MembershipChange::Settle(stale) => {
            now.record.generation == generation && now.marks.keys().eq(stale.iter())
        }
        MembershipChange::MarkStale(marks) => {
            marks.iter().all(|(drive, since)| now.marks.get(drive).is_some_and(|mark| mark <= since))
        }
        MembershipChange::Promote(leg) if leg.is_building => !builds_on(leg.drive),
        MembershipChange::Promote(leg) => !now.marks.contains_key(&leg.drive),
        MembershipChange::Build(moves) => moves.iter().all(|copy| {
            let set = now.sets.get(copy.slab.0 as usize);
            set.is_some_and(|set| set.on(copy.to).is_some_and(|member| member.part == copy.part))
        }),
        MembershipChange::Abandon(drive) => !builds_on(*drive),
    }
}

impl<P: Platform, S: StateStore> NodeParts<P, S> {
    /// The membership as an owner uses it.
    pub(crate) fn membership_of(&self, seen: &VolumeMembership) -> Membership {
        membership_of(seen, self.cluster.generation, |node, drive| self.shard_of(node, drive))
    }
}

/// The membership as the owner uses it. If the marks are those of an earlier `generation` of the state, they count for
/// nothing, and copies that were being built are left out. `shard_of` says who is asked for a drive of a node.
fn membership_of(
    seen: &VolumeMembership,
    generation: u32,
    shard_of: impl Fn(NodeId, DriveId) -> ShardId,
) -> Membership {
    let is_settled = seen.record.generation == generation;
    let member = |member: &spandrel_cluster::Member| {
        let shard = shard_of(seen.nodes.get(&member.drive).copied()?, member.drive);
        let counts = is_settled || !member.building;
        let (drive, copy, part, is_building) = (member.drive, member.copy, member.part, member.building);
        counts.then_some(Member { shard, drive, copy, part, is_building })
    };
    let slabs = seen.sets.iter().map(|set| set.members.iter().filter_map(member).collect());
    let stale: BTreeMap<DriveId, Version> = if is_settled { seen.marks.clone() } else { BTreeMap::new() };
    Membership {
        volume: seen.volume,
        size_bytes: seen.record.size_bytes,
        geometry: seen.record.slab_bytes,
        epoch: seen.record.epoch,
        configuration: seen.record.configuration,
        copies: seen.record.copies,
        slabs: slabs.collect(),
        stale,
        unsettled: (!is_settled).then(|| Unsettled {
            lost: seen.lost.clone(),
            pool: seen.nodes.clone(),
            is_growth_given_up: seen.record.is_growth_given_up,
        }),
    }
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
