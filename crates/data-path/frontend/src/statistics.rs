//! What a front-end has done so far, for metrics.

use std::cell::RefCell;
use std::rc::Rc;

/// Counts since the front-end started, except where "now" is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrontendStatistics {
    /// Connections now open, those in negotiation included.
    pub connections: u64,
    /// Connections that arrived.
    pub connections_accepted: u64,
    /// Connections closed at once because too many were open.
    pub connections_rejected: u64,
    /// Negotiations that this side ended, for a violation of the protocol or for lack of progress.
    pub negotiations_refused: u64,
    /// Requests for an export that were answered with an error, or by closing the connection.
    pub exports_refused: u64,
    /// Requests now with a volume.
    pub requests_in_flight: u64,
    /// Reads answered with data.
    pub reads: u64,
    /// Bytes of those reads.
    pub read_bytes: u64,
    /// Writes answered as done.
    pub writes: u64,
    /// Bytes of those writes.
    pub written_bytes: u64,
    /// Flushes answered as done.
    pub flushes: u64,
    /// Trims answered as done.
    pub trims: u64,
    /// Requests to write zeros answered as done.
    pub write_zeroes: u64,
    /// Queries of the allocation that were answered.
    pub block_statuses: u64,
    /// Requests that a volume answered with an error.
    pub requests_failed: u64,
    /// Requests refused before they reached a volume: malformed, out of range, or while stopping.
    pub requests_refused: u64,
    /// Times that reading from a connection paused because too much was in flight on it.
    pub pauses_for_requests: u64,
    /// Times that reading from a connection paused because its client did not take its answers.
    pub pauses_for_replies: u64,
}

/// The one place where all connections of a front-end count.
#[derive(Clone, Default)]
pub(crate) struct Counters(Rc<RefCell<FrontendStatistics>>);

impl Counters {
    pub(crate) fn count(&self, change: impl FnOnce(&mut FrontendStatistics)) {
        change(&mut self.0.borrow_mut());
    }

    pub(crate) fn snapshot(&self) -> FrontendStatistics {
        *self.0.borrow()
    }
}
