//! What the admin API says: the paths and the forms of its JSON, for the server and its clients.
//!
//! Paths begin with the API's version. What is added to a form later may be absent in answers of
//! an older server, so it must have a default; nothing is removed or changes its meaning within a
//! version. Errors are [`spandrel_shared::Error`] in JSON, with an HTTP status that suits the code.

use serde::{Deserialize, Serialize};
use spandrel_health::Status;
use spandrel_shared::ClusterId;

pub use self::access::*;
pub use self::drive::*;
pub use self::explain::*;
pub use self::joining::*;
pub use self::node::*;
pub use self::pool::*;
pub use self::scrub::*;
pub use self::servers::*;
pub use self::state::*;
pub use self::top::*;
pub use self::vm::*;
pub use self::volume::*;

// By their paths, since other programs take this file in by its own.
#[path = "api_access.rs"]
mod access;
#[path = "api_drive.rs"]
mod drive;
#[path = "api_explain.rs"]
mod explain;
#[path = "api_joining.rs"]
mod joining;
#[path = "api_node.rs"]
mod node;
#[path = "api_pool.rs"]
mod pool;
#[path = "api_scrub.rs"]
mod scrub;
#[path = "api_servers.rs"]
mod servers;
#[path = "api_state.rs"]
mod state;
#[path = "api_top.rs"]
mod top;
#[path = "api_vm.rs"]
mod vm;
#[path = "api_volume.rs"]
mod volume;

/// `GET`: [`ClusterStatus`].
pub const STATUS: &str = "/v1/status";
/// `GET`: a list of [`VolumeStatus`]. `POST` of a [`VolumeCreate`]: [`VolumeCreateAnswer`].
pub const VOLUMES: &str = "/v1/volumes";
/// `GET`: [`VolumeStatus`]. `DELETE` with [`DeleteQuery`].
pub const VOLUME: &str = "/v1/volumes/{name}";
/// `GET`: [`VolumeDeletion`], what deleting it would do.
pub const VOLUME_DELETION: &str = "/v1/volumes/{name}/deletion";
/// `POST` with [`CheckQuery`]: lines of [`CheckLine`].
pub const VOLUME_CHECK: &str = "/v1/volumes/{name}/check";
/// `POST` of a [`VolumeMove`]: [`VolumeStatus`].
pub const VOLUME_MOVE: &str = "/v1/volumes/{name}/move";
/// `POST` of a [`VolumeSettingsChange`]: [`VolumeStatus`].
pub const VOLUME_SETTINGS: &str = "/v1/volumes/{name}/settings";
/// `POST` of a [`VolumeResize`]: [`VolumeResized`], when the volume has its new size.
pub const VOLUME_RESIZE: &str = "/v1/volumes/{name}/resize";
/// `GET`: a list of [`NodeStatus`].
pub const NODES: &str = "/v1/nodes";
/// `GET`: [`NodeDetails`].
pub const NODE: &str = "/v1/nodes/{name}";
/// `POST` of a [`NodeStop`]: [`NodeStatus`]. A node that is a process of its own ends, then or a moment later.
pub const NODE_STOP: &str = "/v1/nodes/{name}/stop";
/// `POST`: [`NodeStatus`].
pub const NODE_START: &str = "/v1/nodes/{name}/start";
/// `POST` of a [`NodeDrain`]: [`NodeDrained`], at once. The node itself hands its volumes over then.
pub const NODE_DRAIN: &str = "/v1/nodes/{name}/drain";
/// `POST` of a [`NodeEvacuate`]: [`NodeEvacuated`].
pub const NODE_EVACUATE: &str = "/v1/nodes/{name}/evacuate";
/// `GET`: a [`MaintenanceProgress`], or nothing if the node is in none.
pub const NODE_MAINTENANCE: &str = "/v1/nodes/{name}/maintenance";
/// `GET`: [`NodeSafety`].
pub const NODE_SAFETY: &str = "/v1/nodes/{name}/safe-to-stop";
/// `POST`: [`NodeStatus`].
pub const NODE_RESUME: &str = "/v1/nodes/{name}/resume";
/// `POST` of a [`PlaceChange`]: the [`Place`](spandrel_shared::Place) from then on.
pub const NODE_PLACE: &str = "/v1/nodes/{name}/place";
/// `GET`: a list of [`DriveStatus`]. `POST` of a [`DriveAdd`]: [`DriveAdded`], for the node that is asked.
pub const DRIVES: &str = "/v1/drives";
/// `GET`: a list of [`CacheDriveStatus`].
pub const CACHES: &str = "/v1/caches";
/// `POST` of a [`DriveRetire`]: [`DriveRetired`].
pub const DRIVE_RETIRE: &str = "/v1/drives/{name}/retire";
/// `POST` of a [`DriveRemove`]: [`DriveRemoved`].
pub const DRIVE_REMOVE: &str = "/v1/drives/{name}/remove";
/// `GET`: [`Usage`].
pub const USAGE: &str = "/v1/usage";

