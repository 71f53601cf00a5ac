//! What the admin API says: the paths and the forms of its JSON, for the server and its clients.
//!
//! Paths begin with the API's version. What is added to a form later may be absent in answers of
//! an older server, so it must have a default; nothing is removed or changes its meaning within a
//! version. Errors are [`spandrel_shared::Error`] in JSON, with an HTTP status that suits the code.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use spandrel_cluster::{MediaClass, Role, StateRequests};
use spandrel_health::Status;
use spandrel_shared::{ClusterId, DriveId, Error, NodeId, Place, ProcessIncarnation, VolumeId};
use spandrel_trust::Secret;

pub use self::explain::*;
pub use self::pool::*;
pub use self::scrub::*;
pub use self::servers::*;
pub use self::top::*;

// By their paths, since other programs take this file in by its own.
#[path = "api_explain.rs"]
mod explain;
#[path = "api_pool.rs"]
mod pool;
#[path = "api_scrub.rs"]
mod scrub;
#[path = "api_servers.rs"]
mod servers;
#[path = "api_top.rs"]
mod top;

/// `GET`: [`ClusterStatus`].
pub const STATUS: &str = "/v1/status";
/// `GET`: a list of [`VolumeStatus`]. `POST` of a [`VolumeCreate`]: [`VolumeCreateAnswer`].
pub const VOLUMES: &str = "/v1/volumes";
/// `GET`: [`VolumeStatus`]. `DELETE` with [`DeleteQuery`].
pub const VOLUME: &str = "/v1/volumes/{name}";
/// `POST` with [`CheckQuery`]: lines of [`CheckLine`].
pub const VOLUME_CHECK: &str = "/v1/volumes/{name}/check";
/// `POST` of a [`VolumeMove`]: [`VolumeStatus`].
pub const VOLUME_MOVE: &str = "/v1/volumes/{name}/move";
/// `POST` of a [`VolumeResize`]: [`VolumeResized`], when the volume has its new size.
pub const VOLUME_RESIZE: &str = "/v1/volumes/{name}/resize";
/// `GET`: a list of [`NodeStatus`].
pub const NODES: &str = "/v1/nodes";
/// `GET`: [`NodeDetails`].
pub const NODE: &str = "/v1/nodes/{name}";
/// `POST` of a [`NodeStop`]: [`NodeStatus`].
pub const NODE_STOP: &str = "/v1/nodes/{name}/stop";
/// `POST`: [`NodeStatus`].
pub const NODE_START: &str = "/v1/nodes/{name}/start";
/// `POST` of a [`NodeDrain`]: [`NodeDrained`], at once. The node itself hands its volumes over then.
pub const NODE_DRAIN: &str = "/v1/nodes/{name}/drain";
/// `POST` of a [`NodeEvacuate`]: [`NodeEvacuated`].
pub const NODE_EVACUATE: &str = "/v1/nodes/{name}/evacuate";
/// `GET`: a [`Maintenance`], or nothing if the node is in none.
pub const NODE_MAINTENANCE: &str = "/v1/nodes/{name}/maintenance";
/// `GET`: [`NodeSafety`].
pub const NODE_SAFETY: &str = "/v1/nodes/{name}/safe-to-stop";
/// `POST`: [`NodeStatus`].
pub const NODE_RESUME: &str = "/v1/nodes/{name}/resume";
/// `POST` of a [`PlaceChange`]: the [`Place`] from then on.
pub const NODE_PLACE: &str = "/v1/nodes/{name}/place";
/// `GET`: a list of [`DriveStatus`]. `POST` of a [`DriveAdd`]: [`DriveAdded`], for the node that is asked.
pub const DRIVES: &str = "/v1/drives";
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

/// A server that wants to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// What shows that it may.
    pub secret: Secret,
    /// The identity that it has chosen.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// The first of its ports, at each of its addresses.
    pub listen: Vec<SocketAddr>,
    /// Its public key: the point on the curve P-256, uncompressed.
    pub key: Vec<u8>,
    /// Whether it has no drives and only helps to keep the cluster's state.
    pub witness: bool,
    /// Whether it has an etcd with which it could help to keep the state.
    #[serde(default)]
    pub has_etcd: bool,
}

/// What a server that has joined needs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinAnswer {
    /// The cluster's name.
    pub cluster_name: String,
    /// The certificate of its authority.
    pub authority_pem: String,
    /// The authority's private key, with which a node lets others join. Witnesses do not get it.
    pub authority_key_pem: Option<String>,
    /// The server's certificate.
    pub certificate_pem: String,
    /// Whether the cluster's own servers keep its state.
    pub state_is_own: bool,
    /// Where the members that keep it answer clients.
    pub state_endpoints: Vec<String>,
    /// With what servers prove who they are to members that others keep.
    #[serde(default)]
    pub state_identity: Option<StateIdentity>,
}

/// The authority's key is in no log.
impl fmt::Debug for JoinAnswer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "JoinAnswer({})", self.cluster_name)
    }
}

