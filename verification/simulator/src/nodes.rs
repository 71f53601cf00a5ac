//! A world of whole nodes: the node that ships, on simulated machines, drives and networks, with the
//! cluster's state beside them on a machine of its own.
//!
//! Everything goes the way it goes on real servers: clients use a node's block devices, owners and
//! copies speak over the bus, promises and the state's transactions decide who serves. One more machine is
//! for clients that are no server's: it never fails, but its network may.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use spandrel_cluster::simulated::{Faults, SimulatedState, SimulatedStore};
use spandrel_cluster::store::Selection;
use spandrel_cluster::{
    ClusterRecord, ClusterState, DriveState, MediaClass, SettingsRecord, StateError, StateKey, VolumeSettings,
};
use spandrel_node::{
    DrivePlace as GivenDrive, Node, NodeConfig, NodeReport, Siblings, VolumeCreated, VolumeCreation,
    by_turns, start_shards,
};
use spandrel_platform::{Address, Platform};
use spandrel_platform_simulated::{
    Host, Process, Random, RunEnd, SimulatedDrive, SimulatedDriveConfig, SimulatedPlatform, World,
    WorldConfig,
};
use spandrel_shared::{ClusterId, DriveId, Error, NodeId, Place, SlabGeometry, VolumeId};

use crate::faults::DrivePlace;
use crate::inspection::{Media, cache_id, inspect_alone};

/// A node in a simulated world.
pub type SimulatedNode = Node<SimulatedPlatform, SimulatedStore<SimulatedPlatform>>;

/// How long anything may take that must happen in the end.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How often a run looks for its end.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The smallest slabs that a pool can have.
pub const SLAB_BYTES: u64 = 4 << 20;

/// Where nodes listen for each other: their first shards, the others at the ports behind it.
const BUS_PORT: u16 = 7000;

/// Where nodes listen for NBD clients, in the same way.
const NBD_PORT: u16 = 10809;

/// What a world consists of.
#[derive(Clone, Debug)]
pub struct NodesConfig {
    /// The settings of the world below.
    pub world: WorldConfig,
    /// How many shards each server's node has at most: its drives are spread over them. If it may have several, it has another
    /// number of them at each start.
    pub shards_max: u8,
    /// How many drives each server has; one entry for each server.
    pub drives: Vec<u8>,
    /// What all drives are like.
    pub drive: SimulatedDriveConfig,
    /// Whether these are spinning disks.
    pub spins: bool,
    /// How many cache drives each server has in front of these.
    pub caches: u8,
    /// What all cache drives are like.
    pub cache: SimulatedDriveConfig,
    /// Whether nodes start without drives that cannot be used, as servers have them do.
    pub leaves_unfit_drives_out: bool,
    /// The slabs of the pool, in bytes.
    pub slab_bytes: u64,
    /// How the way to the cluster's state behaves.
    pub state: Faults,
    /// What is set for the pool.
    pub settings: SettingsRecord,
}

impl NodesConfig {
    /// `count` servers with one drive of 32 MiB each, on a network that `seed` picks.
    pub fn simple(seed: u64, count: usize) -> Self {
        Self {
            world: WorldConfig::swarm(seed),
            shards_max: 1,
            drives: vec![1; count],
            drive: SimulatedDriveConfig { size_bytes: 32 << 20, ..SimulatedDriveConfig::default() },
            spins: false,
            caches: 0,
            cache: SimulatedDriveConfig { size_bytes: 8 << 20, ..SimulatedDriveConfig::default() },
            leaves_unfit_drives_out: false,
            slab_bytes: SLAB_BYTES,
            state: Faults::default(),
            settings: SettingsRecord::default(),
        }
    }
}

/// How long an operator waits who could not reach the cluster's state.
const DECISION_RETRY: Duration = Duration::from_millis(100);

/// Servers with their drives, and the cluster's state.
pub struct NodesWorld {
    /// The simulated world below.
    pub world: World,
    /// The cluster's state, for faults.
    pub state: SimulatedState<SimulatedPlatform>,
    servers: Vec<Server>,
    leaves_unfit_drives_out: bool,
    shards_max: u8,
    /// How many shards each start has.
    starts: Random,
    clients: Process,
    crashes: Cell<u64>,
    /// What was decided of drives, and not told yet for certain.
    decisions: Rc<RefCell<BTreeMap<DriveId, DriveState>>>,
    /// How many things were said of servers, cache drives and the pool that the cluster's state may not have been told.
    sayings: Rc<Cell<u64>>,
    /// What was set of volumes last.
    volume_settings: Rc<RefCell<BTreeMap<VolumeId, VolumeSettings>>>,
}

