//! `spandrel node`.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use spandrel_shared::size::format_size;
use spandrel_shared::{Error, Place};

use crate::admin::administration::unix_ms;
use crate::admin::api::{
    self, MaintenanceProgress, NodeDetails, NodeDrain, NodeDrained, NodeSafety, NodeStatus, PathStatus,
    PeerStatus, PlaceChange, StateRole,
};
use crate::admin::client::{Client, SILENCE_MAX, is_passing, path_with};
use crate::arguments::{NodeCommand, NodeDrainArguments, NodeSetArguments, Output};
use crate::commands::cluster::join;
use crate::commands::removal::remove_node;
use crate::commands::restart::restart_server;
use crate::commands::stop::stop;
use crate::failure::{EXIT_ERROR, EXIT_OK, Outcome};
use crate::reach::Reach;
use crate::server::run;
use crate::table::Table;
use crate::text::{age_text, counted, json, percent, say};

/// How often it is looked how far a drain is. There is nothing to wait for but the next look.
const DRAIN_INTERVAL: Duration = Duration::from_millis(500);

/// After how long without progress a drain says which volumes stay.
const DRAIN_STALL: Duration = Duration::from_secs(15);

/// Carries out a command about nodes.
pub fn node(reach: &Reach, command: &NodeCommand) -> Outcome {
    let client = || reach.client();
    match command {
        NodeCommand::Join(arguments) => return join(&reach.directory()?, arguments, false),
        NodeCommand::Run(arguments) => {
            return run::run(reach.directory()?, false, &arguments.threads, &arguments.vms, arguments.log);
        }
        NodeCommand::Remove(arguments) => return remove_node(&client()?, arguments),
        NodeCommand::List(arguments) => {
            let nodes: Vec<NodeStatus> = client()?.get(api::NODES)?;
            say(&match arguments.output {
                Output::Table => format!("{}\n{}", render_list(&nodes), render_state_requests(&nodes)),
                Output::Json => json(&nodes),
            });
        }
        NodeCommand::Get(arguments) => {
            let node: NodeDetails = client()?.get(&path_with(api::NODE, &arguments.name))?;
            say(&match arguments.output.output {
                Output::Table => render_one(&node, unix_ms()),
                Output::Json => json(&node),
            });
        }
        NodeCommand::Stop(arguments) => return stop(&client()?, arguments),
        NodeCommand::Start(arguments) => {
            let node: NodeStatus = client()?.post(&path_with(api::NODE_START, &arguments.name), &())?;
            say(&match arguments.output.output {
                Output::Table => format!("node {} runs\n", node.name),
                Output::Json => json(&node),
            });
        }
        NodeCommand::SafeToStop(arguments) => {
            let safety: NodeSafety = client()?.get(&path_with(api::NODE_SAFETY, &arguments.name))?;
            say(&match arguments.output.output {
                Output::Table => render_safety(&safety),
                Output::Json => json(&safety),
            });
            return Ok(if safety.is_safe() { EXIT_OK } else { EXIT_ERROR });
        }
        NodeCommand::Set(NodeSetArguments { name, site, rack, chassis }) => {
            let change = PlaceChange { site: site.clone(), rack: rack.clone(), chassis: chassis.clone() };
            let place: Place = client()?.post(&path_with(api::NODE_PLACE, name), &change)?;
            say(&format!("node {name} stands at: {}\n", place_text(&place)));
        }
        NodeCommand::Drain(arguments) => return drain(&client()?, arguments),
        NodeCommand::Restart(arguments) => return restart_server(&client()?, arguments, false),
        NodeCommand::Resume(arguments) => {
            let node: NodeStatus = client()?.post(&path_with(api::NODE_RESUME, &arguments.name), &())?;
            say(&match arguments.output.output {
                Output::Table => format!("node {} takes volumes again\n", node.name),
                Output::Json => json(&node),
            });
        }
    }
    Ok(EXIT_OK)
}

/// Whether a node may be switched off, and the arithmetic.
fn render_safety(safety: &NodeSafety) -> String {
    let NodeSafety { node, against, volumes, votes, copies_held, shortage } = safety;
    let mut text = match against.is_empty() {
        true => format!("yes: node {node} may be switched off\n"),
        false => format!("no: node {node} must not be switched off\n"),
    };
    for error in against {
        let _ = write!(text, "  why:  {}\n  next: {}\n", error.why, error.next);
    }
    text += &match volumes.iter().min_by_key(|left| left.copies_left) {
        None => "copies   no volume counts on a copy there\n".to_owned(),
        Some(fewest) => format!(
            "copies   of {} with copies there each part keeps {} in sync on other nodes, or more (fewest: {})\n",
            counted(volumes.len() as u64, "volume"),
            fewest.copies_left,
            fewest.volume
        ),
    };
    text += &match votes {
        None => "votes    it has none on the cluster's state\n".to_owned(),
        Some(votes) => format!("votes    {} of {} on the cluster's state stay\n", votes.left, votes.all),
    };
    text += &match shortage {
        None => format!(
            "room     if it never comes back, the others have room for its {copies_held} copies of slabs\n"
        ),
        Some(shortage) => format!(
            "room     if it never comes back, not all of its {copies_held} copies of slabs can be built anew: {shortage}\n"
        ),
    };
    text
}