/// With what servers prove who they are to an etcd that others keep, and know its members. All in PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateIdentity {
    /// The certificate of the authority that has signed for the members.
    pub authority_pem: String,
    /// A certificate that the members let in.
    pub certificate_pem: String,
    /// Its private key.
    pub key_pem: String,
}

/// Keys are in no log.
impl fmt::Debug for StateIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("StateIdentity")
    }
}

/// A token that lets servers join.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinTokenAnswer {
    /// The token.
    pub token: String,
}

/// A token that lets servers join, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinTokenStatus {
    /// By what it is named.
    pub id: String,
    /// When it was made.
    pub created_unix_ms: u64,
    /// From when on it lets nobody join any more.
    pub expires_unix_ms: u64,
}

/// A server that is to leave the cluster for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRemove {
    /// Whether it is a witness.
    pub witness: bool,
    /// Only say what would be done, or what stands against it.
    #[serde(default)]
    pub dry_run: bool,
}

/// A server that has left the cluster, or would.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRemoved {
    /// Its name.
    pub name: String,
    /// Its drives, which leave the pool with it.
    pub drives: Vec<DriveId>,
}

/// Has volumes go on that wait for drives, after the state was put back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {
    /// The names of nodes whose drives are given up for lost.
    #[serde(default)]
    pub without: Vec<String>,
    /// Only say what waits.
    #[serde(default)]
    pub dry_run: bool,
}

/// What waits, after the state was put back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettleStatus {
    /// The names of volumes whose copies were not compared yet.
    pub volumes: Vec<String>,
    /// The names of nodes that do not run.
    pub nodes_away: Vec<String>,
}

/// Whether the server that asks belongs to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// It has left for good.
    pub is_removed: bool,
}

/// Tokens are in no log.
impl fmt::Debug for JoinTokenAnswer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JoinTokenAnswer")
    }
}

/// Somebody who may use the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Who, in people's words.
    pub name: String,
    /// How much they may do.
    pub role: Role,
    /// When that was given to them.
    pub created_unix_ms: u64,
}

/// Somebody who is to use the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessCreate {
    /// Who, in people's words.
    pub name: String,
    /// How much they may do.
    pub role: Role,
}

/// What somebody shows who uses the admin API.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessCreated {
    /// The token, which is told this one time only.
    pub token: String,
}

/// Tokens are in no log.
impl fmt::Debug for AccessCreated {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AccessCreated")
    }
}

/// Who keeps the cluster's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateStatus {
    /// The members of etcd.
    pub members: Vec<StateMember>,
}

/// A member of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateMember {
    /// The server's name, or what etcd calls it if it is none of the cluster's.
    pub name: String,
    /// The server, if it is one of the cluster's.
    #[serde(default)]
    pub server: Option<NodeId>,
    /// Whether it answers and knows who leads. Of one without a vote whether its server has lately said that it runs.
    #[serde(default)]
    pub runs: bool,
    /// Whether it has a vote.
    pub votes: bool,
    /// Whether the others follow it.
    #[serde(default)]
    pub leads: bool,
    /// Where it answers clients.
    pub endpoints: Vec<String>,
}

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

/// A drive. What is counted is counted since its node started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DriveStatus {
    /// Its name: the node's and its own.
    pub name: String,
    /// Its identity, if it was ever known.
    pub id: Option<DriveId>,
    /// Its node's name.
    pub node: String,
    /// How it is.
    pub status: Status,
    /// Why it is not used, if it is not.
    pub failure: Option<String>,
    /// Where it is; absent while its node is down.
    pub location: Option<String>,
    /// What it is made of, as far as that is known.
    #[serde(default)]
    pub media: Option<MediaClass>,
    /// Its size.
    pub size_bytes: u64,
    /// What can be promised to volumes.
    pub promisable_bytes: u64,
    /// What is promised.
    pub promised_bytes: u64,
    /// What is stored on it.
    pub used_bytes: u64,
    /// All bytes that were written to it.
    pub written_bytes: u64,
    /// Of these, the volumes' blocks.
    pub data_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// How often its journal has wrapped around.
    pub journal_laps: u64,
    /// Blocks that were found damaged.
    pub blocks_damaged: u64,
    /// Of these, blocks that were healed.
    pub blocks_healed: u64,
    /// Everything that was ever found damaged on it: blocks, map pages, journal groups, superblocks. The
    /// cluster's state keeps this, so that nodes may come and go.
    pub damage_found: u64,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: VolumeId,
    /// Its size.
    pub size_bytes: u64,
    /// The size to which it is growing; absent if it does not grow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grows_to_bytes: Option<u64>,
    /// How many copies it keeps.
    pub copies: u8,
    /// How it is.
    pub status: Status,
    /// The node that serves it, if one does.
    pub owner: Option<String>,
    /// The number of that ownership.
    pub epoch: u32,
    /// Whether it serves now; else it is being taken over, and requests wait.
    pub is_serving: bool,
    /// The node whose client has it open for writing.
    pub writer: Option<String>,
    /// What is stored of it, all copies together; copies on nodes that are down are not counted.
    pub stored_bytes: u64,
    /// Bytes that drives write for each byte that a client writes; absent before any were written.
    pub write_amplification: Option<f64>,
    /// Where its copies are.
    pub legs: Vec<LegStatus>,
    /// Where it is served: on every node, wherever its owner is.
    pub exports: Vec<Export>,
    /// What its clients did since its owner took it.
    pub traffic: Traffic,
    /// When it was made.
    pub created_unix_ms: u64,
    /// How far its scrub is; absent if the server's version does not say.
    #[serde(default)]
    pub scrub: Option<ScrubStatus>,
}

