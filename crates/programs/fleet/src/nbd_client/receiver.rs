//! Takes replies off a connection: simple ones and structured ones, whole or in any pieces.
//!
//! [`Receiver::fill`] waits for bytes; [`Receiver::next`] then yields what they hold, one event after
//! the other, without waiting and without allocating. A read's data are shown where they were
//! received, so whoever does not want them does not pay for them.
//!
//! Invariants:
//! - A reply that names no request in flight, or a read that is answered with more or fewer bytes
//!   than it asked for, is a violation of the protocol and never an event.
//! - Whatever the server sends, the buffer keeps its size.

use spandrel_platform::Connection;

use super::error::NbdError;
use super::in_flight::{InFlight, Pending};
use super::protocol::Command;
use super::replies::{Front, FrontOfReply, parse_front};

/// The buffer of a connection. Large reads pass through it in pieces; what counts is that one call
/// takes in the answers to many small requests.
pub(super) const BUFFER_BYTES: usize = 256 << 10;

/// The receiving side of a connection.
pub(crate) struct Receiver<C> {
    connection: C,
    buffer: Vec<u8>,
    /// What of the buffer was received and not yet used.
    start: usize,
    end: usize,
    payload: Payload,
    /// The request whose reply is complete once the payload is.
    completes: Option<u64>,
}

/// What comes before the next front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payload {
    /// So many bytes that nobody wants.
    Skipped(u32),
    /// The data of a read.
    Data { cookie: u64, position: u32, left: u32 },
}

/// What was received.
pub(crate) enum Event<'buffer, T> {
    /// Part of what the read `cookie` asked for: `bytes`, `position` bytes behind its start.
    Data { cookie: u64, position: u32, bytes: &'buffer [u8] },
    /// Part of what the read `cookie` asked for, which is zeros.
    Zeros { cookie: u64, position: u32, length: u32 },
    /// The request is answered, with an error number if it failed.
    Done { pending: Pending<T>, error: Option<u32> },
}

impl<C: Connection> Receiver<C> {
    /// A receiver for a connection from which nothing has been received.
    pub(super) fn new(connection: C) -> Self {
        let payload = Payload::Skipped(0);
        Self { connection, buffer: vec![0; BUFFER_BYTES], start: 0, end: 0, payload, completes: None }
    }

