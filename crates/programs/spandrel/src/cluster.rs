//! The nodes of a cluster that all run in this process: starting and stopping them, and asking them.
//!
//! Everything here runs on the control thread. What concerns a node is asked on the node's own
//! thread; what concerns the cluster as a whole is read from its state.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_channel::mpsc;
use futures_util::future::join_all;
use rustix::time::ClockId;
use spandrel_cluster::{ClusterRecord, ClusterState, StateError, VolumeMembership, VolumeState};
use spandrel_node::{NodeConfig, NodeReport, VolumeCreation};
use spandrel_platform::Address;
use spandrel_platform_linux::MemoryDrive;
use spandrel_shared::{DriveId, Error, NodeId};
use spandrel_state_redb::RedbState;

use crate::api::{
    CheckLine, CheckReport, ClusterStatus, Damage, NodeStatus, Progress, Usage, VolumeCreate,
    VolumeCreateAnswer,
};
use crate::claim::Claim;
use crate::counters::Counters;
use crate::node_thread::{NodeHandle, NodeThread};
use crate::picture::{Facts, KnownNode};

/// How long a node may take to say how it is.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// How often, and with what pause, a volume's owner is looked for.
const OWNER_TRIES: u32 = 100;
const OWNER_PAUSE: Duration = Duration::from_millis(100);

/// How often, and with what pause, it is looked whether a client that leaves is gone.
const LEAVE_TRIES: u32 = 20;
const LEAVE_PAUSE: Duration = Duration::from_millis(50);

/// How the cluster is run, besides what is kept in its directory.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Where nodes listen on TCP.
    pub listen: IpAddr,
    /// The first node's TCP port for NBD, if any.
    pub nbd_port: Option<u16>,
    /// What stands before the location of each drive; for tests.
    pub drive_prefix: String,
}

/// A cluster in this process.
pub struct LocalCluster {
    claim: Claim,
    options: RunOptions,
    store: RedbState,
    state: ClusterState<RedbState>,
    /// The drives in memory, by node and drive.
    memory: Vec<Vec<MemoryDrive>>,
    nodes: Mutex<Vec<NodeSlot>>,
    /// Held while a node is stopped or started, so that these come one after the other.
    changing: tokio::sync::Mutex<()>,
    drive_names: Mutex<BTreeMap<DriveId, String>>,
    counters: Mutex<Counters>,
    checks: Mutex<BTreeMap<String, CheckReport>>,
    started_unix_ms: u64,
    flush_us: Option<f64>,
}

