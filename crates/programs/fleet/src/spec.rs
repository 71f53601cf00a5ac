//! What load a cell puts on each client: DISKSPD's terms, and what is refused of them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spandrel_shared::Error;
use spandrel_shared::size::format_size;

use crate::distribution::Distribution;
use crate::nbd_client::Export;
use crate::pace::RateLimit;
use crate::text::seconds;

/// The smallest unit of offsets and sizes.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// Requests that one client may have in flight. Servers take fewer; a request above that waits.
const IN_FLIGHT_MAX: u64 = 4096;

/// The longest run of one cell, so that a mistyped unit is noticed.
const DURATION_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Where the I/Os of a thread go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Anywhere in the working set, evenly.
    #[default]
    Random,
    /// One behind the other. Each thread walks on its own from its share of the working set on, and
    /// around its end.
    Sequential,
    /// One behind the other, with one position for all threads of a client.
    Interlocked,
}

impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Pattern::Random => "random",
            Pattern::Sequential => "sequential",
            Pattern::Interlocked => "interlocked sequential",
        })
    }
}

impl FromStr for Pattern {
    type Err = String;

    /// The pattern's name, or VMFleet's letters for it.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "random" | "r" => Ok(Pattern::Random),
            "sequential" | "s" => Ok(Pattern::Sequential),
            "interlocked" | "si" => Ok(Pattern::Interlocked),
            _ => Err(format!("{text:?} is no pattern: it is random (r), sequential (s) or interlocked (si)")),
        }
    }
}

/// What is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteContent {
    /// Random bytes, each time from another place of a source of them.
    #[default]
    Random,
    /// Zeros.
    Zeros,
    /// The bytes 0, 1, … 255 again and again.
    Sequence,
}

impl FromStr for WriteContent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "random" => Ok(Self::Random),
            "zeros" => Ok(Self::Zeros),
            "sequence" => Ok(Self::Sequence),
            _ => Err(format!("{text:?} cannot be written: it is random, zeros or sequence")),
        }
    }
}

/// The load of one cell. Every client gets the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellSpec {
    /// Bytes of one I/O.
    pub block_size_bytes: u32,
    /// Threads of each client. They share its connection and differ in what they ask for.
    pub threads: u32,
    /// I/Os that each thread keeps in flight.
    pub outstanding: u32,
    /// How many of 100 I/Os are writes. It is drawn for each I/O.
    pub write_percent: u8,
    /// Where the I/Os go.
    pub pattern: Pattern,
    /// Of a random pattern so many of 100 I/Os go anywhere, and the others behind the one before of their thread; all if absent.
    #[serde(default)]
    pub random_percent: Option<u8>,
    /// Which parts of the working set random I/Os go to more often than to others; evenly if absent.
    #[serde(default)]
    pub distribution: Option<Distribution>,
    /// Offsets are multiples of this, counted from where the working set begins, and sequential ones go on by it; the block size if
    /// absent.
    pub alignment_bytes: Option<u64>,
    /// How far behind each other the threads of a client begin a sequential walk; as far as spreads them evenly if absent.
    #[serde(default)]
    pub thread_stride_bytes: Option<u64>,
    /// Where the working set begins on each volume.
    #[serde(default)]
    pub base_offset_bytes: u64,
    /// So many bytes of each volume are used; all behind the base offset if absent.
    pub working_set_bytes: Option<u64>,
    /// The most that each thread may do.
    #[serde(default)]
    pub rate_limit: Option<RateLimit>,
    /// How long the load runs before it is measured.
    #[serde(with = "seconds")]
    pub warmup: Duration,
    /// How long it is measured.
    #[serde(with = "seconds")]
    pub duration: Duration,
    /// How long it goes on after that.
    #[serde(with = "seconds")]
    pub cooldown: Duration,
    /// How long to wait at the end for I/Os that were not answered.
    #[serde(with = "seconds")]
    pub drain: Duration,
    /// Equal seeds give equal sequences of I/Os.
    pub seed: u64,
    /// What is written.
    #[serde(default)]
    pub write_content: WriteContent,
    /// Random data are taken from random places of a source of so many random bytes.
    pub write_source_bytes: u64,
    /// Threads of the load generator itself. Each runs its share of the clients.
    pub load_threads: u32,
    /// Whether the result has a row for each second.
    pub intervals: bool,
    /// Whether the result has all latencies of each client.
    #[serde(default)]
    pub histograms: bool,
}

