//! The nodes of a cluster that all run in this process: starting and stopping them.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all, ready};
use spandrel_cluster::{ClusterRecord, ClusterState};
use spandrel_node::{DrivePlace, NodeConfig, NodeReport};
use spandrel_platform::Address;
use spandrel_platform_linux::{MemoryDrive, RuntimeConfig};
use spandrel_shared::{Error, NodeId};
use spandrel_state_redb::RedbState;

use super::claim::Claim;
use super::settings::NodeSettings;
use crate::admin::administration::{Administration, ProcessFacts, node_not_found, state_error, unix_ms};
use crate::admin::nodes::{NodeAccess, NodeEntry, Nodes};
use crate::arguments::ThreadArguments;
use crate::cores::check_cores;
use crate::node_state::NodeState;
use crate::running_node::{NodeHandle, NodeStart, RunningNode};
use crate::vm_hosting::VmHosting;

/// How the cluster is run, besides what is kept in its directory.
#[derive(Debug)]
pub struct RunOptions {
    /// Where nodes listen on TCP.
    pub listen: IpAddr,
    /// The first node's TCP port for NBD, if any.
    pub nbd_port: Option<u16>,
    /// On which threads all nodes run.
    pub threads: ThreadArguments,
    /// How they run virtual machines, if they do.
    pub vms: Option<VmHosting>,
    /// What stands before the location of each drive; for tests.
    pub drive_prefix: String,
}

/// The nodes in this process.
pub struct LocalNodes {
    /// Itself, for what it starts.
    own: Weak<LocalNodes>,
    claim: Claim,
    options: RunOptions,
    store: NodeState,
    /// The drives in memory, by node and drive.
    memory: Vec<Vec<MemoryDrive>>,
    nodes: Mutex<Vec<NodeSlot>>,
    /// Held while a node is stopped or started, so that these come one after the other.
    changing: tokio::sync::Mutex<()>,
}

/// A cluster in this process.
pub struct LocalCluster {
    /// Its nodes.
    pub nodes: Arc<LocalNodes>,
    /// What is asked of it.
    pub administration: Arc<Administration>,
}

/// A node of the cluster, running or not.
struct NodeSlot {
    name: String,
    id: NodeId,
    running: Option<RunningNode>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LocalCluster {
    /// Opens the state of a cluster, none of whose nodes runs yet.
    pub async fn open(claim: Claim, options: RunOptions, flush_us: Option<f64>) -> Result<Self, Error> {
        let store = NodeState::File(RedbState::open(&claim.directory.state_file())?);
        let state = ClusterState::new(store.clone());
        let settings = &claim.settings;
        let record = match state.cluster().await.map_err(state_error)? {
            Some(stored) => stored.record,
            None => {
                let record = ClusterRecord {
                    id: settings.cluster,
                    name: "local".to_owned(),
                    feature_level: 1,
                    slab_bytes: settings.slab_size_bytes,
                    created_unix_ms: unix_ms(),
                    generation: 0,
                };
                state.create_cluster(record).await.map_err(state_error)?.record
            }
        };
        let slot = |node: &NodeSettings| NodeSlot { name: node.name.clone(), id: node.id, running: None };
        let slots = settings.nodes.iter().map(slot).collect();
        let process = ProcessFacts {
            directory: claim.directory.path().display().to_string(),
            memory: settings.memory,
            flush_us,
        };
        let memory = if settings.memory { memory_drives(&claim)? } else { Vec::new() };
        let nodes = Arc::new_cyclic(|own| LocalNodes {
            own: Weak::clone(own),
            claim,
            options,
            store,
            memory,
            nodes: Mutex::new(slots),
            changing: tokio::sync::Mutex::default(),
        });
        let administration =
            Administration::new(process, record, state, Arc::clone(&nodes) as Arc<dyn Nodes>, None);
        Ok(Self { nodes, administration })
    }

    /// Stops all nodes in order.
    pub async fn stop_all(&self) {
        for report in self.nodes.stop_all().await {
            self.administration.take_in(&report);
        }
    }
}

impl LocalNodes {
    /// Where everything lies.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Starts all nodes. If one of them cannot start, the others are stopped again.
    pub async fn start_all(&self) -> Result<(), Error> {
        let count = self.claim.settings.nodes.len();
        let started = join_all((0..count).map(|index| self.start_index(index))).await;
        match started.into_iter().find_map(Result::err) {
            None => Ok(()),
            Some(error) => {
                self.stop_all().await;
                Err(error)
            }
        }
    }

