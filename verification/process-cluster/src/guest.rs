//! The guest that tests boot: a real kernel, whose first process writes to its disk and says on the console how far it is.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use spandrel_guest::GuestFiles;

/// The kernel and the RAM disk of a guest, built once for each process that runs tests, with `program` as what runs in it.
///
/// # Panics
///
/// If they cannot be built.
pub fn guest_with(program: &Path) -> GuestFiles {
    static BUILT: OnceLock<GuestFiles> = OnceLock::new();
    // Beside the program, which lies where cargo puts what it builds.
    let folder = program.parent().expect("a program lies in a folder").join("test-guest");
    let build = || GuestFiles::build(&folder, program).unwrap_or_else(|error| panic!("{error}"));
    BUILT.get_or_init(build).clone()
}

/// The processes of virtual machines whose disks are served in a directory.
pub(crate) fn guests_in(directory: &Path) -> Vec<String> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let is_guest = |name: &String| {
        let line = std::fs::read(format!("/proc/{name}/cmdline")).unwrap_or_default();
        let runs_in = std::fs::read_link(format!("/proc/{name}/cwd")).unwrap_or_default();
        name.parse::<u32>().is_ok()
            && String::from_utf8_lossy(&line).contains("qemu-system")
            && runs_in.starts_with(directory)
    };
    let names = processes.flatten().map(|process| process.file_name().to_string_lossy().into_owned());
    names.filter(is_guest).collect()
}

/// Ends these processes: they outlive the cluster.
pub(crate) fn end_guests(directory: &Path) {
    for process in guests_in(directory) {
        // It may have ended meanwhile.
        let _ = Command::new("kill").args(["-KILL", &process]).status();
    }
}
