use std::time::Duration;

use futures_util::future::join;
use spandrel_platform_simulated::Repeat;

use super::*;
use crate::test_support::machine::{Machine, add_slab, write_block, write_blocks};
use crate::test_support::observation::{Seen, content_of, read_all};
use crate::test_support::{copy, drive_config, key, version};

fn physical(store: &crate::test_support::Store, slot: SlabSlot, block: u32) -> u64 {
    let mapping = store.inner.state.borrow().slabs.get(slot.0).unwrap().mapping(block);
    Layout::offset_of(mapping.physical().unwrap())
}

#[test]
fn blocks_that_lie_apart_are_read_at_the_same_time() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    machine.run(|platform| async move {
        let slab = key(1, 0);
        let slot = add_slab(&store, slab, copy(1)).await.unwrap();
        for block in (0..32).rev() {
            write_block(&platform, &store, slab, block, version(1, 32 - u64::from(block)), block.into())
                .await
                .unwrap();
        }
        let before = (platform.now(), store.statistics().reads);
        let load_before = store.load().counts();
        let seen = read_all(&store, slot, 32).await;
        assert!(seen.iter().zip(0..).all(|(seen, block)| *seen == Seen::Content(block)));
        assert_eq!(store.statistics().reads - before.1, 32, "no two of them lie behind each other");
        let load = store.load().counts();
        assert_eq!(load.reads.done - load_before.reads.done, 32);
        assert_eq!(load.reads.bytes - load_before.reads.bytes, 32 * BLOCK_BYTES as u64);
        assert_eq!((load.in_flight(), load.writes), (0, load_before.writes));
        let statistics = store.statistics();
        assert_eq!(load.writes.done, statistics.writes + statistics.flushes, "flushes are among them");
        let took = platform.now().since(before.0);
        assert!(took < Duration::from_millis(1), "{took:?} for what one read takes 120 us for");
    });
}

#[test]
fn a_block_that_cannot_be_read_costs_no_other_one() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    let drive = machine.drive.clone();
    machine.run(|platform| async move {
        let slab = key(1, 0);
        let slot = add_slab(&store, slab, copy(1)).await.unwrap();
        let contents: Vec<u64> = (100..164).collect();
        write_blocks(&platform, &store, slab, 8, version(1, 1), &contents).await.unwrap();
        let bad = physical(&store, slot, 20);
        drive.fail_reads(bad + 512..bad + 1024, Repeat::UntilWritten);
        drive.flip_bit(physical(&store, slot, 30), 7);
        let seen = read_all(&store, slot, 80).await;
        let damaged: Vec<usize> = (0..80).filter(|block| seen[*block].is_damaged()).collect();
        assert_eq!(damaged, [20, 30]);
        assert_eq!(
            (seen[19], seen[21], seen[31]),
            (Seen::Content(111), Seen::Content(113), Seen::Content(123))
        );
        assert_eq!(store.statistics().blocks_damaged, 2);

        let found = store.scrub(slot, 0, 1024).await.unwrap();
        assert_eq!(found.iter().map(|found| found.block).collect::<Vec<_>>(), [20, 30]);
        for found in found {
            let content = 92 + u64::from(found.block);
            let mut data = platform.buffers().take(BLOCK_BYTES);
            crate::test_support::observation::fill(content, &mut data);
            let checksum = crate::test_support::script::checksums(slab, found.block, &data)[0];
            assert_eq!(store.heal(slot, found, Some((data.freeze(), checksum))).await, Ok(true));
        }
        assert_eq!(store.scrub(slot, 0, 1024).await.unwrap(), []);
    });
}

/// Otherwise the owner would take the last copy's blocks for lost, while only its drive is away.
#[test]
fn a_drive_that_answers_no_read_has_failed_and_its_blocks_are_not_damaged() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    let drive = machine.drive.clone();
    machine.run(|platform| async move {
        let slab = key(1, 0);
        let slot = add_slab(&store, slab, copy(1)).await.unwrap();
        write_blocks(&platform, &store, slab, 0, version(1, 1), &[1, 2, 3]).await.unwrap();
        drive.die();
        assert!(matches!(store.read(slot, 0, 3).await, Err(StoreError::Failed(_))));
        assert!(store.failure().is_some());
        assert_eq!(store.statistics().blocks_damaged, 0);
    });
}

/// A read that began before an overwrite sees the former content or the new one, never what has
/// come into the former's place.
#[test]
fn a_physical_block_is_not_reused_under_a_read() {
    let (machine, store) = Machine::attached(1, drive_config(12));
    machine.run(|platform| async move {
        let slab = key(1, 0);
        let slot = add_slab(&store, slab, copy(1)).await.unwrap();
        let mut counter = 0;
        for round in 0..200_u64 {
            counter += 2;
            let mark = version(1, counter - 1);
            write_block(&platform, &store, slab, 0, mark, counter).await.unwrap();
            store.note_mark(slab.0, mark, &[]);
            let read = store.read(slot, 0, 1);
            let overwrite = async {
                // Blocks are given out in turns, so this comes around to the former one soon.
                for block in 0..u64::from(store.superblock().layout.data_blocks()) / 1024 + 1 {
                    let contents = vec![round; 1000];
                    let version = version(1, counter);
                    write_blocks(&platform, &store, slab, (block % 24) as u32, version, &contents)
                        .await
                        .unwrap();
                }
            };
            let (parts, ()) = join(read, overwrite).await;
            let parts = parts.unwrap();
            let [ReadPart::Data { data, .. }] = &parts[..] else { panic!("{parts:?}") };
            assert_eq!(content_of(data), Some(counter));
            if round == 20 {
                break;
            }
        }
        assert_eq!(store.statistics().blocks_damaged, 0);
    });
    assert_eq!(machine.drive.counters().overlaps, 0);
}

