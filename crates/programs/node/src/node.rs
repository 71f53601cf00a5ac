//! A node, or one shard of it, from its start to its end.
//!
//! A start goes from the drives upwards: drives, bus and promises, ownership, front-ends. So nobody
//! is served before everything below is there. A stop goes the other way. The shards of a node wait for each other in both
//! (see `shards`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use spandrel_bus::{Bus, BusConfig, BusIdentity};
use spandrel_cluster::liveness::ALIVE_TIME_TO_LIVE;
use spandrel_cluster::store::{Expected, StateStore};
use spandrel_cluster::{
    AliveRecord, ClusterState, CountedStore, DriveRole, MediaClass, NodeRecord, StateError, StateKey, Stored,
    VolumeOwner, VolumeWriter,
};
use spandrel_frontend::{NbdConfig, NbdServer};
use spandrel_platform::sync::{Lock, Signal};
use spandrel_platform::{Address, Instant, LinkError, Listener, Platform, TaskHandle, before};
use spandrel_replica::Replica;
use spandrel_shared::{ClusterId, DriveId, Error, NodeId, ProcessIncarnation, ShardId, VolumeId};
use spandrel_volume::{Exports as _, OpenError, RepairTurns, SlowDrives};

use crate::absence::Absence;
use crate::cache_watch::{self, CacheWatch};
use crate::device::{Attachment, NodeDevice, NodeExports, SharedExports};
use crate::drives::{self, Attaching, NodeDrive};
use crate::liveness::Liveness;
use crate::load::NodeLoads;
use crate::ownership::Ownership;
use crate::parts::NodeParts;
use crate::rebinding::{self, Bindings, LetGo};
use crate::service::NodeService;
use crate::shards::{DriveHomes, Presence, Siblings, Stage, sibling_refused};
use crate::stubborn::{retry, state_error};
use crate::view::ClusterView;
use crate::vms::VmKeeper;

/// How often the entry that says that this node lives is renewed.
const ALIVE_INTERVAL: Duration = Duration::from_millis(500);

/// How long a renewal may take: so long that two of etcd's members can be silent, one after the other, and so short that
/// the entry has not expired then.
const ALIVE_RENEWAL_MAX: Duration = Duration::from_millis(2200);
const _: () = assert!(
    ALIVE_INTERVAL.as_millis() + ALIVE_RENEWAL_MAX.as_millis() < ALIVE_TIME_TO_LIVE.as_millis(),
    "an entry outlasts a renewal that fails"
);

/// How long to wait before the cluster's state is told again.
const ALIVE_RETRY: Duration = Duration::from_millis(200);

/// How long a stop waits for what other nodes have asked of this one. It ends at once, but where it waits for a cluster's
/// state that does not answer: when all servers are stopped, most of them are gone at some moment.
const ASKED_TIME_MAX: Duration = Duration::from_secs(5);

/// How long a shard that stops waits for the others at each step: longer than a step may take.
const SIBLINGS_TIME_MAX: Duration = Duration::from_secs(15);

/// The same where virtual machines are ended, whose guests are given some time.
const MACHINES_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a stop tries to tell the cluster's state of damage that it has not heard of yet.
const TOLD_TIME_MAX: Duration = Duration::from_secs(3);

/// What a node needs to know to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// The cluster, whose record must be in the cluster's state.
    pub cluster: ClusterId,
    /// The node's identity, the same at every start.
    pub node: NodeId,
    /// Which of the node's shards this is, below [`Self::shards`].
    pub shard: u8,
    /// How many shards the node has, at least one: each a [`Node`] of its own, with drives and addresses of its own, on a
    /// platform of its own.
    pub shards: u8,
    /// What people call it.
    pub name: String,
    /// Where it listens for other nodes: at least one address. With port 0 the machine chooses one.
    pub bus_addresses: Vec<Address>,
    /// Where it listens for NBD clients.
    pub nbd_addresses: Vec<Address>,
    /// Its drives. Empty ones are formatted, and join the pool or cache for those that do.
    pub drives: Vec<DrivePlace>,
    /// Whether a drive is left out, as one that is missing, if something else stands there, or another node's drive, or others
    /// use it: the node had it in use before, and others have its copies. Else it stops the start.
    pub leaves_unfit_drives_out: bool,
}

/// Where a drive of a node is, and what it becomes there if it is empty. One that is not stays what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrivePlace {
    /// A path on Linux.
    pub location: String,
    /// What it is used for.
    pub role: DriveRole,
    /// What it is made of, if that is known: written down when the cluster's state comes to know the drive.
    pub media: Option<MediaClass>,
}

