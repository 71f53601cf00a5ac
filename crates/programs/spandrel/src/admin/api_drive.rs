//! What the admin API says of drives.

use serde::{Deserialize, Serialize};
use spandrel_cluster::{DriveRole, MediaClass};
use spandrel_health::Status;
use spandrel_shared::{CacheMode, DriveId, Error};

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
    /// Bytes of its maps that are in its node's memory.
    #[serde(default)]
    pub map_memory_bytes: u64,
    /// Map pages that had been evicted from memory (see `pool set --map-memory`) and were read back.
    #[serde(default)]
    pub map_pages_read: u64,
    /// Blocks that were found damaged.
    pub blocks_damaged: u64,
    /// Of these, blocks that were healed.
    pub blocks_healed: u64,
    /// Everything that was ever found damaged on it: blocks, map pages, journal groups, superblocks. The
    /// cluster's state keeps this, so that nodes may come and go.
    pub damage_found: u64,
    /// The name of the cache drive that it is bound to, also while it is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_to: Option<String>,
    /// What it has of a cache drive, if it is bound to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<DriveCacheStatus>,
    /// For how many milliseconds it has gone without a cache drive, though its node has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_cache_ms: Option<u64>,
    /// Why its cache drive could not be changed the last time that this was to be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_obstacle: Option<Error>,
    /// What of it is copied in memory, if the pool's settings have it so and something was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<DriveMemoryStatus>,
}

/// What memory does for a drive. What is counted is counted since its node started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveMemoryStatus {
    /// Copies there of what was read.
    pub copied_bytes: u64,
    /// What was read from there.
    pub hit_bytes: u64,
    /// What was read from drives.
    pub missed_bytes: u64,
}

/// What a capacity drive has of a cache drive. What is counted is counted since its node started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveCacheStatus {
    /// The cache drive's name.
    pub drive: String,
    /// What it is used for.
    pub mode: CacheMode,
    /// Room there for this drive's data.
    pub total_bytes: u64,
    /// What stands there and not on the capacity drive yet.
    pub dirty_bytes: u64,
    /// Copies there of what was read.
    pub copied_bytes: u64,
    /// What was read from the cache drive.
    pub hit_bytes: u64,
    /// What was read from the capacity drive.
    pub missed_bytes: u64,
    /// What was copied to the cache drive as it was read.
    pub populated_bytes: u64,
    /// What was moved from the cache drive to the capacity drive.
    pub destaged_bytes: u64,
    /// For how many milliseconds there has been hardly room there: writes go to the capacity drive, and take as long as that
    /// does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_ms: Option<u64>,
}

/// A drive that caches for those of its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheDriveStatus {
    /// Its name: the node's and its own.
    pub name: String,
    /// Its identity, if it was ever known.
    pub id: Option<DriveId>,
    /// Its node's name.
    pub node: String,
    /// How it is.
    pub status: Status,
    /// Whether it is used, as far as is known.
    pub is_used: bool,
    /// Why it is not used, if it is not.
    pub failure: Option<String>,
    /// Where it is; absent while its node is down.
    pub location: Option<String>,
    /// What it is made of, as far as that is known.
    pub media: Option<MediaClass>,
    /// Its size.
    pub size_bytes: u64,
    /// The names of the drives that are bound to it.
    pub bound: Vec<String>,
    /// Of these, the ones that work: they leave it before it is taken out.
    pub in_use_by: Vec<String>,
    /// The names of the drives that may be bound to it, as nobody is there to say whether they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub perhaps_bound: Vec<String>,
    /// What stands there alone: lost for its node if the drive is. Absent if that is not known, as a drive that is or may be bound
    /// to it does not work, or its node does not answer.
    pub dirty_bytes: Option<u64>,
    /// For how many milliseconds its node has missed it, if it is there and misses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_ms: Option<u64>,
    /// For how many milliseconds it is waited for yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
    /// Why it could not be emptied, or given up, the last time that this was to be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<Error>,
}

/// A drive that a node is to take into use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveAdd {
    /// A block device or a file, by its path on the node's server from the root on.
    pub path: String,
    /// What it is made of; found out if absent.
    #[serde(default)]
    pub media: Option<MediaClass>,
    /// What it is used for. If absent, it caches if it is faster than all that hold copies on its node.
    #[serde(default)]
    pub role: Option<DriveRole>,
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
    /// What it is used for.
    #[serde(default)]
    pub role: DriveRole,
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
    /// What it is used for.
    #[serde(default)]
    pub role: DriveRole,
    /// How many copies of slabs are to go to other drives.
    pub copies_to_move: u64,
    /// The slab size: of each no more than this is copied.
    pub slab_bytes: u64,
    /// What lacks room, if it does: not all of them can be moved before there is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Of a cache drive: the names of the drives that leave it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<String>,
    /// Of a cache drive: what stands there alone, and is moved to them first; absent if they do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirty_bytes: Option<u64>,
    /// Of a cache drive: the names of further drives that are bound to it, or may be. They do not work or nobody is there to say
    /// how they are, so they do not leave it before they work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_stake: Vec<String>,
    /// Whether it was retired before.
    #[serde(default)]
    pub was_retired: bool,
    /// Whether it works, as far as is known.
    #[serde(default)]
    pub works: bool,
}

/// A drive that is to leave the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveRemove {
    /// Only say whether it can, and what would be given up with it.
    #[serde(default)]
    pub dry_run: bool,
    /// Of a cache drive that cannot be emptied: the names of the drives for which what stands there alone may be lost, as a dry
    /// run has told them ([`CacheGivenUp::drives`]). Refused if it would be lost for others.
    #[serde(default)]
    pub give_up: Vec<String>,
}

/// What is given up with a cache drive: what it holds alone for drives that do not work without it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheGivenUp {
    /// The names of these drives.
    pub drives: Vec<String>,
    /// Whether it is known that they are bound to it; else these are all that may be.
    pub is_known: bool,
    /// How many copies of slabs are on them: they lack what was there alone, and are brought up to date from other nodes.
    pub copies: u64,
}

/// A drive that has left the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveRemoved {
    /// Its name.
    pub name: String,
    /// What it was used for.
    #[serde(default)]
    pub role: DriveRole,
    /// What is given up with a cache drive that could not be emptied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gives_up: Option<CacheGivenUp>,
    /// Where it is, if its node knows.
    #[serde(default)]
    pub location: Option<String>,
    /// Why its node has not let go of it yet, and what to do, in words. It is not to be pulled or wiped until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}
