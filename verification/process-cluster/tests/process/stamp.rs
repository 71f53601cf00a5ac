//! Blocks say themselves what they hold.

use spandrel_process_cluster::{Content, Part, Stamp};
use spandrel_shared::BLOCK_BYTES;

fn stamp(block: u64, sequence: u64) -> Stamp {
    Stamp { seed: 7, block, sequence }
}

fn filled(stamp: Stamp) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES];
    stamp.fill(&mut bytes);
    bytes
}

#[test]
fn a_stamp_is_read_back() {
    for stamp in [stamp(0, 1), stamp(16_383, u64::MAX), Stamp { seed: 0, block: 0, sequence: 0 }] {
        assert_eq!(Content::of(&filled(stamp)), Content::Whole(stamp));
    }
    assert_eq!(Content::of(&[0; BLOCK_BYTES]), Content::Zeros);
}

#[test]
fn every_flipped_bit_is_noticed() {
    let mut bytes = filled(stamp(3, 4));
    for bit in 0..BLOCK_BYTES * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(Content::of(&bytes), Content::Foreign { .. }), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn parts_of_two_writes_are_torn_wherever_the_border_is() {
    let (old, new) = (filled(stamp(3, 4)), filled(stamp(3, 5)));
    for sector in 1..8 {
        let border = sector * 512;
        let torn = [&new[..border], &old[border..]].concat();
        assert_eq!(Content::of(&torn), Content::Torn(Part::Of(stamp(3, 5)), Part::Of(stamp(3, 4))));
        let half_empty = [&new[..border], &vec![0; BLOCK_BYTES - border]].concat();
        assert_eq!(Content::of(&half_empty), Content::Torn(Part::Of(stamp(3, 5)), Part::Zeros));
        let slipped = [&new[border..], &new[..border]].concat();
        assert!(matches!(Content::of(&slipped), Content::Foreign { byte: 0 }));
    }
}