impl DrivePlace {
    /// A drive that holds copies.
    pub fn capacity(location: String) -> Self {
        Self { location, role: DriveRole::Capacity, media: None }
    }

    /// A drive that caches for those of its node.
    pub fn cache(location: String) -> Self {
        Self { location, role: DriveRole::Cache, media: None }
    }
}

/// A drive that a node has taken into use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveAdded {
    /// Its identity.
    pub drive: Option<DriveId>,
    /// What it is used for: what it carries decides, if it carries anything.
    pub role: DriveRole,
    /// Its size.
    pub size_bytes: u64,
}

/// A node that runs. Cheap to clone; all clones are the same.
pub struct Node<P: Platform, S: StateStore> {
    pub(crate) inner: Rc<NodeInner<P, S>>,
    nbd: NbdServer<P, SharedExports<P, S>>,
    tasks: Rc<RefCell<Vec<TaskHandle>>>,
}

impl<P: Platform, S: StateStore> Clone for Node<P, S> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner), nbd: self.nbd.clone(), tasks: Rc::clone(&self.tasks) }
    }
}

pub(crate) struct NodeInner<P: Platform, S: StateStore> {
    pub(crate) parts: NodeParts<P, S>,
    pub(crate) config: NodeConfig,
    /// This shard among those of its process.
    pub(crate) presence: Presence,
    /// When this run began.
    pub(crate) started_unix_ms: u64,
    /// Where clients of each address find it, ports filled in.
    pub(crate) nbd_addresses: Vec<Address>,
    pub(crate) drives: RefCell<Vec<Rc<NodeDrive<P>>>>,
    pub(crate) ownerships: RefCell<BTreeMap<VolumeId, Rc<Ownership<P, S>>>>,
    /// Notified when an ownership begins or ends.
    pub(crate) ownerships_changed: Signal,
    /// Volumes that are being taken.
    pub(crate) being_taken: RefCell<BTreeSet<VolumeId>>,
    /// Since when volumes could be taken that a node in maintenance leaves to others.
    pub(crate) held_back: RefCell<BTreeMap<VolumeId, Instant>>,
    /// Whether an ownership of this process has ended since volumes were looked at.
    pub(crate) ownership_ended: Cell<bool>,
    /// How long volumes stay that were refused where this client of theirs is: each attempt ends an ownership.
    pub(crate) follow_pauses: RefCell<BTreeMap<VolumeId, (VolumeWriter, Duration)>>,
    /// The attachments of this node's own clients.
    pub(crate) attachments: RefCell<BTreeMap<VolumeId, Weak<Attachment<P, S>>>>,
    pub(crate) stopping: Cell<bool>,
    /// Whoever attaches drives has it.
    pub(crate) attaching: Lock,
    pub(crate) bindings: Bindings,
    pub(crate) cache_watch: CacheWatch,
    /// Notified when the node has one more drive that copies may be placed on, or one less.
    pub(crate) drives_changed: Signal,
    /// Drives that are none of the node's any more, and that it has not detached yet.
    pub(crate) leaving: RefCell<BTreeSet<DriveId>>,
    /// Where the drives are of which it has let go by itself, until somebody has asked.
    pub(crate) let_go: RefCell<Vec<String>>,
    /// Since when drives are away, here and elsewhere.
    pub(crate) absence: RefCell<Absence>,
    /// What passes through the node.
    pub(crate) loads: NodeLoads,
    /// What the cluster's state was told of each drive's damage.
    pub(crate) damage_told: RefCell<BTreeMap<DriveId, u64>>,
    /// What looks after virtual machines, if anything does.
    pub(crate) vms: RefCell<Option<Rc<VmKeeper>>>,
}

