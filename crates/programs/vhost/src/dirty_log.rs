//! Which pages of the guest's memory this side has changed, told to a machine that sends that memory elsewhere.
//!
//! The machine shares a bitmap in which each page of the guest's addresses has a bit. It clears what it has read, and sends those pages
//! once more.
//!
//! Invariants:
//! - A page is marked behind what was written there: marked before, it could be sent as it was, and not again.
//! - The bitmap is exchanged by the thread that writes to the memory, so that each write is marked in the former one or in the next.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::SealFlags;
use vhost::vhost_user::message::VhostUserLog;
use vm_memory::bitmap::{Bitmap, BitmapSlice, WithBitmapSlice};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

/// How much of the guest's memory a bit stands for.
const PAGE_BYTES: u64 = 4096;

/// The bitmap that a machine shares.
#[derive(Debug)]
pub(crate) struct DirtyBitmap(MmapRegion<()>);

impl DirtyBitmap {
    /// Maps it.
    pub(crate) fn open(shared: &VhostUserLog, file: File) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        let end = shared.mmap_offset.checked_add(shared.mmap_size);
        let file_bytes = file.metadata()?.len();
        if !seals.contains(SealFlags::SHRINK) || end.is_none_or(|end| end > file_bytes) {
            return Err(io::Error::other(
                "the bitmap of changed pages is shorter than was said, or could become so",
            ));
        }
        let length = usize::try_from(shared.mmap_size).map_err(io::Error::other)?;
        let mapped = MmapRegion::from_file(FileOffset::new(file, shared.mmap_offset), length);
        mapped.map(Self).map_err(io::Error::other)
    }

    /// The byte and the bit in it of the page at `address`. None beyond the machine's memory.
    fn place(&self, address: u64) -> Option<(&AtomicU8, u8)> {
        let page = address / PAGE_BYTES;
        let byte = self.0.get_atomic_ref(usize::try_from(page / 8).ok()?).ok()?;
        Some((byte, 1 << (page % 8)))
    }
}

/// The bitmap in which pages are marked at present, if the machine wants any to be.
#[derive(Debug, Default)]
pub(crate) struct DirtyLog {
    /// Read for each write, and false as a rule.
    is_wanted: AtomicBool,
    bitmap: Mutex<Option<DirtyBitmap>>,
}

impl DirtyLog {
    /// Marks pages there from now on. To be called by the thread that writes.
    pub(crate) fn set(&self, bitmap: Option<DirtyBitmap>) {
        let mut current = self.bitmap();
        self.is_wanted.store(bitmap.is_some(), Ordering::Release);
        *current = bitmap;
    }

    fn bitmap(&self) -> MutexGuard<'_, Option<DirtyBitmap>> {
        self.bitmap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks what was written at `address`.
    fn mark(&self, address: u64, bytes: usize) {
        if bytes == 0 || !self.is_wanted.load(Ordering::Acquire) {
            return;
        }
        let current = self.bitmap();
        let Some(bitmap) = &*current else { return };
        let last = address + bytes as u64 - 1;
        for page in address / PAGE_BYTES..=last / PAGE_BYTES {
            if let Some((byte, bit)) = bitmap.place(page * PAGE_BYTES) {
                byte.fetch_or(bit, Ordering::SeqCst);
            }
        }
    }

    fn is_marked(&self, address: u64) -> bool {
        let current = self.bitmap();
        let place = current.as_ref().and_then(|bitmap| bitmap.place(address));
        place.is_some_and(|(byte, bit)| byte.load(Ordering::SeqCst) & bit != 0)
    }
}

/// The log of a stretch of memory.
#[derive(Debug)]
pub(crate) struct RegionLog {
    pub(crate) log: Arc<DirtyLog>,
    /// The guest's address of its first byte.
    pub(crate) base: u64,
}

/// The log of a part of a stretch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartLog<'l> {
    log: &'l DirtyLog,
    base: u64,
}

impl<'l> WithBitmapSlice<'l> for RegionLog {
    type S = PartLog<'l>;
}

impl Bitmap for RegionLog {
    fn mark_dirty(&self, offset: usize, len: usize) {
        self.slice_at(offset).mark_dirty(0, len);
    }

    fn dirty_at(&self, offset: usize) -> bool {
        self.slice_at(offset).dirty_at(0)
    }

    fn slice_at(&self, offset: usize) -> PartLog<'_> {
        PartLog { log: &self.log, base: self.base + offset as u64 }
    }
}

impl WithBitmapSlice<'_> for PartLog<'_> {
    type S = Self;
}

impl BitmapSlice for PartLog<'_> {}

impl Bitmap for PartLog<'_> {
    fn mark_dirty(&self, offset: usize, len: usize) {
        self.log.mark(self.base + offset as u64, len);
    }

    fn dirty_at(&self, offset: usize) -> bool {
        self.log.is_marked(self.base + offset as u64)
    }

    fn slice_at(&self, offset: usize) -> Self {
        Self { base: self.base + offset as u64, ..*self }
    }
}

#[cfg(test)]
#[path = "dirty_log_tests.rs"]
mod tests;
