//! What the node knows of the cluster's state: nodes, living processes, volumes, drives and what is promised on them,
//! kept up to date by watches.
//!
//! It may lag behind the state. So it tells where to look and when to try, and every decision is
//! checked again by a transaction.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::rc::Rc;
use std::str::FromStr;

use spandrel_cluster::records::{Record, VolumeRoomRecord, alive_shards_of, decode};
use spandrel_cluster::store::{Entry, Revision, StateStore};
use spandrel_cluster::{
    AliveRecord, AliveShards, DriveRecord, Mirror, NodeRecord, PromisedRoom, SettingsRecord, StateKey,
    Stored, VmRecord, Vms, VolumeRecord, is_served, keys,
};
use spandrel_platform::sync::Signal;
use spandrel_platform::{Instant, Platform};
use spandrel_pool::PoolView;
use spandrel_shared::{DriveId, Epoch, NodeId, ProcessIncarnation, ShardId, SlabGeometry, VmId, VolumeId};

use crate::shards::turn_of;
use crate::volumes::pool_view;

/// A part of the cluster's state, as this node saw it last.
pub(crate) struct ClusterView {
    pub(crate) nodes: RefCell<BTreeMap<NodeId, Stored<NodeRecord>>>,
    pub(crate) alive: RefCell<AliveShards>,
    /// The shard that has served each drive last, as far as this node has seen.
    served_by: RefCell<BTreeMap<DriveId, ShardId>>,
    /// Whether another shard serves a drive than was seen before.
    drives_changed_shard: Cell<bool>,
    pub(crate) volumes: RefCell<BTreeMap<VolumeId, Stored<VolumeRecord>>>,
    pub(crate) vms: RefCell<Vms>,
    pub(crate) drives: RefCell<BTreeMap<DriveId, Stored<DriveRecord>>>,
    pub(crate) caches: RefCell<BTreeMap<DriveId, Stored<DriveRecord>>>,
    /// What each volume was promised.
    pub(crate) rooms: RefCell<BTreeMap<VolumeId, Stored<VolumeRoomRecord>>>,
    /// What is set for the whole pool, as it could be read last.
    settings: RefCell<Option<SettingsRecord>>,
    /// Nodes that were alive at any time since this process started.
    pub(crate) seen: RefCell<BTreeSet<NodeId>>,
    /// Since when each volume's ownership has been shown as it is.
    shown_since: RefCell<BTreeMap<VolumeId, (Epoch, Instant)>>,
    changed_volumes: RefCell<BTreeSet<VolumeId>>,
    volume_changes: Cell<u64>,
    revision: Cell<Revision>,
    changes: Cell<u64>,
    /// The revision of the last change for good that was seen; `None` before there was any.
    changed_for_good: Cell<Option<Revision>>,
    /// Notified when anything here changes.
    pub(crate) changed: Signal,
}

impl ClusterView {
    /// A view that is empty until its watches have read the state.
    pub(crate) fn new() -> Self {
        Self {
            nodes: RefCell::default(),
            alive: RefCell::default(),
            served_by: RefCell::default(),
            drives_changed_shard: Cell::default(),
            volumes: RefCell::default(),
            vms: RefCell::default(),
            drives: RefCell::default(),
            caches: RefCell::default(),
            rooms: RefCell::default(),
            settings: RefCell::default(),
            seen: RefCell::default(),
            shown_since: RefCell::default(),
            changed_volumes: RefCell::default(),
            volume_changes: Cell::new(0),
            revision: Cell::new(Revision::ZERO),
            changes: Cell::new(0),
            changed_for_good: Cell::new(None),
            changed: Signal::new(),
        }
    }

    /// The newest revision that was seen.
    pub(crate) fn revision(&self) -> Revision {
        self.revision.get()
    }

    /// How often the pool has changed: nodes, drives, what is promised on them, and what is set. Its parts are watched one by
    /// one, so one may come to a revision later than another: this changes then, the newest revision does not. What changes
    /// of a volume alone, as with each client that comes, changes no plan for the others.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// The revision of the last change for good that was seen: see [`StateStamp`](spandrel_cluster::StateStamp).
    pub(crate) fn changed_for_good(&self) -> Option<Revision> {
        self.changed_for_good.get()
    }

