use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::*;
use crate::load_thread::ThreadOutcome;

/// A load thread that ran `count` I/Os of 1 ms for each client.
fn report(clients: &[(usize, u64)], cpu: Duration) -> ThreadReport {
    let mut outcomes = Vec::new();
    for (number, count) in clients {
        let mut client = ClientTally::new(&format!("client-{number}"), true);
        for index in 0..*count {
            let is_write = index % 4 == 0;
            client.done(is_write, Duration::from_millis(1), 4096, Duration::from_secs(index % 2));
        }
        outcomes.push((*number, client));
    }
    ThreadReport {
        outcome: ThreadOutcome { clients: outcomes, guests: Vec::new() },
        cpu,
        wall: Duration::from_secs(2),
    }
}

#[test]
fn threads_add_up_in_the_order_of_the_clients() {
    let spec = CellSpec { intervals: true, ..CellSpec::default() };
    let reports = vec![
        report(&[(0, 400), (2, 800)], Duration::from_millis(100)),
        report(&[(1, 1200)], Duration::from_millis(1900)),
    ];
    let result = CellResult::new(&spec, Duration::from_secs(2), reports);
    let names: Vec<&str> = result.clients.iter().map(|client| client.name.as_str()).collect();
    assert_eq!(names, ["client-0", "client-1", "client-2"]);
    assert_eq!((result.total.count, result.write.count, result.read.count), (2400, 600, 1800));
    assert_eq!((result.total.iops, result.total.mib_per_second), (1200.0, 1200.0 / 256.0));
    let Spread { min, mean, median, max, standard_deviation } = result.client_iops;
    assert_eq!((min, mean, median, max), (200.0, 400.0, 400.0, 600.0));
    assert!((standard_deviation - (80_000.0_f64 / 3.0).sqrt()).abs() < 1e-9);
    assert_eq!(result.intervals.len(), 2);
    assert_eq!(result.intervals[1], Interval { end_seconds: 2.0, reads: 1200, writes: 0, errors: 0 });
    // 1200 I/Os per second of 1 ms are 1.2 in flight; three were set.
    assert_eq!(result.littles_law.outstanding_set, 3);
    assert!((result.littles_law.outstanding_measured - 1.2).abs() < 1e-9);
    assert!((result.littles_law.residual_percent + 60.0).abs() < 1e-9 && result.littles_law.is_suspicious);
    assert_eq!(result.generator.cpu_seconds, 2.0);
    assert!((result.generator.cpu_us_per_io - 2e6 / 2400.0).abs() < 1e-9);
    assert!((result.generator.busiest_thread_percent - 95.0).abs() < 1e-9 && result.generator.is_saturated);
}

#[test]
fn a_residual_of_a_tenth_is_let_pass() {
    let spec = CellSpec::default();
    for (count, is_suspicious) in [(2000, false), (1820, false), (1780, true), (2220, true)] {
        let reports = vec![report(&[(0, count)], Duration::ZERO)];
        let result = CellResult::new(&spec, Duration::from_secs(2), reports);
        assert_eq!(result.littles_law.is_suspicious, is_suspicious, "{:?}", result.littles_law);
    }
}

#[test]
fn a_rate_limit_excuses_from_littles_law() {
    let spec = CellSpec { rate_limit: Some(crate::pace::RateLimit::IosPerSecond(5)), ..CellSpec::default() };
    let result = CellResult::new(&spec, Duration::from_secs(2), vec![report(&[(0, 10)], Duration::ZERO)]);
    assert!(result.littles_law.residual_percent < -90.0 && !result.littles_law.is_suspicious);
}

#[test]
fn as_many_nines_are_told_as_there_are_ios_for() {
    for (count, expected) in [(999, 0), (1000, 1), (9999, 1), (10_000, 2)] {
        let reports = vec![report(&[(0, count)], Duration::ZERO)];
        let latency = CellResult::new(&CellSpec::default(), Duration::from_secs(2), reports).total.latency;
        let latency = latency.unwrap();
        let told = [latency.p99_9_us, latency.p99_99_us, latency.p99_999_us];
        assert_eq!(told.iter().flatten().count(), expected, "{count}: {told:?}");
        assert_eq!((latency.standard_deviation_us, latency.min_us), (0.0, 1000.0));
    }
}

#[test]
fn all_latencies_of_a_client_can_be_told() {
    let spec = CellSpec { histograms: true, ..CellSpec::default() };
    let result = CellResult::new(&spec, Duration::from_secs(2), vec![report(&[(0, 400)], Duration::ZERO)]);
    let [client] = &result.clients[..] else { panic!("there is one") };
    let read = |text: &Option<String>| -> hdrhistogram::Histogram<u64> {
        let bytes = BASE64.decode(text.as_ref().expect("it was asked for")).expect("it is base 64");
        hdrhistogram::serialization::Deserializer::new().deserialize(&mut &bytes[..]).expect("it is whole")
    };
    let (reads, writes) = (read(&client.read_histogram), read(&client.write_histogram));
    assert_eq!((reads.len(), writes.len(), reads.max()), (300, 100, 1000));
    assert_eq!(client.intervals.iter().map(|interval| interval.reads).collect::<Vec<_>>(), [100, 200]);
    let plain = CellResult::new(
        &CellSpec::default(),
        Duration::from_secs(2),
        vec![report(&[(0, 4)], Duration::ZERO)],
    );
    assert_eq!(plain.clients[0].read_histogram, None);
}

#[test]
fn nothing_done_is_a_result_too() {
    let result = CellResult::new(&CellSpec::default(), Duration::ZERO, Vec::new());
    assert_eq!((result.total.iops, result.total.latency), (0.0, None));
    assert_eq!(result.client_iops, Spread::default());
    let text = serde_json::to_string(&result).unwrap();
    assert_eq!(serde_json::from_str::<CellResult>(&text).unwrap(), result);
}
