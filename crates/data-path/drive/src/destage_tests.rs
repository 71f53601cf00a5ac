use std::rc::Rc;

use spandrel_platform_simulated::{Random, Repeat, SimulatedDriveConfig};
use spandrel_shared::{BLOCK_BYTES, CacheMode, SlabIndex, Version};

use crate::layout::Layout;
use crate::test_support::cached::{CHUNKS, CachedMachine, Images, attach_bound, open_cache};
use crate::test_support::explorer::{Budget, explore_drives};
use crate::test_support::machine::{Machine, add_slab, write_block, write_blocks};
use crate::test_support::observation::{Seen, check_ownership_of_all, observe, read_all};
use crate::test_support::oracle::Oracle;
use crate::test_support::script::{Runner, Step};
use crate::test_support::{
    copy, drive_config, factor, format_options, key, vary_map_memory, version, volume,
};
use crate::{CacheChoice, CacheDrive, CacheUse};

/// Capacity drives and cache drives of all kinds.
fn all_kinds_of_drives() -> impl Iterator<Item = SimulatedDriveConfig> {
    [(512, true), (4096, true), (512, false)].into_iter().map(|(sector_bytes, volatile_cache)| {
        SimulatedDriveConfig { sector_bytes, volatile_cache, ..drive_config(24) }
    })
}

fn recover(
    seed: u64,
    config: SimulatedDriveConfig,
    images: Images,
    oracle: &Oracle,
) -> (CachedMachine, Oracle) {
    let cached = CachedMachine::with_images(seed, config, images);
    let (store, report) = cached.attach().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.unproven, [], "a mere crash leaves nothing unproven");
    assert_eq!((report.structures_damaged, report.area_lost), (0, false), "a mere crash damages nothing");
    let observation = cached.run(|_| async move {
        check_ownership_of_all(&store).await;
        observe(&store).await
    });
    (cached, oracle.settle(&observation))
}

/// Runs `steps` on a new store and hands every image of every moment to `look`.
fn crash_everywhere(
    seed: u64,
    config: SimulatedDriveConfig,
    budget: Budget,
    steps: Vec<Step>,
    mut look: impl FnMut(Images, &Oracle),
) {
    let (cached, store) = CachedMachine::attached(seed, config);
    let drive = cached.machine.drive.clone();
    let runner = Runner::new(cached.machine.platform(), store, drive.clone(), Oracle::default());
    let oracle = Rc::clone(&runner.oracle);
    let random = Random::new(seed);
    let body = {
        let runner = runner.clone();
        async move { runner.run(&steps).await }
    };
    let answers = {
        let oracle = Rc::clone(&oracle);
        move || oracle.borrow().fact_count() as u64
    };
    explore_drives(&cached.machine, &[drive, cached.cache.clone()], body, answers, |_| {
        for images in cached.crash_images(budget, &random) {
            look(images, &oracle.borrow());
        }
    });
    assert_eq!(runner.failure(), None);
}

/// Crashes an attach at each of its moments.
fn crash_recovery(seed: u64, config: SimulatedDriveConfig, images: Images, oracle: &Oracle) -> usize {
    let random = Random::new(seed);
    let cached = CachedMachine::with_images(seed, config, images);
    let platform = cached.machine.platform();
    let body = async move { drop(attach_bound(platform).await.unwrap()) };
    let drives = [cached.machine.drive.clone(), cached.cache.clone()];
    let mut recoveries = 0;
    explore_drives(
        &cached.machine,
        &drives,
        body,
        || 0,
        |_| {
            for images in cached.crash_images(Budget::SMALL, &random) {
                recoveries += 1;
                recover(random.next_u64(), config, images, oracle);
            }
        },
    );
    recoveries
}

fn script(spins: bool) -> Vec<Step> {
    let (a, b) = (key(1, 0), key(2, 0));
    vec![
        Step::Spinning(spins),
        Step::Add(a),
        Step::Add(b),
        Step::Join,
        Step::Write(a, 0, 4),
        Step::Write(b, 7, 2),
        Step::Join,
        Step::Mode(CacheMode::ReadWrite),
        Step::Drain(true),
        Step::Write(a, 1, 1),
        Step::Write(a, 600, 3),
        Step::Join,
        Step::Drain(false),
        Step::Write(a, 0, 2),
        Step::Write(a, 3, 1),
        Step::Write(b, 0, 1),
        Step::Join,
        Step::Checkpoint,
        Step::Read(a, 0, 8),
        Step::Read(a, 600, 2),
        Step::Drain(true),
        Step::Trim(a, 2, 3),
        Step::Drain(false),
        Step::Write(a, 0, 1),
        Step::Write(a, 100, 70),
        Step::Join,
        Step::Read(a, 100, 8),
        Step::Write(a, 101, 1),
        Step::Join,
        Step::Read(a, 90, 32),
        Step::Drain(true),
        Step::Remove(b),
        Step::Checkpoint,
        Step::Join,
        Step::Write(a, 0, 1),
        Step::Join,
    ]
}

