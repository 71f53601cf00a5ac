use super::*;

#[test]
fn intervals_are_neither_too_short_nor_too_long() {
    assert_eq!(parse_interval("1s"), Ok(Duration::from_secs(1)));
    assert_eq!(parse_interval("100ms"), Ok(INTERVAL_MIN));
    assert_eq!(parse_interval("1h"), Ok(INTERVAL_MAX));
    for refused in ["99ms", "61m", "0", "soon"] {
        assert!(parse_interval(refused).is_err(), "{refused}");
    }
}
