use std::cell::RefCell;
use std::time::Duration;

use futures_util::future::{join, join_all};
use spandrel_platform_simulated::{Random, Repeat, Room, SimulatedDriveConfig};
use spandrel_shared::{SlabGeometry, SlabIndex, Version};

use super::*;
use crate::format::journal::MappingRecord;
use crate::store::WRITE_BLOCKS_MAX;
use crate::test_support::explorer::{Budget, crash_images, explore};
use crate::test_support::machine::{Machine, add_slab, preallocated, write_block};
use crate::test_support::observation::{check_ownership, check_ownership_of_all, observe};
use crate::test_support::oracle::Oracle;
use crate::test_support::script::{Runner, Step};
use crate::test_support::{
    SlabKey, Store, copy, drive_config, factor, key, small_slabs, vary_map_memory, version, volume,
};

fn runner(machine: &Machine, store: &Store) -> Runner {
    Runner::new(machine.platform(), store.clone(), machine.drive.clone(), Oracle::default())
}

fn run(machine: &Machine, runner: &Runner, steps: Vec<Step>) {
    let runner = runner.clone();
    machine.run(move |_| async move { runner.run(&steps).await });
}

/// Cuts the power, attaches the drive again and judges what it shows.
fn check_after_power_cut(machine: &Machine, oracle: &Oracle) -> Oracle {
    machine.power_cycle();
    let (store, report) = machine.attach().unwrap();
    assert_eq!((report.unproven.len(), report.structures_damaged), (0, 0));
    check_ownership(&store);
    let observation = machine.run(|_| async move { observe(&store).await });
    oracle.settle(&observation)
}

/// How many of these changes a group takes.
fn taken(changes: Vec<Change>) -> usize {
    let count = changes.len();
    let mut pending: PendingChanges = changes.into();
    let taken = take_changes(&mut State::new(small_slabs()), &mut pending, &Queue::new());
    assert_eq!(taken.len() + pending.len(), count);
    taken.len()
}

/// Changes with so many records each.
fn trims(records: &[usize]) -> Vec<Change> {
    let trim = |counter| Record::Trim { slab_slot: 0, first: 0, count: 1, counter };
    records.iter().map(|records| Change::records((0..*records as u64).map(trim).collect())).collect()
}

#[test]
fn a_group_takes_no_more_than_fits() {
    let records_max = (GROUP_BYTES_MAX - GROUP_HEADER_BYTES)
        / record_bytes(&Record::Trim { slab_slot: 0, first: 0, count: 1, counter: 0 });
    assert_eq!(taken(trims(&[1, 1, 2])), 3);
    assert_eq!(taken(trims(&[records_max - 1, 1])), 2, "exactly full");
    assert_eq!(taken(trims(&[records_max, 1])), 1);
}

/// Changes with data, of so many blocks in each of their records.
fn writes(count: usize, blocks: &[u32], is_write: bool) -> Vec<Change> {
    let mapping = |blocks: u32| {
        let checksums = vec![0; blocks as usize];
        MappingRecord { slab_slot: 0, first: 0, counter: 1, block: 900, checksums: checksums.into() }
    };
    let record =
        |blocks| if is_write { Record::Write(mapping(blocks)) } else { Record::Heal(mapping(blocks)) };
    let change = || Change::records(blocks.iter().copied().map(record).collect()).with_data(Vec::new());
    (0..count).map(|_| change()).collect()
}

/// What takes a group back must fit one group: large changes need less for each block than small ones.
#[test]
fn a_group_takes_no_more_than_can_be_taken_back() {
    assert_eq!(taken(writes(100, &[128], false)), 31, "each needs 129 records of the 4,094 that fit");
    assert_eq!(taken(writes(100, &[128], true)), 15, "the list's entries as well");
    assert_eq!(taken(writes(2000, &[1], true)), 1023);
    let apart = [1; WRITE_BLOCKS_MAX as usize];
    assert_eq!(
        taken(writes(2, &apart, true)),
        1,
        "the longest write, if all its blocks lie apart, can be taken back"
    );
}

