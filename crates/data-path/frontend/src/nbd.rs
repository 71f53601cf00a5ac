//! The NBD server: fixed newstyle negotiation, structured replies, block status, any number of
//! connections to one volume.
//!
//! A connection first goes through the [`negotiation`], then through the [`transmission`] of
//! requests, which hands them to [`workers`] that do and answer them ([`requests`]). Where each
//! thread has a server, all connections to one volume meet at one of them ([`exchange`]). A client may
//! send anything: it gets the protocol's error, or its connection is closed, and nobody else
//! notices.

mod exchange;
mod holes;
mod negotiation;
mod options;
mod protocol;
mod receiver;
mod requests;
mod server;
mod stop;
mod transmission;

use std::time::Duration;

pub use exchange::Exchange;
pub use server::NbdServer;

/// The bounds of an NBD server. The defaults are right unless a test says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdConfig {
    /// Connections open at once, over all listeners and those that other servers passed on. More are closed as they arrive.
    pub connections_max: usize,
    /// How long a client may let the server wait before it has chosen a volume.
    pub negotiation_timeout: Duration,
    /// Options that a client may send before it has chosen a volume.
    pub negotiation_options_max: u32,
    /// The longest read or write that is announced, in bytes; a volume's own bound also holds.
    pub request_bytes_max: u32,
    /// Requests in flight per connection.
    pub requests_in_flight_max: usize,
    /// Bytes of reads and writes in flight per connection. One request may be longer.
    pub bytes_in_flight_max: u64,
    /// Bytes of replies that wait for a client, past which none of its requests are taken.
    pub send_queue_bytes_max: usize,
    /// The longest refused write whose data are skipped, in bytes. A longer one ends the connection.
    pub discard_bytes_max: u32,
    /// How long a client may take to receive its last answers before the connection is closed.
    pub linger: Duration,
    /// How long a server that stops waits for requests in flight.
    pub stop_grace: Duration,
}

impl Default for NbdConfig {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            negotiation_timeout: Duration::from_secs(30),
            negotiation_options_max: 4096,
            request_bytes_max: 32 << 20,
            requests_in_flight_max: 256,
            bytes_in_flight_max: 64 << 20,
            send_queue_bytes_max: 8 << 20,
            discard_bytes_max: 64 << 20,
            linger: Duration::from_secs(5),
            stop_grace: Duration::from_secs(10),
        }
    }
}
