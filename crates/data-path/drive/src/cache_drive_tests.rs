use std::pin::pin;
use std::time::Duration;

use futures_util::future::select;
use spandrel_platform_simulated::{DriveImage, Random, Repeat};

use super::*;
use crate::test_support::cached::{
    CachedMachine, Images, cache_config, cache_options, format_cache, open_cache,
};
use crate::test_support::drive_config;
use crate::test_support::explorer::{Budget, crash_images, explore_drives};

fn drive(number: u8) -> DriveId {
    DriveId::from_bytes([number; 16])
}

fn machine() -> CachedMachine {
    CachedMachine::formatted(1, drive_config(24))
}

async fn attach<P: Platform>(platform: &P, drive: P::Drive) -> CacheDrive<P> {
    CacheDrive::attach(platform, drive, 0).await.unwrap()
}

#[test]
fn areas_stay_with_their_drives_until_they_are_given_back() {
    let cached = machine();
    let first = cached.run(|platform| async move {
        let cache = attach(&platform, open_cache(&platform).await).await;
        assert_eq!((cache.attach_number(), cache.free_chunks(), cache.bound()), (1, 15, vec![]));
        let first = cache.bind(drive(7), 6).await.unwrap();
        assert_eq!(first.blocks(), 6 * 64);
        let second = cache.bind(drive(8), 100).await.unwrap();
        assert_eq!(second.blocks(), 9 * 64, "what is left");
        assert_ne!(first.binding().number, second.binding().number);
        let again = cache.bind(drive(7), 1).await;
        assert!(matches!(again, Err(AttachError::Cache(_))), "what stands there may stand nowhere else");
        assert_eq!(cache.area(drive(7)).map(|area| area.binding()), Some(first.binding()));
        assert!(matches!(cache.bind(drive(9), 1).await, Err(AttachError::Size(_))), "nothing is left");
        assert_eq!(cache.bound(), [drive(7), drive(8)]);
        first.binding()
    });
    cached.machine.power_cycle();
    cached.run(move |platform| async move {
        let cache = attach(&platform, open_cache(&platform).await).await;
        assert_eq!((cache.attach_number(), cache.free_chunks()), (2, 0));
        assert_eq!(cache.area(drive(7)).map(|area| area.binding()), Some(first));
        cache.unbind(drive(7)).await.unwrap();
        assert!(cache.area(drive(7)).is_none());
        let again = cache.bind(drive(7), 4).await.unwrap();
        assert_ne!(again.binding().number, first.number, "nothing of the former binding counts");
        assert_eq!(cache.free_chunks(), 2);
    });
}

/// Chunks that are not neighbours are one area all the same.
#[test]
fn an_area_stands_at_several_places() {
    machine().run(|platform| async move {
        let cache = attach(&platform, open_cache(&platform).await).await;
        for number in 1..=5 {
            cache.bind(drive(number), 1).await.unwrap();
        }
        cache.unbind(drive(1)).await.unwrap();
        cache.unbind(drive(3)).await.unwrap();
        cache.unbind(drive(4)).await.unwrap();
        let area = cache.bind(drive(9), 4).await.unwrap();
        let layout = cache.superblock().layout;
        let (chunk, at) = (64 * BLOCK_BYTES as u64, |number: u32| layout.chunk_offset(number));
        assert_eq!(area.places(0, 10), [(at(0), 10)]);
        assert_eq!(area.places(chunk - 4, 8), [(at(0) + chunk - 4, 4), (at(2), 4)]);
        assert_eq!(area.places(chunk, 2 * chunk as usize), [(at(2), 2 * chunk as usize)], "two neighbours");
        let all = [(at(0), chunk as usize), (at(2), 2 * chunk as usize), (at(5), chunk as usize)];
        assert_eq!(area.places(0, 4 * chunk as usize), all);
    });
}

#[test]
fn a_drive_that_carries_something_or_is_old_is_refused() {
    let cached = machine();
    cached.run(|platform| async move {
        let drive = open_cache(&platform).await;
        let formatted = CacheDrive::format(&platform, &drive, cache_options()).await;
        assert!(matches!(formatted, Err(AttachError::Foreign(_))), "{formatted:?}");
        drop(attach(&platform, drive).await);
    });
    let old = cached.cache.snapshot();
    cached.machine.restart();
    cached.run(|platform| async move {
        let cache = attach(&platform, open_cache(&platform).await).await;
        assert_eq!(cache.attach_number(), 2);
    });
    cached.machine.restart();
    cached.cache.restore(old);
    cached.run(|platform| async move {
        let refused = CacheDrive::attach(&platform, open_cache(&platform).await, 2).await.err();
        assert_eq!(refused, Some(AttachError::Old { found: 1, known: 2 }));
    });
    let empty = (DriveImage::new(24 << 20), DriveImage::new(cache_config().size_bytes));
    CachedMachine::with_images(1, drive_config(24), empty).run(|platform| async move {
        let identified =
            async |platform: &_| CacheDrive::identify(platform, &open_cache(platform).await).await;
        assert_eq!(identified(&platform).await.err(), Some(AttachError::Empty));
        let superblock = format_cache(&platform).await;
        let drive = open_cache(&platform).await;
        assert_eq!(CacheDrive::identify(&platform, &drive).await, Ok(superblock));
    });
}

