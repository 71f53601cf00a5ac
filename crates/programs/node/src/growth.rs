//! Growing volumes that are in use.
//!
//! The owner does it, in three steps, so that whoever owns the volume next can finish what it finds begun, or take it
//! back:
//!
//! 1. The slabs that are to come are placed like those of a new volume, and written down in the cluster's state with
//!    the size that the volume is to have. They count for nothing yet, but for the room that they take.
//! 2. Their nodes accept the owner's epoch, so that no earlier owner changes anything there any more, and make the
//!    copies, empty, durably.
//! 3. The slabs count, under a new epoch, and this node takes the volume over by it like any other one would: every node
//!    that holds an in-sync copy, old or new, has accepted it before anything is written. Clients repeat what was
//!    under way; none of them gets an error.
//!
//! If a node does not do its part, all of it is taken back. Copies that were made in vain are removed, now or by their
//! node later (see `replaced`).
//!
//! Invariants:
//! - A slab counts only when all of its copies were made and nothing had changed since they were asked whether they lack
//!   anything: what the copies beside them may lack, when a drive is brought up to date meanwhile, is no matter of theirs.
//! - Of one volume one growth is under way at a time, in steps that fit into a transaction of the state. Each is whole.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use spandrel_cluster::growth::SLABS_TO_COME_MAX;
use spandrel_cluster::store::StateStore;
use spandrel_cluster::{CopyBatch, PoolRoom, StateError, VolumeMembership, VolumeRecord, mirror_sets_from};
use spandrel_platform::Platform;
use spandrel_pool::{GrowthPlan, GrowthRequest, Warning, plan_growth};
use spandrel_replica::{Authority, Heeded, NewCopy, ReplicaError, ReplicaRequest};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::size::format_size;
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{DriveId, Epoch, Error, GrowthId, NodeId, ShardId, SlabIndex, VolumeId};
use spandrel_volume::{AskError, MembershipError};

use crate::handover::BeingTaken;
use crate::node::{Node, NodeInner};
use crate::ownership::Ownership;
use crate::stubborn::{retry_store, state_error};
use crate::volumes::{
    COPIES_AT_ONCE, PLANNING_PAUSE_MAX_MS, PLANNING_TIME_MAX, ask_patiently, copies_of, pool_for_plans,
    remove_copies,
};

/// How long is waited before something is tried again that others stood in the way of.
const RETRY: Duration = Duration::from_millis(50);

/// How long is waited before a growth is tried again that an earlier owner has begun, and that did not end.
const RESUME_PAUSE: Duration = Duration::from_secs(1);

/// A volume that is to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeGrowth {
    /// The volume.
    pub volume: VolumeId,
    /// The size that it is to have: a multiple of 4 KiB, not less than it has.
    pub size_bytes: u64,
    /// The size from which that one was reckoned, if it was: nothing is done if the volume has another one by now.
    #[serde(default)]
    pub former_bytes: Option<u64>,
    /// Who asks again, since an answer was lost, asks by the same: what was begun by it is no reason to refuse it.
    pub id: GrowthId,
    /// Whether it is only said what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

impl VolumeGrowth {
    /// Refuses to add to another size than the one from which the new one was reckoned.
    fn check_former(&self, record: &VolumeRecord) -> Result<(), Error> {
        let (size_bytes, former_bytes) = (record.size_bytes, self.former_bytes.unwrap_or(record.size_bytes));
        if size_bytes == former_bytes || record.growth == Some(self.id) {
            return Ok(());
        }
        Err(Error::new(
            "SIZE_CHANGED",
            format!("volume {} is not made larger", record.name),
            format!(
                "it had {} when this was asked for, and has {} now: somebody else has made it larger meanwhile",
                format_size(former_bytes),
                format_size(size_bytes)
            ),
            "look at it with `spandrel volume get`, and do it again if it is still to grow",
        ))
    }
}

/// What growing a volume did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeGrown {
    /// The slabs that came. Fewer than the volume has grown by if another owner had begun with it.
    pub slabs: u64,
    /// How many of their copies are on each drive.
    pub copies: BTreeMap<DriveId, u64>,
    /// What the operator should know.
    pub warnings: Vec<Warning>,
}

impl VolumeGrown {
    /// Counts the first `slabs` of a plan.
    fn note(&mut self, plan: &GrowthPlan, slabs: usize) {
        self.slabs += slabs as u64;
        for drive in plan.slabs[..slabs].iter().flatten() {
            *self.copies.entry(*drive).or_default() += 1;
        }
        let new = plan.warnings.iter().filter(|warning| !self.warnings.contains(warning));
        let new: Vec<Warning> = new.cloned().collect();
        self.warnings.extend(new);
    }
}

