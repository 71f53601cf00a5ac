//! What load a cell puts on each client: DISKSPD's terms, and what is refused of them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spandrel_shared::Error;
use spandrel_shared::size::format_size;

use crate::nbd_client::Export;
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
    /// Offsets are multiples of this; the block size if absent.
    pub alignment_bytes: Option<u64>,
    /// The first so many bytes of each volume are used; all of it if absent.
    pub working_set_bytes: Option<u64>,
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
    /// Written data are taken from random places of a source of so many random bytes.
    pub write_source_bytes: u64,
    /// Threads of the load generator itself. Each runs its share of the clients.
    pub load_threads: u32,
    /// Whether the result has a row for each second.
    pub intervals: bool,
}

impl Default for CellSpec {
    fn default() -> Self {
        Self {
            block_size_bytes: 4096,
            threads: 1,
            outstanding: 1,
            write_percent: 0,
            pattern: Pattern::Random,
            alignment_bytes: None,
            working_set_bytes: None,
            warmup: Duration::from_secs(5),
            duration: Duration::from_secs(10),
            cooldown: Duration::ZERO,
            drain: Duration::from_secs(10),
            seed: 0,
            write_source_bytes: 20 << 20,
            load_threads: 1,
            intervals: false,
        }
    }
}

impl CellSpec {
    /// I/Os that each client keeps in flight.
    pub fn outstanding_per_client(&self) -> u64 {
        u64::from(self.threads) * u64::from(self.outstanding)
    }

    /// Multiples of this are the offsets.
    pub fn alignment(&self) -> u64 {
        self.alignment_bytes.unwrap_or(u64::from(self.block_size_bytes))
    }

    /// Refuses what makes no sense, before anything runs.
    pub fn validate(&self) -> Result<(), Error> {
        self.validate_sizes()?;
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

    /// The bytes of `client`'s volume that the load uses; refuses a volume that cannot take it.
    pub(crate) fn span_bytes(&self, client: &str, export: &Export) -> Result<u64, Error> {
        let refuse = |why: String, next: &str| {
            let what = format!("the load does not fit the volume of client {client}");
            Err(Error::new("FLEET_VOLUME_UNFIT", what, why, next))
        };
        let block = u64::from(self.block_size_bytes);
        let span = self.working_set_bytes.unwrap_or(export.size_bytes);
        if span > export.size_bytes {
            let (wanted, size) = (format_size(span), format_size(export.size_bytes));
            return refuse(
                format!("the working set is {wanted} and the volume {size}"),
                "use a smaller working set or larger volumes",
            );
        }
        if span < block {
            return refuse(
                format!("a block is {}, the volume {}", format_size(block), format_size(span)),
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
        if !block.is_multiple_of(unit) || !self.alignment().is_multiple_of(unit) {
            return refuse(
                format!("block size and alignment must be multiples of the server's {}", format_size(unit)),
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
