//! What a node says of itself.

use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spandrel_bus::BusStatistics;
use spandrel_cluster::store::StateStore;
use spandrel_cluster::{ScrubSummary, StateRequests};
use spandrel_drive::{CacheDrive, DriveStore};
use spandrel_platform::{Instant, Platform};
use spandrel_shared::{CacheMode, DriveId, Epoch, Error, NodeId, ProcessIncarnation, ShardId, VolumeId};
use spandrel_volume::{LegState, Phase, SlowDrive};

use crate::absence::Absence;
use crate::caches::NodeCache;
use crate::drives::NodeDrive;
use crate::node::{Node, NodeInner};
use crate::ownership::Ownership;
use crate::parts::NodeParts;
use crate::vms::VmReport;

/// A node and what it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// The node.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// This run of its process.
    pub incarnation: ProcessIncarnation,
    /// The same of its shards behind the first one, in the order of their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_incarnations: Vec<ProcessIncarnation>,
    /// Where it listens for NBD clients.
    pub nbd_addresses: Vec<String>,
    /// NBD connections that are open.
    pub nbd_connections: u64,
    /// When this run of its process began, by the clock of its server. Absent if its version does not say.
    #[serde(default)]
    pub started_unix_ms: Option<u64>,
    /// How it asks each of the other nodes. Empty if its version does not say.
    #[serde(default)]
    pub peers: Vec<PeerReport>,
    /// Other nodes that answer.
    pub reachable: Vec<NodeId>,
    /// Nodes that the cluster's state shows alive, this one included.
    pub alive: Vec<NodeId>,
    /// What it has asked of the cluster's state since it started.
    #[serde(default)]
    pub state_requests: StateRequests,
    /// Drives of the pool that cannot be used, here or elsewhere.
    #[serde(default)]
    pub drives_away: Vec<DriveAway>,
    /// Drives of the pool that its owners have found slow: now, or so lately that their copies rest.
    #[serde(default)]
    pub drives_slow: Vec<DriveSlow>,
    /// Its cache drives that do not work or are not there.
    #[serde(default)]
    pub caches_away: Vec<DriveAway>,
    /// Its drives that hold copies.
    pub drives: Vec<DriveReport>,
    /// Its drives that cache for these. Empty if its version does not say.
    #[serde(default)]
    pub caches: Vec<CacheDriveReport>,
    /// The volumes that it owns.
    pub owned: Vec<OwnedVolumeReport>,
    /// The virtual machines that it has claimed, or of which something is there. Empty if its version does not say.
    #[serde(default)]
    pub vms: Vec<VmReport>,
}

impl NodeReport {
    /// What the shards of a node say together, the first one before the others; none if there are none.
    pub fn of_shards(shards: impl IntoIterator<Item = NodeReport>) -> Option<NodeReport> {
        shards.into_iter().reduce(|mut all, shard| {
            all.further_incarnations.push(shard.incarnation);
            all.nbd_addresses.extend(shard.nbd_addresses);
            all.nbd_connections += shard.nbd_connections;
            all.peers.extend(shard.peers);
            all.reachable.retain(|node| shard.reachable.contains(node));
            all.state_requests = all.state_requests.with(shard.state_requests);
            // Owners meet drives of other shards and nodes as slow, each for itself: the worst counts.
            for slow in shard.drives_slow {
                match all.drives_slow.iter_mut().find(|known| known.drive == slow.drive) {
                    Some(known) if known.slow_ms < slow.slow_ms => *known = slow,
                    Some(_) => {}
                    None => all.drives_slow.push(slow),
                }
            }
            all.drives.extend(shard.drives);
            all.drives.sort_by(|one, other| one.location.cmp(&other.location));
            all.caches.extend(shard.caches);
            all.caches.sort_by(|one, other| one.location.cmp(&other.location));
            all.owned.extend(shard.owned);
            all.vms.extend(shard.vms);
            all
        })
    }

    /// Whether this run of the node, in whichever of its shards, is the one that somebody names.
    pub fn is_of(&self, shard: ShardId, incarnation: ProcessIncarnation) -> bool {
        let own = match usize::from(shard.number).checked_sub(1) {
            None => Some(&self.incarnation),
            Some(index) => self.further_incarnations.get(index),
        };
        self.node == shard.node && own == Some(&incarnation)
    }
}

