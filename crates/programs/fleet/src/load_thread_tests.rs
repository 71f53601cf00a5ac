use std::time::Duration;

use super::*;
use crate::spec::Pattern;
use crate::testing::{Answer, Asked, Behaviour, NETWORK_DELAY, World};

const MILLISECOND: Duration = Duration::from_millis(1);

/// A short load without warm-up.
fn spec() -> CellSpec {
    CellSpec {
        warmup: Duration::ZERO,
        duration: MILLISECOND * 1000,
        write_source_bytes: 64 << 10,
        ..CellSpec::default()
    }
}

fn close_to(value: f64, expected: f64, relative: f64) -> bool {
    (value - expected).abs() <= expected.abs() * relative
}

#[test]
fn rates_and_latencies_are_those_of_the_server() {
    let service = Duration::from_micros(480);
    let world = World::new(Behaviour::with_latency(service));
    let spec =
        CellSpec { threads: 2, outstanding: 4, write_percent: 50, warmup: MILLISECOND * 100, ..spec() };
    let result = world.run(&spec, 3).result;
    // The way there and back takes 20 us, so each of the 24 I/Os in flight takes half a millisecond.
    let latency_us = (service + NETWORK_DELAY * 2).as_secs_f64() * 1e6;
    let latency = result.total.latency.unwrap();
    for value in [latency.mean_us, latency.p50_us, latency.p99_9_us.unwrap(), latency.max_us] {
        assert!(close_to(value, latency_us, 0.001), "{latency:?}");
    }
    assert!(close_to(result.total.iops, 48_000.0, 0.001), "{}", result.total.iops);
    assert!(close_to(result.total.mib_per_second, 48_000.0 / 256.0, 0.001));
    assert_eq!(result.total.count, result.read.count + result.write.count);
    assert_eq!(result.total.bytes, result.total.count * 4096);
    assert_eq!(result.clients.len(), 3);
    assert!(result.clients.iter().all(|client| close_to(client.total.iops, 16_000.0, 0.001)));
    assert!(close_to(result.client_iops.mean * 3.0, result.total.iops, 1e-9));
    assert_eq!(result.littles_law.outstanding_set, 24);
    assert!(result.littles_law.residual_percent.abs() < 0.1 && !result.littles_law.is_suspicious);
    assert_eq!((result.errors, result.unanswered, result.clients_lost), (0, 0, 0));
    assert!(result.longest_pause_ms <= 0.51, "{}", result.longest_pause_ms);
    let in_flight: Vec<usize> = world.server.asked().iter().map(|asked| asked.in_flight).collect();
    assert_eq!(in_flight.iter().max(), Some(&24));
}

#[test]
fn threads_go_no_faster_than_they_may_and_no_slower() {
    for (limit, expected) in [("250i", 6 * 250), ("1024", 6 * 250)] {
        let world = World::new(Behaviour::with_latency(MILLISECOND));
        let rate_limit = Some(limit.parse().unwrap());
        let spec =
            CellSpec { threads: 2, outstanding: 4, duration: MILLISECOND * 2000, rate_limit, ..spec() };
        let load = world.run(&spec, 3);
        assert!(close_to(load.result.total.iops, f64::from(expected), 0.005), "{}", load.result.total.iops);
        assert!(load.took < MILLISECOND * 2010, "it ends in time: {:?}", load.took);
        // They are not held up by their own pace as if the server had let them wait.
        assert!(load.result.longest_pause_ms < 2.0, "{}", load.result.longest_pause_ms);
        let mut times: Vec<_> = world.server.asked_of("client-0").iter().map(|asked| asked.at).collect();
        times.dedup();
        assert!(times.len() > 900, "they do not go in step: {}", times.len());
    }
}

