use spandrel_platform::BufferPool;

use super::*;
use crate::device::Extent;

/// Blocks that are each filled with one byte.
fn blocks(bytes: &[u8]) -> Buffer {
    let content: Vec<u8> = bytes.iter().flat_map(|byte| [*byte; BLOCK_BYTES]).collect();
    BufferPool::new(0).copy_of(&content).freeze()
}

fn described(count: u32) -> PartDescription {
    PartDescription::Data((0..count).collect())
}

/// The first byte of each block, or zero for a hole.
fn bytes_of(parts: &[CopyPart]) -> Vec<u8> {
    let of_part = |part: &CopyPart| match part {
        CopyPart::Hole(count) => vec![0; *count as usize],
        CopyPart::Data { data, checksums } => {
            assert_eq!(data.len(), checksums.len() * BLOCK_BYTES);
            data.chunks_exact(BLOCK_BYTES).map(|block| block[0]).collect()
        }
        CopyPart::Damaged { .. } => vec![0xff],
    };
    parts.iter().flat_map(of_part).collect()
}

#[test]
fn data_come_in_any_portions() {
    let description = || vec![described(3), PartDescription::Hole(2), described(2)];
    let portions: [&[&[u8]]; 4] = [
        &[&[1, 2, 3], &[4, 5]],
        &[&[1, 2, 3, 4, 5]],
        &[&[1], &[2, 3, 4], &[5]],
        &[&[1], &[2], &[3], &[4], &[5]],
    ];
    for portion in portions {
        let payload = portion.iter().map(|bytes| blocks(bytes)).collect();
        let parts = join_parts(description(), payload, 7).expect("it fits");
        assert_eq!(bytes_of(&parts), [1, 2, 3, 0, 0, 4, 5]);
    }
}

#[test]
fn an_answer_that_does_not_fit_is_refused() {
    assert!(join_parts(vec![described(2)], vec![blocks(&[1])], 2).is_err(), "too few data");
    assert!(join_parts(vec![described(2)], vec![blocks(&[1, 2])], 3).is_err(), "too few blocks");
    assert!(join_parts(vec![PartDescription::Hole(4)], vec![], 3).is_err(), "too many blocks");
    let half = BufferPool::new(0).copy_of(&[1; BLOCK_BYTES / 2]).freeze();
    assert!(join_parts(vec![described(1)], vec![half], 1).is_err(), "half a block");
    let damaged = PartDescription::Damaged { block: 0, token: 7 };
    let parts = join_parts(vec![damaged, described(1)], vec![blocks(&[9])], 2).expect("it fits");
    assert_eq!(bytes_of(&parts), [0xff, 9]);
}

#[test]
fn an_extent_that_is_cut_off_at_both_ends_keeps_the_rest() {
    let extent = |length, allocated| Extent { length, allocated };
    let extents = || vec![extent(8192, true), extent(4096, false), extent(8192, true)];
    assert_eq!(trim_extents(extents(), 0, 20_480), extents());
    assert_eq!(trim_extents(extents(), 100, 8092), [extent(8092, true)]);
    assert_eq!(trim_extents(extents(), 8191, 4098), [extent(1, true), extent(4096, false), extent(1, true)]);
    assert_eq!(trim_extents(extents(), 8192, 4096), [extent(4096, false)]);
}

#[test]
fn data_that_are_cut_off_at_both_ends_keep_the_rest() {
    let parts = || vec![blocks(&[1, 2]), blocks(&[3]), blocks(&[4])];
    let kept = |skip, length| -> Vec<(u8, usize)> {
        trim_parts(parts(), skip, length).iter().map(|part| (part[0], part.len())).collect()
    };
    assert_eq!(kept(0, 4 * BLOCK_BYTES), [(1, 2 * BLOCK_BYTES), (3, BLOCK_BYTES), (4, BLOCK_BYTES)]);
    assert_eq!(kept(100, 3 * BLOCK_BYTES), [(1, 2 * BLOCK_BYTES - 100), (3, BLOCK_BYTES), (4, 100)]);
    let part = trim_parts(vec![blocks(&[1])], 5, 7);
    assert_eq!(part.iter().map(|part| part.len()).collect::<Vec<_>>(), [7]);
}