#[test]
fn changes_that_gather_share_one_group_and_one_flush() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    let runner = runner(&machine, &store);
    run(&machine, &runner, vec![Step::Add(key(1, 0)), Step::Join]);
    let before = store.statistics();
    let steps = (0..40).map(|block| Step::Write(key(1, 0), 2 * block, 1)).collect();
    run(&machine, &runner, steps);
    let after = store.statistics();
    assert_eq!(after.groups - before.groups, 1);
    assert_eq!(after.flushes - before.flushes, 1);
    assert_eq!(after.writes - before.writes, 2, "one for the journal, one for blocks that lie together");
    // A header, an epoch, 40 records; in sectors.
    assert_eq!(after.journal_bytes - before.journal_bytes, 1024);
}

/// Each change is answered when its group has been flushed, in the order in which they were asked
/// for, and those that came meanwhile are the next group.
#[test]
fn answers_follow_their_flush_in_the_order_of_the_questions() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    let answers: Rc<RefCell<Vec<u32>>> = Rc::default();
    machine.run({
        let store = store.clone();
        |_| async move { add_slab(&store, key(1, 0), copy(1)).await.unwrap() }
    });
    let before = machine.drive.counters().flushes;
    let ask = |block: u32| {
        let (store, answers, platform) = (store.clone(), Rc::clone(&answers), machine.platform());
        machine.process().spawn(async move {
            let counter = u64::from(block) + 1;
            write_block(&platform, &store, key(1, 0), block, version(1, counter), 1).await.unwrap();
            answers.borrow_mut().push(block);
        });
    };
    (0..10).for_each(ask);
    let mut late_were_asked = false;
    let mut answered_at: Vec<u64> = Vec::new();
    while answered_at.len() < 30 {
        assert!(machine.world.step(), "all is answered at last");
        if !late_were_asked && machine.drive.unflushed_writes().len() > 1 {
            // The first group is on its way.
            (10..30).for_each(ask);
            late_were_asked = true;
        }
        let flushes = machine.drive.counters().flushes - before;
        answered_at.resize(answers.borrow().len(), flushes);
    }
    assert_eq!(*answers.borrow(), (0..30).collect::<Vec<_>>());
    assert_eq!(answered_at[..10], [1; 10], "after the first flush");
    assert_eq!(answered_at[10..], [2; 20], "together after the second");
    assert_eq!(machine.drive.unflushed_writes(), []);
}

/// Whatever fails of a group, all its changes fail, and so does all that waits.
#[test]
fn a_failure_in_a_group_fails_all_of_it_and_what_waits() {
    let journal = {
        let (_, store) = Machine::attached(1, drive_config(24));
        let layout = store.superblock().layout;
        Layout::offset_of(layout.journal_first_block)..Layout::offset_of(layout.data_first_block)
    };
    for fault in 0..3 {
        let (machine, store) = Machine::attached(1, drive_config(24));
        let results: Rc<RefCell<Vec<Result<(), StoreError>>>> = Rc::default();
        machine.run({
            let store = store.clone();
            |_| async move { add_slab(&store, key(1, 0), copy(1)).await.unwrap() }
        });
        match fault {
            0 => machine.drive.fail_flushes(Repeat::Once),
            1 => machine.drive.fail_writes(journal.clone(), Repeat::Once),
            _ => machine.drive.fail_writes(journal.end.., Repeat::Once),
        }
        let ask = |block: u32| {
            let (store, results, platform) = (store.clone(), Rc::clone(&results), machine.platform());
            machine.process().spawn(async move {
                let counter = u64::from(block) + 1;
                let result = write_block(&platform, &store, key(1, 0), block, version(1, counter), 1).await;
                results.borrow_mut().push(result);
            });
        };
        (0..10).for_each(ask);
        while machine.drive.unflushed_writes().len() < 2 {
            assert!(machine.world.step(), "the group goes out");
        }
        (10..20).for_each(ask);
        while results.borrow().len() < 20 {
            assert!(machine.world.step(), "all is answered at last");
        }
        let failure = store.failure().expect("the store has failed");
        assert!(matches!(failure, StoreError::Failed(_)));
        assert!(results.borrow().iter().all(|result| *result == Err(failure.clone())), "fault {fault}");
        assert_eq!(store.pages(store.slabs()[0].slot).unwrap()[0].mapped_blocks, 0, "nothing was applied");
    }
}

