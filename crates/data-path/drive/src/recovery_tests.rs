use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use spandrel_platform::Platform;
use spandrel_platform_simulated::{DriveImage, Random, Repeat, SimulatedDriveConfig};
use spandrel_shared::{BLOCK_BYTES, SlabIndex, Version};

use crate::DriveStore;
use crate::error::AttachError;
use crate::format::journal::{
    GROUP_HEADER_BYTES, GroupHeader, GroupWriter, MappingRecord, Record, SlabAdd, claimed_sequence,
    group_length,
};
use crate::format::root::{Root, SlabLayout};
use crate::journal_reader::JournalReader;
use crate::layout::{Layout, ROOT_SLOTS};
use crate::test_support::explorer::{Budget, crash_images, explore};
use crate::test_support::machine::{Machine, add_slab, attach, capacity, open, write_block, write_blocks};
use crate::test_support::observation::{Seen, check_ownership, check_ownership_of_all, observe, read_all};
use crate::test_support::oracle::Oracle;
use crate::test_support::script::{Runner, Step};
use crate::test_support::{
    Store, copy, drive_config, factor, format_options, key, vary_map_memory, version, volume,
};

/// Recovers what a crash has left and judges it.
fn recover(seed: u64, config: SimulatedDriveConfig, image: DriveImage, oracle: &Oracle) -> (Machine, Oracle) {
    let machine = Machine::with_image(seed, config, image);
    let (store, report) = machine.attach().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(report.unproven, [], "a mere crash leaves nothing unproven");
    assert_eq!(report.structures_damaged, 0, "a mere crash damages nothing");
    let observation = machine.run(|_| async move {
        check_ownership_of_all(&store).await;
        observe(&store).await
    });
    (machine, oracle.settle(&observation))
}

/// Runs `steps` on a new store and hands every image of every moment to `look`.
fn crash_everywhere(
    seed: u64,
    config: SimulatedDriveConfig,
    budget: Budget,
    steps: Vec<Step>,
    mut look: impl FnMut(DriveImage, &Oracle),
) {
    let (machine, store) = Machine::attached(seed, config);
    let runner = Runner::new(machine.platform(), store, machine.drive.clone(), Oracle::default());
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
    explore(&machine, body, answers, |_| {
        for image in crash_images(&machine.drive, budget, &random) {
            look(image, &oracle.borrow());
        }
    });
    assert_eq!(runner.failure(), None);
}

/// Crashes a recovery at each of its moments, `depth` times within each other.
fn crash_recovery(
    seed: u64,
    config: SimulatedDriveConfig,
    budget: Budget,
    image: DriveImage,
    oracle: &Oracle,
    depth: usize,
) -> usize {
    let random = Random::new(seed);
    let machine = Machine::with_image(seed, config, image);
    let platform = machine.platform();
    let body = async move { drop(attach(platform).await.unwrap()) };
    let mut recoveries = 0;
    explore(
        &machine,
        body,
        || 0,
        |_| {
            for image in crash_images(&machine.drive, budget, &random) {
                recoveries += 1;
                let seed = random.next_u64();
                if depth > 1 && random.chance(100) {
                    recoveries += crash_recovery(seed, config, budget, image, oracle, depth - 1);
                } else {
                    recover(seed, config, image, oracle);
                }
            }
        },
    );
    recoveries
}

fn basic_script() -> Vec<Step> {
    let (a, b, c) = (key(1, 0), key(1, 1), key(2, 0));
    vec![
        Step::Add(a),
        Step::Add(b),
        Step::Add(c),
        Step::Join,
        Step::Write(a, 0, 1),
        Step::Join,
        Step::Write(a, 0, 1),
        Step::Join,
        Step::Write(a, 510, 4),
        Step::Write(b, 0, 1),
        Step::Write(c, 7, 2),
        Step::Join,
        Step::Trim(a, 511, 2),
        Step::Write(a, 0, 3),
        Step::Join,
        Step::Mark(volume(1), 1),
        Step::Fence(volume(1)),
        Step::Write(a, 1, 1),
        Step::Write(a, 2, 1),
        Step::Write(a, 600, 1),
        Step::Write(b, 2, 1),
        Step::Join,
        Step::SetPage(b, 1, true),
        Step::Heal(a, 0),
        Step::Checkpoint,
        Step::Write(a, 1, 1),
        Step::Write(a, 3, 2),
        Step::Write(c, 100, 8),
        Step::Join,
        Step::Remove(b),
        Step::Write(c, 100, 8),
        Step::Join,
        Step::Add(b),
        Step::Write(b, 100, 1),
        Step::Write(a, 100, 1),
        Step::Checkpoint,
        Step::Join,
        Step::Trim(c, 0, 1024),
        Step::Join,
    ]
}

