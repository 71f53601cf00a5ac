//! `spandrel status`: the whole cluster on one screen.

use std::fmt::Write as _;

use spandrel_health::Status;
use spandrel_shared::size::format_size;

use crate::admin::api::{self, ClusterStatus};
use crate::admin::client::Client;
use crate::arguments::{Output, OutputArguments};
use crate::commands::{drive, node, pool, volume};
use crate::failure::{EXIT_OK, Outcome};
use crate::text::{copies_text, counted, format_us, json, say};

/// Shows how the cluster is.
pub fn status(client: &Client, arguments: OutputArguments) -> Outcome {
    let status: ClusterStatus = client.get(api::STATUS)?;
    say(&match arguments.output {
        Output::Table => render(&status),
        Output::Json => json(&status),
    });
    Ok(EXIT_OK)
}

fn render(status: &ClusterStatus) -> String {
    let pool = &status.pool;
    let mut text = String::new();
    let _ = writeln!(text, "cluster  {} ({}) in {}", status.name, status.cluster, status.directory);
    let _ = writeln!(text, "pool     {}", pool.status);
    let _ = writeln!(text, "room     {}", pool::room_text(&status.pool));
    let _ = writeln!(
        text,
        "         {} should stay free for repairs; a new volume with {} may have {}",
        format_size(pool.reserve_bytes),
        copies_text(pool.copies_default),
        format_size(pool.volume_bytes_max)
    );
    match (status.memory, status.flush_us) {
        (true, _) => text += "drives   in memory: nothing outlives the process\n",
        (false, Some(us)) => {
            let _ =
                writeln!(text, "drives   on disk; one flush took {} when the cluster started", format_us(us));
        }
        (false, None) => text += "drives   on disk\n",
    }
    let _ = write!(text, "\n{}", node::render_list(&status.nodes));
    let _ = write!(text, "\n{}", drive::render_list(&status.drives));
    if status.volumes.is_empty() {
        text += "\nno volumes: make one with `spandrel volume create NAME --size 1G`\n";
    } else {
        let _ = write!(text, "\n{}", volume::render_list(&status.volumes));
    }
    let ill =
        |statuses: &mut dyn Iterator<Item = &Status>| statuses.filter(|status| !status.is_healthy()).count();
    let troubles = [
        ("node", ill(&mut status.nodes.iter().map(|node| &node.status))),
        ("drive", ill(&mut status.drives.iter().map(|drive| &drive.status))),
        ("volume", ill(&mut status.volumes.iter().map(|volume| &volume.status))),
    ];
    let troubles: Vec<String> = troubles
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(thing, count)| counted(count as u64, thing))
        .collect();
    if !troubles.is_empty() {
        let _ = writeln!(text, "\nnot healthy: {}", troubles.join(", "));
    }
    text
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