#[test]
fn every_crash_of_a_cached_drive_is_survived() {
    vary_map_memory();
    let mut recoveries = 0;
    for (seed, config) in (1..).zip(all_kinds_of_drives()) {
        crash_everywhere(seed, config, Budget::SMALL.times(factor()), script(seed == 2), |images, oracle| {
            recover(seed, config, images, oracle);
            recoveries += 1;
        });
    }
    assert!(recoveries > 500, "only {recoveries} crashes");
}

#[test]
fn every_crash_of_the_recovery_of_a_cached_drive_is_survived() {
    vary_map_memory();
    let random = Random::new(7);
    let mut recoveries = 0;
    for (seed, config) in (1..).zip(all_kinds_of_drives()) {
        crash_everywhere(seed, config, Budget::SMALL, script(seed == 1), |images, oracle| {
            if random.chance(20 * factor() as u32) {
                recoveries += crash_recovery(random.next_u64(), config, images, oracle);
            }
        });
    }
    assert!(recoveries > 200, "only {recoveries} crashes");
}

/// Random writes, many more than the area holds, and what the drives hold in the end.
#[test]
fn what_is_written_over_and_over_is_what_is_read() {
    vary_map_memory();
    for seed in 1..=4 * factor() as u64 {
        let random = Random::new(seed);
        let (a, b) = (key(1, 0), key(1, 1));
        let mut steps = vec![Step::Add(a), Step::Add(b), Step::Join];
        for _ in 0..600 {
            let slab = if random.chance(500) { a } else { b };
            steps.push(match random.below(60) {
                0 => Step::Checkpoint,
                1 => Step::Drain(random.chance(500)),
                59 => Step::Spinning(random.chance(500)),
                4 => Step::Mode(if random.chance(800) { CacheMode::ReadWrite } else { CacheMode::WriteOnly }),
                5..20 => Step::Read(slab, random.below(64) as u32 * 8, 1 + random.below(24) as u32),
                2 => Step::Join,
                3 => Step::Trim(slab, random.below(1000) as u32, 8),
                20 => Step::Write(slab, random.below(900) as u32, 70),
                _ => Step::Write(slab, random.below(64) as u32 * 8, 1 + random.below(8) as u32),
            });
        }
        steps.extend([Step::Drain(false), Step::Join]);
        let (cached, store) = CachedMachine::attached(seed, drive_config(24));
        let runner = Runner::new(
            cached.machine.platform(),
            store.clone(),
            cached.machine.drive.clone(),
            Oracle::default(),
        );
        let oracle = Rc::clone(&runner.oracle);
        cached.run(|_| async move { runner.run(&steps).await });
        let done = store.statistics();
        assert!(done.blocks_destaged > 50 && done.cache_hits > 20 && done.cache_fills > 0, "{done:?}");
        assert_eq!(done.blocks_damaged, 0);
        let observing = store.clone();
        let seen = cached.run(|_| async move { observe(&observing).await });
        oracle.borrow().check(&seen);
        let draining = store.clone();
        cached.run(|_| async move {
            draining.drain_cache().await.unwrap();
            check_ownership_of_all(&draining).await;
        });
        cached.machine.power_cycle();
        let (store, _) = cached.attach().unwrap();
        assert_eq!(store.cache_use().blocks_dirty, 0);
        let seen = cached.run(|_| async move { observe(&store).await });
        oracle.borrow().settle(&seen);
    }
}

/// A cached drive with blocks 0 to 3 of a slab, written as versions 1 to 4.
fn with_four_blocks() -> (CachedMachine, crate::test_support::Store) {
    let (cached, store) = CachedMachine::attached(1, drive_config(24));
    let writing = store.clone();
    cached.run(|platform| async move {
        add_slab(&writing, key(1, 0), copy(1)).await.unwrap();
        for block in 0..4 {
            let version = version(1, u64::from(block) + 1);
            write_block(&platform, &writing, key(1, 0), block, version, 10 + u64::from(block)).await.unwrap();
        }
    });
    (cached, store)
}

