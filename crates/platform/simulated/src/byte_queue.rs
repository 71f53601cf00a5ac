//! Bytes on their way, held by reference where the sender held them so.
//!
//! Nothing is copied from the sender's buffer until the receiver copies it into its own.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use spandrel_platform::Buffer;

use crate::digest::{digest, fold};

#[derive(Clone)]
enum Memory {
    Copied(Rc<[u8]>),
    Shared(Buffer),
}

#[derive(Clone)]
struct Part {
    memory: Memory,
    range: Range<usize>,
}

impl Part {
    fn bytes(&self) -> &[u8] {
        let all = match &self.memory {
            Memory::Copied(bytes) => bytes,
            Memory::Shared(buffer) => &buffer[..],
        };
        &all[self.range.clone()]
    }
}

/// A queue of bytes. Holds no empty parts.
#[derive(Default)]
pub(crate) struct ByteQueue {
    parts: VecDeque<Part>,
    length: usize,
}

impl ByteQueue {
    pub(crate) fn push_copy(&mut self, bytes: &[u8]) {
        self.push(Part { memory: Memory::Copied(Rc::from(bytes)), range: 0..bytes.len() });
    }

    pub(crate) fn push_shared(&mut self, buffer: Buffer) {
        let range = 0..buffer.len();
        self.push(Part { memory: Memory::Shared(buffer), range });
    }

    fn push(&mut self, part: Part) {
        if !part.range.is_empty() {
            self.length += part.range.len();
            self.parts.push_back(part);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn append(&mut self, mut other: ByteQueue) {
        self.length += other.length;
        self.parts.append(&mut other.parts);
    }

    /// Takes the first `length` bytes out, or all if there are fewer.
    pub(crate) fn split_front(&mut self, length: usize) -> ByteQueue {
        if length >= self.length {
            return std::mem::take(self);
        }
        let mut front = ByteQueue::default();
        while front.length < length {
            let Some(mut part) = self.parts.pop_front() else { break };
            let wanted = length - front.length;
            if part.range.len() > wanted {
                let middle = part.range.start + wanted;
                self.parts.push_front(Part { memory: part.memory.clone(), range: middle..part.range.end });
                part.range.end = middle;
            }
            front.push(part);
        }
        self.length -= front.length;
        front
    }

    /// Moves the first bytes to the front of `into`; returns how many.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() {
            let Some(part) = self.parts.front_mut() else { break };
            let bytes = part.bytes();
            let count = bytes.len().min(into.len() - done);
            into[done..done + count].copy_from_slice(&bytes[..count]);
            done += count;
            part.range.start += count;
            if part.range.is_empty() {
                self.parts.pop_front();
            }
        }
        self.length -= done;
        done
    }

    /// A digest of the bytes and of how they were pushed.
    pub(crate) fn digest(&self) -> u64 {
        self.parts.iter().fold(self.length as u64, |hash, part| fold(hash, digest(part.bytes())))
    }
}

#[cfg(test)]
#[path = "byte_queue_tests.rs"]
mod tests;
