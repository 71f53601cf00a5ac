//! Finds zeros in data that are about to be sent, so that a hole can be sent instead.
//!
//! Looking costs little: data that are not zeros are mostly recognised by their first bytes, and
//! zeros that are found need not be copied into a socket.

use std::ops::Range;

use spandrel_platform::{BLOCK_BYTES, Buffer};

/// The shortest row of zeros worth a chunk of its own between data.
pub(super) const HOLE_BYTES_MIN: usize = 32 << 10;

/// A stretch of the data, in bytes from their start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) range: Range<usize>,
    pub(super) hole: bool,
}

/// Whether all `parts` hold nothing but zeros.
pub(super) fn are_zeros(parts: &[Buffer]) -> bool {
    parts.iter().all(|part| is_zeros(part))
}

/// Whether `bytes` are all zero.
fn is_zeros(bytes: &[u8]) -> bool {
    // Each piece is one vectorised loop; the first one that is not zero ends the search.
    bytes.chunks(256).all(|piece| piece.iter().fold(0, |any, byte| any | byte) == 0)
}

/// Divides `parts`, one behind the other, into data and holes in turn. Holes between data are at
/// least [`HOLE_BYTES_MIN`] long.
pub(super) fn find_stretches(parts: &[Buffer]) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut position = 0;
    for part in parts {
        for block in part.chunks(BLOCK_BYTES) {
            let range = position..position + block.len();
            position = range.end;
            let hole = is_zeros(block);
            match stretches.last_mut() {
                Some(last) if last.hole == hole => last.range.end = range.end,
                Some(last) if !hole && last.range.len() < HOLE_BYTES_MIN => {
                    last.range.end = range.end;
                    last.hole = false;
                    join_data(&mut stretches);
                }
                _ => stretches.push(Stretch { range, hole }),
            }
        }
    }
    if stretches.len() > 1
        && let Some(last) = stretches.last_mut()
        && last.hole
        && last.range.len() < HOLE_BYTES_MIN
    {
        last.hole = false;
        join_data(&mut stretches);
    }
    stretches
}

/// Makes the last two stretches one if both are data.
fn join_data(stretches: &mut Vec<Stretch>) {
    if let [.., before, last] = stretches.as_mut_slice()
        && !before.hole
        && !last.hole
    {
        before.range.end = last.range.end;
        stretches.pop();
    }
}

/// The bytes `range` of `parts`, sharing their memory.
pub(super) fn cut(parts: &[Buffer], range: Range<usize>) -> Vec<Buffer> {
    let mut cut = Vec::new();
    let mut position = 0;
    for part in parts {
        let end = position + part.len();
        let (from, to) = (range.start.max(position), range.end.min(end));
        if from < to {
            cut.push(part.slice(from - position..to - position));
        }
        position = end;
    }
    cut
}

#[cfg(test)]
#[path = "holes_tests.rs"]
mod tests;