#[test]
fn without_a_volatile_cache_nothing_is_flushed() {
    let (machine, store) =
        Machine::attached(1, SimulatedDriveConfig { volatile_cache: false, ..drive_config(24) });
    let runner = runner(&machine, &store);
    let before = machine.drive.counters().flushes;
    run(
        &machine,
        &runner,
        vec![Step::Add(key(1, 0)), Step::Join, Step::Write(key(1, 0), 0, 4), Step::Checkpoint],
    );
    assert_eq!(machine.drive.counters().flushes, before);
    check_after_power_cut(&machine, &runner.oracle.borrow());
}

/// Each group says which epoch the counters of its volumes belong to, where that has changed.
#[test]
fn epochs_of_several_volumes_may_change_within_a_group() {
    for seed in 0..10 {
        let (machine, store) = Machine::attached(seed, drive_config(24));
        let runner = runner(&machine, &store);
        let slabs = [key(1, 0), key(2, 0), key(3, 0)];
        let mut steps: Vec<Step> = slabs.iter().map(|slab| Step::Add(*slab)).collect();
        steps.push(Step::Join);
        for round in 0..12 {
            for slab in slabs {
                steps.push(Step::Write(slab, round * 3, 2));
                if (round + u32::from(slab.0.to_bytes()[0])).is_multiple_of(3) {
                    steps.push(Step::Fence(slab.0));
                }
                steps.push(Step::Trim(slab, round * 3 + 1, 1));
            }
            if round == 6 {
                steps.push(Step::Checkpoint);
            }
        }
        run(&machine, &runner, steps);
        check_after_power_cut(&machine, &runner.oracle.borrow());
    }
}

/// Twenty volumes whose marks are due in the same group.
#[test]
fn the_marks_of_many_volumes_are_all_recorded() {
    let (machine, store) = Machine::attached(1, drive_config(100));
    let volumes: Vec<SlabKey> = (0..20).map(|number| key(number, 0)).collect();
    let listed = volumes.clone();
    machine.run(|platform| async move {
        for (number, slab) in (0..).zip(&volumes) {
            add_slab(&store, *slab, copy(number)).await.unwrap();
        }
        let task = |slab: SlabKey| {
            let (platform, store) = (platform.clone(), store.clone());
            async move {
                for counter in 1..=150 {
                    write_block(&platform, &store, slab, 0, version(1, counter), counter).await.unwrap();
                    store.note_mark(slab.0, version(1, counter), &[]);
                }
            }
        };
        join_all(volumes.iter().map(|slab| task(*slab))).await;
        assert_eq!(store.statistics().checkpoints, 1, "a checkpoint would record the marks as well");
    });
    machine.power_cycle();
    let (store, _) = machine.attach().unwrap();
    for (volume, _) in listed {
        assert!(store.mark(volume) >= version(1, 100), "{} of {volume}", store.mark(volume));
        assert!(store.listed(volume).len() < 100);
    }
}

/// Marks with thousands of exceptions are long records. A group that were too long could not be
/// read back, and all behind it would be lost.
#[test]
fn marks_with_many_exceptions_do_not_make_a_group_too_long() {
    let (machine, store) = Machine::attached(1, drive_config(64));
    let slabs: Vec<SlabKey> = (1..=6).map(|number| key(number, 0)).collect();
    let exceptions: Vec<Version> = (1..=4000).map(|counter| version(1, counter)).collect();
    let noted = exceptions.clone();
    let volumes = slabs.clone();
    machine.run(|platform| async move {
        for (number, slab) in (0..).zip(&slabs) {
            add_slab(&store, *slab, copy(number)).await.unwrap();
        }
        for counter in 5000..5200 {
            let writes = slabs.iter().map(|slab| {
                store.note_mark(slab.0, version(1, counter), &exceptions);
                write_block(&platform, &store, *slab, 0, version(1, counter), counter)
            });
            join_all(writes).await.into_iter().for_each(|written| written.unwrap());
        }
    });
    machine.power_cycle();
    let (store, report) = machine.attach().unwrap();
    assert_eq!(report.unproven, []);
    for (volume, slab) in &volumes {
        assert_eq!(store.listed_exceptions(*volume), noted);
        let page = store.pages(store.find_slab(*volume, *slab).unwrap().slot).unwrap()[0];
        assert_eq!(page.version, version(1, 5199), "what was answered is there");
    }
}

