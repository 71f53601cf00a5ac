use super::*;

#[test]
fn a_program_is_found_again_from_any_directory() {
    let path = |text: &str| program_path(Path::new(text)).expect("it is a path");
    assert_eq!(path("etcd"), Path::new("etcd"), "it is looked for in PATH");
    assert_eq!(path("/opt/etcd/etcd"), Path::new("/opt/etcd/etcd"));
    for relative in ["./etcd", "bin/etcd", "../etcd"] {
        assert!(path(relative).is_absolute(), "{relative}");
    }
}