fn contents(cached: &CachedMachine, store: &crate::test_support::Store) -> Vec<Seen> {
    let store = store.clone();
    let slot = store.find_slab(volume(1), SlabIndex(0)).unwrap().slot;
    cached.run(|_| async move { read_all(&store, slot, 4).await })
}

#[test]
fn writes_go_to_the_cache_drive_alone_and_leave_it_when_told() {
    let (cached, store) = with_four_blocks();
    let before = cached.machine.drive.counters().writes;
    let whole = CacheUse { blocks_total: 128, blocks_free: 124, blocks_dirty: 4, blocks_copied: 0 };
    assert_eq!(store.cache_use(), whole);
    let writing = store.clone();
    cached.run(|platform| async move {
        write_block(&platform, &writing, key(1, 0), 0, version(1, 5), 20).await.unwrap();
    });
    assert_eq!(cached.machine.drive.counters().writes, before, "the capacity drive is asked for nothing");
    assert_eq!(store.cache_use(), whole, "what was replaced is free");
    let draining = store.clone();
    cached.run(|_| async move { draining.drain_cache().await.unwrap() });
    assert_eq!(
        store.cache_use(),
        CacheUse { blocks_total: 128, blocks_free: 128, blocks_dirty: 0, blocks_copied: 0 }
    );
    assert_eq!(contents(&cached, &store), [20, 11, 12, 13].map(Seen::Content));
    assert_eq!(store.statistics().blocks_destaged, 4);
}

#[test]
fn a_cache_that_takes_no_writes_any_more_is_emptied() {
    let (cached, store) = with_four_blocks();
    store.set_cache_mode(CacheMode::ReadOnly);
    let _ = cached.machine.world.run_until(|| store.cache_use().blocks_dirty == 0);
    assert_eq!(store.cache_use().blocks_dirty, 0);
    let writing = store.clone();
    cached.run(|platform| async move {
        write_block(&platform, &writing, key(1, 0), 0, version(1, 5), 20).await.unwrap();
    });
    assert_eq!(store.cache_use().blocks_dirty, 0);
    assert_eq!(contents(&cached, &store), [20, 11, 12, 13].map(Seen::Content));
}

/// Where a block was before it was written anew is free then, and mostly taken again.
#[test]
fn blocks_of_a_disk_go_back_to_where_their_neighbours_are() {
    let (cached, store) = CachedMachine::attached(1, drive_config(24));
    store.set_spinning(true);
    let writing = store.clone();
    cached.run(|platform| async move {
        add_slab(&writing, key(1, 0), copy(1)).await.unwrap();
        let contents: Vec<u64> = (100..200).collect();
        write_blocks(&platform, &writing, key(1, 0), 0, version(1, 1), &contents).await.unwrap();
        for (counter, block) in (2..).zip([50, 7, 30]) {
            write_block(&platform, &writing, key(1, 0), block, version(1, counter), counter).await.unwrap();
        }
        writing.drain_cache().await.unwrap();
    });
    let state = store.inner.state.borrow();
    let (_, slab) = state.slabs.iter().next().unwrap();
    let first = slab.mapping(0).block;
    assert!((0..100).all(|block| slab.mapping(block).block == first + block), "one behind the other");
}