impl<P: Platform, S: StateStore> Node<P, S> {
    /// Starts a node: attaches its drives, listens, and takes part from here on.
    ///
    /// Errors: `CLUSTER_UNKNOWN` if the state holds another cluster or none, `DRIVE_…` if a drive
    /// carries something else or cannot be opened, `STATE_OLDER_THAN_DRIVES`, `ADDRESS_IN_USE`.
    /// Nothing was changed on a drive that was refused. A drive that is broken is left out, and told
    /// in the node's report.
    ///
    /// With its `siblings` it shares the node's clients and drives.
    pub async fn start(
        platform: P,
        config: NodeConfig,
        store: S,
        siblings: Siblings<P::Detached>,
    ) -> Result<Self, Error> {
        let Siblings { exchange, homes, presence } = siblings;
        let parts = make_parts(&platform, &config, store, homes).await?;
        // Before any drive is touched: a second process of the same node fails here.
        let mut bus_listeners = Vec::new();
        for address in &config.bus_addresses {
            bus_listeners.push(listen(&platform, address, &config.name, "other nodes")?);
        }
        let mut nbd_listeners = Vec::new();
        for address in &config.nbd_addresses {
            nbd_listeners.push(listen(&platform, address, &config.name, "NBD clients")?);
        }
        let attaching = Attaching::any(config.leaves_unfit_drives_out);
        let mut looked = drives::look_at_all(&parts, &config.drives, &attaching).await?;
        if !presence.reach(Stage::Looked).await {
            return Err(sibling_refused(&config.name));
        }
        drives::leave_contested_out(&parts, &mut looked, &attaching)?;
        if !presence.reach(Stage::Judged).await {
            return Err(sibling_refused(&config.name));
        }
        let drives = drives::attach_all(&parts, &config.drives, looked, attaching).await?;
        let known = know_node(&parts, &config, &bus_listeners).await;
        let known = match known {
            Ok(()) if !presence.reach(Stage::Attached).await => Err(sibling_refused(&config.name)),
            known => known,
        };
        if let Err(error) = known {
            drives::detach_all(&drives).await;
            return Err(error);
        }
        drives.iter().for_each(|drive| drives::offer(&parts, drive));
        let inner = Rc::new(NodeInner {
            started_unix_ms: platform.unix_time().0,
            parts,
            config,
            presence,
            nbd_addresses: nbd_listeners.iter().map(Listener::address).collect(),
            drives: RefCell::new(drives),
            ownerships: RefCell::default(),
            ownerships_changed: Signal::new(),
            being_taken: RefCell::default(),
            held_back: RefCell::default(),
            ownership_ended: Cell::default(),
            follow_pauses: RefCell::default(),
            attachments: RefCell::default(),
            stopping: Cell::new(false),
            attaching: Lock::default(),
            bindings: Bindings::default(),
            cache_watch: CacheWatch::default(),
            drives_changed: Signal::new(),
            leaving: RefCell::default(),
            let_go: RefCell::default(),
            absence: RefCell::default(),
            loads: NodeLoads::new(platform.now()),
            damage_told: RefCell::default(),
            vms: RefCell::default(),
        });
        let exports = SharedExports(NodeExports { node: Rc::clone(&inner) });
        let nbd = NbdServer::one_of_several(platform, exports, NbdConfig::default(), exchange);
        let node = Self { inner, nbd, tasks: Rc::default() };
        node.run(bus_listeners, nbd_listeners);
        Ok(node)
    }

    /// Starts what goes on as long as the node runs.
    fn run(&self, bus_listeners: Vec<P::Listener>, nbd_listeners: Vec<P::Listener>) {
        let parts = &self.inner.parts;
        for listener in bus_listeners {
            let service = NodeService { node: Rc::clone(&self.inner) };
            self.spawn(parts.bus.serve(listener, service));
        }
        let view = Rc::clone(&parts.view);
        self.spawn(view.follow(parts.platform.clone(), parts.state.store().clone()));
        self.spawn(know_peers(parts.clone()));
        self.spawn(stay_alive(Rc::clone(&self.inner)));
        self.spawn(drives::keep_told(Rc::clone(&self.inner)));
        self.spawn(rebinding::keep_even(Rc::clone(&self.inner)));
        self.spawn(cache_watch::keep_watching(Rc::clone(&self.inner)));
        self.spawn(Rc::clone(&self.inner).give_way());
        self.spawn(Rc::clone(&self.inner).end_runs());
        self.spawn(Rc::clone(&self.inner).keep_ownerships());
        self.spawn(Rc::clone(&self.inner).stay_drained());
        self.spawn(Rc::clone(&self.inner).drop_deleted_copies());
        self.spawn(Rc::clone(&self.inner).drop_replaced_copies());
        self.spawn(Rc::clone(&self.inner).keep_moving());
        self.spawn(Rc::clone(&self.inner).keep_scrubbing());
        self.spawn(Rc::clone(&self.inner).keep_looking_at_load());
        let nbd = self.nbd.clone();
        self.spawn(async move { nbd.serve_passed_on().await });
        for listener in nbd_listeners {
            let nbd = self.nbd.clone();
            self.spawn(async move {
                if let Err(error) = nbd.serve(listener).await {
                    tracing::error!("NBD clients are not served any more: {error}");
                }
            });
        }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let handle = self.inner.parts.platform.spawn(task);
        self.tasks.borrow_mut().push(handle);
    }

