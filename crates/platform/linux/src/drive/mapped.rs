//! The content of a drive in memory, mapped into this process: what is read and written is copied, without a call.
//!
//! Memory is set aside piece by piece before it is touched for the first time: where the system says that it has no more, that is an
//! error of the write then, and not the end of the process. A piece that was not set aside through this mapping is read by a call, since whoever reads a hole
//! through a mapping takes memory for it.
//!
//! A piece is as large as a huge page, and becomes one where the system can. What a drive holds is read and written at random
//! places, and of pages of 4 KiB the processor would have to look up nearly each anew: that took longer than to store a block.
//!
//! Invariants, on which the `unsafe` below rests:
//! - Only memory that is sealed against becoming shorter is mapped, so each address within the mapping stays valid while it lasts.
//! - No reference to mapped memory is ever made: it is only copied from and to. That nobody else changes it meanwhile is for the
//!   drive's lock to see to.

use std::cell::RefCell;
use std::ffi::c_void;
use std::fs::File;
use std::ptr::{self, NonNull};

use rustix::fs::{FallocateFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Memory is set aside in pieces of this size: that of a huge page (on processors that have pages of 4 KiB).
const PIECE_BYTES: usize = 2 << 20;

/// What is shorter is stored like anything else.
#[cfg(target_arch = "x86_64")]
const STREAMED_BYTES_MIN: usize = 4 << 10;

/// A line of the processor's caches.
#[cfg(target_arch = "x86_64")]
const STREAMED_LINE_BYTES: usize = 64;

/// What a drive in memory holds, as this process sees it.
pub(crate) struct MappedMemory {
    start: NonNull<u8>,
    length: usize,
    /// The addresses that were taken for it. It begins at the first multiple of a piece in them.
    reserved: (NonNull<c_void>, usize),
    /// A bit for each piece that was set aside through this mapping.
    set_aside: RefCell<Vec<u64>>,
}

impl MappedMemory {
    /// Maps the first `length` bytes of `file`. None if its size may change, or the system has no room for it.
    pub(crate) fn map(file: &File, length: u64) -> Option<Self> {
        let seals = rustix::fs::fcntl_get_seals(file).ok()?;
        let length = usize::try_from(length).ok()?;
        if !seals.contains(SealFlags::SHRINK) || length as u64 > file.metadata().ok()?.len() {
            return None;
        }
        let reserved_bytes = length.checked_add(PIECE_BYTES)?;
        // SAFETY: a mapping at a place that the kernel chooses is nobody else's memory.
        let reserved = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), reserved_bytes, ProtFlags::empty(), MapFlags::PRIVATE)
        };
        let reserved = NonNull::new(reserved.ok()?)?;
        let start = reserved.cast::<u8>();
        // SAFETY: that many bytes more than the length were reserved.
        let start = unsafe { start.add(start.align_offset(PIECE_BYTES)) };
        let set_aside = RefCell::new(vec![0; length.div_ceil(PIECE_BYTES).div_ceil(64)]);
        let mapped = Self { start, length, reserved: (reserved, reserved_bytes), set_aside };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: all of that was reserved just now, and nothing refers to it.
        let placed = unsafe { rustix::mm::mmap(start.as_ptr().cast(), length, protection, flags, file, 0) };
        placed.ok().map(|_| mapped)
    }

    /// Copies what is at `offset` to `into`. Returns false, and copies nothing, if not all of it is known to be there.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let range = self.range(offset, into.len());
        let set_aside = self.set_aside.borrow();
        if !pieces(&range).all(|piece| set_aside[piece / 64] >> (piece % 64) & 1 == 1) {
            return false;
        }
        // SAFETY: the range lies within the mapping, which lasts as long as `self`, and nobody can make it shorter. It is no
        // part of `into`, which is memory of this program's own.
        unsafe {
            ptr::copy_nonoverlapping(self.start.add(range.start).as_ptr(), into.as_mut_ptr(), into.len());
        }
        true
    }

    /// Copies `parts`, one behind the other, to `offset`. Returns how many bytes that were.
    pub(crate) fn write<'part>(
        &self,
        file: &File,
        offset: u64,
        parts: impl Iterator<Item = &'part [u8]>,
    ) -> Result<usize, Errno> {
        let mut written = 0;
        for part in parts {
            let range = self.range(offset + written as u64, part.len());
            self.set_aside(file, &range)?;
            // SAFETY: as in `read`; the direction is the other one.
            unsafe { store(part, self.start.add(range.start).as_ptr()) };
            written += part.len();
        }
        Ok(written)
    }

    /// Has memory for all pieces of a range.
    fn set_aside(&self, file: &File, range: &std::ops::Range<usize>) -> Result<(), Errno> {
        let mut set_aside = self.set_aside.borrow_mut();
        for piece in pieces(range) {
            let (word, bit) = (&mut set_aside[piece / 64], 1 << (piece % 64));
            if *word & bit == 0 {
                self.set_piece_aside(file, piece)?;
                *word |= bit;
            }
        }
        Ok(())
    }

    fn set_piece_aside(&self, file: &File, piece: usize) -> Result<(), Errno> {
        let start = piece * PIECE_BYTES;
        let length = PIECE_BYTES.min(self.length - start);
        rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, start as u64, length as u64)?;
        // SAFETY: the piece lies within the mapping.
        let address = unsafe { self.start.add(start) }.as_ptr().cast::<c_void>();
        if length == PIECE_BYTES && become_huge(address) {
            return Ok(());
        }
        // SAFETY: the piece lies within the mapping, and this changes nothing of what is there.
        match unsafe { rustix::mm::madvise(address, length, Advice::LinuxPopulateWrite) } {
            // Kernels before 5.14 do not know it: each page costs a fault then.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn range(&self, offset: u64, length: usize) -> std::ops::Range<usize> {
        let range = usize::try_from(offset).ok().and_then(|start| Some(start..start.checked_add(length)?));
        range.filter(|range| range.end <= self.length).expect("what is asked of a drive lies within it")
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        let (reserved, length) = self.reserved;
        // SAFETY: nothing refers to the mapping, which ends with `self`.
        let ended = unsafe { rustix::mm::munmap(reserved.as_ptr(), length) };
        ended.expect("what was reserved as a whole is unmapped as a whole");
    }
}