/// A drive that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveAway {
    /// The drive.
    pub drive: DriveId,
    /// For how many milliseconds this node has seen that.
    pub away_ms: u64,
    /// Whether this node waits for it yet; if not, the copies there of its volumes are built elsewhere.
    pub is_waited_for: bool,
    /// For how many milliseconds it is waited for yet, if nothing changes; absent if the node does not know.
    #[serde(default)]
    pub left_ms: Option<u64>,
}

/// A drive that answers slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveSlow {
    /// The drive.
    pub drive: DriveId,
    /// For how many milliseconds it has been slow, or had been when its copies were taken out.
    pub slow_ms: u64,
    /// How often copies on it were taken out for that, with less than an hour in between.
    pub times: u32,
    /// For how many milliseconds these are not brought back yet, unless they are needed.
    pub rest_left_ms: u64,
}

/// How a node asks another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerReport {
    /// The other node.
    pub node: NodeId,
    /// Which of its shards.
    #[serde(default)]
    pub shard: u8,
    /// For how long nothing was heard of it; absent if nothing was ever.
    pub silent_ms: Option<u64>,
    /// The connections of the present session, none if there is no session.
    pub paths: Vec<PathReport>,
}

/// A connection to another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathReport {
    /// Where it leads.
    pub address: String,
    /// What was sent on it or asked for, in bytes, since it was made.
    pub carried_bytes: u64,
}

/// A drive of a node. What is counted is counted since the node started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveReport {
    /// The drive, if it can say who it is.
    pub drive: Option<DriveId>,
    /// The shard of its node that has it.
    #[serde(default)]
    pub shard: u8,
    /// Where it is.
    pub location: String,
    /// Its size.
    pub size_bytes: u64,
    /// Why it is not used, if it is not.
    pub failure: Option<String>,
    /// Blocks that hold data or map pages.
    pub blocks_used: u64,
    /// Blocks that can.
    pub blocks_usable: u64,
    /// Copies of slabs that it can be promised.
    pub slabs_promised_max: u32,
    /// All bytes that were sent to the drive.
    pub written_bytes: u64,
    /// Of these, blocks of volumes.
    pub data_bytes: u64,
    /// Of these, the journal.
    pub journal_bytes: u64,
    /// Of these, map pages and roots.
    pub map_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// How often the journal has wrapped around.
    pub journal_laps: u64,
    /// Bytes of its maps that are in memory.
    #[serde(default)]
    pub map_memory_bytes: u64,
    /// Map pages that had been evicted from memory and were read back.
    #[serde(default)]
    pub map_pages_read: u64,
    /// Blocks that were found damaged.
    pub blocks_damaged: u64,
    /// Damaged blocks that were replaced.
    pub blocks_healed: u64,
    /// Superblocks, roots, journal groups and map pages that were found damaged.
    pub structures_damaged: u64,
    /// The cache drive that it is bound to, also while it is not used.
    #[serde(default)]
    pub bound_to: Option<DriveId>,
    /// What it has of that, while it is used.
    #[serde(default)]
    pub cache: Option<CacheReport>,
    /// Whether it is not in use since it is being attached anew, with another cache drive or without one.
    #[serde(default)]
    pub is_being_attached: bool,
    /// For how many milliseconds it has gone without a cache drive, though the node has one.
    #[serde(default)]
    pub without_cache_ms: Option<u64>,
    /// Bytes in memory that are copies of what was read of it.
    #[serde(default)]
    pub memory_cached_bytes: u64,
    /// Blocks that were read from there since it was attached.
    #[serde(default)]
    pub memory_hits: u64,
    /// Blocks that were not, though memory holds copies.
    #[serde(default)]
    pub memory_misses: u64,
    /// Why its binding could not be changed the last time.
    #[serde(default)]
    pub cache_obstacle: Option<Error>,
    /// The volumes on it, with the blocks that hold data of them.
    pub volumes: Vec<(VolumeId, u64)>,
}

/// What a capacity drive has of the cache drive that it is bound to. What is counted is counted since the node started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheReport {
    /// The cache drive.
    pub drive: DriveId,
    /// What it is used for.
    pub mode: CacheMode,
    /// Its blocks for this drive's data.
    pub blocks_total: u64,
    /// Of these, blocks that hold what the capacity drive does not.
    pub blocks_dirty: u64,
    /// Of these, blocks that hold copies of what was read.
    pub blocks_copied: u64,
    /// Blocks that were read from the cache drive.
    pub hits: u64,
    /// Blocks that were read from the capacity drive.
    pub misses: u64,
    /// Blocks that were copied to the cache drive as they were read.
    pub populated: u64,
    /// Blocks that were moved from the cache drive to the capacity drive.
    pub destaged: u64,
    /// For how many milliseconds there has been hardly room, so that writes go to the capacity drive.
    #[serde(default)]
    pub full_ms: Option<u64>,
}

