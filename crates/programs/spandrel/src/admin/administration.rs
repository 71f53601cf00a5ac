//! What is done when something is asked of a cluster.
//!
//! Everything here runs on the control thread. What concerns a node is asked of the node; what concerns the cluster
//! as a whole is read from its state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use rustix::time::ClockId;
use spandrel_cluster::backup::StateBackup;
use spandrel_cluster::{
    ClusterRecord, ClusterState, DriveRecord, NodeRecord, StateError, StateKey, Stored, VolumeMembership,
    VolumeState, WitnessRecord,
};
use spandrel_node::NodeReport;
use spandrel_shared::{DriveId, Error, NodeId};
use spandrel_trust::{Fingerprint, JoinToken};

use super::api::{
    ClusterStatus, DriveAdd, DriveAdded, JoinAnswer, JoinRequest, NodeDetails, NodeStatus, ServerRemove,
    ServerRemoved, Settle, SettleStatus, Standing, StateMember, StateRole, StateStatus, Usage,
};
use super::counters::Counters;
use super::nodes::{NodeAccess, NodeEntry, Nodes};
use super::picture::{Facts, KnownNode};
use super::servers::ServerEntry;
use crate::node_state::NodeState;
use crate::program::{Program, VERSION};

/// How long a node may take to say how it is.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// How often another change of the cluster's state is.
const CONFLICT_TRIES: u32 = 16;

/// What is told of the process that administers, besides the cluster.
#[derive(Clone, Debug)]
pub struct ProcessFacts {
    /// Where its files are.
    pub directory: String,
    /// Whether the drives are in memory.
    pub memory: bool,
    /// What one flush of the disk that the drives lie on takes, if that was measured.
    pub flush_us: Option<f64>,
}

/// What only a server of a cluster of several processes can be asked.
pub trait Server: Send + Sync {
    /// Makes another server one of the cluster's.
    fn admit<'a>(&'a self, request: &'a JoinRequest) -> BoxFuture<'a, Result<JoinAnswer, Error>>;

    /// Makes a token that lets servers join.
    fn join_token(&self) -> BoxFuture<'_, Result<JoinToken, Error>>;

    /// Takes another server out of the cluster for good.
    fn remove<'a>(
        &'a self,
        name: &'a str,
        remove: ServerRemove,
    ) -> BoxFuture<'a, Result<ServerRemoved, Error>>;

    /// Has the node of this server take a drive into use, now and at every start.
    fn add_drive(&self, drive: DriveAdd) -> BoxFuture<'_, Result<DriveAdded, Error>>;

    /// Has the node of this server let go of a drive that is no part of the pool any more, and forget it.
    fn let_go(&self, drive: DriveId) -> BoxFuture<'_, Result<(), Error>>;

    /// Who keeps the cluster's state.
    fn state_status(&self) -> BoxFuture<'_, Result<StateStatus, Error>>;

    /// The fingerprint of the cluster's authority.
    fn fingerprint(&self) -> Result<Fingerprint, Error>;

    /// All servers of the cluster, witnesses first, the others in the order in which they joined.
    fn servers(&self) -> BoxFuture<'_, Result<Vec<ServerEntry>, Error>>;

    /// The program that this server runs.
    fn program(&self) -> &Program;

    /// Has this server stop as if it was told to end, and its process begin anew. Returns at once.
    fn begin_anew(&self);

    /// Has this server end as SIGTERM would. Returns at once.
    fn end(&self);
}

