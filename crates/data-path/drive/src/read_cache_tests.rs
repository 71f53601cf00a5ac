use spandrel_platform_simulated::Repeat;
use spandrel_shared::{CacheMode, SlabIndex};

use super::*;
use crate::store::SlabSlot;
use crate::test_support::cached::CachedMachine;
use crate::test_support::machine::{add_slab, write_block, write_blocks};
use crate::test_support::observation::{Seen, check_ownership, read_all};
use crate::test_support::{Store, copy, drive_config, key, version, volume};

/// A drive whose cache keeps what is read, with so many blocks that were written past it.
fn with_blocks_past_the_cache(count: u64) -> (CachedMachine, Store, SlabSlot) {
    let (cached, store) = CachedMachine::attached(1, drive_config(24));
    let writing = store.clone();
    let slot = cached.run(|platform| async move {
        let slot = add_slab(&writing, key(1, 0), copy(1)).await.unwrap();
        writing.set_cache_mode(CacheMode::ReadOnly);
        let contents: Vec<u64> = (100..100 + count).collect();
        write_blocks(&platform, &writing, key(1, 0), 0, version(1, 1), &contents).await.unwrap();
        slot
    });
    (cached, store, slot)
}

fn read(cached: &CachedMachine, store: &Store, count: u32) -> Vec<Seen> {
    let store = store.clone();
    let slot = store.find_slab(volume(1), SlabIndex(0)).unwrap().slot;
    cached.run(|_| async move { read_all(&store, slot, count).await })
}

/// Waits until what was read has been copied.
fn settle(cached: &CachedMachine, store: &Store, copies: u32) {
    let _ = cached.machine.world.run_until(|| store.cache_use().blocks_copied == copies);
    assert_eq!(store.cache_use().blocks_copied, copies);
}

fn contents(count: u64) -> Vec<Seen> {
    (100..100 + count).map(Seen::Content).collect()
}

#[test]
fn what_was_read_is_read_from_the_cache_drive_the_next_time() {
    let (cached, store, _) = with_blocks_past_the_cache(8);
    assert_eq!(read(&cached, &store, 8), contents(8));
    settle(&cached, &store, 8);
    let before = cached.machine.drive.counters().reads;
    assert_eq!(read(&cached, &store, 8), contents(8));
    assert_eq!(cached.machine.drive.counters().reads, before, "the capacity drive is not asked");
    let done = store.statistics();
    assert_eq!((done.cache_misses, done.cache_hits, done.cache_fills), (8, 8, 8));
}

#[test]
fn what_was_read_is_read_from_memory_the_next_time() {
    let (cached, store, slot) = with_blocks_past_the_cache(8);
    store.set_cache_mode(CacheMode::Off);
    store.set_memory_cache(16 * BLOCK_BYTES as u64);
    assert_eq!(read(&cached, &store, 8), contents(8));
    assert_eq!(store.memory_cached_bytes(), 8 * BLOCK_BYTES as u64);
    let reads = || cached.machine.drive.counters().reads + cached.cache.counters().reads;
    let before = reads();
    assert_eq!(read(&cached, &store, 8), contents(8));
    assert_eq!(reads(), before, "no drive is asked");
    let done = store.statistics();
    assert_eq!((done.memory_misses, done.memory_hits), (8, 8));
    // What is written anew is not what stands in memory.
    let (writing, checking) = (store.clone(), store.clone());
    cached.run(|platform| async move {
        write_blocks(&platform, &writing, key(1, 0), 2, version(1, 2), &[777]).await.unwrap();
    });
    let mut expected = contents(8);
    expected[2] = Seen::Content(777);
    assert_eq!(read(&cached, &store, 8), expected);
    // A scrub asks the drives, whatever is in memory.
    let before = reads();
    let damaged = cached.run(|_| async move { checking.scrub(slot, 0, 8).await.unwrap() });
    assert!(damaged.is_empty() && reads() > before);
    store.set_memory_cache(0);
    assert_eq!(store.memory_cached_bytes(), 0);
    assert_eq!(read(&cached, &store, 8), expected);
}

