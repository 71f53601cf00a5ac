//! A server's part in keeping the cluster's state: it becomes a member of etcd when the plan says so, keeps the
//! process running, removes the members of servers that have left the cluster, and knows where all of them are.
//!
//! Every server looks after itself; nobody is in charge. So two servers may want to become members at once: etcd
//! lets one be there that has no vote yet, and the other tries again.
//!
//! Invariants:
//! - That this server has begun to be a member is written down before it is counted on, so that it never
//!   begins twice.
//! - A member votes only when it has all that the others have.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use spandrel_cluster::servers;
use spandrel_cluster::store::{LeaseId, StateStore as _, StoreErrorKind};
use spandrel_cluster::{ClusterState, StateError};
use spandrel_shared::{Error, NodeId};
use spandrel_state_etcd::member::{self, Beginning, Member, MemberIdentity, MemberSettings, MemberStatus};
use spandrel_state_etcd::{EtcdState, MemberDescription, client_endpoints};
use spandrel_trust::Credentials;
use tokio::sync::watch;

use super::Port;
use super::generation::{generation, later_elsewhere};
use super::removal::check_others_know;
use super::run::retry_unavailable;
use super::settings::{Pki, ServerSettings, StatePlace, not_writable};
use super::state_plan::{OwnMember, PlannedMember, PlannedServer, Step, next_step};
use crate::admin::administration::{state_error, unix_ms};
use crate::directory::Directory;
use crate::log::ALL_CLEAR;
use crate::node_state::NodeState;

/// How often it is looked who keeps the state and who should: etcd tells nobody when that changes.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// How often it is looked whether the state was put back elsewhere.
const LATER_INTERVAL: Duration = Duration::from_secs(20);

/// How often it is looked while this server takes step after step.
const STEP_INTERVAL: Duration = Duration::from_millis(250);

/// How long the sign that a server runs lasts.
const AWAKE_TIME: Duration = Duration::from_secs(15);

/// A member without a vote that does not run for so long is in the way of others.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(60);

/// For so long it is no news that etcd adds no member. It does only when all that have a vote have been connected with
/// the one that is asked for five seconds, so each member waits so long for the one before it: there is no way around
/// that but to do without the check, which also keeps a majority together.
const ADDITION_TIME: Duration = Duration::from_secs(15);

/// How often it is looked whether a member that begins has data.
const DATA_INTERVAL: Duration = Duration::from_millis(50);

