//! The admin API over HTTP.
//!
//! Who may ask for what is decided before anything else: whoever has reached the unix socket may do everything; the
//! cluster's other servers may ask what servers ask each other; everybody else shows a token, and may do what its role
//! allows.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::connect_info::Connected;
use axum::extract::rejection::JsonRejection;
use axum::extract::{ConnectInfo, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::serve::IncomingStream;
use axum::{Json, Router};
use futures_channel::mpsc;
use futures_util::StreamExt;
use futures_util::future::{Either, join, select};
use serde::Serialize;
use spandrel_cluster::Role;
use spandrel_cluster::backup::StateBackup;
use spandrel_node::{NodeLoad, NodeReport, VolumeCreated, VolumeCreation, VolumeGrown, VolumeGrowth};
use spandrel_shared::{Error, NodeId, Place, VolumeId};
use tokio::net::UnixListener;

use super::administration::{Administration, volume_not_found};
use super::api::{
    self, Access, AccessCreate, AccessCreated, CacheDriveStatus, CheckLine, CheckQuery, ClusterLoad,
    ClusterStatus, DeleteQuery, DriveAdd, DriveAdded, DriveRemove, DriveRemoved, DriveRetire, DriveRetired,
    DriveStatus, Explanation, Fault, JoinAnswer, JoinRequest, JoinTokenAnswer, JoinTokenStatus,
    MaintenanceProgress, NodeDetails, NodeDrain, NodeDrained, NodeEvacuate, NodeEvacuated, NodeHandOver,
    NodeLetGo, NodeSafety, NodeScrubLine, NodeStatus, NodeStop, Optimize, Optimized, PlaceChange,
    PoolDetails, PoolSettings, PoolSettingsChange, PoolSettingsPreview, ScrubStatus, ServerRemove,
    ServerRemoved, ServerRestart, ServerRestarting, ServerRun, ServerStatus, Settle, SettleStatus, Standing,
    StateStatus, Usage, VolumeCreate, VolumeCreateAnswer, VolumeDeletion, VolumeMove, VolumeResize,
    VolumeResized, VolumeSettingsChange, VolumeStatus,
};
use super::vm_requests;
use crate::server::listener::TlsListener;
use crate::server::strangers::Proof;

/// How long an answer of several lines is silent at most.
const LINE_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// How often it is looked whether somebody who asked is still there.
const GONE_INTERVAL: Duration = Duration::from_secs(1);

/// Who has sent a request.
#[derive(Clone, Debug)]
pub enum Caller {
    /// Somebody on this machine, whom the file system lets use the socket.
    Here,
    /// A server that has shown a certificate of the cluster.
    Server(NodeId),
    /// Somebody else, who must show a token; and what is told when they have.
    Stranger(Proof),
}

impl Connected<IncomingStream<'_, UnixListener>> for Caller {
    fn connect_info(_: IncomingStream<'_, UnixListener>) -> Self {
        Self::Here
    }
}

impl Connected<IncomingStream<'_, TlsListener>> for Caller {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Self {
        stream.remote_addr().clone()
    }
}

pub(super) type Cluster = State<Arc<Administration>>;
pub(super) type Answer<T> = Result<Json<T>, Refusal>;

/// An error as a response.
pub(super) struct Refusal(Error);

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (status_of(&self.0.code), Json(self.0)).into_response()
    }
}

