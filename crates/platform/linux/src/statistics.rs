//! Counters of what a shard's loop did, for metrics and for tests of its economy.

use std::cell::Cell;

/// What one runtime has done since its start. All fields only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuntimeStatistics {
    /// Rounds of the event loop.
    pub turns: u64,
    /// Rounds that slept in the kernel.
    pub sleeps: u64,
    /// Calls of epoll_wait.
    pub polls: u64,
    /// Timers that fired.
    pub timers_fired: u64,
    /// Closures that other threads had run here.
    pub remote_tasks: u64,
    /// Calls that sent on a connection, each with everything queued there.
    pub sends: u64,
    /// Bytes that connections sent.
    pub sent_bytes: u64,
    /// Calls that received on a connection.
    pub receives: u64,
    /// Bytes that connections received.
    pub received_bytes: u64,
    /// Calls that gave drive operations to the kernel's ring.
    pub ring_submits: u64,
    /// Reads of drives.
    pub drive_reads: u64,
    /// Writes to drives.
    pub drive_writes: u64,
    /// Flushes of drives.
    pub drive_flushes: u64,
}

/// The counters behind [`RuntimeStatistics`].
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) turns: Counter,
    pub(crate) sleeps: Counter,
    pub(crate) polls: Counter,
    pub(crate) timers_fired: Counter,
    pub(crate) remote_tasks: Counter,
    pub(crate) sends: Counter,
    pub(crate) sent_bytes: Counter,
    pub(crate) receives: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) ring_submits: Counter,
    pub(crate) drive_reads: Counter,
    pub(crate) drive_writes: Counter,
    pub(crate) drive_flushes: Counter,
}

impl Counters {
    pub(crate) fn snapshot(&self) -> RuntimeStatistics {
        RuntimeStatistics {
            turns: self.turns.get(),
            sleeps: self.sleeps.get(),
            polls: self.polls.get(),
            timers_fired: self.timers_fired.get(),
            remote_tasks: self.remote_tasks.get(),
            sends: self.sends.get(),
            sent_bytes: self.sent_bytes.get(),
            receives: self.receives.get(),
            received_bytes: self.received_bytes.get(),
            ring_submits: self.ring_submits.get(),
            drive_reads: self.drive_reads.get(),
            drive_writes: self.drive_writes.get(),
            drive_flushes: self.drive_flushes.get(),
        }
    }
}

/// A number that grows.
#[derive(Default)]
pub(crate) struct Counter(Cell<u64>);

impl Counter {
    pub(crate) fn add(&self, amount: u64) {
        self.0.set(self.0.get() + amount);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}
