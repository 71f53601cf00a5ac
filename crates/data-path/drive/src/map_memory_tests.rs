use spandrel_platform_simulated::{Random, Repeat, Room};
use spandrel_shared::SlabIndex;

use super::*;
use crate::format::journal::MappingRecord;
use crate::layout::Layout;
use crate::test_support::cached::CachedMachine;
use crate::test_support::machine::{Machine, add_slab, preallocated, write_block, write_blocks};
use crate::test_support::observation::{
    Seen, bound, check_map_memory, check_ownership_of_all, observe, read_all,
};
use crate::test_support::{
    Store, copy, drive_config, key, next_map_memory, vary_map_memory, version, volume,
};
use crate::{CacheChoice, ReadPart, SlabSlot};

const LEAF: u64 = BLOCK_BYTES as u64;

/// Slabs of the volume, of two pages each.
const SLABS: u32 = 4;

/// A drive on which one block in each page is written, the counter of its write, and all of that is in the maps.
fn written() -> (Machine, Store) {
    let (machine, store) = Machine::attached(1, drive_config(48));
    let writing = store.clone();
    machine.run(|platform| async move {
        for slab in 0..SLABS {
            add_slab(&writing, key(1, slab), copy(u64::from(slab))).await.unwrap();
        }
        for page in 0..2 * SLABS {
            let (slab, block, counter) = (key(1, page / 2), page % 2 * PAGE_BLOCKS + 7, u64::from(page) + 1);
            write_block(&platform, &writing, slab, block, version(1, counter), counter).await.unwrap();
        }
        writing.checkpoint().await.unwrap();
    });
    (machine, store)
}

fn slot(store: &Store, slab: u32) -> SlabSlot {
    store.find_slab(volume(1), SlabIndex(slab)).expect("it was added").slot
}

/// Completes when so few leaves are in memory, where no more are needed.
async fn bound_to(store: &Store, leaves_max: usize) {
    bound(store, Some(leaves_max as u64 * LEAF)).await;
    store.inner.progress.wait_until(|| leaves(store) <= leaves_max).await;
    check_map_memory(store);
}

fn bounded_to(machine: &Machine, store: &Store, leaves_max: usize) {
    let store = store.clone();
    machine.run(|_| async move { bound_to(&store, leaves_max).await });
}

fn leaves(store: &Store) -> usize {
    store.inner.state.borrow().map_memory.leaves()
}

#[test]
fn leaves_beyond_what_is_allowed_are_evicted_and_read_back_when_they_are_needed() {
    let (machine, store) = written();
    assert_eq!(leaves(&store), 2 * SLABS as usize);
    assert_eq!(store.map_memory_bytes(), 2 * u64::from(SLABS) * LEAF);
    bounded_to(&machine, &store, 3);
    assert_eq!(leaves(&store), 3);
    machine.run(|_| async move {
        for page in (0..2 * SLABS).chain(0..2 * SLABS) {
            let block = page % 2 * PAGE_BLOCKS + 7;
            let parts = store.read(slot(&store, page / 2), block, 1).await.unwrap();
            assert!(matches!(parts[..], [ReadPart::Data { .. }]), "{parts:?}");
            assert!(leaves(&store) <= 3);
        }
        assert!(store.statistics().leaves_read >= 13, "{:?}", store.statistics());
        check_ownership_of_all(&store).await;
        // All of it may be in memory: what is read back stays.
        bound(&store, None).await;
        for slab in 0..SLABS {
            read_all(&store, slot(&store, slab), 2 * PAGE_BLOCKS).await;
        }
        let read = store.statistics().leaves_read;
        read_all(&store, slot(&store, 0), 2 * PAGE_BLOCKS).await;
        assert_eq!((store.statistics().leaves_read, leaves(&store)), (read, 2 * SLABS as usize));
    });
}

/// A second chance: who is asked again and again stays, while others come and go.
#[test]
fn a_leaf_that_is_needed_often_stays() {
    let (machine, store) = written();
    bounded_to(&machine, &store, 3);
    machine.run(|_| async move {
        for page in 1..2 * SLABS {
            store.read(slot(&store, 0), 7, 1).await.unwrap();
            store.read(slot(&store, page / 2), page % 2 * PAGE_BLOCKS + 7, 1).await.unwrap();
        }
        let read = store.statistics().leaves_read;
        store.read(slot(&store, 0), 7, 1).await.unwrap();
        assert_eq!(store.statistics().leaves_read, read);
    });
}

