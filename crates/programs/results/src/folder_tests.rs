use spandrel_fleet::{
    CellResult, CellSpec, Changes, ClientResult, GeneratorCost, Interval, Latency, LittlesLaw, Profile,
    Spread, Traffic, Usage,
};
use tempfile::TempDir;

use super::*;
use crate::measurement::MeasuredRun;
use crate::record::{ClusterDescription, MachineDescription};

/// A run of two cells, each measured twice.
pub(crate) fn record() -> RunRecord {
    let changes = Changes {
        vms: Some(2),
        repeat: Some(2),
        write_percents: vec![30],
        outstanding: vec![1, 8],
        time_scale: 0.01,
        ..Changes::default()
    };
    let profile = Profile::find("micron-sata-4k").expect("it is shipped");
    RunRecord {
        format: FORMAT,
        name: "a run".to_owned(),
        created_by: "spandrel 0.1.0".to_owned(),
        begun_unix_ms: 1,
        ended_unix_ms: None,
        stopped_by: None,
        plan: profile.plan(&changes).expect("it can be run"),
        aligned_percent: 100,
        guest: None,
        cluster: ClusterDescription {
            machine: MachineDescription { cores: 4, ..MachineDescription::default() },
            copies: 3,
            ..ClusterDescription::default()
        },
        warnings: vec!["the working set fits memory".to_owned()],
    }
}

pub(crate) fn latency(mean_us: f64) -> Latency {
    Latency {
        mean_us,
        standard_deviation_us: 20.0,
        min_us: 50.0,
        p50_us: 90.0,
        p90_us: 120.0,
        p95_us: 130.0,
        p99_us: 180.0,
        p99_9_us: Some(250.0),
        p99_99_us: None,
        p99_999_us: None,
        p99_9999_us: None,
        p99_99999_us: None,
        max_us: 300.0,
    }
}

fn traffic(count: u64, mean_us: f64) -> Traffic {
    Traffic {
        count,
        bytes: count * 4096,
        iops: count as f64 / 2.0,
        mib_per_second: count as f64 / 512.0,
        latency: (count > 0).then(|| latency(mean_us)),
    }
}

/// What a client with so many reads and writes in two seconds has measured.
pub(crate) fn client(name: &str, reads: u64, writes: u64) -> ClientResult {
    let interval = |end_seconds| Interval { end_seconds, reads: reads / 2, writes: writes / 2, errors: 0 };
    ClientResult {
        name: name.to_owned(),
        node: Some("n1".to_owned()),
        read: traffic(reads, 100.0),
        write: traffic(writes, 200.0),
        total: traffic(reads + writes, 130.0),
        longest_pause_ms: 1.0,
        errors: 0,
        unanswered: 0,
        is_lost: false,
        intervals: vec![interval(1.0), interval(2.0)],
        read_histogram: None,
        write_histogram: None,
    }
}

/// A row of two clients.
pub(crate) fn row(spec: &CellSpec) -> SweepRow {
    let clients = vec![client("vm-1", 700, 300), client("vm-2", 1400, 600)];
    let cell = CellResult {
        spec: spec.clone(),
        measured_seconds: 2.0,
        read: traffic(2100, 100.0),
        write: traffic(900, 200.0),
        total: traffic(3000, 130.0),
        answered: 3000,
        errors: 0,
        unanswered: 0,
        clients_lost: 0,
        failures: Vec::new(),
        longest_pause_ms: 1.0,
        client_iops: Spread {
            min: 500.0,
            mean: 750.0,
            median: 750.0,
            max: 1000.0,
            standard_deviation: 250.0,
        },
        littles_law: LittlesLaw {
            outstanding_set: 2,
            outstanding_measured: 1.95,
            residual_percent: -2.5,
            is_suspicious: false,
        },
        generator: GeneratorCost {
            cpu_seconds: 0.1,
            cpu_us_per_io: 33.0,
            busiest_thread_percent: 5.0,
            is_saturated: false,
        },
        clients,
        intervals: Vec::new(),
    };
    let usage = Usage {
        seconds: 2.0,
        cpu_seconds: Some(4.0),
        generator_cpu_seconds: 0.1,
        busy_cores: Some(2.0),
        user_written_bytes: 900 * 4096,
        drive_written_bytes: Some(2700 * 4096),
        write_amplification: Some(3.0),
        cache: None,
    };
    SweepRow { cell, usage, iops_per_busy_core: Some(750.0), layers: None, layer_intervals: Vec::new() }
}

fn keep_all(folder: &mut RunFolder, numbers: impl IntoIterator<Item = CellNumber>) {
    for number in numbers {
        let row = row(&folder.record().plan.cells[number.cell as usize].clone());
        folder.keep(number, &row).expect("there is room");
    }
}

fn numbers() -> Vec<CellNumber> {
    spandrel_fleet::order(&record().plan).collect()
}

#[test]
fn what_was_kept_is_there_again_and_a_run_that_was_broken_off_goes_on() {
    let place = TempDir::new().expect("there is room");
    let path = place.path().join("run");
    let mut folder = RunFolder::create(&path, record()).expect("there is nothing yet");
    keep_all(&mut folder, numbers().into_iter().take(3));
    let seen = RunFolder::open(&path).expect("it is there");
    assert_eq!((seen.record(), seen.cells()), (folder.record(), folder.cells()));
    assert!(!seen.is_complete() && seen.has(numbers()[2]) && !seen.has(numbers()[3]));
    let measured = MeasuredRun::of_folder(&seen);
    assert_eq!(measured.remarks, ["the working set fits memory", "3 of 4 measurements were made"]);
    assert_eq!(measured.cells.iter().map(|cell| cell.measurements.len()).collect::<Vec<_>>(), [2, 1]);
    let mut folder = seen;
    keep_all(&mut folder, [numbers()[3]]);
    folder.end(None).expect("it can be written");
    let seen = RunFolder::open(&path).expect("it is there");
    assert!(seen.is_complete() && seen.record().ended_unix_ms.is_some());
}

