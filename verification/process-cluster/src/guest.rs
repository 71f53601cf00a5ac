//! The guest that tests boot: a real kernel, whose first process writes to its disk and says on the console how far it is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The kernel and the initial RAM disk of the guest.
#[derive(Clone, Debug)]
pub struct GuestFiles {
    /// The kernel.
    pub kernel: PathBuf,
    /// The initial RAM disk.
    pub initrd: PathBuf,
}

impl GuestFiles {
    /// Built once for each process that runs tests, with `program` as what runs in the guest.
    ///
    /// # Panics
    ///
    /// If they cannot be built.
    pub fn built(program: &Path) -> Self {
        static BUILT: OnceLock<GuestFiles> = OnceLock::new();
        BUILT.get_or_init(|| build(program)).clone()
    }

    /// The kernel's command line, with what the guest is to do.
    pub fn arguments(&self, task: &str) -> String {
        // Without the clock's rate a guest measures it, and hangs where cores are short.
        format!(
            "console=ttyS0 quiet panic=-1 reboot=t no_timer_check mitigations=off random.trust_cpu=on \
             cryptomgr.notests tsc_early_khz={} guest={task}",
            clock_khz()
        )
    }
}

fn build(program: &Path) -> GuestFiles {
    let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/guest/build"));
    // Beside the program, which lies where cargo puts what it builds.
    let folder = program.parent().expect("a program lies in a folder").join("test-guest");
    let output = Command::new(script).arg(&folder).arg(program).output().expect("bash is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} fails (`cargo xtask packages`): {said}", script.display());
    GuestFiles { kernel: folder.join("vmlinux"), initrd: folder.join("initrd") }
}

/// How fast the processor's clock counts, in kHz.
fn clock_khz() -> u64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").expect("Linux says what processors it has");
    let mhz =
        text.lines().find_map(|line| line.strip_prefix("cpu MHz")?.split(':').nth(1)?.trim().parse().ok());
    let mhz: f64 = mhz.unwrap_or(2000.0);
    (mhz * 1000.0) as u64
}

/// The processes of virtual machines whose disks are served in a directory.
pub(crate) fn guests_in(directory: &Path) -> Vec<String> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let directory = format!("{}/", directory.display());
    let is_guest = |name: &String| {
        let line = std::fs::read(format!("/proc/{name}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        name.parse::<u32>().is_ok() && line.contains("qemu-system") && line.contains(&directory)
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
