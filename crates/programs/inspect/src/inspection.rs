//! What an inspection found, as data: for programs as JSON, for people through [`crate::render`].

use std::path::PathBuf;

use serde::Serialize;
use spandrel_shared::{ClusterId, CopyId, DriveId, Epoch, NodeId, SlabIndex, Version, VolumeId};

use crate::root::SlabLayout;

/// All that was found on a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// The file or device.
    pub path: PathBuf,
    /// Its size.
    pub size_bytes: u64,
    /// Nobody was kept from changing the drive meanwhile: single findings need not be true.
    pub was_in_use: bool,
    /// Who the drive is.
    pub superblock: SuperblockReport,
    /// Both copies of it.
    pub superblock_copies: Vec<SuperblockCopy>,
    /// The newest whole root; `None` if there is none, and then there are no volumes either.
    pub root: Option<RootReport>,
    /// The cache drive that the drive is bound to, if it is.
    pub cache: Option<CacheReport>,
    /// All root slots.
    pub root_slots: Vec<RootSlotReport>,
    /// The journal from the root's position on.
    pub journal: JournalReport,
    /// The volumes of which the drive holds slabs, in the order of their identities.
    pub volumes: Vec<VolumeReport>,
    /// The slab copies, in the order of volume and slab.
    pub copies: Vec<CopyReport>,
    /// Data blocks whose content was checked.
    pub blocks_checked: u64,
    /// Everything that is not as it must be, structures first.
    pub damage: Vec<Damage>,
    /// Live structures, if they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub structures: Vec<Structure>,
    /// Live data blocks, if they were asked for: by volume, slab and block.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<LiveBlock>,
}

impl Inspection {
    /// Whether something is damaged in a way that no crash explains.
    pub fn is_damaged(&self) -> bool {
        self.damage.iter().any(|damage| !damage.by_crash)
    }

    /// Where something stands that an offset names. Those of a drive that is bound to a cache drive go on behind its store, in
    /// its area there.
    pub fn place_of(&self, offset_bytes: u64) -> Place {
        let in_area = self.cache.as_ref().and_then(|cache| {
            let within = offset_bytes.checked_sub(cache.offset_bytes)?;
            let chunk = cache.chunk_offsets_bytes.get(within.checked_div(cache.chunk_bytes)? as usize)?;
            Some(chunk + within % cache.chunk_bytes)
        });
        in_area.map_or(Place::Drive(offset_bytes), Place::Cache)
    }

    /// The copy of a volume's slab.
    pub fn copy_of(&self, volume: VolumeId, slab: SlabIndex) -> Option<&CopyReport> {
        self.copies.iter().find(|copy| copy.volume == volume && copy.slab == slab)
    }

    /// The volume with this identity.
    pub fn volume(&self, volume: VolumeId) -> Option<&VolumeReport> {
        self.volumes.iter().find(|report| report.volume == volume)
    }
}

/// A byte of a drive, or of the cache drive that it is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// On the drive itself, so many bytes from its beginning.
    Drive(u64),
    /// On the cache drive.
    Cache(u64),
}

/// The area of a cache drive that a drive is bound to. Its journal stands there, and what was written last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CacheReport {
    /// The cache drive.
    pub cache: DriveId,
    /// Drawn when the two were bound.
    pub number: u64,
    /// Whether the area was there.
    pub state: CacheState,
    /// Offsets from here on name bytes of the area.
    pub offset_bytes: u64,
    /// The area's size; zero if it is not there.
    pub size_bytes: u64,
    /// The area consists of chunks of so many bytes.
    pub chunk_bytes: u64,
    /// Where these begin on the cache drive, in their order.
    pub chunk_offsets_bytes: Vec<u64>,
}

/// Whether the area on a cache drive was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheState {
    /// It is the one that the drive was last used with.
    Present,
    /// It is an image of another time. What still matches its checksum counts, and its journal does not.
    AnotherTime,
    /// It is not: what stands there is lost.
    Absent,
}

