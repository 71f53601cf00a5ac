//! The allocator of programs: mimalloc, asked for memory without an alignment where all memory has it.
//!
//! Nearly all of it is of that kind, and what names an alignment takes a longer way.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};

/// What all memory of mimalloc is aligned to that is not smaller than this: its `MI_MAX_ALIGN_SIZE`.
const ALIGNMENT: usize = 16;

/// To be made a program's `#[global_allocator]`.
#[derive(Debug)]
pub struct Allocator;

/// Whether memory of this size has the alignment without being asked.
fn is_aligned(size: usize, alignment: usize) -> bool {
    alignment <= ALIGNMENT && alignment <= size
}

// SAFETY: mimalloc's functions keep the contract of `GlobalAlloc`: what they return is memory of the size and the alignment that
// were asked for, or null, and belongs to whoever asked until it is given back. Memory smaller than `ALIGNMENT` is aligned to the
// largest power of two that divides its block's size, which is not below the alignment where that is no larger than the size.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, alignment) = (layout.size(), layout.align());
        // SAFETY: any size may be asked for, and an alignment of a layout is a power of two.
        let memory = unsafe {
            if is_aligned(size, alignment) { mi_malloc(size) } else { mi_malloc_aligned(size, alignment) }
        };
        memory.cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (size, alignment) = (layout.size(), layout.align());
        // SAFETY: as above.
        let memory = unsafe {
            if is_aligned(size, alignment) { mi_zalloc(size) } else { mi_zalloc_aligned(size, alignment) }
        };
        memory.cast()
    }

    unsafe fn dealloc(&self, memory: *mut u8, _layout: Layout) {
        // SAFETY: whoever calls says that the memory is from here.
        unsafe { mi_free(memory.cast()) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let alignment = layout.align();
        // SAFETY: whoever calls says that the memory is from here; for the rest as above.
        let memory = unsafe {
            if is_aligned(size, alignment) {
                mi_realloc(memory.cast(), size)
            } else {
                mi_realloc_aligned(memory.cast(), size, alignment)
            }
        };
        memory.cast()
    }
}

#[cfg(test)]
#[path = "allocator_tests.rs"]
mod tests;
