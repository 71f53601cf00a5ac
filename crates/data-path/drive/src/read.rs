//! Reading blocks and checking them, for users and for the scrub.
//!
//! A block stands where its mapping says. If there is a copy of it in memory or on a cache drive, users are given that (see
//! `memory_cache` and `read_cache`); the scrub is not, as it asks how the block itself is.
//!
//! Invariants:
//! - No byte leaves the store whose block did not match its checksum.
//! - A physical block is not reused while a read looks at it (see `allocator`).

use futures_util::future::join_all;
use spandrel_platform::{Buffer, Platform};
use spandrel_shared::BLOCK_BYTES;
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::checksum::BlockChecksum;
use spandrel_shared::witness::{self, Rare};

use crate::allocator::Run;
use crate::drive_check::read_place;
use crate::error::StoreError;
use crate::format::map::Mapping;
use crate::layout::Layout;
use crate::read_cache::{CACHED_READ_BLOCKS_MAX, Piece};
use crate::store::{DamagedBlock, DriveStore, Inner, SlabSlot};

/// The longest single read from the drive, in blocks: 1 MiB.
const READ_BLOCKS_MAX: u32 = 256;

/// Where a block is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Where the map says.
    Mapped,
    /// From a copy in memory or on the cache drive, if there is one; if not, some are made. Who asks so will ask again.
    Nearest,
}

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
    slab_slot: u32,
    first: u32,
    start: Mapping,
    checksums: Vec<u32>,
    count: u32,
}

impl<P: Platform> DriveStore<P> {
    /// Reads `count` blocks of a slab from `first` on. The parts are in order and are exactly that.
    pub async fn read(&self, slot: SlabSlot, first: u32, count: u32) -> Result<Vec<ReadPart>, StoreError> {
        let parts = self.inner.read_parts(slot, first, count, Source::Nearest).await?;
        self.inner.statistics.borrow_mut().blocks_read += u64::from(count);
        Ok(parts)
    }

