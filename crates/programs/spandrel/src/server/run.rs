//! `spandrel node run` and `spandrel witness run`: the daemon.
//!
//! It starts from the state upwards: its member of etcd if it has one, the state, the node, the admin API. Only then
//! does it tell its service manager that it is ready. It stops the other way around, so that clients are answered
//! before the state goes. Told to begin anew, it stops in the same way, and its process runs what its program's file is
//! then: whoever looks after the process sees it go on.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use spandrel_cluster::store::{Expected, StateStore as _};
use spandrel_cluster::{
    ClusterRecord, ClusterState, DriveRole, JoinRecord, NodeRecord, StateError, StateKey,
};
use spandrel_node::{DrivePlace, NodeConfig};
use spandrel_platform::Address;
use spandrel_platform_linux::RuntimeConfig;
use spandrel_shared::Error;
use spandrel_state_etcd::{EtcdIdentity, EtcdOptions, EtcdState};
use spandrel_trust::{Credentials, common_name};
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use super::Port;
use super::admission::Admission;
use super::backups::keep_backups;
use super::drives::{forget_let_go, forget_removed, tell_names};
use super::generation::{namespace, present};
use super::listener::TlsListener;
use super::own_server::OwnServer;
use super::peers::Peers;
use super::removal::{check_belongs, check_others_know};
use super::settings::{Founding, Pki, ServerSettings, StatePlace, lock};
use super::state_member::StateMemberKeeper;
use crate::admin::administration::{Administration, ProcessFacts, state_error, unix_ms};
use crate::admin::api::StateIdentity;
use crate::admin::events::tell_faults;
use crate::admin::nodes::Nodes;
use crate::admin::server::{self, Caller};
use crate::arguments::{LogArguments, ThreadArguments, VmHostArguments};
use crate::cores::check_cores;
use crate::directory::Directory;
use crate::failure::{EXIT_OK, Outcome, system_error};
use crate::node_state::NodeState;
use crate::notify::notify;
use crate::program::Program;
use crate::running_node::{NodeHandle, NodeStart, RunningNode, check_roles};
use crate::text::say;
use crate::vm_hosting::VmHosting;
use crate::{drive_prefix, log, open_files};

/// Where the node serves NBD on this machine.
const NBD_SOCKET: &str = "nbd.sock";

/// How often the state is asked at a start until it answers.
const STATE_PAUSE: Duration = Duration::from_millis(200);

/// How many times at most the state is asked at a start for the cluster, if it is put back elsewhere meanwhile.
const ASKED_MAX: u32 = 5;

/// How long it waits before, if nothing tells yet that it is put back.
const ASK_AGAIN_PAUSE: Duration = Duration::from_secs(1);

/// How often the other servers are asked at a start whether this one still belongs to them, as long as the state does
/// not answer.
const STANDING_INTERVAL: Duration = Duration::from_secs(2);

/// How often it is looked what is the matter with the cluster, to tell it in the log.
const FAULTS_INTERVAL: Duration = Duration::from_secs(10);

/// How long the node may take to stop in order before that is given up. With the time that etcd may take after it, a
/// service manager's 90 seconds suffice.
const STOP_TIME_MAX: Duration = Duration::from_secs(45);

/// How long a server that starts waits for the former process in its directory to end.
const FORMER_ENDS_WITHIN: Duration = Duration::from_secs(5);

/// How often it looks whether that has ended.
const LOCK_RETRY: Duration = Duration::from_millis(50);

/// Runs the server in `directory` until it is told to end. `witness` says which kind the command is for.
pub fn run(
    directory: Directory,
    witness: bool,
    threads: &ThreadArguments,
    vms: &VmHostArguments,
    log_arguments: LogArguments,
) -> Outcome {
    check_cores(threads.cores.as_ref())?;
    directory.check_socket_lengths("n")?;
    // Nothing is touched in a directory that is no server's; what counts is what stands there once it is locked.
    ServerSettings::read(&directory)?;
    let _lock = lock_patiently(&directory)?;
    let settings = ServerSettings::read(&directory)?;
    check_kind(&settings, witness)?;
    log::start(&directory, log_arguments, vec![settings.name.clone()])?;
    open_files::raise();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| system_error("the program cannot start", &error))?;
    let program = Arc::new(Program::of_this_process());
    let how = How { threads: threads.clone(), vms: vms.clone() };
    let ended = match runtime.block_on(serve(directory, settings, how, Arc::clone(&program))) {
        Ok(End::Asked(status)) => Ok(status),
        Ok(End::BeginAnew) => program.begin_anew().map(|never| match never {}),
        Err(error) => Err(error),
    };
    // Whoever reads only the log learns of it, too.
    ended.inspect_err(|error| tracing::error!(code = %error.code, "the server ends: {error}"))
}

