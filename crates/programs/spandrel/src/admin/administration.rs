//! What is done when something is asked of a cluster.
//!
//! Everything here runs on the control thread. What concerns a node is asked of the node; what concerns the cluster
//! as a whole is read from its state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, join_all};
use rustix::time::ClockId;
use spandrel_cluster::backup::StateBackup;
use spandrel_cluster::{
    AccessRecord, ClusterRecord, ClusterState, NodeRecord, Role, StateError, StateKey, Stored,
    VolumeMembership, VolumeState, WitnessRecord,
};
use spandrel_node::{NodeReport, VolumeCreation, VolumeGrowth};
use spandrel_shared::name::validate_name;
use spandrel_shared::{DriveId, Error, NodeId, Place, VolumeId};
use spandrel_trust::{AccessToken, Fingerprint, JoinToken, Secret};

use super::api::{
    Access, AccessCreate, AccessCreated, ClusterStatus, DriveAdd, DriveAdded, DriveCopies, JoinAnswer,
    JoinRequest, JoinTokenStatus, Maintenance, NewSize, NodeDetails, NodeDrain, NodeDrained, NodeSafety,
    NodeStatus, PlaceChange, ServerRemove, ServerRemoved, Settle, SettleStatus, Standing, StateMember,
    StateRole, StateStatus, Usage, VolumeCreate, VolumeCreateAnswer, VolumeResize, VolumeResized,
    VolumeStatus,
};
use super::counters::Counters;
use super::nodes::{NodeAccess, NodeEntry, Nodes};
use super::picture::{Facts, KnownNode};
use super::servers::ServerEntry;
use crate::node_state::NodeState;
use crate::program::{Program, VERSION};

/// How long a node may take to say how it is.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// How often, and with what pause, a volume's owner is looked for.
pub(super) const OWNER_TRIES: u32 = 100;
pub(super) const OWNER_PAUSE: Duration = Duration::from_millis(100);

/// For how long, and with what pause, it is looked whether a client that leaves is gone.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(1);
const LEAVE_PAUSE: Duration = Duration::from_millis(50);

/// How often a change of a node's maintenance is begun anew when something else changes at the same time.
const MAINTENANCE_TRIES: u32 = 16;

/// How often another change of the cluster's state is.
const CONFLICT_TRIES: u32 = 16;

/// Digits of a join token's digest by which people name it.
const JOIN_ID_DIGITS: usize = 8;

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
}

/// Administers a cluster.
pub struct Administration {
    process: ProcessFacts,
    cluster: ClusterRecord,
    state: ClusterState<NodeState>,
    nodes: Arc<dyn Nodes>,
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

