use std::cell::Cell;
use std::collections::BTreeSet;

use futures_util::future::join_all;

use super::*;
use crate::{
    CrashMoment, CrashPlan, CrashScope, Host, Process, Random, Repeat, RunEnd, SimulatedDrive, World,
};

/// Latencies that are fixed, so that a test can tell what is in flight.
fn fixed(volatile_cache: bool) -> SimulatedDriveConfig {
    SimulatedDriveConfig {
        size_bytes: 1 << 20,
        volatile_cache,
        read_latency: DelayRange::microseconds(10, 10),
        write_latency: DelayRange::microseconds(100, 100),
        flush_latency: DelayRange::microseconds(1000, 1000),
        bandwidth_bytes_per_second: None,
        ..SimulatedDriveConfig::default()
    }
}

struct Bench {
    world: World,
    process: Process,
    control: SimulatedDrive,
    drive: OpenDrive,
}

impl Bench {
    fn new(seed: u64, config: SimulatedDriveConfig) -> Self {
        let world = World::new(seed);
        let control = world.add_drive("drive", config);
        let process = world.process("process");
        let drive = open_in(&process).expect("it is free");
        Self { world, process, control, drive }
    }

    fn block(&self, fill: u8, length: usize) -> Buffer {
        let mut block = self.process.platform().buffers().take(length);
        block.fill(fill);
        block.freeze()
    }

    fn write(&self, offset: u64, fill: u8, length: usize) -> Result<(), DriveError> {
        let write = self.drive.start_write(offset, &[self.block(fill, length)]);
        self.finish(write)
    }

    /// Submits a write and runs nothing.
    fn begin_write(&self, offset: u64, fill: u8) {
        drop(self.drive.start_write(offset, &[self.block(fill, 512)]));
    }

    fn flush(&self) -> Result<(), DriveError> {
        let drive = self.drive.clone();
        self.finish(async move { drive.flush().await })
    }

    fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, DriveError> {
        let drive = self.drive.clone();
        let into = self.process.platform().buffers().take(length);
        self.finish(async move { drive.read(offset, into).await.map(|bytes| bytes.to_vec()) })
    }

    fn finish<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.process.block_on(future).expect("the operation completes")
    }
}

fn open_in(process: &Process) -> Result<OpenDrive, DriveError> {
    let platform = process.platform();
    process.block_on(async move { platform.open_drive("drive").await }).expect("opening completes")
}

fn kind_of<T: std::fmt::Debug>(result: Result<T, DriveError>) -> DriveErrorKind {
    result.expect_err("it fails").kind
}

#[test]
fn reads_see_what_writes_left_and_everything_is_counted() {
    let bench = Bench::new(1, SimulatedDriveConfig::default());
    let parts = vec![bench.block(1, 512), bench.block(2, 4096), bench.block(3, 1024)];
    let drive = bench.drive.clone();
    bench.finish(async move { drive.write(3584, parts).await }).expect("it succeeds");
    let bytes = bench.read(3072, 6656).expect("it succeeds");
    let expected: Vec<u8> = [(0, 512), (1, 512), (2, 4096), (3, 1024), (0, 512)]
        .map(|(fill, length)| vec![fill; length])
        .concat();
    assert!(bytes == expected);
    assert_eq!(bench.flush(), Ok(()));
    let counters = bench.control.counters();
    assert_eq!((counters.reads, counters.writes, counters.flushes), (1, 1, 1));
    assert_eq!((counters.read_bytes, counters.written_bytes, counters.overlaps), (6656, 5632, 0));
    assert_eq!(bench.control.durable_image().read_vec(3072, 6656), expected);
}

#[test]
fn what_is_outside_or_not_aligned_is_refused() {
    let bench = Bench::new(1, fixed(true));
    assert_eq!(kind_of(bench.write(1 << 20, 1, 512)), DriveErrorKind::OutOfRange);
    assert_eq!(kind_of(bench.write((1 << 20) - 512, 1, 1024)), DriveErrorKind::OutOfRange);
    assert_eq!(kind_of(bench.write(256, 1, 512)), DriveErrorKind::OutOfRange);
    assert_eq!(kind_of(bench.read(0, 100)), DriveErrorKind::OutOfRange);
    assert_eq!(kind_of(bench.read(u64::MAX - 511, 512)), DriveErrorKind::OutOfRange);
    assert_eq!(bench.write((1 << 20) - 512, 1, 512), Ok(()));
}