#[test]
fn a_thread_makes_up_for_what_a_slow_server_kept_it_from() {
    // Nothing is answered for 300 ms in the middle.
    let world = World::new(Behaviour::deciding(|asked| {
        Answer::Done(if asked.index == 100 { MILLISECOND * 300 } else { MILLISECOND })
    }));
    let rate_limit = Some("200i".parse().unwrap());
    let spec = CellSpec { outstanding: 1, duration: MILLISECOND * 2000, rate_limit, ..spec() };
    let result = world.run(&spec, 1).result;
    assert!(close_to(result.total.iops, 200.0, 0.01), "{}", result.total.iops);
}

#[test]
fn all_clients_start_together_and_say_goodbye() {
    let world = World::new(Behaviour::with_latency(MILLISECOND));
    world.run(&CellSpec { outstanding: 3, ..spec() }, 5);
    world.settle();
    let asked = world.server.asked();
    let first = asked[0].at;
    let at_start = asked.iter().filter(|asked| asked.at == first).count();
    assert_eq!(at_start, 15);
    let goodbyes = asked.iter().filter(|asked| asked.command == Asked::DISCONNECT).count();
    assert_eq!(goodbyes, 5);
}

#[test]
fn warm_up_and_cool_down_are_load_that_does_not_count() {
    let world = World::new(Behaviour::with_latency(MILLISECOND - NETWORK_DELAY * 2));
    let spec = CellSpec { warmup: MILLISECOND * 300, cooldown: MILLISECOND * 200, ..spec() };
    let load = world.run(&spec, 1);
    assert_eq!(load.result.total.count, 1000);
    assert_eq!(world.server.asked_of("client-0").len(), 1500);
    assert_eq!(load.took, MILLISECOND * 1500);
    assert_eq!(load.result.measured_seconds, 1.0);
}

#[test]
fn percentiles_are_those_of_the_single_latencies() {
    // Mostly quick, sometimes a thousand times slower.
    let service = |asked: &Asked| {
        let index = asked.index as u64;
        let scale = if index.is_multiple_of(97) { 1000 } else { 1 };
        Duration::from_micros((index * 7919 % 450 + 20) * scale)
    };
    let world = World::new(Behaviour::deciding(move |asked| Answer::Done(service(asked))));
    let spec = CellSpec { outstanding: 16, duration: MILLISECOND * 2000, drain: Duration::ZERO, ..spec() };
    let result = world.run(&spec, 1).result;
    let start = world.server.asked()[0].at - NETWORK_DELAY;
    let mut latencies_us: Vec<f64> = world
        .server
        .asked_of("client-0")
        .iter()
        .filter(|asked| asked.at + service(asked) + NETWORK_DELAY < start + spec.duration)
        .map(|asked| (service(asked) + NETWORK_DELAY * 2).as_secs_f64() * 1e6)
        .collect();
    latencies_us.sort_by(f64::total_cmp);
    assert!(latencies_us.len() > 3000, "{}", latencies_us.len());
    assert_eq!(result.total.count, latencies_us.len() as u64);
    let naive = |share: f64| latencies_us[((latencies_us.len() as f64 * share).ceil() as usize).max(1) - 1];
    let latency = result.total.latency.unwrap();
    let mean = latencies_us.iter().sum::<f64>() / latencies_us.len() as f64;
    for (value, expected) in [
        (latency.mean_us, mean),
        (latency.p50_us, naive(0.5)),
        (latency.p90_us, naive(0.9)),
        (latency.p95_us, naive(0.95)),
        (latency.p99_us, naive(0.99)),
        (latency.p99_9_us.unwrap(), naive(0.999)),
        (latency.max_us, naive(1.0)),
    ] {
        assert!(close_to(value, expected, 0.002), "{value} instead of {expected}");
    }
}

