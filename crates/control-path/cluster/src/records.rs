//! What stands at the keys: records in JSON, each with the number of its format.
//!
//! A record that a newer version wrote in a format that this version does not know is refused, and
//! so is one that is no record: never guessed at, never overwritten.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use spandrel_shared::{
    ClusterId, ConfigurationVersion, DriveId, Epoch, Error, GrowthId, IopsLimit, NodeId, Place,
    ProcessIncarnation, ShardId, SlabGeometry, Version, VolumeId,
};

use crate::copy_sets::{ChunkBody, SLABS_MAX, SlabChunk};
use crate::stamp::GENERATION_MAX;
use crate::store::{Entry, Key, Revision, Value};
use crate::vms::VmHost;

/// Something that stands at a key.
pub trait Record: Sized {
    /// What people call it.
    const KIND: &'static str;
    /// The highest format that this version writes and reads.
    const FORMAT: u32;
    /// The form in which it is stored.
    type Body: Serialize + DeserializeOwned;

    /// The stored form.
    fn to_body(&self) -> Self::Body;
    /// The record of a stored form, or what is wrong with it.
    fn from_body(body: Self::Body) -> Result<Self, String>;

    /// The format that this record is written in: the lowest that says all of it, so that older versions go on reading
    /// what they understand.
    fn format(&self) -> u32 {
        Self::FORMAT
    }
}

/// A record with the revision of its last change, which a transaction compares to change it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<T> {
    /// The record.
    pub record: T,
    /// When it was last changed.
    pub revision: Revision,
}

#[derive(Serialize)]
struct Envelope<T> {
    format: u32,
    #[serde(flatten)]
    body: T,
}

#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

/// The bytes of a record.
pub fn encode<T: Record>(record: &T) -> Value {
    let envelope = Envelope { format: record.format(), body: record.to_body() };
    serde_json::to_vec(&envelope).expect("records have only text keys and finite numbers").into()
}

/// The record at a key. Errors: `STATE_TOO_NEW`, `STATE_DAMAGED`.
pub fn decode<T: Record>(entry: &Entry) -> Result<Stored<T>, Error> {
    let damaged = |why: String| damaged(&entry.key, T::KIND, why);
    let format: FormatOnly =
        serde_json::from_slice(&entry.value).map_err(|error| damaged(error.to_string()))?;
    if format.format > T::FORMAT {
        return Err(Error::new(
            "STATE_TOO_NEW",
            format!("the {} at {} in the cluster's state cannot be used", T::KIND, entry.key),
            format!("its format is {}, this version knows up to {}", format.format, T::FORMAT),
            "use the newer version of spandrel on this node too",
        ));
    }
    // The body stands beside the format, which it does not know and skips: an envelope would be read twice.
    let body: T::Body = serde_json::from_slice(&entry.value).map_err(|error| damaged(error.to_string()))?;
    let record = T::from_body(body).map_err(damaged)?;
    Ok(Stored { record, revision: entry.modified })
}

/// The error that something at `key` is no record.
pub(crate) fn damaged(key: &Key, kind: &str, why: String) -> Error {
    Error::new(
        "STATE_DAMAGED",
        format!("the {kind} at {key} in the cluster's state cannot be read"),
        why,
        "restore a backup of the cluster's state; drives notice if it is older than what they know",
    )
}

/// Makes a type that is stored as it is a [`Record`].
macro_rules! record {
    ($name:ident, $kind:literal, $format:literal) => {
        impl Record for $name {
            const KIND: &'static str = $kind;
            const FORMAT: u32 = $format;
            type Body = Self;

            fn to_body(&self) -> Self {
                self.clone()
            }

            fn from_body(body: Self) -> Result<Self, String> {
                Ok(body)
            }
        }
    };
}
pub(crate) use record;

/// The cluster itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRecord {
    /// Its identity.
    pub id: ClusterId,
    /// Its name.
    pub name: String,
    /// The features that are on: raised when all nodes run a version that has them.
    pub feature_level: u32,
    /// The pool's slab size.
    pub slab_bytes: SlabGeometry,
    /// When it was made.
    pub created_unix_ms: u64,
    /// Raised when an older state is put in place of a newer one on purpose.
    pub generation: u32,
}

impl Record for ClusterRecord {
    const KIND: &'static str = "cluster";
    const FORMAT: u32 = 1;
    type Body = Self;

    fn to_body(&self) -> Self {
        self.clone()
    }

    fn from_body(body: Self) -> Result<Self, String> {
        if body.generation > GENERATION_MAX {
            return Err(format!("its generation is {}, which is too high", body.generation));
        }
        Ok(body)
    }
}

