//! Reading blocks and checking them, for users and for the scrub.
//!
//! Invariants:
//! - No byte leaves the store whose block did not match its checksum.
//! - A physical block is not reused while a read looks at it (see `allocator`).

use futures_util::future::join_all;
use spandrel_platform::{Buffer, Platform};
use spandrel_shared::BLOCK_BYTES;
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::checksum::BlockChecksum;

use crate::drive_check::read_place;
use crate::error::StoreError;
use crate::format::map::Mapping;
use crate::layout::Layout;
use crate::store::{DamagedBlock, DriveStore, Inner, SlabSlot};

/// The longest single read from the drive, in blocks: 1 MiB.
const READ_BLOCKS_MAX: u32 = 256;

/// A stretch of what was read.
#[derive(Clone, Debug)]
pub enum ReadPart {
    /// Blocks that nothing is stored of; they read as zeros.
    Hole {
        /// How many.
        count: u32,
    },
    /// Blocks that match their checksums.
    Data {
        /// Their content.
        data: Buffer,
        /// Their address-mixed checksums.
        checksums: Vec<u32>,
    },
    /// A block that cannot be had from this drive.
    Damaged(DamagedBlock),
}

impl ReadPart {
    /// How many blocks.
    pub fn count(&self) -> u32 {
        match self {
            ReadPart::Hole { count } => *count,
            ReadPart::Data { checksums, .. } => checksums.len() as u32,
            ReadPart::Damaged(_) => 1,
        }
    }
}

/// Blocks that lie behind each other in the slab and are alike: all holes, all lost, or all at
/// consecutive places on the drive.
struct Stretch {
    first: u32,
    start: Mapping,
    checksums: Vec<u32>,
    count: u32,
}

impl<P: Platform> DriveStore<P> {
    /// Reads `count` blocks of a slab from `first` on. The parts are in order and are exactly that.
    pub async fn read(&self, slot: SlabSlot, first: u32, count: u32) -> Result<Vec<ReadPart>, StoreError> {
        let parts = self.inner.read_parts(slot, first, count).await?;
        self.inner.statistics.borrow_mut().blocks_read += u64::from(count);
        Ok(parts)
    }

    /// Reads all that is stored of `count` blocks from `first` on, and returns the blocks that
    /// cannot be had from this drive.
    pub async fn scrub(
        &self,
        slot: SlabSlot,
        first: u32,
        count: u32,
    ) -> Result<Vec<DamagedBlock>, StoreError> {
        self.inner.volume_of(slot, first, count)?;
        let mut damaged = Vec::new();
        let mut done = 0;
        // Piece by piece, so that no block is kept from being reused for long.
        while done < count {
            let length = (count - done).min(READ_BLOCKS_MAX);
            let parts = self.inner.read_parts(slot, first + done, length).await?;
            damaged.extend(parts.into_iter().filter_map(|part| match part {
                ReadPart::Damaged(block) => Some(block),
                _ => None,
            }));
            done += length;
        }
        Ok(damaged)
    }
}

impl<P: Platform> Inner<P> {
    async fn read_parts(&self, slot: SlabSlot, first: u32, count: u32) -> Result<Vec<ReadPart>, StoreError> {
        self.check()?;
        let (stretches, checksum) = self.look_up(slot, first, count)?;
        let _read = OpenRead::begin(self);
        let mut parts = Vec::with_capacity(stretches.len());
        if let [_] = stretches[..] {
            for stretch in stretches {
                self.read_stretch(stretch, checksum, &mut parts).await?;
            }
            return Ok(parts);
        }
        // All at the same time: blocks that were written at random lie apart.
        let reads = stretches.into_iter().map(|stretch| async {
            let mut parts = Vec::with_capacity(1);
            self.read_stretch(stretch, checksum, &mut parts).await?;
            Ok(parts)
        });
        for read in join_all(reads).await {
            parts.extend(read?);
        }
        Ok(parts)
    }

    async fn read_stretch(
        &self,
        stretch: Stretch,
        checksum: BlockChecksum,
        parts: &mut Vec<ReadPart>,
    ) -> Result<(), StoreError> {
        match stretch.start {
            Mapping::NONE => parts.push(ReadPart::Hole { count: stretch.count }),
            Mapping::UNKNOWN => {
                self.statistics.borrow_mut().blocks_damaged += u64::from(stretch.count);
                let lost = (stretch.first..stretch.first + stretch.count)
                    .map(|block| ReadPart::Damaged(DamagedBlock { block, mapping: Mapping::UNKNOWN }));
                parts.extend(lost);
            }
            _ => self.read_data(stretch, checksum, parts).await?,
        }
        Ok(())
    }

    fn look_up(
        &self,
        slot: SlabSlot,
        first: u32,
        count: u32,
    ) -> Result<(Vec<Stretch>, BlockChecksum), StoreError> {
        let state = self.state.borrow();
        let slab = state.slabs.get(slot.0).ok_or(StoreError::NotFound)?;
        let volume = state.volumes.get(slab.volume_slot).ok_or(StoreError::NotFound)?;
        if !slab.contains(first, count) {
            return Err(StoreError::NotFound);
        }
        let mut stretches: Vec<Stretch> = Vec::with_capacity(1);
        for block in first..first + count {
            let mapping = slab.mapping(block);
            if let Some(last) = stretches.last_mut()
                && last.continues_with(mapping)
            {
                last.count += 1;
                last.checksums.push(mapping.checksum);
                continue;
            }
            let checksums = vec![mapping.checksum];
            stretches.push(Stretch { first: block, start: mapping, checksums, count: 1 });
        }
        Ok((stretches, BlockChecksum::new(volume.volume, slab.slab)))
    }