/// A shard, once it is up.
type Slot = Rc<RefCell<Option<SimulatedNode>>>;

struct Server {
    name: String,
    host: Host,
    drives: Vec<SimulatedDrive>,
    /// Whether the drives, not the cache drives, are spinning disks.
    spins: bool,
    caches: Vec<SimulatedDrive>,
    process: RefCell<Option<Process>>,
    /// The shards of its node as it was started last, those that are up.
    shards: RefCell<Vec<Slot>>,
    /// Why the node refused to start, if it did, and does not try again.
    refusal: Rc<RefCell<Option<Error>>>,
}

impl NodesWorld {
    /// `count` servers with one drive each that are up, without a volume.
    pub fn new(seed: u64, count: usize) -> Self {
        Self::with_config(seed, &NodesConfig::simple(seed, count))
    }

    /// Servers that are up, without a volume.
    pub fn with_config(seed: u64, config: &NodesConfig) -> Self {
        let world = World::with_config(seed, config.world.clone());
        let state_host = world.add_host("state");
        let state_process = world.start_process_on(&state_host, "state");
        let state = SimulatedState::new(state_process.platform(), Faults::default());
        let cluster = ClusterState::new(state.client(u64::MAX, state_process.platform()));
        let (record, settings) = (cluster_record(config.slab_bytes), config.settings.clone());
        let made = state_process.block_on(async move {
            cluster.create_cluster(record).await?;
            cluster.change_settings(|set| *set = settings).await
        });
        assert!(matches!(made, Ok(Ok(_))), "an empty state takes a cluster");
        state.set_faults(config.state);
        let servers = (0..).zip(&config.drives);
        let servers = servers.map(|(index, drives)| Server::new(&world, index, *drives, config));
        let servers = servers.collect();
        let clients = world.start_process_on(&world.add_host("clients"), "clients");
        let (crashes, decisions, sayings) = (Cell::new(0), Rc::default(), Rc::default());
        let volume_settings = Rc::default();
        let (leaves_unfit_drives_out, shards_max) = (config.leaves_unfit_drives_out, config.shards_max);
        let starts = Random::stream(seed, "shards of starts", 0);
        let nodes = Self {
            servers,
            leaves_unfit_drives_out,
            shards_max,
            starts,
            clients,
            world,
            state,
            crashes,
            decisions,
            sayings,
            volume_settings,
        };
        for index in 0..nodes.count() {
            nodes.start(index);
        }
        assert_eq!(nodes.run_until(|| nodes.all_see_all()), RunEnd::ConditionMet, "a quiet start succeeds");
        nodes
    }

    /// Runs until `condition` holds, which must come in the end. Looks now and then: what a node says of
    /// itself costs more than what it does meanwhile.
    pub fn run_until(&self, mut condition: impl FnMut() -> bool) -> RunEnd {
        let mut left = PATIENCE;
        while !condition() {
            let end = self.world.run_for(LOOK_EVERY);
            if end != RunEnd::TimeOver || left.is_zero() {
                return end;
            }
            left = left.saturating_sub(LOOK_EVERY);
        }
        RunEnd::ConditionMet
    }

    /// How many servers there are.
    pub fn count(&self) -> usize {
        self.servers.len()
    }

    /// Whether a node has started and not been stopped since.
    pub fn is_up(&self, index: usize) -> bool {
        let shards = self.servers[index].shards.borrow();
        !shards.is_empty() && shards.iter().all(|shard| shard.borrow().is_some())
    }

    /// Whether all nodes are up, and know so of each other.
    pub fn all_see_all(&self) -> bool {
        let sees_all = |index: usize| {
            self.report(index).is_some_and(|report| {
                report.alive.len() == self.count() && report.reachable.len() + 1 == self.count()
            })
        };
        (0..self.count()).all(sees_all)
    }

    /// Whether a node runs or is about to.
    pub fn is_started(&self, index: usize) -> bool {
        self.servers[index].process.borrow().is_some()
    }

    /// The first shard of a node that is up.
    pub fn node(&self, index: usize) -> Option<SimulatedNode> {
        self.shard(index, 0)
    }

    /// A shard of a node that is up, counted round and round.
    pub fn shard(&self, index: usize, number: usize) -> Option<SimulatedNode> {
        if !self.is_up(index) {
            return None;
        }
        let shards = self.servers[index].shards.borrow();
        shards[number % shards.len()].borrow().clone()
    }

