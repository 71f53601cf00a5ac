//! How busy the node is: what its front-ends, owners, bus and drives do, and how long clients have waited.
//!
//! Requests are counted where they pass: a client's when it comes to its node, wherever the volume's owner is, but not before its limit lets it go; an owner's
//! when it carries it out, wherever the client is; the bus's and the drives' by themselves. A task looks ten times a
//! second at what is under way, from which the mean latency follows (see [`Load`]), and at what waits (see
//! the module `pauses`). Whoever asks how busy the node is has it look once more.
//!
//! What is known of a volume is kept as long as anybody here uses it or the cluster has it: counts go on when its owner
//! changes, or the last client has left and another one comes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use spandrel_cluster::store::StateStore;
use spandrel_drive::DriveStore;
use spandrel_platform::{Instant, Platform};
use spandrel_shared::load::Operation;
use spandrel_shared::{BLOCK_BYTES, DriveId, Load, LoadCounts, NodeId, ProcessIncarnation, VolumeId};

use crate::drives::NodeDrive;
use crate::node::{Node, NodeInner};
use crate::ownership::VolumeRequest;
use crate::pacer::Pacer;
use crate::pauses::{LOOK_INTERVAL, Pause, Pauses};

/// How busy a node is. What is counted is counted since it started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLoad {
    /// The node.
    pub node: NodeId,
    /// This run of its process: when it is another one, all counts have begun anew.
    pub incarnation: ProcessIncarnation,
    /// When this was so, in microseconds by the node's own clock: only its differences mean anything.
    pub at_us: u64,
    /// The processor time of the threads that do all of the node's work, one for each shard, in microseconds; absent if nobody has measured it.
    pub cpu_us: Option<u64>,
    /// How many other nodes it reaches.
    pub nodes_reached: u32,
    /// Whether it is in maintenance, as far as it knows.
    pub is_in_maintenance: bool,
    /// How many drives' copies are brought up to date, built or moved by owners here.
    pub repairs: u32,
    /// The volumes that its clients use or that it owns, now or before.
    pub volumes: Vec<VolumeLoad>,
    /// What it asks other nodes for: reads and writes of copies and volumes, until they have answered.
    pub bus: LoadCounts,
    /// Its drives that work.
    pub drives: Vec<DriveLoad>,
}

impl NodeLoad {
    /// What the shards of a node do together, the first one before the others; none if there are none.
    pub fn of_shards(shards: impl IntoIterator<Item = NodeLoad>) -> Option<NodeLoad> {
        shards.into_iter().reduce(|mut all, shard| {
            all.cpu_us = all.cpu_us.zip(shard.cpu_us).map(|(one, other)| one + other);
            all.nodes_reached = all.nodes_reached.min(shard.nodes_reached);
            all.is_in_maintenance |= shard.is_in_maintenance;
            all.repairs += shard.repairs;
            for volume in shard.volumes {
                match all.volumes.iter_mut().find(|known| known.volume == volume.volume) {
                    Some(known) => known.add(&volume),
                    None => all.volumes.push(volume),
                }
            }
            all.bus = all.bus.with(shard.bus);
            all.drives.extend(shard.drives);
            all.drives.sort_by(|one, other| one.location.cmp(&other.location));
            all
        })
    }
}

impl VolumeLoad {
    /// Takes in what passes at another shard: it may own the volume that this one has the clients of.
    fn add(&mut self, other: &VolumeLoad) {
        self.is_owned |= other.is_owned;
        self.frontend = self.frontend.with(other.frontend);
        self.owner = self.owner.with(other.owner);
        let pauses = [self.longest_pause, other.longest_pause].into_iter().flatten();
        self.longest_pause = pauses.max_by_key(|pause| pause.length_ms);
    }
}

/// How busy a volume is at one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeLoad {
    /// The volume.
    pub volume: VolumeId,
    /// Its name.
    pub name: String,
    /// Whether the node owns it.
    pub is_owned: bool,
    /// What the node's clients ask for, until it is answered. What they wait for a limit is left out.
    pub frontend: LoadCounts,
    /// What the node does as the owner, for its own clients and those of other nodes.
    pub owner: LoadCounts,
    /// The longest time in the last five minutes in which requests of the node's clients waited and none was answered.
    pub longest_pause: Option<LongestPause>,
}

