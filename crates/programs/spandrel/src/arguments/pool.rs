//! `spandrel pool`.

use clap::{Args, Subcommand, ValueEnum};
use spandrel_shared::{CacheMode, RepairShare};

use super::OutputArguments;
use super::values::{parse_memory, parse_period, parse_seconds};

/// `spandrel pool`.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Show the pool's room, what is being repaired or moved and how long that takes yet, and what is set
    Status(OutputArguments),
    /// Spread copies so that all drives are filled alike, and wait for it
    ///
    /// Done in the background, by those who serve the volumes; ending this command does not end it. By itself the pool
    /// does so when drives have been filled unevenly for a minute, if --balance is on (`spandrel pool set`).
    Optimize(PoolOptimizeArguments),
    /// Set how the pool keeps itself
    Set(PoolSetArguments),
}

/// `spandrel pool optimize`.
#[derive(Clone, Copy, Debug, Args)]
pub struct PoolOptimizeArguments {
    /// Only say how much would be moved
    #[arg(long)]
    pub dry_run: bool,

    /// Do not wait until it is done
    #[arg(long)]
    pub no_wait: bool,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel pool set`.
#[derive(Clone, Copy, Debug, Args)]
#[group(required = true, multiple = true)]
pub struct PoolSetArguments {
    /// How long a drive may be away while its node is there, before what it holds is built anew elsewhere: 15m, 1h
    /// [default of a new cluster: 15m]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub rebuild_after_drive: Option<u32>,

    /// The same for drives that are away with their node, or with most of its other drives. A node in maintenance is
    /// waited for [default of a new cluster: 1h]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub rebuild_after_node: Option<u32>,

    /// Whether copies are spread by themselves when drives are filled unevenly [default of a new cluster: on]
    #[arg(long, value_enum)]
    pub balance: Option<Switch>,

    /// How much of the nodes' work the repair of copies may be while clients are served: very-low, low, medium, high or
    /// very-high, each twice the one before. While no clients are, it takes all [default of a new cluster: medium]
    #[arg(long, value_name = "SHARE")]
    pub repair_share: Option<RepairShare>,

    /// Whether a drive is retired that was slow three times, with less than an hour in between [default of a new cluster: off]
    #[arg(long, value_enum)]
    pub retire_slow: Option<Switch>,

    /// Within which time every block of every copy is read and compared once: 2w, 10d, or off [default of a new
    /// cluster: 4w]
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    pub scrub_period: Option<u32>,

    /// What cache drives do for capacity drives that are flash: read-write, write-only, read-only or off. What they hold is
    /// moved first where they take no writes any more [default of a new cluster: write-only]
    #[arg(long, value_name = "MODE")]
    pub cache_mode_ssd: Option<CacheMode>,

    /// The same for spinning disks [default of a new cluster: read-write]
    #[arg(long, value_name = "MODE")]
    pub cache_mode_hdd: Option<CacheMode>,

    /// How much memory of each node holds copies of what is read; 0 for none. Good where many read the same, as when VMs
    /// start together; it adds nothing to reads all over a large volume [default of a new cluster: 0]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub memory_cache: Option<u64>,

    /// How much memory of each node the maps of its drives take at most, about, 16M or more; 0 for as much as they need,
    /// some 2.2 GiB for each TiB that its drives hold. With less, a map page that is not in memory is read from its drive first: a read of
    /// 4 KiB waits for that, and takes twice the drive's time [default of a new cluster: 0]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub map_memory: Option<u64>,

    /// Only say what would be set, and what would follow at once
    #[arg(long)]
    pub dry_run: bool,
}

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// It is.
    On,
    /// It is not.
    Off,
}
