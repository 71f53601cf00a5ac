//! Fuzz targets for everything of Spandrel that reads bytes from outside: what clients, servers, nodes,
//! drives, the cluster's state and administrators can hand to it.
//!
//! A [`Target`] is a function of bytes that panics where the code under it breaks a promise. Three
//! things run the same targets: `cargo test`, with the committed corpus and a fixed seed, on a stable
//! toolchain alone; `cargo xtask fuzz`, for as long as one likes, led by coverage where there is a C++
//! compiler; and `cargo xtask fuzz TARGET --input FILE`, for a crash that was found.
//!
//! How targets look:
//! - Where plain bytes would be refused at the first checksum, the input is a list of [`choices`]: which
//!   parts of a valid frame or image, made by the shipping writer, to [`edit`], and whether to seal them
//!   anew.
//! - Whole components run on the simulated platform, so that a run depends on the input alone.
//! - Panics, unbounded memory (see [`memory`]) and runs without end are failures of every target. Most
//!   promise more: what parses is written and parsed again to the same, and a component that was
//!   shown nonsense serves the next one as if nothing had been.

pub mod choices;
pub mod edit;
pub mod engine;
pub mod memory;
pub mod targets;

/// Something that is fuzzed.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name on the command line, and its folder in the corpus.
    pub name: &'static str,
    /// What it tries, in one line.
    pub about: &'static str,
    /// Does what the input says; panics if a promise is broken.
    pub run: fn(&[u8]),
    /// Inputs to begin with, made by the shipping code.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// How many inputs a smoke run makes up.
    pub smoke_runs: u32,
    /// What a run may take of memory, in bytes, besides [`memory::BYTES_PER_INPUT_BYTE`].
    pub memory_bytes_max: usize,
}

impl Target {
    /// Tries one input.
    ///
    /// # Panics
    ///
    /// If the target fails on it.
    pub fn try_input(&self, input: &[u8]) {
        memory::within(self.memory_bytes_max, input.len(), || (self.run)(input));
    }
}
