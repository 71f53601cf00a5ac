//! Disks that share their guests' memory with the node, as the keeper of virtual machines sees them. Somebody else serves them.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use spandrel_vm::disk::DiskName;

/// A disk that is served until this is dropped. What was begun for its guest ends by itself then.
pub trait ServedDisk: Send + Sync {
    /// Waits until QEMU can connect. In words why the disk cannot be opened; that is tried again all the same.
    fn opened(&mut self) -> BoxFuture<'_, Result<(), String>>;
}

/// Begins to serve the disk of a run at a socket, to one QEMU. The system's error if there can be no such socket.
pub type ServeDisk = Arc<dyn Fn(DiskName, &Path) -> std::io::Result<Box<dyn ServedDisk>> + Send + Sync>;
