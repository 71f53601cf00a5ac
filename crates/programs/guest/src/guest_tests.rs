use super::*;

#[test]
fn a_guest_that_cannot_be_built_says_what_was_said() {
    let folder = tempfile::tempdir().expect("there is room");
    // A kernel that is there already, so that nothing is fetched.
    std::fs::create_dir_all(folder.path().join("kernel/tree/lib/modules")).expect("there is room");
    std::fs::write(folder.path().join("kernel/done"), "").expect("there is room");
    let error = GuestFiles::build(folder.path(), Path::new("/no/such/program")).expect_err("there is none");
    assert_eq!(error.code, "GUEST_NOT_BUILT");
    assert!(error.why.contains("/no/such/program"), "{error}");
}

#[test]
fn a_task_stands_on_the_kernels_command_line() {
    let line = arguments("fleet:agent");
    assert!(line.ends_with(" guest=fleet:agent"), "{line}");
    assert!(line.contains("console=ttyS0 ") && line.contains("tsc_early_khz="), "{line}");
}