/// The map says what a write has replaced: its block is free again, though its leaf was evicted.
#[test]
fn a_change_of_an_evicted_leaf_changes_what_stands_on_the_drive() {
    let (machine, store) = written();
    bounded_to(&machine, &store, 1);
    let changing = store.clone();
    machine.run(|platform| async move {
        let store = changing;
        for page in 0..2 * SLABS {
            let (slab, first, counter) = (key(1, page / 2), page % 2 * PAGE_BLOCKS, u64::from(page) + 100);
            write_blocks(&platform, &store, slab, first + 6, version(1, counter), &[counter; 3])
                .await
                .unwrap();
            store.trim(slot(&store, page / 2), first + 8, 1, version(1, counter + 1)).await.unwrap();
        }
        // A slab whose leaves are evicted is removed.
        store.checkpoint().await.unwrap();
        store.remove_slab(slot(&store, 2)).await.unwrap();
        check_ownership_of_all(&store).await;
    });
    machine.power_cycle();
    for bytes_max in [None, Some(LEAF)] {
        machine.restart();
        let (store, report) = machine.attach().unwrap();
        assert_eq!((report.structures_damaged, report.blocks_lost), (0, 0));
        machine.run(|_| async move {
            bound(&store, bytes_max).await;
            for slab in [0, 1, 3] {
                let seen = read_all(&store, slot(&store, slab), 2 * PAGE_BLOCKS).await;
                for page in [0, 1] {
                    let content = Seen::Content(u64::from(2 * slab + page) + 100);
                    let first = (page * PAGE_BLOCKS) as usize;
                    assert_eq!(seen[first + 5..first + 9], [Seen::Hole, content, content, Seen::Hole]);
                }
            }
            check_ownership_of_all(&store).await;
        });
    }
}

/// Nothing is evicted that the drive does not hold: when all leaves have changed, a checkpoint comes first.
#[test]
fn changes_wait_for_a_checkpoint_when_all_leaves_have_changed() {
    let (machine, store) = written();
    bounded_to(&machine, &store, 2);
    let before = store.statistics();
    machine.run(|platform| async move {
        for round in 0..10 {
            for page in 0..2 * SLABS {
                let (slab, block) = (key(1, page / 2), page % 2 * PAGE_BLOCKS + 9);
                let counter = u64::from(round * 2 * SLABS + page) + 100;
                write_block(&platform, &store, slab, block, version(1, counter), counter).await.unwrap();
                assert!(leaves(&store) <= 3, "{} leaves", leaves(&store));
            }
        }
        let after = store.statistics();
        assert!(after.checkpoints - before.checkpoints >= 20, "{after:?}");
        assert!(after.leaves_read - before.leaves_read >= 60, "{after:?}");
    });
}

/// A leaf that has rotted since it was evicted: its page is lost here, block by block, and can be healed.
#[test]
fn a_leaf_that_cannot_be_read_back_loses_its_page_alone() {
    let (machine, store) = written();
    let leaf = store.inner.state.borrow().slabs.get(slot(&store, 1).0).unwrap().pages[1].entry.leaf;
    machine.drive.flip_bit(Layout::offset_of(leaf.block) + 77, 1);
    bounded_to(&machine, &store, 1);
    let reading = store.clone();
    machine.run(|platform| async move {
        let store = reading;
        let damaged = store.statistics().structures_damaged;
        let seen = read_all(&store, slot(&store, 1), 2 * PAGE_BLOCKS).await;
        assert_eq!(seen[7], Seen::Content(3), "the other page is whole");
        assert!(seen[PAGE_BLOCKS as usize..].iter().all(|seen| seen.is_lost()));
        assert_eq!(store.statistics().structures_damaged, damaged + 1);
        let pages = store.pages(slot(&store, 1)).unwrap();
        assert_eq!((pages[0].lost_blocks, pages[1].lost_blocks), (0, PAGE_BLOCKS as u16));
        // What is written again is known again.
        let block = PAGE_BLOCKS + 7;
        write_block(&platform, &store, key(1, 1), block, version(1, 100), 100).await.unwrap();
        store.checkpoint().await.unwrap();
        read_all(&store, slot(&store, 3), 2 * PAGE_BLOCKS).await;
        let seen = read_all(&store, slot(&store, 1), 2 * PAGE_BLOCKS).await;
        assert_eq!(seen[block as usize], Seen::Content(100));
        assert!(seen[block as usize + 1].is_lost());
    });
    machine.power_cycle();
    let (store, report) = machine.attach().unwrap();
    assert_eq!(report.structures_damaged, 0, "the damaged leaf was replaced");
    machine.run(|_| async move { check_ownership_of_all(&store).await });
}