/// Drives with and without a cache that needs flushes, in sectors of both sizes, and such that work at once.
fn all_kinds_of_drives() -> impl Iterator<Item = SimulatedDriveConfig> {
    let kinds = [
        (512, true, false),
        (4096, true, false),
        (512, false, false),
        (4096, false, false),
        (512, true, true),
    ];
    kinds.into_iter().map(|(sector_bytes, volatile_cache, works_at_once)| SimulatedDriveConfig {
        sector_bytes,
        volatile_cache,
        works_at_once,
        ..drive_config(24)
    })
}

#[test]
fn every_crash_of_a_scripted_workload_is_survived() {
    vary_map_memory();
    let mut recoveries = 0;
    for (seed, config) in (1..).zip(all_kinds_of_drives()) {
        let budget = Budget::LARGE.times(factor());
        crash_everywhere(seed, config, budget, basic_script(), |image, oracle| {
            recover(seed, config, image, oracle);
            recoveries += 1;
        });
    }
    assert!(recoveries > 3000, "only {recoveries} crashes");
}

#[test]
fn every_crash_of_a_recovery_is_survived() {
    vary_map_memory();
    let random = Random::new(5);
    let mut recoveries = 0;
    for (seed, config) in (1..).zip(all_kinds_of_drives()) {
        let budget = Budget::SMALL.times(factor());
        crash_everywhere(seed, config, budget, basic_script(), |image, oracle| {
            if random.chance(30) {
                recoveries += crash_recovery(random.next_u64(), config, budget, image, oracle, 2);
            }
        });
    }
    assert!(recoveries > 1000, "only {recoveries} crashes");
}

/// A drive whose journal holds four writes of one slab, the first of them below the mark; the group of the
/// third one is damaged, which the last one shows.
fn with_damaged_journal(config: SimulatedDriveConfig) -> Machine {
    let (machine, store) = Machine::attached(1, config);
    let layout = store.superblock().layout;
    machine.run(|platform| async move {
        add_slab(&store, key(1, 0), copy(1)).await.unwrap();
        for counter in 1..=4 {
            write_block(&platform, &store, key(1, 0), 7, version(1, counter), counter).await.unwrap();
            if counter == 1 {
                store.note_mark(volume(1), version(1, 1), &[]);
                store.checkpoint().await.unwrap();
            }
        }
    });
    let (third, _) = last_groups(&machine, &layout);
    machine.drive.flip_bit(third + 16, 0);
    machine.restart();
    machine
}

/// Where the last two groups of the journal begin that are not those which closed it.
fn last_groups(machine: &Machine, layout: &Layout) -> (u64, u64) {
    let image = machine.drive.snapshot();
    let place = |sector: u32| {
        Layout::offset_of(layout.journal_first_block) + u64::from(sector) * u64::from(layout.sector_bytes)
    };
    let groups = (0..layout.journal_sectors()).filter_map(|sector| {
        let bytes = image.read_vec(place(sector), GROUP_HEADER_BYTES);
        let length = group_length(&bytes, format_options().drive).ok()?;
        (length > GROUP_HEADER_BYTES).then_some((claimed_sequence(&bytes)?, place(sector)))
    });
    let groups: BTreeMap<u64, u64> = groups.collect();
    let mut last = groups.into_values().rev();
    let newest = last.next().unwrap();
    (last.next().unwrap(), newest)
}

/// What the drive says that it can prove of its only copy.
fn attach_and_prove(machine: &Machine) -> (Store, Option<Version>) {
    let (store, report) = machine.attach().unwrap();
    let proven = report.unproven.first().map(|copy| copy.proven);
    assert_eq!(store.find_slab(volume(1), SlabIndex(0)).and_then(|slab| store.proven(slab.slot)), proven);
    (store, proven)
}

