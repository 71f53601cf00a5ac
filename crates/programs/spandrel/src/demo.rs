//! `spandrel demo`: what the system does, shown on this machine in a minute or two.
//!
//! A cluster runs in a temporary directory, as a child process, so that what it costs is measured
//! apart from what the clients cost. A sweep measures it. Then, under load, one node is stopped
//! without warning and brought back. At the end every copy is read and compared.
//!
//! Invariants:
//! - It succeeds only if everything that it shows held: see [`Verdict`].
//! - Whatever it made is removed, also when it is interrupted or fails.

mod failover;
mod verdict;

use std::time::Instant;

use clap::Parser;
use spandrel_fleet::{FleetArguments, FleetCommand, SweepArguments, SweepResult, progress_on_standard_error};
use spandrel_shared::Error;

use crate::admin::client::Client;
use crate::arguments::{Arguments, Command, DemoArguments};
use crate::commands::{ApiMeter, ApiVolumes};
use crate::demo::verdict::Verdict;
use crate::failure::{EXIT_ERROR, EXIT_OK, Outcome};
use crate::temporary_cluster::TemporaryCluster;
use crate::text::say;

/// The sweep of the demonstration: sixteen cells, small enough for any machine.
const SWEEP: &str = "spandrel fleet sweep --vms 16 --threads 1 --block-size 4k --outstanding 1,2,4,8 \
                     --write-percent 0,10,30,100 --working-set 32M --warmup 500ms --duration 2s";

/// The cluster of the demonstration: 3 GiB of disk.
const CLUSTER: [&str; 6] = ["--nodes", "4", "--drives", "2", "--drive-size", "384M"];

/// Shows it all.
pub fn run(arguments: DemoArguments) -> Outcome {
    let begin = Instant::now();
    headline("1. A cluster of four nodes on this machine");
    let mut options = CLUSTER.to_vec();
    let (room, memory) = match arguments.memory {
        true => ("3 GiB of memory", Some("--memory")),
        false => ("3 GiB in the temporary directory ($TMPDIR), or of memory with --memory", None),
    };
    options.extend(memory);
    let cluster = TemporaryCluster::start(&options, room, |line| say(&format!("{line}\n")))?;
    let shown = show(&cluster);
    let removed = cluster.remove();
    let verdict = shown?;
    removed?;
    say(&format!("\n{}", verdict.render(begin.elapsed())));
    Ok(if verdict.is_good() { EXIT_OK } else { EXIT_ERROR })
}

fn show(cluster: &TemporaryCluster) -> Result<Verdict, Error> {
    let client = Client::new(cluster.directory().clone())?;
    let mut verdict = Verdict::default();
    headline("2. What it does under sixteen clients: 4 KiB, random, three copies of every write");
    let result = sweep(&client)?;
    verdict.take_sweep(&result);
    headline("3. A node dies under load, and comes back");
    failover::show(&client, &mut verdict)?;
    Ok(verdict)
}

fn headline(text: &str) {
    say(&format!("\n=== {text}\n\n"));
}

fn sweep(client: &Client) -> Result<SweepResult, Error> {
    let mut volumes = ApiVolumes::new(client, "sweep");
    let mut meter = ApiMeter { client };
    let mut progress = progress_on_standard_error();
    sweep_arguments().run(&mut volumes, &mut meter, progress.as_mut(), &mut std::io::stdout().lock())
}

fn sweep_arguments() -> SweepArguments {
    let arguments = Arguments::try_parse_from(SWEEP.split_whitespace()).expect("the sweep is well-formed");
    match arguments.command {
        Command::Fleet(FleetArguments { command: FleetCommand::Sweep(sweep) }) => *sweep,
        _ => unreachable!("the sweep is a command of the fleet"),
    }
}

#[cfg(test)]
#[path = "demo_tests.rs"]
mod tests;