/// All copies of a volume on one drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LegStatus {
    /// The drive's name.
    pub drive: String,
    /// The node's name.
    pub node: String,
    /// `in-sync`, `stale`, `joining` or `promoting`; with ` (away)` if it cannot be reached.
    pub state: String,
    /// Slabs of which it holds a copy.
    pub slabs: u32,
    /// While it is brought up to date: how far that is.
    pub resync: Option<Progress>,
}

/// How much of something is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What is done.
    pub done: u64,
    /// All of it.
    pub total: u64,
}

/// Where a volume is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Export {
    /// The node's name.
    pub node: String,
    /// Whether the node runs.
    pub is_up: bool,
    /// The NBD URI.
    pub uri: String,
}

/// What a volume's clients did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Reads that were answered.
    pub reads: u64,
    /// Writes, trims and write-zeroes that were answered.
    pub writes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub write_bytes: u64,
}

/// A drive that a node is to take into use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveAdd {
    /// A block device or a file, by its path on the node's server from the root on.
    pub path: String,
    /// What it is made of; found out if absent.
    #[serde(default)]
    pub media: Option<MediaClass>,
}

/// A drive that a node has taken into use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveAdded {
    /// Its name: the node's and its own.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// What it is made of, if that is known.
    #[serde(default)]
    pub media: Option<MediaClass>,
}

/// A drive that is to be emptied, or to be used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveRetire {
    /// It is to be used again.
    #[serde(default)]
    pub undo: bool,
    /// Only say whether it can be done, and what it would move.
    #[serde(default)]
    pub dry_run: bool,
}

/// What becomes of a drive that is retired, or not any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveRetired {
    /// Its identity.
    pub id: DriveId,
    /// Its name.
    pub name: String,
    /// How many copies of slabs are to go to other drives.
    pub copies_to_move: u64,
    /// The slab size: of each no more than this is copied.
    pub slab_bytes: u64,
    /// What lacks room, if it does: not all of them can be moved before there is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// A drive that is to leave the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveRemove {
    /// Only say whether it can.
    #[serde(default)]
    pub dry_run: bool,
}

/// A drive that has left the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveRemoved {
    /// Its name.
    pub name: String,
    /// Where it is, if its node knows.
    #[serde(default)]
    pub location: Option<String>,
    /// What its node does not know yet, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// A volume to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeCreate {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// How many copies it keeps; the pool's default if absent.
    #[serde(default)]
    pub copies: Option<u8>,
    /// The name of the node that is to own it.
    #[serde(default)]
    pub owner: Option<String>,
}

/// A volume that is to be owned by another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMove {
    /// The node's name.
    pub owner: String,
}

/// A volume that is to have another size: `{"size_bytes": N}` or `{"add_bytes": N}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeResize {
    /// Which size.
    #[serde(flatten)]
    pub size: NewSize,
    /// Whether it is only said what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// The size that a volume is to have: a multiple of 4096, not less than it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewSize {
    /// So many bytes.
    SizeBytes(u64),
    /// So many more than it has.
    AddBytes(u64),
}

/// A volume that has another size, or would have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeResized {
    /// The volume as it is now.
    pub volume: VolumeStatus,
    /// The size that it had.
    pub former_bytes: u64,
    /// The size that it has now, or would have.
    pub size_bytes: u64,
    /// The slabs that came or would come; fewer than it has grown by if another owner had begun with them.
    pub slabs: u64,
    /// Where their copies are or would be, by drive.
    pub copies: Vec<DriveCopies>,
    /// What the operator should know.
    pub warnings: Vec<String>,
}

/// Copies of slabs on a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveCopies {
    /// The drive's name.
    pub drive: String,
    /// How many.
    pub slabs: u64,
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

/// A volume that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeCreateAnswer {
    /// The volume.
    pub volume: VolumeStatus,
    /// What its maker should know.
    pub warnings: Vec<String>,
}

/// How to stop a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStop {
    /// Without warning.
    #[serde(default)]
    pub abrupt: bool,
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

/// How to delete a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteQuery {
    /// Also if a client has it open for writing.
    #[serde(default)]
    pub force: bool,
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