/// The first recovery leaves nothing on the drive that a later one would find damaged. If that took the copy
/// for whole, and it were the last one in sync, the writes that are lost would be lost silently.
#[test]
fn what_a_damaged_journal_leaves_unproven_stays_so_until_a_resync_has_made_it_whole() {
    for config in all_kinds_of_drives() {
        let machine = with_damaged_journal(config);
        let (_, first) = attach_and_prove(&machine);
        assert_eq!(first, Some(version(1, 1)));
        for crash in [Machine::restart, Machine::power_cycle] {
            crash(&machine);
            let (store, again) = attach_and_prove(&machine);
            assert_eq!(again, first);
            assert_eq!(store.statistics().structures_damaged, 0, "nothing shows it any more");
        }
        machine.restart();
        let (store, _) = attach_and_prove(&machine);
        machine.run(|_| async move {
            let slot = store.find_slab(volume(1), SlabIndex(0)).unwrap().slot;
            store.prove(slot).await.unwrap();
            assert_eq!(store.proven(slot), None);
        });
        machine.power_cycle();
        let (store, proven) = attach_and_prove(&machine);
        assert_eq!(proven, None, "that is durable");
        machine.run(|_| async move { store.detach().await.unwrap() });
        machine.restart();
        assert_eq!(attach_and_prove(&machine).1, None, "and stays so without the journal");
    }
}

/// A copy that is being brought up to date gets newer writes before older ones, and its drive says so whatever happens.
#[test]
fn what_an_owner_says_to_be_in_doubt_stays_so_until_it_is_whole() {
    let doubted = |machine: &Machine| {
        let (store, _) = machine.attach().unwrap();
        let proven = |key: crate::test_support::SlabKey| {
            store.find_slab(key.0, key.1).and_then(|slab| store.proven(slab.slot))
        };
        let all = [key(1, 0), key(1, 1), key(2, 0)].map(proven);
        (store, all)
    };
    for config in all_kinds_of_drives() {
        let (machine, store) = Machine::attached(1, config);
        machine.run(|platform| async move {
            for slab in [key(1, 0), key(1, 1), key(2, 0)] {
                add_slab(&store, slab, copy(1)).await.unwrap();
                write_block(&platform, &store, slab, 7, version(1, 1), 1).await.unwrap();
            }
            let checkpoints = store.statistics().checkpoints;
            store.doubt(volume(1), version(1, 5)).await.unwrap();
            // Less is sure, then not more again.
            store.doubt(volume(1), version(1, 3)).await.unwrap();
            store.doubt(volume(1), version(1, 4)).await.unwrap();
            store.doubt(volume(9), version(1, 1)).await.unwrap();
            assert_eq!(store.statistics().checkpoints, checkpoints, "a large drive's takes long");
        });
        let expected = [Some(version(1, 3)), Some(version(1, 3)), None];
        for crash in [Machine::restart, Machine::power_cycle] {
            crash(&machine);
            assert_eq!(doubted(&machine).1, expected);
        }
        machine.restart();
        let (store, _) = doubted(&machine);
        machine.run(|_| async move {
            store.prove(store.find_slab(volume(1), SlabIndex(1)).unwrap().slot).await.unwrap();
            store.detach().await.unwrap();
        });
        machine.restart();
        assert_eq!(doubted(&machine).1, [Some(version(1, 3)), None, None], "also without the journal");
    }
}

#[test]
fn a_lost_slab_root_is_not_made_whole_by_what_the_journal_says_of_a_resync() {
    let machine = with_damaged_journal(drive_config(24));
    let (store, proven) = attach_and_prove(&machine);
    assert_eq!(proven, Some(version(1, 1)));
    let slab_root = machine.run(|_| async move {
        let slot = store.find_slab(volume(1), SlabIndex(0)).unwrap().slot;
        store.prove(slot).await.unwrap();
        let state = store.inner.state.borrow();
        state.slabs.get(slot.0).unwrap().map
    });
    machine.drive.flip_bit(Layout::offset_of(slab_root.block), 0);
    machine.restart();
    assert_eq!(attach_and_prove(&machine).1, Some(Version::ZERO));
}

/// Without the group that closes the journal at rest, a last group that has rotted would look as if the power
/// had gone before it was answered.
#[test]
fn rot_in_what_was_written_last_before_a_rest_is_damage() {
    for config in all_kinds_of_drives() {
        let (machine, store) = Machine::attached(1, config);
        let layout = store.superblock().layout;
        machine.run(|platform| async move {
            add_slab(&store, key(1, 0), copy(1)).await.unwrap();
            write_block(&platform, &store, key(1, 0), 7, version(1, 1), 1).await.unwrap();
            let written = store.statistics().groups;
            // Time for more than one, if that were made.
            platform.sleep(Duration::from_secs(5)).await;
            assert_eq!(store.statistics().groups, written + 1, "one more, and not again and again");
        });
        let (_, newest) = last_groups(&machine, &layout);
        machine.drive.flip_bit(newest + 70, 0);
        machine.restart();
        let (store, proven) = attach_and_prove(&machine);
        assert_eq!((store.statistics().structures_damaged, proven), (1, Some(Version::ZERO)));
    }
}

