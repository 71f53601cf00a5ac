use std::time::Duration;

use super::*;
use crate::generator::ThreadReport;
use crate::load_thread::ThreadOutcome;
use crate::meter::{CacheReading, Usage};
use crate::result::CellResult;
use crate::spec::CellSpec;
use crate::sweep::SweepSpec;
use crate::tally::ClientTally;

/// A row of a sweep with 256 clients whose I/Os all took `latency`.
fn row(spec: &CellSpec, count: u64, latency: Duration, usage: Usage) -> SweepRow {
    let mut client = ClientTally::new("vm-01", false);
    for index in 0..count {
        let is_write = index % 100 < u64::from(spec.write_percent);
        client.done(is_write, latency, spec.block_size_bytes, Duration::ZERO);
    }
    client.longest_pause = latency * 3;
    let others = (1..256).map(|number| (number, ClientTally::new("other", false)));
    let clients = std::iter::once((0, client)).chain(others).collect();
    let outcome = ThreadOutcome { clients, guests: Vec::new() };
    let report = ThreadReport { outcome, cpu: Duration::from_millis(200), wall: Duration::from_secs(1) };
    let cell = CellResult::new(spec, Duration::from_secs(1), vec![report]);
    let iops_per_busy_core = usage.busy_cores.map(|cores| cell.total.iops / cores);
    SweepRow { cell, usage, iops_per_busy_core, layers: None, layer_intervals: Vec::new() }
}

fn usage(busy_cores: Option<f64>, write_amplification: Option<f64>) -> Usage {
    Usage {
        seconds: 2.0,
        cpu_seconds: busy_cores,
        generator_cpu_seconds: 0.2,
        busy_cores,
        user_written_bytes: 1000,
        drive_written_bytes: write_amplification.map(|factor| (factor * 1000.0) as u64),
        write_amplification,
        cache: None,
    }
}

fn result() -> SweepResult {
    let common = CellSpec { working_set_bytes: Some(16 << 30), ..CellSpec::default() };
    let small = CellSpec { write_percent: 30, outstanding: 8, ..common.clone() };
    let large =
        CellSpec { write_percent: 100, outstanding: 1, block_size_bytes: 128 << 10, ..common.clone() };
    let spec = SweepSpec {
        block_sizes_bytes: vec![4096, 128 << 10],
        threads: vec![1],
        write_percents: vec![30, 100],
        outstanding: vec![1, 8],
        common,
        fill: true,
    };
    // 2048 I/Os in flight and 256, as Little's law wants it.
    let rows = vec![
        row(&small, 20_480, Duration::from_millis(100), usage(Some(1.5), Some(3.056))),
        row(&large, 256_000, Duration::from_millis(1), usage(None, None)),
    ];
    SweepResult { spec, clients: 256, clients_apart: 0, rows, stopped_by: None, warnings: Vec::new() }
}

#[test]
fn the_table_is_aligned_and_has_its_units() {
    let expected = "\
256 clients, random I/O on the first 16 GiB of each volume, warm-up 5 s, measured 10 s

write    out-        block                      mean      p50      p99    p99.9   longest  cores  IOPS per  write
    %  stand.  thr.   size     IOPS   MiB/s       us       us       us       us  pause ms   busy      core  ampl.
   30       8     1     4K   20,480    80.0  100,000  100,000  100,000  100,000       300   1.50    13,653  3.056
  100       1     1   128K  256,000  32,000    1,000    1,000    1,000    1,000       3.0      -         -      -
";
    let table = result().table();
    assert_eq!(table, expected, "\n{table}");
}

#[test]
fn what_cache_drives_did_is_told_where_there_are_some() {
    let mut result = result();
    result.rows[0].usage.cache = Some(CacheReading {
        hit_bytes: 3,
        missed_bytes: 1,
        destaged_bytes: 2500,
        dirty_bytes: 7,
        ..CacheReading::default()
    });
    let expected = "\
write    out-        block                      mean      p50      p99    p99.9   longest  cores  IOPS per  write  cache  moved
    %  stand.  thr.   size     IOPS   MiB/s       us       us       us       us  pause ms   busy      core  ampl.  hit %  ratio
   30       8     1     4K   20,480    80.0  100,000  100,000  100,000  100,000       300   1.50    13,653  3.056     75   2.50
  100       1     1   128K  256,000  32,000    1,000    1,000    1,000    1,000       3.0      -         -      -      -      -
";
    let table = result.table();
    assert!(table.ends_with(expected), "\n{table}");
    let csv = result.csv();
    let (names, first) = (csv.lines().next().unwrap(), csv.lines().nth(1).unwrap());
    let value = |name: &str| {
        let at = names.split(',').position(|column| column == name).unwrap();
        first.split(',').nth(at).unwrap()
    };
    let names =
        ["cache_hit_percent", "moved_ratio", "cache_hit_bytes", "cache_destaged_bytes", "cache_dirty_bytes"];
    assert_eq!(names.map(value), ["75.00", "2.5000", "3", "2500", "7"]);
}