/// Has the memory of a piece become one huge page, with what it holds. Returns whether it is one: where not (kernels before 6.1,
/// no such page is free), it stays as it was.
fn become_huge(piece: *mut c_void) -> bool {
    // SAFETY: the piece is mapped by whoever calls, and this changes nothing of what is there.
    unsafe { libc::madvise(piece, PIECE_BYTES, libc::MADV_COLLAPSE) == 0 }
}

/// Copies `part` to `to`. What is long goes past the processor's caches: it is seldom read soon, and its place need not be read
/// from memory before it is overwritten.
///
/// # Safety
///
/// `to` is as much memory that may be written, and no part of `part`.
unsafe fn store(part: &[u8], to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    if part.len() >= STREAMED_BYTES_MIN
        && part.len().is_multiple_of(STREAMED_LINE_BYTES)
        && to.addr().is_multiple_of(STREAMED_LINE_BYTES)
    {
        // SAFETY: whoever calls says that the memory may be written, and the lengths were just looked at.
        return unsafe { stream(part, to) };
    }
    // SAFETY: whoever calls says so.
    unsafe { ptr::copy_nonoverlapping(part.as_ptr(), to, part.len()) }
}

/// As `store`, for whole aligned lines, by stores that all processors of this kind have.
///
/// # Safety
///
/// As for `store`.
#[cfg(target_arch = "x86_64")]
unsafe fn stream(part: &[u8], to: *mut u8) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};

    for (line, from) in part.chunks_exact(STREAMED_LINE_BYTES).enumerate() {
        let (from, to) =
            (from.as_ptr().cast::<__m128i>(), to.wrapping_add(line * STREAMED_LINE_BYTES).cast::<__m128i>());
        for word in 0..STREAMED_LINE_BYTES / size_of::<__m128i>() {
            // SAFETY: both lie within the line, and the target is aligned to it.
            unsafe { _mm_stream_si128(to.add(word), _mm_loadu_si128(from.add(word))) };
        }
    }
}

/// Has other processors see what was stored before any store that follows. Whoever tells others of what was stored calls it once;
/// to wait for each block would cost as much as to store it.
pub(crate) fn order_stores() {
    // SAFETY: all processors of this kind have it.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

fn pieces(range: &std::ops::Range<usize>) -> std::ops::Range<usize> {
    range.start / PIECE_BYTES..range.end.div_ceil(PIECE_BYTES)
}

#[cfg(test)]
#[path = "mapped_tests.rs"]
mod tests;