    /// What is set for the whole pool, as it could be read last; `None` before that.
    pub(crate) fn settings(&self) -> Option<SettingsRecord> {
        self.settings.borrow().clone()
    }

    /// The nodes that the state shows alive, with all their shards.
    pub(crate) fn alive_nodes(&self) -> BTreeSet<NodeId> {
        self.whole_nodes(&self.alive.borrow().keys().copied().collect())
    }

    /// The shard of a node to ask for a copy on one of its drives: the one that serves the drive, as far as was seen.
    pub(crate) fn shard_of(&self, node: NodeId, drive: DriveId) -> ShardId {
        let served_by = self.served_by.borrow().get(&drive).copied();
        served_by.filter(|shard| shard.node == node).unwrap_or(ShardId::first(node))
    }

    /// The shard of a node that is to have a volume of which nothing speaks for any of them.
    pub(crate) fn shard_by_turns(&self, node: NodeId, volume: VolumeId) -> ShardId {
        ShardId { node, number: turn_of(volume, self.shard_count(node)) }
    }

    /// How many shards the state shows a node to have.
    fn shard_count(&self, node: NodeId) -> u8 {
        self.nodes.borrow().get(&node).map_or(1, |stored| stored.record.shards())
    }

    /// The nodes all of whose shards are among these.
    pub(crate) fn whole_nodes(&self, shards: &BTreeSet<ShardId>) -> BTreeSet<NodeId> {
        let is_whole =
            |node: &NodeId| ShardId::all(*node, self.shard_count(*node)).all(|shard| shards.contains(&shard));
        let named: BTreeSet<NodeId> = shards.iter().map(|shard| shard.node).collect();
        named.into_iter().filter(is_whole).collect()
    }

    /// Whether drives are served by other shards than they were when this was asked last.
    pub(crate) fn take_drives_changed_shard(&self) -> bool {
        self.drives_changed_shard.take()
    }

    fn take_in_alive(&self, changes: Changes<ShardId, AliveRecord>, revision: Revision) {
        let nodes: BTreeSet<NodeId> = changes.iter().map(|(shard, _)| shard.node).collect();
        take_in(&self.alive, changes);
        nodes.into_iter().for_each(|node| self.note_served(node));
        self.note_seen();
        self.note_change(revision);
    }

    /// A node is there again after a power cut when all of it is.
    fn note_seen(&self) {
        if self.knows_nodes() {
            self.seen.borrow_mut().extend(self.alive_nodes());
        }
    }

    /// Finds out which shard of a node serves each of its drives. Entries of a former process of it may be there beside those of the
    /// present one, and are read in any order: the newest one counts.
    fn note_served(&self, node: NodeId) {
        let alive = self.alive.borrow();
        let mut entries: Vec<(ShardId, &Stored<AliveRecord>)> = alive_shards_of(&alive, node).collect();
        entries.sort_by_key(|(_, stored)| stored.revision);
        let served = entries
            .iter()
            .flat_map(|(shard, stored)| stored.record.drives.iter().map(|drive| (*drive, *shard)));
        let served: BTreeMap<DriveId, ShardId> = served.collect();
        let mut served_by = self.served_by.borrow_mut();
        for (drive, shard) in served {
            let former = served_by.insert(drive, shard).unwrap_or(ShardId::first(node));
            self.drives_changed_shard.set(self.drives_changed_shard.get() || former != shard);
        }
    }

    /// Whether the state shows a node in maintenance. Nobody is before this view has read the nodes; see
    /// [`Self::knows_nodes`].
    pub(crate) fn is_in_maintenance(&self, node: NodeId) -> bool {
        let nodes = self.nodes.borrow();
        nodes.get(&node).is_some_and(|stored| stored.record.maintenance_since_unix_ms.is_some())
    }

    /// Whether the nodes have been read. This node is one of them, so there are some.
    pub(crate) fn knows_nodes(&self) -> bool {
        !self.nodes.borrow().is_empty()
    }

    /// How many volumes the state shows each node to own.
    pub(crate) fn volumes_owned(&self) -> BTreeMap<NodeId, u64> {
        let mut owned = BTreeMap::new();
        for owner in self.volumes.borrow().values().filter_map(|stored| stored.record.owner) {
            *owned.entry(owner.shard.node).or_default() += 1;
        }
        owned
    }

