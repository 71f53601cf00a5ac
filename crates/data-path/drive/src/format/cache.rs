//! What stands on a cache drive: who it is, and which of its chunks belong to which capacity drive.
//!
//! ```text
//! block 0            superblock, first copy
//! table slots        4: generations alternate between two pairs, each pair holds one twice
//! chunks             of equal size; those of one capacity drive, in their order, are its area
//! last block         superblock, second copy
//! ```
//!
//! What stands in an area is the business of the capacity drive's store alone: a part of its physical blocks, and its journal.

use spandrel_shared::{BLOCK_BYTES, ClusterId, DriveId, NodeId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{COUNT_MAX, FormatError};

/// The first bytes behind the checksum of a cache drive's superblock.
pub const CACHE_MAGIC: [u8; 12] = *b"SpandrelCach";

/// The first bytes behind the checksum of a table.
pub const TABLE_MAGIC: [u8; 4] = *b"SpCt";

/// The format that this program writes.
pub const CACHE_FORMAT_VERSION: u32 = 1;

/// Capacity drives that can be bound to one cache drive.
pub const AREAS_MAX: usize = 64;

/// Into about so many chunks a cache drive is divided: areas are a whole number of them.
const CHUNKS_WANTED: u32 = 1024;

/// The smallest chunk: 256 KiB.
const CHUNK_BLOCKS_MIN: u32 = 64;

/// Table slots: two generations, each held twice.
pub const TABLE_SLOTS: u32 = 4;

const HEADER_BYTES: usize = 64;
const AREA_BYTES: usize = 64;
const CHUNK_BYTES: usize = 4;

/// The places of a cache drive's structures, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLayout {
    /// The whole drive, as far as it is used.
    pub size_blocks: u64,
    /// The unit in which the drive writes: 512 or 4096.
    pub sector_bytes: u32,
    /// Blocks in a chunk.
    pub chunk_blocks: u32,
    /// Chunks.
    pub chunk_count: u32,
}

impl CacheLayout {
    /// The layout for a drive of `size_bytes`, or none if it is too small for a few chunks.
    pub fn for_drive(size_bytes: u64, sector_bytes: u32) -> Option<Self> {
        let size_blocks = size_bytes / BLOCK_BYTES as u64;
        let wanted = (size_blocks / u64::from(CHUNKS_WANTED)).min(u64::from(u32::MAX / 2)) as u32;
        let chunk_blocks = wanted.next_power_of_two().max(CHUNK_BLOCKS_MIN);
        let mut layout = Self { size_blocks, sector_bytes, chunk_blocks, chunk_count: 0 };
        // The table is longer for more chunks: at least as many fit as with the longest one.
        layout.chunk_count = (size_blocks / u64::from(chunk_blocks)) as u32;
        let room = size_blocks.checked_sub(u64::from(layout.chunks_first_block()) + 1)?;
        layout.chunk_count = (room / u64::from(chunk_blocks)) as u32;
        layout.is_consistent().then_some(layout)
    }

    /// Whether the parts lie behind each other within the drive.
    pub fn is_consistent(&self) -> bool {
        let chunks = u64::from(self.chunk_count) * u64::from(self.chunk_blocks);
        self.chunk_count > 0
            && self.chunk_count <= u32::from(u16::MAX)
            && self.chunk_blocks > 0
            && u64::from(self.chunks_first_block()) + chunks < self.size_blocks
            && matches!(self.sector_bytes, 512 | 4096)
    }

    /// Blocks in each of the table slots.
    pub fn table_slot_blocks(&self) -> u32 {
        let bytes = HEADER_BYTES + AREAS_MAX * AREA_BYTES + self.chunk_count as usize * CHUNK_BYTES;
        bytes.div_ceil(BLOCK_BYTES) as u32
    }

    /// The first block of table slot `slot`, 0 to 3.
    pub fn table_slot(&self, slot: u32) -> u32 {
        assert!(slot < TABLE_SLOTS, "table slot {slot}");
        1 + slot * self.table_slot_blocks()
    }

    /// The two slots that hold a table of `generation`. The generation before stands in the others.
    pub fn table_slots_of(generation: u64) -> [u32; 2] {
        if generation.is_multiple_of(2) { [0, 1] } else { [2, 3] }
    }

    /// The block of the first chunk.
    pub fn chunks_first_block(&self) -> u32 {
        1 + TABLE_SLOTS * self.table_slot_blocks()
    }

    /// The byte at which a chunk begins.
    pub fn chunk_offset(&self, chunk: u32) -> u64 {
        let block = u64::from(self.chunks_first_block()) + u64::from(chunk) * u64::from(self.chunk_blocks);
        block * BLOCK_BYTES as u64
    }

