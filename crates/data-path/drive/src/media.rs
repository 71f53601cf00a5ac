//! What a store stands on: a capacity drive and, where that is bound to a cache drive, an area of this one.
//!
//! Both are one space of bytes: first those of the capacity drive, as far as the store uses it, and behind them those of the
//! area. So whatever names a physical block names it on either medium, and nobody else has to know which one it is.
//!
//! Invariants:
//! - A flush makes durable what was written before it, wherever that went. Once one has failed, so do all later ones.
//! - What belongs together in the area may stand at several places of the cache drive; nobody above sees that.

use std::cell::Cell;
use std::rc::Rc;

use futures_util::future::{join, join_all};
use spandrel_platform::sync::Lock;
use spandrel_platform::{Buffer, BufferMut, BufferPool, Drive, DriveError};

use crate::cache_drive::CacheArea;
use crate::latched_drive::LatchedDrive;
use crate::layout::Layout;

/// Which drives are flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// The capacity drive.
    Capacity,
    /// The cache drive.
    Area,
    /// Both.
    All,
}

/// The drives of a store. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Media<D: Drive> {
    capacity: LatchedDrive<D>,
    /// The byte at which the area begins.
    area_offset: u64,
    area: Option<CacheArea<D>>,
    buffers: BufferPool,
    written: Rc<Written>,
}

/// What was written to the two drives.
#[derive(Default)]
struct Written {
    capacity: Progress,
    area: Progress,
}

/// How many writes to a drive have completed, and how many of these are durable. A flush counts when it has completed: whoever
/// asks for another one meanwhile must not take what it began for done.
#[derive(Default)]
struct Progress {
    completed: Cell<u64>,
    durable: Cell<u64>,
    /// Whoever flushes has it: all that come meanwhile need one further flush together.
    flushing: Lock,
    /// Whether the drive has not done something that it was asked.
    has_failed: Cell<bool>,
}