#[test]
fn operations_complete_in_any_order_and_go_on_when_dropped() {
    let orders: BTreeSet<Vec<u64>> = (0..40)
        .map(|seed| {
            let bench = Bench::new(seed, SimulatedDriveConfig::default());
            let order: Rc<RefCell<Vec<u64>>> = Rc::default();
            let writes = (0..3).map(|number| {
                let write = bench.drive.start_write(number * 4096, &[bench.block(1, 4096)]);
                let order = Rc::clone(&order);
                async move {
                    write.await.expect("it succeeds");
                    order.borrow_mut().push(number);
                }
            });
            let all = join_all(writes.collect::<Vec<_>>());
            bench.begin_write(65536, 9);
            // The drive's handle is in the futures' keeping.
            bench.process.block_on(all).expect("all complete");
            assert_eq!(bench.read(65536, 512), Ok(vec![9; 512]));
            order.take()
        })
        .collect();
    assert_eq!(orders.len(), 6);
}

#[test]
fn a_drive_is_held_by_one_at_a_time_and_freed_by_drop_and_crash() {
    let bench = Bench::new(1, fixed(true));
    let host = bench.process.host();
    let second = bench.world.start_process_on(&host, "second");
    assert_eq!(kind_of(open_in(&second)), DriveErrorKind::InUse);
    assert_eq!(kind_of(open_in(&bench.process)), DriveErrorKind::InUse, "not even twice by one process");

    let clone = bench.drive.clone();
    drop(bench.drive);
    assert_eq!(kind_of(open_in(&second)), DriveErrorKind::InUse, "a clone is left");
    let write = clone.start_write(0, &[second.platform().buffers().take_zeroed(512).freeze()]);
    drop((write, clone));
    assert_eq!(kind_of(open_in(&second)), DriveErrorKind::InUse, "a write is in flight");
    let _ = bench.world.run_for(Duration::from_millis(1));
    let opened = open_in(&second).expect("it is free");
    second.crash();
    let _third = open_in(&bench.process).expect("the holder has crashed");
    drop(opened);
    let fourth = bench.world.start_process("second");
    assert_eq!(kind_of(open_in(&fourth)), DriveErrorKind::InUse, "a dead handle releases nothing");
}

#[test]
fn a_drive_belongs_to_the_host_that_it_is_attached_to() {
    let bench = Bench::new(1, fixed(true));
    let other = bench.world.process("other");
    drop(bench.drive.clone());
    assert_eq!(kind_of(open_in(&other)), DriveErrorKind::Unavailable);
    assert_eq!(bench.write(0, 5, 512), Ok(()));
    assert_eq!(bench.flush(), Ok(()));
    bench.control.attach_to(&other.host());
    assert_eq!(kind_of(bench.read(0, 512)), DriveErrorKind::Medium, "its handle is dead");
    assert_eq!(kind_of(bench.write(0, 6, 512)), DriveErrorKind::Medium);
    let moved = open_in(&other).expect("it is here now");
    let into = other.platform().buffers().take(512);
    let bytes = other.block_on(async move { moved.read(0, into).await.map(|bytes| bytes.to_vec()) });
    assert_eq!(bytes, Ok(Ok(vec![5; 512])));
    let platform = other.platform();
    let missing = other.block_on(async move { platform.open_drive("no such").await }).expect("it completes");
    assert_eq!(kind_of(missing), DriveErrorKind::Unavailable);
}

