use spandrel_platform::Platform;
use spandrel_platform_linux::{Runtime, RuntimeConfig, create_drive_file};

use super::*;
use crate::inspect::CachePaths;
use crate::inspect::{InspectOptions, inspect, inspect_with};

/// The real platform holds a drive as long as it has it open, and an inspection keeps the platform
/// out as long as it reads.
#[test]
fn a_drive_that_a_node_has_open_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    create_drive_file(&path, 32 << 20).unwrap();
    let name = path.to_str().unwrap().to_owned();
    let mut runtime = Runtime::new(RuntimeConfig::default()).unwrap();
    let platform = runtime.platform();
    let opened = runtime.block_on({
        let (platform, name) = (platform.clone(), name.clone());
        async move { platform.open_drive(&name).await.unwrap() }
    });
    let error = inspect(&path).unwrap_err();
    assert_eq!(error.code, "DRIVE_IN_USE");
    assert!(error.next.contains("--in-use"));
    let options = InspectOptions { allow_in_use: true, ..InspectOptions::default() };
    let error = inspect_with(&path, CachePaths::Among(&[]), options, &mut |_| {}).unwrap_err();
    assert_eq!(error.code, "DRIVE_NOT_SPANDREL", "it was read, and is empty");
    drop(opened);

    let file = DriveFile::open(&path, false).unwrap();
    let second = DriveFile::open(&path, false).unwrap();
    assert_eq!(second.size_bytes(), 32 << 20);
    let refused = runtime.block_on(async move { platform.open_drive(&name).await.is_err() });
    assert!(refused, "no node opens a drive that is being read");
    drop(file);
}

#[test]
fn what_cannot_be_read_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let missing = inspect(&folder.path().join("nothing")).unwrap_err();
    assert_eq!(missing.code, "DRIVE_UNREADABLE");
    assert!(missing.next.contains("lsblk"));
    let directory = inspect(folder.path()).unwrap_err();
    assert_eq!(directory.code, "DRIVE_UNREADABLE");
    assert!(directory.why.contains("neither"));
}
