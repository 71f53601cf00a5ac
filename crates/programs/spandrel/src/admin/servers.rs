//! The servers of a cluster as processes: which program they run, and how one begins anew.

use std::time::Duration;

use futures_util::future::join_all;
use spandrel_shared::{Error, NodeId};

use super::administration::Administration;
#[cfg(doc)]
use super::administration::Server;
use super::api::{
    self, ServerRemove, ServerRemoved, ServerRestart, ServerRestarting, ServerRun, ServerStatus,
};
use super::http::HttpClient;
use crate::text::counted;

/// How long a server may take to say what it runs.
const RUN_TIMEOUT: Duration = Duration::from_secs(2);

/// A server of the cluster, and how it is reached.
pub struct ServerEntry {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: NodeId,
    /// Whether it is a witness.
    pub is_witness: bool,
    /// Its admin API.
    pub access: ServerAccess,
}

/// How a server is reached.
pub enum ServerAccess {
    /// It is this process.
    Here,
    /// At its own admin API, whether it runs or not.
    There(HttpClient),
}

impl Administration {
    /// The run of this process.
    pub fn run_here(&self) -> Result<ServerRun, Error> {
        let is_replaced = self.server()?.program().is_replaced();
        Ok(ServerRun {
            version: crate::program::VERSION.to_owned(),
            is_replaced,
            started_unix_ms: self.started_unix_ms(),
        })
    }

    /// All servers, witnesses first.
    pub async fn servers(&self) -> Result<Vec<ServerStatus>, Error> {
        let entries = self.server()?.servers().await?;
        let members = self.state_members().await?;
        let asked = entries.into_iter().map(|entry| async {
            let leads = members.iter().any(|member| member.leads && member.server == Some(entry.id));
            let run = self.run_of(&entry).await;
            ServerStatus { name: entry.name, is_witness: entry.is_witness, leads, run }
        });
        Ok(join_all(asked).await)
    }

    async fn run_of(&self, entry: &ServerEntry) -> Option<ServerRun> {
        match &entry.access {
            ServerAccess::Here => self.run_here().ok(),
            ServerAccess::There(client) => {
                tokio::time::timeout(RUN_TIMEOUT, client.get(api::SERVER_HERE)).await.ok()?.ok()
            }
        }
    }

    /// Has a server begin anew. It is checked first that nothing needs it, and that its program can be run. Whoever wants to
    /// know when it is there again looks for another begin of its run.
    ///
    /// # Errors
    ///
    /// `SERVER_NOT_FOUND`, `SERVER_NOT_RUNNING`, `SERVER_IS_OLDER`, `PROGRAM_UNUSABLE`; but with `force` also `NODE_NEEDED`
    /// and `STATE_MAJORITY_NEEDED`.
    pub async fn restart_server(
        &self,
        name: &str,
        restart: ServerRestart,
    ) -> Result<ServerRestarting, Error> {
        let entries = self.server()?.servers().await?;
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        let entry = entries.iter().find(|entry| entry.name == name);
        let entry = entry.ok_or_else(|| server_not_found(name, &names))?;
        let mut warnings = Vec::new();
        for error in self.against_restart(entry).await? {
            match restart.force {
                true => warnings.push(error.why),
                false => return Err(error),
            }
        }
        let mut restarting = match &entry.access {
            ServerAccess::Here => self.restart_here(restart).await?,
            ServerAccess::There(client) => {
                let asked = client.post(api::SERVER_HERE_RESTART, &restart).await;
                asked.map_err(|error| not_restarted(name, error))?
            }
        };
        restarting.warnings = warnings;
        Ok(restarting)
    }

    async fn against_restart(&self, entry: &ServerEntry) -> Result<Vec<Error>, Error> {
        let facts = self.facts().await?;
        let members = self.state_members().await?;
        Ok(match entry.is_witness {
            true => facts.against_stop_of_witness(&entry.name, entry.id, &members),
            false => facts.safety(facts.known_node(&entry.name)?, &members).against,
        })
    }

    /// Takes another server out of the cluster for good, or says whether that can be done.
    ///
    /// # Errors
    ///
    /// Those of [`Server::remove`], and `STATE_MAJORITY_NEEDED` if too few would be left that vote on the cluster's state.
    pub async fn remove_server(&self, name: &str, remove: ServerRemove) -> Result<ServerRemoved, Error> {
        let server = self.server()?;
        if remove.witness {
            let entries = server.servers().await?;
            let witness = entries.iter().find(|entry| entry.is_witness && entry.name == name);
            if let Some(witness) = witness {
                let members = self.state_members().await?;
                self.facts().await?.check_removal_of_witness(name, witness.id, &members)?;
            }
        }
        server.remove(name, remove).await
    }

    /// Has this process begin anew.
    ///
    /// # Errors
    ///
    /// `PROGRAM_UNUSABLE`.
    pub async fn restart_here(&self, restart: ServerRestart) -> Result<ServerRestarting, Error> {
        let server = self.server()?;
        let version_next = server.program().version().await?;
        let version = crate::program::VERSION.to_owned();
        if !restart.dry_run {
            tracing::info!("the server begins anew: version {version_next} after {version}");
            server.begin_anew();
        }
        let started_unix_ms = Some(self.started_unix_ms());
        Ok(ServerRestarting { version, version_next, started_unix_ms, warnings: Vec::new() })
    }
}

fn server_not_found(name: &str, names: &[&str]) -> Error {
    Error::new(
        "SERVER_NOT_FOUND",
        format!("there is no server {name:?}"),
        format!("the cluster has {}: {}", counted(names.len() as u64, "server"), names.join(", ")),
        "use one of these names",
    )
}

fn not_restarted(name: &str, error: Error) -> Error {
    let what = format!("the server {name} is not restarted");
    match error.code.as_str() {
        "CLUSTER_NOT_REACHED" => Error::new(
            "SERVER_NOT_RUNNING",
            what,
            error.why,
            "start it on its own machine, with `spandrel node run` or `spandrel witness run`",
        ),
        "PATH_NOT_FOUND" => Error::new(
            "SERVER_IS_OLDER",
            what,
            "it runs a version that does not know how to begin anew by itself",
            "restart it on its own machine: `spandrel node drain` it, end it, start it, `spandrel node resume` it",
        ),
        _ => error,
    }
}
