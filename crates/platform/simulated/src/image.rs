//! The content of a drive: sparse, and cheap to clone.
//!
//! A tree of 4 KiB chunks with 64 children per node, shared by reference and copied on write:
//! a clone is one pointer, and a write to it copies one path. So a test may keep the image of
//! every moment of a run and build thousands of crash images from it.
//!
//! A chunk that was never written reads as zeros, and counts as equal to one of zeros.

use std::fmt;
use std::rc::Rc;

use crate::digest::{digest, fold};

/// The unit in which images share memory.
pub(crate) const CHUNK_BYTES: usize = 4096;

const FANOUT_BITS: u32 = 6;
const FANOUT: usize = 1 << FANOUT_BITS;

pub(crate) type Chunk = Rc<[u8]>;

#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "nodes lie behind an Rc, and leaves are the most")]
enum Node {
    Inner([Option<Rc<Node>>; FANOUT]),
    Leaf([Option<Chunk>; FANOUT]),
}

/// The content of a drive at one moment.
#[derive(Clone)]
pub struct DriveImage {
    size_bytes: u64,
    /// Levels of the tree; the lowest holds chunks.
    levels: u32,
    root: Rc<Node>,
}

impl DriveImage {
    /// A drive of `size_bytes` zeros.
    pub fn new(size_bytes: u64) -> Self {
        let chunks = size_bytes.div_ceil(CHUNK_BYTES as u64);
        let mut levels = 1;
        while chunks > 1 << (FANOUT_BITS * levels) {
            levels += 1;
        }
        Self { size_bytes, levels, root: Rc::new(Node::empty(levels)) }
    }

