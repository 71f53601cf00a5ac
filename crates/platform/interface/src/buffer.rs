//! Pooled, block-aligned memory that is filled once and then shared by reference.
//!
//! A [`BufferMut`] has one holder, who fills it. Frozen, it becomes a [`Buffer`]: immutable,
//! cheap to clone and to slice, so that one copy of a guest's data travels to every drive and
//! every connection. The memory returns to its pool when the last holder lets go.
//!
//! Invariants:
//! - The first byte of a pool buffer is aligned to [`BLOCK_BYTES`], as direct I/O demands.
//! - Nobody writes to memory that a `Buffer` shows.
//! - The pool keeps no more idle memory than its limit.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::rc::{Rc, Weak};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The size of a block: the unit of checksum, of mapping and of atomicity.
pub const BLOCK_BYTES: usize = 4096;

/// Buffers are kept by power-of-two size, from one block up to this many (1 MiB).
const CLASS_COUNT: usize = 9;

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct AlignedBlock([u8; BLOCK_BYTES]);

/// Memory for blocks, reused. Handles are cheap to clone.
#[derive(Clone)]
pub struct BufferPool {
    inner: Rc<RefCell<PoolInner>>,
}

struct PoolInner {
    idle: [Vec<Box<[AlignedBlock]>>; CLASS_COUNT],
    idle_bytes: usize,
    idle_bytes_max: usize,
}

impl BufferPool {
    /// A pool that keeps at most `idle_bytes_max` bytes for reuse.
    pub fn new(idle_bytes_max: usize) -> Self {
        let inner = PoolInner { idle: Default::default(), idle_bytes: 0, idle_bytes_max };
        Self { inner: Rc::new(RefCell::new(inner)) }
    }

    /// A buffer of `length` bytes whose content is unspecified: zeros, or what an earlier
    /// holder left.
    pub fn take(&self, length: usize) -> BufferMut {
        let class = class_of(length);
        let idle = class.and_then(|class| {
            let mut inner = self.inner.borrow_mut();
            let storage = inner.idle[class].pop()?;
            inner.idle_bytes -= storage.len() * BLOCK_BYTES;
            Some(storage)
        });
        let storage = idle.unwrap_or_else(|| {
            let blocks = class.map_or(length.div_ceil(BLOCK_BYTES), |class| 1 << class);
            allocate(blocks)
        });
        BufferMut { storage, length, pool: Rc::downgrade(&self.inner) }
    }

    /// A buffer of `length` zero bytes.
    pub fn take_zeroed(&self, length: usize) -> BufferMut {
        let mut buffer = self.take(length);
        buffer.fill(0);
        buffer
    }

    /// A buffer that holds a copy of `bytes`.
    pub fn copy_of(&self, bytes: &[u8]) -> BufferMut {
        let mut buffer = self.take(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Bytes that wait for reuse.
    pub fn idle_bytes(&self) -> usize {
        self.inner.borrow().idle_bytes
    }
}

impl Default for BufferPool {
    fn default() -> Self {
        Self::new(64 << 20)
    }
}

fn class_of(length: usize) -> Option<usize> {
    let class = length.div_ceil(BLOCK_BYTES).next_power_of_two().trailing_zeros() as usize;
    (class < CLASS_COUNT).then_some(class)
}

fn allocate(blocks: usize) -> Box<[AlignedBlock]> {
    // Fails only when memory is exhausted, where Rust's own allocations abort as well.
    <[AlignedBlock]>::new_box_zeroed_with_elems(blocks).expect("memory for block buffers")
}

/// A buffer with one holder, who may write to it.
pub struct BufferMut {
    storage: Box<[AlignedBlock]>,
    length: usize,
    pool: Weak<RefCell<PoolInner>>,
}

impl BufferMut {
    /// Ends the writing: from here on the content is shared and never changes.
    pub fn freeze(self) -> Buffer {
        let length = self.length;
        Buffer { memory: Rc::new(self), start: 0, length }
    }

    /// Shortens the buffer to its first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        assert!(length <= self.length, "truncate to {length} of {}", self.length);
        self.length = length;
    }
}

impl Deref for BufferMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.storage.as_bytes()[..self.length]
    }
}

impl DerefMut for BufferMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.storage.as_mut_bytes()[..self.length]
    }
}

impl Drop for BufferMut {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let storage = std::mem::take(&mut self.storage);
        let bytes = storage.len() * BLOCK_BYTES;
        let class = storage.len().trailing_zeros() as usize;
        let mut pool = pool.borrow_mut();
        let pooled = storage.len().is_power_of_two() && class < CLASS_COUNT;
        if pooled && pool.idle_bytes + bytes <= pool.idle_bytes_max {
            pool.idle_bytes += bytes;
            pool.idle[class].push(storage);
        }
    }
}

impl fmt::Debug for BufferMut {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BufferMut({} bytes)", self.length)
    }
}

/// Immutable bytes, shared by reference.
#[derive(Clone)]
pub struct Buffer {
    memory: Rc<BufferMut>,
    start: usize,
    length: usize,
}

impl Buffer {
    /// The part `range` of memory that nobody writes to for as long as this holds it.
    pub(crate) fn within(memory: &Rc<BufferMut>, range: Range<usize>) -> Buffer {
        assert!(range.start <= range.end && range.end <= memory.length, "{range:?} of {}", memory.length);
        Buffer { memory: Rc::clone(memory), start: range.start, length: range.end - range.start }
    }

    /// The part `range` of this buffer, sharing its memory.
    pub fn slice(&self, range: Range<usize>) -> Buffer {
        assert!(range.start <= range.end && range.end <= self.length, "slice {range:?} of {}", self.length);
        Buffer {
            memory: Rc::clone(&self.memory),
            start: self.start + range.start,
            length: range.end - range.start,
        }
    }

    /// The memory for writing again, if this is its only holder; a pooled copy if not.
    pub fn into_mut(self, pool: &BufferPool) -> BufferMut {
        if self.start != 0 {
            return pool.copy_of(&self);
        }
        let length = self.length;
        match Rc::try_unwrap(self.memory) {
            Ok(mut memory) => {
                memory.truncate(length);
                memory
            }
            Err(memory) => pool.copy_of(&memory[..length]),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Buffer({} bytes)", self.length)
    }
}

#[cfg(test)]
#[path = "buffer_tests.rs"]
mod tests;
