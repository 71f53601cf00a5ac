//! Who a bus is, and its settings.

use std::time::Duration;

use spandrel_shared::{ClusterId, ProcessIncarnation, ShardId};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusIdentity {
    /// The cluster. Nodes of other clusters are refused.
    pub cluster: ClusterId,
    /// The generation of the cluster's state by which this process goes. Who goes by another one is refused: if the
    /// state was lost and an older one put in its place, nobody who still goes by the lost one reaches a copy here.
    pub generation: u32,
    /// This shard of this node.
    pub shard: ShardId,
    /// How many shards the node has.
    pub shards: u8,
    /// This run of its process.
    pub incarnation: ProcessIncarnation,
}

/// A bus's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusConfig {
    /// The pause after the first attempt to reach a peer that failed. Doubles with each further one.
    pub retry_pause_min: Duration,
    /// The longest pause between attempts. A session that lasted as long counts as a success,
    /// after which the pauses begin anew.
    pub retry_pause_max: Duration,
    /// How long a connection may take until both sides have agreed on a session.
    pub hello_timeout: Duration,
    /// Requests of one peer that are served at the same time.
    pub requests_max: u32,
    /// Payload of one peer's requests that are served at the same time, in bytes: what came with
    /// them and what they ask for. A request that alone is larger is served by itself.
    pub request_bytes_max: u64,
    /// Answers wait while this many bytes are queued for the peer.
    pub queued_bytes_max: usize,
    /// Addresses of a peer that are used at the same time, each by a path of the session. A peer may have twice as many
    /// paths in its session here: it may have lost some of which it is not known here yet.
    pub paths_max: usize,
    /// Connections that may be on their way to a session at the same time. If more come, the oldest is
    /// closed.
    pub hellos_max: usize,
}

impl Default for BusConfig {
    fn default() -> Self {
        Self {
            retry_pause_min: Duration::from_millis(10),
            retry_pause_max: Duration::from_secs(1),
            hello_timeout: Duration::from_secs(5),
            requests_max: 1024,
            request_bytes_max: 64 << 20,
            queued_bytes_max: 8 << 20,
            paths_max: 8,
            hellos_max: 64,
        }
    }
}