    /// The same of what stands where the map says, whatever copies there are of it: for comparisons and checks.
    pub async fn read_mapped(
        &self,
        slot: SlabSlot,
        first: u32,
        count: u32,
    ) -> Result<Vec<ReadPart>, StoreError> {
        let parts = self.inner.read_parts(slot, first, count, Source::Mapped).await?;
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
            let parts = self.inner.read_parts(slot, first + done, length, Source::Mapped).await?;
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
    async fn read_parts(
        &self,
        slot: SlabSlot,
        first: u32,
        count: u32,
        source: Source,
    ) -> Result<Vec<ReadPart>, StoreError> {
        self.check()?;
        self.load_blocks(slot, first, count).await?;
        let (mut stretches, checksum) = self.look_up(slot, first, count, source)?;
        let mut parts = Vec::with_capacity(stretches.len());
        let done = self.read_at_once(&stretches, checksum, &mut parts);
        if done == stretches.len() {
            return Ok(parts);
        }
        stretches.drain(..done);
        let _read = OpenRead::begin(self);
        if let [_] = stretches[..] {
            for stretch in stretches {
                self.read_stretch(stretch, checksum, source, &mut parts).await?;
            }
            return Ok(parts);
        }
        // All at the same time: blocks that were written at random lie apart.
        let reads = stretches.into_iter().map(|stretch| async {
            let mut parts = Vec::with_capacity(1);
            self.read_stretch(stretch, checksum, source, &mut parts).await?;
            Ok(parts)
        });
        for read in join_all(reads).await {
            parts.extend(read?);
        }
        Ok(parts)
    }

    /// Reads the first stretches, as many as take no waiting and have no copies elsewhere. Returns how many that are.
    fn read_at_once(
        &self,
        stretches: &[Stretch],
        checksum: BlockChecksum,
        parts: &mut Vec<ReadPart>,
    ) -> usize {
        let has_copies =
            self.layout.area_blocks > 0 || self.with_allocator(|allocator| allocator.in_memory().is_some());
        if has_copies {
            return 0;
        }
        let is_done = |stretch: &&Stretch| {
            if !self.is_on_drive(stretch, parts) {
                return true;
            }
            let data = self.read_blocks_at_once(stretch.start.block, stretch.count);
            data.is_some_and(|data| {
                self.check_blocks(stretch, &data, checksum, parts);
                true
            })
        };
        stretches.iter().take_while(is_done).count()
    }

    /// Whether a stretch is to be read. If it is not, what is said of it are its parts.
    fn is_on_drive(&self, stretch: &Stretch, parts: &mut Vec<ReadPart>) -> bool {
        match stretch.start {
            Mapping::NONE => parts.push(ReadPart::Hole { count: stretch.count }),
            Mapping::UNKNOWN => {
                self.statistics.borrow_mut().blocks_damaged += u64::from(stretch.count);
                let lost = (stretch.first..stretch.first + stretch.count)
                    .map(|block| ReadPart::Damaged(DamagedBlock { block, mapping: Mapping::UNKNOWN }));
                parts.extend(lost);
            }
            _ => return true,
        }
        false
    }

    async fn read_stretch(
        &self,
        stretch: Stretch,
        checksum: BlockChecksum,
        source: Source,
        parts: &mut Vec<ReadPart>,
    ) -> Result<(), StoreError> {
        match source {
            _ if !self.is_on_drive(&stretch, parts) => Ok(()),
            Source::Mapped => self.read_media(&stretch, checksum, source, parts).await,
            Source::Nearest => self.read_nearest(&stretch, checksum, parts).await,
        }
    }

    /// Reads consecutive physical blocks from memory, as far as there are copies, and the others where they are.
    async fn read_nearest(
        &self,
        stretch: &Stretch,
        checksum: BlockChecksum,
        parts: &mut Vec<ReadPart>,
    ) -> Result<(), StoreError> {
        let Some(pieces) = self.pieces_in_memory(stretch) else {
            return self.read_media(stretch, checksum, Source::Nearest, parts).await;
        };
        let reads = pieces.into_iter().map(|(index, count, copy)| async move {
            let piece = stretch.part(index, count);
            let copy = copy.filter(|copy| piece.matches(copy, checksum));
            self.count_in_memory(count, copy.is_some());
            if let Some(copy) = copy {
                return Ok(piece.data_part(&copy, 0, count).into_iter().collect());
            }
            let mut parts = Vec::with_capacity(1);
            self.read_media(&piece, checksum, Source::Nearest, &mut parts).await?;
            // In the place of copies that are not what they were.
            self.drop_in_memory(&piece);
            self.keep_in_memory(&piece, &parts);
            Ok::<Vec<ReadPart>, StoreError>(parts)
        });
        for read in join_all(reads).await {
            parts.extend(read?);
        }
        Ok(())
    }

    /// Reads consecutive physical blocks where they are, or from copies on the cache drive.
    async fn read_media(
        &self,
        stretch: &Stretch,
        checksum: BlockChecksum,
        source: Source,
        parts: &mut Vec<ReadPart>,
    ) -> Result<(), StoreError> {
        match self.layout.area_blocks {
            0 => self.read_data(stretch, checksum, parts).await,
            _ => self.read_cached(stretch, checksum, source, parts).await,
        }
    }

    /// Which blocks have copies in memory: runs of those that do, with their content, and of those that do not, by their
    /// places in the stretch. `None` if no copies are kept.
    fn pieces_in_memory(&self, stretch: &Stretch) -> Option<Vec<(u32, u32, Option<Buffer>)>> {
        let found: Vec<Option<Buffer>> = self.with_allocator(|allocator| {
            let copies = allocator.in_memory()?;
            let blocks = stretch.start.block..stretch.start.block + stretch.count;
            Some(blocks.map(|block| copies.get(block)).collect())
        })?;
        let mut pieces = Vec::with_capacity(1);
        for run in found.chunk_by(|one, other| one.is_some() == other.is_some()) {
            let index = pieces.last().map_or(0, |(index, count, _)| index + count);
            let (count, is_hit) = (run.len() as u32, run[0].is_some());
            let copy = if is_hit { self.joined(run.iter().flatten()) } else { None };
            pieces.push((index, count, copy));
        }
        Some(pieces)
    }

    /// Blocks one behind the other.
    fn joined<'a>(&self, mut blocks: impl Iterator<Item = &'a Buffer>) -> Option<Buffer> {
        let first = blocks.next()?;
        let rest: Vec<&Buffer> = blocks.collect();
        if rest.is_empty() {
            return Some(first.clone());
        }
        let mut joined = self.platform.buffers().take((1 + rest.len()) * BLOCK_BYTES);
        for (into, block) in joined.chunks_exact_mut(BLOCK_BYTES).zip(std::iter::once(first).chain(rest)) {
            into.copy_from_slice(block);
        }
        Some(joined.freeze())
    }