    /// Reads consecutive physical blocks with one read; if that fails, block by block, so that
    /// one bad sector costs one block.
    async fn read_data(
        &self,
        stretch: Stretch,
        checksum: BlockChecksum,
        parts: &mut Vec<ReadPart>,
    ) -> Result<(), StoreError> {
        if let Some(data) = self.read_blocks(stretch.start.block, stretch.count).await {
            self.check_blocks(&stretch, &data, checksum, parts);
            return Ok(());
        }
        for index in 0..stretch.count {
            let single = Stretch {
                first: stretch.first + index,
                start: stretch.mapping(index),
                checksums: vec![stretch.checksums[index as usize]],
                count: 1,
            };
            match self.read_block(single.start.block).await? {
                Some(data) => self.check_blocks(&single, &data, checksum, parts),
                None => parts.push(self.damaged(&single, 0)),
            }
        }
        Ok(())
    }

    pub(crate) async fn read_blocks(&self, block: u32, count: u32) -> Option<Buffer> {
        self.statistics.borrow_mut().reads += 1;
        let buffer = self.platform.buffers().take(count as usize * BLOCK_BYTES);
        let operation = self.load.begin_read();
        let outcome = self.media.read(Layout::offset_of(block), buffer).await;
        operation.done(u64::from(count) * BLOCK_BYTES as u64);
        match outcome {
            Ok(buffer) => Some(buffer.freeze()),
            Err(error) => {
                tracing::warn!(drive = %self.superblock.drive, "{error}");
                None
            }
        }
    }

    /// A block, or none if it cannot be read although the drive works.
    async fn read_block(&self, block: u32) -> Result<Option<Buffer>, StoreError> {
        self.check()?;
        self.statistics.borrow_mut().reads += 1;
        let offset = Layout::offset_of(block);
        let layout = &self.layout;
        match read_place(&self.platform, &self.media, layout, offset, BLOCK_BYTES).await {
            Ok(Ok(data)) => Ok(Some(data.freeze())),
            // Unless the drive has failed meanwhile.
            Ok(Err(_)) => self.check().map(|()| None),
            Err(error) => {
                let failure = StoreError::Failed(format!("it answers no read any more: {error}"));
                self.fail(failure.clone());
                Err(failure)
            }
        }
    }

    fn check_blocks(
        &self,
        stretch: &Stretch,
        data: &Buffer,
        checksum: BlockChecksum,
        parts: &mut Vec<ReadPart>,
    ) {
        let mut good = 0;
        for index in 0..stretch.count {
            let bytes = &data[index as usize * BLOCK_BYTES..(index as usize + 1) * BLOCK_BYTES];
            let matches = checksum.of(stretch.first + index, bytes) == stretch.checksums[index as usize];
            if matches || canary::is_planted(Bug::TrustBadChecksum) {
                continue;
            }
            parts.extend(stretch.data_part(data, good, index));
            parts.push(self.damaged(stretch, index));
            good = index + 1;
        }
        parts.extend(stretch.data_part(data, good, stretch.count));
    }

    fn damaged(&self, stretch: &Stretch, index: u32) -> ReadPart {
        self.statistics.borrow_mut().blocks_damaged += 1;
        let block = stretch.first + index;
        let mapping = stretch.mapping(index);
        tracing::warn!(drive = %self.superblock.drive, block, physical = mapping.block, "a block is damaged");
        ReadPart::Damaged(DamagedBlock { block, mapping })
    }
}

impl Stretch {
    fn continues_with(&self, mapping: Mapping) -> bool {
        match self.start.physical() {
            None => self.start.block == mapping.block,
            Some(start) => {
                mapping.block == start + self.count
                    && mapping.physical().is_some()
                    && self.count < READ_BLOCKS_MAX
            }
        }
    }

    fn mapping(&self, index: u32) -> Mapping {
        Mapping { block: self.start.block + index, checksum: self.checksums[index as usize] }
    }

    /// The blocks from index `from` up to, but without, `to`; none if there are none.
    fn data_part(&self, data: &Buffer, from: u32, to: u32) -> Option<ReadPart> {
        let bytes = from as usize * BLOCK_BYTES..to as usize * BLOCK_BYTES;
        (from < to).then(|| ReadPart::Data {
            data: data.slice(bytes),
            checksums: self.checksums[from as usize..to as usize].to_vec(),
        })
    }
}

/// Keeps physical blocks from being reused, as long as it lives.
struct OpenRead<'a, P: Platform> {
    inner: &'a Inner<P>,
    ticket: u64,
}

impl<'a, P: Platform> OpenRead<'a, P> {
    fn begin(inner: &'a Inner<P>) -> Self {
        Self { inner, ticket: inner.with_allocator(|allocator| allocator.begin_read()) }
    }
}

impl<P: Platform> Drop for OpenRead<'_, P> {
    fn drop(&mut self) {
        self.inner.with_allocator(|allocator| allocator.end_read(self.ticket));
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