    /// The shards of a node that is up.
    pub fn shards(&self, index: usize) -> Vec<SimulatedNode> {
        let shards = 0..usize::from(self.servers[index].shard_count());
        shards.filter_map(|number| self.shard(index, number)).collect()
    }

    /// The shard of a node that owns a volume.
    pub fn owner(&self, index: usize, volume: VolumeId) -> Option<SimulatedNode> {
        let owns = |shard: &SimulatedNode| shard.report().owned.iter().any(|owned| owned.volume == volume);
        self.shards(index).into_iter().find(owns)
    }

    /// What a node that is up says of itself.
    pub fn report(&self, index: usize) -> Option<NodeReport> {
        NodeReport::of_shards(self.shards(index).iter().map(SimulatedNode::report))
    }

    /// The process of a node that was started.
    pub fn process(&self, index: usize) -> Option<Process> {
        self.servers[index].process.borrow().clone()
    }

    /// The machine of a node.
    pub fn host(&self, index: usize) -> &Host {
        &self.servers[index].host
    }

    /// A process on a machine that is no server: for clients that outlive nodes.
    pub fn clients(&self) -> &Process {
        &self.clients
    }

    /// Where a shard of a node listens for NBD clients.
    pub fn nbd_address(&self, index: usize, shard: u8) -> Address {
        Address::Tcp(SocketAddr::new(self.host(index).address(0), NBD_PORT + u16::from(shard)))
    }

    /// Where the nodes listen for NBD clients, all of them.
    pub fn nbd_addresses(&self) -> Vec<Address> {
        let of = |index: usize| (0..self.shards_max).map(move |shard| self.nbd_address(index, shard));
        (0..self.count()).flat_map(of).collect()
    }

    /// The first drive of a node.
    pub fn drive(&self, index: usize) -> &SimulatedDrive {
        &self.servers[index].drives[0]
    }

    /// The drives of a node.
    pub fn drives(&self, index: usize) -> &[SimulatedDrive] {
        &self.servers[index].drives
    }

    /// The cache drives of a node.
    pub fn caches(&self, index: usize) -> &[SimulatedDrive] {
        &self.servers[index].caches
    }

    /// The drives of a node, and behind them its cache drives: by the numbers of [`DrivePlace`].
    pub fn all_drives(&self, index: usize) -> impl Iterator<Item = &SimulatedDrive> {
        self.servers[index].drives.iter().chain(&self.servers[index].caches)
    }

    /// A drive, of either kind.
    pub fn drive_at(&self, place: DrivePlace) -> &SimulatedDrive {
        self.all_drives(place.node).nth(place.drive).expect("a place of this world")
    }

    /// Whether a cache drive is there.
    pub fn is_cache(&self, place: DrivePlace) -> bool {
        place.drive >= self.drives(place.node).len()
    }