    /// The block of the superblock's second copy.
    pub fn last_block(&self) -> u64 {
        self.size_blocks - 1
    }
}

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SuperblockBytes {
    checksum: U32,
    magic: [u8; 12],
    format_version: U32,
    sector_bytes: U32,
    incompatible_features: U64,
    cluster: [u8; 16],
    node: [u8; 16],
    drive: [u8; 16],
    size_blocks: U64,
    chunk_blocks: U32,
    chunk_count: U32,
    created_unix_ms: U64,
    /// Zeros; room for later fields, and part of the checksum.
    reserved: [u8; BLOCK_BYTES - 104],
}

const _: () = assert!(size_of::<SuperblockBytes>() == BLOCK_BYTES);

/// A cache drive's unchanging facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSuperblock {
    /// The cluster that the drive belongs to.
    pub cluster: ClusterId,
    /// The node that the drive was given to.
    pub node: NodeId,
    /// The drive.
    pub drive: DriveId,
    /// Where things lie.
    pub layout: CacheLayout,
    /// When the drive was formatted: milliseconds since 1970.
    pub created_unix_ms: u64,
}

impl CacheSuperblock {
    /// One whole block.
    pub fn encode(&self, block: &mut [u8]) {
        let mut bytes = SuperblockBytes::new_zeroed();
        bytes.magic = CACHE_MAGIC;
        bytes.format_version = CACHE_FORMAT_VERSION.into();
        bytes.sector_bytes = self.layout.sector_bytes.into();
        bytes.cluster = self.cluster.to_bytes();
        bytes.node = self.node.to_bytes();
        bytes.drive = self.drive.to_bytes();
        bytes.size_blocks = self.layout.size_blocks.into();
        bytes.chunk_blocks = self.layout.chunk_blocks.into();
        bytes.chunk_count = self.layout.chunk_count.into();
        bytes.created_unix_ms = self.created_unix_ms.into();
        block.copy_from_slice(bytes.as_bytes());
        super::seal(block);
    }

    /// Reads what [`CacheSuperblock::encode`] wrote.
    pub fn decode(block: &[u8]) -> Result<Self, FormatError> {
        let bytes = SuperblockBytes::ref_from_bytes(block).map_err(|_| FormatError::Inconsistent)?;
        if bytes.magic != CACHE_MAGIC {
            return Err(FormatError::Magic);
        }
        if !super::is_sealed(block) {
            return Err(FormatError::Checksum);
        }
        let (version, unknown_features) = (bytes.format_version.get(), bytes.incompatible_features.get());
        if version > CACHE_FORMAT_VERSION || unknown_features != 0 {
            return Err(FormatError::Newer { version, unknown_features });
        }
        let layout = CacheLayout {
            size_blocks: bytes.size_blocks.get(),
            sector_bytes: bytes.sector_bytes.get(),
            chunk_blocks: bytes.chunk_blocks.get(),
            chunk_count: bytes.chunk_count.get(),
        };
        if !layout.is_consistent() {
            return Err(FormatError::Inconsistent);
        }
        Ok(Self {
            cluster: ClusterId::from_bytes(bytes.cluster),
            node: NodeId::from_bytes(bytes.node),
            drive: DriveId::from_bytes(bytes.drive),
            layout,
            created_unix_ms: bytes.created_unix_ms.get(),
        })
    }
}

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct HeaderBytes {
    checksum: U32,
    magic: [u8; 4],
    length_bytes: U32,
    area_count: U32,
    chunk_count: U32,
    reserved: U32,
    generation: U64,
    attach_number: U64,
    drive: [u8; 16],
    reserved_2: [u8; 8],
}

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct AreaBytes {
    drive: [u8; 16],
    number: U64,
    reserved: [u8; 40],
}

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ChunkBytes {
    /// The area, counted from one; zero if the chunk is free.
    area: U16,
    /// Its place in that area.
    position: U16,
}

const _: () = assert!(size_of::<HeaderBytes>() == HEADER_BYTES);
const _: () = assert!(size_of::<AreaBytes>() == AREA_BYTES);
const _: () = assert!(size_of::<ChunkBytes>() == CHUNK_BYTES);

/// What a capacity drive and its area know each other by: a drive that is bound anew has another number, so that what an
/// earlier binding has left is never taken for what belongs to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The cache drive.
    pub cache: DriveId,
    /// Drawn at random when the drives were bound; never zero.
    pub number: u64,
}

/// The chunks of a capacity drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AreaRecord {
    /// The capacity drive.
    pub drive: DriveId,
    /// See [`Binding::number`].
    pub number: u64,
    /// Its chunks, in order.
    pub chunks: Vec<u32>,
}

