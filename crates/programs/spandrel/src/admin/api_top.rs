//! What the admin API says of how busy the cluster is.
//!
//! All are counts that only grow, and what is under way at this moment. Whoever asks twice knows from the differences what
//! was done in a second, how long it took, and how much waited (see [`spandrel_shared::load`]).

use serde::{Deserialize, Serialize};
use spandrel_health::Status;
use spandrel_node::NodeLoad;

use super::Job;

/// `GET`: [`ClusterLoad`].
pub const LOAD: &str = "/v1/load";
/// `GET`: [`NodeLoad`], of the node that is asked.
pub const NODE_LOAD: &str = "/v1/node/load";

/// How busy a cluster is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterLoad {
    /// The cluster's name.
    pub cluster: String,
    /// When this was asked, by the clock of the server that was asked.
    pub taken_unix_ms: u64,
    /// Its nodes, whether they answer or not.
    pub nodes: Vec<LoadedNode>,
    /// Copies that are brought up to date, built or moved now.
    pub jobs: Vec<Job>,
}

/// A node, and how busy it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedNode {
    /// The node's name.
    pub name: String,
    /// How it is.
    pub status: Status,
    /// Whether it runs as far as is known without asking it.
    pub is_alive: bool,
    /// How busy it is; absent if it does not answer within two seconds.
    pub load: Option<NodeLoad>,
}
