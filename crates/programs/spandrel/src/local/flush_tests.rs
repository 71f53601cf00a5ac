use super::*;

#[test]
fn it_is_measured_and_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let us = measure(directory.path()).expect("it can be measured");
    assert!(us > 0.0);
    assert_eq!(fs::read_dir(directory.path()).expect("it is there").count(), 0);
    assert!(measure(&directory.path().join("nothing")).is_err());
}