impl Default for CellSpec {
    fn default() -> Self {
        Self {
            block_size_bytes: 4096,
            threads: 1,
            outstanding: 1,
            write_percent: 0,
            pattern: Pattern::Random,
            random_percent: None,
            distribution: None,
            alignment_bytes: None,
            thread_stride_bytes: None,
            base_offset_bytes: 0,
            working_set_bytes: None,
            rate_limit: None,
            warmup: Duration::from_secs(5),
            duration: Duration::from_secs(10),
            cooldown: Duration::ZERO,
            drain: Duration::from_secs(10),
            seed: 0,
            write_content: WriteContent::Random,
            write_source_bytes: 20 << 20,
            load_threads: 1,
            intervals: false,
            histograms: false,
        }
    }
}

impl CellSpec {
    /// I/Os that each client keeps in flight.
    pub fn outstanding_per_client(&self) -> u64 {
        u64::from(self.threads) * u64::from(self.outstanding)
    }

    /// How long the load runs: warm-up, measurement and cool-down.
    pub fn duration_in_all(&self) -> Duration {
        self.warmup + self.duration + self.cooldown
    }

    /// Multiples of this are the offsets.
    pub fn alignment(&self) -> u64 {
        self.alignment_bytes.unwrap_or(u64::from(self.block_size_bytes))
    }

    /// How far behind each other the threads of a client begin: zero where they all begin anywhere, or at one place.
    pub fn thread_stride(&self) -> u64 {
        let span_bytes = self.working_set_bytes.unwrap_or(0);
        let spread_evenly = || {
            let places = span_bytes.saturating_sub(self.block_size_bytes.into()) / self.alignment() + 1;
            places / u64::from(self.threads) * self.alignment()
        };
        match (self.pattern, self.thread_stride_bytes) {
            (_, Some(stride)) => stride,
            (Pattern::Sequential, None) if self.threads > 1 => spread_evenly(),
            (_, None) => 0,
        }
    }

    /// Refuses what makes no sense, before anything runs.
    pub fn validate(&self) -> Result<(), Error> {
        self.validate_sizes()?;
        self.validate_pattern()?;
        let in_flight = self.outstanding_per_client();
        if in_flight == 0 {
            return Err(invalid(
                "a client without I/Os",
                format!(
                    "{} threads with {} outstanding I/Os each do nothing",
                    self.threads, self.outstanding
                ),
                "give at least one thread and one outstanding I/O",
            ));
        }
        if in_flight > IN_FLIGHT_MAX {
            return Err(invalid(
                format!("{in_flight} I/Os in flight per client"),
                format!("threads times outstanding may be at most {IN_FLIGHT_MAX}"),
                "use more clients instead, each with fewer outstanding I/Os",
            ));
        }
        if self.write_percent > 100 {
            return Err(invalid(
                format!("{} % writes", self.write_percent),
                "it is a share of all I/Os",
                "give a number from 0 to 100",
            ));
        }
        if self.load_threads == 0 || self.load_threads > 1024 {
            return Err(invalid(
                format!("{} load threads", self.load_threads),
                "the load generator needs at least one and has little use for more than there are cores",
                "leave it at 1 unless the result says that the load generator was busy",
            ));
        }
        self.validate_times()
    }

    fn validate_sizes(&self) -> Result<(), Error> {
        let block = u64::from(self.block_size_bytes);
        if block == 0 || !block.is_multiple_of(SECTOR_BYTES) || block > 32 << 20 {
            return Err(invalid(
                format!("a block size of {}", format_size(block)),
                "I/Os are whole sectors of 512 bytes, and at most 32 MiB",
                "give a multiple of 512, such as 4k, 64k or 1M",
            ));
        }
        let alignment = self.alignment();
        if alignment == 0 || !alignment.is_multiple_of(SECTOR_BYTES) {
            return Err(invalid(
                format!("an alignment of {}", format_size(alignment)),
                "I/Os begin at whole sectors of 512 bytes",
                "give a multiple of 512, or leave it at the block size",
            ));
        }
        if let Some(working_set) = self.working_set_bytes
            && (working_set < block || !working_set.is_multiple_of(SECTOR_BYTES))
        {
            return Err(invalid(
                format!("a working set of {}", format_size(working_set)),
                format!("it must hold at least one block of {} and be whole sectors", format_size(block)),
                "give a larger one, such as 1G",
            ));
        }
        if self.write_source_bytes < block || self.write_source_bytes > 1 << 30 {
            return Err(invalid(
                format!("a write source of {}", format_size(self.write_source_bytes)),
                format!("it must hold at least one block of {} and is kept in memory", format_size(block)),
                "give a size up to 1 GiB; 20M is usual",
            ));
        }
        Ok(())
    }

