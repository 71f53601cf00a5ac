//! Bad input gives one clear error, an exit status that is not zero, and changes nothing.

#[path = "support/process.rs"]
mod process;

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use process::{Lab, SMALL, content};
use rustix::process::Signal;

#[test]
fn commands_that_make_no_sense() {
    let lab = Lab::new();
    for arguments in [
        &["nonsense"][..],
        &["volume", "create", "a"],
        &["volume", "create", "a", "--size", "large"],
        &["up", "--nodes", "many"],
        &["status", "-o", "yaml"],
    ] {
        let ran = lab.run(arguments);
        assert_eq!(ran.status, Some(64), "{ran:?}");
    }
    assert_eq!(lab.run(&["--help"]).status, Some(0));
    assert!(!lab.directory().exists());
}

#[test]
fn no_cluster_to_ask() {
    let lab = Lab::new();
    lab.run(&["status"]).refused("CLUSTER_NOT_RUNNING");
    lab.run(&["volume", "list"]).refused("CLUSTER_NOT_RUNNING");
    lab.run(&["fleet", "sweep"]).refused("CLUSTER_NOT_RUNNING");
    let long = format!("/tmp/{}", "x".repeat(100));
    lab.run(&["status", "--dir", &long]).refused("DIR_PATH_TOO_LONG");
    lab.run(&["up", "--dir", &long]).refused("DIR_PATH_TOO_LONG");
    lab.run(&["up", "--cores", "1023"]).refused("CORES_UNUSABLE");
    assert_eq!(lab.run(&["up", "--cores", "two"]).status, Some(64));
    assert!(!PathBuf::from(long).exists());
}

#[test]
fn volumes_and_nodes() {
    let lab = Lab::new();
    let cluster = lab.up_in_memory();
    cluster.run(&["volume", "create", "good", "--size", "8M"]).good();
    let before = cluster.run(&["volume", "list", "-o", "json"]).json();
    let create = |name: &str, more: &[&str]| {
        let mut arguments = vec!["volume", "create"];
        arguments.extend(more);
        arguments.extend(["--", name]);
        cluster.run(&arguments)
    };
    for name in ["-x", ".x", "", "a b", "a/b", "ä", &"x".repeat(64)] {
        create(name, &["--size", "8M"]).refused("NAME_INVALID");
    }
    create("good", &["--size", "8M"]).refused("VOLUME_EXISTS");
    create("x", &["--size", "0"]).refused("SIZE_ZERO");
    create("x", &["--size", "5000"]).refused("SIZE_UNALIGNED");
    create("x", &["--size", "1T"]).refused("POOL_FULL");
    create("x", &["--size", "8M", "--copies", "0"]).refused("COPIES_INVALID");
    create("x", &["--size", "8M", "--copies", "4"]).refused("COPIES_INVALID");
    create("x", &["--size", "8M", "--owner", "n9"]).refused("NODE_NOT_FOUND");
    for arguments in [
        &["volume", "get", "nothing"][..],
        &["volume", "delete", "nothing", "--yes"],
        &["volume", "verify", "nothing"],
        &["volume", "get", "../good"],
    ] {
        cluster.run(arguments).refused("VOLUME_NOT_FOUND");
    }
    cluster.run(&["node", "stop", "n9"]).refused("NODE_NOT_FOUND");
    cluster.run(&["node", "start", "n9"]).refused("NODE_NOT_FOUND");
    cluster.run(&["node", "start", "n1"]).refused("NODE_RUNNING");
    cluster.run(&["fleet", "sweep", "--outstanding", "0"]).refused("FLEET_LOAD_INVALID");
    let sweep = cluster.run(&["fleet", "sweep", "--working-set", "1T", "--vms", "2"]);
    assert!(sweep.errors.contains("--working-set"), "{sweep:?}");
    sweep.refused("POOL_FULL");
    let after = cluster.run(&["volume", "list", "-o", "json"]).json();
    assert_eq!(after, before, "nothing has changed");
    cluster.run(&["node", "stop", "n3"]).good();
    cluster.run(&["node", "stop", "n3"]).refused("NODE_NOT_RUNNING");
    // The list of those that live may lag behind by a few seconds; the copies cannot be made in either case.
    let refused = create("x", &["--size", "8M"]);
    assert_eq!(refused.status, Some(1), "{refused:?}");
    assert!(
        refused.errors.contains("[TOO_FEW_NODES]") || refused.errors.contains("[COPY_NOT_MADE]"),
        "{refused:?}"
    );
    assert_eq!(cluster.run(&["volume", "list", "-o", "json"]).json().as_array().map(Vec::len), Some(1));
    assert_eq!(cluster.stop(Signal::TERM).status, Some(0));
}

