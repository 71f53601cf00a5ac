use std::rc::Rc;

use spandrel_drive::AttachReport;
use spandrel_platform_simulated::{DriveImage, Random, RunEnd};
use spandrel_shared::{BLOCK_BYTES, Version};

use crate::inspection::{CacheState, DamageKind, Inspection, Place, Structure};
use crate::testing::Image;
use crate::testing::machine::{Machine, View, attach, attach_lost};
use crate::testing::workload::{Oracle, Workload};

/// How much more than usual the random tests do.
fn factor() -> u64 {
    std::env::var("SPANDREL_TEST_FACTOR").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

struct Crash {
    sector_bytes: u32,
    /// What the crash may have left.
    images: Vec<Image>,
    oracle: Oracle,
    random: Random,
}

/// Works on a new drive until some random answer, and takes what a power cut may leave then.
fn crash(seed: u64) -> Crash {
    crash_where(seed, seed % 2 == 1)
}

/// The same, with a drive that is bound to a cache drive or to none.
fn crash_where(seed: u64, is_bound: bool) -> Crash {
    let random = Random::stream(seed, "crash", 0);
    let sector_bytes = if random.chance(500) { 512 } else { 4096 };
    let machine = match is_bound {
        true => Machine::with_cache(seed, sector_bytes),
        false => Machine::formatted(seed, sector_bytes),
    };
    let (store, _) = machine.attach().unwrap();
    let workload = Workload::new(&machine, store, seed);
    let oracle = Rc::clone(&workload.oracle);
    machine.process().spawn(workload.run(2000));
    let wanted = random.between(1, 1200);
    let watched = Rc::clone(&oracle);
    let end = machine.world.run_until(move || watched.borrow().answers >= wanted);
    assert_eq!(end, RunEnd::ConditionMet);
    for _ in 0..random.below(200) {
        machine.world.step();
    }
    let images = machine.crash_images(3, &random);
    let oracle = oracle.borrow().clone();
    Crash { sector_bytes, images, oracle, random }
}

fn inspect_image(image: &Image) -> (Inspection, View) {
    let inspection = image.inspect().unwrap_or_else(|error| panic!("{error}"));
    let view = View::of_inspection(&inspection, image);
    (inspection, view)
}

/// What the store makes of an image, and the drive behind its first checkpoint.
fn attach_image(sector_bytes: u32, image: &Image) -> Result<(View, AttachReport, Image), String> {
    let machine = Machine::with_image(1, sector_bytes, image.clone());
    let (store, report) = machine.attach().map_err(|error| error.to_string())?;
    let known = report.clone();
    let view = machine.run(|_| async move { View::of_store(&store, &known).await });
    Ok((view, report, machine.snapshot()))
}

/// The inspection, the oracle and the store agree on what a crash has left.
#[test]
fn what_a_crash_left_is_what_the_store_finds() {
    let (mut groups, mut doubts, mut refusals) = (0, 0, 0);
    for seed in 0..60 * factor() {
        let crash = crash(seed);
        refusals += crash.oracle.refusals;
        for image in &crash.images {
            let (inspection, view) = inspect_image(image);
            assert!(!inspection.is_damaged(), "seed {seed}: {:?}", inspection.damage);
            crash.oracle.judge(&view);
            let (store_view, report, behind) = attach_image(crash.sector_bytes, image).unwrap();
            assert_eq!(view, store_view, "seed {seed}");
            assert_eq!(report.structures_damaged, 0);
            assert_eq!(inspection.journal.groups, report.groups_replayed, "seed {seed}");
            assert_eq!(inspection.journal.blocks_in_doubt, report.blocks_in_doubt, "seed {seed}");
            groups += report.groups_replayed;
            doubts += report.blocks_in_doubt;
            // The store's own reading of it changed how it stands there, and nothing else.
            let (again, view) = inspect_image(&behind);
            assert!(!again.is_damaged(), "seed {seed}: {:?}", again.damage);
            assert_eq!(view, store_view, "seed {seed}");
            assert_eq!(again.root.unwrap().attach_number, inspection.root.unwrap().attach_number + 1);
        }
    }
    assert!(groups > 1000 && doubts > 50 && refusals > 50, "{groups} {doubts} {refusals}: too easy");
}

/// A crash while a drive is being attached leaves groups of an attach that never came to its end.
#[test]
fn what_a_crash_of_an_attach_left_is_what_the_store_finds() {
    let mut differing = 0;
    for seed in 0..20 * factor() {
        let Crash { sector_bytes, images, oracle, random } = crash(5000 + seed);
        let (mut image, mut attempts) = (images[0].clone(), Vec::new());
        for _ in 0..3 {
            let machine = Machine::with_image(seed, sector_bytes, image);
            let process = machine.process();
            let platform = process.platform();
            process.spawn(async move { drop(attach(&platform).await) });
            for _ in 0..random.below(120) {
                machine.world.step();
            }
            attempts = machine.crash_images(2, &random);
            image = attempts[random.index(attempts.len())].clone();
        }
        for image in attempts {
            let (inspection, view) = inspect_image(&image);
            assert!(!inspection.is_damaged(), "seed {seed}: {:?}", inspection.damage);
            oracle.judge(&view);
            let (store_view, report, _) = attach_image(sector_bytes, &image).unwrap();
            assert_eq!(view, store_view, "seed {seed}");
            assert_eq!(inspection.journal.groups, report.groups_replayed, "seed {seed}");
            differing += u64::from((&image.image, &image.cache) != (&images[0].image, &images[0].cache));
        }
    }
    assert!(differing > 20, "only {differing} crashes left something");
}

/// A flipped bit in any structure is named with its place, and what it costs is what it costs the
/// store.
#[test]
fn a_flipped_bit_in_any_structure_is_named() {
    let kinds = [
        DamageKind::Superblock,
        DamageKind::Root,
        DamageKind::JournalGroup,
        DamageKind::SlabRoot,
        DamageKind::Leaf,
    ];
    let mut flipped = [0; 5];
    for seed in 0..40 * factor() {
        let Crash { sector_bytes, images, random, .. } = crash(1000 + seed);
        let image = &images[random.index(images.len())];
        let (sound, _) = inspect_image(image);
        for (count, kind) in flipped.iter_mut().zip(kinds) {
            let structures: Vec<&Structure> =
                sound.structures.iter().filter(|structure| structure.kind == kind).collect();
            let Some(structure) = structures.get(random.index(structures.len().max(1))) else { continue };
            let byte = structure.offset_bytes + random.below(structure.length_bytes);
            let mut damaged = image.clone();
            damaged.flip_bit(&sound, byte, random.below(8) as u32);
            let (inspection, view) = inspect_image(&damaged);
            let named = inspection
                .damage
                .iter()
                .find(|damage| damage.kind == kind && damage.offset_bytes == Some(structure.offset_bytes));
            let lists = || format!("seed {seed}: {structure:?} byte {byte}: {:?}", inspection.damage);
            let is_last_group = structure.sequence == sound_last_sequence(&sound);
            match named {
                Some(named) => {
                    assert_eq!(
                        (named.volume, named.slab, named.page),
                        (structure.volume, structure.slab, structure.page),
                    );
                    assert!(is_last_group || !named.by_crash || kind == DamageKind::Root, "{}", lists());
                }
                // What says that it is a group of this drive can be what is flipped of the last one.
                None => assert!(is_last_group && byte < structure.offset_bytes + 64, "{}", lists()),
            }
            *count += 1;
            match attach_image(sector_bytes, &damaged) {
                Ok((store_view, report, _)) => {
                    assert_eq!(view, store_view, "{}", lists());
                    let is_damaged = report.structures_damaged > 0;
                    // The store takes whatever the last group has become for one that was cut off.
                    let is_same = is_damaged == inspection.is_damaged();
                    assert!(is_same || is_last_group && !is_damaged, "{}", lists());
                }
                Err(why) => panic!("one flipped bit makes the drive useless: {why}: {}", lists()),
            }
        }
    }
    assert!(flipped.iter().all(|count| *count > 20), "{flipped:?}: too easy");
}

fn sound_last_sequence(inspection: &Inspection) -> Option<u64> {
    inspection.structures.iter().filter_map(|structure| structure.sequence).max()
}

/// A hundred flipped blocks of data are named, each with its block and its place, and no other is.
#[test]
fn flipped_data_blocks_are_named_and_no_others() {
    for seed in 0..10 * factor() {
        let Crash { sector_bytes, images, random, .. } = crash(2000 + seed);
        let mut image = images[0].clone();
        let (sound, _) = inspect_image(&image);
        let mut chosen: Vec<_> = sound.blocks.iter().filter(|block| !block.in_last_group).collect();
        while chosen.len() > 100 {
            chosen.swap_remove(random.index(chosen.len()));
        }
        chosen.sort_by_key(|block| (block.volume, block.slab, block.block));
        for block in &chosen {
            image.flip_bit(&sound, block.offset_bytes + random.below(4096), random.below(8) as u32);
        }
        let (inspection, view) = inspect_image(&image);
        let named: Vec<_> = inspection
            .damage
            .iter()
            .filter(|damage| damage.kind == DamageKind::Data)
            .map(|damage| (damage.volume, damage.slab, damage.block, damage.offset_bytes, damage.by_crash))
            .collect();
        let expected: Vec<_> = chosen
            .iter()
            .map(|block| {
                (Some(block.volume), Some(block.slab), Some(block.block), Some(block.offset_bytes), false)
            })
            .collect();
        assert_eq!(named, expected, "seed {seed}");
        assert_eq!(inspection.blocks_checked, sound.blocks_checked);
        let (store_view, _, _) = attach_image(sector_bytes, &image).unwrap();
        assert_eq!(view, store_view, "seed {seed}");
    }
}

/// Whatever is wrong with a drive, looking at it ends, and agrees with the store where that starts.
#[test]
fn drives_with_much_damage_are_read_as_far_as_they_go() {
    let mut attached = 0;
    for seed in 0..60 * factor() {
        let Crash { sector_bytes, images, random, .. } = crash(3000 + seed);
        let mut image = images[0].clone();
        let (sound, _) = inspect_image(&image);
        for _ in 0..random.between(2, 6) {
            let structure = &sound.structures[random.index(sound.structures.len())];
            image.flip_bit(&sound, structure.offset_bytes + random.below(structure.length_bytes), 1);
        }
        let found = image.inspect();
        let Ok(inspection) = found else { continue };
        let Ok((store_view, _, _)) = attach_image(sector_bytes, &image) else { continue };
        assert_eq!(View::of_inspection(&inspection, &image), store_view, "seed {seed}");
        attached += 1;
    }
    assert!(attached > 10, "only {attached} could be attached");
}

#[test]
fn blocks_that_cannot_be_read_are_damaged_and_hide_no_others() {
    let Crash { images, .. } = crash_where(7, false);
    let (sound, _) = inspect_image(&images[0]);
    let block = sound.blocks.iter().find(|block| !block.in_last_group).unwrap();
    let image = Image { unreadable: vec![block.offset_bytes / 4096], ..images[0].clone() };
    let inspection = image.inspect().unwrap();
    let damage: Vec<_> = inspection.damage.iter().filter(|damage| !damage.by_crash).collect();
    assert_eq!(damage.len(), 1);
    assert_eq!((damage[0].kind, damage[0].offset_bytes), (DamageKind::Data, Some(block.offset_bytes)));
    assert_eq!(damage[0].detail, "it cannot be read: a bad sector");
    // A bad sector in the journal is damage where the next group must stand.
    let group = sound.structures.iter().find(|structure| structure.kind == DamageKind::JournalGroup);
    let group = group.unwrap();
    let image = Image { unreadable: vec![group.offset_bytes / 4096], ..images[0].clone() };
    let inspection = image.inspect().unwrap();
    let damage = inspection.damage.iter().find(|damage| damage.kind == DamageKind::JournalGroup).unwrap();
    assert!(!damage.by_crash);
    assert!(damage.offset_bytes.unwrap() / 4096 <= group.offset_bytes / 4096);
}

#[test]
fn what_is_no_drive_is_explained() {
    let code = |image: DriveImage| Image::new(image).inspect().unwrap_err();
    let empty = code(DriveImage::new(8 << 20));
    assert_eq!(empty.code, "DRIVE_NOT_SPANDREL");
    assert!(empty.why.contains("never formatted"), "{}", empty.why);
    assert!(code(DriveImage::new(0)).why.contains("empty"));

    let mut ext4 = DriveImage::new(8 << 20);
    ext4.write(0x438, &[0x53, 0xEF]);
    assert!(code(ext4).why.contains("an ext2 file system"));

    let mut newer = Machine::formatted(1, 512).drive.snapshot();
    for offset in [0, newer.size_bytes() - 4096] {
        let mut block = newer.read_vec(offset, 4096);
        block[16] = 9;
        let checksum = spandrel_shared::checksum::crc32c(&block[4..]);
        block[..4].copy_from_slice(&checksum.to_le_bytes());
        newer.write(offset, &block);
    }
    assert_eq!(code(newer).code, "DRIVE_FORMAT_NEWER");

    let mut damaged = Machine::formatted(1, 512).drive.snapshot();
    damaged.flip_bit(100, 0);
    damaged.flip_bit(damaged.size_bytes() - 4000, 0);
    assert_eq!(code(damaged).code, "DRIVE_SUPERBLOCK_DAMAGED");
}

/// A drive without any whole root still says who it is.
#[test]
fn a_drive_without_roots_is_named_and_damaged() {
    let Crash { images, .. } = crash(3);
    let mut image = images[0].clone();
    let (sound, _) = inspect_image(&image);
    for slot in &sound.root_slots {
        image.image.write(slot.offset_bytes, &[0xEE; 64]);
    }
    let inspection = image.inspect().unwrap();
    assert_eq!(inspection.superblock, sound.superblock);
    assert_eq!((&inspection.root, inspection.copies.len()), (&None, 0));
    let roots = inspection.damage.iter().filter(|damage| damage.kind == DamageKind::Root);
    assert_eq!(roots.filter(|damage| !damage.by_crash).count(), 4);
    assert!(inspection.is_damaged());
}

/// A superblock follows the first root, so without any root something was lost.
#[test]
fn a_drive_whose_first_root_was_never_written_is_damaged() {
    let machine = Machine::formatted(1, 512);
    let sound = Image::new(machine.drive.snapshot()).inspect().unwrap();
    assert!(!sound.is_damaged());
    let mut image = machine.drive.snapshot();
    for slot in &sound.root_slots {
        image.write(slot.offset_bytes, &vec![0; BLOCK_BYTES]);
    }
    let inspection = Image::new(image).inspect().unwrap();
    let damaged: Vec<DamageKind> = inspection.damage.iter().map(|damage| damage.kind).collect();
    assert_eq!((inspection.is_damaged(), damaged), (true, vec![DamageKind::Root; 2]));
}

/// Both copies of the newest root are damaged: where groups name it, the maps are lost, and both
/// readers say so; where none does, it was never in use.
#[test]
fn the_loss_of_the_newest_root_is_found() {
    let (mut lost, mut unused) = (0, 0);
    for seed in 0..30 * factor() {
        let Crash { sector_bytes, images, .. } = crash(4000 + seed);
        let mut image = images[0].clone();
        let (sound, _) = inspect_image(&image);
        let twins = sound.structures.iter().filter(|structure| structure.kind == DamageKind::Root);
        twins.for_each(|twin| image.flip_bit(&sound, twin.offset_bytes + 30, 1));
        let (inspection, view) = inspect_image(&image);
        let (store_view, report, _) = attach_image(sector_bytes, &image).unwrap();
        assert_eq!(view, store_view, "seed {seed}");
        assert_eq!(inspection.is_damaged(), report.structures_damaged > 0, "seed {seed}");
        if inspection.damage.iter().any(|damage| damage.kind == DamageKind::Contradiction) {
            lost += 1;
            assert!(inspection.copies.iter().all(|copy| copy.proven == Some(Version::ZERO)));
        } else {
            unused += 1;
        }
    }
    assert!(lost > 10 && unused > 0, "{lost} lost, {unused} unused");
}

/// One was named for the other.
#[test]
fn a_cache_drive_by_itself_and_a_capacity_drive_in_its_place_are_called_so() {
    let Crash { images, .. } = crash_where(6000, true);
    let mut image = images[0].clone();
    let cache = image.cache.take().expect("it has one");
    let alone = Image::new(cache).inspect().unwrap_err();
    assert_eq!(alone.code, "DRIVE_IS_CACHE");
    assert!(alone.next.contains("drive inspect CAPACITY --cache "), "{alone}");
    image.cache = Some(image.image.clone());
    let twice = image.inspect().unwrap_err();
    assert_eq!(twice.code, "CACHE_DRIVE_MISSING");
    assert!(twice.why.contains("what was named is a capacity drive"), "{twice}");
}

/// What a lost cache drive costs is what it costs the store; and one of another time.
#[test]
fn without_its_cache_drive_a_drive_is_read_as_the_store_does() {
    let (mut lost, mut old) = (0, 0);
    for seed in 0..20 * factor() {
        let Crash { sector_bytes, images, .. } = crash_where(6000 + seed, true);
        let mut image = images[0].clone();
        let cache = image.cache.take();
        assert_eq!(image.inspect().unwrap_err().code, "CACHE_DRIVE_MISSING");
        let inspection = image.inspect_without_cache().unwrap();
        assert_eq!(inspection.cache.as_ref().unwrap().state, CacheState::Absent);
        let view = View::of_inspection(&inspection, &image);
        let machine = Machine::with_image(1, sector_bytes, image.clone());
        let (store, report) = machine.run(|platform| async move { attach_lost(&platform).await }).unwrap();
        assert!(report.area_lost && inspection.is_damaged());
        assert_eq!(
            view,
            machine.run(|_| async move { View::of_store(&store, &report).await }),
            "seed {seed}"
        );
        lost += inspection.copies.iter().map(|copy| copy.lost_blocks).sum::<u32>();

        // What the journal began with stands there no more.
        image.cache = cache;
        let sound = image.inspect().unwrap();
        let mut blank = image.clone();
        let journal = sound.journal.offset_bytes;
        for offset in (journal..journal + sound.journal.size_bytes).step_by(BLOCK_BYTES) {
            let Place::Cache(offset) = sound.place_of(offset) else { panic!("the journal is in the area") };
            blank.cache.as_mut().unwrap().write(offset, &[0; BLOCK_BYTES]);
        }
        let (inspection, view) = inspect_image(&blank);
        let (store_view, report, _) = attach_image(sector_bytes, &blank).unwrap();
        assert_eq!(view, store_view, "seed {seed}");
        let state = inspection.cache.unwrap().state;
        assert_eq!(report.area_lost, state == CacheState::AnotherTime, "seed {seed}");
        old += u32::from(report.area_lost);
    }
    assert!(lost > 100 && old > 10, "{lost} blocks lost, {old} old: too easy");
}

/// The group before the root's position tells whether the area is the right one, and is needed for nothing else: where it has
/// rotted, the next one tells it.
#[test]
fn a_rotted_group_before_the_roots_position_costs_what_it_costs_the_store() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..20 * factor() {
        let Crash { sector_bytes, images, .. } = crash_where(7000 + seed, true);
        let image = &images[0];
        let sound = image.inspect().unwrap();
        let journal = sound.journal.offset_bytes..sound.journal.offset_bytes + sound.journal.size_bytes;
        let groups = journal.step_by(sector_bytes as usize).filter(|offset| {
            let Place::Cache(offset) = sound.place_of(*offset) else { panic!("the journal is in the area") };
            let head = image.cache.as_ref().unwrap().read_vec(offset, 24);
            let sequence = u64::from_le_bytes(head[16..].try_into().unwrap());
            head[4..8] == *b"SpJg" && sequence + 1 == sound.journal.first_sequence
        });
        for offset in groups {
            let mut image = image.clone();
            image.flip_bit(&sound, offset + 40, 1);
            let (inspection, view) = inspect_image(&image);
            let (store_view, report, _) = attach_image(sector_bytes, &image).unwrap();
            assert_eq!(view, store_view, "seed {seed}");
            let is_lost = inspection.cache.unwrap().state == CacheState::AnotherTime;
            assert_eq!(report.area_lost, is_lost, "seed {seed}");
            assert!(!is_lost || sound.journal.groups == 0, "seed {seed}: the next group is there");
            kept += sound.journal.groups * u64::from(!is_lost);
            lost += u64::from(is_lost);
        }
    }
    assert!(kept > 100, "{kept} groups kept, {lost} areas lost: too easy");
}