/// Who has which chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheTable {
    /// The cache drive; so that a table in the wrong place is noticed.
    pub drive: DriveId,
    /// Raised by each table that is written.
    pub generation: u64,
    /// Raised by each attach of the drive.
    pub attach_number: u64,
    /// The areas. No chunk is in two of them.
    pub areas: Vec<AreaRecord>,
}

impl CacheTable {
    /// The bytes for a slot, padded to whole blocks.
    pub fn encode(&self, layout: &CacheLayout) -> Vec<u8> {
        let length = HEADER_BYTES + self.areas.len() * AREA_BYTES + layout.chunk_count as usize * CHUNK_BYTES;
        let mut header = HeaderBytes::new_zeroed();
        header.magic = TABLE_MAGIC;
        header.length_bytes = (length as u32).into();
        header.area_count = (self.areas.len() as u32).into();
        header.chunk_count = layout.chunk_count.into();
        header.generation = self.generation.into();
        header.attach_number = self.attach_number.into();
        header.drive = self.drive.to_bytes();
        let mut chunks = vec![ChunkBytes::new_zeroed(); layout.chunk_count as usize];
        let mut bytes = header.as_bytes().to_vec();
        for (area, record) in (1..).zip(&self.areas) {
            let mut area_bytes = AreaBytes::new_zeroed();
            area_bytes.drive = record.drive.to_bytes();
            area_bytes.number = record.number.into();
            bytes.extend_from_slice(area_bytes.as_bytes());
            for (position, chunk) in (0..).zip(&record.chunks) {
                chunks[*chunk as usize] = ChunkBytes { area: U16::new(area), position: U16::new(position) };
            }
        }
        bytes.extend_from_slice(chunks.as_bytes());
        super::seal(&mut bytes);
        bytes.resize(length.next_multiple_of(BLOCK_BYTES), 0);
        bytes
    }

    /// Reads what [`CacheTable::encode`] wrote for `drive` from the bytes of a slot.
    pub fn decode(slot: &[u8], layout: &CacheLayout, drive: DriveId) -> Result<Self, FormatError> {
        let (header, rest) = HeaderBytes::ref_from_prefix(slot).map_err(|_| FormatError::Inconsistent)?;
        if header.magic != TABLE_MAGIC {
            return Err(FormatError::Magic);
        }
        let (area_count, length) = (header.area_count.get() as usize, header.length_bytes.get() as usize);
        let chunk_count = layout.chunk_count as usize;
        let expected = HEADER_BYTES + area_count.min(AREAS_MAX) * AREA_BYTES + chunk_count * CHUNK_BYTES;
        if length != expected || length > slot.len() || !super::is_sealed(&slot[..length]) {
            return Err(FormatError::Checksum);
        }
        let counters = [header.generation.get(), header.attach_number.get()];
        let is_ours = header.drive == drive.to_bytes() && header.chunk_count.get() == layout.chunk_count;
        if !is_ours || area_count > AREAS_MAX || counters.iter().any(|counter| *counter >= COUNT_MAX) {
            return Err(FormatError::Inconsistent);
        }
        let (areas, rest) = <[AreaBytes]>::ref_from_prefix_with_elems(rest, area_count)
            .map_err(|_| FormatError::Inconsistent)?;
        let (chunks, _) = <[ChunkBytes]>::ref_from_prefix_with_elems(rest, chunk_count)
            .map_err(|_| FormatError::Inconsistent)?;
        let areas = (1..).zip(areas).map(|(number, area)| decode_area(number, area, chunks));
        Ok(Self {
            drive,
            generation: header.generation.get(),
            attach_number: header.attach_number.get(),
            areas: areas.collect::<Result<_, _>>()?,
        })
    }

    /// The chunks that are in no area, in order.
    pub fn free_chunks(&self, layout: &CacheLayout) -> Vec<u32> {
        let mut is_free = vec![true; layout.chunk_count as usize];
        self.areas.iter().flat_map(|area| &area.chunks).for_each(|chunk| is_free[*chunk as usize] = false);
        (0..layout.chunk_count).filter(|chunk| is_free[*chunk as usize]).collect()
    }
}

/// An area's chunks. Their places are those from zero on, each once.
fn decode_area(number: u16, area: &AreaBytes, chunks: &[ChunkBytes]) -> Result<AreaRecord, FormatError> {
    let own = (0..).zip(chunks).filter(|(_, chunk)| chunk.area.get() == number);
    let mut placed: Vec<(u16, u32)> = own.map(|(chunk, entry)| (entry.position.get(), chunk)).collect();
    placed.sort_unstable();
    if !placed.iter().enumerate().all(|(expected, (position, _))| expected == usize::from(*position)) {
        return Err(FormatError::Inconsistent);
    }
    Ok(AreaRecord {
        drive: DriveId::from_bytes(area.drive),
        number: area.number.get(),
        chunks: placed.into_iter().map(|(_, chunk)| chunk).collect(),
    })
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
