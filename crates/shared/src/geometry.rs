//! Blocks, pages and slabs: how a volume's bytes are divided.
//!
//! A block is 4 KiB, a page is 512 blocks (2 MiB: what one leaf of a map covers), a slab is a
//! whole number of pages, 256 MiB unless the pool was made with another size.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use spandrel_platform::BLOCK_BYTES;

/// Blocks in a page, and so in a map leaf.
pub const PAGE_BLOCKS: u32 = 512;

/// The slab size of a pool unless it was made with another one.
pub const SLAB_BYTES_DEFAULT: u64 = 256 << 20;

/// The smallest slab size, for tests.
pub const SLAB_BYTES_MIN: u64 = 4 << 20;

/// The largest slab size: block numbers within a slab are 16 bits on disk.
pub const SLAB_BYTES_MAX: u64 = 256 << 20;

/// A slab's place in its volume, from zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SlabIndex(pub u32);

impl fmt::Display for SlabIndex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// The slab size of a pool: a power of two from 4 MiB to 256 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct SlabGeometry {
    slab_bytes: u64,
}

impl SlabGeometry {
    /// The geometry for slabs of `slab_bytes`, or `None` if that is no allowed size.
    pub const fn new(slab_bytes: u64) -> Option<Self> {
        let allowed =
            slab_bytes.is_power_of_two() && slab_bytes >= SLAB_BYTES_MIN && slab_bytes <= SLAB_BYTES_MAX;
        if allowed { Some(Self { slab_bytes }) } else { None }
    }

    /// Bytes in a slab.
    pub const fn slab_bytes(self) -> u64 {
        self.slab_bytes
    }

    /// Blocks in a slab.
    pub const fn slab_blocks(self) -> u32 {
        (self.slab_bytes / BLOCK_BYTES as u64) as u32
    }

    /// Pages in a slab.
    pub const fn slab_pages(self) -> u32 {
        self.slab_blocks() / PAGE_BLOCKS
    }

    /// Slabs that a volume of `size_bytes` needs.
    pub const fn slabs_for(self, size_bytes: u64) -> u64 {
        size_bytes.div_ceil(self.slab_bytes)
    }

    /// The parts of a volume's `blocks` that lie in one slab each, in order.
    pub fn split(self, blocks: BlockRange) -> impl Iterator<Item = SlabRange> {
        let slab_blocks = u64::from(self.slab_blocks());
        let mut next = blocks.first;
        std::iter::from_fn(move || {
            if next >= blocks.end() {
                return None;
            }
            let slab = next / slab_blocks;
            let end = blocks.end().min((slab + 1) * slab_blocks);
            let part = SlabRange {
                slab: SlabIndex(u32::try_from(slab).expect("a volume has fewer than 2^32 slabs")),
                first: (next % slab_blocks) as u32,
                count: (end - next) as u32,
            };
            next = end;
            Some(part)
        })
    }
}

impl Default for SlabGeometry {
    fn default() -> Self {
        Self { slab_bytes: SLAB_BYTES_DEFAULT }
    }
}

impl TryFrom<u64> for SlabGeometry {
    type Error = String;

    fn try_from(slab_bytes: u64) -> Result<Self, String> {
        Self::new(slab_bytes).ok_or_else(|| {
            format!("slab size {slab_bytes} is not a power of two from {SLAB_BYTES_MIN} to {SLAB_BYTES_MAX}")
        })
    }
}

impl From<SlabGeometry> for u64 {
    fn from(geometry: SlabGeometry) -> u64 {
        geometry.slab_bytes
    }
}

/// Consecutive blocks of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockRange {
    /// The first block's number in the volume.
    pub first: u64,
    /// How many blocks.
    pub count: u64,
}

impl BlockRange {
    /// `count` blocks from `first` on.
    pub const fn new(first: u64, count: u64) -> Self {
        Self { first, count }
    }

    /// The smallest range that covers `length` bytes from byte `offset` on.
    pub const fn covering(offset: u64, length: u64) -> Self {
        let first = offset / BLOCK_BYTES as u64;
        let end = (offset + length).div_ceil(BLOCK_BYTES as u64);
        Self { first, count: end - first }
    }

    /// The number behind the last block's.
    pub const fn end(self) -> u64 {
        self.first + self.count
    }

    /// Whether the ranges share a block.
    pub const fn overlaps(self, other: BlockRange) -> bool {
        self.first < other.end() && other.first < self.end()
    }
}

/// Consecutive blocks within one slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SlabRange {
    /// The slab.
    pub slab: SlabIndex,
    /// The first block's number within the slab.
    pub first: u32,
    /// How many blocks.
    pub count: u32,
}

impl SlabRange {
    /// The number behind the last block's.
    pub const fn end(self) -> u32 {
        self.first + self.count
    }

    /// The same blocks, numbered within the volume.
    pub const fn in_volume(self, geometry: SlabGeometry) -> BlockRange {
        let start = self.slab.0 as u64 * geometry.slab_blocks() as u64;
        BlockRange { first: start + self.first as u64, count: self.count as u64 }
    }
}

#[cfg(test)]
#[path = "geometry_tests.rs"]
mod tests;