#[test]
fn memory_holds_no_more_than_it_may() {
    let (cached, store, slot) = with_blocks_past_the_cache(100);
    store.set_memory_cache(10 * BLOCK_BYTES as u64);
    let reading = store.clone();
    cached.run(|_| async move {
        reading.read(slot, 0, 100).await.unwrap();
        for block in 0..100 {
            reading.read(slot, block, 1).await.unwrap();
        }
    });
    assert_eq!(store.memory_cached_bytes(), 10 * BLOCK_BYTES as u64);
    assert_eq!(read(&cached, &store, 50), contents(50));
}

#[test]
fn what_is_not_read_again_and_again_is_not_worth_it() {
    let (cached, store, slot) = with_blocks_past_the_cache(100);
    let reading = store.clone();
    cached.run(|_| async move {
        reading.read(slot, 0, 100).await.unwrap();
        reading.scrub(slot, 0, 8).await.unwrap();
        reading.read_mapped(slot, 0, 8).await.unwrap();
    });
    assert!(store.inner.arriving.is_empty(), "long reads and those of a scrub are not copied");
    store.set_cache_mode(CacheMode::WriteOnly);
    assert_eq!(read(&cached, &store, 8), contents(8));
    assert!(store.inner.arriving.is_empty());
}

#[test]
fn what_was_moved_out_of_the_cache_stays_as_a_copy() {
    let (cached, store) = CachedMachine::attached(1, drive_config(24));
    let writing = store.clone();
    cached.run(|platform| async move {
        add_slab(&writing, key(1, 0), copy(1)).await.unwrap();
        writing.set_cache_mode(CacheMode::ReadWrite);
        write_blocks(&platform, &writing, key(1, 0), 0, version(1, 1), &[100, 101, 102]).await.unwrap();
        writing.drain_cache().await.unwrap();
    });
    assert_eq!((store.cache_use().blocks_dirty, store.cache_use().blocks_copied), (0, 3));
    let before = cached.machine.drive.counters().reads;
    assert_eq!(read(&cached, &store, 3), contents(3));
    assert_eq!(cached.machine.drive.counters().reads, before);
    store.set_cache_mode(CacheMode::WriteOnly);
    assert_eq!(store.cache_use().blocks_copied, 0);
    assert_eq!(read(&cached, &store, 3), contents(3));
    assert!(cached.machine.drive.counters().reads > before);
    check_ownership(&store);
}

#[test]
fn copies_give_way_to_writes() {
    let (cached, store, _) = with_blocks_past_the_cache(160);
    for first in (0..160).step_by(16) {
        let reading = store.clone();
        let slot = store.find_slab(volume(1), SlabIndex(0)).unwrap().slot;
        cached.run(|_| async move { reading.read(slot, first, 16).await.unwrap() });
        let copies = store.cache_use().blocks_copied + 16;
        let _ = cached.machine.world.run_until(|| store.cache_use().blocks_copied >= copies.min(100));
    }
    let full = store.cache_use();
    assert!(full.blocks_copied > 100 && full.blocks_copied < full.blocks_total, "{full:?}");
    store.set_cache_mode(CacheMode::ReadWrite);
    let writing = store.clone();
    cached.run(|platform| async move {
        let contents: Vec<u64> = (0..30).map(|block| 900 + block).collect();
        write_blocks(&platform, &writing, key(1, 0), 0, version(1, 2), &contents).await.unwrap();
    });
    let used = store.cache_use();
    assert!(used.blocks_dirty == 30 && used.blocks_copied <= full.blocks_total - 30, "{used:?}");
    let expected: Vec<Seen> = (900..930).chain(130..260).map(Seen::Content).collect();
    assert_eq!(read(&cached, &store, 160), expected);
}

/// There may be many of them, and others have their turn in between.
#[test]
fn copies_go_step_by_step_when_reads_are_cached_no_more() {
    let (cached, store, slot) = with_blocks_past_the_cache(80);
    for first in (0..80).step_by(16) {
        let reading = store.clone();
        cached.run(|_| async move { reading.read(slot, first, 16).await.unwrap() });
        settle(&cached, &store, first + 16);
    }
    store.set_cache_mode(CacheMode::WriteOnly);
    let left = store.cache_use().blocks_copied;
    assert!(left > 0 && left < 80, "{left}");
    assert_eq!(read(&cached, &store, 80), contents(80));
    let _ = cached.machine.world.run_until(|| store.cache_use().blocks_copied == 0);
    assert_eq!(store.cache_use().blocks_free, store.cache_use().blocks_total);
    assert_eq!(read(&cached, &store, 80), contents(80));
    check_ownership(&store);
}

