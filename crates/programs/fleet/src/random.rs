//! A small random generator whose seed determines everything: a load can be repeated.

/// A stream of random numbers (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// The stream of one thing in a run: `purpose` and `number` tell the streams of one seed apart.
    pub(crate) fn stream(seed: u64, purpose: u64, number: u64) -> Self {
        let mut random = Self { state: seed };
        for part in [purpose, number] {
            random.state = random.next() ^ part;
        }
        // Neighbouring numbers must not give neighbouring states.
        Self { state: random.next() }
    }

    /// Sixty-four random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product. Its bias is below bound / 2^64, which no load notices.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
#[path = "random_tests.rs"]
mod tests;