#[test]
fn the_write_percentage_is_drawn_for_each_io() {
    for write_percent in [0, 10, 30, 100] {
        let world = World::new(Behaviour::with_latency(Duration::from_micros(80)));
        let spec = CellSpec { write_percent, outstanding: 2, ..spec() };
        let result = world.run(&spec, 2).result;
        let asked = world.server.asked_of("client-0");
        let share = f64::from(write_percent) / 100.0;
        let count = asked.len() as f64;
        let writes = asked.iter().filter(|asked| asked.is_write()).count() as f64;
        let deviation = (count * share * (1.0 - share)).sqrt();
        assert!(
            (writes - count * share).abs() <= 4.0 * deviation,
            "{writes} of {count} at {write_percent} %"
        );
        assert_eq!(result.write.latency.is_some(), write_percent > 0);
        assert_eq!(result.read.latency.is_some(), write_percent < 100);
        // A run of one direction as long as this would be a schedule, not a draw.
        if write_percent == 30 {
            let directions: Vec<bool> = asked.iter().map(Asked::is_write).collect();
            let longest = directions.chunk_by(|one, other| one == other).map(<[bool]>::len).max();
            assert!((5..60).contains(&longest.unwrap()), "{longest:?}");
        }
    }
}

#[test]
fn one_seed_gives_one_sequence_whatever_the_latencies() {
    let places = |seed: u64, latency_us: u64, write_percent: u8, count: usize| -> Vec<u64> {
        let world = World::new(Behaviour::with_latency(Duration::from_micros(latency_us)));
        world.run(&CellSpec { seed, write_percent, outstanding: 4, ..spec() }, 2);
        world.server.asked_of("client-1").iter().map(|asked| asked.offset).take(count).collect()
    };
    let first = places(5, 300, 0, 1000);
    assert_eq!(first.len(), 1000);
    assert_eq!(places(5, 300, 0, 1000), first);
    assert_eq!(places(5, 700, 100, 1000), first);
    assert_ne!(places(6, 300, 0, 1000), first);
    assert!(first.iter().all(|offset| offset.is_multiple_of(4096)));
    let distinct = first.iter().collect::<std::collections::BTreeSet<_>>().len();
    // 4096 places: with 1000 draws about 888 are distinct.
    assert!((850..930).contains(&distinct), "{distinct}");
}

#[test]
fn sequential_threads_walk_their_own_way_around() {
    let behaviour = Behaviour { size_bytes: 1 << 20, ..Behaviour::with_latency(MILLISECOND) };
    let world = World::new(behaviour);
    let blocks = (1 << 20) / 4096;
    let spec = CellSpec { pattern: Pattern::Sequential, threads: 4, outstanding: 1, ..spec() };
    world.run(&spec, 1);
    let asked = world.server.asked_of("client-0");
    assert!(asked.len() > 4 * blocks, "every thread walks around: {}", asked.len());
    for round in 0..asked.len() / 4 {
        let mut places: Vec<usize> =
            asked[round * 4..round * 4 + 4].iter().map(|asked| asked.offset as usize / 4096).collect();
        places.sort_unstable();
        let mut expected: Vec<usize> = (0..4).map(|thread| (thread * blocks / 4 + round) % blocks).collect();
        expected.sort_unstable();
        assert_eq!(places, expected, "round {round}");
    }
}

#[test]
fn interlocked_threads_share_one_position() {
    let behaviour = Behaviour { size_bytes: 1 << 20, ..Behaviour::with_latency(MILLISECOND) };
    let world = World::new(behaviour);
    let spec = CellSpec {
        pattern: Pattern::Interlocked,
        block_size_bytes: 8192,
        working_set_bytes: Some(512 << 10),
        threads: 2,
        outstanding: 3,
        ..spec()
    };
    world.run(&spec, 1);
    let asked = world.server.asked_of("client-0");
    assert!(asked.len() > 1000);
    for (index, asked) in asked.iter().enumerate() {
        assert_eq!(asked.offset, (index as u64 % 64) * 8192);
        assert_eq!(asked.length, 8192);
    }
}

