//! One client's requests to one volume: checks them, does them, answers them.
//!
//! Invariants:
//! - Every request that gets past [`Session::check`] is within the device, aligned and short
//!   enough, so that the device never sees what it could not do.
//! - Every request is answered exactly once, a change not before the device has answered it, unless the device says
//!   that its node stops: then the server closes the connection, and the client can ask again elsewhere, or later.
//!   The device answers only what is on stable storage, so FUA asks for nothing more.

use std::rc::Rc;

use spandrel_platform::{Buffer, Connection, Workers};
use spandrel_volume::{BlockDevice, DeviceError, DeviceErrorKind, DeviceLimits, Extent};

use super::holes::{self, HOLE_BYTES_MIN};
use super::protocol::{
    Command, ErrorNumber, RequestHeader, STATE_HOLE, STATE_ZERO, command_flags, data_chunk, error_chunk,
    hole_chunk, none_chunk, simple_reply, status_chunk,
};
use crate::in_flight::Admission;
use crate::statistics::Counters;

/// The most stretches in one answer to a block status. A client asks again for the rest.
const DESCRIPTORS_MAX: usize = 8192;

/// A client that is attached to a volume.
pub(super) struct Session<C, D> {
    pub(super) connection: C,
    pub(super) device: D,
    /// Whether the client understands replies in chunks.
    pub(super) structured: bool,
    /// Whether the client may ask for the allocation.
    pub(super) allocation_context: bool,
    /// The longest read or write that was announced.
    pub(super) request_bytes_max: u32,
    pub(super) workers: Workers<Job>,
    pub(super) counters: Counters,
}

/// A request that passed all checks, with its place among those in flight.
pub(super) struct Job {
    pub(super) header: RequestHeader,
    /// A write's data; empty for everything else.
    pub(super) data: Option<Buffer>,
    pub(super) admission: Admission,
}

/// Why a request is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) error: ErrorNumber,
    pub(super) reason: &'static str,
}

impl Refusal {
    const fn new(error: ErrorNumber, reason: &'static str) -> Self {
        Self { error, reason }
    }
}

impl<C: Connection, D: BlockDevice> Session<C, D> {
    /// Whether `header` asks for something that can be done.
    pub(super) fn check(&self, header: &RequestHeader) -> Result<(), Refusal> {
        if header.flags & !self.allowed_flags(header.command) != 0 {
            return Err(Refusal::new(ErrorNumber::Invalid, "a flag is not valid for this command"));
        }
        match header.command {
            Command::Flush | Command::Disconnect => return Ok(()),
            Command::Unknown(_) => return Err(Refusal::new(ErrorNumber::Invalid, "unknown command")),
            Command::BlockStatus if !self.allocation_context => {
                return Err(Refusal::new(ErrorNumber::Invalid, "no metadata context was selected"));
            }
            Command::BlockStatus if header.length == 0 => {
                return Err(Refusal::new(ErrorNumber::Invalid, "the length is zero"));
            }
            _ => {}
        }
        let limits = self.device.limits();
        if header.command.is_change() && limits.read_only {
            return Err(Refusal::new(ErrorNumber::NotPermitted, "the volume is read-only"));
        }
        check_range(header, &limits)?;
        self.check_length(header, &limits)
    }

    fn allowed_flags(&self, command: Command) -> u16 {
        let own = match command {
            Command::Read if self.structured => command_flags::DONT_FRAGMENT,
            Command::WriteZeroes => command_flags::NO_HOLE | command_flags::FAST_ZERO,
            Command::BlockStatus => command_flags::REQUEST_ONE,
            _ => 0,
        };
        own | command_flags::FUA
    }

    fn check_length(&self, header: &RequestHeader, limits: &DeviceLimits) -> Result<(), Refusal> {
        let too_long = header.length > self.request_bytes_max;
        match header.command {
            Command::Read if too_long && header.flags & command_flags::DONT_FRAGMENT != 0 => {
                Err(Refusal::new(ErrorNumber::Overflow, "longer than the maximum block size"))
            }
            Command::Read | Command::Write if too_long => {
                Err(Refusal::new(ErrorNumber::Invalid, "longer than the maximum block size"))
            }
            Command::WriteZeroes if header.flags & command_flags::FAST_ZERO != 0 => {
                // Whole blocks only change the map. Parts of blocks are read, changed and written.
                let block = u64::from(limits.request_bytes_preferred);
                let end = header.offset + u64::from(header.length);
                let has_whole_block = header.offset.next_multiple_of(block) < end / block * block;
                if has_whole_block || header.length == 0 {
                    return Ok(());
                }
                Err(Refusal::new(ErrorNumber::NotSupported, "zeros in parts of a block are as slow as data"))
            }
            _ => Ok(()),
        }
    }

