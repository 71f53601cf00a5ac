//! Byte streams between processes: TCP and unix sockets on Linux, virtual wires in a simulation.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::Buffer;

/// Where a process listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// A TCP address and port.
    Tcp(SocketAddr),
    /// The path of a unix socket.
    Unix(String),
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(formatter, "{address}"),
            Address::Unix(path) => write!(formatter, "{path}"),
        }
    }
}

/// Reads what [`Address`] prints: a path that begins with a slash is a unix socket's.
impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Address::Unix(text.to_owned()));
        }
        let refuse = |_| format!("{text:?} is no address: write host:port, or a path from the root on");
        text.parse().map(Address::Tcp).map_err(refuse)
    }
}

/// An ordered, reliable byte stream. Cheap to clone; all clones are the same connection, which
/// closes when the last one is dropped.
pub trait Connection: Clone + 'static {
    /// Receives at least one byte into the front of `into` and returns how many; zero means that
    /// the other side has closed. At most one task receives at a time.
    fn receive(&self, into: &mut [u8]) -> impl Future<Output = Result<usize, LinkError>>;

    /// Queues `head`, which is copied, and behind it `body`, which is held by reference. What all
    /// tasks queue in one turn leaves together at its end. Errors show at the next `receive`.
    fn send(&self, head: &[u8], body: &[Buffer]);

    /// Bytes that are queued and not yet with the operating system.
    fn queued_bytes(&self) -> usize;

    /// Completes when fewer than `limit` bytes are queued. This is how senders keep a slow
    /// receiver from filling the memory.
    fn send_room(&self, limit: usize) -> impl Future<Output = Result<(), LinkError>>;

    /// Sends what is queued, as far as the other side takes it without waiting, and closes both
    /// directions.
    fn close(&self);

    /// The other side's address, for messages.
    fn peer(&self) -> String;

    /// Who the other side has proven to be; empty if it has proven to belong here, but has no name. None where connections
    /// are not authenticated, and before this one is: that is before the first bytes are received.
    fn peer_name(&self) -> Option<String> {
        None
    }

    /// Whether the other side is a thread of this process, and nothing leaves the process on the way to it.
    fn is_within_process(&self) -> bool {
        false
    }
}

/// A place where connections arrive. Stops listening when dropped.
pub trait Listener: 'static {
    /// The connections that arrive here.
    type Connection: Connection;

    /// The next connection.
    fn accept(&self) -> impl Future<Output = Result<Self::Connection, LinkError>>;

    /// Where it listens; the port is the real one if port 0 was asked for.
    fn address(&self) -> Address;
}

/// Why a connection failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// Nobody listens there.
    Refused(String),
    /// The address is in use by another listener.
    AddressInUse(String),
    /// The connection is closed or broken.
    Closed(String),
    /// Anything else, in the machine's own words.
    Other(String),
}

impl fmt::Display for LinkError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkError::Refused(detail) => write!(formatter, "connection refused: {detail}"),
            LinkError::AddressInUse(detail) => write!(formatter, "address in use: {detail}"),
            LinkError::Closed(detail) => write!(formatter, "connection closed: {detail}"),
            LinkError::Other(detail) => write!(formatter, "{detail}"),
        }
    }
}

impl std::error::Error for LinkError {}
