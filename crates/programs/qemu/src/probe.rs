//! What QEMU there is, and whether hardware virtualization works with it, found out by a start.
//!
//! That `/dev/kvm` is there says little: where this machine is itself a virtual one, it may be there and run no ordinary
//! guest. So a guest is started whose firmware is all that it has: it goes the way that every kernel goes, from real mode to
//! protected mode to long mode with paging, and ends QEMU from there, with a status that nothing else has.
//!
//! Where virtualization only seems to work the guest may go round and round, and its QEMU with it. It is ended in time by
//! `timeout`, of coreutils or busybox, and not by this process, which may be killed meanwhile.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// What runs the processors of virtual machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor itself, by the kernel's KVM.
    Kvm,
    /// QEMU, by translating: it works everywhere, and takes ten times as long or more.
    Tcg,
}

impl Accelerator {
    /// What QEMU calls it, with what it needs.
    pub fn qemu_name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// The processor that guests see.
    pub fn processor(self) -> &'static str {
        match self {
            Self::Kvm => "host",
            Self::Tcg => "max",
        }
    }
}

/// QEMU, as it is on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emulator {
    /// What runs the processors of virtual machines.
    pub accelerator: Accelerator,
    /// What it is told differently from version to version.
    pub version: QemuVersion,
}

/// A version of QEMU: its first two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QemuVersion(pub u32, pub u32);

impl QemuVersion {
    /// Of one that does not say it in words that are known: probably it is newer than they are.
    const UNKNOWN: Self = Self(u32::MAX, 0);

    /// From what QEMU says when it is asked.
    fn of_words(words: &str) -> Option<Self> {
        let (_, version) = words.split_once("version ")?;
        let mut numbers = version.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
        Some(Self(numbers.next()?.ok()?, numbers.next()?.ok()?))
    }
}

/// How long the guest may take that the processor runs. It needs some milliseconds; QEMU's start, a part of a second. Where that does not
/// work it may hang, and each start of a node waits for it.
const KVM_SECONDS_MAX: u32 = 3;

/// The same of one that QEMU runs, on a machine that is busy: it works or ends.
const TCG_SECONDS_MAX: u32 = 30;

/// How long QEMU may take to say its version: on a machine that is busy, it is worth waiting for.
const VERSION_TIME_MAX: Duration = Duration::from_secs(30);

/// The size of the firmware, in bytes: the processor begins sixteen bytes before its end.
const FIRMWARE_BYTES: usize = 64 << 10;

/// Where the processor begins.
const RESET_AT: usize = FIRMWARE_BYTES - 16;

/// A jump to the firmware's beginning, as the processor sees it in real mode.
const RESET: [u8; 5] = [0xea, 0x00, 0x00, 0x00, 0xf0];

/// What the guest writes to the port that ends QEMU, and the status that this makes.
const SAID: u8 = 0x11;
const STATUS: i32 = (SAID as i32) << 1 | 1;

