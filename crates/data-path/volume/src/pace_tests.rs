use spandrel_shared::{CopyId, DriveId, NodeId, ShardId};

use super::*;

/// A leg of which the copies are on a node.
fn member_on(node: u64, drive: u64) -> Member {
    Member {
        shard: ShardId::first(NodeId::from_random(1, node)),
        drive: DriveId::from_random(1, drive),
        copy: CopyId::from_random(1, drive),
        part: 0,
        is_building: false,
    }
}

/// A leg on a node of its own.
fn member(number: u64) -> Member {
    member_on(number, number)
}

fn at_ms(ms: u64) -> Instant {
    Instant::from_nanoseconds(ms * 1_000_000)
}

/// Paces, and a time that goes on in tenths of a second.
struct Course {
    paces: Rc<Paces>,
    ticked_ms: u64,
}

impl Course {
    fn new() -> Self {
        Self { paces: Rc::default(), ticked_ms: 0 }
    }

    /// Lets time go on until then.
    fn until(&mut self, ms: u64) {
        while self.ticked_ms + 100 <= ms {
            self.ticked_ms += 100;
            self.paces.tick(at_ms(self.ticked_ms), |_| true);
        }
    }

    fn begin(&mut self, member: Member, kind: Kind, ms: u64) -> Option<Measurement> {
        self.until(ms);
        self.paces.begin(&member, kind, 1, || at_ms(ms))
    }

    fn write(&mut self, member: Member, ms: u64) -> Measurement {
        self.begin(member, Kind::Write, ms).expect("it is due")
    }

    /// A write to each of these at some time, for which each takes so many milliseconds.
    fn write_all(&mut self, ms: u64, took: &[(Member, u64)]) {
        let mut begun: Vec<(u64, Measurement)> =
            took.iter().map(|(member, took)| (*took, self.write(*member, ms))).collect();
        begun.sort_by_key(|(took, _)| *took);
        for (took, measurement) in begun {
            self.until(ms + took);
            measurement.answered(at_ms(ms + took));
        }
    }

    /// The same with legs one to three.
    fn write_three(&mut self, ms: u64, took: [u64; 3]) {
        let all: Vec<_> = (1..).zip(took).map(|(number, took)| (member(number), took)).collect();
        self.write_all(ms, &all);
    }

    fn is_slow(&self, number: u64) -> bool {
        self.paces.is_slow(member(number).leg())
    }

    /// Since when a leg is slow, for how long, and how often that was seen, in milliseconds.
    fn slowness(&mut self, number: u64, ms: u64) -> Option<(u64, u64, u32)> {
        self.until(ms);
        let slow = self.paces.slow_legs(at_ms(ms)).into_iter();
        let (_, slow) = slow.into_iter().find(|(leg, _)| *leg == member(number).leg())?;
        let ms = |time: Instant| time.nanoseconds() / 1_000_000;
        Some((ms(slow.since), slow.duration().as_millis() as u64, slow.seen))
    }
}

#[test]
fn a_leg_is_slow_that_takes_long_and_ten_times_as_long_as_the_others() {
    for (took, is_slow) in [
        ([1, 1, 499], false),
        ([1, 1, 500], true),
        ([60, 1, 599], false),
        ([60, 1, 600], true),
        ([500, 500, 500], false),
        ([1, 700, 700], false),
    ] {
        let mut course = Course::new();
        course.write_three(0, took);
        course.write_three(1000, took);
        let slow: Vec<bool> = (1..=3).map(|number| course.is_slow(number)).collect();
        assert_eq!(slow, [false, false, is_slow], "{took:?}");
    }
}

#[test]
fn one_slow_leg_among_many_does_not_hide_another_one() {
    let mut course = Course::new();
    let took: Vec<_> = (1..=6).map(|number| (member(number), if number <= 2 { 700 } else { 1 })).collect();
    course.write_all(0, &took);
    let slow: Vec<bool> = (1..=6).map(|number| course.is_slow(number)).collect();
    assert_eq!(slow, [true, true, false, false, false, false]);
}