#[test]
fn when_too_many_writes_are_above_the_mark_further_ones_are_refused() {
    let (machine, store) = Machine::attached(1, drive_config(12));
    let max = store.superblock().layout.listed_writes_max() as u64;
    let image = machine.run(|platform| async move {
        let slab = key(1, 0);
        let slot = add_slab(&store, slab, copy(1)).await.unwrap();
        let write = |counter: u64| write_block(&platform, &store, slab, 0, version(1, counter), counter);
        for counter in 1..=max {
            write(counter).await.unwrap();
        }
        assert_eq!(write(max + 1).await, Err(StoreError::NoRoom));
        assert_eq!(store.trim(slot, 0, 1, version(1, max + 1)).await, Err(StoreError::NoRoom));
        store.checkpoint().await.unwrap();
        assert_eq!(store.listed(slab.0).len() as u64, max);
        store.note_mark(slab.0, version(1, 9), &[]);
        // What a crash would bring back counts as well, until the mark is durable.
        assert_eq!(write(max + 1).await, Err(StoreError::NoRoom));
        store.checkpoint().await.unwrap();
        write(max + 1).await.unwrap();
        observe(&store).await
    });
    machine.power_cycle();
    let (store, _) = machine.attach().unwrap();
    let again = machine.run(|_| async move { observe(&store).await });
    assert_eq!((again.slabs, again.volumes), (image.slabs, image.volumes));
}

fn without_room(room: Room) -> Vec<Step> {
    let (a, b) = (key(1, 0), key(2, 0));
    let mut steps = vec![Step::Add(a), Step::Add(b), Step::Join];
    steps.extend((0..8).map(|block| Step::Write(a, block, 1)));
    steps.extend([Step::Join, Step::Write(a, 20, 2), Step::Write(b, 0, 1), Step::Join]);
    steps.extend([Step::Room(room), Step::Write(a, 0, 2), Step::Write(a, 500, 20), Step::Write(b, 0, 1)]);
    steps.extend([Step::Trim(a, 2, 1), Step::SetPage(b, 1, true), Step::Fence(volume(1)), Step::Join]);
    steps.extend([Step::Write(a, 1022, 2), Step::Write(a, 510, 2), Step::Join]);
    steps.extend([Step::Write(b, 1, 1), Step::Checkpoint, Step::Write(b, 2, 30), Step::Join]);
    steps.extend([Step::Mark(volume(1), 0), Step::Write(a, 4, 1), Step::Add(key(3, 0)), Step::Join]);
    steps.extend([Step::Room(Room::Enough), Step::Write(a, 0, 2), Step::Write(b, 0, 4), Step::Join]);
    steps.extend([Step::Checkpoint, Step::Write(b, 600, 1), Step::Add(key(3, 0)), Step::Join]);
    steps
}

