//! Where written data come from: usually one stretch of random bytes, of which each write takes another piece.
//!
//! Fresh random bytes for every write would cost the load generator more than the write itself, and
//! always the same ones would flatter a storage that deduplicates.

use spandrel_platform::{Buffer, BufferPool};

use crate::random::Random;
use crate::spec::{CellSpec, SECTOR_BYTES, WriteContent};

/// Bytes to write. Pieces share its memory.
pub(crate) struct WriteSource {
    bytes: Buffer,
}

impl WriteSource {
    /// What is written in such a load.
    pub(crate) fn new(pool: &BufferPool, spec: &CellSpec) -> Self {
        let length = match spec.write_content {
            WriteContent::Random => usize::try_from(spec.write_source_bytes).expect("the spec bounds it"),
            WriteContent::Zeros | WriteContent::Sequence => spec.block_size_bytes as usize,
        };
        let mut bytes = pool.take(length);
        match spec.write_content {
            WriteContent::Random => {
                let mut random = Random::stream(spec.seed, 0, 0);
                for chunk in bytes.chunks_mut(8) {
                    let number = random.next().to_le_bytes();
                    chunk.copy_from_slice(&number[..chunk.len()]);
                }
            }
            WriteContent::Zeros => bytes.fill(0),
            WriteContent::Sequence => {
                bytes.iter_mut().zip((0..=u8::MAX).cycle()).for_each(|(byte, value)| *byte = value);
            }
        }
        Self { bytes: bytes.freeze() }
    }

    /// `length` bytes, of random ones from a random place. The source is at least as long.
    pub(crate) fn piece(&self, random: &mut Random, length: usize) -> Buffer {
        let sector = SECTOR_BYTES as usize;
        let places = (self.bytes.len() - length) / sector + 1;
        let start = random.below(places as u64) as usize * sector;
        self.bytes.slice(start..start + length)
    }
}
