//! The command line: the commands, each with its help, and what may be said to it.
//!
//! Each noun has a file of its own.

mod access;
mod cluster;
mod diagnosis;
mod drive;
mod local;
mod node;
mod pool;
mod server;
mod values;
mod vm;
mod volume;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use spandrel_fleet::FleetArguments;
use spandrel_node::SHARDS_MAX;
use spandrel_platform_linux::Cores;

pub use self::access::*;
pub use self::cluster::*;
pub use self::diagnosis::*;
pub use self::drive::*;
pub use self::local::*;
pub use self::node::*;
pub use self::pool::*;
pub use self::server::*;
pub use self::vm::*;
pub use self::volume::*;
use crate::commands::TopArguments;

const EXIT_CODES: &str = "\
Exit status:
  0    done
  1    refused or failed; the error on standard error has a code, a reason and a way out
  2    verify, scrub or inspect found damage, differences, or copies that they could not check
  64   the command line makes no sense
  130  interrupted

The cluster's directory is --dir, else $SPANDREL_DIR, else $XDG_DATA_HOME/spandrel, else
~/.local/share/spandrel. With --server a server elsewhere is asked instead.";

/// Spandrel: storage of a few servers as one, every write on two or three of them
#[derive(Debug, Parser)]
#[command(name = "spandrel", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Arguments {
    /// Which cluster.
    #[command(flatten)]
    pub reach: ReachArguments,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Which cluster is asked, and how.
#[derive(Clone, Debug, Default, Args)]
pub struct ReachArguments {
    /// The cluster's directory
    #[arg(long, global = true, env = "SPANDREL_DIR", value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Ask a server elsewhere instead, with an access token: its address or name, as in its --listen
    #[arg(long, global = true, value_name = "ADDRESS[:PORT]")]
    pub server: Option<String>,

    /// The access token: what `spandrel access create` has printed. Other users of this machine can see what stands here
    #[arg(
        long = "token",
        global = true,
        env = "SPANDREL_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pub access_token: Option<String>,

    /// A file that holds the access token
    // The same identity as the option of `join`, which takes its place there.
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a cluster of several nodes on this machine, in the foreground
    ///
    /// Each node has its own drives, files in DIR, and serves every volume on its own NBD socket. The
    /// same DIR comes back with all its data. Ends cleanly on Ctrl-C or SIGTERM.
    Up(UpArguments),
    /// Show how the cluster is
    Status(OutputArguments),
    /// Watch how busy the cluster is: operations, latency and queue by layer, nodes, volumes, repairs, pauses
    Top(TopArguments),
    /// Make a cluster of servers, and let servers join it
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Make, look at, check and delete volumes
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Make virtual machines whose disks are volumes, start and stop them; they go on when a node is lost
    #[command(subcommand)]
    Vm(VmCommand),
    /// Let this server join a cluster as a node, run it; look at nodes, stop and start them
    #[command(subcommand)]
    Node(NodeCommand),
    /// Let this server join a cluster as a witness, and run it
    ///
    /// A witness has no drives and serves nobody. It helps to keep the cluster's state, so that a cluster of
    /// two nodes goes on without either, and one of four without any two.
    #[command(subcommand)]
    Witness(WitnessCommand),
    /// Say who may use the admin API
    #[command(subcommand)]
    Access(AccessCommand),
    /// Look at drives
    #[command(subcommand)]
    Drive(DriveCommand),
    /// Look at all drives together, say how they keep themselves, spread what is on them
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Show what is the matter with the cluster
    #[command(subcommand)]
    Fault(FaultCommand),
    /// Say why something is as it is, what is being done about it, and what you may and must not do
    #[command(subcommand)]
    Explain(ExplainCommand),
    /// Scrub volumes now, or show how far their scrubs are
    ///
    /// A scrub reads every block of every copy, checks it against its checksum and the other copies,
    /// and heals what is damaged.
    Scrub(ScrubArguments),
    /// Measure the cluster with a fleet of clients
    Fleet(FleetArguments),
    /// Show it all in a minute or two: a cluster, a sweep, a node that dies under load and comes back
    Demo(DemoArguments),
    /// Print the completion script for a shell
    Completions(CompletionsArguments),
}

/// On which threads a process serves data.
#[derive(Clone, Debug, Args)]
pub struct ThreadArguments {
    /// The cores that serve data, like 0 or 0,2-3, shared out among nodes and shards. On few cores an operation takes less
    /// processor time, and the others are left to virtual machines and whoever else runs here [default: wherever the kernel
    /// puts it]
    #[arg(long, value_name = "LIST")]
    pub cores: Option<Cores>,

    /// In how many shards a node serves data: each is a thread with its share of the node's drives and volumes. More can do
    /// more at once, and cost messages between them. Not for nodes with cache drives. A server's further shards listen at the
    /// ports behind its four
    #[arg(long, value_name = "COUNT", default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=i64::from(SHARDS_MAX)))]
    pub shards: u8,
}

impl Default for ThreadArguments {
    fn default() -> Self {
        Self { cores: None, shards: 1 }
    }
}

/// How a cluster's or a server's process logs.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct LogArguments {
    /// Log to standard error instead of DIR/log/spandrel.log, and more
    #[arg(short, long)]
    pub verbose: bool,

    /// How a line of the log looks
    #[arg(long, value_enum, env = "SPANDREL_LOG_FORMAT", value_name = "FORMAT", default_value_t)]
    pub log_format: LogFormat,
}

/// The forms of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// For programs: one JSON object a line, with time, level, target, node, message and fields
    Json,
}

/// How to print a result.
#[derive(Clone, Copy, Debug, Args)]
pub struct OutputArguments {
    /// How to print it
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Output,
}

/// The forms of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
}

/// `spandrel completions`.
#[derive(Clone, Copy, Debug, Args)]
pub struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