#[test]
fn measurements_have_what_reports_compare() {
    let place = TempDir::new().expect("there is room");
    let path = place.path().join("run");
    let mut folder = RunFolder::create(&path, record()).expect("there is nothing yet");
    keep_all(&mut folder, numbers().into_iter().take(1));
    let run = MeasuredRun::of_folder(&folder);
    assert_eq!((run.vms, run.copies, run.scales.as_deref()), (Some(2), Some(3), Some("times × 0.01")));
    let measured = &run.cells[0].measurements[0];
    assert_eq!(
        (measured.iops, measured.read_iops, measured.write_iops),
        (Some(1500.0), Some(1050.0), Some(450.0))
    );
    assert_eq!((measured.cpu_percent, measured.write_amplification), (Some(50.0), Some(3.0)));
    assert_eq!((measured.total.mean_us, measured.total.p99_999_us), (Some(130.0), None));
    assert_eq!((measured.littles_law_percent, measured.clients_at_cap_percent), (Some(-2.5), None));
    let [node] = &measured.nodes[..] else { panic!("one node served all") };
    assert_eq!((node.name.as_str(), node.iops), ("n1", 1500.0));
}

#[test]
fn every_measurement_is_a_line_of_the_table() {
    let place = TempDir::new().expect("there is room");
    let path = place.path().join("run");
    let mut folder = RunFolder::create(&path, record()).expect("there is nothing yet");
    keep_all(&mut folder, numbers());
    let text = fs::read_to_string(path.join(TABLE_FILE)).expect("it is there");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.len(), 5);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
    let value = |line: usize, name: &str| {
        let column = lines[0].iter().position(|column| *column == name).expect("there is such a column");
        lines[line][column]
    };
    assert_eq!((value(1, "Outstanding"), value(2, "Outstanding"), value(4, "Repeat")), ("1", "8", "2"));
    assert_eq!((value(1, "IOPS"), value(1, "AverageReadBW")), ("1500.00", "4300800.00"));
    assert_eq!((value(1, "ReadMilliseconds99"), value(1, "AverageWriteMilliseconds")), ("0.180", "0.200"));
    assert_eq!((value(1, "AverageCPU"), value(1, "AverageCSVIOPS")), ("50.00", ""));
    let scales =
        [folder.record().plan.time_scale, folder.record().plan.data_scale].map(|scale| scale.to_string());
    assert_eq!([value(1, "TimeScale"), value(4, "DataScale")], [scales[0].as_str(), scales[1].as_str()]);
}

#[test]
fn a_file_for_each_client_of_each_measurement_is_there() {
    let place = TempDir::new().expect("there is room");
    let mut folder = RunFolder::create(place.path(), record()).expect("there is nothing yet");
    keep_all(&mut folder, numbers());
    let entries = fs::read_dir(place.path().join(XML_FOLDER)).expect("it is there");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names.len(), 8);
    assert_eq!(names[0], "result-b4t1o1w30pr-c1r1-vm-1.xml");
}

#[test]
fn what_is_no_run_is_refused() {
    let place = TempDir::new().expect("there is room");
    let code = |path: &Path| RunFolder::open(path).expect_err("it is none").code;
    assert_eq!(code(&place.path().join("nothing")), "FLEET_RESULTS_NOT_FOUND");
    let mut folder = RunFolder::create(place.path(), record()).expect("there is nothing yet");
    assert_eq!(
        RunFolder::create(place.path(), record()).expect_err("one is there").code,
        "FLEET_RESULTS_EXIST"
    );
    keep_all(&mut folder, numbers().into_iter().take(1));
    let cells = place.path().join(CELLS_FOLDER);
    fs::write(cells.join("002-x.json"), "{").expect("there is room");
    assert_eq!(code(place.path()), "FLEET_RESULTS_BROKEN");
    fs::remove_file(cells.join("002-x.json")).expect("it is there");
    let text = fs::read_to_string(place.path().join(RECORD_FILE)).expect("it is there");
    fs::write(place.path().join(RECORD_FILE), text.replacen("\"format\":1", "\"format\":2", 1))
        .expect("room");
    assert_eq!(code(place.path()), "FLEET_RESULTS_NEWER");
}

#[test]
fn one_at_a_time_goes_on_with_a_run() {
    let place = TempDir::new().expect("there is room");
    let folder = RunFolder::create(place.path(), record()).expect("there is nothing yet");
    let held = folder.lock().expect("nobody else has it");
    let other = RunFolder::open(place.path()).expect("it is there");
    assert_eq!(other.lock().expect_err("somebody has it").code, "FLEET_RESULTS_IN_USE");
    drop(held);
    assert!(other.lock().is_ok());
}

#[test]
fn a_run_pauses_as_long_as_it_is_asked_to() {
    let place = TempDir::new().expect("there is room");
    let mut folder = RunFolder::create(place.path(), record()).expect("there is nothing yet");
    assert!(!folder.is_paused());
    folder.set_paused(true).expect("there is room");
    assert!(folder.is_paused());
    folder.set_paused(false).expect("it can be taken away");
    folder.set_paused(false).expect("it is away");
    assert!(!folder.is_paused());
}
