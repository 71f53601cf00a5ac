//! What a server can be asked that is not of the cluster as a whole.

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use spandrel_cluster::ClusterState;
use spandrel_shared::{DriveId, Error};
use spandrel_state_etcd::{EtcdState, client_endpoints};
use spandrel_trust::{Fingerprint, JoinToken};

use super::Port;
use super::admission::Admission;
use super::drives::{add_drive, let_go};
use super::peers::Peers;
use super::removal::remove;
use super::run::Orders;
use super::settings::StatePlace;
use super::state_member::{Servers, StateMemberKeeper};
use crate::admin::administration::{Server, state_error};
use crate::admin::api::{
    DriveAdd, DriveAdded, JoinAnswer, JoinRequest, ServerRemove, ServerRemoved, StateMember, StateStatus,
};
use crate::admin::picture::natural_order;
use crate::admin::servers::ServerEntry;
use crate::failure::system_error;
use crate::node_state::NodeState;
use crate::program::Program;
use crate::running_node::NodeHandle;

/// What this server can be asked.
pub struct OwnServer {
    pub(super) keeper: Arc<StateMemberKeeper>,
    /// None for a witness.
    pub(super) node: Option<NodeHandle>,
    pub(super) etcd: EtcdState,
    pub(super) state: ClusterState<NodeState>,
    pub(super) fingerprint: Fingerprint,
    /// None for a witness, which does not have the authority's key.
    pub(super) admission: Option<Admission>,
    pub(super) peers: Arc<Peers>,
    pub(super) orders: Arc<Orders>,
}

impl OwnServer {
    fn admission(&self) -> Result<&Admission, Error> {
        self.admission.as_ref().ok_or_else(not_a_node)
    }
}

fn not_a_node() -> Error {
    Error::new(
        "NOT_A_NODE",
        "a witness cannot do this",
        "it has no drives, and not what the cluster's nodes sign with",
        "ask a node of the cluster",
    )
}

impl Server for OwnServer {
    fn admit<'a>(&'a self, request: &'a JoinRequest) -> BoxFuture<'a, Result<JoinAnswer, Error>> {
        let admitted = async move {
            let endpoints = self.keeper.settings().state.endpoints().to_vec();
            self.admission()?.admit(request, endpoints).await
        };
        admitted.boxed()
    }

    fn join_token(&self) -> BoxFuture<'_, Result<JoinToken, Error>> {
        let made = async move {
            let addresses = self.keeper.settings().addresses(Port::Admin);
            self.admission()?.join_token(addresses).await
        };
        made.boxed()
    }

    fn remove<'a>(
        &'a self,
        name: &'a str,
        request: ServerRemove,
    ) -> BoxFuture<'a, Result<ServerRemoved, Error>> {
        let removed = async move {
            let settings = self.keeper.settings();
            let etcd = matches!(settings.state, StatePlace::Own { .. }).then_some(&self.etcd);
            remove(&self.state, etcd, settings.node, name, request).await
        };
        removed.boxed()
    }

    fn add_drive(&self, drive: DriveAdd) -> BoxFuture<'_, Result<DriveAdded, Error>> {
        let added = async move {
            let path = &drive.path;
            if !Path::new(path).is_absolute() {
                return Err(Error::new(
                    "DRIVE_PATH_INVALID",
                    format!("{path:?} cannot become a drive"),
                    "it is no path from the root on",
                    "name it like /dev/disk/by-id/… or /srv/d1.drive",
                ));
            }
            let node = self.node.clone().ok_or_else(not_a_node)?;
            let (keeper, state) = (Arc::clone(&self.keeper), self.state.clone());
            // Not to be left half-done by a client that leaves.
            let added = tokio::spawn(async move { add_drive(&node, &keeper, &state, &drive).await });
            added.await.unwrap_or_else(|error| Err(system_error("the drive", &std::io::Error::other(error))))
        };
        added.boxed()
    }

    fn let_go(&self, drive: DriveId) -> BoxFuture<'_, Result<(), Error>> {
        let gone = async move {
            let node = self.node.clone().ok_or_else(not_a_node)?;
            let (keeper, state) = (Arc::clone(&self.keeper), self.state.clone());
            // Not to be left half-done by a client that leaves.
            let gone = tokio::spawn(async move { let_go(&node, &keeper, &state, drive).await });
            gone.await.unwrap_or_else(|error| Err(system_error("the drive", &std::io::Error::other(error))))
        };
        gone.boxed()
    }

    fn state_status(&self) -> BoxFuture<'_, Result<StateStatus, Error>> {
        let asked = async move {
            let members = self.etcd.list_members().await.map_err(|error| state_error(error.into()))?;
            let leader = self.etcd.leader().await.map_err(|error| state_error(error.into()))?;
            // One that has had its vote for a moment is asked, too.
            let endpoints = client_endpoints(&members);
            if matches!(self.keeper.settings().state, StatePlace::Own { .. }) && !endpoints.is_empty() {
                self.etcd.set_endpoints(&endpoints).await?;
            }
            let answering = self.etcd.answering_members().await.map_err(|error| state_error(error.into()))?;
            let servers = Servers::read(&self.state).await.map_err(state_error)?;
            let member = |member: spandrel_state_etcd::MemberDescription| {
                let server = member.name.parse().ok().filter(|id| servers.names.contains_key(id));
                StateMember {
                    name: server.and_then(|id| servers.names.get(&id).cloned()).unwrap_or(member.name),
                    server,
                    // One without a vote is not asked for anything.
                    runs: match member.is_learner {
                        false => answering.contains(&member.id),
                        true => server.is_some_and(|id| servers.is_awake(id)),
                    },
                    votes: !member.is_learner,
                    leads: leader == Some(member.id),
                    endpoints: member.client_urls,
                }
            };
            let mut members: Vec<StateMember> = members.into_iter().map(member).collect();
            members.sort_by_key(|member| natural_order(&member.name));
            Ok(StateStatus { members })
        };
        asked.boxed()
    }

    fn fingerprint(&self) -> Result<Fingerprint, Error> {
        Ok(self.fingerprint)
    }

    fn servers(&self) -> BoxFuture<'_, Result<Vec<ServerEntry>, Error>> {
        async move { self.peers.servers(self.keeper.settings().node).await }.boxed()
    }

    fn program(&self) -> &Program {
        &self.orders.program
    }

    fn begin_anew(&self) {
        self.orders.begin_anew.notify_one();
    }

    fn end(&self) {
        self.orders.end.notify_one();
    }
}
