//! Where things lie on a drive, and how much room it gives to slabs.
//!
//! Everything is counted in blocks of 4 KiB. The journal takes a 64th of the drive but no more than
//! 4 GiB, or 0.5 % of the drive where that is more, and at least 1 MiB; at least 4 % of the data
//! blocks are never promised to slabs, so that overwrites, checkpoints and trims always find free
//! ones.

use spandrel_platform::DriveGeometry;
use spandrel_shared::{BLOCK_BYTES, SlabGeometry};

use crate::format::journal::LISTED_RECORD_BYTES;
use crate::format::root;

/// The smallest journal: 1 MiB.
const JOURNAL_BLOCKS_MIN: u32 = 256;

/// One block in this many is journal. The larger it is, the more writes share the map pages of a checkpoint: where each of them has
/// changed, a third as many pages are written for each write as with 0.5 %.
const JOURNAL_SHARE: u32 = 64;

/// But no more than this many, 4 GiB: so long does a crash take to be recovered from that this much is to be replayed.
const JOURNAL_BLOCKS_MAX: u32 = 1 << 20;

/// Though never less than one block in this many, or a checkpoint of a large drive came for a few writes to each map page.
const JOURNAL_SHARE_OF_LARGE: u32 = 200;

/// One data block in this many is never promised to slabs.
const KEPT_FREE_SHARE: u64 = 25;

/// No record that takes a slot is shorter.
const SLOT_RECORD_BYTES_MIN: usize = 24;

/// Root slots: two generations, each held twice.
pub const ROOT_SLOTS: u32 = 4;

/// The largest store: block numbers have 32 bits, and two values are special.
pub const SIZE_BLOCKS_MAX: u64 = u32::MAX as u64 - 1;

/// The places of a drive's structures, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The whole drive, as far as the store uses it.
    pub size_blocks: u32,
    /// The unit in which the journal is written: 512 or 4096.
    pub sector_bytes: u32,
    /// The pool's slab size.
    pub slab_geometry: SlabGeometry,
    /// How many slab copies the drive can hold.
    pub slab_count_max: u32,
    /// The first root slot.
    pub root_first_block: u32,
    /// Blocks in each of the four root slots.
    pub root_slot_blocks: u32,
    /// The journal's first block.
    pub journal_first_block: u32,
    /// Blocks in the journal.
    pub journal_blocks: u32,
    /// The first block for data and map pages; the last block of the drive ends them.
    pub data_first_block: u32,
    /// Blocks of the area on a cache drive to which the drive is bound; zero if it is not. They are numbered behind those of
    /// the drive: the journal comes first, then data blocks.
    pub area_blocks: u32,
}

fn journal_blocks(size_blocks: u32) -> u32 {
    let limited = (size_blocks / JOURNAL_SHARE).min(JOURNAL_BLOCKS_MAX);
    limited.max(size_blocks / JOURNAL_SHARE_OF_LARGE).max(JOURNAL_BLOCKS_MIN)
}

impl Layout {
    /// The layout for a drive of `size_bytes`, or `None` if it is too small to hold one slab.
    /// What lies beyond 16 TiB is not used.
    pub fn for_drive(size_bytes: u64, sector_bytes: u32, slab_geometry: SlabGeometry) -> Option<Self> {
        let size_blocks = (size_bytes / BLOCK_BYTES as u64).min(SIZE_BLOCKS_MAX) as u32;
        let slab_count_max = size_blocks / slab_geometry.slab_blocks();
        let root_first_block = 1;
        let root_slot_blocks = root::slot_blocks(slab_count_max);
        let journal_first_block = root_first_block + ROOT_SLOTS * root_slot_blocks;
        let journal_blocks = journal_blocks(size_blocks);
        let data_first_block = journal_first_block + journal_blocks;
        let layout = Self {
            size_blocks,
            sector_bytes,
            slab_geometry,
            slab_count_max,
            root_first_block,
            root_slot_blocks,
            journal_first_block,
            journal_blocks,
            data_first_block,
            area_blocks: 0,
        };
        (layout.is_consistent() && layout.promised_slabs() > 0).then_some(layout)
    }

    /// The same for a drive that is bound to an area of so many blocks, on a cache drive of this sector size; `None` if that
    /// holds no data beside the journal. What cannot be numbered is not used.
    pub fn with_area(&self, area_blocks: u64, sector_bytes: u32) -> Option<Self> {
        let numbers_left = SIZE_BLOCKS_MAX - u64::from(self.size_blocks);
        let area_blocks = area_blocks.min(numbers_left) as u32;
        let sector_bytes = self.sector_bytes.max(sector_bytes);
        let bound = Self { journal_first_block: self.size_blocks, sector_bytes, area_blocks, ..*self };
        (area_blocks > self.journal_blocks).then_some(bound)
    }

