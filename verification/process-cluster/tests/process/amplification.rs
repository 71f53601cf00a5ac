//! What the drives write for each byte that clients write: what the cluster counts, held against what
//! the kernel counts.
//!
//! `SPANDREL_TEST_FULL=1` writes for so long that every journal turns at least three times.

use spandrel_process_cluster::{Cluster, ClusterOptions, Program, is_full};

/// Three copies, and at most 3.3 % for journals and maps.
const AMPLIFICATION_MAX: f64 = 3.10;

/// What the kernel counts besides the drives: the cluster's state and the log.
const OTHER_BYTES_MAX: u64 = 8 << 20;

fn counted(process: u64, what: &str) -> u64 {
    let counters = std::fs::read_to_string(format!("/proc/{process}/io")).expect("the cluster runs");
    let line = counters.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(": "));
    line.and_then(|number| number.parse().ok()).expect("the kernel counts I/O")
}

fn status(cluster: &Cluster) -> serde_json::Value {
    cluster.must_run(&["status", "-o", "json"]).json()
}

#[test]
fn random_writes_cost_little_more_than_their_copies() {
    let duration = if is_full() { "180s" } else { "5s" };
    let arguments = ["--nodes", "4", "--drives", "2", "--drive-size", "384M", "--sparse"];
    let options =
        ClusterOptions { arguments: arguments.map(str::to_owned).to_vec(), drive_prefix: String::new() };
    let cluster = Cluster::start(Program::with_test_faults(), options);
    let process = status(&cluster)["process"].as_u64().expect("a number");
    let written_before = status(&cluster)["usage"]["drive_written_bytes"].as_u64().expect("a number");
    let counted_before = counted(process, "wchar");
    cluster.must_run(&[
        "fleet",
        "sweep",
        "--vms",
        "16",
        "--threads",
        "1",
        "--block-size",
        "4k",
        "--outstanding",
        "8",
        "--write-percent",
        "100",
        "--working-set",
        "32M",
        "--warmup",
        "0s",
        "--duration",
        duration,
    ]);
    let loaded = status(&cluster);
    let laps = loaded["drives"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|drive| drive["journal_laps"].as_u64().expect("a number"));
    let laps_min = laps.min().expect("there are drives");
    assert!(!is_full() || laps_min >= 3, "the journals have turned only {laps_min} times");
    // A node that is stopped in order leaves clean maps. None may be, when it is the last one.
    for node in ["n1", "n2", "n3", "n4"] {
        cluster.must_run(&["node", "stop", node, "--force"]);
    }
    let usage = status(&cluster)["usage"].clone();
    let written = usage["drive_written_bytes"].as_u64().expect("a number") - written_before;
    let user = usage["user_written_bytes"].as_u64().expect("a number");
    let counted = counted(process, "wchar") - counted_before;
    let amplification = written as f64 / user as f64;
    println!(
        "turns of the journals: {laps_min}; clients {user} bytes, drives {written} ({amplification:.4}), kernel {counted}"
    );
    assert!(user > 16 * (32 << 20), "the fleet has written its volumes, and then at random: {user}");
    assert!(amplification > 3.0 && amplification <= AMPLIFICATION_MAX, "{amplification}");
    assert!(counted >= written, "the kernel has seen less than the cluster counts: {counted} of {written}");
    assert!(counted - written < OTHER_BYTES_MAX + written / 100, "not counted: {} bytes", counted - written);
}
