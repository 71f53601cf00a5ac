//! Checksums: CRC-32C over bytes, and the address-mixed checksum of a data block.
//!
//! A data block's checksum is the CRC-32C of its 4 KiB, combined by XOR with a mix of its
//! address (volume, slab, block). A block that is whole but stands in the wrong place therefore
//! fails its check; and a copy at another address (a clone) gets its checksum from the old one
//! without the data being read.

use smallvec::SmallVec;

use crate::{SlabIndex, VolumeId};

/// The checksums of blocks that lie one behind the other. Those of a short write take no memory of their own.
pub type Checksums = SmallVec<[u32; 4]>;

/// The CRC-32C (Castagnoli, as in iSCSI) of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Checksums the blocks of one slab.
#[derive(Clone, Copy, Debug)]
pub struct BlockChecksum {
    slab_mix: u64,
}

impl BlockChecksum {
    /// The checksums of blocks in `slab` of `volume`.
    pub fn new(volume: VolumeId, slab: SlabIndex) -> Self {
        let volume = u128::from_le_bytes(volume.to_bytes());
        let (low, high) = (volume as u64, (volume >> 64) as u64);
        Self { slab_mix: mix(mix(low) ^ high ^ u64::from(slab.0).rotate_left(32)) }
    }

    /// The checksum of `data`, a whole block, at `block` within the slab.
    pub fn of(&self, block: u32, data: &[u8]) -> u32 {
        debug_assert_eq!(data.len(), crate::BLOCK_BYTES);
        crc32c(data) ^ self.address_mix(block)
    }

    /// What the address alone contributes at `block`.
    pub fn address_mix(&self, block: u32) -> u32 {
        (mix(self.slab_mix ^ u64::from(block)) >> 32) as u32
    }
}

/// Spreads every input bit over all output bits (the finalizer of MurmurHash3, offset so that
/// zero is not a fixed point).
fn mix(value: u64) -> u64 {
    let mut value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    value = (value ^ (value >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    value = (value ^ (value >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    value ^ (value >> 33)
}

#[cfg(test)]
#[path = "checksum_tests.rs"]
mod tests;
