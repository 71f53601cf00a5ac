//! How busy the cluster is, from what its nodes say.
//!
//! Asked again and again, so it costs little: of the cluster's state only who the nodes are is read, as long as no copy is
//! being repaired or moved.

use std::time::Duration;

use futures_util::future::join_all;
use spandrel_health::{NodeFacts, node};
use spandrel_node::NodeLoad;
use spandrel_shared::Error;

use super::administration::{Administration, unix_ms};
use super::api::{ClusterLoad, LoadedNode};
use super::nodes::NodeEntry;

/// How long a node may take to say how busy it is.
const LOAD_TIMEOUT: Duration = Duration::from_secs(2);

impl Administration {
    /// How busy the cluster is.
    pub async fn load(&self) -> Result<ClusterLoad, Error> {
        let taken_unix_ms = unix_ms();
        let nodes = loaded(join_all(self.node_entries().await?.into_iter().map(ask)).await);
        let is_repairing = nodes.iter().any(|node| node.load.as_ref().is_some_and(|load| load.repairs > 0));
        let jobs = match is_repairing {
            true => {
                // What else is known is told also while the state does not answer.
                let facts = self.facts().await.ok();
                facts.map(|facts| facts.jobs(&facts.drives_left())).unwrap_or_default()
            }
            false => Vec::new(),
        };
        Ok(ClusterLoad { cluster: self.cluster_name().to_owned(), taken_unix_ms, nodes, jobs })
    }

    /// How busy the node is that runs in this process.
    pub async fn load_here(&self) -> Result<NodeLoad, Error> {
        self.node_here().await?.load().await
    }
}

async fn ask(entry: NodeEntry) -> (NodeEntry, Option<NodeLoad>) {
    let Some(access) = &entry.access else { return (entry, None) };
    let asked = tokio::time::timeout(LOAD_TIMEOUT, access.load()).await;
    (entry, asked.ok().and_then(Result::ok))
}

fn loaded(answers: Vec<(NodeEntry, Option<NodeLoad>)>) -> Vec<LoadedNode> {
    let running = answers.iter().filter(|(_, load)| load.is_some()).count();
    let node = |(entry, load): (NodeEntry, Option<NodeLoad>)| LoadedNode {
        status: node::status(&NodeFacts {
            is_running: load.is_some(),
            nodes_reached: load.as_ref().map_or(0, |load| load.nodes_reached as usize),
            nodes_running: running - usize::from(load.is_some()),
            is_in_maintenance: load.as_ref().is_some_and(|load| load.is_in_maintenance),
            owns_volumes: load.iter().flat_map(|load| &load.volumes).any(|volume| volume.is_owned),
        }),
        name: entry.name,
        is_alive: entry.access.is_some(),
        load,
    };
    answers.into_iter().map(node).collect()
}

#[cfg(test)]
#[path = "top_tests.rs"]
mod tests;
