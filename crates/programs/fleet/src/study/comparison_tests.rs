use spandrel_shared::CacheMode;

use super::super::testing::row;
use super::*;
use crate::meter::CacheReading;

/// So many microseconds of the cluster's processor for each of 1000 I/Os, on either side, round by round.
fn comparison(cpu_us: &[(u64, u64)]) -> Comparison {
    let row = |name: &str, mode, cpu_us: u64| {
        let mut row = row(name, mode, 1000);
        row.usage.cpu_seconds = Some(row.usage.generator_cpu_seconds + cpu_us as f64 / 1e3);
        row
    };
    let round = |(base, cached): &(u64, u64)| Round {
        base: row("no cache drive", CacheMode::Off, *base),
        row: row("write-only", CacheMode::WriteOnly, *cached),
    };
    Comparison { title: "Writes".to_owned(), rounds: cpu_us.iter().map(round).collect() }
}

#[test]
fn the_median_is_in_the_middle() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[3.0]), Some(3.0));
    assert_eq!(median(&[9.0, 1.0, 3.0]), Some(3.0));
    assert_eq!(median(&[9.0, 1.0, 3.0, 4.0]), Some(3.5));
}

#[test]
fn ratios_within_a_round_are_judged() {
    // The machine is slower from round to round: medians of each side alone would tell of that.
    let slower = comparison(&[(100, 110), (200, 220), (400, 440), (50, 55), (100, 300)]);
    let shape = slower.judge("CPU", StudyRow::cluster_cpu_us, Goal::AtMost(1.15));
    assert!((shape.ratio.unwrap() - 1.1).abs() < 1e-9 && shape.holds, "{shape:?}");
    let spread = shape.spread.unwrap();
    assert!((spread.min - 1.1).abs() < 1e-9 && (spread.max - 3.0).abs() < 1e-9, "{shape:?}");
    assert!(!slower.judge("CPU", StudyRow::cluster_cpu_us, Goal::AtMost(1.05)).holds);
}

#[test]
fn a_round_with_failures_is_none() {
    let mut failed = comparison(&[(100, 100), (100, 100)]);
    failed.rounds[1].base.cell.errors = 1;
    let shape = failed.judge("CPU", StudyRow::cluster_cpu_us, Goal::AtMost(1.15));
    assert_eq!((shape.ratio, shape.holds), (None, false));
    assert!(failed.render().contains("not measured"), "{}", failed.render());
}

#[test]
fn people_read_medians_and_ratios() {
    let mut told = comparison(&[(100, 110), (200, 210), (300, 360)]);
    for round in &mut told.rounds {
        round.row.cache.room_bytes = 100;
        round.row.cache.dirty_bytes = 26;
        round.row.cell.write.bytes = 1000;
        round.row.cache.destaged_bytes = 2900;
        round.base.cache = CacheReading::default();
    }
    let expected = "\
Writes
                              CPU us/IO           of clients              mean us                 IOPS  from cache  moved  dirty
no cache drive                      200                  100                4,000                1,000           -      -      -
write-only                          210                  100                4,000                1,000        75 %  2.9 x   26 %
ratio           1.10 x (1.05 to 1.20)  1.00 x (1.00 to 1.00)  1.00 x (1.00 to 1.00)  1.00 x (1.00 to 1.00)
";
    let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(squeeze(&told.render()), squeeze(expected));
}
