//! What repair costs: bytes that are copied for what was changed, how fast copies are built against a raw copy between
//! two drives, what clients keep meanwhile, and how evenly drives are filled afterwards.
//!
//! Bytes and evenness are judged. Rates are printed: machines differ, and what else they do.
//! `SPANDREL_TEST_FULL=1 cargo test -p spandrel-process-cluster --test process -- repair:: --nocapture` measures them with
//! volumes of 10 and 4 GiB on the disk of `/var/tmp`, which takes some 30 GiB there.

use std::process::{Command, Stdio};
use std::time::Instant;

use spandrel_process_cluster::{Cluster, ClusterOptions, Program, is_full};

const MIB: u64 = 1 << 20;

fn start(nodes: &str, copies_bytes: u64, slab_size: &str) -> Cluster {
    // Room for the copies, the maps and the journals.
    let drive_size = format!("{}M", copies_bytes / MIB * 5 / 4 + 256);
    let arguments =
        ["--nodes", nodes, "--drives", "1", "--slab-size", slab_size, "--drive-size", &drive_size];
    let arguments = arguments.map(str::to_owned).to_vec();
    match is_full() {
        true => {
            let options = ClusterOptions { arguments, drive_prefix: String::new() };
            Cluster::start_on_disk(Program::with_test_faults(), options)
        }
        false => {
            let arguments = [arguments, vec!["--sparse".to_owned()]].concat();
            Cluster::start(
                Program::with_test_faults(),
                ClusterOptions { arguments, drive_prefix: String::new() },
            )
        }
    }
}

/// Runs fio on the volume `v` and returns what it says of it.
fn fio(cluster: &Cluster, arguments: &[&str]) -> serde_json::Value {
    let socket = cluster.directory().join("n1").join("nbd.sock");
    let output = Command::new("fio")
        .current_dir(cluster.directory())
        .args(["--name=load", "--ioengine=nbd", "--output-format=json"])
        .arg(format!("--uri=nbd+unix:///v?socket={}", socket.display()))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("fio is installed: `cargo xtask packages`");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{said}\n{}\n{}",
        String::from_utf8_lossy(&output.stderr),
        cluster.log()
    );
    // The library that it uses says something of its own before.
    let json = said.find('{').map_or("", |start| &said[start..]);
    serde_json::from_str::<serde_json::Value>(json).expect("it says JSON")["jobs"][0].clone()
}

fn fill(cluster: &Cluster, volume_bytes: u64) {
    let size = format!("--size={volume_bytes}");
    fio(cluster, &["--rw=write", "--bs=1M", "--iodepth=8", "--refill_buffers", &size]);
}

fn create_volume(cluster: &Cluster, volume_bytes: u64, copies: &str) {
    let size = format!("{}M", volume_bytes / MIB);
    cluster.must_run(&["volume", "create", "v", "--size", &size, "--copies", copies, "--owner", "n1"]);
}

fn resynced_bytes(cluster: &Cluster) -> u64 {
    let volume = cluster.must_run(&["volume", "get", "v", "-o", "json"]).json();
    assert_eq!(volume["owner"], "n1", "its owner counts: {volume:#}");
    volume["resynced_bytes"].as_u64().expect("a number")
}

/// Changes so much of a volume while a copy is away, in pieces at random places, and returns how much is copied then.
fn bytes_copied_for(cluster: &Cluster, volume_bytes: u64, changed_bytes: u64, piece: &str) -> u64 {
    cluster.must_run(&["node", "stop", "n2"]);
    let (size, changed) = (format!("--size={volume_bytes}"), format!("--io_size={changed_bytes}"));
    let piece = format!("--bs={piece}");
    // fio writes no place twice.
    let written =
        fio(cluster, &["--rw=randwrite", "--iodepth=16", "--refill_buffers", &size, &changed, &piece]);
    assert_eq!(written["write"]["io_bytes"], changed_bytes);
    let before = resynced_bytes(cluster);
    cluster.must_run(&["node", "start", "n2"]);
    cluster.await_health();
    resynced_bytes(cluster) - before
}

#[test]
fn a_resync_copies_little_more_than_was_changed() {
    let (volume_bytes, changed_bytes) = if is_full() { (10 << 30, 100 * MIB) } else { (128 * MIB, 4 * MIB) };
    let cluster = start("2", volume_bytes, "16M");
    create_volume(&cluster, volume_bytes, "2");
    fill(&cluster, volume_bytes);
    for (piece, factor_max) in [("64k", 1.2), ("4k", 1.5)] {
        let begun = Instant::now();
        let copied = bytes_copied_for(&cluster, volume_bytes, changed_bytes, piece);
        let factor = copied as f64 / changed_bytes as f64;
        println!(
            "{} MiB changed of {} in pieces of {piece}: {factor:.3} times that was copied (in all {:.1} s)",
            changed_bytes / MIB,
            volume_bytes / MIB,
            begun.elapsed().as_secs_f64()
        );
        assert!((1.0..=factor_max).contains(&factor), "{factor}");
    }
    let verified = cluster.run(&["volume", "verify", "v"]);
    assert_eq!(verified.status, Some(0), "{verified:#?}");
}

