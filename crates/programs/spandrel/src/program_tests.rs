//! Tests of finding the program again.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::{Program, VERSION, find, version_in};

#[test]
fn a_name_is_looked_for_as_a_shell_does_and_a_path_is_taken_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("spandrel");
    std::fs::write(&file, "").unwrap();
    let search = std::env::join_paths([Path::new("/nowhere"), directory.path()]).unwrap();
    assert_eq!(find(Path::new("spandrel"), Some(&search)), Some(file));
    assert_eq!(find(Path::new("other"), Some(&search)), None);
    assert_eq!(find(Path::new("spandrel"), None), None);
    assert_eq!(find(Path::new(""), Some(&search)), None);
    assert_eq!(find(Path::new("/opt/spandrel"), Some(OsStr::new(""))), Some(PathBuf::from("/opt/spandrel")));
    let relative = find(Path::new("./spandrel"), None).unwrap();
    assert_eq!(relative, std::env::current_dir().unwrap().join("spandrel"));
}

#[test]
fn a_link_that_leads_to_another_version_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("spandrel");
    std::os::unix::fs::symlink(std::env::current_exe().unwrap(), &link).unwrap();
    let program = Program { path: link.clone(), arguments: Vec::new() };
    assert!(!program.is_replaced(), "it leads to what runs here");
    std::fs::remove_file(&link).unwrap();
    assert!(!program.is_replaced(), "nothing has taken its place yet");
    std::os::unix::fs::symlink("/bin/true", &link).unwrap();
    assert!(program.is_replaced());
}

#[test]
fn the_version_is_what_the_program_says() {
    assert_eq!(version_in(&format!("spandrel {VERSION}\n")).as_deref(), Some(VERSION));
    assert_eq!(version_in("spandrel \n"), None);
    assert_eq!(version_in("etcd Version: 3.4.23\n"), None);
}

#[tokio::test]
async fn what_cannot_be_run_is_said_before_anything_ends() {
    let version = |path: &str| {
        let program = Program { path: path.into(), arguments: Vec::new() };
        async move { program.version().await }
    };
    for (path, why) in [
        ("/nowhere/spandrel", "No such file"),
        ("/etc/passwd", "Permission denied"),
        ("/bin/false", "exit status: 1"),
        ("/bin/echo", "another program"),
    ] {
        let error = version(path).await.unwrap_err();
        assert_eq!(error.code, "PROGRAM_UNUSABLE");
        assert!(error.why.contains(path) && error.why.contains(why), "{error}");
    }
}