/// A drive that is switched off may lie for long.
#[test]
fn rot_in_what_a_detach_wrote_last_is_damage() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    let layout = store.superblock().layout;
    machine.run(|platform| async move {
        add_slab(&store, key(1, 0), copy(1)).await.unwrap();
        write_block(&platform, &store, key(1, 0), 7, version(1, 1), 1).await.unwrap();
        store.detach().await.unwrap();
    });
    let (_, listing) = last_groups(&machine, &layout);
    machine.drive.flip_bit(listing + 70, 0);
    machine.restart();
    let (store, proven) = attach_and_prove(&machine);
    assert_eq!((store.statistics().structures_damaged, proven), (1, Some(Version::ZERO)));
}

/// Whoever asks who a drive is learns that it is of a newer program, instead of that it has seen no state yet.
#[test]
fn a_root_of_a_newer_program_shows_before_the_attach() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    let layout = store.superblock().layout;
    machine.run(|_| async move {
        add_slab(&store, key(1, 0), copy(1)).await.unwrap();
        store.detach().await.unwrap();
    });
    let mut image = machine.drive.snapshot();
    let slot_bytes = layout.root_slot_blocks as usize * BLOCK_BYTES;
    for slot in 0..ROOT_SLOTS {
        let offset = Layout::offset_of(layout.root_slot(slot));
        if let Ok(root) = Root::decode(&image.read_vec(offset, slot_bytes), format_options().drive) {
            image.write(offset, &root.encode_with_leaf_format(2));
        }
    }
    machine.drive.restore(image.clone());
    let identified = machine.run(|platform| async move {
        let drive = open(&platform).await;
        DriveStore::identify(&platform, &drive).await
    });
    assert!(matches!(identified, Err(AttachError::Newer(_))), "{identified:?}");
    assert!(matches!(machine.attach(), Err(AttachError::Newer(_))));
    assert_eq!(machine.drive.snapshot(), image, "it is left as it is");
}

/// A drive with a copy that has blocks in both of its pages, and was detached in order.
fn detached() -> Machine {
    let (machine, store) = Machine::attached(1, drive_config(24));
    machine.run(|platform| async move {
        for number in 0..2 {
            add_slab(&store, key(1, number), copy(number.into())).await.unwrap();
            for block in [3, 700] {
                let content = u64::from(number * 1000 + block);
                write_block(&platform, &store, key(1, number), block, version(1, content), content)
                    .await
                    .unwrap();
            }
        }
        store.detach().await.unwrap();
    });
    machine
}

/// The roots of a drive by their slots, the newest last.
fn roots_of(image: &DriveImage, layout: &Layout) -> Vec<(u32, Root)> {
    let slot_bytes = layout.root_slot_blocks as usize * BLOCK_BYTES;
    let root_in = |slot| {
        let bytes = image.read_vec(Layout::offset_of(layout.root_slot(slot)), slot_bytes);
        Root::decode(&bytes, format_options().drive).ok().map(|root| (slot, root))
    };
    let mut roots: Vec<(u32, Root)> = (0..ROOT_SLOTS).filter_map(root_in).collect();
    roots.sort_by_key(|(_, root)| root.generation);
    roots
}

fn layout_of_detached() -> Layout {
    Layout::for_drive(24 << 20, 512, crate::test_support::small_slabs()).unwrap()
}