/// Takes the directory for this process. A server that was told to stop answers nobody any more some time before its process
/// has ended: who starts it again at once is not refused for that.
fn lock_patiently(directory: &Directory) -> Result<std::fs::File, Error> {
    let begun = Instant::now();
    loop {
        match lock(directory) {
            Err(error) if error.code == "DIR_IN_USE" && begun.elapsed() < FORMER_ENDS_WITHIN => {
                // tidy-allow(sleep): no lock of a file can be awaited for a limited time.
                std::thread::sleep(LOCK_RETRY);
            }
            locked => return locked,
        }
    }
}

/// How a server has ended that was not hindered.
enum End {
    /// The process ends with this exit status.
    Asked(u8),
    /// The process begins anew.
    BeginAnew,
}

fn check_kind(settings: &ServerSettings, witness: bool) -> Result<(), Error> {
    if settings.witness == witness {
        return Ok(());
    }
    let (is, command) = if settings.witness {
        ("a witness", "spandrel witness run")
    } else {
        ("a node", "spandrel node run")
    };
    Err(Error::new(
        "SERVER_OF_OTHER_KIND",
        format!("the server {} cannot be started like this", settings.name),
        format!("it is {is}"),
        format!("start it with `{command}`"),
    ))
}

async fn serve(
    directory: Directory,
    settings: ServerSettings,
    how: How,
    program: Arc<Program>,
) -> Result<End, Error> {
    let mut signals = [SignalKind::interrupt(), SignalKind::terminate()].into_iter().map(signal);
    let mut ending = Ending {
        interrupt: signals.next().expect("there are two").map_err(no_signals)?,
        terminate: signals.next().expect("there are two").map_err(no_signals)?,
    };
    let keeper = StateMemberKeeper::new(directory.clone(), settings.clone());
    let orders = Arc::new(Orders { program, begin_anew: Notify::new(), end: Notify::new() });
    tokio::select! {
        running = Running::start(directory, settings, Arc::clone(&keeper), Arc::clone(&orders), how) => {
            let running = running?;
            running.tell_ready();
            let end = tokio::select! {
                () = ending.next() => Ok(End::Asked(EXIT_OK)),
                () = orders.end.notified() => Ok(End::Asked(EXIT_OK)),
                () = orders.begin_anew.notified() => Ok(End::BeginAnew),
                why = keeper.must_end() => Err(why),
            };
            // A service manager that was told of a stop would not expect a process that goes on.
            notify(if matches!(end, Ok(End::BeginAnew)) { "STATUS=beginning anew" } else { "STOPPING=1" });
            if let Err(why) = &end {
                tracing::error!("{why}: it ends");
            }
            stop(running, &keeper, &mut ending, end).await
        }
        () = ending.next() => {
            end_member(&keeper, &mut ending).await;
            say("stopped before it was ready\n");
            Ok(End::Asked(EXIT_OK))
        }
    }
}

/// Stops in order, and says how that ends. Whoever is told to end while it stops to begin anew ends for good.
async fn stop(
    mut running: Running,
    keeper: &StateMemberKeeper,
    ending: &mut Ending,
    end: Result<End, Error>,
) -> Result<End, Error> {
    let begins_anew = matches!(end, Ok(End::BeginAnew));
    if begins_anew {
        running.leave_vms_running().await;
    }
    say(match begins_anew {
        true => "stopping to begin anew\n",
        false => "stopping (once more to stop at once)\n",
    });
    let (stopped, told) = tokio::select! {
        // What goes on beside the node ends first in any case.
        biased;
        stopped = tokio::time::timeout(STOP_TIME_MAX, running.stop()) => (stopped.is_ok(), false),
        () = ending.next() => (false, true),
    };
    let member_ended = end_member(keeper, ending).await;
    if member_ended && stopped {
        say("stopped\n");
        return end;
    }
    // What was answered is on the drives; the next start recovers as from a crash.
    say("stopped without waiting for everything\n");
    if begins_anew && member_ended && !told {
        return end;
    }
    std::process::exit(1)
}

