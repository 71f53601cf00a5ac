use super::super::testing::{FakeLab, row};
use super::*;
use crate::progress::{LineProgress, NoProgress};

fn arguments(rounds: u32) -> CacheCostStudyArguments {
    CacheCostStudyArguments { rounds, time_scale: 0.02, output: StudyOutput::Table }
}

/// A comparison of one round, in which the cached side has so many times the processor time and the latency.
fn comparison(cpu: f64, latency: f64) -> Comparison {
    let base = row("no cache drive", CacheMode::Off, 1000);
    let mut cached = base.clone();
    let cluster_seconds = base.usage.cpu_seconds.unwrap() - base.usage.generator_cpu_seconds;
    cached.usage.cpu_seconds = Some(base.usage.generator_cpu_seconds + cluster_seconds * cpu);
    if let Some(total) = &mut cached.cell.total.latency {
        total.mean_us *= latency;
    }
    Comparison { title: String::new(), rounds: vec![Round { base, row: cached }] }
}

/// The same of writes that cost the same on both sides, where the cached side has moved so many bytes for each one that so many
/// clients have written.
fn moving(clients: u32, moved_ratio: f64) -> Comparison {
    let mut comparison = comparison(1.0, 1.0);
    let row = &mut comparison.rounds[0].row;
    row.cache.room_bytes = 440 * MIB;
    row.working_set_bytes = Sizes::of_room(row.cache.room_bytes).volume_bytes * u64::from(clients);
    row.cell.write.bytes = 1000;
    row.cache.destaged_bytes = (moved_ratio * 1000.0) as u64;
    comparison
}

fn hold(cell: Cell, cpu: f64, latency: f64) -> Vec<bool> {
    cell.shapes(&comparison(cpu, latency)).iter().map(|shape| shape.holds).collect()
}

#[test]
fn reads_and_writes_have_bounds_of_their_own() {
    for state in [State::Empty, State::Half] {
        let read = Cell::new(state, false, 1);
        assert_eq!(hold(read, 1.029, 1.029), [true, true]);
        assert_eq!(hold(read, 1.031, 1.029), [false, true]);
        assert_eq!(hold(read, 1.029, 1.031), [true, false]);
        assert_eq!(
            hold(Cell::new(state, false, 8), 1.029, 9.0),
            [true],
            "latency counts with one outstanding"
        );
    }
    for outstanding in [1, 8] {
        let write = Cell::new(State::Half, true, outstanding);
        assert_eq!(hold(write, 1.149, 9.0), [true]);
        assert_eq!(hold(write, 1.151, 1.0), [false]);
        let moved = Cell::new(State::Ripe, true, outstanding).shapes(&comparison(1.4, 1.0));
        assert_eq!((moved[0].goal, moved[0].holds), (Goal::Told, true), "what moving costs has no bound");
    }
}

/// It is cheap as what it costs is yet to come.
#[test]
fn a_write_that_was_not_moved_meanwhile_does_not_count_as_measured() {
    let ripe = Cell::new(State::Ripe, true, 8);
    let judged = |comparison: &Comparison| {
        let shape = ripe.shapes(comparison).remove(0);
        (shape.ratio.is_some(), shape.holds)
    };
    for (clients, moved_ratio) in [(4, 2.9), (4, 2.2), (1, 1.3)] {
        assert_eq!(judged(&moving(clients, moved_ratio)), (true, true), "{clients}, {moved_ratio}");
    }
    for (clients, moved_ratio) in [(4, 2.0), (4, 0.0), (1, 1.1), (1, 0.0)] {
        assert_eq!(judged(&moving(clients, moved_ratio)), (false, false), "{clients}, {moved_ratio}");
    }
    let mut unripe = moving(4, 2.9);
    unripe.rounds[0].row.are_caches_settled = false;
    assert_eq!(judged(&unripe), (false, false), "more comes than is moved");
    let read = Cell::new(State::Half, false, 8);
    assert!(read.shapes(&unripe)[0].holds, "of reads nothing is to be moved");
}

#[test]
fn half_is_far_from_being_moved_and_writes_are_far_more_than_the_cache() {
    let room = 440 * MIB;
    let sizes = Sizes::of_room(room);
    assert!(sizes.half_copies_bytes() * 8 < room && sizes.half_copies_bytes() * 12 > room, "{sizes:?}");
    assert!(sizes.volume_bytes * u64::from(CLIENTS) * COPIES > room * 19 / 10, "{sizes:?}");
    assert_eq!(Sizes::of_room(0), Sizes { volume_bytes: MIB, read_bytes: MIB });
}

