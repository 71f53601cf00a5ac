//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use spandrel_fleet::FleetArguments;
use spandrel_inspect::InspectArguments;
use spandrel_shared::size::parse_size;

const EXIT_CODES: &str = "\
Exit status:
  0    done
  1    refused or failed; the error on standard error has a code, a reason and a way out
  2    verify, scrub or inspect found damage, differences, or copies that they could not check
  64   the command line makes no sense
  130  interrupted

The cluster's directory is --dir, else $SPANDREL_DIR, else $XDG_DATA_HOME/spandrel, else
~/.local/share/spandrel.";

/// Spandrel: storage of a few servers as one, every write on two or three of them
#[derive(Debug, Parser)]
#[command(name = "spandrel", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Arguments {
    /// The cluster's directory
    #[arg(long, global = true, env = "SPANDREL_DIR", value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
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
    /// Make, look at, check and delete volumes
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Look at nodes, stop and start them
    #[command(subcommand)]
    Node(NodeCommand),
    /// Look at drives
    #[command(subcommand)]
    Drive(DriveCommand),
    /// Show what the last scrub of each volume found, or scrub all volumes now
    ///
    /// A scrub reads every block of every copy, checks it against its checksum and the other copies,
    /// and heals what is damaged.
    Scrub(ScrubArguments),
    /// Measure the cluster with a fleet of clients
    Fleet(FleetArguments),
    /// Show it all in three minutes: a cluster, a sweep, a node that dies under load and comes back
    Demo(DemoArguments),
    /// Print the completion script for a shell
    Completions(CompletionsArguments),
}

/// `spandrel up`.
#[derive(Clone, Debug, Args)]
pub struct UpArguments {
    /// Keep the drives in memory: quicker than any disk, and gone when the cluster ends
    #[arg(long)]
    pub memory: bool,

    /// How many nodes [default: 4]
    #[arg(long, value_name = "COUNT")]
    pub nodes: Option<u32>,

    /// How many drives each node has [default: 2]
    #[arg(long, value_name = "COUNT")]
    pub drives: Option<u32>,

    /// How large each drive is [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_argument)]
    pub drive_size: Option<u64>,

    /// The unit in which room is given to volumes: a power of two from 4M to 256M [default: a 64th
    /// of a drive, within these]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_argument)]
    pub slab_size: Option<u64>,

    /// Let drive files take room only as they are written to. If the file system fills up later,
    /// writes fail
    #[arg(long)]
    pub sparse: bool,

    /// Where to listen on TCP, if at all (see --nbd-port); without TLS only this machine itself
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub listen: IpAddr,

    /// Serve NBD on TCP too: the first node on this port, the others on those behind it
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub nbd_port: Option<u16>,

    /// Log to standard error instead of DIR/log/spandrel.log, and more
    #[arg(short, long)]
    pub verbose: bool,
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

/// `spandrel volume`.
#[derive(Clone, Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a volume
    Create(VolumeCreateArguments),
    /// List the volumes
    #[command(alias = "ls")]
    List(OutputArguments),
    /// Show a volume: how it is, where its copies are, how to use it
    Get(VolumeArguments),
    /// Delete a volume and all its data
    #[command(alias = "rm")]
    Delete(VolumeDeleteArguments),
    /// Read every block of every copy of a volume, check it, and compare the copies
    ///
    /// The volume can be used meanwhile. Exit status 2 if anything is damaged or different, or if a
    /// copy could not be read.
    Verify(VerifyArguments),
}

/// `spandrel volume create`.
#[derive(Clone, Debug, Args)]
pub struct VolumeCreateArguments {
    /// Its name: letters, digits, '-', '_' and '.'
    pub name: String,

    /// Its size, a multiple of 4 KiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size_argument)]
    pub size: u64,

    /// How many copies of it are kept, each on another node [default: 3, or 2 if there are only two
    /// nodes]
    #[arg(long, value_name = "COUNT")]
    pub copies: Option<u8>,

    /// The node that is to serve it; its reads need no network there [default: the one with the
    /// fewest volumes]
    #[arg(long, value_name = "NODE")]
    pub owner: Option<String>,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// A volume's name and how to print the result.
#[derive(Clone, Debug, Args)]
pub struct VolumeArguments {
    /// The volume's name
    pub name: String,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel volume delete`.
#[derive(Clone, Debug, Args)]
pub struct VolumeDeleteArguments {
    /// The volume's name
    pub name: String,

    /// Also if a client has it open for writing
    #[arg(long)]
    pub force: bool,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel volume verify`.
#[derive(Clone, Debug, Args)]
pub struct VerifyArguments {
    /// The volume's name
    pub name: String,

    /// Also heal what is damaged
    #[arg(long)]
    pub heal: bool,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel node`.
#[derive(Clone, Debug, Subcommand)]
pub enum NodeCommand {
    /// List the nodes
    #[command(alias = "ls")]
    List(OutputArguments),
    /// Stop a node: its volumes move to other nodes, its clients lose their connections
    Stop(NodeStopArguments),
    /// Start a node that was stopped
    Start(NodeArguments),
}

/// `spandrel node stop`.
#[derive(Clone, Debug, Args)]
pub struct NodeStopArguments {
    /// The node's name
    pub name: String,

    /// Without warning, as if its power had failed
    #[arg(long)]
    pub abrupt: bool,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// A node's name and how to print the result.
#[derive(Clone, Debug, Args)]
pub struct NodeArguments {
    /// The node's name
    pub name: String,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel drive`.
#[derive(Clone, Debug, Subcommand)]
pub enum DriveCommand {
    /// List the drives
    #[command(alias = "ls")]
    List(OutputArguments),
    /// Read a drive that no node has open, check everything on it, and show what it holds
    Inspect(InspectArguments),
}

/// `spandrel scrub`.
#[derive(Clone, Copy, Debug, Args)]
pub struct ScrubArguments {
    /// Scrub all volumes now, and wait for it
    #[arg(long)]
    pub now: bool,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel demo`.
#[derive(Clone, Copy, Debug, Args)]
pub struct DemoArguments {
    /// Keep the drives in memory
    #[arg(long)]
    pub memory: bool,
}

/// `spandrel completions`.
#[derive(Clone, Copy, Debug, Args)]
pub struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

fn parse_size_argument(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| format!("{text:?} is no size: write for example 64M, 1G or 1536M"))
}

#[cfg(test)]
#[path = "arguments_tests.rs"]
mod tests;
