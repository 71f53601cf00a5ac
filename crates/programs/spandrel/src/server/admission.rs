//! Letting servers join.

use std::net::SocketAddr;

use spandrel_cluster::store::Expected;
use spandrel_cluster::{
    ClusterRecord, ClusterState, JoinRecord, NodeRecord, StateError, StateKey, Stored, WitnessRecord,
};
use spandrel_shared::Error;
use spandrel_shared::name::validate_name;
use spandrel_trust::{Authority, Fingerprint, Holder, JoinToken, Secret};

use super::Port;
use super::found::{JOIN_TIME, check_listen, holder_addresses};
use crate::admin::administration::{state_error, unix_ms};
use crate::admin::api::{JoinAnswer, JoinRequest};
use crate::node_state::NodeState;

/// The bytes of a point on the curve P-256, uncompressed.
const KEY_BYTES: usize = 65;

/// Lets servers join a cluster.
pub struct Admission {
    /// The cluster.
    pub cluster: ClusterRecord,
    /// Its state.
    pub state: ClusterState<NodeState>,
    /// What signs for its servers.
    pub authority: Authority,
    /// Whether the servers keep the state themselves.
    pub state_is_own: bool,
}

impl Admission {
    /// Makes a server one of the cluster's. Asked again by the same server it answers the same.
    pub async fn admit(
        &self,
        request: &JoinRequest,
        state_endpoints: Vec<String>,
    ) -> Result<JoinAnswer, Error> {
        self.check_secret(&request.secret).await?;
        validate_name("server", &request.name)?;
        check_listen(&request.listen)?;
        if request.key.len() != KEY_BYTES || request.key[0] != 4 {
            return Err(refuse_server(&request.name, "its public key is no point on the curve P-256"));
        }
        self.check_free(request).await?;
        let addresses = holder_addresses(&request.listen);
        let holder = Holder { node: request.node, key: &request.key, addresses: &addresses };
        let certificate_pem = self.authority.issue(&holder)?;
        self.put_record(request).await?;
        tracing::warn!("{} {} has joined", if request.witness { "witness" } else { "node" }, request.name);
        Ok(JoinAnswer {
            cluster_name: self.cluster.name.clone(),
            authority_pem: self.authority.certificate_pem().to_owned(),
            authority_key_pem: (!request.witness).then(|| self.authority.key_pem()),
            certificate_pem,
            state_is_own: self.state_is_own,
            state_endpoints,
        })
    }

    async fn check_secret(&self, secret: &Secret) -> Result<(), Error> {
        let key = StateKey::Join(secret.digest().to_string());
        let known: Option<Stored<JoinRecord>> = self.state.get(&key).await.map_err(state_error)?;
        let refuse = |why: &str| {
            Err(Error::new(
                "TOKEN_REFUSED",
                "this join token lets nobody join",
                why,
                "have a new one printed on a node of the cluster: `spandrel cluster join-token`",
            ))
        };
        match known {
            Some(known) if known.record.expires_unix_ms > unix_ms() => Ok(()),
            Some(_) => refuse("it has expired"),
            None => refuse("the cluster does not know it"),
        }
    }

    /// Refuses who would take the name, the identity or an address of another server.
    async fn check_free(&self, request: &JoinRequest) -> Result<(), Error> {
        let nodes = self.state.nodes().await.map_err(state_error)?;
        let witnesses = self.state.witnesses().await.map_err(state_error)?;
        let nodes = nodes.into_iter().map(|(id, stored)| (id, stored.record.name, stored.record.addresses));
        let witnesses =
            witnesses.into_iter().map(|(id, stored)| (id, stored.record.name, stored.record.addresses));
        let others: Vec<_> = nodes.chain(witnesses).filter(|(id, _, _)| *id != request.node).collect();
        if others.iter().any(|(_, name, _)| *name == request.name) {
            return Err(Error::new(
                "NAME_TAKEN",
                format!("no server can join as {:?}", request.name),
                "another one of the cluster has this name",
                "choose another name with --node-name",
            ));
        }
        let overlaps = |address: &String| {
            let known: Option<SocketAddr> = address.parse().ok();
            known.is_some_and(|known| {
                request
                    .listen
                    .iter()
                    .any(|own| own.ip() == known.ip() && own.port().abs_diff(known.port()) < Port::COUNT)
            })
        };
        if let Some((_, name, _)) = others.iter().find(|(_, _, addresses)| addresses.iter().any(overlaps)) {
            return Err(Error::new(
                "ADDRESS_TAKEN",
                format!("the server {} cannot join", request.name),
                format!("the server {name} has one of its addresses and ports"),
                "choose another address, or a port at least four away, with --listen",
            ));
        }
        if self.state.removed_nodes().await.map_err(state_error)?.contains(&request.node) {
            return Err(refuse_server(&request.name, "a server with its identity has left the cluster"));
        }
        Ok(())
    }

    /// Makes the server one of the cluster's; one that has asked before, with the same key, is it already.
    async fn put_record(&self, request: &JoinRequest) -> Result<(), Error> {
        let addresses: Vec<String> = request.listen.iter().map(ToString::to_string).collect();
        let (name, joined_unix_ms) = (request.name.clone(), unix_ms());
        let key_digest = Fingerprint::of(&request.key).to_string();
        let put = if request.witness {
            let key_digest = key_digest.clone();
            let record = WitnessRecord { name, addresses, joined_unix_ms, key_digest };
            self.state.put(&StateKey::Witness(request.node), Expected::Absent, record).await.map(drop)
        } else {
            let key_digest = Some(key_digest.clone());
            let record = NodeRecord { name, addresses, joined_unix_ms, key_digest };
            self.state.put(&StateKey::Node(request.node), Expected::Absent, record).await.map(drop)
        };
        match put {
            Ok(()) => Ok(()),
            Err(StateError::Conflict) => self.check_asked_before(request, &key_digest).await,
            Err(error) => Err(state_error(error)),
        }
    }

    /// Whether the server that has this identity is the one that asks.
    async fn check_asked_before(&self, request: &JoinRequest, key_digest: &str) -> Result<(), Error> {
        let known = if request.witness {
            let known: Option<Stored<WitnessRecord>> =
                self.state.get(&StateKey::Witness(request.node)).await.map_err(state_error)?;
            known.map(|known| known.record.key_digest)
        } else {
            let known: Option<Stored<NodeRecord>> =
                self.state.get(&StateKey::Node(request.node)).await.map_err(state_error)?;
            known.and_then(|known| known.record.key_digest)
        };
        match known {
            Some(known) if known == key_digest => Ok(()),
            _ => Err(refuse_server(&request.name, "another server has its identity")),
        }
    }

    /// Makes a token that lets servers join at `addresses`.
    pub async fn join_token(&self, addresses: Vec<SocketAddr>) -> Result<JoinToken, Error> {
        let secret = Secret::random();
        let created_unix_ms = unix_ms();
        let expires_unix_ms = created_unix_ms + JOIN_TIME.as_millis() as u64;
        let key = StateKey::Join(secret.digest().to_string());
        let record = JoinRecord { created_unix_ms, expires_unix_ms };
        self.state.put(&key, Expected::Absent, record).await.map_err(state_error)?;
        let authority: Fingerprint = self.authority.fingerprint()?;
        Ok(JoinToken { cluster: self.cluster.id, authority, secret, addresses })
    }
}

fn refuse_server(name: &str, why: &str) -> Error {
    Error::new(
        "SERVER_REFUSED",
        format!("the server {name} cannot join"),
        why,
        "let it join anew, from an empty directory",
    )
}
