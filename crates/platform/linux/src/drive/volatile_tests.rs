use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use spandrel_platform::{Drive, Platform};

use super::super::tests::{
    DRIVE_BYTES, check_content, check_exclusive_use, check_limits, check_many_parts, disk_folder,
    location_in, ring_path,
};
use super::*;
use crate::test_support::run;
use crate::{LinuxDrive, LinuxPlatform, MemoryDrive, RuntimeConfig};

const CHILD_LOCATION: &str = "SPANDREL_TEST_VOLATILE_LOCATION";

async fn write(platform: &LinuxPlatform, drive: &LinuxDrive, offset: u64, fill: u8) {
    let block = platform.buffers().copy_of(&[fill; 4096]).freeze();
    drive.write(offset, vec![block]).await.unwrap();
}

async fn fill_at(platform: &LinuxPlatform, drive: &LinuxDrive, offset: u64) -> u8 {
    let content = drive.read(offset, platform.buffers().take(4096)).await.unwrap();
    assert!(content.iter().all(|byte| *byte == content[0]));
    content[0]
}

#[test]
fn it_behaves_as_a_drive() {
    let folder = disk_folder();
    let location = format!("volatile:{}", location_in(&folder));
    let config = RuntimeConfig::default();
    check_content(&config, &location, ring_path());
    check_limits(&config, &location);
    check_many_parts(&config, &location);
    check_exclusive_use(&config, &location);
}

#[test]
fn unflushed_writes_are_read_and_lost_and_flushed_ones_stay() {
    let memory = MemoryDrive::new("volatile", DRIVE_BYTES as u64).unwrap();
    let location = format!("volatile:{}", memory.location());
    let again = location.clone();
    run(move |platform| async move {
        let drive = platform.open_drive(&location).await.unwrap();
        assert!(drive.geometry().volatile_cache, "although memory has none");
        write(&platform, &drive, 0, 1).await;
        drive.flush().await.unwrap();
        write(&platform, &drive, 0, 2).await;
        write(&platform, &drive, 8192, 3).await;
        assert_eq!((fill_at(&platform, &drive, 0).await, fill_at(&platform, &drive, 8192).await), (2, 3));
    });
    run(move |platform| async move {
        let drive = platform.open_drive(&again).await.unwrap();
        assert_eq!((fill_at(&platform, &drive, 0).await, fill_at(&platform, &drive, 8192).await), (1, 0));
    });
}

#[test]
fn writes_during_a_flush_stay_in_the_cache() {
    let memory = MemoryDrive::new("volatile", DRIVE_BYTES as u64).unwrap();
    let location = format!("volatile:{}", memory.location());
    run(move |platform| async move {
        let drive = platform.open_drive(&location).await.unwrap();
        write(&platform, &drive, 0, 1).await;
        let flushing = drive.clone();
        let flushes: Vec<_> = (0..3)
            .map(|_| {
                let drive = flushing.clone();
                platform.spawn(async move { drive.flush().await.unwrap() })
            })
            .collect();
        let mut fill = 2;
        while flushes.iter().any(|flush| !flush.is_finished()) {
            write(&platform, &drive, 0, fill).await;
            assert_eq!(fill_at(&platform, &drive, 0).await, fill);
            fill += 1;
        }
        assert_eq!(fill_at(&platform, &drive, 0).await, fill - 1);
        drive.flush().await.unwrap();
        assert_eq!(drive.volatile.as_ref().unwrap().sectors.content.borrow().len(), 0);
        let content = std::fs::read(memory.location()).unwrap();
        assert_eq!(content[0], fill - 1);
    });
}

#[test]
fn a_drive_that_skips_its_flushes_loses_what_came_behind_the_last_one() {
    let memory = MemoryDrive::new("volatile", DRIVE_BYTES as u64).unwrap();
    let location = format!("volatile,skip-flush=1:{}", memory.location());
    run(|platform| async move {
        let drive = platform.open_drive(&location).await.unwrap();
        write(&platform, &drive, 0, 8).await;
        drive.flush().await.unwrap();
        write(&platform, &drive, 4096, 9).await;
        drive.flush().await.unwrap();
        assert_eq!(fill_at(&platform, &drive, 4096).await, 9);
    });
    let kept = std::fs::read(memory.location()).unwrap();
    assert_eq!(kept[0], 8);
    assert!(kept[4096..].iter().all(|byte| *byte == 0));
}

#[test]
fn planted_faults_hit_their_bytes_only() {
    let memory = MemoryDrive::new("volatile", DRIVE_BYTES as u64).unwrap();
    let options = "fail-read=4096-8192,fail-write=8192-8704,no-room=1048576-2097152";
    let location = format!("volatile,{options}:{}", memory.location());
    run(move |platform| async move {
        let drive = platform.open_drive(&location).await.unwrap();
        let block = || vec![platform.buffers().take_zeroed(4096).freeze()];
        assert_eq!(
            drive.read(0, platform.buffers().take(8192)).await.unwrap_err().kind,
            DriveErrorKind::Medium
        );
        assert!(drive.read(8192, platform.buffers().take(4096)).await.is_ok());
        assert_eq!(drive.write(8192, block()).await.unwrap_err().kind, DriveErrorKind::Medium);
        assert!(drive.write(4096, block()).await.is_ok());
        assert_eq!(drive.write(1 << 20, block()).await.unwrap_err().kind, DriveErrorKind::NoRoom);
        assert!(drive.write((1 << 20) - 4096, block()).await.is_ok());
    });
}

#[test]
fn unknown_options_are_refused_and_other_locations_are_paths() {
    run(|platform| async move {
        let error = platform.open_drive("volatile,explode:/dev/shm/x").await.err().unwrap();
        assert!(error.detail.contains("unknown option explode"), "{error}");
        let error = platform.open_drive("volatilely:/dev/shm/x").await.err().unwrap();
        assert!(error.detail.contains("volatilely:/dev/shm/x: No such file"), "{error}");
    });
}

/// This test runs itself again as a child, which writes and waits to be killed.
#[test]
fn a_killed_process_loses_what_it_has_not_flushed() {
    if let Ok(location) = std::env::var(CHILD_LOCATION) {
        run(|platform| async move {
            let drive = platform.open_drive(&location).await.unwrap();
            write(&platform, &drive, 0, 1).await;
            drive.flush().await.unwrap();
            write(&platform, &drive, 0, 2).await;
            assert_eq!(fill_at(&platform, &drive, 0).await, 2);
            println!("\nwritten");
            std::future::pending::<()>().await;
        });
    }
    let folder = disk_folder();
    let path = location_in(&folder);
    let name = std::thread::current().name().expect("tests run in threads of their name").to_string();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .env(CHILD_LOCATION, format!("volatile:{path}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "written"), "the child has ended");
    child.kill().unwrap();
    child.wait().unwrap();
    run(move |platform| async move {
        let drive = platform.open_drive(&path).await.unwrap();
        assert_eq!(fill_at(&platform, &drive, 0).await, 1);
    });
}
