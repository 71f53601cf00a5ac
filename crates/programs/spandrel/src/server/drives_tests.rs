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

#[test]
fn a_drive_that_a_stopping_node_has_begun_with_is_said_to_come_at_its_next_start() {
    for code in WHILE_STOPPING {
        let error = explained(Error::new(code, "what", "why", "next"), Path::new("/a/d1.drive"));
        assert!(error.next.contains("when it starts again"), "{code}: {}", error.next);
    }
}
