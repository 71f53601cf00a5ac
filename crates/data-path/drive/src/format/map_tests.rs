use super::*;

fn example_leaf() -> Leaf {
    std::array::from_fn(|index| match index % 5 {
        0 => Mapping::NONE,
        1 => Mapping::UNKNOWN,
        _ => Mapping { block: 1000 + index as u32, checksum: index as u32 * 7 },
    })
}

fn example_pages() -> Vec<PageEntry> {
    (0..128)
        .map(|page| PageEntry {
            leaf: PagePointer { block: page * 3, checksum: page },
            version: Version::new(Epoch(page), u64::from(page) << 33),
            whole: page % 3 == 0,
        })
        .collect()
}

#[test]
fn leaves_read_back_and_flipped_bits_are_noticed() {
    let mut block = vec![0; BLOCK_BYTES];
    let checksum = encode_leaf(&example_leaf(), &mut block);
    assert_eq!(*decode_leaf(&block, checksum).unwrap(), example_leaf());
    for bit in 0..BLOCK_BYTES * 8 {
        block[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_leaf(&block, checksum).is_none(), "bit {bit}");
        block[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn slab_roots_read_back() {
    let mut block = vec![0xFF; BLOCK_BYTES];
    let checksum = encode_slab_root(&example_pages(), &mut block);
    assert_eq!(decode_slab_root(&block, checksum, 128).unwrap(), example_pages());
    assert_eq!(decode_slab_root(&block, checksum, 2).unwrap(), example_pages()[..2]);
    assert_eq!(decode_slab_root(&block, checksum ^ 1, 128), None);
}

/// Map pages stand on disks. If this fails, old disks can no longer be read.
#[test]
fn the_formats_never_change() {
    let mut block = vec![0; BLOCK_BYTES];
    let leaf = encode_leaf(&example_leaf(), &mut block);
    let slab_root = encode_slab_root(&example_pages(), &mut block);
    assert_eq!([leaf, slab_root], PINNED_CHECKSUMS);
}

const PINNED_CHECKSUMS: [u32; 2] = [2_945_321_286, 2_125_298_866];

/// Mappings are compared, so there is one of each kind without a block.
#[test]
fn a_checksum_means_nothing_where_there_is_no_block() {
    assert_eq!(Mapping::named(0, 5), Mapping::NONE);
    assert_eq!(Mapping::named(u32::MAX, 5), Mapping::UNKNOWN);
    for block in [1, u32::MAX - 1] {
        assert_eq!(Mapping::named(block, 5), Mapping { block, checksum: 5 });
        assert_eq!(Mapping::named(block, 5).physical(), Some(block));
    }
}
