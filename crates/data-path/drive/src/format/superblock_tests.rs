use super::*;
use crate::layout::Layout;

fn example() -> Superblock {
    // Where the journal ends is a matter of what is formatted, not of the format.
    let layout = Layout::for_drive(64 << 20, 512, SlabGeometry::new(4 << 20).unwrap()).unwrap();
    Superblock {
        cluster: ClusterId::from_bytes([1; 16]),
        node: NodeId::from_bytes([2; 16]),
        drive: DriveId::from_bytes([3; 16]),
        layout: Layout { journal_blocks: 256, data_first_block: 261, ..layout },
        created_unix_ms: 1_700_000_000_000,
    }
}

#[test]
fn a_superblock_reads_back() {
    let mut block = vec![0xEE; BLOCK_BYTES];
    example().encode(&mut block);
    assert_eq!(Superblock::decode(&block), Ok(example()));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let mut block = vec![0; BLOCK_BYTES];
    example().encode(&mut block);
    for bit in 0..BLOCK_BYTES * 8 {
        block[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::decode(&block).is_err(), "bit {bit}");
        block[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn newer_formats_and_unknown_features_are_named() {
    let mut block = vec![0; BLOCK_BYTES];
    example().encode(&mut block);
    let mut newer = SuperblockBytes::read_from_bytes(&block).unwrap();
    newer.format_version = 3.into();
    let mut bytes = newer.as_bytes().to_vec();
    crate::format::seal(&mut bytes);
    assert_eq!(Superblock::decode(&bytes), Err(FormatError::Newer { version: 3, unknown_features: 0 }));

    for (incompatible, read_only, unknown_features) in
        [(4, 0, 4), (0, 4, 4), (4, 4, 4), (1, 1 << 63, 1 << 63 | 1)]
    {
        let mut featured = SuperblockBytes::read_from_bytes(&block).unwrap();
        featured.incompatible_features = incompatible.into();
        featured.read_only_compatible_features = read_only.into();
        let mut bytes = featured.as_bytes().to_vec();
        crate::format::seal(&mut bytes);
        let refused = Superblock::decode(&bytes);
        assert_eq!(
            refused,
            Err(FormatError::Newer { version: 2, unknown_features }),
            "{incompatible} {read_only}"
        );
    }
}

#[test]
fn other_content_is_not_taken_for_a_superblock() {
    assert_eq!(Superblock::decode(&[0; BLOCK_BYTES]), Err(FormatError::Magic));
}

/// Superblocks stand on disks. If this fails, old disks can no longer be read.
#[test]
fn the_format_never_changes() {
    let mut block = vec![0; BLOCK_BYTES];
    example().encode(&mut block);
    assert_eq!(spandrel_shared::checksum::crc32c(&block[4..]), PINNED_CHECKSUM);
}

const PINNED_CHECKSUM: u32 = 122_058_912;
