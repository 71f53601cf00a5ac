use spandrel_drive::{AttachOptions, CacheFormatOptions, FormatOptions, SlabLayout};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::checksum::BlockChecksum;
use spandrel_shared::{BLOCK_BYTES, ClusterId, CopyId, DriveId, NodeId, SlabGeometry, SlabIndex};

use super::*;
use crate::inspection::inspect_alone;

const NAME: &str = "drive";

const CACHE: &str = "cache";

fn config() -> SimulatedDriveConfig {
    SimulatedDriveConfig { size_bytes: 24 << 20, ..SimulatedDriveConfig::default() }
}

fn configs() -> Configs {
    Configs { drive: config(), cache: config(), map_memory_bytes_max: None }
}

/// A drive that a store has used: four writes since its last checkpoint.
fn used_drive() -> DriveImage {
    used(0).drive
}

/// The same of one that is bound to a cache drive.
fn bound_drive() -> Images {
    used(1)
}

/// A drive with so many cache drives, which it is bound to the first one of, if there is one.
fn used(caches: usize) -> Images {
    let world = World::new(1);
    let host = world.add_host("host");
    let drive = world.add_drive(NAME, config());
    let cache = SimulatedDriveConfig { size_bytes: 8 << 20, ..config() };
    let caches: Vec<SimulatedDrive> = (0..caches).map(|_| world.add_drive(CACHE, cache)).collect();
    let process = world.start_process_on(&host, PROCESS);
    let (platform, is_bound) = (process.platform(), !caches.is_empty());
    let using = async move {
        let opened = platform.open_drive(NAME).await.expect("it is free");
        let options = FormatOptions {
            cluster: ClusterId::from_random(1, 1),
            node: NodeId::from_random(2, 2),
            drive: DriveId::from_random(3, 3),
            slab_geometry: SlabGeometry::new(4 << 20).expect("a slab size"),
        };
        DriveStore::format(&platform, &opened, options).await.expect("it is empty");
        let choice = match is_bound {
            true => CacheChoice::Bound(new_area(&platform).await),
            false => CacheChoice::None,
        };
        let (store, _) = DriveStore::attach_with(&platform, opened, AttachOptions::with_cache(choice))
            .await
            .expect("it was formatted");
        let (volume, slab) = (VolumeId::from_random(4, 4), SlabIndex(0));
        let layout = SlabLayout::mirror(2, 0);
        let copy = CopyId::from_random(5, 5);
        let slot = store.add_slab(volume, slab, layout, copy, Version::ZERO).await.expect("there is room");
        store.checkpoint().await.expect("nothing fails");
        for counter in 1..=4 {
            let data = platform.buffers().copy_of(&[counter as u8; BLOCK_BYTES]).freeze();
            let checksums = vec![BlockChecksum::new(volume, slab).of(7, &data)];
            let written = store.write(slot, 7, Version::new(Epoch(1), counter), data, checksums.into());
            written.await.expect("there is room");
        }
    };
    process.block_on(using).expect("it comes to its end");
    Images { drive: drive.snapshot(), caches: caches.iter().map(SimulatedDrive::snapshot).collect() }
}

/// An area for the drive on a cache drive that is formatted for it.
async fn new_area(platform: &SimulatedPlatform) -> CacheArea<OpenDrive> {
    let cache = platform.open_drive(CACHE).await.expect("it is free");
    let options = CacheFormatOptions {
        cluster: ClusterId::from_random(1, 1),
        node: NodeId::from_random(2, 2),
        drive: DriveId::from_random(6, 6),
    };
    CacheDrive::format(platform, &cache, options).await.expect("it is empty");
    let cache = CacheDrive::attach(platform, cache, 0).await.expect("it was formatted");
    cache.bind(DriveId::from_random(3, 3), cache.free_chunks()).await.expect("there is room")
}

/// The same with a damaged group of the journal, which the one behind it shows.
fn drive_with_damaged_journal() -> DriveImage {
    let mut image = used_drive();
    let inspection = inspect_alone(NAME, &image).expect("it is a drive");
    let groups = inspection.structures.iter().filter(|found| found.kind == DamageKind::JournalGroup);
    let mut groups: Vec<(Option<u64>, u64)> =
        groups.map(|group| (group.sequence, group.offset_bytes)).collect();
    groups.sort();
    image.flip_bit(groups[groups.len() - 2].1 + 70, 1);
    image
}

#[test]
fn a_drive_that_a_crash_has_left_passes() {
    assert_eq!(check(NAME, configs(), &Images::alone(used_drive()), false), Ok(()));
}

#[test]
fn what_is_damaged_stays_known() {
    let image = Images::alone(drive_with_damaged_journal());
    assert_eq!(check(NAME, configs(), &image, false), Ok(()));
    canary::plant(Some(Bug::ForgetUnproven));
    let found = check(NAME, configs(), &image, false);
    canary::plant(None);
    let found = found.expect_err("the second recovery takes the copy for whole");
    assert!(found.contains("has become"), "{found}");
}

#[test]
fn only_drives_that_are_damaged_or_empty_may_be_refused() {
    assert_eq!(check(NAME, configs(), &Images::alone(DriveImage::new(24 << 20)), false), Ok(()));
    let mut damaged = used_drive();
    let inspection = inspect_alone(NAME, &damaged).expect("it is a drive");
    inspection.superblock_copies.iter().for_each(|copy| damaged.flip_bit(copy.offset_bytes + 30, 1));
    assert_eq!(check(NAME, configs(), &Images::alone(damaged), false), Ok(()));
    let refused = judge_refusal(
        NAME,
        &Images::alone(used_drive()),
        true,
        &AttachError::Damaged("it is not".to_owned()),
    );
    assert!(refused.is_err());
}

#[test]
fn a_drive_with_its_cache_drive_passes() {
    assert_eq!(check(NAME, configs(), &bound_drive(), false), Ok(()));
}

/// What a drive that gives its journal up goes on with is consistent, and stays the same.
#[test]
fn a_journal_on_a_cache_drive_is_given_up_with_a_cause_alone() {
    canary::plant(Some(Bug::MisplaceGroupBefore));
    let images = bound_drive();
    canary::plant(None);
    let found =
        check(NAME, configs(), &images, false).expect_err("the drive takes its cache for another one");
    assert!(found.contains("gives up"), "{found}");
    assert_eq!(check(NAME, configs(), &images, true), Ok(()));
}

#[test]
fn a_cache_drive_is_missing_with_a_cause_alone() {
    let bound = bound_drive();
    let blank = DriveImage::new(8 << 20);
    for caches in [Vec::new(), vec![blank]] {
        let images = Images { caches, ..bound.clone() };
        let found = check(NAME, configs(), &images, false).expect_err("its cache drive is not there");
        assert!(found.contains("not recovered"), "{found}");
        assert_eq!(check(NAME, configs(), &images, true), Ok(()));
    }
}

/// As it was before it was bound to another area.
#[test]
fn a_drive_tells_how_often_it_was_attached_without_its_area() {
    let alone = Images::alone(used_drive());
    assert_eq!(attach_number(NAME, configs(), &alone), Some(1));
    let bound = bound_drive();
    assert_eq!(attach_number(NAME, configs(), &bound), Some(1));
    assert_eq!(attach_number(NAME, configs(), &Images { caches: Vec::new(), ..bound }), Some(1));
}
