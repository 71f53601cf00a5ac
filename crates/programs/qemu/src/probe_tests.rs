use super::*;

#[tokio::test]
async fn translation_always_works_and_a_program_that_is_no_qemu_is_told_apart() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let program = Path::new("/usr/bin/qemu-system-x86_64");
    let firmware_path = folder.path().join("firmware");
    std::fs::write(&firmware_path, firmware()).expect("it can be written");
    assert!(
        runs(program, &firmware_path, Accelerator::Tcg, TCG_TIME_MAX).await,
        "translation needs nothing of the machine"
    );
    // A guest that does nothing does not count as one that has run.
    std::fs::write(&firmware_path, vec![0xf4; FIRMWARE_BYTES]).expect("it can be written");
    assert!(!runs(program, &firmware_path, Accelerator::Tcg, KVM_TIME_MAX).await);
    let emulator = probe(program, folder.path()).await.expect("it works");
    assert!(emulator.version >= QemuVersion(5, 0) && emulator.version < QemuVersion::UNKNOWN, "{emulator:?}");
    assert_eq!(probe(Path::new("/bin/true"), folder.path()).await, None);
    assert_eq!(probe(Path::new("/no/such/program"), folder.path()).await, None);
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
