//! What a connection brings, frame by frame.
//!
//! Bytes are received into one pooled buffer, many small frames at a time. Headers and bodies are
//! read there; a payload is copied into a block-aligned buffer of its own, except that the missing
//! part of a long one is received right where it belongs. After such a one only little is received
//! at first, because another one is likely to follow.

use std::cell::Cell;
use std::rc::Rc;

use spandrel_platform::{Buffer, BufferMut, Connection, Instant, LinkError, Platform};

use crate::frame::{HEADER_BYTES, Header, Malformed, malformed};

/// The room for frames before a session is agreed on.
const HELLO_BUFFER_BYTES: usize = 4 << 10;

/// The room for frames in a session. Grows for as long as a longer body is in it.
const BUFFER_BYTES: usize = 256 << 10;

/// So much room is made before the connection is asked, if less is left.
const ROOM_BYTES_MIN: usize = 64 << 10;

/// A missing part of a payload at least this long is received where it belongs.
const DIRECT_BYTES_MIN: usize = 32 << 10;

/// How much is received for the next frame behind such a payload.
const BYTES_AFTER_DIRECT: usize = 16 << 10;

/// Why no more frames come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The other side closed the connection.
    Closed,
    /// The connection broke, or this side closed it.
    Broken(LinkError),
    /// The other side broke the protocol.
    Malformed(Malformed),
    /// Nothing comes any more, though the other side is there.
    Silent,
    /// The other side has no such session any more.
    Over,
    /// It was ended on purpose.
    Ended,
}

impl std::fmt::Display for Ending {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ending::Closed => formatter.write_str("the other side closed the connection"),
            Ending::Broken(error) => write!(formatter, "{error}"),
            Ending::Malformed(reason) => write!(formatter, "malformed: {reason}"),
            Ending::Silent => formatter.write_str("nothing comes any more"),
            Ending::Over => formatter.write_str("it is over on the other side"),
            Ending::Ended => formatter.write_str("it was ended"),
        }
    }
}

impl From<Malformed> for Ending {
    fn from(reason: Malformed) -> Self {
        Ending::Malformed(reason)
    }
}

/// The receiving side of a connection.
pub(crate) struct FrameReceiver<P: Platform> {
    platform: P,
    connection: P::Connection,
    memory: BufferMut,
    /// Received and not consumed: `memory[start..end]`.
    start: usize,
    end: usize,
    /// The usual size of the memory.
    usual_bytes: usize,
    /// Whether a long payload was received last.
    after_direct: bool,
    received_at: Instant,
    /// Set whenever anything comes.
    heard: Option<Rc<Cell<bool>>>,
}

impl<P: Platform> FrameReceiver<P> {
    pub(crate) fn new(platform: &P, connection: P::Connection) -> Self {
        Self {
            memory: platform.buffers().take(HELLO_BUFFER_BYTES),
            connection,
            start: 0,
            end: 0,
            usual_bytes: HELLO_BUFFER_BYTES,
            after_direct: false,
            received_at: platform.now(),
            heard: None,
            platform: platform.clone(),
        }
    }

    /// Makes room for a session's traffic.
    pub(crate) fn widen(&mut self) {
        self.usual_bytes = BUFFER_BYTES;
    }

    /// From now on `heard` is set whenever anything comes.
    pub(crate) fn tell(&mut self, heard: Rc<Cell<bool>>) {
        self.heard = Some(heard);
    }

    /// When the newest bytes were received.
    pub(crate) fn received_at(&self) -> Instant {
        self.received_at
    }

    /// The next frame's header. Body and payload must be taken before the next one.
    pub(crate) async fn header(&mut self) -> Result<Header, Ending> {
        self.fill(HEADER_BYTES).await?;
        let bytes = self.memory[self.start..].first_chunk().expect("so much was just received");
        let header = Header::decode(bytes)?;
        self.start += HEADER_BYTES;
        Ok(header)
    }

    /// The body of the frame whose header was taken last.
    pub(crate) async fn body(&mut self, header: &Header) -> Result<&[u8], Ending> {
        self.fill(header.body_bytes).await?;
        let range = self.start..self.start + header.body_bytes;
        self.start = range.end;
        let body = &self.memory[range];
        if !header.matches(body) {
            return Err(malformed("a body does not match its checksum").into());
        }
        Ok(body)
    }

    /// The payload of the frame whose body was taken last, in a block-aligned buffer of its own.
    pub(crate) async fn payload(&mut self, header: &Header) -> Result<Option<Buffer>, Ending> {
        if header.payload_bytes == 0 {
            return Ok(None);
        }
        let mut payload = self.platform.buffers().take(header.payload_bytes);
        let mut filled = self.move_into(&mut payload);
        while filled < payload.len() {
            if payload.len() - filled < DIRECT_BYTES_MIN {
                self.fill(1).await?;
                filled += self.move_into(&mut payload[filled..]);
                continue;
            }
            let received = self.connection.receive(&mut payload[filled..]).await;
            filled += self.note(received)?;
            self.after_direct = true;
        }
        Ok(Some(payload.freeze()))
    }

    /// Receives the payload of the frame whose body was taken last, and keeps nothing of it.
    pub(crate) async fn skip_payload(&mut self, header: &Header) -> Result<(), Ending> {
        let mut left = header.payload_bytes;
        while left > 0 {
            self.fill(1).await?;
            let count = left.min(self.end - self.start);
            self.start += count;
            left -= count;
        }
        Ok(())
    }

    fn move_into(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.end - self.start);
        into[..count].copy_from_slice(&self.memory[self.start..self.start + count]);
        self.start += count;
        count
    }

    /// Completes when at least `count` bytes are there.
    async fn fill(&mut self, count: usize) -> Result<(), Ending> {
        while self.end - self.start < count {
            self.make_room(count);
            let mut until = self.memory.len();
            if self.after_direct {
                // Behind a payload nothing else is there, so this is room.
                until = until.min(self.start + BYTES_AFTER_DIRECT);
            }
            let received = self.connection.receive(&mut self.memory[self.end..until]).await;
            self.end += self.note(received)?;
            self.after_direct = false;
        }
        Ok(())
    }

    /// Makes room behind what is there, so that `count` bytes fit in all.
    fn make_room(&mut self, count: usize) {
        let held = self.end - self.start;
        let needed = count.max(self.usual_bytes);
        if self.memory.len() < count || (self.memory.len() != needed && held <= needed) {
            let mut memory = self.platform.buffers().take(needed);
            memory[..held].copy_from_slice(&self.memory[self.start..self.end]);
            self.memory = memory;
        } else {
            let tight =
                self.start + count > self.memory.len() || self.memory.len() - self.end < ROOM_BYTES_MIN;
            if held != 0 && !(tight && self.start != 0) {
                return;
            }
            self.memory.copy_within(self.start..self.end, 0);
        }
        (self.start, self.end) = (0, held);
    }

    fn note(&mut self, received: Result<usize, LinkError>) -> Result<usize, Ending> {
        match received {
            Ok(0) => Err(Ending::Closed),
            Ok(count) => {
                self.received_at = self.platform.now();
                if let Some(heard) = &self.heard {
                    heard.set(true);
                }
                Ok(count)
            }
            Err(error) => Err(Ending::Broken(error)),
        }
    }
}

#[cfg(test)]
#[path = "receiver_tests.rs"]
mod tests;