    /// Stops all nodes in order. What they said last.
    pub async fn stop_all(&self) -> Vec<NodeReport> {
        let _changing = self.changing.lock().await;
        let running: Vec<RunningNode> =
            locked(&self.nodes).iter_mut().filter_map(|node| node.running.take()).collect();
        // While their guests shut down they write, and the nodes need each other for that.
        let end_vms = |node: &RunningNode| {
            let node = node.handle();
            async move { node.end_vms().await }
        };
        for ended in join_all(running.iter().map(end_vms)).await {
            let _ = ended.inspect_err(|error| tracing::warn!("virtual machines are not ended: {error}"));
        }
        let reports = join_all(running.into_iter().map(|node| stop_node(node, false))).await;
        reports.into_iter().flatten().collect()
    }

    fn index_of(&self, name: &str) -> Result<usize, Error> {
        let nodes = &self.claim.settings.nodes;
        nodes.iter().position(|node| node.name == name).ok_or_else(|| {
            node_not_found(name, &nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>())
        })
    }

    async fn start_index(&self, index: usize) -> Result<(), Error> {
        check_cores(self.options.threads.cores.as_ref())?;
        let config = self.node_config(index);
        self.tell_missing_drives(index);
        let media = &self.claim.settings.media;
        let medium = |place: &DrivePlace| Some((place.location.clone(), media.simulated(place.role)?));
        let simulated_media = config.drives.iter().filter_map(medium).collect();
        let nodes = self.claim.settings.nodes.len();
        let cores = self.options.threads.cores.as_ref().map(|cores| cores.share(index, nodes));
        let runtime = RuntimeConfig {
            simulated_media,
            cores,
            // The nodes of one machine stand in for servers of their own: they take turns instead of pushing each other aside.
            gives_way: true,
            ..RuntimeConfig::default()
        };
        let further = 1..self.options.threads.shards;
        let name = &self.claim.settings.nodes[index].name;
        let bus_address = |shard| vec![unix_address(&self.claim.directory.bus_socket(name, shard))];
        let start = NodeStart {
            config,
            further_bus_addresses: further.map(bus_address).collect(),
            runtime,
            store: self.store.clone(),
            tls: None,
        };
        let running = RunningNode::start(start).await?;
        let handle = running.handle();
        locked(&self.nodes)[index].running = Some(running);
        self.begin_vms_of(index, handle).await;
        Ok(())
    }

    /// Finds out whether virtual machines can run here, and has all nodes that run look after them.
    pub async fn begin_vms(&self) {
        let Some(hosting) = &self.options.vms else { return };
        if !hosting.probe(self.claim.directory.path()).await {
            return;
        }
        let _changing = self.changing.lock().await;
        let running: Vec<(usize, NodeHandle)> = {
            let nodes = locked(&self.nodes);
            let handle = |(index, node): (usize, &NodeSlot)| Some((index, node.running.as_ref()?.handle()));
            nodes.iter().enumerate().filter_map(handle).collect()
        };
        join_all(running.into_iter().map(|(index, handle)| self.begin_vms_of(index, handle))).await;
    }

    /// Has a node look after virtual machines, if that is known to work here.
    async fn begin_vms_of(&self, index: usize, handle: NodeHandle) {
        let Some(hosting) = &self.options.vms else { return };
        let (directory, name) = (&self.claim.directory, &self.claim.settings.nodes[index].name);
        let Some(own) = self.own.upgrade() else { return };
        let begun = hosting.begin(&handle, directory.vms(name), directory.nbd_socket(name), own).await;
        if let Err(error) = begun {
            tracing::error!("node {name} runs no virtual machines: {error}");
        }
    }

    /// Says once, as the node starts, which of its drives it does without.
    fn tell_missing_drives(&self, index: usize) {
        let (settings, present) = (&self.claim.settings, self.drive_locations(index));
        let node = &settings.nodes[index].name;
        for drive in settings.drives() {
            let name = format!("{node}/{}", drive.name);
            if !present.iter().any(|(there, _)| *there == name) {
                let path = self.claim.directory.drive_file(node, &drive.name);
                tracing::warn!("drive {name} is missing: there is no file {}", path.display());
            }
        }
    }

    fn node_config(&self, index: usize) -> NodeConfig {
        let (settings, directory) = (&self.claim.settings, &self.claim.directory);
        let node = &settings.nodes[index];
        let drives = self.drive_locations(index).into_iter().map(|(_, place)| place).collect();
        NodeConfig {
            cluster: settings.cluster,
            node: node.id,
            shard: 0,
            shards: 1,
            name: node.name.clone(),
            bus_addresses: vec![unix_address(&directory.bus_socket(&node.name, 0))],
            nbd_addresses: self.nbd_addresses(index),
            drives,
            leaves_unfit_drives_out: false,
        }
    }