/// A server that belongs to the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its name.
    pub name: String,
    /// Where its shard 0 listens on the bus.
    pub addresses: Vec<String>,
    /// Where its further shards listen, each at addresses of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_shards: Vec<Vec<String>>,
    /// When it joined.
    pub joined_unix_ms: u64,
    /// The digest of the public key that it joined with, in hexadecimal digits. None where all nodes are in one
    /// process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_digest: Option<String>,
    /// Since when it is in maintenance; none if it is not. It owns no volume then that another node can own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_since_unix_ms: Option<u64>,
    /// Where it stands, as far as somebody has said.
    #[serde(default, skip_serializing_if = "Place::is_unknown")]
    pub place: Place,
    /// What a later version has added, to be kept when the record is changed. No later version may raise the format for it:
    /// a node whose record cannot be read is none for the others, and they would cut it off.
    #[serde(flatten)]
    pub unknown: BTreeMap<String, serde_json::Value>,
}

impl NodeRecord {
    /// How many shards the node has.
    pub fn shards(&self) -> u8 {
        u8::try_from(self.further_shards.len() + 1).unwrap_or(u8::MAX)
    }

    /// Where a shard listens on the bus; nowhere if the node has no such shard.
    pub fn addresses_of(&self, shard: u8) -> &[String] {
        match usize::from(shard).checked_sub(1) {
            None => &self.addresses,
            Some(further) => self.further_shards.get(further).map_or(&[], Vec::as_slice),
        }
    }
}

impl Record for NodeRecord {
    const KIND: &'static str = "node";
    const FORMAT: u32 = 1;
    type Body = Self;

    fn to_body(&self) -> Self {
        self.clone()
    }

    fn from_body(mut body: Self) -> Result<Self, String> {
        // It stands beside the body, which takes all that it does not know.
        body.unknown.remove("format");
        Ok(body)
    }
}

/// A server without drives that helps to keep the cluster's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WitnessRecord {
    /// Its name.
    pub name: String,
    /// Where it listens; the state is kept at ports behind these.
    pub addresses: Vec<String>,
    /// When it joined.
    pub joined_unix_ms: u64,
    /// The digest of the public key that it joined with, in hexadecimal digits.
    pub key_digest: String,
}
record!(WitnessRecord, "witness", 1);

/// A server runs that could help to keep the cluster's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwakeRecord {}
record!(AwakeRecord, "sign of life", 1);

/// Changes with every server that comes or goes, so that two that come at once do not both get the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServersRecord {
    /// How many have come and gone.
    pub changes: u64,
}
record!(ServersRecord, "counter of servers", 1);

/// What lets servers join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRecord {
    /// When it was made.
    pub created_unix_ms: u64,
    /// From when on it lets nobody join any more.
    pub expires_unix_ms: u64,
}
record!(JoinRecord, "join token", 1);

/// How much somebody may do with the admin API. Each role may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Look at everything.
    Read,
    /// Make, move and check volumes, take nodes out for maintenance and back.
    Operate,
    /// Everything: also delete, add and wipe drives, admit nodes, give access.
    Administer,
}

impl std::fmt::Display for Role {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Administer => "administer",
        })
    }
}

/// What lets somebody use the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessRecord {
    /// Who it was given to, in people's words.
    pub name: String,
    /// How much they may do.
    pub role: Role,
    /// When it was given.
    pub created_unix_ms: u64,
}
record!(AccessRecord, "access token", 1);

/// The access that was given to somebody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessNameRecord {
    /// The digest of the secret that they show.
    pub digest: String,
}
record!(AccessNameRecord, "access by name", 1);

/// A shard of the running process of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AliveRecord {
    /// The process.
    pub incarnation: ProcessIncarnation,
    /// The drives that it serves and can use. Nothing new is placed on those of its node that none of its shards names.
    #[serde(default)]
    pub drives: Vec<DriveId>,
    /// What its node has for virtual machines, said by the first shard; none if it runs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm_host: Option<VmHost>,
}
record!(AliveRecord, "running process", 1);

/// The shards that are alive.
pub type AliveShards = BTreeMap<ShardId, Stored<AliveRecord>>;

/// Those of one node.
pub fn alive_shards_of(
    alive: &AliveShards,
    node: NodeId,
) -> impl Iterator<Item = (ShardId, &Stored<AliveRecord>)> {
    let shards = ShardId::first(node)..=ShardId { node, number: u8::MAX };
    alive.range(shards).map(|(shard, stored)| (*shard, stored))
}

/// Whether a shard of a node serves a drive, and can use it.
pub fn is_served(alive: &AliveShards, node: NodeId, drive: DriveId) -> bool {
    alive_shards_of(alive, node).any(|(_, stored)| stored.record.drives.contains(&drive))
}