    /// Stops in order: clients are answered, volumes are handed over, the drives are left as they should be. With the other shards
    /// of its process, which all have to be stopped: each of these steps is taken when all have taken the one before.
    pub async fn stop(&self) {
        let inner = &self.inner;
        inner.stop_vms().await;
        // The first shard ends them; until then any may serve their disks.
        self.reach_in_time(Stage::MachinesEnded, MACHINES_TIME_MAX).await;
        inner.stopping.set(true);
        self.nbd.stop().await;
        self.reach_in_time(Stage::Answered, SIBLINGS_TIME_MAX).await;
        inner.hand_all_over().await;
        self.reach_in_time(Stage::HandedOver, SIBLINGS_TIME_MAX).await;
        let ownerships: Vec<_> = inner.ownerships.borrow().values().cloned().collect();
        join_all(ownerships.iter().map(|ownership| inner.tell_scrub_in_time(ownership))).await;
        for ownership in ownerships {
            ownership.owner.depose();
        }
        let platform = &inner.parts.platform;
        if before(platform, platform.now() + ASKED_TIME_MAX, inner.parts.bus.stop()).await.is_none() {
            tracing::warn!("other nodes' requests are left unanswered: the cluster's state does not answer");
        }
        for task in self.tasks.borrow_mut().drain(..) {
            task.abort();
        }
        let telling = drives::tell_damage(&inner.parts, &inner.damage_told);
        before(platform, platform.now() + TOLD_TIME_MAX, telling).await;
        drives::tell_stamp(&inner.parts);
        let attached = inner.drives.borrow().clone();
        drives::detach_all(&attached).await;
    }

    /// Has the virtual machines end that run here, guests asked to shut down first, and starts none any more. For a node that is about to stop
    /// together with those that serve their disks.
    pub async fn end_vms(&self) {
        self.inner.stop_vms().await;
    }

    /// Waits for the other shards of the process, but not for one that is stuck.
    async fn reach_in_time(&self, stage: Stage, time_max: Duration) {
        let platform = &self.inner.parts.platform;
        let reached = self.inner.presence.reach(stage);
        if before(platform, platform.now() + time_max, reached).await.is_none() {
            tracing::warn!("another shard of the node is not done: it is not waited for");
        }
    }

    /// Lets go of a drive, of either role, that is no part of the cluster any more: nothing more is read from it or written to
    /// it. A cache drive may have to be emptied first.
    pub async fn let_go_drive(&self, drive: DriveId) -> LetGo {
        match drives::let_go(&self.inner, drive).await {
            None => rebinding::let_go(&self.inner, drive).await,
            Some(location) => LetGo::Done(location),
        }
    }

    /// Waits until this node has let go of drives by itself, since they were taken out of the pool and nobody could tell it.
    /// Where they are; each is named once. Whoever gives the node its drives must not give it these again: one that was
    /// wiped meanwhile would be taken for a new one.
    pub async fn drives_let_go(&self) -> Vec<String> {
        let inner = &self.inner;
        inner.drives_changed.wait_until(|| !inner.let_go.borrow().is_empty()).await;
        inner.let_go.take()
    }

    /// Takes one more drive into use, formatted if it is empty. Volumes that are made from then on may be placed on it, or it
    /// caches for those that hold them.
    ///
    /// Errors: `DRIVE_…` as at a start, `DRIVE_IN_USE` if the node has it already, `NODE_STOPPING`. Nothing was changed
    /// on a drive that was refused.
    pub async fn add_drive(&self, place: DrivePlace) -> Result<DriveAdded, Error> {
        drives::add(&self.inner, place).await
    }

    /// Ends the use of a cache drive: what it holds alone is moved to the capacity drives, and these go on without it or with
    /// another one. False if the node does not have it, or not in use. It has to be taken out of the cluster's state then.
    ///
    /// Errors: `CACHE_NOT_CHANGED` if a capacity drive fails meanwhile, or others need what it holds; `CACHE_NOT_DRAINED`.
    pub async fn release_cache(&self, drive: DriveId) -> Result<bool, Error> {
        rebinding::release(&self.inner, drive).await
    }

    /// Whether this shard owns a volume at present.
    pub fn owns(&self, volume: VolumeId) -> bool {
        self.inner.ownerships.borrow().contains_key(&volume)
    }