/// What the process is told through the admin API, and the program with which it would begin anew.
pub(super) struct Orders {
    pub(super) program: Arc<Program>,
    pub(super) begin_anew: Notify,
    pub(super) end: Notify,
}

/// Ends the server's member of etcd, however the node ended: nobody looks after it from here on. Whether it has ended; if
/// it was not waited for, it was told to.
async fn end_member(keeper: &StateMemberKeeper, ending: &mut Ending) -> bool {
    tokio::select! {
        // The member is told before anything is waited for.
        biased;
        ended = keeper.end_member() => ended.inspect_err(|error| tracing::error!("{error}")).is_ok(),
        () = ending.next() => false,
    }
}

fn no_signals(error: std::io::Error) -> Error {
    system_error("signals cannot be received", &error)
}

/// The signals that end the daemon.
struct Ending {
    interrupt: Signal,
    terminate: Signal,
}

impl Ending {
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// How a server runs, besides what is kept in its directory.
struct How {
    threads: ThreadArguments,
    vms: VmHostArguments,
}

/// Has the node look after virtual machines, if they run here.
async fn begin_vms(hosting: VmHosting, node: NodeHandle, directory: Directory, nodes: Arc<dyn Nodes>) {
    if !hosting.probe(directory.path()).await {
        return;
    }
    let begun = hosting.begin(&node, directory.join("vms"), directory.join(NBD_SOCKET), nodes).await;
    if let Err(error) = begun {
        tracing::error!("the node runs no virtual machines: {error}");
    }
}

/// A server that runs.
struct Running {
    settings: ServerSettings,
    directory: Directory,
    node: Option<RunningNode>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    /// Whether virtual machines go on when it stops.
    leaves_vms: bool,
}

impl Running {
    async fn start(
        directory: Directory,
        settings: ServerSettings,
        keeper: Arc<StateMemberKeeper>,
        orders: Arc<Orders>,
        how: How,
    ) -> Result<Self, Error> {
        let pki = Pki(&directory);
        let credentials = pki.credentials(settings.cluster)?;
        let (etcd, cluster) = reach_state(&directory, &credentials, &keeper).await?;
        let state = ClusterState::new(NodeState::Etcd(etcd.clone()));
        let settings = keeper.settings();
        let node = match settings.witness {
            true => None,
            false => Some(start_node(&directory, &settings, &credentials, &etcd, &how.threads).await?),
        };
        let peers = Arc::new(Peers {
            state: state.clone(),
            own: node.as_ref().map(|node| (settings.node, node.handle())),
            tls: Arc::new(credentials.client()?),
            name: credentials.common_name()?,
        });
        let admission = match settings.witness {
            true => None,
            false => Some(Admission {
                cluster: cluster.clone(),
                state: state.clone(),
                authority: pki.load_authority(settings.cluster)?,
                state_is_own: matches!(settings.state, StatePlace::Own { .. }),
                state_identity: state_identity(&directory, &settings)?,
            }),
        };
        let process =
            ProcessFacts { directory: directory.path().display().to_string(), memory: false, flush_us: None };
        let own = OwnServer {
            keeper: Arc::clone(&keeper),
            node: node.as_ref().map(RunningNode::handle),
            etcd: etcd.clone(),
            state: state.clone(),
            fingerprint: credentials.fingerprint()?,
            admission,
            peers: Arc::clone(&peers),
            orders,
        };
        let nodes = peers as Arc<dyn Nodes>;
        let others = Arc::clone(&nodes);
        let administration = Administration::new(process, cluster, state.clone(), nodes, Some(Arc::new(own)));
        let mut tasks = serve_administration(&directory, &settings, &credentials, &administration).await?;
        tasks.push(tokio::spawn(tell_faults(
            administration,
            node.as_ref().map(RunningNode::handle),
            FAULTS_INTERVAL,
        )));
        tasks.push(tokio::spawn(keep_backups(directory.clone(), state.clone())));
        if let Some(node) = &node {
            let shards = node.handle().shards().to_vec();
            tasks.extend(
                shards.into_iter().map(|shard| tokio::spawn(forget_let_go(shard, Arc::clone(&keeper)))),
            );
            tasks.push(tokio::spawn(tell_names(node.handle(), state.clone(), settings.name.clone())));
            if let Some(hosting) = VmHosting::new(&how.vms, 1) {
                tasks.push(tokio::spawn(begin_vms(hosting, node.handle(), directory.clone(), others)));
            }
        }
        tasks.push(tokio::spawn(async move { keeper.keep(etcd, state).await }));
        Ok(Self { settings, directory, node, tasks, leaves_vms: false })
    }