#[test]
fn a_process_crash_keeps_what_completed_and_leaves_open_what_was_in_flight() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..60 {
        let bench = Bench::new(seed, fixed(true));
        assert_eq!(bench.write(0, 1, 512), Ok(()));
        drop(bench.drive.start_write(4096, &[bench.block(2, 1024)]));
        bench.process.crash();
        let open: Vec<bool> = bench.control.unflushed_writes().iter().map(|write| write.completed).collect();
        assert_eq!(open, [true, false]);
        let next = bench.world.start_process("process");
        let _drive = open_in(&next).expect("it is free");
        let seen = bench.control.snapshot();
        assert_eq!(seen.read_vec(0, 512), [1; 512]);
        outcomes.insert((seen.read_vec(4096, 1)[0], seen.read_vec(4608, 1)[0]));
        let _ = bench.world.run_for(Duration::from_secs(1));
        assert_eq!(bench.control.snapshot(), seen, "the old write no longer arrives");
    }
    assert_eq!(outcomes, BTreeSet::from([(0, 0), (0, 2), (2, 0), (2, 2)]));
}

#[test]
fn a_power_cut_decides_every_unflushed_sector_alone() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..200 {
        let bench = Bench::new(seed, fixed(true));
        assert_eq!(bench.write(0, 1, 512), Ok(()));
        assert_eq!(bench.flush(), Ok(()));
        assert_eq!(bench.write(512, 2, 512), Ok(()));
        bench.begin_write(1024, 3);
        bench.process.host().power_cut();
        bench.process.host().power_on();
        let seen = bench.control.snapshot();
        assert_eq!(seen, bench.control.durable_image());
        assert_eq!(bench.control.counters().lossy_power_cuts, 1);
        assert_eq!(seen.read_vec(0, 1), [1], "what was flushed is there");
        outcomes.insert((seen.read_vec(512, 1)[0], seen.read_vec(1024, 1)[0]));
    }
    assert_eq!(outcomes, BTreeSet::from([(0, 0), (0, 3), (2, 0), (2, 3)]));
}

#[test]
fn without_a_volatile_cache_a_completed_write_survives() {
    for seed in 0..40 {
        let bench = Bench::new(seed, fixed(false));
        assert_eq!(bench.write(0, 1, 4096), Ok(()));
        bench.process.host().power_cut();
        assert_eq!(bench.control.unflushed_writes(), []);
        bench.process.host().power_on();
        assert_eq!(bench.control.snapshot().read_vec(0, 4096), [1; 4096]);
        assert_eq!(bench.control.counters().lossy_power_cuts, 0);
    }
}

#[test]
fn a_flush_covers_only_what_completed_before_it_was_called() {
    let bench = Bench::new(1, fixed(true));
    assert_eq!(bench.write(0, 1, 512), Ok(()));
    bench.begin_write(512, 2);
    assert_eq!(bench.flush(), Ok(()));
    assert_eq!(bench.control.snapshot().read_vec(512, 1), [2], "it completed while the flush ran");
    assert_eq!(bench.control.durable_image().read_vec(0, 1), [1]);
    assert_eq!(bench.control.durable_image().read_vec(512, 1), [0]);

    // Also if the future of the flush is polled only later.
    let flush = bench.drive.start_flush();
    let drive = bench.drive.clone();
    let block = bench.block(3, 512);
    bench.finish(async move {
        drive.write(1024, vec![block]).await.expect("it succeeds");
        flush.await.expect("it succeeds");
    });
    assert_eq!(bench.control.durable_image().read_vec(512, 1), [2]);
    assert_eq!(bench.control.durable_image().read_vec(1024, 1), [0]);
}

#[test]
fn a_power_cut_that_a_test_decides_goes_on_from_its_choice() {
    let bench = Bench::new(1, fixed(true));
    for number in 0..3 {
        assert_eq!(bench.write(number * 512, 1 + number as u8, 512), Ok(()));
    }
    let host = bench.process.host();
    host.power_cut();
    let images = bench.control.crash_images(3, 0, &Random::new(0));
    let contents: BTreeSet<Vec<u8>> = images
        .iter()
        .map(|image| (0..3).map(|sector| image.read_vec(sector * 512, 1)[0]).collect())
        .collect();
    assert_eq!((images.len(), contents.len()), (8, 8));
    bench.control.settle(&mut |write, _| write == 1);
    host.power_on();
    let process = bench.world.start_process("process");
    open_in(&process).expect("it is free");
    assert_eq!(
        bench.control.snapshot().read_vec(0, 1536),
        [vec![0; 512], vec![2; 512], vec![0; 512]].concat()
    );
}