    /// A drive, with the cache drives of its server.
    pub fn media(&self, place: DrivePlace) -> Media<'_> {
        let server = &self.servers[place.node];
        Media { drive: &server.drives[place.drive], caches: &server.caches }
    }

    /// The drives that are bound to a cache drive, as far as they can say.
    pub fn bound_to(&self, cache: DrivePlace) -> Vec<DrivePlace> {
        let Some(wanted) = cache_id(&self.drive_at(cache).snapshot()) else { return Vec::new() };
        let drives = self.drives(cache.node).iter().enumerate();
        let bound = drives.filter(|(_, simulated)| is_bound(simulated, wanted));
        bound.map(|(drive, _)| DrivePlace { node: cache.node, drive }).collect()
    }

    /// Why a node refused to start, if it did: it does not try again.
    pub fn refusal(&self, index: usize) -> Option<Error> {
        self.servers[index].refusal.borrow().clone()
    }

    /// What was refused counts no more: what was wrong is to be put right.
    pub fn forget_refusals(&self) {
        self.servers.iter().for_each(|server| _ = server.refusal.take());
    }

    /// Starts a node. It is up some time later.
    pub fn start(&self, index: usize) {
        let server = &self.servers[index];
        server.host.power_on();
        let process = self.world.start_process_on(&server.host, &server.name);
        *server.process.borrow_mut() = Some(process.clone());
        server.refusal.take();
        let count = 1 + self.starts.below(u64::from(self.shards_max)) as usize;
        *server.shards.borrow_mut() = (0..count).map(|_| Slot::default()).collect();
        let configs: Vec<NodeConfig> =
            (0..server.shard_count()).map(|number| self.config(index, number)).collect();
        let slots = server.shards.borrow().clone();
        let (refusal, platform) = (Rc::clone(&server.refusal), process.platform());
        let store = self.state.client(index as u64, platform.clone());
        process.spawn(async move {
            match start_patiently(&platform, &store, &configs).await {
                Ok(shards) => {
                    for (slot, shard) in slots.iter().zip(shards) {
                        *slot.borrow_mut() = Some(shard);
                    }
                }
                Err(error) => *refusal.borrow_mut() = Some(error),
            }
        });
    }

    fn config(&self, index: usize, shard: u8) -> NodeConfig {
        let server = &self.servers[index];
        let networks = 0..self.world.config().network.networks;
        let address = |network| SocketAddr::new(server.host.address(network), BUS_PORT + u16::from(shard));
        NodeConfig {
            cluster: cluster_id(),
            node: node_id(index),
            shard,
            shards: server.shard_count(),
            name: server.name.clone(),
            bus_addresses: networks.map(|network| Address::Tcp(address(network))).collect(),
            nbd_addresses: vec![self.nbd_address(index, shard)],
            drives: server.places(shard),
            leaves_unfit_drives_out: self.leaves_unfit_drives_out,
        }
    }

    /// Stops a node without a warning: its process is killed, or the power of its host is cut, also if no
    /// process runs there.
    pub fn stop(&self, index: usize, power_cut: bool) {
        let server = &self.servers[index];
        server.shards.take();
        if let Some(process) = server.process.borrow_mut().take() {
            self.crashes.set(self.crashes.get() + 1);
            if !power_cut {
                process.crash();
            }
        }
        if power_cut {
            server.host.power_cut();
        }
    }

    /// Cuts the power of all servers.
    pub fn cut_power_of_all(&self) {
        (0..self.count()).for_each(|index| self.stop(index, true));
    }

    /// How many nodes were stopped without a warning so far.
    pub fn crashes(&self) -> u64 {
        self.crashes.get()
    }

    /// Stops a node in order, and its process after that.
    pub fn stop_in_order(&self, index: usize) {
        if let (true, Some(process)) = (self.is_up(index), self.process(index)) {
            let shards = self.shards(index);
            let stopping = async move { drop(join_all(shards.iter().map(SimulatedNode::stop)).await) };
            let stopped = process.block_on(stopping);
            assert_eq!(stopped, Ok(()), "a stop comes to its end");
        }
        self.stop(index, false);
    }

    /// Puts a server into maintenance, or takes it out again.
    pub fn set_maintenance(&self, index: usize, is_on: bool) {
        let state = ClusterState::new(self.state.client(u64::MAX, self.clients.platform()));
        let changed = self.clients.block_on(async move {
            let since_unix_ms = is_on.then_some(1);
            loop {
                let seen = state.nodes().await.expect("a state that answers");
                match state.set_maintenance(node_id(index), since_unix_ms, &seen).await {
                    Err(StateError::Conflict) => {}
                    outcome => return outcome,
                }
            }
        });
        assert_eq!(changed, Ok(Ok(())), "a server that the state knows");
    }

    /// Has a drive used for something else from now on, as soon as the cluster's state can be told. What was decided last
    /// of a drive counts.
    pub fn decide_drive(&self, drive: DriveId, decided: DriveState) {
        let is_under_way = self.decisions.borrow_mut().insert(drive, decided).is_some();
        if is_under_way {
            return;
        }
        let (decisions, platform) = (Rc::clone(&self.decisions), self.clients.platform());
        let state = ClusterState::new(self.state.client(u64::MAX, platform.clone()));
        self.clients.spawn(async move {
            loop {
                let decided = decisions.borrow()[&drive];
                let told = state.decide_drive(drive, decided).await;
                // Of a drive that is not in the cluster any more nothing is decided. Somebody may have thought better of it.
                if matches!(told, Ok(()) | Err(StateError::Refused(_)))
                    && decisions.borrow()[&drive] == decided
                {
                    decisions.borrow_mut().remove(&drive);
                    return;
                }
                platform.sleep(DECISION_RETRY).await;
            }
        });
    }

    /// Takes a cache drive out of the cluster, as soon as the cluster's state can be told.
    pub fn forget_cache(&self, cache: DriveId) {
        self.clients.spawn(self.forgetting(cache, || true));
    }

    /// Has a node that is up let go of a cache drive, which is taken out of the cluster if it does: unless the node binds drives
    /// to it again before the cluster's state was told.
    pub fn release_cache(&self, index: usize, cache: DriveId) {
        let (Some(node), Some(process)) = (self.node(index), self.process(index)) else { return };
        let drives = self.drives(index).to_vec();
        let is_unused = move || !drives.iter().any(|drive| is_bound(drive, cache));
        let (forgetting, clients) = (self.forgetting(cache, is_unused), self.clients.clone());
        process.spawn(async move {
            if matches!(node.release_cache(cache).await, Ok(true)) {
                clients.spawn(forgetting);
            }
        });
    }

    /// Takes a cache drive out of the cluster as long as it may go.
    fn forgetting<F: Fn() -> bool + 'static>(
        &self,
        cache: DriveId,
        may_go: F,
    ) -> impl Future<Output = ()> + use<F> {
        let (sayings, platform) = (Rc::clone(&self.sayings), self.clients.platform());
        let state = ClusterState::new(self.state.client(u64::MAX, platform.clone()));
        async move {
            sayings.set(sayings.get() + 1);
            while may_go() && remove_cache_drive(&state, cache).await.is_err() {
                platform.sleep(DECISION_RETRY).await;
            }
            sayings.set(sayings.get() - 1);
        }
    }

    /// Whether a cache drive was taken out of the cluster, and nothing of it is needed any more.
    pub fn is_released(&self, place: DrivePlace) -> bool {
        let Some(cache) = cache_id(&self.drive_at(place).snapshot()) else { return false };
        let key = StateKey::CacheDrive(cache).key();
        self.state.inspect(&[Selection::key(&key)]).entry(0).is_none() && self.bound_to(place).is_empty()
    }

    /// Says where a server stands, as soon as the cluster's state can be told.
    pub fn label(&self, index: usize, place: Place) {
        self.tell(async move |state| {
            state.set_place(node_id(index), |known| *known = place.clone()).await.is_ok()
        });
    }

    /// Sets something for the pool, as soon as the cluster's state can be told.
    pub fn change_settings(&self, change: impl Fn(&mut SettingsRecord) + 'static) {
        self.tell(async move |state| state.change_settings(&change).await.is_ok());
    }

    /// Sets something of a volume, as soon as the cluster's state can be told. What is said last holds.
    pub fn set_volume(&self, volume: VolumeId, settings: VolumeSettings) {
        let wanted = Rc::clone(&self.volume_settings);
        wanted.borrow_mut().insert(volume, settings);
        self.tell(async move |state| {
            let settings = wanted.borrow()[&volume];
            let told = state.set_volume(volume, |_| Ok(settings)).await;
            told.is_ok() && wanted.borrow()[&volume] == settings
        });
    }

    /// Tells the cluster's state something, again and again until that has succeeded.
    fn tell(
        &self,
        telling: impl AsyncFn(&ClusterState<SimulatedStore<SimulatedPlatform>>) -> bool + 'static,
    ) {
        let (sayings, platform) = (Rc::clone(&self.sayings), self.clients.platform());
        let state = ClusterState::new(self.state.client(u64::MAX, platform.clone()));
        sayings.set(sayings.get() + 1);
        self.clients.spawn(async move {
            while !telling(&state).await {
                platform.sleep(DECISION_RETRY).await;
            }
            sayings.set(sayings.get() - 1);
        });
    }

    /// Whether something was decided of a drive, or said of a server or the pool, that the cluster's state may not have been told.
    pub fn is_deciding(&self) -> bool {
        !self.decisions.borrow().is_empty() || self.sayings.get() > 0
    }

    /// Makes a volume, on a node that is up.
    pub fn create_volume(
        &self,
        index: usize,
        name: &str,
        size_bytes: u64,
        copies: u8,
    ) -> Result<VolumeCreated, Error> {
        let node = self.node(index).expect("the node is up");
        let creation =
            VolumeCreation { name: name.to_owned(), size_bytes, copies: Some(copies), owner: None };
        let process = self.process(index).expect("a node that is up has a process");
        let created = process.block_on(async move { node.create_volume(&creation).await });
        created.expect("nothing stops the node meanwhile")
    }
}

