//! Memory that a connection's bytes are received into, many small messages at a time.
//!
//! What is to be kept of them, as the data of a write, is mostly not copied: the memory is shared with it, and what comes next is
//! received into other memory. Where little was received that would hold more memory than it saves copying, so that little is copied.
//! Of what came together a single part that is kept holds all of it: this is for what is let go soon, and about at the same time.
//!
//! Invariants:
//! - What was received stays, in order, until it is consumed.
//! - Memory that is shared is not written to any more.
//! - Memory that is shared is no more than [`HELD_TIMES_MAX`] times what was received into it.

use std::rc::Rc;

use crate::{BLOCK_BYTES, Buffer, BufferMut, BufferPool};

/// Memory is shared if it would be filled by so many times what was received into it.
const HELD_TIMES_MAX: usize = 4;

/// See the module.
pub struct ReceiveBuffer {
    pool: BufferPool,
    /// Written to only while nobody else holds it.
    memory: Rc<BufferMut>,
    /// Received and not consumed is `memory[start..end]`.
    start: usize,
    end: usize,
    /// The memory's length, unless something longer is in it.
    usual_bytes: usize,
}

impl ReceiveBuffer {
    /// An empty one of `bytes` of memory from `pool`.
    pub fn new(pool: &BufferPool, bytes: usize) -> Self {
        Self { pool: pool.clone(), memory: Rc::new(pool.take(bytes)), start: 0, end: 0, usual_bytes: bytes }
    }

    /// Has `bytes` of memory from the next time on that room is made.
    pub fn resize(&mut self, bytes: usize) {
        self.usual_bytes = bytes;
    }

    /// What is received and not consumed.
    pub fn held(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Bytes of memory, used or not.
    pub fn memory_bytes(&self) -> usize {
        self.memory.len()
    }

    /// Consumes `count` bytes of what is held, and shows them.
    pub fn consume(&mut self, count: usize) -> &[u8] {
        let first = self.start;
        assert!(count <= self.end - first, "consumed more than was received");
        self.start += count;
        &self.memory[first..first + count]
    }

    /// Consumes as much as fits `into`, and copies it there. Returns how much that is.
    pub fn move_into(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.end - self.start);
        into[..count].copy_from_slice(self.consume(count));
        count
    }

    /// Consumes `count` bytes of what is held, to be kept.
    pub fn take(&mut self, count: usize) -> Buffer {
        let length = self.memory.len();
        let is_much = self.end * HELD_TIMES_MAX >= length && length <= self.usual_bytes;
        if count < BLOCK_BYTES || !is_much {
            return self.copy(count);
        }
        let first = self.start;
        self.consume(count);
        Buffer::within(&self.memory, first..first + count)
    }

    /// The same, in memory of its own: for what may be kept long after all that came with it.
    pub fn copy(&mut self, count: usize) -> Buffer {
        let mut copy = self.pool.take(count);
        copy.copy_from_slice(self.consume(count));
        copy.freeze()
    }

    /// Room behind what is held, so that at least `count` bytes fit in all.
    pub fn room(&mut self, count: usize) -> &mut [u8] {
        let held = self.end - self.start;
        let usual = count.max(self.usual_bytes);
        let length = self.memory.len();
        let fits = length == usual || (held > usual && length >= count);
        if !fits || Rc::get_mut(&mut self.memory).is_none() {
            let mut memory = self.pool.take(usual.max(held));
            memory[..held].copy_from_slice(self.held());
            self.memory = Rc::new(memory);
            (self.start, self.end) = (0, held);
        }
        let memory = Rc::get_mut(&mut self.memory).expect("nobody else holds it");
        // Moved to the front only when that is nothing, or the room behind gets short.
        let is_short = length - self.end < length / HELD_TIMES_MAX || self.start + count > length;
        if self.start != 0 && (held == 0 || is_short) {
            memory.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, held);
        }
        &mut memory[self.end..]
    }

    /// Notes that `count` bytes were received into the room that was made last.
    pub fn received(&mut self, count: usize) {
        assert!(count <= self.memory.len() - self.end, "received more than there was room for");
        self.end += count;
    }
}

#[cfg(test)]
#[path = "receive_buffer_tests.rs"]
mod tests;