#[test]
fn many_unflushed_sectors_give_a_sample_with_both_ends() {
    let bench = Bench::new(1, fixed(true));
    for number in 0..20 {
        assert_eq!(bench.write(number * 4096, 7, 4096), Ok(()));
    }
    let images = bench.control.crash_images(10, 50, &Random::new(0));
    assert_eq!(images.len(), 52);
    assert_eq!(images[0], bench.control.durable_image());
    assert_eq!(images[1], bench.control.snapshot());
    let distinct: BTreeSet<u64> = images.iter().map(DriveImage::digest).collect();
    assert!(distinct.len() > 20, "{} distinct images", distinct.len());
}

/// Two writes and a flush, and then a third write; crashed at each operation in turn.
fn crashed_at(plan: CrashPlan) -> (Bench, RunEnd, Rc<Cell<u32>>) {
    let bench = Bench::new(1, fixed(true));
    bench.control.crash_at(plan);
    let (drive, told) = (bench.drive.clone(), Rc::new(Cell::new(0)));
    let blocks: Vec<Buffer> = (1..4).map(|fill| bench.block(fill, 512)).collect();
    let count = Rc::clone(&told);
    bench.process.spawn(async move {
        for number in [0, 1] {
            drive.write(number * 512, vec![blocks[number as usize].clone()]).await.expect("it succeeds");
            count.set(count.get() + 1);
        }
        drive.flush().await.expect("it succeeds");
        count.set(count.get() + 1);
        drive.write(1024, vec![blocks[2].clone()]).await.expect("it succeeds");
        count.set(count.get() + 1);
    });
    let end = bench.world.run_until(|| told.get() == 4);
    (bench, end, told)
}

#[test]
fn a_planned_crash_strikes_at_its_operation_and_moment() {
    for scope in [CrashScope::Process, CrashScope::Host] {
        for operation in 1..=4 {
            for moment in
                [CrashMoment::BeforeSubmission, CrashMoment::AfterSubmission, CrashMoment::AfterCompletion]
            {
                let (bench, end, told) = crashed_at(CrashPlan { operation, moment, scope });
                assert_eq!(end, RunEnd::CrashPoint("drive".to_owned()));
                assert!(bench.control.has_crashed() && !bench.process.is_alive());
                assert_eq!(bench.process.host().is_powered(), scope == CrashScope::Process);
                assert_eq!(u64::from(told.get()), operation - 1, "who submitted it is told nothing");
                let open: Vec<bool> =
                    bench.control.unflushed_writes().iter().map(|write| write.completed).collect();
                let expected: &[bool] = match (operation, moment) {
                    (1, CrashMoment::BeforeSubmission) => &[],
                    (1, CrashMoment::AfterSubmission) => &[false],
                    (1, _) | (2, CrashMoment::BeforeSubmission) => &[true],
                    (2, CrashMoment::AfterSubmission) => &[true, false],
                    (2, _) => &[true, true],
                    (3, CrashMoment::AfterCompletion) | (4, CrashMoment::BeforeSubmission) => &[],
                    (3, _) => &[true, true],
                    (_, CrashMoment::AfterSubmission) => &[false],
                    _ => &[true],
                };
                assert_eq!(open, expected, "operation {operation}, {moment:?}");
            }
        }
    }
    let beyond =
        CrashPlan { operation: 5, moment: CrashMoment::BeforeSubmission, scope: CrashScope::Process };
    let (bench, end, _) = crashed_at(beyond);
    assert_eq!(end, RunEnd::ConditionMet);
    assert!(!bench.control.has_crashed());
}

#[test]
fn after_a_planned_crash_the_rest_of_the_turn_reaches_nothing() {
    let bench = Bench::new(1, fixed(true));
    let plan = CrashPlan { operation: 1, moment: CrashMoment::AfterSubmission, scope: CrashScope::Process };
    bench.control.crash_at(plan);
    for number in 0..3 {
        let (drive, block) = (bench.drive.clone(), bench.block(1, 512));
        bench
            .process
            .spawn(async move { drive.write(number * 512, vec![block]).await.expect("it succeeds") });
    }
    assert_eq!(bench.world.run_until(|| false), RunEnd::CrashPoint("drive".to_owned()));
    assert_eq!(bench.control.counters().writes, 1);
}

