//! A drive: what can be read, written and flushed at an offset.
//!
//! What the store above relies on, and what the simulated drive is cruel about:
//! - A write is durable only when a flush that began after the write's completion has
//!   completed (or at once, where `volatile_cache` is false).
//! - Until then, a power cut may keep it, lose it, or tear it at a sector boundary,
//!   independently of every other unflushed write.
//! - Reads and writes that overlap in place and time have no order. The store never issues
//!   such.

use std::fmt;
use std::future::Future;

use crate::{Buffer, BufferMut};

/// A drive's fixed properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveGeometry {
    /// Bytes that can be addressed.
    pub size_bytes: u64,
    /// The unit that the drive writes as a whole: 512 or 4096.
    pub sector_bytes: u32,
    /// Whether completed writes need a flush to survive a power cut.
    pub volatile_cache: bool,
}

/// A drive that is open. Cheap to clone; all clones are the same drive.
pub trait Drive: Clone + 'static {
    /// The drive's fixed properties.
    fn geometry(&self) -> DriveGeometry;

    /// Fills `into` from `offset` on. Both are multiples of the sector size.
    fn read(&self, offset: u64, into: BufferMut) -> impl Future<Output = Result<BufferMut, DriveError>>;

    /// Writes `parts` one behind the other from `offset` on; all lengths are multiples of the
    /// sector size.
    fn write(&self, offset: u64, parts: Vec<Buffer>) -> impl Future<Output = Result<(), DriveError>>;

    /// Fills `into` from `offset` on before it returns, if the drive can do that without any waiting, as memory can, and has not done
    /// much of it in this turn already. Returns whether it did. If not, `into` may hold anything, and [`Drive::read`] reads it, or
    /// says why that fails.
    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> bool;

    /// Writes `part` at `offset` before it returns, if the drive takes it without any waiting, as memory does. Returns whether it
    /// did: such a write has completed. If not, any of it may have been written, and it is for [`Drive::write`] to write it, or to
    /// say why it fails.
    fn write_at_once(&self, offset: u64, part: &Buffer) -> bool;

    /// Makes every write that completed before this call durable.
    fn flush(&self) -> impl Future<Output = Result<(), DriveError>>;
}

/// What was asked of a drive when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveOperation {
    /// Opening it.
    Open,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Flushing.
    Flush,
}

/// How a drive failed, as far as the code above must tell it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveErrorKind {
    /// There is no such drive, or it may not be opened.
    Unavailable,
    /// Another process uses it.
    InUse,
    /// The file system that holds the drive's file has no room.
    NoRoom,
    /// Outside the drive, or not aligned to its sectors.
    OutOfRange,
    /// The medium or the path to it failed.
    Medium,
}

/// A drive's failure to do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveError {
    /// What the failure means to the code above.
    pub kind: DriveErrorKind,
    /// What was asked.
    pub operation: DriveOperation,
    /// Where on the drive, in bytes; zero for open and flush.
    pub offset: u64,
    /// The machine's own words.
    pub detail: String,
}

impl fmt::Display for DriveError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation {
            DriveOperation::Open => write!(formatter, "open failed: {}", self.detail),
            DriveOperation::Flush => write!(formatter, "flush failed: {}", self.detail),
            DriveOperation::Read => write!(formatter, "read at byte {} failed: {}", self.offset, self.detail),
            DriveOperation::Write => {
                write!(formatter, "write at byte {} failed: {}", self.offset, self.detail)
            }
        }
    }
}

impl std::error::Error for DriveError {}
