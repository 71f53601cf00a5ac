//! What is wrong with a drive: the faults that are armed, and the count of those that struck.

use std::ops::{Bound, RangeBounds};

use spandrel_platform::{DriveErrorKind, DriveOperation};

/// How long an injected error stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It strikes one operation.
    Once,
    /// It strikes every operation until the faults are cleared.
    Always,
    /// It strikes every read of a place until that place is written: an unreadable sector.
    UntilWritten,
}

/// How much room the file system that holds the drive's file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Enough.
    Enough,
    /// None for 4 KiB chunks that were never written; others can be overwritten.
    OnlyOverwrites,
    /// None: every write fails.
    None,
}

/// What a drive was asked to do, and what was done to it. All counted since it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveCounters {
    /// Reads submitted.
    pub reads: u64,
    /// Writes submitted.
    pub writes: u64,
    /// Flushes submitted.
    pub flushes: u64,
    /// Bytes that reads asked for.
    pub read_bytes: u64,
    /// Bytes that writes brought.
    pub written_bytes: u64,
    /// Operations that overlapped, in place and time, a write (or, for a write, a read) in
    /// flight. A store that relies on their order has a bug.
    pub overlaps: u64,
    /// Bits flipped.
    pub bits_flipped: u64,
    /// Writes acknowledged and thrown away.
    pub writes_lost: u64,
    /// Writes that went elsewhere.
    pub writes_misdirected: u64,
    /// Reads failed on purpose, a dead drive's among them.
    pub reads_failed: u64,
    /// Writes failed on purpose, a dead drive's among them, those without room not.
    pub writes_failed: u64,
    /// Flushes failed on purpose, a dead drive's among them.
    pub flushes_failed: u64,
    /// Writes refused for lack of room.
    pub writes_without_room: u64,
    /// Power cuts that left unflushed writes undetermined.
    pub lossy_power_cuts: u64,
}

impl DriveCounters {
    pub(crate) fn count_failure(&mut self, operation: DriveOperation, kind: DriveErrorKind) {
        match (operation, kind) {
            (_, DriveErrorKind::NoRoom) => self.writes_without_room += 1,
            (DriveOperation::Read, _) => self.reads_failed += 1,
            (DriveOperation::Write, _) => self.writes_failed += 1,
            (DriveOperation::Flush, _) => self.flushes_failed += 1,
            (DriveOperation::Open, _) => {}
        }
    }
}

/// A range of bytes, its end not included.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Extent {
    pub(crate) fn of(range: impl RangeBounds<u64>) -> Self {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        Self { start, end }
    }

    pub(crate) fn overlaps(&self, other: &Extent) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// What is left of it without `other`.
    fn without(&self, other: &Extent) -> impl Iterator<Item = Extent> {
        let before = Extent { start: self.start, end: self.end.min(other.start) };
        let after = Extent { start: self.start.max(other.end), end: self.end };
        [before, after].into_iter().filter(|extent| extent.start < extent.end)
    }
}

/// What shall happen to the next write that touches a range, instead of what was asked.
#[derive(Clone, Copy)]
pub(crate) enum Stray {
    Lost,
    To(u64),
}

/// The armed faults of a drive.
#[derive(Default)]
pub(crate) struct Faults {
    read_errors: Vec<(Extent, Repeat)>,
    write_errors: Vec<(Extent, Repeat)>,
    flush_errors: Option<Repeat>,
    strays: Vec<(Extent, Stray)>,
}

impl Faults {
    pub(crate) fn fail_reads(&mut self, extent: Extent, repeat: Repeat) {
        self.read_errors.push((extent, repeat));
    }

    pub(crate) fn fail_writes(&mut self, extent: Extent, repeat: Repeat) {
        self.write_errors.push((extent, repeat));
    }

    pub(crate) fn fail_flushes(&mut self, repeat: Repeat) {
        self.flush_errors = Some(repeat);
    }

    pub(crate) fn add_stray(&mut self, extent: Extent, stray: Stray) {
        self.strays.push((extent, stray));
    }

    /// Whether a write will be lost or misdirected, or something cannot be read.
    pub(crate) fn endangers_content(&self) -> bool {
        !self.strays.is_empty() || !self.read_errors.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether a read of `extent` fails.
    pub(crate) fn read_fails(&mut self, extent: &Extent) -> bool {
        strikes(&mut self.read_errors, extent)
    }

    /// Whether a write of `extent` fails.
    pub(crate) fn write_fails(&mut self, extent: &Extent) -> bool {
        strikes(&mut self.write_errors, extent)
    }

    /// Whether a read or a write of `extent` would fail.
    pub(crate) fn would_fail(&self, extent: &Extent) -> bool {
        self.read_errors.iter().chain(&self.write_errors).any(|(armed, _)| armed.overlaps(extent))
    }

    pub(crate) fn flush_fails(&mut self) -> bool {
        match self.flush_errors {
            Some(Repeat::Once) => self.flush_errors.take().is_some(),
            other => other.is_some(),
        }
    }

    /// What befalls a write of `extent`.
    pub(crate) fn stray(&mut self, extent: &Extent) -> Option<Stray> {
        let index = self.strays.iter().position(|(armed, _)| armed.overlaps(extent))?;
        Some(self.strays.remove(index).1)
    }

    /// A write of `extent` has succeeded: what was unreadable there is not any more.
    pub(crate) fn written(&mut self, extent: &Extent) {
        if self
            .read_errors
            .iter()
            .any(|(armed, repeat)| *repeat == Repeat::UntilWritten && armed.overlaps(extent))
        {
            let former = std::mem::take(&mut self.read_errors);
            for (armed, repeat) in former {
                if repeat == Repeat::UntilWritten {
                    self.read_errors.extend(armed.without(extent).map(|rest| (rest, repeat)));
                } else {
                    self.read_errors.push((armed, repeat));
                }
            }
        }
    }
}

fn strikes(errors: &mut Vec<(Extent, Repeat)>, extent: &Extent) -> bool {
    let Some(index) = errors.iter().position(|(armed, _)| armed.overlaps(extent)) else { return false };
    if errors[index].1 == Repeat::Once {
        errors.remove(index);
    }
    true
}
