use std::collections::BTreeSet;

use super::*;
use crate::test_support::Numbers;

const DRIVE_BYTES: u64 = 1 << 30;
const BLOCK: usize = 4096;

fn model(kind: MediumKind, scale: f64) -> MediumModel {
    MediumModel::new(SimulatedMedium { kind, scale }, DRIVE_BYTES)
}

/// A time in milliseconds since the models' beginning.
fn ms(time: Instant) -> f64 {
    time.nanoseconds() as f64 / 1e6
}

#[track_caller]
fn assert_near(found: f64, wanted: f64) {
    assert!((found - wanted).abs() <= wanted * 0.002, "{found} is not {wanted}");
}

/// How many operations a second complete of a drive that always has `depth` under way, at random places. Every
/// `read_every`th of them is a read; none if that is 0.
fn rate(model: &mut MediumModel, depth: usize, read_every: usize, length: usize) -> f64 {
    const COUNT: usize = 100_000;
    let mut numbers = Numbers::new(5);
    let mut now = Instant::default();
    let mut under_way = BTreeSet::new();
    for number in 0..COUNT + depth {
        if under_way.len() == depth {
            (now, _) = under_way.pop_first().expect("some are under way");
        }
        let offset = (numbers.below(DRIVE_BYTES as usize / length) * length) as u64;
        let is_read = read_every != 0 && number % read_every == 0;
        let what = if is_read { Transfer::Read } else { Transfer::Write };
        under_way.insert((model.transfer(now, what, offset, length), number));
    }
    COUNT as f64 / now.nanoseconds() as f64 * 1e9
}

#[test]
fn many_operations_at_once_reach_the_rate() {
    for (kind, reads, writes) in [(MediumKind::Nvme, 695.8e3, 256e3), (MediumKind::SataSsd, 93e3, 10e3)] {
        // The NVMe drive's throughput allows a few blocks less than its rate.
        assert_near(rate(&mut model(kind, 1.0), 256, 1, BLOCK), reads);
        assert_near(rate(&mut model(kind, 1.0), 256, 0, BLOCK), writes);
    }
    assert_near(rate(&mut model(MediumKind::Nvme, 1.0), 256, 1, 512), 700e3);
}

#[test]
fn one_operation_at_a_time_sees_the_latency() {
    for (kind, read_us, write_us) in [
        (MediumKind::Nvme, 80.0 + 1.44, 20.0 + 1e3 / 256.0),
        (MediumKind::SataSsd, 150.0 + 1e3 / 93.0, 60.0 + 100.0),
    ] {
        assert_near(rate(&mut model(kind, 1.0), 1, 1, BLOCK), 1e6 / read_us);
        assert_near(rate(&mut model(kind, 1.0), 1, 0, BLOCK), 1e6 / write_us);
    }
    // Latencies are passed together.
    let four = rate(&mut model(MediumKind::Nvme, 1.0), 4, 1, BLOCK);
    assert_near(four, 4.0 * rate(&mut model(MediumKind::Nvme, 1.0), 1, 1, BLOCK));
}

#[test]
fn large_operations_are_bound_by_the_throughput() {
    for (kind, bytes_per_second) in [(MediumKind::Nvme, 2850e6), (MediumKind::SataSsd, 540e6)] {
        for read_every in [0, 1, 2] {
            let rate = rate(&mut model(kind, 1.0), 32, read_every, 1 << 20);
            assert_near(rate * f64::from(1 << 20), bytes_per_second);
        }
    }
}

#[test]
fn reads_and_writes_share_the_drive() {
    // Half of each: a pair takes what one of each takes.
    let pair = 1.0 / 93e3 + 1.0 / 10e3;
    assert_near(rate(&mut model(MediumKind::SataSsd, 1.0), 64, 2, BLOCK), 2.0 / pair);
    // A read behind a write waits for it.
    let mut drive = model(MediumKind::SataSsd, 1.0);
    let write = drive.transfer(Instant::default(), Transfer::Write, 0, BLOCK);
    let read = drive.transfer(Instant::default(), Transfer::Read, 0, BLOCK);
    assert_near(ms(write), 0.16);
    assert_near(ms(read), 0.1 + 1.0 / 93.0 + 0.15);
}

#[test]
fn a_disk_seeks_and_turns_for_what_is_scattered() {
    // Seeks of 8.47 ms in the mean, half a turn of 4.17, and a transfer of 0.02.
    for (depth, read_every) in [(1, 1), (1, 0), (32, 1), (32, 2)] {
        let rate = rate(&mut model(MediumKind::Disk, 1.0), depth, read_every, BLOCK);
        assert!((77.5..80.5).contains(&rate), "{rate}");
    }
}

