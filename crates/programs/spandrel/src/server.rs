//! A node, or a witness, as a server of its own: a process that shares nothing with the others but the network.
//!
//! Reading order: [`settings`] (what the server is, kept in its directory), [`found`] (making a cluster), [`join`]
//! (asking to belong to one) and [`admission`] (answering that), [`run`] (the daemon), [`own_server`] (what it can be
//! asked), [`state_member`] (its part in
//! keeping the cluster's state, and [`state_plan`], who has one), [`peers`] (the other nodes), [`listener`]
//! (the admin API over TLS), [`removal`] (leaving for good), [`backups`]
//! and [`recover`] (when the state is lost; [`generation`] says which one counts then, [`silence`] whether nobody goes by
//! the former one).
//!
//! A server listens at four ports, from the one that it was given on: other nodes, the admin API, etcd's clients,
//! etcd's members. A node of several shards listens at one more port for each further one, behind these.

pub mod admission;
pub mod backups;
pub mod drives;
pub mod found;
pub mod generation;
pub mod join;
pub mod listener;
pub mod own_server;
pub mod peers;
pub mod pending;
pub mod recover;
pub mod removal;
pub mod run;
pub mod settings;
pub mod silence;
pub mod state_member;
pub mod state_plan;
pub mod strangers;

use std::net::SocketAddr;

/// The port of the bus if none is said; the others follow it.
pub const PORT_DEFAULT: u16 = 7440;

/// What a server does at one of its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Speaks with other nodes.
    Bus,
    /// Answers the admin API.
    Admin,
    /// Answers etcd's clients.
    StateClients,
    /// Speaks with etcd's other members.
    StateMembers,
}

impl Port {
    /// How many ports a server needs.
    pub const COUNT: u16 = 4;

    /// Where a further shard of a node speaks with others, whose first port is in `listen`: behind all other ports. None if
    /// there is no such port. Shards count from 0, and the first one is no further one.
    pub fn of_shard(listen: SocketAddr, number: u8) -> Option<SocketAddr> {
        let port = listen.port().checked_add(Self::COUNT - 1 + u16::from(number))?;
        Some(SocketAddr::new(listen.ip(), port))
    }

    /// Where a server does that, whose first port is in `listen`.
    pub fn at(self, listen: SocketAddr) -> SocketAddr {
        let behind = match self {
            Self::Bus => 0,
            Self::Admin => 1,
            Self::StateClients => 2,
            Self::StateMembers => 3,
        };
        SocketAddr::new(listen.ip(), listen.port() + behind)
    }
}
