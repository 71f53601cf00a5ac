//! How two nodes come to a session: a hello, then a welcome or a refusal.
//!
//! Both sides say the range of protocol versions that they speak and take the highest common one,
//! and which features they have: compatible ones, which a peer may ignore, and incompatible ones,
//! which it must know. The body of a hello or welcome may grow at its end; what is not known there
//! is ignored.

use spandrel_shared::{ClusterId, NodeId, ProcessIncarnation, ShardId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::frame::{Malformed, malformed};
use crate::{BusConfig, BusIdentity};

/// The versions of the protocol that this program speaks.
pub(crate) const VERSION_MIN: u16 = 1;
/// See [`VERSION_MIN`].
pub(crate) const VERSION_MAX: u16 = 1;

/// Features that a peer may ignore. None yet.
const COMPATIBLE_FEATURES: u64 = 0;

/// Features that a peer must know. None yet.
const INCOMPATIBLE_FEATURES: u64 = 0;

/// The longest text of a refusal that is shown.
const REASON_BYTES_MAX: usize = 1024;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct HelloBytes {
    version_min: U16,
    version_max: U16,
    shards: u8,
    /// Zero.
    reserved: u8,
    shard: u8,
    addressee_shard: u8,
    compatible_features: U64,
    incompatible_features: U64,
    cluster: [u8; 16],
    node: [u8; 16],
    incarnation: [u8; 16],
    addressee: [u8; 16],
    request_bytes_max: U64,
    requests_max: U32,
    path: U32,
    repeats: U32,
    generation: U32,
}

/// What a side says of itself when it opens a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) version_min: u16,
    pub(crate) version_max: u16,
    pub(crate) compatible_features: u64,
    pub(crate) incompatible_features: u64,
    pub(crate) cluster: ClusterId,
    pub(crate) shard: ShardId,
    /// How many shards its node has.
    pub(crate) shards: u8,
    pub(crate) incarnation: ProcessIncarnation,
    /// The shard for which it is meant.
    pub(crate) addressee: ShardId,
    /// What the side serves at the same time: see [`BusConfig`].
    pub(crate) request_bytes_max: u64,
    pub(crate) requests_max: u32,
    /// Of the dialling side: the connection's number in its session. Zero opens the session, others join it.
    pub(crate) path: u32,
    /// Of the dialling side: whether what it asks may come again on another path.
    pub(crate) repeats: bool,
    /// The generation of the cluster's state by which the side goes.
    pub(crate) generation: u32,
}

