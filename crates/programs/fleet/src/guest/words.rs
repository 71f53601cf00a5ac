//! What the fleet and a guest's load generator say to each other: JSON, a line for each word.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use spandrel_platform::Instant;
use spandrel_shared::Error;

use crate::load_thread::Task;
use crate::spec::CellSpec;
use crate::tally::ClientTally;
use crate::times::LoadTimes;

/// The longest word, in bytes: latencies in full take a part of this.
const WORD_BYTES_MAX: usize = 16 << 20;

/// A word of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line<W> {
    pub(crate) session: u64,
    pub(crate) word: W,
}

impl<W: Serialize> Line<W> {
    /// As it is sent.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("words are plain data");
        bytes.push(b'\n');
        bytes
    }
}

/// What the fleet says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Make a load ready. It is answered.
    Prepare(Box<Preparation>),
    /// Begin with it.
    Start(Plan),
    /// End it before its time.
    Stop,
}

/// A load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Preparation {
    /// The number of the client among all: equal ones do the same.
    pub(crate) client: usize,
    pub(crate) name: String,
    pub(crate) task: Task,
    pub(crate) spec: CellSpec,
}

/// The times of a load, from its start on. Clocks differ, but not how long a second is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    measure_after: Duration,
    /// Absent if nobody knows before.
    measure_until: Option<Duration>,
    stop_after: Option<Duration>,
}

impl Plan {
    pub(crate) fn of(times: &LoadTimes) -> Self {
        let after = |at: Instant| (at != Instant::from_nanoseconds(u64::MAX)).then(|| at.since(times.start));
        Self {
            measure_after: times.measure_from.since(times.start),
            measure_until: after(times.measure_until()),
            stop_after: after(times.stop_at()),
        }
    }

    /// The times of a load that begins at `start`.
    pub(crate) fn times(&self, start: Instant) -> LoadTimes {
        let until = |after: Option<Duration>| after.map(|after| start + after);
        LoadTimes::between(
            start,
            start + self.measure_after,
            until(self.measure_until),
            until(self.stop_after),
        )
    }
}

/// What a guest says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Said {
    /// The load can begin.
    Ready,
    /// It cannot be, or was not carried out to its end.
    Failed(Error),
    /// What was done so far.
    Progress(ProgressCounts),
    /// It is over.
    Ended(Box<Report>),
}

/// What was done so far, of all that was begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProgressCounts {
    pub(crate) done: u64,
    pub(crate) done_bytes: u64,
    pub(crate) failed: u64,
    pub(crate) latency_sum_ns: u64,
}

/// What a load has come to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) tally: ClientTally,
    pub(crate) cost: GuestCost,
}

/// What a load generator has cost in a guest while its load was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GuestCost {
    /// Processor time of its threads.
    pub(crate) cpu: Duration,
    /// The time over which that was taken.
    pub(crate) wall: Duration,
}

/// Puts words together from what has come.
#[derive(Debug, Default)]
pub(crate) struct Words {
    begun: Vec<u8>,
}

impl Words {
    /// Takes in bytes, and yields the words that are whole with them, in order. What is no word is left out: it is the rest of one that an
    /// earlier session did not hear to its end.
    pub(crate) fn take_in<W: DeserializeOwned>(&mut self, bytes: &[u8]) -> Vec<Line<W>> {
        self.begun.extend_from_slice(bytes);
        let mut words = Vec::new();
        let mut rest = &self.begun[..];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            words.extend(serde_json::from_slice(&rest[..end]).ok());
            rest = &rest[end + 1..];
        }
        let rest = rest.to_vec();
        self.begun = if rest.len() > WORD_BYTES_MAX { Vec::new() } else { rest };
        words
    }
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
