//! A small seeded random generator: the only source of chance in a world.
//!
//! xoshiro256**, filled from the seed by splitmix64. Each host, process, drive and the network
//! have a stream of their own, derived from the world's seed and their name, so that one more
//! draw in one place does not change all others.

use std::cell::Cell;
use std::time::Duration;

use crate::digest::{digest, fold};

/// A stream of random numbers that its seed determines.
#[derive(Debug)]
pub struct Random {
    state: Cell<[u64; 4]>,
}

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut word = seed;
        Self { state: Cell::new(std::array::from_fn(|_| split_mix(&mut word))) }
    }

    /// The stream of one thing, named by `label` and `number`, in the world of `seed`.
    pub fn stream(seed: u64, label: &str, number: u64) -> Self {
        Self::new(fold(fold(seed, digest(label.as_bytes())), number))
    }

    /// Sixty-four random bits.
    pub fn next_u64(&self) -> u64 {
        let mut state = self.state.get();
        let output = state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        self.state.set(state);
        output
    }

    /// A number below `bound`; zero if `bound` is zero.
    pub fn below(&self, bound: u64) -> u64 {
        // The high half of the product. Its bias is below bound / 2^64: nothing here can see it.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// An index below `count`; zero if `count` is zero.
    pub fn index(&self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).expect("it is below a usize")
    }

    /// A number from `low` to `high`, both included; `low` if they are the wrong way round.
    pub fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// True in `per_mille` of 1000 cases.
    pub fn chance(&self, per_mille: u32) -> bool {
        per_mille > 0 && self.below(1000) < u64::from(per_mille)
    }

    /// A duration from the range.
    pub fn duration(&self, range: DelayRange) -> Duration {
        Duration::from_nanos(self.nanoseconds(range))
    }

    pub(crate) fn nanoseconds(&self, range: DelayRange) -> u64 {
        self.between(nanoseconds_of(range.min), nanoseconds_of(range.max))
    }
}

/// The least and the most that something takes, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayRange {
    /// The least.
    pub min: Duration,
    /// The most.
    pub max: Duration,
}

impl DelayRange {
    /// From `min` to `max` microseconds.
    pub const fn microseconds(min: u64, max: u64) -> Self {
        Self { min: Duration::from_micros(min), max: Duration::from_micros(max) }
    }
}

/// Whole nanoseconds; more than 584 years is "for ever".
pub(crate) fn nanoseconds_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn split_mix(word: &mut u64) -> u64 {
    *word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *word;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
#[path = "random_tests.rs"]
mod tests;
