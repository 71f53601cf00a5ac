use proptest::prelude::*;
use spandrel_platform::BufferPool;

use super::*;

const BLOCK: usize = BLOCK_BYTES;

/// Blocks that are zeros or not, in parts of `part_blocks`.
fn parts(blocks: &[bool], part_blocks: usize) -> Vec<Buffer> {
    let pool = BufferPool::default();
    let part = |part: &[bool]| {
        let mut buffer = pool.take_zeroed(part.len() * BLOCK);
        for (index, zero) in part.iter().enumerate() {
            // The last byte is the one that a hasty look misses.
            buffer[(index + 1) * BLOCK - 1] = u8::from(!zero);
        }
        buffer.freeze()
    };
    blocks.chunks(part_blocks).map(part).collect()
}

/// What stands for each block: the same rule, said per block.
fn naive_holes(zeros: &[bool]) -> Vec<bool> {
    let run_around = |index: usize| {
        let before = zeros[..index].iter().rev().take_while(|zero| **zero).count();
        let behind = zeros[index..].iter().take_while(|zero| **zero).count();
        before + behind
    };
    let all = zeros.iter().all(|zero| *zero);
    (0..zeros.len())
        .map(|index| zeros[index] && (all || run_around(index) * BLOCK >= HOLE_BYTES_MIN))
        .collect()
}

#[test]
fn zeros_are_recognised() {
    let pool = BufferPool::default();
    assert!(are_zeros(&[pool.take_zeroed(4096).freeze(), pool.take_zeroed(513).freeze()]));
    for position in [0, 255, 256, 511, 512] {
        let mut bytes = pool.take_zeroed(513);
        bytes[position] = 1;
        assert!(!are_zeros(&[bytes.freeze()]), "byte {position}");
    }
    assert!(are_zeros(&[]));
}

proptest! {
    #[test]
    fn stretches_are_what_the_rule_says(
        runs in proptest::collection::vec((any::<bool>(), 1_usize..20), 1..8),
        part_blocks in 1_usize..30,
    ) {
        let zeros: Vec<bool> =
            runs.iter().flat_map(|(zero, count)| std::iter::repeat_n(*zero, *count)).collect();
        let stretches = find_stretches(&parts(&zeros, part_blocks));
        let mut position = 0;
        for pair in stretches.windows(2) {
            prop_assert_ne!(pair[0].hole, pair[1].hole);
        }
        let expected = naive_holes(&zeros);
        for stretch in &stretches {
            prop_assert_eq!(stretch.range.start, position);
            position = stretch.range.end;
            let blocks = stretch.range.start / BLOCK..stretch.range.end / BLOCK;
            prop_assert!(expected[blocks].iter().all(|hole| *hole == stretch.hole));
        }
        prop_assert_eq!(position, zeros.len() * BLOCK);
    }

    #[test]
    fn cutting_shares_exactly_the_range(
        lengths in proptest::collection::vec(0_usize..50, 1..6),
        bounds in any::<[prop::sample::Index; 2]>(),
    ) {
        let pool = BufferPool::default();
        let total: usize = lengths.iter().sum();
        let all: Vec<u8> = (0..total).map(|index| index as u8).collect();
        let mut rest = &all[..];
        let parts: Vec<Buffer> = lengths.iter().map(|length| {
            let (part, behind) = rest.split_at(*length);
            rest = behind;
            pool.copy_of(part).freeze()
        }).collect();
        let mut bounds = bounds.map(|bound| bound.index(total + 1));
        bounds.sort_unstable();
        let range = bounds[0]..bounds[1];
        let found: Vec<u8> = cut(&parts, range.clone()).iter().flat_map(|part| part.to_vec()).collect();
        prop_assert_eq!(&found[..], &all[range]);
    }
}
