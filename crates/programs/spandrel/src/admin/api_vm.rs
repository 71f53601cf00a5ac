//! Virtual machines.

use serde::{Deserialize, Serialize};
use spandrel_cluster::{VmBoot, VmDiskBus, VmGoal, VmPriority};
use spandrel_shared::VmId;

/// `GET`: a list of [`VmStatus`]. `POST` of a [`VmCreate`]: [`VmStatus`]. It is off then.
pub const VMS: &str = "/v1/vms";
/// `GET`: [`VmStatus`]. `DELETE`: its disk stays.
pub const VM: &str = "/v1/vms/{name}";
/// `POST`: [`VmStatus`], at once. A node claims and starts it then.
pub const VM_START: &str = "/v1/vms/{name}/start";
/// `POST` of a [`VmStop`]: [`VmStatus`], at once. Its guest is asked to shut down then.
pub const VM_STOP: &str = "/v1/vms/{name}/stop";

/// `GET`, with an upgrade to `spandrel-stream`: the serial console from then on, with what was written there before.
pub const VM_CONSOLE: &str = "/v1/vms/{name}/console";
/// The same of a virtual machine on the node that is asked, by its identity.
pub const NODE_VM_CONSOLE: &str = "/v1/node/vms/{name}/console";
/// `GET`, with the same upgrade: what takes in what a guest has in memory, which moves to the node that is asked.
pub const NODE_VM_INCOMING: &str = "/v1/node/vms/{name}/incoming";
/// `POST` of a [`VmMigrate`]: [`VmStatus`], at once. It moves then.
pub const VM_MIGRATE: &str = "/v1/vms/{name}/migrate";
/// `GET`: a list of [`VmHostStatus`].
pub const VM_HOSTS: &str = "/v1/vm-hosts";
/// What a connection is upgraded to that carries bytes both ways.
pub const STREAM_PROTOCOL: &str = "spandrel-stream";

/// What a virtual machine is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmCreate {
    /// Its name.
    pub name: String,
    /// The volume that is its disk.
    pub volume: String,
    /// How many processors it has.
    pub processors: u16,
    /// Its memory, in bytes.
    pub memory_bytes: u64,
    /// What it starts from.
    #[serde(default)]
    pub boot: VmBoot,
    /// How its requests come to its disk.
    #[serde(default)]
    pub disk_bus: VmDiskBus,
    /// When it is started, among others that wait.
    #[serde(default)]
    pub priority: VmPriority,
}

/// How a virtual machine is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmStop {
    /// Whether it ends as if its power was cut.
    #[serde(default)]
    pub at_once: bool,
}

/// Where a virtual machine is to move to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmMigrate {
    /// The node; the one with most memory left if none is named.
    #[serde(default)]
    pub to: Option<String>,
}

/// How a virtual machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VmState {
    /// It does not run, and is not to.
    Off,
    /// It is to run, and no node has claimed it yet.
    Waiting,
    /// A node has claimed it, and is about to start it.
    Starting,
    /// Its guest runs.
    Running,
    /// It moves to another node, and runs meanwhile.
    Moving,
    /// It stands still.
    Paused,
    /// It is to end.
    Stopping,
    /// It has ended by itself, and is about to be started again.
    Failed,
    /// The node that has claimed it does not say.
    Unknown,
}

impl std::fmt::Display for VmState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(match self {
            Self::Off => "off",
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Moving => "moving",
            Self::Paused => "paused",
            Self::Stopping => "stopping",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        })
    }
}

/// A node that runs virtual machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmHostStatus {
    /// Its name.
    pub node: String,
    /// What runs them there, like `kvm` or `tcg`.
    pub accelerator: String,
    /// Memory that they may have there in all, in bytes.
    pub memory_bytes: u64,
    /// How much of it is left, in bytes.
    pub memory_left_bytes: u64,
    /// Whether it is in maintenance, and takes none.
    pub is_in_maintenance: bool,
    /// Those that it has claimed, by their names.
    pub vms: Vec<String>,
}

impl VmHostStatus {
    /// How many more of this much memory each, in bytes, it takes.
    pub fn takes(&self, memory_bytes: u64) -> u64 {
        if self.is_in_maintenance { 0 } else { self.memory_left_bytes / memory_bytes.max(1) }
    }
}

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmStatus {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: VmId,
    /// The volume that is its disk.
    pub volume: String,
    /// How many processors it has.
    pub processors: u16,
    /// Its memory, in bytes.
    pub memory_bytes: u64,
    /// What it starts from.
    pub boot: VmBoot,
    /// How its requests come to its disk.
    #[serde(default)]
    pub disk_bus: VmDiskBus,
    /// When it is started, among others that wait.
    pub priority: VmPriority,
    /// What it is to do.
    pub goal: VmGoal,
    /// How it is.
    pub state: VmState,
    /// Why it is so, if that is not plain.
    pub why: Option<String>,
    /// The node that has claimed it.
    pub node: Option<String>,
    /// Why it is on that node.
    pub node_because: Option<String>,
    /// Since when.
    pub node_since_unix_ms: Option<u64>,
    /// The node that it moves to.
    #[serde(default)]
    pub moves_to: Option<String>,
    /// How often it was claimed so far.
    pub runs: u64,
    /// What runs it there, like `kvm` or `tcg`.
    pub accelerator: Option<String>,
}
