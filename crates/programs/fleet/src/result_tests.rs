use super::*;
use crate::load_thread::ThreadOutcome;
use crate::tally::ThreadTally;

/// A load thread that ran `count` I/Os of 1 ms for each client.
fn report(clients: &[(usize, u64)], cpu: Duration) -> ThreadReport {
    let mut tally = ThreadTally::new(true);
    let mut outcomes = Vec::new();
    for (number, count) in clients {
        let mut client = ClientTally::new(&format!("client-{number}"));
        for index in 0..*count {
            let is_write = index % 4 == 0;
            client.done(is_write, Duration::from_millis(1));
            tally.done(is_write, Duration::from_millis(1), 4096, Duration::from_secs(index % 2));
        }
        outcomes.push((*number, client));
    }
    ThreadReport { outcome: ThreadOutcome { clients: outcomes, tally }, cpu, wall: Duration::from_secs(2) }
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
    assert_eq!(result.client_iops, Spread { min: 200.0, mean: 400.0, max: 600.0 });
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
fn nothing_done_is_a_result_too() {
    let result = CellResult::new(&CellSpec::default(), Duration::ZERO, Vec::new());
    assert_eq!((result.total.iops, result.total.latency), (0.0, None));
    assert_eq!(result.client_iops, Spread::default());
    let text = serde_json::to_string(&result).unwrap();
    assert_eq!(serde_json::from_str::<CellResult>(&text).unwrap(), result);
}
