//! `spandrel vm`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use spandrel_cluster::{VmDiskBus, VmPriority};

use super::OutputArguments;
use super::values::{parse_memory, parse_size_argument};

/// `spandrel vm`.
#[derive(Clone, Debug, Subcommand)]
pub enum VmCommand {
    /// Make a virtual machine whose disk is a volume; it is off then
    ///
    /// For example, from a cloud image: `spandrel volume create web --size 10G`, then `spandrel vm create web --volume web
    /// --disk-image debian-12-nocloud-amd64.qcow2` and `spandrel vm start web`.
    Create(VmCreateArguments),
    /// List the virtual machines
    #[command(alias = "ls")]
    List(OutputArguments),
    /// List the nodes that run virtual machines, with the memory that is left there
    Hosts(OutputArguments),
    /// Show a virtual machine: how it is, where it runs and why there
    Get(VmArguments),
    /// Have a virtual machine run, on whichever node has room for it, and on another one if that is lost
    Start(VmStartArguments),
    /// Ask a virtual machine's guest to shut down, and wait until it has
    Stop(VmStopArguments),
    /// Move a virtual machine to another node while it runs; its guest stands still for a part of a second
    Migrate(VmMigrateArguments),
    /// Delete a virtual machine that is off; the volume that was its disk stays
    #[command(alias = "rm")]
    Delete(VmDeleteArguments),
    /// Use a virtual machine's serial console; Ctrl-] leaves it
    ///
    /// On the server that it runs on. What it has written there since its last start is shown first.
    Console(VmConsoleArguments),
}

/// `spandrel vm create`.
#[derive(Clone, Debug, Args)]
pub struct VmCreateArguments {
    /// Its name: letters, digits, '-', '_' and '.'
    pub name: String,

    /// The volume that is its disk, and no other virtual machine's
    #[arg(long, value_name = "VOLUME")]
    pub volume: String,

    /// How many processors it has
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=255))]
    pub vcpus: u16,

    /// Its memory, a multiple of 1 MiB
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = parse_size_argument)]
    pub memory: u64,

    /// How its requests come to its disk: by NBD, or by vhost-user, where the node sees the guest's memory and QEMU is left out
    #[arg(long, value_enum, value_name = "BUS", default_value_t)]
    pub disk_bus: DiskBus,

    /// When it is started, if several have lost their nodes
    #[arg(long, value_enum, value_name = "PRIORITY", default_value_t)]
    pub priority: Priority,

    /// Start from this kernel, and not from the disk: a path that is there on every node
    #[arg(long, value_name = "PATH")]
    pub kernel: Option<PathBuf>,

    /// The initial RAM disk of that kernel: a path that is there on every node
    #[arg(long, value_name = "PATH", requires = "kernel")]
    pub initrd: Option<PathBuf>,

    /// The command line of that kernel
    #[arg(long, value_name = "TEXT", requires = "kernel", default_value = "console=ttyS0")]
    pub append: String,

    /// Copy this disk image, raw or qcow2, into the volume first: everything that is there is gone then
    #[arg(long, value_name = "FILE", conflicts_with = "kernel")]
    pub disk_image: Option<PathBuf>,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// How a virtual machine's requests come to its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DiskBus {
    /// QEMU passes them on, and pauses the guest if its disk fails
    #[default]
    Nbd,
    /// The node takes them from the guest's memory: less work for each, and the guest sees failures of its disk itself
    VhostUser,
}

impl From<DiskBus> for VmDiskBus {
    fn from(bus: DiskBus) -> Self {
        match bus {
            DiskBus::Nbd => Self::Nbd,
            DiskBus::VhostUser => Self::VhostUser,
        }
    }
}

/// When a virtual machine is started, among others that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Priority {
    /// Before all others
    High,
    /// As a rule
    #[default]
    Medium,
    /// After all others
    Low,
    /// Not by itself: it stays off when its node is lost
    NoAutoStart,
}

impl From<Priority> for VmPriority {
    fn from(priority: Priority) -> Self {
        match priority {
            Priority::High => Self::High,
            Priority::Medium => Self::Medium,
            Priority::Low => Self::Low,
            Priority::NoAutoStart => Self::NoAutoStart,
        }
    }
}

/// A virtual machine's name and how to print the result.
#[derive(Clone, Debug, Args)]
pub struct VmArguments {
    /// The virtual machine's name
    pub name: String,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel vm start`.
#[derive(Clone, Debug, Args)]
pub struct VmStartArguments {
    /// The virtual machine's name
    pub name: String,

    /// Wait no longer than this until it runs, in seconds; it is started all the same
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub timeout: u64,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel vm stop`.
#[derive(Clone, Debug, Args)]
pub struct VmStopArguments {
    /// The virtual machine's name
    pub name: String,

    /// End it at once, as if its power was cut: what its guest has not synced is lost
    #[arg(long)]
    pub force: bool,

    /// Wait no longer than this until it is off, in seconds; its guest is asked on all the same
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub timeout: u64,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel vm migrate`.
#[derive(Clone, Debug, Args)]
pub struct VmMigrateArguments {
    /// The virtual machine's name
    pub name: String,

    /// The node that it is to run on [default: the one with most memory left]
    #[arg(long, value_name = "NODE")]
    pub to: Option<String>,

    /// Wait no longer than this until it is there, in seconds; it moves all the same
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub timeout: u64,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

/// `spandrel vm delete`.
#[derive(Clone, Debug, Args)]
pub struct VmDeleteArguments {
    /// The virtual machine's name
    pub name: String,

    /// Do not ask whether this is meant
    #[arg(long)]
    pub yes: bool,
}

/// `spandrel vm console`.
#[derive(Clone, Debug, Args)]
pub struct VmConsoleArguments {
    /// The virtual machine's name
    pub name: String,
}

/// What nodes have for virtual machines.
#[derive(Clone, Debug, Default, Args)]
pub struct VmHostArguments {
    /// Memory of each node for virtual machines, which run where QEMU is installed; 0 for no virtual machines [default: half
    /// of the machine's, shared out among its nodes]
    #[arg(long, env = "SPANDREL_VM_MEMORY", value_name = "SIZE", value_parser = parse_memory)]
    pub vm_memory: Option<u64>,
}
