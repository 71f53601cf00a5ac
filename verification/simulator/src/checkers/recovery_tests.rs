use spandrel_drive::{FormatOptions, SlabLayout};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::checksum::BlockChecksum;
use spandrel_shared::{BLOCK_BYTES, ClusterId, CopyId, DriveId, NodeId, SlabGeometry, SlabIndex};

use super::*;
use crate::inspection::inspect_alone;

const NAME: &str = "drive";

fn config() -> SimulatedDriveConfig {
    SimulatedDriveConfig { size_bytes: 24 << 20, ..SimulatedDriveConfig::default() }
}

/// A drive that a store has used: four writes since its last checkpoint.
fn used_drive() -> DriveImage {
    let world = World::new(1);
    let host = world.add_host("host");
    let drive = world.add_drive(NAME, config());
    let process = world.start_process_on(&host, PROCESS);
    let platform = process.platform();
    let using = async move {
        let opened = platform.open_drive(NAME).await.expect("it is free");
        let options = FormatOptions {
            cluster: ClusterId::from_random(1, 1),
            node: NodeId::from_random(2, 2),
            drive: DriveId::from_random(3, 3),
            slab_geometry: SlabGeometry::new(4 << 20).expect("a slab size"),
        };
        DriveStore::format(&platform, &opened, options).await.expect("it is empty");
        let (store, _) = DriveStore::attach(&platform, opened, 0).await.expect("it was formatted");
        let (volume, slab) = (VolumeId::from_random(4, 4), SlabIndex(0));
        let layout = SlabLayout::mirror(2, 0);
        let copy = CopyId::from_random(5, 5);
        let slot = store.add_slab(volume, slab, layout, copy, Version::ZERO).await.expect("there is room");
        for counter in 1..=4 {
            let data = platform.buffers().copy_of(&[counter as u8; BLOCK_BYTES]).freeze();
            let checksums = vec![BlockChecksum::new(volume, slab).of(7, &data)];
            let written = store.write(slot, 7, Version::new(Epoch(1), counter), data, checksums);
            written.await.expect("there is room");
        }
    };
    process.block_on(using).expect("it comes to its end");
    drive.snapshot()
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
    assert_eq!(check(NAME, config(), &Images::alone(used_drive())), Ok(()));
}

#[test]
fn what_is_damaged_stays_known() {
    let image = Images::alone(drive_with_damaged_journal());
    assert_eq!(check(NAME, config(), &image), Ok(()));
    canary::plant(Some(Bug::ForgetUnproven));
    let found = check(NAME, config(), &image);
    canary::plant(None);
    let found = found.expect_err("the second recovery takes the copy for whole");
    assert!(found.contains("has become"), "{found}");
}

#[test]
fn only_drives_that_are_damaged_or_empty_may_be_refused() {
    assert_eq!(check(NAME, config(), &Images::alone(DriveImage::new(24 << 20))), Ok(()));
    let mut damaged = used_drive();
    let inspection = inspect_alone(NAME, &damaged).expect("it is a drive");
    inspection.superblock_copies.iter().for_each(|copy| damaged.flip_bit(copy.offset_bytes + 30, 1));
    assert_eq!(check(NAME, config(), &Images::alone(damaged)), Ok(()));
    let refused =
        judge_refusal(NAME, &Images::alone(used_drive()), &AttachError::Damaged("it is not".to_owned()));
    assert!(refused.is_err());
}