#[test]
fn what_is_not_half_is_not_measured() {
    let sizes = Sizes::of_room(440 * MIB);
    let half = sizes.half_copies_bytes();
    for dirty_bytes in [half, half * 109 / 100, half * 91 / 100] {
        assert!(check_half(dirty_bytes, sizes).is_ok(), "{dirty_bytes}");
    }
    for dirty_bytes in [0, half * 89 / 100, half * 111 / 100] {
        assert_eq!(check_half(dirty_bytes, sizes).unwrap_err().code, "FLEET_STUDY_FAILED");
    }
}

#[test]
fn both_clusters_are_measured_in_turns() {
    let (mut lab, mut lines) = (FakeLab::default(), Vec::new());
    let report = arguments(2).run(&mut lab, &mut LineProgress::new(&mut lines)).unwrap();
    assert_eq!(report.comparisons.len(), CELLS.len());
    for (comparison, cell) in report.comparisons.iter().zip(CELLS) {
        let turns = if cell.writes { 1 } else { READ_TURNS as usize };
        assert_eq!(comparison.rounds.len(), 2 * turns, "{}", comparison.title);
        for round in &comparison.rounds {
            assert_eq!((&*round.base.name, round.base.cache_mode), ("no cache drive", CacheMode::Off));
            assert_eq!((&*round.row.name, round.row.cache_mode), ("write-only", CacheMode::WriteOnly));
            for row in [&round.base, &round.row] {
                assert!(row.cell.total.count > 0 && !row.cell.has_failures() && row.are_caches_settled);
                assert_eq!(row.cell.write.count > 0, cell.writes, "{}", comparison.title);
                assert_eq!(row.cell.clients.len(), cell.clients as usize);
            }
        }
    }
    let lines = String::from_utf8(lines).unwrap();
    let waits = lines.lines().filter_map(|line| line.strip_prefix("waiting until the rate is steady "));
    let waits: Vec<&str> = waits.collect();
    let mut expected = Vec::new();
    for round in 0..2 {
        for turn in CELLS.iter().flat_map(|cell| 0..cell.turns(round).len() as u32) {
            let turn =
                if (round + turn) % 2 == 0 { ["(off)", "(write-only)"] } else { ["(write-only)", "(off)"] };
            expected.extend(turn);
        }
    }
    assert_eq!(waits, expected);
    let shapes: Vec<&str> = report.shapes.iter().map(|shape| &*shape.name).collect();
    let expected = [
        "CPU of reads, cache empty, 8 outstanding",
        "CPU of reads, cache empty, 1 outstanding",
        "mean latency of reads, cache empty, 1 outstanding",
        "CPU of reads, half of it on cache drives, 8 outstanding",
        "CPU of reads, half of it on cache drives, 1 outstanding",
        "mean latency of reads, half of it on cache drives, 1 outstanding",
        "CPU of writes, none moved, 8 outstanding",
        "CPU of writes, none moved, 1 outstanding",
        "CPU of writes, all moved meanwhile, 8 outstanding",
        "CPU of writes, all moved meanwhile, 1 outstanding",
    ];
    assert_eq!(shapes, expected);
    let calls = lab.calls.lock().unwrap();
    assert_eq!(calls.iter().filter(|call| *call == "start memory").count(), 2);
    assert_eq!(calls.iter().filter(|call| *call == "remove").count(), 2);
}

#[test]
fn cache_drives_that_are_not_emptied_as_fast_as_filled_are_told_of() {
    let mut lab = FakeLab { moves_nothing: true, ..FakeLab::default() };
    let report = arguments(1).run(&mut lab, &mut NoProgress).unwrap();
    for (comparison, cell) in report.comparisons.iter().zip(CELLS) {
        let Round { base, row } = &comparison.rounds[0];
        assert!(base.are_caches_settled, "it has none");
        assert_eq!(row.are_caches_settled, cell.state != State::Ripe, "{}", comparison.title);
    }
    let text = report.table();
    assert!(text.contains("write-only: the caches were not settled yet when it was measured"), "{text}");
}

#[test]
fn a_study_that_fails_leaves_neither_cluster() {
    for fails_at in ["volumes", "write-only", "remove"] {
        let mut lab = FakeLab { fails_at: Some(fails_at), ..FakeLab::default() };
        let error = arguments(1).run(&mut lab, &mut NoProgress).unwrap_err();
        assert_eq!(error.code, "FAKE_FAILED");
        let calls = lab.calls.lock().unwrap();
        assert_eq!(calls.iter().filter(|call| *call == "drop").count(), 2, "{fails_at}");
    }
}
