//! Taking a server out of the cluster for good, and a server's learning that this has happened to it.
//!
//! What a server may do rests on three things: the cluster's state knows it, which other nodes and the admin API look
//! at; its certificate, which etcd looks at and which the list of revoked ones takes back; and its member of etcd,
//! which the others remove. All follow from the tombstone in the state.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spandrel_cluster::servers::removed;
use spandrel_cluster::store::StoreErrorKind;
use spandrel_cluster::{ClusterState, NodeRecord, StateError, StateKey, WitnessRecord};
use spandrel_shared::{Error, NodeId};
use spandrel_state_etcd::EtcdState;
use spandrel_trust::Credentials;

use super::Port;
use super::settings::{ServerSettings, StatePlace};
use crate::admin::administration::{state_error, unix_ms};
use crate::admin::api::{self, ServerRemove, ServerRemoved, Standing};
use crate::admin::http::{HttpClient, Place};
use crate::admin::retire::check_none_waits;
use crate::node_state::NodeState;

/// How often a removal is begun anew when something else changes at the same time.
const REMOVAL_TRIES: u32 = 16;

/// How long it may take until etcd counts on members that have just started: it wants to have seen them for five
/// seconds.
const MEMBERS_SETTLED_AFTER: Duration = Duration::from_secs(8);

/// How often it is asked until then.
const MEMBERS_PAUSE: Duration = Duration::from_millis(250);

/// How long the others may take to say whether this server still belongs to them.
const STANDING_TIME_MAX: Duration = Duration::from_secs(3);

/// Takes the server called `name` out of the cluster, or says whether that can be done. `own` is the one that is
/// asked, `etcd` keeps the state if the servers do that themselves.
pub async fn remove(
    state: &ClusterState<NodeState>,
    etcd: Option<&EtcdState>,
    own: NodeId,
    name: &str,
    request: ServerRemove,
) -> Result<ServerRemoved, Error> {
    let server = find(state, name, request.witness).await?;
    if server == own {
        return Err(Error::new(
            "SERVER_IS_THIS_ONE",
            format!("the server {name} is not removed"),
            "it is the one that was asked",
            "stop it, and ask another server of the cluster",
        ));
    }
    if !request.witness {
        let generation = state.cluster().await.map_err(state_error)?.map(|stored| stored.record.generation);
        let waiting = state.unsettled(generation.unwrap_or_default()).await.map_err(state_error)?;
        check_none_waits(&format!("the node {name} is not removed"), &waiting)?;
    }
    if let Some(etcd) = etcd
        && !request.dry_run
    {
        state.remove_server(server, unix_ms(), true).await.map_err(state_error)?;
        remove_member(etcd, server, name).await?;
    }
    for _ in 0..REMOVAL_TRIES {
        match state.remove_server(server, unix_ms(), request.dry_run).await {
            Ok(Some(removal)) => {
                if !request.dry_run {
                    tracing::warn!("the server {name} was removed from the cluster");
                }
                return Ok(ServerRemoved { name: name.to_owned(), drives: removal.drives });
            }
            // Somebody else has done it meanwhile.
            Ok(None) => return Ok(ServerRemoved { name: name.to_owned(), drives: Vec::new() }),
            Err(StateError::Conflict) => {}
            Err(error) => return Err(state_error(error)),
        }
    }
    Err(state_error(StateError::Conflict))
}

/// Takes a server's vote on the state. That comes before the tombstone: once that is there, nobody speaks with the
/// server any more, and if its vote were needed for a majority nothing could be changed ever again.
async fn remove_member(etcd: &EtcdState, server: NodeId, name: &str) -> Result<(), Error> {
    let members = etcd.list_members().await.map_err(|error| state_error(error.into()))?;
    let is_its = |member: &&spandrel_state_etcd::MemberDescription| member.name.parse() == Ok(server);
    let Some(member) = members.iter().find(is_its) else { return Ok(()) };
    let refuse = |why: String, next: &str| {
        Err(Error::new("STATE_MAJORITY_NEEDED", format!("the server {name} is not removed"), why, next))
    };
    let votes_left = members.iter().filter(|other| !other.is_learner && other.id != member.id).count();
    if votes_left == 0 {
        let next = "add another node or a witness first: of three servers each has a vote";
        return refuse("it alone keeps the cluster's state".to_owned(), next);
    }
    let deadline = Instant::now() + MEMBERS_SETTLED_AFTER;
    let removed = loop {
        match etcd.remove_member(member.id).await {
            Err(error) if error.kind == StoreErrorKind::Unavailable && Instant::now() < deadline => {
                tokio::time::sleep(MEMBERS_PAUSE).await;
            }
            removed => break removed,
        }
    };
    match removed {
        Err(error) if error.kind == StoreErrorKind::Unavailable => refuse(
            format!(
                "it votes on the cluster's state, and of the {votes_left} others that do too few run ({error})"
            ),
            "start the servers that vote and are away (`spandrel cluster state`), and do it again",
        ),
        removed => removed.map_err(|error| state_error(error.into())),
    }
}

