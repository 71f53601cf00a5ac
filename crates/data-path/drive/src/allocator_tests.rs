use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[test]
fn requests_get_consecutive_blocks_while_there_are() {
    let mut allocator = Allocator::new(10, 400);
    assert_eq!(allocator.allocate(3, 0).unwrap().to_vec(), [Run { first: 10, count: 3 }]);
    assert_eq!(allocator.allocate(100, 0).unwrap().to_vec(), [Run { first: 13, count: 100 }]);
    assert_eq!(allocator.allocate(1, 287), None, "some must stay free");
    assert_eq!(allocator.allocate(1, 286).unwrap().to_vec(), [Run { first: 113, count: 1 }]);
}

#[test]
fn a_long_request_prefers_one_run_to_many_holes() {
    let mut allocator = Allocator::new(0, 1024);
    let all = allocator.allocate(1024, 0).unwrap();
    assert_eq!(all.len(), 1);
    for block in (0..200).step_by(2) {
        allocator.free_now(Run { first: block, count: 1 });
    }
    allocator.free_now(Run { first: 300, count: 32 });
    assert_eq!(allocator.allocate(32, 0).unwrap().to_vec(), [Run { first: 300, count: 32 }]);
    assert_eq!(allocator.allocate(3, 0).unwrap().len(), 3);
}

/// The free blocks of a recovered drive are those that nothing has taken.
#[test]
fn a_certain_block_is_taken_once_and_only_within_the_range() {
    let mut allocator = Allocator::new(10, 74);
    for (block, expected) in [
        (0, false),
        (9, false),
        (10, true),
        (10, false),
        (73, true),
        (73, false),
        (74, false),
        (u32::MAX, false),
    ] {
        assert_eq!(allocator.take(block), expected, "block {block}");
    }
    assert_eq!((allocator.used_blocks(), allocator.free_blocks()), (2, 62));
}

/// Whole words of the bitmap, and a first block other than zero: nothing stands behind the last word.
#[test]
fn a_request_that_does_not_fit_before_the_last_block_goes_on_at_the_first() {
    let mut allocator = Allocator::new(10, 138);
    assert_eq!(allocator.allocate(100, 0).unwrap().to_vec(), [Run { first: 10, count: 100 }]);
    allocator.free_now(Run { first: 10, count: 20 });
    assert_eq!(
        allocator.allocate(40, 0).unwrap().to_vec(),
        [Run { first: 110, count: 28 }, Run { first: 10, count: 12 }]
    );
    assert_eq!(allocator.allocate(8, 0).unwrap().to_vec(), [Run { first: 22, count: 8 }]);
    assert_eq!(allocator.allocate(1, 0), None);
}

/// One bit of the summary stands for 64 blocks, one of its words for 4096.
#[test]
fn the_next_free_block_is_found_however_far_behind_it_is() {
    let (first, count) = (5, 5 * 64 * 64);
    let mut allocator = Allocator::new(first, first + count);
    assert_eq!(allocator.allocate(count, 0).unwrap().to_vec(), [Run { first, count }]);
    let single = |index: u32| Run { first: first + index, count: 1 };
    allocator.free_now(single(0));
    assert_eq!(allocator.allocate(1, 0).unwrap().to_vec(), [single(0)]);
    // Each time the search begins behind the first block, which is free too.
    for index in [4096, 1, 63, 64, 4095, 8191, 8192 + 65, count - 1] {
        allocator.free_now(single(0));
        allocator.free_now(single(index));
        assert_eq!(allocator.allocate(1, 0).unwrap().to_vec(), [single(index)], "index {index}");
        assert_eq!(
            allocator.allocate(1, 0).unwrap().to_vec(),
            [single(0)],
            "behind the last one comes the first"
        );
    }
}

#[test]
fn released_blocks_wait_for_older_reads_only() {
    let mut allocator = Allocator::new(0, 64);
    allocator.allocate(64, 0).unwrap();
    let (first, second) = (allocator.begin_read(), allocator.begin_read());
    allocator.release(Run { first: 5, count: 1 });
    let third = allocator.begin_read();
    assert_eq!(allocator.free_blocks(), 0);
    allocator.end_read(second);
    assert_eq!(allocator.free_blocks(), 0, "the oldest read is still under way");
    allocator.end_read(first);
    assert_eq!(allocator.free_blocks(), 1, "a younger read does not matter");
    allocator.end_read(third);
    assert_eq!(allocator.used_blocks(), 63);
}

