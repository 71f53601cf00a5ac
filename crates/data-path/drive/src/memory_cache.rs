//! Copies in memory of what is read: an option, off unless somebody sets how much.
//!
//! Copies are of physical blocks, on the capacity drive or in its area. What such a block holds does not change until it is
//! given up, and then its copy goes (see `allocator`): no write has to look for copies. Which ones stay is the business of
//! `read_index`, so that a scan drives nothing out that is read often.
//!
//! Invariants:
//! - A copy is kept of what matched its checksum, and is checked like everything else when it is read.
//! - There are never more than there is room for.

use spandrel_platform::Buffer;

use crate::read_index::ReadIndex;

/// See the module.
pub struct MemoryCache {
    /// Places are the indices of `copies`.
    index: ReadIndex,
    copies: Vec<Option<Buffer>>,
    free: Vec<u32>,
}

impl MemoryCache {
    /// Room for so many blocks, at least one.
    pub fn new(blocks: u32) -> Self {
        let blocks = blocks.max(1);
        Self {
            index: ReadIndex::new(0, blocks),
            copies: vec![None; blocks as usize],
            free: (0..blocks).rev().collect(),
        }
    }

    /// How many blocks there is room for.
    pub fn room_blocks(&self) -> u32 {
        self.copies.len() as u32
    }

    /// How many copies there are.
    pub fn count(&self) -> u32 {
        self.index.count() as u32
    }

    /// The copy of a block; that counts as a use of it.
    pub fn get(&mut self, block: u32) -> Option<Buffer> {
        let place = self.index.hit(block)?;
        self.copies[place as usize].clone()
    }

    /// Keeps what a block holds, in the place of what is read least. `data` is that alone.
    pub fn keep(&mut self, block: u32, data: Buffer) {
        if self.index.holds(block) {
            return;
        }
        let place = self.free.pop().or_else(|| self.index.evict().map(|evicted| evicted.place));
        if let Some(place) = place {
            self.copies[place as usize] = Some(data);
            self.index.insert(block, place);
        }
    }

    /// Drops the copy of a block, if there is one.
    pub fn drop_copy(&mut self, block: u32) {
        if let Some(place) = self.index.remove(block) {
            self.copies[place as usize] = None;
            self.free.push(place);
        }
    }
}

#[cfg(test)]
#[path = "memory_cache_tests.rs"]
mod tests;
