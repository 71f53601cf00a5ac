//! The command line of `spandrel fleet`, and what carries it out.
//!
//! The fleet makes no volumes: whoever embeds it gives them through [`ClientVolumes`], made before the
//! sweep and removed after it, however it ends.

use std::io::Write;
use std::time::Duration;

use clap::{Args, Subcommand};
use spandrel_shared::Error;
use spandrel_shared::duration::parse_duration;
use spandrel_shared::size::parse_size;

use crate::meter::ClusterMeter;
use crate::output::OutputFormat;
use crate::progress::Progress;
use crate::spec::{CellSpec, Pattern};
use crate::study::StudyArguments;
use crate::sweep::{SweepResult, SweepSpec, sweep};
use crate::target::Target;

/// `spandrel fleet`.
#[derive(Clone, Debug, Args)]
pub struct FleetArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: FleetCommand,
}

/// What `spandrel fleet` can do.
#[derive(Clone, Debug, Subcommand)]
pub enum FleetCommand {
    /// Measure the cluster under a load of many clients, for every combination of the lists given
    ///
    /// Each client stands for one virtual machine: it has a volume of its own and an NBD connection of
    /// its own, and keeps threads times outstanding I/Os in flight. No virtual machine is started.
    ///
    /// Each combination is one cell: all clients start together, warm up, are measured, cool down. The
    /// volumes are written over, and removed afterwards if the sweep made them.
    #[command(after_help = SWEEP_EXAMPLES)]
    Sweep(SweepArguments),
    /// Study one part of the system on clusters that are made for it, and judge what it gains
    ///
    /// A study measures the same loads in several states side by side, and says for each shape that was expected
    /// beforehand whether it was found.
    Study(StudyArguments),
}

const SWEEP_EXAMPLES: &str = "\
Examples:
  A first look, two minutes:
    spandrel fleet sweep --vms 16
  Small blocks as in the reference architectures:
    spandrel fleet sweep --vms 256 --block-size 4k --outstanding 1,2,4,8 \\
        --write-percent 0,10,30,100 --working-set 16G --warmup 5m --duration 2m --cooldown 5m
  Large blocks, for a spreadsheet:
    spandrel fleet sweep --vms 256 --block-size 128k --write-percent 0,100 -o csv > large.csv";

/// `spandrel fleet sweep`. Lists are separated by commas.
#[derive(Clone, Debug, Args)]
pub struct SweepArguments {
    /// Clients, each standing for one virtual machine with a volume of its own
    #[arg(long, alias = "clients", value_name = "COUNT", default_value_t = 16,
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub vms: u32,

    /// Threads of each client
    #[arg(long, value_name = "LIST", default_value = "1", value_delimiter = ',')]
    pub threads: Vec<u32>,

    /// Bytes of one I/O, as 4k or 1M
    #[arg(long, value_name = "LIST", default_value = "4k", value_delimiter = ',', value_parser = parse_block_size)]
    pub block_size: Vec<u32>,

    /// I/Os that each thread keeps in flight
    #[arg(long, value_name = "LIST", default_value = "1,2,4,8", value_delimiter = ',')]
    pub outstanding: Vec<u32>,

