//! Memory that is wanted soon.

/// Lets the processor bring what is at `place` into its caches while it goes on: for what is looked at some hundred instructions
/// later and is unlikely to be cached already. Does nothing where there is no such instruction.
#[inline]
pub fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: nothing is read or written that a program could see, wherever the pointer points; every x86-64 has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
