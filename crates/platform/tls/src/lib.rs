//! Mutual TLS around another platform's connections.
//!
//! A [`TlsPlatform`] is the platform below it in everything but TCP: what is connected to, and what arrives at an
//! address that is said to be secured, is encrypted, and both sides have proven who they are with certificates of
//! one authority. So neither the bus nor anything above it knows of encryption, and what is tested without it is
//! what runs with it. TLS itself is rustls's; here it is brought to connections that queue and wait as
//! the interface says.
//!
//! Invariants:
//! - Nothing is listened on without encryption but unix sockets and, where there is no TLS at all, loopback addresses.
//! - What a connection gives to its receiver was sent by somebody with a certificate of the authority, or by a thread of this
//!   process where the platform below connects these without leaving it; nothing is sent to anybody else.
//! - TLS 1.3 only. What is not understood ends the connection; there is nothing to fall back to.

mod connection;
mod platform;
mod session;
mod settings;

#[cfg(test)]
mod testing;

pub use connection::TlsConnection;
pub use platform::{TlsListener, TlsPlatform};
pub use settings::{TlsSettings, holder_of};