/// A time in which requests waited and none was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongestPause {
    /// How long it was, in milliseconds, to a tenth of a second.
    pub length_ms: u64,
    /// How long ago it ended, in milliseconds; absent while it goes on.
    pub ended_ms_ago: Option<u64>,
}

/// How busy a drive is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveLoad {
    /// The drive.
    pub drive: DriveId,
    /// Where it is.
    pub location: String,
    /// What is asked of it: reads, and writes together with flushes.
    pub load: LoadCounts,
    /// What its cache does, if it is bound to a cache drive.
    #[serde(default)]
    pub cache: Option<CacheCounts>,
}

/// What the cache of a drive does. All but what is there now is counted since the drive was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheCounts {
    /// Bytes that were read from the cache drive.
    pub hit_bytes: u64,
    /// Bytes that were read from the capacity drive.
    pub missed_bytes: u64,
    /// Bytes that were copied to the cache drive as they were read.
    pub populated_bytes: u64,
    /// Bytes that were moved from the cache drive to the capacity drive.
    pub destaged_bytes: u64,
    /// Bytes that stand on the cache drive alone now.
    pub dirty_bytes: u64,
    /// Bytes there now that are copies of what was read.
    pub copied_bytes: u64,
    /// Bytes that can be there.
    pub total_bytes: u64,
}

fn cache_counts<P: Platform>(store: &DriveStore<P>) -> Option<CacheCounts> {
    store.binding()?;
    let (used, counted) = (store.cache_use(), store.statistics());
    let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
    Some(CacheCounts {
        hit_bytes: bytes(counted.cache_hits),
        missed_bytes: bytes(counted.cache_misses),
        populated_bytes: bytes(counted.cache_fills),
        destaged_bytes: bytes(counted.blocks_destaged),
        dirty_bytes: bytes(used.blocks_dirty.into()),
        copied_bytes: bytes(used.blocks_copied.into()),
        total_bytes: bytes(used.blocks_total.into()),
    })
}

/// What passes through one node of a volume.
#[derive(Debug, Default)]
pub(crate) struct VolumeLoads {
    /// From this node's clients.
    pub(crate) frontend: Load,
    /// Through its owner here.
    pub(crate) owner: Load,
    /// When requests of this node's clients may begin, if they are limited. It outlives them: a client that comes again is no
    /// other one.
    pub(crate) pacer: Pacer,
    pauses: RefCell<Pauses>,
}

/// What passes through one node.
#[derive(Debug)]
pub(crate) struct NodeLoads {
    volumes: RefCell<BTreeMap<VolumeId, Rc<VolumeLoads>>>,
    /// When it was looked at last what is under way.
    looked_at: Cell<Instant>,
}

impl NodeLoads {
    /// Nothing has passed yet.
    pub(crate) fn new(now: Instant) -> Self {
        Self { volumes: RefCell::default(), looked_at: Cell::new(now) }
    }

    /// What passes of a volume.
    pub(crate) fn of(&self, volume: VolumeId) -> Rc<VolumeLoads> {
        Rc::clone(self.volumes.borrow_mut().entry(volume).or_default())
    }
}

/// A request that is under way.
pub(crate) struct Passing<'load> {
    /// None if it is not counted.
    operation: Option<Operation<&'load Load>>,
    bytes: u64,
}

impl<'load> Passing<'load> {
    /// Counts a request in `load` from now on, but for one that asks for allocation.
    pub(crate) fn begin(load: &'load Load, request: &VolumeRequest) -> Self {
        let (operation, bytes) = match request {
            VolumeRequest::Read { length, .. } => (Some(load.begin_read()), u64::from(*length)),
            VolumeRequest::Write { data, .. } => (Some(load.begin_write()), data.len() as u64),
            VolumeRequest::WriteZeroes { .. } | VolumeRequest::Trim { .. } => (Some(load.begin_write()), 0),
            VolumeRequest::Extents { .. } => (None, 0),
        };
        Self { operation, bytes }
    }