/// A server's part in keeping the state.
pub struct StateMemberKeeper {
    directory: Directory,
    settings: Mutex<ServerSettings>,
    member: Mutex<Option<Member>>,
    /// Whether the server was a member, and its data are gone.
    has_lost_data: AtomicBool,
    /// Since when members without a vote were not seen to run, by their numbers.
    asleep_since: Mutex<BTreeMap<u64, Instant>>,
    /// The servers that ran at the last look, if there was one.
    running: Mutex<Option<BTreeSet<NodeId>>>,
    /// Since when etcd does not add this server's member.
    not_added_since: Mutex<Option<Instant>>,
    /// The servers that have left, as etcd was told of them; none before it was.
    told_removed: Mutex<Option<BTreeSet<NodeId>>>,
    /// Why this server must end, once it must.
    must_end: watch::Sender<Option<Error>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StateMemberKeeper {
    /// The part of the server in `directory`.
    pub fn new(directory: Directory, settings: ServerSettings) -> Arc<Self> {
        Arc::new(Self {
            directory,
            settings: Mutex::new(settings),
            member: Mutex::default(),
            has_lost_data: AtomicBool::new(false),
            asleep_since: Mutex::default(),
            running: Mutex::default(),
            not_added_since: Mutex::default(),
            told_removed: Mutex::default(),
            must_end: watch::Sender::new(None),
        })
    }

    /// Starts the member's process if the server is a member, or begins the first one: it runs when this returns.
    pub async fn start(&self) -> Result<(), Error> {
        let settings = self.settings();
        Pki(&self.directory).ensure_revoked(settings.cluster)?;
        let beginning = match &settings.state {
            StatePlace::Own { is_member: true, .. } => Beginning::Member,
            StatePlace::Own { .. } if settings.founding.is_some() => {
                Beginning::First(settings.cluster.to_string())
            }
            _ => return Ok(()),
        };
        match self.begin(beginning).await {
            // The others have the state. This server's drives must not stay away because of that.
            Err(error) if error.code == "STATE_MEMBER_DATA_LOST" && settings.state.endpoints().len() > 1 => {
                tracing::error!("{error}; the member begins anew when most of the others answer");
                self.has_lost_data.store(true, Ordering::Relaxed);
                Ok(())
            }
            begun => begun,
        }
    }

    /// What the server is, as it is now.
    pub fn settings(&self) -> ServerSettings {
        locked(&self.settings).clone()
    }

    /// Changes what the server is, durably.
    pub fn change(&self, change: impl FnOnce(&mut ServerSettings)) -> Result<(), Error> {
        let mut settings = locked(&self.settings);
        let mut changed = settings.clone();
        change(&mut changed);
        if changed != *settings {
            changed.write(&self.directory)?;
            *settings = changed;
        }
        Ok(())
    }

    /// Takes note of the generation of the state that this server goes by from now on.
    pub fn set_generation(&self, generation: u32) -> Result<(), Error> {
        self.change(|settings| settings.generation = generation)
    }

    /// Waits until this server must end, and says why: it has left the cluster, or the state was set back.
    pub async fn must_end(&self) -> Error {
        let mut why = self.must_end.subscribe();
        // The sender is this.
        let why = why.wait_for(Option::is_some).await;
        why.ok().and_then(|why| why.clone()).unwrap_or_else(|| servers::removed(&self.settings().name))
    }

    /// Has etcd let in no more who has left, from the next connection on.
    fn note_removed(&self, removed: &BTreeSet<NodeId>) -> Result<(), Error> {
        let settings = self.settings();
        let mut told = locked(&self.told_removed);
        if told.as_ref() != Some(removed) {
            Pki(&self.directory).write_revoked(settings.cluster, removed)?;
            *told = Some(removed.clone());
        }
        if removed.contains(&settings.node) {
            self.must_end.send_replace(Some(servers::removed(&settings.name)));
        }
        Ok(())
    }

    /// What the server's member of etcd is. None if others keep the state.
    pub fn member_settings(&self, beginning: Beginning) -> Option<MemberSettings> {
        let settings = self.settings();
        let StatePlace::Own { program, .. } = &settings.state else { return None };
        Some(MemberSettings {
            program: program.clone(),
            folder: self.directory.join("etcd"),
            name: settings.node.to_string(),
            client_addresses: settings.addresses(Port::StateClients),
            peer_addresses: settings.addresses(Port::StateMembers),
            identity: Some(Self::identity(&self.directory)),
            beginning,
        })
    }

    /// With what a member of the server in `directory` proves who it is.
    pub fn identity(directory: &Directory) -> MemberIdentity {
        let pki = Pki(directory);
        MemberIdentity {
            authority: pki.authority(),
            certificate: pki.certificate(),
            key: pki.key(),
            revoked: pki.revoked(),
        }
    }

    /// Starts the member's process, or takes it over, and waits until it has data of its own.
    pub async fn begin(&self, beginning: Beginning) -> Result<(), Error> {
        let is_added = matches!(beginning, Beginning::Added(_));
        let Some(settings) = self.member_settings(beginning) else { return Ok(()) };
        let member = Member::start(settings).await?;
        // From now on whoever ends this server ends the process, too.
        *locked(&self.member) = Some(member);
        loop {
            let status = locked(&self.member).as_ref().map(Member::status);
            match status {
                Some(MemberStatus::Running { is_member: true, .. }) => break,
                // What it was told of the other members may be of yesterday.
                Some(MemberStatus::Ended { reason }) if is_added => {
                    self.stop_later().await;
                    return Err(not_begun(&reason));
                }
                Some(MemberStatus::Ended { .. } | MemberStatus::Running { .. }) => {}
                None => return Err(not_begun("this server is being stopped")),
            }
            tokio::time::sleep(DATA_INTERVAL).await;
        }
        self.set_member(true)
    }

    fn set_member(&self, is: bool) -> Result<(), Error> {
        self.change(|settings| {
            if let StatePlace::Own { is_member, .. } = &mut settings.state {
                *is_member = is;
            }
        })
    }

    async fn stop_later(&self) {
        let member = locked(&self.member).take();
        if let Some(member) = member {
            member.stop().await;
        }
    }

    /// Keeps this server's part as it should be. Never completes.
    pub async fn keep(&self, etcd: EtcdState, state: ClusterState<NodeState>) {
        let mut told = String::new();
        let mut lease = None;
        let mut looked_elsewhere = Instant::now();
        loop {
            if looked_elsewhere.elapsed() >= LATER_INTERVAL {
                self.look_elsewhere().await;
                looked_elsewhere = Instant::now();
            }
            let looked = match self.stay_awake(&state, &mut lease).await {
                Ok(()) => self.look(&etcd, &state).await,
                Err(error) => Err(error),
            };
            let interval = match looked {
                Ok(step) => {
                    told.clear();
                    if step == Step::Wait { LOOK_INTERVAL } else { STEP_INTERVAL }
                }
                Err(error) => {
                    self.ask_others().await;
                    let error = error.to_string();
                    if error != told {
                        tracing::warn!("this server's part in keeping the cluster's state: {error}");
                        told = error;
                    }
                    LOOK_INTERVAL
                }
            };
            tokio::time::sleep(interval).await;
        }
    }

    /// Ends this server if it goes by a state that another one has displaced. Those who keep the former one, and reach
    /// each other, would not notice otherwise.
    async fn look_elsewhere(&self) {
        let settings = self.settings();
        let Ok(credentials) = Pki(&self.directory).credentials(settings.cluster) else { return };
        if later_elsewhere(&settings, &credentials).await.is_some() {
            self.must_end.send_replace(Some(set_back(&settings.name)));
        }
    }

    /// Learns from the other servers whether this one has left: then etcd does not speak with it.
    async fn ask_others(&self) {
        let settings = self.settings();
        let Ok(credentials) = Pki(&self.directory).credentials(settings.cluster) else { return };
        if let Err(error) = check_others_know(&settings, &credentials).await {
            self.must_end.send_replace(Some(error));
        }
    }

    /// Says that this server runs.
    async fn stay_awake(
        &self,
        state: &ClusterState<NodeState>,
        lease: &mut Option<LeaseId>,
    ) -> Result<(), Error> {
        let store = state.store();
        if let Some(present) = *lease
            && store.keep_alive(present).await.is_ok()
        {
            return Ok(());
        }
        let new = store.grant_lease(AWAKE_TIME).await.map_err(|error| state_error(error.into()))?;
        *lease = Some(new);
        state.stay_awake(self.settings().node, new).await.map_err(state_error)
    }

    /// Takes the next step, and says which it was.
    async fn look(&self, etcd: &EtcdState, state: &ClusterState<NodeState>) -> Result<Step, Error> {
        let settings = self.settings();
        let present = generation(etcd, settings.cluster).await.map_err(state_error)?;
        if present.unwrap_or_default() != settings.generation {
            self.must_end.send_replace(Some(set_back(&settings.name)));
            return Ok(Step::Wait);
        }
        let servers = Servers::read(state).await.map_err(state_error)?;
        self.change(|settings| settings.servers = servers.listen.clone())?;
        self.note_removed(&servers.removed)?;
        self.tell_changes(&servers);
        let Some(settings) = self.member_settings(Beginning::Member) else { return Ok(Step::Wait) };
        let members = etcd.list_members().await.map_err(|error| state_error(error.into()))?;
        let endpoints = client_endpoints(&members);
        if !endpoints.is_empty() {
            etcd.set_endpoints(&endpoints).await?;
            self.change(|settings| {
                if let StatePlace::Own { endpoints: known, .. } = &mut settings.state {
                    *known = endpoints;
                }
            })?;
        }
        let urls: Vec<String> = settings.peer_addresses.iter().map(|address| settings.url(address)).collect();
        let own_server = self.settings().node;
        let server_of = |member: &MemberDescription| {
            let is_own = member.name.is_empty() && member.peer_urls.iter().any(|url| urls.contains(url));
            if is_own { Some(own_server) } else { member.name.parse().ok() }
        };
        let planned: Vec<PlannedMember> = members
            .iter()
            .map(|member| {
                let server = server_of(member);
                PlannedMember {
                    id: member.id,
                    server,
                    votes: !member.is_learner,
                    is_given_up: self.is_given_up(member, server, &servers),
                }
            })
            .collect();
        let own = OwnMember {
            server: own_server,
            id: planned.iter().find(|member| member.server == Some(own_server)).map(|member| member.id),
            runs: locked(&self.member).is_some(),
            has_lost_data: self.has_lost_data.load(Ordering::Relaxed),
        };
        if own.id.is_none() && own.runs {
            tracing::warn!("etcd knows this server's member no more: it ends");
            self.forget_member().await?;
            return Ok(Step::Wait);
        }
        let step = next_step(own, &servers.planned, &planned, &servers.removed);
        if step != Step::Add {
            *locked(&self.not_added_since) = None;
        }
        self.take(step, etcd, &members, &settings, &urls).await?;
        Ok(step)
    }

    /// Says which servers have fallen silent, or run again, since the last look.
    fn tell_changes(&self, servers: &Servers) {
        let running = servers.planned.iter().filter(|server| server.is_awake).map(|server| server.id);
        let running: BTreeSet<NodeId> = running.collect();
        let Some(before) = locked(&self.running).replace(running.clone()) else { return };
        let own = self.settings().node;
        let others = servers.names.iter().filter(|(server, _)| **server != own);
        for (server, name) in others {
            match (before.contains(server), running.contains(server)) {
                (true, false) => tracing::warn!(
                    "{name} has not said for {} seconds that it runs; `spandrel status` shows what that means",
                    AWAKE_TIME.as_secs()
                ),
                (false, true) => tracing::info!(target: ALL_CLEAR, "{name} says that it runs"),
                _ => {}
            }
        }
    }

    /// Whether a member without a vote has not run for long.
    fn is_given_up(&self, member: &MemberDescription, server: Option<NodeId>, servers: &Servers) -> bool {
        let is_awake = server.is_some_and(|server| servers.is_awake(server));
        let mut asleep_since = locked(&self.asleep_since);
        if !member.is_learner || is_awake {
            asleep_since.remove(&member.id);
            return false;
        }
        asleep_since.entry(member.id).or_insert_with(Instant::now).elapsed() >= GIVEN_UP_AFTER
    }

    /// Whether etcd may still come to add this server's member: then it is asked again at once.
    fn is_soon_added(&self) -> bool {
        locked(&self.not_added_since).get_or_insert_with(Instant::now).elapsed() < ADDITION_TIME
    }

    async fn take(
        &self,
        step: Step,
        etcd: &EtcdState,
        members: &[MemberDescription],
        settings: &MemberSettings,
        urls: &[String],
    ) -> Result<(), Error> {
        let failed = |error: spandrel_cluster::store::StoreError| state_error(error.into());
        match step {
            Step::Wait => Ok(()),
            Step::Add => {
                member::check_program(&settings.program)?;
                let all = match etcd.add_learner(urls).await {
                    // Of the second kind if another server was faster: etcd takes one at a time.
                    Err(error)
                        if matches!(error.kind, StoreErrorKind::Unavailable | StoreErrorKind::Invalid)
                            && self.is_soon_added() =>
                    {
                        tracing::debug!("not added yet: {error}");
                        return Ok(());
                    }
                    added => added.map_err(failed)?,
                };
                *locked(&self.not_added_since) = None;
                tracing::info!("this server begins to keep the cluster's state");
                self.begin(Beginning::added(&all, &settings.name)?).await
            }
            Step::Begin => self.begin(Beginning::added(members, &settings.name)?).await,
            Step::Promote(id) => {
                match etcd.promote_member(id).await {
                    Ok(()) => tracing::info!("this server keeps the cluster's state, with a vote"),
                    // It does not have all yet.
                    Err(error) => tracing::debug!("no vote yet: {error}"),
                }
                Ok(())
            }
            Step::Remove(id) => {
                tracing::warn!(
                    "etcd's member {id:x} is removed: its server has left, or has not run for long"
                );
                etcd.remove_member(id).await.map_err(failed)
            }
            Step::Leave(id) => {
                tracing::warn!("this server keeps the cluster's state no more");
                etcd.remove_member(id).await.map_err(failed)?;
                self.forget_member().await
            }
        }
    }

    /// Ends the member, which etcd knows no more. Its data are put aside: with them it could never come back.
    pub async fn forget_member(&self) -> Result<(), Error> {
        self.end_member().await?;
        let folder = self.directory.join("etcd");
        let (data, aside) = (folder.join("data"), folder.join("data.former"));
        if data.exists() {
            // What was put aside before is of no use any more.
            let _ = std::fs::remove_dir_all(&aside);
            std::fs::rename(&data, &aside).map_err(|error| not_writable(&self.directory, &error))?;
        }
        self.has_lost_data.store(false, Ordering::Relaxed);
        self.set_member(false)
    }

    /// Ends the member's process, also one that a former run of this server has left.
    pub async fn end_member(&self) -> Result<(), Error> {
        self.stop_later().await;
        match self.member_settings(Beginning::Member) {
            Some(settings) => member::stop_running(&settings).await,
            None => Ok(()),
        }
    }

    /// Takes note of where all servers are that `state` knows.
    pub async fn learn_servers(&self, state: &ClusterState<NodeState>) -> Result<(), Error> {
        let servers = retry_unavailable(|| Servers::read(state)).await?;
        self.change(|settings| settings.servers = servers.listen)
    }

    /// Follows a state that was put back elsewhere, if there is one. Where that is kept.
    pub async fn follow_later(&self, credentials: &Credentials) -> Result<Option<Vec<String>>, Error> {
        let Some(endpoints) = later_elsewhere(&self.settings(), credentials).await else { return Ok(None) };
        tracing::warn!(
            "the state was put back elsewhere: what this server kept of the former one is put aside"
        );
        self.follow(endpoints.clone()).await?;
        Ok(Some(endpoints))
    }

    /// From now on the state is the one that is kept at `endpoints`. This server's part of the former one is put aside.
    async fn follow(&self, endpoints: Vec<String>) -> Result<(), Error> {
        self.leave_former_state().await?;
        self.change(|settings| {
            if let StatePlace::Own { endpoints: known, is_member, .. } = &mut settings.state {
                (*known, *is_member) = (endpoints, false);
            }
            settings.founding = None;
        })
    }

    /// Ends the member of a state that counts no more. Its data are put aside for good: they may be all that is left of
    /// what has happened since.
    pub async fn leave_former_state(&self) -> Result<(), Error> {
        self.end_member().await?;
        let folder = self.directory.join("etcd");
        let data = folder.join("data");
        if !data.exists() {
            return Ok(());
        }
        let aside = folder.join(format!("data.before-recovery-{}", unix_ms()));
        // A name that is taken is an error: nothing is replaced.
        std::fs::rename(&data, &aside).map_err(|error| not_writable(&self.directory, &error))
    }
}

fn set_back(name: &str) -> Error {
    Error::new(
        "STATE_SET_BACK",
        format!("the server {name} cannot go on"),
        "the cluster's state was put back to an older one with `spandrel cluster recover`",
        "start it again: it goes by the new state then",
    )
}

fn not_begun(why: &str) -> Error {
    Error::new(
        "STATE_MEMBER_NOT_STARTED",
        "this server does not keep the cluster's state yet",
        why,
        "it tries again; if it stays so, look at the log of etcd in the server's directory",
    )
}

/// The servers of a cluster.
pub struct Servers {
    /// Nodes and witnesses, in the order in which they joined.
    planned: Vec<PlannedServer>,
    /// The names of all.
    pub names: BTreeMap<NodeId, String>,
    /// The first ports of all.
    listen: BTreeSet<SocketAddr>,
    /// Those that have left.
    removed: BTreeSet<NodeId>,
}

impl Servers {
    /// Whether a server has said lately that it runs.
    pub fn is_awake(&self, server: NodeId) -> bool {
        self.planned.iter().any(|known| known.id == server && known.is_awake)
    }