    /// The node's identity.
    pub fn id(&self) -> NodeId {
        self.inner.parts.node()
    }

    /// This run of its process.
    pub fn incarnation(&self) -> ProcessIncarnation {
        self.inner.parts.own.incarnation
    }

    /// The volumes of the cluster, as this node's clients use them.
    pub fn exports(&self) -> NodeExports<P, S> {
        NodeExports { node: Rc::clone(&self.inner) }
    }

    /// Opens a volume, or the disk of a run of a virtual machine, by its name, for a client that comes another way than over NBD.
    ///
    /// # Errors
    /// [`OpenError::Elsewhere`] if another shard of the node has the clients of that volume.
    pub async fn open(&self, name: &str) -> Result<NodeDevice<P, S>, OpenError> {
        SharedExports(self.exports()).open(name).await
    }

    /// What the node runs on.
    pub fn platform(&self) -> &P {
        &self.inner.parts.platform
    }

    /// NBD connections that are open.
    pub(crate) fn nbd_connections(&self) -> u64 {
        self.nbd.statistics().connections
    }

    /// The copies on this node's drives.
    pub fn replica(&self) -> &Replica<P> {
        &self.inner.parts.replica
    }
}

async fn make_parts<P: Platform, S: StateStore>(
    platform: &P,
    config: &NodeConfig,
    store: S,
    homes: DriveHomes,
) -> Result<NodeParts<P, S>, Error> {
    let state = ClusterState::new(CountedStore::new(store));
    let cluster = state.cluster().await.map_err(state_error)?;
    let cluster = match cluster {
        Some(stored) if stored.record.id == config.cluster => stored.record,
        other => {
            let why = match other {
                Some(stored) => format!("it holds the cluster {}", stored.record.id),
                None => "it holds no cluster".to_owned(),
            };
            return Err(Error::new(
                "CLUSTER_UNKNOWN",
                format!("node {} cannot join the cluster {} in this state", config.name, config.cluster),
                why,
                "give the node the state of its own cluster",
            ));
        }
    };
    let incarnation = ProcessIncarnation::from_random(platform.random_u64(), platform.random_u64());
    let own = VolumeOwner { shard: ShardId { node: config.node, number: config.shard }, incarnation };
    let identity = BusIdentity {
        cluster: cluster.id,
        generation: cluster.generation,
        shard: own.shard,
        shards: config.shards,
        incarnation,
    };
    let bus = Bus::new(platform.clone(), identity, BusConfig::default());
    Ok(NodeParts {
        platform: platform.clone(),
        own,
        shards: config.shards,
        homes,
        cluster,
        state,
        liveness: Liveness::start(platform.clone(), bus.clone()),
        bus,
        replica: Replica::new(),
        caches: Rc::default(),
        caches_removed: Rc::default(),
        view: Rc::new(ClusterView::new()),
        repair_turns: RepairTurns::default(),
        slow_drives: SlowDrives::default(),
        started: platform.now(),
    })
}

fn listen<P: Platform>(
    platform: &P,
    address: &Address,
    name: &str,
    whom: &str,
) -> Result<P::Listener, Error> {
    platform.listen(address).map_err(|error| {
        let (code, next) = match &error {
            LinkError::AddressInUse(_) => {
                ("ADDRESS_IN_USE", "stop the program that listens there, or choose another address")
            }
            _ => ("ADDRESS_UNUSABLE", "choose an address of this machine that this user may listen on"),
        };
        Error::new(
            code,
            format!("node {name} cannot listen for {whom} on {address}"),
            error.to_string(),
            next,
        )
    })
}

/// Puts the node's record into the cluster's state, or brings it up to date.
async fn know_node<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    config: &NodeConfig,
    bus_listeners: &[P::Listener],
) -> Result<(), Error> {
    let key = StateKey::Node(config.node);
    let attempt = async || -> Result<(), StateError> {
        let known: Option<Stored<NodeRecord>> = parts.state.get(&key).await?;
        let listens_at = bus_listeners.iter().map(|listener| listener.address().to_string()).collect();
        let (addresses, further_shards) = addresses_with(known.as_ref(), config, listens_at);
        let record = NodeRecord {
            name: config.name.clone(),
            addresses,
            further_shards,
            joined_unix_ms: known
                .as_ref()
                .map_or_else(|| parts.platform.unix_time().0, |known| known.record.joined_unix_ms),
            key_digest: known.as_ref().and_then(|known| known.record.key_digest.clone()),
            maintenance_since_unix_ms: known
                .as_ref()
                .and_then(|known| known.record.maintenance_since_unix_ms),
            place: known.as_ref().map(|known| known.record.place.clone()).unwrap_or_default(),
            unknown: known.as_ref().map(|known| known.record.unknown.clone()).unwrap_or_default(),
        };
        let expected = match known {
            Some(known) if known.record == record => return Ok(()),
            Some(known) => Expected::ModifiedAt(known.revision),
            None => Expected::Absent,
        };
        parts.state.put_node(config.node, expected, record).await
    };
    retry(parts, attempt).await
}