    fn count_in_memory(&self, count: u32, is_hit: bool) {
        if is_hit {
            witness::reached(Rare::ReadFromMemory);
        }
        let mut statistics = self.statistics.borrow_mut();
        let counter = if is_hit { &mut statistics.memory_hits } else { &mut statistics.memory_misses };
        *counter += u64::from(count);
    }

    fn drop_in_memory(&self, stretch: &Stretch) {
        self.with_allocator(|allocator| {
            let Some(copies) = allocator.in_memory() else { return };
            (stretch.start.block..stretch.start.block + stretch.count)
                .for_each(|block| copies.drop_copy(block));
        });
    }

    /// Keeps what was just read in memory, unless it is long or has been given up meanwhile.
    fn keep_in_memory(&self, stretch: &Stretch, parts: &[ReadPart]) {
        let data: Vec<&Buffer> = parts
            .iter()
            .filter_map(|part| match part {
                ReadPart::Data { data, .. } => Some(data),
                ReadPart::Hole { .. } | ReadPart::Damaged(_) => None,
            })
            .collect();
        let is_whole =
            data.iter().map(|data| data.len()).sum::<usize>() == stretch.count as usize * BLOCK_BYTES;
        if stretch.count > CACHED_READ_BLOCKS_MAX || !is_whole || !self.is_still_mapped(stretch) {
            return;
        }
        let blocks = data.into_iter().flat_map(|data| data.chunks_exact(BLOCK_BYTES));
        self.with_allocator(|allocator| {
            let Some(copies) = allocator.in_memory() else { return };
            for (block, data) in (stretch.start.block..).zip(blocks) {
                copies.keep(block, self.platform.buffers().copy_of(data).freeze());
            }
        });
    }

    fn look_up(
        &self,
        slot: SlabSlot,
        first: u32,
        count: u32,
        source: Source,
    ) -> Result<(Vec<Stretch>, BlockChecksum), StoreError> {
        let state = self.state.borrow();
        let slab = state.slabs.get(slot.0).ok_or(StoreError::NotFound)?;
        let volume = state.volumes.get(slab.volume_slot).ok_or(StoreError::NotFound)?;
        if !slab.contains(first, count) {
            return Err(StoreError::NotFound);
        }
        if source == Source::Nearest {
            slab.note_use(first, count);
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
            stretches.push(Stretch { slab_slot: slot.0, first: block, start: mapping, checksums, count: 1 });
        }
        Ok((stretches, BlockChecksum::new(volume.volume, slab.slab)))
    }

    /// Reads consecutive physical blocks of a drive that is bound to a cache drive.
    async fn read_cached(
        &self,
        stretch: &Stretch,
        checksum: BlockChecksum,
        source: Source,
        parts: &mut Vec<ReadPart>,
    ) -> Result<(), StoreError> {
        let is_in_area = self.state.borrow().area.holds(stretch.start);
        if is_in_area || source == Source::Mapped || !self.cache.mode().caches_reads() {
            self.count_reads(stretch.count, is_in_area);
            return self.read_data(stretch, checksum, parts).await;
        }
        let pieces = self.pieces(Run { first: stretch.start.block, count: stretch.count });
        // All at the same time: a long read asks both drives.
        let reads = pieces.into_iter().map(|piece| async move {
            let part = stretch.part(piece.run.first - stretch.start.block, piece.run.count);
            let mut parts = Vec::with_capacity(1);
            self.read_piece(&part, piece, checksum, &mut parts).await?;
            Ok(parts)
        });
        for read in join_all(reads).await {
            parts.extend(read?);
        }
        Ok(())
    }

