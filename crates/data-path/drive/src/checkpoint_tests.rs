use std::rc::Rc;

use spandrel_platform_simulated::Random;
use spandrel_shared::BLOCK_BYTES;

use super::*;
use crate::test_support::explorer::{Budget, crash_images, explore};
use crate::test_support::machine::{Machine, add_slab, write_block};
use crate::test_support::observation::{check_ownership, check_ownership_of_all, observe};
use crate::test_support::oracle::Oracle;
use crate::test_support::script::{Runner, Step};
use crate::test_support::{Store, copy, drive_config, factor, key, vary_map_memory, version, volume};

/// The journal has 1 MiB, of which ordinary groups use a quarter before a checkpoint begins.
const DRIVE_MIB: u64 = 24;

fn run(machine: &Machine, runner: &Runner, steps: Vec<Step>) {
    let runner = runner.clone();
    machine.run(move |_| async move { runner.run(&steps).await });
}

fn runner(machine: &Machine, store: &Store, oracle: Oracle) -> Runner {
    Runner::new(machine.platform(), store.clone(), machine.drive.clone(), oracle)
}

/// What users do all the time. No step asks for a checkpoint: the journal does.
fn random_step(random: &Random) -> Step {
    let slab = [key(1, 0), key(1, 1), key(2, 0)][random.index(3)];
    let first = random.below(1020) as u32;
    let count = 1 + random.below(4) as u32;
    match random.below(20) {
        0..14 => Step::Write(slab, first, count),
        14 => Step::Trim(slab, first, count),
        15 => Step::SetPage(slab, random.below(2) as u32, random.chance(500)),
        16 => Step::Fence(slab.0),
        _ => Step::Mark(slab.0, random.index(4)),
    }
}

fn add_slabs() -> Vec<Step> {
    vec![Step::Add(key(1, 0)), Step::Add(key(1, 1)), Step::Add(key(2, 0)), Step::Join]
}

#[test]
fn records_are_split_into_changes_of_a_size() {
    let mark = |exceptions: usize| Record::Mark {
        volume_slot: 0,
        mark: version(1, 1),
        exceptions: vec![version(1, 0); exceptions],
    };
    let small = record_bytes(&mark(0));
    let fits = CHANGE_BYTES / small;
    for (records, expected) in [(1, vec![1]), (fits, vec![fits]), (fits + 1, vec![fits, 1])] {
        let changes = split((0..records).map(|_| mark(0)).collect());
        assert_eq!(changes.iter().map(Vec::len).collect::<Vec<usize>>(), expected);
    }
    let long = CHANGE_BYTES / 12 + 1;
    let changes = split(vec![mark(0), mark(long), mark(0), mark(0)]);
    assert_eq!(changes.iter().map(Vec::len).collect::<Vec<usize>>(), [1, 1, 2], "a long one stands alone");
    assert_eq!(split(Vec::new()), Vec::<Vec<Record>>::new());
}

/// Pages get places from several runs of free blocks, and not all of these may be needed.
#[test]
fn what_a_batch_of_pages_does_not_use_is_free_again() {
    for used in 0..=7 {
        let (machine, store) = Machine::attached(1, drive_config(DRIVE_MIB));
        machine.run(move |_| async move {
            let inner = &store.inner;
            let free = || inner.with_allocator(|allocator| allocator.free_blocks());
            let before = free();
            let mut batch = PageBatch::allocate(inner, 4).expect("there is room");
            let second = PageBatch::allocate(inner, 3).expect("there is room");
            batch.runs.extend(second.runs);
            batch.buffers.extend(second.buffers);
            let mut places = Vec::new();
            for number in 0..used {
                let pointer = batch.add(|page| {
                    page.fill(number + 1);
                    u32::from(number)
                });
                assert_eq!(pointer.checksum, u32::from(number));
                places.push(pointer.block);
            }
            batch.write(inner).await.expect("the drive works");
            assert_eq!(free(), before - u32::from(used));
            assert_eq!(inner.statistics.borrow().map_bytes % BLOCK_BYTES as u64, 0);
            for (number, block) in (1..).zip(places) {
                let buffer = inner.platform.buffers().take(BLOCK_BYTES);
                let page = inner.media.read(Layout::offset_of(block), buffer).await.expect("it was written");
                assert!(page.iter().all(|byte| *byte == number), "page {number} of {used}");
            }
        });
    }
}

#[test]
fn a_checkpoint_begins_when_the_journal_is_about_three_quarters_full() {
    let (machine, store) = Machine::attached(1, drive_config(256));
    let journal_bytes = store.superblock().layout.journal_bytes();
    let of_drive = Rc::new(store.clone());
    let used = machine.run(|platform| async move {
        add_slab(&store, key(1, 0), copy(1)).await.unwrap();
        store.checkpoint().await.unwrap();
        let mut counter = 0;
        let mut used = Vec::new();
        while used.len() < 5 {
            let before = store.statistics();
            while store.statistics().checkpoints == before.checkpoints {
                counter += 1;
                let (block, newest) = ((counter % 1000) as u32, version(1, counter));
                write_block(&platform, &store, key(1, 0), block, newest, counter).await.unwrap();
                store.note_mark(volume(1), newest, &[]);
            }
            used.push(store.statistics().journal_bytes - before.journal_bytes);
        }
        used
    });
    for bytes in used {
        let share = bytes as f64 / journal_bytes as f64;
        assert!((0.62..0.76).contains(&share), "{bytes} bytes of {journal_bytes}");
    }
    assert!(of_drive.statistics().journal_laps >= 2);
}

