//! `spandrel node join` and `spandrel witness join`: asking to belong to a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use spandrel_shared::{Error, NodeId};
use spandrel_state_etcd::member;
use spandrel_trust::{Credentials, HolderKey, JoinToken, common_name, pinned_client};

use super::found::check_listen;
use super::settings::{Pki, ServerSettings, StatePlace, claim_new};
use crate::admin::api::{self, JoinAnswer, JoinRequest};
use crate::admin::http::{HttpClient, Place};
use crate::directory::Directory;
use crate::random::random;

/// What a server wants to be.
#[derive(Clone, Debug)]
pub struct NewServer {
    /// Its name.
    pub name: String,
    /// The first of its ports, at each of its addresses.
    pub listen: Vec<SocketAddr>,
    /// Whether it has no drives and only helps to keep the cluster's state.
    pub witness: bool,
    /// etcd, a path or a name in `PATH`.
    pub etcd: PathBuf,
}

/// Joins the cluster that `token` is for, as the server in `directory`.
pub async fn join(directory: &Directory, token: &JoinToken, new: NewServer) -> Result<ServerSettings, Error> {
    check_listen(&new.listen)?;
    member::check_program(&new.etcd)?;
    claim_new(directory)?;
    let key = HolderKey::generate()?;
    let request = JoinRequest {
        secret: token.secret.clone(),
        node: NodeId::from_random(random(), random()),
        name: new.name,
        listen: new.listen,
        key: key.public(),
        witness: new.witness,
    };
    let name = ServerName::try_from(common_name(token.cluster)).expect("identities make good names");
    let place = Place::Addresses {
        addresses: token.addresses.clone(),
        tls: Arc::new(pinned_client(token.authority)?),
        name,
    };
    let answer: JoinAnswer = HttpClient::new(place, None).post(api::JOIN, &request).await?;
    let credentials = Credentials {
        cluster: token.cluster,
        authority_pem: answer.authority_pem,
        certificate_pem: answer.certificate_pem,
        key_pem: key.pem(),
    };
    check_answer(&credentials, token)?;
    Pki(directory).write(&credentials, answer.authority_key_pem.as_deref())?;
    let state = if answer.state_is_own {
        StatePlace::Own { program: new.etcd, endpoints: answer.state_endpoints, is_member: false }
    } else {
        StatePlace::External { endpoints: answer.state_endpoints }
    };
    let settings = ServerSettings {
        format: ServerSettings::format(),
        cluster: token.cluster,
        cluster_name: answer.cluster_name,
        node: request.node,
        name: request.name,
        witness: request.witness,
        listen: request.listen,
        state,
        founding: None,
        drives: Vec::new(),
    };
    settings.write(directory)?;
    Ok(settings)
}

/// Whether what was answered is of the cluster that the token is for, and of use.
fn check_answer(credentials: &Credentials, token: &JoinToken) -> Result<(), Error> {
    if credentials.fingerprint()? == token.authority && credentials.client().is_ok() {
        return Ok(());
    }
    Err(Error::new(
        "ANSWER_REFUSED",
        "this server has not joined",
        "what was answered is not of the cluster that the token is for",
        "look who answers at the addresses at the end of the token",
    ))
}
