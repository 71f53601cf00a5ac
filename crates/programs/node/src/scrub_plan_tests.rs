use spandrel_shared::DriveId;

use super::*;

const PERIOD: Duration = Duration::from_secs(1000);

/// When the tests begin, by the time of day.
const BEGAN_S: u64 = 1_000_000;

fn at(seconds: u64) -> Now {
    Now { instant: Instant::from_nanoseconds(seconds * 1_000_000_000), unix_s: BEGAN_S + seconds }
}

fn new_plan(slabs: u32) -> ScrubPlan {
    ScrubPlan::new(None, slabs, BEGAN_S, at(0))
}

fn whole() -> ScrubReport {
    ScrubReport { blocks_checked: 1, ..ScrubReport::default() }
}

fn not_all() -> ScrubReport {
    ScrubReport { pieces_unchecked: 1, ..ScrubReport::default() }
}

/// Reads what is due, second by second, and returns what was read when.
fn run(
    plan: &mut ScrubPlan,
    seconds: std::ops::Range<u64>,
    found: impl Fn(u32) -> ScrubReport,
) -> Vec<(u64, u32)> {
    let mut read = Vec::new();
    for second in seconds {
        if plan.is_due_for(PERIOD, at(second)).is_some()
            && let Some(slab) = plan.begin_next(PERIOD, at(second), |_| true)
        {
            plan.note(slab, &found(slab.0), PERIOD, at(second));
            read.push((second, slab.0));
        }
    }
    read
}

#[test]
fn everything_is_read_once_in_a_period_at_equal_distances() {
    let mut plan = new_plan(4);
    let read = run(&mut plan, 0..2001, |_| whole());
    let expected: Vec<(u64, u32)> = (1..=8).map(|turn| (250 * turn, (turn as u32 - 1) % 4)).collect();
    assert_eq!(read, expected);
    assert_eq!((plan.passes, plan.is_pass_over()), (2, true));
}

#[test]
fn what_has_waited_longer_than_a_period_is_read_twice_as_fast() {
    let mut plan = ScrubPlan::new(None, 4, BEGAN_S - 3000, at(0));
    assert_eq!(plan.interval(PERIOD, at(0)), Duration::from_secs(125));
    assert_eq!(run(&mut plan, 0..400, |_| whole()), [(0, 0), (125, 1), (250, 2), (375, 3)]);
    assert_eq!(plan.interval(PERIOD, at(400)), Duration::from_secs(250));
}

/// A slab that cannot be read keeps none of the others from being read, pass after pass, and its age shows.
#[test]
fn a_slab_that_cannot_be_read_is_tried_again_and_its_age_shows() {
    let mut plan = new_plan(4);
    let read = run(&mut plan, 0..5000, |slab| if slab == 1 { not_all() } else { whole() });
    for slab in [0, 2, 3] {
        let times: Vec<u64> =
            read.iter().filter(|(_, other)| *other == slab).map(|(second, _)| *second).collect();
        assert!(times.len() >= 3, "slab {slab}: {read:?}");
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= 1700), "slab {slab}: {times:?}");
    }
    assert!(read.iter().filter(|(_, slab)| *slab == 1).count() > 3, "{read:?}");
    let summary = plan.summary();
    assert_eq!((summary.age_s(BEGAN_S + 5000), summary.slabs_never_read, summary.passes), (5000, 1, 0));
    run(&mut plan, 5000..6500, |_| whole());
    assert!(plan.passes > 0 && plan.summary().slabs_never_read == 0, "it is read as soon as it can be");
}

#[test]
fn a_slab_that_is_put_off_is_not_begun_before_its_time() {
    let mut plan = new_plan(1);
    let slab = plan.begin_next(PERIOD, at(1000), |_| true).expect("there is one");
    plan.put_off(slab, PERIOD, at(1000));
    assert_eq!(plan.begin_next(PERIOD, at(1010), |_| true), None);
    assert_eq!(plan.begin_next(PERIOD, at(1063), |_| true), Some(slab));
}

/// Slabs that lack copies are left out, and the turn is not lost when all do.
#[test]
fn only_slabs_that_can_be_read_are_begun() {
    let mut plan = new_plan(4);
    assert_eq!(plan.begin_next(PERIOD, at(250), |slab| slab.0 == 2), Some(SlabIndex(2)));
    plan.note(SlabIndex(2), &whole(), PERIOD, at(250));
    assert_eq!(plan.begin_next(PERIOD, at(500), |_| false), None);
    assert_eq!(plan.is_due_for(PERIOD, at(500)), None, "all that is left is put off");
    assert_eq!(plan.is_due_for(PERIOD, at(563)), Some(Duration::from_secs(63)));
    assert_eq!(plan.begin_next(PERIOD, at(563), |_| true), Some(SlabIndex(0)));
}

/// An owner goes on where the one before it was, as the state has it.
#[test]
fn an_owner_goes_on_where_the_one_before_was() {
    let mut plan = new_plan(4);
    run(&mut plan, 0..510, |_| ScrubReport { blocks_different: 1, ..whole() });
    let record = plan.record();
    let mut next = ScrubPlan::new(Some(&record), 4, BEGAN_S, at(600));
    assert_eq!(next.summary(), plan.summary());
    assert_eq!(next.summary().blocks_different_now, 2);
    assert_eq!(run(&mut next, 600..1001, |_| whole()), [(750, 2), (1000, 3)]);
    assert_eq!((next.found.blocks_different, next.passes), (2, 1));
    run(&mut next, 1001..1600, |_| whole());
    assert_eq!(next.summary().blocks_different_now, 0, "they are the same again");
    assert_eq!(next.found.blocks_different, 2, "they were not once");
}

