use super::*;

fn spots(text: &str, span_bytes: u64) -> Vec<(u64, u64, u64)> {
    let distribution: Distribution = text.parse().unwrap();
    let spots = distribution.spots(span_bytes);
    spots.iter().map(|spot| (spot.io_percent_until, spot.begin, spot.end)).collect()
}

#[test]
fn parts_follow_each_other_and_the_rest_gets_what_is_left() {
    assert_eq!(spots("95/5:4/10", 1000), [(95, 0, 50), (99, 50, 150), (100, 150, 1000)]);
    assert_eq!(spots("pct100/10", 1000), [(100, 0, 100)]);
    // A part without I/Os is a hole.
    assert_eq!(spots("90/10:0/10:5/20", 1000), [(90, 0, 100), (95, 200, 400), (100, 400, 1000)]);
    assert_eq!(spots("abs60/1k:40/2k", 1 << 20), [(60, 0, 1024), (100, 1024, 3072)]);
    assert_eq!(spots("abs60/1k", 4096), [(60, 0, 1024), (100, 1024, 4096)]);
}

#[test]
fn it_is_written_as_it_is_read() {
    for text in ["95/5:4/10", "abs60/1024:40/2048", "100/100"] {
        let distribution: Distribution = text.parse().unwrap();
        assert_eq!(distribution.to_string(), text);
        let json = serde_json::to_string(&distribution).unwrap();
        assert_eq!(json, format!("{text:?}"));
        assert_eq!(serde_json::from_str::<Distribution>(&json).unwrap(), distribution);
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    for (text, why) in [
        ("", "95/5:4/10"),
        ("95", "95/5:4/10"),
        ("101/5", "95/5:4/10"),
        ("5/101", "95/5:4/10"),
        ("x/5", "95/5:4/10"),
        ("60/5:60/5", "120 % together"),
        ("50/60:50/60", "120 % of the working set"),
        ("50/50:40/50", "only 90 %"),
        ("50/0", "to nothing"),
        ("abs50/9000000000000G:50/9000000000000G", "is no distribution"),
    ] {
        let error = text.parse::<Distribution>().unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
}