#[test]
fn failed_ios_are_counted_told_and_followed_by_others() {
    let decide = |asked: &Asked| match asked.index % 10 {
        7 => Answer::Error(MILLISECOND, 5),
        _ => Answer::Done(MILLISECOND),
    };
    for is_structured in [true, false] {
        let world = World::new(Behaviour { is_structured, ..Behaviour::deciding(decide) });
        let spec = CellSpec { warmup: MILLISECOND * 100, write_percent: 40, intervals: true, ..spec() };
        let result = world.run(&spec, 2).result;
        let failed = world.server.asked().iter().filter(|asked| asked.index % 10 == 7).count();
        assert!(failed > 100);
        assert_eq!(result.errors, failed as u64);
        assert_eq!(result.clients[0].errors + result.clients[1].errors, failed as u64);
        assert_eq!((result.unanswered, result.clients_lost), (0, 0));
        // One in ten fails, and failures are not I/Os done.
        assert!(close_to(result.total.iops, 2.0 * 0.9 / 0.00102, 0.01), "{}", result.total.iops);
        assert_eq!(result.failures.len(), 16, "the first eight of each client");
        let first = &result.failures[0];
        assert_eq!((first.client.as_str(), first.reason.as_str()), ("client-0", "I/O error"));
        assert!(first.at_seconds > 0.0 && first.at_seconds < 0.01, "the eighth I/O of about 1 ms each");
        assert!(["read", "write"].contains(&first.operation.as_str()) && first.offset.is_some());
        let in_window: u64 = result.intervals.iter().map(|interval| interval.errors).sum();
        assert!(in_window > 80 && in_window < failed as u64, "warm-up has no intervals: {in_window}");
    }
}

#[test]
fn intervals_add_up() {
    let world = World::new(Behaviour::with_latency(MILLISECOND - NETWORK_DELAY * 2));
    let spec = CellSpec { duration: MILLISECOND * 2500, write_percent: 50, intervals: true, ..spec() };
    let result = world.run(&spec, 1).result;
    assert_eq!(
        result.intervals.iter().map(|interval| interval.end_seconds).collect::<Vec<_>>(),
        [1.0, 2.0, 2.5]
    );
    let counts: Vec<u64> = result.intervals.iter().map(|interval| interval.reads + interval.writes).collect();
    // The first I/O is done one millisecond after the start, the last one at the very end.
    assert_eq!(counts, [999, 1000, 500]);
    assert_eq!(counts.iter().sum::<u64>(), result.total.count);
}

#[test]
fn a_broken_connection_ends_one_client_and_fails_what_was_in_flight() {
    let decide = |asked: &Asked| match (asked.export.as_str(), asked.index) {
        ("client-1", 200) => Answer::Close,
        _ => Answer::Done(MILLISECOND),
    };
    let world = World::new(Behaviour::deciding(decide));
    let result = world.run(&CellSpec { outstanding: 4, ..spec() }, 3).result;
    assert_eq!((result.errors, result.clients_lost, result.unanswered), (4, 1, 0));
    let lost: Vec<bool> = result.clients.iter().map(|client| client.is_lost).collect();
    assert_eq!(lost, [false, true, false]);
    assert_eq!(result.failures.len(), 1);
    let failure = &result.failures[0];
    assert_eq!((failure.client.as_str(), failure.operation.as_str()), ("client-1", "connection"));
    assert!(failure.reason.ends_with("; 4 I/Os were in flight"), "{}", failure.reason);
    assert!(close_to(failure.at_seconds, 0.0510, 0.03), "{}", failure.at_seconds);
    assert!(result.littles_law.is_suspicious, "a third of the I/Os were missing most of the time");
    assert!(close_to(result.clients[0].total.iops, 4.0 / 0.00102, 0.01));
}