    /// The first data block of the area.
    pub fn area_first_block(&self) -> u32 {
        self.size_blocks + self.journal_blocks
    }

    /// The block behind the last one of the area.
    pub fn area_end_block(&self) -> u32 {
        self.size_blocks + self.area_blocks
    }

    /// Whether a physical block is a data block of the area.
    pub fn is_in_area(&self, block: u32) -> bool {
        self.area_blocks > 0 && (self.area_first_block()..self.area_end_block()).contains(&block)
    }

    /// Whether the parts lie behind each other within the drive.
    pub fn is_consistent(&self) -> bool {
        let roots_end =
            u64::from(self.root_first_block) + u64::from(ROOT_SLOTS) * u64::from(self.root_slot_blocks);
        let journal_end = u64::from(self.journal_first_block) + u64::from(self.journal_blocks);
        self.root_first_block > 0
            && self.root_slot_blocks >= root::slot_blocks(self.slab_count_max)
            && roots_end <= u64::from(self.journal_first_block)
            && self.journal_blocks >= JOURNAL_BLOCKS_MIN
            && journal_end <= u64::from(self.data_first_block)
            && self.data_first_block < self.data_end_block()
            && matches!(self.sector_bytes, 512 | 4096)
    }

    /// Whether a drive of this geometry still holds all of the layout and can write its sectors.
    pub fn fits(&self, geometry: DriveGeometry) -> bool {
        u64::from(self.size_blocks) * BLOCK_BYTES as u64 <= geometry.size_bytes
            && self.sector_bytes >= geometry.sector_bytes
    }

    /// How large the journal is.
    pub fn journal_bytes(&self) -> u64 {
        u64::from(self.journal_blocks) * BLOCK_BYTES as u64
    }

    /// The block behind the last data block: the superblock's second copy.
    pub fn data_end_block(&self) -> u32 {
        self.size_blocks.saturating_sub(1)
    }

    /// Blocks for data and map pages.
    pub fn data_blocks(&self) -> u32 {
        self.data_end_block() - self.data_first_block
    }

    /// Slab copies that may be placed on the drive: they fit into 96 % of its data blocks.
    pub fn promised_slabs(&self) -> u32 {
        let data_blocks = u64::from(self.data_end_block().saturating_sub(self.data_first_block));
        let promised = data_blocks - data_blocks.div_ceil(KEPT_FREE_SHARE);
        (promised / u64::from(self.slab_geometry.slab_blocks())) as u32
    }

    /// Blocks that user data never takes: room for every leaf and slab root of the slabs that the
    /// drive can hold, and for a second copy of each, since a checkpoint writes all that changed
    /// before it frees what it replaces.
    pub fn checkpoint_reserve_blocks(&self) -> u32 {
        2 * self.slab_count_max * (self.slab_geometry.slab_pages() + 1)
    }

    /// Writes above the marks that the drive can keep a list of: what a checkpoint says again of
    /// them takes little of the journal. Where marks move on, there are never nearly so many.
    pub fn listed_writes_max(&self) -> usize {
        self.journal_blocks as usize * (BLOCK_BYTES / LISTED_RECORD_BYTES / 16)
    }

    /// Slots of slabs, and likewise of volumes, that records can name: one for each slab that the drive
    /// holds, and one for each that the journal can add and remove before slots are given out again.
    pub fn slots_max(&self) -> u32 {
        let records_per_block = (BLOCK_BYTES / SLOT_RECORD_BYTES_MIN) as u32;
        self.slab_count_max.saturating_add(self.journal_blocks.saturating_mul(records_per_block))
    }

    /// The byte at which `block` begins.
    pub fn offset_of(block: u32) -> u64 {
        u64::from(block) * BLOCK_BYTES as u64
    }

    /// The first block of root slot `slot`, 0 to 3.
    pub fn root_slot(&self, slot: u32) -> u32 {
        assert!(slot < ROOT_SLOTS, "root slot {slot}");
        self.root_first_block + slot * self.root_slot_blocks
    }

    /// The two slots that hold a root of `generation`. The generation before stands in the others.
    pub fn root_slots_of(generation: u64) -> [u32; 2] {
        if generation.is_multiple_of(2) { [0, 1] } else { [2, 3] }
    }

    /// Sectors in the journal.
    pub fn journal_sectors(&self) -> u32 {
        self.journal_blocks * (BLOCK_BYTES as u32 / self.sector_bytes)
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
