use futures_util::future::{join, join_all};
use spandrel_platform_simulated::{RunEnd, SimulatedDriveConfig};

use super::*;
use crate::test_support::machine::{Machine, add_slab, write_block, write_blocks};
use crate::test_support::observation::{Seen, check_ownership, observe, read_all};
use crate::test_support::oracle::Oracle;
use crate::test_support::script::{Runner, Step};
use crate::test_support::{copy, drive_config, key, version, volume};

#[test]
fn what_was_written_is_read_and_counted() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    machine.run(|platform| async move {
        let slab = key(1, 0);
        let slot = add_slab(&store, slab, copy(1)).await.unwrap();
        write_blocks(&platform, &store, slab, 510, version(1, 1), &[7, 8, 9]).await.unwrap();
        store.trim(slot, 511, 1, version(1, 2)).await.unwrap();
        let seen = read_all(&store, slot, 1024).await;
        assert_eq!(seen[509..514], [Seen::Hole, Seen::Content(7), Seen::Hole, Seen::Content(9), Seen::Hole]);
        let pages = store.pages(slot).unwrap();
        assert_eq!((pages[0].version, pages[0].mapped_blocks), (version(1, 2), 1));
        assert_eq!((pages[1].version, pages[1].mapped_blocks), (version(1, 1), 1));
        assert_eq!(store.slabs(), [store.find_slab(slab.0, slab.1).unwrap()]);
        assert_eq!(store.slabs()[0].mapped_blocks, 2);
        assert_eq!(store.statistics().blocks_written, 3);
        check_ownership(&store);
    });
}

/// One write goes to many places if there is no longer run of free blocks.
#[test]
fn a_write_to_a_fragmented_drive_is_read_as_it_was_written() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    let layout = store.superblock().layout;
    let contents: Vec<u64> = (100..140).collect();
    let written = contents.clone();
    machine.run(|platform| async move {
        let slab = key(1, 0);
        let slot = add_slab(&store, slab, copy(1)).await.unwrap();
        // Free are runs of one, two and three blocks.
        let taken = (layout.data_first_block..layout.data_end_block())
            .filter(|block| [0, 2, 5].contains(&(block % 9)));
        store.inner.with_allocator(|allocator| taken.for_each(|block| _ = allocator.take(block)));
        write_blocks(&platform, &store, slab, 500, version(1, 1), &written).await.unwrap();
        let seen = read_all(&store, slot, 1024).await;
        assert_eq!(seen[500..540], written.iter().map(|content| Seen::Content(*content)).collect::<Vec<_>>());
    });
    machine.power_cycle();
    let (store, _) = machine.attach().unwrap();
    machine.run(|_| async move {
        let slot = store.find_slab(volume(1), SlabIndex(0)).expect("it is there").slot;
        let seen = read_all(&store, slot, 1024).await;
        assert_eq!(
            seen[500..540],
            contents.iter().map(|content| Seen::Content(*content)).collect::<Vec<_>>()
        );
    });
}

#[test]
fn what_is_not_there_is_not_found() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    machine.run(|platform| async move {
        let slot = add_slab(&store, key(1, 0), copy(1)).await.unwrap();
        let elsewhere = SlabSlot(99);
        let data = platform.buffers().take_zeroed(BLOCK_BYTES).freeze();
        for (slot, first, count) in [(elsewhere, 0, 1), (slot, 1024, 1), (slot, 0, 0), (slot, u32::MAX, 2)] {
            let checksums = vec![0; count.min(1) as usize];
            let write = data.slice(0..BLOCK_BYTES * checksums.len());
            let written = store.write(slot, first, version(1, 1), write, checksums.into()).await;
            assert_eq!(written, Err(StoreError::NotFound));
            assert_eq!(store.trim(slot, first, count, version(1, 1)).await, Err(StoreError::NotFound));
            assert!(matches!(store.read(slot, first, count).await, Err(StoreError::NotFound)));
            assert_eq!(store.scrub(slot, first, count).await, Err(StoreError::NotFound));
            assert_eq!(store.block_states(slot, first, count).await, Err(StoreError::NotFound));
        }
        assert_eq!(store.remove_slab(elsewhere).await, Err(StoreError::NotFound));
        assert_eq!(store.pages(elsewhere), Err(StoreError::NotFound));
        assert_eq!(store.fence(volume(2), Epoch(1)).await, Err(StoreError::NotFound));
        assert_eq!(store.set_page_version(slot, 2, version(1, 1), true).await, Err(StoreError::NotFound));
        assert_eq!(store.fence_epoch(volume(2)), Epoch::ZERO);
        assert_eq!(store.mark(volume(2)), Version::ZERO);
        check_ownership(&store);
    });
}