/// Power cuts, deaths of the process and orderly ends, one after the other on the same drive, over
/// several laps of the journal.
#[test]
fn what_was_answered_stays_over_many_lives_of_a_drive_and_laps_of_its_journal() {
    vary_map_memory();
    for seed in 0..4 * factor() as u64 {
        let random = Random::new(seed);
        let sector_bytes = if seed % 4 == 3 { 4096 } else { 512 };
        let config =
            spandrel_platform_simulated::SimulatedDriveConfig { sector_bytes, ..drive_config(DRIVE_MIB) };
        let (machine, mut store) = Machine::attached(seed, config);
        let mut oracle = Oracle::default();
        let mut steps = add_slabs();
        let mut lives = 0;
        while store.statistics().journal_laps < 4 {
            let life = runner(&machine, &store, oracle.clone());
            steps.extend((0..random.below(700)).flat_map(|_| {
                let join = random.chance(300).then_some(Step::Join);
                std::iter::once(random_step(&random)).chain(join)
            }));
            run(&machine, &life, std::mem::take(&mut steps));
            // What is under way when the end comes.
            let last: Vec<Step> = (0..random.below(30)).map(|_| random_step(&random)).collect();
            let ending = life.clone();
            machine.process().spawn(async move { ending.run(&last).await });
            machine.world.run_for(std::time::Duration::from_micros(random.below(2000)));
            match random.below(3) {
                0 => machine.power_cycle(),
                1 => machine.restart(),
                _ => {
                    let leaving = store.clone();
                    machine.run(|_| async move { leaving.detach().await.unwrap() });
                    machine.restart();
                }
            }
            lives += 1;
            let (next, report) = machine.attach().unwrap();
            assert_eq!((report.unproven.len(), report.structures_damaged), (0, 0), "seed {seed}");
            let observed = next.clone();
            let observation = machine.run(|_| async move {
                check_ownership_of_all(&observed).await;
                observe(&observed).await
            });
            oracle = life.oracle.borrow().settle(&observation);
            store = next;
        }
        assert!(lives > 5, "seed {seed}: {lives} lives");
    }
}

/// The crashes around those checkpoints that a filling journal brings about, also where the journal
/// wraps around meanwhile.
#[test]
fn every_crash_of_a_checkpoint_beside_other_work_is_survived() {
    let config = drive_config(DRIVE_MIB);
    let (machine, store) = Machine::attached(1, config);
    let runner = runner(&machine, &store, Oracle::default());
    run(&machine, &runner, add_slabs());
    let random = Random::new(12);
    // Works until a checkpoint ends, or until the journal has taken so many bytes since the last.
    let work_until = |ends: &dyn Fn() -> bool| {
        while !ends() {
            run(&machine, &runner, vec![random_step(&random)]);
        }
    };
    let work = |bytes_max: u64| {
        let before = store.statistics();
        let bytes = || store.statistics().journal_bytes - before.journal_bytes;
        work_until(&|| store.statistics().checkpoints > before.checkpoints || bytes() >= bytes_max);
        bytes()
    };
    work(u64::MAX);
    let between_checkpoints = work(u64::MAX);
    let journal_sectors = store.superblock().layout.journal_sectors();
    let mut recoveries = 0;
    for round in 0..6 {
        let at_checkpoint = round % 2 == 0;
        if at_checkpoint {
            work(u64::MAX);
            work(between_checkpoints - 4096);
        } else {
            work_until(&|| store.inner.journal.borrow().next.sector > journal_sectors - 8);
        }
        let before = store.statistics();
        let body = {
            let steps = (0..60).flat_map(|_| {
                let join = random.chance(300).then_some(Step::Join);
                std::iter::once(random_step(&random)).chain(join)
            });
            let steps: Vec<Step> = steps.collect();
            let runner = runner.clone();
            async move { runner.run(&steps).await }
        };
        let oracle = Rc::clone(&runner.oracle);
        let answers = {
            let oracle = Rc::clone(&oracle);
            move || oracle.borrow().fact_count() as u64
        };
        explore(&machine, body, answers, |_| {
            // All that is kept or lost at some moments, and more at few.
            let budget = match random.below(40) / factor() as u64 {
                0 => Budget::SMALL.times(factor()),
                1..10 => Budget { random: 0, ..Budget::SMALL },
                _ => return,
            };
            for image in crash_images(&machine.drive, budget, &random) {
                recoveries += 1;
                let machine = Machine::with_image(recoveries, config, image);
                let (store, report) = machine.attach().unwrap();
                assert_eq!((report.unproven.len(), report.structures_damaged), (0, 0));
                check_ownership(&store);
                let observation = machine.run(|_| async move { observe(&store).await });
                oracle.borrow().settle(&observation);
            }
        });
        let after = store.statistics();
        if at_checkpoint {
            assert!(after.checkpoints > before.checkpoints, "round {round}: no checkpoint was looked at");
        } else {
            assert!(after.journal_laps > before.journal_laps, "round {round}: no wrap was looked at");
        }
        assert_eq!(runner.failure(), None);
    }
    assert!(recoveries > 300, "{recoveries} crashes");
}