    fn validate_pattern(&self) -> Result<(), Error> {
        let is_random = self.pattern == Pattern::Random;
        if let Some(percent) = self.random_percent
            && (percent > 100 || !is_random)
        {
            return Err(invalid(
                format!("{percent} % random I/O of a {} pattern", self.pattern),
                "it is the share of a random pattern whose I/Os go anywhere, while the others follow each other",
                "give a number from 0 to 100 with the random pattern",
            ));
        }
        if let Some(distribution) = &self.distribution {
            if !is_random {
                return Err(invalid(
                    format!("the distribution {distribution} of a {} pattern", self.pattern),
                    "only random I/Os choose where they go",
                    "use the random pattern",
                ));
            }
            let least = distribution.span_bytes_min();
            if self.working_set_bytes.is_some_and(|working_set| working_set < least) {
                return Err(invalid(
                    format!("the distribution {distribution} on that working set"),
                    format!("its parts are {} together", format_size(least)),
                    "use a larger working set, or parts in percent",
                ));
            }
        }
        if let Some(stride) = self.thread_stride_bytes
            && (self.pattern != Pattern::Sequential || !stride.is_multiple_of(SECTOR_BYTES))
        {
            return Err(invalid(
                format!("a thread stride of {} with a {} pattern", format_size(stride), self.pattern),
                "it is how far behind each other the threads of a client begin a sequential walk, in whole sectors",
                "give a multiple of 512 with the sequential pattern",
            ));
        }
        if !self.base_offset_bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(invalid(
                format!("a base offset of {}", format_size(self.base_offset_bytes)),
                "I/Os begin at whole sectors of 512 bytes",
                "give a multiple of 512",
            ));
        }
        Ok(())
    }

    fn validate_times(&self) -> Result<(), Error> {
        if self.duration.is_zero() {
            return Err(invalid(
                "a measurement of no duration",
                "rates are counted over it",
                "give at least some hundred milliseconds; 60 s and more for results to quote",
            ));
        }
        let times = [self.warmup, self.duration, self.cooldown, self.drain];
        if times.iter().any(|time| *time > DURATION_MAX) {
            return Err(invalid(
                "a cell of more than a week",
                "that is most likely a wrong unit",
                "write 90s, 60m or 2h",
            ));
        }
        Ok(())
    }

    /// How large a volume the load needs at least, if it says how much it uses.
    pub fn volume_bytes_min(&self) -> Option<u64> {
        Some(self.base_offset_bytes + self.working_set_bytes?)
    }

    /// The bytes of `client`'s volume that the load uses from the base offset on; refuses a volume that cannot take it.
    pub(crate) fn span_bytes(&self, client: &str, export: &Export) -> Result<u64, Error> {
        let refuse = |why: String, next: &str| {
            let what = format!("the load does not fit the volume of client {client}");
            Err(Error::new("FLEET_VOLUME_UNFIT", what, why, next))
        };
        let block = u64::from(self.block_size_bytes);
        let left = export.size_bytes.saturating_sub(self.base_offset_bytes);
        let span = self.working_set_bytes.unwrap_or(left);
        if span > left {
            let (wanted, size) = (format_size(span), format_size(export.size_bytes));
            let behind = match self.base_offset_bytes {
                0 => String::new(),
                base => format!(" behind {}", format_size(base)),
            };
            return refuse(
                format!("the working set is {wanted}{behind} and the volume {size}"),
                "use a smaller working set or larger volumes",
            );
        }
        if self.distribution.as_ref().is_some_and(|distribution| span < distribution.span_bytes_min()) {
            return refuse(
                format!("its {} hold less than the parts of the distribution", format_size(span)),
                "use larger volumes, or parts in percent",
            );
        }
        if span < block {
            return refuse(
                format!(
                    "a block is {}, and of the volume {} are used",
                    format_size(block),
                    format_size(span)
                ),
                "use a smaller block size or larger volumes",
            );
        }
        if self.block_size_bytes > export.request_bytes_max {
            let (wanted, most) = (format_size(block), format_size(u64::from(export.request_bytes_max)));
            return refuse(
                format!("a block is {wanted}, and the server takes at most {most} in one request"),
                "use a smaller block size",
            );
        }
        let unit = u64::from(export.request_bytes_min);
        let sizes = [block, self.alignment(), self.base_offset_bytes];
        if sizes.iter().any(|size| !size.is_multiple_of(unit)) {
            return refuse(
                format!(
                    "block size, alignment and base offset must be multiples of the server's {}",
                    format_size(unit)
                ),
                "use a larger block size or alignment",
            );
        }
        if self.write_percent > 0 && export.read_only {
            return refuse("it is read-only".to_owned(), "use a write percentage of 0, or another volume");
        }
        Ok(span)
    }
}

/// The error for a load that cannot be.
pub(crate) fn invalid(what: impl Into<String>, why: impl Into<String>, next: &str) -> Error {
    Error::new("FLEET_LOAD_INVALID", format!("{} cannot be run", what.into()), why, next)
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