#[test]
fn a_fence_is_durable_and_never_goes_back() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    machine.run(|_| async move {
        add_slab(&store, key(1, 0), copy(1)).await.unwrap();
        store.fence(volume(1), Epoch(5)).await.unwrap();
        store.fence(volume(1), Epoch(3)).await.unwrap();
        assert_eq!(store.fence_epoch(volume(1)), Epoch(5));
    });
    machine.power_cycle();
    let (store, _) = machine.attach().unwrap();
    assert_eq!(store.fence_epoch(volume(1)), Epoch(5));
}

/// Also one that brings nothing new: an owner that begins a resync anew relies on it.
#[test]
fn a_fence_follows_all_changes_that_were_asked_for_before_it() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    machine.run(|platform| async move {
        add_slab(&store, key(1, 0), copy(1)).await.unwrap();
        store.fence(volume(1), Epoch(5)).await.unwrap();
        let written = std::cell::Cell::new(false);
        let write = async {
            write_block(&platform, &store, key(1, 0), 0, version(5, 1), 7).await.unwrap();
            written.set(true);
        };
        let fence = async {
            store.fence(volume(1), Epoch(5)).await.unwrap();
            assert!(written.get());
        };
        join(write, fence).await;
    });
}

#[test]
fn what_a_resync_brings_is_no_write_of_the_volume() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    let (slab, filled) = (key(1, 0), store.clone());
    let slot = machine.run(|platform| async move {
        let slot = add_slab(&filled, slab, copy(1)).await.unwrap();
        write_blocks(&platform, &filled, slab, 0, version(1, 9), &[5, 6, 7, 8]).await.unwrap();
        filled.note_mark(slab.0, version(1, 9), &[]);
        let mut data = platform.buffers().take(BLOCK_BYTES);
        crate::test_support::observation::fill(50, &mut data);
        let checksums = crate::test_support::script::checksums(slab, 0, &data);
        filled.fill(slot, 0, 1, Some((data.freeze(), checksums.into()))).await.unwrap();
        filled.fill(slot, 1, 1, None).await.unwrap();
        filled.lose(slot, 2).await.unwrap();
        assert_eq!(filled.lose(slot, 1024).await, Err(StoreError::NotFound));
        // So that a power cut leaves nothing to be judged.
        filled.fence(slab.0, Epoch(1)).await.unwrap();
        slot
    });
    let check = |machine: &Machine, store: crate::test_support::Store| {
        machine.run(|_| async move {
            let seen = read_all(&store, slot, 4).await;
            assert_eq!(seen[..2], [Seen::Content(50), Seen::Hole]);
            assert!(seen[2].is_damaged());
            assert_eq!(seen[3], Seen::Content(8));
            assert_eq!(store.block_states(slot, 2, 1).await, Ok(vec![BlockState::Lost]));
            assert_eq!(store.listed(slab.0), [], "nothing is above the mark");
            assert_eq!(store.pages(slot).unwrap()[0].version, version(1, 9));
            check_ownership(&store);
        });
    };
    check(&machine, store.clone());
    machine.power_cycle();
    let (store, _) = machine.attach().unwrap();
    // The mark was noted, but is in no group.
    store.note_mark(slab.0, version(1, 9), &[]);
    check(&machine, store.clone());
    machine.run(|platform| async move {
        write_block(&platform, &store, slab, 2, version(1, 10), 70).await.unwrap();
        assert_eq!(read_all(&store, slot, 4).await[2], Seen::Content(70), "a write makes it good");
    });
}

#[test]
fn a_slab_that_is_there_is_added_once_and_another_copy_replaces_it() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    machine.run(|platform| async move {
        let slab = key(1, 0);
        let first = add_slab(&store, slab, copy(1)).await.unwrap();
        assert_eq!(add_slab(&store, slab, copy(1)).await, Ok(first));
        write_block(&platform, &store, slab, 0, version(1, 1), 7).await.unwrap();
        let second = add_slab(&store, slab, copy(2)).await.unwrap();
        assert_ne!(first, second);
        assert_eq!(store.slabs().len(), 1);
        assert_eq!(read_all(&store, second, 1024).await[0], Seen::Hole);
        assert_eq!(store.pages(second).unwrap()[0].version, Version::ZERO);
        check_ownership(&store);
    });
}