/// Puts a node into maintenance, and waits until it owns no volume.
fn drain(client: &Client, arguments: &NodeDrainArguments) -> Outcome {
    let name = &arguments.name;
    let path = path_with(api::NODE_DRAIN, name);
    let ask =
        |dry_run: bool| client.post::<NodeDrained>(&path, &NodeDrain { dry_run, force: arguments.force });
    let mut drained = ask(arguments.dry_run)?;
    let text = if arguments.dry_run {
        match &drained.volumes[..] {
            [] => format!("node {name} would have no volume to hand over\n"),
            volumes => {
                let count = counted(volumes.len() as u64, "volume");
                format!("node {name} would hand over {count}: {}\n", volumes.join(" "))
            }
        }
    } else {
        warn(&drained.warnings);
        let kept = await_drained(client, &drained, arguments.timeout.map(Duration::from_secs))?;
        // Others may have gone meanwhile.
        let before = std::mem::replace(&mut drained, ask(true)?);
        drained.warnings.retain(|warning| !before.warnings.contains(warning));
        let owns = match &kept[..] {
            [] => "no volume".to_owned(),
            kept => format!("only what cannot do without it ({})", kept.join(" ")),
        };
        format!("node {name} is in maintenance and owns {owns}; `spandrel node resume {name}` ends that\n")
    };
    warn(&drained.warnings);
    say(&match arguments.output.output {
        Output::Table => text,
        Output::Json => json(&drained),
    });
    Ok(EXIT_OK)
}

/// Says what stands while a node is away.
pub fn warn(warnings: &[String]) {
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
}

/// Shows how a node hands its volumes over, until it owns none but those that nobody else can have. Returns these.
pub fn await_drained(
    client: &Client,
    drained: &NodeDrained,
    patience: Option<Duration>,
) -> Result<Vec<String>, Error> {
    let name = &drained.node.name;
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template(
        "{elapsed_precise} [{bar:30}] {pos} of {len} volumes and virtual machines handed over {msg}",
    );
    bar.set_style(style.expect("the template is well-formed").progress_chars("=> "));
    let path = path_with(api::NODE_MAINTENANCE, name);
    let (begun, mut total) = (Instant::now(), drained.volumes.len());
    let is_over = || patience.is_some_and(|patience| begun.elapsed() >= patience);
    let (mut least, mut since) = (usize::MAX, Instant::now());
    let mut answered = Instant::now();
    loop {
        let progress = match client.get::<Option<MaintenanceProgress>>(&path) {
            Ok(progress) => progress.ok_or_else(|| resumed(name))?,
            Err(error) if is_passing(&error) && answered.elapsed() < SILENCE_MAX && !is_over() => {
                client.pause(DRAIN_INTERVAL);
                continue;
            }
            Err(error) => return Err(still_draining(error, name)),
        };
        answered = Instant::now();
        let MaintenanceProgress { maintenance, vms_left } = progress;
        let mut left = maintenance.volumes_left;
        if vms_left.is_empty() && left.iter().all(|volume| drained.needing.contains(volume)) {
            bar.finish_and_clear();
            return Ok(left);
        }
        left.extend(vms_left.iter().map(|vm| format!("virtual machine {vm}")));
        if is_over() {
            return Err(not_drained_yet(name, &left));
        }
        // What it was taking when it was asked comes on top.
        total = total.max(left.len());
        bar.set_length(total as u64);
        bar.set_position((total - left.len()) as u64);
        bar.set_message(left.iter().take(3).cloned().collect::<Vec<_>>().join(" "));
        if left.len() < least {
            (least, since) = (left.len(), Instant::now());
        } else if since.elapsed() > DRAIN_STALL {
            since = Instant::now();
            let stays = left.join(", ");
            bar.suspend(|| {
                eprintln!(
                    "no other node takes {stays} at present: `spandrel volume get` shows how copies are, `spandrel vm get` \
                     how virtual machines are"
                );
            });
        }
        client.pause(DRAIN_INTERVAL);
    }
}

