//! A cache drive: who it is, and which of its chunks belong to which capacity drive.

use spandrel_shared::{BLOCK_BYTES, ClusterId, DriveId, NodeId};

use crate::fields::{Fields, is_sealed};
use crate::root::COUNT_MAX;
use crate::source::{Reader, Source};

/// What a cache drive begins with, behind the checksum.
pub const MAGIC: &[u8; 12] = b"SpandrelCach";

/// What a table begins with, behind the checksum.
const TABLE_MAGIC: &[u8; 4] = b"SpCt";

/// The newest format that is understood here.
const FORMAT_VERSION: u32 = 1;

/// More blocks cannot be counted in bytes.
const SIZE_BLOCKS_MAX: u64 = u64::MAX / BLOCK_BYTES as u64;

/// Tables of who has which chunks: two generations, each twice.
const TABLE_SLOTS: u64 = 4;

/// The most areas that a table names.
const AREAS_MAX: u64 = 64;

const TABLE_HEADER_BYTES: u64 = 64;
const TABLE_AREA_BYTES: u64 = 64;
const TABLE_CHUNK_BYTES: u64 = 4;

/// What a cache drive's superblock says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSuperblock {
    pub cluster: ClusterId,
    pub node: NodeId,
    pub drive: DriveId,
    pub sector_bytes: u32,
    size_blocks: u64,
    chunk_blocks: u32,
    chunk_count: u32,
}

impl CacheSuperblock {
    /// Reads a block. `None` if it is no superblock of a cache drive, or none that is whole and understood here.
    pub fn parse(block: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(block);
        fields.skip(4)?;
        if fields.bytes(12)? != MAGIC || !is_sealed(block) {
            return None;
        }
        let (format_version, sector_bytes, features) = (fields.u32()?, fields.u32()?, fields.u64()?);
        if format_version > FORMAT_VERSION || features != 0 {
            return None;
        }
        let (cluster, node, drive) = (fields.array::<16>()?, fields.array::<16>()?, fields.array::<16>()?);
        let (size_blocks, chunk_blocks, chunk_count) = (fields.u64()?, fields.u32()?, fields.u32()?);
        let superblock = Self {
            cluster: ClusterId::from_bytes(cluster),
            node: NodeId::from_bytes(node),
            drive: DriveId::from_bytes(drive),
            sector_bytes,
            size_blocks,
            chunk_blocks,
            chunk_count,
        };
        // Whatever they say: two numbers of 32 bits and a few blocks more.
        let chunks_end_block =
            1 + TABLE_SLOTS * superblock.table_blocks() + u64::from(chunk_blocks) * u64::from(chunk_count);
        let is_consistent = chunk_blocks > 0
            && (1..=u32::from(u16::MAX)).contains(&chunk_count)
            && chunks_end_block < size_blocks
            && size_blocks <= SIZE_BLOCKS_MAX
            && matches!(sector_bytes, 512 | 4096);
        is_consistent.then_some(superblock)
    }

    /// The byte behind the last table: the chunks begin there.
    pub fn tables_end_bytes(&self) -> u64 {
        (1 + TABLE_SLOTS * self.table_blocks()) * BLOCK_BYTES as u64
    }

    /// The byte at which the second superblock begins.
    pub fn second_superblock_bytes(&self) -> u64 {
        self.size_blocks.saturating_sub(1).saturating_mul(BLOCK_BYTES as u64)
    }

    fn chunk_bytes(&self) -> u64 {
        u64::from(self.chunk_blocks) * BLOCK_BYTES as u64
    }

    /// The byte at which a chunk begins.
    fn chunk_offset(&self, chunk: u64) -> u64 {
        self.tables_end_bytes() + chunk * self.chunk_bytes()
    }

    /// Blocks of each of the table slots: each has room for the most areas.
    fn table_blocks(&self) -> u64 {
        let chunks = u64::from(self.chunk_count) * TABLE_CHUNK_BYTES;
        (TABLE_HEADER_BYTES + AREAS_MAX * TABLE_AREA_BYTES + chunks).div_ceil(BLOCK_BYTES as u64)
    }
}

/// The chunks of one capacity drive, as one stretch of bytes.
pub struct Area<'a> {
    source: &'a dyn Source,
    pub sector_bytes: u32,
    chunk_bytes: u64,
    /// Where each chunk begins on the cache drive.
    chunks: Vec<u64>,
}

impl<'a> Area<'a> {
    /// The area that `drive` has under this number on the cache drive `cache`, if `source` is that one and knows of it.
    pub fn find(source: &'a dyn Source, cache: DriveId, drive: DriveId, number: u64) -> Option<Self> {
        let reader = Reader::new(source, None);
        let last = (reader.size_bytes() / BLOCK_BYTES as u64).saturating_sub(1) * BLOCK_BYTES as u64;
        let at = |offset| CacheSuperblock::parse(&reader.bytes(offset, BLOCK_BYTES).ok()?);
        let superblock = at(0).or_else(|| at(last)).filter(|superblock| superblock.drive == cache)?;
        let chunks = newest_table(reader, &superblock)?.chunks_of(drive, number)?;
        Some(Self {
            source,
            sector_bytes: superblock.sector_bytes,
            chunk_bytes: superblock.chunk_bytes(),
            chunks: chunks.into_iter().map(|chunk| superblock.chunk_offset(chunk)).collect(),
        })
    }