/// A drive's unchanging facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SuperblockReport {
    /// The version of the format on the drive.
    pub format_version: u32,
    /// The cluster that the drive belongs to.
    pub cluster: ClusterId,
    /// The node that it was given to.
    pub node: NodeId,
    /// The drive.
    pub drive: DriveId,
    /// The unit in which the journal is written.
    pub sector_bytes: u32,
    /// What the store uses of the drive.
    pub size_bytes: u64,
    /// The pool's slab size.
    pub slab_bytes: u64,
    /// Slab copies that the drive can hold.
    pub copies_max: u32,
    /// Where data blocks and map pages begin; they end with the second copy of the superblock.
    pub data_offset_bytes: u64,
    /// When the drive was formatted: milliseconds since 1970.
    pub created_unix_ms: u64,
}

/// One of the two copies of the superblock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SuperblockCopy {
    /// Where it stands.
    pub offset_bytes: u64,
    /// What is wrong with it; `None` if nothing is.
    pub fault: Option<String>,
}

/// The newest whole root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RootReport {
    /// Counts the checkpoints.
    pub generation: u64,
    /// How often the drive was attached.
    pub attach_number: u64,
    /// The newest revision of the cluster's state that the drive had seen.
    pub state_revision: u64,
}

/// One of the four root slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RootSlotReport {
    /// 0 to 3.
    pub slot: u32,
    /// Where it begins.
    pub offset_bytes: u64,
    /// What stands there.
    pub state: RootSlotState,
}

/// What stands in a root slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RootSlotState {
    /// Zeros: no root was ever written there.
    Empty,
    /// A whole root.
    Whole {
        /// Its generation.
        generation: u64,
    },
    /// No whole root.
    Damaged {
        /// What is wrong.
        why: String,
    },
}

/// The journal from the root's position on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JournalReport {
    /// Where the journal begins: see [`Inspection::place_of`], as with all offsets of what a drive holds.
    pub offset_bytes: u64,
    /// Its size.
    pub size_bytes: u64,
    /// What an attach would read of it.
    pub used_bytes: u64,
    /// The number of the first group.
    pub first_sequence: u64,
    /// Groups that count.
    pub groups: u64,
    /// Whole groups behind a damaged one: what they say is lost.
    pub groups_cut_off: u64,
    /// Blocks of the last group whose data are not there: they keep their former content.
    pub blocks_in_doubt: u64,
}

/// A volume of which the drive holds slabs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumeReport {
    /// The volume.
    pub volume: VolumeId,
    /// Lower epochs are refused.
    pub fence_epoch: Epoch,
    /// Every write at or below it is complete on all in-sync copies, but for the exceptions.
    pub mark: Version,
    /// The exceptions, in order.
    pub exceptions: Vec<Version>,
    /// The writes above the mark or among its exceptions, in the order of versions.
    pub listed: Vec<ListedWrite>,
}

/// A write that the mark does not cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ListedWrite {
    /// The write's version.
    pub version: Version,
    /// The slab.
    pub slab: SlabIndex,
    /// The first block within the slab.
    pub first: u32,
    /// How many blocks.
    pub count: u32,
    /// Its data are not there: the blocks keep their former content.
    pub in_doubt: bool,
}

/// A slab's copy on this drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CopyReport {
    /// The volume.
    pub volume: VolumeId,
    /// Which slab of it.
    pub slab: SlabIndex,
    /// The identity of this copy.
    pub copy: CopyId,
    /// How the slab's parts are laid out.
    pub layout: SlabLayout,
    /// The version at which the copy began.
    pub birth: Version,
    /// The highest version written in any page.
    pub newest: Version,
    /// Where the drive cannot prove the copy whole: everything up to this version is there.
    pub proven: Option<Version>,
    /// Blocks of which data are stored.
    pub mapped_blocks: u32,
    /// Blocks of which is not known what was stored.
    pub lost_blocks: u32,
    /// Blocks whose data do not match their checksums.
    pub damaged_blocks: u32,
    /// The pages that were ever written.
    pub pages: Vec<PageReport>,
}

/// A page of a slab's copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PageReport {
    /// The page within the slab.
    pub page: u32,
    /// The highest version written in it.
    pub version: Version,
    /// On a copy that is not in sync: whether resync has made the page whole.
    pub whole: bool,
    /// Blocks of which data are stored, or were.
    pub mapped_blocks: u32,
}

