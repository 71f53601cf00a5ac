use super::*;

fn drive(number: u64) -> DriveId {
    DriveId::from_random(1, number)
}

fn at_s(seconds: u64) -> Instant {
    Instant::from_nanoseconds(seconds * 1_000_000_000)
}

/// Slow from one second to another one.
fn slow(since: u64, until: u64) -> Slowness {
    Slowness { since: at_s(since), until: at_s(until), seen: 2 }
}

#[test]
fn each_rest_is_twice_the_one_before_up_to_a_quarter_of_an_hour() {
    let drives = SlowDrives::default();
    let mut now = 100;
    for (time, rest) in [60, 120, 240, 480, 960, 960, 960].into_iter().enumerate() {
        drives.begin_rest(drive(1), slow(now - 3, now), at_s(now));
        // A second owner finds the same.
        drives.begin_rest(drive(1), slow(now - 2, now + 1), at_s(now + 1));
        assert!(drives.rests(drive(1), at_s(now + rest - 1)), "time {time}");
        assert!(!drives.rests(drive(1), at_s(now + rest)), "time {time}");
        assert!(!drives.rests(drive(2), at_s(now)));
        now += rest + 5;
    }
    assert_eq!(drives.present(at_s(now - 10)).get(&drive(1)).map(|slow| slow.times), Some(7));
}

#[test]
fn what_was_long_ago_does_not_count() {
    let drives = SlowDrives::default();
    for _ in 0..3 {
        drives.note(drive(1), slow(1, 4));
    }
    drives.begin_rest(drive(1), slow(1, 4), at_s(4));
    assert_eq!(drives.present(at_s(63)).len(), 1);
    assert_eq!(drives.present(at_s(64)).len(), 0);
    drives.begin_rest(drive(1), slow(5000, 5003), at_s(5003));
    let known = drives.present(at_s(5004))[&drive(1)];
    assert_eq!((known.times, known.since, known.rests_until), (1, at_s(5000), at_s(5063)));
}

#[test]
fn since_when_a_drive_is_slow_is_when_it_began_without_a_break() {
    let drives = SlowDrives::default();
    drives.note(drive(1), slow(10, 13));
    drives.note(drive(1), slow(12, 14));
    assert_eq!(drives.present(at_s(14))[&drive(1)].since, at_s(10), "two owners see the same");
    drives.note(drive(1), slow(20, 23));
    assert_eq!(drives.present(at_s(23))[&drive(1)].since, at_s(20), "it was well in between");
}

#[test]
fn what_was_found_before_somebody_decided_otherwise_does_not_count() {
    let drives = SlowDrives::default();
    drives.begin_rest(drive(1), slow(1, 4), at_s(4));
    drives.begin_rest(drive(1), slow(70, 73), at_s(73));
    assert_eq!(drives.present(at_s(74))[&drive(1)].times, 2);
    drives.forget(drive(1));
    assert!(drives.present(at_s(74)).is_empty() && !drives.rests(drive(1), at_s(74)));
    drives.begin_rest(drive(1), slow(80, 83), at_s(83));
    assert_eq!(drives.present(at_s(84))[&drive(1)].times, 1);
}

#[test]
fn being_slow_alone_is_not_counted() {
    let drives = SlowDrives::default();
    for second in 10..300 {
        drives.note(drive(1), slow(7, second));
    }
    let known = drives.present(at_s(300))[&drive(1)];
    assert_eq!((known.times, known.since, known.last), (0, at_s(7), at_s(299)));
    assert!(!drives.rests(drive(1), at_s(300)));
}