impl Hello {
    pub(crate) fn new(identity: &BusIdentity, config: &BusConfig, addressee: ShardId) -> Self {
        Self {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            compatible_features: COMPATIBLE_FEATURES,
            incompatible_features: INCOMPATIBLE_FEATURES,
            cluster: identity.cluster,
            shard: identity.shard,
            shards: identity.shards,
            incarnation: identity.incarnation,
            addressee,
            request_bytes_max: config.request_bytes_max,
            requests_max: config.requests_max,
            path: 0,
            repeats: false,
            generation: identity.generation,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = HelloBytes::new_zeroed();
        bytes.version_min = self.version_min.into();
        bytes.version_max = self.version_max.into();
        bytes.shards = self.shards;
        bytes.shard = self.shard.number;
        bytes.addressee_shard = self.addressee.number;
        bytes.compatible_features = self.compatible_features.into();
        bytes.incompatible_features = self.incompatible_features.into();
        bytes.cluster = self.cluster.to_bytes();
        bytes.node = self.shard.node.to_bytes();
        bytes.incarnation = self.incarnation.to_bytes();
        bytes.addressee = self.addressee.node.to_bytes();
        bytes.request_bytes_max = self.request_bytes_max.into();
        bytes.requests_max = self.requests_max.into();
        bytes.path = self.path.into();
        bytes.repeats = u32::from(self.repeats).into();
        bytes.generation = self.generation.into();
        bytes.as_bytes().to_vec()
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let Ok((bytes, _later)) = HelloBytes::ref_from_prefix(body) else {
            return Err(malformed("a hello that is too short"));
        };
        Ok(Self {
            version_min: bytes.version_min.get(),
            version_max: bytes.version_max.get(),
            compatible_features: bytes.compatible_features.get(),
            incompatible_features: bytes.incompatible_features.get(),
            cluster: ClusterId::from_bytes(bytes.cluster),
            shard: ShardId { node: NodeId::from_bytes(bytes.node), number: bytes.shard },
            shards: bytes.shards,
            incarnation: ProcessIncarnation::from_bytes(bytes.incarnation),
            addressee: ShardId { node: NodeId::from_bytes(bytes.addressee), number: bytes.addressee_shard },
            request_bytes_max: bytes.request_bytes_max.get(),
            requests_max: bytes.requests_max.get(),
            path: bytes.path.get(),
            repeats: bytes.repeats.get() != 0,
            generation: bytes.generation.get(),
        })
    }

    /// The version that both sides speak, or why a session with the side that said this cannot be. `proven` is who
    /// that side has proven to be, where connections are authenticated.
    pub(crate) fn judge(&self, own: &BusIdentity, proven: Option<&str>) -> Result<u16, Refusal> {
        if self.cluster != own.cluster {
            let reason = format!(
                "node {} belongs to cluster {}, node {} to cluster {}",
                self.shard, self.cluster, own.shard, own.cluster
            );
            return Err(Refusal { status: RefusalStatus::Cluster, reason });
        }
        if let Some(proven) = proven.filter(|proven| *proven != self.shard.node.to_string()) {
            let reason =
                format!("it says that it is node {}, and has the certificate of {proven}", self.shard.node);
            return Err(Refusal { status: RefusalStatus::Node, reason });
        }
        if self.shard == own.shard {
            let reason = format!("both sides are node {}", own.shard);
            return Err(Refusal { status: RefusalStatus::Node, reason });
        }
        if self.shard.number >= self.shards {
            let reason = format!("it says that it is shard {} of {}", self.shard, self.shards);
            return Err(Refusal { status: RefusalStatus::Node, reason });
        }
        if self.addressee != own.shard {
            let reason = format!(
                "node {} meant to reach node {}, but this is node {}",
                self.shard, self.addressee, own.shard
            );
            return Err(Refusal { status: RefusalStatus::Node, reason });
        }
        if self.generation != own.generation {
            let reason = format!(
                "node {} goes by generation {} of the cluster's state, node {} by {}: start the one with the lower number anew",
                self.shard, self.generation, own.shard, own.generation
            );
            return Err(Refusal { status: RefusalStatus::Generation, reason });
        }
        let version = self.version_max.min(VERSION_MAX);
        if version < self.version_min.max(VERSION_MIN) {
            let reason = format!(
                "node {} speaks versions {} to {} of the bus protocol, node {} versions {} to {}",
                self.shard, self.version_min, self.version_max, own.shard, VERSION_MIN, VERSION_MAX
            );
            return Err(Refusal { status: RefusalStatus::Version, reason });
        }
        let unknown = self.incompatible_features & !INCOMPATIBLE_FEATURES;
        if unknown != 0 {
            let reason = format!(
                "node {} needs features that node {} lacks (bits {unknown:#x})",
                self.shard, own.shard
            );
            return Err(Refusal { status: RefusalStatus::Features, reason });
        }
        Ok(version)
    }
}

/// Why a session was refused, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalStatus {
    /// The sides belong to different clusters.
    Cluster = 1,
    /// The hello was meant for another node.
    Node = 2,
    /// No version of the protocol is spoken by both.
    Version = 3,
    /// A feature that one side needs is unknown to the other.
    Features = 4,
    /// A newer session of the same node has come.
    Superseded = 5,
    /// The acceptor stops.
    Stopping = 6,
    /// The session that the connection was to join is over.
    SessionOver = 7,
    /// The session has a path of this number, or takes no more.
    Path = 8,
    /// The sides go by different generations of the cluster's state.
    Generation = 9,
    /// The acceptor does not know the node: it has just joined, mostly, or it has left.
    Unknown = 10,
}

/// Why a session was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: RefusalStatus,
    /// For people.
    pub(crate) reason: String,
}

/// The words of a refusal that was received.
pub(crate) fn refusal_text(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(REASON_BYTES_MAX)]);
    // It comes from outside and ends up in a log.
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
#[path = "hello_tests.rs"]
mod tests;
