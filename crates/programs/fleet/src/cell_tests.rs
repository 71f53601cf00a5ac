use super::*;
use crate::testing::{Answer, Behaviour, LinuxServer};

const MILLISECOND: Duration = Duration::from_millis(1);

fn spec() -> CellSpec {
    CellSpec {
        warmup: MILLISECOND * 20,
        duration: MILLISECOND * 200,
        write_percent: 30,
        outstanding: 4,
        write_source_bytes: 64 << 10,
        ..CellSpec::default()
    }
}

#[test]
fn a_cell_runs_on_real_sockets() {
    let server = LinuxServer::start(Behaviour::default());
    for load_threads in [1, 3] {
        let result = run_cell(&server.targets(5), &CellSpec { load_threads, ..spec() }).unwrap();
        let names: Vec<&str> = result.clients.iter().map(|client| client.name.as_str()).collect();
        assert_eq!(names, ["client-0", "client-1", "client-2", "client-3", "client-4"]);
        assert!(result.clients.iter().all(|client| client.total.iops > 0.0), "{result:?}");
        assert!(result.read.count > result.write.count && result.write.count > 0);
        assert_eq!((result.errors, result.unanswered, result.clients_lost), (0, 0, 0));
        assert!(result.generator.cpu_seconds > 0.0 && result.generator.busiest_thread_percent > 0.0);
        let by_clients: f64 = result.clients.iter().map(|client| client.total.iops).sum();
        assert!((by_clients - result.total.iops).abs() < 1e-6 * by_clients);
    }
}

#[test]
fn what_cannot_run_is_refused_before_anything_runs() {
    let server = LinuxServer::start(Behaviour::default());
    let error = run_cell(&[], &spec()).unwrap_err();
    assert!(error.what.contains("without clients"), "{error}");
    let error = run_cell(&server.targets(1), &CellSpec { outstanding: 0, ..spec() }).unwrap_err();
    assert_eq!(error.code, "FLEET_LOAD_INVALID");
    let mut targets = server.targets(3);
    drop(server);
    let error = run_cell(&targets, &spec()).unwrap_err();
    assert_eq!(error.code, "FLEET_CLIENT_NOT_CONNECTED");
    targets.truncate(1);
    assert_eq!(fill(&targets, None, 0, |_, _| {}).unwrap_err().code, "FLEET_CLIENT_NOT_CONNECTED");
}

#[test]
fn a_cell_whose_server_ends_is_over_at_once() {
    let decide = |asked: &crate::testing::Asked| match asked.index {
        50.. => Answer::Close,
        _ => Answer::Done(Duration::ZERO),
    };
    let server = LinuxServer::start(Behaviour::deciding(decide));
    // A week, if it waited for its end.
    let spec = CellSpec { duration: Duration::from_secs(7 * 24 * 3600), ..spec() };
    let result = run_cell(&server.targets(2), &spec).unwrap();
    assert_eq!(result.clients_lost, 2);
    assert_eq!(result.errors, 8);
}

#[test]
fn an_observer_hears_of_the_measurement_once() {
    #[derive(Default)]
    struct Heard {
        order: Vec<&'static str>,
        ticks: usize,
        last: Duration,
    }
    impl CellObserver for Heard {
        fn begin_measurement(&mut self) {
            self.order.push("begin");
        }
        fn end_measurement(&mut self) {
            self.order.push("end");
        }
        fn tick(&mut self, elapsed: Duration, total: Duration, sample: &LiveSample) {
            assert!(elapsed >= self.last && elapsed <= total);
            assert_eq!(sample.clients.len(), 2);
            self.ticks += 1;
            self.last = elapsed;
        }
    }
    let server = LinuxServer::start(Behaviour::default());
    let mut heard = Heard::default();
    run_observed_cell(&server.targets(2), &spec(), &mut heard).unwrap();
    assert_eq!(heard.order, ["begin", "end"]);
    assert!(heard.ticks >= 3);
    assert_eq!(heard.last, MILLISECOND * 220);
}

#[test]
fn a_fill_tells_how_far_it_is_and_fails_with_its_first_failure() {
    let server = LinuxServer::start(Behaviour { size_bytes: 3 << 20, ..Behaviour::default() });
    let mut heard = Vec::new();
    fill(&server.targets(2), Some(2 << 20), 0, |done, total| heard.push((done, total))).unwrap();
    assert!(heard.is_sorted() && heard.iter().all(|(_, total)| *total == Some(4 << 20)));
    assert_eq!(heard.last(), Some(&(4 << 20, Some(4 << 20))));
    let content = server.server.content();
    assert!(content[..2 << 20].chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)));
    assert!(content[2 << 20..].iter().all(|byte| *byte == 0));

    // Less than one block of a fill.
    fill(&server.targets(1), Some(12 << 10), 1, |done, total| heard.push((done, total))).unwrap();
    assert_eq!(heard.last(), Some(&(12 << 10, Some(12 << 10))));
    assert_ne!(server.server.content()[..12 << 10], content[..12 << 10]);

    let server = LinuxServer::start(Behaviour::deciding(|_| Answer::Error(Duration::ZERO, 28)));
    let error = fill(&server.targets(1), Some(1 << 20), 0, |_, _| {}).unwrap_err();
    assert_eq!((error.code.as_str(), error.why.as_str()), ("FLEET_FILL_FAILED", "no room"));
    assert!(error.what.contains("client-0"), "{error}");
}
