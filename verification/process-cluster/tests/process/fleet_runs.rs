//! Runs of the fleet: what they leave behind, and that a volume's clients do no more than they may.

use std::fs;
use std::path::Path;

use serde_json::Value;
use spandrel_fleet::GuestDiskBus;
use spandrel_process_cluster::{Cluster, ClusterOptions, Program, await_that};
use spandrel_results::{RunFolder, import, read_run};

fn cluster() -> Cluster {
    cluster_of("1")
}

/// Three nodes with so many drives each.
fn cluster_of(drives: &str) -> Cluster {
    let arguments = ["--memory", "--nodes", "3", "--drives", drives, "--drive-size", "256M"];
    let options =
        ClusterOptions { arguments: arguments.map(str::to_owned).to_vec(), drive_prefix: String::new() };
    Cluster::start(Program::with_test_faults(), options)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

/// Two cells, each measured twice for a tenth of a second.
const SMALL: [&str; 16] = [
    "fleet",
    "run",
    "micron-sata-4k",
    "--vms",
    "3",
    "--write-percent",
    "30",
    "--outstanding",
    "1,4",
    "--repeat",
    "2",
    "--time-scale",
    "0.001",
    "--data-scale",
    "0.0005",
    "--results",
];

#[test]
fn a_run_leaves_the_same_numbers_in_every_form_and_no_volumes() {
    let (cluster, place) = (cluster(), tempfile::TempDir::new().expect("there is room"));
    let path = place.path().join("run");
    let output = cluster.must_run(&[&SMALL[..], &[text(&path)]].concat());
    assert!(output.output.contains("scaled: times × 0.001, data × 0.0005"), "{output:#?}");
    assert!(output.output.contains("the drives are in memory"), "{output:#?}");
    let volumes = cluster.must_run(&["volume", "list", "-o", "json"]).json();
    assert_eq!(volumes.as_array().map(Vec::len), Some(0), "all are removed");

    let folder = RunFolder::open(&path).expect("it is there");
    assert!(folder.is_complete() && folder.record().stopped_by.is_none());
    for cell in folder.cells() {
        let (result, layers) = (&cell.result, cell.layers.as_ref().expect("the cluster says it"));
        assert!(result.total.count > 0 && !result.has_failures(), "{result:#?}");
        assert_eq!((layers.nodes.len(), layers.drives.len()), (3, 3));
        let clients = result.clients.iter().map(|client| client.total.count).sum::<u64>();
        assert_eq!(clients, result.total.count);
        // What DISKSPD's readers find in the files of the clients is what they have measured.
        let depth = result.spec.outstanding;
        let repeat = cell.number.repeat + 1;
        let of_client = |client: &spandrel_fleet::ClientResult| {
            path.join("xml").join(format!(
                "result-b4t1o{depth}w30pr-c{}r{repeat}-{}.xml",
                cell.number.cell + 1,
                client.name
            ))
        };
        let files: Vec<_> = result.clients.iter().map(of_client).collect();
        let read = import("again", &files).expect("it is DISKSPD's form");
        let [found] = &read.cells[..] else { panic!("one load: {read:#?}") };
        let iops = found.measurements[0].iops.expect("it was measured");
        // The time stands there in hundredths of a second.
        let seconds = (result.measured_seconds * 100.0).round() / 100.0;
        assert!(
            (iops * seconds - result.total.count as f64).abs() < 1e-6,
            "{iops} for {seconds} s: {result:#?}"
        );
    }
    let report = fs::read_to_string(path.join("report.html")).expect("it is there");
    let measured = read_run(text(&path)).expect("it is there");
    for cell in &measured.cells {
        let iops: f64 = cell.measurements.iter().filter_map(|measured| measured.iops).sum();
        assert!(report.contains(&format!("data-value=\"{}\"", iops / 2.0)), "{cell:#?}");
    }
    let table = fs::read_to_string(path.join("result.tsv")).expect("it is there");
    assert_eq!(table.lines().count(), 5);

    let html = place.path().join("both.html");
    cluster.must_run(&["fleet", "report", "published:micron-sata", text(&path), "--html", text(&html)]);
    assert!(fs::read_to_string(&html).is_ok_and(|text| text.contains("micron-sata (published)")));
    let twice = cluster.run(&[&SMALL[..], &[text(&path)]].concat());
    assert!(twice.status != Some(0) && twice.errors.contains("FLEET_RESULTS_EXIST"), "{twice:#?}");
}

/// The load is in guests, and all that comes of it out here.
#[test]
fn a_run_in_virtual_machines_is_kept_and_reported_as_any() {
    let arguments =
        ["--memory", "--nodes", "3", "--drives", "1", "--drive-size", "256M", "--vm-memory", "1G"];
    let options =
        ClusterOptions { arguments: arguments.map(str::to_owned).to_vec(), drive_prefix: String::new() };
    let cluster = Cluster::start(Program::with_test_faults(), options);
    let runs_vms = || cluster.log().matches("looks after virtual machines").count() >= 3;
    await_that("nodes that run virtual machines", runs_vms);
    let place = tempfile::TempDir::new().expect("there is room");
    // Kept where cargo keeps what it builds, and not fetched each time.
    let beside = Path::new(env!("CARGO_BIN_EXE_spandrel-test-guest")).with_file_name("fleet-guest");
    for (bus, kept_as) in [("nbd", GuestDiskBus::Nbd), ("vhost-user", GuestDiskBus::VhostUser)] {
        let path = place.path().join(bus);
        let load = ["--vms", "2", "--write-percent", "30", "--outstanding", "1,4", "--repeat", "1"];
        let scales = ["--time-scale", "0.005", "--data-scale", "0.0005"];
        let guests = ["--guest", "qemu", "--disk-bus", bus, "--guest-files", text(&beside)];
        let run = ["fleet", "run", "micron-sata-4k", "--results", text(&path)];
        cluster.must_run(&[&run[..], &load, &scales, &guests].concat());
        let folder = RunFolder::open(&path).expect("it is there");
        assert!(folder.is_complete());
        assert_eq!(folder.record().guest.map(|guest| guest.disk_bus), Some(kept_as));
        assert_eq!(folder.cells().len(), 2);
        for cell in folder.cells() {
            let (result, layers) = (&cell.result, cell.layers.as_ref().expect("the cluster says it"));
            assert!(!result.has_failures() && result.clients.len() == 2, "{result:#?}");
            assert!(result.clients.iter().all(|client| client.read.count > 0 && client.write.count > 0));
            assert!(result.generator.cpu_seconds > 0.0, "{result:#?}");
            // What guests have counted, nodes have seen.
            let seen = layers.frontend.iops() / result.total.iops;
            assert!((0.5..2.0).contains(&seen), "{seen}: {result:#?}");
        }
        let report = fs::read_to_string(path.join("report.html")).expect("it is there");
        assert!(
            report.contains("virtual machines by QEMU") && report.contains(&format!("with disks by {bus}"))
        );
    }
    for left in ["vm", "volume"] {
        let list = cluster.must_run(&[left, "list", "-o", "json"]).json();
        assert_eq!(list.as_array().map(Vec::len), Some(0), "all are removed");
    }
}

/// Reads of clients beside their owners, which have a copy, need no other node; all reads of the others do.
#[test]
fn clients_that_are_not_aligned_stay_apart_from_their_volumes_owners() {
    let (cluster, place) = (cluster(), tempfile::TempDir::new().expect("there is room"));
    let others_share = |aligned: &str, time_scale: &str| {
        let path = place.path().join(aligned);
        let long =
            ["--write-percent", "0", "--outstanding", "2", "--repeat", "1", "--time-scale", time_scale];
        let short = ["fleet", "run", "micron-sata-4k", "--vms", "3", "--data-scale", "0.0005"];
        let own = ["--alignment", aligned, "--results", text(&path)];
        cluster.must_run(&[&short[..], &long, &own].concat());
        let folder = RunFolder::open(&path).expect("it is there");
        assert_eq!(folder.record().aligned_percent.to_string(), aligned);
        assert!(!folder.record().warnings.iter().any(|warning| warning.contains("owned by")));
        let layers = folder.cells()[0].layers.as_ref().expect("the cluster says it");
        layers.bus.read.iops / layers.frontend.read.iops
    };
    // The second is measured after longer than it takes a volume to follow its client.
    let (aligned, apart) = (others_share("100", "0.001"), others_share("0", "0.02"));
    assert!(aligned < 0.01 && (0.99..1.01).contains(&apart), "{aligned} and {apart}");
}

/// One load thread has all of them, each with its own volume and connection, and all are served.
#[test]
fn two_hundred_and_fifty_six_clients_are_one_cell() {
    // A volume takes a slab of each copy at least, and a drive has some sixty.
    let cluster = cluster_of("5");
    let load = ["--vms", "256", "--working-set", "64k", "--write-percent", "30", "--outstanding", "2"];
    let times = ["--warmup", "100ms", "--duration", "1s", "-o", "json"];
    let result = cluster.must_run(&[&["fleet", "sweep"][..], &load, &times].concat()).json();
    let cell = &result["rows"][0]["cell"];
    let clients = cell["clients"].as_array().expect("there are clients");
    assert_eq!((clients.len(), &cell["errors"], &cell["unanswered"]), (256, &0.into(), &0.into()));
    assert!(clients.iter().all(|client| client["total"]["count"].as_u64() > Some(0)), "{cell:#}");
    let answered = cell["answered"].as_u64().expect("it is counted");
    assert!(answered >= cell["total"]["count"].as_u64().expect("it is counted"), "{cell:#}");
}

#[test]
fn a_run_that_was_broken_off_goes_on_and_keeps_what_it_has() {
    let (cluster, place) = (cluster(), tempfile::TempDir::new().expect("there is room"));
    let path = place.path().join("run");
    cluster.must_run(&[&SMALL[..], &[text(&path)]].concat());
    // As if it had been broken off before its last cell.
    let kept = |path: &Path| -> Vec<Value> {
        let folder = RunFolder::open(path).expect("it is there");
        folder.cells().iter().map(|cell| serde_json::to_value(cell).expect("plain data")).collect()
    };
    let before = kept(&path);
    fs::remove_file(path.join("cells/002-b4t1o4w30pr-r2.json")).expect("it is there");
    let output =
        cluster.must_run(&["fleet", "report", text(&path), "--html", text(&place.path().join("r.html"))]);
    assert!(output.output.contains("report of 1 run"), "{output:#?}");
    let report = fs::read_to_string(place.path().join("r.html")).expect("it is there");
    assert!(report.contains("3 of 4 measurements were made"));
    // What a process leaves behind that is killed in the midst of it.
    let begun = RunFolder::open(&path).expect("it is there").record().begun_unix_ms;
    cluster.must_run(&["volume", "create", &format!("fleet-{begun}-002"), "--size", "1M"]);
    cluster.must_run(&["fleet", "pause", text(&path)]);
    cluster.must_run(&["fleet", "run", "--resume", text(&path)]);
    let volumes = cluster.must_run(&["volume", "list", "-o", "json"]).json();
    assert_eq!(volumes.as_array().map(Vec::len), Some(0), "what was left is gone as well");
    let refused = cluster.run(&["fleet", "pause", text(&path)]);
    assert!(refused.errors.contains("FLEET_RUN_COMPLETE"), "{refused:#?}");
    let after = kept(&path);
    assert_eq!((after.len(), &after[..3]), (4, &before[..3]));
    assert_ne!(after[3], before[3], "it was measured anew");
}

#[test]
fn clients_do_no_more_than_their_volume_may() {
    let cluster = cluster();
    cluster.must_run(&["volume", "create", "v", "--size", "16M"]);
    let limited = cluster.must_run(&["volume", "set", "v", "--iops-max", "200", "-o", "json"]).json();
    assert_eq!(
        (&limited["iops_limit"]["iops_max"], &limited["iops_limit"]["normalized_bytes"]),
        (&200.into(), &8192.into())
    );
    let target = format!("nbd+unix:///v?socket={}/n1/nbd.sock", cluster.directory().display());
    let target: spandrel_fleet::Target = target.parse().expect("it is a URI");
    let measure = |block_size_bytes| {
        let spec = spandrel_fleet::CellSpec {
            block_size_bytes,
            outstanding: 8,
            write_percent: 50,
            warmup: std::time::Duration::from_millis(200),
            duration: std::time::Duration::from_secs(2),
            ..spandrel_fleet::CellSpec::default()
        };
        let result = spandrel_fleet::run_cell(std::slice::from_ref(&target), &spec).expect("it serves");
        assert!(!result.has_failures(), "{result:#?}");
        result.total.count
    };
    // Two seconds, and what a late start may catch up.
    let small = measure(4096);
    assert!((1..=405).contains(&small), "{small}");
    let large = measure(32 << 10);
    assert!((1..=103).contains(&large), "each counts as four: {large}");
    cluster.must_run(&["volume", "set", "v", "--iops-max", "0"]);
    let free = measure(4096);
    assert!(free > 2 * small, "{free} without a limit, {small} with one");
    let refused = cluster.run(&["volume", "set", "v", "--normalized", "16k"]);
    assert!(refused.errors.contains("IOPS_LIMIT_INVALID"), "{refused:#?}");
}