    /// Answers a request that is not done.
    pub(super) fn refuse(&self, header: &RequestHeader, refusal: Refusal) {
        self.counters.count(|statistics| statistics.requests_refused += 1);
        self.answer_error(header.cookie, refusal.error, refusal.reason);
    }

    /// Answers a request with success and without data.
    pub(super) fn answer_done(&self, header: &RequestHeader) {
        if self.structured && header.command == Command::Read {
            self.connection.send(&none_chunk(header.cookie), &[]);
        } else {
            self.connection.send(&simple_reply(header.cookie, None), &[]);
        }
    }

    fn answer_error(&self, cookie: u64, error: ErrorNumber, message: &str) {
        if self.structured {
            self.connection.send(&error_chunk(cookie, error, message), &[]);
        } else {
            self.connection.send(&simple_reply(cookie, Some(error)), &[]);
        }
    }

    /// Does jobs until there will be no more.
    pub(super) async fn work(self: Rc<Self>) {
        while let Some(job) = self.workers.next().await {
            self.execute(&job.header, job.data).await;
            drop(job.admission);
            self.counters.count(|statistics| statistics.requests_in_flight -= 1);
        }
    }

    async fn execute(&self, header: &RequestHeader, data: Option<Buffer>) {
        let result = match header.command {
            Command::Read => self.read(header).await,
            Command::Write => self.write(header, data).await,
            Command::Flush => self.flush(header).await,
            Command::Trim => self.trim(header).await,
            Command::WriteZeroes => self.write_zeroes(header).await,
            Command::BlockStatus => self.block_status(header).await,
            Command::Disconnect | Command::Unknown(_) => unreachable!("never handed to a worker"),
        };
        if let Err(error) = result {
            tracing::debug!(?header, %error, "request failed");
            self.counters.count(|statistics| statistics.requests_failed += 1);
            if let Some(number) = error_number(error.kind) {
                self.answer_error(header.cookie, number, &error.detail);
            }
        }
    }

    async fn read(&self, header: &RequestHeader) -> Result<(), DeviceError> {
        let parts = self.device.read(header.offset, header.length).await?;
        let received = parts.iter().map(|part| part.len()).sum::<usize>();
        assert_eq!(received, header.length as usize, "a device reads exactly what it is asked for");
        self.counters.count(|statistics| {
            statistics.reads += 1;
            statistics.read_bytes += u64::from(header.length);
        });
        if !self.structured {
            self.connection.send(&simple_reply(header.cookie, None), &parts);
        } else if holes::are_zeros(&parts) {
            self.connection.send(&hole_chunk(header.cookie, true, header.offset, header.length), &[]);
        } else if header.flags & command_flags::DONT_FRAGMENT != 0 || received < 2 * HOLE_BYTES_MIN {
            self.connection.send(&data_chunk(header.cookie, true, header.offset, header.length), &parts);
        } else {
            self.send_stretches(header, &parts);
        }
        Ok(())
    }

    fn send_stretches(&self, header: &RequestHeader, parts: &[Buffer]) {
        let stretches = holes::find_stretches(parts);
        for (index, stretch) in stretches.iter().enumerate() {
            let last = index + 1 == stretches.len();
            let offset = header.offset + stretch.range.start as u64;
            // Not longer than the request, whose length is 32 bits.
            let length = stretch.range.len() as u32;
            if stretch.hole {
                self.connection.send(&hole_chunk(header.cookie, last, offset, length), &[]);
            } else if stretch.range.len() == header.length as usize {
                self.connection.send(&data_chunk(header.cookie, last, offset, length), parts);
            } else {
                let data = holes::cut(parts, stretch.range.clone());
                self.connection.send(&data_chunk(header.cookie, last, offset, length), &data);
            }
        }
    }

