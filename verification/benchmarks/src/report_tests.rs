use super::*;
use crate::cell::CELLS;
use crate::contenders::CONTENDERS;
use crate::results::Sample;

#[test]
fn the_report_says_who_did_what_and_whether_floors_hold() {
    let sample = |contender: &str, iops: f64| Sample {
        cell: "read-4k-qd32".to_owned(),
        contender: contender.to_owned(),
        round: 0,
        measurement: Measurement { iops, busy_cores: 2.0, latency_mean_us: 157.4, latency_p99_us: 1234.0 },
    };
    let samples = vec![sample("spandrel", 200_000.0), sample("nbdkit", 160_000.0)];
    let results = Results { cores: 2, size_bytes: 1 << 30, measured_seconds: 5.0, samples };
    let (cells, contenders) = (&CELLS[..2], &CONTENDERS[..]);
    let expected = "\
read-4k-qd32: 4 KiB random read, 32 outstanding, files in memory
                                               IOPS  busy cores  IOPS per core  mean us  p99 us  Spandrel's ratio
spandrel (4 nodes, 3 copies, checksums)     200,000        2.00        100,000      157   1,234  of what is judged:
nbdkit (a plain file, 1 copy)               160,000        2.00         80,000      157   1,234  1.25 x (1.25 to 1.25)
";
    let text = render(&results, cells, contenders);
    for (line, expected) in text.lines().zip(expected.lines()) {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(line), words(expected));
    }
    assert!(text.contains("HOLDS"), "{text}");
    assert!(text.contains("reached") && text.contains("100,000 (100,000 to 100,000)"), "{text}");
    assert!(text.contains("NOT MEASURED"), "the second cell has a floor: {text}");
    assert!(!all_hold(&results, cells) && all_hold(&results, &cells[..1]));
}