/// What lacked room did not happen, whenever the power fails.
#[test]
fn a_change_without_room_is_refused_and_leaves_nothing_behind() {
    vary_map_memory();
    let mut refusals = 0;
    for (seed, room) in [(1, Room::OnlyOverwrites), (2, Room::None), (3, Room::OnlyOverwrites)] {
        let sector_bytes = if seed == 3 { 4096 } else { 512 };
        let config = SimulatedDriveConfig { sector_bytes, ..drive_config(24) };
        let machine = Machine::with_image(seed, config, preallocated(config));
        machine.format();
        let (store, _) = machine.attach().unwrap();
        let runner = runner(&machine, &store);
        let random = Random::new(seed);
        let oracle = Rc::clone(&runner.oracle);
        let body = {
            let runner = runner.clone();
            async move { runner.run(&without_room(room)).await }
        };
        let answers = {
            let (oracle, runner) = (Rc::clone(&oracle), runner.clone());
            move || (oracle.borrow().fact_count() + runner.refusals()) as u64
        };
        explore(&machine, body, answers, |_| {
            for image in crash_images(&machine.drive, Budget::SMALL.times(2 * factor()), &random) {
                let machine = Machine::with_image(seed, config, image);
                let (store, report) = machine.attach().unwrap();
                assert_eq!(report.unproven, []);
                let observation = machine.run(|_| async move {
                    check_ownership_of_all(&store).await;
                    observe(&store).await
                });
                oracle.borrow().settle(&observation);
            }
        });
        assert_eq!(runner.failure(), None);
        assert!(runner.refusals() >= 4, "{} refusals", runner.refusals());
        refusals += machine.drive.counters().writes_without_room;
        let observation = machine.run(move |_| async move {
            check_ownership_of_all(&store).await;
            observe(&store).await
        });
        oracle.borrow().check(&observation);
    }
    assert!(refusals > 10);
}

/// The block stays damaged as it was, and what was to take its place belongs to whoever gets it next.
#[test]
fn a_heal_without_room_is_taken_back() {
    let config = drive_config(24);
    let machine = Machine::with_image(1, config, preallocated(config));
    machine.format();
    let (store, _) = machine.attach().unwrap();
    let runner = runner(&machine, &store);
    let slab = key(1, 0);
    let healed =
        [Step::Add(slab), Step::Join, Step::Write(slab, 0, 8), Step::Join, Step::Room(Room::OnlyOverwrites)];
    run(&machine, &runner, healed.into_iter().chain([Step::Heal(slab, 5), Step::Join]).collect());
    assert_eq!(machine.drive.counters().writes_without_room, 1, "the good content had no room");
    run(&machine, &runner, vec![Step::Room(Room::Enough), Step::Write(slab, 20, 2), Step::Join]);
    check_ownership(&store);
    check_after_power_cut(&machine, &runner.oracle.borrow());
}

/// As long as there is no room for map pages, what is refused fills the journal up; then nothing is
/// written any more, and when there is room again everything goes on.
#[test]
fn a_drive_without_room_for_checkpoints_refuses_writes_and_recovers() {
    let config = drive_config(12);
    let machine = Machine::with_image(1, config, preallocated(config));
    machine.format();
    let (store, _) = machine.attach().unwrap();
    let runner = runner(&machine, &store);
    let slab = key(1, 0);
    run(&machine, &runner, vec![Step::Add(slab), Step::Join, Step::Write(slab, 0, 50), Step::Join]);
    machine.drive.set_room(Room::OnlyOverwrites);
    for round in 0.. {
        assert!(round < 5000, "the journal never fills up");
        let before = (runner.refusals(), store.statistics().groups);
        run(&machine, &runner, vec![Step::Write(slab, round % 50, 1), Step::Mark(slab.0, 0)]);
        assert_eq!(runner.refusals() - before.0, 1);
        if store.statistics().groups == before.1 {
            break;
        }
    }
    assert_eq!(store.failure(), None);
    let refused = runner.refusals();
    run(&machine, &runner, vec![Step::Trim(slab, 0, 1), Step::Fence(slab.0), Step::Checkpoint]);
    assert_eq!(runner.refusals() - refused, 2, "there is no room for anything");
    machine.drive.set_room(Room::Enough);
    let refused = runner.refusals();
    run(&machine, &runner, (0..50).map(|block| Step::Write(slab, block, 1)).collect());
    run(&machine, &runner, vec![Step::Checkpoint, Step::Join, Step::Write(slab, 5, 1)]);
    assert_eq!(runner.refusals(), refused);
    check_ownership(&store);
    check_after_power_cut(&machine, &runner.oracle.borrow());
}