/// Whoever wrote such a root did not know the drive: nothing is guessed, and nothing is changed.
#[test]
fn a_root_that_cannot_be_meant_is_refused() {
    let layout = layout_of_detached();
    type Change = fn(&mut Root, &Layout);
    let changes: [(&str, Change); 5] = [
        ("goes on at sector", |root, layout| root.journal.sector = layout.journal_sectors() + 1),
        ("lies beyond", |root, layout| root.volumes[0].slot = layout.slots_max()),
        ("lies beyond", |root, layout| root.slabs[1].slot = layout.slots_max()),
        ("belongs to no volume", |root, _| root.slabs[0].volume_slot += 1),
        ("two map pages name", |root, _| root.slabs[1].map = root.slabs[0].map),
    ];
    for (what, change) in changes {
        let machine = detached();
        let mut image = machine.drive.snapshot();
        let roots = roots_of(&image, &layout);
        let generation = roots.last().expect("there is one").1.generation;
        for (slot, root) in roots.iter().filter(|(_, root)| root.generation == generation) {
            let mut root = root.clone();
            change(&mut root, &layout);
            image.write(Layout::offset_of(layout.root_slot(*slot)), &root.encode());
        }
        machine.drive.restore(image.clone());
        machine.restart();
        let refused = machine.attach();
        assert!(
            matches!(&refused, Err(AttachError::Damaged(detail)) if detail.contains(what)),
            "{what}: {:?}",
            refused.map(|(_, report)| report)
        );
        assert_eq!(machine.drive.snapshot(), image, "it is left as it is: {what}");
    }
}

/// One of the two copies of the newest root is enough, and that the other one is not whole is told if it was.
#[test]
fn a_copy_of_the_newest_root_that_is_not_whole_is_damage() {
    let layout = layout_of_detached();
    for newest in [true, false] {
        for twin in 0..2 {
            let machine = detached();
            let roots = roots_of(&machine.drive.snapshot(), &layout);
            assert_eq!(roots.len(), 4);
            let (slot, _) = roots[if newest { 2 } else { 0 } + twin];
            machine.drive.flip_bit(Layout::offset_of(layout.root_slot(slot)) + 9, 1);
            machine.restart();
            let (store, report) = machine.attach().unwrap();
            assert_eq!(report.structures_damaged, u64::from(newest), "newest: {newest}, twin {twin}");
            assert_eq!(report.unproven, []);
            check_ownership(&store);
        }
    }
}

/// What a lost map page named is lost, block by block; the rest of the copy is not.
#[test]
fn a_lost_leaf_loses_its_page_alone() {
    let machine = detached();
    let (store, _) = machine.attach().unwrap();
    let leaf = machine.run(move |_| async move {
        let slot = store.find_slab(volume(1), SlabIndex(1)).unwrap().slot;
        store.checkpoint().await.unwrap();
        let leaf = store.inner.state.borrow().slabs.get(slot.0).unwrap().pages[1].entry.leaf;
        store.detach().await.unwrap();
        leaf
    });
    machine.drive.flip_bit(Layout::offset_of(leaf.block) + 77, 1);
    machine.restart();
    let (store, report) = machine.attach().unwrap();
    assert_eq!((report.structures_damaged, report.blocks_lost), (1, 512));
    check_ownership(&store);
    for again in [false, true] {
        if again {
            machine.restart();
        }
        let store = if again { machine.attach().unwrap().0 } else { store.clone() };
        machine.run(move |_| async move {
            let slots = [0, 1].map(|slab| store.find_slab(volume(1), SlabIndex(slab)).unwrap().slot);
            let whole = read_all(&store, slots[0], 1024).await;
            assert_eq!((&whole[3], &whole[700]), (&Seen::Content(3), &Seen::Content(700)));
            let seen = read_all(&store, slots[1], 1024).await;
            assert_eq!(seen[3], Seen::Content(1003));
            assert!(seen[512..].iter().all(|seen| matches!(seen, Seen::Damaged(_))), "again: {again}");
        });
    }
}

/// The cluster's state knows how often a drive was attached.
#[test]
fn a_drive_that_was_attached_less_often_than_is_known_is_an_old_image() {
    let machine = detached();
    let (store, _) = machine.attach().unwrap();
    let attached = store.attach_number();
    machine.run(move |_| async move { store.detach().await.unwrap() });
    machine.restart();
    let image = machine.drive.snapshot();
    let attach_known = |known| {
        machine.run(move |platform| async move {
            let drive = open(&platform).await;
            DriveStore::attach(&platform, drive, known).await.map(|(store, _)| store.attach_number())
        })
    };
    let refused = attach_known(attached + 1);
    assert!(
        matches!(refused, Err(AttachError::Old { found, known }) if (found, known) == (attached, attached + 1)),
        "{refused:?}"
    );
    assert_eq!(machine.drive.snapshot(), image, "it is left as it is");
    assert_eq!(attach_known(attached).expect("it is the newest"), attached + 1);
}

