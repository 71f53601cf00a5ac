//! What is asked of virtual machines over HTTP, for [`super::server`].

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hyper_util::rt::TokioIo;
use spandrel_shared::VmId;

use super::api::{self, VmCreate, VmHostStatus, VmMigrate, VmStatus, VmStop};
use super::nodes::Duplex;
use super::server::{Answer, Cluster, Refusal, invalid};

pub(super) async fn list_vms(State(cluster): Cluster) -> Answer<Vec<VmStatus>> {
    Ok(Json(cluster.vms().await?))
}

pub(super) async fn list_hosts(State(cluster): Cluster) -> Answer<Vec<VmHostStatus>> {
    Ok(Json(cluster.vm_hosts().await?))
}

pub(super) async fn create_vm(
    State(cluster): Cluster,
    create: Result<Json<VmCreate>, JsonRejection>,
) -> Answer<VmStatus> {
    let Json(create) = create.map_err(invalid)?;
    Ok(Json(cluster.create_vm(create).await?))
}

pub(super) async fn get_vm(State(cluster): Cluster, Path(name): Path<String>) -> Answer<VmStatus> {
    Ok(Json(cluster.vm(&name).await?))
}

pub(super) async fn delete_vm(State(cluster): Cluster, Path(name): Path<String>) -> Answer<()> {
    Ok(Json(cluster.delete_vm(&name).await?))
}

pub(super) async fn start_vm(State(cluster): Cluster, Path(name): Path<String>) -> Answer<VmStatus> {
    Ok(Json(cluster.start_vm(&name).await?))
}

pub(super) async fn stop_vm(
    State(cluster): Cluster,
    Path(name): Path<String>,
    stop: Result<Json<VmStop>, JsonRejection>,
) -> Answer<VmStatus> {
    let Json(stop) = stop.map_err(invalid)?;
    Ok(Json(cluster.stop_vm(&name, stop).await?))
}

pub(super) async fn migrate_vm(
    State(cluster): Cluster,
    Path(name): Path<String>,
    migrate: Result<Json<VmMigrate>, JsonRejection>,
) -> Answer<VmStatus> {
    let Json(migrate) = migrate.map_err(invalid)?;
    Ok(Json(cluster.migrate_vm(&name, migrate).await?))
}

pub(super) async fn open_console(
    State(cluster): Cluster,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    Ok(carry(cluster.open_console(&name).await?, request))
}

pub(super) async fn open_console_here(
    State(cluster): Cluster,
    Path(vm): Path<VmId>,
    request: Request,
) -> Result<Response, Refusal> {
    Ok(carry(cluster.node_here().await?.open_console(vm).await?, request))
}

pub(super) async fn open_incoming_here(
    State(cluster): Cluster,
    Path(vm): Path<VmId>,
    request: Request,
) -> Result<Response, Refusal> {
    Ok(carry(cluster.node_here().await?.open_incoming(vm).await?, request))
}

/// Has the request's connection carry a stream's bytes from then on.
fn carry(mut stream: Box<dyn Duplex>, mut request: Request) -> Response {
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(upgraded) = upgraded.await {
            // It ends when either side leaves.
            let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(upgraded), &mut stream).await;
        }
    });
    let headers = [(header::CONNECTION, "upgrade"), (header::UPGRADE, api::STREAM_PROTOCOL)];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}
