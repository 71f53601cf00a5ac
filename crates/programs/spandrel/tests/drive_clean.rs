//! `spandrel drive clean`, as somebody runs it who has a drive that carries something.

#[path = "support/process.rs"]
mod process;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use process::{Lab, SMALL};
use rustix::process::Signal;

const SIZE_BYTES: u64 = 64 << 20;

/// A file with something at its start, in its middle and at its end.
fn used_file(folder: &Path) -> PathBuf {
    let path = folder.join("used.img");
    let mut file = fs::File::create(&path).expect("there is room");
    file.set_len(SIZE_BYTES).expect("there is room");
    file.write_all(b"XFSB and more").expect("there is room");
    file.write_all_at(b"between", 32 << 20).expect("there is room");
    file.write_all_at(b"EFI PART", SIZE_BYTES - 512).expect("there is room");
    path
}

#[test]
fn nothing_is_wiped_unless_that_is_meant() {
    let lab = Lab::new();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = used_file(folder.path());
    let text = path.to_str().expect("a plain name");
    let before = fs::read(&path).expect("it is there");
    lab.run(&["drive", "clean", text]).refused("NOT_CONFIRMED");
    let would = lab.run(&["drive", "clean", text, "--dry-run"]).good();
    assert!(would.contains("64 MiB") && would.contains("an XFS file system"), "{would}");
    let holder = fs::File::open(&path).expect("it is there");
    rustix::fs::flock(&holder, rustix::fs::FlockOperation::NonBlockingLockShared).expect("nobody has it");
    lab.run(&["drive", "clean", text, "--yes"]).refused("DRIVE_IN_USE");
    drop(holder);
    assert_eq!(fs::read(&path).expect("it is there"), before);
    lab.run(&["drive", "clean", "/nowhere", "--yes"]).refused("DRIVE_NOT_OPENED");

    let cleaned = lab.run(&["drive", "clean", text, "--yes"]).good();
    assert!(cleaned.contains("is empty") && cleaned.contains("drive add"), "{cleaned}");
    let after = fs::read(&path).expect("it is there");
    assert_eq!(after.len() as u64, SIZE_BYTES);
    let margin = 16 << 20;
    assert!(after[..margin].iter().chain(&after[after.len() - margin..]).all(|byte| *byte == 0));
}

#[test]
fn the_drives_of_a_cluster_are_left_alone_while_it_is_there() {
    let lab = Lab::new();
    let cluster = lab.up(&SMALL);
    let drive = lab.directory().join("n1/d1.drive");
    let text = drive.to_str().expect("a plain name");
    cluster.run(&["drive", "clean", text, "--yes"]).refused("DRIVE_OF_NODE");
    // A copy of it is the node's, too, by what stands on it.
    let copy = lab.directory().with_extension("copy");
    fs::copy(&drive, &copy).expect("there is room");
    let copy = copy.to_str().expect("a plain name");
    let drives = cluster.run(&["drive", "list", "-o", "json"]).json();
    let id = drives[0]["id"].as_str().expect("a text").to_owned();
    cluster.run(&["drive", "clean", copy, "--dry-run"]).refused("DRIVE_IN_CLUSTER");
    // Somebody who knows of no node: the running one has it open.
    let elsewhere = Lab::new();
    elsewhere.run(&["drive", "clean", text, "--yes"]).refused("DRIVE_IN_USE");
    cluster.stop(Signal::TERM);
    lab.run(&["drive", "clean", text, "--yes"]).refused("DRIVE_OF_NODE");
    let link = elsewhere.directory().with_extension("link");
    std::os::unix::fs::symlink(&drive, &link).expect("there is room");
    lab.run(&["drive", "clean", link.to_str().expect("a plain name"), "--yes"]).refused("DRIVE_OF_NODE");
    // No other directory makes it less of a drive.
    elsewhere.run(&["drive", "clean", text, "--yes"]).refused("DRIVE_ID_NEEDED");

    let copy = elsewhere.directory().with_extension("copy");
    fs::copy(&drive, &copy).expect("there is room");
    let text = copy.to_str().expect("a plain name");
    let would = elsewhere.run(&["drive", "clean", text, "--dry-run"]).good();
    assert!(would.contains("of the Spandrel cluster"), "{would}");
    // Also without its first superblock it is known for what it was.
    fs::File::options()
        .write(true)
        .open(&copy)
        .and_then(|file| file.write_all_at(&[0; 4096], 0))
        .expect("it is there");
    let would = elsewhere.run(&["drive", "clean", text, "--dry-run"]).good();
    assert!(would.contains("of the Spandrel cluster"), "{would}");
    assert!(would.contains(&format!("it is the drive {id}")) && would.contains("is not known"), "{would}");
    elsewhere.run(&["drive", "clean", text, "--yes"]).refused("DRIVE_ID_NEEDED");
    elsewhere.run(&["drive", "clean", text, "--yes", "--drive-id", &id]).good();
    let bytes = fs::read(&copy).expect("it is there");
    assert!(!bytes.windows(12).any(|window| window == b"SpandrelDisk"));
}
