//! How fast the processor's time stamp counter counts, which virtual machines have as their own.

use std::time::{Duration, Instant};

/// For how long it is counted: the error is some ten millionths.
const COUNTED: Duration = Duration::from_millis(20);

/// In kHz. None where the processor has no such counter.
pub fn time_stamp_khz() -> Option<u64> {
    let (begun, first) = (Instant::now(), time_stamp()?);
    // tidy-allow(sleep): what is measured is how far the counter comes in that time.
    std::thread::sleep(COUNTED);
    let (elapsed, last) = (begun.elapsed(), time_stamp()?);
    let counted = u128::from(last.wrapping_sub(first)) * 1_000_000;
    u64::try_from(counted / elapsed.as_nanos().max(1)).ok()
}

#[cfg(target_arch = "x86_64")]
fn time_stamp() -> Option<u64> {
    // SAFETY: all processors of this kind have the instruction, and it touches no memory.
    Some(unsafe { core::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn time_stamp() -> Option<u64> {
    None
}

#[cfg(test)]
#[path = "time_stamp_tests.rs"]
mod tests;
