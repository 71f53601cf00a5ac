//! `spandrel cluster`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use spandrel_shared::SlabGeometry;

use super::values::{parse_slab_size, parse_state};
use super::{OutputArguments, ServerArguments};

/// `spandrel cluster`.
#[derive(Clone, Debug, Subcommand)]
pub enum ClusterCommand {
    /// Make a cluster whose first node is this server, and print what lets others join
    ///
    /// Only makes files, in --dir. `spandrel node run` then runs the node.
    Init(ClusterInitArguments),
    /// Show how the cluster is
    Status(OutputArguments),
    /// Print a new join token, good for a week; list those that are valid, revoke one
    JoinToken(JoinTokenArguments),
    /// Show which servers keep the cluster's state
    State(OutputArguments),
    /// Show the servers, nodes and witnesses, and which version of the program each runs
    Servers(OutputArguments),
    /// Restart all servers, one after the other, with the program that is installed: clients go on
    ///
    /// Each node hands its volumes over first, and the next server waits until all copies are in sync again. Stops, and
    /// says why, where a server is needed by volumes or by the cluster's state, or does not come back. The processes go on
    /// under their numbers, so that whatever looks after them sees no end.
    Restart(ClusterRestartArguments),
    /// Write the cluster's state into a file. Each server makes such backups by itself, too
    Backup(BackupArguments),
    /// Put the cluster's state back to a backup, when the newest one is lost for good
    ///
    /// To be run on one server, while all of them are stopped: the way out when most of the servers that keep the
    /// state are lost for good, or when the state is older than what the drives have seen. Says what may be lost,
    /// and asks.
    Recover(RecoverArguments),
    /// Show which volumes wait for their copies to be compared after `cluster recover`, or go on without some nodes
    Settle(SettleArguments),
}

/// `spandrel cluster restart`.
#[derive(Clone, Debug, Default, Args)]
pub struct ClusterRestartArguments {
    /// Only these servers
    #[arg(value_name = "SERVER")]
    pub names: Vec<String>,

    /// Only servers whose program has been replaced since they started
    #[arg(long)]
    pub outdated: bool,

    /// Only say whether each can be restarted now, and with which version
    #[arg(long)]
    pub dry_run: bool,

    /// Wait no longer than this for one server to be back, or for copies to be in sync again [default: 1800]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
}

/// `spandrel cluster join-token`.
#[derive(Clone, Debug, Args)]
pub struct JoinTokenArguments {
    /// What to do; a new one is made if nothing is said.
    #[command(subcommand)]
    pub command: Option<JoinTokenCommand>,
}

/// `spandrel cluster join-token`.
#[derive(Clone, Debug, Subcommand)]
pub enum JoinTokenCommand {
    /// Print a new one
    Create,
    /// List those that are valid, without their secrets
    #[command(alias = "ls")]
    List(OutputArguments),
    /// Let nobody join any more with one of them
    Revoke(JoinTokenNameArguments),
}

/// `spandrel cluster join-token revoke`.
#[derive(Clone, Debug, Args)]
pub struct JoinTokenNameArguments {
    /// How its number begins, as the list shows it
    pub id: String,

    /// Only say which one it would be
    #[arg(long)]
    pub dry_run: bool,
}

/// `spandrel cluster backup`.
#[derive(Clone, Debug, Args)]
pub struct BackupArguments {
    /// A file that is not there yet
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `spandrel cluster recover`.
#[derive(Clone, Debug, Args)]
pub struct RecoverArguments {
    /// The backup: any server's newest one in DIR/backups, or one that `spandrel cluster backup` has made
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "from_member",
        conflicts_with = "from_member"
    )]
    pub from: Option<PathBuf>,

    /// Use what this server's own member of etcd still has: newer than any backup, if it was not cut off
    #[arg(long)]
    pub from_member: bool,

    /// Only say what would be done, and what may be lost
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask whether this is meant
    #[arg(long)]
    pub yes: bool,
}

/// `spandrel cluster settle`.
#[derive(Clone, Debug, Args)]
pub struct SettleArguments {
    /// Give the drives of this node up for lost; may be said several times
    #[arg(long, value_name = "NODE")]
    pub without: Vec<String>,

    /// Give up what was written to this volume behind its end: it had grown since the backup was made. May be said several
    /// times
    #[arg(long, value_name = "VOLUME")]
    pub without_growth: Vec<String>,

    /// Only show what waits, and what would be given up
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask whether this is meant
    #[arg(long)]
    pub yes: bool,
}

/// `spandrel cluster init`.
#[derive(Clone, Debug, Args)]
pub struct ClusterInitArguments {
    /// The cluster's name
    #[arg(long)]
    pub name: String,

    /// What this server is and where it listens.
    #[command(flatten)]
    pub server: ServerArguments,

    /// The unit in which room is given to volumes: a power of two from 4M to 256M
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_slab_size)]
    pub slab_size: SlabGeometry,

    /// Keep the cluster's state in an etcd that others look after: its members, like
    /// etcd://10.0.0.5:2379. Those on other machines need the three files below
    #[arg(long, value_name = "URL,...", value_delimiter = ',', value_parser = parse_state)]
    pub state: Vec<String>,

    /// The certificate of the authority that has signed for the members of that etcd, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["state", "state_certificate", "state_key"])]
    pub state_authority: Option<PathBuf>,

    /// A certificate that they let in. All servers of the cluster use it, and get it when they join
    #[arg(long, value_name = "FILE", requires_all = ["state", "state_authority", "state_key"])]
    pub state_certificate: Option<PathBuf>,

    /// Its private key
    #[arg(long, value_name = "FILE", requires_all = ["state", "state_authority", "state_certificate"])]
    pub state_key: Option<PathBuf>,
}
