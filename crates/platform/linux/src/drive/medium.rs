//! The time that a drive of another kind would take: for studies on one machine, whose drives are files.
//!
//! A model is one resource, the drive, that serves one operation after the other in the order in which they come. An
//! operation *occupies* the drive for as long as the drive's rate or its throughput demands, whichever is longer. It
//! completes at the end of that and after a *latency*, during which others are served. So a single operation at a time
//! sees both, many at once the rate, large ones the throughput, and reads and writes share one drive.
//!
//! The figures, for a scale of 1 (all times are divided by the scale):
//!
//! | | NVMe | SATA SSD | disk |
//! |---|---|---|---|
//! | reads a second | 700,000 | 93,000 | seek and turn |
//! | writes a second | 256,000 | 10,000 | seek and turn |
//! | throughput | 2,850 MB/s | 540 MB/s | 200 MB/s |
//! | latency of a read | 80 us | 150 us | none |
//! | latency of a write | 20 us | 60 us | none |
//! | flush | latency of a write | latency of a write | a turn after writes, else nothing |
//!
//! A disk turns 7,200 times a minute. To reach a place takes a seek, whose time grows with the square root of the
//! distance from 1 ms to 15 ms across the whole disk (8.5 ms in the mean of random places), and half a turn. What lies
//! close ahead passes under the head sooner than that: then only the bytes in between are waited for. Hence sequential
//! operations cost their transfer alone, and those in order of their addresses with gaps little more.
//!
//! What a real drive does and this one does not: it serves what is queued in an order of its own (a disk gains a factor of
//! two or three by that), it is quicker while its memory takes writes in, and its times vary.
//!
//! Invariants:
//! - No operation completes earlier than the figures say; the machine may make it later.
//! - The model knows no clock: it is told when operations come, and says when they may complete.

use std::time::Duration;

use spandrel_platform::Instant;

/// A medium whose time a drive takes, whatever it is on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedMedium {
    /// What it is.
    pub kind: MediumKind,
    /// How fast it is, compared with a real one: with 0.01 everything takes a hundred times as long. More than 0.
    pub scale: f64,
}

/// What a drive may be made of. The figures are in the table at the head of `drive/medium.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediumKind {
    /// Flash on PCI Express.
    Nvme,
    /// Flash behind SATA.
    SataSsd,
    /// A disk with 7,200 turns a minute.
    Disk,
}

/// What is done to a drive, as far as its time depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    Read,
    Write,
}

/// A drive of a medium, and what it is busy with.
#[derive(Debug)]
pub(super) struct MediumModel {
    figures: Figures,
    scale: f64,
    size_bytes: u64,
    /// Until when all that has come occupies it.
    busy_until: Instant,
    /// Where the last operation ended, in bytes: there is a disk's head.
    position: u64,
    /// Whether something was written since the last flush.
    is_unflushed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Figures {
    Flash(Flash),
    Disk,
}

/// The figures of a drive without moving parts. Times in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Flash {
    reads_per_second: f64,
    writes_per_second: f64,
    bytes_per_second: f64,
    read_latency: f64,
    write_latency: f64,
}

const NVME: Flash = Flash {
    reads_per_second: 700e3,
    writes_per_second: 256e3,
    bytes_per_second: 2850e6,
    read_latency: 80e3,
    write_latency: 20e3,
};

const SATA_SSD: Flash = Flash {
    reads_per_second: 93e3,
    writes_per_second: 10e3,
    bytes_per_second: 540e6,
    read_latency: 150e3,
    write_latency: 60e3,
};

const SECOND_NS: f64 = 1e9;

const DISK_TURN_NS: f64 = SECOND_NS * 60.0 / 7200.0;
const DISK_SEEK_NS_MIN: f64 = 1e6;
const DISK_SEEK_NS_MAX: f64 = 15e6;
const DISK_BYTES_PER_SECOND: f64 = 200e6;

impl MediumModel {
    /// A drive of so many bytes that has nothing to do.
    pub(super) fn new(medium: SimulatedMedium, size_bytes: u64) -> Self {
        assert!(medium.scale > 0.0, "a drive at {} of its speed never completes anything", medium.scale);
        let figures = match medium.kind {
            MediumKind::Nvme => Figures::Flash(NVME),
            MediumKind::SataSsd => Figures::Flash(SATA_SSD),
            MediumKind::Disk => Figures::Disk,
        };
        Self {
            figures,
            scale: medium.scale,
            size_bytes,
            busy_until: Instant::default(),
            position: 0,
            is_unflushed: false,
        }
    }

    /// Whether what was written is lost at a power cut until it is flushed. Flash of these kinds has capacitors.
    pub(super) fn has_volatile_cache(&self) -> bool {
        matches!(self.figures, Figures::Disk)
    }

    /// When a read or a write that comes at `now` may complete.
    pub(super) fn transfer(&mut self, now: Instant, what: Transfer, offset: u64, length: usize) -> Instant {
        let length = length as f64;
        let (occupied, latency) = match (self.figures, what) {
            (Figures::Flash(flash), Transfer::Read) => {
                (flash.occupied(flash.reads_per_second, length), flash.read_latency)
            }
            (Figures::Flash(flash), Transfer::Write) => {
                (flash.occupied(flash.writes_per_second, length), flash.write_latency)
            }
            (Figures::Disk, _) => (self.disk_reaches(offset) + disk_passes(length), 0.0),
        };
        self.position = offset.saturating_add(length as u64);
        self.is_unflushed |= what == Transfer::Write;
        self.occupy(now, occupied, latency)
    }

    /// When a flush that comes at `now` may complete.
    pub(super) fn flush(&mut self, now: Instant) -> Instant {
        let was_unflushed = std::mem::take(&mut self.is_unflushed);
        match self.figures {
            Figures::Flash(flash) => self.occupy(now, 0.0, flash.write_latency),
            Figures::Disk => self.occupy(now, if was_unflushed { DISK_TURN_NS } else { 0.0 }, 0.0),
        }
    }

    fn occupy(&mut self, now: Instant, occupied_ns: f64, latency_ns: f64) -> Instant {
        self.busy_until = self.busy_until.max(now) + self.scaled(occupied_ns);
        self.busy_until + self.scaled(latency_ns)
    }

    /// So many nanoseconds of a real drive.
    fn scaled(&self, real_ns: f64) -> Duration {
        // What is too long for the number becomes the longest.
        Duration::from_nanos((real_ns / self.scale).ceil() as u64)
    }

    /// How long the head of a disk takes to where a transfer begins.
    fn disk_reaches(&self, offset: u64) -> f64 {
        let distance = offset.abs_diff(self.position) as f64;
        let stroke = (distance / self.size_bytes as f64).sqrt();
        let seek = DISK_SEEK_NS_MIN + (DISK_SEEK_NS_MAX - DISK_SEEK_NS_MIN) * stroke + DISK_TURN_NS / 2.0;
        match offset >= self.position {
            true => seek.min(disk_passes(distance)),
            false => seek,
        }
    }
}

impl Flash {
    fn occupied(&self, per_second: f64, length: f64) -> f64 {
        (SECOND_NS / per_second).max(length * SECOND_NS / self.bytes_per_second)
    }
}

/// How long so many bytes take to pass under the head of a disk.
fn disk_passes(length: f64) -> f64 {
    length * SECOND_NS / DISK_BYTES_PER_SECOND
}

#[cfg(test)]
#[path = "medium_tests.rs"]
mod tests;
