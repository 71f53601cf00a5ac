//! The admin API over HTTP.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_channel::mpsc;
use futures_util::StreamExt;
use spandrel_shared::Error;

use crate::api::{
    self, CheckLine, CheckQuery, CheckReport, ClusterStatus, DeleteQuery, DriveStatus, NodeStatus, NodeStop,
    Usage, VolumeCreate, VolumeCreateAnswer, VolumeStatus,
};
use crate::cluster::{LocalCluster, volume_not_found};

type Cluster = State<Arc<LocalCluster>>;
type Answer<T> = Result<Json<T>, Refusal>;

/// An error as a response.
struct Refusal(Error);

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
        "NAME_INVALID" | "SIZE_ZERO" | "SIZE_UNALIGNED" | "COPIES_INVALID" | "VOLUME_INVALID"
        | "OWNER_UNKNOWN" | "REQUEST_INVALID" => StatusCode::BAD_REQUEST,
        "VOLUME_NOT_FOUND" | "NODE_NOT_FOUND" | "PATH_NOT_FOUND" => StatusCode::NOT_FOUND,
        "VOLUME_EXISTS" | "VOLUME_IN_USE" | "NODE_RUNNING" | "NODE_NOT_RUNNING" | "POOL_CHANGED"
        | "TOO_FEW_NODES" | "OWNER_OFFLINE" | "LAST_COPY" => StatusCode::CONFLICT,
        "POOL_FULL" => StatusCode::INSUFFICIENT_STORAGE,
        "NODE_STOPPED" | "STATE_UNAVAILABLE" | "COPY_NOT_MADE" | "VOLUME_NOT_SERVED" | "NOT_OWNER" => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// All paths.
pub fn router(cluster: Arc<LocalCluster>) -> Router {
    Router::new()
        .route(api::STATUS, get(get_status))
        .route(api::VOLUMES, get(list_volumes).post(create_volume))
        .route(api::VOLUME, get(get_volume).delete(delete_volume))
        .route(api::VOLUME_CHECK, post(check_volume))
        .route(api::NODES, get(list_nodes))
        .route(api::NODE_STOP, post(stop_node))
        .route(api::NODE_START, post(start_node))
        .route(api::DRIVES, get(list_drives))
        .route(api::SCRUB, get(list_checks).post(scrub))
        .route(api::USAGE, get(get_usage))
        .fallback(unknown_path)
        .with_state(cluster)
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
    let volumes = cluster.facts().await?.volumes();
    let volume = volumes.into_iter().find(|volume| volume.name == name);
    Ok(Json(volume.ok_or_else(|| volume_not_found(&name))?))
}

async fn delete_volume(
    State(cluster): Cluster,
    Path(name): Path<String>,
    Query(query): Query<DeleteQuery>,
) -> Answer<()> {
    Ok(Json(cluster.delete_volume(&name, query.force).await?))
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

async fn list_checks(State(cluster): Cluster) -> Answer<Vec<CheckReport>> {
    Ok(Json(cluster.checks()))
}

async fn list_nodes(State(cluster): Cluster) -> Answer<Vec<NodeStatus>> {
    Ok(Json(cluster.facts().await?.nodes()))
}

async fn stop_node(
    State(cluster): Cluster,
    Path(name): Path<String>,
    stop: Result<Json<NodeStop>, JsonRejection>,
) -> Answer<NodeStatus> {
    let Json(stop) = stop.map_err(invalid)?;
    Ok(Json(cluster.stop_node(&name, stop.abrupt).await?))
}

async fn start_node(State(cluster): Cluster, Path(name): Path<String>) -> Answer<NodeStatus> {
    Ok(Json(cluster.start_node(&name).await?))
}

async fn list_drives(State(cluster): Cluster) -> Answer<Vec<DriveStatus>> {
    Ok(Json(cluster.facts().await?.drives()))
}

async fn get_usage(State(cluster): Cluster) -> Json<Usage> {
    Json(cluster.usage().await)
}

async fn unknown_path() -> Refusal {
    Refusal(Error::new(
        "PATH_NOT_FOUND",
        "the cluster does not know this request",
        "it has no such path, or not in this version",
        "use the version of spandrel that the cluster was started with",
    ))
}

fn invalid(rejection: JsonRejection) -> Refusal {
    Refusal(Error::new(
        "REQUEST_INVALID",
        "the request cannot be understood",
        rejection.body_text(),
        "see docs/guide/up.md for what the admin API takes",
    ))
}

/// Checks volumes one after the other and answers with a line for each thing that there is to tell.
fn check(cluster: Arc<LocalCluster>, volumes: Vec<String>, heal: bool) -> Response {
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
    let lines = lines.map(|line| {
        let mut text = serde_json::to_vec(&line).expect("lines are plain data");
        text.push(b'\n');
        Ok::<_, std::convert::Infallible>(Bytes::from(text))
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
