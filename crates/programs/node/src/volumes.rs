//! Making and deleting volumes.
//!
//! A volume is placed, promised its room, and gets its copies, all empty, before it is ready. A copy
//! is never created for a volume that is ready: an empty one would pass for one that holds what was
//! written.
//!
//! Copies of a volume that the cluster's state remembers as deleted are removed; copies of a volume
//! that it does not know at all are kept, because it is the state that may have lost something.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use spandrel_cluster::store::{Selection, StateStore};
use spandrel_cluster::{
    AliveShards, ClusterState, CopyBatch, CopySet, DriveRecord, DriveState, NewVolume, NodeRecord, PoolRoom,
    PromisedRoom, StateError, StateKey, Stored, VolumeState, is_served, mirror_sets,
};
use spandrel_platform::{Platform, before};
use spandrel_pool::{DriveRoom, NodeRoom, Plan, PoolView, VolumeRequest, Warning, plan_volume};
use spandrel_replica::{CopyAddress, NewCopy, ReplicaError, ReplicaRequest};
use spandrel_shared::name::validate_name;
use spandrel_shared::{DriveId, Epoch, Error, NodeId, ShardId, SlabGeometry, SlabIndex, VolumeId};
use spandrel_volume::AskError;

use crate::node::{Node, NodeInner};
use crate::parts::NodeParts;
use crate::stubborn::{retry, retry_store, state_error};

/// Copies that are created or removed at the same time.
pub(crate) const COPIES_AT_ONCE: usize = 128;

/// How long plans are made anew because the pool has changed since: others make volumes, too.
pub(crate) const PLANNING_TIME_MAX: Duration = Duration::from_secs(30);

/// The longest pause before a plan is made anew, so that those who plan at the same moment do not do so for ever.
pub(crate) const PLANNING_PAUSE_MAX_MS: u64 = 50;

/// How long a new volume is waited for to have an owner.
const OWNER_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long a node that does not answer is asked again to make a copy.
const COPY_WAIT_MAX: Duration = Duration::from_secs(5);

/// The pause between two such questions.
const COPY_RETRY: Duration = Duration::from_millis(50);

/// A volume that has been in the making for so long was left so by a node that died.
const CREATION_TIME_MAX: Duration = Duration::from_secs(300);

/// A volume whose deletion has taken so long is deleted by somebody who died.
const DELETION_TIME_MAX: Duration = Duration::from_secs(60);

/// How often the copies here are compared with the deleted volumes, if no volume vanishes.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// A volume to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeCreation {
    /// Its name.
    pub name: String,
    /// Its size: a multiple of 4 KiB above zero.
    pub size_bytes: u64,
    /// How many copies it keeps; if not said, three, or two in a pool of two nodes.
    pub copies: Option<u8>,
    /// The node that is to own it; if not said, one that owns few.
    pub owner: Option<NodeId>,
}

/// A volume that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeCreated {
    /// Its identity.
    pub volume: VolumeId,
    /// How many copies it keeps.
    pub copies: u8,
    /// The node that should own it.
    pub owner: NodeId,
    /// What the operator should know.
    pub warnings: Vec<Warning>,
}

impl<P: Platform, S: StateStore> Node<P, S> {
    /// Makes a volume, and returns when it can be used.
    ///
    /// Errors: `NAME_INVALID`, `VOLUME_EXISTS`, those of the plan (`SIZE_ZERO`, `SIZE_UNALIGNED`,
    /// `COPIES_INVALID`, `TOO_FEW_NODES`, `POOL_FULL`, `OWNER_UNKNOWN`, `OWNER_OFFLINE`, `NODE_IN_MAINTENANCE`),
    /// `COPY_NOT_MADE` if a node did not do its part, `STATE_UNAVAILABLE`. Nothing remains then.
    pub async fn create_volume(&self, creation: &VolumeCreation) -> Result<VolumeCreated, Error> {
        let parts = &self.inner.parts;
        let name = &creation.name;
        validate_name("volume", name)?;
        if retry(parts, || parts.state.volume_by_name(name)).await?.is_some() {
            return Err(volume_exists(name));
        }
        let deadline = parts.platform.now() + PLANNING_TIME_MAX;
        loop {
            match self.try_create(creation).await {
                Err(StateError::Conflict) if parts.platform.now() < deadline => {
                    let pause_ms = parts.platform.random_u64() % PLANNING_PAUSE_MAX_MS;
                    parts.platform.sleep(Duration::from_millis(pause_ms)).await;
                }
                outcome => return outcome.map_err(state_error),
            }
        }
    }