#[test]
fn a_load_whose_clients_are_all_lost_is_over() {
    let decide = |asked: &Asked| if asked.index == 10 { Answer::Close } else { Answer::Done(MILLISECOND) };
    let world = World::new(Behaviour::deciding(decide));
    let load = world.run(&CellSpec { duration: MILLISECOND * 100_000, ..spec() }, 2);
    assert_eq!(load.result.clients_lost, 2);
    assert!(load.took < MILLISECOND * 100, "{:?}", load.took);
}

/// The time in which `client-0` gets no answers: what is asked then is answered at its end.
fn stall(from_ms: u32, until_ms: u32) -> Behaviour {
    let (from, until) = (MILLISECOND * from_ms, MILLISECOND * until_ms);
    Behaviour::deciding(move |asked| {
        let is_stalled = asked.export == "client-0" && (from..until).contains(&asked.at);
        Answer::Done(if is_stalled { until - asked.at } else { MILLISECOND })
    })
}

#[test]
fn the_longest_pause_is_told_by_client() {
    let world = World::new(stall(300, 700));
    let result = world.run(&CellSpec { outstanding: 4, ..spec() }, 2).result;
    let pauses: Vec<f64> = result.clients.iter().map(|client| client.longest_pause_ms).collect();
    // What was asked just before 300 ms is still answered 1 ms later.
    assert!((396.0..=401.0).contains(&pauses[0]), "{pauses:?}");
    assert!(pauses[1] < 1.1, "{pauses:?}");
    assert_eq!(result.longest_pause_ms, pauses[0]);
    assert_eq!(result.errors, 0);
}

#[test]
fn only_the_measured_part_of_a_pause_counts() {
    // The load begins about 1 ms after the server; 200 ms of warm-up follow.
    let spec = CellSpec { warmup: MILLISECOND * 200, cooldown: MILLISECOND * 500, ..spec() };
    for (from_ms, until_ms, expected_ms) in
        [(20, 150, 1.0), (100, 500, 300.0), (900, 1500, 301.0), (1300, 1600, 1.0)]
    {
        let world = World::new(stall(from_ms, until_ms));
        let result = world.run(&spec, 1).result;
        let pause_ms = result.longest_pause_ms;
        assert!((pause_ms - expected_ms).abs() < 3.0, "stalled from {from_ms} to {until_ms}: {pause_ms}");
    }
}

#[test]
fn what_is_never_answered_is_counted_when_patience_ends() {
    let decide = |asked: &Asked| match (asked.export.as_str(), asked.index) {
        ("client-0", 400..) => Answer::Never,
        _ => Answer::Done(MILLISECOND),
    };
    let world = World::new(Behaviour::deciding(decide));
    let spec = CellSpec { outstanding: 4, drain: MILLISECOND * 3000, ..spec() };
    let load = world.run(&spec, 2);
    let result = load.result;
    assert_eq!((result.unanswered, result.errors, result.clients_lost), (4, 0, 0));
    assert_eq!(result.clients[0].unanswered, 4);
    assert_eq!(load.took, MILLISECOND * 4000, "the load and then the drain");
    assert!((890.0..900.0).contains(&result.longest_pause_ms), "{}", result.longest_pause_ms);
    assert_eq!(result.failures.len(), 4);
    assert!(result.failures[0].reason.starts_with("not answered within 3.9 s"), "{:?}", result.failures[0]);
}

#[test]
fn a_fill_writes_every_byte_once() {
    let size_bytes = (1 << 20) + 512;
    let world = World::new(Behaviour { size_bytes, ..Behaviour::with_latency(MILLISECOND) });
    let spec = CellSpec { block_size_bytes: 64 << 10, outstanding: 8, write_percent: 100, ..spec() };
    let load = world.fill(&spec, 1);
    let mut asked = world.server.asked_of("client-0");
    assert!(asked.iter().all(Asked::is_write));
    asked.sort_by_key(|asked| asked.offset);
    let mut end = 0;
    for asked in asked {
        assert_eq!(asked.offset, end);
        end += u64::from(asked.length);
    }
    assert_eq!(end, size_bytes);
    assert_eq!(load.result.errors, 0);
    // What was written is random: every byte value is there about as often.
    let content = world.server.content();
    let mut counts = [0_u32; 256];
    content.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    assert!(counts.iter().all(|count| (3000..5500).contains(count)), "{counts:?}");
}