/// Random writes aside, blocks were written together, and one read brings them back.
#[test]
fn blocks_that_lie_behind_each_other_are_read_together_up_to_one_mebibyte() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    machine.run(|platform| async move {
        let slab = key(1, 0);
        let slot = add_slab(&store, slab, copy(1)).await.unwrap();
        let contents: Vec<u64> = (0..600).collect();
        write_blocks(&platform, &store, slab, 0, version(1, 1), &contents).await.unwrap();
        store.lose(slot, 599).await.unwrap();
        for (count, parts, reads) in [
            (1, &[1][..], 1),
            (255, &[255], 1),
            (256, &[256], 1),
            (257, &[256, 1], 2),
            (600, &[256, 256, 87, 1], 3),
            (1024, &[256, 256, 87, 1, 424], 3),
        ] {
            let before = store.statistics();
            let counts: Vec<u32> =
                store.read(slot, 0, count).await.unwrap().iter().map(ReadPart::count).collect();
            assert_eq!(counts, parts, "{count} blocks");
            let after = store.statistics();
            assert_eq!(after.reads - before.reads, reads, "{count} blocks");
            assert_eq!(after.blocks_read - before.blocks_read, u64::from(count), "holes included");
        }
    });
}

/// What stands behind a damaged block of the same read is not moved into its place.
#[test]
fn damaged_blocks_of_one_read_are_left_out_of_it() {
    for damaged in [&[0][..], &[4], &[2, 3], &[0, 2, 9], &[9]] {
        let (machine, store) = Machine::attached(1, drive_config(24));
        let drive = machine.drive.clone();
        machine.run(move |platform| async move {
            let slab = key(1, 0);
            let slot = add_slab(&store, slab, copy(1)).await.unwrap();
            let contents: Vec<u64> = (100..110).collect();
            write_blocks(&platform, &store, slab, 0, version(1, 1), &contents).await.unwrap();
            damaged.iter().for_each(|block| drive.flip_bit(physical(&store, slot, *block), 7));
            let before = store.statistics().reads;
            let seen = read_all(&store, slot, 10).await;
            assert_eq!(store.statistics().reads - before, 1);
            for (block, seen) in (0..).zip(seen) {
                if damaged.contains(&block) {
                    assert!(seen.is_damaged(), "block {block} of {damaged:?}");
                } else {
                    assert_eq!(seen, Seen::Content(100 + u64::from(block)), "beside {damaged:?}");
                }
            }
        });
    }
}

/// There is no place on the drive to read them from.
#[test]
fn lost_blocks_are_damaged_without_a_read() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    machine.run(|platform| async move {
        let slab = key(1, 0);
        let slot = add_slab(&store, slab, copy(1)).await.unwrap();
        write_blocks(&platform, &store, slab, 0, version(1, 1), &[1, 2, 3, 4, 5]).await.unwrap();
        for block in [1, 2, 3] {
            store.lose(slot, block).await.unwrap();
        }
        let before = store.statistics();
        let seen = read_all(&store, slot, 5).await;
        let lost = |block| Seen::Damaged(DamagedBlock { block, mapping: Mapping::UNKNOWN });
        assert_eq!(seen, [Seen::Content(1), lost(1), lost(2), lost(3), Seen::Content(5)]);
        let after = store.statistics();
        assert_eq!(after.reads - before.reads, 2, "one before them and one behind");
        assert_eq!(after.blocks_damaged - before.blocks_damaged, 3);
    });
}

/// A scrub goes in pieces, and the last one ends where it was asked to end.
#[test]
fn a_scrub_finds_what_is_damaged_in_its_range_and_nothing_beside_it() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    machine.run(|platform| async move {
        let slab = key(1, 0);
        let slot = add_slab(&store, slab, copy(1)).await.unwrap();
        write_blocks(&platform, &store, slab, 0, version(1, 1), &[7; 1000]).await.unwrap();
        for block in [20, 299, 300, 1023] {
            store.lose(slot, block).await.unwrap();
        }
        for (first, count, expected) in [
            (0, 20, &[][..]),
            (0, 300, &[20, 299]),
            (21, 279, &[299]),
            (0, 301, &[20, 299, 300]),
            (301, 722, &[]),
            (724, 300, &[1023]),
            (0, 1024, &[20, 299, 300, 1023]),
        ] {
            let found = store.scrub(slot, first, count).await.unwrap();
            let blocks: Vec<u32> = found.iter().map(|found| found.block).collect();
            assert_eq!(blocks, expected, "{count} from {first} on");
        }
    });
}
