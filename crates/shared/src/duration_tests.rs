use super::*;

#[test]
fn durations_are_read_as_people_write_them() {
    for (text, milliseconds) in [
        ("500ms", 500),
        ("1s", 1000),
        ("1.5s", 1500),
        (" 2 s ", 2000),
        ("7", 7000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("2d", 172_800_000),
        ("4w", 2_419_200_000),
    ] {
        assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
    }
    for text in ["", "s", "1y", "-1s", "1.2.3s", "1 s s", "1e3s", "99999999999999999999h"] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
}

#[test]
fn durations_are_shown_in_their_own_unit() {
    for (milliseconds, text) in [
        (0, "0 ms"),
        (250, "250 ms"),
        (1000, "1 s"),
        (1500, "1.5 s"),
        (60_000, "1 min"),
        (5_430_000, "1 h 30 min 30 s"),
        (86_400_000, "1 d"),
        (216_000_000, "2 d 12 h"),
        (604_800_000, "1 week"),
        (2_419_200_000, "4 weeks"),
    ] {
        assert_eq!(format_duration(Duration::from_millis(milliseconds)), text);
    }
}
