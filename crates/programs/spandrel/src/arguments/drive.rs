//! `spandrel drive`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use spandrel_cluster::{DriveRole, MediaClass};
use spandrel_inspect::InspectArguments;

use super::OutputArguments;

/// `spandrel drive`.
#[derive(Clone, Debug, Subcommand)]
pub enum DriveCommand {
    /// List the drives
    #[command(alias = "ls")]
    List(OutputArguments),
    /// Show everything about a drive
    Get(DriveGetArguments),
    /// Give drives of this server to the pool: block devices or files
    ///
    /// A drive that carries anything is refused with what that is, and left as it is.
    Add(DriveAddArguments),
    /// Empty a drive of the pool: its copies move to others, and it takes no new ones
    ///
    /// It serves what it holds until that is elsewhere, so nothing is kept less often meanwhile. Refused if the other
    /// drives have no room, with what lacks it. What stands on a cache drive alone is moved to the drives that it caches for,
    /// and these go on with another one or without.
    Retire(DriveRetireArguments),
    /// Take a drive out of the pool: empties it first, and waits for that
    ///
    /// Refused if the other drives have no room for what it holds, with what lacks it. Interrupted, it goes on being
    /// emptied; the same command takes up the waiting again. Its node does not use it any more then; `drive clean` wipes it.
    /// A cache drive that cannot be emptied, as it does not work or its node is down, is given up, if you agree to that: refused
    /// unless other nodes have all that is behind it. One that is being emptied is not given up; its node is waited for.
    Remove(DriveRemoveArguments),
    /// Wipe a block device or a file of this server, so that `drive add` takes it
    ///
    /// Says what stands there, and asks. Refused while anybody uses it, if it is a drive of the node in --dir, and if it is
    /// one of the cluster's. What is not emptied by the drive itself may still be read from it: this is no way to destroy
    /// secrets.
    Clean(DriveCleanArguments),
    /// Read a drive that no node has open, check everything on it, and show what it holds
    Inspect(InspectArguments),
}

/// `spandrel drive add`.
#[derive(Clone, Debug, Args)]
pub struct DriveAddArguments {
    /// The block devices or files. Give devices by names that stay, like those in /dev/disk/by-id
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// What they are made of, where the kernel does not know or is wrong
    #[arg(long, value_enum)]
    pub media: Option<Media>,

    /// What they are used for. If it is not given, what is faster than all drives of this node that hold copies caches for
    /// them, and everything else holds copies
    #[arg(long, value_enum)]
    pub role: Option<Role>,
}

/// What a drive is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// It holds copies
    Capacity,
    /// It caches for those of its node that do
    Cache,
}

impl From<Role> for DriveRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Capacity => Self::Capacity,
            Role::Cache => Self::Cache,
        }
    }
}

/// `spandrel drive retire`.
#[derive(Clone, Debug, Args)]
pub struct DriveRetireArguments {
    /// The drive's name
    pub name: String,

    /// Use it again: what is on it stays there
    #[arg(long)]
    pub undo: bool,

    /// Only say whether it can be done, and what would be moved
    #[arg(long)]
    pub dry_run: bool,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel drive remove`.
#[derive(Clone, Debug, Args)]
pub struct DriveRemoveArguments {
    /// The drive's name
    pub name: String,

    /// Only say whether it can be done, and what would be moved
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask whether this is meant
    #[arg(long)]
    pub yes: bool,
}

/// `spandrel drive clean`.
#[derive(Clone, Debug, Args)]
pub struct DriveCleanArguments {
    /// The block device or file
    #[arg(value_name = "PATH")]
    pub path: PathBuf,

    /// Only say what stands there and would be lost, or what stands against it
    #[arg(long)]
    pub dry_run: bool,

    /// Do not ask whether this is meant. If a Spandrel drive stands there, --drive-id must say which
    #[arg(long)]
    pub yes: bool,

    /// The identity of the Spandrel drive that may be lost; of each one, if there are several
    #[arg(long = "drive-id", value_name = "IDENTITY")]
    pub drive_ids: Vec<spandrel_shared::DriveId>,
}

/// `spandrel drive get`.
#[derive(Clone, Debug, Args)]
pub struct DriveGetArguments {
    /// The drive's name
    pub name: String,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// What a drive is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Media {
    /// Flash on PCI Express
    Nvme,
    /// Flash behind SATA, SAS or the like
    Ssd,
    /// Spinning disks
    Hdd,
}

impl From<Media> for MediaClass {
    fn from(media: Media) -> Self {
        match media {
            Media::Nvme => Self::Nvme,
            Media::Ssd => Self::Ssd,
            Media::Hdd => Self::Hdd,
        }
    }
}