#[test]
fn a_leg_is_slow_since_it_has_been_without_a_fast_answer() {
    let mut course = Course::new();
    course.write_three(0, [1, 1, 600]);
    course.write_three(1000, [1, 1, 700]);
    assert_eq!(course.slowness(3, 1800), Some((0, 1700, 2)));
    course.write_three(2000, [1, 1, 20]);
    assert_eq!(course.slowness(3, 2100), None);
    course.write_three(3000, [1, 1, 600]);
    assert_eq!(course.slowness(3, 3700), Some((3000, 600, 1)), "silence is not slow");
    assert_eq!(course.slowness(3, 13_500), Some((3000, 600, 1)));
    assert!(course.is_slow(3));
    assert_eq!(course.slowness(3, 13_600), None, "it may be well again");
    assert!(!course.is_slow(3));
}

/// Eight writers, and a leg that takes 700 ms for each: there is always one under way, and one that ends.
#[test]
fn requests_that_overlap_do_not_end_the_measurements_of_others() {
    let mut course = Course::new();
    let mut under_way = std::collections::VecDeque::new();
    for ms in (0..5000).step_by(100) {
        for fast in [1, 2] {
            course.write(member(fast), ms).answered(at_ms(ms + 1));
        }
        under_way.push_back((ms + 700, course.begin(member(3), Kind::Write, ms)));
        while under_way.front().is_some_and(|(end, _)| *end <= ms) {
            let (end, measurement) = under_way.pop_front().expect("there is one");
            if let Some(measurement) = measurement {
                measurement.answered(at_ms(end));
            }
        }
    }
    let (since, slow_for, seen) = course.slowness(3, 5000).expect("it is slow");
    assert!(since == 0 && slow_for >= 4000 && seen >= 5, "{since} {slow_for} {seen}");
}

#[test]
fn what_is_under_way_counts_by_its_age() {
    let mut course = Course::new();
    course.write_three(0, [1, 1, 1]);
    let slow = course.write(member(3), 100);
    course.write(member(1), 100).answered(at_ms(101));
    course.write(member(2), 100).answered(at_ms(101));
    assert!(course.begin(member(3), Kind::Write, 400).is_none(), "the first one says more");
    assert_eq!(course.slowness(3, 599), None);
    assert_eq!(course.slowness(3, 600), Some((100, 500, 1)));
    assert_eq!(course.slowness(3, 60_000), Some((100, 59_900, 1)), "once is once");
    slow.failed();
    assert_eq!(course.slowness(3, 60_000), None, "it has failed");
}

/// All stall at the same time, as a disk or switch below all of them does.
#[test]
fn none_is_slow_where_all_stall() {
    let mut course = Course::new();
    course.write_three(0, [1, 1, 1]);
    let stalled: Vec<_> = (1..=3).map(|number| course.write(member(number), 1000 + 100 * number)).collect();
    for ms in (1000..5000).step_by(100) {
        assert_eq!((1..=3).find(|number| course.slowness(*number, ms).is_some()), None, "after {ms} ms");
    }
    for measurement in stalled {
        measurement.answered(at_ms(5000));
    }
    assert_eq!((1..=3).find(|number| course.is_slow(*number)), None, "the others took as long");
}

/// The time stops for everybody, as with a machine that was suspended; one leg had answered just before.
#[test]
fn nothing_is_slow_if_no_other_leg_has_answered_meanwhile() {
    let mut course = Course::new();
    course.write_three(0, [1, 1, 1]);
    course.write(member(1), 1000).answered(at_ms(1001));
    let second = course.write(member(2), 1002);
    assert_eq!(course.slowness(2, 9000), None);
    second.answered(at_ms(9000));
    assert!(!course.is_slow(2));
}

/// Two drives behind the same slow network card: each is compared with the drives of others.
#[test]
fn drives_of_the_same_node_do_not_hide_each_other() {
    let mut course = Course::new();
    let [own, first, second, other] = [member_on(1, 1), member_on(2, 2), member_on(2, 3), member_on(3, 4)];
    for ms in (0..4000).step_by(1000) {
        course.write_all(ms, &[(own, 1), (first, 800), (second, 800), (other, 2)]);
    }
    for number in [2, 3] {
        assert_eq!(course.slowness(number, 4000), Some((0, 3800, 4)), "drive {number}");
    }
    assert!(!course.is_slow(1) && !course.is_slow(4));
    // What only its own node's drives have done says nothing.
    let mut course = Course::new();
    course.write_all(0, &[(first, 1), (second, 800)]);
    assert!(!course.is_slow(3));
}

