//! Where written data come from: one stretch of random bytes, of which each write takes another piece.
//!
//! Fresh random bytes for every write would cost the load generator more than the write itself, and
//! always the same ones would flatter a storage that deduplicates.

use spandrel_platform::{Buffer, BufferPool};

use crate::random::Random;
use crate::spec::SECTOR_BYTES;

/// Random bytes to write. Pieces share its memory.
pub(crate) struct WriteSource {
    bytes: Buffer,
}

impl WriteSource {
    /// `length` random bytes.
    pub(crate) fn new(pool: &BufferPool, length: usize, seed: u64) -> Self {
        let mut bytes = pool.take(length);
        let mut random = Random::stream(seed, 0, 0);
        for chunk in bytes.chunks_mut(8) {
            let number = random.next().to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
        Self { bytes: bytes.freeze() }
    }

    /// `length` bytes from a random place. The source is at least as long.
    pub(crate) fn piece(&self, random: &mut Random, length: usize) -> Buffer {
        let sector = SECTOR_BYTES as usize;
        let places = (self.bytes.len() - length) / sector + 1;
        let start = random.below(places as u64) as usize * sector;
        self.bytes.slice(start..start + length)
    }
}