#[test]
fn a_seek_grows_with_the_distance() {
    let seek = |offset: u64| {
        let mut disk = model(MediumKind::Disk, 1.0);
        let middle = disk.transfer(Instant::default(), Transfer::Read, DRIVE_BYTES / 2, 0);
        ms(disk.transfer(middle, Transfer::Read, offset, 0)) - ms(middle)
    };
    let half_turn = 1000.0 / 240.0;
    assert_near(seek(DRIVE_BYTES), 1.0 + 14.0 * 0.5_f64.sqrt() + half_turn);
    assert_near(seek(0), seek(DRIVE_BYTES));
    assert_near(seek(DRIVE_BYTES / 4), 1.0 + 14.0 * 0.5 + half_turn);
    let mut disk = model(MediumKind::Disk, 1.0);
    assert_near(ms(disk.transfer(Instant::default(), Transfer::Read, DRIVE_BYTES, 0)), 15.0 + half_turn);
}

#[test]
fn what_lies_in_order_passes_under_a_disk_s_head() {
    let mut disk = model(MediumKind::Disk, 1.0);
    let mut time = Instant::default();
    for block in 0..1000 {
        let what = if block % 2 == 0 { Transfer::Read } else { Transfer::Write };
        time = disk.transfer(time, what, block * 65536, 65536);
    }
    assert_near(ms(time), 65536e3 / 200e3);
    // With gaps, which pass too; but the way back is a seek.
    let begin = time;
    for block in 0..1000 {
        time = disk.transfer(time, Transfer::Write, (1000 + 2 * block + 1) * 65536, 65536);
    }
    assert_near(ms(time) - ms(begin), 2.0 * 65536e3 / 200e3);
    let back = disk.transfer(time, Transfer::Write, 2998 * 65536, 65536);
    assert!(ms(back) - ms(time) > 5.0, "{}", ms(back) - ms(time));
}

#[test]
fn a_disk_s_flush_takes_a_turn_if_there_is_something_to_flush() {
    let turn = 1000.0 / 120.0;
    let mut disk = model(MediumKind::Disk, 1.0);
    assert!(disk.has_volatile_cache());
    assert_eq!(disk.flush(Instant::default()), Instant::default());
    let read = disk.transfer(Instant::default(), Transfer::Read, 0, BLOCK);
    assert_eq!(disk.flush(read), read);
    let written = disk.transfer(read, Transfer::Write, BLOCK as u64, BLOCK);
    // It comes while that is being written.
    let flushed = disk.flush(read);
    assert_near(ms(flushed), ms(written) + turn);
    assert_eq!(disk.flush(flushed), flushed, "nothing was written since");
    // The head has stayed where it was.
    let next = disk.transfer(flushed, Transfer::Write, 2 * BLOCK as u64, BLOCK);
    assert!(ms(next) - ms(flushed) < 0.1);
}

#[test]
fn flash_with_capacitors_flushes_in_the_time_of_a_write() {
    for (kind, latency_ms) in [(MediumKind::Nvme, 0.02), (MediumKind::SataSsd, 0.06)] {
        let mut drive = model(kind, 1.0);
        assert!(!drive.has_volatile_cache());
        for _ in 0..3 {
            drive.transfer(Instant::default(), Transfer::Write, 0, BLOCK);
        }
        let begin = drive.busy_until;
        assert_near(ms(drive.flush(Instant::default())) - ms(begin), latency_ms);
        assert_eq!(drive.busy_until, begin, "it keeps nobody else");
    }
}

#[test]
fn a_scale_changes_rates_and_latencies_alike() {
    for kind in [MediumKind::Nvme, MediumKind::SataSsd, MediumKind::Disk] {
        for scale in [0.01, 0.5, 20.0] {
            for depth in [1, 64] {
                let real = rate(&mut model(kind, 1.0), depth, 3, BLOCK);
                let scaled = rate(&mut model(kind, scale), depth, 3, BLOCK);
                assert!((scaled / real / scale - 1.0).abs() < 0.01, "{kind:?} {scale}: {scaled} {real}");
            }
        }
    }
}

#[test]
fn nothing_is_too_slow_to_be_counted() {
    let mut disk = model(MediumKind::Disk, f64::MIN_POSITIVE);
    let never = Instant::from_nanoseconds(u64::MAX);
    assert_eq!(disk.transfer(Instant::from_nanoseconds(7), Transfer::Write, 1 << 20, BLOCK), never);
    assert_eq!(disk.flush(Instant::from_nanoseconds(8)), never);
}
