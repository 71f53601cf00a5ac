//! The superblock: who the drive is, and where things lie.

use spandrel_shared::{BLOCK_BYTES, ClusterId, DriveId, NodeId, SlabGeometry};

use crate::fields::{Fields, is_sealed};

const MAGIC: &[u8; 12] = b"SpandrelDisk";

/// The newest format that is understood here.
pub const FORMAT_VERSION: u32 = 2;

/// Features without which a drive cannot be read. None are known.
const INCOMPATIBLE_FEATURES_KNOWN: u64 = 0;

/// Root slots: two generations, each twice.
pub const ROOT_SLOTS: u32 = 4;

/// The block numbers that map entries reserve, so that a store has fewer blocks.
pub const SIZE_BLOCKS_MAX: u32 = u32::MAX - 1;

/// What a superblock says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub format_version: u32,
    pub cluster: ClusterId,
    pub node: NodeId,
    pub drive: DriveId,
    pub sector_bytes: u32,
    pub size_blocks: u32,
    pub slab_geometry: SlabGeometry,
    pub slab_count_max: u32,
    pub root_first_block: u32,
    pub root_slot_blocks: u32,
    pub journal_first_block: u32,
    pub journal_blocks: u32,
    pub data_first_block: u32,
    pub created_unix_ms: u64,
}

/// Why a block is no superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuperblockFault {
    /// Something else stands here, or nothing.
    Absent,
    /// It was one.
    Damaged(String),
    /// It is one that this program does not understand.
    Newer { version: u32, unknown_features: u64 },
}

impl Superblock {
    /// Reads a block.
    pub fn parse(block: &[u8]) -> Result<Self, SuperblockFault> {
        let damaged = |why: &str| SuperblockFault::Damaged(why.to_owned());
        let short = || damaged("it is too short");
        let mut fields = Fields::new(block);
        fields.skip(4).ok_or_else(short)?;
        if fields.bytes(12).ok_or_else(short)? != MAGIC {
            return Err(SuperblockFault::Absent);
        }
        if !is_sealed(block) {
            return Err(damaged("it does not match its checksum"));
        }
        let superblock = Self::parse_fields(&mut fields)?;
        superblock.check().map_err(|why| damaged(&why))?;
        Ok(superblock)
    }

    fn parse_fields(fields: &mut Fields<'_>) -> Result<Self, SuperblockFault> {
        let short = || SuperblockFault::Damaged("it is too short".to_owned());
        let mut u32 = || fields.u32().ok_or_else(short);
        let (format_version, sector_bytes) = (u32()?, u32()?);
        // Compatible features do not matter, and read-only-compatible ones not to a reader.
        fields.skip(16).ok_or_else(short)?;
        let unknown_features = fields.u64().ok_or_else(short)? & !INCOMPATIBLE_FEATURES_KNOWN;
        if format_version > FORMAT_VERSION || unknown_features != 0 {
            return Err(SuperblockFault::Newer { version: format_version, unknown_features });
        }
        let mut identity = || fields.array::<16>().ok_or_else(short);
        let (cluster, node, drive) = (identity()?, identity()?, identity()?);
        let mut u32 = || fields.u32().ok_or_else(short);
        let size_blocks = u32()?;
        let slab_bytes = u64::from(u32()?) * BLOCK_BYTES as u64;
        let slab_geometry = SlabGeometry::new(slab_bytes)
            .ok_or_else(|| SuperblockFault::Damaged(format!("{slab_bytes} bytes is no size of slabs")))?;
        Ok(Self {
            format_version,
            cluster: ClusterId::from_bytes(cluster),
            node: NodeId::from_bytes(node),
            drive: DriveId::from_bytes(drive),
            sector_bytes,
            size_blocks,
            slab_geometry,
            slab_count_max: u32()?,
            root_first_block: u32()?,
            root_slot_blocks: u32()?,
            journal_first_block: u32()?,
            journal_blocks: u32()?,
            data_first_block: u32()?,
            created_unix_ms: fields.u64().ok_or_else(short)?,
        })
    }

    /// That the parts lie behind each other within the drive.
    fn check(&self) -> Result<(), String> {
        let end = |first: u32, count: u32| u64::from(first) + u64::from(count);
        let roots_end =
            u64::from(self.root_first_block) + u64::from(ROOT_SLOTS) * u64::from(self.root_slot_blocks);
        let in_order = self.root_first_block > 0
            && self.root_slot_blocks > 0
            && self.journal_blocks > 0
            && roots_end <= u64::from(self.journal_first_block)
            && end(self.journal_first_block, self.journal_blocks) <= u64::from(self.data_first_block)
            && self.data_first_block < self.last_block()
            && self.size_blocks <= SIZE_BLOCKS_MAX;
        if !in_order {
            return Err("the places that it names contradict each other".to_owned());
        }
        if !matches!(self.sector_bytes, 512 | 4096) {
            return Err(format!("sectors of {} bytes", self.sector_bytes));
        }
        Ok(())
    }

    /// The block of the second copy, behind the last data block.
    pub fn last_block(&self) -> u32 {
        self.size_blocks.saturating_sub(1)
    }

    /// The first block of root slot `slot`.
    pub fn root_slot(&self, slot: u32) -> u32 {
        self.root_first_block + slot * self.root_slot_blocks
    }

    /// The two slots that hold `generation`.
    pub fn root_slots_of(generation: u64) -> [u32; 2] {
        let pair = if generation.is_multiple_of(2) { 0 } else { 1 };
        [2 * pair, 2 * pair + 1]
    }

    /// Whether a data block or map page can stand at `block`.
    pub fn is_data_block(&self, block: u32) -> bool {
        (self.data_first_block..self.last_block()).contains(&block)
    }
}