/// A drive of 24 MiB has room for six slabs of 4 MiB in its tables.
#[test]
fn slabs_that_are_added_together_do_not_exceed_the_tables() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    let max = store.superblock().layout.slab_count_max;
    machine.run(|_| async move {
        let adds = (0..3 * max).map(|number| {
            let store = store.clone();
            async move { add_slab(&store, key(number as u8, 0), copy(number.into())).await }
        });
        let added = join_all(adds).await;
        assert_eq!(added.iter().filter(|result| result.is_ok()).count() as u32, max);
        assert!(added.iter().all(|result| result.is_ok() || *result == Err(StoreError::NoRoom)));
        assert_eq!(store.volumes().len() as u32, max);
        store.checkpoint().await.unwrap();
    });
}

/// The slabs of a volume come and go at the same time, so that its last one is removed while
/// another one is on its way.
#[test]
fn a_slab_that_comes_while_the_last_one_goes_is_there() {
    for round in 0..4 {
        let (machine, store) = Machine::attached(round, drive_config(24));
        let image = machine.run(|_| async move {
            let gone = add_slab(&store, key(1, 0), copy(1)).await.unwrap();
            store.fence(volume(1), Epoch(4)).await.unwrap();
            let remove = store.remove_slab(gone);
            let add = add_slab(&store, key(1, 1), copy(2));
            let (removed, added) = if round % 2 == 0 {
                join(remove, add).await
            } else {
                let (added, removed) = join(add, remove).await;
                (removed, added)
            };
            removed.unwrap();
            let slot = added.unwrap();
            assert_eq!(store.find_slab(volume(1), SlabIndex(1)).unwrap().slot, slot);
            assert_eq!(store.volumes(), [volume(1)]);
            if round >= 2 {
                store.checkpoint().await.unwrap();
            }
            observe(&store).await
        });
        machine.power_cycle();
        let (store, _) = machine.attach().unwrap();
        let again = machine.run(|_| async move { observe(&store).await });
        assert_eq!((again.slabs, again.volumes), (image.slabs, image.volumes));
    }
}

#[test]
fn volumes_without_slabs_are_forgotten() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    machine.run(|_| async move {
        // Two slabs each that go at the same time: neither is the last one when it is asked for.
        for round in 0..40 {
            let volume = 1 + round % 20;
            let one = add_slab(&store, key(volume, 0), copy(2 * u64::from(round))).await.unwrap();
            let two = add_slab(&store, key(volume, 1), copy(2 * u64::from(round) + 1)).await.unwrap();
            let (one, two) = join(store.remove_slab(one), store.remove_slab(two)).await;
            one.and(two).unwrap();
            assert_eq!(store.volumes(), []);
            if round % 3 == 0 {
                store.checkpoint().await.unwrap();
            }
        }
        store.checkpoint().await.unwrap();
        let state = store.inner.state.borrow();
        assert_eq!((state.volumes.taken(), state.slabs.taken()), (0, 0));
    });
}

#[test]
fn a_write_to_a_slab_that_goes_leaves_no_block_behind() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    machine.run(|platform| async move {
        let slab = key(1, 0);
        let slot = add_slab(&store, slab, copy(1)).await.unwrap();
        let before = store.used_blocks();
        let remove = store.remove_slab(slot);
        let write = write_block(&platform, &store, slab, 3, version(1, 1), 5);
        let (removed, written) = join(remove, write).await;
        removed.and(written).unwrap();
        assert_eq!(store.used_blocks(), before);
        check_ownership(&store);
    });
}

#[test]
fn a_heal_replaces_what_was_found_damaged_and_nothing_newer() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    let drive = machine.drive.clone();
    machine.run(|platform| async move {
        let slab = key(1, 0);
        let slot = add_slab(&store, slab, copy(1)).await.unwrap();
        write_blocks(&platform, &store, slab, 0, version(1, 1), &[5, 6]).await.unwrap();
        for block in 0..2 {
            let mapping = store.inner.state.borrow().slabs.get(slot.0).unwrap().mapping(block);
            drive.flip_bit(u64::from(mapping.block) * 4096 + 77, 1);
        }
        let damaged = store.scrub(slot, 0, 1024).await.unwrap();
        assert_eq!(damaged.iter().map(|damaged| damaged.block).collect::<Vec<_>>(), [0, 1]);
        write_block(&platform, &store, slab, 0, version(1, 2), 50).await.unwrap();
        assert_eq!(store.heal(slot, damaged[0], None).await, Ok(false));
        assert_eq!(store.heal(slot, damaged[1], None).await, Ok(true));
        let seen = read_all(&store, slot, 2).await;
        assert_eq!(seen, [Seen::Content(50), Seen::Hole]);
        assert_eq!(store.pages(slot).unwrap()[0].version, version(1, 2), "a heal is no write");
        let statistics = store.statistics();
        assert_eq!((statistics.blocks_damaged, statistics.blocks_healed), (2, 1));
    });
}