/// A drive of a node that caches for the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheDriveReport {
    /// The drive, if it can say who it is.
    pub drive: Option<DriveId>,
    /// Where it is.
    pub location: String,
    /// Its size.
    pub size_bytes: u64,
    /// Why it is not used, if it is not.
    pub failure: Option<String>,
    /// The capacity drives that are bound to it.
    pub bound: Vec<DriveId>,
    /// Why it could not be emptied, or given up, the last time that this was to be done.
    #[serde(default)]
    pub obstacle: Option<Error>,
}

/// A volume that a node owns. What is counted is counted since it took the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnedVolumeReport {
    /// The volume.
    pub volume: VolumeId,
    /// The shard of the node that owns it.
    #[serde(default)]
    pub shard: u8,
    /// The ownership.
    pub epoch: Epoch,
    /// Whether it serves; else it is being taken over, and requests wait.
    pub is_serving: bool,
    /// What the take-over waits for, and what ends that, in words, if it cannot go on by itself.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// The node whose client has it open for writing.
    pub writer: Option<NodeId>,
    /// Its copies, one entry for each drive that holds some.
    pub legs: Vec<LegReport>,
    /// Copies that should be elsewhere, as their drives are gone or on their way out, and for which no drive has room or
    /// no other node is there.
    #[serde(default)]
    pub copies_without_place: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Writes, trims and write-zeroes that were answered.
    pub writes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub write_bytes: u64,
    /// Blocks that were damaged on one copy and read from another.
    pub blocks_read_elsewhere: u64,
    /// Damaged blocks that were replaced.
    pub blocks_healed: u64,
    /// Legs that were marked stale.
    pub legs_marked: u64,
    /// Legs that came back in sync.
    pub legs_promoted: u64,
    /// Blocks that the take-over rolled forward.
    pub blocks_rolled_forward: u64,
    /// Blocks that resync copied.
    pub blocks_resynced: u64,
    /// How far its scrub is; absent if its version does not say, or it does not know yet.
    #[serde(default)]
    pub scrub: Option<ScrubSummary>,
}

/// All copies of a volume on one drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegReport {
    /// The drive.
    pub drive: DriveId,
    /// Its node.
    pub node: NodeId,
    /// Whether its copies are being built, to take the places of others.
    #[serde(default)]
    pub is_building: bool,
    /// How far it takes part: `in-sync`, `stale`, `joining` or `promoting`.
    pub state: String,
    /// Whether its node does not say now that it stands by this ownership, as when it has just started anew: what needs
    /// the leg waits until it does, or until the leg is taken out.
    #[serde(default)]
    pub is_silent: bool,
    /// While it is brought up to date: pages of 2 MiB that are done, and all.
    pub resync_pages: Option<(u64, u64)>,
    /// What was copied for that so far, in bytes: what is the same already is not.
    #[serde(default)]
    pub resync_copied_bytes: u64,
    /// For how many milliseconds it has been brought up to date.
    #[serde(default)]
    pub resync_ms: u64,
}

/// How far the check of a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubProgress {
    /// Slabs that were checked.
    pub slabs_done: u32,
    /// All slabs.
    pub slabs_total: u32,
}

impl<P: Platform, S: StateStore> Node<P, S> {
    /// What the node has said to others and answered them, since it started.
    pub fn bus_statistics(&self) -> BusStatistics {
        self.inner.parts.bus.statistics()
    }

    /// What the node has asked of the cluster's state since it started.
    pub fn state_requests(&self) -> StateRequests {
        self.inner.parts.state.store().requests()
    }