    /// Waits for bytes.
    pub(crate) async fn fill(&mut self) -> Result<(), NbdError> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        assert!(self.end < self.buffer.len(), "what is left over is less than a front");
        let count = self.connection.receive(&mut self.buffer[self.end..]).await?;
        if count == 0 {
            return Err(NbdError::Closed);
        }
        self.end += count;
        Ok(())
    }

    /// The next `count` bytes, fewer than [`BUFFER_BYTES`]; waits until they are there.
    pub(super) async fn exactly(&mut self, count: usize) -> Result<&[u8], NbdError> {
        while self.end - self.start < count {
            self.fill().await?;
        }
        self.start += count;
        Ok(&self.buffer[self.start - count..self.start])
    }

    /// The next event in what was received; none if more must be received for it. After an error
    /// the receiver must not be used any more.
    pub(crate) fn next<T>(&mut self, in_flight: &mut InFlight<T>) -> Result<Option<Event<'_, T>>, NbdError> {
        loop {
            let there = self.end - self.start;
            match self.payload {
                Payload::Skipped(0) | Payload::Data { left: 0, .. } => {}
                _ if there == 0 => return Ok(None),
                Payload::Skipped(left) => {
                    self.payload = Payload::Skipped(left - self.take(left));
                    continue;
                }
                Payload::Data { cookie, position, left } => {
                    let from = self.start;
                    let taken = self.take(left);
                    self.payload = Payload::Data { cookie, position: position + taken, left: left - taken };
                    return Ok(Some(Event::Data { cookie, position, bytes: &self.buffer[from..self.start] }));
                }
            }
            if let Some(cookie) = self.completes.take() {
                return complete(in_flight, cookie).map(Some);
            }
            let Some(front) = parse_front(&self.buffer[self.start..self.end])? else { return Ok(None) };
            self.start += front.bytes;
            if let Some(zeros) = self.begin(in_flight, front)? {
                return Ok(Some(zeros));
            }
        }
    }

    /// Uses up to `count` of the bytes that are there, and returns how many.
    fn take(&mut self, count: u32) -> u32 {
        let taken = (count as usize).min(self.end - self.start);
        self.start += taken;
        // At most `count`, which has 32 bits.
        taken as u32
    }

    /// Takes in a front; the event, if it is one by itself.
    fn begin<T>(
        &mut self,
        in_flight: &mut InFlight<T>,
        front: FrontOfReply,
    ) -> Result<Option<Event<'static, T>>, NbdError> {
        let cookie = front.cookie;
        let pending = in_flight.get_mut(cookie).ok_or_else(|| unknown(cookie))?;
        self.payload = Payload::Skipped(0);
        self.completes = front.last.then_some(cookie);
        match front.front {
            Front::Simple { error: 0 } if pending.request.command == Command::Read => {
                let left = pending.request.length;
                pending.expect(0, left)?;
                self.payload = Payload::Data { cookie, position: 0, left };
            }
            Front::Simple { error: 0 } | Front::End => {}
            Front::Simple { error } => pending.error = Some(error),
            Front::Data { offset, length } => {
                let position = pending.position_of(offset, length)?;
                pending.expect(position, length)?;
                self.payload = Payload::Data { cookie, position, left: length };
            }
            Front::Hole { offset, length } => {
                let position = pending.position_of(offset, length)?;
                pending.expect(position, length)?;
                return Ok(Some(Event::Zeros { cookie, position, length }));
            }
            Front::Error { number, rest } => {
                pending.error = Some(number);
                self.payload = Payload::Skipped(rest);
            }
        }
        Ok(None)
    }
}

impl<T> Pending<T> {
    /// How far behind the start of the read the range begins.
    fn position_of(&self, offset: u64, length: u32) -> Result<u32, NbdError> {
        let position =
            offset.checked_sub(self.request.offset).and_then(|position| u32::try_from(position).ok());
        position.ok_or_else(|| self.outside(offset, length))
    }

    /// Counts data that are to come.
    fn expect(&mut self, position: u32, length: u32) -> Result<(), NbdError> {
        let asked = if self.request.command == Command::Read { self.request.length } else { 0 };
        let end = position.checked_add(length);
        let received = self.received_bytes.checked_add(length);
        match received {
            Some(received) if end.is_some_and(|end| end <= asked) && received <= asked => {
                self.received_bytes = received;
                Ok(())
            }
            _ => Err(self.outside(self.request.offset + u64::from(position), length)),
        }
    }

    fn outside(&self, offset: u64, length: u32) -> NbdError {
        let request = &self.request;
        NbdError::Protocol(format!(
            "a {} of {} bytes at byte {} is answered with {length} bytes at byte {offset}",
            request.command.name(),
            request.length,
            request.offset
        ))
    }
}

fn complete<T>(in_flight: &mut InFlight<T>, cookie: u64) -> Result<Event<'static, T>, NbdError> {
    let pending = in_flight.remove(cookie).ok_or_else(|| unknown(cookie))?;
    let request = &pending.request;
    let is_whole = request.command != Command::Read || pending.received_bytes == request.length;
    if pending.error.is_none() && !is_whole {
        return Err(pending.outside(request.offset, pending.received_bytes));
    }
    let error = pending.error;
    Ok(Event::Done { pending, error })
}

fn unknown(cookie: u64) -> NbdError {
    NbdError::Protocol(format!("a reply to a request that is not in flight (cookie {cookie:#x})"))
}

#[cfg(test)]
#[path = "receiver_tests.rs"]
mod tests;
