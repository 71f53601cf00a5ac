//! The file behind a drive, kept for one opening.
//!
//! The lock is taken back explicitly when the file is let go. Closing alone would leave it held for
//! as long as a child process that is just being started has a copy of the descriptor.

use std::fs::File;

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// A file that no other opening can lock.
pub(crate) struct LockedFile {
    file: File,
}

impl LockedFile {
    /// Locks `file`. Fails with `WOULDBLOCK` if another opening has locked it.
    pub(crate) fn lock(file: File) -> Result<Self, Errno> {
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { file })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl AsFd for LockedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Should this fail, closing the file does it.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}
