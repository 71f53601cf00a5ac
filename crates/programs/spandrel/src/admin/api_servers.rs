//! What the admin API says of the servers of a cluster, nodes and witnesses alike, as processes that run a program.

use serde::{Deserialize, Serialize};

/// `GET`: a list of [`ServerStatus`].
pub const SERVERS: &str = "/v1/servers";
/// `POST` of a [`ServerRestart`]: [`ServerRestarting`].
pub const SERVER_RESTART: &str = "/v1/servers/{name}/restart";
/// `GET`: the [`ServerRun`] of the server that is asked.
pub const SERVER_HERE: &str = "/v1/server";
/// `POST` of a [`ServerRestart`]: [`ServerRestarting`], of the server that is asked.
pub const SERVER_HERE_RESTART: &str = "/v1/server/restart";

/// `POST`: ends the server that is asked, as SIGTERM would.
pub const SERVER_HERE_STOP: &str = "/v1/server/stop";

/// A run of a server's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRun {
    /// The version of the program.
    pub version: String,
    /// Whether the program's file has been replaced since this run began: the new one runs after a restart.
    pub is_replaced: bool,
    /// When this run began, by the clock of its server.
    pub started_unix_ms: u64,
}

/// A server of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Its name.
    pub name: String,
    /// Whether it has no drives and only helps to keep the cluster's state.
    pub is_witness: bool,
    /// Whether it leads those that keep the cluster's state.
    pub leads: bool,
    /// Its run; absent if it does not answer.
    pub run: Option<ServerRun>,
}

/// A server that is to begin anew with the program that its file is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRestart {
    /// Only say whether it can be done.
    #[serde(default)]
    pub dry_run: bool,
    /// Also if volumes, or the cluster's state, cannot do without it: they stand meanwhile.
    #[serde(default)]
    pub force: bool,
}

/// A server that begins anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRestarting {
    /// The version that ends.
    pub version: String,
    /// The version that begins.
    pub version_next: String,
    /// When the run began that ends, by the clock of its server: once another one answers, it is done. Absent if the server
    /// is of a version that does not say it.
    #[serde(default)]
    pub started_unix_ms: Option<u64>,
    /// What stands while it is away, in words: nothing unless it was forced.
    #[serde(default)]
    pub warnings: Vec<String>,
}