/// A slab's root is gone, and with it where its pages are: told as one structure and as all its blocks, also by the
/// next attach that finds them lost.
#[test]
fn a_lost_slab_root_loses_its_slab_alone_and_is_counted() {
    let machine = detached();
    let (store, _) = machine.attach().unwrap();
    let map = machine.run(move |_| async move {
        let slot = store.find_slab(volume(1), SlabIndex(1)).unwrap().slot;
        store.checkpoint().await.unwrap();
        let map = store.inner.state.borrow().slabs.get(slot.0).unwrap().map;
        store.detach().await.unwrap();
        map
    });
    machine.drive.flip_bit(Layout::offset_of(map.block) + 77, 1);
    machine.restart();
    let (store, report) = machine.attach().unwrap();
    assert_eq!((report.structures_damaged, report.blocks_lost), (1, 1024));
    check_ownership(&store);
    machine.run(move |_| async move {
        let slots = [0, 1].map(|slab| store.find_slab(volume(1), SlabIndex(slab)).unwrap().slot);
        let whole = read_all(&store, slots[0], 1024).await;
        assert_eq!((&whole[3], &whole[700]), (&Seen::Content(3), &Seen::Content(700)));
        assert!(read_all(&store, slots[1], 1024).await.iter().all(|seen| matches!(seen, Seen::Damaged(_))));
    });
}

/// Either copy of the superblock is enough; the other one is counted as damaged, and is whole again afterwards.
#[test]
fn either_copy_of_the_superblock_is_enough_and_the_other_is_written_anew() {
    let layout = layout_of_detached();
    for block in [0, layout.data_end_block()] {
        let machine = detached();
        machine.drive.flip_bit(Layout::offset_of(block) + 9, 1);
        machine.restart();
        for structures_damaged in [1, 0] {
            let (store, report) = machine.attach().unwrap();
            assert_eq!(report.structures_damaged, structures_damaged, "block {block}");
            machine.run(move |_| async move { store.detach().await.unwrap() });
            machine.restart();
        }
    }
}

/// Earlier programs must refuse the drive before anything stands there that they would not understand.
#[test]
fn a_drive_of_an_earlier_format_gets_the_present_one_and_loses_nothing() {
    use crate::format::superblock::{FORMAT_VERSION, format_version};
    let layout = layout_of_detached();
    let copies = [0, layout.data_end_block()];
    // Both copies, or one where the power went between them.
    for outdated in [&copies[..], &copies[..1], &copies[1..]] {
        let machine = detached();
        let mut image = machine.drive.snapshot();
        for block in outdated {
            let mut bytes = image.read_vec(Layout::offset_of(*block), BLOCK_BYTES);
            bytes[16..20].copy_from_slice(&1_u32.to_le_bytes());
            crate::format::seal(&mut bytes);
            image.write(Layout::offset_of(*block), &bytes);
        }
        machine.drive.restore(image);
        machine.restart();
        let (store, report) = machine.attach().unwrap();
        assert_eq!((report.structures_damaged, report.unproven.len()), (0, 0), "{outdated:?}");
        let slots: Vec<_> = store.slabs().into_iter().map(|slab| slab.slot).collect();
        let seen = machine.run({
            let store = store.clone();
            move |_| async move { read_all(&store, slots[0], 1024).await }
        });
        assert_eq!((&seen[3], &seen[700]), (&Seen::Content(3), &Seen::Content(700)));
        let image = machine.drive.snapshot();
        for block in copies {
            let bytes = image.read_vec(Layout::offset_of(block), BLOCK_BYTES);
            assert_eq!(format_version(&bytes), Ok(FORMAT_VERSION), "{outdated:?}");
        }
    }
}

/// Two copies that are whole and differ cannot both be meant: the first one counts, and the second is damage.
#[test]
fn a_copy_of_the_superblock_that_is_another_ones_is_damage() {
    let layout = layout_of_detached();
    let machine = detached();
    let mut image = machine.drive.snapshot();
    let mut other = crate::format::superblock::Superblock::decode(&image.read_vec(0, BLOCK_BYTES)).unwrap();
    other.created_unix_ms += 1;
    let mut bytes = vec![0; BLOCK_BYTES];
    other.encode(&mut bytes);
    image.write(Layout::offset_of(layout.data_end_block()), &bytes);
    machine.drive.restore(image);
    machine.restart();
    let (_, report) = machine.attach().unwrap();
    assert_eq!(report.structures_damaged, 1);
}

