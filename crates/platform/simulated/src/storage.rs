//! What a drive remembers: its medium, its volatile cache, and the writes on their way.
//!
//! Pure state, without time. A write passes through these states:
//!
//! - *in flight* from submission to completion. Reads don't see it.
//! - *completed*: reads see it. With a volatile cache it is *unflushed* until a flush that began
//!   after its completion has completed; without one it is durable at once.
//! - *interrupted*, instead of completed, when its process or the drive's power went away while
//!   it was in flight.
//!
//! A flush that fails decides at once, like a power cut, over the writes that have completed: what is lost of them is lost for
//! good, and no later flush tells of it.
//!
//! At a power cut every unflushed, interrupted and in-flight write is undetermined: each of its
//! sectors is kept or lost, independently of all others. At a crash of the process alone only
//! the interrupted writes are. Where writes overlap, the later one wins if both are kept.
//!
//! Invariants:
//! - `current` is `durable` with the unflushed writes on top, in order.
//! - Every content that the rules allow is the result of some chooser, and no other is.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use spandrel_platform::Buffer;

use crate::image::{CHUNK_BYTES, Chunk, DriveImage, parts_of};

/// Decides, for a write (its index in [`crate::SimulatedDrive::unflushed_writes`]) and one of its
/// sectors, whether the sector is kept.
pub type SectorChoice<'a> = dyn FnMut(usize, usize) -> bool + 'a;

/// A write whose survival of a power cut is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnflushedWrite {
    /// Where it begins on the drive, in bytes.
    pub offset: u64,
    /// Its sectors; a power cut keeps or loses each.
    pub sectors: usize,
    /// Whether it has completed: then it survives a crash of the process, and only a power cut
    /// can lose it.
    pub completed: bool,
}

/// A write as the drive holds it. Empty if it was lost on purpose.
#[derive(Clone, Default)]
pub(crate) struct PendingWrite {
    pieces: Vec<Piece>,
    /// Its place among all completed writes.
    sequence: u64,
}

/// The part of a write in one chunk. A whole chunk is shared with the images that hold it.
#[derive(Clone)]
struct Piece {
    chunk: u64,
    start: usize,
    bytes: Chunk,
}

impl Piece {
    fn offset(&self) -> u64 {
        self.chunk * CHUNK_BYTES as u64 + self.start as u64
    }

    fn end(&self) -> u64 {
        self.offset() + self.bytes.len() as u64
    }

    fn apply(&self, image: &mut DriveImage) {
        if self.bytes.len() == CHUNK_BYTES {
            image.set_chunk(self.chunk, Rc::clone(&self.bytes));
        } else {
            image.write(self.offset(), &self.bytes);
        }
    }
}

impl PendingWrite {
    /// The write of `parts`, one behind the other, at `offset`.
    pub(crate) fn new(offset: u64, parts: &[Buffer]) -> Self {
        let length = parts.iter().map(|part| part.len()).sum();
        let mut rest = parts.iter().map(|part| &part[..]);
        let mut part: &[u8] = &[];
        let mut pieces = Vec::with_capacity(length / CHUNK_BYTES + 2);
        for (chunk, start, range) in parts_of(offset, length) {
            while part.is_empty() {
                part = rest.next().expect("the parts are as long as their sum");
            }
            let bytes = if part.len() >= range.len() {
                let (bytes, after) = part.split_at(range.len());
                part = after;
                Rc::from(bytes)
            } else {
                gather(&mut part, &mut rest, range.len())
            };
            pieces.push(Piece { chunk, start, bytes });
        }
        Self { pieces, sequence: 0 }
    }

    fn apply(&self, image: &mut DriveImage) {
        for piece in &self.pieces {
            piece.apply(image);
        }
    }

    fn sectors(&self, sector_bytes: usize) -> usize {
        self.pieces.iter().map(|piece| piece.bytes.len() / sector_bytes).sum()
    }

    /// The write without the sectors that `keep` refuses.
    fn retain(&self, sector_bytes: usize, keep: &mut dyn FnMut(usize) -> bool) -> Self {
        let mut kept = Self::default();
        let mut sector = 0;
        for piece in &self.pieces {
            let count = piece.bytes.len() / sector_bytes;
            let choices: Vec<bool> = (sector..sector + count).map(&mut *keep).collect();
            sector += count;
            if choices.iter().all(|kept| *kept) {
                kept.pieces.push(piece.clone());
                continue;
            }
            let starts = choices.iter().enumerate().filter(|(_, kept)| **kept);
            kept.pieces.extend(starts.map(|(index, _)| {
                let within = index * sector_bytes;
                let bytes = Rc::from(&piece.bytes[within..within + sector_bytes]);
                Piece { chunk: piece.chunk, start: piece.start + within, bytes }
            }));
        }
        kept
    }
}

fn gather<'a>(part: &mut &'a [u8], rest: &mut impl Iterator<Item = &'a [u8]>, length: usize) -> Chunk {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        if part.is_empty() {
            *part = rest.next().expect("the parts are as long as their sum");
        }
        let (taken, after) = part.split_at(part.len().min(length - bytes.len()));
        bytes.extend_from_slice(taken);
        *part = after;
    }
    Rc::from(bytes)
}

/// The memory of one drive.
pub(crate) struct Storage {
    sector_bytes: usize,
    volatile_cache: bool,
    /// What reads see.
    current: DriveImage,
    /// What a power cut leaves for certain. Kept only where there is a volatile cache.
    durable: DriveImage,
    /// Completed, oldest first.
    unflushed: VecDeque<PendingWrite>,
    interrupted: Vec<PendingWrite>,
    /// By number, which grows with every submission.
    in_flight: BTreeMap<u64, PendingWrite>,
    /// Writes that have ever completed.
    completed: u64,
}