    /// The drives of a node that are there: their names and places.
    fn drive_locations(&self, index: usize) -> Vec<(String, DrivePlace)> {
        let (settings, directory) = (&self.claim.settings, &self.claim.directory);
        let node = &settings.nodes[index].name;
        let mut locations = Vec::new();
        for (number, drive) in settings.drives().enumerate() {
            let name = format!("{node}/{}", drive.name);
            let path = match self.memory.get(index) {
                Some(drives) => drives[number].location(),
                None => directory.drive_file(node, &drive.name).display().to_string(),
            };
            // A drive that was pulled out is no reason not to start: the others have its copies.
            if self.memory.is_empty() && !Path::new(&path).exists() {
                continue;
            }
            let location = format!("{}{path}", self.options.drive_prefix);
            locations.push((name, DrivePlace { location, role: drive.role, media: drive.media }));
        }
        locations
    }

    /// Where a node serves NBD: the unix socket first.
    pub fn nbd_addresses(&self, index: usize) -> Vec<Address> {
        let node = &self.claim.settings.nodes[index].name;
        let mut addresses = vec![unix_address(&self.claim.directory.nbd_socket(node))];
        if let Some(port) = self.options.nbd_port {
            // That the sum is a port was checked when the directory was taken.
            addresses.push(Address::Tcp(SocketAddr::new(self.options.listen, port + index as u16)));
        }
        addresses
    }

    /// The names of nodes that have ended by themselves since the last call. They count as stopped.
    pub fn take_ended(&self) -> Vec<String> {
        let mut nodes = locked(&self.nodes);
        let ended = nodes.iter_mut().filter(|node| node.running.as_ref().is_some_and(RunningNode::is_ended));
        ended
            .map(|node| {
                node.running = None;
                node.name.clone()
            })
            .collect()
    }
}

impl Nodes for LocalNodes {
    fn list(&self) -> BoxFuture<'_, Result<Vec<NodeEntry>, Error>> {
        let nodes = locked(&self.nodes);
        let entries = nodes.iter().enumerate().map(|(index, node)| NodeEntry {
            name: node.name.clone(),
            id: node.id,
            nbd_addresses: self.nbd_addresses(index),
            access: node.running.as_ref().map(|running| NodeAccess::Here(running.handle())),
        });
        ready(Ok(entries.collect())).boxed()
    }

    fn drive_name(&self, node: &str, location: &str) -> Option<String> {
        let locations = self.drive_locations(self.index_of(node).ok()?);
        locations.into_iter().find(|(_, known)| known.location == location).map(|(name, _)| name)
    }

    fn start<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        let started = async move {
            let _changing = self.changing.lock().await;
            let index = self.index_of(name)?;
            if locked(&self.nodes)[index].running.is_some() {
                return Err(Error::new(
                    "NODE_RUNNING",
                    format!("node {name} cannot be started"),
                    "it runs already",
                    "look at the nodes with `spandrel node list`",
                ));
            }
            self.start_index(index).await
        };
        started.boxed()
    }

    fn stop<'a>(&'a self, name: &'a str, abrupt: bool) -> BoxFuture<'a, Result<Option<NodeReport>, Error>> {
        let stopped = async move {
            let _changing = self.changing.lock().await;
            let index = self.index_of(name)?;
            let running = locked(&self.nodes)[index].running.take();
            let running = running.ok_or_else(|| {
                Error::new(
                    "NODE_NOT_RUNNING",
                    format!("node {name} cannot be stopped"),
                    "it does not run",
                    "look at the nodes with `spandrel node list`",
                )
            })?;
            Ok(stop_node(running, abrupt).await)
        };
        stopped.boxed()
    }
}

/// Stops a node. What it said last, if it was stopped in order.
async fn stop_node(node: RunningNode, abrupt: bool) -> Option<NodeReport> {
    let qemu = node.qemu();
    // Waiting for threads blocks; the control thread goes on meanwhile.
    let stopped = tokio::task::spawn_blocking(move || node.stop(abrupt)).await;
    if let Some(qemu) = qemu {
        // Of a node that has lost its power nothing runs any more.
        qemu.end_all().await;
    }
    stopped.inspect_err(|error| tracing::error!("a node could not be stopped: {error}")).ok().flatten()
}

fn memory_drives(claim: &Claim) -> Result<Vec<Vec<MemoryDrive>>, Error> {
    let drive = |name: String, size_bytes| {
        MemoryDrive::new(&name, size_bytes).map_err(|error| {
            let next = "choose fewer or smaller drives, or drives on disk (without --memory)";
            Error::new(
                "DRIVE_NOT_MADE",
                format!("drive {name} cannot be made in memory"),
                error.to_string(),
                next,
            )
        })
    };
    let node = |node: &crate::local::settings::NodeSettings| {
        let drives = claim.settings.drives();
        drives.map(|of| drive(format!("{}-{}", node.name, of.name), of.size_bytes)).collect()
    };
    claim.settings.nodes.iter().map(node).collect()
}

fn unix_address(path: &Path) -> Address {
    Address::Unix(path.display().to_string())
}