/// The HTTP status that suits an error's code.
fn status_of(code: &str) -> StatusCode {
    match code {
        "DRIVE_PATH_INVALID"
        | "NAME_INVALID"
        | "SIZE_ZERO"
        | "SIZE_UNALIGNED"
        | "SIZE_SMALLER"
        | "COPIES_INVALID"
        | "VOLUME_INVALID"
        | "OWNER_UNKNOWN"
        | "REQUEST_INVALID"
        | "TIME_TOO_SHORT"
        | "MEMORY_TOO_SMALL"
        | "MEMORY_CACHE_TOO_SMALL"
        | "MAP_MEMORY_TOO_SMALL"
        | "IOPS_LIMIT_INVALID"
        | "VM_INVALID"
        | "TIME_TOO_LONG" => StatusCode::BAD_REQUEST,
        "TOKEN_MISSING" | "TOKEN_INVALID" | "TOKEN_REFUSED" => StatusCode::UNAUTHORIZED,
        "ACCESS_DENIED" => StatusCode::FORBIDDEN,
        "ACCESS_NOT_FOUND"
        | "VOLUME_NOT_FOUND"
        | "NODE_NOT_FOUND"
        | "PATH_NOT_FOUND"
        | "DRIVE_NOT_FOUND"
        | "JOIN_TOKEN_NOT_FOUND"
        | "VM_NOT_FOUND"
        | "SERVER_NOT_FOUND" => StatusCode::NOT_FOUND,
        "DRIVE_IN_USE"
        | "DRIVE_NEEDED"
        | "DRIVE_HOLDS_COPIES"
        | "CACHE_IN_USE"
        | "CACHE_UNSURE"
        | "CACHE_NOT_EMPTY"
        | "CACHE_CHANGED"
        | "CACHE_FAILED"
        | "DRIVE_REMOVED"
        | "DRIVE_NAME_TAKEN"
        | "DRIVE_NAME_AMBIGUOUS"
        | "DRIVE_NOT_OPENED"
        | "DRIVE_IN_FOREIGN_USE"
        | "DRIVE_OF_OTHER_NODE"
        | "DRIVE_OF_OTHER_CLUSTER"
        | "DRIVE_IS_OLD"
        | "DRIVE_TOO_SMALL"
        | "DRIVE_DAMAGED"
        | "DRIVE_FAILED"
        | "DRIVE_FORMAT_NEWER"
        | "ADDRESS_TAKEN"
        | "DRIVE_ATTACHED_TWICE"
        | "NODE_IS_A_PROCESS"
        | "NODE_STOPPING"
        | "NOT_A_NODE"
        | "SERVER_REFUSED"
        | "VOLUME_NOT_MOVED"
        | "VOLUME_OF_VM"
        | "VM_EXISTS"
        | "VM_NOT_OFF"
        | "VM_NOT_MOVED"
        | "VM_NOT_RUNNING"
        | "VM_WITHOUT_HOST"
        | "NAME_TAKEN"
        | "NOT_A_SERVER"
        | "VOLUME_DEGRADED"
        | "VOLUME_EXISTS"
        | "SIZE_CHANGED"
        | "VOLUME_NOT_WAITING"
        | "VOLUME_GROWING"
        | "VOLUME_IN_USE"
        | "NODE_RUNNING"
        | "NODE_NOT_RUNNING"
        | "POOL_CHANGED"
        | "TOO_FEW_NODES"
        | "OWNER_OFFLINE"
        | "NODE_HOLDS_COPIES"
        | "COPIES_NOT_COMPARED"
        | "NODE_IN_MAINTENANCE"
        | "NODE_NEEDED"
        | "LAST_NODE"
        | "SERVER_IS_OLDER"
        | "SERVER_IS_THIS_ONE"
        | "SERVER_NOT_RUNNING"
        | "PROGRAM_UNUSABLE"
        | "SERVER_REMOVED"
        | "STATE_PROGRAM_NEEDED"
        | "STATE_MAJORITY_NEEDED"
        | "LAST_COPY" => StatusCode::CONFLICT,
        "POOL_FULL" => StatusCode::INSUFFICIENT_STORAGE,
        "NODE_STOPPED" | "STATE_UNAVAILABLE" | "COPY_NOT_MADE" | "VOLUME_NOT_SERVED" | "NOT_OWNER" => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// All paths, for whoever may ask for them.
pub fn router(cluster: Arc<Administration>) -> Router {
    let allowed = |role| from_fn_with_state((Arc::clone(&cluster), role), check_role);
    let read = Router::new()
        .route(api::STATUS, get(get_status))
        .route(api::VOLUMES, get(list_volumes))
        .route(api::VOLUME, get(get_volume))
        .route(api::VOLUME_DELETION, get(get_volume_deletion))
        .route(api::NODES, get(list_nodes))
        .route(api::NODE, get(get_node))
        .route(api::DRIVES, get(list_drives))
        .route(api::CACHES, get(list_caches))
        .route(api::POOL, get(get_pool))
        .route(api::SCRUB, get(list_scrubs))
        .route(api::USAGE, get(get_usage))
        .route(api::LOAD, get(get_load))
        .route(api::STATE, get(get_state))
        .route(api::SERVERS, get(list_servers))
        .route(api::NODE_MAINTENANCE, get(get_maintenance))
        .route(api::NODE_SAFETY, get(get_safety))
        .route(api::VOLUME_EXPLANATION, get(explain_volume))
        .route(api::DRIVE_EXPLANATION, get(explain_drive))
        .route(api::NODE_EXPLANATION, get(explain_node))
        .route(api::POOL_EXPLANATION, get(explain_pool))
        .route(api::FAULTS, get(list_faults))
        .route(api::VMS, get(vm_requests::list_vms))
        .route(api::VM, get(vm_requests::get_vm))
        .route(api::VM_HOSTS, get(vm_requests::list_hosts))
        .route_layer(allowed(Role::Read));
    let operate = Router::new()
        .route(api::VOLUMES, post(create_volume))
        .route(api::VOLUME_CHECK, post(check_volume))
        .route(api::VOLUME_MOVE, post(move_volume))
        .route(api::VOLUME_RESIZE, post(resize_volume))
        .route(api::VOLUME_SETTINGS, post(set_volume))
        .route(api::SCRUB, post(scrub))
        .route(api::POOL_OPTIMIZE, post(optimize_pool))
        .route(api::NODE_STOP, post(stop_node))
        .route(api::NODE_START, post(start_node))
        .route(api::NODE_DRAIN, post(drain_node))
        .route(api::NODE_RESUME, post(resume_node))
        .route(api::SERVER_RESTART, post(restart_server))
        .route(api::VMS, post(vm_requests::create_vm))
        .route(api::VM_START, post(vm_requests::start_vm))
        .route(api::VM_STOP, post(vm_requests::stop_vm))
        .route(api::VM_MIGRATE, post(vm_requests::migrate_vm))
        .route(api::VM_CONSOLE, get(vm_requests::open_console))
        .route_layer(allowed(Role::Operate));
    let administer = Router::new()
        .route(api::VOLUME, delete(delete_volume))
        .route(api::VM, delete(vm_requests::delete_vm))
        .route(api::DRIVES, post(add_drive))
        .route(api::DRIVE_RETIRE, post(retire_drive))
        .route(api::NODE_EVACUATE, post(evacuate_node))
        .route(api::DRIVE_REMOVE, post(remove_drive))
        .route(api::POOL_SETTINGS, post(set_pool))
        .route(api::POOL_SETTINGS_PREVIEW, post(preview_pool_settings))
        .route(api::NODE_PLACE, post(set_place))
        .route(api::JOIN_TOKEN, get(list_join_tokens).post(make_join_token))
        .route(api::JOIN_TOKEN_OF, delete(delete_join_token))
        .route(api::SERVER_REMOVE, post(remove_server))
        .route(api::STATE_BACKUP, get(back_up_state))
        .route(api::SETTLE, post(settle))
        .route(api::ACCESS, get(list_access).post(create_access))
        .route(api::ACCESS_OF, delete(delete_access))
        .route_layer(allowed(Role::Administer));
    let among_servers = Router::new()
        .route(api::NODE_REPORT, get(report_node))
        .route(api::NODE_LOAD, get(get_load_here))
        .route(api::NODE_SCRUB, post(scrub_here))
        .route(api::NODE_HAND_OVER, post(hand_over_here))
        .route(api::NODE_GROW, post(grow_volume_here))
        .route(api::NODE_LET_GO, post(let_go_here))
        .route(api::SERVER_HERE, get(get_server_here))
        .route(api::SERVER_HERE_RESTART, post(restart_here))
        .route(api::SERVER_HERE_STOP, post(stop_here))
        .route(api::NODE_VOLUMES, post(create_volume_here))
        .route(api::NODE_VOLUME, delete(delete_volume_here))
        .route(api::NODE_VM_CONSOLE, get(vm_requests::open_console_here))
        .route(api::NODE_VM_INCOMING, get(vm_requests::open_incoming_here))
        .route_layer(from_fn_with_state(Arc::clone(&cluster), check_server));
    // Whoever wants to join has no role yet, but a secret; whoever has left has none any more.
    let anybody = Router::new().route(api::JOIN, post(admit)).route(api::STANDING, get(get_standing));
    let all = read.merge(operate).merge(administer).merge(among_servers).merge(anybody);
    all.fallback(unknown_path).with_state(cluster)
}

/// Lets a request pass if its sender may ask for it.
async fn check_role(
    State((cluster, needed)): State<(Arc<Administration>, Role)>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    if !matches!(caller, Caller::Here) {
        let bearer = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = bearer.and_then(|text| text.strip_prefix("Bearer "));
        let granted = cluster.role_of(token).await?;
        if let Caller::Stranger(proof) = &caller {
            proof.give();
        }
        if granted < needed {
            return Err(Refusal(Error::new(
                "ACCESS_DENIED",
                "this is not allowed with the token that was shown",
                format!("its role is {granted}, and this needs {needed}"),
                "ask somebody who administers the cluster, or use another token",
            )));
        }
    }
    Ok(next.run(request).await)
}

/// Lets a request pass that servers send to nodes.
async fn check_server(
    State(cluster): Cluster,
    ConnectInfo(caller): ConnectInfo<Caller>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let may_ask = match caller {
        Caller::Here => true,
        Caller::Server(server) => cluster.has_server(server).await?,
        Caller::Stranger(_) => false,
    };
    if may_ask {
        return Ok(next.run(request).await);
    }
    Err(Refusal(not_for_strangers()))
}

fn not_for_strangers() -> Error {
    Error::new(
        "ACCESS_DENIED",
        "this is what only the cluster's servers ask each other",
        "the sender is none of them, as far as the cluster's state knows",
        "use the requests that are for everybody",
    )
}

async fn get_status(State(cluster): Cluster) -> Answer<ClusterStatus> {
    Ok(Json(cluster.status().await?))
}

async fn list_volumes(State(cluster): Cluster) -> Answer<Vec<VolumeStatus>> {
    Ok(Json(cluster.facts().await?.volumes()))
}

async fn create_volume(
    State(cluster): Cluster,
    create: Result<Json<VolumeCreate>, JsonRejection>,
) -> Answer<VolumeCreateAnswer> {
    let Json(create) = create.map_err(invalid)?;
    Ok(Json(cluster.create_volume(create).await?))
}

async fn get_volume(State(cluster): Cluster, Path(name): Path<String>) -> Answer<VolumeStatus> {
    Ok(Json(cluster.volume(&name).await?))
}

async fn delete_volume(
    State(cluster): Cluster,
    Path(name): Path<String>,
    Query(query): Query<DeleteQuery>,
) -> Answer<()> {
    Ok(Json(cluster.delete_volume(&name, query.force).await?))
}

async fn get_volume_deletion(State(cluster): Cluster, Path(name): Path<String>) -> Answer<VolumeDeletion> {
    Ok(Json(cluster.volume_deletion(&name).await?))
}

async fn check_volume(
    State(cluster): Cluster,
    Path(name): Path<String>,
    Query(query): Query<CheckQuery>,
) -> Result<Response, Refusal> {
    if !cluster.volume_names().await?.contains(&name) {
        return Err(volume_not_found(&name).into());
    }
    Ok(check(cluster, vec![name], query.heal))
}

async fn scrub(State(cluster): Cluster) -> Result<Response, Refusal> {
    let volumes = cluster.volume_names().await?;
    Ok(check(cluster, volumes, true))
}

async fn get_pool(State(cluster): Cluster) -> Answer<PoolDetails> {
    Ok(Json(cluster.pool().await?))
}

async fn optimize_pool(
    State(cluster): Cluster,
    request: Result<Json<Optimize>, JsonRejection>,
) -> Answer<Optimized> {
    let Json(request) = request.map_err(invalid)?;
    Ok(Json(cluster.optimize(request).await?))
}

async fn set_pool(
    State(cluster): Cluster,
    change: Result<Json<PoolSettingsChange>, JsonRejection>,
) -> Answer<PoolSettings> {
    let Json(change) = change.map_err(invalid)?;
    Ok(Json(cluster.set_pool(change).await?))
}

async fn preview_pool_settings(
    State(cluster): Cluster,
    change: Result<Json<PoolSettingsChange>, JsonRejection>,
) -> Answer<PoolSettingsPreview> {
    let Json(change) = change.map_err(invalid)?;
    Ok(Json(cluster.preview_pool_settings(change).await?))
}

async fn list_scrubs(State(cluster): Cluster) -> Answer<Vec<ScrubStatus>> {
    Ok(Json(cluster.scrubs().await?))
}

async fn list_nodes(State(cluster): Cluster) -> Answer<Vec<NodeStatus>> {
    Ok(Json(cluster.facts().await?.nodes()))
}

async fn get_node(State(cluster): Cluster, Path(name): Path<String>) -> Answer<NodeDetails> {
    Ok(Json(cluster.node_details(&name).await?))
}

async fn stop_node(
    State(cluster): Cluster,
    Path(name): Path<String>,
    stop: Result<Json<NodeStop>, JsonRejection>,
) -> Answer<NodeStatus> {
    let Json(stop) = stop.map_err(invalid)?;
    Ok(Json(cluster.stop_node(&name, stop).await?))
}

async fn start_node(State(cluster): Cluster, Path(name): Path<String>) -> Answer<NodeStatus> {
    Ok(Json(cluster.start_node(&name).await?))
}

async fn drain_node(
    State(cluster): Cluster,
    Path(name): Path<String>,
    drain: Result<Json<NodeDrain>, JsonRejection>,
) -> Answer<NodeDrained> {
    let Json(drain) = drain.map_err(invalid)?;
    Ok(Json(cluster.drain_node(&name, drain).await?))
}

async fn get_safety(State(cluster): Cluster, Path(name): Path<String>) -> Answer<NodeSafety> {
    Ok(Json(cluster.node_safety(&name).await?))
}

async fn get_maintenance(
    State(cluster): Cluster,
    Path(name): Path<String>,
) -> Answer<Option<MaintenanceProgress>> {
    Ok(Json(cluster.maintenance(&name).await?))
}

async fn resume_node(State(cluster): Cluster, Path(name): Path<String>) -> Answer<NodeStatus> {
    Ok(Json(cluster.resume_node(&name).await?))
}

async fn set_place(
    State(cluster): Cluster,
    Path(name): Path<String>,
    change: Result<Json<PlaceChange>, JsonRejection>,
) -> Answer<Place> {
    let Json(change) = change.map_err(invalid)?;
    Ok(Json(cluster.set_place(&name, change).await?))
}

async fn list_drives(State(cluster): Cluster) -> Answer<Vec<DriveStatus>> {
    Ok(Json(cluster.facts().await?.drives()))
}

async fn list_caches(State(cluster): Cluster) -> Answer<Vec<CacheDriveStatus>> {
    Ok(Json(cluster.facts().await?.cache_drives()))
}

async fn add_drive(
    State(cluster): Cluster,
    add: Result<Json<DriveAdd>, JsonRejection>,
) -> Answer<DriveAdded> {
    let Json(add) = add.map_err(invalid)?;
    Ok(Json(cluster.server()?.add_drive(add).await?))
}

async fn retire_drive(
    State(cluster): Cluster,
    Path(name): Path<String>,
    retire: Result<Json<DriveRetire>, JsonRejection>,
) -> Answer<DriveRetired> {
    let Json(retire) = retire.map_err(invalid)?;
    Ok(Json(cluster.retire_drive(&name, retire).await?))
}

async fn explain_volume(State(cluster): Cluster, Path(name): Path<String>) -> Answer<Explanation> {
    Ok(Json(cluster.explain_volume(&name).await?))
}

async fn explain_drive(State(cluster): Cluster, Path(name): Path<String>) -> Answer<Explanation> {
    Ok(Json(cluster.explain_drive(&name).await?))
}

async fn explain_node(State(cluster): Cluster, Path(name): Path<String>) -> Answer<Explanation> {
    Ok(Json(cluster.explain_node(&name).await?))
}

async fn explain_pool(State(cluster): Cluster) -> Answer<Explanation> {
    Ok(Json(cluster.explain_pool().await?))
}

async fn list_faults(State(cluster): Cluster) -> Answer<Vec<Fault>> {
    Ok(Json(cluster.faults().await?))
}

async fn evacuate_node(
    State(cluster): Cluster,
    Path(name): Path<String>,
    evacuate: Result<Json<NodeEvacuate>, JsonRejection>,
) -> Answer<NodeEvacuated> {
    let Json(evacuate) = evacuate.map_err(invalid)?;
    Ok(Json(cluster.evacuate_node(&name, evacuate).await?))
}

async fn remove_drive(
    State(cluster): Cluster,
    Path(name): Path<String>,
    remove: Result<Json<DriveRemove>, JsonRejection>,
) -> Answer<DriveRemoved> {
    let Json(remove) = remove.map_err(invalid)?;
    Ok(Json(cluster.remove_drive(&name, remove).await?))
}

async fn get_usage(State(cluster): Cluster) -> Answer<Usage> {
    Ok(Json(cluster.usage().await?))
}

async fn get_load(State(cluster): Cluster) -> Answer<ClusterLoad> {
    Ok(Json(cluster.load().await?))
}

async fn get_load_here(State(cluster): Cluster) -> Answer<NodeLoad> {
    Ok(Json(cluster.load_here().await?))
}

async fn report_node(State(cluster): Cluster) -> Answer<NodeReport> {
    Ok(Json(cluster.report_here().await?))
}

async fn get_state(State(cluster): Cluster) -> Answer<StateStatus> {
    Ok(Json(cluster.server()?.state_status().await?))
}

async fn scrub_here(
    State(cluster): Cluster,
    Path(volume): Path<VolumeId>,
    Query(query): Query<CheckQuery>,
) -> Result<Response, Refusal> {
    let node = cluster.node_here().await?;
    let (sender, lines) = mpsc::unbounded();
    tokio::spawn(async move {
        let (progress, steps) = mpsc::unbounded();
        let told = sender.clone();
        let tell = steps.for_each(move |step| {
            // Whoever wanted to know may have left.
            let _ = told.unbounded_send(NodeScrubLine::Progress(step));
            std::future::ready(())
        });
        let scrub = pin!(join(node.scrub_volume(volume, query.heal, progress), tell));
        // Nobody wants to know any more: whoever asked has left, and asks anew if it wants to.
        let gone = pin!(closed(&sender));
        let found = match select(scrub, gone).await {
            Either::Left(((found, ()), _)) => found,
            Either::Right(_) => return,
        };
        let line = match found {
            Ok(found) => NodeScrubLine::Done(found.into()),
            Err(error) => NodeScrubLine::Failed(error),
        };
        let _ = sender.unbounded_send(line);
    });
    Ok(stream(lines))
}

/// Completes when nobody receives any more.
async fn closed<T>(sender: &mpsc::UnboundedSender<T>) {
    while !sender.is_closed() {
        tokio::time::sleep(GONE_INTERVAL).await;
    }
}

async fn hand_over_here(
    State(cluster): Cluster,
    hand_over: Result<Json<NodeHandOver>, JsonRejection>,
) -> Answer<()> {
    let Json(hand_over) = hand_over.map_err(invalid)?;
    Ok(Json(cluster.node_here().await?.hand_over(hand_over.volume, hand_over.to).await?))
}

async fn grow_volume_here(
    State(cluster): Cluster,
    growth: Result<Json<VolumeGrowth>, JsonRejection>,
) -> Answer<VolumeGrown> {
    let Json(growth) = growth.map_err(invalid)?;
    Ok(Json(cluster.node_here().await?.grow_volume(growth).await?))
}

async fn let_go_here(State(cluster): Cluster, let_go: Result<Json<NodeLetGo>, JsonRejection>) -> Answer<()> {
    let Json(NodeLetGo { drive }) = let_go.map_err(invalid)?;
    Ok(Json(cluster.server()?.let_go(drive).await?))
}

async fn create_volume_here(
    State(cluster): Cluster,
    creation: Result<Json<VolumeCreation>, JsonRejection>,
) -> Answer<VolumeCreated> {
    let Json(creation) = creation.map_err(invalid)?;
    Ok(Json(cluster.node_here().await?.create_volume(creation).await?))
}

async fn delete_volume_here(State(cluster): Cluster, Path(name): Path<String>) -> Answer<()> {
    Ok(Json(cluster.node_here().await?.delete_volume(name).await?))
}

async fn move_volume(
    State(cluster): Cluster,
    Path(name): Path<String>,
    to: Result<Json<VolumeMove>, JsonRejection>,
) -> Answer<VolumeStatus> {
    let Json(to) = to.map_err(invalid)?;
    Ok(Json(cluster.move_volume(&name, &to.owner).await?))
}

async fn set_volume(
    State(cluster): Cluster,
    Path(name): Path<String>,
    change: Result<Json<VolumeSettingsChange>, JsonRejection>,
) -> Answer<VolumeStatus> {
    let Json(change) = change.map_err(invalid)?;
    Ok(Json(cluster.set_volume(&name, change).await?))
}

async fn resize_volume(
    State(cluster): Cluster,
    Path(name): Path<String>,
    resize: Result<Json<VolumeResize>, JsonRejection>,
) -> Answer<VolumeResized> {
    let Json(resize) = resize.map_err(invalid)?;
    Ok(Json(cluster.resize_volume(&name, resize).await?))
}

async fn admit(
    State(cluster): Cluster,
    request: Result<Json<JoinRequest>, JsonRejection>,
) -> Answer<JoinAnswer> {
    let Json(request) = request.map_err(invalid)?;
    Ok(Json(cluster.server()?.admit(&request).await?))
}

async fn remove_server(
    State(cluster): Cluster,
    Path(name): Path<String>,
    remove: Result<Json<ServerRemove>, JsonRejection>,
) -> Answer<ServerRemoved> {
    let Json(remove) = remove.map_err(invalid)?;
    Ok(Json(cluster.remove_server(&name, remove).await?))
}

async fn list_servers(State(cluster): Cluster) -> Answer<Vec<ServerStatus>> {
    Ok(Json(cluster.servers().await?))
}

async fn get_server_here(State(cluster): Cluster) -> Answer<ServerRun> {
    Ok(Json(cluster.run_here()?))
}

async fn restart_server(
    State(cluster): Cluster,
    Path(name): Path<String>,
    restart: Result<Json<ServerRestart>, JsonRejection>,
) -> Answer<ServerRestarting> {
    let Json(restart) = restart.map_err(invalid)?;
    Ok(Json(cluster.restart_server(&name, restart).await?))
}

async fn restart_here(
    State(cluster): Cluster,
    restart: Result<Json<ServerRestart>, JsonRejection>,
) -> Answer<ServerRestarting> {
    let Json(restart) = restart.map_err(invalid)?;
    Ok(Json(cluster.restart_here(restart).await?))
}

async fn stop_here(State(cluster): Cluster) -> Answer<()> {
    Ok(Json(cluster.end_here()?))
}

async fn back_up_state(State(cluster): Cluster) -> Answer<StateBackup> {
    Ok(Json(cluster.back_up().await?))
}

async fn settle(
    State(cluster): Cluster,
    settle: Result<Json<Settle>, JsonRejection>,
) -> Answer<SettleStatus> {
    let Json(settle) = settle.map_err(invalid)?;
    Ok(Json(cluster.settle(&settle).await?))
}

async fn get_standing(State(cluster): Cluster, ConnectInfo(caller): ConnectInfo<Caller>) -> Answer<Standing> {
    match caller {
        Caller::Server(server) => Ok(Json(cluster.standing(server).await?)),
        Caller::Here => Ok(Json(Standing { is_removed: false })),
        Caller::Stranger(_) => Err(Refusal(not_for_strangers())),
    }
}

async fn make_join_token(State(cluster): Cluster) -> Answer<JoinTokenAnswer> {
    Ok(Json(JoinTokenAnswer { token: cluster.server()?.join_token().await?.to_string() }))
}

async fn list_join_tokens(State(cluster): Cluster) -> Answer<Vec<JoinTokenStatus>> {
    Ok(Json(cluster.list_joins().await?))
}

async fn delete_join_token(State(cluster): Cluster, Path(id): Path<String>) -> Answer<()> {
    Ok(Json(cluster.delete_join(&id).await?))
}

async fn list_access(State(cluster): Cluster) -> Answer<Vec<Access>> {
    Ok(Json(cluster.list_access().await?))
}

async fn create_access(
    State(cluster): Cluster,
    create: Result<Json<AccessCreate>, JsonRejection>,
) -> Answer<AccessCreated> {
    let Json(create) = create.map_err(invalid)?;
    let authority = cluster.server()?.fingerprint()?;
    Ok(Json(cluster.create_access(create, authority).await?))
}

async fn delete_access(State(cluster): Cluster, Path(name): Path<String>) -> Answer<()> {
    Ok(Json(cluster.delete_access(&name).await?))
}

async fn unknown_path() -> Refusal {
    Refusal(Error::new(
        "PATH_NOT_FOUND",
        "the cluster does not know this request",
        "it has no such path, or not in this version",
        "use the version of spandrel that the cluster was started with",
    ))
}

pub(super) fn invalid(rejection: JsonRejection) -> Refusal {
    Refusal(Error::new(
        "REQUEST_INVALID",
        "the request cannot be understood",
        rejection.body_text(),
        "see docs/guide/up.md for what the admin API takes",
    ))
}

/// Checks volumes one after the other and answers with a line for each thing that there is to tell.
fn check(cluster: Arc<Administration>, volumes: Vec<String>, heal: bool) -> Response {
    let (sender, lines) = mpsc::unbounded();
    tokio::spawn(async move {
        for volume in volumes {
            let line = match cluster.check_volume(&volume, heal, &sender).await {
                Ok(report) => CheckLine::Report(report),
                // Deleted since the list was made.
                Err(error) if error.code == "VOLUME_NOT_FOUND" => continue,
                Err(error) => CheckLine::Failed(error),
            };
            if sender.unbounded_send(line).is_err() {
                // Nobody listens any more.
                return;
            }
        }
    });
    stream(lines)
}

/// An answer that goes on as long as there are lines. Where there is none for long an empty one says that there is
/// somebody still.
fn stream<T: Serialize + Send + 'static>(lines: mpsc::UnboundedReceiver<T>) -> Response {
    let lines = futures_util::stream::unfold(lines, |mut lines| async move {
        let text = match tokio::time::timeout(LINE_INTERVAL_MAX, lines.next()).await {
            Ok(line) => serde_json::to_vec(&line?).expect("lines are plain data"),
            Err(_) => Vec::new(),
        };
        let text = Bytes::from([&text[..], b"\n"].concat());
        Some((Ok::<_, std::convert::Infallible>(text), lines))
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "roles_tests.rs"]
mod roles_tests;
