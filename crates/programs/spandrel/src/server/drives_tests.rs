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
fn a_drive_that_is_too_small_is_told_how_large_it_must_be() {
    let slabs = SlabGeometry::new(256 << 20).expect("an allowed size");
    let check = |size_bytes, role| check_room("/a/d1", size_bytes, role, slabs);
    let least_bytes = drive_bytes_min(slabs);
    check(least_bytes, DriveRole::Capacity).expect("it has room for a slab");
    let small = check(256 << 20, DriveRole::Capacity).unwrap_err();
    assert_eq!(small.why, "it has 256 MiB, and that is too small for one slab of 256 MiB and its journal");
    assert_eq!(small.next, format!("choose one of at least {}", format_size(least_bytes)));
    check(64 << 20, DriveRole::Cache).expect("it has room for journals");
    let small = check(16 << 20, DriveRole::Cache).unwrap_err();
    assert_eq!((&*small.code, &*small.next), ("DRIVE_TOO_SMALL", "choose one of at least 64 MiB"));
}
