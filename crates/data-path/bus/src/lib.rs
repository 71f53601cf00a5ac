//! The bus: what nodes say to each other, over any platform's connections.
//!
//! A node dials every other node and asks; the other one answers. Requests to copies, requests of
//! front-ends to a volume's owner, and heartbeats all travel on the same connection. So there is a
//! *session* in each direction between two nodes, and each has a life of its own. Where nodes have several
//! addresses, a session has a connection to each, a *path*, and lives as long as one of them.
//!
//! Invariants:
//! - A request is served at most once, in the session in which it was sent.
//! - Before a newer session of a node is welcomed, every request of its older one that was being
//!   served has ended, and what was not begun is dropped.
//! - An answer arrives in the session of its request, or never. When a session ends, every call in
//!   it that is unanswered ends with [`BusError::SessionLost`].
//! - Nobody sees a payload that has not passed its checksums.
//! - What a peer sends can make this node close its connection, and nothing worse.

mod accepted_session;
mod acceptor;
mod bus;
mod call;
mod calls;
mod config;
mod dialled_session;
mod dialler;
mod error;
mod frame;
mod hello;
mod message;
mod order;
mod path;
mod payload;
mod places;
mod receiver;
mod service;
mod statistics;
#[cfg(test)]
mod test_support;

pub use bus::{Bus, SessionInfo};
pub use call::Call;
pub use config::{BusConfig, BusIdentity};
pub use error::BusError;
pub use message::{
    BusRequest, BusResponse, ClientError, ClientErrorKind, ClientRequest, ClientResponse, ExtentState,
    GivenUp, Heartbeat, HeartbeatAnswer, OwnedVolume,
};
pub use service::{BusService, Peer};
pub use statistics::{BusStatistics, RequestCounts, RequestKind};