    fn tell_ready(&self) {
        let kind = if self.settings.witness { "witness" } else { "node" };
        let listen: Vec<String> = self.settings.listen.iter().map(ToString::to_string).collect();
        say(&format!(
            "ready: {kind} {} of cluster {} at {}; try `spandrel --dir {} status`\n",
            self.settings.name,
            self.settings.cluster_name,
            listen.join(", "),
            self.directory.path().display()
        ));
        notify("READY=1");
    }

    /// Has virtual machines go on while the process begins anew.
    async fn leave_vms_running(&mut self) {
        self.leaves_vms = true;
        if let Some(node) = &self.node
            && let Err(error) = node.handle().leave_vms_running().await
        {
            tracing::warn!("virtual machines do not go on: {error}");
        }
    }

    /// Stops in order, but for the member of etcd. Other nodes take the volumes over.
    async fn stop(self) {
        for task in self.tasks {
            task.abort();
        }
        let _ = std::fs::remove_file(self.directory.admin_socket());
        if let Some(node) = self.node {
            let qemu = node.qemu().filter(|_| !self.leaves_vms);
            // Waiting for threads blocks; what keeps the member of etcd goes on meanwhile.
            let stopped = tokio::task::spawn_blocking(move || node.stop(false)).await;
            if let Err(error) = stopped {
                tracing::error!("the node could not be stopped: {error}");
            }
            if let Some(qemu) = qemu {
                // What was being started meanwhile.
                qemu.end_all().await;
            }
        }
    }
}

/// How the state is reached by the server in `directory`.
pub fn etcd_options(
    directory: &Directory,
    settings: &ServerSettings,
    credentials: &Credentials,
) -> Result<EtcdOptions, Error> {
    let identity = match &settings.state {
        StatePlace::Own { .. } => Some(own_identity(credentials)),
        StatePlace::External { .. } => state_identity(directory, settings)?.map(external_identity),
    };
    Ok(EtcdOptions {
        endpoints: settings.state.endpoints().to_vec(),
        namespace: namespace(settings.cluster, 0),
        identity,
    })
}

/// With what a server proves who it is to the cluster's own etcd.
pub fn own_identity(credentials: &Credentials) -> EtcdIdentity {
    EtcdIdentity {
        authority_pem: credentials.authority_pem.clone(),
        certificate_pem: credentials.certificate_pem.clone(),
        key_pem: credentials.key_pem.clone(),
        member_name: Some(common_name(credentials.cluster)),
    }
}

/// With what a server proves who it is to an etcd that others keep.
pub fn external_identity(identity: StateIdentity) -> EtcdIdentity {
    let StateIdentity { authority_pem, certificate_pem, key_pem } = identity;
    EtcdIdentity { authority_pem, certificate_pem, key_pem, member_name: None }
}

/// What the server in `directory` has for that, if it needs it.
fn state_identity(directory: &Directory, settings: &ServerSettings) -> Result<Option<StateIdentity>, Error> {
    settings.state.is_external_with_tls().then(|| Pki(directory).state_identity()).transpose()
}

/// Starts this server's member of etcd, if it has one, and waits until the state answers and knows the server. The state,
/// and the cluster that it holds.
async fn reach_state(
    directory: &Directory,
    credentials: &Credentials,
    keeper: &Arc<StateMemberKeeper>,
) -> Result<(EtcdState, ClusterRecord), Error> {
    keeper.follow_later(credentials).await?;
    keeper.start().await?;
    let connected = EtcdState::connect(&etcd_options(directory, &keeper.settings(), credentials)?)?;
    let mut times_asked = 0;
    loop {
        times_asked += 1;
        let refused = match ask_state(&connected, keeper, credentials).await {
            Err(error) if times_asked < ASKED_MAX => error,
            last => return last,
        };
        // While it is put back elsewhere some members answer from the former state and others from the new one. What they
        // say together is true of neither; and the new one answers before it says that it counts.
        if !follow_later(&connected, keeper, credentials).await? {
            if refused.code != "CLUSTER_UNKNOWN" {
                return Err(refused);
            }
            tokio::time::sleep(ASK_AGAIN_PAUSE).await;
        }
        tracing::warn!("the state may be put back elsewhere at this moment, so it is asked again: {refused}");
    }
}

/// Asks where a later state is kept, if one was put back elsewhere, from now on. Whether there is one.
async fn follow_later(
    etcd: &EtcdState,
    keeper: &StateMemberKeeper,
    credentials: &Credentials,
) -> Result<bool, Error> {
    let Some(endpoints) = keeper.follow_later(credentials).await? else { return Ok(false) };
    etcd.set_endpoints(&endpoints).await?;
    Ok(true)
}

/// Waits until the state answers, and asks it for the cluster and whether this server belongs to that.
async fn ask_state(
    connected: &EtcdState,
    keeper: &Arc<StateMemberKeeper>,
    credentials: &Credentials,
) -> Result<(EtcdState, ClusterRecord), Error> {
    let (mut etcd, mut cluster) = await_cluster(connected, keeper, credentials).await?;
    // Nothing is served before all servers were asked of which this one can know.
    keeper.learn_servers(&ClusterState::new(NodeState::Etcd(etcd.clone()))).await?;
    if follow_later(connected, keeper, credentials).await? {
        (etcd, cluster) = await_cluster(connected, keeper, credentials).await?;
    }
    let state = ClusterState::new(NodeState::Etcd(etcd.clone()));
    let settings = keeper.settings();
    retry_unavailable(|| check_belongs(&state, &settings)).await?;
    retry_unavailable(|| forget_removed(&state, keeper)).await?;
    Ok((etcd, cluster))
}

/// Waits until the state answers, and puts a new cluster into it. The state, and the cluster that it holds.
async fn await_cluster(
    etcd: &EtcdState,
    keeper: &StateMemberKeeper,
    credentials: &Credentials,
) -> Result<(EtcdState, ClusterRecord), Error> {
    let (mut told, mut followed) = (false, false);
    let mut asked = Instant::now();
    loop {
        let settings = keeper.settings();
        match find_cluster(etcd, &settings).await {
            // It was put back after this server had looked.
            Ok((_, Some(record))) if record.generation > settings.generation && !followed => {
                followed = true;
                follow_later(etcd, keeper, credentials).await?;
            }
            Ok((etcd, Some(record))) => {
                check_not_displaced(&settings, record.generation)?;
                keeper.change(|settings| settings.founding = None)?;
                keeper.set_generation(record.generation)?;
                return Ok((etcd, record));
            }
            Ok((_, None)) => {
                return Err(Error::new(
                    "CLUSTER_UNKNOWN",
                    format!("the server {} cannot be started", settings.name),
                    format!("the state at {} holds no cluster", settings.state.endpoints().join(", ")),
                    "give the server the state of its own cluster",
                ));
            }
            Err(StateError::Refused(error)) => return Err(error),
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!("the cluster's state does not answer yet; waiting: {error}");
                    notify("STATUS=waiting for the cluster's state: most of its members must run");
                }
                if asked.elapsed() >= STANDING_INTERVAL {
                    check_others_know(&settings, credentials).await?;
                    follow_later(etcd, keeper, credentials).await?;
                    asked = Instant::now();
                }
                tokio::time::sleep(STATE_PAUSE).await;
            }
        }
    }
}

