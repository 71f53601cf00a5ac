//! `spandrel up` and `spandrel demo`: a cluster on one machine.

use std::net::IpAddr;

use clap::Args;

use super::drive::Media;
use super::values::parse_size_argument;
use super::{LogArguments, ThreadArguments, VmHostArguments};

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

    /// How large each drive is [default: 4G; with --memory at most a quarter of this machine's memory by all of them, and at least 256M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_argument)]
    pub drive_size: Option<u64>,

    /// How many cache drives each node has in front of these [default: 0]
    #[arg(long, value_name = "COUNT")]
    pub cache_drives: Option<u32>,

    /// How large each cache drive is [default: a quarter of the drives that it caches for]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_argument)]
    pub cache_drive_size: Option<u64>,

    /// For studies: let the drives take the time that these media would. nvme: 700,000 reads or 256,000
    /// writes a second, 2,850 MB/s. ssd (SATA): 93,000 or 10,000, 540 MB/s. hdd: 7,200 turns a minute,
    /// seeks of 8.5 ms, 200 MB/s [default: they are as fast as this machine]
    #[arg(long, value_name = "MEDIA")]
    pub capacity_media: Option<Media>,

    /// The same for the cache drives
    #[arg(long, value_name = "MEDIA")]
    pub cache_media: Option<Media>,

    /// How fast these media are, compared with real ones: 0.01 has a hundredth of their rates, and all
    /// takes a hundred times as long. More than 0, at most 1000 [default: 1]
    #[arg(long, value_name = "FACTOR")]
    pub media_scale: Option<f64>,

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

    /// On which threads.
    #[command(flatten)]
    pub threads: ThreadArguments,

    /// What nodes have for virtual machines.
    #[command(flatten)]
    pub vms: VmHostArguments,

    /// How to log.
    #[command(flatten)]
    pub log: LogArguments,
}

/// `spandrel demo`.
#[derive(Clone, Copy, Debug, Args)]
pub struct DemoArguments {
    /// Keep the drives in memory
    #[arg(long)]
    pub memory: bool,
}