#[test]
#[should_panic(expected = "freed twice")]
fn freeing_twice_is_a_bug() {
    let mut allocator = Allocator::new(0, 64);
    allocator.free_now(Run { first: 5, count: 1 });
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(u32),
    Free(usize),
    Release(usize),
    BeginRead,
    EndRead(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u32..40).prop_map(Step::Allocate),
        2 => any::<usize>().prop_map(Step::Free),
        2 => any::<usize>().prop_map(Step::Release),
        1 => Just(Step::BeginRead),
        1 => any::<usize>().prop_map(Step::EndRead),
    ]
}

proptest! {
    /// Against sets of blocks: nothing is handed out twice, nothing is lost.
    #[test]
    fn agrees_with_a_naive_oracle(steps in prop::collection::vec(step(), 1..300)) {
        let mut allocator = Allocator::new(7, 507);
        let mut free: BTreeSet<u32> = (7..507).collect();
        let mut held: Vec<u32> = Vec::new();
        let mut waiting: Vec<(u64, u32)> = Vec::new();
        let mut reads: Vec<u64> = Vec::new();
        for step in steps {
            match step {
                Step::Allocate(count) => match allocator.allocate(count, 3) {
                    None => prop_assert!(free.len() < count as usize + 3),
                    Some(runs) => {
                        let blocks: Vec<u32> = runs.iter().flat_map(|run| run.first..run.first + run.count).collect();
                        prop_assert_eq!(blocks.len(), count as usize);
                        for block in blocks {
                            prop_assert!(free.remove(&block), "block {} was not free", block);
                            held.push(block);
                        }
                    }
                },
                Step::Free(index) if !held.is_empty() => {
                    let block = held.swap_remove(index % held.len());
                    allocator.free_now(Run { first: block, count: 1 });
                    free.insert(block);
                }
                Step::Release(index) if !held.is_empty() => {
                    let block = held.swap_remove(index % held.len());
                    allocator.release(Run { first: block, count: 1 });
                    match reads.iter().max() {
                        None => { free.insert(block); }
                        Some(newest) => waiting.push((*newest, block)),
                    }
                }
                Step::BeginRead => reads.push(allocator.begin_read()),
                Step::EndRead(index) if !reads.is_empty() => {
                    allocator.end_read(reads.swap_remove(index % reads.len()));
                    let oldest = reads.iter().min().copied().unwrap_or(u64::MAX);
                    waiting.retain(|(barrier, block)| {
                        let over = *barrier < oldest;
                        if over {
                            free.insert(*block);
                        }
                        !over
                    });
                }
                _ => {}
            }
            prop_assert_eq!(allocator.free_blocks() as usize, free.len());
            prop_assert_eq!(allocator.used_blocks() as usize, held.len());
        }
    }
}

#[test]
fn copies_that_are_not_wanted_any_more_go_step_by_step() {
    let blocks = 3 * DROPPED_AT_ONCE;
    let mut allocator = Allocator::new(0, blocks).with_area(blocks, 3 * blocks);
    allocator.allocate(blocks, 0).unwrap();
    allocator.keep_copies(true);
    let places: Vec<u32> = (0..blocks - 1).map(|block| allocator.begin_copy(block).unwrap()).collect();
    // The first one is still being written.
    (1..blocks - 1).for_each(|block| allocator.end_copy(block, places[block as usize], true));
    allocator.keep_copies(false);
    assert!(allocator.drop_unwanted_copies());
    let left = blocks - 2 - DROPPED_AT_ONCE;
    assert_eq!(allocator.area_blocks().copies, left);
    assert_eq!(allocator.begin_copy(blocks - 1), None);
    allocator.keep_copies(true);
    assert!(!allocator.drop_unwanted_copies());
    assert_eq!(allocator.area_blocks().copies, left, "what is left is wanted again");
    allocator.keep_copies(false);
    while allocator.drop_unwanted_copies() {}
    assert_eq!(allocator.area_blocks(), AreaUse { total: 2 * blocks, free: 2 * blocks - 1, copies: 0 });
    allocator.end_copy(0, places[0], true);
    assert_eq!(allocator.area_blocks(), AreaUse { total: 2 * blocks, free: 2 * blocks, copies: 0 });
}