    async fn write(&self, header: &RequestHeader, data: Option<Buffer>) -> Result<(), DeviceError> {
        let data = data.expect("a write is handed to a worker with its data");
        self.device.write(header.offset, data).await?;
        self.counters.count(|statistics| {
            statistics.writes += 1;
            statistics.written_bytes += u64::from(header.length);
        });
        self.answer_done(header);
        Ok(())
    }

    async fn flush(&self, header: &RequestHeader) -> Result<(), DeviceError> {
        self.device.flush().await?;
        self.counters.count(|statistics| statistics.flushes += 1);
        self.answer_done(header);
        Ok(())
    }

    async fn trim(&self, header: &RequestHeader) -> Result<(), DeviceError> {
        self.device.trim(header.offset, u64::from(header.length)).await?;
        self.counters.count(|statistics| statistics.trims += 1);
        self.answer_done(header);
        Ok(())
    }

    async fn write_zeroes(&self, header: &RequestHeader) -> Result<(), DeviceError> {
        let keep_allocated = header.flags & command_flags::NO_HOLE != 0;
        self.device.write_zeroes(header.offset, u64::from(header.length), keep_allocated).await?;
        self.counters.count(|statistics| statistics.write_zeroes += 1);
        self.answer_done(header);
        Ok(())
    }

    async fn block_status(&self, header: &RequestHeader) -> Result<(), DeviceError> {
        let extents = self.device.extents(header.offset, u64::from(header.length)).await?;
        let one = header.flags & command_flags::REQUEST_ONE != 0;
        let descriptors = describe(&extents, header.length, if one { 1 } else { DESCRIPTORS_MAX });
        self.counters.count(|statistics| statistics.block_statuses += 1);
        self.connection.send(&status_chunk(header.cookie, &descriptors), &[]);
        Ok(())
    }
}

fn check_range(header: &RequestHeader, limits: &DeviceLimits) -> Result<(), Refusal> {
    let end = header.offset.checked_add(u64::from(header.length));
    if end.is_none_or(|end| end > limits.size_bytes) {
        let error = match header.command {
            Command::Write | Command::WriteZeroes => ErrorNumber::NoSpace,
            _ => ErrorNumber::Invalid,
        };
        return Err(Refusal::new(error, "beyond the end of the volume"));
    }
    let unit = limits.request_bytes_min;
    if !header.offset.is_multiple_of(u64::from(unit)) || !header.length.is_multiple_of(unit) {
        return Err(Refusal::new(ErrorNumber::Invalid, "not a multiple of the minimum block size"));
    }
    Ok(())
}

/// Lengths and states that cover `length` bytes at most: neighbours that are alike as one, and
/// not more than `count_max`.
fn describe(extents: &[Extent], length: u32, count_max: usize) -> Vec<(u32, u32)> {
    let mut descriptors: Vec<(u32, u32)> = Vec::new();
    let mut left = length;
    for extent in extents.iter().filter(|extent| extent.length != 0) {
        let covered = u32::try_from(extent.length).map_or(left, |length| length.min(left));
        let state = if extent.allocated { 0 } else { STATE_HOLE | STATE_ZERO };
        let full = descriptors.len() == count_max;
        match descriptors.last_mut() {
            Some((last_length, last_state)) if *last_state == state => *last_length += covered,
            _ if full => break,
            _ => descriptors.push((covered, state)),
        }
        left -= covered;
        if left == 0 {
            break;
        }
    }
    if descriptors.is_empty() {
        // The protocol demands one, and "allocated" is always a safe thing to say.
        descriptors.push((length, 0));
    }
    descriptors
}

/// What a client is told; nothing if it is not answered.
fn error_number(kind: DeviceErrorKind) -> Option<ErrorNumber> {
    match kind {
        DeviceErrorKind::Invalid => Some(ErrorNumber::Invalid),
        DeviceErrorKind::ReadOnly | DeviceErrorKind::Busy => Some(ErrorNumber::NotPermitted),
        DeviceErrorKind::NoRoom => Some(ErrorNumber::NoSpace),
        DeviceErrorKind::NotFound | DeviceErrorKind::Failed => Some(ErrorNumber::InputOutput),
        DeviceErrorKind::Stopping => None,
    }
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
