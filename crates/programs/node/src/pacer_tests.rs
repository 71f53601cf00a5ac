use super::*;

const LIMIT: IopsLimit = IopsLimit { iops_max: 1100, normalized_bytes: 8192 };

fn at_ms(ms: f64) -> Instant {
    Instant::from_nanoseconds((ms * 1e6) as u64)
}

impl Pacer {
    /// When an I/O begins that is wanted `now`.
    fn begin(&self, now: Instant, limit: IopsLimit, bytes: u64) -> Instant {
        let place = self.admit(now, limit, bytes);
        self.moment(now, limit, place)
    }
}

/// I/Os begun within the second from `begin_s` on by a client that always has 32 in flight, each of which takes a millisecond and a
/// half.
fn begun_within(limit: IopsLimit, bytes: u64, begin_s: f64) -> usize {
    let pacer = Pacer::default();
    let mut begun: Vec<Instant> = (0..32).map(|_| pacer.begin(at_ms(1000.0), limit, bytes)).collect();
    let mut index = 0;
    while begun[index] < at_ms((begin_s + 1.0) * 1000.0) {
        let done = begun[index] + Duration::from_micros(1500);
        begun.push(pacer.begin(done, limit, bytes));
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
        assert_eq!(pacer.begin(now, LIMIT, 4096), now, "one each millisecond");
    }
}

#[test]
fn what_was_not_wanted_for_long_is_lost() {
    let pacer = Pacer::default();
    pacer.admit(at_ms(1000.0), LIMIT, 4096);
    let now = at_ms(5000.0);
    let at_once = (0..1000).filter(|_| pacer.begin(now, LIMIT, 4096) == now).count();
    assert!((22..=23).contains(&at_once), "of 20 ms: {at_once}");
}

#[test]
fn a_limit_that_comes_again_has_no_row_from_before() {
    let pacer = Pacer::default();
    let (slow, now) = (IopsLimit { iops_max: 20, ..LIMIT }, at_ms(1000.0));
    for _ in 0..8000 {
        pacer.admit(now, slow, 4096);
    }
    pacer.end_row();
    let begins = pacer.begin(now, slow, 4096);
    assert_eq!(begins, now, "nobody is before it");
}

#[test]
fn who_waits_goes_by_the_limit_that_holds_then() {
    let pacer = Pacer::default();
    let (now, slow) = (at_ms(1000.0), IopsLimit { iops_max: 1, ..LIMIT });
    pacer.admit(now, slow, 4096);
    // 4,096 units, more than an hour at one a second.
    pacer.admit(now, slow, 32 << 20);
    let place = pacer.admit(now, slow, 4096);
    assert!(pacer.moment(now, slow, place) > at_ms(4_000_000.0));
    let later = at_ms(2000.0);
    let fast = IopsLimit { iops_max: 100_000, ..LIMIT };
    pacer.moment(later, slow, place);
    let moment = pacer.moment(later, fast, place);
    assert!(moment > later && moment < at_ms(2045.0), "{moment:?}");
    assert!(pacer.begin(later, fast, 4096) < at_ms(2045.0), "and whoever comes then");
}
