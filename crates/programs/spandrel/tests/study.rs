//! A study from its command to its end, as a person sees it; with times far too short for its ratios to mean anything.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use spandrel_fleet::{Shape, StudyReport};
use tempfile::TempDir;

/// A study of the cache whose cluster is made in `temporary`.
fn study(temporary: &Path, options: &[&str]) -> Command {
    let mut command = study_of("cache", temporary);
    command.args(["--capacity-media", "ssd", "--media-scale", "1"]).args(options);
    command
}

fn study_of(what: &str, temporary: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
    command.args(["fleet", "study", what]).env("TMPDIR", temporary).stdin(Stdio::null());
    command
}

fn temporary() -> TempDir {
    tempfile::Builder::new().prefix("sp").tempdir().expect("a temporary directory")
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).expect("it is there").next().is_none()
}

#[test]
fn a_study_measures_all_rows_and_leaves_nothing() {
    let temporary = temporary();
    let ran = study(temporary.path(), &["--time-scale", "0.01", "-o", "json"]).output().expect("it starts");
    let errors = String::from_utf8_lossy(&ran.stderr);
    let report = StudyReport::from_json(&String::from_utf8_lossy(&ran.stdout));
    let report = report.unwrap_or_else(|error| panic!("{error}: {errors}"));
    let expected = if report.all_hold() { 0 } else { 1 };
    assert_eq!(ran.status.code(), Some(expected), "{errors}");
    let rows: Vec<_> = report.tables.iter().flat_map(|table| &table.rows).collect();
    assert_eq!((report.tables.len(), rows.len(), report.shapes.len()), (3, 9, 3));
    for row in rows {
        assert!(row.cell.total.count > 0 && !row.cell.has_failures(), "{row:?}");
        assert!(row.cache.room_bytes > 3 * row.working_set_bytes, "with all copies it is in the cache");
    }
    // Where reads come from is no matter of speed.
    let from_cache = |table: usize, row: usize| report.tables[table].rows[row].cache.hit_percent();
    for table in [0, 2] {
        assert_eq!((from_cache(table, 0), from_cache(table, 1)), (Some(0.0), Some(0.0)), "{errors}");
        assert!(from_cache(table, 2).is_some_and(|percent| percent > 90.0), "{errors}");
    }
    assert!(is_empty(temporary.path()), "something is left over");
}

#[test]
fn a_study_of_costs_measures_both_clusters_in_each_state() {
    let temporary = temporary();
    let mut command = study_of("cache-cost", temporary.path());
    let ran =
        command.args(["--rounds", "1", "--time-scale", "0.01", "-o", "json"]).output().expect("it starts");
    let errors = String::from_utf8_lossy(&ran.stderr);
    let report = StudyReport::from_json(&String::from_utf8_lossy(&ran.stdout));
    let report = report.unwrap_or_else(|error| panic!("{error}: {errors}"));
    assert_eq!(ran.status.code(), Some(if report.all_hold() { 0 } else { 1 }), "{errors}");
    assert_eq!((report.comparisons.len(), report.shapes.len()), (8, 10));
    // In so short a time too little may be moved to say what that costs.
    let is_measured = |shape: &Shape| shape.ratio.is_some() || shape.name.contains("all moved meanwhile");
    assert!(report.shapes.iter().all(is_measured), "{:?}", report.shapes);
    for round in report.comparisons.iter().flat_map(|comparison| &comparison.rounds) {
        for row in [&round.base, &round.row] {
            assert!(row.cell.total.count > 0 && !row.cell.has_failures(), "{row:?}");
        }
        assert_eq!(round.base.cache.room_bytes, 0, "it has no cache drives");
    }
    // What stands on the cache drives is no matter of speed.
    let cached = |comparison: usize| &report.comparisons[comparison].rounds[0].row.cache;
    for (comparison, expected) in [(0, 0.0..=0.0), (1, 0.0..=0.0), (2, 35.0..=65.0), (3, 35.0..=65.0)] {
        assert!(cached(comparison).hit_percent().is_some_and(|hit| expected.contains(&hit)), "{errors}");
    }
    assert_eq!(cached(4).destaged_bytes, 0, "what is written again is not moved");
    assert!(is_empty(temporary.path()), "something is left over");
}

#[test]
fn a_study_that_is_interrupted_leaves_nothing() {
    let temporary = temporary();
    let mut process =
        study(temporary.path(), &[]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(process.stderr.take().expect("it is piped")).lines();
    let mut lines = lines.map(|line| line.expect("it is text"));
    assert!(lines.any(|line| line.starts_with("volumes filled")), "it ended before");
    assert!(!is_empty(temporary.path()), "its cluster is elsewhere");
    let pid = Pid::from_raw(process.id() as i32).expect("a process has a number");
    kill_process(pid, Signal::INT).expect("it runs");
    assert!(lines.any(|line| line.contains("interrupted: removing what was made")));
    assert_eq!(process.wait().expect("it is a child").code(), Some(130));
    assert!(is_empty(temporary.path()), "something is left over");
}
