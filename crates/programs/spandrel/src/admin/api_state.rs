//! What the admin API says of the cluster's state: who keeps it, and what waits after it was put back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spandrel_shared::NodeId;

/// Has volumes go on that wait for drives, after the state was put back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {
    /// The names of nodes whose drives are given up for lost.
    #[serde(default)]
    pub without: Vec<String>,
    /// The names of volumes of which is given up what was written behind their end: they had grown since the state was
    /// current.
    #[serde(default)]
    pub without_growth: Vec<String>,
    /// Only say what waits.
    #[serde(default)]
    pub dry_run: bool,
}

/// What waits, after the state was put back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettleStatus {
    /// The names of volumes whose copies were not compared yet.
    pub volumes: Vec<String>,
    /// The names of nodes that do not run.
    pub nodes_away: Vec<String>,
    /// What they wait for, and what ends that, in words, by their names; of those whose owner has come so far.
    #[serde(default)]
    pub obstacles: BTreeMap<String, String>,
}

/// Who keeps the cluster's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateStatus {
    /// The members of etcd.
    pub members: Vec<StateMember>,
}

/// A member of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateMember {
    /// The server's name, or what etcd calls it if it is none of the cluster's.
    pub name: String,
    /// The server, if it is one of the cluster's.
    #[serde(default)]
    pub server: Option<NodeId>,
    /// Whether it answers and knows who leads. Of one without a vote whether its server has lately said that it runs.
    #[serde(default)]
    pub runs: bool,
    /// Whether it has a vote.
    pub votes: bool,
    /// Whether the others follow it.
    #[serde(default)]
    pub leads: bool,
    /// Where it answers clients.
    pub endpoints: Vec<String>,
}
