//! What a front-end sees of a volume: a block device, addressed in bytes.
//!
//! Every front-end (NBD today) speaks to these traits alone. Behind them stands either the
//! volume's owner on this node or the way to the owner on another one.
//!
//! What a caller may rely on:
//! - A write, trim or write-zeroes that was answered with `Ok` is on stable storage in every
//!   in-sync copy. There is nothing left for `flush` to do but to wait for nothing.
//! - An error answer to a change means "outcome unknown" unless its kind says that nothing
//!   changed.
//! - Requests that overlap and are in flight together have no order.

use std::fmt;
use std::future::Future;

use spandrel_platform::Buffer;

/// The sizes that a device accepts and prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// The device's size; a multiple of 4096.
    pub size_bytes: u64,
    /// Offsets and lengths are multiples of this: 512.
    pub request_bytes_min: u32,
    /// Requests that are multiples of this need no read before the write: 4096.
    pub request_bytes_preferred: u32,
    /// The longest read or write. Trims and zeroes may be as long as the device.
    pub request_bytes_max: u32,
    /// Whether changes are refused.
    pub read_only: bool,
}

/// A stretch of a device with one allocation state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How many bytes.
    pub length: u64,
    /// False where nothing is stored: reads as zeros.
    pub allocated: bool,
}

/// A volume as a front-end uses it. Cheap to clone; all clones are the same attachment, which
/// ends when the last one is dropped.
pub trait BlockDevice: Clone + 'static {
    /// The device's sizes, as they are now: a volume can grow.
    fn limits(&self) -> DeviceLimits;

    /// Reads `length` bytes from `offset` on; the parts, one behind the other, are exactly that.
    fn read(&self, offset: u64, length: u32) -> impl Future<Output = Result<Vec<Buffer>, DeviceError>>;

    /// Writes `data` from `offset` on.
    fn write(&self, offset: u64, data: Buffer) -> impl Future<Output = Result<(), DeviceError>>;

    /// Makes `length` bytes from `offset` on read as zeros, without giving their room back if
    /// `keep_allocated` and the volume knows that difference.
    fn write_zeroes(
        &self,
        offset: u64,
        length: u64,
        keep_allocated: bool,
    ) -> impl Future<Output = Result<(), DeviceError>>;

    /// Gives the room of `length` bytes from `offset` on back. They read as zeros afterwards,
    /// except for parts of blocks at either end, which keep their content.
    fn trim(&self, offset: u64, length: u64) -> impl Future<Output = Result<(), DeviceError>>;

    /// Completes when all changes that were answered before it are on stable storage.
    fn flush(&self) -> impl Future<Output = Result<(), DeviceError>>;

    /// The allocation of `length` bytes from `offset` on, in order. The extents cover the
    /// range from its start on but may end before its end.
    fn extents(&self, offset: u64, length: u64) -> impl Future<Output = Result<Vec<Extent>, DeviceError>>;
}

/// The volumes that a node exports.
pub trait Exports: Clone + 'static {
    /// What opening a volume gives.
    type Device: BlockDevice;

    /// The names of all volumes, sorted.
    fn names(&self) -> Vec<String>;

    /// Opens the volume `name`.
    fn open(&self, name: &str) -> impl Future<Output = Result<Self::Device, OpenError>>;
}

/// Why a volume was not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// Several threads of the process have a front-end each, and that of another one, with this number, has all clients of the
    /// volume. Opened here it would be taken from those.
    Elsewhere(usize),
    /// It cannot be opened.
    Failed(DeviceError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elsewhere(number) => write!(formatter, "thread {number} has its clients"),
            Self::Failed(error) => error.fmt(formatter),
        }
    }
}

impl From<DeviceError> for OpenError {
    fn from(error: DeviceError) -> Self {
        Self::Failed(error)
    }
}

/// What a failure means to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceErrorKind {
    /// There is no such volume.
    NotFound,
    /// Another front-end has the volume open for writing.
    Busy,
    /// The request is outside the device or not aligned. Nothing changed.
    Invalid,
    /// The device is read-only. Nothing changed.
    ReadOnly,
    /// The pool has no room. A change may have happened in part: where it is of several slabs, or was
    /// tried before by an owner that did not answer.
    NoRoom,
    /// The request failed; a change may have happened or not.
    Failed,
    /// The node is stopping; a change may have happened or not. Only said while the front-end's server is being stopped,
    /// which closes its connections: requests are not answered with it.
    Stopping,
}

/// A request's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError {
    /// What it means to the guest.
    pub kind: DeviceErrorKind,
    /// What happened, for the log and for protocols that carry text.
    pub detail: String,
}

impl DeviceError {
    /// An error of `kind` with its text.
    pub fn new(kind: DeviceErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.detail)
    }
}

impl std::error::Error for DeviceError {}