/// Starts a node, again and again as long as it only does not start yet, as whatever starts the program would.
async fn start_patiently(
    platform: &SimulatedPlatform,
    store: &SimulatedStore<SimulatedPlatform>,
    configs: &[NodeConfig],
) -> Result<Vec<SimulatedNode>, Error> {
    loop {
        let siblings = Siblings::among(configs.len() as u8);
        let start = |(config, siblings)| Node::start(platform.clone(), config, store.clone(), siblings);
        let stop = |shard: SimulatedNode| async move { shard.stop().await };
        match start_shards(configs.iter().cloned().zip(siblings), start, stop).await {
            // The state may not have been reached, or the drive does not answer.
            Err(error)
                if ["STATE_UNAVAILABLE", "DRIVE_NOT_OPENED", "DRIVE_FAILED"].contains(&&error.code[..]) =>
            {
                tracing::warn!("the node does not start yet: {error}");
                platform.sleep(Duration::from_millis(500)).await;
            }
            started => return started,
        }
    }
}

impl Drop for NodesWorld {
    /// Ends every process: tasks hold what holds them.
    fn drop(&mut self) {
        for index in 0..self.count() {
            self.stop(index, true);
        }
        self.clients.crash();
    }
}

impl Server {
    fn new(world: &World, index: usize, drives: u8, config: &NodesConfig) -> Self {
        let name = format!("n{}", index + 1);
        let host = world.add_host(&name);
        let add = |kind: &str, number: u8, config: SimulatedDriveConfig| {
            let drive = world.add_drive(&format!("{name} {kind} {number}"), config);
            drive.attach_to(&host);
            drive
        };
        Self {
            drives: (1..=drives).map(|number| add("drive", number, config.drive)).collect(),
            spins: config.spins,
            caches: (1..=config.caches).map(|number| add("cache", number, config.cache)).collect(),
            name,
            host,
            process: RefCell::new(None),
            shards: RefCell::default(),
            refusal: Rc::default(),
        }
    }

