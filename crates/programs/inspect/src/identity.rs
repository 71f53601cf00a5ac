//! Whose drive something is, and where it keeps what makes it one: for whoever is about to wipe it.

use std::path::Path;

use spandrel_shared::{BLOCK_BYTES, ClusterId, DriveId, NodeId};

use crate::cache_drive::CacheSuperblock;
use crate::source::{DriveFile, Reader, offset_of};
use crate::superblock::{ROOT_SLOTS, SIZE_BLOCKS_MAX, Superblock};

/// A drive of a cluster, as one of its superblocks says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveIdentity {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeId,
    /// The drive.
    pub drive: DriveId,
    /// Whether it caches for others.
    pub is_cache: bool,
    /// The byte behind the last root slot, or behind the last table of a cache drive: with the superblock, what makes it one
    /// stands before it.
    pub roots_end_bytes: u64,
    /// The byte at which the second superblock begins. That is not at the end of a drive that has grown.
    pub second_superblock_bytes: u64,
}

/// Whose drive a file or block device is; none if it carries no superblock that is whole.
///
/// # Errors
/// Why it cannot be read.
pub fn identify_path(path: &Path) -> Result<Option<DriveIdentity>, String> {
    let file = DriveFile::open(path, true).map_err(|error| error.to_string())?;
    let reader = Reader::new(&file, None);
    let blocks = reader.size_bytes() / BLOCK_BYTES as u64;
    let last =
        u32::try_from(blocks.min(u64::from(SIZE_BLOCKS_MAX))).unwrap_or(SIZE_BLOCKS_MAX).saturating_sub(1);
    let at = |block| Superblock::parse(&reader.block(block).ok()?).ok();
    let capacity = at(0).or_else(|| at(last)).map(|superblock| DriveIdentity {
        cluster: superblock.cluster,
        node: superblock.node,
        drive: superblock.drive,
        is_cache: false,
        roots_end_bytes: offset_of(superblock.root_slot(ROOT_SLOTS)),
        second_superblock_bytes: offset_of(superblock.last_block()),
    });
    let cache_at = |block| CacheSuperblock::parse(&reader.block(block).ok()?);
    Ok(capacity.or_else(|| {
        cache_at(0).or_else(|| cache_at(last)).map(|superblock| DriveIdentity {
            cluster: superblock.cluster,
            node: superblock.node,
            drive: superblock.drive,
            is_cache: true,
            roots_end_bytes: superblock.tables_end_bytes(),
            second_superblock_bytes: superblock.second_superblock_bytes(),
        })
    }))
}

/// The byte at which a store ends at the latest, however large its drive is.
pub fn store_end_bytes_max() -> u64 {
    offset_of(SIZE_BLOCKS_MAX)
}