/// Two who need the same leaf at the same time, and a third who changes it.
#[test]
fn a_leaf_that_several_read_back_at_once_is_taken_once() {
    let (machine, store) = written();
    bounded_to(&machine, &store, 1);
    machine.run(|platform| async move {
        for round in 0..40 {
            let slab = round % SLABS;
            let counter = u64::from(round) + 100;
            let read = || store.read(slot(&store, slab), 7, 1);
            let write = write_block(&platform, &store, key(1, slab), 7, version(1, counter), counter);
            let (one, written, other) = futures_util::future::join3(read(), write, read()).await;
            written.unwrap();
            assert!(matches!(one.unwrap()[..], [ReadPart::Data { .. }]));
            assert!(matches!(other.unwrap()[..], [ReadPart::Data { .. }]));
            let seen = read_all(&store, slot(&store, slab), PAGE_BLOCKS).await;
            assert_eq!(seen[7], Seen::Content(counter));
        }
        check_ownership_of_all(&store).await;
    });
}

/// A bound can come, go and change while groups are under way, some of which it has to wait for.
#[test]
fn a_bound_comes_and_goes_while_much_is_written() {
    for seed in 0..8 {
        let (machine, store) = written();
        let random = Random::new(seed);
        machine.run(|platform| async move {
            let writers = (0..2 * SLABS).map(|page| {
                let (platform, store) = (platform.clone(), store.clone());
                async move {
                    for round in 0..30 {
                        let counter = u64::from(round * 2 * SLABS + page) + 100;
                        let (slab, first) = (key(1, page / 2), page % 2 * PAGE_BLOCKS + 20 + 3 * round);
                        let contents = [counter; 3];
                        write_blocks(&platform, &store, slab, first, version(1, counter), &contents)
                            .await
                            .unwrap();
                    }
                }
            });
            let bounds = async {
                for _ in 0..100 {
                    platform.sleep(Duration::from_micros(random.below(300))).await;
                    let leaves_max = random.below(6);
                    store.allow_map_memory((leaves_max > 0).then_some(leaves_max * LEAF));
                    check_map_memory(&store);
                }
            };
            futures_util::future::join(join_all(writers), bounds).await;
            check_ownership_of_all(&store).await;
            for slab in 0..SLABS {
                let seen = read_all(&store, slot(&store, slab), 2 * PAGE_BLOCKS).await;
                for (page, round) in (0..2).flat_map(|page| (0..30).map(move |round| (page, round))) {
                    let counter = u64::from(round * 2 * SLABS + 2 * slab + page) + 100;
                    let first = (page * PAGE_BLOCKS + 20 + 3 * round) as usize;
                    assert_eq!(seen[first..first + 3], [Seen::Content(counter); 3]);
                }
            }
        });
    }
}

/// What the evicted leaves of a slab map is free again some time after its removal, or its trim.
#[test]
fn what_is_given_up_with_evicted_leaves_is_free_again() {
    for is_trimmed in [false, true] {
        let (machine, store) = written();
        bounded_to(&machine, &store, 1);
        let used = store.used_blocks();
        machine.run(|_| async move {
            for slab in 0..SLABS {
                match is_trimmed {
                    true => {
                        let counter = 100 + u64::from(slab);
                        let slot = slot(&store, slab);
                        store.trim(slot, 0, 2 * PAGE_BLOCKS, version(1, counter)).await.unwrap();
                    }
                    false => store.remove_slab(slot(&store, slab)).await.unwrap(),
                }
            }
            check_ownership_of_all(&store).await;
            // The map pages are free when the root is durable that does not name them.
            store.checkpoint().await.unwrap();
            check_ownership_of_all(&store).await;
            let slab_roots = if is_trimmed { SLABS } else { 0 };
            assert_eq!((used, store.used_blocks()), (2 * 2 * SLABS + SLABS, slab_roots));
        });
    }
}

