//! Pseudo-random numbers from a seed: a load must be the same for the same seed.

use std::cell::Cell;

/// A sequence of numbers (SplitMix64).
#[derive(Debug)]
pub struct Random {
    state: Cell<u64>,
}

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: Cell::new(seed) }
    }

    /// The next number.
    pub fn next_u64(&self) -> u64 {
        let state = self.state.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.state.set(state);
        let value = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ (value >> 31)
    }

    /// A number below `bound`, which is above zero.
    pub fn below(&self, bound: u64) -> u64 {
        self.next_u64() % bound
    }
}