/// The rate of a raw copy of so many bytes from one drive's disk to another's, in MiB/s.
fn raw_copy_rate(cluster: &Cluster, bytes: u64) -> f64 {
    let at = |name: &str| cluster.directory().join(name).display().to_string();
    let copy = |arguments: &[String]| {
        let begun = Instant::now();
        let copied = Command::new("dd").args(arguments).args(["bs=1M", "oflag=direct"]).output();
        let copied = copied.expect("dd is there");
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        (bytes / MIB) as f64 / begun.elapsed().as_secs_f64()
    };
    let count = format!("count={}", bytes / MIB);
    for name in ["raw-source", "raw-target"] {
        // Written before, as drives are.
        copy(&["if=/dev/urandom".to_owned(), format!("of={}", at(name)), count.clone()]);
    }
    let source = format!("if={}", at("raw-source"));
    let rate = copy(&[
        source,
        format!("of={}", at("raw-target")),
        "iflag=direct".to_owned(),
        "conv=notrunc".to_owned(),
    ]);
    for name in ["raw-source", "raw-target"] {
        std::fs::remove_file(at(name)).expect("it was made");
    }
    rate
}

/// Has the copies on one node's drive built on another's, and returns how long that took, in seconds.
fn move_copies(cluster: &Cluster, from: &str, meanwhile: impl FnOnce()) -> f64 {
    let drive = format!("{from}/d1");
    let begun = Instant::now();
    cluster.must_run(&["drive", "retire", &drive]);
    meanwhile();
    cluster.await_status("the drive is empty", |status| {
        let drives = status["drives"].as_array().expect("a list");
        drives.iter().any(|known| known["name"] == drive.as_str() && known["promised_bytes"] == 0)
    });
    let took = begun.elapsed().as_secs_f64();
    cluster.must_run(&["drive", "retire", &drive, "--undo"]);
    took
}

fn operations_per_second(cluster: &Cluster, volume_bytes: u64, seconds: u32) -> f64 {
    let (size, runtime) = (format!("--size={volume_bytes}"), format!("--runtime={seconds}"));
    let load = ["--rw=randrw", "--rwmixread=70", "--bs=4k", "--iodepth=16", "--time_based", &size, &runtime];
    let said = fio(cluster, &load);
    said["read"]["iops"].as_f64().expect("a number") + said["write"]["iops"].as_f64().expect("a number")
}

#[test]
fn how_fast_copies_are_built_and_what_clients_keep() {
    let (volume_bytes, seconds) = if is_full() { (4 << 30, 10) } else { (64 * MIB, 1) };
    let cluster = start("4", volume_bytes, if is_full() { "64M" } else { "16M" });
    cluster.must_run(&["pool", "set", "--balance", "off"]);
    cluster.must_run(&["node", "drain", "n4"]);
    create_volume(&cluster, volume_bytes, "3");
    cluster.must_run(&["node", "resume", "n4"]);
    fill(&cluster, volume_bytes);
    if is_full() {
        // What a file system has not written yet costs it more: the disk of n2, where copies are built below, has been
        // written all over then, like that of a drive that has served for a while.
        fill(&cluster, volume_bytes);
        move_copies(&cluster, "n2", || {});
    }

    // Before and after, as the disk of a virtual machine is faster at one time than at another.
    let raw = || if is_full() { raw_copy_rate(&cluster, volume_bytes) } else { f64::NAN };
    let before = raw();
    let took = move_copies(&cluster, if is_full() { "n4" } else { "n2" }, || {});
    let (rate, raw) = ((volume_bytes / MIB) as f64 / took, (before + raw()) / 2.0);
    println!(
        "copies built while nothing else goes on: {rate:.0} MiB/s; a raw copy: {raw:.0} MiB/s; {:.2}",
        rate / raw
    );

    let alone = operations_per_second(&cluster, volume_bytes, seconds);
    let mut beside = 0.0;
    let took =
        move_copies(&cluster, "n3", || beside = operations_per_second(&cluster, volume_bytes, seconds));
    println!(
        "clients: {alone:.0} operations a second, {beside:.0} while copies are built, {:.0} %; copies built in {took:.1} s",
        100.0 * beside / alone
    );
    assert!(
        !is_full() || took > f64::from(seconds),
        "copies were built all the time that clients were measured"
    );
    cluster.await_health();
    let verified = cluster.run(&["volume", "verify", "v"]);
    assert_eq!(verified.status, Some(0), "{verified:#?}");
}

/// A copy of each slab lies with its volume's owner, and stays there: so evenness is for volumes whose owners are spread.
#[test]
fn drives_are_filled_evenly_after_optimize() {
    let cluster = start("4", 400 * MIB, "4M");
    cluster.must_run(&["pool", "set", "--balance", "off"]);
    cluster.must_run(&["node", "drain", "n4"]);
    for (name, owner) in [("a", "n1"), ("b", "n2"), ("c", "n3")] {
        cluster.must_run(&["volume", "create", name, "--size", "132M", "--copies", "3", "--owner", owner]);
    }
    cluster.must_run(&["node", "resume", "n4"]);
    cluster.must_run(&["pool", "optimize"]);
    let status = cluster.must_run(&["status", "-o", "json"]).json();
    let drives = status["drives"].as_array().expect("a list").iter();
    let promised: Vec<u64> =
        drives.map(|drive| drive["promised_bytes"].as_u64().expect("a number")).collect();
    let (least, most) = (promised.iter().min().expect("drives"), promised.iter().max().expect("drives"));
    println!("drives hold {} to {} MiB", least / MIB, most / MIB);
    assert!((*most - *least) * 100 <= *most * 5, "{promised:?}");
}