/// Of what is given up nothing need be known at once; of what is written, the rest of the page stays.
#[test]
fn a_change_needs_the_leaves_of_which_it_leaves_a_part() {
    let trim = |first, count| Record::Trim { slab_slot: 3, first, count, counter: 1 };
    let page = PAGE_BLOCKS;
    for (first, count, pages) in [
        (0, page, vec![]),
        (0, 4 * page, vec![]),
        (1, page - 1, vec![0]),
        (0, page + 1, vec![1]),
        (page - 1, page + 1, vec![0]),
        (page - 1, page + 2, vec![0, 2]),
        (7, 1, vec![0]),
    ] {
        assert_eq!(pages_changed_in_part(&trim(first, count)), pages, "{first}, {count}");
    }
    let lost = Record::Heal(MappingRecord::lost(3, 2 * page));
    assert_eq!(pages_changed_in_part(&lost), [2]);
    assert_eq!(pages_changed_in_part(&Record::SlabRemove { slab_slot: 3 }), []);
}

/// A checkpoint can end before a leaf was read for what it mapped: the place is not free then.
#[test]
fn the_place_of_a_leaf_that_is_still_to_be_read_stays_taken() {
    let mut given_up = GivenUp::default();
    let mut retired = vec![7, 8];
    assert_eq!((given_up.take_unread(&mut retired), &retired[..]), (vec![], &[7, 8][..]));
    for block in [5, 8, 3] {
        given_up.add(PagePointer { block, checksum: 1 });
    }
    let mut retired = vec![3, 7, 8, 9];
    assert_eq!((given_up.take_unread(&mut retired), &retired[..]), (vec![3, 8], &[7, 9][..]));
    given_up.remove_first(2);
    let mut retired = vec![3, 8];
    assert_eq!((given_up.take_unread(&mut retired), &retired[..]), (vec![3], &[8][..]));
    given_up.remove_first(1);
    assert!(given_up.is_empty());
}

/// What was written before there was a bound is in memory until a checkpoint; then the drive comes down by itself.
#[test]
fn a_drive_at_rest_comes_down_to_a_new_bound() {
    let (machine, store) = written();
    machine.run(|platform| async move {
        for page in 0..2 * SLABS {
            let (slab, block) = (key(1, page / 2), page % 2 * PAGE_BLOCKS + 9);
            let counter = u64::from(page) + 100;
            write_block(&platform, &store, slab, block, version(1, counter), counter).await.unwrap();
        }
        assert_eq!(store.inner.state.borrow().map_memory.counted(), [8, 8, 0]);
        bound_to(&store, 2).await;
        assert_eq!(leaves(&store), 2);
        check_ownership_of_all(&store).await;
    });
}

/// Where pages come and go, what was listed of them does not add up.
#[test]
fn the_list_is_never_much_longer_than_what_is_in_memory() {
    let (machine, store) = written();
    bounded_to(&machine, &store, 100);
    machine.run(|platform| async move {
        for round in 0..60 {
            let (trim, write) = (100 + 2 * round, 101 + 2 * round);
            for slab in 0..SLABS {
                store.trim(slot(&store, slab), 0, 2 * PAGE_BLOCKS, version(1, trim)).await.unwrap();
                write_block(&platform, &store, key(1, slab), 7, version(1, write), write).await.unwrap();
            }
            store.checkpoint().await.unwrap();
            store.remove_slab(slot(&store, 0)).await.unwrap();
            add_slab(&store, key(1, 0), copy(1000 + round)).await.unwrap();
        }
        let listed = store.inner.state.borrow().map_memory.evictable.borrow().len();
        assert!(listed <= 3 * 2 * SLABS as usize, "{listed}");
    });
}

/// A leaf that cannot be read the first time is read again before its page is given up.
#[test]
fn a_leaf_that_cannot_be_read_once_is_read_again() {
    let (machine, store) = written();
    bounded_to(&machine, &store, 1);
    let reading = store.clone();
    let drive = machine.drive.clone();
    machine.run(|_| async move {
        for page in [3, 5] {
            let slot = slot(&reading, page / 2);
            let leaf = reading.inner.state.borrow().slabs.get(slot.0).unwrap().pages[1].entry.leaf;
            let place = Layout::offset_of(leaf.block);
            drive.fail_reads(place..place + LEAF, Repeat::Once);
            let parts = reading.read(slot, PAGE_BLOCKS + 7, 1).await.unwrap();
            assert!(matches!(parts[..], [ReadPart::Data { .. }]), "{parts:?}");
        }
    });
    assert_eq!(store.statistics().structures_damaged, 0);
}