/// The guest, which `probe.s` beside this file is the source of: `as --64 probe.s -o probe.o` and
/// `ld -m elf_x86_64 -Ttext 0 --oformat binary -o probe.bin probe.o` make it.
const GUEST: &[u8] = &[
    0xfa, 0x2e, 0x66, 0x0f, 0x01, 0x16, 0xb0, 0x00, 0x0f, 0x20, 0xc0, 0x0c, 0x01, 0x0f, 0x22, 0xc0, 0x66,
    0xea, 0x18, 0x00, 0x0f, 0x00, 0x08, 0x00, 0x66, 0xb8, 0x10, 0x00, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0,
    0x31, 0xc0, 0xbf, 0x00, 0x10, 0x00, 0x00, 0xb9, 0x00, 0x10, 0x00, 0x00, 0xfc, 0xf3, 0xab, 0xc7, 0x05,
    0x00, 0x10, 0x00, 0x00, 0x03, 0x20, 0x00, 0x00, 0xc7, 0x05, 0x00, 0x20, 0x00, 0x00, 0x03, 0x30, 0x00,
    0x00, 0xc7, 0x05, 0x00, 0x30, 0x00, 0x00, 0x83, 0x00, 0x00, 0x00, 0xb8, 0x00, 0x10, 0x00, 0x00, 0x0f,
    0x22, 0xd8, 0x0f, 0x20, 0xe0, 0x83, 0xc8, 0x20, 0x0f, 0x22, 0xe0, 0xb9, 0x80, 0x00, 0x00, 0xc0, 0x0f,
    0x32, 0x0d, 0x00, 0x01, 0x00, 0x00, 0x0f, 0x30, 0x0f, 0x20, 0xc0, 0x0d, 0x00, 0x00, 0x00, 0x80, 0x0f,
    0x22, 0xc0, 0xea, 0x80, 0x00, 0x0f, 0x00, 0x18, 0x00, 0x66, 0xba, 0x01, 0x05, 0xb0, 0x11, 0xee, 0xf4,
    0xeb, 0xfd, 0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff,
    0xff, 0x00, 0x00, 0x00, 0x9a, 0xcf, 0x00, 0xff, 0xff, 0x00, 0x00, 0x00, 0x92, 0xcf, 0x00, 0xff, 0xff,
    0x00, 0x00, 0x00, 0x9a, 0xaf, 0x00, 0x1f, 0x00, 0x90, 0x00, 0x0f, 0x00,
];

/// This QEMU, which is `None` if it runs no guest. The firmware is written to `folder` for the while.
pub async fn probe(program: &Path, folder: &Path) -> Option<Emulator> {
    let firmware_path = folder.join("probe.bin");
    std::fs::write(&firmware_path, firmware()).ok()?;
    let mut works = None;
    for (accelerator, seconds_max) in
        [(Accelerator::Kvm, KVM_SECONDS_MAX), (Accelerator::Tcg, TCG_SECONDS_MAX)]
    {
        if runs(program, &firmware_path, accelerator, seconds_max).await {
            works = Some(accelerator);
            break;
        }
    }
    // It says nothing about anything.
    let _ = std::fs::remove_file(firmware_path);
    Some(Emulator { accelerator: works?, version: version(program).await })
}

/// What QEMU says that it is.
async fn version(program: &Path) -> QemuVersion {
    let said = tokio::process::Command::new(program).arg("-version").kill_on_drop(true).output();
    let said = tokio::time::timeout(VERSION_TIME_MAX, said).await;
    let version = match &said {
        Ok(Ok(said)) => QemuVersion::of_words(&String::from_utf8_lossy(&said.stdout)),
        Ok(Err(_)) | Err(_) => None,
    };
    version.unwrap_or_else(|| {
        tracing::warn!("{} does not say which version it is; it is taken for a new one", program.display());
        QemuVersion::UNKNOWN
    })
}

fn firmware() -> Vec<u8> {
    let mut firmware = vec![0; FIRMWARE_BYTES];
    firmware[..GUEST.len()].copy_from_slice(GUEST);
    firmware[RESET_AT..RESET_AT + RESET.len()].copy_from_slice(&RESET);
    firmware
}

/// Whether a guest gets to its end in this time.
async fn runs(program: &Path, firmware: &Path, accelerator: Accelerator, seconds_max: u32) -> bool {
    let machine = format!("q35,accel={}", accelerator.qemu_name());
    let child = tokio::process::Command::new("timeout")
        .args(["-s", "KILL", &seconds_max.to_string()])
        .arg(program)
        .args(["-no-user-config", "-nodefaults", "-display", "none", "-m", "16M", "-machine", &machine])
        .args(["-cpu", accelerator.processor(), "-device", "isa-debug-exit,iobase=0x501,iosize=1", "-bios"])
        .arg(firmware)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match child {
        Ok(mut child) => matches!(child.wait().await, Ok(status) if status.code() == Some(STATUS)),
        Err(error) => {
            tracing::warn!(
                "what QEMU can do is not known: `timeout`, of coreutils or busybox, is needed: {error}"
            );
            false
        }
    }
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
