use super::super::testing::{FakeLab, row};
use super::*;
use crate::progress::NoProgress;
use crate::testing::Asked;

fn modes(counts: [u64; 3]) -> Vec<StudyRow> {
    MODES.into_iter().zip(counts).map(|(mode, count)| row(&mode_name(mode), mode, count)).collect()
}

fn hold(shapes: &[Shape]) -> Vec<bool> {
    shapes.iter().map(|shape| shape.holds).collect()
}

#[test]
fn modes_are_judged_against_no_cache() {
    let met = shapes_of_modes(&modes([100, 100, 130]), &modes([100, 150, 100]), &modes([100, 100, 200]));
    assert_eq!(hold(&met), [true, true, true]);
    let missed = shapes_of_modes(&modes([100, 200, 129]), &modes([100, 149, 300]), &modes([100, 300, 199]));
    assert_eq!(hold(&missed), [false, false, false], "the mode that the shape names counts, and no other");
    let missing = shapes_of_modes(&modes([0, 100, 130]), &[], &modes([100, 100, 200])[..2]);
    assert_eq!(hold(&missing), [false, false, false]);
}

#[test]
fn what_failed_holds_nothing() {
    let mut reads = modes([100, 100, 200]);
    reads[0].cell.unanswered = 1;
    let shapes = shapes_of_modes(&reads, &modes([100, 200, 200]), &modes([100, 100, 300]));
    assert_eq!(hold(&shapes), [false, true, true]);
}

#[test]
fn a_curve_falls_and_its_ends_lie_apart() {
    let curve = |counts: &[u64]| {
        let rows: Vec<StudyRow> = counts.iter().map(|count| row("", CacheMode::ReadWrite, *count)).collect();
        hold(&shapes_of_curve(&rows))
    };
    assert_eq!(curve(&[4000, 2000, 1500, 1000]), [true, true]);
    assert_eq!(curve(&[4000, 2000, 1500, 1001]), [false, true]);
    assert_eq!(curve(&[4000, 400, 420, 410]), [true, true], "chance lifts a point a little");
    assert_eq!(curve(&[4000, 400, 421, 410]), [true, false]);
    assert_eq!(curve(&[4000]), [false, false]);
}

fn arguments(capacity_media: Option<CapacityMedia>) -> CacheStudyArguments {
    let output = StudyOutput::Table;
    CacheStudyArguments { capacity_media, media_scale: None, time_scale: 0.01, output }
}

#[test]
fn modes_are_measured_clean_warm_and_reads_before_writes() {
    let mut lab = FakeLab::default();
    let report = arguments(Some(CapacityMedia::Ssd)).run(&mut lab, &mut NoProgress).unwrap();
    let names = |table: &StudyTable| table.rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>();
    assert_eq!(report.tables.len(), 3);
    for table in &report.tables {
        assert_eq!(names(table), ["no cache", "write-only", "read-write"]);
        assert!(table.rows.iter().all(|row| row.cell.total.count > 0 && !row.cell.has_failures()));
    }
    assert!(report.tables[1].rows.iter().all(|row| row.cell.read.count == 0), "writes alone");
    assert_eq!(report.tables[2].rows[0].cell.spec.block_size_bytes, 128 << 10);
    assert_eq!(report.shapes.len(), 3);
    let calls = lab.calls.lock().unwrap();
    let expected = [
        "start ssd",
        "off",
        "volumes 4 of 1 MiB",
        "off",
        "off",
        "write-only",
        "read-write",
        "off",
        "await clean",
        "off",
        "off",
        "write-only",
        "off",
        "await clean",
        "read-write",
        "remove",
        "drop",
    ];
    assert_eq!(calls[..], expected);
}

#[test]
fn the_curve_goes_over_working_sets_of_several_times_the_cache() {
    let mut lab = FakeLab::default();
    let report = arguments(Some(CapacityMedia::Hdd)).run(&mut lab, &mut NoProgress).unwrap();
    let sizes: Vec<u64> = report.tables[0].rows.iter().map(|row| row.working_set_bytes >> 20).collect();
    assert_eq!(sizes, [16, 36, 52, 72, 144], "whole MiB for each of four clients, of a cache of 36");
    assert_eq!(report.tables[0].rows[4].name, "144 MiB (4.0 x)");
    assert_eq!(report.shapes.len(), 2);
    let calls = lab.calls.lock().unwrap();
    assert_eq!(calls[..], ["start hdd", "off", "volumes 4 of 36 MiB", "off", "read-write", "remove", "drop"]);
}

#[test]
fn a_study_that_fails_leaves_no_cluster() {
    for fails_at in ["volumes", "await clean", "read-write", "remove"] {
        let mut lab = FakeLab { fails_at: Some(fails_at), ..FakeLab::default() };
        let error = arguments(Some(CapacityMedia::Ssd)).run(&mut lab, &mut NoProgress).unwrap_err();
        assert_eq!(error.code, "FAKE_FAILED");
        assert_eq!(lab.calls.lock().unwrap().last().unwrap(), "drop", "{fails_at}");
    }
}

#[test]
fn no_load_goes_where_another_went() {
    let mut lab = FakeLab::default();
    arguments(Some(CapacityMedia::Hdd)).run(&mut lab, &mut NoProgress).unwrap();
    let asked = lab.servers[0].asked().into_iter().filter(|asked| asked.export == "client-0");
    let asked: Vec<Asked> = asked.collect();
    let loads = asked.split(|asked| asked.command == Asked::DISCONNECT);
    let begins = loads.filter_map(|load| {
        let first: Vec<u64> = load.iter().take(8).map(|asked| asked.offset).collect();
        (load.first()?.length == 4096).then_some(first)
    });
    let begins: Vec<Vec<u64>> = begins.collect();
    assert_eq!(begins.len(), 2 * CURVE_PERCENTS.len(), "to settle, and to be measured");
    for (number, begin) in begins.iter().enumerate() {
        assert!(!begins[..number].contains(begin), "{number}: {begins:?}");
    }
}
