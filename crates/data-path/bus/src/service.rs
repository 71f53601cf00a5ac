//! What the node behind a bus does for others.

use std::future::Future;

use spandrel_platform::Buffer;
use spandrel_shared::{ProcessIncarnation, ShardId};

use crate::{BusRequest, BusResponse};

/// Who asks, and in which session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The shard.
    pub shard: ShardId,
    /// The run of its process.
    pub incarnation: ProcessIncarnation,
    /// The session, by the asking process's count.
    pub session: u32,
}

/// Answers what other nodes ask.
pub trait BusService: 'static {
    /// Serves one request. Many are served at the same time, and in any order.
    ///
    /// `payload` is whole: it has passed its checksums. The answer's payload must match its
    /// description: for what was read, one buffer after the other.
    fn serve(
        &self,
        from: Peer,
        request: BusRequest,
        payload: Option<Buffer>,
    ) -> impl Future<Output = (BusResponse, Vec<Buffer>)>;

    /// A session is over: its connection is gone, every request of it that was being served has
    /// ended, and no further one will be. Comes before the first request of the peer's next session.
    fn session_ended(&self, from: Peer);
}