    fn shard_count(&self) -> u8 {
        self.shards.borrow().len() as u8
    }

    /// The drives of a shard: one after the other gets one.
    fn places(&self, shard: u8) -> Vec<GivenDrive> {
        let caches = self.caches.iter().map(|drive| GivenDrive::cache(drive.name().to_owned()));
        let media = self.spins.then_some(MediaClass::Hdd);
        let own = by_turns(&self.drives, shard, self.shard_count());
        let drives = own.map(|drive| GivenDrive { media, ..GivenDrive::capacity(drive.name().to_owned()) });
        caches.chain(drives).collect()
    }
}

/// Whether a drive is bound to a cache drive, now or after a power cut, as far as it can say.
fn is_bound(drive: &SimulatedDrive, cache: DriveId) -> bool {
    [drive.snapshot(), drive.durable_image()].iter().any(|image| {
        let inspection = inspect_alone(drive.name(), image);
        inspection.is_ok_and(|found| found.cache.is_some_and(|bound| bound.cache == cache))
    })
}

/// Takes a cache drive out of the cluster, as it is now. It may have been taken out before.
pub(crate) async fn remove_cache_drive(
    state: &ClusterState<SimulatedStore<SimulatedPlatform>>,
    drive: DriveId,
) -> Result<(), StateError> {
    let Some(seen) = state.cache_drive(drive).await? else { return Ok(()) };
    state.remove_cache_drive(drive, &seen, "a cache drive", 1).await
}

fn cluster_id() -> ClusterId {
    ClusterId::from_random(9, 9)
}

/// The identity of a node.
pub fn node_id(index: usize) -> NodeId {
    NodeId::from_random((index as u64 + 1) << 56, 1)
}

fn cluster_record(slab_bytes: u64) -> ClusterRecord {
    ClusterRecord {
        id: cluster_id(),
        name: "simulated".to_owned(),
        feature_level: 1,
        slab_bytes: SlabGeometry::new(slab_bytes).expect("a slab size that a pool can have"),
        created_unix_ms: 0,
        generation: 0,
    }
}

/// The nodes by what they own, for messages of failed checks.
pub fn ownerships(nodes: &NodesWorld) -> BTreeMap<usize, Vec<spandrel_node::OwnedVolumeReport>> {
    (0..nodes.count()).filter_map(|index| Some((index, nodes.report(index)?.owned))).collect()
}

#[cfg(test)]
#[path = "nodes_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "nodes_owner_tests.rs"]
mod owner_tests;

#[cfg(test)]
#[path = "nodes_vm_tests.rs"]
mod vm_tests;

#[cfg(test)]
#[path = "nodes_limit_tests.rs"]
mod limit_tests;

#[cfg(test)]
#[path = "nodes_growth_tests.rs"]
mod growth_tests;

#[cfg(test)]
#[path = "nodes_cache_tests.rs"]
mod cache_tests;

#[cfg(test)]
#[path = "nodes_load_tests.rs"]
mod load_tests;