/// Administers a cluster.
pub struct Administration {
    process: ProcessFacts,
    cluster: ClusterRecord,
    state: ClusterState<NodeState>,
    pub(super) nodes: Arc<dyn Nodes>,
    /// None where all nodes are in one process.
    server: Option<Arc<dyn Server>>,
    drive_names: Mutex<BTreeMap<DriveId, String>>,
    counters: Mutex<Counters>,
    started_unix_ms: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Administration {
    /// Administers the cluster that `state` holds, through its `nodes`.
    pub fn new(
        process: ProcessFacts,
        cluster: ClusterRecord,
        state: ClusterState<NodeState>,
        nodes: Arc<dyn Nodes>,
        server: Option<Arc<dyn Server>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            process,
            cluster,
            state,
            nodes,
            server,
            drive_names: Mutex::default(),
            counters: Mutex::default(),
            started_unix_ms: unix_ms(),
        })
    }

    /// What only a server of a cluster of several processes can be asked.
    pub fn server(&self) -> Result<&dyn Server, Error> {
        self.server.as_deref().ok_or_else(|| {
            Error::new(
                "NOT_A_SERVER",
                "this cluster cannot do this",
                "all of it is in one process, which was started with `spandrel up`",
                "make a cluster of servers with `spandrel cluster init`",
            )
        })
    }

    /// The node that runs in this process.
    pub async fn node_here(&self) -> Result<NodeAccess, Error> {
        let nodes = self.nodes.list().await?;
        let mut here = nodes.into_iter().filter_map(|node| node.access);
        here.find(|access| matches!(access, NodeAccess::Here(_))).ok_or_else(|| {
            Error::new(
                "NODE_NOT_RUNNING",
                "this process cannot do this",
                "no node runs in it",
                "ask a node that runs",
            )
        })
    }

    /// When this process began to administer.
    pub(super) fn started_unix_ms(&self) -> u64 {
        self.started_unix_ms
    }

    /// Whether a server, node or witness, belongs to the cluster.
    pub async fn has_server(&self, server: NodeId) -> Result<bool, Error> {
        let node: Option<Stored<NodeRecord>> =
            self.state.get(&StateKey::Node(server)).await.map_err(state_error)?;
        let witness: Option<Stored<WitnessRecord>> = match node {
            Some(_) => return Ok(true),
            None => self.state.get(&StateKey::Witness(server)).await.map_err(state_error)?,
        };
        Ok(witness.is_some())
    }

    /// Whether a server has left the cluster.
    pub async fn standing(&self, server: NodeId) -> Result<Standing, Error> {
        let is_removed = self.state.is_removed(server).await.map_err(state_error)?;
        Ok(Standing { is_removed })
    }

    /// The whole state.
    pub async fn back_up(&self) -> Result<StateBackup, Error> {
        let backup = self.state.backup(unix_ms()).await.map_err(state_error)?;
        backup.ok_or_else(|| state_error(StateError::Conflict))
    }

    /// Gives the drives of nodes up for lost, or what volumes had grown by, so that volumes go on that wait for what is there.
    ///
    /// Errors: `NODE_NOT_FOUND`, `NODE_RUNNING`, `VOLUME_NOT_WAITING`, `LAST_COPY` if parts of a volume are nowhere else.
    pub async fn settle(&self, settle: &Settle) -> Result<SettleStatus, Error> {
        let facts = self.facts().await?;
        let mut given_up = BTreeSet::new();
        for name in &settle.without {
            let node = facts.known_node(name)?;
            if facts.may_run(node) {
                return Err(Error::new(
                    "NODE_RUNNING",
                    format!("the drives of {name} are not given up"),
                    "the node runs, or has run until some seconds ago",
                    "wait until its copies were compared; if one of its drives is broken, stop the node first",
                ));
            }
            given_up.insert(node.id);
        }
        let generation = self.cluster.generation;
        let volumes = self.state.unsettled(generation).await.map_err(state_error)?;
        let without_growth: BTreeSet<String> = settle.without_growth.iter().cloned().collect();
        if let Some(name) = without_growth.iter().find(|name| !volumes.contains(name)) {
            return Err(not_waiting(name));
        }
        facts.check_left_without(&given_up)?;
        if !settle.dry_run && !volumes.is_empty() {
            // Owners take volumes while this is decided: then it is decided anew by what stands there.
            unless_conflict(|| self.state.go_on_without(&given_up, &without_growth, generation)).await?;
        }
        let away = facts.nodes.iter().filter(|node| !facts.may_run(node)).map(|node| node.name.clone());
        let waiting = facts.volumes.iter().filter(|volume| !facts.is_settled(volume));
        let obstacles = waiting
            .filter_map(|volume| Some((volume.record.name.clone(), facts.obstacle(volume)?)))
            .collect();
        Ok(SettleStatus { volumes, nodes_away: away.collect(), obstacles })
    }

    /// What the node that runs in this process says of itself.
    pub async fn report_here(&self) -> Result<NodeReport, Error> {
        self.node_here().await?.report().await
    }

    /// How the first of the nodes that run is reached.
    pub(super) async fn first_access(&self) -> Result<Option<NodeAccess>, Error> {
        Ok(self.nodes.list().await?.into_iter().find_map(|entry| entry.access))
    }

    /// How a node is reached, if it runs.
    pub(super) async fn access_to(&self, node: NodeId) -> Result<Option<NodeAccess>, Error> {
        let nodes = self.nodes.list().await?;
        Ok(nodes.into_iter().find(|entry| entry.id == node).and_then(|entry| entry.access))
    }

    /// Who keeps the cluster's state; nobody where all nodes are in one process.
    pub(super) async fn state_members(&self) -> Result<Vec<StateMember>, Error> {
        match &self.server {
            Some(server) => Ok(server.state_status().await?.members),
            None => Ok(Vec::new()),
        }
    }

    pub(super) async fn entry(&self, name: &str) -> Result<NodeEntry, Error> {
        let nodes = self.nodes.list().await?;
        let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
        nodes.into_iter().find(|node| node.name == name).ok_or_else(|| node_not_found(name, &names))
    }

    /// Takes in what a node says, for the totals.
    pub fn take_in(&self, report: &NodeReport) {
        locked(&self.counters).take(report);
    }

    pub(super) async fn report(&self, node: NodeAccess) -> Option<NodeReport> {
        let report = tokio::time::timeout(REPORT_TIMEOUT, node.report()).await.ok()?.ok()?;
        self.take_in(&report);
        Some(report)
    }

    /// All nodes, and how each is reached.
    pub(super) async fn node_entries(&self) -> Result<Vec<NodeEntry>, Error> {
        self.nodes.list().await
    }

    /// The cluster's name.
    pub(super) fn cluster_name(&self) -> &str {
        &self.cluster.name
    }

    /// The cluster's state.
    pub(super) fn state(&self) -> &ClusterState<NodeState> {
        &self.state
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
        let records = self.state.nodes().await.map_err(state_error)?;
        let caches = self.state.cache_drives().await.map_err(state_error)?;
        let caches = caches.into_iter().map(|(drive, stored)| (drive, stored.record)).collect();
        let mut unreadable = Vec::new();
        let scrubs = readable(self.state.scrubs().await, &mut unreadable)?;
        let settings = readable(self.state.settings().await, &mut unreadable)?;
        let know = |node: NodeEntry| {
            let record = records.get(&node.id).map(|stored| stored.record.clone());
            self.know(node, record)
        };
        let nodes = join_all(self.nodes.list().await?.into_iter().map(know)).await;
        Ok(Facts {
            drive_names: self.drive_names(room.drives.iter().chain(&caches), &nodes),
            nodes,
            room,
            caches,
            volumes: memberships,
            scrubs: scrubs.into_iter().map(|(volume, stored)| (volume, stored.record)).collect(),
            settings: settings.map(|stored| stored.record).unwrap_or_default(),
            unreadable,
            gathered_unix_ms: unix_ms(),
            geometry: self.cluster.slab_bytes,
            are_servers: self.server.is_some(),
            generation: self.cluster.generation,
        })
    }

    pub(super) async fn know(&self, entry: NodeEntry, record: Option<NodeRecord>) -> KnownNode {
        let NodeEntry { name, id, mut nbd_addresses, access } = entry;
        let is_alive = access.is_some();
        let report = match access {
            Some(access) => self.report(access).await,
            None => None,
        };
        if let Some(report) = &report {
            self.learn_drive_names(&name, report);
            if nbd_addresses.is_empty() {
                nbd_addresses = report.nbd_addresses.iter().filter_map(|text| text.parse().ok()).collect();
            }
        }
        KnownNode { name, id, record, nbd_addresses, is_alive, report }
    }

    /// What drives are called: as their nodes say now, else as the state has it, else as they have once said to this process.
    /// The order matters: what is asked for by a name must be the same wherever it is asked.
    fn drive_names<'a>(
        &self,
        records: impl Iterator<Item = (&'a DriveId, &'a DriveRecord)>,
        nodes: &[KnownNode],
    ) -> BTreeMap<DriveId, String> {
        let mut names = locked(&self.drive_names).clone();
        names.extend(records.filter_map(|(drive, record)| Some((*drive, record.name.clone()?))));
        let reports = nodes.iter().filter_map(|node| Some((&node.name, node.report.as_ref()?)));
        names.extend(reports.flat_map(|(node, report)| self.names_in(node, report)));
        names
    }

    fn learn_drive_names(&self, node: &str, report: &NodeReport) {
        locked(&self.drive_names).extend(self.names_in(node, report));
    }

    fn names_in(&self, node: &str, report: &NodeReport) -> Vec<(DriveId, String)> {
        let drives = report.drives.iter().map(|drive| (drive.drive, &drive.location));
        let caches = report.caches.iter().map(|drive| (drive.drive, &drive.location));
        let name = |(drive, location): (Option<DriveId>, &String)| {
            Some((drive?, self.nodes.drive_name(node, location)?))
        };
        drives.chain(caches).filter_map(name).collect()
    }

    /// The whole cluster as the API shows it.
    pub async fn status(&self) -> Result<ClusterStatus, Error> {
        let facts = self.facts().await?;
        Ok(ClusterStatus {
            version: VERSION.to_owned(),
            cluster: self.cluster.id,
            name: self.cluster.name.clone(),
            directory: self.process.directory.clone(),
            process: std::process::id(),
            started_unix_ms: self.started_unix_ms,
            memory: self.process.memory,
            flush_us: self.process.flush_us,
            usage: self.usage().await?,
            pool: facts.pool(),
            nodes: facts.nodes(),
            drives: facts.drives(),
            caches: facts.cache_drives(),
            volumes: facts.volumes(),
        })
    }

    pub(super) async fn node(&self, name: &str) -> Result<NodeStatus, Error> {
        let nodes = self.facts().await?.nodes();
        let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
        nodes.into_iter().find(|node| node.name == name).ok_or_else(|| node_not_found(name, &names))
    }

    /// Everything that is known of a node.
    pub async fn node_details(&self, name: &str) -> Result<NodeDetails, Error> {
        let facts = self.facts().await?;
        Ok(facts.node_details(facts.known_node(name)?, self.state_role(name).await))
    }

    /// How the server called `name` takes part in keeping the state, if anybody can say.
    async fn state_role(&self, name: &str) -> Option<StateRole> {
        let server = self.server.as_ref()?;
        let asked = tokio::time::timeout(REPORT_TIMEOUT, server.state_status()).await.ok()?;
        let member = asked.ok()?.members.into_iter().find(|member| member.name == name);
        Some(match member {
            None => StateRole::None,
            Some(member) if member.leads => StateRole::Leads,
            Some(member) if member.votes => StateRole::Keeps,
            Some(_) => StateRole::Learns,
        })
    }

    /// What has been used so far.
    pub async fn usage(&self) -> Result<Usage, Error> {
        let running = self.nodes.list().await?.into_iter().filter_map(|node| node.access);
        join_all(running.map(|access| self.report(access))).await;
        let counters = locked(&self.counters);
        let cpu = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
        Ok(Usage {
            cpu_us: u64::try_from(cpu.tv_sec).unwrap_or(0) * 1_000_000
                + u64::try_from(cpu.tv_nsec / 1000).unwrap_or(0),
            user_written_bytes: counters.user_written_bytes(),
            drive_written_bytes: counters.drive_written_bytes(),
        })
    }
}

