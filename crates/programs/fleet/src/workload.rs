//! What a client does next: the sequence of its I/Os, which the seed determines.
//!
//! Each thread of a client has its own sequence. The draws for direction and place come from one
//! stream in a fixed order, so equal seeds visit the same places whatever the write percentage is,
//! however fast the threads may go, and however long the answers take.

use std::ops::Range;

use spandrel_platform::Instant;

use crate::pace::Pace;
use crate::random::Random;
use crate::spec::{CellSpec, Pattern};

/// Tells the random streams of one seed apart.
const PURPOSE_THREAD: u64 = 1;
const PURPOSE_CONTENT: u64 = 2;
const PURPOSE_PACE: u64 = 3;

/// The stream that picks what `client` writes.
pub(crate) fn content_stream(seed: u64, client: usize) -> Random {
    Random::stream(seed, PURPOSE_CONTENT, client as u64)
}

/// The paces of the threads of `client`, if they may not go as fast as they can.
pub(crate) fn paces(spec: &CellSpec, client: usize, start: Instant) -> Vec<Pace> {
    let Some(limit) = spec.rate_limit else { return Vec::new() };
    let mut random = Random::stream(spec.seed, PURPOSE_PACE, client as u64);
    (0..spec.threads).map(|_| Pace::new(limit, spec.block_size_bytes, start, &mut random)).collect()
}

/// One I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Io {
    pub(crate) is_write: bool,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

/// The I/Os of one client.
pub(crate) struct Workload {
    block_bytes: u32,
    /// Where the working set begins.
    base: u64,
    span_bytes: u64,
    alignment: u64,
    /// Places where an I/O can begin.
    places: u64,
    write_percent: u64,
    pattern: Pattern,
    /// Of 100 I/Os of a random pattern so many go anywhere.
    random_percent: u64,
    /// Where those go, with the I/Os of 100 that go there or to the ones before; empty if they go anywhere alike.
    spots: Vec<(u64, Range<u64>)>,
    threads: Vec<Thread>,
    /// The next place of [`Pattern::Interlocked`].
    common: u64,
    /// I/Os still to come; for ever if absent.
    left: Option<u64>,
}

struct Thread {
    random: Random,
    /// The next place of a sequential walk.
    position: u64,
}

impl Workload {
    /// The I/Os of the client number `client` on the first `span_bytes` of its volume, which hold at
    /// least one block.
    pub(crate) fn new(spec: &CellSpec, client: usize, span_bytes: u64) -> Self {
        let alignment = spec.alignment();
        let places = (span_bytes - u64::from(spec.block_size_bytes)) / alignment + 1;
        let threads = u64::from(spec.threads);
        let thread = |number: u64| Thread {
            random: Random::stream(spec.seed, PURPOSE_THREAD, (client as u64) << 32 | number),
            position: match spec.thread_stride_bytes {
                Some(stride) => stride.saturating_mul(number).div_ceil(alignment) % places,
                // As a share, so that threads do not follow each other over the same places.
                None => (u128::from(places) * u128::from(number) / u128::from(threads)) as u64,
            },
        };
        let spots = spec.distribution.as_ref().map(|distribution| distribution.spots(span_bytes));
        let spots = spots.unwrap_or_default().into_iter().map(|spot| {
            // A part without a place of its own has the one that it lies in.
            let begin = spot.begin.div_ceil(alignment).min(places - 1);
            let end = spot.end.div_ceil(alignment).min(places).max(begin + 1);
            (spot.io_percent_until, begin..end)
        });
        Self {
            block_bytes: spec.block_size_bytes,
            base: spec.base_offset_bytes,
            span_bytes,
            alignment,
            places,
            write_percent: u64::from(spec.write_percent),
            pattern: spec.pattern,
            random_percent: spec.random_percent.map_or(100, u64::from),
            spots: spots.collect(),
            threads: (0..threads).map(thread).collect(),
            common: 0,
            left: None,
        }
    }

    /// Writes or reads the first `span_bytes` of a volume once, from the start to the end.
    pub(crate) fn pass(spec: &CellSpec, client: usize, span_bytes: u64) -> Self {
        let block = u64::from(spec.block_size_bytes);
        let places = span_bytes.div_ceil(block);
        let alignment = block;
        let random = Random::stream(spec.seed, PURPOSE_THREAD, client as u64);
        Self {
            block_bytes: spec.block_size_bytes,
            base: spec.base_offset_bytes,
            span_bytes,
            alignment,
            places,
            write_percent: u64::from(spec.write_percent),
            pattern: Pattern::Interlocked,
            random_percent: 100,
            spots: Vec::new(),
            threads: vec![Thread { random, position: 0 }],
            common: 0,
            left: Some(places),
        }
    }

    /// How many threads take turns.
    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// The next I/O of `thread`; none if all are done.
    pub(crate) fn next(&mut self, thread: usize) -> Option<Io> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        let thread = &mut self.threads[thread];
        let is_write = thread.random.below(100) < self.write_percent;
        let place = match self.pattern {
            Pattern::Random => {
                let goes_anywhere =
                    self.random_percent >= 100 || thread.random.below(100) < self.random_percent;
                if goes_anywhere {
                    thread.position = anywhere(&mut thread.random, self.places, &self.spots);
                }
                step(&mut thread.position, self.places)
            }
            Pattern::Sequential => step(&mut thread.position, self.places),
            Pattern::Interlocked => step(&mut self.common, self.places),
        };
        let offset = place * self.alignment;
        let length = u64::from(self.block_bytes).min(self.span_bytes - offset);
        // At most a block, which has 32 bits.
        Some(Io { is_write, offset: self.base + offset, length: length as u32 })
    }
}

/// A random place, by the stretches that get I/Os.
fn anywhere(random: &mut Random, places: u64, spots: &[(u64, Range<u64>)]) -> u64 {
    let [.., last] = spots else { return random.below(places) };
    let drawn = random.below(100);
    let (_, stretch) = spots.iter().find(|(until, _)| drawn < *until).unwrap_or(last);
    stretch.start + random.below(stretch.end - stretch.start)
}

/// The position, which moves on and around the end.
fn step(position: &mut u64, places: u64) -> u64 {
    let now = *position;
    *position = (now + 1) % places;
    now
}

#[cfg(test)]
#[path = "workload_tests.rs"]
mod tests;