#[test]
fn the_table_fits_a_terminal_with_the_largest_numbers() {
    let mut result = result();
    let large = &mut result.rows[0];
    large.cell.total.iops = 12_345_678.0;
    large.cell.total.mib_per_second = 48_225.0;
    large.cell.longest_pause_ms = 12_345.6;
    large.usage.busy_cores = Some(128.25);
    large.iops_per_busy_core = Some(296_000.0);
    let table = result.table();
    assert!(table.lines().all(|line| line.len() <= 120), "\n{table}");
}

#[test]
fn what_must_be_minded_stands_below() {
    let mut result = result();
    let cell = &mut result.rows[0].cell;
    (cell.errors, cell.unanswered, cell.clients_lost) = (3, 2, 1);
    cell.littles_law.is_suspicious = true;
    cell.littles_law.residual_percent = -33.4;
    cell.littles_law.outstanding_measured = 1364.0;
    cell.generator.is_saturated = true;
    cell.generator.busiest_thread_percent = 97.0;
    let failure = crate::Failure {
        client: "vm-07".to_owned(),
        at_seconds: 1.25,
        operation: "read".to_owned(),
        offset: Some(4096),
        reason: "I/O error".to_owned(),
    };
    cell.failures = vec![failure; 12];
    let stopped_by = spandrel_shared::Error::new("CODE", "what", "why", "next");
    result.stopped_by = Some(stopped_by);
    let table = result.table();
    let (_, notes) = table.split_once("3.0      -         -      -\n\n").unwrap();
    let expected = "\
4 KiB, 30 % writes, 1 x 8 outstanding: 3 I/Os failed, 2 were not answered, 1 client lost their connection
4 KiB, 30 % writes, 1 x 8 outstanding: Little's law is off by -33 %: 1364.0 I/Os in flight were measured, 2048 were set
4 KiB, 30 % writes, 1 x 8 outstanding: a load thread was busy 97 % of the time, so the latencies are partly its own; use more load threads
";
    assert!(notes.starts_with(expected), "\n{notes}");
    let line =
        "4 KiB, 30 % writes, 1 x 8 outstanding: client vm-07 after 1.2 s: read at byte 4096: I/O error\n";
    assert_eq!(notes.matches(line).count(), 10, "\n{notes}");
    assert!(notes.contains("\n2 more failures are in the JSON output\n"), "\n{notes}");
    assert!(notes.contains("\nstopped after 2 of 8 cells: what [CODE]"), "\n{notes}");
}

#[test]
fn json_is_read_back_whole() {
    let mut result = result();
    result.spec.common.warmup = Duration::from_millis(1500);
    result.stopped_by = Some(spandrel_shared::Error::new("CODE", "what", "why", "next"));
    let text = result.render(OutputFormat::Json);
    assert_eq!(SweepResult::from_json(&text).unwrap(), result);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["rows"][0]["cell"]["total"]["latency"]["p99_9_us"], 100_000.0);
    assert_eq!(value["spec"]["common"]["warmup"], 1.5);
    assert_eq!(value["spec"]["common"]["pattern"], "random");
    assert!(SweepResult::from_json("{}").is_err());
}

#[test]
fn csv_has_a_name_and_a_number_for_everything() {
    let text = result().render(OutputFormat::Csv);
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let expected = [
        "write_percent",
        "outstanding",
        "threads",
        "block_size_bytes",
        "iops",
        "mib_per_second",
        "mean_us",
        "p50_us",
        "p99_us",
        "p99_9_us",
        "longest_pause_ms",
        "cpu_cores_busy",
        "iops_per_busy_core",
        "write_amplification",
    ];
    assert_eq!(names[..14], expected);
    let rows: Vec<Vec<Option<f64>>> = lines
        .map(|line| line.iter().map(|cell| (!cell.is_empty()).then(|| cell.parse().unwrap())).collect())
        .collect();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.len() == names.len()));
    let column = |name: &str| names.iter().position(|known| *known == name).unwrap();
    assert_eq!(rows[0][column("iops")], Some(20_480.0));
    assert_eq!(rows[0][column("block_size_bytes")], Some(4096.0));
    assert_eq!(rows[0][column("write_amplification")], Some(3.056));
    assert_eq!(rows[1][column("cpu_cores_busy")], None);
    assert_eq!(rows[1][column("write_iops")], Some(256_000.0));
    assert_eq!(rows[1][column("errors")], Some(0.0));
}

#[test]
fn numbers_are_grouped() {
    for (number, text) in [
        (0.0, "0"),
        (999.4, "999"),
        (999.6, "1,000"),
        (1e6, "1,000,000"),
        (-1234.0, "-1,234"),
        (12_345.0, "12,345"),
    ] {
        assert_eq!(count_text(number), text);
    }
    assert_eq!(
        (short(0.0), short(99.94), short(100.4)),
        ("0.0".to_owned(), "99.9".to_owned(), "100".to_owned())
    );
}

#[test]
fn formats_have_names() {
    for (name, format) in
        [("table", OutputFormat::Table), ("json", OutputFormat::Json), ("csv", OutputFormat::Csv)]
    {
        assert_eq!(name.parse(), Ok(format));
    }
    assert!("xml".parse::<OutputFormat>().unwrap_err().contains("table, json or csv"));
}