fn resumed(name: &str) -> Error {
    Error::new(
        "NODE_RESUMED",
        format!("node {name} is not drained"),
        "somebody has taken it out of maintenance meanwhile",
        "do it again if it is still meant",
    )
}

/// The cluster has not answered for long while a drain was waited for.
fn still_draining(mut error: Error, name: &str) -> Error {
    error.next = format!(
        "{}; node {name} is in maintenance, and goes on handing its volumes over: `spandrel node drain {name}` waits for \
         that again, `spandrel node resume {name}` ends it",
        error.next
    );
    error
}

fn not_drained_yet(name: &str, left: &[String]) -> Error {
    Error::new(
        "NODE_NOT_DRAINED_YET",
        format!("node {name} is not drained yet"),
        format!("in the time that was given no other node has taken {}", left.join(", ")),
        format!(
            "node {name} stays in maintenance, and goes on handing them over: do this again to wait for that, or end it \
             with `spandrel node resume {name}`"
        ),
    )
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

/// Everything about a node, a line each, and then how it reaches the others.
fn render_one(details: &NodeDetails, now_unix_ms: u64) -> String {
    let node = &details.node;
    let since = |unix_ms: u64| format!("for {}", age_text(now_unix_ms.saturating_sub(unix_ms)));
    let lines = |words: &[String]| if words.is_empty() { "none".to_owned() } else { words.join(" ") };
    // No table: nothing here is cut off, however long it is.
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<15} {value}");
    };
    line("node", format!("{} ({})", node.name, node.id));
    line("status", node.status.to_string());
    line(
        "runs",
        match (details.started_unix_ms, details.incarnation) {
            (Some(started), _) => since(started),
            (None, Some(_)) => "yes".to_owned(),
            (None, None) => "no".to_owned(),
        },
    );
    if let Some(maintenance) = &node.maintenance {
        line("in maintenance", since(maintenance.since_unix_ms));
    }
    line("in the cluster", details.joined_unix_ms.map_or("not yet".to_owned(), since));
    line("shards", details.shards.to_string());
    let shares = if details.shards > 1 { &details.shard_shares[..] } else { &[] };
    for share in shares {
        line(
            &format!("  shard {}", share.shard),
            format!("has {}; owns {}", lines(&share.drives), lines(&share.volumes)),
        );
    }
    line("listens at", lines(&details.addresses));
    line("stands at", place_text(&details.place));
    line("NBD at", lines(&node.nbd_addresses));
    line("clients", node.connections.to_string());
    if let Some(role) = details.state_role {
        line(
            "cluster's state",
            match role {
                StateRole::Leads => "kept here, leads",
                StateRole::Keeps => "kept here",
                StateRole::Learns => "about to be kept here",
                StateRole::None => "kept by others",
            }
            .to_owned(),
        );
    }
    let asked = &node.state_requests;
    line(
        "asked of it",
        format!(
            "{} reads, {} transactions, {} lease renewals",
            asked.reads, asked.transactions, asked.lease_renewals
        ),
    );
    line("drives", format!("{} of {} can be used", node.drives_usable, node.drives));
    line(
        "room",
        format!(
            "{} of {} promised to volumes ({})",
            format_size(details.promised_bytes),
            format_size(details.promisable_bytes),
            percent(details.promised_bytes, details.promisable_bytes)
        ),
    );
    line("used", format_size(details.used_bytes));
    line("volumes owned", lines(&node.volumes_owned));
    let _ = write!(text, "\n{}", render_peers(&details.peers));
    text
}

fn place_text(place: &Place) -> String {
    if place.is_unknown() {
        "nobody has said where (`spandrel node set`)".to_owned()
    } else {
        place.to_string()
    }
}

/// How a node reaches the others.
fn render_peers(peers: &[PeerStatus]) -> String {
    if peers.is_empty() {
        return "it has told of no connection to another node\n".to_owned();
    }
    let mut table = Table::new(&["OTHER NODE", ">HEARD", "PATH", ">CARRIED"]);
    for peer in peers {
        let heard = peer.silent_ms.map_or("never".to_owned(), |silent| format!("{silent} ms ago"));
        let path = |path: &PathStatus| [path.address.clone(), format_size(path.carried_bytes)];
        let mut paths: Vec<[String; 2]> = peer.paths.iter().map(path).collect();
        if paths.is_empty() {
            paths.push(["no connection".to_owned(), String::new()]);
        }
        for [address, carried] in paths {
            table.row([peer.node.clone(), heard.clone(), address, carried]);
        }
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

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