    /// How much it holds.
    pub fn size_bytes(&self) -> u64 {
        self.chunks.len() as u64 * self.chunk_bytes
    }

    /// How long its chunks are.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Where they begin on the cache drive, in their order.
    pub fn chunks(&self) -> &[u64] {
        &self.chunks
    }

    /// Fills `into` from byte `offset` of the area on.
    pub fn read(&self, mut offset: u64, mut into: &mut [u8]) -> std::io::Result<()> {
        while !into.is_empty() {
            let within = offset % self.chunk_bytes;
            let Some(start) = self.chunks.get((offset / self.chunk_bytes) as usize) else {
                return Err(std::io::Error::other("it lies behind the area's end"));
            };
            let length = (self.chunk_bytes - within).min(into.len() as u64) as usize;
            let (piece, rest) = into.split_at_mut(length);
            self.source.read(start + within, piece)?;
            (into, offset) = (rest, offset + length as u64);
        }
        Ok(())
    }
}

/// Who has which chunks.
struct Table {
    generation: u64,
    /// The drives with their numbers.
    areas: Vec<(DriveId, u64)>,
    /// For each chunk the area, counted from one, and its place there.
    chunks: Vec<(u16, u16)>,
}

impl Table {
    fn parse(slot: &[u8], superblock: &CacheSuperblock) -> Option<Self> {
        let mut fields = Fields::new(slot);
        fields.skip(4)?;
        let magic = fields.bytes(4)?;
        let (length, area_count, chunk_count) = (fields.u32()?, fields.u32()?, fields.u32()?);
        fields.skip(4)?;
        let (generation, attach_number, drive) = (fields.u64()?, fields.u64()?, fields.array::<16>()?);
        fields.skip(8)?;
        let expected = TABLE_HEADER_BYTES
            + u64::from(area_count) * TABLE_AREA_BYTES
            + u64::from(chunk_count) * TABLE_CHUNK_BYTES;
        let is_ours = magic == TABLE_MAGIC
            && u64::from(area_count) <= AREAS_MAX
            && chunk_count == superblock.chunk_count
            && u64::from(length) == expected
            && drive == superblock.drive.to_bytes()
            && generation < COUNT_MAX
            && attach_number < COUNT_MAX;
        if !is_ours || !is_sealed(slot.get(..length as usize)?) {
            return None;
        }
        let mut areas = Vec::new();
        for _ in 0..area_count {
            areas.push((DriveId::from_bytes(fields.array()?), fields.u64()?));
            fields.skip(40)?;
        }
        let chunks = (0..chunk_count).map(|_| Some((fields.u16()?, fields.u16()?)));
        let table = Self { generation, areas, chunks: chunks.collect::<Option<_>>()? };
        (1..=table.areas.len()).all(|area| table.is_whole(area)).then_some(table)
    }

    /// Whether the places of an area's chunks are those from zero on, each once.
    fn is_whole(&self, area: usize) -> bool {
        let placed = self.placed(area);
        (0..).zip(&placed).all(|(expected, (position, _))| expected == *position)
    }

    /// The chunks of the area with this number, with their places, in order.
    fn placed(&self, area: usize) -> Vec<(u16, u64)> {
        let own = (0..).zip(&self.chunks).filter(|(_, (owner, _))| usize::from(*owner) == area);
        let mut placed: Vec<(u16, u64)> = own.map(|(chunk, (_, position))| (*position, chunk)).collect();
        placed.sort_unstable();
        placed
    }

    /// The chunks of an area in their order.
    fn chunks_of(&self, drive: DriveId, number: u64) -> Option<Vec<u64>> {
        let area = 1 + self.areas.iter().position(|area| *area == (drive, number))?;
        Some(self.placed(area).into_iter().map(|(_, chunk)| chunk).collect())
    }
}

/// The newest table that is whole.
fn newest_table(reader: Reader<'_>, superblock: &CacheSuperblock) -> Option<Table> {
    let slot_bytes = superblock.table_blocks() * BLOCK_BYTES as u64;
    let slots = (0..TABLE_SLOTS).map(|slot| BLOCK_BYTES as u64 + slot * slot_bytes);
    let whole =
        slots.filter_map(|offset| Table::parse(&reader.bytes(offset, slot_bytes as usize).ok()?, superblock));
    whole.max_by_key(|table| table.generation)
}

#[cfg(test)]
#[path = "cache_drive_tests.rs"]
mod tests;