/// A write is taken back of which nothing is left to say, since its slab went with it, directly before the journal
/// has no more room for ordinary groups: what takes it back does not wait for that.
#[test]
fn a_write_that_goes_with_its_slab_is_taken_back_however_full_the_journal_is() {
    for groups_first in 0..4 {
        let config = drive_config(12);
        let machine = Machine::with_image(1, config, preallocated(config));
        machine.format();
        let (store, _) = machine.attach().unwrap();
        machine.drive.set_room(Room::OnlyOverwrites);
        machine.run(|platform| async move {
            add_slab(&store, key(2, 0), copy(2)).await.unwrap();
            for epoch in 1..=groups_first {
                store.fence(volume(2), Epoch(epoch)).await.unwrap();
            }
            let mut rounds = 0;
            for round in 1.. {
                assert!(round < 5000, "the journal never fills up");
                let Ok(slot) = add_slab(&store, key(1, 0), copy(1)).await else { break };
                let write = write_block(&platform, &store, key(1, 0), 3, version(1, round), round);
                let (removed, written) = join(store.remove_slab(slot), write).await;
                assert_eq!(written, Err(StoreError::NoRoom));
                if removed.is_err() {
                    break;
                }
                rounds = round;
            }
            assert!(rounds > 100, "only {rounds} writes were taken back");
            assert_eq!(store.failure(), None);
            check_ownership(&store);
        });
    }
}

/// To close the journal of a drive without room is tried once, and again when something was written.
#[test]
fn a_drive_without_room_is_not_asked_again_and_again_to_close_its_journal() {
    let (machine, store) = Machine::attached(1, drive_config(24));
    let drive = machine.drive.clone();
    machine.run(|platform| async move {
        add_slab(&store, key(1, 0), copy(1)).await.unwrap();
        write_block(&platform, &store, key(1, 0), 3, version(1, 1), 5).await.unwrap();
        drive.set_room(Room::None);
        platform.sleep(Duration::from_secs(60)).await;
        assert_eq!(drive.counters().writes_without_room, 1);
        drive.set_room(Room::Enough);
        write_block(&platform, &store, key(1, 0), 3, version(1, 2), 6).await.unwrap();
        let written = store.statistics().groups;
        platform.sleep(Duration::from_secs(5)).await;
        assert_eq!(store.statistics().groups, written + 1, "now it is closed");
    });
}

/// What fails at some operation stops the store; what was answered before is there after a new
/// attach, and what was not is whole or absent.
#[test]
fn a_failed_operation_stops_the_store_and_loses_no_answer() {
    let mut failures = 0;
    for seed in 0..120 {
        let (machine, store) = Machine::attached(seed, drive_config(24));
        let runner = runner(&machine, &store);
        let begin = vec![Step::Add(key(1, 0)), Step::Join, Step::Write(key(1, 0), 0, 100), Step::Join];
        run(&machine, &runner, begin);
        let random = Random::new(seed);
        let drive = machine.drive.clone();
        machine.world.after(Duration::from_micros(random.below(4000)), move |_| match seed % 3 {
            0 => drive.fail_writes(.., Repeat::Once),
            1 => drive.fail_flushes(Repeat::Once),
            _ => drive.fail_writes((seed % 7) << 20.., Repeat::Once),
        });
        let mut steps = Vec::new();
        for step in 0..60 {
            steps.push(Step::Write(key(1, 0), random.below(100) as u32, 1 + random.below(4) as u32));
            match step % 9 {
                3 => steps.push(Step::Checkpoint),
                5 => steps.push(Step::Join),
                _ => {}
            }
        }
        run(&machine, &runner, steps);
        if let Some(failure) = runner.failure() {
            failures += 1;
            assert_eq!(store.failure(), Some(failure.clone()));
            let late =
                machine.run({
                    let store = store.clone();
                    move |platform| async move {
                        write_block(&platform, &store, key(1, 0), 0, version(9, 1), 1).await
                    }
                });
            assert_eq!(late, Err(failure));
        }
        machine.drive.clear_faults();
        if seed % 2 == 0 {
            check_after_power_cut(&machine, &runner.oracle.borrow());
        } else {
            machine.restart();
            let (store, _) = machine.attach().unwrap();
            let observation = machine.run(|_| async move { observe(&store).await });
            runner.oracle.borrow().settle(&observation);
        }
    }
    assert!(failures > 60, "only {failures} failures");
}

