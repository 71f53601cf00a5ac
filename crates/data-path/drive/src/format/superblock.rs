//! The superblock: who the drive is and where things lie. Written at formatting, when one of
//! its two copies is found damaged, and when a program of a later format takes the drive into use; otherwise never.

use spandrel_shared::{BLOCK_BYTES, ClusterId, DriveId, NodeId, SlabGeometry};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::FormatError;
use crate::layout::Layout;

/// The first bytes behind the checksum of every superblock.
pub const SUPERBLOCK_MAGIC: [u8; 12] = *b"SpandrelDisk";

/// The format that this program writes. Whatever an earlier program would not understand needs a later one, or a feature: it would
/// take a record of the journal that it does not know for the journal's end, and give up what stands behind.
///
/// | version | since then |
/// |---|---|
/// | 1 | |
/// | 2 | the journal has records of type 15 |
pub const FORMAT_VERSION: u32 = 2;

/// Features that a program must know to open the drive at all. None yet.
pub const INCOMPATIBLE_FEATURES_KNOWN: u64 = 0;

/// Features that a program must know to write to the drive. None yet.
pub const READ_ONLY_COMPATIBLE_FEATURES_KNOWN: u64 = 0;

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SuperblockBytes {
    checksum: U32,
    magic: [u8; 12],
    format_version: U32,
    sector_bytes: U32,
    compatible_features: U64,
    read_only_compatible_features: U64,
    incompatible_features: U64,
    cluster: [u8; 16],
    node: [u8; 16],
    drive: [u8; 16],
    size_blocks: U32,
    slab_blocks: U32,
    slab_count_max: U32,
    root_first_block: U32,
    root_slot_blocks: U32,
    journal_first_block: U32,
    journal_blocks: U32,
    data_first_block: U32,
    created_unix_ms: U64,
    /// Zeros; room for later fields, and part of the checksum.
    reserved: [u8; BLOCK_BYTES - 136],
}

const _: () = assert!(size_of::<SuperblockBytes>() == BLOCK_BYTES);

/// A drive's unchanging facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The cluster that the drive belongs to.
    pub cluster: ClusterId,
    /// The node that the drive was given to.
    pub node: NodeId,
    /// The drive.
    pub drive: DriveId,
    /// Where things lie.
    pub layout: Layout,
    /// When the drive was formatted: milliseconds since 1970.
    pub created_unix_ms: u64,
}

/// Which format a superblock that can be read says that its drive has.
pub fn format_version(block: &[u8]) -> Result<u32, FormatError> {
    let bytes = SuperblockBytes::ref_from_bytes(block).map_err(|_| FormatError::Inconsistent)?;
    Ok(bytes.format_version.get())
}

impl Superblock {
    /// One whole block.
    pub fn encode(&self, block: &mut [u8]) {
        let layout = &self.layout;
        let mut bytes = SuperblockBytes::new_zeroed();
        bytes.magic = SUPERBLOCK_MAGIC;
        bytes.format_version = FORMAT_VERSION.into();
        bytes.sector_bytes = layout.sector_bytes.into();
        bytes.cluster = self.cluster.to_bytes();
        bytes.node = self.node.to_bytes();
        bytes.drive = self.drive.to_bytes();
        bytes.size_blocks = layout.size_blocks.into();
        bytes.slab_blocks = layout.slab_geometry.slab_blocks().into();
        bytes.slab_count_max = layout.slab_count_max.into();
        bytes.root_first_block = layout.root_first_block.into();
        bytes.root_slot_blocks = layout.root_slot_blocks.into();
        bytes.journal_first_block = layout.journal_first_block.into();
        bytes.journal_blocks = layout.journal_blocks.into();
        bytes.data_first_block = layout.data_first_block.into();
        bytes.created_unix_ms = self.created_unix_ms.into();
        block.copy_from_slice(bytes.as_bytes());
        super::seal(block);
    }

    /// Reads what [`Superblock::encode`] wrote.
    pub fn decode(block: &[u8]) -> Result<Self, FormatError> {
        let bytes = SuperblockBytes::ref_from_bytes(block).map_err(|_| FormatError::Inconsistent)?;
        if bytes.magic != SUPERBLOCK_MAGIC {
            return Err(FormatError::Magic);
        }
        if !super::is_sealed(block) {
            return Err(FormatError::Checksum);
        }
        let unknown_features = (bytes.incompatible_features.get() & !INCOMPATIBLE_FEATURES_KNOWN)
            | (bytes.read_only_compatible_features.get() & !READ_ONLY_COMPATIBLE_FEATURES_KNOWN);
        let version = bytes.format_version.get();
        if version > FORMAT_VERSION || unknown_features != 0 {
            return Err(FormatError::Newer { version, unknown_features });
        }
        let slab_bytes = u64::from(bytes.slab_blocks.get()) * BLOCK_BYTES as u64;
        let layout = Layout {
            size_blocks: bytes.size_blocks.get(),
            sector_bytes: bytes.sector_bytes.get(),
            slab_geometry: SlabGeometry::new(slab_bytes).ok_or(FormatError::Inconsistent)?,
            slab_count_max: bytes.slab_count_max.get(),
            root_first_block: bytes.root_first_block.get(),
            root_slot_blocks: bytes.root_slot_blocks.get(),
            journal_first_block: bytes.journal_first_block.get(),
            journal_blocks: bytes.journal_blocks.get(),
            data_first_block: bytes.data_first_block.get(),
            area_blocks: 0,
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

#[cfg(test)]
#[path = "superblock_tests.rs"]
mod tests;