/// What it holds may be whole.
#[test]
fn a_drive_whose_superblocks_cannot_be_read_has_failed_and_is_not_damaged() {
    let machine = detached();
    machine.drive.fail_reads(0..24 << 20, Repeat::Always);
    machine.restart();
    let refused = machine.attach().map(|(_, report)| report);
    assert!(matches!(refused, Err(AttachError::Drive(_))), "{refused:?}");
}

/// A crash has left maps, confirmed groups, and a last one.
fn crashed_with_maps_and_groups() -> Machine {
    let machine = detached();
    let (store, _) = machine.attach().unwrap();
    machine.run(move |platform| async move {
        for block in 10..20 {
            let content = 5000 + u64::from(block);
            write_block(&platform, &store, key(1, 0), block, version(1, content), content).await.unwrap();
        }
    });
    machine.restart();
    machine
}

/// What fails for a moment may all be there: an attach that meets it ends, or finds everything whole. In no case does
/// it leave less behind than there was.
#[test]
fn a_drive_that_answers_nothing_for_a_moment_of_an_attach_is_not_damaged() {
    let crashed = crashed_with_maps_and_groups().drive.snapshot();
    let (mut given_up, mut attached) = (0, 0);
    for moment in 0..200_u64 {
        let machine = Machine::with_image(1, drive_config(24), crashed.clone());
        let dying = machine.drive.clone();
        let outcome = machine.run(move |platform| async move {
            let drive = open(&platform).await;
            let failing = async {
                platform.sleep(Duration::from_micros(40 * moment)).await;
                dying.die();
                platform.sleep(Duration::from_micros(50 + 37 * (moment % 20))).await;
                dying.revive();
            };
            let attaching = DriveStore::attach(&platform, drive, 0);
            futures_util::future::join(attaching, failing).await.0.map(|(_, report)| report)
        });
        match outcome {
            Err(AttachError::Drive(_)) => given_up += 1,
            Err(other) => panic!("after {moment} moments: {other}"),
            Ok(report) => {
                attached += 1;
                assert_eq!((report.structures_damaged, report.blocks_lost), (0, 0), "{moment}: {report:?}");
                assert_eq!((report.blocks_in_doubt, &report.unproven[..]), (0, &[][..]), "{moment}");
            }
        }
        machine.restart();
        let (store, report) = machine.attach().unwrap();
        assert_eq!((report.structures_damaged, report.blocks_lost), (0, 0), "{moment}: {report:?}");
        assert_eq!((report.blocks_in_doubt, &report.unproven[..]), (0, &[][..]), "{moment}");
        let slot = store.find_slab(volume(1), SlabIndex(0)).unwrap().slot;
        let seen = machine.run(move |_| async move { read_all(&store, slot, 20).await });
        assert_eq!(seen[10..], (10..20).map(|block| Seen::Content(5000 + block)).collect::<Vec<_>>());
    }
    assert!(given_up >= 20 && attached >= 20, "{given_up} given up, {attached} attached");
}

#[test]
fn a_recovery_tells_how_much_of_the_journal_it_has_replayed() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    machine.run(|platform| async move {
        add_slab(&store, key(1, 0), copy(1)).await.unwrap();
        for block in 0..5 {
            write_block(&platform, &store, key(1, 0), block, version(1, 1 + u64::from(block)), 7)
                .await
                .unwrap();
        }
    });
    machine.restart();
    let (_, report) = machine.attach().unwrap();
    assert!(report.groups_replayed >= 5, "{report:?}");
    assert_eq!((report.blocks_in_doubt, report.blocks_lost, report.structures_damaged), (0, 0, 0));
}

/// The newest state that a drive has seen stands on it from the next checkpoint on; it never becomes older.
#[test]
fn how_new_a_state_the_drive_has_seen_survives() {
    let machine = detached();
    let mut expected = 0;
    for noted in [7, 3, 9] {
        let (store, _) = machine.attach().unwrap();
        assert_eq!(store.state_revision(), expected);
        store.note_state_revision(noted);
        expected = expected.max(noted);
        machine.run(move |_| async move { store.detach().await.unwrap() });
        machine.restart();
        let identity = machine.run(|platform| async move {
            let drive = open(&platform).await;
            DriveStore::identify(&platform, &drive).await.unwrap()
        });
        assert_eq!(identity.state_revision, expected);
    }
}

