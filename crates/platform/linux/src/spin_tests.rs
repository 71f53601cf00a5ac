use std::time::Duration;

use super::{LIGHT_RUNS_MAX, SHORT_WAITS_MIN, Spin};

const LIMIT: Duration = Duration::from_micros(50);
const SHORT: Duration = Duration::from_micros(20);
const LIGHT: u64 = 3;

fn after_short_waits(count: u32) -> Spin {
    let mut spin = Spin::new(LIMIT);
    (0..count).for_each(|_| spin.note(LIGHT, SHORT));
    spin
}

#[test]
fn a_loop_looks_after_several_short_waits() {
    assert!(!after_short_waits(SHORT_WAITS_MIN - 1).is_wanted());
    assert!(after_short_waits(SHORT_WAITS_MIN).is_wanted());
}

#[test]
fn a_long_wait_ends_it() {
    let mut spin = after_short_waits(SHORT_WAITS_MIN + 5);
    spin.note(LIGHT, LIMIT);
    assert!(!spin.is_wanted());
    spin.note(LIGHT, SHORT);
    assert!(!spin.is_wanted(), "one short wait says little");
}

#[test]
fn many_runs_between_two_waits_ends_it() {
    let mut spin = after_short_waits(SHORT_WAITS_MIN + 5);
    spin.note(LIGHT_RUNS_MAX + 1, SHORT);
    assert!(!spin.is_wanted());
    assert!(spin.was_short(), "the core is given away once");
    spin.note(LIGHT_RUNS_MAX + 1, LIMIT);
    assert!(!spin.was_short());
}

#[test]
fn it_looks_until_the_limit() {
    let spin = after_short_waits(SHORT_WAITS_MIN);
    assert!(spin.goes_on(SHORT));
    assert!(!spin.goes_on(LIMIT));
    assert!(spin.is_wanted(), "what ends the sleep that follows says whether the wait was long");
}

#[test]
fn a_loop_that_is_not_to_look_never_does() {
    let mut spin = Spin::new(Duration::ZERO);
    (0..10).for_each(|_| spin.note(LIGHT, Duration::ZERO));
    assert!(!spin.is_possible());
    assert!(!spin.is_wanted());
}
