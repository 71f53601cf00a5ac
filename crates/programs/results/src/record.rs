//! What is kept of a run.

use serde::{Deserialize, Serialize};
use spandrel_fleet::{CellNumber, CellResult, GuestDiskBus, Layers, RunPlan, SweepRow, Usage};
use spandrel_shared::Error;

/// The version of the folder that this program writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The version of the folder.
    pub format: u32,
    /// What reports call it.
    pub name: String,
    /// The program that made it.
    pub created_by: String,
    /// When it began, in milliseconds since 1970.
    pub begun_unix_ms: u64,
    /// When its last cell was kept; absent if it was broken off, or still runs.
    #[serde(default)]
    pub ended_unix_ms: Option<u64>,
    /// Why it ended before its last cell, if it did.
    #[serde(default)]
    pub stopped_by: Option<Error>,
    /// What was to be measured.
    pub plan: RunPlan,
    /// How many of 100 clients were on the node that owned their volumes.
    pub aligned_percent: u8,
    /// The virtual machines in which its clients run; absent if they run in the fleet itself.
    #[serde(default)]
    pub guest: Option<GuestDescription>,
    /// Which cluster.
    pub cluster: ClusterDescription,
    /// What spoke against the run before it began.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// A virtual machine in which a client runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestDescription {
    /// How its requests come to its disk.
    pub disk_bus: GuestDiskBus,
    /// How many processors it has.
    pub processors: u16,
    /// Its memory, in bytes.
    pub memory_bytes: u64,
}

/// A cluster, as far as results depend on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterDescription {
    /// Its version.
    pub version: String,
    /// Its nodes.
    pub nodes: Vec<NodeDescription>,
    /// Copies of each volume.
    pub copies: u8,
    /// Whether its drives are in memory, so that nothing is durable.
    pub is_in_memory: bool,
    /// What a flush of the disk under its drives took, in microseconds, where they are files.
    #[serde(default)]
    pub flush_us: Option<u64>,
    /// The server that clients and, as far as all are on one, nodes ran on.
    pub machine: MachineDescription,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDescription {
    /// Its name.
    pub name: String,
    /// Its drives.
    pub drives: Vec<DriveDescription>,
}

/// A drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveDescription {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// What it is made of, as far as that is known.
    #[serde(default)]
    pub media: Option<String>,
    /// Whether it caches for others.
    #[serde(default)]
    pub is_cache: bool,
}

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineDescription {
    /// What its processor calls itself.
    pub processor: String,
    /// The cores that the program could use.
    pub cores: u32,
    /// Its memory.
    pub memory_bytes: u64,
    /// The kernel's version.
    pub kernel: String,
}

impl MachineDescription {
    /// The server that this runs on. What it does not say is empty.
    pub fn of_this() -> Self {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let info = rustix::system::sysinfo();
        Self {
            processor: model.map_or_else(String::new, |(_, name)| name.trim().to_owned()),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
            memory_bytes: info.totalram as u64 * u64::from(info.mem_unit),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        }
    }
}

/// One measurement of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellRecord {
    /// Which.
    pub number: CellNumber,
    /// When it was kept, in milliseconds since 1970.
    pub kept_unix_ms: u64,
    /// What the clients saw.
    pub result: CellResult,
    /// What the cluster used.
    pub usage: Usage,
    /// What went on at every layer; absent if the cluster did not say.
    #[serde(default)]
    pub layers: Option<Layers>,
    /// The same in equal parts of the measurement.
    #[serde(default)]
    pub layer_intervals: Vec<Layers>,
}

impl CellRecord {
    /// What a run has just measured.
    pub fn new(number: CellNumber, row: &SweepRow, kept_unix_ms: u64) -> Self {
        Self {
            number,
            kept_unix_ms,
            result: row.cell.clone(),
            usage: row.usage,
            layers: row.layers.clone(),
            layer_intervals: row.layer_intervals.clone(),
        }
    }
}