    /// Reads blocks that all have copies, or none of them has.
    async fn read_piece(
        &self,
        stretch: &Stretch,
        piece: Piece,
        checksum: BlockChecksum,
        parts: &mut Vec<ReadPart>,
    ) -> Result<(), StoreError> {
        if let Some(place) = piece.place {
            let data = self.read_blocks(place, stretch.count).await;
            if let Some(data) = data.filter(|data| stretch.matches(data, checksum)) {
                witness::reached(Rare::ReadFromCache);
                self.count_reads(stretch.count, true);
                parts.extend(stretch.data_part(&data, 0, stretch.count));
                return Ok(());
            }
            self.drop_copies(piece.run);
        }
        self.count_reads(stretch.count, false);
        self.read_data(stretch, checksum, parts).await?;
        if let [ReadPart::Data { data, checksums }] = &parts[..]
            && checksums.len() == stretch.count as usize
            && self.is_still_mapped(stretch)
        {
            self.keep_copies(stretch.start.block, data);
        }
        Ok(())
    }

    /// Whether blocks are where they were when the read began. Their places are not used for others before it ends.
    fn is_still_mapped(&self, stretch: &Stretch) -> bool {
        let state = self.state.borrow();
        let is_there = |index| {
            let slab = state.slabs.get(stretch.slab_slot)?;
            Some(slab.mapping_in_memory(stretch.first + index)? == stretch.mapping(index))
        };
        (0..stretch.count).all(|index| is_there(index) == Some(true))
    }

    fn count_reads(&self, count: u32, is_hit: bool) {
        let mut statistics = self.statistics.borrow_mut();
        let counter = if is_hit { &mut statistics.cache_hits } else { &mut statistics.cache_misses };
        *counter += u64::from(count);
    }

    /// Reads consecutive physical blocks with one read; if that fails, block by block, so that
    /// one bad sector costs one block.
    async fn read_data(
        &self,
        stretch: &Stretch,
        checksum: BlockChecksum,
        parts: &mut Vec<ReadPart>,
    ) -> Result<(), StoreError> {
        if let Some(data) = self.read_blocks(stretch.start.block, stretch.count).await {
            self.check_blocks(stretch, &data, checksum, parts);
            return Ok(());
        }
        for index in 0..stretch.count {
            let single = stretch.part(index, 1);
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

    fn read_blocks_at_once(&self, block: u32, count: u32) -> Option<Buffer> {
        let mut buffer = self.platform.buffers().take(count as usize * BLOCK_BYTES);
        if !self.media.read_at_once(Layout::offset_of(block), &mut buffer) {
            return None;
        }
        self.statistics.borrow_mut().reads += 1;
        self.load.begin_read().done(buffer.len() as u64);
        Some(buffer.freeze())
    }

    /// A block, or none if it cannot be read although the drive works.
    pub(crate) async fn read_block(&self, block: u32) -> Result<Option<Buffer>, StoreError> {
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

    /// `count` of its blocks from `index` on.
    fn part(&self, index: u32, count: u32) -> Self {
        Self {
            slab_slot: self.slab_slot,
            first: self.first + index,
            start: self.mapping(index),
            checksums: self.checksums[index as usize..(index + count) as usize].to_vec(),
            count,
        }
    }

    /// Whether all blocks are what their checksums say.
    fn matches(&self, data: &Buffer, checksum: BlockChecksum) -> bool {
        let blocks = (self.first..).zip(data.chunks_exact(BLOCK_BYTES)).zip(&self.checksums);
        blocks.into_iter().all(|((block, bytes), expected)| checksum.of(block, bytes) == *expected)
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
