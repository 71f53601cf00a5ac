//! Map pages: slab roots with an entry for each page, and leaves with an entry for each block.

use spandrel_shared::checksum::crc32c;
use spandrel_shared::{PAGE_BLOCKS, Version};

use crate::fields::Fields;
use crate::root::PagePointer;

/// The leaf format that is understood here.
pub const LEAF_FORMAT: u16 = 1;

const UNMAPPED: u32 = 0;
const LOST: u32 = u32::MAX;
const PAGE_ENTRY_BYTES: usize = 32;
const FLAG_WHOLE: u16 = 1;

/// What a leaf says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The physical block, or one of two special values.
    pub block: u32,
    /// The checksum of the data there.
    pub checksum: u32,
}

impl Mapping {
    pub const NONE: Mapping = Mapping { block: UNMAPPED, checksum: 0 };
    pub const LOST: Mapping = Mapping { block: LOST, checksum: 0 };

    /// What bytes name. A checksum means nothing where there is no block.
    pub fn named(block: u32, checksum: u32) -> Self {
        match block {
            UNMAPPED => Self::NONE,
            LOST => Self::LOST,
            _ => Self { block, checksum },
        }
    }

    /// The physical block, if data are stored.
    pub fn physical(self) -> Option<u32> {
        (self.block != UNMAPPED && self.block != LOST).then_some(self.block)
    }

    /// Whether what was stored is not known any more.
    pub fn is_lost(self) -> bool {
        self.block == LOST
    }
}

/// The mappings of a page's blocks.
pub type Leaf = [Mapping; PAGE_BLOCKS as usize];

/// What a slab root says of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageEntry {
    pub leaf: PagePointer,
    pub version: Version,
    pub whole: bool,
}

/// Reads a leaf; `None` if it does not match `checksum`.
pub fn parse_leaf(block: &[u8], checksum: u32) -> Option<Box<Leaf>> {
    if crc32c(block) != checksum {
        return None;
    }
    let mut fields = Fields::new(block);
    let mut leaf = Box::new([Mapping::NONE; PAGE_BLOCKS as usize]);
    for mapping in leaf.iter_mut() {
        *mapping = Mapping::named(fields.u32()?, fields.u32()?);
    }
    Some(leaf)
}

/// Reads a slab root of `page_count` pages; `None` if it does not match `checksum`.
pub fn parse_slab_root(block: &[u8], checksum: u32, page_count: u32) -> Option<Vec<PageEntry>> {
    if crc32c(block) != checksum {
        return None;
    }
    let entries = block.chunks_exact(PAGE_ENTRY_BYTES).take(page_count as usize);
    let entries = entries.map(parse_page_entry).collect::<Option<Vec<_>>>()?;
    (entries.len() == page_count as usize).then_some(entries)
}

fn parse_page_entry(bytes: &[u8]) -> Option<PageEntry> {
    let mut fields = Fields::new(bytes);
    let leaf = PagePointer { block: fields.u32()?, checksum: fields.u32()? };
    let version = fields.counter_and_epoch()?;
    Some(PageEntry { leaf, version, whole: fields.u16()? & FLAG_WHOLE != 0 })
}