#[test]
fn flipped_bits_are_read_and_counted() {
    let bench = Bench::new(1, fixed(true));
    assert_eq!(bench.write(0, 8, 4096), Ok(()));
    bench.control.flip_bit(100, 0);
    assert_eq!(bench.read(0, 512).expect("it succeeds")[100], 9);
    let place = bench.control.flip_random_bit(2048..2050);
    assert!((2048..2050).contains(&place));
    let byte = bench.control.snapshot().read_vec(place, 1)[0];
    assert_eq!((byte ^ 8).count_ones(), 1);
    assert_eq!(bench.control.counters().bits_flipped, 2);
}

#[test]
fn a_lost_write_is_acknowledged_and_gone() {
    let bench = Bench::new(1, fixed(false));
    bench.control.lose_next_write(4096..8192);
    assert_eq!(bench.write(0, 1, 512), Ok(()), "it does not touch the range");
    assert_eq!(bench.write(4096, 2, 4096), Ok(()));
    assert_eq!(bench.read(4096, 512), Ok(vec![0; 512]));
    assert_eq!(bench.read(0, 512), Ok(vec![1; 512]));
    assert_eq!(bench.write(4096, 3, 4096), Ok(()), "only one is lost");
    assert_eq!(bench.read(4096, 512), Ok(vec![3; 512]));
    assert_eq!(bench.control.counters().writes_lost, 1);
}

#[test]
fn a_misdirected_write_damages_another_place() {
    let bench = Bench::new(1, fixed(false));
    assert_eq!(bench.write(8192, 1, 4096), Ok(()));
    bench.control.misdirect_next_write(.., 8192);
    assert_eq!(bench.write(0, 2, 512), Ok(()));
    assert_eq!(bench.read(0, 512), Ok(vec![0; 512]));
    assert_eq!(bench.read(8192, 1024), Ok([vec![2; 512], vec![1; 512]].concat()));
    bench.control.misdirect_next_write(.., (1 << 20) - 512);
    assert_eq!(bench.write(0, 3, 1024), Ok(()));
    assert_eq!(bench.read((1 << 20) - 1024, 1024), Ok(vec![3; 1024]), "it ends with the drive");
    assert_eq!(bench.control.counters().writes_misdirected, 2);
}

#[test]
fn errors_strike_their_range_as_often_as_they_are_told() {
    let bench = Bench::new(1, fixed(false));
    bench.control.fail_reads(1000..1001, Repeat::Once);
    assert!(bench.read(0, 512).is_ok());
    assert_eq!(kind_of(bench.read(512, 512)), DriveErrorKind::Medium);
    assert!(bench.read(512, 512).is_ok());

    bench.control.fail_reads(4096..=8191, Repeat::UntilWritten);
    assert_eq!(bench.write(4608, 1, 512), Ok(()));
    assert_eq!(kind_of(bench.read(4096, 512)), DriveErrorKind::Medium);
    assert_eq!(bench.read(4608, 512), Ok(vec![1; 512]), "writing it has healed it");
    assert_eq!(kind_of(bench.read(5120, 512)), DriveErrorKind::Medium);

    bench.control.fail_reads(..=16384, Repeat::Once);
    assert_eq!(kind_of(bench.read(16384, 512)), DriveErrorKind::Medium, "the end is in the range");

    bench.control.fail_writes(.., Repeat::Always);
    bench.control.fail_flushes(Repeat::Once);
    assert_eq!(kind_of(bench.write(0, 1, 512)), DriveErrorKind::Medium);
    assert_eq!(kind_of(bench.write(0, 1, 512)), DriveErrorKind::Medium);
    assert_eq!(kind_of(bench.flush()), DriveErrorKind::Medium);
    assert_eq!(bench.flush(), Ok(()));
    let counters = bench.control.counters();
    assert_eq!((counters.reads_failed, counters.writes_failed, counters.flushes_failed), (4, 2, 1));
    bench.control.clear_faults();
    assert_eq!(bench.write(0, 1, 512), Ok(()));
    assert!(bench.read(4096, 4096).is_ok());
}

