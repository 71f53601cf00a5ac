use super::*;

#[test]
fn each_missing_package_is_named_once() {
    assert_eq!(missing_packages(|_| true), [] as [&str; 0]);
    assert_eq!(
        missing_packages(|_| false),
        [
            "busybox-static",
            "chromium",
            "etcd-server",
            "fio",
            "iproute2",
            "lz4",
            "mtools",
            "e2fsprogs",
            "libnbd-bin",
            "qemu-utils",
            "qemu-system-x86",
            "syslinux"
        ]
    );
    assert_eq!(
        missing_packages(|program| program != "nbdinfo" && program != "qemu-io"),
        ["libnbd-bin", "qemu-utils"]
    );
}

#[test]
fn only_what_is_missing_is_installed() {
    assert_eq!(install_arguments(&["fio"]), ["install", "--yes", "--no-install-recommends", "fio"]);
}