    /// Whether the state shows this entry of a shard that is alive.
    pub(crate) fn shows_alive(&self, shard: ShardId, entry: &AliveRecord) -> bool {
        self.alive.borrow().get(&shard).is_some_and(|stored| stored.record == *entry)
    }

    /// Whether the state shows this process of a shard alive.
    pub(crate) fn shows_process(&self, shard: ShardId, incarnation: ProcessIncarnation) -> bool {
        self.alive.borrow().get(&shard).is_some_and(|stored| stored.record.incarnation == incarnation)
    }

    /// Whether the state shows that a node is alive and can use this drive.
    pub(crate) fn shows_drive(&self, node: NodeId, drive: DriveId) -> bool {
        is_served(&self.alive.borrow(), node, drive)
    }

    /// The pool, to make plans by; whoever carries one out reads it anew.
    pub(crate) fn pool(&self, geometry: SlabGeometry) -> PoolView {
        let (nodes, drives, rooms) = (self.nodes.borrow(), self.drives.borrow(), self.rooms.borrow());
        let owned = self.volumes_owned();
        let owned = |node| owned.get(&node).map_or(0, |count| u32::try_from(*count).unwrap_or(u32::MAX));
        let drives = drives.iter().map(|(drive, stored)| (*drive, &stored.record));
        let promised = PromisedRoom::sum(rooms.values().map(|stored| &stored.record));
        pool_view(geometry, &nodes, &self.alive.borrow(), drives, &promised, owned)
    }

    /// Since when the state has shown the volume's ownership of this epoch. `None` if it has shown
    /// another one last: this view may lag behind what was read.
    pub(crate) fn shown_since(&self, volume: VolumeId, epoch: Epoch) -> Option<Instant> {
        let shown = self.shown_since.borrow();
        shown.get(&volume).filter(|(shown, _)| *shown == epoch).map(|(_, since)| *since)
    }

    /// Keeps the view up to date. Never completes.
    pub(crate) async fn follow<P: Platform, S: StateStore>(self: Rc<Self>, platform: P, store: S) {
        let nodes = follow_part(&platform, &store, keys::NODES, |changes, revision| {
            take_in(&self.nodes, changes);
            self.note_seen();
            self.note_change(revision);
        });
        let alive = follow_part(
            &platform,
            &store,
            keys::ALIVE,
            |changes: Changes<ShardId, AliveRecord>, revision| self.take_in_alive(changes, revision),
        );
        let volumes = follow_part(&platform, &store, keys::VOLUMES, |changes, revision| {
            self.take_in_volumes(platform.now(), changes, revision);
        });
        let vms = follow_part(&platform, &store, keys::VMS, |changes, revision| {
            take_in(&self.vms, changes);
            self.note_revision(revision);
        });
        let drives = follow_part(&platform, &store, keys::DRIVES, |changes, revision| {
            take_in(&self.drives, changes);
            self.note_change(revision);
        });
        let caches = follow_part(&platform, &store, keys::CACHES, |changes, revision| {
            take_in(&self.caches, changes);
            self.note_revision(revision);
        });
        let rooms = follow_part(&platform, &store, keys::ROOMS, |changes, revision| {
            take_in(&self.rooms, changes);
            self.note_change(revision);
        });
        let changed_for_good = self.follow_changes_for_good(&platform, &store);
        let settings = self.follow_settings(&platform, &store);
        let room = futures_util::future::join5(drives, caches, rooms, settings, vms);
        futures_util::future::join5(nodes, alive, volumes, room, changed_for_good).await;
    }

    async fn follow_changes_for_good<P: Platform, S: StateStore>(&self, platform: &P, store: &S) {
        let mut mirror = Mirror::new(platform.clone(), store.clone(), keys::CHANGED);
        loop {
            mirror.changed().await;
            let last = mirror.entry(&StateKey::Changed.key()).map(|entry| entry.modified);
            self.changed_for_good.set(self.changed_for_good.get().max(last));
        }
    }