/// The time of day jumps to and fro: all slabs are read all the same.
#[test]
fn a_clock_that_jumps_keeps_no_slab_from_being_read() {
    for jump in [-900_000_i64, 900_000] {
        let mut plan = new_plan(4);
        let jumped = |second: u64| {
            let now = at(second);
            let unix_s = now.unix_s.saturating_add_signed(if second > 300 { jump } else { 0 });
            Now { unix_s, ..now }
        };
        let mut read = Vec::new();
        for second in 0..4000 {
            if plan.is_due_for(PERIOD, jumped(second)).is_some()
                && let Some(slab) = plan.begin_next(PERIOD, jumped(second), |_| true)
            {
                plan.note(slab, &whole(), PERIOD, jumped(second));
                read.push(slab.0);
            }
        }
        for slab in 0..4 {
            let times = read.iter().filter(|other| **other == slab).count();
            assert!(times >= 3, "{jump}: slab {slab} was read {times} times: {read:?}");
        }
    }
}

#[test]
fn a_date_that_is_yet_to_come_says_nothing() {
    let dates = [0, 5000].map(|second| SlabDate { unix_s: BEGAN_S + second, is_read: true });
    let record = ScrubRecord::new(dates, [], ScrubFindings::default());
    let plan = ScrubPlan::new(Some(&record), 2, BEGAN_S, at(100));
    assert_eq!((plan.summary().slabs_never_read, plan.summary().newest_unix_s), (1, Some(BEGAN_S)));
}

#[test]
fn slabs_that_come_are_read_and_those_that_go_are_forgotten() {
    let mut plan = new_plan(1);
    run(&mut plan, 0..1001, |_| ScrubReport { blocks_different: 1, ..whole() });
    let told = plan.changes();
    plan.fit(3, at(1001));
    assert!(plan.changes() > told);
    assert_eq!((plan.summary().slabs, plan.summary().slabs_never_read), (3, 2));
    assert_eq!(run(&mut plan, 1001..2001, |_| whole()), [(1334, 1), (1668, 2)]);
    plan.fit(0, at(2001));
    assert_eq!((plan.summary().slabs, plan.summary().blocks_different_now), (0, 0));
    assert_eq!(plan.begin_next(PERIOD, at(4000), |_| true), None);
}

#[test]
fn findings_add_up() {
    let mut plan = new_plan(2);
    let drive = DriveId::from_bytes([1; 16]);
    let found = ScrubReport {
        damaged: [(drive, 3)].into(),
        blocks_healed: 2,
        blocks_different: 4,
        blocks_lost: 1,
        pages_lacking: 5,
        ..whole()
    };
    plan.note(SlabIndex(0), &found, PERIOD, at(1));
    plan.note(SlabIndex(1), &found, PERIOD, at(2));
    let expected = ScrubFindings {
        since_unix_s: BEGAN_S,
        blocks_damaged: 6,
        blocks_healed: 4,
        blocks_different: 8,
        blocks_lost: 2,
        pages_lacking: 10,
    };
    assert_eq!(plan.record().found, expected);
    assert_eq!((plan.summary().blocks_different_now, plan.summary().blocks_lost_now), (8, 2));
}

/// The rest of it is tried again and again, and what was read is read once more each time.
#[test]
fn what_is_found_in_a_part_of_a_slab_is_not_counted_again_at_each_attempt() {
    let mut plan = new_plan(1);
    let damaged = [(DriveId::from_bytes([1; 16]), 3)].into();
    let whole = ScrubReport { damaged, blocks_different: 4, blocks_lost: 1, pages_lacking: 2, ..whole() };
    let part = ScrubReport { pieces_unchecked: 1, ..whole.clone() };
    plan.note(SlabIndex(0), &part, PERIOD, at(1));
    let told = plan.changes();
    assert_eq!(plan.summary().blocks_different_now, 4, "that is so, whatever is in the rest");
    assert_eq!(plan.summary().blocks_lost_now, 0, "the copy that was not read may have it");
    plan.note(SlabIndex(0), &part, PERIOD, at(100));
    assert_eq!(plan.changes(), told, "nothing is new");
    let found = plan.record().found;
    assert_eq!((found.blocks_damaged, found.blocks_different, found.pages_lacking), (0, 0, 2));
    assert_eq!(plan.summary().slabs_never_read, 1);
    plan.note(SlabIndex(0), &not_all(), PERIOD, at(200));
    assert_eq!(plan.summary().blocks_different_now, 4, "they were not read");
    plan.note(SlabIndex(0), &ScrubReport { blocks_healed: 2, ..part }, PERIOD, at(300));
    assert_eq!((plan.record().found.blocks_damaged, plan.record().found.blocks_healed), (2, 2));
    plan.note(SlabIndex(0), &whole, PERIOD, at(400));
    let found = plan.record().found;
    assert_eq!((found.blocks_damaged, found.blocks_different, found.blocks_lost), (5, 4, 1));
    assert_eq!(found.pages_lacking, 2, "they were not lacking again in between");
    assert_eq!((plan.summary().blocks_different_now, plan.summary().blocks_lost_now), (4, 1));
}

/// A scrub that is asked for is a pass of its own, and counts once.
#[test]
fn a_scrub_that_is_asked_for_is_a_pass() {
    let mut plan = new_plan(2);
    for turn in 1..=2 {
        plan.begin_pass(at(turn * 10));
        assert_eq!(plan.summary().slabs_done, 0);
        for slab in 0..2 {
            plan.note(SlabIndex(slab), &whole(), PERIOD, at(turn * 10 + 1));
        }
        assert_eq!((plan.passes, plan.is_pass_over()), (turn, true));
    }
}
