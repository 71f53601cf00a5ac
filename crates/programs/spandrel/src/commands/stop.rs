//! `spandrel node stop`: a node ends on purpose.
//!
//! What needs it is asked first. A node that is a server of its own hands its volumes over before it ends, and stays in
//! maintenance, so that it is waited for. Interrupted, it is in maintenance and runs; the same command goes on from there. One that is a
//! thread hands its volumes over as it ends, so it is in maintenance only until its virtual machines have moved away; one that was in
//! maintenance before stays so, and that is said: who put it there, or was interrupted, is not known.

use std::time::{Duration, Instant};

use spandrel_health::OperationalStatus;
use spandrel_shared::Error;

use crate::admin::api::{
    self, NodeDetails, NodeDrain, NodeDrained, NodeSafety, NodeStatus, NodeStop, ServerStatus, VmStatus,
};
use crate::admin::client::{Client, is_passing, path_with};
use crate::arguments::{NodeStopArguments, Output};
use crate::commands::node::{await_drained, warn};
use crate::failure::{EXIT_OK, Outcome};
use crate::text::{counted, json, say};

/// How often it is looked whether a node has ended. There is nothing to wait for but the next look.
const INTERVAL: Duration = Duration::from_millis(500);

/// Stops a node.
pub fn stop(client: &Client, arguments: &NodeStopArguments) -> Outcome {
    let NodeStopArguments { name, abrupt, dry_run, force, timeout, output } = arguments;
    let before: NodeDetails = client.get(&path_with(api::NODE, name))?;
    let runs = !before.node.status.operational.contains(&OperationalStatus::Down);
    let is_server = is_of_servers(client)?;
    if *abrupt && is_server {
        return Err(not_abrupt(name));
    }
    if !abrupt && runs {
        check(client, name, *force)?;
    }
    if *dry_run {
        return preview(&before, &vms_of(client, name)?, runs, *abrupt);
    }
    let patience = timeout.map(Duration::from_secs);
    let was_in_maintenance = before.node.maintenance.is_some();
    let drains = runs && (is_server || !abrupt && !vms_of(client, name)?.is_empty());
    if drains {
        let drain = NodeDrain { dry_run: false, force: *force };
        let drained: NodeDrained = client.post(&path_with(api::NODE_DRAIN, name), &drain)?;
        await_drained(client, &drained, patience)?;
    }
    let told = client
        .post::<NodeStatus>(&path_with(api::NODE_STOP, name), &NodeStop { abrupt: *abrupt, force: *force });
    let resumed =
        if drains && !is_server && !was_in_maintenance { end_maintenance(client, name) } else { None };
    let node = match told {
        // It may have ended before it could answer.
        Err(error) if is_server && is_passing(&error) => before.node,
        Ok(node) => resumed.unwrap_or(node),
        Err(error) => return Err(error),
    };
    if is_server {
        await_end(client, name, patience)?;
    }
    say(&match output.output {
        Output::Table if is_server => format!(
            "node {name} has ended, and is in maintenance: it is waited for. Start it on its server (`spandrel node run`), \
             then `spandrel node resume {name}`\n"
        ),
        Output::Table if was_in_maintenance => format!(
            "node {name} is stopped, and is in maintenance as before: `spandrel node resume {name}` ends that\n"
        ),
        Output::Table => format!("node {name} is stopped\n"),
        Output::Json => json(&node),
    });
    Ok(EXIT_OK)
}

/// Ends the maintenance that a node was in only for its stop: how it is then. If that fails, whether it has stopped is told all
/// the same.
fn end_maintenance(client: &Client, name: &str) -> Option<NodeStatus> {
    let resumed = client.post(&path_with(api::NODE_RESUME, name), &());
    let still = |error: &Error| {
        warn(&[format!(
            "node {name} is still in maintenance ({}): `spandrel node resume {name}` ends that",
            error.why
        )]);
    };
    resumed.inspect_err(still).ok()
}

