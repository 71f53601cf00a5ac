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

use crate::distribution::Distribution;
use crate::meter::ClusterMeter;
use crate::output::OutputFormat;
use crate::pace::RateLimit;
use crate::placement::clients_apart;
use crate::progress::Progress;
use crate::run_arguments::{
    AgentArguments, ImportArguments, ProfilesArguments, ReportArguments, RunArguments, RunFolderArguments,
};
use crate::spec::{CellSpec, Pattern, WriteContent};
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
    Sweep(Box<SweepArguments>),
    /// Study one part of the system on clusters that are made for it, and judge what it gains
    ///
    /// A study measures the same loads in several states side by side, and says for each shape that was expected
    /// beforehand whether it was found.
    Study(StudyArguments),
    /// Measure the cluster as a reference architecture was measured, and write a report
    ///
    /// A profile says which cells are measured, with how many clients, for how long and how often. All that is
    /// measured is kept in a folder as it comes, with the report; a run that was broken off goes on with --resume.
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunArguments>),
    /// List the profiles that can be run, or print one as a file to be changed
    Profiles(ProfilesArguments),
    /// Write a report of runs side by side, as one HTML file that needs no network
    Report(ReportArguments),
    /// Read results of DISKSPD or fio, to be laid beside one's own in a report
    Import(ImportArguments),
    /// Have a run pause before its next cell
    Pause(RunFolderArguments),
    /// Have a run go on that pauses
    Continue(RunFolderArguments),
    /// Do in a virtual machine what the fleet says over the machine's serial port: what `run --guest` starts there
    #[command(hide = true)]
    Agent(AgentArguments),
}

const RUN_EXAMPLES: &str = "\
Examples:
  What a reference architecture measured in a day, in two minutes and small:
    spandrel fleet run micron-sata-4k --vms 16 --time-scale 0.02 --data-scale 0.002 --repeat 1
  The same load inside four virtual machines:
    spandrel fleet run micron-sata-4k --guest qemu --vms 4 --time-scale 0.02 --data-scale 0.002 --repeat 1
  The first one beside what was published:
    spandrel fleet report published:micron-sata fleet-micron-sata-4k-... --html report.html";

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

    /// How many of 100 clients are on the node that owns their volume; the others reach it through another one
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub alignment: u8,

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

    /// Of a random pattern, how many of 100 I/Os go anywhere; the others follow the one before of their thread
    /// [default: 100]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub random_percent: Option<u8>,

    /// Which parts of the working set get more of the random I/Os than others, from its start on: 95/5:4/10 sends
    /// 95 of 100 to the first 5 %, 4 to the next 10 % and the rest to the rest; abs90/10G:5/20G the same with sizes
    #[arg(long, value_name = "PARTS")]
    pub distribution: Option<Distribution>,

    /// Offsets are multiples of this, and sequential ones go on by it [default: the block size]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_argument)]
    pub io_alignment: Option<u64>,

    /// How far behind each other the threads of a client begin to walk sequentially [default: as far as spreads them
    /// evenly over the working set]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_argument)]
    pub thread_stride: Option<u64>,

    /// Where the working set begins on each volume
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size_argument)]
    pub base_offset: u64,

    /// The most that each thread may do: 300i is 300 I/Os a second, 1500 is 1,500 bytes a millisecond
    #[arg(long, value_name = "RATE")]
    pub rate_limit: Option<RateLimit>,

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

    /// What is written: random, zeros, or sequence (the bytes 0 to 255 again and again)
    #[arg(long, value_name = "CONTENT", default_value = "random")]
    pub write_content: WriteContent,

    /// Random data are taken from random places of so many random bytes
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
            random_percent: self.random_percent,
            distribution: self.distribution.clone(),
            alignment_bytes: self.io_alignment,
            thread_stride_bytes: self.thread_stride,
            base_offset_bytes: self.base_offset,
            working_set_bytes: Some(self.working_set),
            rate_limit: self.rate_limit,
            warmup: self.warmup,
            duration: self.duration,
            cooldown: self.cooldown,
            drain: self.drain,
            seed: self.seed,
            write_content: self.write_content,
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
        let request = VolumeRequest {
            count: self.vms,
            size_bytes: self.base_offset + self.working_set,
            aligned_percent: self.alignment,
        };
        let swept = volumes.prepare(&request).and_then(|targets| {
            // To fill them moves none: each is where its client is, or stays.
            volumes.settle_owners()?;
            let mut result = sweep(&spec, &targets, meter, progress)?;
            result.clients_apart = clients_apart(targets.len(), self.alignment);
            // What was measured is not lost because that cannot be told.
            result.warnings = volumes.misplaced().unwrap_or_else(|error| {
                vec![format!("whether a volume had another owner is not known: {error}")]
            });
            Ok(result)
        });
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
    /// How many of 100 clients are on the node that owns their volume.
    pub aligned_percent: u8,
}

/// Makes volumes for the clients and removes them again.
pub trait ClientVolumes {
    /// Makes the volumes and says where they are: one target for each client.
    fn prepare(&mut self, request: &VolumeRequest) -> Result<Vec<Target>, Error>;

    /// Has each volume owned by the node that is to own it, as far as it can be; [`misplaced`](Self::misplaced) says how far.
    fn settle_owners(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Which volumes another node owns than the one that is to, and why, in words.
    fn misplaced(&self) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    /// Removes what `prepare` has made, also if that failed half-way.
    fn cleanup(&mut self) -> Result<(), Error>;
}

pub(crate) fn parse_size_argument(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| format!("{text:?} is no size: write for example 4k, 20M or 16G"))
}

pub(crate) fn parse_block_size(text: &str) -> Result<u32, String> {
    let bytes = parse_size_argument(text)?;
    u32::try_from(bytes).map_err(|_| format!("{text} is too large for one I/O"))
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