#[test]
fn a_copy_goes_with_its_block() {
    let (cached, store, slot) = with_blocks_past_the_cache(8);
    assert_eq!(read(&cached, &store, 8), contents(8));
    settle(&cached, &store, 8);
    let changing = store.clone();
    cached.run(|platform| async move {
        write_block(&platform, &changing, key(1, 0), 0, version(1, 2), 900).await.unwrap();
        changing.trim(slot, 1, 1, version(1, 3)).await.unwrap();
        changing.fill(slot, 2, 1, None).await.unwrap();
        changing.lose(slot, 3).await.unwrap();
    });
    check_ownership(&store);
    assert_eq!(store.cache_use().blocks_copied, 4);
    let removing = store.clone();
    cached.run(|_| async move { removing.remove_slab(slot).await.unwrap() });
    check_ownership(&store);
    assert_eq!(store.cache_use().blocks_copied, 0);
}

/// Otherwise the copy would stand for whatever comes into the block's place.
#[test]
fn a_block_that_is_replaced_while_it_is_copied_gets_no_copy() {
    let (cached, store, slot) = with_blocks_past_the_cache(1);
    let changing = store.clone();
    cached.run(|platform| async move {
        changing.read(slot, 0, 1).await.unwrap();
        write_block(&platform, &changing, key(1, 0), 0, version(1, 2), 900).await.unwrap();
    });
    let _ = cached.machine.world.run_until(|| store.statistics().cache_fills > 0);
    check_ownership(&store);
    assert_eq!((store.cache_use().blocks_copied, read(&cached, &store, 1)), (0, vec![Seen::Content(900)]));
}

#[test]
fn a_copy_that_has_rotted_costs_nothing_but_itself() {
    let (cached, store, _) = with_blocks_past_the_cache(8);
    assert_eq!(read(&cached, &store, 8), contents(8));
    settle(&cached, &store, 8);
    let size = cached.cache.geometry().size_bytes;
    cached.cache.fail_reads(0..size, Repeat::Always);
    assert_eq!(read(&cached, &store, 8), contents(8));
    cached.cache.clear_faults();
    settle(&cached, &store, 8);
    let places = store.inner.pieces(Run { first: first_block(&store), count: 8 });
    let place = places[0].place.unwrap();
    let area = store.inner.media.area().unwrap();
    let offset = area.places(Layout::offset_of(place - store.inner.layout.size_blocks), BLOCK_BYTES)[0].0;
    cached.cache.flip_bit(offset + 17, 5);
    let misses = store.statistics().cache_misses;
    assert_eq!(read(&cached, &store, 8), contents(8));
    assert_eq!((store.statistics().blocks_damaged, store.failure()), (0, None));
    assert!(store.statistics().cache_misses > misses, "the damaged copy was not used");
}

/// Where the first block of the only slab is.
fn first_block(store: &Store) -> u32 {
    let state = store.inner.state.borrow();
    let (_, slab) = state.slabs.iter().next().unwrap();
    slab.mapping(0).physical().unwrap()
}

#[test]
fn a_damaged_block_is_found_by_a_scrub_although_there_is_a_copy() {
    let (cached, store, slot) = with_blocks_past_the_cache(8);
    assert_eq!(read(&cached, &store, 8), contents(8));
    settle(&cached, &store, 8);
    cached.machine.drive.flip_bit(Layout::offset_of(first_block(&store)) + 9, 1);
    assert_eq!(read(&cached, &store, 8), contents(8), "users do not notice");
    let scrubbing = store.clone();
    let found = cached.run(|_| async move { scrubbing.scrub(slot, 0, 8).await.unwrap() });
    assert_eq!(found.len(), 1);
}
