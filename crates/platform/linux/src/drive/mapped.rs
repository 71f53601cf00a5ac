//! The content of a drive in memory, mapped into this process: what is read and written is copied, without a call.
//!
//! Memory is set aside piece by piece before it is touched for the first time: where the system says that it has no more, that is an
//! error of the write then, and not the end of the process. A piece that was not set aside through this mapping is read by a call, since whoever reads a hole
//! through a mapping takes memory for it.
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

/// Memory is set aside in pieces of this size.
const PIECE_BYTES: usize = 64 << 10;

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
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a mapping at a place that the kernel chooses is nobody else's memory.
        let start =
            unsafe { rustix::mm::mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, file, 0) };
        let start = NonNull::new(start.ok()?.cast())?;
        let pieces = length.div_ceil(PIECE_BYTES);
        Some(Self { start, length, set_aside: RefCell::new(vec![0; pieces.div_ceil(64)]) })
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
        // SAFETY: the piece lies within the mapping, and this changes nothing of what is there.
        let populated = unsafe {
            let address = self.start.add(start).as_ptr().cast::<c_void>();
            rustix::mm::madvise(address, length, Advice::LinuxPopulateWrite)
        };
        match populated {
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
        // SAFETY: nothing refers to the mapping, which ends with `self`.
        let ended = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
        ended.expect("what was mapped as a whole is unmapped as a whole");
    }
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