/// Appends groups to the journal of a drive that nobody has attached, as a program with a mistake might have.
fn append_groups(machine: &Machine, groups: &[Vec<Record>]) {
    let layout = layout_of_detached();
    let mut image = machine.drive.snapshot();
    let root = roots_of(&image, &layout).pop().expect("there is one").1;
    let newest = root.clone();
    let mut next = machine.run(move |platform| async move {
        let media = capacity(&platform, &open(&platform).await, &layout);
        let mut reader = JournalReader::new(&platform, &media, layout, &newest);
        while reader.next().await.unwrap().is_some() {}
        reader.position()
    });
    for records in groups {
        let header = GroupHeader {
            sequence: next.sequence,
            previous_checksum: next.previous_checksum,
            lap: next.lap,
            attach_number: root.attach_number,
            root_generation: root.generation,
            confirmed_sequence: next.sequence - 1,
        };
        let mut writer = GroupWriter::new(header.lap);
        records.iter().for_each(|record| writer.push(record));
        let (bytes, checksum) = writer.finish(&header, root.drive);
        let sector_bytes = layout.sector_bytes as usize;
        let first = Layout::offset_of(layout.journal_first_block);
        image.write(first + u64::from(next.sector) * sector_bytes as u64, &bytes);
        next.sequence += 1;
        next.previous_checksum = checksum;
        next.sector += bytes.len().div_ceil(sector_bytes) as u32;
    }
    machine.drive.restore(image);
    machine.restart();
}

/// Such a journal is sealed and in its place, and means nothing: the drive is refused and left as it is.
#[test]
fn a_journal_that_contradicts_the_maps_is_refused() {
    let slot = layout_of_detached().slots_max();
    let other_slab = SlabAdd {
        slab_slot: slot,
        volume_slot: 0,
        slab: SlabIndex(2),
        layout: SlabLayout::mirror(3, 0),
        copy: copy(9),
        birth: Version::ZERO,
    };
    let volume_beyond = vec![Record::VolumeAdd { volume_slot: slot, volume: volume(9) }];
    let machine = detached();
    let (store, _) = machine.attach().unwrap();
    let (slots, owned) = {
        let state = store.inner.state.borrow();
        let slots = [0, 1].map(|slab| store.find_slab(volume(1), SlabIndex(slab)).unwrap().slot.0);
        (slots, state.slabs.get(slots[1]).unwrap().mapping(3))
    };
    machine.run(move |_| async move { store.detach().await.unwrap() });
    machine.restart();
    let stolen = Record::Write(MappingRecord {
        slab_slot: slots[0],
        first: 9,
        counter: 5000,
        block: owned.block,
        checksums: vec![owned.checksum].into(),
    });
    let whole = machine.drive.snapshot();
    for (what, groups) in [
        ("lies beyond", vec![volume_beyond]),
        ("lies beyond", vec![vec![Record::SlabAdd(other_slab)]]),
        ("two owners", vec![vec![stolen], Vec::new()]),
    ] {
        machine.drive.restore(whole.clone());
        machine.restart();
        append_groups(&machine, &groups);
        let image = machine.drive.snapshot();
        let refused = machine.attach().map(|(_, report)| report);
        assert!(
            matches!(&refused, Err(AttachError::Damaged(detail)) if detail.contains(what)),
            "{refused:?}"
        );
        assert_eq!(machine.drive.snapshot(), image, "it is left as it is: {what}");
    }
}

/// The last group may not have been answered yet.
#[test]
fn blocks_of_the_last_group_whose_data_are_not_there_are_in_doubt_one_by_one() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    let physical = machine.run(|platform| async move {
        let slot = add_slab(&store, key(1, 0), copy(1)).await.unwrap();
        write_blocks(&platform, &store, key(1, 0), 7, version(1, 1), &[1, 2, 3]).await.unwrap();
        let state = store.inner.state.borrow();
        [7, 9].map(|block| state.slabs.get(slot.0).unwrap().mapping(block).block)
    });
    for block in physical {
        machine.drive.flip_bit(Layout::offset_of(block) + 5, 1);
    }
    machine.restart();
    let (store, report) = machine.attach().unwrap();
    assert_eq!((report.blocks_in_doubt, report.blocks_lost, report.structures_damaged), (2, 0, 0));
    machine.run(move |_| async move {
        let slot = store.find_slab(volume(1), SlabIndex(0)).unwrap().slot;
        let seen = read_all(&store, slot, 1024).await;
        assert_eq!(seen[6..11], [Seen::Hole, Seen::Hole, Seen::Content(2), Seen::Hole, Seen::Hole]);
    });
}