#[test]
fn a_failed_write_may_have_happened() {
    let outcomes: BTreeSet<(u8, u8)> = (0..60)
        .map(|seed| {
            let bench = Bench::new(seed, fixed(false));
            bench.control.fail_writes(.., Repeat::Once);
            assert_eq!(kind_of(bench.write(0, 1, 1024)), DriveErrorKind::Medium);
            let image = bench.control.snapshot();
            (image.read_vec(0, 1)[0], image.read_vec(512, 1)[0])
        })
        .collect();
    assert_eq!(outcomes.len(), 4);
}

#[test]
fn a_failed_flush_may_have_lost_what_no_later_one_tells_of() {
    let outcomes: BTreeSet<(u8, u8)> = (0..60)
        .map(|seed| {
            let bench = Bench::new(seed, fixed(true));
            assert_eq!(bench.write(0, 1, 1024), Ok(()));
            bench.control.fail_flushes(Repeat::Once);
            assert_eq!(kind_of(bench.flush()), DriveErrorKind::Medium);
            assert_eq!(bench.flush(), Ok(()));
            assert_eq!(bench.control.unflushed_writes().len(), 0);
            let image = bench.control.snapshot();
            (image.read_vec(0, 1)[0], image.read_vec(512, 1)[0])
        })
        .collect();
    assert_eq!(outcomes.len(), 4);
}

#[test]
fn without_room_writes_change_nothing() {
    (0..20).for_each(writes_without_room);
}

fn writes_without_room(seed: u64) {
    let bench = Bench::new(seed, fixed(false));
    assert_eq!(bench.write(0, 1, 4096), Ok(()));
    bench.control.set_room(Room::OnlyOverwrites);
    assert_eq!(bench.write(0, 2, 512), Ok(()));
    assert_eq!(kind_of(bench.write(3584, 3, 1024)), DriveErrorKind::NoRoom);
    bench.control.set_room(Room::None);
    assert_eq!(kind_of(bench.write(0, 4, 512)), DriveErrorKind::NoRoom);
    let image = bench.control.snapshot();
    assert_eq!(
        (image.read_vec(0, 1), image.read_vec(3584, 513)),
        (vec![2], [vec![1; 512], vec![0]].concat())
    );
    bench.control.set_room(Room::Enough);
    assert_eq!(bench.write(3584, 3, 1024), Ok(()));
    assert_eq!(bench.control.counters().writes_without_room, 2);
}

#[test]
fn a_slow_drive_takes_its_factor() {
    let bench = Bench::new(1, fixed(false));
    let took = |bench: &Bench| {
        let before = bench.world.now();
        assert_eq!(bench.write(0, 1, 512), Ok(()));
        bench.world.now() - before
    };
    assert_eq!(took(&bench), Duration::from_micros(100));
    bench.control.set_latency_factor(50);
    assert_eq!(took(&bench), Duration::from_micros(5000));
    bench.control.clear_faults();
    assert_eq!(took(&bench), Duration::from_micros(100));
}

#[test]
fn bandwidth_adds_to_the_latency() {
    let bench =
        Bench::new(1, SimulatedDriveConfig { bandwidth_bytes_per_second: Some(1_000_000), ..fixed(false) });
    let before = bench.world.now();
    assert_eq!(bench.write(0, 1, 1 << 16), Ok(()));
    assert_eq!(bench.world.now() - before, Duration::from_micros(100 + 65_536));
}

#[test]
fn a_dead_drive_fails_everything_until_it_returns() {
    for seed in 0..20 {
        let bench = Bench::new(seed, fixed(true));
        assert_eq!(bench.write(0, 1, 512), Ok(()));
        bench.control.die();
        assert_eq!(kind_of(bench.write(0, 2, 512)), DriveErrorKind::Medium);
        assert_eq!(kind_of(bench.read(0, 512)), DriveErrorKind::Medium);
        assert_eq!(kind_of(bench.flush()), DriveErrorKind::Medium);
        let second = bench.world.start_process_on(&bench.process.host(), "second");
        assert_eq!(kind_of(open_in(&second)), DriveErrorKind::Unavailable);
        bench.control.revive();
        assert_eq!(bench.read(0, 512), Ok(vec![1; 512]), "a dead drive writes nothing");
    }
}

