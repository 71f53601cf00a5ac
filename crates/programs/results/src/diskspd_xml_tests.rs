use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use hdrhistogram::serialization::{Serializer as _, V2DeflateSerializer};
use spandrel_fleet::CellNumber;

use super::*;
use crate::diskspd_import::read_diskspd;
use crate::folder::tests::{client, record, row};

fn cell() -> CellRecord {
    let spec =
        CellSpec { duration: Duration::from_secs(2), write_percent: 30, ..record().plan.cells[0].clone() };
    CellRecord::new(CellNumber { cell: 0, repeat: 0 }, &row(&spec), 1_795_303_226_000)
}

fn histogram(values_us: impl Iterator<Item = u64>) -> String {
    let mut histogram = Histogram::<u64>::new(3).expect("three digits are few enough");
    values_us.for_each(|value_us| histogram.record(value_us).expect("it grows"));
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(&histogram, &mut bytes).expect("memory takes it");
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// A client whose reads took 1 to 700 us and whose writes 1001 to 1300 us.
fn measured() -> ClientResult {
    ClientResult {
        read_histogram: Some(histogram(1..=700)),
        write_histogram: Some(histogram(1001..=1300)),
        ..client("vm-1", 700, 300)
    }
}

#[test]
fn a_reader_of_diskspd_s_results_finds_the_same_numbers() {
    let cell = cell();
    let texts = [
        (Path::new("1"), of_client(&record(), &cell, &measured())),
        (Path::new("2"), of_client(&record(), &cell, &client("vm-2", 1400, 600))),
    ];
    let run = read_diskspd("again", &texts).expect("it is what DISKSPD writes");
    let [found] = &run.cells[..] else { panic!("both had the same load: {run:?}") };
    assert_eq!((found.load.block_size_bytes, found.load.write_percent), (4096, 30));
    assert_eq!((found.load.pattern.as_str(), found.load.threads, found.load.outstanding), ("random", 1, 1));
    let [measured] = &found.measurements[..] else { panic!("two clients of one measurement") };
    let result = &cell.result;
    assert_eq!(measured.iops, Some(result.total.iops));
    assert_eq!((measured.read_iops, measured.write_iops), (Some(result.read.iops), Some(result.write.iops)));
    assert_eq!(measured.mib_per_second, Some(result.total.mib_per_second));
    assert_eq!((measured.read.mean_us, measured.write.mean_us), (Some(100.0), Some(200.0)));
    assert_eq!(measured.client_iops.map(|spread| (spread.min, spread.max)), Some((500.0, 1000.0)));
}

#[test]
fn percentiles_are_those_of_all_latencies() {
    let text = of_client(&record(), &cell(), &measured());
    let bucket = |percentile: &str| {
        let begin = text.find(&format!("<Percentile>{percentile}</Percentile>")).expect("it is among them");
        let end = begin + text[begin..].find("</Bucket>").expect("it ends");
        text[begin..end].split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let line = |read: &str, write: &str, total: &str| {
        let of = |name: &str, value: &str| format!("<{name}Milliseconds>{value}</{name}Milliseconds>");
        vec![of("Read", read), of("Write", write), of("Total", total)]
    };
    assert_eq!(bucket("0"), line("0.050", "0.050", "0.050"), "what the client says is the least");
    // No more than the slowest that it has seen, 300 us.
    assert_eq!(bucket("20"), line("0.140", "0.300", "0.200"));
    assert_eq!(text.matches("<Bucket>").count(), 108);
    assert!(text.contains("<RunTime>2026/11/21 23:20:26 UTC</RunTime>"), "{text}");
}

#[test]
fn what_a_direction_without_ios_would_have_is_left_out() {
    let reader = ClientResult { read_histogram: Some(histogram(1..=700)), ..client("vm-1", 700, 0) };
    let text = of_client(&record(), &cell(), &reader);
    assert!(!text.contains("AverageWrite") && !text.contains("WriteMilliseconds"), "{text}");
    assert!(!text.contains("WriteIopsStdDev") && text.contains("<ReadIopsStdDev>0.000"), "{text}");
    assert_eq!(text.matches("<TotalMilliseconds>").count(), text.matches("<ReadMilliseconds>").count());
    assert!(text.contains("<WriteCount>0</WriteCount>"), "counts are always there");
    assert_eq!(text.matches("<Bucket SampleMillisecond").count(), 2);
}
