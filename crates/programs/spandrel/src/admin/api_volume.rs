//! What the admin API says of volumes.

use serde::{Deserialize, Serialize};
use spandrel_health::Status;
use spandrel_shared::{Error, IopsLimit, VolumeId};

use super::ScrubStatus;

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
    /// What was copied to bring copies up to date, or to build them, since its owner took it.
    #[serde(default)]
    pub resynced_bytes: u64,
    /// What its clients may do at most at each node; absent if they are not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops_limit: Option<IopsLimit>,
    /// Whether it stays with its owner, wherever its client is.
    #[serde(default)]
    pub is_pinned: bool,
    /// When it was made.
    pub created_unix_ms: u64,
    /// How far its scrub is; absent if the server's version does not say.
    #[serde(default)]
    pub scrub: Option<ScrubStatus>,
}

/// What is to be set of a volume; what is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeSettingsChange {
    /// I/Os a second that its clients may do at most at each node; 0 ends the limit.
    #[serde(default)]
    pub iops_max: Option<u64>,
    /// An I/O counts once for each so many bytes that it begins: 8 KiB, where nothing else was said.
    #[serde(default)]
    pub normalized_bytes: Option<u32>,
    /// Whether the volume stays with its owner, wherever its client is.
    #[serde(default)]
    pub pinned: Option<bool>,
}

/// All copies of a volume on one drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LegStatus {
    /// The drive's name.
    pub drive: String,
    /// The node's name.
    pub node: String,
    /// `in-sync`, `stale`, `joining` or `promoting`; with ` (away)` if it cannot be reached, with ` (silent)` if the
    /// volume waits for its node.
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

/// A volume that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeCreateAnswer {
    /// The volume.
    pub volume: VolumeStatus,
    /// What its maker should know.
    pub warnings: Vec<String>,
}

/// What deleting a volume would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeDeletion {
    /// The volume, of which everything would be lost.
    pub volume: VolumeStatus,
    /// What would be free then on all drives together.
    pub freed_bytes: u64,
    /// What stands against it, unless it is forced.
    pub against: Option<Error>,
}

/// How to delete a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteQuery {
    /// Also if a client has it open for writing.
    #[serde(default)]
    pub force: bool,
}
