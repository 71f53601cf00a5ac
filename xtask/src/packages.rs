//! `cargo xtask packages`: the programs from outside that the tests run, as Debian packages.
//!
//! The tests put independent clients on our NBD server: what our own client and server agree on
//! proves little. They boot virtual machines, look at reports in a browser, keep a cluster's state in a real etcd, and put networks that can be cut between
//! its servers. Root gets what is missing installed; anybody else is told the one line to run.

use std::os::unix::fs::MetadataExt as _;

use crate::commands::{command, find_program, path_folders, run as run_command, succeeds_silently};

/// Each program that tests run, and the package that holds it in Debian 12.
const PROGRAMS: [(&str, &str); 15] = [
    ("busybox", "busybox-static"),
    ("chromium", "chromium"),
    ("etcd", "etcd-server"),
    ("fio", "fio"),
    ("ip", "iproute2"),
    ("lz4", "lz4"),
    ("mcopy", "mtools"),
    ("mkfs.ext4", "e2fsprogs"),
    ("nbdcopy", "libnbd-bin"),
    ("nbdinfo", "libnbd-bin"),
    ("qemu-img", "qemu-utils"),
    ("qemu-io", "qemu-utils"),
    ("qemu-nbd", "qemu-utils"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("syslinux", "syslinux"),
];

/// Installs what is missing, or says what to do. Returns whether all is there in the end.
///
/// # Errors
/// When a program that must be there to install others cannot be started.
pub fn run() -> Result<bool, String> {
    let missing = missing_packages(is_on_path);
    if !missing.is_empty() {
        let line = install_arguments(&missing).join(" ");
        if !is_root()? {
            println!("missing: {}. The tests run their programs. Run this:", missing.join(", "));
            println!("sudo apt-get {line}");
            return Ok(false);
        }
        if !is_on_path("apt-get") {
            println!(
                "missing: {}, and there is no apt-get here. Install them your system's way",
                missing.join(", ")
            );
            return Ok(false);
        }
        if !apt_get(&install_arguments(&missing))? {
            println!("the package lists may be old: updating them once");
            if !apt_get(&["update"])? || !apt_get(&install_arguments(&missing))? {
                return Ok(false);
            }
        }
        let still = missing_packages(is_on_path);
        if !still.is_empty() {
            println!("{} installed, but without the programs that the tests run", still.join(", "));
            return Ok(false);
        }
    }
    if !succeeds_silently(command("fio").arg("--enghelp=nbd")) {
        println!(
            "this fio was built without its nbd engine, which the tests need; install Debian's package fio"
        );
        return Ok(false);
    }
    println!("packages: all programs that the tests run are there");
    Ok(true)
}

/// The packages of the programs that are not `present`, each once.
fn missing_packages(present: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let mut packages: Vec<_> =
        PROGRAMS.iter().filter(|(program, _)| !present(program)).map(|(_, package)| *package).collect();
    packages.dedup();
    packages
}

fn install_arguments<'p>(packages: &[&'p str]) -> Vec<&'p str> {
    ["install", "--yes", "--no-install-recommends"].into_iter().chain(packages.iter().copied()).collect()
}

fn apt_get(arguments: &[&str]) -> Result<bool, String> {
    run_command(command("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
}

fn is_on_path(program: &str) -> bool {
    find_program(program, path_folders()).is_some()
}

fn is_root() -> Result<bool, String> {
    let process =
        std::fs::metadata("/proc/self").map_err(|error| format!("/proc/self cannot be read: {error}"))?;
    Ok(process.uid() == 0)
}

#[cfg(test)]
#[path = "packages_tests.rs"]
mod tests;
