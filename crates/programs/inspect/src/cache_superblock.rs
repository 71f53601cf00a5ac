//! The superblock of a cache drive: who it is, and where its tables end.

use spandrel_shared::{BLOCK_BYTES, ClusterId, DriveId, NodeId};

use crate::fields::{Fields, is_sealed};

/// What a cache drive begins with, behind the checksum.
pub const MAGIC: &[u8; 12] = b"SpandrelCach";

/// The newest format that is understood here.
const FORMAT_VERSION: u32 = 1;

/// Tables of who has which chunks: two generations, each twice.
const TABLE_SLOTS: u64 = 4;

/// Bytes of a table: its head, 64 areas of 64 bytes, and four for each chunk.
const TABLE_HEAD_BYTES: u64 = 64 + 64 * 64;

/// What a cache drive's superblock says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSuperblock {
    pub cluster: ClusterId,
    pub node: NodeId,
    pub drive: DriveId,
    /// The byte behind the last table: the chunks begin there.
    pub tables_end_bytes: u64,
    /// The byte at which the second superblock begins.
    pub second_superblock_bytes: u64,
}

impl CacheSuperblock {
    /// Reads a block. `None` if it is no superblock of a cache drive, or none that is whole and understood here.
    pub fn parse(block: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(block);
        fields.skip(4)?;
        if fields.bytes(12)? != MAGIC || !is_sealed(block) {
            return None;
        }
        let (format_version, _sector_bytes, features) = (fields.u32()?, fields.u32()?, fields.u64()?);
        if format_version > FORMAT_VERSION || features != 0 {
            return None;
        }
        let (cluster, node, drive) = (fields.array::<16>()?, fields.array::<16>()?, fields.array::<16>()?);
        let (size_blocks, _chunk_blocks, chunks) = (fields.u64()?, fields.u32()?, fields.u32()?);
        let block_bytes = BLOCK_BYTES as u64;
        let table_blocks = (TABLE_HEAD_BYTES + 4 * u64::from(chunks)).div_ceil(block_bytes);
        Some(Self {
            cluster: ClusterId::from_bytes(cluster),
            node: NodeId::from_bytes(node),
            drive: DriveId::from_bytes(drive),
            tables_end_bytes: (1 + TABLE_SLOTS * table_blocks) * block_bytes,
            second_superblock_bytes: size_blocks.checked_sub(1)?.checked_mul(block_bytes)?,
        })
    }
}

#[cfg(test)]
#[path = "cache_superblock_tests.rs"]
mod tests;