/// Binds and unbinds, and looks at every image of every moment: what was bound when a call had returned is bound.
#[test]
fn every_crash_of_a_binding_is_survived() {
    let cached = machine();
    let random = Random::new(3);
    let platform = cached.machine.platform();
    let body = async move {
        let cache = attach(&platform, open_cache(&platform).await).await;
        cache.bind(drive(7), 6).await.unwrap();
        cache.bind(drive(8), 2).await.unwrap();
        cache.unbind(drive(7)).await.unwrap();
        cache.bind(drive(9), 9).await.unwrap();
    };
    let mut seen: Vec<Vec<DriveId>> = Vec::new();
    explore_drives(
        &cached.machine,
        std::slice::from_ref(&cached.cache),
        body,
        || 0,
        |_| {
            for image in crash_images(&cached.cache, Budget::LARGE, &random) {
                let images: Images = (DriveImage::new(24 << 20), image);
                let after = CachedMachine::with_images(1, drive_config(24), images);
                let bound = after.run(|platform| async move {
                    attach(&platform, open_cache(&platform).await).await.bound()
                });
                if !seen.contains(&bound) {
                    seen.push(bound);
                }
            }
        },
    );
    let states = [vec![], vec![drive(7)], vec![drive(7), drive(8)], vec![drive(8)], vec![drive(8), drive(9)]];
    assert_eq!(seen, states, "one after the other, and none in between");
}

/// The drive goes on with a write that nobody waits for any more: it must not come after those of the next change.
#[test]
fn a_binding_that_nobody_waits_for_comes_to_its_end_before_the_next_change() {
    for seed in 0..20 {
        let cached = CachedMachine::formatted(seed, drive_config(24));
        let bound = |cached: &CachedMachine| {
            cached.run(|platform| async move { attach(&platform, open_cache(&platform).await).await.bound() })
        };
        cached.run(move |platform| async move {
            let cache = attach(&platform, open_cache(&platform).await).await;
            let timeout = platform.sleep(Duration::from_micros(5));
            select(pin!(cache.bind(drive(7), 6)), pin!(timeout)).await;
            cache.bind(drive(8), 2).await.unwrap();
            assert_eq!(cache.bound(), [drive(7), drive(8)], "seed {seed}");
        });
        assert_eq!(cached.cache.counters().overlaps, 0, "seed {seed}");
        cached.machine.restart();
        assert_eq!(bound(&cached), [drive(7), drive(8)], "seed {seed}");
    }
}

/// Nobody but the drive itself knows of an error that came when the asker had given up.
#[test]
fn a_check_that_nobody_waits_for_finds_out_whether_the_flush_failed() {
    let cached = machine();
    let faults = cached.cache.clone();
    cached.run(|platform| async move {
        let cache = attach(&platform, open_cache(&platform).await).await;
        faults.fail_flushes(Repeat::Once);
        let flushes = faults.counters().flushes;
        let timeout = async {
            while faults.counters().flushes == flushes {
                platform.sleep(Duration::from_micros(1)).await;
            }
        };
        select(pin!(cache.check()), pin!(timeout)).await;
        assert!(cache.check().await.is_err());
    });
}

/// Two tables of one generation that differ are no twins: neither says that there is no newer one.
#[test]
fn a_table_is_its_twins_equal_in_all_that_it_says() {
    let cached = machine();
    let layout = CacheLayout::for_drive(cache_config().size_bytes, 512).unwrap();
    cached.run(|platform| async move {
        attach(&platform, open_cache(&platform).await).await.bind(drive(7), 6).await.unwrap();
    });
    let unreadable = Layout::offset_of(layout.table_slot(0));
    cached.cache.fail_reads(unreadable..unreadable + 1, Repeat::Always);
    let newest = cached.run(move |platform| async move {
        let drive = open_cache(&platform).await;
        let superblock = CacheDrive::identify(&platform, &drive).await.unwrap();
        let newest = read_table(&platform, &drive, &superblock).await.expect("it has a twin");
        let slot = CacheLayout::table_slots_of(newest.generation)[1];
        let other = CacheTable { areas: Vec::new(), ..newest.clone() };
        let buffer = platform.buffers().copy_of(&other.encode(&layout)).freeze();
        drive.write(Layout::offset_of(layout.table_slot(slot)), vec![buffer]).await.unwrap();
        assert!(matches!(read_table(&platform, &drive, &superblock).await, Err(AttachError::Damaged(_))));
        newest
    });
    assert_eq!(
        CacheLayout::table_slots_of(newest.generation),
        [2, 3],
        "what cannot be read is the other pair"
    );
}

#[test]
fn a_damaged_copy_of_the_superblock_or_of_the_table_is_made_good_by_the_other_one() {
    let cached = machine();
    cached.run(|platform| async move {
        attach(&platform, open_cache(&platform).await).await.bind(drive(7), 6).await.unwrap();
    });
    let layout = CacheLayout::for_drive(cache_config().size_bytes, 512).unwrap();
    let whole = cached.cache.snapshot();
    let blocks =
        (0..TABLE_SLOTS).map(|slot| u64::from(layout.table_slot(slot))).chain([0, layout.last_block()]);
    for block in blocks {
        cached.machine.restart();
        cached.cache.restore(whole.clone());
        cached.cache.flip_bit(block * BLOCK_BYTES as u64 + 20, 1);
        for _ in 0..2 {
            let bound = cached
                .run(|platform| async move { attach(&platform, open_cache(&platform).await).await.bound() });
            assert_eq!(bound, [drive(7)], "block {block}");
            cached.machine.restart();
        }
    }
}
