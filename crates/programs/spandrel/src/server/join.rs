//! `spandrel node join` and `spandrel witness join`: asking to belong to a cluster.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use spandrel_shared::Error;
use spandrel_state_etcd::member;
use spandrel_trust::{Credentials, HolderKey, JoinToken, common_name, pinned_client};

use super::found::{check_listen, check_local};
use super::pending::PendingJoin;
use super::settings::{Pki, ServerSettings, StatePlace, claim_new};
use crate::admin::api::{self, JoinAnswer, JoinRequest};
use crate::admin::http::{HttpClient, Place};
use crate::directory::Directory;

/// Errors with which it is sure that this attempt has changed nothing.
const NOTHING_DONE: [&str; 11] = [
    "ADDRESS_TAKEN",
    "CLUSTER_NOT_REACHED",
    "LISTEN_INVALID",
    "NAME_INVALID",
    "NAME_TAKEN",
    "NOT_A_NODE",
    "NOT_A_SERVER",
    "REQUEST_INVALID",
    "SERVER_REFUSED",
    "STATE_PROGRAM_NEEDED",
    "TOKEN_REFUSED",
];

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

/// Joins the cluster that `token` is for, as the server in `directory`. If it is not known what has become of that, the
/// same again goes on where it was.
pub async fn join(directory: &Directory, token: &JoinToken, new: NewServer) -> Result<ServerSettings, Error> {
    check_listen(&new.listen)?;
    check_local(&new.listen)?;
    let _lock = claim_new(directory)?;
    let (pending, is_first) = match PendingJoin::read(directory)? {
        Some(pending) => (pending, false),
        None => (PendingJoin::begin(directory, token, &new)?, true),
    };
    pending.check_same(directory, token, &new)?;
    let etcd = member::check_program(&new.etcd);
    let answered = ask(&pending, token, etcd.is_ok()).await;
    let answer = match answered {
        Ok(answer) => answer,
        Err(error) if NOTHING_DONE.contains(&error.code.as_str()) => {
            if is_first {
                PendingJoin::remove(directory)?;
            }
            // It knows better what is wrong with etcd.
            return Err(if error.code == "STATE_PROGRAM_NEEDED" {
                etcd.err().unwrap_or(error)
            } else {
                error
            });
        }
        Err(error) => {
            let next = "do the same again: it goes on where it was, whether the cluster has got to know this server \
                        or not";
            return Err(Error::new(&error.code, error.what, error.why, next));
        }
    };
    let credentials = Credentials {
        cluster: token.cluster,
        authority_pem: answer.authority_pem,
        certificate_pem: answer.certificate_pem,
        key_pem: pending.key_pem.clone(),
    };
    check_answer(&credentials, token)?;
    Pki(directory).write(&credentials, answer.authority_key_pem.as_deref())?;
    let state = if answer.state_is_own {
        StatePlace::Own { program: new.etcd, endpoints: answer.state_endpoints, is_member: false }
    } else {
        StatePlace::External { endpoints: answer.state_endpoints }
    };
    if let Some(identity) = &answer.state_identity {
        Pki(directory).write_state_identity(identity)?;
    }
    let settings = ServerSettings {
        format: ServerSettings::format(),
        cluster: token.cluster,
        cluster_name: answer.cluster_name,
        node: pending.node,
        name: pending.name,
        witness: pending.witness,
        listen: pending.listen,
        state,
        founding: None,
        generation: 0,
        servers: Default::default(),
        drives: Vec::new(),
        cache_drives: BTreeSet::new(),
    };
    settings.write(directory)?;
    PendingJoin::remove(directory)?;
    Ok(settings)
}

async fn ask(pending: &PendingJoin, token: &JoinToken, has_etcd: bool) -> Result<JoinAnswer, Error> {
    let request = JoinRequest {
        secret: token.secret.clone(),
        node: pending.node,
        name: pending.name.clone(),
        listen: pending.listen.clone(),
        key: HolderKey::load(&pending.key_pem)?.public(),
        witness: pending.witness,
        has_etcd,
    };
    let name = ServerName::try_from(common_name(token.cluster)).expect("identities make good names");
    let place = Place::Addresses {
        addresses: token.addresses.clone(),
        tls: Arc::new(pinned_client(token.authority)?),
        name,
    };
    HttpClient::new(place, None).post(api::JOIN, &request).await
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