    /// What the node says of itself, now.
    pub fn report(&self) -> NodeReport {
        let inner = &self.inner;
        let ownerships = inner.ownerships.borrow();
        let now = inner.parts.platform.now();
        NodeReport {
            node: self.id(),
            name: inner.config.name.clone(),
            incarnation: self.incarnation(),
            further_incarnations: Vec::new(),
            nbd_addresses: inner.nbd_addresses.iter().map(ToString::to_string).collect(),
            nbd_connections: self.nbd_connections(),
            started_unix_ms: Some(inner.started_unix_ms),
            peers: inner.parts.bus.peers().into_iter().map(|peer| report_peer(&inner.parts, peer)).collect(),
            reachable: inner.parts.view.whole_nodes(&inner.parts.liveness.reachable()).into_iter().collect(),
            alive: inner.parts.view.alive_nodes().into_iter().collect(),
            state_requests: self.state_requests(),
            drives_away: inner.drives_away(now),
            drives_slow: inner.drives_slow(now),
            caches_away: inner.caches_away(now),
            drives: inner.drives.borrow().iter().map(|drive| inner.report_drive(drive, now)).collect(),
            caches: inner.parts.caches.borrow().iter().map(|cache| inner.report_cache_drive(cache)).collect(),
            owned: ownerships
                .iter()
                .map(|(volume, ownership)| report_volume(now, *volume, ownership))
                .collect(),
            vms: inner.report_vms(),
        }
    }
}

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    fn drives_away(&self, now: Instant) -> Vec<DriveAway> {
        self.away(&self.absence.borrow(), now)
    }

    fn caches_away(&self, now: Instant) -> Vec<DriveAway> {
        self.away(&self.cache_watch.absence.borrow(), now)
    }

    fn away(&self, absence: &Absence, now: Instant) -> Vec<DriveAway> {
        let settings = self.parts.view.settings();
        let waits = settings.map(|settings| absence.waits(&settings, now)).unwrap_or_default();
        let away = |(drive, away)| {
            let left = waits.get(&drive);
            DriveAway {
                drive,
                away_ms: milliseconds(away),
                is_waited_for: left.is_none_or(|left| !left.is_zero()),
                left_ms: left.copied().map(milliseconds),
            }
        };
        absence.all(now).map(away).collect()
    }

    fn report_drive(&self, drive: &NodeDrive<P>, now: Instant) -> DriveReport {
        let mut report = report_drive(drive);
        report.shard = self.parts.own.shard.number;
        if let Some(id) = drive.id() {
            let watch = &self.cache_watch;
            report.without_cache_ms = watch.without(id, now).map(milliseconds);
            if let Some(cache) = &mut report.cache {
                cache.full_ms = watch.full(id, now).map(milliseconds);
            }
        }
        report.is_being_attached = drive.is_being_attached();
        report.cache_obstacle = self.bindings.attempts.obstacle(&drive.location);
        report
    }

    fn obstacle_of(&self, cache: &NodeCache<P>, id: DriveId) -> Option<Error> {
        let drives = self.drives.borrow();
        let is_behind = |drive: &&Rc<NodeDrive<P>>| cache.is_retired.get() && drive.is_bound_to(id);
        let mut behind = drives.iter().filter(is_behind);
        let own = self.bindings.attempts.obstacle(&id.to_string());
        own.or_else(|| behind.find_map(|drive| self.bindings.attempts.obstacle(&drive.location)))
    }

    fn report_cache_drive(&self, cache: &NodeCache<P>) -> CacheDriveReport {
        CacheDriveReport {
            drive: cache.id(),
            location: cache.location.clone(),
            size_bytes: cache.size_bytes,
            failure: cache.failure(),
            bound: cache.cache.as_ref().map_or_else(|_| Vec::new(), CacheDrive::bound),
            obstacle: cache.id().and_then(|id| self.obstacle_of(cache, id)),
        }
    }
}

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    fn drives_slow(&self, now: Instant) -> Vec<DriveSlow> {
        let slow = |(drive, slow): (DriveId, SlowDrive)| DriveSlow {
            drive,
            slow_ms: milliseconds(slow.last.since(slow.since)),
            times: slow.times,
            rest_left_ms: milliseconds(slow.rests_until.since(now)),
        };
        self.parts.slow_drives.present(now).into_iter().map(slow).collect()
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn report_peer<P: Platform, S: StateStore>(parts: &NodeParts<P, S>, peer: ShardId) -> PeerReport {
    let silent = parts.bus.last_received(peer).map(|heard| parts.platform.now().since(heard));
    let path = |(address, carried_bytes)| PathReport { address, carried_bytes };
    PeerReport {
        node: peer.node,
        shard: peer.number,
        silent_ms: silent.map(milliseconds),
        paths: parts.bus.paths(peer).into_iter().map(path).collect(),
    }
}

fn report_drive<P: Platform>(drive: &NodeDrive<P>) -> DriveReport {
    let layout = drive.superblock.as_ref().map(|superblock| superblock.layout);
    let mut report = DriveReport {
        drive: drive.superblock.as_ref().map(|superblock| superblock.drive),
        location: drive.location.clone(),
        size_bytes: drive.size_bytes,
        blocks_usable: layout.map_or(0, |layout| u64::from(layout.data_blocks())),
        slabs_promised_max: layout.map_or(0, |layout| layout.promised_slabs()),
        structures_damaged: drive.report.structures_damaged,
        bound_to: drive.binding.map(|binding| binding.cache),
        ..DriveReport::default()
    };
    let store = match &drive.store {
        Ok(store) => store,
        Err(why) => {
            report.failure = Some(why.clone());
            return report;
        }
    };
    let counted = store.statistics();
    report.failure = store.failure().map(|failure| failure.to_string());
    report.blocks_used = u64::from(store.used_blocks());
    report.written_bytes = counted.data_bytes + counted.journal_bytes + counted.map_bytes;
    report.data_bytes = counted.data_bytes;
    report.journal_bytes = counted.journal_bytes;
    report.map_bytes = counted.map_bytes;
    report.flushes = counted.flushes;
    report.checkpoints = counted.checkpoints;
    report.journal_laps = counted.journal_laps;
    report.map_memory_bytes = store.map_memory_bytes();
    report.map_pages_read = counted.leaves_read;
    report.blocks_damaged = counted.blocks_damaged;
    report.blocks_healed = counted.blocks_healed;
    report.structures_damaged = counted.structures_damaged;
    report.cache = report_cache(store);
    report.memory_cached_bytes = store.memory_cached_bytes();
    report.memory_hits = counted.memory_hits;
    report.memory_misses = counted.memory_misses;
    let mut volumes = std::collections::BTreeMap::new();
    for slab in store.slabs() {
        *volumes.entry(slab.volume).or_insert(0) += u64::from(slab.mapped_blocks);
    }
    report.volumes = volumes.into_iter().collect();
    report
}

fn report_cache<P: Platform>(store: &DriveStore<P>) -> Option<CacheReport> {
    let (used, counted) = (store.cache_use(), store.statistics());
    Some(CacheReport {
        drive: store.binding()?.cache,
        mode: store.cache_mode(),
        blocks_total: u64::from(used.blocks_total),
        blocks_dirty: u64::from(used.blocks_dirty),
        blocks_copied: u64::from(used.blocks_copied),
        hits: counted.cache_hits,
        misses: counted.cache_misses,
        populated: counted.cache_fills,
        destaged: counted.blocks_destaged,
        full_ms: None,
    })
}

fn report_volume<P: Platform, S: StateStore>(
    now: Instant,
    volume: VolumeId,
    ownership: &Ownership<P, S>,
) -> OwnedVolumeReport {
    let owner = &ownership.owner;
    let counted = owner.statistics();
    let progress = owner.resync_progress();
    let legs = owner.legs().into_iter().map(|(id, leg)| {
        let resync = progress.get(&id);
        LegReport {
            drive: id.drive,
            node: leg.shard.node,
            is_building: id.is_building,
            state: state_name(leg.state).to_owned(),
            is_silent: owner.is_silent(id, &leg),
            resync_pages: resync.map(|progress| (progress.pages_done, progress.pages_total)),
            resync_copied_bytes: resync.map_or(0, |progress| progress.bytes_copied),
            resync_ms: resync.map_or(0, |progress| milliseconds(now.since(progress.began))),
        }
    });
    OwnedVolumeReport {
        volume,
        shard: owner.shard().number,
        epoch: owner.epoch(),
        is_serving: owner.phase() == Phase::Serving,
        waits_for: owner.obstacle(),
        writer: ownership.writer().map(|writer| writer.shard.node),
        legs: legs.collect(),
        copies_without_place: ownership.moving.borrow().without_place,
        reads: counted.reads,
        writes: counted.writes,
        read_bytes: counted.read_bytes,
        write_bytes: counted.write_bytes,
        blocks_read_elsewhere: counted.blocks_read_elsewhere,
        blocks_healed: counted.blocks_healed,
        legs_marked: counted.legs_marked,
        legs_promoted: counted.legs_promoted,
        blocks_rolled_forward: counted.blocks_rolled_forward,
        blocks_resynced: counted.blocks_resynced,
        scrub: ownership.scrubbing.summary(),
    }
}

fn state_name(state: LegState) -> &'static str {
    match state {
        LegState::InSync => "in-sync",
        LegState::Stale => "stale",
        LegState::Joining => "joining",
        LegState::Promoting => "promoting",
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