/// What kind of thing is damaged, or stands at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DamageKind {
    /// A copy of the superblock.
    Superblock,
    /// A root slot.
    Root,
    /// The area on the cache drive that the drive is bound to.
    Cache,
    /// A group of the journal.
    JournalGroup,
    /// A slab's root page.
    SlabRoot,
    /// A leaf of a slab's map.
    Leaf,
    /// Parts of the drive that are whole contradict each other.
    Contradiction,
    /// A data block that does not match its checksum, or cannot be read.
    Data,
    /// Blocks of which is not known what was stored, since their mapping was lost.
    Lost,
}

impl DamageKind {
    /// For a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Root => "root",
            Self::Cache => "cache",
            Self::JournalGroup => "journal group",
            Self::SlabRoot => "slab root",
            Self::Leaf => "leaf",
            Self::Contradiction => "contradiction",
            Self::Data => "data",
            Self::Lost => "lost",
        }
    }
}

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// What it is.
    pub kind: DamageKind,
    /// Where it stands, if it stands somewhere.
    pub offset_bytes: Option<u64>,
    /// How much of the drive that is.
    pub length_bytes: u64,
    /// The volume whose it is.
    pub volume: Option<VolumeId>,
    /// The slab of the volume.
    pub slab: Option<SlabIndex>,
    /// The page within the slab, of a leaf.
    pub page: Option<u32>,
    /// The first block within the slab, of data.
    pub block: Option<u32>,
    /// How many blocks, of data.
    pub blocks: u32,
    /// What a journal group says of its number.
    pub sequence: Option<u64>,
    /// A crash at a certain moment leaves the same, and then nothing is lost that was answered.
    pub by_crash: bool,
    /// What is wrong.
    pub detail: String,
}

impl Damage {
    /// Damage to a structure at a place.
    pub(crate) fn of_structure(
        kind: DamageKind,
        offset_bytes: u64,
        length_bytes: u64,
        detail: String,
    ) -> Self {
        let (offset_bytes, volume, slab, page) = (Some(offset_bytes), None, None, None);
        let (block, blocks, sequence, by_crash) = (None, 0, None, false);
        Self {
            kind,
            offset_bytes,
            length_bytes,
            volume,
            slab,
            page,
            block,
            blocks,
            sequence,
            by_crash,
            detail,
        }
    }

    /// Parts of the drive contradict each other.
    pub(crate) fn contradiction(detail: String) -> Self {
        Self { offset_bytes: None, ..Self::of_structure(DamageKind::Contradiction, 0, 0, detail) }
    }
}

/// A structure that the state of the drive depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Structure {
    /// What it is: never data.
    pub kind: DamageKind,
    /// Where it stands.
    pub offset_bytes: u64,
    /// The bytes under its checksum.
    pub length_bytes: u64,
    /// Of a map page: the volume.
    pub volume: Option<VolumeId>,
    /// Of a map page: the slab of the volume.
    pub slab: Option<SlabIndex>,
    /// Of a leaf: the page within the slab.
    pub page: Option<u32>,
    /// Of a journal group: its number.
    pub sequence: Option<u64>,
}

impl Structure {
    pub(crate) fn new(kind: DamageKind, offset_bytes: u64, length_bytes: u64) -> Self {
        Self { kind, offset_bytes, length_bytes, volume: None, slab: None, page: None, sequence: None }
    }
}

/// A block of data that the maps name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LiveBlock {
    /// The volume.
    pub volume: VolumeId,
    /// The slab of the volume.
    pub slab: SlabIndex,
    /// The block within the slab.
    pub block: u32,
    /// Where its data stand.
    pub offset_bytes: u64,
    /// The journal's last group brought it. If its data are damaged, an attach takes the write for
    /// one that did not happen, and keeps what was there before.
    pub in_last_group: bool,
}

/// How far an inspection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// How much of it is done.
    pub done: u64,
    /// Of how much.
    pub total: u64,
}

/// The parts of an inspection, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The maps of the slabs are read; counted in slabs.
    Maps,
    /// The journal is read.
    Journal,
    /// Every data block is checked; counted in blocks.
    Data,
}
