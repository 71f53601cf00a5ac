//! What nodes and witnesses have in common: both are servers.
//!
//! And `spandrel witness`, which has nothing else.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::LogArguments;
use super::values::parse_listen;

/// `spandrel node restart` and `spandrel witness restart`.
#[derive(Clone, Debug, Args)]
pub struct ServerRestartArguments {
    /// The server's name
    pub name: String,

    /// Only say whether it can be restarted now, and with which version
    #[arg(long)]
    pub dry_run: bool,

    /// Also if volumes, or the cluster's state, cannot do without it: they stand until it is back
    #[arg(long)]
    pub force: bool,

    /// Wait no longer than this for it to be back [default: 1800]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
}

/// What a new server is and where it listens.
#[derive(Clone, Debug, Args)]
pub struct ServerArguments {
    /// The server's name [default: the machine's]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,

    /// Where the other servers reach this one: an address, with the first of four ports unless it is 7440.
    /// Several addresses are several ways
    #[arg(long, value_name = "ADDRESS[:PORT],...", value_delimiter = ',', required = true, value_parser = parse_listen)]
    pub listen: Vec<SocketAddr>,

    /// The program etcd, version 3.4 or later, with which servers keep the cluster's state
    #[arg(long, value_name = "PROGRAM", default_value = "etcd")]
    pub etcd: PathBuf,
}

/// `spandrel witness`.
#[derive(Clone, Debug, Subcommand)]
pub enum WitnessCommand {
    /// Let this server join a cluster as a witness
    Join(JoinArguments),
    /// Run the witness, in the foreground, until Ctrl-C or SIGTERM
    Run(RunArguments),
    /// Restart a witness with the program that is installed
    Restart(ServerRestartArguments),
    /// Take a witness out of the cluster for good; asked on another server
    Remove(ServerRemoveArguments),
}

/// `spandrel node join` and `spandrel witness join`.
#[derive(Clone, Debug, Args)]
pub struct JoinArguments {
    /// What `spandrel cluster init` or `spandrel cluster join-token` has printed; `-` for standard input. Other users of
    /// this machine can see what stands here
    #[arg(required_unless_present = "token_file", conflicts_with = "token_file")]
    pub token: Option<String>,

    /// A file that holds the token
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// What this server is and where it listens.
    #[command(flatten)]
    pub server: ServerArguments,
}

/// `spandrel witness run`.
#[derive(Clone, Copy, Debug, Args)]
pub struct RunArguments {
    /// How to log.
    #[command(flatten)]
    pub log: LogArguments,
}

/// `spandrel node remove` and `spandrel witness remove`.
#[derive(Clone, Debug, Args)]
pub struct ServerRemoveArguments {
    /// The server's name
    pub name: String,

    /// Only say what would be done, or what stands against it
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask whether this is meant
    #[arg(long)]
    pub yes: bool,
}