/// Only what was answered must be there; the store ends what is under way before it says that the
/// drive is free.
#[test]
fn a_detach_waits_for_what_is_under_way() {
    for seed in 0..20 {
        let (machine, store) = Machine::attached(seed, drive_config(24));
        let runner = Runner::new(machine.platform(), store.clone(), machine.drive.clone(), Oracle::default());
        let busy = runner.clone();
        machine.process().spawn(async move {
            busy.run(&[Step::Add(key(1, 0)), Step::Join]).await;
            // Each waits for the one before it on its block, so that there are many groups.
            let writes: Vec<Step> = (0..600).map(|step| Step::Write(key(1, 0), step % 7, 1)).collect();
            busy.run(&writes).await;
        });
        let oracle = Rc::clone(&runner.oracle);
        let end = machine.world.run_until(|| oracle.borrow().fact_count() > 5);
        assert_eq!(end, RunEnd::ConditionMet);
        machine.run(|platform| async move {
            store.detach().await.unwrap();
            assert!(matches!(store.failure(), Some(StoreError::Failed(_))));
            assert!(matches!(store.checkpoint().await, Err(StoreError::Failed(_))));
            drop(platform);
        });
        assert_eq!(machine.drive.unflushed_writes(), [], "nothing is under way");
        let before = machine.drive.counters();
        machine.run(move |_| async move { runner.join().await });
        assert_eq!(machine.drive.counters(), before);
        machine.restart();
        let (store, _) = machine.attach().unwrap();
        let oracle = oracle.borrow().clone();
        machine.run(|_| async move { oracle.settle(&observe(&store).await) });
    }
}

#[test]
fn requests_whose_callers_stop_waiting_do_no_harm() {
    let (machine, store) = Machine::attached(3, drive_config(24));
    machine.run(|platform| async move {
        let slab = key(1, 0);
        let slot = add_slab(&store, slab, copy(1)).await.unwrap();
        for counter in 1..40 {
            let task = {
                let (platform, store) = (platform.clone(), store.clone());
                async move {
                    let _ = write_block(&platform, &store, slab, 7, version(1, counter), counter).await;
                    let _ = store.checkpoint().await;
                }
            };
            let handle = platform.spawn(task);
            let read = store.read(slot, 0, 16);
            let wait = platform.sleep(std::time::Duration::from_micros(counter * 37));
            futures_util::future::select(std::pin::pin!(read), std::pin::pin!(wait)).await;
            handle.abort();
        }
        write_block(&platform, &store, slab, 7, version(1, 100), 1000).await.unwrap();
        store.checkpoint().await.unwrap();
        assert_eq!(read_all(&store, slot, 16).await[7], Seen::Content(1000));
        check_ownership(&store);
    });
}

#[test]
fn a_full_drive_refuses_writes_until_blocks_are_free() {
    for sector_bytes in [512, 4096] {
        let config = SimulatedDriveConfig { sector_bytes, ..drive_config(12) };
        let (machine, store) = Machine::attached(1, config);
        machine.run(|platform| async move {
            let slabs = [key(1, 0), key(1, 1), key(1, 2)];
            for (number, slab) in (0..).zip(slabs) {
                add_slab(&store, slab, copy(number)).await.unwrap();
            }
            let mut counter = 0;
            let mut written = Vec::new();
            'full: for slab in slabs {
                for block in 0..1024 {
                    counter += 1;
                    match write_block(&platform, &store, slab, block, version(1, counter), counter).await {
                        Ok(()) => written.push((slab, block, counter)),
                        Err(error) => {
                            assert_eq!(error, StoreError::NoRoom);
                            break 'full;
                        }
                    }
                    store.note_mark(slab.0, version(1, counter), &[]);
                }
            }
            assert!(written.len() > 1900, "only {} blocks fit", written.len());
            store.checkpoint().await.unwrap();
            // Every page is dirty once more, and the checkpoint must find places for all of them.
            for slab in store.slabs() {
                for page in 0..2 {
                    store.set_page_version(slab.slot, page, version(2, 1), false).await.unwrap();
                }
            }
            store.checkpoint().await.unwrap();
            let slab = key(1, 0);
            let slot = store.find_slab(slab.0, slab.1).unwrap().slot;
            let trimmed = store.trim(slot, 0, 40, version(1, counter + 1)).await;
            assert_eq!(trimmed, Ok(()), "a full drive can be trimmed");
            written.drain(..40);
            write_block(&platform, &store, slab, 7, version(1, counter + 2), 1 << 40).await.unwrap();
            written.push((slab, 7, 1 << 40));
            check_ownership(&store);
            for slab in store.slabs() {
                let seen = read_all(&store, slab.slot, 1024).await;
                let here = written.iter().filter(|(key, _, _)| *key == (slab.volume, slab.slab));
                for (_, block, content) in here {
                    assert_eq!(seen[*block as usize], Seen::Content(*content));
                }
            }
        });
    }
}