    /// Bytes that can be addressed.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Fills `into` from `offset` on.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        self.check(offset, into.len());
        for (chunk, start, range) in parts_of(offset, into.len()) {
            let into = &mut into[range];
            match self.chunk(chunk) {
                Some(bytes) => into.copy_from_slice(&bytes[start..start + into.len()]),
                None => into.fill(0),
            }
        }
    }

    /// `length` bytes from `offset` on.
    pub fn read_vec(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.read(offset, &mut bytes);
        bytes
    }

    /// Writes `bytes` from `offset` on.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.check(offset, bytes.len());
        for (chunk, start, range) in parts_of(offset, bytes.len()) {
            let bytes = &bytes[range];
            if bytes.len() == CHUNK_BYTES {
                self.set_chunk(chunk, Rc::from(bytes));
                continue;
            }
            let slot = self.slot(chunk).get_or_insert_with(|| Rc::from([0; CHUNK_BYTES].as_slice()));
            Rc::make_mut(slot)[start..start + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Inverts bit `bit` (0 to 7) of the byte at `offset`.
    pub fn flip_bit(&mut self, offset: u64, bit: u32) {
        let mut byte = [0];
        self.read(offset, &mut byte);
        byte[0] ^= 1 << bit;
        self.write(offset, &byte);
    }

    /// A digest of the whole content: equal for equal images.
    pub fn digest(&self) -> u64 {
        let mut hash = self.size_bytes;
        self.for_each_chunk(&mut |chunk, bytes| {
            if !is_zero(bytes) {
                hash = fold(fold(hash, chunk), digest(bytes));
            }
        });
        hash
    }

    /// The offset of the first byte in which the two differ. A size that differs counts as a
    /// difference at the end of the smaller one.
    pub fn first_difference(&self, other: &DriveImage) -> Option<u64> {
        let end = self.size_bytes.min(other.size_bytes);
        let content = if self.levels == other.levels {
            Node::first_difference(Some(&self.root), Some(&other.root), self.levels, 0)
        } else {
            self.first_difference_by_chunk(other, end)
        };
        let size = (self.size_bytes != other.size_bytes).then_some(end);
        content.filter(|offset| *offset < end).or(size)
    }

    /// Bytes that were ever written, in whole chunks.
    pub fn allocated_bytes(&self) -> u64 {
        let mut chunks = 0;
        self.for_each_chunk(&mut |_, _| chunks += 1);
        chunks * CHUNK_BYTES as u64
    }

    /// Whether any part of the range was never written.
    pub(crate) fn has_hole(&self, offset: u64, length: u64) -> bool {
        let chunks = offset / CHUNK_BYTES as u64..(offset + length).div_ceil(CHUNK_BYTES as u64);
        chunks.into_iter().any(|chunk| self.chunk(chunk).is_none())
    }

    /// Replaces a whole chunk, sharing its memory.
    pub(crate) fn set_chunk(&mut self, chunk: u64, bytes: Chunk) {
        *self.slot(chunk) = Some(bytes);
    }

    fn first_difference_by_chunk(&self, other: &DriveImage, end: u64) -> Option<u64> {
        (0..end.div_ceil(CHUNK_BYTES as u64)).find_map(|chunk| {
            difference_of_chunks(self.chunk(chunk), other.chunk(chunk))
                .map(|within| chunk * CHUNK_BYTES as u64 + within)
        })
    }

    fn check(&self, offset: u64, length: usize) {
        let end = offset.checked_add(length as u64);
        assert!(
            end.is_some_and(|end| end <= self.size_bytes),
            "{length} bytes at {offset} of an image of {}",
            self.size_bytes
        );
    }

    fn chunk(&self, chunk: u64) -> Option<&Chunk> {
        let mut node = &self.root;
        for level in (0..self.levels).rev() {
            match &**node {
                Node::Inner(children) => node = children[digit(chunk, level)].as_ref()?,
                Node::Leaf(chunks) => return chunks[digit(chunk, level)].as_ref(),
            }
        }
        None
    }

    /// The place of a chunk, in a path that only this image holds.
    fn slot(&mut self, chunk: u64) -> &mut Option<Chunk> {
        let mut level = self.levels - 1;
        let mut node = Rc::make_mut(&mut self.root);
        loop {
            match node {
                Node::Leaf(chunks) => return &mut chunks[digit(chunk, 0)],
                Node::Inner(children) => {
                    let child = &mut children[digit(chunk, level)];
                    node = Rc::make_mut(child.get_or_insert_with(|| Rc::new(Node::empty(level))));
                    level -= 1;
                }
            }
        }
    }

    fn for_each_chunk(&self, visit: &mut dyn FnMut(u64, &Chunk)) {
        self.root.for_each_chunk(self.levels, 0, visit);
    }
}

impl Node {
    fn empty(levels: u32) -> Self {
        if levels == 1 {
            Node::Leaf(std::array::from_fn(|_| None))
        } else {
            Node::Inner(std::array::from_fn(|_| None))
        }
    }

    fn for_each_chunk(&self, levels: u32, first: u64, visit: &mut dyn FnMut(u64, &Chunk)) {
        let step = 1 << (FANOUT_BITS * (levels - 1));
        match self {
            Node::Inner(children) => {
                for (index, child) in (0..).zip(children) {
                    if let Some(child) = child {
                        child.for_each_chunk(levels - 1, first + index * step, visit);
                    }
                }
            }
            Node::Leaf(chunks) => {
                for (index, chunk) in (0..).zip(chunks) {
                    if let Some(chunk) = chunk {
                        visit(first + index, chunk);
                    }
                }
            }
        }
    }

    /// Skips what both share, so that near relatives compare in a few steps.
    fn first_difference(
        left: Option<&Rc<Node>>,
        right: Option<&Rc<Node>>,
        levels: u32,
        first: u64,
    ) -> Option<u64> {
        match (left, right) {
            (None, None) => return None,
            (Some(left), Some(right)) if Rc::ptr_eq(left, right) => return None,
            _ => {}
        }
        let step = 1 << (FANOUT_BITS * (levels - 1));
        (0..FANOUT as u64).find_map(|index| {
            let at = first + index * step;
            if levels == 1 {
                let (left, right) =
                    (left.and_then(|node| node.leaf(at)), right.and_then(|node| node.leaf(at)));
                difference_of_chunks(left, right).map(|within| at * CHUNK_BYTES as u64 + within)
            } else {
                let index = digit(at, levels - 1);
                let left = left.and_then(|node| node.child(index));
                let right = right.and_then(|node| node.child(index));
                Node::first_difference(left, right, levels - 1, at)
            }
        })
    }

    fn leaf(&self, chunk: u64) -> Option<&Chunk> {
        match self {
            Node::Leaf(chunks) => chunks[digit(chunk, 0)].as_ref(),
            Node::Inner(_) => None,
        }
    }

    fn child(&self, index: usize) -> Option<&Rc<Node>> {
        match self {
            Node::Inner(children) => children[index].as_ref(),
            Node::Leaf(_) => None,
        }
    }
}

impl PartialEq for DriveImage {
    fn eq(&self, other: &DriveImage) -> bool {
        self.first_difference(other).is_none()
    }
}

impl Eq for DriveImage {}

impl fmt::Debug for DriveImage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "DriveImage({} bytes, digest {:016x})", self.size_bytes, self.digest())
    }
}

fn digit(chunk: u64, level: u32) -> usize {
    ((chunk >> (FANOUT_BITS * level)) % FANOUT as u64) as usize
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn difference_of_chunks(left: Option<&Chunk>, right: Option<&Chunk>) -> Option<u64> {
    const ZEROS: &[u8] = &[0; CHUNK_BYTES];
    let (left, right) = match (left, right) {
        (None, None) => return None,
        (Some(left), Some(right)) if Rc::ptr_eq(left, right) => return None,
        (left, right) => (left.map_or(ZEROS, |chunk| chunk), right.map_or(ZEROS, |chunk| chunk)),
    };
    if left == right {
        return None;
    }
    left.iter().zip(right).position(|(left, right)| left != right).map(|index| index as u64)
}

/// Splits a range at chunk borders: the chunk, the first byte within it, and which bytes of the
/// range lie there.
pub(crate) fn parts_of(
    offset: u64,
    length: usize,
) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let at = offset + done as u64;
        let start = (at % CHUNK_BYTES as u64) as usize;
        let range = done..length.min(done + CHUNK_BYTES - start);
        done = range.end;
        Some((at / CHUNK_BYTES as u64, start, range))
    })
}

#[cfg(test)]
#[path = "image_tests.rs"]
mod tests;
