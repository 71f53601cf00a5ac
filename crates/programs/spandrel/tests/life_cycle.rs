//! A cluster from its making to its end, as a person uses it.

#[path = "support/process.rs"]
mod process;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use process::{Cluster, Lab, SMALL};
use rustix::process::{Pid, Signal, kill_process};
use spandrel_fleet::NbdClient;
use spandrel_platform::{Address, Buffer, Platform};
use spandrel_platform_linux::{Cores, Runtime, RuntimeConfig};

const BLOCK: usize = 4096;

/// Writes a block of a volume through one node.
fn write(cluster: &Cluster<'_>, node: &str, volume: &'static str, block: u64, byte: u8) {
    let address = Address::Unix(cluster.nbd_socket(node));
    let mut runtime = Runtime::new(RuntimeConfig::default()).expect("a runtime");
    let platform = runtime.platform();
    runtime.block_on(async move {
        // One client writes at a time, and it takes a moment until the one before is known to be gone.
        let deadline = platform.now() + Duration::from_secs(60);
        let client = loop {
            let client = NbdClient::open(&platform, &address, volume).await.expect("it is served");
            if !client.export().read_only {
                break client;
            }
            assert!(platform.now() < deadline, "somebody else has the volume open for writing");
        };
        let mut data = platform.buffers().take(BLOCK);
        data.fill(byte);
        let data: Buffer = data.freeze();
        client.write(block * BLOCK as u64, data).await.expect("it is written");
    });
}

/// The first byte of a block of a volume, read through one node.
fn read(cluster: &Cluster<'_>, node: &str, volume: &'static str, block: u64) -> u8 {
    let address = Address::Unix(cluster.nbd_socket(node));
    let mut runtime = Runtime::new(RuntimeConfig::default()).expect("a runtime");
    let platform = runtime.platform();
    runtime.block_on(async move {
        let client = NbdClient::open(&platform, &address, volume).await.expect("it is served");
        client.read(block * BLOCK as u64, BLOCK as u32).await.expect("it is read")[0]
    })
}

#[test]
fn data_outlive_nodes_and_the_process() {
    let lab = Lab::new();
    let cluster = lab.up(&SMALL);
    assert!(cluster.banner.contains("a flush of this disk takes"), "{}", cluster.banner);
    cluster.run(&["volume", "create", "v1", "--size", "16M", "--owner", "n1"]).good();
    write(&cluster, "n1", "v1", 3, 7);
    write(&cluster, "n2", "v1", 4, 8);
    assert_eq!((read(&cluster, "n3", "v1", 3), read(&cluster, "n1", "v1", 4)), (7, 8));
    // The owner dies; another node goes on.
    cluster.run(&["node", "stop", "n1", "--abrupt"]).good();
    assert_eq!((read(&cluster, "n2", "v1", 3), read(&cluster, "n3", "v1", 4)), (7, 8));
    write(&cluster, "n2", "v1", 5, 9);
    let nodes = cluster.run(&["node", "list", "-o", "json"]).json();
    assert_eq!(nodes[0]["status"]["operational"][0], "Down");
    let volume = cluster.run(&["volume", "get", "v1", "-o", "json"]).json();
    assert_eq!(volume["status"]["health"], "Warning");
    assert_ne!(volume["owner"], "n1");
    cluster.run(&["node", "start", "n1"]).good();
    await_healthy(&cluster, "v1");
    let report = cluster.run(&["volume", "verify", "v1", "-o", "json"]).json();
    assert_eq!(report["blocks_different"], 0);
    assert_eq!(report["blocks_checked"], 3 * 4096);
    assert_eq!(cluster.stop(Signal::TERM).status, Some(0));
    // The same directory, without saying again what it consists of.
    let cluster = lab.up(&[]);
    assert!(!cluster.banner.contains("new cluster"), "{}", cluster.banner);
    let blocks = [3, 4, 5, 6].map(|block| read(&cluster, "n1", "v1", block));
    assert_eq!(blocks, [7, 8, 9, 0]);
    cluster.run(&["volume", "verify", "v1"]).good();
    cluster.run(&["volume", "delete", "v1", "--yes"]).good();
    cluster.run(&["volume", "get", "v1"]).refused("VOLUME_NOT_FOUND");
    assert_eq!(cluster.stop(Signal::INT).status, Some(0));
}

