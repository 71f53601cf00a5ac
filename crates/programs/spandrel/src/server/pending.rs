//! What a server has asked for that wants to join, kept until it is answered.
//!
//! An answer can get lost when the cluster has made the server one of its own already. So what it asks for, its
//! identity and its key among that, is written down first, and asked for again as it was.

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use spandrel_shared::{ClusterId, Error, NodeId};
use spandrel_trust::{HolderKey, JoinToken};

use super::join::NewServer;
use super::settings::{PENDING_FILE, not_writable, write_durably};
use crate::directory::Directory;
use crate::random::random;

/// What was asked for. The secret of the token is not kept: it may have another one when it asks again.
#[derive(Clone, Serialize, Deserialize)]
pub struct PendingJoin {
    /// The cluster.
    pub cluster: ClusterId,
    /// The identity that the server has chosen.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// The first of its ports, at each of its addresses.
    pub listen: Vec<SocketAddr>,
    /// Whether it is to be a witness.
    pub witness: bool,
    /// Its private key, in PEM.
    pub key_pem: String,
}

impl PendingJoin {
    /// Decides what is asked for, and writes it down.
    pub fn begin(directory: &Directory, token: &JoinToken, new: &NewServer) -> Result<Self, Error> {
        let pending = Self {
            cluster: token.cluster,
            node: NodeId::from_random(random(), random()),
            name: new.name.clone(),
            listen: new.listen.clone(),
            witness: new.witness,
            key_pem: HolderKey::generate()?.pem(),
        };
        let text = serde_json::to_vec(&pending).expect("it is plain data");
        let written = write_durably(&directory.join(PENDING_FILE), &text);
        written.map_err(|error| not_writable(directory, &error))?;
        Ok(pending)
    }

    /// What was asked for in `directory` and not answered.
    pub fn read(directory: &Directory) -> Result<Option<Self>, Error> {
        let path = directory.join(PENDING_FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(not_writable(directory, &error)),
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            Error::new(
                "DIR_DAMAGED",
                "what this server has asked for cannot be read",
                format!("{}: {error}", path.display()),
                "delete the directory, and let the server join anew; if the cluster shows it already, remove it there",
            )
        })
    }

    /// Forgets what was asked for.
    pub fn remove(directory: &Directory) -> Result<(), Error> {
        match fs::remove_file(directory.join(PENDING_FILE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(not_writable(directory, &error)),
            _ => Ok(()),
        }
    }

    /// Refuses a directory in which something was asked for.
    pub fn check_none(directory: &Directory) -> Result<(), Error> {
        match Self::read(directory)? {
            Some(pending) => {
                Err(pending.refusal(directory, "a server that has asked to join a cluster is in it"))
            }
            None => Ok(()),
        }
    }

    /// Refuses to ask for anything else than before.
    pub fn check_same(&self, directory: &Directory, token: &JoinToken, new: &NewServer) -> Result<(), Error> {
        let is_same = self.cluster == token.cluster
            && (&self.name, &self.listen, self.witness) == (&new.name, &new.listen, new.witness);
        if is_same {
            return Ok(());
        }
        Err(self.refusal(directory, "it has asked for something else before, and was not answered"))
    }

    fn refusal(&self, directory: &Directory, why: &str) -> Error {
        let listen: Vec<String> = self.listen.iter().map(ToString::to_string).collect();
        let kind = if self.witness { "witness" } else { "node" };
        Error::new(
            "JOIN_PENDING",
            format!("this cannot be begun in {}", directory.path().display()),
            why,
            format!(
                "join again as it was: `spandrel {kind} join TOKEN --node-name {} --listen {}`; or give it up: delete \
                 the directory, and if the cluster shows the server already, remove it there (`spandrel {kind} remove \
                 {}`)",
                self.name,
                listen.join(","),
                self.name
            ),
        )
    }
}

#[cfg(test)]
#[path = "pending_tests.rs"]
mod tests;