#[test]
fn a_drive_that_dies_fails_what_is_in_flight() {
    let outcomes: BTreeSet<u8> = (0..40)
        .map(|seed| {
            let bench = Bench::new(seed, fixed(false));
            let write = bench.drive.start_write(0, &[bench.block(1, 512)]);
            bench.control.die();
            assert_eq!(kind_of(bench.finish(write)), DriveErrorKind::Medium);
            bench.control.revive();
            bench.read(0, 512).expect("it works again")[0]
        })
        .collect();
    assert_eq!(outcomes, BTreeSet::from([0, 1]));
}

#[test]
fn a_silent_drive_answers_when_it_returns() {
    let bench = Bench::new(1, fixed(true));
    bench.control.fall_silent();
    let write = bench.drive.start_write(0, &[bench.block(1, 512)]);
    let done = Rc::new(Cell::new(false));
    let told = Rc::clone(&done);
    bench.process.spawn(async move {
        write.await.expect("it succeeds");
        told.set(true);
    });
    assert_eq!(bench.world.run_for(Duration::from_secs(100)), RunEnd::TimeOver);
    assert!(!done.get());
    bench.control.revive();
    assert_eq!(bench.world.run_until(|| done.get()), RunEnd::ConditionMet);
    assert_eq!(bench.read(0, 512), Ok(vec![1; 512]));
}

#[test]
fn a_drive_that_is_pulled_out_fails_at_once_and_may_lose_its_cache() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..60 {
        let bench = Bench::new(seed, fixed(true));
        assert_eq!(bench.write(0, 1, 512), Ok(()));
        let write = bench.drive.start_write(512, &[bench.block(2, 512)]);
        bench.control.pull_out();
        assert_eq!(kind_of(bench.finish(write)), DriveErrorKind::Medium);
        assert_eq!(kind_of(bench.read(0, 512)), DriveErrorKind::Medium);
        bench.control.plug_in();
        assert_eq!(kind_of(bench.read(0, 512)), DriveErrorKind::Medium, "the old handle stays dead");
        let drive = open_in(&bench.process).expect("nobody holds it");
        let into = bench.process.platform().buffers().take(1024);
        let bytes = bench.finish(drive.start_read(0, into)).expect("it works");
        outcomes.insert((bytes[0], bytes[512]));
        drop(bench.drive);
        assert_eq!(kind_of(open_in(&bench.process)), DriveErrorKind::InUse, "a dead handle releases nothing");
    }
    assert_eq!(outcomes, BTreeSet::from([(0, 0), (0, 2), (1, 0), (1, 2)]));
}

#[test]
fn an_old_image_can_be_put_back() {
    let bench = Bench::new(1, fixed(true));
    assert_eq!(bench.write(0, 1, 512), Ok(()));
    let old = bench.control.snapshot();
    assert_eq!(bench.write(0, 2, 512), Ok(()));
    assert_eq!(bench.flush(), Ok(()));
    bench.control.restore(old.clone());
    assert_eq!(bench.read(0, 512), Ok(vec![1; 512]));
    assert_eq!(bench.control.durable_image(), old);
    let copy = bench.world.add_drive_from_image("copy", fixed(true), old.clone());
    assert_eq!(copy.snapshot(), old);
    assert_eq!(bench.world.drive("copy").map(|drive| drive.snapshot()), Some(old));
}

#[test]
fn overlapping_operations_are_counted() {
    let bench = Bench::new(1, fixed(true));
    bench.begin_write(0, 1);
    bench.begin_write(1024, 1);
    assert_eq!(bench.control.counters().overlaps, 0);
    drop(bench.drive.start_read(512, bench.process.platform().buffers().take(1024)));
    assert_eq!(bench.control.counters().overlaps, 1);
    let _ = bench.world.run_for(Duration::from_secs(1));
    assert_eq!(bench.write(0, 1, 4096), Ok(()));
    assert_eq!(bench.control.counters().overlaps, 1, "what has completed is in nobody's way");
}

