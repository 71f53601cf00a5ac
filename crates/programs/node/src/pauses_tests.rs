use super::*;

fn at(ms: u64) -> Instant {
    Instant::from_nanoseconds(ms * 1_000_000)
}

/// Looks each tenth of a second from `from_ms` on: how many requests wait and how many were answered.
fn look(pauses: &mut Pauses, from_ms: u64, seen: &[(u64, u64)]) {
    for (look, (waiting, done)) in (0..).zip(seen) {
        pauses.look(at(from_ms + 100 * look), *waiting, *done);
    }
}

fn longest(pauses: &mut Pauses) -> Option<(u128, Option<Instant>)> {
    pauses.longest().map(|pause| (pause.length.as_millis(), pause.ended))
}

#[test]
fn what_is_answered_now_and_then_is_no_pause() {
    let mut pauses = Pauses::default();
    look(&mut pauses, 1000, &[(0, 0), (0, 0), (4, 0), (4, 9), (4, 20), (1, 30), (0, 31), (0, 31), (0, 31)]);
    assert_eq!(longest(&mut pauses), None);
}

#[test]
fn a_pause_goes_on_and_is_over_and_the_longest_counts() {
    let mut pauses = Pauses::default();
    look(&mut pauses, 1000, &[(2, 5), (2, 5)]);
    assert_eq!(longest(&mut pauses), Some((100, None)), "it goes on");
    look(&mut pauses, 1200, &[(2, 5), (2, 5), (2, 6)]);
    assert_eq!(longest(&mut pauses), Some((400, Some(at(1400)))));
    look(&mut pauses, 1500, &[(2, 6), (2, 6), (2, 7)]);
    assert_eq!(longest(&mut pauses), Some((400, Some(at(1400)))), "a shorter one hides none");
    look(&mut pauses, 1800, &[(3, 7); 9]);
    assert_eq!(longest(&mut pauses), Some((900, None)), "the present one is longer: since 1700");
    look(&mut pauses, 2700, &[(0, 7)]);
    assert_eq!(longest(&mut pauses), Some((1000, Some(at(2700)))), "whoever waited has given up");
}

#[test]
fn a_pause_is_forgotten_after_some_minutes_and_shows_what_it_hid() {
    let mut pauses = Pauses::default();
    look(&mut pauses, 1000, &[(1, 0), (1, 0), (1, 0), (1, 0), (1, 0), (0, 1)]);
    look(&mut pauses, 100_000, &[(1, 1), (1, 1), (1, 1), (0, 2)]);
    let end_ms = 1500 + 300_000;
    pauses.look(at(end_ms), 0, 2);
    assert_eq!(longest(&mut pauses), Some((500, Some(at(1500)))));
    pauses.look(at(end_ms + 1), 0, 2);
    assert_eq!(longest(&mut pauses), Some((300, Some(at(100_300)))));
    pauses.look(at(100_300 + 300_001), 0, 2);
    assert_eq!(longest(&mut pauses), None);
}

/// What runs on the node's thread could not look, and could not answer.
#[test]
fn a_thread_that_stood_still_is_a_pause() {
    let mut pauses = Pauses::default();
    look(&mut pauses, 1000, &[(4, 10), (4, 20)]);
    // Whether anything was answered before the late look: it came right before it.
    pauses.look(at(3100), 4, 25);
    assert_eq!(longest(&mut pauses), Some((2000, Some(at(3100)))));
    let mut idle = Pauses::default();
    look(&mut idle, 1000, &[(0, 10)]);
    idle.look(at(3000), 4, 10);
    assert_eq!(longest(&mut idle), None, "nobody is known to have waited");
}

/// Each answer comes at its time, each look at its own: the length is wrong by less than the time between two looks.
#[test]
fn lengths_are_as_exact_as_looks_are_apart() {
    for (begin_ms, end_ms) in (0..40).flat_map(|begin| (1..60).map(move |length| (begin * 7, length * 13))) {
        // One request always waits; an answer each millisecond but for the pause, which is over with one.
        let (begin, end) = (2000 + begin_ms, 2000 + begin_ms + end_ms);
        let done = |ms: u64| if ms < begin { ms } else { begin + (ms + 1).saturating_sub(end) };
        let mut pauses = Pauses::default();
        (0..60).for_each(|look| pauses.look(at(100 * look), 1, done(100 * look)));
        let length = end - begin;
        match longest(&mut pauses) {
            Some((seen, _)) => assert!(seen.abs_diff(length.into()) <= 100, "{begin}..{end}: {seen}"),
            None => assert!(length <= 200, "{begin}..{end} was missed"),
        }
    }
}