#[test]
fn hundreds_of_clients_share_a_thread() {
    let world = World::new(Behaviour { size_bytes: 1 << 20, ..Behaviour::with_latency(MILLISECOND) });
    let spec = CellSpec { write_percent: 30, outstanding: 2, duration: MILLISECOND * 50, ..spec() };
    let result = world.run(&spec, 300).result;
    assert_eq!(result.clients.len(), 300);
    assert!(result.client_iops.min > 1900.0 && result.client_iops.max < 2000.0, "{:?}", result.client_iops);
    assert_eq!(result.littles_law.outstanding_set, 600);
    assert!(!result.littles_law.is_suspicious, "{:?}", result.littles_law);
}

#[test]
fn messages_in_pieces_change_nothing() {
    for seed in 0..5 {
        for is_structured in [true, false] {
            let behaviour = Behaviour { is_structured, ..Behaviour::with_latency(MILLISECOND) };
            let world = World::fragmenting(seed, behaviour);
            let spec = CellSpec { block_size_bytes: 32 << 10, write_percent: 50, outstanding: 8, ..spec() };
            let result = world.run(&CellSpec { duration: MILLISECOND * 200, ..spec }, 2).result;
            assert_eq!((result.errors, result.unanswered, result.clients_lost), (0, 0, 0));
            assert!(result.read.count > 200 && result.write.count > 200, "{}", result.total.count);
        }
    }
}

#[test]
fn a_client_that_cannot_connect_stops_everything_before_the_load() {
    let world = World::new(Behaviour::default());
    let mut targets = world.targets(2);
    targets[1] = Target::new("client-1", spandrel_platform::Address::Unix("nobody".to_owned()), "client-1");
    let error = world.run_targets(&spec(), targets).err().unwrap();
    assert_eq!(error.code, "FLEET_CLIENT_NOT_CONNECTED");
    assert!(error.what.contains("client-1") && error.what.contains("socket=nobody"), "{error}");
    assert!(world.server.asked().is_empty());

    let world =
        World::new(Behaviour { refusal: Some(((1 << 31) + 6, "no such volume")), ..Behaviour::default() });
    let error = world.run_targets(&spec(), world.targets(1)).err().unwrap();
    assert!(error.why.contains("there is no export \"client-0\": no such volume"), "{error}");
}

#[test]
fn a_volume_that_does_not_fit_is_refused() {
    let small =
        Behaviour { size_bytes: 1 << 20, request_bytes: Some((4096, 64 << 10)), ..Behaviour::default() };
    let cases = [
        (CellSpec { working_set_bytes: Some(2 << 20), ..spec() }, small.clone(), "working set is 2 MiB"),
        (
            CellSpec { block_size_bytes: 128 << 10, write_source_bytes: 1 << 20, ..spec() },
            small.clone(),
            "at most 64 KiB",
        ),
        (CellSpec { block_size_bytes: 512, ..spec() }, small.clone(), "multiples of the server's 4 KiB"),
        (
            CellSpec { write_percent: 1, ..spec() },
            Behaviour { is_read_only: true, ..small.clone() },
            "read-only",
        ),
        (
            spec(),
            Behaviour { size_bytes: 512, ..small },
            "a block is 4 KiB, and of the volume 512 B are used",
        ),
    ];
    for (spec, behaviour, why) in cases {
        let world = World::new(behaviour);
        let error = world.run_targets(&spec, world.targets(1)).err().unwrap();
        assert_eq!(error.code, "FLEET_VOLUME_UNFIT");
        assert!(error.why.contains(why), "{error}");
    }
}