/// Why slabs that are to come do not count.
#[derive(Debug, PartialEq, Eq)]
enum Unfinished {
    /// The ownership has ended: the next owner sees to it.
    Owner,
    /// A node has begun anew and does not know the epoch any more that it has accepted: all of it is asked once more.
    Forgotten,
    /// They cannot.
    Refused(Error),
}

impl<P: Platform, S: StateStore> Node<P, S> {
    /// Has a volume grow that this node owns, and returns when it has the size. Clients go on. Nothing is done if it has
    /// that size already.
    ///
    /// Errors: those of the plan (`SIZE_SMALLER`, `SIZE_UNALIGNED`, `TOO_FEW_NODES`, `POOL_FULL`), `SIZE_CHANGED` if it has
    /// another size than the one from which the new one was reckoned, `VOLUME_DEGRADED`,
    /// `COPY_NOT_MADE` if a node did not do its part: the volume is as large as before then, or, if it was to grow by
    /// thousands of slabs, by a part of these larger. `NOT_OWNER` if this node does not own the volume, at the
    /// beginning or any more: the next owner finishes what was begun, or takes it back. `STATE_UNAVAILABLE`.
    pub async fn grow_volume(&self, growth: &VolumeGrowth) -> Result<VolumeGrown, Error> {
        let node = &self.inner;
        let platform = &node.parts.platform;
        let not_owner = || node.does_not_own(growth.volume);
        let mut grown = VolumeGrown::default();
        let deadline = platform.now() + PLANNING_TIME_MAX;
        loop {
            let ownership = node.ownership(growth.volume).ok_or_else(not_owner)?;
            ownership.owner.serving().await.map_err(|_| not_owner())?;
            if growth.dry_run {
                let seen = ownership.seen().clone();
                growth.check_former(&seen.record)?;
                let (_, plan) = node.plan_growth(&seen, growth.size_bytes).await.map_err(state_error)?;
                grown.note(&plan, plan.slabs.len());
                return Ok(grown);
            }
            let _turn = ownership.growing.lock().await;
            if ownership.seen().record.grows_to_bytes.is_some() {
                node.end_growth(&ownership).await?;
                continue;
            }
            growth.check_former(&ownership.seen().record)?;
            if ownership.seen().record.size_bytes == growth.size_bytes {
                return Ok(grown);
            }
            match node.grow_by_a_step(&ownership, growth, &mut grown).await {
                Err(StateError::Conflict) if platform.now() < deadline => {
                    let pause_ms = platform.random_u64() % PLANNING_PAUSE_MAX_MS;
                    platform.sleep(Duration::from_millis(pause_ms)).await;
                }
                outcome => outcome.map_err(state_error)?,
            }
        }
    }
}

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    /// Ends what an earlier owner has begun, or a request that nobody waits for any more: as long as the volume is owned here
    /// and grows it is tried again, as nobody else would.
    pub(crate) async fn resume_growth(self: Rc<Self>, ownership: Rc<Ownership<P, S>>) {
        while ownership.owner.serving().await.is_ok() {
            let turn = ownership.growing.lock().await;
            if ownership.seen().record.grows_to_bytes.is_none() {
                return;
            }
            witness::reached(Rare::GrowthResumed);
            let Err(error) = self.end_growth(&ownership).await else { return };
            tracing::warn!("a growth that was begun did not end well: {error}");
            drop(turn);
            self.parts.platform.sleep(RESUME_PAUSE).await;
        }
    }

    /// Grows a volume as far as is asked for, or towards it by as much as fits into one change of the state.
    async fn grow_by_a_step(
        self: &Rc<Self>,
        ownership: &Rc<Ownership<P, S>>,
        growth: &VolumeGrowth,
        grown: &mut VolumeGrown,
    ) -> Result<(), StateError> {
        let seen = ownership.seen().clone();
        let (room, plan) = self.plan_growth(&seen, growth.size_bytes).await?;
        let slabs = plan.slabs.len().min(SLABS_TO_COME_MAX as usize);
        let (first, geometry) = (seen.record.slab_count(), seen.record.slab_bytes);
        let step_bytes = match slabs < plan.slabs.len() {
            true => (u64::from(first) + slabs as u64) * geometry.slab_bytes(),
            false => growth.size_bytes,
        };
        let platform = &self.parts.platform;
        let batch = CopyBatch::from_random(platform.random_u64(), platform.random_u64());
        let drives = plan.slabs[..slabs].iter().map(Vec::as_slice);
        let to_come = mirror_sets_from(first, drives, batch, seen.record.copies);
        ownership.context.begin_growth((step_bytes, growth.id), &to_come, &room).await?;
        tracing::info!(volume = seen.record.name, step_bytes, slabs, "growing");
        self.end_growth(ownership).await?;
        grown.note(&plan, slabs);
        Ok(())
    }

    /// Where the slabs go by which a volume grows.
    async fn plan_growth(
        &self,
        seen: &VolumeMembership,
        size_bytes: u64,
    ) -> Result<(PoolRoom, GrowthPlan), StateError> {
        let (room, view) = pool_for_plans(&self.parts).await?;
        let request = GrowthRequest {
            name: &seen.record.name,
            size_bytes: seen.record.size_bytes,
            grows_to_bytes: size_bytes,
            copies: seen.record.copies,
            owner: seen.record.preferred_owner,
        };
        let plan = plan_growth(&view, &request)?;
        Ok((room, plan))
    }

    /// Ends a growth that is written down: its slabs count from then on, or it was taken back, and the error says why. If
    /// the ownership ends meanwhile, the next one sees to it.
    async fn end_growth(self: &Rc<Self>, ownership: &Rc<Ownership<P, S>>) -> Result<(), Error> {
        match self.count_slabs(ownership).await {
            Ok(()) => Ok(()),
            Err(Unfinished::Owner | Unfinished::Forgotten) => {
                Err(self.does_not_own(ownership.owner.volume()))
            }
            Err(Unfinished::Refused(error)) => {
                self.take_back(ownership).await?;
                Err(error)
            }
        }
    }

    /// Has the copies made, and the slabs count.
    async fn count_slabs(self: &Rc<Self>, ownership: &Rc<Ownership<P, S>>) -> Result<(), Unfinished> {
        loop {
            ownership.owner.serving().await.map_err(|_| Unfinished::Owner)?;
            // As it was before the copies were asked.
            let seen = ownership.seen().clone();
            match self.make_copies(ownership.owner.epoch(), &seen).await {
                Err(Unfinished::Forgotten) => {
                    self.parts.platform.sleep(RETRY).await;
                    continue;
                }
                made => made?,
            }
            if self.count(ownership, seen).await? {
                return Ok(());
            }
        }
    }

    /// The nodes of the slabs that are to come accept the epoch, and have all copies of these, with nothing amiss.
    async fn make_copies(&self, epoch: Epoch, seen: &VolumeMembership) -> Result<(), Unfinished> {
        if canary::is_planted(Bug::GrowWithoutCopies) {
            return Ok(());
        }
        let mut copies = Vec::new();
        for (copy, drive, part, count) in
            copies_of(seen.volume, SlabIndex(seen.record.slab_count()), &seen.to_come)
        {
            let Some(node) = seen.nodes.get(&drive).copied() else {
                let why = format!("drive {drive} is no part of the pool any more");
                return Err(Unfinished::Refused(not_made(&seen.record.name, why)));
            };
            copies.push((node, NewCopy { copy, drive, copies: count, part, epoch }));
        }
        // One drive of each shard stands for it.
        let shards =
            copies.iter().map(|(node, new)| (self.parts.shard_of(*node, new.drive), (*node, new.drive)));
        let shards: BTreeMap<ShardId, (NodeId, DriveId)> = shards.collect();
        // No promise is asked for by that: the next ownership does that.
        let heeds = Heeded::NONE;
        let fence = ReplicaRequest::Fence { volume: seen.volume, epoch, settles: false, heeds };
        let fences = shards.into_values().map(|place| self.ask_for_copies(seen, epoch, place, fence.clone()));
        for fenced in join_all(fences).await {
            fenced?;
        }
        let authority = Authority { epoch, configuration: seen.record.configuration };
        let made = copies.into_iter().map(async |(node, new)| {
            let (copy, place) = (new.copy, (node, new.drive));
            self.ask_for_copies(seen, epoch, place, ReplicaRequest::AddCopy(new)).await?;
            // Beside others that are brought up to date its drive may have noted that it lacks something, too.
            self.ask_for_copies(seen, epoch, place, ReplicaRequest::Prove { copy, authority }).await
        });
        // All of them end, also if one fails: what is broken off half way might be made behind the back of whoever takes it back.
        let made: Vec<Result<(), Unfinished>> =
            stream::iter(made).buffer_unordered(COPIES_AT_ONCE).collect().await;
        made.into_iter().collect()
    }

    async fn ask_for_copies(
        &self,
        seen: &VolumeMembership,
        own: Epoch,
        place: (NodeId, DriveId),
        request: ReplicaRequest,
    ) -> Result<(), Unfinished> {
        match ask_patiently(&self.parts, place, request).await {
            Ok(()) => Ok(()),
            Err(AskError::Replica(ReplicaError::Fenced { epoch })) => Err(fenced(own, epoch)),
            Err(error) => {
                let why = format!("node {}: {error}", self.parts.name_of(place.0));
                Err(Unfinished::Refused(not_made(&seen.record.name, why)))
            }
        }
    }

    /// Has the slabs count, and takes the volume over under the epoch under which they do. False if the volume is not as
    /// it was `seen` any more, or this is not the moment.
    async fn count(
        self: &Rc<Self>,
        ownership: &Rc<Ownership<P, S>>,
        seen: VolumeMembership,
    ) -> Result<bool, Unfinished> {
        let (parts, volume) = (&self.parts, seen.volume);
        let Some(_being_taken) = BeingTaken::begin(self, volume) else {
            // It is being handed over.
            parts.platform.sleep(RETRY).await;
            return Ok(false);
        };
        if self.stopping.get() {
            return Err(Unfinished::Owner);
        }
        // The next ownership begins with what the state says then.
        self.tell_scrub_in_time(ownership).await;
        match retry_store(parts, || parts.state.finish_growth(parts.own, &seen)).await {
            // Which of the attempts was made, if one was, shows in what the state says now.
            Ok(_) | Err(StateError::Conflict | StateError::Store(_)) => {}
            Err(StateError::Refused(error)) if error.code == "NOT_OWNER" => return Err(Unfinished::Owner),
            Err(StateError::Refused(error)) => return Err(Unfinished::Refused(error)),
        }
        let now = retry_store(parts, || parts.state.membership(volume)).await;
        let now = now.map_err(|error| Unfinished::Refused(state_error(error)))?;
        let now = now.filter(|now| now.record.owner == Some(parts.own)).ok_or(Unfinished::Owner)?;
        if now.record.epoch == seen.record.epoch {
            ownership.context.adopt(Some(now)).map_err(|_| Unfinished::Owner)?;
            return Ok(false);
        }
        if now.record.epoch != seen.record.epoch.next() {
            return Err(Unfinished::Owner);
        }
        witness::reached(Rare::VolumeGrown);
        tracing::info!(volume = now.record.name, size_bytes = now.record.size_bytes, "grown");
        self.begin(now);
        if let Some(next) = self.ownership(volume) {
            // Whoever moved the volume here wants it to stay.
            next.left.set(ownership.left.get());
        }
        Ok(true)
    }

    /// Takes a growth back. Returns when that is certain, or the next owner has to see to it.
    async fn take_back(&self, ownership: &Rc<Ownership<P, S>>) -> Result<(), Error> {
        let volume = ownership.owner.volume();
        loop {
            match ownership.context.abandon_growth().await {
                Ok(former) => {
                    witness::reached(Rare::GrowthTakenBack);
                    tracing::warn!(volume = former.record.name, "the volume does not grow after all");
                    let copies = copies_of(volume, SlabIndex(former.record.slab_count()), &former.to_come);
                    let held = copies.into_iter().filter_map(|(copy, drive, ..)| {
                        let node = *former.nodes.get(&drive)?;
                        Some((self.parts.shard_of(node, drive), copy))
                    });
                    remove_copies(&self.parts, held.collect()).await;
                    return Ok(());
                }
                Err(MembershipError::NotOwner) => {
                    ownership.owner.depose();
                    return Err(self.does_not_own(volume));
                }
                Err(MembershipError::Refused(why) | MembershipError::Unavailable(why)) => {
                    tracing::warn!(%volume, "its growth is not taken back yet: {why}");
                    self.parts.platform.sleep(RETRY).await;
                }
            }
        }
    }

    fn does_not_own(&self, volume: VolumeId) -> Error {
        Error::new(
            "NOT_OWNER",
            format!("volume {volume} is not made larger by node {}", self.config.name),
            "another node owns it, or nobody does at the moment",
            "try again: the owner is asked then",
        )
    }
}

/// What it means that a node has refused an owner's epoch, as it has accepted another one. A higher one is a later owner's.
fn fenced(own: Epoch, accepted: Epoch) -> Unfinished {
    if accepted > own { Unfinished::Owner } else { Unfinished::Forgotten }
}

fn not_made(volume: &str, why: String) -> Error {
    Error::new(
        "COPY_NOT_MADE",
        format!("volume {volume} cannot grow: its further copies could not be made"),
        why,
        "look at that node and its drives, then try again; the volume keeps the size that it has",
    )
}

#[cfg(test)]
#[path = "growth_tests.rs"]
mod tests;
