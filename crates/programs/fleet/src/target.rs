//! What a client puts its load on: an export of an NBD server, a drive, or the disk of a guest that does it there.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use spandrel_platform::Address;

/// The port of NBD.
const NBD_PORT: u16 = 10809;

/// What a client puts its load on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPlace {
    /// An export of an NBD server.
    Export {
        /// Where the server listens.
        address: Address,
        /// Its name there.
        export: String,
    },
    /// A drive of this machine, by its path: what other processes have cached of it is not seen.
    Drive(String),
    /// The disk of a guest, whose [`GuestAgent`](crate::GuestAgent) is reached at this socket.
    Guest(String),
}

/// A client and what it puts its load on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The client's name, for results and messages.
    pub name: String,
    /// What it uses.
    pub place: TargetPlace,
    /// The node that serves it to the client, as far as somebody has said.
    pub node: Option<String>,
}

impl Target {
    /// An export, named as its client.
    pub fn new(name: impl Into<String>, address: Address, export: impl Into<String>) -> Self {
        Self::at(name, TargetPlace::Export { address, export: export.into() })
    }

    /// A client of what is there.
    pub fn at(name: impl Into<String>, place: TargetPlace) -> Self {
        Self { name: name.into(), place, node: None }
    }
}

/// An export as the URI that other clients take too.
impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            TargetPlace::Export { address: Address::Tcp(address), export } => {
                write!(formatter, "nbd://{address}/{}", Escaped(export))
            }
            TargetPlace::Export { address: Address::Unix(path), export } => {
                write!(formatter, "nbd+unix:///{}?socket={}", Escaped(export), Escaped(path))
            }
            TargetPlace::Drive(path) => write!(formatter, "the drive {path}"),
            TargetPlace::Guest(path) => write!(formatter, "the disk of the guest behind {path}"),
        }
    }
}

/// Parses `nbd://host:port/export` or `nbd+unix:///export?socket=path`. The client is named as the
/// export.
impl FromStr for Target {
    type Err = String;

    fn from_str(uri: &str) -> Result<Self, String> {
        let refuse = |why: &str| {
            format!(
                "{uri:?} is no NBD URI ({why}): write nbd://host:port/export or nbd+unix:///export?socket=path"
            )
        };
        let (address, export) = if let Some(rest) = uri.strip_prefix("nbd+unix:///") {
            let (export, path) = rest.split_once("?socket=").ok_or_else(|| refuse("it names no socket"))?;
            (Address::Unix(unescape(path).ok_or_else(|| refuse("a bad escape"))?), export)
        } else if let Some(rest) = uri.strip_prefix("nbd://") {
            let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
            (Address::Tcp(resolve(host).map_err(|why| refuse(&why))?), export)
        } else {
            return Err(refuse("it begins with neither nbd:// nor nbd+unix:///"));
        };
        let export = unescape(export).ok_or_else(|| refuse("a bad escape"))?;
        let name = if export.is_empty() { address.to_string() } else { export.clone() };
        Ok(Self::new(name, address, export))
    }
}

fn resolve(host: &str) -> Result<SocketAddr, String> {
    // Colons within brackets belong to an IPv6 address.
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let host = if has_port { host.to_owned() } else { format!("{host}:{NBD_PORT}") };
    let mut addresses = host.to_socket_addrs().map_err(|error| error.to_string())?;
    addresses.next().ok_or_else(|| "the host has no address".to_owned())
}

/// A text as part of a URI.
struct Escaped<'text>(&'text str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
                write!(formatter, "{}", char::from(byte))?;
            } else {
                write!(formatter, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        // Two digits of four bits each.
        bytes.push((high << 4 | low) as u8);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
