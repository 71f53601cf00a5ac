//! What a guest is told of its disk before it asks for anything: what can be done with it, and its sizes.

use spandrel_volume::DeviceLimits;
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX,
    VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes};

/// The most places of a queue.
pub const QUEUE_SIZE_MAX: u16 = 256;

/// The length of what a guest is told of its disk's sizes.
pub const CONFIG_BYTES: usize = 60;

/// The unit in which sizes and places are told, whatever a block is.
pub(super) const SECTOR_BYTES: u64 = 512;

/// The most stretches of one discard, or of one write of zeros.
pub(super) const RANGES_MAX: u32 = 32;

/// The longest of them, 1 GiB: there is nothing to be gained by longer ones.
const RANGE_SECTORS_MAX: u32 = 1 << 21;

/// The most stretches of memory of a request: all places of a queue as machines make them, but those for its head and its status. A
/// guest that has no memory for an indirect table needs a place for each.
const SEGMENTS_MAX: u32 = 128 - 2;

/// The sizes of a disk, as virtio lays them out.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct BlockConfig {
    capacity_sectors: U64,
    size_max: U32,
    segments_max: U32,
    geometry: [u8; 4],
    logical_block_bytes: U32,
    /// By which power of two a physical block is larger than a logical one.
    physical_block_exponent: u8,
    alignment_offset: u8,
    io_blocks_min: U16,
    io_blocks_optimal: U32,
    write_back: u8,
    unused: u8,
    queues: U16,
    discard_sectors_max: U32,
    discard_ranges_max: U32,
    discard_alignment_sectors: U32,
    write_zeroes_sectors_max: U32,
    write_zeroes_ranges_max: U32,
    write_zeroes_may_unmap: u8,
    unused_at_the_end: [u8; 3],
}

const _: () = assert!(size_of::<BlockConfig>() == CONFIG_BYTES, "as virtio lays it out");

/// What a disk can do, as bits of virtio's. There is no flush among them: what was answered is on stable storage, so a guest is
/// told that its disk has no cache that could be flushed, and need not ask.
pub fn features(limits: &DeviceLimits) -> u64 {
    let always = [
        VIRTIO_BLK_F_SEG_MAX,
        VIRTIO_BLK_F_BLK_SIZE,
        VIRTIO_BLK_F_TOPOLOGY,
        VIRTIO_BLK_F_MQ,
        VIRTIO_BLK_F_DISCARD,
        VIRTIO_BLK_F_WRITE_ZEROES,
        VIRTIO_RING_F_INDIRECT_DESC,
        VIRTIO_RING_F_EVENT_IDX,
        VIRTIO_F_VERSION_1,
    ];
    let read_only = limits.read_only.then_some(VIRTIO_BLK_F_RO);
    always.into_iter().chain(read_only).fold(0, |features, bit| features | 1 << bit)
}

/// Whether a guest that has agreed to these features says how far it has come, as it is then told, so that either is woken only for what
/// is behind that.
pub fn has_event_index(agreed: u64) -> bool {
    agreed & 1 << VIRTIO_RING_F_EVENT_IDX != 0
}

/// What a guest is told of the sizes of a disk that is served in so many queues.
pub fn config_space(limits: &DeviceLimits, queues: u16) -> [u8; CONFIG_BYTES] {
    let blocks = limits.request_bytes_preferred / limits.request_bytes_min;
    let config = BlockConfig {
        capacity_sectors: (limits.size_bytes / SECTOR_BYTES).into(),
        size_max: 0.into(),
        segments_max: SEGMENTS_MAX.into(),
        geometry: [0; 4],
        logical_block_bytes: limits.request_bytes_min.into(),
        physical_block_exponent: u8::try_from(blocks.trailing_zeros()).unwrap_or(0),
        alignment_offset: 0,
        io_blocks_min: u16::try_from(blocks).unwrap_or(1).into(),
        io_blocks_optimal: 0.into(),
        write_back: 0,
        unused: 0,
        queues: queues.into(),
        discard_sectors_max: RANGE_SECTORS_MAX.into(),
        discard_ranges_max: RANGES_MAX.into(),
        discard_alignment_sectors: (limits.request_bytes_preferred / SECTOR_BYTES as u32).into(),
        write_zeroes_sectors_max: RANGE_SECTORS_MAX.into(),
        write_zeroes_ranges_max: RANGES_MAX.into(),
        write_zeroes_may_unmap: 1,
        unused_at_the_end: [0; 3],
    };
    let mut bytes = [0; CONFIG_BYTES];
    bytes.copy_from_slice(config.as_bytes());
    bytes
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
