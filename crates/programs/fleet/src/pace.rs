//! How fast a thread of a client may go, in DISKSPD's notation (`-g`).
//!
//! A thread that was held up for a moment makes up for it, so its mean rate is the one that was asked for; what it has missed for
//! longer than [`CATCH_UP_MAX`] is lost to it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spandrel_platform::Instant;

use crate::random::Random;

/// The longest time that a thread makes up for.
const CATCH_UP_MAX: Duration = Duration::from_secs(1);

/// The most that a thread may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RateLimit {
    /// I/Os a second.
    IosPerSecond(u32),
    /// Bytes a millisecond.
    BytesPerMillisecond(u32),
}

impl RateLimit {
    /// The time from one I/O of so many bytes to the next.
    fn gap(self, block_bytes: u32) -> Duration {
        let nanoseconds = match self {
            Self::IosPerSecond(rate) => 1_000_000_000 / u64::from(rate.max(1)),
            Self::BytesPerMillisecond(rate) => u64::from(block_bytes) * 1_000_000 / u64::from(rate.max(1)),
        };
        Duration::from_nanos(nanoseconds.max(1))
    }
}

impl FromStr for RateLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, of): (_, fn(u32) -> Self) = match text.strip_suffix('i') {
            Some(number) => (number, Self::IosPerSecond),
            None => (text, Self::BytesPerMillisecond),
        };
        match number.parse() {
            Ok(number) if number > 0 => Ok(of(number)),
            _ => Err(format!(
                "{text:?} is no rate: write 300i for 300 I/Os a second, or 1500 for 1,500 bytes a millisecond"
            )),
        }
    }
}

impl fmt::Display for RateLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IosPerSecond(rate) => write!(formatter, "{rate}i"),
            Self::BytesPerMillisecond(rate) => rate.fmt(formatter),
        }
    }
}

impl TryFrom<String> for RateLimit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<RateLimit> for String {
    fn from(rate: RateLimit) -> Self {
        rate.to_string()
    }
}

/// When a thread may begin its next I/O.
pub(crate) struct Pace {
    gap: Duration,
    next_at: Instant,
    /// I/Os that it could have in flight and may not begin yet.
    pub(crate) waiting: u32,
}

impl Pace {
    /// That of a thread which begins at `start`: its first I/O comes at a random time of the first gap, or all threads of all clients
    /// would go in step.
    pub(crate) fn new(limit: RateLimit, block_bytes: u32, start: Instant, random: &mut Random) -> Self {
        let gap = limit.gap(block_bytes);
        let nanoseconds = u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX);
        Self { gap, next_at: start + Duration::from_nanos(random.below(nanoseconds)), waiting: 0 }
    }

    /// Takes the right to begin an I/O at `now`, if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        if self.next_at > now {
            return false;
        }
        let made_up_from = Instant::from_nanoseconds(
            now.nanoseconds().saturating_sub(u64::try_from(CATCH_UP_MAX.as_nanos()).unwrap_or(u64::MAX)),
        );
        self.next_at = self.next_at.max(made_up_from) + self.gap;
        true
    }

    /// When it may go on, if it waits for that.
    pub(crate) fn due(&self) -> Option<Instant> {
        (self.waiting > 0).then_some(self.next_at)
    }
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
