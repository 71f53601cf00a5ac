//! What a connection brings, frame by frame.
//!
//! Bytes are received into pooled memory, many small frames at a time. Headers and bodies are read there, and a short payload
//! of a request stays there. (That of an answer is copied: it can wait for long until a client takes it.) A long one gets a buffer of its own, and what is missing of it is received right where it belongs. After such a
//! one only little is received at first, because another one is likely to follow.

use std::cell::Cell;
use std::rc::Rc;

use spandrel_platform::{Buffer, Connection, Instant, LinkError, Platform, ReceiveBuffer};

use crate::frame::{HEADER_BYTES, Header, Malformed, malformed};

/// The room for frames before a session is agreed on.
const HELLO_BUFFER_BYTES: usize = 4 << 10;

/// The room for frames in a session. Grows for as long as a longer body is in it.
const BUFFER_BYTES: usize = 128 << 10;

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
    memory: ReceiveBuffer,
    /// Whether short payloads stay where they were received.
    shares_payloads: bool,
    /// Whether a long payload was received last.
    after_direct: bool,
    received_at: Instant,
    /// Set whenever anything comes.
    heard: Option<Rc<Cell<bool>>>,
}

impl<P: Platform> FrameReceiver<P> {
    pub(crate) fn new(platform: &P, connection: P::Connection) -> Self {
        Self {
            memory: ReceiveBuffer::new(platform.buffers(), HELLO_BUFFER_BYTES),
            connection,
            shares_payloads: false,
            after_direct: false,
            received_at: platform.now(),
            heard: None,
            platform: platform.clone(),
        }
    }

    /// Makes room for a session's traffic.
    pub(crate) fn widen(&mut self) {
        self.memory.resize(BUFFER_BYTES);
    }

    /// From now on short payloads stay where they were received: for those that are let go soon.
    pub(crate) fn share_payloads(&mut self) {
        self.shares_payloads = true;
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
        let bytes = self.memory.consume(HEADER_BYTES).first_chunk().expect("it is so long");
        Ok(Header::decode(bytes)?)
    }

    /// The body of the frame whose header was taken last.
    pub(crate) async fn body(&mut self, header: &Header) -> Result<&[u8], Ending> {
        self.fill(header.body_bytes).await?;
        let body = self.memory.consume(header.body_bytes);
        if !header.matches(body) {
            return Err(malformed("a body does not match its checksum").into());
        }
        Ok(body)
    }

    /// The payload of the frame whose body was taken last.
    pub(crate) async fn payload(&mut self, header: &Header) -> Result<Option<Buffer>, Ending> {
        let length = header.payload_bytes;
        if length == 0 {
            return Ok(None);
        }
        if length <= DIRECT_BYTES_MIN {
            self.fill(length).await?;
            let payload = match self.shares_payloads {
                true => self.memory.take(length),
                false => self.memory.copy(length),
            };
            return Ok(Some(payload));
        }
        let mut payload = self.platform.buffers().take(length);
        let mut filled = self.memory.move_into(&mut payload);
        while filled < payload.len() {
            if payload.len() - filled < DIRECT_BYTES_MIN {
                self.fill(1).await?;
                filled += self.memory.move_into(&mut payload[filled..]);
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
            let count = left.min(self.memory.held().len());
            self.memory.consume(count);
            left -= count;
        }
        Ok(())
    }

    /// Completes when at least `count` bytes are there.
    async fn fill(&mut self, count: usize) -> Result<(), Ending> {
        while self.memory.held().len() < count {
            let mut room = self.memory.room(count);
            if self.after_direct {
                // Behind a payload nothing else is there, so this is room.
                let length = room.len().min(BYTES_AFTER_DIRECT);
                room = &mut room[..length];
            }
            let received = self.connection.receive(room).await;
            let received = self.note(received)?;
            self.memory.received(received);
            self.after_direct = false;
        }
        Ok(())
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