    async fn try_create(&self, creation: &VolumeCreation) -> Result<VolumeCreated, StateError> {
        let parts = &self.inner.parts;
        let (room, plan) = plan(parts, creation).await?;
        let platform = &parts.platform;
        let id = VolumeId::from_random(platform.random_u64(), platform.random_u64());
        let batch = CopyBatch::from_random(platform.random_u64(), platform.random_u64());
        let sets = mirror_sets(plan.slabs.iter().map(Vec::as_slice), batch, plan.copies);
        let new = NewVolume {
            id,
            name: creation.name.clone(),
            size_bytes: creation.size_bytes,
            copies: plan.copies,
            write_copies_min: 1,
            slab_bytes: parts.cluster.slab_bytes,
            preferred_owner: Some(plan.owner),
            generation: parts.cluster.generation,
            created_unix_ms: platform.unix_time().0,
        };
        retry_store(parts, || parts.state.begin_volume(&new, &sets, &room)).await?;
        let made = match self.add_copies(id, &sets, &room).await {
            Ok(()) => retry_store(parts, || parts.state.create_volume(&new, &sets, &room)).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = made {
            self.remove_volume(id, &sets, &room).await?;
            return Err(error);
        }
        self.owned(id).await;
        Ok(VolumeCreated { volume: id, copies: plan.copies, owner: plan.owner, warnings: plan.warnings })
    }

    /// Creates the empty copies of a volume that is not ready yet.
    async fn add_copies(&self, volume: VolumeId, sets: &[CopySet], room: &PoolRoom) -> Result<(), Error> {
        let parts = &self.inner.parts;
        let copies = copies_of(volume, SlabIndex(0), sets);
        let adds = copies.into_iter().map(async |(copy, drive, part, copies)| {
            let node = room.drives[&drive].node;
            let new = NewCopy { copy, drive, copies, part, epoch: Epoch::ZERO };
            ask_patiently(parts, (node, drive), ReplicaRequest::AddCopy(new)).await.map_err(|error| {
                Error::new(
                    "COPY_NOT_MADE",
                    format!("the volume's copies could not be made on node {}", parts.name_of(node)),
                    error.to_string(),
                    "look at that node and its drives, then try again; nothing of the volume remains",
                )
            })
        });
        let mut added = stream::iter(adds).buffer_unordered(COPIES_AT_ONCE);
        while let Some(added) = added.next().await {
            added?;
        }
        Ok(())
    }

    /// Deletes a volume with all its copies. Copies on nodes that do not answer are removed when they
    /// come back.
    ///
    /// Errors: `VOLUME_NOT_FOUND`, `STATE_UNAVAILABLE`.
    pub async fn delete_volume(&self, name: &str) -> Result<(), Error> {
        let parts = &self.inner.parts;
        let not_found = || {
            Error::new(
                "VOLUME_NOT_FOUND",
                format!("there is no volume {name:?}"),
                "the cluster has no volume of that name",
                "list the volumes with `spandrel volume list`",
            )
        };
        let volume = retry(parts, || parts.state.volume_by_name(name)).await?.ok_or_else(not_found)?;
        let membership = retry(parts, || parts.state.membership(volume)).await?.ok_or_else(not_found)?;
        let room = retry(parts, || parts.state.pool_room()).await?;
        let sets: Vec<CopySet> = membership.all_sets().cloned().collect();
        self.remove_volume(volume, &sets, &room).await.map_err(state_error)
    }

    async fn remove_volume(
        &self,
        volume: VolumeId,
        sets: &[CopySet],
        room: &PoolRoom,
    ) -> Result<(), StateError> {
        let parts = &self.inner.parts;
        let now = parts.platform.unix_time().0;
        loop {
            match retry_store(parts, || parts.state.delete_volume(volume, now)).await {
                Err(StateError::Conflict) => {}
                outcome => break outcome?,
            }
        }
        let copies = copies_of(volume, SlabIndex(0), sets).into_iter();
        let held = copies.filter_map(|(copy, drive, ..)| {
            let node = room.drives.get(&drive)?.node;
            Some((parts.shard_of(node, drive), copy))
        });
        remove_copies(parts, held.collect()).await;
        Ok(())
    }

    /// Waits, not for ever, until a node owns the volume.
    async fn owned(&self, volume: VolumeId) {
        let parts = &self.inner.parts;
        let is_owned = || {
            let volumes = parts.view.volumes.borrow();
            volumes.get(&volume).is_some_and(|stored| stored.record.owner.is_some())
        };
        let deadline = parts.platform.now() + OWNER_WAIT_MAX;
        before(&parts.platform, deadline, parts.view.changed.wait_until(is_owned)).await;
    }
}

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    /// Removes copies of deleted volumes: those that vanished while this node could not be asked.
    pub(crate) async fn drop_deleted_copies(self: Rc<Self>) {
        let parts = &self.parts;
        let mut known: BTreeSet<VolumeId> = BTreeSet::new();
        let mut sweep_at = parts.platform.now();
        loop {
            let changed = parts.view.changed.notified();
            let present: BTreeSet<VolumeId> = parts.view.volumes.borrow().keys().copied().collect();
            let vanished = known.difference(&present).next().is_some();
            if vanished || parts.platform.now() >= sweep_at {
                self.sweep_copies(&present).await;
                self.sweep_unfinished().await;
                sweep_at = parts.platform.now() + SWEEP_INTERVAL;
            }
            known = present;
            let _ = before(&parts.platform, sweep_at, changed).await;
        }
    }