/// When all leaves have changed and no checkpoint finds room, changes are refused; they go on when there is room.
#[test]
fn changes_are_refused_where_neither_memory_nor_the_drive_has_room() {
    let config = drive_config(48);
    let machine = Machine::with_image(1, config, preallocated(config));
    machine.format();
    let (store, _) = machine.attach().unwrap();
    let drive = machine.drive.clone();
    machine.run(|platform| async move {
        for slab in 0..SLABS {
            add_slab(&store, key(1, slab), copy(u64::from(slab))).await.unwrap();
        }
        for page in 0..2 * SLABS {
            let (slab, first) = (key(1, page / 2), page % 2 * PAGE_BLOCKS + 7);
            let counter = u64::from(page) + 1;
            write_blocks(&platform, &store, slab, first, version(1, counter), &[counter; 3]).await.unwrap();
        }
        store.checkpoint().await.unwrap();
        bound_to(&store, 2).await;
        // What is trimmed needs no room for data.
        let trim = |page: u32, block: u32, counter: u64| {
            let (slot, store) = (slot(&store, page / 2), store.clone());
            async move { store.trim(slot, page % 2 * PAGE_BLOCKS + block, 1, version(1, counter)).await }
        };
        drive.set_room(Room::OnlyOverwrites);
        let mut refused = Vec::new();
        for page in 0..2 * SLABS {
            match trim(page, 8, u64::from(page) + 100).await {
                Ok(()) => {}
                Err(StoreError::NoRoom) => refused.push(page),
                Err(error) => panic!("{error}"),
            }
        }
        assert!((1..2 * SLABS as usize).contains(&refused.len()), "{refused:?}");
        assert_eq!(store.failure(), None);
        drive.set_room(Room::Enough);
        for page in 0..2 * SLABS {
            trim(page, 9, u64::from(page) + 200).await.unwrap();
            let seen = read_all(&store, slot(&store, page / 2), 2 * PAGE_BLOCKS).await;
            let first = (page % 2 * PAGE_BLOCKS + 7) as usize;
            let content = Seen::Content(u64::from(page) + 1);
            let second = if refused.contains(&page) { content } else { Seen::Hole };
            assert_eq!(seen[first..first + 3], [content, second, Seen::Hole]);
        }
        check_ownership_of_all(&store).await;
    });
}

/// A leaf that is to be read for what it mapped has rotted: nothing is freed that may be in use, and all at the next attach.
#[test]
fn what_a_damaged_leaf_mapped_is_free_after_the_next_attach() {
    let (machine, store) = written();
    let leaf = store.inner.state.borrow().slabs.get(slot(&store, 1).0).unwrap().pages[1].entry.leaf;
    machine.drive.flip_bit(Layout::offset_of(leaf.block) + 77, 1);
    bounded_to(&machine, &store, 1);
    machine.run(|_| async move {
        for slab in 0..SLABS {
            store.remove_slab(slot(&store, slab)).await.unwrap();
        }
        store.inner.progress.wait_until(|| store.inner.state.borrow().given_up.is_empty()).await;
        store.checkpoint().await.unwrap();
        store.checkpoint().await.unwrap();
        assert_eq!((store.used_blocks(), store.statistics().structures_damaged), (1, 1));
        store.detach().await.unwrap();
    });
    machine.restart();
    let (store, report) = machine.attach().unwrap();
    assert_eq!((store.used_blocks(), report.structures_damaged), (0, 0));
}

/// A scrub reads all, and what others need stays.
#[test]
fn a_scrub_displaces_nothing_that_is_needed() {
    let (machine, store) = written();
    bounded_to(&machine, &store, 4);
    machine.run(|_| async move {
        for slab in [0, 1] {
            store.read(slot(&store, slab), 7, 1).await.unwrap();
        }
        for slab in 0..SLABS {
            assert_eq!(store.scrub(slot(&store, slab), 0, 2 * PAGE_BLOCKS).await.unwrap(), []);
            for slab in [0, 1] {
                let read = store.statistics().leaves_read;
                store.read(slot(&store, slab), 7, 1).await.unwrap();
                assert_eq!(store.statistics().leaves_read, read, "slab {slab}");
            }
        }
    });
}

