//! What a request asks for, whether it can be done, and doing it.
//!
//! A request begins with 16 bytes that say what is asked for and where; behind them stands what is to be written. The last byte of
//! what the guest wants to be told is for the outcome.
//!
//! Invariants:
//! - The device is asked for nothing that it could not do.
//! - Of a long request one piece at a time has memory here.

use spandrel_platform::Platform;
use spandrel_volume::{BlockDevice, DeviceError, DeviceErrorKind, DeviceLimits};
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH,
    VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
    VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
};
use vm_memory::GuestMemory;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::chain::{Chain, NoMemory};
use super::config::{RANGES_MAX, SECTOR_BYTES};

/// How much is read or written at a time: the largest that buffers are kept for.
const PIECE_BYTES_MAX: u32 = 1 << 20;

/// The length of what a guest wants to be told when it asks who its disk is.
pub const SERIAL_BYTES: usize = 20;

/// With what a request begins.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Header {
    kind: U32,
    reserved: U32,
    sector: U64,
}

const HEADER_BYTES: u64 = size_of::<Header>() as u64;

/// A stretch to be discarded, or to become zeros.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone)]
#[repr(C)]
struct RangeRecord {
    sector: U64,
    sectors: U32,
    flags: U32,
}

const RANGE_BYTES: u64 = size_of::<RangeRecord>() as u64;

/// How a request has ended, in virtio's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Done = VIRTIO_BLK_S_OK as u8,
    Failed = VIRTIO_BLK_S_IOERR as u8,
    Unsupported = VIRTIO_BLK_S_UNSUPP as u8,
}

/// Why a request is not answered with success.
#[derive(Debug)]
pub(super) enum Failure {
    /// It asks for what cannot be done.
    Refused(Status, &'static str),
    Device(DeviceError),
}

impl Failure {
    const fn failed(reason: &'static str) -> Self {
        Self::Refused(Status::Failed, reason)
    }

    /// What the guest is told; nothing if it is not answered, as its node stops and another one will do it.
    pub(super) fn status(&self) -> Option<Status> {
        match self {
            Self::Refused(status, _) => Some(*status),
            Self::Device(error) if error.kind == DeviceErrorKind::Stopping => None,
            Self::Device(_) => Some(Status::Failed),
        }
    }
}

impl From<NoMemory> for Failure {
    fn from(_: NoMemory) -> Self {
        Self::failed("it names memory that the guest does not have")
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Read { offset: u64, bytes: u64 },
    Write { offset: u64, bytes: u64 },
    Flush,
    Serial,
    Discard(Vec<Range>),
    Zeroes(Vec<Range>),
}

/// A stretch of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    offset: u64,
    bytes: u64,
    may_unmap: bool,
}

/// A request of a guest.
pub(super) struct Request {
    chain: Chain,
}

impl Request {
    /// The request in this memory. None if there is no room to say how it has ended.
    pub(super) fn new(chain: Chain) -> Option<Self> {
        (chain.writable.bytes() > 0).then_some(Self { chain })
    }

    /// The memory that it takes at a time, in bytes.
    pub(super) fn bytes_at_a_time(&self) -> u64 {
        self.chain.readable.bytes().max(self.chain.writable.bytes()).min(u64::from(PIECE_BYTES_MAX))
    }

    /// Where the outcome is told.
    fn status_offset(&self) -> u64 {
        self.chain.writable.bytes() - 1
    }

    /// Says how it has ended. How many bytes the guest was told in all.
    pub(super) fn conclude<M: GuestMemory>(&self, memory: &M, status: Status) -> Result<u32, NoMemory> {
        self.chain.writable.write(memory, self.status_offset(), &[status as u8])?;
        Ok(u32::try_from(self.chain.writable.bytes()).unwrap_or(u32::MAX))
    }

    /// Does it. When this returns without an error, what was changed is on stable storage, and what was read stands where the guest
    /// wanted it.
    pub(super) async fn perform<P: Platform, D: BlockDevice, M: GuestMemory>(
        &self,
        platform: &P,
        device: &D,
        memory: &M,
        serial: &[u8; SERIAL_BYTES],
    ) -> Result<(), Failure> {
        let limits = device.limits();
        match self.asked(memory, &limits)? {
            Asked::Read { offset, bytes } => self.read(device, memory, offset, bytes).await?,
            Asked::Write { offset, bytes } => self.write(platform, device, memory, offset, bytes).await?,
            Asked::Flush => device.flush().await?,
            Asked::Serial => {
                let room = serial.len().min(usize::try_from(self.status_offset()).unwrap_or(usize::MAX));
                self.chain.writable.write(memory, 0, &serial[..room])?;
            }
            Asked::Discard(ranges) => {
                for range in ranges {
                    device.trim(range.offset, range.bytes).await?;
                }
            }
            Asked::Zeroes(ranges) => {
                for range in ranges {
                    device.write_zeroes(range.offset, range.bytes, !range.may_unmap).await?;
                }
            }
        }
        Ok(())
    }