/// What was read of the cluster's state; nothing, with the reason among what is `unreadable`, if it is there and nobody can
/// make sense of it. Without it the rest can be told all the same.
fn readable<T: Default>(read: Result<T, StateError>, unreadable: &mut Vec<Error>) -> Result<T, Error> {
    match read {
        Err(StateError::Refused(error)) => {
            unreadable.push(error);
            Ok(T::default())
        }
        read => read.map_err(state_error),
    }
}

/// Makes a change of the cluster's state, begun anew when somebody else changes the same at the same time.
pub(super) async fn unless_conflict<T, F>(attempt: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, StateError>>,
{
    for _ in 0..CONFLICT_TRIES {
        match attempt().await {
            Err(StateError::Conflict) => {}
            outcome => return outcome.map_err(state_error),
        }
    }
    Err(state_error(StateError::Conflict))
}

/// The time of day.
pub fn unix_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// The error that a volume does not wait for its copies to be compared.
fn not_waiting(name: &str) -> Error {
    Error::new(
        "VOLUME_NOT_WAITING",
        format!("nothing of volume {name} is given up"),
        "there is no volume of that name, or its copies were compared since the state was put back last",
        "see with `spandrel cluster settle` which volumes wait",
    )
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

/// The error that there is no such node, where these are there.
pub fn node_not_found(name: &str, names: &[String]) -> Error {
    Error::new(
        "NODE_NOT_FOUND",
        format!("there is no node {name:?}"),
        format!("the nodes of this cluster are {}", names.join(", ")),
        "use one of these",
    )
}

/// The error that a person sees when the cluster's state cannot be used.
pub fn state_error(error: StateError) -> Error {
    match error {
        StateError::Refused(error) => error,
        error => Error::new(
            "STATE_UNAVAILABLE",
            "the cluster's state cannot be used",
            error.to_string(),
            "try again; if it stays so, look at the log, at the disk that the directory is on, and whether most \
             members of etcd run",
        ),
    }
}
