//! The folder of a virtual machine on a node.
//!
//! ```text
//! instance.json   which run of which virtual machine it is, and its process
//! qmp.sock        QMP
//! console.sock    the serial console
//! incoming.sock   where what a guest has in memory on another node comes in, while it moves here
//! outgoing.sock   where it goes out, while it moves away
//! load.sock       the port of a load generator in the guest
//! disk.sock       where the node serves the disk, if that shares the guest's memory
//! console.lock    locked by whoever uses the console
//! console.log     what the guest has written there since its last start
//! qemu.log        what QEMU has said since then
//! ```

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use spandrel_cluster::VmDiskBus;
use spandrel_shared::{Error, VmId};
use spandrel_vm::disk::DiskName;
use tokio::net::{UnixListener, UnixStream};

/// The socket for QMP.
pub const QMP_SOCKET: &str = "qmp.sock";
/// The socket of the serial console.
pub const CONSOLE_SOCKET: &str = "console.sock";
/// Where what a guest has in memory comes in.
pub const INCOMING_SOCKET: &str = "incoming.sock";
/// Where it goes out.
pub const OUTGOING_SOCKET: &str = "outgoing.sock";
/// Where the node serves the disk.
pub const DISK_SOCKET: &str = "disk.sock";
/// The port of a load generator in the guest.
pub const LOAD_SOCKET: &str = "load.sock";
/// What the guest has written to its console.
pub const CONSOLE_LOG: &str = "console.log";
/// Locked by whoever uses the console.
pub const CONSOLE_LOCK: &str = "console.lock";
/// What QEMU has said.
pub const QEMU_LOG: &str = "qemu.log";
/// Which run it is, and its process.
const INSTANCE: &str = "instance.json";
/// All sockets.
const SOCKETS: [&str; 6] =
    [QMP_SOCKET, CONSOLE_SOCKET, INCOMING_SOCKET, OUTGOING_SOCKET, DISK_SOCKET, LOAD_SOCKET];

/// How many digits of its identity name a virtual machine's folder.
const NAME_DIGITS: usize = 12;

/// How much of what QEMU has said last is told in an error, in bytes.
const SAID_BYTES_MAX: usize = 600;

/// Which run of which virtual machine a folder is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceFile {
    /// The virtual machine.
    pub vm: VmId,
    /// The run.
    pub run: u64,
    /// How its requests come to its disk.
    #[serde(default)]
    pub disk_bus: VmDiskBus,
    /// The number of its process.
    pub process: i32,
}

impl InstanceFile {
    /// The disk by whose name the process is known.
    pub fn disk(&self) -> DiskName {
        DiskName { vm: self.vm, run: self.run }
    }
}

/// The folder of a virtual machine.
#[derive(Clone, Debug)]
pub struct VmFolder(PathBuf);

impl VmFolder {
    /// The folder of a virtual machine among all of its node.
    pub fn of(all: &Path, vm: VmId) -> Self {
        let digits: String =
            vm.to_string().chars().filter(char::is_ascii_hexdigit).take(NAME_DIGITS).collect();
        Self(all.join(digits))
    }

    /// All that are there.
    pub fn list(all: &Path) -> std::io::Result<Vec<Self>> {
        match std::fs::read_dir(all) {
            Ok(entries) => entries.map(|entry| Ok(Self(entry?.path()))).collect(),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Something in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Connects to a socket in it. However long its path is: a socket's own path must be short.
    pub async fn connect(&self, socket: &str) -> std::io::Result<UnixStream> {
        let folder = File::open(&self.0)?;
        UnixStream::connect(format!("/proc/self/fd/{}/{socket}", folder.as_raw_fd())).await
    }

    /// Listens at a socket in it, which may have been there.
    pub fn listen(&self, socket: &str) -> std::io::Result<UnixListener> {
        let folder = File::open(&self.0)?;
        let path = format!("/proc/self/fd/{}/{socket}", folder.as_raw_fd());
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        UnixListener::bind(path)
    }

    /// Makes it as it is before a start: without what the last one has left.
    pub fn prepare(&self) -> Result<(), Error> {
        let cannot = |error: std::io::Error| {
            Error::new(
                "VM_FOLDER_UNUSABLE",
                format!("{} cannot be used for a virtual machine", self.0.display()),
                error.to_string(),
                "see that this user may write there, and that there is room",
            )
        };
        std::fs::create_dir_all(&self.0).map_err(cannot)?;
        for name in SOCKETS.into_iter().chain([CONSOLE_LOG, QEMU_LOG, INSTANCE]) {
            match std::fs::remove_file(self.join(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(cannot(error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes down whose process this is.
    pub fn write_instance(&self, instance: &InstanceFile) -> std::io::Result<()> {
        let text = serde_json::to_vec(instance).expect("it is plain text");
        // Whole or not at all: a former process of the node may end at any moment.
        let new = self.join("instance.new");
        std::fs::write(&new, text)?;
        std::fs::rename(new, self.join(INSTANCE))
    }

    /// Whose process this is. None if there is none, or nobody can tell.
    pub fn instance(&self) -> Option<InstanceFile> {
        serde_json::from_slice(&std::fs::read(self.join(INSTANCE)).ok()?).ok()
    }

    /// Says that there is no process any more. What was logged stays.
    pub fn forget_instance(&self) {
        for name in SOCKETS.into_iter().chain([INSTANCE]) {
            // What is not there any more is forgotten.
            let _ = std::fs::remove_file(self.join(name));
        }
    }

    /// What QEMU has said last, as one line; none if nothing.
    pub fn said_last(&self) -> Option<String> {
        let said = std::fs::read(self.join(QEMU_LOG)).ok()?;
        let last = &said[said.len().saturating_sub(SAID_BYTES_MAX)..];
        let text = String::from_utf8_lossy(last);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
