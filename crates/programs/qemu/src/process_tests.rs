use std::process::{Command, Stdio};

use spandrel_shared::VmId;

use super::*;

fn disk() -> DiskName {
    DiskName { vm: VmId::from_random(3, 4), run: 5 }
}

#[tokio::test]
async fn a_process_is_known_by_its_command_line_and_its_end_is_seen() {
    // A shell that holds the word among its own, and waits until it is ended.
    let line = format!("driver=nbd,export={},x=y", disk());
    let mut child = Command::new("sh")
        .args(["-c", "read line", "qemu", &line])
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell can be started");
    let number = i32::try_from(child.id()).expect("numbers of processes are small");
    let process = Process::of_child(&child).expect("it can be watched");
    // What it is shows a moment after it was started.
    while Process::find(number, disk()).is_none() {
        assert!(!process.has_ended());
        tokio::task::yield_now().await;
    }
    assert!(Process::find(number, DiskName { run: 6, ..disk() }).is_none(), "another run");
    process.kill().expect("it can be ended");
    process.ended().await;
    assert!(process.has_ended());
    process.kill().expect("that is no error again");
    assert!(child.wait().is_err(), "it was asked for how it has ended");
    assert!(Process::find(number, disk()).is_none());
}
