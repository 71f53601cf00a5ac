//! What the admin API says of nodes: how they are, and how they are stopped, drained and left.

use serde::{Deserialize, Serialize};
use spandrel_cluster::StateRequests;
use spandrel_health::Status;
use spandrel_shared::{DriveId, Error, NodeId, Place, ProcessIncarnation, VolumeId};

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: NodeId,
    /// How it is.
    pub status: Status,
    /// Where it serves NBD: the unix socket first.
    pub nbd_addresses: Vec<String>,
    /// Drives that work, of all it has.
    pub drives_usable: u32,
    /// All its drives.
    pub drives: u32,
    /// The names of the volumes that it owns.
    pub volumes_owned: Vec<String>,
    /// Its maintenance; absent if it is in none.
    #[serde(default)]
    pub maintenance: Option<Maintenance>,
    /// NBD connections that are open.
    pub connections: u64,
    /// What it has asked of the cluster's state since it started. Reads and transactions stand still between changes
    /// of membership, however much is read and written.
    pub state_requests: StateRequests,
}

/// The maintenance of a node: it owns no volume that another node can own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maintenance {
    /// Since when.
    pub since_unix_ms: u64,
    /// The names of volumes that it owns all the same: not handed over yet, or no other node can take them.
    pub volumes_left: Vec<String>,
}

/// How far the maintenance of a node has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaintenanceProgress {
    /// Since when, and what it owns yet.
    #[serde(flatten)]
    pub maintenance: Maintenance,
    /// The names of virtual machines that run on it and are to move away: another node has room for each.
    #[serde(default)]
    pub vms_left: Vec<String>,
}

/// Everything that is known of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeDetails {
    /// What the list of nodes says.
    #[serde(flatten)]
    pub node: NodeStatus,
    /// Where it listens for other nodes: one address in each network.
    pub addresses: Vec<String>,
    /// Where it stands, as far as somebody has said.
    #[serde(default)]
    pub place: Place,
    /// In how many shards it serves, or did when it ran last: threads, each with its share of drives and volumes.
    #[serde(default = "one_shard")]
    pub shards: u8,
    /// What each of them has, in the order of their numbers; empty while the node does not run.
    #[serde(default)]
    pub shard_shares: Vec<ShardShare>,
    /// When it joined the cluster; absent before its first start.
    pub joined_unix_ms: Option<u64>,
    /// Since when it runs; absent while it does not, or if its version does not say.
    pub started_unix_ms: Option<u64>,
    /// This run of its process; absent while it does not run.
    pub incarnation: Option<ProcessIncarnation>,
    /// Whether its server keeps the cluster's state; absent where all nodes are in one process, and while the state
    /// does not say.
    pub state_role: Option<StateRole>,
    /// What can be promised to volumes on its drives, in bytes.
    pub promisable_bytes: u64,
    /// Of this, what is promised.
    pub promised_bytes: u64,
    /// What is stored on its drives, in bytes; 0 while it does not run.
    pub used_bytes: u64,
    /// How it asks the other nodes, as it says itself.
    pub peers: Vec<PeerStatus>,
}

/// What one shard of a node has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardShare {
    /// Its number, from 0.
    pub shard: u8,
    /// The names of its drives, of either role.
    pub drives: Vec<String>,
    /// The names of the volumes that it owns.
    pub volumes: Vec<String>,
}

/// Nodes of versions that do not say have one.
fn one_shard() -> u8 {
    1
}

/// Where a node stands; what is absent stays as it is, and an empty label is taken away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlaceChange {
    /// See [`Place::site`].
    pub site: Option<String>,
    /// See [`Place::rack`].
    pub rack: Option<String>,
    /// See [`Place::chassis`].
    pub chassis: Option<String>,
}

/// How a server takes part in keeping the cluster's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateRole {
    /// It keeps it, and the others follow it.
    Leads,
    /// It keeps it.
    Keeps,
    /// It is being brought up to date, and has no vote yet.
    Learns,
    /// Others keep it.
    None,
}

/// How a node asks another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// The other node's name.
    pub node: String,
    /// For how long nothing was heard of it; absent if nothing was ever.
    pub silent_ms: Option<u64>,
    /// The connections of the present session; none if there is no session.
    pub paths: Vec<PathStatus>,
}

/// A connection between two nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathStatus {
    /// Where it leads.
    pub address: String,
    /// What was sent on it or asked for, in bytes, since it was made.
    pub carried_bytes: u64,
}

/// A drive that is no part of the pool any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLetGo {
    /// The drive.
    pub drive: DriveId,
}

/// The same, between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeHandOver {
    /// The volume.
    pub volume: VolumeId,
    /// The node that is to own it.
    pub to: NodeId,
}

/// How to stop a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStop {
    /// Without warning, as if its power had failed; only where all nodes are in one process.
    #[serde(default)]
    pub abrupt: bool,
    /// Also if volumes, or the cluster's state, cannot do without it.
    #[serde(default)]
    pub force: bool,
}

/// How to put a node into maintenance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDrain {
    /// Only say what would be done, or what stands against it.
    #[serde(default)]
    pub dry_run: bool,
    /// Also if volumes, or the cluster's state, cannot do without it.
    #[serde(default)]
    pub force: bool,
}

/// A node that is in maintenance, or would be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeDrained {
    /// The node.
    pub node: NodeStatus,
    /// The names of the volumes that it hands over.
    pub volumes: Vec<String>,
    /// The names of the volumes that cannot do without it, and that it may keep: none unless it was forced.
    #[serde(default)]
    pub needing: Vec<String>,
    /// What will stand while it is away, in words: nothing unless it was forced.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// A node whose drives are to be emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEvacuate {
    /// Only say whether it can be done, and what would be moved.
    #[serde(default)]
    pub dry_run: bool,
}

/// A node whose drives are being emptied, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEvacuated {
    /// Its name.
    pub name: String,
    /// The identities of its drives.
    pub drives: Vec<DriveId>,
    /// How many copies of slabs are to go to other nodes.
    pub copies_to_move: u64,
    /// The slab size: of each no more than this is copied.
    pub slab_bytes: u64,
    /// What lacks room, if it does: not all of them can be moved before there is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// Whether a node may be switched off now, and the arithmetic behind that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSafety {
    /// The node's name.
    pub node: String,
    /// What stands against it; nothing if it may be switched off.
    pub against: Vec<Error>,
    /// The volumes of which it has copies that count.
    pub volumes: Vec<VolumeLeft>,
    /// The votes on the cluster's state; absent if the node has none.
    pub votes: Option<VotesLeft>,
    /// Copies of slabs that are promised on its drives.
    pub copies_held: u64,
    /// What lacks room if it never comes back, in words; absent if the others have room for all it holds.
    pub shortage: Option<String>,
}

impl NodeSafety {
    /// Whether it may be switched off.
    pub fn is_safe(&self) -> bool {
        self.against.is_empty()
    }
}

/// What of a volume stays without a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeLeft {
    /// The volume's name.
    pub volume: String,
    /// Copies in sync on nodes that run, of the part that has fewest.
    pub copies_left: u32,
}

/// How many votes on the cluster's state there are, and stay without a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VotesLeft {
    /// All, the node's own among them.
    pub all: u32,
    /// Those of servers that run and are not in maintenance, without the node's own.
    pub left: u32,
}

impl VotesLeft {
    /// Whether those that stay are most of all.
    pub fn is_majority(self) -> bool {
        2 * self.left > self.all
    }
}
