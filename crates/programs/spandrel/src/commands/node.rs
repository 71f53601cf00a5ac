//! `spandrel node`.

use crate::admin::api::{self, NodeStatus, NodeStop};
use crate::admin::client::{Client, path_with};
use crate::arguments::{NodeCommand, Output};
use crate::commands::cluster::{join, remove};
use crate::directory::Directory;
use crate::failure::{EXIT_OK, Outcome};
use crate::server::run;
use crate::table::Table;
use crate::text::{json, say};

/// Carries out a command about nodes.
pub fn node(directory: Directory, command: &NodeCommand) -> Outcome {
    let client = || Client::new(directory.clone());
    match command {
        NodeCommand::Join(arguments) => return join(&directory, arguments, false),
        NodeCommand::Run(arguments) => return run::run(directory, false, arguments.verbose),
        NodeCommand::Remove(arguments) => return remove(&client()?, arguments, false),
        NodeCommand::List(arguments) => {
            let nodes: Vec<NodeStatus> = client()?.get(api::NODES)?;
            say(&match arguments.output {
                Output::Table => format!("{}\n{}", render_list(&nodes), render_state_requests(&nodes)),
                Output::Json => json(&nodes),
            });
        }
        NodeCommand::Stop(arguments) => {
            let path = path_with(api::NODE_STOP, &arguments.name);
            let node: NodeStatus = client()?.post(&path, &NodeStop { abrupt: arguments.abrupt })?;
            say(&match arguments.output.output {
                Output::Table => format!("node {} is stopped\n", node.name),
                Output::Json => json(&node),
            });
        }
        NodeCommand::Start(arguments) => {
            let node: NodeStatus = client()?.post(&path_with(api::NODE_START, &arguments.name), &())?;
            say(&match arguments.output.output {
                Output::Table => format!("node {} runs\n", node.name),
                Output::Json => json(&node),
            });
        }
    }
    Ok(EXIT_OK)
}

/// The nodes as a table.
pub fn render_list(nodes: &[NodeStatus]) -> String {
    let mut table = Table::new(&["NODE", "HEALTH", "STATUS", "DRIVES", ">CLIENTS", ">VOLUMES", "OWNED"]);
    for node in nodes {
        table.row([
            node.name.clone(),
            node.status.health.to_string(),
            node.status.operational_text(),
            format!("{} of {}", node.drives_usable, node.drives),
            node.connections.to_string(),
            node.volumes_owned.len().to_string(),
            node.volumes_owned.join(" "),
        ]);
    }
    table.render()
}

/// What the nodes have asked of the cluster's state, as a table.
fn render_state_requests(nodes: &[NodeStatus]) -> String {
    let mut table = Table::new(&["STATE REQUESTS", ">READS", ">TRANSACTIONS", ">LEASE RENEWALS"]);
    for NodeStatus { name, state_requests, .. } in nodes {
        let counts = [state_requests.reads, state_requests.transactions, state_requests.lease_renewals];
        table.row(std::iter::once(name.clone()).chain(counts.map(|count| count.to_string())));
    }
    table.render()
}