/// The leaves that a group is about to change stay, whatever else is needed.
#[test]
fn a_leaf_that_is_held_stays() {
    let (machine, store) = written();
    bounded_to(&machine, &store, 3);
    machine.run(|_| async move {
        store.read(slot(&store, 2), 7, 1).await.unwrap();
        let held = [PagePlace { slab_slot: slot(&store, 2).0, page: 0 }];
        store.inner.state.borrow_mut().hold_leaves(&held);
        let is_there = || store.inner.state.borrow().evicted(&held).is_empty();
        for _ in 0..3 {
            for page in (0..2 * SLABS).filter(|page| *page != 4) {
                store.read(slot(&store, page / 2), page % 2 * PAGE_BLOCKS + 7, 1).await.unwrap();
                assert!(is_there() && leaves(&store) <= 4, "{} leaves", leaves(&store));
            }
        }
        store.inner.state.borrow_mut().let_go_of_leaves(&held);
        for page in (0..2 * SLABS).filter(|page| *page != 4) {
            store.read(slot(&store, page / 2), page % 2 * PAGE_BLOCKS + 7, 1).await.unwrap();
        }
        assert!(!is_there());
    });
}

/// What a checkpoint has written can be evicted when its root is durable, and not before.
#[test]
fn a_leaf_stays_until_a_root_is_durable() {
    let (machine, store) = written();
    machine.run(|platform| async move {
        write_block(&platform, &store, key(1, 0), 9, version(1, 100), 100).await.unwrap();
        let place = PagePlace { slab_slot: slot(&store, 0).0, page: 0 };
        let may_go = || {
            let mut state = store.inner.state.borrow_mut();
            let page = state.page_mut(place).unwrap();
            (page.is_evictable(), page.is_leaf_dirty())
        };
        assert_eq!(may_go(), (false, true));
        let checkpoint = store.checkpoint();
        let watch = async {
            let mut was_written_before = false;
            while store.inner.state.borrow().map_memory.counted()[1] > 0 {
                let (may_go, is_dirty) = may_go();
                assert!(!may_go);
                was_written_before |= !is_dirty;
                platform.sleep(Duration::from_micros(1)).await;
            }
            was_written_before
        };
        let (done, was_written_before) = futures_util::future::join(checkpoint, watch).await;
        done.unwrap();
        assert!(was_written_before);
        assert_eq!(may_go(), (true, false));
    });
}

/// The maps of a drive whose cache drive is lost lead to its area: they are looked through, whatever the bound.
#[test]
fn a_drive_that_has_lost_its_cache_drive_is_attached_with_a_bound() {
    let (machine, store) = CachedMachine::attached(1, drive_config(48));
    let writing = store.clone();
    let before = machine.run(|platform| async move {
        for slab in 0..SLABS {
            add_slab(&writing, key(1, slab), copy(u64::from(slab))).await.unwrap();
            for page in 0..2 {
                let counter = u64::from(2 * slab + page) + 1;
                let (block, version) = (page * PAGE_BLOCKS + 7, version(1, counter));
                write_block(&platform, &writing, key(1, slab), block, version, counter).await.unwrap();
            }
        }
        writing.drain_cache().await.unwrap();
        writing.stop_draining();
        write_block(&platform, &writing, key(1, 0), 9, version(1, 100), 100).await.unwrap();
        writing.checkpoint().await.unwrap();
        let before = observe(&writing).await;
        writing.detach().await.unwrap();
        before
    });
    machine.machine.restart();
    vary_map_memory();
    assert_eq!(next_map_memory(), Some(None), "then a leaf");
    let (store, report) = machine.attach_with(|_| CacheChoice::Lost(None)).unwrap();
    assert_eq!((report.area_lost, report.blocks_lost), (true, 1));
    machine.run(|_| async move {
        bound_to(&store, 1).await;
        check_ownership_of_all(&store).await;
        let after = observe(&store).await;
        let lost: Vec<usize> = (0..2 * PAGE_BLOCKS as usize)
            .filter(|block| after.slabs[&key(1, 0)].blocks[*block].is_lost())
            .collect();
        assert_eq!(lost, [9]);
        assert_eq!(after.slabs[&key(1, 3)].blocks, before.slabs[&key(1, 3)].blocks);
    });
}
