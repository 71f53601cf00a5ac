use super::*;

#[test]
fn crc32c_matches_the_published_check_value() {
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA, "iSCSI's example of 32 zero bytes");
}

#[test]
fn the_same_data_has_another_checksum_at_another_address() {
    let data = [7; crate::BLOCK_BYTES];
    let volume = VolumeId::from_random(1, 2);
    let here = BlockChecksum::new(volume, SlabIndex(3));
    let other_slab = BlockChecksum::new(volume, SlabIndex(4));
    let other_volume = BlockChecksum::new(VolumeId::from_random(1, 3), SlabIndex(3));
    let sums = [here.of(5, &data), here.of(6, &data), other_slab.of(5, &data), other_volume.of(5, &data)];
    for (index, sum) in sums.iter().enumerate() {
        assert!(!sums[..index].contains(sum), "{sums:x?}");
    }
    let moved = here.of(5, &data) ^ here.address_mix(5) ^ other_slab.address_mix(9);
    assert_eq!(moved, other_slab.of(9, &data), "an address can be exchanged without the data");
}

/// Checksums stand on disks. If this fails, old disks can no longer be read.
#[test]
fn the_mix_never_changes() {
    let checksum = BlockChecksum::new(VolumeId::from_bytes([0x11; 16]), SlabIndex(2));
    assert_eq!([checksum.address_mix(0), checksum.address_mix(65_535)], PINNED_MIXES);
}

const PINNED_MIXES: [u32; 2] = [1_775_257_724, 3_552_199_132];