#[test]
fn a_damaged_block_is_known_again_by_its_token() {
    for mapping in [(7, 0x1234_5678), (u32::MAX - 2, u32::MAX), (1, 1)] {
        let mapping = Mapping { block: mapping.0, checksum: mapping.1 };
        let damaged = DamagedBlock { block: 3, mapping };
        assert_eq!(DamagedBlock::from_token(3, damaged.token()), damaged);
    }
}

/// None of those who have given up waiting comes behind the one who has got an answer.
#[test]
fn of_several_copies_at_one_place_the_last_one_stays() {
    for seed in 1..20 {
        let (machine, store) = Machine::attached(seed, drive_config(24));
        machine.run(|platform| async move {
            for number in 1..=3 {
                let soon = platform.now() + Duration::from_micros(number * 7);
                let adding = add_slab(&store, key(1, 0), copy(number));
                assert!(before(&platform, soon, adding).await.is_none(), "no drive is so fast");
            }
            let slot = add_slab(&store, key(1, 0), copy(9)).await.unwrap();
            let found = store.find_slab(volume(1), SlabIndex(0)).unwrap();
            assert_eq!((found.slot, found.copy), (slot, copy(9)));
            platform.sleep(Duration::from_secs(2)).await;
            assert_eq!(store.slab_copies(), [(volume(1), SlabIndex(0), copy(9))]);
            store.checkpoint().await.unwrap();
            check_ownership(&store);
        });
    }
}

#[test]
fn a_store_that_stops_waits_for_no_copy_that_waits_for_another_one() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    machine.run(|platform| async move {
        let adds = [1, 2].map(|number| {
            let store = store.clone();
            async move { add_slab(&store, key(1, 0), copy(number)).await }
        });
        let stopping = async {
            platform.sleep(Duration::from_micros(1)).await;
            store.stop("for a test").await;
        };
        let (added, ()) = join(join_all(adds), stopping).await;
        // What was under way when it stopped may have come.
        assert_eq!(added[1].as_ref().err(), store.failure().as_ref(), "{added:?}");
        assert_eq!(add_slab(&store, key(1, 1), copy(3)).await.err(), store.failure());
    });
}

/// Its owner has given up waiting and asks again: a drive that has the copy twice would find only one of them again.
#[test]
fn a_slab_that_is_added_again_while_it_is_on_its_way_comes_once() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    let adding = store.clone();
    machine.run(|platform| async move {
        let soon = platform.now() + Duration::from_micros(1);
        let first = before(&platform, soon, add_slab(&adding, key(1, 0), copy(1))).await;
        assert!(first.is_none(), "no drive is so fast");
        let slot = add_slab(&adding, key(1, 0), copy(1)).await.unwrap();
        assert_eq!(adding.slab_copies(), [(volume(1), SlabIndex(0), copy(1))]);
        let soon = platform.now() + Duration::from_micros(1);
        assert!(before(&platform, soon, add_slab(&adding, key(1, 0), copy(2))).await.is_none());
        let other = add_slab(&adding, key(1, 0), copy(3)).await.unwrap();
        assert_ne!(slot, other);
        assert_eq!(adding.slab_copies(), [(volume(1), SlabIndex(0), copy(3))], "in place of the former ones");
    });
    machine.power_cycle();
    let (store, _) = machine.attach().unwrap();
    assert_eq!(store.slab_copies(), [(volume(1), SlabIndex(0), copy(3))]);
    let removing = store.clone();
    machine.run(|_| async move {
        let slot = removing.find_slab(volume(1), SlabIndex(0)).unwrap().slot;
        removing.remove_slab(slot).await.unwrap();
    });
    assert_eq!(store.slab_count(), 0);
}