    /// How many of 100 I/Os are writes; drawn for each I/O
    #[arg(long, value_name = "LIST", default_value = "0,10,30,100", value_delimiter = ',',
        value_parser = clap::value_parser!(u8).range(0..=100))]
    pub write_percent: Vec<u8>,

    /// Where the I/Os go: random (r), sequential by each thread (s), or interlocked (si), which is
    /// sequential with one position for all threads of a client
    #[arg(long, value_name = "PATTERN", default_value = "random")]
    pub pattern: Pattern,

    /// Offsets are multiples of this [default: the block size]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_argument)]
    pub alignment: Option<u64>,

    /// How much of its volume each client uses. Make it large against caches for results to quote
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size_argument)]
    pub working_set: u64,

    /// How long each cell runs before it is measured: ms, s, m or h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub warmup: Duration,

    /// How long each cell is measured
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub duration: Duration,

    /// How long each cell goes on after that
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    pub cooldown: Duration,

    /// How long to wait at a cell's end for I/Os that were not answered
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub drain: Duration,

    /// Equal seeds give equal sequences of I/Os
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,

    /// Written data are taken from random places of so many random bytes
    #[arg(long, value_name = "SIZE", default_value = "20M", value_parser = parse_size_argument)]
    pub write_source: u64,

    /// Threads of the load generator, which share the clients. One does for hundreds of clients
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub load_threads: u32,

    /// Do not write the working set before the first cell. Reads then find what is there: on a new
    /// volume nothing, which is quicker than the truth
    #[arg(long)]
    pub no_fill: bool,

    /// Also tell what was done in each second (JSON only)
    #[arg(long)]
    pub intervals: bool,

    /// How to write the result: table, json or csv
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: OutputFormat,
}

impl SweepArguments {
    /// The sweep that was asked for.
    ///
    /// # Errors
    ///
    /// What makes no sense of it.
    pub fn spec(&self) -> Result<SweepSpec, Error> {
        let common = CellSpec {
            pattern: self.pattern,
            alignment_bytes: self.alignment,
            working_set_bytes: Some(self.working_set),
            warmup: self.warmup,
            duration: self.duration,
            cooldown: self.cooldown,
            drain: self.drain,
            seed: self.seed,
            write_source_bytes: self.write_source,
            load_threads: self.load_threads,
            intervals: self.intervals,
            ..CellSpec::default()
        };
        let spec = SweepSpec {
            block_sizes_bytes: self.block_size.clone(),
            threads: self.threads.clone(),
            write_percents: self.write_percent.clone(),
            outstanding: self.outstanding.clone(),
            common,
            fill: !self.no_fill,
        };
        spec.validate()?;
        Ok(spec)
    }

    /// Carries the sweep out: makes the volumes, runs the cells, writes the result to `output`, and
    /// removes the volumes, also if something failed before.
    ///
    /// # Errors
    ///
    /// The first thing that failed. What was measured until then is written.
    pub fn run(
        &self,
        volumes: &mut impl ClientVolumes,
        meter: &mut impl ClusterMeter,
        progress: &mut dyn Progress,
        output: &mut impl Write,
    ) -> Result<SweepResult, Error> {
        let spec = self.spec()?;
        let request = VolumeRequest { count: self.vms, size_bytes: self.working_set };
        let swept = volumes.prepare(&request).and_then(|targets| sweep(&spec, &targets, meter, progress));
        let cleaned = volumes.cleanup();
        let result = swept?;
        output.write_all(result.render(self.output).as_bytes()).map_err(|error| {
            let next = "send the output somewhere that can take it";
            Error::new("FLEET_OUTPUT_FAILED", "the result cannot be written", error.to_string(), next)
        })?;
        cleaned?;
        match result.stopped_by {
            Some(error) => Err(error),
            None => Ok(result),
        }
    }
}

/// The volumes that a fleet needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeRequest {
    /// One for each client.
    pub count: u32,
    /// The least size of each.
    pub size_bytes: u64,
}

/// Makes volumes for the clients and removes them again.
pub trait ClientVolumes {
    /// Makes the volumes and says where they are: one target for each client.
    fn prepare(&mut self, request: &VolumeRequest) -> Result<Vec<Target>, Error>;

    /// Removes what `prepare` has made, also if that failed half-way.
    fn cleanup(&mut self) -> Result<(), Error>;
}

fn parse_size_argument(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| format!("{text:?} is no size: write for example 4k, 20M or 16G"))
}

fn parse_block_size(text: &str) -> Result<u32, String> {
    let bytes = parse_size_argument(text)?;
    u32::try_from(bytes).map_err(|_| format!("{text} is too large for one I/O"))
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