/// Which drive a stretch of bytes stands on.
enum Place<'a, D> {
    Whole(&'a LatchedDrive<D>, u64),
    /// In the area, at more than one place: offsets on the cache drive with their lengths.
    Split(&'a LatchedDrive<D>, Vec<(u64, usize)>),
}

impl<D: Drive> Media<D> {
    /// A capacity drive, with the area that it is bound to.
    pub(crate) fn new(capacity: D, area: Option<CacheArea<D>>, layout: &Layout, buffers: BufferPool) -> Self {
        let area_offset = Layout::offset_of(layout.size_blocks);
        Self { capacity: LatchedDrive::new(capacity), area_offset, area, buffers, written: Rc::default() }
    }

    /// The capacity drive.
    pub(crate) fn capacity(&self) -> &LatchedDrive<D> {
        &self.capacity
    }

    /// The area on the cache drive, if there is one.
    pub(crate) fn area(&self) -> Option<&CacheArea<D>> {
        self.area.as_ref()
    }

    /// Whether the cache drive has not done something that it was asked.
    pub(crate) fn has_area_failed(&self) -> bool {
        self.written.area.has_failed.get()
    }

    fn progress(&self, offset: u64) -> &Progress {
        if offset < self.area_offset { &self.written.capacity } else { &self.written.area }
    }

    /// Fills `into` from `offset` on.
    pub(crate) async fn read(&self, offset: u64, into: BufferMut) -> Result<BufferMut, DriveError> {
        let outcome = self.read_places(offset, into).await;
        self.progress(offset).note(&outcome);
        outcome
    }

    /// Fills `into` from `offset` on before it returns, if that is at one place of a drive that can.
    pub(crate) fn read_at_once(&self, offset: u64, into: &mut [u8]) -> bool {
        match self.place(offset, into.len()) {
            Place::Whole(drive, offset) => drive.read_at_once(offset, into),
            Place::Split(..) => false,
        }
    }

    async fn read_places(&self, offset: u64, mut into: BufferMut) -> Result<BufferMut, DriveError> {
        match self.place(offset, into.len()) {
            Place::Whole(drive, offset) => drive.read(offset, into).await,
            Place::Split(drive, pieces) => {
                let reads =
                    pieces.iter().map(|(offset, length)| drive.read(*offset, self.buffers.take(*length)));
                let mut done = 0;
                for piece in join_all(reads).await {
                    let piece = piece?;
                    into[done..done + piece.len()].copy_from_slice(&piece);
                    done += piece.len();
                }
                Ok(into)
            }
        }
    }

    /// Writes `parts` one behind the other from `offset` on.
    pub(crate) async fn write(&self, offset: u64, parts: Vec<Buffer>) -> Result<(), DriveError> {
        let length = parts.iter().map(|part| part.len()).sum();
        let outcome = match self.place(offset, length) {
            Place::Whole(drive, offset) => drive.write(offset, parts).await,
            Place::Split(drive, pieces) => {
                let mut left = parts;
                let writes: Vec<_> = pieces
                    .into_iter()
                    .map(|(offset, length)| drive.write(offset, split_off_front(&mut left, length)))
                    .collect();
                join_all(writes).await.into_iter().collect()
            }
        };
        let written = self.progress(offset);
        written.completed();
        written.note(&outcome);
        outcome
    }

    /// Writes `part` at `offset` before it returns, if that is at one place of a drive that takes it so.
    pub(crate) fn write_at_once(&self, offset: u64, part: &Buffer) -> bool {
        let is_written = match self.place(offset, part.len()) {
            Place::Whole(drive, offset) => drive.write_at_once(offset, part),
            Place::Split(..) => false,
        };
        if is_written {
            self.progress(offset).completed();
        }
        is_written
    }

    /// Whether there is a write to these media that has completed, and that a power cut may take back.
    pub(crate) fn needs_flush(&self, media: Flushed) -> bool {
        let Written { capacity, area } = &*self.written;
        let cache = self.area.as_ref().filter(|_| media != Flushed::Capacity).map(CacheArea::drive);
        (media != Flushed::Area && capacity.needs_flush(&self.capacity))
            || cache.is_some_and(|cache| area.needs_flush(cache))
    }

    /// Makes every write to these media durable that completed before this call. A drive that holds no other one, or needs no
    /// flush, is not asked. Returns how many were.
    pub(crate) async fn flush(&self, media: Flushed) -> Result<u64, DriveError> {
        let Written { capacity, area } = &*self.written;
        let flush_capacity =
            async { if media == Flushed::Area { Ok(0) } else { flush(&self.capacity, capacity).await } };
        let flush_area = async {
            match self.area.as_ref().filter(|_| media != Flushed::Capacity) {
                Some(cache) => flush(cache.drive(), area).await,
                None => Ok(0),
            }
        };
        let (capacity, area) = join(flush_capacity, flush_area).await;
        Ok(capacity? + area?)
    }

    fn place(&self, offset: u64, length: usize) -> Place<'_, D> {
        let Some(area) = self.area.as_ref().filter(|_| offset >= self.area_offset) else {
            return Place::Whole(&self.capacity, offset);
        };
        let mut pieces = area.places(offset - self.area_offset, length);
        match pieces.len() {
            1 => Place::Whole(area.drive(), pieces.remove(0).0),
            _ => Place::Split(area.drive(), pieces),
        }
    }
}

impl Progress {
    fn needs_flush<D: Drive>(&self, drive: &D) -> bool {
        drive.geometry().volatile_cache && self.completed.get() != self.durable.get()
    }

    /// A write has ended.
    fn completed(&self) {
        self.completed.set(self.completed.get() + 1);
    }

    fn note<T>(&self, outcome: &Result<T, DriveError>) {
        self.has_failed.set(self.has_failed.get() || outcome.is_err());
    }
}

async fn flush<D: Drive>(drive: &D, progress: &Progress) -> Result<u64, DriveError> {
    if !progress.needs_flush(drive) {
        return Ok(0);
    }
    let wanted = progress.completed.get();
    let _flushing = progress.flushing.take().await;
    if progress.durable.get() >= wanted {
        return Ok(0);
    }
    let completed = progress.completed.get();
    let outcome = drive.flush().await;
    progress.note(&outcome);
    outcome?;
    progress.durable.set(completed);
    Ok(1)
}

/// Takes the first `length` bytes off `parts`.
fn split_off_front(parts: &mut Vec<Buffer>, length: usize) -> Vec<Buffer> {
    let (mut front, mut missing) = (Vec::new(), length);
    while missing > 0 {
        let part = parts.remove(0);
        if part.len() > missing {
            parts.insert(0, part.slice(missing..part.len()));
            front.push(part.slice(0..missing));
            missing = 0;
        } else {
            missing -= part.len();
            front.push(part);
        }
    }
    front
}

#[cfg(test)]
#[path = "media_tests.rs"]
mod tests;
