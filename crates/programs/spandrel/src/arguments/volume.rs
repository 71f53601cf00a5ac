//! `spandrel volume` and `spandrel scrub`.

use clap::{Args, Subcommand};

use super::OutputArguments;
use super::values::{parse_new_size, parse_size_argument};
use crate::admin::api::NewSize;

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
    /// Have another node serve a volume; its clients go on
    Move(VolumeMoveArguments),
    /// Make a volume larger while it is used; it never becomes smaller
    ///
    /// Its clients go on, and see the new size when they connect anew: NBD cannot tell them in a connection. Returns when
    /// the volume has the size. If that cannot be, it keeps the one that it has, and the error says why.
    ///
    /// For example, `spandrel volume resize disk1 +10G` adds 10 GiB, and `spandrel volume resize disk1 50G` makes it 50 GiB
    /// large, whatever it was before.
    Resize(VolumeResizeArguments),
    /// Limit what a volume's clients may do, have it stay with its node, or end that; it holds at once
    ///
    /// With --iops-max their I/Os begin as evenly as the limit allows. It holds for the clients of each node by itself.
    ///
    /// For example, `spandrel volume set disk1 --iops-max 1100`, and `spandrel volume set disk1 --iops-max 0` ends it.
    Set(VolumeSetArguments),
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

/// `spandrel volume move`.
#[derive(Clone, Debug, Args)]
pub struct VolumeMoveArguments {
    /// The volume's name
    pub name: String,

    /// The node that is to serve it
    #[arg(long, value_name = "NODE")]
    pub owner: String,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel volume set`.
#[derive(Clone, Debug, Args)]
#[group(id = "settings", required = true, multiple = true, args = ["iops_max", "normalized", "pinned"])]
pub struct VolumeSetArguments {
    /// The volume's name
    pub name: String,

    /// I/Os a second that its clients may do at most at each node; 0 for as many as they can
    #[arg(long, value_name = "COUNT")]
    pub iops_max: Option<u64>,

    /// An I/O counts once for each so many bytes that it begins, 1k or more [default of a new limit: 8k]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_argument)]
    pub normalized: Option<u64>,

    /// Whether the volume stays with the node that serves it; else it comes to the node of the client that writes to
    /// it, after some seconds. It leaves all the same if it is moved, or that node stops or is in maintenance
    #[arg(long, value_name = "BOOL")]
    pub pinned: Option<bool>,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel volume resize`.
#[derive(Clone, Debug, Args)]
pub struct VolumeResizeArguments {
    /// The volume's name
    pub name: String,

    /// The size that it is to have, or with '+' by how much it is to grow: 50G, +10G, 1536M (units of
    /// 1024: K, M, G, T, P), a multiple of 4 KiB
    #[arg(value_name = "SIZE", value_parser = parse_new_size)]
    pub size: NewSize,

    /// Only print what would be done: which drives would hold the copies that come
    #[arg(long)]
    pub dry_run: bool,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel volume delete`.
#[derive(Clone, Debug, Args)]
pub struct VolumeDeleteArguments {
    /// The volume's name
    pub name: String,

    /// Only say what would be lost and freed, or what stands against it
    #[arg(long)]
    pub dry_run: bool,

    /// Also if a client has it open for writing
    #[arg(long)]
    pub force: bool,

    /// Do not ask whether this is meant
    #[arg(long)]
    pub yes: bool,

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

/// `spandrel scrub`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ScrubArguments {
    /// What to do, if not to scrub volumes now.
    #[command(subcommand)]
    pub command: Option<ScrubCommand>,

    /// The volumes [default: all of them]
    #[arg(value_name = "VOLUME")]
    pub names: Vec<String>,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel scrub ...`.
#[derive(Clone, Debug, Subcommand)]
pub enum ScrubCommand {
    /// Show when each volume was read last, how far it is in this pass, and what was found
    Status(ScrubStatusArguments),
}

/// `spandrel scrub status`.
#[derive(Clone, Debug, Args)]
pub struct ScrubStatusArguments {
    /// The volumes [default: all of them]
    #[arg(value_name = "VOLUME")]
    pub names: Vec<String>,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}