    /// Deletes volumes whose creator has died, which never held data, and those that somebody began
    /// to delete: until that is done, they keep their room. Those that this node should own come
    /// first; for the others their own node has as much time again.
    async fn sweep_unfinished(&self) {
        let parts = &self.parts;
        let now = parts.platform.now();
        let abandoned: Vec<VolumeId> = {
            let volumes = parts.view.volumes.borrow();
            let unfinished = volumes.iter().filter(|(volume, stored)| {
                let record = &stored.record;
                let patience = match record.state {
                    VolumeState::Creating => CREATION_TIME_MAX,
                    VolumeState::Deleting => DELETION_TIME_MAX,
                    VolumeState::Ready => return false,
                };
                let turns = if record.preferred_owner == Some(parts.node()) { 1 } else { 2 };
                let shown_since = parts.view.shown_since(**volume, record.epoch);
                shown_since.is_some_and(|since| now.since(since) > patience * turns)
            });
            unfinished.map(|(volume, _)| *volume).collect()
        };
        for volume in abandoned {
            tracing::warn!(%volume, "deleted: whoever was making or deleting it has not finished");
            if let Err(error) = parts.state.delete_volume(volume, parts.platform.unix_time().0).await {
                tracing::warn!(%volume, "not deleted yet: {error}");
            }
        }
    }

    async fn sweep_copies(&self, present: &BTreeSet<VolumeId>) {
        let parts = &self.parts;
        let here: BTreeSet<VolumeId> =
            parts.replica.drives().iter().flat_map(|store| store.volumes()).collect();
        let strays = parts.replica.strays();
        for volume in here.difference(present) {
            if !is_deleted(&parts.state, *volume).await {
                continue;
            }
            parts.liveness.volume_deleted(*volume);
            let offered = parts.replica.copies_of(*volume).into_iter().map(|copy| copy.address);
            let strays = strays.iter().map(|(_, copy)| *copy).filter(|copy| copy.volume == *volume);
            let here: Vec<CopyAddress> = offered.chain(strays).collect();
            for copy in here {
                drop_copy(parts, copy).await;
            }
        }
    }
}

/// Removes a copy on this node that nobody needs any more. What cannot be removed now is found again: a drive that hangs keeps
/// nobody from removing what is on others.
pub(crate) async fn drop_copy<P: Platform, S: StateStore>(parts: &NodeParts<P, S>, copy: CopyAddress) {
    let deadline = parts.platform.now() + COPY_WAIT_MAX;
    let removal = parts.replica.serve(ReplicaRequest::RemoveCopy { copy }, None);
    match before(&parts.platform, deadline, removal).await {
        // Its owner, or whoever deleted the volume, was faster.
        Some(Ok(_) | Err(ReplicaError::NotFound)) | None => {}
        Some(Err(error)) => {
            tracing::warn!(volume = %copy.volume, "a copy that nobody needs remains: {error}");
        }
    }
}

/// Removes copies, each on its shard. One that does not answer now finds out by itself.
pub(crate) async fn remove_copies<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    copies: Vec<(ShardId, CopyAddress)>,
) {
    let removals = copies.into_iter().map(async |(shard, copy)| {
        let deadline = parts.platform.now() + COPY_WAIT_MAX;
        let removal = parts.ask(shard, ReplicaRequest::RemoveCopy { copy }, None);
        let _ = before(&parts.platform, deadline, removal).await;
    });
    stream::iter(removals).buffer_unordered(COPIES_AT_ONCE).for_each(async |()| ()).await;
}

/// Asks for a drive's copies on a node something that is the same once and twice, for a while if nobody answers or the drive is
/// served elsewhere.
pub(crate) async fn ask_patiently<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    (node, drive): (NodeId, DriveId),
    request: ReplicaRequest,
) -> Result<(), AskError> {
    let platform = &parts.platform;
    let deadline = platform.now() + COPY_WAIT_MAX;
    loop {
        let shard = parts.shard_of(node, drive);
        match before(platform, deadline, parts.ask(shard, request.clone(), None)).await {
            Some(Err(error))
                if is_to_be_asked_again(parts, shard, drive, &error) && platform.now() < deadline =>
            {
                platform.sleep(COPY_RETRY).await;
            }
            Some(outcome) => return outcome.map(drop),
            // A drive may hang although its node is there.
            None => {
                let why = format!("no answer for {} s", COPY_WAIT_MAX.as_secs());
                return Err(AskError::Unreachable(why));
            }
        }
    }
}

