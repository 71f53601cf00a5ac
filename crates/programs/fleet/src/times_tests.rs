use super::*;

fn at(seconds: u64) -> Instant {
    Instant::from_nanoseconds(seconds * 1_000_000_000)
}

#[test]
fn only_the_measured_part_of_a_time_counts() {
    let second = Duration::from_secs(1);
    let spec =
        CellSpec { warmup: second * 5, duration: second * 10, cooldown: second * 2, ..CellSpec::default() };
    let times = LoadTimes::of_cell(&spec, at(100));
    assert_eq!((times.measure_from, times.measure_until(), times.stop_at()), (at(105), at(115), at(117)));
    assert!(!times.is_measured(at(104)) && times.is_measured(at(105)) && !times.is_measured(at(115)));
    for (from, until, seconds) in [(101, 104, 0), (101, 107, 2), (106, 108, 2), (110, 200, 5), (116, 117, 0)]
    {
        assert_eq!(times.measured_between(at(from), at(until)), second * seconds, "{from} to {until}");
    }
    times.stop(at(110));
    assert_eq!((times.measure_until(), times.stop_at()), (at(110), at(110)));
    times.stop(at(300));
    assert_eq!(times.stop_at(), at(110), "a stop never prolongs a load");
}