/// What a drive is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriveRole {
    /// Holds copies of slabs.
    #[default]
    Capacity,
    /// Caches for the capacity drives of its node.
    Cache,
}

/// What was decided about a drive. What is observed of it is the health service's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriveState {
    /// Takes new copies.
    #[default]
    Active,
    /// Takes no new copies; those that it holds are moved away.
    Retired,
    /// Has failed: what it held counts as lost.
    Failed,
}

/// Damage that was found on a drive, in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamageCounters {
    /// Blocks whose checksum failed.
    pub checksum_failures: u64,
    /// Reads that the drive could not do.
    pub read_errors: u64,
    /// Writes and flushes that the drive could not do.
    pub write_errors: u64,
}

/// What a drive is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MediaClass {
    /// Flash on PCI Express.
    Nvme,
    /// Flash behind SATA, SAS or the like.
    Ssd,
    /// Spinning disks.
    Hdd,
}

impl fmt::Display for MediaClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Nvme => "nvme",
            Self::Ssd => "ssd",
            Self::Hdd => "hdd",
        })
    }
}

/// A drive of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveRecord {
    /// The node that it is in.
    pub node: NodeId,
    /// What it is used for.
    #[serde(default)]
    pub role: DriveRole,
    /// Its size.
    pub size_bytes: u64,
    /// Blocks that can hold data and map pages.
    pub blocks_usable: u64,
    /// Copies of slabs that it can be promised.
    pub slabs_promised_max: u32,
    /// Raised by every attach, on the drive first: a drive that has a lower one is an old image.
    pub attach_number: u64,
    /// What was decided about it.
    pub state: DriveState,
    /// Damage that was found on it.
    #[serde(default)]
    pub damage: DamageCounters,
    /// What it is made of, as far as that is known.
    #[serde(default)]
    pub media: Option<MediaClass>,
    /// What people call it, as its server has told: the node's name and the drive's, like `n1/nvme0n1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
record!(DriveRecord, "drive", 1);

impl DriveRecord {
    /// Of a drive that nobody has attached yet, and that holds no slabs.
    pub fn new(node: NodeId, role: DriveRole, size_bytes: u64, media: Option<MediaClass>) -> Self {
        Self {
            node,
            role,
            size_bytes,
            blocks_usable: 0,
            slabs_promised_max: 0,
            attach_number: 0,
            state: DriveState::Active,
            damage: DamageCounters::default(),
            media,
            name: None,
        }
    }
}

/// Who orders the writes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeOwner {
    /// The shard of a node.
    #[serde(flatten)]
    pub shard: ShardId,
    /// Its process.
    pub incarnation: ProcessIncarnation,
}

/// Who may write to a volume: all clients of one node's front-end that have it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeWriter {
    /// The shard of the front-end's node.
    #[serde(flatten)]
    pub shard: ShardId,
    /// The front-end's process.
    pub incarnation: ProcessIncarnation,
    /// Which of its attachments. Never the same twice.
    pub attachment: u64,
}

/// How far a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeState {
    /// Its copy sets are being written. Nobody owns it.
    Creating,
    /// It can be used.
    Ready,
    /// It is being taken apart. Nobody may own it any more.
    Deleting,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// Its name.
    pub name: String,
    /// Its size; a multiple of a block.
    pub size_bytes: u64,
    /// The size to which it is growing. The slabs that are to come have their places, and do not count yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grows_to_bytes: Option<u64>,
    /// The request by which it grows, or was last to grow: who asks again, as the answer was lost, is told apart by it from
    /// others who ask for the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<GrowthId>,
    /// Copies of each slab.
    pub copies: u8,
    /// In-sync copies that a write needs.
    pub write_copies_min: u8,
    /// The slab size.
    pub slab_bytes: SlabGeometry,
    /// Who orders its writes.
    pub owner: Option<VolumeOwner>,
    /// The node that should own it when all is well.
    pub preferred_owner: Option<NodeId>,
    /// Who may write; one that was replaced may never again.
    #[serde(default)]
    pub writer: Option<VolumeWriter>,
    /// The number of the ownership.
    pub epoch: Epoch,
    /// Raised by every change of copy sets or marks.
    pub configuration: ConfigurationVersion,
    /// How far it is.
    pub state: VolumeState,
    /// What its clients may do at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops_limit: Option<IopsLimit>,
    /// Whether it stays with its owner, wherever its client is. A version that does not know of this forgets it with its next change:
    /// the volume follows its client again then, which harms nobody.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_pinned: bool,
    /// The generation of the state in which its copies and marks were last known to be right. In a later one nobody
    /// may be served before its copies were compared, marks or not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub generation: u32,
    /// Whether what was written behind its end is given up, when its copies are compared: it had grown, and the state was
    /// put back to one from before. Holds for that comparison alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_growth_given_up: bool,
    /// When it was made.
    pub created_unix_ms: u64,
}