    async fn follow_settings<P: Platform, S: StateStore>(&self, platform: &P, store: &S) {
        let mut mirror = Mirror::new(platform.clone(), store.clone(), keys::SETTINGS);
        loop {
            mirror.changed().await;
            self.note_settings(mirror.entry(&StateKey::Settings.key()));
            self.note_change(mirror.revision());
        }
    }

    /// What a newer version has set in a way that this one cannot read is no reason to go by the defaults: the operator
    /// may have said that nothing is to be moved.
    fn note_settings(&self, entry: Option<&Entry>) {
        match entry.map(decode::<SettingsRecord>).transpose() {
            Ok(stored) => {
                *self.settings.borrow_mut() = Some(stored.map(|stored| stored.record).unwrap_or_default());
            }
            Err(error) => {
                tracing::error!("the settings of the pool stay as they could be read last: {error}")
            }
        }
    }

    fn take_in_volumes(&self, now: Instant, changes: Changes<VolumeId, VolumeRecord>, revision: Revision) {
        self.note_volumes(now, changes);
        self.note_revision(revision);
    }

    fn note_volumes(&self, now: Instant, changes: Changes<VolumeId, VolumeRecord>) {
        let mut shown = self.shown_since.borrow_mut();
        for (volume, stored) in &changes {
            let Some(stored) = stored else {
                shown.remove(volume);
                continue;
            };
            let entry = shown.entry(*volume).or_insert((stored.record.epoch, now));
            if entry.0 != stored.record.epoch {
                *entry = (stored.record.epoch, now);
            }
        }
        drop(shown);
        self.changed_volumes.borrow_mut().extend(changes.iter().map(|(volume, _)| *volume));
        take_in(&self.volumes, changes);
        self.volume_changes.set(self.volume_changes.get() + 1);
    }

    /// A virtual machine as this node has just changed it: it need not be seen again before it counts.
    pub(crate) fn note_vm(&self, vm: VmId, stored: Stored<VmRecord>) {
        let mut vms = self.vms.borrow_mut();
        if vms.get(&vm).is_some_and(|seen| seen.revision < stored.revision) {
            vms.insert(vm, stored);
        }
        drop(vms);
        self.changed.notify_all();
    }

    /// How often records of volumes have changed.
    pub(crate) fn volume_changes(&self) -> u64 {
        self.volume_changes.get()
    }

    /// The volumes whose records have changed since this was asked last.
    pub(crate) fn take_changed_volumes(&self) -> BTreeSet<VolumeId> {
        self.changed_volumes.take()
    }

    fn note_change(&self, revision: Revision) {
        self.changes.set(self.changes.get() + 1);
        self.note_revision(revision);
    }

    fn note_revision(&self, revision: Revision) {
        self.revision.set(self.revision.get().max(revision));
        self.changed.notify_all();
    }
}

/// Records that have changed, as they are now; `None` for one that is not there any more.
type Changes<I, T> = Vec<(I, Option<Stored<T>>)>;

/// Takes changes over.
fn take_in<I: Ord, T>(records: &RefCell<BTreeMap<I, Stored<T>>>, changes: Changes<I, T>) {
    let mut records = records.borrow_mut();
    for (identity, stored) in changes {
        match stored {
            Some(stored) => records.insert(identity, stored),
            None => records.remove(&identity),
        };
    }
}

/// Hands over the records below a prefix that have changed: first all of them. There can be thousands, so those that
/// have not changed are not looked at.
async fn follow_part<P: Platform, S: StateStore, I, T>(
    platform: &P,
    store: &S,
    prefix: &str,
    mut take: impl FnMut(Changes<I, T>, Revision),
) where
    I: FromStr + Ord + Display,
    T: Record,
{
    let mut mirror = Mirror::new(platform.clone(), store.clone(), prefix);
    loop {
        let mut changes = Vec::new();
        for key in mirror.changed().await {
            let Ok(identity) = key.as_str()[prefix.len()..].parse() else { continue };
            let stored = mirror.entry(&key).map(decode).transpose().unwrap_or_else(|error| {
                // What this version cannot read it leaves to the nodes that can.
                tracing::error!("{error}");
                None
            });
            changes.push((identity, stored));
        }
        take(changes, mirror.revision());
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