    fn asked<M: GuestMemory>(&self, memory: &M, limits: &DeviceLimits) -> Result<Asked, Failure> {
        let mut header = Header::new_zeroed();
        self.chain.readable.read(memory, 0, header.as_mut_bytes())?;
        let data_bytes = self.chain.readable.bytes() - HEADER_BYTES;
        let at_sector = |bytes| range_at(header.sector.get(), bytes, limits);
        let asked = match header.kind.get() {
            VIRTIO_BLK_T_IN => {
                let bytes = self.status_offset();
                Asked::Read { offset: at_sector(bytes)?, bytes }
            }
            VIRTIO_BLK_T_OUT => Asked::Write { offset: at_sector(data_bytes)?, bytes: data_bytes },
            VIRTIO_BLK_T_FLUSH => Asked::Flush,
            VIRTIO_BLK_T_GET_ID => Asked::Serial,
            VIRTIO_BLK_T_DISCARD => Asked::Discard(self.ranges(memory, data_bytes, limits)?),
            VIRTIO_BLK_T_WRITE_ZEROES => Asked::Zeroes(self.ranges(memory, data_bytes, limits)?),
            _ => return Err(Failure::Refused(Status::Unsupported, "it asks for what no such disk can do")),
        };
        let is_change = !matches!(asked, Asked::Read { .. } | Asked::Flush | Asked::Serial);
        if is_change && limits.read_only {
            return Err(Failure::failed("the disk is read-only"));
        }
        Ok(asked)
    }

    fn ranges<M: GuestMemory>(
        &self,
        memory: &M,
        data_bytes: u64,
        limits: &DeviceLimits,
    ) -> Result<Vec<Range>, Failure> {
        let count = data_bytes / RANGE_BYTES;
        if count == 0 || count > u64::from(RANGES_MAX) || !data_bytes.is_multiple_of(RANGE_BYTES) {
            return Err(Failure::failed("it names no stretches, or too many"));
        }
        let range = |number: u64| {
            let mut record = RangeRecord::new_zeroed();
            self.chain.readable.read(memory, HEADER_BYTES + number * RANGE_BYTES, record.as_mut_bytes())?;
            let bytes = u64::from(record.sectors.get()) * SECTOR_BYTES;
            let offset = range_at(record.sector.get(), bytes, limits)?;
            let may_unmap = record.flags.get() & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0;
            Ok(Range { offset, bytes, may_unmap })
        };
        // All of them are looked at before anything is done.
        let ranges: Result<Vec<_>, Failure> = (0..count).map(range).collect();
        ranges.map(|ranges| ranges.into_iter().filter(|range| range.bytes > 0).collect())
    }

    async fn read<D: BlockDevice, M: GuestMemory>(
        &self,
        device: &D,
        memory: &M,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Failure> {
        let mut done = 0;
        while done < bytes {
            let length = piece_bytes(bytes - done, &device.limits());
            for part in device.read(offset + done, length).await? {
                self.chain.writable.write(memory, done, &part)?;
                done += part.len() as u64;
            }
        }
        Ok(())
    }

    async fn write<P: Platform, D: BlockDevice, M: GuestMemory>(
        &self,
        platform: &P,
        device: &D,
        memory: &M,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Failure> {
        let mut done = 0;
        while done < bytes {
            let length = piece_bytes(bytes - done, &device.limits());
            let mut data = platform.buffers().take(length as usize);
            self.chain.readable.read(memory, HEADER_BYTES + done, &mut data)?;
            device.write(offset + done, data.freeze()).await?;
            done += u64::from(length);
        }
        Ok(())
    }
}

/// How much of what is left is done next.
fn piece_bytes(left: u64, limits: &DeviceLimits) -> u32 {
    let longest = PIECE_BYTES_MAX.min(limits.request_bytes_max);
    u32::try_from(left).map_or(longest, |left| left.min(longest))
}

/// Where the stretch of `bytes` from `sector` on begins, if it is within the disk and in units that the disk has.
fn range_at(sector: u64, bytes: u64, limits: &DeviceLimits) -> Result<u64, Failure> {
    let unit = u64::from(limits.request_bytes_min);
    let offset = sector.checked_mul(SECTOR_BYTES);
    let end = offset.and_then(|offset| offset.checked_add(bytes));
    match (offset, end) {
        (Some(offset), Some(end)) if end <= limits.size_bytes => {
            if offset.is_multiple_of(unit) && bytes.is_multiple_of(unit) {
                Ok(offset)
            } else {
                Err(Failure::failed("it is no multiple of the disk's blocks"))
            }
        }
        _ => Err(Failure::failed("it is beyond the end of the disk")),
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
