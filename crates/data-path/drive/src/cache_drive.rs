//! A cache drive of a node: who it is, and the areas that it gives to capacity drives.
//!
//! Each capacity drive that is bound to it has an area: chunks in an order. What stands in them is the business of that
//! drive's store, to which they are a part of its own blocks (see `media`).
//!
//! Invariants:
//! - An area's chunks belong to it durably before its store learns of them, and until after the store has let go of them.
//! - A binding's number is never used twice: what a former binding has left in a chunk is no part of a later one.
//! - The drive's attach number is raised, durably, before any area is given out.
//! - A flush that fails, of whichever store or of the table, is the last one for all of them (see `latched_drive`).

use std::cell::RefCell;
use std::future::pending;
use std::rc::Rc;

use futures_util::future::join_all;
use spandrel_platform::sync::{Lock, oneshot};
use spandrel_platform::{Drive, DriveError, Platform};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::{BLOCK_BYTES, ClusterId, DriveId, NodeId};

use crate::error::AttachError;
use crate::foreign;
use crate::format::FormatError;
use crate::format::cache::{
    AREAS_MAX, AreaRecord, Binding, CACHE_FORMAT_VERSION, CacheLayout, CacheSuperblock, CacheTable,
    TABLE_SLOTS,
};
use crate::latched_drive::LatchedDrive;
use crate::layout::Layout;

/// Who a new cache drive is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheFormatOptions {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node that the drive is given to.
    pub node: NodeId,
    /// The drive's new identity.
    pub drive: DriveId,
}

/// A cache drive that is attached. Cheap to clone; all clones are the same.
pub struct CacheDrive<P: Platform> {
    inner: Rc<Inner<P>>,
}

impl<P: Platform> Clone for CacheDrive<P> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

struct Inner<P: Platform> {
    platform: P,
    drive: LatchedDrive<P::Drive>,
    superblock: CacheSuperblock,
    table: RefCell<CacheTable>,
    /// Whoever changes the table has it, until the drive has answered: each change goes on from the one before.
    changing: Lock,
}

/// A part of a cache drive: the chunks of one capacity drive, seen as one space of bytes. Cheap to clone.
#[derive(Clone)]
pub struct CacheArea<D> {
    drive: LatchedDrive<D>,
    sector_bytes: u32,
    binding: Binding,
    extents: Rc<[Extent]>,
    bytes: u64,
}

/// Chunks that lie behind each other both in the area and on the cache drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    /// The byte of the area at which it begins.
    first: u64,
    bytes: u64,
    /// The byte of the cache drive at which it begins.
    place: u64,
}

impl<D> CacheArea<D> {
    /// What the capacity drive and the area know each other by.
    pub fn binding(&self) -> Binding {
        self.binding
    }

    /// Its blocks.
    pub fn blocks(&self) -> u64 {
        self.bytes / BLOCK_BYTES as u64
    }

    pub(crate) fn drive(&self) -> &LatchedDrive<D> {
        &self.drive
    }

    /// The unit in which the cache drive writes.
    pub(crate) fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }

    /// Where `length` bytes of the area stand on the cache drive: offsets and lengths, in order.
    pub(crate) fn places(&self, offset: u64, length: usize) -> Vec<(u64, usize)> {
        let end = offset + length as u64;
        assert!(end <= self.bytes, "bytes {offset} to {end} of an area of {}", self.bytes);
        let mut index = self.extents.partition_point(|extent| extent.first + extent.bytes <= offset);
        let mut places = Vec::with_capacity(1);
        let mut from = offset;
        while from < end {
            let extent = self.extents[index];
            let until = end.min(extent.first + extent.bytes);
            places.push((extent.place + (from - extent.first), (until - from) as usize));
            from = until;
            index += 1;
        }
        places
    }
}

/// The stretches of an area whose chunks are these.
fn extents_of(chunks: &[u32], layout: &CacheLayout) -> Vec<Extent> {
    let chunk_bytes = u64::from(layout.chunk_blocks) * BLOCK_BYTES as u64;
    let mut extents: Vec<Extent> = Vec::new();
    for (position, chunk) in (0..).zip(chunks) {
        let place = layout.chunk_offset(*chunk);
        match extents.last_mut() {
            Some(last) if last.place + last.bytes == place => last.bytes += chunk_bytes,
            _ => extents.push(Extent { first: position * chunk_bytes, bytes: chunk_bytes, place }),
        }
    }
    extents
}