#[test]
fn a_host_that_is_down_keeps_its_drives_from_being_used_elsewhere_until_they_are_moved() {
    let bench = Bench::new(1, fixed(true));
    let other: Host = bench.world.add_host("other");
    let process = bench.world.start_process_on(&other, "other");
    bench.process.host().power_cut();
    assert_eq!(kind_of(open_in(&process)), DriveErrorKind::Unavailable);
    bench.control.attach_to(&other);
    assert!(open_in(&process).is_ok());
}

fn at_once(volatile_cache: bool) -> SimulatedDriveConfig {
    SimulatedDriveConfig { works_at_once: true, ..fixed(volatile_cache) }
}

/// Asks until it is done at once; now and then it is not.
fn ask_again(mut ask: impl FnMut() -> bool) -> bool {
    (0..100).any(|_| ask())
}

#[test]
fn a_drive_that_works_at_once_writes_and_reads_before_it_returns() {
    let bench = Bench::new(1, at_once(true));
    let block = bench.block(7, 4096);
    assert!(ask_again(|| bench.drive.write_at_once(4096, &block)));
    let mut into = vec![0; 4096];
    assert!(ask_again(|| bench.drive.read_at_once(4096, &mut into)));
    assert!(into[..] == block[..]);
    let counters = bench.control.counters();
    assert_eq!((counters.reads, counters.writes, counters.overlaps), (1, 1, 0));
    // It is in the cache as any other.
    let open: Vec<bool> = bench.control.unflushed_writes().iter().map(|write| write.completed).collect();
    assert_eq!(open, [true]);
    assert_eq!(bench.flush(), Ok(()));
    assert!(bench.control.unflushed_writes().is_empty());
    let beyond = (1 << 20) - 512;
    assert!(!ask_again(
        || bench.drive.write_at_once(beyond, &block) || bench.drive.write_at_once(100, &block)
    ));
    let other = Bench::new(1, fixed(true));
    assert!(!ask_again(|| other.drive.write_at_once(0, &block) || other.drive.read_at_once(0, &mut into)));
}

#[test]
fn where_something_is_wrong_nothing_is_done_at_once() {
    let wrongs: [fn(&Bench); 7] = [
        |bench| bench.control.fail_writes(4096..4608, Repeat::Once),
        |bench| bench.control.fail_reads(4096..4608, Repeat::Once),
        |bench| bench.control.fall_silent(),
        |bench| bench.control.die(),
        |bench| bench.control.set_latency_factor(5),
        |bench| bench.control.set_room(Room::None),
        |bench| bench.control.pull_out(),
    ];
    for (number, wrong) in wrongs.iter().enumerate() {
        let bench = Bench::new(1, at_once(true));
        wrong(&bench);
        let block = bench.block(7, 4096);
        let mut into = vec![0; 4096];
        let is_done = ask_again(|| {
            bench.drive.write_at_once(4096, &block) || bench.drive.read_at_once(4096, &mut into)
        });
        assert!(!is_done, "case {number}");
        assert_eq!(bench.control.counters().writes, 0, "case {number}");
    }
}

#[test]
fn a_planned_crash_strikes_at_a_write_at_once() {
    for (moment, expected) in [
        (CrashMoment::BeforeSubmission, &[][..]),
        (CrashMoment::AfterSubmission, &[false][..]),
        (CrashMoment::AfterCompletion, &[true][..]),
    ] {
        let bench = Bench::new(1, at_once(true));
        bench.control.crash_at(CrashPlan { operation: 1, moment, scope: CrashScope::Process });
        let (drive, block) = (bench.drive.clone(), bench.block(7, 4096));
        bench.process.spawn(async move { _ = ask_again(|| drive.write_at_once(0, &block)) });
        assert_eq!(bench.world.run_until(|| false), RunEnd::CrashPoint("drive".to_owned()));
        let open: Vec<bool> = bench.control.unflushed_writes().iter().map(|write| write.completed).collect();
        assert_eq!(open, expected, "{moment:?}");
    }
}
