//! What a store has done since it was attached: counts and bytes, for people and for tests.

/// Counters of one store. All bytes are bytes sent to or asked from the drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStatistics {
    /// Blocks that users wrote (healing and resync included).
    pub blocks_written: u64,
    /// Blocks that users read.
    pub blocks_read: u64,
    /// Blocks whose content did not match their checksum, or could not be read, at a read or a
    /// scrub.
    pub blocks_damaged: u64,
    /// Blocks that were replaced by a good copy.
    pub blocks_healed: u64,
    /// Blocks that were moved from the area of a cache drive to the capacity drive.
    pub blocks_destaged: u64,
    /// Blocks that were read from a cache drive, where they had been written or copied to.
    pub cache_hits: u64,
    /// Blocks of a drive bound to a cache drive that were read from the capacity drive.
    pub cache_misses: u64,
    /// Blocks that were copied to a cache drive as they were read.
    pub cache_fills: u64,
    /// Blocks that were read from memory, where there are copies of what is read.
    pub memory_hits: u64,
    /// Blocks that were not, though there are such copies.
    pub memory_misses: u64,
    /// Superblocks, roots, journal groups and map pages that were found damaged, nearly all at the attach.
    pub structures_damaged: u64,
    /// Bytes of data blocks written.
    pub data_bytes: u64,
    /// Bytes of journal groups written, padding included.
    pub journal_bytes: u64,
    /// Bytes of leaves, slab roots, roots and superblocks written.
    pub map_bytes: u64,
    /// Journal groups written.
    pub groups: u64,
    /// Flushes asked for.
    pub flushes: u64,
    /// Writes sent to the drive.
    pub writes: u64,
    /// Reads sent to the drive.
    pub reads: u64,
    /// Leaves of the maps that were evicted from memory, and read back.
    pub leaves_read: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// How often the journal has wrapped around.
    pub journal_laps: u64,
}