/// The virtual machines of a node, by their names.
fn vms_of(client: &Client, node: &str) -> Result<Vec<String>, Error> {
    let vms: Vec<VmStatus> = client.get(api::VMS)?;
    Ok(vms.into_iter().filter(|vm| vm.node.as_deref() == Some(node)).map(|vm| vm.name).collect())
}

/// Refuses to stop a node that is needed, or warns of what stands then.
fn check(client: &Client, name: &str, force: bool) -> Result<(), Error> {
    let safety: NodeSafety = client.get(&path_with(api::NODE_SAFETY, name))?;
    match safety.against.into_iter().next() {
        Some(mut error) if !force => {
            error.next +=
                "; with --force it is stopped all the same, and what needs it stands while it is away";
            Err(error)
        }
        against => {
            warn(&against.into_iter().map(|error| error.why).collect::<Vec<_>>());
            Ok(())
        }
    }
}

fn preview(before: &NodeDetails, vms: &[String], runs: bool, abrupt: bool) -> Outcome {
    let NodeStatus { name, volumes_owned, connections, .. } = &before.node;
    if !runs {
        return Err(Error::new(
            "NODE_NOT_RUNNING",
            format!("node {name} cannot be stopped"),
            "it does not run",
            "look at the nodes with `spandrel node list`",
        ));
    }
    let some = |names: &[String], kind: &str| match names {
        [] => format!("no {kind}"),
        names => format!("{} ({})", counted(names.len() as u64, kind), names.join(" ")),
    };
    let volumes = some(volumes_owned, "volume");
    let clients = counted(*connections, "connection");
    let (leaves, ends) = match vms {
        [] => (String::new(), String::new()),
        vms => {
            let vms = some(vms, "virtual machine");
            (format!("would have {vms} move away; it "), format!(", {vms}"))
        }
    };
    say(&match abrupt {
        true => format!(
            "node {name} would end at once, with {volumes} of its own{ends} and {clients} of clients\n"
        ),
        false => {
            format!("node {name} {leaves}would hand over {volumes}, close {clients} of clients, and end\n")
        }
    });
    Ok(EXIT_OK)
}

fn not_abrupt(name: &str) -> Error {
    Error::new(
        "NODE_IS_A_PROCESS",
        format!("node {name} cannot be stopped like this"),
        "it is a process of its own, on its own server",
        "kill it there (SIGKILL, with its member of etcd), or leave --abrupt out",
    )
}

/// Whether the nodes are servers of their own.
fn is_of_servers(client: &Client) -> Result<bool, Error> {
    match client.get::<Vec<ServerStatus>>(api::SERVERS) {
        Err(error) if error.code == "NOT_A_SERVER" => Ok(false),
        servers => servers.map(|_| true),
    }
}

/// Waits until a node has ended that was told to.
fn await_end(client: &Client, name: &str, patience: Option<Duration>) -> Result<(), Error> {
    let begun = Instant::now();
    loop {
        match client.get::<Vec<NodeStatus>>(api::NODES) {
            Ok(nodes) => {
                let is_down = |node: &NodeStatus| node.status.operational.contains(&OperationalStatus::Down);
                if nodes.iter().all(|node| node.name != name || is_down(node)) {
                    return Ok(());
                }
            }
            // It is the one that was asked.
            Err(error) if ["CLUSTER_NOT_RUNNING", "CLUSTER_NOT_REACHED"].contains(&&*error.code) => {
                return Ok(());
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        if patience.is_some_and(|patience| begun.elapsed() >= patience) {
            return Err(Error::new(
                "NODE_NOT_STOPPED_YET",
                format!("node {name} was told to end"),
                "it has not ended in the time that was given, or nobody can say",
                format!(
                    "see what it says on its server (log/spandrel.log in its directory); `spandrel node get {name}` shows whether it runs"
                ),
            ));
        }
        client.pause(INTERVAL);
    }
}