impl<P: Platform> CacheDrive<P> {
    /// Makes an empty cache drive of one that carries nothing; refuses any other one.
    pub async fn format(
        platform: &P,
        drive: &P::Drive,
        options: CacheFormatOptions,
    ) -> Result<CacheSuperblock, AttachError> {
        let geometry = drive.geometry();
        let layout = CacheLayout::for_drive(geometry.size_bytes, geometry.sector_bytes).ok_or_else(|| {
            AttachError::Size(format!(
                "the drive has {} bytes, too few for a cache drive",
                geometry.size_bytes
            ))
        })?;
        if let Some(what) = foreign::recognize_content(platform, drive).await? {
            return Err(AttachError::Foreign(what));
        }
        let superblock = CacheSuperblock {
            cluster: options.cluster,
            node: options.node,
            drive: options.drive,
            layout,
            created_unix_ms: platform.unix_time().0,
        };
        let table = CacheTable { drive: options.drive, generation: 1, attach_number: 0, areas: Vec::new() };
        write_table(platform, drive, &layout, &table).await?;
        // The superblock comes last: without it the drive is still empty.
        for block in [layout.last_block(), 0] {
            write_superblock(platform, drive, &superblock, block).await?;
        }
        drive.flush().await?;
        Ok(superblock)
    }

    /// Reads who a cache drive is, without changing anything. `Empty` if it carries nothing that says it is one.
    pub async fn identify(platform: &P, drive: &P::Drive) -> Result<CacheSuperblock, AttachError> {
        let geometry = drive.geometry();
        let first = read_superblock(platform, drive, 0).await;
        let last_block = match &first {
            Ok(Ok(first)) => first.layout.last_block(),
            _ => (geometry.size_bytes / BLOCK_BYTES as u64).saturating_sub(1),
        };
        // A bad sector at one end costs what stands in it. Nothing can be said if both cannot be read.
        let superblock = match first {
            Ok(Ok(first)) => Ok(first),
            Ok(Err(first)) => match read_superblock(platform, drive, last_block).await {
                Ok(second) => second.map_err(|_| first),
                Err(_) => Err(first),
            },
            Err(_) => read_superblock(platform, drive, last_block).await?,
        };
        let superblock = superblock.map_err(|fault| match fault {
            FormatError::Magic => AttachError::Empty,
            FormatError::Newer { version, .. } => AttachError::Newer(format!(
                "the cache drive's format is version {version}; this program knows version {CACHE_FORMAT_VERSION}"
            )),
            FormatError::Checksum | FormatError::Inconsistent => {
                AttachError::Damaged("both copies of the cache drive's superblock are damaged".to_owned())
            }
        })?;
        let (size_blocks, sector_bytes) = (superblock.layout.size_blocks, superblock.layout.sector_bytes);
        if size_blocks * BLOCK_BYTES as u64 > geometry.size_bytes || sector_bytes < geometry.sector_bytes {
            return Err(AttachError::Size(format!(
                "the cache drive has {} bytes in sectors of {}; it was formatted with {} in sectors of {sector_bytes}",
                geometry.size_bytes,
                geometry.sector_bytes,
                size_blocks * BLOCK_BYTES as u64
            )));
        }
        Ok(superblock)
    }

    /// Attaches a cache drive that was formatted. `attach_number_known` is the highest attach number that anybody has seen
    /// of it: one that was attached less often is an old image, and refused unchanged.
    pub async fn attach(
        platform: &P,
        drive: P::Drive,
        attach_number_known: u64,
    ) -> Result<Self, AttachError> {
        let superblock = Self::identify(platform, &drive).await?;
        // What a crashed process had written may not be durable yet.
        drive.flush().await?;
        let mut table = read_table(platform, &drive, &superblock).await?;
        if table.attach_number < attach_number_known && !canary::is_planted(Bug::TrustOldCache) {
            return Err(AttachError::Old { found: table.attach_number, known: attach_number_known });
        }
        for block in [superblock.layout.last_block(), 0] {
            let is_whole = matches!(read_superblock(platform, &drive, block).await, Ok(Ok(found)) if found == superblock);
            if !is_whole {
                write_superblock(platform, &drive, &superblock, block).await?;
            }
        }
        table.attach_number += 1;
        table.generation += 1;
        write_table(platform, &drive, &superblock.layout, &table).await?;
        let inner = Inner {
            platform: platform.clone(),
            drive: LatchedDrive::new(drive),
            superblock,
            table: RefCell::new(table),
            changing: Lock::default(),
        };
        Ok(Self { inner: Rc::new(inner) })
    }

