//! Checksums: of a data block, which every write and every read computes, and of what is shorter and longer.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use spandrel_shared::checksum::{BlockChecksum, crc32c};
use spandrel_shared::{BLOCK_BYTES, SlabIndex, VolumeId};

/// A block, its address mixed in.
#[divan::bench]
fn block(bencher: Bencher<'_, '_>) {
    let data = vec![0x5a; BLOCK_BYTES];
    let checksum = BlockChecksum::new(VolumeId::from_bytes([7; 16]), SlabIndex(3));
    bencher.counter(BytesCount::new(BLOCK_BYTES)).bench(|| checksum.of(black_box(21), black_box(&data)));
}

/// Any bytes: a frame's header, a sector, a block, a long write.
#[divan::bench(args = [96, 512, 4096, 1 << 20])]
fn bytes(bencher: Bencher<'_, '_>, length: usize) {
    let data = vec![0x5a; length];
    bencher.counter(BytesCount::new(length)).bench(|| crc32c(black_box(&data)));
}
