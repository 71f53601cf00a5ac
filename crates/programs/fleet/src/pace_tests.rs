use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// I/Os that may begin within so many steps of a millisecond from `from` on.
fn begun(pace: &mut Pace, from: Instant, milliseconds: u64) -> u64 {
    let mut count = 0;
    for step in 0..milliseconds {
        while pace.take(from + Duration::from_millis(step)) {
            count += 1;
        }
    }
    count
}

fn pace(text: &str) -> (Pace, Instant) {
    let start = Instant::from_nanoseconds(5_000_000_000);
    (Pace::new(text.parse().unwrap(), 4096, start, &mut Random::stream(1, 2, 3)), start)
}

#[test]
fn the_mean_rate_is_what_was_asked_for() {
    for (text, expected) in [("300i", 3000), ("4096", 10_000), ("1024", 2500)] {
        let (mut pace, start) = pace(text);
        let count = begun(&mut pace, start, 10_000);
        assert!(count.abs_diff(expected) <= 1, "{text}: {count}");
    }
}

#[test]
fn a_moment_is_made_up_for_and_a_long_time_is_not() {
    let (mut pace, start) = pace("1000i");
    assert!(begun(&mut pace, start, 1000).abs_diff(1000) <= 1);
    // Held up for half a second.
    assert!(begun(&mut pace, start + SECOND + SECOND / 2, 500).abs_diff(1000) <= 2);
    // And for a minute.
    assert!(begun(&mut pace, start + SECOND * 62, 1000).abs_diff(2000) <= 2);
}

#[test]
fn rates_are_written_as_they_are_read() {
    for text in ["300i", "1500"] {
        assert_eq!(text.parse::<RateLimit>().unwrap().to_string(), text);
    }
    for text in ["", "i", "0", "0i", "-1", "1.5", "5k"] {
        assert!(text.parse::<RateLimit>().unwrap_err().contains("300i"), "{text}");
    }
}
