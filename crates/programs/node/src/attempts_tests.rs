use super::*;

const WHAT: &str = "sda";

fn error() -> Error {
    Error::new("CACHE_NOT_DRAINED", "what", "why", "next")
}

fn at(seconds: u64) -> Instant {
    Instant::default() + Duration::from_secs(seconds)
}

#[test]
fn pauses_become_longer_until_an_attempt_succeeds() {
    let attempts = Attempts::default();
    let mut now = at(100);
    for pause_s in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        assert!(attempts.is_due(WHAT, now));
        attempts.begin(WHAT, now);
        attempts.end(WHAT, Err(error()), now);
        assert_eq!(attempts.are_in_vain(WHAT), pause_s == 300);
        now = now + Duration::from_secs(pause_s - 1);
        assert!(!attempts.is_due(WHAT, now), "after {pause_s} s");
        now = now + Duration::from_secs(1);
    }
    attempts.begin(WHAT, now);
    attempts.end(WHAT, Ok(()), now);
    assert!(attempts.is_due(WHAT, now) && !attempts.are_in_vain(WHAT));
}

#[test]
fn nothing_is_told_while_an_attempt_goes_on_and_its_pause_stays() {
    let attempts = Attempts::default();
    attempts.begin(WHAT, at(0));
    assert_eq!(attempts.obstacle(WHAT), None);
    attempts.end(WHAT, Err(error()), at(10));
    assert_eq!(attempts.obstacle(WHAT), Some(error()));
    attempts.begin(WHAT, at(11));
    assert_eq!(attempts.obstacle(WHAT), None, "it may not be in the way any more");
    attempts.end(WHAT, Err(error()), at(20));
    assert!(!attempts.is_due(WHAT, at(21)) && attempts.is_due(WHAT, at(22)));
}

#[test]
fn what_is_not_wanted_any_more_is_forgotten() {
    let attempts = Attempts::default();
    for what in [WHAT, "sdb"] {
        attempts.begin(what, at(0));
        attempts.end(what, Err(error()), at(0));
    }
    attempts.keep_only(&[WHAT.to_owned()].into());
    assert_eq!((attempts.obstacle(WHAT), attempts.obstacle("sdb")), (Some(error()), None));
}
