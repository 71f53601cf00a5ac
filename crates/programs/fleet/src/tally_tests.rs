use super::*;
use crate::random::Random;
use crate::spec::CellSpec;

#[test]
fn quantiles_are_those_of_a_sorted_list() {
    let mut random = Random::stream(3, 0, 0);
    for _ in 0..20 {
        let count = random.below(5000) + 1;
        let bits = random.below(32) + 4;
        let mut latencies = Latencies::new();
        let mut all = Vec::new();
        for _ in 0..count {
            let nanoseconds = random.below(1 << bits) + 1;
            latencies.record(Duration::from_nanos(nanoseconds), 512);
            all.push(nanoseconds);
        }
        all.sort_unstable();
        assert_eq!((latencies.count(), latencies.bytes()), (count, count * 512));
        let mean = all.iter().map(|nanoseconds| *nanoseconds as f64).sum::<f64>() / 1000.0 / count as f64;
        assert!((latencies.mean_us() - mean).abs() <= mean * 1e-9);
        assert_eq!(latencies.max_us(), all[all.len() - 1] as f64 / 1000.0);
        assert_eq!(latencies.min_us(), all[0] as f64 / 1000.0);
        let square = |nanoseconds: &u64| (*nanoseconds as f64 / 1000.0 - mean).powi(2);
        let deviation = (all.iter().map(square).sum::<f64>() / count as f64).sqrt();
        assert!((latencies.standard_deviation_us() - deviation).abs() <= 1e-6 + deviation * 1e-6);
        for quantile in [0.01, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0] {
            let index = ((count as f64 * quantile).ceil() as usize).max(1) - 1;
            let naive = all[index] as f64 / 1000.0;
            let value = latencies.quantile_us(quantile);
            // Half a microsecond from rounding, and a thousandth from the histogram's three digits.
            assert!((value - naive).abs() <= 0.5 + naive * 0.001, "{value} instead of {naive} at {quantile}");
        }
    }
}

#[test]
fn latencies_of_many_threads_add_up() {
    let mut random = Random::stream(4, 0, 0);
    let (mut sum, mut parts) = (Latencies::new(), [Latencies::new(), Latencies::new(), Latencies::new()]);
    for _ in 0..1000 {
        let latency = Duration::from_nanos(random.below(1 << 30));
        sum.record(latency, 4096);
        parts[random.below(3) as usize].record(latency, 4096);
    }
    let mut added = Latencies::new();
    parts.iter().for_each(|part| added.add(part));
    assert_eq!((added.count(), added.bytes(), added.max_us()), (sum.count(), sum.bytes(), sum.max_us()));
    assert_eq!((added.mean_us(), added.quantile_us(0.5)), (sum.mean_us(), sum.quantile_us(0.5)));
}

#[test]
fn a_latency_beyond_all_bounds_is_still_counted() {
    let mut latencies = Latencies::new();
    latencies.record(Duration::from_secs(100_000), 1);
    assert_eq!(latencies.count(), 1);
    assert_eq!(latencies.max_us(), 1e11);
}

#[test]
fn a_client_that_waits_shows_its_present_pause() {
    let at = |milliseconds: u64| Instant::from_nanoseconds(milliseconds * 1_000_000);
    let spec = CellSpec { warmup: Duration::from_millis(100), ..CellSpec::default() };
    let times = LoadTimes::open_ended(at(1000), spec.warmup);
    let counters = ClientCounters::default();
    assert_eq!(counters.longest_pause(&times, at(5000)), Duration::ZERO, "nothing is outstanding");
    counters.set_waiting(at(1050), 4, Duration::from_millis(30));
    assert_eq!(counters.present_pause(&times, at(1090)), Duration::ZERO, "the warm-up does not count");
    assert_eq!(counters.longest_pause(&times, at(1110)), Duration::from_millis(30));
    assert_eq!(counters.present_pause(&times, at(1110)), Duration::from_millis(10));
    assert_eq!(counters.longest_pause(&times, at(1200)), Duration::from_millis(100));
    counters.set_waiting(at(1300), 0, Duration::from_millis(200));
    assert_eq!(counters.longest_pause(&times, at(9000)), Duration::from_millis(200));
}
