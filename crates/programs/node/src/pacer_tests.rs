use super::*;

const LIMIT: IopsLimit = IopsLimit { iops_max: 1100, normalized_bytes: 8192 };

fn at_ms(ms: f64) -> Instant {
    Instant::from_nanoseconds((ms * 1e6) as u64)
}

/// Moments given within the second from `begin_s` on to a client that always has 32 I/Os in flight, each of which takes a
/// millisecond and a half.
fn begun_within(limit: IopsLimit, bytes: u64, begin_s: f64) -> usize {
    let pacer = Pacer::default();
    let mut begun: Vec<Instant> = (0..32).map(|_| pacer.admit(at_ms(1000.0), limit, bytes)).collect();
    let mut index = 0;
    while begun[index] < at_ms((begin_s + 1.0) * 1000.0) {
        let done = begun[index] + Duration::from_micros(1500);
        begun.push(pacer.admit(done, limit, bytes));
        index += 1;
    }
    let second = at_ms(begin_s * 1000.0)..at_ms((begin_s + 1.0) * 1000.0);
    begun.iter().filter(|moment| second.contains(moment)).count()
}

#[test]
fn who_always_wants_more_gets_the_limit_in_each_second() {
    for begin_s in [2.0, 3.0, 10.0] {
        assert!((1099..=1101).contains(&begun_within(LIMIT, 4096, begin_s)), "from {begin_s} s on");
    }
    let large = begun_within(LIMIT, 64 << 10, 5.0);
    assert!((137..=138).contains(&large), "each counts as eight: {large}");
}

#[test]
fn nobody_waits_who_wants_less() {
    let pacer = Pacer::default();
    for turn in 0..100 {
        let now = at_ms(1000.0 + f64::from(turn));
        assert_eq!(pacer.admit(now, LIMIT, 4096), now, "one each millisecond");
    }
}

#[test]
fn what_was_not_wanted_for_long_is_lost() {
    let pacer = Pacer::default();
    pacer.admit(at_ms(1000.0), LIMIT, 4096);
    let now = at_ms(5000.0);
    let at_once = (0..1000).filter(|_| pacer.admit(now, LIMIT, 4096) == now).count();
    assert!((22..=23).contains(&at_once), "of 20 ms: {at_once}");
}

#[test]
fn a_limit_that_changes_holds_for_whoever_comes_then() {
    let pacer = Pacer::default();
    let now = at_ms(1000.0);
    let slow = IopsLimit { iops_max: 1, ..LIMIT };
    for _ in 0..30 {
        pacer.admit(now, LIMIT, 4096);
    }
    let moment = pacer.admit(now, slow, 4096);
    assert!(moment < at_ms(1010.0), "{moment:?}");
    assert!(pacer.admit(now, slow, 4096) >= at_ms(2000.0));
}
