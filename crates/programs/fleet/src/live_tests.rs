use std::sync::atomic::AtomicBool;

use super::*;
use crate::testing::{Answer, Behaviour, LinuxServer};

fn spec() -> CellSpec {
    CellSpec {
        warmup: Duration::ZERO,
        write_percent: 50,
        outstanding: 2,
        write_source_bytes: 64 << 10,
        drain: Duration::ZERO,
        ..CellSpec::default()
    }
}

/// Samples until one is as `wanted`, and returns it. Samples follow each other without a rest: what
/// is awaited is another thread's doing.
fn sample_until(load: &mut LiveLoad, wanted: impl Fn(&LiveSample) -> bool) -> LiveSample {
    loop {
        let sample = load.sample();
        if wanted(&sample) {
            return sample;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_live_load_shows_pauses_while_they_last() {
    let is_stuck = Arc::new(AtomicBool::new(false));
    let decides = Arc::clone(&is_stuck);
    let server = LinuxServer::start(Behaviour::deciding(move |asked| {
        let is_stuck = asked.export == "client-1" && decides.load(Ordering::SeqCst);
        if is_stuck { Answer::Never } else { Answer::Done(Duration::ZERO) }
    }));
    let mut load = LiveLoad::start(&server.targets(2), &spec()).unwrap();
    let sample = sample_until(&mut load, |sample| sample.clients.iter().all(|client| client.iops > 0.0));
    assert!((sample.iops - sample.clients.iter().map(|client| client.iops).sum::<f64>()).abs() < 1.0);
    assert!(sample.mean_us.is_some_and(|mean| mean > 0.0) && sample.mib_per_second > 0.0);
    assert_eq!((sample.errors, sample.clients_lost), (0, 0));

    is_stuck.store(true, Ordering::SeqCst);
    let pause = Duration::from_millis(50);
    let sample = sample_until(&mut load, |sample| sample.clients[1].present_pause > pause);
    assert!(sample.clients[1].longest_pause >= sample.clients[1].present_pause);
    assert_eq!(sample.longest_pause, sample.clients.iter().map(|client| client.longest_pause).max().unwrap());
    let sample = sample_until(&mut load, |sample| sample.clients[0].iops > 0.0);
    assert_eq!((sample.clients[1].iops, sample.clients[1].is_lost), (0.0, false));
    assert!(!load.is_over());

    let result = load.stop().unwrap();
    assert_eq!((result.errors, result.clients[1].unanswered, result.clients_lost), (0, 2, 0));
    assert!(result.clients[1].longest_pause_ms > 50.0 && result.longest_pause_ms > 50.0);
    assert!(result.measured_seconds > 0.05 && result.total.count > 0);
}

#[test]
fn a_live_load_shows_errors_and_lost_clients() {
    let mut server = LinuxServer::start(Behaviour::deciding(|asked| match asked.index % 2 {
        0 => Answer::Error(Duration::ZERO, 5),
        _ => Answer::Done(Duration::ZERO),
    }));
    let mut load = LiveLoad::start(&server.targets(2), &spec()).unwrap();
    let sample = sample_until(&mut load, |sample| sample.clients.iter().all(|client| client.errors > 20));
    assert_eq!(sample.errors, sample.clients.iter().map(|client| client.errors).sum::<u64>());
    server.end();
    let sample = sample_until(&mut load, |sample| sample.clients_lost == 2);
    assert!(sample.clients.iter().all(|client| client.is_lost));
    let errors = sample.errors;
    while !load.is_over() {
        std::thread::yield_now();
    }
    let result = load.stop().unwrap();
    assert_eq!((result.clients_lost, result.errors, result.unanswered), (2, errors, 0));
}

#[test]
fn the_first_sample_may_come_before_the_start() {
    let times = Arc::new(LoadTimes::open_ended(Instant::from_nanoseconds(1000), Duration::ZERO));
    let mut sampler = Sampler::new(&times);
    let clients = [Client { name: "a".to_owned(), counters: Arc::default() }];
    let early = sampler.sample(&clients, Instant::from_nanoseconds(500));
    assert_eq!((early.at, early.interval, early.iops), (Duration::ZERO, Duration::ZERO, 0.0));
    clients[0].counters.done.store(5, Ordering::Relaxed);
    clients[0].counters.done_bytes.store(5 << 20, Ordering::Relaxed);
    clients[0].counters.latency_sum_ns.store(10_000, Ordering::Relaxed);
    let later = sampler.sample(&clients, Instant::from_nanoseconds(500 + 2_000_000_000));
    assert_eq!((later.iops, later.mib_per_second, later.mean_us), (2.5, 2.5, Some(2.0)));
}
