use super::*;

#[tokio::test]
async fn translation_always_works_and_a_program_that_is_no_qemu_is_told_apart() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let program = Path::new("/usr/bin/qemu-system-x86_64");
    let firmware_path = folder.path().join("firmware");
    std::fs::write(&firmware_path, firmware()).expect("it can be written");
    assert!(
        runs(program, &firmware_path, Accelerator::Tcg).await,
        "translation needs nothing of the machine"
    );
    // A guest that does nothing does not count as one that has run.
    std::fs::write(&firmware_path, vec![0xf4; FIRMWARE_BYTES]).expect("it can be written");
    assert!(!runs(program, &firmware_path, Accelerator::Tcg).await);
    assert!(probe(program, folder.path()).await.is_some());
    assert_eq!(probe(Path::new("/bin/true"), folder.path()).await, None);
    assert_eq!(probe(Path::new("/no/such/program"), folder.path()).await, None);
}
