//! Addresses and errors of sockets, between the platform's words and the kernel's.

use std::net::SocketAddr;

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use spandrel_platform::{Address, LinkError};

/// The longest path that fits a unix socket's address, in bytes.
pub(crate) const UNIX_PATH_BYTES_MAX: usize = 107;

/// An address in the kernel's form.
pub(crate) enum KernelAddress {
    Tcp(SocketAddr),
    Unix(SocketAddrUnix),
}

impl KernelAddress {
    pub(crate) fn new(address: &Address) -> Result<Self, LinkError> {
        match address {
            Address::Tcp(address) => Ok(Self::Tcp(*address)),
            Address::Unix(path) => unix_address(path).map(Self::Unix),
        }
    }

    /// A new socket of this address's family, which never blocks.
    pub(crate) fn socket(&self) -> rustix::io::Result<OwnedFd> {
        let family = match self {
            Self::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Self::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            Self::Unix(_) => AddressFamily::UNIX,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::socket_with(family, SocketType::STREAM, flags, None)
    }

    pub(crate) fn connect(&self, socket: impl AsFd) -> rustix::io::Result<()> {
        match self {
            Self::Tcp(address) => rustix::net::connect(socket, address),
            Self::Unix(address) => rustix::net::connect(socket, address),
        }
    }

    pub(crate) fn bind(&self, socket: impl AsFd) -> rustix::io::Result<()> {
        match self {
            Self::Tcp(address) => rustix::net::bind(socket, address),
            Self::Unix(address) => rustix::net::bind(socket, address),
        }
    }
}

fn unix_address(path: &str) -> Result<SocketAddrUnix, LinkError> {
    if path.len() > UNIX_PATH_BYTES_MAX {
        return Err(LinkError::Other(format!(
            "the path {path} has {} bytes, but a unix socket's path at most {UNIX_PATH_BYTES_MAX}: \
             choose a shorter directory",
            path.len()
        )));
    }
    if path.is_empty() {
        return Err(LinkError::Other("a unix socket needs a path".to_string()));
    }
    SocketAddrUnix::new(path).map_err(|error| link_error(error, &format!("the socket path {path}")))
}

/// What `error` means to the code above; `subject` says what it happened to.
pub(crate) fn link_error(error: Errno, subject: &str) -> LinkError {
    let detail = format!("{subject}: {error}");
    match error {
        Errno::CONNREFUSED | Errno::NOENT => LinkError::Refused(detail),
        Errno::ADDRINUSE => LinkError::AddressInUse(detail),
        Errno::CONNRESET | Errno::CONNABORTED | Errno::PIPE | Errno::NOTCONN | Errno::SHUTDOWN => {
            LinkError::Closed(detail)
        }
        _ => LinkError::Other(detail),
    }
}
