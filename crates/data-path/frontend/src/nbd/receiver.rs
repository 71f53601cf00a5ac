//! What a client sends, as whole messages.
//!
//! Bytes are received into one buffer per connection, many small messages at a time. The data of
//! a long write go straight into the write's own block-aligned buffer, except for what came with
//! its header; afterwards only a little is received at first, because another long write is
//! likely to follow and what lands in the buffer must be copied.
//!
//! Receiving may be given up at any await: what was received stays in the buffer.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use spandrel_platform::{Buffer, BufferMut, BufferPool, Connection, LinkError};

use super::stop::StopListener;

/// The room for messages. The longest one that must be whole in it is an option.
const BUFFER_BYTES: usize = 256 << 10;

/// Missing data of a write of at least this many bytes are received where they belong.
const DIRECT_BYTES_MIN: usize = 32 << 10;

/// How much is received for the next header behind data that were received where they belong.
const BUFFER_BYTES_AFTER_DIRECT: usize = 16 << 10;

/// Why no more messages come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The client said that it goes.
    Disconnected,
    /// The connection ended without a word.
    Closed,
    /// The connection broke.
    Broken(LinkError),
    /// This server stops.
    Stopping,
    /// The client broke the protocol in a way that leaves only closing.
    Violation(String),
}

/// The receiving side of a connection.
pub(super) struct Receiver<C> {
    connection: C,
    stop: StopListener,
    memory: BufferMut,
    /// Received and not yet consumed: `memory[start..end]`.
    start: usize,
    end: usize,
    /// How far `memory` is used.
    limit: usize,
}

impl<C: Connection> Receiver<C> {
    pub(super) fn new(connection: C, stop: StopListener, pool: &BufferPool) -> Self {
        let memory = pool.take(BUFFER_BYTES);
        Self { connection, stop, memory, start: 0, end: 0, limit: BUFFER_BYTES }
    }

    /// What is received and not consumed.
    pub(super) fn received(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Goes on behind the first `count` bytes of what is received.
    pub(super) fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "consumed more than was received");
        self.start += count;
    }

    /// Completes when at least `count` bytes are received. Ends when the server stops before they are there.
    pub(super) async fn fill(&mut self, count: usize) -> Result<(), Ending> {
        assert!(count <= BUFFER_BYTES, "a message of {count} bytes is never received whole");
        while self.received().len() < count {
            self.receive(true).await?;
        }
        Ok(())
    }

    /// The next `length` bytes, in a block-aligned buffer of their own.
    pub(super) async fn take(&mut self, length: usize, pool: &BufferPool) -> Result<Buffer, Ending> {
        let mut data = pool.take(length);
        let mut filled = self.move_into(&mut data);
        while filled < length {
            if length - filled < DIRECT_BYTES_MIN {
                self.receive(false).await?;
                filled += self.move_into(&mut data[filled..]);
                continue;
            }
            let rest = &mut data[filled..];
            filled += receive_some(&self.connection, None, rest).await?;
            self.limit = BUFFER_BYTES_AFTER_DIRECT;
        }
        Ok(data.freeze())
    }

    /// Lets the next `length` bytes go by.
    pub(super) async fn discard(&mut self, length: u64) -> Result<(), Ending> {
        let mut left = length;
        loop {
            let count = self.received().len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.consume(count);
            left -= count as u64;
            if left == 0 {
                return Ok(());
            }
            self.receive(false).await?;
        }
    }

    fn move_into(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.end - self.start);
        into[..count].copy_from_slice(&self.received()[..count]);
        self.consume(count);
        count
    }

    /// Receives something behind what is held.
    async fn receive(&mut self, heed_stop: bool) -> Result<(), Ending> {
        let held = self.end - self.start;
        if self.start != 0 {
            self.memory.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, held);
        }
        let stop = heed_stop.then_some(&self.stop);
        // Never empty: the limit is lowered only when nothing is held.
        let into = &mut self.memory[held..self.limit];
        let received = receive_some(&self.connection, stop, into).await?;
        self.end += received;
        self.limit = BUFFER_BYTES;
        Ok(())
    }
}

/// Receives at least one byte, or ends when `stop` is given and raised.
async fn receive_some(
    connection: &impl Connection,
    stop: Option<&StopListener>,
    into: &mut [u8],
) -> Result<usize, Ending> {
    let mut receive = pin!(connection.receive(into));
    let received = poll_fn(|context| {
        if stop.is_some_and(|stop| stop.poll_stopped(context).is_ready()) {
            return Poll::Ready(Err(Ending::Stopping));
        }
        receive.as_mut().poll(context).map_err(Ending::Broken)
    });
    match received.await? {
        0 => Err(Ending::Closed),
        count => Ok(count),
    }
}

#[cfg(test)]
#[path = "receiver_tests.rs"]
mod tests;