    /// The servers that `state` knows.
    pub async fn read(state: &ClusterState<NodeState>) -> Result<Self, StateError> {
        let awake = state.awake().await?;
        let (nodes, witnesses) = (state.nodes().await?, state.witnesses().await?);
        let of_nodes = nodes.values().flat_map(|stored| &stored.record.addresses);
        let of_witnesses = witnesses.values().flat_map(|stored| &stored.record.addresses);
        let listen = of_nodes.chain(of_witnesses).filter_map(|address| address.parse().ok()).collect();
        let nodes = nodes.into_iter();
        let nodes = nodes.map(|(id, stored)| (stored.record.joined_unix_ms, id, stored.record.name, false));
        let witnesses = witnesses.into_iter();
        let witnesses =
            witnesses.map(|(id, stored)| (stored.record.joined_unix_ms, id, stored.record.name, true));
        let mut servers: Vec<_> = nodes.chain(witnesses).collect();
        servers.sort();
        let planned = servers.iter().map(|(_, id, _, witness)| PlannedServer {
            id: *id,
            witness: *witness,
            is_awake: awake.contains(id),
        });
        let planned = planned.collect();
        let names = servers.into_iter().map(|(_, id, name, _)| (id, name)).collect();
        Ok(Self { planned, names, listen, removed: state.removed_nodes().await? })
    }
}