async fn find(state: &ClusterState<NodeState>, name: &str, witness: bool) -> Result<NodeId, Error> {
    let known: Vec<(NodeId, String)> = if witness {
        let witnesses = state.witnesses().await.map_err(state_error)?;
        witnesses.into_iter().map(|(id, stored)| (id, stored.record.name)).collect()
    } else {
        let nodes = state.nodes().await.map_err(state_error)?;
        nodes.into_iter().map(|(id, stored)| (id, stored.record.name)).collect()
    };
    let found = known.iter().find(|(_, known)| known == name).map(|(id, _)| *id);
    found.ok_or_else(|| {
        let kind = if witness { "witness" } else { "node" };
        let mut names: Vec<&str> = known.iter().map(|(_, name)| name.as_str()).collect();
        names.sort_unstable();
        let why = match names.is_empty() {
            true => format!("the cluster has no {kind}"),
            false => format!("of this kind the cluster has {}", names.join(", ")),
        };
        Error::new("SERVER_NOT_FOUND", format!("there is no {kind} {name:?}"), why, "use one of its names")
    })
}

/// Refuses to run a server that the state says has left, or does not know.
pub async fn check_belongs(
    state: &ClusterState<NodeState>,
    settings: &ServerSettings,
) -> Result<(), StateError> {
    if state.is_removed(settings.node).await? {
        return Err(removed(&settings.name).into());
    }
    let is_known = match settings.witness {
        true => state.get::<WitnessRecord>(&StateKey::Witness(settings.node)).await?.is_some(),
        false => state.get::<NodeRecord>(&StateKey::Node(settings.node)).await?.is_some(),
    };
    match is_known {
        true => Ok(()),
        false => Err(unknown(&settings.name).into()),
    }
}

fn unknown(name: &str) -> Error {
    Error::new(
        "SERVER_UNKNOWN",
        format!("the server {name} cannot be started"),
        "the cluster's state does not know it: it has joined after the backup was made of which the state was recovered",
        "let it join anew, with a new directory; its drives need `spandrel drive clean` before",
    )
}

/// Refuses to run a server of which the others say that it has left: etcd does not speak with it any more. Nothing
/// is said against it if they do not answer.
pub async fn check_others_know(settings: &ServerSettings, credentials: &Credentials) -> Result<(), Error> {
    let place = Place::Addresses {
        addresses: admin_addresses(settings),
        tls: Arc::new(credentials.client()?),
        name: credentials.common_name()?,
    };
    let client = HttpClient::new(place, None);
    let asked = client.get::<Standing>(api::STANDING);
    match tokio::time::timeout(STANDING_TIME_MAX, asked).await {
        Ok(Ok(Standing { is_removed: true })) => Err(removed(&settings.name)),
        _ => Ok(()),
    }
}

/// Where the other servers that keep the state answer the admin API: it has a port beside that of etcd.
fn admin_addresses(settings: &ServerSettings) -> Vec<SocketAddr> {
    let StatePlace::Own { endpoints, .. } = &settings.state else { return Vec::new() };
    let own = settings.addresses(Port::Admin);
    let others = endpoints.iter().filter_map(|url| {
        let mut address: SocketAddr = url.rsplit_once("//")?.1.parse().ok()?;
        let distance = Port::StateClients.at(address).port() - Port::Admin.at(address).port();
        address.set_port(address.port().checked_sub(distance)?);
        Some(address)
    });
    others.filter(|address| !own.contains(address)).collect()
}