#[test]
fn nodes_stay_on_the_cores_that_they_are_given() {
    let all = Cores::available().expect("the kernel says it");
    let (all, first) = (all.to_string(), all.first(1).to_string());
    let lab = Lab::new();
    let cluster = lab.up(&[&SMALL[..], &["--cores", &first]].concat());
    cluster.run(&["volume", "create", "v1", "--size", "16M"]).good();
    cluster.run(&["node", "stop", "n1"]).good();
    cluster.run(&["node", "start", "n1"]).good();
    // Flushes of files are the kernel's own threads' work.
    write(&cluster, "n2", "v1", 3, 7);
    let threads = cluster.threads();
    for node in ["n1", "n2", "n3"] {
        assert!(threads.contains(&(node.to_owned(), first.clone())), "{threads:?}");
    }
    for (name, cores) in &threads {
        assert!(!name.starts_with("iou-wrk") || *cores == first, "{threads:?}");
    }
    let others = threads.iter().filter(|(name, _)| name.starts_with("spandrel"));
    assert!(others.clone().count() > 0 && others.clone().all(|(_, cores)| *cores == all), "{threads:?}");
}

/// Waits until a volume is healthy. The bound is far above what that ever takes.
fn await_healthy(cluster: &Cluster<'_>, volume: &str) {
    let begin = std::time::Instant::now();
    loop {
        let status = cluster.run(&["volume", "get", volume, "-o", "json"]).json();
        if status["status"]["health"] == "Healthy" {
            return;
        }
        assert!(begin.elapsed().as_secs() < 120, "it does not become healthy: {status:#}");
    }
}

#[test]
fn damage_is_found_and_healed() {
    let lab = Lab::new();
    let cluster = lab.up(&SMALL);
    cluster.run(&["volume", "create", "v1", "--size", "8M"]).good();
    for block in 0..8 {
        write(&cluster, "n1", "v1", block, 0xA5);
    }
    assert_eq!(cluster.stop(Signal::TERM).status, Some(0));
    // One of its blocks rots on one drive.
    let drive = lab.directory().join("n2/d1.drive");
    let mut content = std::fs::read(&drive).expect("it is there");
    let is_data = |start: &usize| content[*start..*start + BLOCK].iter().all(|byte| *byte == 0xA5);
    let start = (0..content.len()).step_by(BLOCK).find(is_data).expect("the data are on every node");
    content[start + 17] ^= 1;
    std::fs::write(&drive, &content).expect("it can be written");
    let inspected = lab.run(&["drive", "inspect", &drive.display().to_string()]);
    assert_eq!(inspected.status, Some(2), "the damage is seen offline: {inspected:?}");
    let cluster = lab.up(&[]);
    let verified = cluster.run(&["volume", "verify", "v1"]);
    assert_eq!(verified.status, Some(2), "{verified:?}");
    assert!(verified.output.contains("1 blocks damaged on n2/d1"), "{verified:?}");
    let scrubbed = cluster.run(&["scrub"]);
    assert_eq!(scrubbed.status, Some(0), "{scrubbed:?}");
    assert!(scrubbed.output.contains("whole"), "{scrubbed:?}");
    cluster.run(&["volume", "verify", "v1"]).good();
    assert!(cluster.run(&["scrub", "status"]).good().contains("v1"));
    assert_eq!(cluster.stop(Signal::TERM).status, Some(0));
}

#[test]
fn a_missing_drive_does_not_keep_the_others_from_serving() {
    let lab = Lab::new();
    let cluster = lab.up(&SMALL);
    cluster.run(&["volume", "create", "v1", "--size", "8M"]).good();
    write(&cluster, "n1", "v1", 0, 1);
    assert_eq!(cluster.stop(Signal::TERM).status, Some(0));
    std::fs::remove_file(lab.directory().join("n2/d1.drive")).expect("it is there");
    let cluster = lab.up(&[]);
    assert_eq!(read(&cluster, "n3", "v1", 0), 1);
    let status = cluster.run(&["status"]).good();
    assert!(status.contains("Lost Communication"), "{status}");
}

