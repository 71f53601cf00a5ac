//! What a client sends, as whole messages.
//!
//! Bytes are received into pooled memory, many small messages at a time, and the data of short writes stay there. Those of a
//! long write go straight into a buffer of their own, except for what came with its header; afterwards only a little is received
//! at first, because another long write is likely to follow and what comes before it is asked for must be copied.
//!
//! Receiving may be given up at any await while a message is awaited: what was received stays.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use spandrel_platform::{Buffer, BufferPool, Connection, LinkError, ReceiveBuffer};

use super::stop::StopListener;

/// The room for messages. The longest one that must be whole in it is an option.
const BUFFER_BYTES: usize = 128 << 10;

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
    memory: ReceiveBuffer,
    /// Whether long data were received last.
    after_direct: bool,
}

impl<C: Connection> Receiver<C> {
    pub(super) fn new(connection: C, stop: StopListener, pool: &BufferPool) -> Self {
        let memory = ReceiveBuffer::new(pool, BUFFER_BYTES);
        Self { connection, stop, memory, after_direct: false }
    }

    /// Begins with what was received before, elsewhere.
    pub(super) fn put_back(&mut self, bytes: &[u8]) {
        self.memory.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.memory.received(bytes.len());
    }

    /// What is received and not consumed.
    pub(super) fn received(&self) -> &[u8] {
        self.memory.held()
    }

    /// Goes on behind the first `count` bytes of what is received.
    pub(super) fn consume(&mut self, count: usize) {
        self.memory.consume(count);
    }

    /// Completes when at least `count` bytes are received. Ends when the server stops before they are there.
    pub(super) async fn fill(&mut self, count: usize) -> Result<(), Ending> {
        assert!(count <= BUFFER_BYTES, "a message of {count} bytes is never received whole");
        while self.received().len() < count {
            self.receive(count, true).await?;
        }
        Ok(())
    }

    /// The next `length` bytes.
    pub(super) async fn take(&mut self, length: usize, pool: &BufferPool) -> Result<Buffer, Ending> {
        if length <= DIRECT_BYTES_MIN {
            while self.received().len() < length {
                self.receive(length, false).await?;
            }
            return Ok(self.memory.take(length));
        }
        let mut data = pool.take(length);
        let mut filled = self.memory.move_into(&mut data);
        while filled < length {
            if length - filled < DIRECT_BYTES_MIN {
                self.receive(1, false).await?;
                filled += self.memory.move_into(&mut data[filled..]);
                continue;
            }
            let rest = &mut data[filled..];
            filled += receive_some(&self.connection, None, rest).await?;
            self.after_direct = true;
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
            self.receive(1, false).await?;
        }
    }

    /// Receives something behind what is held, which is to become `count` bytes at least.
    async fn receive(&mut self, count: usize, heed_stop: bool) -> Result<(), Ending> {
        let stop = heed_stop.then_some(&self.stop);
        let mut room = self.memory.room(count);
        if self.after_direct {
            // Behind such data nothing is held, so this is room.
            room = &mut room[..BUFFER_BYTES_AFTER_DIRECT];
        }
        let received = receive_some(&self.connection, stop, room).await?;
        self.memory.received(received);
        self.after_direct = false;
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
