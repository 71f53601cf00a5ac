//! Letting servers join.

use std::net::SocketAddr;

use spandrel_cluster::servers::NewServer;
use spandrel_cluster::store::StateStore as _;
use spandrel_cluster::{ClusterRecord, ClusterState, JoinRecord, StateError, StateKey, Stored};
use spandrel_shared::Error;
use spandrel_shared::name::validate_name;
use spandrel_trust::{Authority, Fingerprint, Holder, JoinToken, Secret};

use super::Port;
use super::found::{JOIN_TIME, check_listen, holder_addresses};
use crate::admin::administration::{state_error, unix_ms};
use crate::admin::api::{JoinAnswer, JoinRequest, StateIdentity};
use crate::node_state::NodeState;

/// The bytes of a point on the curve P-256, uncompressed.
const KEY_BYTES: usize = 65;

/// How often a server is admitted anew when others come at the same time.
const ADMISSION_TRIES: u32 = 16;

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
    /// If not, with what they prove who they are to those who do.
    pub state_identity: Option<StateIdentity>,
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
        if self.state_is_own && !request.has_etcd {
            return Err(Error::new(
                "STATE_PROGRAM_NEEDED",
                format!("the server {} cannot join", request.name),
                "the cluster's servers keep its state with etcd, and this one has none",
                "install etcd 3.4 or later on it, or say where it is with --etcd",
            ));
        }
        let addresses = holder_addresses(&request.listen);
        let holder = Holder { node: request.node, key: &request.key, addresses: &addresses };
        let certificate_pem = self.authority.issue(&holder)?;
        self.put_server(request).await?;
        tracing::info!("{} {} has joined", if request.witness { "witness" } else { "node" }, request.name);
        Ok(JoinAnswer {
            cluster_name: self.cluster.name.clone(),
            authority_pem: self.authority.certificate_pem().to_owned(),
            authority_key_pem: (!request.witness).then(|| self.authority.key_pem()),
            certificate_pem,
            state_is_own: self.state_is_own,
            state_endpoints,
            state_identity: self.state_identity.clone(),
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

    /// Makes the server one of the cluster's; one that has asked before, with the same key, is it already.
    async fn put_server(&self, request: &JoinRequest) -> Result<(), Error> {
        let new = NewServer {
            id: request.node,
            name: request.name.clone(),
            addresses: request.listen.clone(),
            key_digest: Fingerprint::of(&request.key).to_string(),
            witness: request.witness,
            now_unix_ms: unix_ms(),
        };
        for _ in 0..ADMISSION_TRIES {
            match self.state.admit_server(&new, Port::COUNT).await {
                // Another server has come meanwhile.
                Err(StateError::Conflict) => {}
                admitted => return admitted.map_err(state_error),
            }
        }
        Err(state_error(StateError::Conflict))
    }

    /// Makes a token that lets servers join at `addresses`.
    pub async fn join_token(&self, addresses: Vec<SocketAddr>) -> Result<JoinToken, Error> {
        let secret = Secret::random();
        let created_unix_ms = unix_ms();
        let expires_unix_ms = created_unix_ms + JOIN_TIME.as_millis() as u64;
        let record = JoinRecord { created_unix_ms, expires_unix_ms };
        let store = self.state.store();
        let lease = store.grant_lease(JOIN_TIME).await.map_err(|error| state_error(error.into()))?;
        let digest = secret.digest().to_string();
        self.state.give_join(&digest, &record, lease).await.map_err(state_error)?;
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