    /// Whether the drive still answers.
    pub async fn check(&self) -> Result<(), DriveError> {
        let cache = self.clone();
        let check = async move {
            let Inner { platform, drive, .. } = &*cache.inner;
            drive.read(0, platform.buffers().take(BLOCK_BYTES)).await?;
            drive.flush().await
        };
        self.complete(check).await
    }

    /// Does `work` to its end, even if nobody waits for it any more: a drive goes on with a write that it has, and whether a
    /// flush failed it says once.
    async fn complete<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> T {
        let (sender, receiver) = oneshot();
        self.inner.platform.spawn(async move { sender.send(work.await) });
        match receiver.await {
            Some(outcome) => outcome,
            // The process ends.
            None => pending().await,
        }
    }

    /// The drive's unchanging facts.
    pub fn superblock(&self) -> &CacheSuperblock {
        &self.inner.superblock
    }

    /// The number of this attach: above that of each one before.
    pub fn attach_number(&self) -> u64 {
        self.inner.table.borrow().attach_number
    }

    /// The capacity drives that are bound to it, in no order.
    pub fn bound(&self) -> Vec<DriveId> {
        self.inner.table.borrow().areas.iter().map(|area| area.drive).collect()
    }

    /// The same with how many chunks each of them has.
    pub fn bound_chunks(&self) -> Vec<(DriveId, u32)> {
        let table = self.inner.table.borrow();
        table.areas.iter().map(|area| (area.drive, area.chunks.len() as u32)).collect()
    }

    /// Chunks that are in no area.
    pub fn free_chunks(&self) -> u32 {
        self.inner.table.borrow().free_chunks(&self.inner.superblock.layout).len() as u32
    }

    /// The area of a capacity drive, if that is bound to this one.
    pub fn area(&self, capacity: DriveId) -> Option<CacheArea<P::Drive>> {
        let table = self.inner.table.borrow();
        let record = table.areas.iter().find(|area| area.drive == capacity)?;
        Some(self.area_of(record))
    }

    fn area_of(&self, record: &AreaRecord) -> CacheArea<P::Drive> {
        let extents = extents_of(&record.chunks, &self.inner.superblock.layout);
        CacheArea {
            drive: self.inner.drive.clone(),
            sector_bytes: self.inner.superblock.layout.sector_bytes,
            binding: Binding { cache: self.inner.superblock.drive, number: record.number },
            bytes: extents.iter().map(|extent| extent.bytes).sum(),
            extents: extents.into(),
        }
    }

    /// Binds a capacity drive to this one, with so many chunks, or fewer if there are no more. Durable when it returns. `Size`
    /// if there is no chunk left. A drive that has an area already is refused: what stands there may stand nowhere else.
    pub async fn bind(&self, capacity: DriveId, chunks: u32) -> Result<CacheArea<P::Drive>, AttachError> {
        let cache = self.clone();
        self.complete(async move { cache.add_area(capacity, chunks).await }).await
    }

    async fn add_area(&self, capacity: DriveId, chunks: u32) -> Result<CacheArea<P::Drive>, AttachError> {
        let layout = self.inner.superblock.layout;
        let _changing = self.inner.changing.take().await;
        let mut table = self.inner.table.borrow().clone();
        if table.areas.iter().any(|area| area.drive == capacity) {
            return Err(AttachError::Cache("the drive has an area of this cache drive already".to_owned()));
        }
        let mut free = table.free_chunks(&layout);
        free.truncate(chunks as usize);
        if free.is_empty() || table.areas.len() == AREAS_MAX {
            let why =
                format!("{} drives are bound to the cache drive, and it has no room", table.areas.len());
            return Err(AttachError::Size(why));
        }
        let number = self.inner.platform.random_u64().max(1);
        let record = AreaRecord { drive: capacity, number, chunks: free };
        let area = self.area_of(&record);
        table.areas.push(record);
        self.replace_table(table).await?;
        Ok(area)
    }

