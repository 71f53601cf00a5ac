use super::*;

#[test]
fn no_two_drives_of_a_node_have_one_name() {
    let drives = ["/a/d1.drive".to_owned(), "/dev/disk/by-id/nvme-x".to_owned()];
    let code = |path: &str| check_name("n1", &drives, path).err().map(|error| error.code);
    for same in ["/b/d1.drive", "/a/d1", "/dev/nvme-x"] {
        assert_eq!(code(same).as_deref(), Some("DRIVE_NAME_TAKEN"), "{same}");
    }
    for other in ["/a/d2.drive", "/a/d1.drive", "/dev/disk/by-id/nvme-x"] {
        assert_eq!(code(other), None, "{other}");
    }
}