    /// Gives the drives of nodes up for lost, so that volumes go on that wait for what these hold.
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
        let volumes = self.state.unsettled(self.cluster.generation).await.map_err(state_error)?;
        if !settle.dry_run && !volumes.is_empty() {
            self.state.give_up_drives(&given_up, self.cluster.generation).await.map_err(state_error)?;
        }
        let away = facts.nodes.iter().filter(|node| !facts.may_run(node)).map(|node| node.name.clone());
        Ok(SettleStatus { volumes, nodes_away: away.collect() })
    }

    /// Has another node own a volume. Clients go on.
    pub async fn move_volume(&self, name: &str, to: &str) -> Result<VolumeStatus, Error> {
        let to = self.entry(to).await?;
        let id = self.state.volume_by_name(name).await.map_err(state_error)?;
        let id = id.ok_or_else(|| volume_not_found(name))?;
        let to = to.id;
        let hand_over = |owner: NodeAccess| async move { owner.hand_over(id, to).await };
        self.by_owner((name, id), "moved", hand_over).await?;
        self.volume(name).await
    }

    /// Makes a volume larger, or only says what that would do. Clients go on.
    pub async fn resize_volume(&self, name: &str, resize: VolumeResize) -> Result<VolumeResized, Error> {
        let VolumeStatus { id, size_bytes: former_bytes, .. } = self.volume(name).await?;
        let size_bytes = match resize.size {
            NewSize::SizeBytes(size_bytes) => size_bytes,
            // Decided once: whoever owns the volume next is asked for the same.
            NewSize::AddBytes(more) => former_bytes.saturating_add(more),
        };
        let growth = VolumeGrowth { volume: id, size_bytes, dry_run: resize.dry_run };
        let grow = |owner: NodeAccess| async move { owner.grow_volume(growth).await };
        let grown = self.by_owner((name, id), "made larger", grow).await?;
        let facts = self.facts().await?;
        let on =
            |(drive, slabs): (&DriveId, &u64)| DriveCopies { drive: facts.drive_name(*drive), slabs: *slabs };
        Ok(VolumeResized {
            volume: self.volume(name).await?,
            former_bytes,
            size_bytes,
            slabs: grown.slabs,
            copies: grown.copies.iter().map(on).collect(),
            warnings: grown.warnings.iter().map(ToString::to_string).collect(),
        })
    }

    /// Has a volume's owner do something that is the same once and twice. If the owner changes meanwhile, the next one is
    /// asked.
    async fn by_owner<T, F>(
        &self,
        (name, id): (&str, VolumeId),
        wanted: &str,
        ask: impl Fn(NodeAccess) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        for _ in 0..OWNER_TRIES {
            if let Some(access) = self.owner_of(name, id).await? {
                match ask(access).await {
                    Err(error) if is_of_a_lost_owner(&error) => {}
                    outcome => return outcome,
                }
            }
            tokio::time::sleep(OWNER_PAUSE).await;
        }
        Err(volume_not_served(name, wanted))
    }

    /// What is known of a volume.
    pub async fn volume(&self, name: &str) -> Result<VolumeStatus, Error> {
        let volumes = self.facts().await?.volumes();
        volumes.into_iter().find(|volume| volume.name == name).ok_or_else(|| volume_not_found(name))
    }

    /// How a volume's owner is reached, if it has one that runs.
    pub(super) async fn owner_of(&self, name: &str, id: VolumeId) -> Result<Option<NodeAccess>, Error> {
        let membership = self.state.membership(id).await.map_err(state_error)?;
        let owner = membership.ok_or_else(|| volume_not_found(name))?.record.owner;
        let nodes = self.nodes.list().await?;
        Ok(owner.and_then(|owner| nodes.into_iter().find(|node| node.id == owner.node)?.access))
    }

    /// What the node that runs in this process says of itself.
    pub async fn report_here(&self) -> Result<NodeReport, Error> {
        self.node_here().await?.report().await
    }

    /// How much the bearer of `token` may do.
    ///
    /// Errors: `TOKEN_MISSING`, `TOKEN_INVALID`, `TOKEN_REFUSED`.
    pub async fn role_of(&self, token: Option<&str>) -> Result<Role, Error> {
        let refuse = |code: &str, why: &str| {
            let next = "have one made on a node of the cluster (`spandrel access create`), and give it with \
                        --token-file or SPANDREL_TOKEN";
            Error::new(code, "the cluster does not know who asks", why, next)
        };
        let token = token.ok_or_else(|| refuse("TOKEN_MISSING", "no token was shown"))?;
        let digest = token.parse::<AccessToken>()?.secret.digest().to_string();
        let known: Option<Stored<AccessRecord>> =
            self.state.get(&StateKey::Access(digest)).await.map_err(state_error)?;
        let known = known.ok_or_else(|| refuse("TOKEN_REFUSED", "the cluster does not know this token"))?;
        Ok(known.record.role)
    }

    /// Who may use the admin API.
    pub async fn list_access(&self) -> Result<Vec<Access>, Error> {
        let known = self.state.access().await.map_err(state_error)?;
        let access = known.into_values().map(|stored| {
            let AccessRecord { name, role, created_unix_ms } = stored.record;
            Access { name, role, created_unix_ms }
        });
        Ok(access.collect())
    }

    /// Lets somebody use the admin API.
    pub async fn create_access(
        &self,
        create: AccessCreate,
        authority: Fingerprint,
    ) -> Result<AccessCreated, Error> {
        validate_name("access", &create.name)?;
        let token = AccessToken { authority, secret: Secret::random() };
        let digest = token.secret.digest().to_string();
        let record = AccessRecord { name: create.name, role: create.role, created_unix_ms: unix_ms() };
        self.state.give_access(&digest, &record).await.map_err(state_error)?;
        Ok(AccessCreated { token: token.to_string() })
    }

    /// Takes somebody's access back.
    pub async fn delete_access(&self, name: &str) -> Result<(), Error> {
        if self.state.take_access_back(name).await.map_err(state_error)? {
            return Ok(());
        }
        Err(Error::new(
            "ACCESS_NOT_FOUND",
            format!("nobody called {name:?} has access"),
            "no token was made for this name",
            "list who has access with `spandrel access list`",
        ))
    }

    /// What lets servers join.
    pub async fn list_joins(&self) -> Result<Vec<JoinTokenStatus>, Error> {
        let known = self.state.joins().await.map_err(state_error)?;
        let each = known.into_iter().map(|(digest, stored)| JoinTokenStatus {
            id: digest.chars().take(JOIN_ID_DIGITS).collect(),
            created_unix_ms: stored.record.created_unix_ms,
            expires_unix_ms: stored.record.expires_unix_ms,
        });
        Ok(each.collect())
    }

    /// Lets nobody join any more with the token of this number.
    pub async fn delete_join(&self, id: &str) -> Result<(), Error> {
        let known = self.state.joins().await.map_err(state_error)?;
        let mut named = known.into_keys().filter(|digest| !id.is_empty() && digest.starts_with(id));
        match (named.next(), named.next()) {
            (Some(digest), None) => self.state.remove(&StateKey::Join(digest)).await.map_err(state_error),
            (first, _) => Err(Error::new(
                "JOIN_TOKEN_NOT_FOUND",
                format!("there is no join token {id:?}"),
                if first.is_some() { "several begin so" } else { "none begins so; it may have expired" },
                "list them with `spandrel cluster join-token list`",
            )),
        }
    }

    /// Starts a node that does not run.
    pub async fn start_node(&self, name: &str) -> Result<NodeStatus, Error> {
        self.nodes.start(name).await?;
        tracing::info!("node {name} was started");
        self.node(name).await
    }

    /// Stops a node that runs.
    pub async fn stop_node(&self, name: &str, abrupt: bool) -> Result<NodeStatus, Error> {
        // For the totals; a node that does not answer is stopped all the same.
        if let Some(access) = self.entry(name).await?.access {
            self.report(access).await;
        }
        if let Some(report) = self.nodes.stop(name, abrupt).await? {
            self.take_in(&report);
        }
        tracing::warn!("node {name} was stopped{}", if abrupt { " abruptly" } else { "" });
        self.node(name).await
    }

    /// Puts a node into maintenance, or only says whether that could be done. It hands its volumes over by itself from
    /// then on, and keeps to that when it starts anew. Of one that is in maintenance already it says whether it may be
    /// switched off now: that may have changed since.
    ///
    /// Errors, but with `force`: `NODE_NEEDED` if volumes could not do without it, `STATE_MAJORITY_NEEDED` if the
    /// cluster's state could not. Others: `NODE_NOT_FOUND`.
    pub async fn drain_node(&self, name: &str, drain: NodeDrain) -> Result<NodeDrained, Error> {
        for _ in 0..MAINTENANCE_TRIES {
            // Before the facts: what changes after this is seen by the transaction.
            let seen = self.state.nodes().await.map_err(state_error)?;
            let facts = self.facts().await?;
            let known = facts.known_node(name)?;
            let volumes = facts.volumes_with(known);
            let members = self.state_members().await?;
            let mut warnings = Vec::new();
            for checked in [facts.check_drain(known), facts.check_votes(known, &members)] {
                match checked {
                    Err(needed) if drain.force => warnings.push(needed.why),
                    checked => checked?,
                }
            }
            if known.maintenance_since_unix_ms().is_none() && !drain.dry_run {
                match self.state.set_maintenance(known.id, Some(unix_ms()), &seen).await {
                    Ok(()) => tracing::warn!("node {name} goes into maintenance"),
                    Err(StateError::Conflict) => continue,
                    Err(error) => return Err(state_error(error)),
                }
            }
            let needing = facts.volumes_needing(known);
            return Ok(NodeDrained { node: self.node(name).await?, volumes, needing, warnings });
        }
        Err(state_error(StateError::Conflict))
    }

    /// Whether a node may be switched off now, and the arithmetic behind that.
    ///
    /// Errors: `NODE_NOT_FOUND`.
    pub async fn node_safety(&self, name: &str) -> Result<NodeSafety, Error> {
        let facts = self.facts().await?;
        Ok(facts.safety(facts.known_node(name)?, &self.state_members().await?))
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

    /// How far a node is with leaving its volumes to others, if it is in maintenance. Reads little, so that it can be
    /// asked again and again.
    ///
    /// Errors: `NODE_NOT_FOUND`.
    pub async fn maintenance(&self, name: &str) -> Result<Option<Maintenance>, Error> {
        let entry = self.entry(name).await?;
        let records = self.state.nodes().await.map_err(state_error)?;
        let record = records.get(&entry.id).map(|stored| stored.record.clone());
        let known = self.know(entry, record).await;
        let Some(since_unix_ms) = known.maintenance_since_unix_ms() else { return Ok(None) };
        let volumes = self.state.volumes().await.map_err(state_error)?;
        let records = volumes.iter().map(|(volume, stored)| (*volume, &stored.record));
        Ok(Some(Maintenance { since_unix_ms, volumes_left: known.volumes_of(records) }))
    }

    /// Takes a node out of maintenance. One that is in none is left as it is.
    pub async fn resume_node(&self, name: &str) -> Result<NodeStatus, Error> {
        for _ in 0..MAINTENANCE_TRIES {
            let seen = self.state.nodes().await.map_err(state_error)?;
            let entry = self.entry(name).await?;
            match self.state.set_maintenance(entry.id, None, &seen).await {
                Ok(()) => {
                    tracing::info!("node {name} is not in maintenance any more");
                    return self.node(name).await;
                }
                Err(StateError::Conflict) => {}
                Err(error) => return Err(state_error(error)),
            }
        }
        Err(state_error(StateError::Conflict))
    }

    /// Says where a node stands. Copies of its slabs move apart by themselves, if they can.
    ///
    /// Errors: `NODE_NOT_FOUND`, `NAME_INVALID`.
    pub async fn set_place(&self, name: &str, change: PlaceChange) -> Result<Place, Error> {
        let entry = self.entry(name).await?;
        let put = |label: &mut Option<String>, change: &Option<String>| {
            if let Some(text) = change {
                *label = (!text.is_empty()).then(|| text.clone());
            }
        };
        let change = |place: &mut Place| {
            put(&mut place.site, &change.site);
            put(&mut place.rack, &change.rack);
            put(&mut place.chassis, &change.chassis);
        };
        let mut would = Place::default();
        change(&mut would);
        would.validate()?;
        let place = unless_conflict(|| self.state.set_place(entry.id, &change)).await?;
        tracing::info!("node {name} stands at: {place}");
        Ok(place)
    }

    async fn entry(&self, name: &str) -> Result<NodeEntry, Error> {
        let nodes = self.nodes.list().await?;
        let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
        nodes.into_iter().find(|node| node.name == name).ok_or_else(|| node_not_found(name, &names))
    }

    /// Has the first node do something that can be reached, one of this process if there is one.
    async fn by_any_node<T, F>(&self, ask: impl Fn(NodeAccess) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut running: Vec<NodeAccess> =
            self.nodes.list().await?.into_iter().filter_map(|node| node.access).collect();
        running.sort_by_key(|access| matches!(access, NodeAccess::There(_)));
        let mut outcome = Err(Error::new(
            "NODE_NOT_RUNNING",
            "no node can do this",
            "all of them are stopped",
            "start one with `spandrel node start`",
        ));
        for access in running {
            outcome = ask(access).await;
            // Nothing was sent to one that is not reached.
            if !outcome.as_ref().is_err_and(|error| error.code == "CLUSTER_NOT_REACHED") {
                break;
            }
        }
        outcome
    }

    /// Takes in what a node says, for the totals.
    pub fn take_in(&self, report: &NodeReport) {
        locked(&self.counters).take(report);
    }

    async fn report(&self, node: NodeAccess) -> Option<NodeReport> {
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
        let scrubs = self.state.scrubs().await.map_err(state_error)?;
        let settings = self.state.settings().await.map_err(state_error)?;
        let know = |node: NodeEntry| {
            let record = records.get(&node.id).map(|stored| stored.record.clone());
            self.know(node, record)
        };
        let nodes = join_all(self.nodes.list().await?.into_iter().map(know)).await;
        Ok(Facts {
            nodes,
            drive_names: locked(&self.drive_names).clone(),
            room,
            volumes: memberships,
            scrubs: scrubs.into_iter().map(|(volume, stored)| (volume, stored.record)).collect(),
            scrub_period_s: settings.map(|stored| stored.record).unwrap_or_default().scrub_period_s,
            gathered_unix_ms: unix_ms(),
            geometry: self.cluster.slab_bytes,
            generation: self.cluster.generation,
        })
    }

    async fn know(&self, entry: NodeEntry, record: Option<NodeRecord>) -> KnownNode {
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

    fn learn_drive_names(&self, node: &str, report: &NodeReport) {
        let mut names = locked(&self.drive_names);
        for drive in &report.drives {
            if let Some(id) = drive.drive
                && !names.contains_key(&id)
                && let Some(name) = self.nodes.drive_name(node, &drive.location)
            {
                names.insert(id, name);
            }
        }
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
            volumes: facts.volumes(),
        })
    }

    async fn node(&self, name: &str) -> Result<NodeStatus, Error> {
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

    /// Makes a volume.
    pub async fn create_volume(&self, create: VolumeCreate) -> Result<VolumeCreateAnswer, Error> {
        let owner = match &create.owner {
            Some(owner) => Some(self.entry(owner).await?.id),
            None => None,
        };
        let creation =
            VolumeCreation { name: create.name, size_bytes: create.size_bytes, copies: create.copies, owner };
        let name = creation.name.clone();
        let ask = |node: NodeAccess| {
            let creation = creation.clone();
            async move { node.create_volume(creation).await }
        };
        let created = self.by_any_node(ask).await?;
        Ok(VolumeCreateAnswer {
            volume: self.volume(&name).await?,
            warnings: created.warnings.iter().map(ToString::to_string).collect(),
        })
    }

    /// Deletes a volume; with `force` also if a client has it open for writing.
    pub async fn delete_volume(&self, name: &str, force: bool) -> Result<(), Error> {
        if !force {
            self.await_unused(name).await?;
        }
        let ask = |node: NodeAccess| {
            let name = name.to_owned();
            async move { node.delete_volume(name).await }
        };
        self.by_any_node(ask).await?;
        Ok(())
    }

    /// Waits a moment for a client that is just leaving the volume. An error if one stays.
    async fn await_unused(&self, name: &str) -> Result<(), Error> {
        let deadline = Instant::now() + LEAVE_TIME_MAX;
        loop {
            let facts = self.facts().await?;
            let volume = facts.volumes().into_iter().find(|volume| volume.name == name);
            let Some(writer) = volume.ok_or_else(|| volume_not_found(name))?.writer else { return Ok(()) };
            if Instant::now() >= deadline {
                let (why, next) = match facts.known_node(&writer)?.report {
                    Some(_) => (
                        format!("a client of node {writer} has it open for writing"),
                        "disconnect the client, or delete it all the same with --force",
                    ),
                    None => (
                        format!(
                            "a client of node {writer} may write to it: that node runs, or has run until some \
                                 seconds ago, and does not answer"
                        ),
                        "try again when the node answers or is known to be gone (`spandrel node list`), or delete it \
                         all the same with --force",
                    ),
                };
                return Err(Error::new("VOLUME_IN_USE", format!("volume {name} is not deleted"), why, next));
            }
            tokio::time::sleep(LEAVE_PAUSE).await;
        }
    }

    /// The names of all volumes.
    pub async fn volume_names(&self) -> Result<Vec<String>, Error> {
        Ok(self.facts().await?.volumes().into_iter().map(|volume| volume.name).collect())
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

/// Whether an error means that the owner that was asked is it no more: the next one is asked then.
pub(super) fn is_of_a_lost_owner(error: &Error) -> bool {
    let codes = ["NOT_OWNER", "NODE_STOPPED", "NODE_NOT_RUNNING", "ANSWER_BROKEN", "CLUSTER_NOT_REACHED"];
    codes.contains(&error.code.as_str())
}

/// The error that an owner was waited for in vain.
pub(super) fn volume_not_served(name: &str, wanted: &str) -> Error {
    Error::new(
        "VOLUME_NOT_SERVED",
        format!("volume {name} cannot be {wanted}"),
        format!("for {} s no node served it", (OWNER_PAUSE * OWNER_TRIES).as_secs()),
        "look at it with `spandrel volume get`, and start the nodes that hold its copies",
    )
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
