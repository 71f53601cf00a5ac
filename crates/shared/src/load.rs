//! How busy a layer is: what it has done, and how much is under way.
//!
//! Each layer (front-end, owner, bus, drive) counts its reads and its writes in a [`Load`]. That costs a few additions for
//! each operation, and no look at the clock. Whoever wants to know how long operations take looks at the load now and
//! then, and tells it how much time has passed ([`Load::pass`]): what was under way then, times that time, adds up to the time
//! that all operations together have taken. Divided by how many were done it is their mean latency, divided by the time
//! it is the mean queue (Little's law).
//!
//! Invariant: what was begun is under way until it is done or dropped, whatever happens to the task that does it.

use std::cell::Cell;
use std::ops::Deref;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The reads and the writes of one layer at one place.
#[derive(Debug, Default)]
pub struct Load {
    reads: Flow,
    writes: Flow,
}

/// Operations of one kind.
#[derive(Debug, Default)]
struct Flow {
    done: Cell<u64>,
    bytes: Cell<u64>,
    in_flight: Cell<u64>,
    in_flight_us: Cell<u64>,
}

/// What was done at one place since it was there, and what is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadCounts {
    /// Reads.
    pub reads: FlowCounts,
    /// Writes, and what else changes something.
    pub writes: FlowCounts,
}

/// What was done of one kind, and what is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCounts {
    /// Operations that were answered.
    pub done: u64,
    /// Bytes that they brought or took along.
    pub bytes: u64,
    /// Operations that are under way now.
    pub in_flight: u64,
    /// The time that all operations together have been under way, in microseconds, as it was looked at now and then.
    pub in_flight_us: u64,
}

/// An operation that is under way, until it is done or dropped. `L` borrows the load, or holds it.
#[derive(Debug)]
pub struct Operation<L: Deref<Target = Load>> {
    load: L,
    is_write: bool,
}

impl Load {
    /// A read begins.
    pub fn begin_read(&self) -> Operation<&Self> {
        Operation::read(self)
    }

    /// Something that changes something begins.
    pub fn begin_write(&self) -> Operation<&Self> {
        Operation::write(self)
    }

    /// So much time has passed since this was called last: whatever is under way now was so meanwhile, as far as anybody
    /// knows.
    pub fn pass(&self, time: Duration) {
        let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.reads.pass(time_us);
        self.writes.pass(time_us);
    }

    /// What was done so far, and what is under way.
    pub fn counts(&self) -> LoadCounts {
        LoadCounts { reads: self.reads.counts(), writes: self.writes.counts() }
    }
}

impl LoadCounts {
    /// Operations that are under way.
    pub fn in_flight(&self) -> u64 {
        self.reads.in_flight + self.writes.in_flight
    }

    /// Operations that were answered.
    pub fn done(&self) -> u64 {
        self.reads.done + self.writes.done
    }

    /// What was done here and at another place.
    pub fn with(self, other: Self) -> Self {
        Self { reads: self.reads.with(other.reads), writes: self.writes.with(other.writes) }
    }
}

impl FlowCounts {
    fn with(self, other: Self) -> Self {
        Self {
            done: self.done + other.done,
            bytes: self.bytes + other.bytes,
            in_flight: self.in_flight + other.in_flight,
            in_flight_us: self.in_flight_us + other.in_flight_us,
        }
    }
}

impl Flow {
    fn pass(&self, time_us: u64) {
        let passed_us = self.in_flight.get().saturating_mul(time_us);
        self.in_flight_us.set(self.in_flight_us.get().saturating_add(passed_us));
    }

    fn counts(&self) -> FlowCounts {
        FlowCounts {
            done: self.done.get(),
            bytes: self.bytes.get(),
            in_flight: self.in_flight.get(),
            in_flight_us: self.in_flight_us.get(),
        }
    }
}

impl<L: Deref<Target = Load>> Operation<L> {
    /// A read begins.
    pub fn read(load: L) -> Self {
        Self::begin(load, false)
    }

    /// Something that changes something begins.
    pub fn write(load: L) -> Self {
        Self::begin(load, true)
    }

    /// It was answered, and has brought or taken along so many bytes.
    pub fn done(self, bytes: u64) {
        let flow = self.flow();
        flow.done.set(flow.done.get() + 1);
        flow.bytes.set(flow.bytes.get() + bytes);
    }

    fn begin(load: L, is_write: bool) -> Self {
        let operation = Self { load, is_write };
        let in_flight = &operation.flow().in_flight;
        in_flight.set(in_flight.get() + 1);
        operation
    }

    fn flow(&self) -> &Flow {
        if self.is_write { &self.load.writes } else { &self.load.reads }
    }
}

impl<L: Deref<Target = Load>> Drop for Operation<L> {
    fn drop(&mut self) {
        let in_flight = &self.flow().in_flight;
        in_flight.set(in_flight.get() - 1);
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
