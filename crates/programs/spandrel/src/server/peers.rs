//! The nodes of a cluster of servers: the one of this process on its thread, the others at their admin APIs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use spandrel_cluster::{ClusterState, NodeRecord, WitnessRecord};
use spandrel_node::NodeReport;
use spandrel_shared::{Error, NodeId};

use super::Port;
use crate::admin::administration::state_error;
use crate::admin::http::{HttpClient, Place};
use crate::admin::nodes::{NodeAccess, NodeEntry, Nodes};
use crate::admin::servers::{ServerAccess, ServerEntry};
use crate::node_state::NodeState;
use crate::running_node::NodeHandle;

/// The nodes of the cluster, as one of its servers sees them.
pub struct Peers {
    /// The cluster's state.
    pub state: ClusterState<NodeState>,
    /// The node of this process, if it is one.
    pub own: Option<(NodeId, NodeHandle)>,
    /// With what this server proves who it is.
    pub tls: Arc<ClientConfig>,
    /// The name in every server's certificate.
    pub name: ServerName<'static>,
}

impl Peers {
    async fn entries(&self) -> Result<Vec<NodeEntry>, Error> {
        let nodes = self.state.nodes().await.map_err(state_error)?;
        let alive = self.state.alive().await.map_err(state_error)?;
        let mut nodes: Vec<(NodeId, NodeRecord)> =
            nodes.into_iter().map(|(id, stored)| (id, stored.record)).collect();
        nodes.sort_by_key(|(id, record)| (record.joined_unix_ms, *id));
        let entry = |(id, record): (NodeId, NodeRecord)| {
            let access = match &self.own {
                Some((own, handle)) if *own == id => Some(NodeAccess::Here(handle.clone())),
                // Each of its shards is in the process that answers.
                _ if alive.keys().any(|shard| shard.node == id) => {
                    Some(NodeAccess::There(self.client(&record.addresses)))
                }
                _ => None,
            };
            NodeEntry { name: record.name, id, nbd_addresses: Vec::new(), access }
        };
        Ok(nodes.into_iter().map(entry).collect())
    }

    /// All servers, witnesses first, the nodes in the order in which they joined. `own` is this one.
    pub async fn servers(&self, own: NodeId) -> Result<Vec<ServerEntry>, Error> {
        let witnesses = self.state.witnesses().await.map_err(state_error)?;
        let nodes = self.state.nodes().await.map_err(state_error)?;
        let witnesses = witnesses.into_iter().map(|(id, stored)| {
            let WitnessRecord { name, addresses, joined_unix_ms, .. } = stored.record;
            (id, true, name, addresses, joined_unix_ms)
        });
        let nodes = nodes.into_iter().map(|(id, stored)| {
            let NodeRecord { name, addresses, joined_unix_ms, .. } = stored.record;
            (id, false, name, addresses, joined_unix_ms)
        });
        let mut servers: Vec<_> = witnesses.chain(nodes).collect();
        servers.sort_by_key(|(id, is_witness, _, _, joined_unix_ms)| (!is_witness, *joined_unix_ms, *id));
        let entry = |(id, is_witness, name, addresses, _): (NodeId, bool, String, Vec<String>, u64)| {
            let access = match id == own {
                true => ServerAccess::Here,
                false => ServerAccess::There(self.client(&addresses)),
            };
            ServerEntry { name, id, is_witness, access }
        };
        Ok(servers.into_iter().map(entry).collect())
    }

    /// Asks a server that listens at these addresses.
    fn client(&self, listen: &[String]) -> HttpClient {
        let listen = listen.iter().filter_map(|text| text.parse::<SocketAddr>().ok());
        let place = Place::Addresses {
            addresses: listen.map(|listen| Port::Admin.at(listen)).collect(),
            tls: Arc::clone(&self.tls),
            name: self.name.clone(),
        };
        HttpClient::new(place, None)
    }
}

impl Nodes for Peers {
    fn list(&self) -> BoxFuture<'_, Result<Vec<NodeEntry>, Error>> {
        self.entries().boxed()
    }

    fn drive_name(&self, node: &str, location: &str) -> Option<String> {
        drive_name(node, location)
    }

    fn start<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        ready(Err(elsewhere(
            name,
            "started",
            "start it on its server: `spandrel node run`, or the service that does that",
        )))
        .boxed()
    }

    fn stop<'a>(&'a self, name: &'a str, _: bool) -> BoxFuture<'a, Result<Option<NodeReport>, Error>> {
        // In order it is ended by its server.
        ready(Err(elsewhere(
            name,
            "stopped",
            "kill it on its server (SIGKILL, with its member of etcd), or leave --abrupt out",
        )))
        .boxed()
    }
}

/// What a drive is called that `node` has at `location`: the node's name, and that of the file or device.
pub fn drive_name(node: &str, location: &str) -> Option<String> {
    let file = Path::new(location).file_name()?.to_str()?;
    Some(format!("{node}/{}", file.strip_suffix(".drive").unwrap_or(file)))
}

fn elsewhere(name: &str, what: &str, next: &str) -> Error {
    Error::new(
        "NODE_IS_A_PROCESS",
        format!("node {name} cannot be {what} like this"),
        "it is a process of its own, on its own server",
        next,
    )
}
