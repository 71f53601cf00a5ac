//! How much memory a run takes: a length that somebody merely claims must not make us take it.
//!
//! What is counted is what the whole process allocates, so only one target runs at a time.

use std::sync::{Mutex, PoisonError};

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Held while something is counted.
static COUNTING: Mutex<()> = Mutex::new(());

/// What each byte of input may cost, in bytes. Some messages are lists of things that take a byte or two
/// when they are sent and 24 when they are held, in a list that doubles when it grows.
pub const BYTES_PER_INPUT_BYTE: usize = 256;

/// Runs `work` for an input of `input_bytes`, and fails if at any time it held more than `bytes_max` and
/// its share for the input.
///
/// # Panics
///
/// If it did.
pub fn within(bytes_max: usize, input_bytes: usize, work: impl FnOnce()) {
    // One that failed has left nothing behind that counts here.
    let _counting = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    work();
    let taken = ALLOCATOR.peak_usage().saturating_sub(before);
    let allowed = bytes_max + input_bytes * BYTES_PER_INPUT_BYTE;
    assert!(taken <= allowed, "an input of {input_bytes} bytes took {taken} bytes of memory, not {allowed}");
}