fn is_zero(generation: &u32) -> bool {
    *generation == 0
}

impl Record for VolumeRecord {
    const KIND: &'static str = "volume";
    const FORMAT: u32 = VOLUME_LIMITED;
    type Body = Self;

    fn to_body(&self) -> Self {
        self.clone()
    }

    fn from_body(body: Self) -> Result<Self, String> {
        let slabs = body.slab_bytes.slabs_for(body.size_bytes.max(body.grows_to_bytes.unwrap_or(0)));
        if slabs >= u64::from(SLABS_MAX) {
            return Err(format!("it has {slabs} slabs, more than can be numbered"));
        }
        if let Some(limit) = body.iops_limit.filter(|limit| !limit.is_valid()) {
            return Err(format!("its clients are limited to {limit:?}"));
        }
        match body.grows_to_bytes.filter(|size| *size <= body.size_bytes) {
            Some(size) => Err(format!("it is to grow from {} to {size} bytes", body.size_bytes)),
            None => Ok(body),
        }
    }

    /// A version that knows nothing of growth would take the slabs to come for damage: it is to leave the volume alone
    /// until it has grown. One that knows nothing of limits would forget them with its next change.
    fn format(&self) -> u32 {
        match (self.iops_limit, self.grows_to_bytes) {
            (Some(_), _) => VOLUME_LIMITED,
            (None, Some(_)) => VOLUME_GROWS,
            (None, None) => VOLUME_AT_REST,
        }
    }
}

/// The format of a volume that does not grow.
const VOLUME_AT_REST: u32 = 1;

/// The format of a volume that grows.
const VOLUME_GROWS: u32 = 2;

/// The format of a volume whose clients are limited.
const VOLUME_LIMITED: u32 = 3;

impl VolumeRecord {
    /// What operators set of it.
    pub fn settings(&self) -> VolumeSettings {
        VolumeSettings { iops_limit: self.iops_limit, is_pinned: self.is_pinned }
    }

    /// How many slabs it has.
    pub fn slab_count(&self) -> u32 {
        self.slabs_for(self.size_bytes)
    }

    /// How many slabs it has and will have, if it grows.
    pub fn slab_count_grown(&self) -> u32 {
        self.slabs_for(self.grows_to_bytes.unwrap_or(self.size_bytes))
    }

    fn slabs_for(&self, size_bytes: u64) -> u32 {
        let slabs = self.slab_bytes.slabs_for(size_bytes);
        u32::try_from(slabs).expect("larger sizes are refused beforehand, and when a record is read")
    }
}

/// What operators set of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeSettings {
    /// What its clients may do at most.
    pub iops_limit: Option<IopsLimit>,
    /// Whether it stays with its owner, wherever its client is.
    pub is_pinned: bool,
}

/// The volume of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeNameRecord {
    /// The volume.
    pub volume: VolumeId,
}
record!(VolumeNameRecord, "volume name", 1);

/// A mark that a volume's copies on one drive may lack writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleRecord {
    /// They hold every write at or below this version.
    pub since: Version,
}
record!(StaleRecord, "stale mark", 1);

/// Changes with every promise of room, so that two that are made at once do not both count the
/// same room as free.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomRecord {
    /// How many promises there have been.
    pub promises: u64,
}
record!(RoomRecord, "room counter", 1);

/// The room that a volume was promised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRoomRecord {
    /// Copies of slabs on each drive.
    pub slabs: BTreeMap<DriveId, u32>,
    /// Those of them that give their room back when the copies are built that take their places. Only plans go by it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub leaving: BTreeMap<DriveId, u32>,
}
record!(VolumeRoomRecord, "room of a volume", 1);

/// What remains of something that was deleted, so that it does not come back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TombstoneRecord {
    /// What it was called.
    pub name: String,
    /// When it was deleted.
    pub deleted_unix_ms: u64,
}
record!(TombstoneRecord, "tombstone", 1);

impl Record for SlabChunk {
    const KIND: &'static str = "chunk of copy sets";
    const FORMAT: u32 = 1;
    type Body = ChunkBody;

    fn to_body(&self) -> ChunkBody {
        SlabChunk::to_body(self)
    }

    fn from_body(body: ChunkBody) -> Result<Self, String> {
        SlabChunk::from_body(body)
    }
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
