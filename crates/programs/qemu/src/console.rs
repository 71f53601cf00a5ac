//! The serial console of a virtual machine, as one stream: first what was written to it since its last start, then what is.

use std::fs::{File, TryLockError};
use std::io::{Cursor, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

use crate::folder::{CONSOLE_LOCK, CONSOLE_LOG, CONSOLE_SOCKET, VmFolder};

/// How much of what was written before is shown at most, in bytes.
const LOG_BYTES_MAX: usize = 64 << 10;

/// A console that is open. QEMU serves one at a time, and would have a second one wait without a word.
pub struct VmConsole {
    before: Cursor<Vec<u8>>,
    stream: UnixStream,
    _lock: File,
}

impl VmConsole {
    /// Opens the console of the virtual machine in `folder`.
    ///
    /// # Errors
    /// `AddrInUse` if it is open already; others if there is none.
    pub async fn open(folder: &VmFolder) -> std::io::Result<Self> {
        let lock = File::create(folder.join(CONSOLE_LOCK))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ErrorKind::AddrInUse.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let stream = folder.connect(CONSOLE_SOCKET).await?;
        // What comes in between is shown twice; the other way around it would not be shown.
        let log = std::fs::read(folder.join(CONSOLE_LOG)).unwrap_or_default();
        let begin = log.len().saturating_sub(LOG_BYTES_MAX);
        Ok(Self { before: Cursor::new(log[begin..].to_vec()), stream, _lock: lock })
    }
}

impl AsyncRead for VmConsole {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let read_before = self.before.position();
        if read_before < self.before.get_ref().len() as u64 {
            return Pin::new(&mut self.before).poll_read(context, buffer);
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for VmConsole {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
#[path = "console_tests.rs"]
mod tests;
