//! Map pages: leaves of 512 entries, and slab roots with one entry per leaf.
//!
//! A leaf entry is 8 bytes: the physical block and the checksum of the data there. A slab root's
//! entry is 32 bytes: where the leaf is, its checksum, and the page's version. Neither page has
//! room or need for a header: the parent holds its place and its checksum.

use spandrel_shared::{BLOCK_BYTES, Epoch, PAGE_BLOCKS, Version};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The leaf format that this program writes, named in each slab's entry of the root.
pub const LEAF_FORMAT: u16 = 1;

/// The physical block of an entry that maps nothing: it reads as zeros.
pub const UNMAPPED: u32 = 0;

/// The physical block of an entry whose mapping was lost with its leaf: it cannot be read here.
pub const LOST: u32 = u32::MAX;

/// Where a block's data stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// The physical block, [`UNMAPPED`] or [`LOST`].
    pub block: u32,
    /// The data's address-mixed checksum; zero without data.
    pub checksum: u32,
}

impl Mapping {
    /// Maps nothing.
    pub const NONE: Mapping = Mapping { block: UNMAPPED, checksum: 0 };

    /// What was mapped is not known any more.
    pub const UNKNOWN: Mapping = Mapping { block: LOST, checksum: 0 };

    /// What bytes name. A checksum means nothing where there is no block.
    pub fn named(block: u32, checksum: u32) -> Self {
        match block {
            UNMAPPED => Self::NONE,
            LOST => Self::UNKNOWN,
            _ => Self { block, checksum },
        }
    }

    /// The physical block, if there is one.
    pub fn physical(self) -> Option<u32> {
        (self.block != UNMAPPED && self.block != LOST).then_some(self.block)
    }
}

/// Where a map page stands and the CRC-32C of its 4 KiB. Block zero: there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagePointer {
    /// The physical block.
    pub block: u32,
    /// The page's checksum.
    pub checksum: u32,
}

impl PagePointer {
    /// There is no page.
    pub const NONE: PagePointer = PagePointer { block: 0, checksum: 0 };

    /// Whether there is no page.
    pub fn is_none(self) -> bool {
        self.block == 0
    }
}

/// A leaf in memory: the mappings of a page's 512 blocks.
pub type Leaf = [Mapping; PAGE_BLOCKS as usize];

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct LeafEntryBytes {
    block: U32,
    checksum: U32,
}

const _: () = assert!(size_of::<LeafEntryBytes>() * PAGE_BLOCKS as usize == BLOCK_BYTES);

/// Writes `leaf` into a whole block and returns its checksum.
pub fn encode_leaf(leaf: &Leaf, block: &mut [u8]) -> u32 {
    for (bytes, mapping) in block.chunks_exact_mut(size_of::<LeafEntryBytes>()).zip(leaf) {
        let entry = LeafEntryBytes { block: mapping.block.into(), checksum: mapping.checksum.into() };
        bytes.copy_from_slice(entry.as_bytes());
    }
    spandrel_shared::checksum::crc32c(block)
}

/// Reads a leaf, or `None` if the block does not match `checksum`.
pub fn decode_leaf(block: &[u8], checksum: u32) -> Option<Box<Leaf>> {
    if spandrel_shared::checksum::crc32c(block) != checksum {
        return None;
    }
    let entries = <[LeafEntryBytes]>::ref_from_bytes(block).ok()?;
    let mut leaf = Box::new([Mapping::NONE; PAGE_BLOCKS as usize]);
    for (mapping, entry) in leaf.iter_mut().zip(entries) {
        *mapping = Mapping::named(entry.block.get(), entry.checksum.get());
    }
    Some(leaf)
}

/// The parent's knowledge of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageEntry {
    /// The page's leaf; none while the page maps nothing.
    pub leaf: PagePointer,
    /// The highest version written in the page; kept when the page becomes empty.
    pub version: Version,
    /// On a copy that is not in sync: whether resync has made this page whole.
    pub whole: bool,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct PageEntryBytes {
    leaf_block: U32,
    leaf_checksum: U32,
    version_counter: U64,
    version_epoch: U32,
    flags: U16,
    reserved: [u8; 10],
}

const _: () = assert!(size_of::<PageEntryBytes>() == 32);

const FLAG_WHOLE: u16 = 1;

/// Writes the entries of a slab's pages into a whole block, with zeros behind them, and returns
/// its checksum.
pub fn encode_slab_root(pages: &[PageEntry], block: &mut [u8]) -> u32 {
    block.fill(0);
    for (bytes, page) in block.chunks_exact_mut(size_of::<PageEntryBytes>()).zip(pages) {
        let entry = PageEntryBytes {
            leaf_block: page.leaf.block.into(),
            leaf_checksum: page.leaf.checksum.into(),
            version_counter: page.version.counter.into(),
            version_epoch: page.version.epoch.0.into(),
            flags: (if page.whole { FLAG_WHOLE } else { 0 }).into(),
            reserved: [0; 10],
        };
        bytes.copy_from_slice(entry.as_bytes());
    }
    spandrel_shared::checksum::crc32c(block)
}

/// Reads the entries of `page_count` pages, or `None` if the block does not match `checksum`.
pub fn decode_slab_root(block: &[u8], checksum: u32, page_count: u32) -> Option<Vec<PageEntry>> {
    if spandrel_shared::checksum::crc32c(block) != checksum {
        return None;
    }
    let entries = <[PageEntryBytes]>::ref_from_bytes(block).ok()?;
    let decode = |entry: &PageEntryBytes| PageEntry {
        leaf: PagePointer { block: entry.leaf_block.get(), checksum: entry.leaf_checksum.get() },
        version: Version::new(Epoch(entry.version_epoch.get()), entry.version_counter.get()),
        whole: entry.flags.get() & FLAG_WHOLE != 0,
    };
    Some(entries.iter().take(page_count as usize).map(decode).collect())
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;