/// Where the shards of a node listen, the first one and the further ones, after this one has begun to listen there.
fn addresses_with(
    known: Option<&Stored<NodeRecord>>,
    config: &NodeConfig,
    listens_at: Vec<String>,
) -> (Vec<String>, Vec<Vec<String>>) {
    let mut addresses = known.map(|known| known.record.addresses.clone()).unwrap_or_default();
    let mut further = known.map(|known| known.record.further_shards.clone()).unwrap_or_default();
    further.resize(usize::from(config.shards.saturating_sub(1)), Vec::new());
    match usize::from(config.shard).checked_sub(1) {
        None => addresses = listens_at,
        Some(index) => further[index] = listens_at,
    }
    (addresses, further)
}

/// Keeps the bus's peers as the cluster's state has them.
async fn know_peers<P: Platform, S: StateStore>(parts: NodeParts<P, S>) {
    loop {
        let changed = parts.view.changed.notified();
        let shards: BTreeMap<ShardId, Vec<Address>> = {
            let nodes = parts.view.nodes.borrow();
            let shards = nodes.iter().flat_map(|(node, stored)| {
                let shard = |number| (ShardId { node: *node, number }, stored.record.addresses_of(number));
                (0..stored.record.shards()).map(shard)
            });
            let others = shards.filter(|(shard, _)| *shard != parts.own.shard);
            let parse = |text: &String| match text.parse() {
                Ok(address) => Some(address),
                Err(error) => {
                    tracing::error!("a node's address in the cluster's state: {error}");
                    None
                }
            };
            others.map(|(shard, addresses)| (shard, addresses.iter().filter_map(parse).collect())).collect()
        };
        for gone in parts.bus.peers().into_iter().filter(|peer| !shards.contains_key(peer)) {
            parts.bus.expel(gone);
        }
        // A further shard of a node that has just begun anew says a moment later where it listens.
        for (shard, addresses) in shards.into_iter().filter(|(_, addresses)| !addresses.is_empty()) {
            parts.bus.set_peer(shard, addresses);
        }
        changed.await;
    }
}

/// Keeps the entry in the cluster's state that says that this shard lives, and which drives it can use.
async fn stay_alive<P: Platform, S: StateStore>(inner: Rc<NodeInner<P, S>>) {
    let parts = &inner.parts;
    let store = parts.state.store();
    let alive = || {
        let usable = parts.replica.drives().into_iter().filter(|drive| drive.failure().is_none());
        let drives = usable.map(|drive| drive.drive_id()).collect();
        let vm_host = inner.vms.borrow().as_ref().and_then(|vms| vms.host());
        AliveRecord { incarnation: parts.own.incarnation, drives, vm_host }
    };
    loop {
        if let Ok(lease) = store.grant_lease(ALIVE_TIME_TO_LIVE).await {
            let mut told: Option<AliveRecord> = None;
            loop {
                let changed = inner.drives_changed.notified();
                let now = alive();
                // What was told may have been undone by an earlier request that arrived late, with a lease
                // that has ended since.
                let stands = told.as_ref() == Some(&now) && parts.view.shows_alive(parts.own.shard, &now);
                if !stands && parts.state.announce(parts.own.shard, &now, lease).await.is_ok() {
                    told = Some(now);
                }
                let pause = if told.is_some() { ALIVE_INTERVAL } else { ALIVE_RETRY };
                before(&parts.platform, parts.platform.now() + pause, changed).await;
                let renewed_by = parts.platform.now() + ALIVE_RENEWAL_MAX;
                let failure = match before(&parts.platform, renewed_by, store.keep_alive(lease)).await {
                    Some(Ok(())) => continue,
                    Some(Err(error)) => error.to_string(),
                    None => "no answer".to_owned(),
                };
                tracing::warn!("the entry that says that this node lives is not renewed: {failure}");
                break;
            }
        }
        parts.platform.sleep(ALIVE_RETRY).await;
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
