use super::*;

#[test]
fn a_file_is_no_disk_wherever_it_lies() {
    for file in ["/srv/d1.drive", "/dev/shm/d1.drive"] {
        assert!(is_file(file), "{file}");
    }
    for device in ["/dev/sdb", "/dev/disk/by-id/nvme-1", "memory-n1-d1"] {
        assert!(!is_file(device), "{device}");
    }
}
