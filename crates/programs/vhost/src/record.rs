//! Which requests of a queue are under way, in memory that the machine keeps while this process begins anew: whoever serves the queue
//! next does again what was begun and not answered.
//!
//! For each place of a queue's table it says whether the request there is under way, and when it was begun. An answer is three
//! steps: the place is noted as the last one, the answer is put into the guest's queue, the place is no longer under way. Where a
//! process ends between the second and the third, the number of answers in the guest's queue differs from the one here, and the next
//! process does the third.
//!
//! It is laid out as vhost-user describes it for split queues, all numbers in the machine's own order of bytes.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, SealFlags};
use vhost::vhost_user::message::VhostUserInflight;
use vm_memory::{AtomicAccess, Bytes, FileOffset, MmapRegion, VolatileMemory};

const HEADER_BYTES: usize = 16;
const VERSION_AT: usize = 8;
const SIZE_AT: usize = 10;
const LAST_AT: usize = 12;
const USED_AT: usize = 14;

const PLACE_BYTES: usize = 16;
const UNDER_WAY_AT: usize = 0;
const NEXT_AT: usize = 6;
const COUNTER_AT: usize = 8;

/// The only version that there is. Zero is memory that was never used.
const VERSION: u16 = 1;

/// The record of all queues of a disk.
pub(crate) struct Record {
    memory: Arc<MmapRegion<()>>,
    queues: u16,
    size: u16,
}

impl Record {
    /// A new one, and what the machine is to keep of it.
    pub(crate) fn create(queues: u16, size: u16) -> io::Result<(VhostUserInflight, File)> {
        let length = usize::from(queues) * queue_bytes(size);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("spandrel-requests-under-way", flags)?;
        rustix::fs::ftruncate(&file, length as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((VhostUserInflight::new(length as u64, 0, queues, size), file.into()))
    }

    /// The one that the machine has kept.
    pub(crate) fn open(kept: &VhostUserInflight, file: File) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        let length = usize::from(kept.num_queues) * queue_bytes(kept.queue_size);
        let end = kept.mmap_offset.checked_add(length as u64);
        let file_bytes = file.metadata()?.len();
        let is_whole = kept.mmap_size >= length as u64 && end.is_some_and(|end| end <= file_bytes);
        if length == 0 || !is_whole || !seals.contains(SealFlags::SHRINK) {
            return Err(io::Error::other(
                "what the machine has kept of requests under way was not made here",
            ));
        }
        let memory = MmapRegion::from_file(FileOffset::new(file, kept.mmap_offset), length);
        let memory = Arc::new(memory.map_err(io::Error::other)?);
        Ok(Self { memory, queues: kept.num_queues, size: kept.queue_size })
    }

    /// The record of one queue, if there is one for it.
    pub(crate) fn of_queue(&self, index: u32, size: u16) -> Option<QueueRecord> {
        let is_there = index < u32::from(self.queues) && size <= self.size;
        let start = index as usize * queue_bytes(self.size);
        is_there.then(|| QueueRecord { memory: Arc::clone(&self.memory), start, size, counter: Cell::new(0) })
    }
}

fn queue_bytes(size: u16) -> usize {
    HEADER_BYTES + usize::from(size) * PLACE_BYTES
}

/// The record of one queue.
pub(crate) struct QueueRecord {
    memory: Arc<MmapRegion<()>>,
    start: usize,
    size: u16,
    /// How many requests were begun.
    counter: Cell<u64>,
}

impl QueueRecord {
    /// Goes on where the guest was told of `used` answers: the places whose requests are to be done again, in the order in which they
    /// were begun.
    pub(crate) fn recover(&self, used: u16) -> Vec<u16> {
        if self.load::<u16>(VERSION_AT) != VERSION {
            self.store(SIZE_AT, self.size);
            self.store(USED_AT, used);
            self.store(VERSION_AT, VERSION);
        }
        if self.load::<u16>(USED_AT) != used {
            // The last answer is with the guest, and its place was not given free.
            let last = self.load::<u16>(LAST_AT);
            if last < self.size {
                self.store(place(last) + UNDER_WAY_AT, 0_u8);
            }
            self.store(USED_AT, used);
        }
        let under_way = |head: &u16| self.load::<u8>(place(*head) + UNDER_WAY_AT) != 0;
        let mut begun: Vec<(u64, u16)> = (0..self.size)
            .filter(under_way)
            .map(|head| (self.load(place(head) + COUNTER_AT), head))
            .collect();
        begun.sort_unstable();
        self.counter.set(begun.last().map_or(0, |(counter, _)| counter.wrapping_add(1)));
        begun.into_iter().map(|(_, head)| head).collect()
    }

    /// The request at `head` is begun.
    pub(crate) fn begun(&self, head: u16) {
        if head >= self.size {
            return;
        }
        let counter = self.counter.get();
        self.counter.set(counter.wrapping_add(1));
        self.store(place(head) + COUNTER_AT, counter);
        self.store(place(head) + UNDER_WAY_AT, 1_u8);
    }

    /// Its answer is about to be in the queue.
    pub(crate) fn ending(&self, head: u16) {
        if head >= self.size {
            return;
        }
        self.store(place(head) + NEXT_AT, self.load::<u16>(LAST_AT));
        self.store(LAST_AT, head);
    }

    /// It is there, and `used` answers with it.
    pub(crate) fn ended(&self, head: u16, used: u16) {
        if head < self.size {
            self.store(place(head) + UNDER_WAY_AT, 0_u8);
        }
        self.store(USED_AT, used);
    }

    fn store<T: AtomicAccess>(&self, at: usize, value: T) {
        let stored = self.memory.as_volatile_slice().store(value, self.start + at, Ordering::SeqCst);
        stored.expect("the record is as long as its queues need");
    }

    fn load<T: AtomicAccess>(&self, at: usize) -> T {
        let loaded = self.memory.as_volatile_slice().load(self.start + at, Ordering::SeqCst);
        loaded.expect("the record is as long as its queues need")
    }
}

/// Where a queue's record speaks of a place of its table.
fn place(head: u16) -> usize {
    HEADER_BYTES + usize::from(head) * PLACE_BYTES
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