/// What is moved to a drive that does not spin is read and written in long pieces, in the order in which it was written.
#[test]
fn blocks_of_other_drives_go_one_behind_the_other() {
    let (cached, store) = CachedMachine::attached(1, drive_config(24));
    let writing = store.clone();
    let blocks = [50, 7, 30, 90, 8, 70];
    cached.run(|platform| async move {
        add_slab(&writing, key(1, 0), copy(1)).await.unwrap();
        let contents: Vec<u64> = (100..200).collect();
        write_blocks(&platform, &writing, key(1, 0), 0, version(1, 1), &contents).await.unwrap();
        for (counter, block) in (2..).zip(blocks) {
            write_block(&platform, &writing, key(1, 0), block, version(1, counter), counter).await.unwrap();
        }
    });
    let (reads, writes) = (cached.cache.counters().reads, cached.machine.drive.counters().writes);
    let draining = store.clone();
    cached.run(|_| async move { draining.drain_cache().await.unwrap() });
    assert_eq!(cached.cache.counters().reads - reads, 1, "they lie one behind the other in the area");
    let places: Vec<u32> = {
        let state = store.inner.state.borrow();
        let (_, slab) = state.slabs.iter().next().unwrap();
        let mut sorted = blocks;
        sorted.sort_unstable();
        sorted.iter().map(|block| slab.mapping(*block).block).collect()
    };
    assert!(places.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{places:?}");
    assert_eq!(cached.machine.drive.counters().writes - writes, 1);
}

/// A block that cannot be read keeps no other one where it is.
#[test]
fn a_bad_sector_of_the_area_keeps_one_block_there() {
    let (cached, store) = with_four_blocks();
    let place = {
        let state = store.inner.state.borrow();
        let (_, slab) = state.slabs.iter().next().unwrap();
        slab.mapping(2)
    };
    let area = store.inner.media.area().unwrap();
    let offset =
        area.places(Layout::offset_of(place.block - store.inner.layout.size_blocks), BLOCK_BYTES)[0].0;
    cached.cache.fail_reads(offset + 600..offset + 601, Repeat::UntilWritten);
    let draining = store.clone();
    let left = cached.run(|_| async move { draining.drain_cache().await.unwrap() });
    assert_eq!((left, store.cache_use().blocks_dirty), (1, 1));
    assert_eq!(store.statistics().blocks_destaged, 3);
}

#[test]
fn a_drive_that_is_bound_is_attached_with_its_area_alone() {
    let (cached, store) = with_four_blocks();
    cached.run(|_| async move { store.detach().await.unwrap() });
    cached.machine.restart();
    let refused = cached.machine.attach().err().expect("its cache drive is missing");
    assert!(refused.to_string().contains("is bound to the cache drive"), "{refused}");
    let in_use = cached.attach_with(CacheChoice::Unbind).err().expect("four blocks are there alone");
    assert!(in_use.to_string().contains("still holds data"), "{in_use}");
    let (store, _) = cached.attach().unwrap();
    assert_eq!(contents(&cached, &store), [10, 11, 12, 13].map(Seen::Content));
    cached.run(|_| async move {
        store.drain_cache().await.unwrap();
        store.detach().await.unwrap();
    });
    cached.machine.restart();
    let (store, _) = cached.attach_with(CacheChoice::Unbind).unwrap();
    assert_eq!(
        (store.binding(), contents(&cached, &store)),
        (None, [10, 11, 12, 13].map(Seen::Content).to_vec())
    );
    cached.machine.power_cycle();
    let (store, report) = cached.machine.attach().unwrap();
    assert_eq!(
        (report.unproven.len(), contents(&cached, &store)),
        (0, [10, 11, 12, 13].map(Seen::Content).to_vec())
    );
}

/// What the only copy of a drive is proven for, and how many of its blocks are lost.
fn proven_and_lost(store: &crate::test_support::Store) -> (Option<Version>, u16) {
    let slot = store.find_slab(volume(1), SlabIndex(0)).unwrap().slot;
    (store.proven(slot), store.pages(slot).unwrap()[0].lost_blocks)
}

#[test]
fn without_its_cache_drive_a_drive_knows_what_it_lacks() {
    let (cached, store) = with_four_blocks();
    let writing = store.clone();
    cached.run(|platform| async move {
        writing.note_mark(volume(1), version(1, 3), &[]);
        writing.checkpoint().await.unwrap();
        write_block(&platform, &writing, key(1, 0), 3, version(1, 5), 30).await.unwrap();
        write_block(&platform, &writing, key(1, 0), 9, version(1, 6), 31).await.unwrap();
    });
    cached.machine.power_cycle();
    let (store, report) = cached.attach_with(|_| CacheChoice::Lost(None)).unwrap();
    assert!(report.area_lost && report.unproven.len() == 1);
    assert_eq!(proven_and_lost(&store), (Some(version(1, 3)), 4));
    cached.machine.power_cycle();
    let (store, report) = cached.machine.attach().unwrap();
    assert!(!report.area_lost, "it is bound no more");
    assert_eq!(proven_and_lost(&store), (Some(version(1, 3)), 4), "and that stays so");
}

#[test]
fn an_old_image_of_the_cache_drive_is_not_trusted() {
    let (cached, store) = with_four_blocks();
    let old = cached.cache.snapshot();
    let writing = store.clone();
    cached.run(|platform| async move {
        writing.note_mark(volume(1), version(1, 3), &[]);
        write_block(&platform, &writing, key(1, 0), 3, version(1, 5), 30).await.unwrap();
        writing.checkpoint().await.unwrap();
        write_block(&platform, &writing, key(1, 0), 2, version(1, 6), 31).await.unwrap();
    });
    cached.machine.power_cycle();
    cached.cache.restore(old);
    let (store, report) = cached.attach().unwrap();
    assert!(report.area_lost, "its journal does not go on from there");
    assert_eq!(proven_and_lost(&store), (Some(version(1, 3)), 0));
    let seen = contents(&cached, &store);
    assert_eq!(seen[..3], [10, 11, 12].map(Seen::Content), "what has not changed since is whole");
    assert!(seen[3].is_damaged(), "what has shows: {seen:?}");
    let writing = store.clone();
    cached.run(|platform| async move {
        write_block(&platform, &writing, key(1, 0), 0, version(1, 7), 40).await.unwrap();
    });
    assert_eq!(store.cache_use().blocks_dirty, 4, "it is used all the same");
    cached.machine.power_cycle();
    let (store, report) = cached.attach().unwrap();
    assert!(!report.area_lost);
    assert_eq!(contents(&cached, &store)[0], Seen::Content(40));
}

/// The first root of a binding already says what stands in the area.
#[test]
fn an_image_of_the_cache_drive_from_before_the_first_write_is_not_trusted() {
    let cached = CachedMachine::formatted(1, drive_config(24));
    cached.run(|platform| async move {
        let cache = CacheDrive::attach(&platform, open_cache(&platform).await, 0).await.unwrap();
        cache.bind(format_options().drive, CHUNKS).await.unwrap();
    });
    let old = cached.cache.snapshot();
    cached.machine.restart();
    let (store, _) = cached.attach().unwrap();
    cached.run(|platform| async move {
        add_slab(&store, key(1, 0), copy(1)).await.unwrap();
        write_block(&platform, &store, key(1, 0), 0, version(1, 1), 10).await.unwrap();
    });
    cached.machine.power_cycle();
    cached.cache.restore(old);
    let (_, report) = cached.attach().unwrap();
    assert!(report.area_lost, "what was written is not there");
}

/// The attach that gives a journal up goes on in the same area, with a number that groups there have already.
#[test]
fn what_an_area_of_another_time_holds_is_not_taken_for_groups_that_are_missing() {
    let (cached, store) = with_four_blocks();
    cached.run(|_| async move { store.checkpoint().await.unwrap() });
    let (old_capacity, old_cache) = cached.snapshot();
    cached.machine.restart();
    let (store, _) = cached.attach().unwrap();
    let write = |store: &crate::test_support::Store, counters: std::ops::Range<u64>| {
        let store = store.clone();
        cached.run(|platform| async move {
            for counter in counters {
                let version = version(1, counter);
                write_block(&platform, &store, key(1, 0), 9, version, counter).await.unwrap();
            }
        });
    };
    write(&store, 5..25);
    // What was there when the capacity drive was as old as it will be is gone, and what came later is not.
    let journal_bytes = store.inner.layout.journal_bytes() as usize;
    let journal = store.inner.media.area().unwrap().places(0, journal_bytes)[0];
    let mut cache = cached.cache.snapshot();
    for offset in (journal.0..journal.0 + journal.1 as u64).step_by(512) {
        if old_cache.read_vec(offset, 512).iter().any(|byte| *byte != 0) {
            cache.write(offset, &[0; 512]);
        }
    }
    cached.machine.restart();
    cached.machine.drive.restore(old_capacity);
    cached.cache.restore(cache);
    let (store, report) = cached.attach().unwrap();
    assert!(report.area_lost && store.attach_number() > 2, "{report:?}");
    write(&store, 5..7);
    cached.machine.power_cycle();
    let (store, report) = cached.attach().unwrap();
    assert_eq!((report.area_lost, report.structures_damaged), (false, 0));
    let slot = store.find_slab(volume(1), SlabIndex(0)).unwrap().slot;
    assert_eq!(cached.run(|_| async move { read_all(&store, slot, 10).await })[9], Seen::Content(6));
}

#[test]
fn a_drive_can_be_bound_when_it_holds_data_already() {
    let cached = CachedMachine::formatted(1, drive_config(24));
    let (store, _) = cached.machine.attach().unwrap();
    cached.run(|platform| async move {
        add_slab(&store, key(1, 0), copy(1)).await.unwrap();
        for block in 0..4 {
            let version = version(1, u64::from(block) + 1);
            write_block(&platform, &store, key(1, 0), block, version, 10 + u64::from(block)).await.unwrap();
        }
    });
    Machine::power_cycle(&cached.machine);
    let (store, report) = cached.attach().unwrap();
    assert_eq!((report.unproven.len(), report.area_lost), (0, false));
    assert_eq!(contents(&cached, &store), [10, 11, 12, 13].map(Seen::Content));
    cached.machine.power_cycle();
    let (store, _) = cached.attach().unwrap();
    assert_eq!(contents(&cached, &store), [10, 11, 12, 13].map(Seen::Content));
}