#[test]
fn a_small_sweep_measures_and_leaves_nothing() {
    let lab = Lab::new();
    let cluster = lab.up_in_memory();
    let sweep = [
        "fleet",
        "sweep",
        "--vms",
        "3",
        "--working-set",
        "4M",
        "--outstanding",
        "2",
        "--write-percent",
        "50",
    ];
    let times = ["--warmup", "50ms", "--duration", "300ms", "-o", "json"];
    let result = cluster.run(&[&sweep[..], &times[..]].concat()).json();
    let row = &result["rows"][0];
    assert_eq!(row["cell"]["errors"], 0, "{result:#}");
    assert!(row["cell"]["total"]["iops"].as_f64().is_some_and(|iops| iops > 0.0), "{result:#}");
    assert!(row["usage"]["busy_cores"].as_f64().is_some_and(|cores| cores > 0.0), "{result:#}");
    let amplification = row["usage"]["write_amplification"].as_f64().expect("writes were done");
    assert!((2.9..6.0).contains(&amplification), "three copies and a little more: {amplification}");
    assert_eq!(cluster.run(&["volume", "list", "-o", "json"]).json().as_array().map(Vec::len), Some(0));
}

#[test]
fn a_demonstration_that_is_interrupted_leaves_nothing() {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let mut process = Command::new(env!("CARGO_BIN_EXE_spandrel"))
        .args(["demo", "--memory"])
        .env("TMPDIR", temporary.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program can be started");
    let mut lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
    let has_begun = lines.by_ref().map_while(Result::ok).any(|line| line.starts_with("=== 2."));
    assert!(has_begun, "the cluster runs and the sweep begins");
    assert_eq!(std::fs::read_dir(temporary.path()).expect("it is there").count(), 1);
    std::thread::spawn(move || lines.for_each(drop));
    interrupt(&process);
    assert_eq!(process.wait().expect("it is a child").code(), Some(130));
    assert_eq!(std::fs::read_dir(temporary.path()).expect("it is there").count(), 0);
}

#[test]
fn a_sweep_that_is_interrupted_leaves_nothing() {
    let lab = Lab::new();
    let cluster = lab.up_in_memory();
    let sweep = ["fleet", "sweep", "--vms", "2", "--working-set", "4M", "--duration", "1h", "-o", "json"];
    let process = begin_load(&lab, &sweep);
    assert_eq!(cluster.run(&["volume", "list", "-o", "json"]).json().as_array().map(Vec::len), Some(2));
    let name = cluster.run(&["volume", "list", "-o", "json"]).json()[0]["name"].clone();
    let name = name.as_str().expect("it has a name").to_owned();
    cluster.run(&["volume", "delete", &name, "--yes"]).refused("VOLUME_IN_USE");
    interrupt(&process);
    let output = process.wait_with_output().expect("it is a child");
    // What was measured until its volumes were removed is nothing to tell.
    assert_eq!((output.status.code(), output.stdout.len()), (Some(130), 0));
    assert_eq!(cluster.run(&["volume", "list", "-o", "json"]).json().as_array().map(Vec::len), Some(0));
}

#[test]
fn a_run_that_is_interrupted_keeps_no_cell_whose_volumes_it_removed() {
    let lab = Lab::new();
    let cluster = lab.up_in_memory();
    let results = lab.directory().join("results");
    let path = results.to_str().expect("temporary folders have plain names");
    // Of some minutes.
    let run = ["fleet", "run", "micron-sata-4k", "--vms", "2", "--data-scale", "0.0005", "--results", path];
    let process = begin_load(&lab, &run);
    interrupt(&process);
    assert_eq!(process.wait_with_output().expect("it is a child").status.code(), Some(130));
    assert_eq!(cluster.run(&["volume", "list", "-o", "json"]).json().as_array().map(Vec::len), Some(0));
    let text = std::fs::read_to_string(results.join("run.json")).expect("it was made");
    let record: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert!(record["plan"].is_object() && record["stopped_by"].is_null(), "{text}");
    let cells = std::fs::read_dir(results.join("cells")).expect("it was made");
    assert_eq!(cells.count(), 0);
}

/// Has the program put a load on volumes that it makes, and returns once they are filled.
fn begin_load(lab: &Lab, arguments: &[&str]) -> Child {
    let mut process = Command::new(env!("CARGO_BIN_EXE_spandrel"))
        .args(arguments)
        .env("SPANDREL_DIR", lab.directory())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let mut lines = BufReader::new(process.stderr.take().expect("it is piped")).lines();
    let has_begun = lines.by_ref().map_while(Result::ok).any(|line| line == "volumes filled");
    assert!(has_begun, "the volumes are made and filled");
    std::thread::spawn(move || lines.for_each(drop));
    process
}

fn interrupt(process: &Child) {
    let pid = Pid::from_raw(process.id() as i32).expect("a process has a number");
    kill_process(pid, Signal::INT).expect("it runs");
}
