//! What carries the bytes of a connection: a socket of the kernel, or memory where the other side is a thread of this process.

use std::cell::RefCell;
use std::io::IoSlice;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown};

use crate::memory_stream::MemoryStream;

/// The carrier of one connection. Sockets do not block.
pub(crate) enum Transport {
    /// The kernel reports room only after it had none, so it is watched for from the start.
    Tcp(OwnedFd),
    /// The kernel reports room after every message that the peer takes, so it is watched for only
    /// while it is needed.
    Unix(OwnedFd),
    /// Nothing is reported: it is asked, and wakes who has asked. None once another thread has it.
    Memory(RefCell<Option<MemoryStream>>),
}

impl Transport {
    pub(crate) fn memory(stream: MemoryStream) -> Self {
        Self::Memory(RefCell::new(Some(stream)))
    }

    /// The socket, if it is one.
    pub(crate) fn socket(&self) -> Option<&OwnedFd> {
        match self {
            Self::Tcp(socket) | Self::Unix(socket) => Some(socket),
            Self::Memory(_) => None,
        }
    }

    pub(crate) fn receive(&self, into: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Tcp(socket) | Self::Unix(socket) => rustix::io::read(socket, into),
            Self::Memory(stream) => stream.borrow().as_ref().map_or(Ok(0), |stream| stream.receive(into)),
        }
    }

    pub(crate) fn send(&self, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
        match self {
            Self::Tcp(socket) | Self::Unix(socket) => {
                let mut control = SendAncillaryBuffer::default();
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                rustix::net::sendmsg(socket, slices, &mut control, flags)
            }
            Self::Memory(stream) => {
                stream.borrow().as_ref().map_or(Err(Errno::PIPE), |stream| stream.send(slices))
            }
        }
    }

    /// Ends both directions, for the other side, too.
    pub(crate) fn shut_down(&self) {
        match self {
            Self::Tcp(socket) | Self::Unix(socket) => {
                let _ = rustix::net::shutdown(socket, Shutdown::Both);
            }
            Self::Memory(stream) => stream.borrow().iter().for_each(MemoryStream::close),
        }
    }

    /// The same carrier, for another thread. This one is not to be used any more, but goes on holding a descriptor of a socket.
    pub(crate) fn hand_over(&self) -> Option<Self> {
        let duplicate = |socket| rustix::io::fcntl_dupfd_cloexec(socket, 0).ok();
        match self {
            Self::Tcp(socket) => duplicate(socket).map(Self::Tcp),
            Self::Unix(socket) => duplicate(socket).map(Self::Unix),
            Self::Memory(stream) => stream.take().map(Self::memory),
        }
    }
}
