//! The command lines of `spandrel fleet` around runs: run, profiles, report, import, pause and continue.

use std::fmt;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::arguments::{parse_block_size, parse_size_argument};
use crate::profile::Changes;

/// `spandrel fleet run`. Lists are separated by commas.
#[derive(Clone, Debug, Args)]
pub struct RunArguments {
    /// What is measured: one of `spandrel fleet profiles`, or the path of a file of your own, as ./mine.toml
    #[arg(required_unless_present = "resume")]
    pub profile: Option<String>,

    /// Go on with a run that was broken off, in its folder; what was measured stays
    #[arg(long, value_name = "DIR", conflicts_with_all = ["profile", "vms", "working_set", "repeat", "block_size",
        "write_percent", "outstanding", "threads", "load_threads", "time_scale", "data_scale", "alignment",
        "results", "name", "guest", "disk_bus", "guest_vcpus", "guest_memory"])]
    pub resume: Option<PathBuf>,

    /// Clients, each standing for one virtual machine with a volume of its own [default: the profile's]
    #[arg(long, alias = "clients", value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub vms: Option<u32>,

    /// How much of its volume each client uses, before it is scaled [default: the profile's]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_argument)]
    pub working_set: Option<u64>,

    /// How often each cell is measured [default: the profile's]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,

    /// Bytes of one I/O, as 4k or 1M [default: the profile's]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_block_size)]
    pub block_size: Vec<u32>,

    /// How many of 100 I/Os are writes [default: the profile's]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(0..=100))]
    pub write_percent: Vec<u8>,

    /// I/Os that each thread keeps in flight [default: the profile's]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub outstanding: Vec<u32>,

    /// Threads of each client [default: the profile's]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub threads: Vec<u32>,

    /// Event loops of the load generator; one does for hundreds of clients, and the report says where it was not enough
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub load_threads: u32,

    /// Make all times of the profile so many times as long: 0.02 makes two minutes 2.4 s. Results say it
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub time_scale: f64,

    /// Make working sets so many times as large: 0.002 makes 16 GiB 32.8 MiB. Results say it
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub data_scale: f64,

    /// How many of 100 clients are on the node that owns their volume; the others reach it through another one. The
    /// reference architectures were measured with 100 and 70. Results say it
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub alignment: u8,

    /// Run the load inside virtual machines, one for each client, which are made for the run [default: in the fleet itself]
    #[arg(long, value_enum, value_name = "KIND", conflicts_with = "alignment")]
    pub guest: Option<GuestKind>,

    /// How the requests of these virtual machines come to their disks
    #[arg(long, value_enum, value_name = "BUS", default_value_t, requires = "guest")]
    pub disk_bus: GuestDiskBus,

    /// How many processors each of them has
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "guest",
        value_parser = clap::value_parser!(u16).range(1..=255))]
    pub guest_vcpus: u16,

    /// The memory of each of them, a multiple of 1 MiB
    #[arg(long, value_name = "SIZE", default_value = "256M", requires = "guest", value_parser = parse_size_argument)]
    pub guest_memory: u64,

    /// Where the kernel and the RAM disk of these virtual machines are kept, and built if they are not there
    /// [default: spandrel/guest in XDG_CACHE_HOME or ~/.cache]
    #[arg(long, value_name = "DIR")]
    pub guest_files: Option<PathBuf>,

    /// Where the results go: a new folder, or an empty one [default: fleet-PROFILE-TIME in this folder]
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,

    /// What reports call the run [default: the profile's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// In which virtual machines a load runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GuestKind {
    /// Those of the cluster, by QEMU; they boot Debian's kernel, which is fetched once
    Qemu,
}

/// How the requests of a virtual machine come to its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestDiskBus {
    /// QEMU passes them on
    #[default]
    Nbd,
    /// The node takes them from the guest's memory
    VhostUser,
}

impl fmt::Display for GuestDiskBus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Nbd => "nbd",
            Self::VhostUser => "vhost-user",
        })
    }
}

impl RunArguments {
    /// What is wanted otherwise than the profile says it.
    pub fn changes(&self) -> Changes {
        Changes {
            vms: self.vms,
            working_set_bytes: self.working_set,
            repeat: self.repeat,
            block_sizes_bytes: self.block_size.clone(),
            write_percents: self.write_percent.clone(),
            outstanding: self.outstanding.clone(),
            threads: self.threads.clone(),
            load_threads: self.load_threads,
            time_scale: self.time_scale,
            data_scale: self.data_scale,
        }
    }
}

/// `spandrel fleet agent`, which runs in virtual machines.
#[derive(Clone, Debug, Args)]
pub struct AgentArguments {
    /// The disk that gets the load
    #[arg(long, value_name = "PATH", default_value = "/dev/vda")]
    pub drive: String,
}

/// `spandrel fleet profiles`.
#[derive(Clone, Debug, Args)]
pub struct ProfilesArguments {
    /// Print this profile as a file, to be changed
    pub profile: Option<String>,
}

/// `spandrel fleet pause` and `spandrel fleet continue`.
#[derive(Clone, Debug, Args)]
pub struct RunFolderArguments {
    /// The folder of the run
    pub run: PathBuf,
}

/// `spandrel fleet report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArguments {
    /// Folders of runs, files of `spandrel fleet import`, or published results (`published:micron-sata`); what
    /// the others are compared with first
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<String>,

    /// The file to write
    #[arg(long, value_name = "FILE")]
    pub html: PathBuf,

    /// The report's title [default: what the first run is]
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,

    /// What a node costs, for the price of an IOPS
    #[arg(long, value_name = "PRICE", value_parser = parse_positive)]
    pub node_price: Option<f64>,

    /// How many rack units a node takes, for VMs of a rack unit
    #[arg(long, value_name = "UNITS", value_parser = parse_positive)]
    pub node_rack_units: Option<f64>,

    /// How many TB may be written to a drive within its warranty (TBW), to compare with what is written
    #[arg(long, value_name = "TB", value_parser = parse_positive)]
    pub drive_endurance: Option<f64>,

    /// How many years that warranty is
    #[arg(long, value_name = "YEARS", default_value_t = 5.0, value_parser = parse_positive)]
    pub warranty_years: f64,
}

/// `spandrel fleet import`.
#[derive(Clone, Debug, Args)]
pub struct ImportArguments {
    /// Results of DISKSPD (XML, -Rxml -L) or of fio (JSON, --output-format=json), all of one kind
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// The file to write, for `spandrel fleet report`
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,

    /// What reports call it
    #[arg(long, value_name = "NAME", default_value = "imported")]
    pub name: String,

    /// How many nodes the cluster had that was measured, for prices
    #[arg(long, value_name = "COUNT")]
    pub nodes: Option<u32>,

    /// How many drives held data, for queues
    #[arg(long, value_name = "COUNT")]
    pub drives: Option<u32>,
}

fn parse_positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err(format!("{text:?} is no number above 0")),
    }
}
