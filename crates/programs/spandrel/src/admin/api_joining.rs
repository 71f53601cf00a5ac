//! What the admin API says of servers that join the cluster, and of those that leave it.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use spandrel_shared::{DriveId, NodeId};
use spandrel_trust::Secret;

/// A server that wants to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// What shows that it may.
    pub secret: Secret,
    /// The identity that it has chosen.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// The first of its ports, at each of its addresses.
    pub listen: Vec<SocketAddr>,
    /// Its public key: the point on the curve P-256, uncompressed.
    pub key: Vec<u8>,
    /// Whether it has no drives and only helps to keep the cluster's state.
    pub witness: bool,
    /// Whether it has an etcd with which it could help to keep the state.
    #[serde(default)]
    pub has_etcd: bool,
}

/// What a server that has joined needs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinAnswer {
    /// The cluster's name.
    pub cluster_name: String,
    /// The certificate of its authority.
    pub authority_pem: String,
    /// The authority's private key, with which a node lets others join. Witnesses do not get it.
    pub authority_key_pem: Option<String>,
    /// The server's certificate.
    pub certificate_pem: String,
    /// Whether the cluster's own servers keep its state.
    pub state_is_own: bool,
    /// Where the members that keep it answer clients.
    pub state_endpoints: Vec<String>,
    /// With what servers prove who they are to members that others keep.
    #[serde(default)]
    pub state_identity: Option<StateIdentity>,
}

/// The authority's key is in no log.
impl fmt::Debug for JoinAnswer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "JoinAnswer({})", self.cluster_name)
    }
}

/// With what servers prove who they are to an etcd that others keep, and know its members. All in PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateIdentity {
    /// The certificate of the authority that has signed for the members.
    pub authority_pem: String,
    /// A certificate that the members let in.
    pub certificate_pem: String,
    /// Its private key.
    pub key_pem: String,
}

/// Keys are in no log.
impl fmt::Debug for StateIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("StateIdentity")
    }
}

/// A token that lets servers join.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinTokenAnswer {
    /// The token.
    pub token: String,
}

/// A token that lets servers join, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinTokenStatus {
    /// By what it is named.
    pub id: String,
    /// When it was made.
    pub created_unix_ms: u64,
    /// From when on it lets nobody join any more.
    pub expires_unix_ms: u64,
}

/// A server that is to leave the cluster for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRemove {
    /// Whether it is a witness.
    pub witness: bool,
    /// Only say what would be done, or what stands against it.
    #[serde(default)]
    pub dry_run: bool,
}

/// A server that has left the cluster, or would.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRemoved {
    /// Its name.
    pub name: String,
    /// Its drives, which leave the pool with it.
    pub drives: Vec<DriveId>,
}

/// Whether the server that asks belongs to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// It has left for good.
    pub is_removed: bool,
}

/// Tokens are in no log.
impl fmt::Debug for JoinTokenAnswer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JoinTokenAnswer")
    }
}