/// Refuses a state that another one has displaced, by which this server has gone since: those who keep it do not know
/// that yet.
fn check_not_displaced(settings: &ServerSettings, generation: u32) -> Result<(), Error> {
    if generation >= settings.generation {
        return Ok(());
    }
    Err(Error::new(
        "STATE_DISPLACED",
        format!("the server {} cannot be started", settings.name),
        format!(
            "the state at {} is of generation {generation}, and was displaced by that of generation {}, by which this \
             server has gone",
            settings.state.endpoints().join(", "),
            settings.generation
        ),
        "start the server on which `spandrel cluster recover` was run, and stop those that go by the former state",
    ))
}

/// The state that counts at present, and the cluster that it holds.
async fn find_cluster(
    etcd: &EtcdState,
    settings: &ServerSettings,
) -> Result<(EtcdState, Option<ClusterRecord>), StateError> {
    let etcd = present(etcd, settings.cluster).await?;
    let state = ClusterState::new(NodeState::Etcd(etcd.clone()));
    let record = match &settings.founding {
        Some(founding) => found(&state, settings, founding).await?,
        None => state.cluster().await?.map(|stored| stored.record),
    };
    Ok((etcd, record))
}

/// Asks the state something until it answers.
pub(super) async fn retry_unavailable<T, F>(attempt: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, StateError>>,
{
    loop {
        match attempt().await {
            Err(StateError::Store(error)) => {
                tracing::debug!("the cluster's state: {error}; trying again");
                tokio::time::sleep(STATE_PAUSE).await;
            }
            outcome => return outcome.map_err(state_error),
        }
    }
}

/// Puts a new cluster into its state. The same when it is done twice.
async fn found(
    state: &ClusterState<NodeState>,
    settings: &ServerSettings,
    founding: &Founding,
) -> Result<Option<ClusterRecord>, StateError> {
    let record = ClusterRecord {
        id: settings.cluster,
        name: settings.cluster_name.clone(),
        feature_level: 1,
        slab_bytes: founding.slab_bytes,
        created_unix_ms: founding.created_unix_ms,
        generation: 0,
    };
    let stored = state.create_cluster(record).await?;
    let join = JoinRecord {
        created_unix_ms: founding.created_unix_ms,
        expires_unix_ms: founding.join_expires_unix_ms,
    };
    let node = NodeRecord {
        name: settings.name.clone(),
        addresses: settings.listen.iter().map(ToString::to_string).collect(),
        further_shards: Vec::new(),
        joined_unix_ms: founding.created_unix_ms,
        key_digest: Some(founding.key_digest.clone()),
        maintenance_since_unix_ms: None,
        place: Default::default(),
        unknown: Default::default(),
    };
    // The token before the node: with the node the cluster is whole, and a token that was revoked does not come back.
    let time_left = founding.join_expires_unix_ms.saturating_sub(unix_ms());
    let is_whole = state.get::<NodeRecord>(&StateKey::Node(settings.node)).await?.is_some();
    if time_left > 0 && !is_whole {
        let lease = state.store().grant_lease(Duration::from_millis(time_left)).await?;
        state.give_join(&founding.join_digest, &join, lease).await?;
    }
    match state.put(&StateKey::Node(settings.node), Expected::Absent, node).await {
        Ok(_) | Err(StateError::Conflict) => Ok(Some(stored.record)),
        Err(error) => Err(error),
    }
}

async fn start_node(
    directory: &Directory,
    settings: &ServerSettings,
    credentials: &Credentials,
    etcd: &EtcdState,
    threads: &ThreadArguments,
) -> Result<RunningNode, Error> {
    let bus_addresses: Vec<Address> = settings.addresses(Port::Bus).into_iter().map(Address::Tcp).collect();
    let further_bus_addresses = further_bus_addresses(settings, threads.shards)?;
    let socket = directory.join(NBD_SOCKET);
    let config = NodeConfig {
        cluster: settings.cluster,
        node: settings.node,
        shard: 0,
        shards: 1,
        name: settings.name.clone(),
        bus_addresses: bus_addresses.clone(),
        nbd_addresses: vec![Address::Unix(socket.display().to_string())],
        drives: present_drives(settings).map(|path| place(settings, path)).collect(),
        leaves_unfit_drives_out: true,
    };
    // Also those that are not there.
    check_roles(settings.cache_drives.iter().map(|path| (&path[..], DriveRole::Cache)), threads.shards)?;
    check_ports(&ClusterState::new(NodeState::Etcd(etcd.clone())), settings, &further_bus_addresses).await?;
    let secured = bus_addresses.iter().chain(further_bus_addresses.iter().flatten()).cloned();
    let tls = credentials.platform(secured.collect())?;
    let start = NodeStart {
        config,
        further_bus_addresses,
        runtime: RuntimeConfig { cores: threads.cores.clone(), ..RuntimeConfig::default() },
        store: NodeState::Etcd(etcd.clone()),
        tls: Some(tls),
    };
    RunningNode::start(start).await
}

/// Refuses ports for further shards that another server of this machine uses, or this one for something else: whichever starts
/// second would not come up.
async fn check_ports(
    state: &ClusterState<NodeState>,
    settings: &ServerSettings,
    further: &[Vec<Address>],
) -> Result<(), Error> {
    if further.is_empty() {
        return Ok(());
    }
    // With how many ports each has from there on.
    let mut others: Vec<(String, String, u16)> = Vec::new();
    let mut add = |name: &str, addresses: &[String], ports| {
        others.extend(addresses.iter().map(|address| (name.to_owned(), address.clone(), ports)));
    };
    let nodes = retry_unavailable(|| state.nodes()).await?;
    for record in nodes.into_iter().filter(|(id, _)| *id != settings.node).map(|(_, stored)| stored.record) {
        add(&record.name, &record.addresses, Port::COUNT);
        record.further_shards.iter().for_each(|addresses| add(&record.name, addresses, 1));
    }
    for (_, stored) in retry_unavailable(|| state.witnesses()).await? {
        add(&stored.record.name, &stored.record.addresses, Port::COUNT);
    }
    let own: Vec<String> = settings.listen.iter().map(ToString::to_string).collect();
    add(&settings.name, &own, Port::COUNT);
    for address in further.iter().flatten() {
        let Address::Tcp(wanted) = address else { continue };
        let takes = |first: SocketAddr, ports: u16| {
            let last = first.port().saturating_add(ports - 1);
            first.ip() == wanted.ip() && (first.port()..=last).contains(&wanted.port())
        };
        let taken =
            others.iter().find(|(_, first, ports)| first.parse().is_ok_and(|first| takes(first, *ports)));
        if let Some((name, first, _)) = taken {
            return Err(Error::new(
                "ADDRESS_TAKEN",
                format!("the server {} cannot be started with {} shards", settings.name, further.len() + 1),
                format!("one of them would listen at {wanted}, and that is for the server {name} at {first}"),
                "name fewer with --shards; servers of one machine need ports that are further apart",
            ));
        }
    }
    Ok(())
}

/// Where the further shards of a node listen for other nodes.
fn further_bus_addresses(settings: &ServerSettings, shards: u8) -> Result<Vec<Vec<Address>>, Error> {
    let of_shard = |number: u8| {
        let at = |listen: &SocketAddr| {
            let address = Port::of_shard(*listen, number);
            address.map(Address::Tcp).ok_or_else(|| {
                Error::new(
                    "ADDRESS_UNUSABLE",
                    format!("the server {} cannot be started with {shards} shards", settings.name),
                    format!("they need {} more ports behind those that {listen} stands for", shards - 1),
                    "name fewer with --shards",
                )
            })
        };
        settings.listen.iter().map(at).collect()
    };
    (1..shards).map(of_shard).collect()
}

/// Where a drive is, for the node.
fn place(settings: &ServerSettings, path: &str) -> DrivePlace {
    let location = format!("{}{path}", drive_prefix());
    match settings.cache_drives.contains(path) {
        true => DrivePlace::cache(location),
        false => DrivePlace::capacity(location),
    }
}

/// The drives that are there. One that was pulled out is no reason not to start: others have its copies.
fn present_drives(settings: &ServerSettings) -> impl Iterator<Item = &String> {
    settings.drives.iter().filter(|path| {
        let is_there = Path::new(path).exists();
        if !is_there {
            tracing::error!("a drive is missing: there is no {path}");
        }
        is_there
    })
}

/// Serves the admin API, on this machine and at the server's addresses.
async fn serve_administration(
    directory: &Directory,
    settings: &ServerSettings,
    credentials: &Credentials,
    administration: &Arc<Administration>,
) -> Result<Vec<tokio::task::JoinHandle<()>>, Error> {
    let router = server::router(Arc::clone(administration));
    let mut tasks = vec![serve_here(directory, router.clone())?];
    let tls = Arc::new(credentials.server(true)?);
    for address in settings.addresses(Port::Admin) {
        let listener = TlsListener::bind(address, Arc::clone(&tls)).await?;
        let service = router.clone().into_make_service_with_connect_info::<Caller>();
        tasks.push(tokio::spawn(async move {
            // Accepting never fails for good.
            let _ = axum::serve(listener, service).await;
        }));
    }
    Ok(tasks)
}

/// Serves the admin API on this machine.
fn serve_here(directory: &Directory, router: Router) -> Result<tokio::task::JoinHandle<()>, Error> {
    let path = directory.admin_socket();
    // Whoever holds the directory's lock owns the socket.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(|error| {
        Error::new(
            "ADDRESS_UNUSABLE",
            format!("the server cannot listen on {}", path.display()),
            error.to_string(),
            "name another directory with --dir; some file systems have no sockets",
        )
    })?;
    Ok(tokio::spawn(async move {
        // Accepting never fails for good.
        let _ = axum::serve(listener, router.into_make_service_with_connect_info::<Caller>()).await;
    }))
}