    /// It was carried out, or not.
    pub(crate) fn end<T, E>(self, outcome: Result<T, E>) -> Result<T, E> {
        if let (Some(operation), Ok(_)) = (self.operation, &outcome) {
            operation.done(self.bytes);
        }
        outcome
    }
}

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    /// Looks at what is under way, again and again, as long as the node runs.
    pub(crate) async fn keep_looking_at_load(self: Rc<Self>) {
        loop {
            self.parts.platform.sleep(LOOK_INTERVAL).await;
            self.look_at_load();
        }
    }

    fn look_at_load(&self) -> Instant {
        let now = self.parts.platform.now();
        let passed = now.since(self.loads.looked_at.replace(now));
        for loads in self.loads.volumes.borrow().values() {
            loads.frontend.pass(passed);
            loads.owner.pass(passed);
            let seen = loads.frontend.counts();
            loads.pauses.borrow_mut().look(now, seen.in_flight(), seen.done());
        }
        self.parts.bus.load().pass(passed);
        for drive in self.drives.borrow().iter() {
            if let Ok(store) = &drive.store {
                store.load().pass(passed);
            }
        }
        now
    }

    /// Forgets volumes that are gone.
    fn forget_loads(&self) {
        let known = self.parts.view.volumes.borrow();
        let is_needed = |volume: &VolumeId, loads: &mut Rc<VolumeLoads>| {
            Rc::strong_count(loads) > 1 || known.contains_key(volume)
        };
        self.loads.volumes.borrow_mut().retain(is_needed);
    }

    fn volume_loads(&self, now: Instant) -> Vec<VolumeLoad> {
        let known = self.parts.view.volumes.borrow();
        let of = |(volume, loads): (&VolumeId, &Rc<VolumeLoads>)| VolumeLoad {
            volume: *volume,
            name: known.get(volume).map_or_else(|| volume.to_string(), |stored| stored.record.name.clone()),
            is_owned: self.ownership(*volume).is_some(),
            frontend: loads.frontend.counts(),
            owner: loads.owner.counts(),
            longest_pause: loads.pauses.borrow_mut().longest().map(|pause| told(pause, now)),
        };
        self.loads.volumes.borrow().iter().map(of).collect()
    }

    fn drive_loads(&self) -> Vec<DriveLoad> {
        let of = |drive: &Rc<NodeDrive<P>>| {
            let store = drive.store.as_ref().ok()?;
            let (location, load) = (drive.location.clone(), store.load().counts());
            Some(DriveLoad { drive: store.drive_id(), location, load, cache: cache_counts(store) })
        };
        self.drives.borrow().iter().filter_map(of).collect()
    }

    fn repairs(&self) -> u32 {
        let ownerships = self.ownerships.borrow();
        ownerships.values().map(|ownership| ownership.owner.resync_progress().len() as u32).sum()
    }
}

impl<P: Platform, S: StateStore> Node<P, S> {
    /// How busy the node is, now.
    pub fn load(&self) -> NodeLoad {
        let inner = &self.inner;
        inner.forget_loads();
        let now = inner.look_at_load();
        let own = inner.parts.view.nodes.borrow().get(&self.id()).cloned();
        NodeLoad {
            node: self.id(),
            incarnation: self.incarnation(),
            at_us: now.nanoseconds() / 1000,
            cpu_us: None,
            nodes_reached: inner.parts.view.whole_nodes(&inner.parts.liveness.reachable()).len() as u32,
            is_in_maintenance: own.is_some_and(|stored| stored.record.maintenance_since_unix_ms.is_some()),
            repairs: inner.repairs(),
            volumes: inner.volume_loads(now),
            bus: inner.parts.bus.load().counts(),
            drives: inner.drive_loads(),
        }
    }
}

fn told(pause: Pause, now: Instant) -> LongestPause {
    let milliseconds =
        |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    LongestPause {
        length_ms: milliseconds(pause.length),
        ended_ms_ago: pause.ended.map(|ended| milliseconds(now.since(ended))),
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