/// A node of the cluster, running or not.
struct NodeSlot {
    name: String,
    id: NodeId,
    thread: Option<NodeThread>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LocalCluster {
    /// Opens the state of a cluster, none of whose nodes runs yet.
    pub async fn open(claim: Claim, options: RunOptions, flush_us: Option<f64>) -> Result<Arc<Self>, Error> {
        let store = RedbState::open(&claim.directory.state_file())?;
        let state = ClusterState::new(store.clone());
        let settings = &claim.settings;
        let started_unix_ms = unix_ms();
        if state.cluster().await.map_err(state_error)?.is_none() {
            let record = ClusterRecord {
                id: settings.cluster,
                name: "local".to_owned(),
                feature_level: 1,
                slab_bytes: settings.slab_size_bytes,
                created_unix_ms: started_unix_ms,
                generation: 0,
            };
            state.create_cluster(record).await.map_err(state_error)?;
        }
        let slot = |node: &crate::settings::NodeSettings| NodeSlot {
            name: node.name.clone(),
            id: node.id,
            thread: None,
        };
        let nodes = settings.nodes.iter().map(slot).collect();
        let memory = if settings.memory { memory_drives(&claim)? } else { Vec::new() };
        Ok(Arc::new(Self {
            claim,
            options,
            store,
            state,
            memory,
            nodes: Mutex::new(nodes),
            changing: tokio::sync::Mutex::default(),
            drive_names: Mutex::default(),
            counters: Mutex::default(),
            checks: Mutex::default(),
            started_unix_ms,
            flush_us,
        }))
    }

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

    /// Stops all nodes in order.
    pub async fn stop_all(&self) {
        let _changing = self.changing.lock().await;
        let threads: Vec<NodeThread> =
            locked(&self.nodes).iter_mut().filter_map(|node| node.thread.take()).collect();
        let reports = join_all(threads.into_iter().map(|thread| stop_thread(thread, false))).await;
        reports.iter().flatten().for_each(|report| locked(&self.counters).take(report));
    }

    /// Starts a node that does not run.
    pub async fn start_node(&self, name: &str) -> Result<NodeStatus, Error> {
        let _changing = self.changing.lock().await;
        let index = self.index_of(name)?;
        if locked(&self.nodes)[index].thread.is_some() {
            return Err(Error::new(
                "NODE_RUNNING",
                format!("node {name} cannot be started"),
                "it runs already",
                "look at the nodes with `spandrel node list`",
            ));
        }
        self.start_index(index).await?;
        tracing::warn!("node {name} was started");
        self.node(name).await
    }

    /// Stops a node that runs.
    pub async fn stop_node(&self, name: &str, abrupt: bool) -> Result<NodeStatus, Error> {
        let _changing = self.changing.lock().await;
        let index = self.index_of(name)?;
        let handle = locked(&self.nodes)[index].thread.as_ref().map(NodeThread::handle);
        let handle = handle.ok_or_else(|| {
            Error::new(
                "NODE_NOT_RUNNING",
                format!("node {name} cannot be stopped"),
                "it does not run",
                "look at the nodes with `spandrel node list`",
            )
        })?;
        // For the totals; a node that does not answer is stopped all the same.
        let _ = self.report(handle).await;
        let thread = locked(&self.nodes)[index].thread.take();
        if let Some(thread) = thread
            && let Some(report) = stop_thread(thread, abrupt).await
        {
            locked(&self.counters).take(&report);
        }
        tracing::warn!("node {name} was stopped{}", if abrupt { " abruptly" } else { "" });
        self.node(name).await
    }

    fn index_of(&self, name: &str) -> Result<usize, Error> {
        let nodes = &self.claim.settings.nodes;
        nodes.iter().position(|node| node.name == name).ok_or_else(|| {
            let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
            Error::new(
                "NODE_NOT_FOUND",
                format!("there is no node {name:?}"),
                format!("the nodes of this cluster are {}", names.join(", ")),
                "use one of these",
            )
        })
    }

    async fn start_index(&self, index: usize) -> Result<(), Error> {
        let config = self.node_config(index);
        let thread = NodeThread::start(config, self.store.clone()).await?;
        locked(&self.nodes)[index].thread = Some(thread);
        Ok(())
    }

    fn node_config(&self, index: usize) -> NodeConfig {
        let (settings, directory) = (&self.claim.settings, &self.claim.directory);
        let node = &settings.nodes[index];
        let drives = self.drive_locations(index).into_iter().map(|(_, location)| location).collect();
        NodeConfig {
            cluster: settings.cluster,
            node: node.id,
            name: node.name.clone(),
            bus_address: unix_address(&directory.bus_socket(&node.name)),
            nbd_addresses: self.nbd_addresses(index),
            drives,
        }
    }

    /// The drives of a node that are there: their names and locations.
    fn drive_locations(&self, index: usize) -> Vec<(String, String)> {
        let (settings, directory) = (&self.claim.settings, &self.claim.directory);
        let node = &settings.nodes[index].name;
        let mut locations = Vec::new();
        for (number, drive) in settings.drive_names().enumerate() {
            let name = format!("{node}/{drive}");
            let path = match self.memory.get(index) {
                Some(drives) => drives[number].location(),
                None => directory.drive_file(node, &drive).display().to_string(),
            };
            if self.memory.is_empty() && !Path::new(&path).exists() {
                // A drive that was pulled out is no reason not to start: the others have its copies.
                tracing::warn!("drive {name} is missing: there is no file {path}");
                continue;
            }
            locations.push((name, format!("{}{path}", self.options.drive_prefix)));
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
        let ended = nodes.iter_mut().filter(|node| node.thread.as_ref().is_some_and(NodeThread::is_ended));
        ended
            .map(|node| {
                node.thread = None;
                node.name.clone()
            })
            .collect()
    }

    fn handle(&self, id: NodeId) -> Option<NodeHandle> {
        let nodes = locked(&self.nodes);
        nodes.iter().find(|node| node.id == id)?.thread.as_ref().map(NodeThread::handle)
    }

    fn any_handle(&self) -> Result<NodeHandle, Error> {
        let nodes = locked(&self.nodes);
        let running = nodes.iter().find_map(|node| node.thread.as_ref()).map(NodeThread::handle);
        running.ok_or_else(|| {
            Error::new(
                "NODE_NOT_RUNNING",
                "no node can do this",
                "all of them are stopped",
                "start one with `spandrel node start`",
            )
        })
    }

    async fn report(&self, handle: NodeHandle) -> Option<NodeReport> {
        let answer = handle.ask(|node| async move { node.report() });
        let report = tokio::time::timeout(REPORT_TIMEOUT, answer).await.ok()?.ok()?;
        locked(&self.counters).take(&report);
        Some(report)
    }

    /// Asks everybody how they are.
    pub async fn facts(&self) -> Result<Facts, Error> {
        let room = self.state.pool_room().await.map_err(state_error)?;
        let volumes = self.state.volumes().await.map_err(state_error)?;
        let mut memberships: Vec<VolumeMembership> = Vec::new();
        for (id, stored) in volumes {
            if stored.record.state == VolumeState::Ready {
                memberships.extend(self.state.membership(id).await.map_err(state_error)?);
            }
        }
        let handles: Vec<Option<NodeHandle>> =
            locked(&self.nodes).iter().map(|node| node.thread.as_ref().map(NodeThread::handle)).collect();
        let reports = join_all(handles.into_iter().map(async |handle| self.report(handle?).await)).await;
        let mut nodes = Vec::new();
        for (index, report) in reports.into_iter().enumerate() {
            if let Some(report) = &report {
                self.learn_drive_names(index, report);
            }
            let node = &self.claim.settings.nodes[index];
            let nbd_addresses = self.nbd_addresses(index);
            nodes.push(KnownNode { name: node.name.clone(), id: node.id, nbd_addresses, report });
        }
        Ok(Facts {
            nodes,
            drive_names: locked(&self.drive_names).clone(),
            room,
            volumes: memberships,
            geometry: self.claim.settings.slab_size_bytes,
        })
    }

    fn learn_drive_names(&self, index: usize, report: &NodeReport) {
        let mut names = locked(&self.drive_names);
        let unknown =
            |drive: &&spandrel_node::DriveReport| drive.drive.is_some_and(|id| !names.contains_key(&id));
        if !report.drives.iter().any(|drive| unknown(&drive)) {
            return;
        }
        let by_location: BTreeMap<String, String> =
            self.drive_locations(index).into_iter().map(|(name, location)| (location, name)).collect();
        for drive in &report.drives {
            if let (Some(id), Some(name)) = (drive.drive, by_location.get(&drive.location)) {
                names.insert(id, name.clone());
            }
        }
    }

    /// The whole cluster as the API shows it.
    pub async fn status(&self) -> Result<ClusterStatus, Error> {
        let facts = self.facts().await?;
        Ok(ClusterStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cluster: self.claim.settings.cluster,
            directory: self.claim.directory.path().display().to_string(),
            process: std::process::id(),
            started_unix_ms: self.started_unix_ms,
            memory: self.claim.settings.memory,
            flush_us: self.flush_us,
            usage: self.usage().await,
            pool: facts.pool(),
            nodes: facts.nodes(),
            drives: facts.drives(),
            volumes: facts.volumes(),
        })
    }

    async fn node(&self, name: &str) -> Result<NodeStatus, Error> {
        let index = self.index_of(name)?;
        Ok(self.facts().await?.nodes().swap_remove(index))
    }

    /// Makes a volume.
    pub async fn create_volume(&self, create: VolumeCreate) -> Result<VolumeCreateAnswer, Error> {
        let owner = match &create.owner {
            Some(owner) => Some(self.claim.settings.nodes[self.index_of(owner)?].id),
            None => None,
        };
        let creation =
            VolumeCreation { name: create.name, size_bytes: create.size_bytes, copies: create.copies, owner };
        let node = self.any_handle()?;
        let name = creation.name.clone();
        let created = node.ask(|node| async move { node.create_volume(&creation).await }).await??;
        let volumes = self.facts().await?.volumes();
        let volume =
            volumes.into_iter().find(|volume| volume.name == name).ok_or_else(|| volume_not_found(&name))?;
        Ok(VolumeCreateAnswer {
            volume,
            warnings: created.warnings.iter().map(ToString::to_string).collect(),
        })
    }

    /// Deletes a volume; with `force` also if a client has it open for writing.
    pub async fn delete_volume(&self, name: &str, force: bool) -> Result<(), Error> {
        if !force {
            self.await_unused(name).await?;
        }
        let (owned_name, node) = (name.to_owned(), self.any_handle()?);
        node.ask(|node| async move { node.delete_volume(&owned_name).await }).await??;
        locked(&self.checks).remove(name);
        Ok(())
    }

    /// Waits a moment for a client that is just leaving the volume. An error if one stays.
    async fn await_unused(&self, name: &str) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            let volumes = self.facts().await?.volumes();
            let volume = volumes.into_iter().find(|volume| volume.name == name);
            let Some(writer) = volume.ok_or_else(|| volume_not_found(name))?.writer else { return Ok(()) };
            if tries == LEAVE_TRIES {
                return Err(Error::new(
                    "VOLUME_IN_USE",
                    format!("volume {name} is not deleted"),
                    format!("a client of node {writer} has it open for writing"),
                    "disconnect the client, or delete it all the same with --force",
                ));
            }
            tries += 1;
            tokio::time::sleep(LEAVE_PAUSE).await;
        }
    }

    /// Checks every block of every copy of a volume, and tells how it gets on.
    pub async fn check_volume(
        &self,
        name: &str,
        heal: bool,
        lines: &mpsc::UnboundedSender<CheckLine>,
    ) -> Result<CheckReport, Error> {
        let started = unix_ms();
        let id = self.state.volume_by_name(name).await.map_err(state_error)?;
        let id = id.ok_or_else(|| volume_not_found(name))?;
        for _ in 0..OWNER_TRIES {
            let membership = self.state.membership(id).await.map_err(state_error)?;
            let record = membership.ok_or_else(|| volume_not_found(name))?.record;
            let Some(node) = record.owner.and_then(|owner| self.handle(owner.node)) else {
                tokio::time::sleep(OWNER_PAUSE).await;
                continue;
            };
            let (volume, lines) = (name.to_owned(), lines.clone());
            let checked = node.ask(move |node| async move {
                let progress = |progress: spandrel_node::ScrubProgress| {
                    let slabs =
                        Progress { done: progress.slabs_done.into(), total: progress.slabs_total.into() };
                    // Whoever wanted to know may have left.
                    let _ = lines.unbounded_send(CheckLine::Progress { volume: volume.clone(), slabs });
                };
                node.scrub_volume(id, heal, progress).await
            });
            let found = match checked.await.and_then(|found| found) {
                Ok(found) => found,
                Err(error) if matches!(error.code.as_str(), "NOT_OWNER" | "NODE_STOPPED") => {
                    tokio::time::sleep(OWNER_PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let facts = self.facts().await?;
            let ended_unix_ms = unix_ms();
            let damage = |(drive, blocks): (&DriveId, &u64)| Damage {
                drive: facts.drive_name(*drive),
                blocks: *blocks,
            };
            let report = CheckReport {
                volume: name.to_owned(),
                ended_unix_ms,
                seconds: ended_unix_ms.saturating_sub(started) / 1000,
                heal,
                blocks_checked: found.blocks_checked,
                damaged: found.damaged.iter().map(damage).collect(),
                blocks_healed: found.blocks_healed,
                blocks_different: found.blocks_different,
                pieces_unchecked: found.pieces_unchecked,
            };
            locked(&self.checks).insert(name.to_owned(), report.clone());
            return Ok(report);
        }
        Err(Error::new(
            "VOLUME_NOT_SERVED",
            format!("volume {name} cannot be checked"),
            format!("for {} s no node served it", (OWNER_PAUSE * OWNER_TRIES).as_secs()),
            "look at it with `spandrel volume get`, and start the nodes that hold its copies",
        ))
    }

    /// The names of all volumes.
    pub async fn volume_names(&self) -> Result<Vec<String>, Error> {
        Ok(self.facts().await?.volumes().into_iter().map(|volume| volume.name).collect())
    }

    /// What the last check of each volume found.
    pub fn checks(&self) -> Vec<CheckReport> {
        locked(&self.checks).values().cloned().collect()
    }

    /// What has been used so far.
    pub async fn usage(&self) -> Usage {
        let handles: Vec<NodeHandle> = locked(&self.nodes)
            .iter()
            .filter_map(|node| node.thread.as_ref())
            .map(NodeThread::handle)
            .collect();
        join_all(handles.into_iter().map(|handle| self.report(handle))).await;
        let counters = locked(&self.counters);
        let cpu = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
        Usage {
            cpu_us: u64::try_from(cpu.tv_sec).unwrap_or(0) * 1_000_000
                + u64::try_from(cpu.tv_nsec / 1000).unwrap_or(0),
            user_written_bytes: counters.user_written_bytes(),
            drive_written_bytes: counters.drive_written_bytes(),
        }
    }
}

/// Stops a node. What it said last, if it was stopped in order.
async fn stop_thread(thread: NodeThread, abrupt: bool) -> Option<NodeReport> {
    // Waiting for a thread blocks; the control thread goes on meanwhile.
    let stopped = tokio::task::spawn_blocking(move || thread.stop(abrupt)).await;
    stopped.inspect_err(|error| tracing::error!("a node could not be stopped: {error}")).ok().flatten()
}

fn memory_drives(claim: &Claim) -> Result<Vec<Vec<MemoryDrive>>, Error> {
    let drive = |name: String| {
        MemoryDrive::new(&name, claim.settings.drive_size_bytes).map_err(|error| {
            let next = "choose fewer or smaller drives, or drives on disk (without --memory)";
            Error::new(
                "DRIVE_NOT_MADE",
                format!("drive {name} cannot be made in memory"),
                error.to_string(),
                next,
            )
        })
    };
    let node = |node: &crate::settings::NodeSettings| {
        claim.settings.drive_names().map(|name| drive(format!("{}-{name}", node.name))).collect()
    };
    claim.settings.nodes.iter().map(node).collect()
}

fn unix_address(path: &Path) -> Address {
    Address::Unix(path.display().to_string())
}

/// The time of day.
pub fn unix_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// The error that there is no such volume.
pub fn volume_not_found(name: &str) -> Error {
    Error::new(
        "VOLUME_NOT_FOUND",
        format!("there is no volume {name:?}"),
        "the cluster has no volume of that name",
        "list the volumes with `spandrel volume list`",
    )
}

fn state_error(error: StateError) -> Error {
    match error {
        StateError::Refused(error) => error,
        error => Error::new(
            "STATE_UNAVAILABLE",
            "the cluster's state cannot be used",
            error.to_string(),
            "try again; if it stays so, look at the log and at the disk that the cluster's directory is on",
        ),
    }
}
