use spandrel_shared::DriveId;

use super::*;

fn leg(number: u64) -> LegId {
    LegId::standing(DriveId::from_random(1, number))
}

fn at_ms(ms: u64) -> Instant {
    Instant::from_nanoseconds(ms * 1_000_000)
}

/// A request at some time, and what each leg takes for it.
fn measure(paces: &Paces, at: u64, took: &[u64]) {
    let legs = || (1..).zip(took);
    legs().for_each(|(number, _)| paces.ask(leg(number), at_ms(at)));
    let mut answers: Vec<(u64, u64)> = legs().map(|(number, took)| (*took, number)).collect();
    answers.sort_unstable();
    answers.into_iter().for_each(|(took, number)| paces.answer(leg(number), at_ms(at + took)));
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
        let paces = Paces::default();
        // Twice, as the first answers have little to be compared with.
        measure(&paces, 0, &took);
        measure(&paces, 1000, &took);
        let slow: Vec<bool> = (1..=3).map(|number| paces.was_slow(leg(number))).collect();
        assert_eq!(slow, [false, false, is_slow], "{took:?}");
    }
}

#[test]
fn a_leg_is_slow_since_it_has_been_without_a_fast_answer() {
    let paces = Paces::default();
    measure(&paces, 0, &[1, 1, 600]);
    measure(&paces, 1000, &[1, 1, 700]);
    assert_eq!(paces.slow_since(leg(3), at_ms(1800)), Some(at_ms(0)));
    measure(&paces, 2000, &[1, 1, 20]);
    assert_eq!(paces.slow_since(leg(3), at_ms(2100)), None);
    measure(&paces, 3000, &[1, 1, 600]);
    assert_eq!(paces.slow_since(leg(3), at_ms(3700)), Some(at_ms(3000)));
    assert!(paces.was_slow(leg(3)));
    let long_after = at_ms(3600) + FORGOTTEN_AFTER;
    assert_eq!(paces.slow_since(leg(3), long_after), None, "it may be well again");
    paces.tidy(long_after, |_| true);
    assert!(!paces.was_slow(leg(3)));
}

#[test]
fn what_is_under_way_counts_by_its_age() {
    let paces = Paces::default();
    measure(&paces, 0, &[1, 1, 1]);
    (1..=3).for_each(|number| paces.ask(leg(number), at_ms(100)));
    (1..=2).for_each(|number| paces.answer(leg(number), at_ms(101)));
    // A later one is not measured: the first is under way.
    paces.ask(leg(3), at_ms(400));
    assert_eq!(paces.slow_since(leg(3), at_ms(599)), None);
    assert_eq!(paces.slow_since(leg(3), at_ms(600)), Some(at_ms(100)));
    assert_eq!(paces.slow_since(leg(3), at_ms(60_000)), Some(at_ms(100)));
    paces.forget(leg(3));
    assert_eq!(paces.slow_since(leg(3), at_ms(60_000)), None, "it has failed");
}

#[test]
fn nothing_is_slow_where_there_is_nothing_to_compare_with() {
    let paces = Paces::default();
    measure(&paces, 0, &[10_000]);
    assert_eq!(paces.slow_since(leg(1), at_ms(10_000)), None);
}

#[test]
fn one_request_is_measured_each_time_that_it_is_due() {
    let paces = Paces::default();
    assert!(!paces.take_due());
    paces.set_due();
    paces.set_due();
    assert!(paces.take_due() && !paces.take_due());
}
