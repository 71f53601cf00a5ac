//! A guest that is built from Debian's packages within seconds and boots within one or two: Debian's kernel for clouds, and an initial RAM
//! disk with busybox and one program, which is the guest's purpose. The fleet runs its load in such guests, and tests boot them.
//!
//! `build.sh` beside this file builds it, and `init.sh` is its first process.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use spandrel_platform_linux::time_stamp_khz;
use spandrel_shared::Error;

/// What builds the guest.
const BUILD: &str = include_str!("build.sh");

/// The guest's first process.
const INIT: &str = include_str!("init.sh");

/// How much of what the building says last is told, in bytes.
const SAID_BYTES_MAX: usize = 600;

/// The kernel and the initial RAM disk of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestFiles {
    /// The kernel, as QEMU boots it without a boot loader.
    pub kernel: PathBuf,
    /// The initial RAM disk.
    pub initrd: PathBuf,
}

impl GuestFiles {
    /// Builds them in `folder`, with `program` and the libraries that it needs. The kernel is fetched if it is not there.
    ///
    /// # Errors
    /// `GUEST_NOT_BUILT`, with what was said last.
    pub fn build(folder: &Path, program: &Path) -> Result<Self, Error> {
        let failed = |why: String| {
            Error::new(
                "GUEST_NOT_BUILT",
                format!("the guest's kernel and RAM disk cannot be built in {}", folder.display()),
                why,
                "it needs Debian, a network or the kernel's package in apt's cache, and `apt-get install busybox-static lz4 binutils`",
            )
        };
        let of_system = |error: std::io::Error| failed(error.to_string());
        std::fs::create_dir_all(folder).map_err(of_system)?;
        let lock = File::create(folder.join("lock")).map_err(of_system)?;
        // Another process may build there; what it has fetched is used here.
        lock.lock().map_err(of_system)?;
        let mut build = Command::new("bash");
        build.args(["-c", BUILD, "build.sh"]).arg(folder).arg(program).env("GUEST_INIT", INIT);
        let output = build.output().map_err(of_system)?;
        if !output.status.success() {
            let said = &output.stderr[output.stderr.len().saturating_sub(SAID_BYTES_MAX)..];
            let lines = String::from_utf8_lossy(said);
            let lines: Vec<&str> = lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            return Err(failed(lines.join("; ")));
        }
        Ok(Self { kernel: folder.join("vmlinux"), initrd: folder.join("initrd") })
    }
}

/// The kernel's command line of a guest that is to do `task`: the words that its program is called with, with colons between them.
pub fn arguments(task: &str) -> String {
    // Without the clock's rate a guest measures it, and hangs where cores are short.
    let clock = time_stamp_khz().map_or_else(String::new, |khz| format!(" tsc_early_khz={khz}"));
    format!(
        "console=ttyS0 quiet panic=-1 reboot=t no_timer_check mitigations=off random.trust_cpu=on \
         cryptomgr.notests{clock} guest={task}"
    )
}

#[cfg(test)]
#[path = "guest_tests.rs"]
mod tests;