#[test]
fn more_copies_than_nodes() {
    let lab = Lab::new();
    let cluster = lab.up(&["--memory", "--nodes", "2", "--drives", "1", "--drive-size", "64M"]);
    cluster.run(&["volume", "create", "x", "--size", "8M", "--copies", "3"]).refused("TOO_FEW_NODES");
    assert_eq!(cluster.run(&["volume", "list", "-o", "json"]).json().as_array().map(Vec::len), Some(0));
}

#[test]
fn a_directory_that_cannot_be_used() {
    let lab = Lab::new();
    let parent = lab.directory().parent().expect("it is within one").to_owned();
    fs::write(parent.join("file"), "text").expect("it can be written");
    fs::create_dir(parent.join("other")).expect("it can be made");
    fs::write(parent.join("other/letter"), "text").expect("it can be written");
    let before = content(&parent);
    let up = |directory: &str, more: &[&str]| {
        let directory = parent.join(directory).display().to_string();
        let mut arguments = vec!["up", "--dir", &directory];
        arguments.extend(SMALL);
        arguments.extend(more);
        lab.run(&arguments)
    };
    up("file", &[]).refused("DIR_NOT_WRITABLE");
    up("file/below", &[]).refused("DIR_NOT_WRITABLE");
    up("/proc/spandrel", &[]).refused("DIR_NOT_WRITABLE");
    up("other", &[]).refused("DIR_FOREIGN");
    up("new", &["--listen", "0.0.0.0"]).refused("LISTEN_NOT_LOOPBACK");
    up("new", &["--slab-size", "5M"]).refused("OPTION_INVALID");
    let taken = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let port = taken.local_addr().expect("it listens").port().to_string();
    up("new", &["--nbd-port", &port]).refused("ADDRESS_IN_USE");
    let full = parent.join("new").display().to_string();
    lab.run(&["up", "--dir", &full, "--drive-size", "1000T"]).refused("DISK_FULL");
    assert_eq!(content(&parent), before, "nothing has changed");
}

#[test]
fn a_directory_that_is_in_use_or_newer_or_other() {
    let lab = Lab::new();
    let cluster = lab.up(&SMALL);
    lab.run(&["up"]).refused("DIR_IN_USE");
    let drive = lab.directory().join("n2/d1.drive").display().to_string();
    let inspected = lab.run(&["drive", "inspect", &drive]);
    assert_eq!(inspected.status, Some(1), "a node has it open: {inspected:?}");
    assert_eq!(cluster.stop(Signal::INT).status, Some(0));
    let before = content(&lab.directory());
    lab.run(&["up", "--nodes", "4"]).refused("OPTIONS_CONTRADICT");
    lab.run(&["up", "--drive-size", "128M"]).refused("OPTIONS_CONTRADICT");
    lab.run(&["up", "--memory"]).refused("OPTIONS_CONTRADICT");
    let listener = UnixListener::bind(lab.directory().join("n1/nbd.sock")).expect("it is free");
    lab.run(&["up"]).refused("ADDRESS_IN_USE");
    drop(listener);
    fs::remove_file(lab.directory().join("n1/nbd.sock")).expect("it is left over");
    let without_lock = |entries: Vec<(PathBuf, Vec<u8>)>| -> Vec<_> {
        entries.into_iter().filter(|(path, _)| !path.ends_with("lock")).collect()
    };
    assert_eq!(without_lock(content(&lab.directory())), without_lock(before), "nothing has changed");
    let format = lab.directory().join("format.json");
    let record = fs::read_to_string(&format).expect("it is there");
    fs::write(&format, record.replace("\"format\": 1", "\"format\": 2")).expect("it can be written");
    lab.run(&["up"]).refused("DIR_TOO_NEW");
}

#[test]
fn a_drive_that_carries_something_else() {
    let lab = Lab::new();
    assert_eq!(lab.up(&SMALL).stop(Signal::TERM).status, Some(0));
    let drive = lab.directory().join("n2/d1.drive");
    let length = fs::metadata(&drive).expect("it is there").len() as usize;
    let mut foreign = vec![0_u8; length];
    foreign[0x438] = 0x53;
    foreign[0x439] = 0xEF;
    fs::write(&drive, &foreign).expect("it can be written");
    lab.run(&["up"]).refused("DRIVE_IN_FOREIGN_USE");
    assert_eq!(fs::read(&drive).expect("it is there"), foreign, "it is left as it is");
}