impl Storage {
    pub(crate) fn new(image: DriveImage, sector_bytes: usize, volatile_cache: bool) -> Self {
        Self {
            sector_bytes,
            volatile_cache,
            durable: image.clone(),
            current: image,
            unflushed: VecDeque::new(),
            interrupted: Vec::new(),
            in_flight: BTreeMap::new(),
            completed: 0,
        }
    }

    /// What reads see.
    pub(crate) fn current(&self) -> &DriveImage {
        &self.current
    }

    /// What a power cut now leaves if it loses all that it may.
    pub(crate) fn durable(&self) -> &DriveImage {
        if self.volatile_cache { &self.durable } else { &self.current }
    }

    /// Replaces everything that the drive remembers by `image`; writes in flight stay so.
    pub(crate) fn restore(&mut self, image: DriveImage) {
        self.durable = image.clone();
        self.current = image;
        self.unflushed.clear();
        self.interrupted.clear();
    }

    pub(crate) fn begin_write(&mut self, number: u64, write: PendingWrite) {
        self.in_flight.insert(number, write);
    }

    pub(crate) fn complete_write(&mut self, number: u64) {
        if let Some(write) = self.in_flight.remove(&number) {
            self.settle_completed(write);
        }
    }

    /// Completes a write that is reported as failed: any of its sectors may be written.
    pub(crate) fn fail_write(&mut self, number: u64, keep: &mut dyn FnMut(usize) -> bool) {
        if let Some(write) = self.in_flight.remove(&number) {
            self.settle_completed(write.retain(self.sector_bytes, keep));
        }
    }

    /// The submitter of a write in flight is gone, and its outcome open.
    pub(crate) fn interrupt_write(&mut self, number: u64) {
        self.interrupted.extend(self.in_flight.remove(&number));
    }

    /// Begins a flush; the result tells its end which writes it covers.
    pub(crate) fn begin_flush(&self) -> u64 {
        self.completed
    }

    pub(crate) fn complete_flush(&mut self, begun: u64) {
        while self.unflushed.front().is_some_and(|write| write.sequence < begun) {
            if let Some(write) = self.unflushed.pop_front() {
                write.apply(&mut self.durable);
            }
        }
    }

    /// Ends a flush that is reported as failed: of the writes that it was to make durable, and those that have completed since,
    /// some are lost. `choice` sees them in order.
    pub(crate) fn fail_flush(&mut self, choice: &mut SectorChoice<'_>) {
        for (index, write) in std::mem::take(&mut self.unflushed).into_iter().enumerate() {
            write.retain(self.sector_bytes, &mut |sector| choice(index, sector)).apply(&mut self.durable);
        }
        if self.volatile_cache {
            self.current = self.durable.clone();
        }
    }

    /// Every write whose survival is open: first the completed ones, in order.
    pub(crate) fn unflushed_writes(&self) -> Vec<UnflushedWrite> {
        let describe = |completed| {
            move |write: &PendingWrite| UnflushedWrite {
                offset: write.pieces.first().map_or(0, Piece::offset),
                sectors: write.sectors(self.sector_bytes),
                completed,
            }
        };
        let open = self.interrupted.iter().chain(self.in_flight.values());
        self.unflushed.iter().map(describe(true)).chain(open.map(describe(false))).collect()
    }

    /// What a power cut leaves if it keeps what `choice` keeps.
    pub(crate) fn crash_image(&self, choice: &mut SectorChoice<'_>) -> DriveImage {
        let mut image = self.durable().clone();
        let open = self.interrupted.iter().chain(self.in_flight.values());
        for (index, write) in self.unflushed.iter().chain(open).enumerate() {
            write.retain(self.sector_bytes, &mut |sector| choice(index, sector)).apply(&mut image);
        }
        image
    }

    /// Decides the outcome of the interrupted writes, the drive's power having stayed on.
    /// `choice` sees their indices among themselves.
    pub(crate) fn settle_interrupted(&mut self, choice: &mut SectorChoice<'_>) {
        for (index, write) in std::mem::take(&mut self.interrupted).into_iter().enumerate() {
            let kept = write.retain(self.sector_bytes, &mut |sector| choice(index, sector));
            self.settle_completed(kept);
        }
    }

    /// Whether any write was interrupted and not yet settled.
    pub(crate) fn has_interrupted(&self) -> bool {
        !self.interrupted.is_empty()
    }

    /// Inverts a bit of what reads see now, wherever it stands: in the cache, or on the medium.
    pub(crate) fn flip_bit(&mut self, offset: u64, bit: u32) {
        self.current.flip_bit(offset, bit);
        let newest = self
            .unflushed
            .iter_mut()
            .rev()
            .flat_map(|write| &mut write.pieces)
            .find(|piece| (piece.offset()..piece.end()).contains(&offset));
        match newest {
            Some(piece) => {
                let within = usize::try_from(offset - piece.offset()).expect("within a chunk");
                Rc::make_mut(&mut piece.bytes)[within] ^= 1 << bit;
            }
            None if self.volatile_cache => self.durable.flip_bit(offset, bit),
            None => {}
        }
    }

    fn settle_completed(&mut self, mut write: PendingWrite) {
        write.apply(&mut self.current);
        write.sequence = self.completed;
        self.completed += 1;
        if self.volatile_cache {
            self.unflushed.push_back(write);
        }
    }
}

#[cfg(test)]
#[path = "storage_tests.rs"]
mod tests;