/// `GET`: [`spandrel_node::NodeReport`], what the node that is asked says of itself.
pub const NODE_REPORT: &str = "/v1/node/report";

/// `POST` of a [`NodeLetGo`], of a drive of the node that is asked.
pub const NODE_LET_GO: &str = "/v1/node/let-go";
/// `POST` of a [`NodeHandOver`], of a volume that the node that is asked owns.
pub const NODE_HAND_OVER: &str = "/v1/node/hand-over";
/// `POST` of a [`spandrel_node::VolumeGrowth`]: [`spandrel_node::VolumeGrown`], of a volume that the node that is asked
/// owns.
pub const NODE_GROW: &str = "/v1/node/grow";
/// `POST` of a [`spandrel_node::VolumeCreation`]: [`spandrel_node::VolumeCreated`], made by the node that is asked.
pub const NODE_VOLUMES: &str = "/v1/node/volumes";
/// `DELETE`: by the node that is asked, whoever uses the volume.
pub const NODE_VOLUME: &str = "/v1/node/volumes/{name}";
/// `POST` of a [`JoinRequest`]: [`JoinAnswer`]. Whoever has a join token's secret may ask.
pub const JOIN: &str = "/v1/join";
/// `GET`: a list of [`JoinTokenStatus`]. `POST`: [`JoinTokenAnswer`].
pub const JOIN_TOKEN: &str = "/v1/join-token";
/// `DELETE`.
pub const JOIN_TOKEN_OF: &str = "/v1/join-token/{name}";
/// `GET`: a list of [`Access`]. `POST` of an [`AccessCreate`]: [`AccessCreated`].
pub const ACCESS: &str = "/v1/access";
/// `DELETE`.
pub const ACCESS_OF: &str = "/v1/access/{name}";
/// `POST` of a [`ServerRemove`]: [`ServerRemoved`].
pub const SERVER_REMOVE: &str = "/v1/servers/{name}/remove";
/// `GET`: [`Standing`], for any server that shows a certificate of the cluster.
pub const STANDING: &str = "/v1/standing";
/// `GET`: a [`spandrel_cluster::backup::StateBackup`].
pub const STATE_BACKUP: &str = "/v1/state/backup";
/// `POST` of a [`Settle`]: [`SettleStatus`].
pub const SETTLE: &str = "/v1/settle";
/// `GET`: [`StateStatus`].
pub const STATE: &str = "/v1/state";

/// The cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The version of the program that serves this.
    pub version: String,
    /// The cluster.
    pub cluster: ClusterId,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its directory.
    pub directory: String,
    /// The process that runs it.
    pub process: u32,
    /// When that process started.
    pub started_unix_ms: u64,
    /// Whether the drives are in memory.
    pub memory: bool,
    /// What one flush of the disk that the drives lie on takes; absent if they are in memory.
    pub flush_us: Option<f64>,
    /// What was used since then.
    pub usage: Usage,
    /// All drives together.
    pub pool: PoolStatus,
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
    /// The drives.
    pub drives: Vec<DriveStatus>,
    /// The cache drives.
    #[serde(default)]
    pub caches: Vec<CacheDriveStatus>,
    /// The volumes.
    pub volumes: Vec<VolumeStatus>,
}

/// The pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// How it is.
    pub status: Status,
    /// The unit in which room is promised.
    pub slab_bytes: u64,
    /// What can be promised to volumes, copies included.
    pub total_bytes: u64,
    /// What is promised.
    pub promised_bytes: u64,
    /// What can be promised now: nothing on drives that cannot be reached.
    pub free_bytes: u64,
    /// What should stay free, so that a lost drive's copies find room elsewhere.
    pub reserve_bytes: u64,
    /// Copies that a new volume keeps if nobody says otherwise.
    pub copies_default: u8,
    /// The largest volume with so many copies that fits now.
    pub volume_bytes_max: u64,
}

/// What the cluster has used so far. Goes on counting when nodes are stopped and started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time of the process, in microseconds.
    pub cpu_us: u64,
    /// Bytes that clients have written.
    pub user_written_bytes: u64,
    /// Bytes that all drives have written.
    pub drive_written_bytes: u64,
}

#[cfg(test)]
#[path = "api_tests.rs"]
mod tests;
