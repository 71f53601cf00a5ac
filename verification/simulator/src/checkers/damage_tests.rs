use spandrel_platform_simulated::{SimulatedDrive, SimulatedDriveConfig, World};

use super::*;
use crate::checkers::testing::{BLOCK, DATA_OFFSET_BYTES, drive_id, inspection, live_block, volume_id};

fn report(damaged: &[(usize, u64)], blocks_healed: u64) -> ScrubReport {
    let damaged = damaged.iter().map(|(node, blocks)| (drive_id(*node), *blocks)).collect();
    ScrubReport { damaged, blocks_healed, ..ScrubReport::default() }
}

#[test]
fn all_that_was_flipped_must_be_found_and_healed_and_nothing_else() {
    let flipped = BTreeMap::from([(drive_id(0), 3)]);
    assert_eq!(check(&flipped, &report(&[(0, 3)], 3)), Ok(()));
    for wrong in [
        report(&[(0, 2)], 2),
        report(&[], 0),
        report(&[(0, 4)], 4),
        report(&[(1, 3)], 3),
        report(&[(0, 3), (1, 1)], 4),
        report(&[(0, 3)], 2),
    ] {
        assert!(check(&flipped, &wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn what_was_healed_before_need_not_be_found_but_no_copies_may_differ() {
    let flipped = BTreeMap::from([(drive_id(0), 3)]);
    for right in [report(&[(0, 3)], 3), report(&[(0, 1)], 1), report(&[], 0)] {
        assert_eq!(check_rest(&flipped, &right), Ok(()));
    }
    for wrong in [
        report(&[(0, 4)], 4),
        report(&[(1, 1)], 1),
        report(&[(0, 2)], 1),
        ScrubReport { blocks_different: 1, ..report(&[(0, 2)], 2) },
    ] {
        assert!(check_rest(&flipped, &wrong).is_err(), "{wrong:?}");
    }
}

fn alone(drive: &SimulatedDrive) -> Media<'_> {
    Media { drive, caches: &[] }
}

fn drive(world: &World) -> SimulatedDrive {
    let config =
        SimulatedDriveConfig { size_bytes: 2 * DATA_OFFSET_BYTES, ..SimulatedDriveConfig::default() };
    world.add_drive("drive", config)
}

#[test]
fn bits_flip_in_what_was_written_last_but_for_the_last_group() {
    let world = World::swarm(1);
    let drive = drive(&world);
    let mut inspection = inspection(0);
    inspection.blocks = (0..30).map(|place| live_block(0, place, u64::from(place))).collect();
    let mut image = drive.snapshot();
    for (block, value) in inspection.blocks.iter().zip(1_u64..) {
        image.write(block.offset_bytes, &value.to_le_bytes());
    }
    drive.restore(image.clone());
    inspection.blocks[29].in_last_group = true;
    for seed in 0..20 {
        drive.restore(image.clone());
        let flipped = flip_newest_blocks(alone(&drive), &inspection, volume_id(), &Random::new(seed));
        let after = drive.snapshot();
        let differs = |block: &&LiveBlock| {
            image.read_vec(block.offset_bytes, BLOCK as usize)
                != after.read_vec(block.offset_bytes, BLOCK as usize)
        };
        let changed: Vec<u32> = inspection.blocks.iter().filter(differs).map(|block| block.block).collect();
        assert_eq!(changed.len() as u64, flipped);
        assert!((1..=8).contains(&flipped));
        assert!(changed.iter().all(|block| (13..29).contains(block)), "{changed:?}");
    }
}

#[test]
fn bits_flip_in_live_blocks_of_the_volume_alone() {
    let world = World::swarm(1);
    let drive = drive(&world);
    let mut inspection = inspection(0);
    inspection.blocks = (0..20).map(|place| live_block(0, place, u64::from(place) * 3)).collect();
    inspection.blocks[4].volume = VolumeId::from_random(8, 8);
    let before = drive.snapshot();
    let flipped = flip_live_blocks(alone(&drive), &inspection, volume_id(), 8, &Random::new(5));
    let after = drive.snapshot();
    let differ =
        |offset: &u64| before.read_vec(*offset, BLOCK as usize) != after.read_vec(*offset, BLOCK as usize);
    let changed: Vec<u64> = (0..2 * DATA_OFFSET_BYTES).step_by(BLOCK as usize).filter(differ).collect();
    assert!((1..=8).contains(&flipped));
    assert_eq!(changed.len() as u64, flipped);
    let own = |offset: &u64| {
        inspection.blocks.iter().any(|block| block.volume == volume_id() && block.offset_bytes == *offset)
    };
    assert!(changed.iter().all(own));
    let none = flip_live_blocks(alone(&drive), &inspection, VolumeId::from_random(7, 7), 8, &Random::new(5));
    assert_eq!(none, 0, "a volume without blocks there");
}
