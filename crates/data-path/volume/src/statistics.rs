//! What an owner has done since it began.

/// Counters of one ownership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerStatistics {
    /// Read requests answered.
    pub reads: u64,
    /// Write, trim and write-zeroes requests answered.
    pub writes: u64,
    /// Bytes that read requests asked for.
    pub read_bytes: u64,
    /// Bytes that write requests brought.
    pub write_bytes: u64,
    /// Reads that found a damaged block on a copy and got it from another one.
    pub blocks_read_elsewhere: u64,
    /// Damaged blocks that were replaced.
    pub blocks_healed: u64,
    /// Legs that were marked stale.
    pub legs_marked: u64,
    /// Legs that a take-over found to lack writes which they had confirmed: their drives have lied, or
    /// lost what they held.
    pub legs_found_lacking: u64,
    /// Legs that came back in sync.
    pub legs_promoted: u64,
    /// Blocks that a take-over rolled forward.
    pub blocks_rolled_forward: u64,
    /// Blocks that resync copied.
    pub blocks_resynced: u64,
}
