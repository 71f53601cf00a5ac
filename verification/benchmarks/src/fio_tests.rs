use super::*;

/// As fio 3.33 writes it, without what is not read.
fn said(read: (f64, f64, f64), write: (f64, f64, f64)) -> String {
    let kind = |(iops, mean, p99): (f64, f64, f64)| {
        format!(
            r#"{{"iops": {iops}, "lat_ns": {{"mean": {mean}}}, "clat_ns": {{"percentile": {{"99.000000": {p99}}}}}}}"#
        )
    };
    format!(
        "note: an engine says something\n{{\"jobs\": [{{\"read\": {}, \"write\": {}}}]}}",
        kind(read),
        kind(write)
    )
}

#[test]
fn reads_and_writes_count_together() {
    let nothing = (0.0, 0.0, 0.0);
    let reads = parse(&said((1000.0, 40_000.0, 90_000.0), nothing), 1.5).unwrap();
    let expected = Measurement { iops: 1000.0, busy_cores: 1.5, latency_mean_us: 40.0, latency_p99_us: 90.0 };
    assert_eq!(reads, expected);
    let mixed = parse(&said((700.0, 40_000.0, 90_000.0), (300.0, 140_000.0, 400_000.0)), 2.0).unwrap();
    assert_eq!((mixed.iops, mixed.latency_mean_us, mixed.latency_p99_us), (1000.0, 70.0, 400.0));
    assert_eq!(mixed.iops_per_core(), 500.0);
}

#[test]
fn what_says_nothing_of_ios_is_no_measurement() {
    assert_eq!(parse(&said((0.0, 0.0, 0.0), (0.0, 0.0, 0.0)), 1.0), None);
    assert_eq!(parse("fio: engine nbd not loadable", 1.0), None);
    assert_eq!(parse("{}", 1.0), None);
}

#[test]
fn a_load_is_told_to_fio() {
    let load = Load { write_percent: 30, block_bytes: 4096, outstanding: 32 };
    assert_eq!(load_arguments(&load), ["--rw=randrw", "--rwmixwrite=30", "--bs=4096", "--iodepth=32"]);
    let writes = Load { write_percent: 100, ..load };
    assert_eq!(load_arguments(&writes)[0], "--rw=randwrite");
}