/// What a store adds to the bytes that users write: 4 KiB at random places of a drive that is full of
/// slabs, `depth` outstanding, over three turns of the journal and until every page of the maps is
/// clean again. Returns device bytes per user byte.
fn cost_of_random_writes(size_mib: u64, slab_geometry: SlabGeometry, volumes: u8, depth: u64) -> f64 {
    let machine = Machine::new(1, drive_config(size_mib));
    machine.format_with(slab_geometry);
    let (store, _) = machine.attach().unwrap();
    let slabs = store.superblock().layout.promised_slabs();
    let slab_blocks = store.superblock().layout.slab_geometry.slab_blocks();
    let asked = Rc::new(RefCell::new(0_u64));
    let done = store.clone();
    let before = store.statistics();
    let slab_key = move |slab: u32| (volume((slab % u32::from(volumes)) as u8), SlabIndex(slab));
    machine.run(move |platform| async move {
        for slab in 0..slabs {
            add_slab(&store, slab_key(slab), copy(slab.into())).await.unwrap();
        }
        let writer = |number: u64| {
            let (platform, store, asked) = (platform.clone(), store.clone(), Rc::clone(&asked));
            let random = Random::stream(5, "writer", number);
            async move {
                while store.statistics().journal_laps < 3 {
                    *asked.borrow_mut() += 1;
                    let counter = *asked.borrow();
                    let slab = slab_key(random.below(slabs.into()) as u32);
                    let block = random.below(slab_blocks.into()) as u32;
                    // All others that are under way may be older.
                    store.note_mark(slab.0, version(1, counter.saturating_sub(depth)), &[]);
                    write_block(&platform, &store, slab, block, version(1, counter), counter).await.unwrap();
                }
            }
        };
        join_all((0..depth).map(writer)).await;
        store.checkpoint().await.unwrap();
    });
    let after = done.statistics();
    let user_bytes = (after.blocks_written * BLOCK_BYTES as u64) as f64;
    assert_eq!(after.data_bytes as f64, user_bytes);
    let (journal_bytes, map_bytes) =
        (after.journal_bytes - before.journal_bytes, after.map_bytes - before.map_bytes);
    let total = 1.0 + (journal_bytes + map_bytes) as f64 / user_bytes;
    println!(
        "{size_mib} MiB, {volumes} volumes, depth {depth}: {} writes, {} groups, {} checkpoints: \
         journal {:.4}, maps {:.4}, total {total:.4}",
        after.blocks_written,
        after.groups,
        after.checkpoints,
        journal_bytes as f64 / user_bytes,
        map_bytes as f64 / user_bytes,
    );
    let counted = machine.drive.counters().written_bytes;
    let sent = after.data_bytes + after.journal_bytes + after.map_bytes;
    assert!(counted - sent < 1 << 20, "{sent} bytes are counted of {counted}");
    total
}

#[test]
fn random_writes_cost_little_more_than_their_data() {
    let total = cost_of_random_writes(512, SlabGeometry::default(), 1, 48);
    assert!(total <= 1.016, "{total:.4} bytes for a byte");
}

/// A small drive has a root page for every two map pages, and a small journal.
#[test]
fn random_writes_to_many_small_volumes_on_a_small_drive_cost_little_more() {
    let total = cost_of_random_writes(128, small_slabs(), 16, 128);
    assert!(total <= 1.025, "{total:.4} bytes for a byte");
}

/// The same for drives of the sizes that a small cluster in one machine has. For people: it takes
/// gigabytes of memory.
#[test]
#[ignore = "takes gigabytes of memory and a minute"]
fn random_writes_to_larger_drives() {
    for size_mib in [256, 1 << 10, 2 << 10, 4 << 10] {
        for slab_mib in [4, 64, 256] {
            if let Some(geometry) = SlabGeometry::new(slab_mib << 20)
                && Layout::for_drive(size_mib << 20, 512, geometry).is_some()
            {
                print!("slabs of {slab_mib} MiB: ");
                assert!(cost_of_random_writes(size_mib, geometry, 16, 128) <= 1.025);
            }
        }
    }
}