fn is_to_be_asked_again<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    shard: ShardId,
    drive: DriveId,
    error: &AskError,
) -> bool {
    match error {
        AskError::Unreachable(_) => true,
        AskError::Replica(ReplicaError::NotFound) => !parts.answers_for(shard, drive),
        AskError::Replica(_) => false,
    }
}

/// Whether the state remembers that a volume was deleted.
async fn is_deleted<S: StateStore>(state: &ClusterState<S>, volume: VolumeId) -> bool {
    let tombstone = StateKey::VolumeTombstone(volume).key();
    let snapshot = state.store().read(&[Selection::key(&tombstone)]).await;
    snapshot.is_ok_and(|snapshot| snapshot.entry(0).is_some())
}

/// Where the volume goes.
async fn plan<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    creation: &VolumeCreation,
) -> Result<(PoolRoom, Plan), StateError> {
    let (room, view) = pool_for_plans(parts).await?;
    let request = VolumeRequest {
        name: &creation.name,
        size_bytes: creation.size_bytes,
        copies: creation.copies,
        owner: creation.owner,
    };
    let plan = plan_volume(&view, &request)?;
    Ok((room, plan))
}

/// The pool as the state shows it now.
pub(crate) async fn pool_for_plans<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
) -> Result<(PoolRoom, PoolView), StateError> {
    let state = &parts.state;
    let room = retry_store(parts, || state.pool_room()).await?;
    let nodes = retry_store(parts, || state.nodes()).await?;
    let alive = retry_store(parts, || state.alive()).await?;
    let volumes = retry_store(parts, || state.volumes()).await?;
    let owned = |node: NodeId| {
        let owned = volumes.values().filter(|stored| {
            let record = &stored.record;
            record.state != VolumeState::Deleting && record.preferred_owner == Some(node)
        });
        owned.count() as u32
    };
    let drives = room.drives.iter().map(|(drive, record)| (*drive, record));
    let view = pool_view(parts.cluster.slab_bytes, &nodes, &alive, drives, room.promised(), owned);
    Ok((room, view))
}

/// The pool as these parts of the state show it; `owned` says how many volumes a node should own.
pub(crate) fn pool_view<'a>(
    geometry: SlabGeometry,
    nodes: &BTreeMap<NodeId, Stored<NodeRecord>>,
    alive: &AliveShards,
    drives: impl Iterator<Item = (DriveId, &'a DriveRecord)>,
    promised: &PromisedRoom,
    owned: impl Fn(NodeId) -> u32,
) -> PoolView {
    let nodes = nodes.iter().map(|(node, stored)| NodeRoom {
        node: *node,
        name: stored.record.name.clone(),
        is_online: ShardId::all(*node, stored.record.shards()).all(|shard| alive.contains_key(&shard)),
        volumes_owned: owned(*node),
        place: stored.record.place.clone(),
        is_in_maintenance: stored.record.maintenance_since_unix_ms.is_some(),
    });
    let drives = drives.map(|(drive, record)| {
        let is_reachable = is_served(alive, record.node, drive);
        drive_room(drive, record, promised, is_reachable)
    });
    PoolView { geometry, nodes: nodes.collect(), drives: drives.collect() }
}

/// A drive as plans see it.
pub fn drive_room(
    drive: DriveId,
    record: &DriveRecord,
    promised: &PromisedRoom,
    is_reachable: bool,
) -> DriveRoom {
    let slabs = |slabs| u32::try_from(slabs).unwrap_or(u32::MAX);
    DriveRoom {
        drive,
        node: record.node,
        slabs_total: record.slabs_promised_max,
        slabs_used: slabs(promised.slabs(drive)),
        slabs_leaving: slabs(promised.leaving(drive)),
        is_online: record.state == DriveState::Active && is_reachable,
    }
}

/// The copies of a volume's slabs from `first` on: which, on which drive, which part of how many.
pub(crate) fn copies_of(
    volume: VolumeId,
    first: SlabIndex,
    sets: &[CopySet],
) -> Vec<(CopyAddress, DriveId, u8, u8)> {
    let mut copies = Vec::new();
    for (set, slab) in sets.iter().zip(first.0..) {
        for member in &set.members {
            let copy = CopyAddress { volume, slab: SlabIndex(slab), copy: member.copy };
            copies.push((copy, member.drive, member.part, set.members.len() as u8));
        }
    }
    copies
}

fn volume_exists(name: &str) -> Error {
    Error::new(
        "VOLUME_EXISTS",
        format!("the volume {name} cannot be made"),
        "there is one of that name",
        "choose another name",
    )
}
