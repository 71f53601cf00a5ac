use std::pin::pin;

use futures_util::future::{Either, select};

use super::*;

#[tokio::test]
async fn translation_always_works_and_a_program_that_is_no_qemu_is_told_apart() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let program = Path::new("/usr/bin/qemu-system-x86_64");
    let firmware_path = folder.path().join("firmware");
    std::fs::write(&firmware_path, firmware()).expect("it can be written");
    assert!(
        runs(program, &firmware_path, Accelerator::Tcg, TCG_SECONDS_MAX).await,
        "translation needs nothing of the machine"
    );
    // A guest that does nothing does not count as one that has run.
    std::fs::write(&firmware_path, vec![0xf4; FIRMWARE_BYTES]).expect("it can be written");
    assert!(!runs(program, &firmware_path, Accelerator::Tcg, 1).await);
    let emulator = probe(program, folder.path()).await.expect("it works");
    assert!(emulator.version >= QemuVersion(5, 0) && emulator.version < QemuVersion::UNKNOWN, "{emulator:?}");
    assert_eq!(probe(Path::new("/bin/true"), folder.path()).await, None);
    assert_eq!(probe(Path::new("/no/such/program"), folder.path()).await, None);
}

/// As when the process that waits for it is killed: it does nothing any more.
#[tokio::test]
async fn a_guest_that_goes_round_and_round_ends_though_nobody_looks_after_it() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (program, told) = (folder.path().join("qemu"), folder.path().join("process"));
    let script = format!("#!/bin/sh\necho $$ > {0}.new; mv {0}.new {0}; exec sleep 1000\n", told.display());
    // Written by another process: what a child of this one has open for writing, for a moment, cannot be started.
    let written = std::process::Command::new("sh")
        .args(["-c", "printf %s \"$1\" > \"$0\" && chmod 700 \"$0\""])
        .args([program.as_os_str(), script.as_ref()])
        .status();
    assert!(written.is_ok_and(|status| status.success()));
    let mut running = pin!(runs(&program, &told, Accelerator::Tcg, 5));
    let process = async {
        loop {
            match std::fs::read_to_string(&told) {
                Ok(text) => break text.trim().to_owned(),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let process = match select(running.as_mut(), pin!(process)).await {
        Either::Left((result, _)) => panic!("it has ended, with {result}"),
        Either::Right((process, _)) => process,
    };
    // Whoever is to take notice of its end may not have done so. Should it go on, this test does.
    let goes_on = || {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
    };
    while goes_on() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!running.await);
}

#[test]
fn a_version_is_read_from_what_qemu_says() {
    let said = |words| QemuVersion::of_words(words);
    let debian = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright (c) 2003-2022 Fabrice Bellard\n";
    assert_eq!(said(debian), Some(QemuVersion(7, 2)));
    assert_eq!(said("QEMU emulator version 10.0.50"), Some(QemuVersion(10, 0)));
    assert_eq!(said("another emulator"), None);
    assert_eq!(said("version ten"), None);
    assert!(QemuVersion(10, 0) > QemuVersion(9, 2) && QemuVersion(9, 2) > QemuVersion(9, 1));
}