    /// Ends the binding of a capacity drive, if there is one: its chunks are free. Its store must have let go of them.
    pub async fn unbind(&self, capacity: DriveId) -> Result<(), AttachError> {
        let cache = self.clone();
        self.complete(async move { cache.remove_area(capacity).await }).await
    }

    async fn remove_area(&self, capacity: DriveId) -> Result<(), AttachError> {
        let _changing = self.inner.changing.take().await;
        let mut table = self.inner.table.borrow().clone();
        table.areas.retain(|area| area.drive != capacity);
        self.replace_table(table).await
    }

    async fn replace_table(&self, mut table: CacheTable) -> Result<(), AttachError> {
        let Inner { platform, drive, superblock, table: current, .. } = &*self.inner;
        table.generation = current.borrow().generation + 1;
        write_table(platform, drive, &superblock.layout, &table).await?;
        *current.borrow_mut() = table;
        Ok(())
    }
}

async fn write_superblock<P: Platform>(
    platform: &P,
    drive: &P::Drive,
    superblock: &CacheSuperblock,
    block: u64,
) -> Result<(), DriveError> {
    let mut buffer = platform.buffers().take(BLOCK_BYTES);
    superblock.encode(&mut buffer);
    drive.write(block * BLOCK_BYTES as u64, vec![buffer.freeze()]).await
}

async fn read_superblock<P: Platform>(
    platform: &P,
    drive: &P::Drive,
    block: u64,
) -> Result<Result<CacheSuperblock, FormatError>, DriveError> {
    let offset = block * BLOCK_BYTES as u64;
    if offset + BLOCK_BYTES as u64 > drive.geometry().size_bytes {
        return Ok(Err(FormatError::Inconsistent));
    }
    let bytes = drive.read(offset, platform.buffers().take(BLOCK_BYTES)).await?;
    Ok(CacheSuperblock::decode(&bytes))
}

/// Writes both copies of a table beside the one before it, and waits until they are durable.
async fn write_table<P: Platform>(
    platform: &P,
    drive: &impl Drive,
    layout: &CacheLayout,
    table: &CacheTable,
) -> Result<(), DriveError> {
    let buffer = platform.buffers().copy_of(&table.encode(layout)).freeze();
    let twins = CacheLayout::table_slots_of(table.generation)
        .map(|slot| drive.write(Layout::offset_of(layout.table_slot(slot)), vec![buffer.clone()]));
    for written in join_all(twins).await {
        written?;
    }
    drive.flush().await
}

/// The newest whole table.
async fn read_table<P: Platform>(
    platform: &P,
    drive: &P::Drive,
    superblock: &CacheSuperblock,
) -> Result<CacheTable, AttachError> {
    let layout = &superblock.layout;
    let (mut tables, mut are_some_unreadable) = (Vec::new(), false);
    for slot in 0..TABLE_SLOTS {
        let buffer = platform.buffers().take(layout.table_slot_blocks() as usize * BLOCK_BYTES);
        match drive.read(Layout::offset_of(layout.table_slot(slot)), buffer).await {
            Ok(bytes) => tables.extend(CacheTable::decode(&bytes, layout, superblock.drive)),
            Err(_) => are_some_unreadable = true,
        }
    }
    let newest = tables.iter().max_by_key(|table| table.generation).cloned();
    let newest = newest
        .ok_or_else(|| AttachError::Damaged("no table of the cache drive's areas is whole".to_owned()))?;
    let twins = tables.iter().filter(|table| **table == newest).count();
    if are_some_unreadable && twins < 2 {
        // A newer one may stand there, with areas that this one lacks.
        let why =
            "a table of the cache drive's areas cannot be read, and the newest of the others has no twin";
        return Err(AttachError::Damaged(why.to_owned()));
    }
    Ok(newest)
}

#[cfg(test)]
#[path = "cache_drive_tests.rs"]
mod tests;
