use std::os::unix::net::UnixListener;

use clap::Parser;

use super::*;
use crate::arguments::{Arguments, Command};

fn arguments(options: &str) -> UpArguments {
    let size = if options.contains("--drive-size") { "" } else { "--drive-size 8M" };
    let line = format!("spandrel up {size} {options}");
    match Arguments::try_parse_from(line.split_whitespace()).expect("it is well-formed").command {
        Command::Up(arguments) => arguments,
        other => panic!("{other:?} is not up"),
    }
}

fn take(path: &Path, options: &str) -> Result<Claim, Error> {
    claim(Directory::choose(Some(path)).expect("it is a good path"), &arguments(options))
}

/// Everything below a directory, with the sizes of files.
fn content(path: &Path) -> Vec<(std::path::PathBuf, u64)> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let metadata = entry.metadata().expect("it is there");
        entries.push((entry.path(), metadata.len()));
        entries.extend(content(&entry.path()));
    }
    entries.sort();
    entries
}

#[test]
fn a_new_cluster_is_made_and_taken_again() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let path = parent.path().join("a/b");
    let first = take(&path, "--nodes 2").expect("it can be made");
    assert!(first.is_new && first.settings.complete);
    let drive = first.directory.drive_file("n2", "d2");
    assert_eq!(fs::metadata(&drive).expect("it was made").len(), 8 << 20);
    let settings = first.settings.clone();
    drop(first);
    fs::write(&drive, "data").expect("it can be written");
    let second = take(&path, "").expect("it can be taken again");
    assert!(!second.is_new);
    assert_eq!(second.settings, settings);
    assert_eq!(fs::read(&drive).expect("it is there"), b"data", "what is there is kept");
}

#[test]
fn one_process_at_a_time() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let _first = take(parent.path(), "--nodes 1").expect("it can be made");
    let before = content(parent.path());
    let error = take(parent.path(), "").expect_err("it is taken");
    assert_eq!(error.code, "DIR_IN_USE");
    assert!(error.why.contains(&std::process::id().to_string()), "{}", error.why);
    assert_eq!(content(parent.path()), before);
}

#[test]
fn what_is_refused_changes_nothing() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    fs::write(parent.path().join("letter"), "to grandmother").expect("it can be written");
    let before = content(parent.path());
    assert_eq!(take(parent.path(), "").expect_err("it is foreign").code, "DIR_FOREIGN");
    let below_a_file = parent.path().join("letter/below");
    assert_eq!(take(&below_a_file, "").expect_err("it is no directory").code, "DIR_NOT_WRITABLE");
    let new = parent.path().join("new");
    let refused = |options: &str| take(&new, options).expect_err(options).code;
    assert_eq!(refused("--nodes 16 --drives 24 --drive-size 1000T"), "DISK_FULL");
    assert_eq!(refused("--nodes 99"), "OPTION_INVALID");
    assert_eq!(refused("--listen 0.0.0.0"), "LISTEN_NOT_LOOPBACK");
    let taken = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let port = taken.local_addr().expect("it listens").port();
    assert_eq!(refused(&format!("--nodes 1 --nbd-port {port}")), "ADDRESS_IN_USE");
    assert_eq!(refused("--nodes 2 --nbd-port 65535"), "ADDRESS_IN_USE");
    assert_eq!(content(parent.path()), before);
}

#[test]
fn a_full_file_system_is_noticed_though_it_did_not_say_so() {
    // No file system has room for a file that is as large as a number can say.
    let parent = tempfile::tempdir().expect("a temporary directory");
    let directory = Directory::choose(Some(parent.path())).expect("it is a good path");
    let mut settings = Settings::from_arguments(&arguments("--nodes 1"), random).expect("it is good");
    settings.drive_size_bytes = i64::MAX as u64 / 4096 * 4096;
    let error = create(&directory, &mut settings, true).expect_err("no file is so large");
    assert_eq!(error.code, "DISK_FULL", "{error}");
    assert_eq!(content(parent.path()), []);
}

#[test]
fn what_was_not_finished_or_in_memory_is_made_anew() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let first = take(parent.path(), "--memory --nodes 1").expect("it can be made");
    let cluster = first.settings.cluster;
    drop(first);
    let second = take(parent.path(), "--memory --nodes 3").expect("nothing of the first is left");
    assert!(second.is_new);
    assert_ne!(second.settings.cluster, cluster);
    let mut half = second.settings.clone();
    drop(second);
    (half.complete, half.memory) = (false, false);
    half.write(parent.path()).expect("it can be written");
    let third = take(parent.path(), "--nodes 3").expect("it is made anew");
    assert!(third.is_new && third.settings.complete);
}

#[test]
fn a_socket_that_somebody_listens_on_is_left_alone() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    drop(take(parent.path(), "--nodes 1").expect("it can be made"));
    let listener = UnixListener::bind(parent.path().join("n1/nbd.sock")).expect("the path is free");
    assert_eq!(take(parent.path(), "").expect_err("it is in use").code, "ADDRESS_IN_USE");
    drop(listener);
    assert!(take(parent.path(), "").is_ok(), "a stale socket is no obstacle");
}
