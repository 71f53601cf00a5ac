use super::*;

fn drive(number: u64) -> DriveId {
    DriveId::from_random(1, number)
}

fn at_s(seconds: u64) -> Instant {
    Instant::from_nanoseconds(seconds * 1_000_000_000)
}

#[test]
fn each_rest_is_twice_the_one_before_up_to_a_quarter_of_an_hour() {
    let slow = SlowDrives::default();
    let mut now = 100;
    for (time, rest) in [60, 120, 240, 480, 960, 960, 960].into_iter().enumerate() {
        slow.note(drive(1), at_s(now - 3), at_s(now));
        slow.begin_rest(drive(1), at_s(now));
        // A second owner finds the same.
        slow.note(drive(1), at_s(now - 2), at_s(now + 1));
        slow.begin_rest(drive(1), at_s(now + 1));
        assert!(slow.rests(drive(1), at_s(now + rest - 1)), "time {time}");
        assert!(!slow.rests(drive(1), at_s(now + rest)), "time {time}");
        assert!(!slow.rests(drive(2), at_s(now)));
        now += rest + 5;
    }
    assert_eq!(slow.present(at_s(now - 10)).get(&drive(1)).map(|slow| slow.times), Some(7));
}

#[test]
fn what_was_long_ago_does_not_count() {
    let slow = SlowDrives::default();
    for _ in 0..3 {
        slow.note(drive(1), at_s(1), at_s(4));
    }
    slow.begin_rest(drive(1), at_s(4));
    assert_eq!(slow.present(at_s(63)).len(), 1);
    assert_eq!(slow.present(at_s(64)).len(), 0);
    slow.note(drive(1), at_s(5000), at_s(5003));
    slow.begin_rest(drive(1), at_s(5003));
    let known = slow.present(at_s(5004))[&drive(1)];
    assert_eq!((known.times, known.since, known.rests_until), (1, at_s(5000), at_s(5063)));
}

#[test]
fn since_when_a_drive_is_slow_is_when_it_began_without_a_break() {
    let slow = SlowDrives::default();
    slow.note(drive(1), at_s(10), at_s(13));
    slow.note(drive(1), at_s(12), at_s(14));
    assert_eq!(slow.present(at_s(14))[&drive(1)].since, at_s(10), "two owners see the same");
    slow.note(drive(1), at_s(20), at_s(23));
    assert_eq!(slow.present(at_s(23))[&drive(1)].since, at_s(20), "it was well in between");
}
