//! The bytes on a drive: fixed structures, little-endian, each under a CRC-32C.
//!
//! ```text
//! block 0             superblock, first copy
//! root slots          4: generations alternate between two pairs, each pair holds one twice
//! journal             a ring of groups
//! data                data blocks, map leaves and slab roots, in any order
//! last block          superblock, second copy
//! ```
//!
//! Why it looks so:
//! - What never changes (who the drive is, where things lie) stands in the superblock, twice and
//!   far apart, so that no ordinary write can harm it.
//! - What changes with each checkpoint hangs from one root. A root is written twice, beside the
//!   former one, and names a journal position: root plus journal from there on is the state.
//! - A block is 4 KiB and has a 32-bit number: a store reaches 16 TiB.
//!
//! Constants here are pinned by tests: a change makes existing drives unreadable.

pub mod cache;
pub mod journal;
pub mod map;
pub mod root;
pub mod superblock;

/// Why bytes were not accepted as what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// The structure's magic number is absent: something else stands here, or nothing.
    Magic,
    /// The bytes do not match their checksum.
    Checksum,
    /// Lengths or positions contradict each other.
    Inconsistent,
    /// The format's version or a required feature is newer than this program.
    Newer {
        /// The version on the drive.
        version: u32,
        /// Required features that this program does not know.
        unknown_features: u64,
    },
}

/// Counters of roots and groups are below this, so that they can be raised without end: no drive lives
/// to see it.
pub const COUNT_MAX: u64 = 1 << 62;

/// The same for the journal's laps.
pub const LAP_MAX: u32 = 1 << 31;

/// Sets the first four bytes of `bytes` to the CRC-32C of the rest. Every structure here begins
/// with its checksum.
pub fn seal(bytes: &mut [u8]) -> u32 {
    let checksum = spandrel_shared::checksum::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

/// Whether the first four bytes of `bytes` are the CRC-32C of the rest.
pub fn is_sealed(bytes: &[u8]) -> bool {
    bytes.len() > 4 && bytes[..4] == spandrel_shared::checksum::crc32c(&bytes[4..]).to_le_bytes()
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