#[test]
fn what_others_took_long_ago_or_once_does_not_count() {
    let mut course = Course::new();
    course.write_three(0, [1, 400, 1]);
    course.write_three(1000, [1, 1, 1]);
    course.write_three(2000, [1, 1, 600]);
    assert!(course.is_slow(3), "400 ms were one answer of several");
    let mut course = Course::new();
    course.write_three(0, [1, 400, 1]);
    course.write_three(1000, [1, 400, 1]);
    course.write_three(2000, [1, 1, 600]);
    assert!(!course.is_slow(3), "the second one takes 400 ms now and then");
    course.write_three(62_000, [1, 1, 600]);
    assert!(course.is_slow(3), "it did, long ago");
}

#[test]
fn reads_and_writes_are_measured_apart() {
    let mut course = Course::new();
    course.write_three(0, [1, 1, 1]);
    let hung = course.begin(member(3), Kind::Write, 1000).expect("it is due");
    for ms in (1000..3000).step_by(100) {
        course.write(member(1), ms).answered(at_ms(ms + 1));
        course.write(member(2), ms).answered(at_ms(ms + 1));
        course.begin(member(3), Kind::Read, ms).expect("it is due").answered(at_ms(ms + 1));
    }
    assert_eq!(course.slowness(3, 3000), Some((1000, 2000, 1)));
    hung.answered(at_ms(3000));
    assert_eq!(course.slowness(3, 3000), Some((1000, 2000, 1)));
}

#[test]
fn what_nobody_waits_for_any_more_says_only_that_it_takes_longer() {
    let mut course = Course::new();
    course.write_three(0, [1, 1, 1]);
    course.write_three(1000, [1, 1, 600]);
    let given_up = course.write(member(3), 2000);
    course.until(2200);
    drop(given_up);
    assert_eq!(course.slowness(3, 2300), Some((1000, 600, 1)), "200 ms are no fast answer");
    let given_up = course.write(member(3), 2300);
    course.write(member(1), 2300).answered(at_ms(2301));
    course.until(2900);
    drop(given_up);
    assert_eq!(course.slowness(3, 2900), Some((1000, 1900, 2)), "it has taken 600 ms");
    assert!(course.begin(member(3), Kind::Write, 3000).is_some(), "the next one is measured");
}

#[test]
fn nothing_is_slow_where_there_is_nothing_to_compare_with() {
    let mut course = Course::new();
    course.write_all(0, &[(member(1), 10_000)]);
    assert_eq!(course.slowness(1, 10_000), None);
}

#[test]
fn one_request_of_a_kind_is_measured_in_each_tenth_of_a_second() {
    let mut course = Course::new();
    course.begin(member(1), Kind::Write, 0).expect("the first one is").answered(at_ms(1));
    assert!(course.begin(member(1), Kind::Write, 50).is_none());
    assert!(course.begin(member(2), Kind::Write, 50).is_some(), "each leg for itself");
    assert!(course.begin(member(1), Kind::Read, 50).is_some());
    assert!(course.begin(member(1), Kind::Write, 100).is_some());
    let a_second_later = course.paces.begin(&member(3), Kind::Read, 10, || at_ms(100));
    drop(a_second_later.expect("there was none"));
    course.until(1000);
    assert!(course.paces.begin(&member(3), Kind::Read, 10, || at_ms(1000)).is_none());
    course.until(1100);
    assert!(course.paces.begin(&member(3), Kind::Read, 10, || at_ms(1100)).is_some());
}

#[test]
fn a_leg_that_is_out_begins_anew() {
    let mut course = Course::new();
    course.write_three(0, [1, 1, 600]);
    let former = course.write(member(3), 1000);
    course.paces.tick(at_ms(1100), |leg| *leg != member(3).leg());
    assert!(!course.is_slow(3));
    let next = course.begin(member(3), Kind::Write, 1200).expect("it is back");
    former.answered(at_ms(1250));
    assert!(course.begin(member(3), Kind::Write, 1300).is_none(), "the next one is still under way");
    next.answered(at_ms(1301));
}
