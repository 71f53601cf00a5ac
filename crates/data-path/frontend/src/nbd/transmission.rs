//! The phase in which a client uses its volume: one task takes the requests off the connection
//! and hands each to a worker; the workers answer in whatever order they finish.
//!
//! What bounds a client:
//! - Requests and bytes in flight: past the bound nothing more is received until one ends.
//! - Replies that it does not take: past the bound nothing more is received until it takes them.
//! - A write that is refused has its data skipped, unless there are so many that closing the
//!   connection is the only sensible answer.
//!
//! Memory for a write's data is taken after the write has been checked and admitted.

use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use spandrel_platform::{Buffer, Connection, Platform, before};
use spandrel_volume::BlockDevice;

use super::NbdConfig;
use super::protocol::{Command, RequestHeader};
use super::receiver::{Ending, Receiver};
use super::requests::{Job, Refusal, Session};
use crate::in_flight::InFlight;

/// The reading side of a client's use of its volume.
pub(super) struct Transmission<P: Platform, D> {
    platform: P,
    config: NbdConfig,
    receiver: Receiver<P::Connection>,
    session: Rc<Session<P::Connection, D>>,
    in_flight: Rc<InFlight>,
}

impl<P: Platform, D: BlockDevice> Transmission<P, D> {
    pub(super) fn new(
        platform: P,
        config: NbdConfig,
        receiver: Receiver<P::Connection>,
        session: Session<P::Connection, D>,
    ) -> Self {
        let in_flight = InFlight::new(config.requests_in_flight_max, config.bytes_in_flight_max);
        Self { platform, config, receiver, session: Rc::new(session), in_flight }
    }

    /// Serves requests until the client goes or the server stops; closes the connection, and
    /// completes when nothing of it is in flight any more.
    pub(super) async fn run(mut self) -> Ending {
        let ending = match self.serve().await {
            Ok(never) => match never {},
            Err(ending) => ending,
        };
        match ending {
            // What a client asks for while its server stops is not refused: a guest would take that for a broken disk.
            // A connection that ends has it ask again, of the next server.
            Ending::Disconnected | Ending::Stopping => {
                self.drained_unheard().await;
                self.send_rest().await;
            }
            Ending::Closed | Ending::Broken(_) | Ending::Violation(_) => {}
        }
        self.session.connection.close();
        self.in_flight.drained().await;
        ending
    }

    async fn serve(&mut self) -> Result<std::convert::Infallible, Ending> {
        loop {
            self.receiver.fill(RequestHeader::BYTES).await?;
            let header = self.next_header()?;
            if header.command == Command::Disconnect {
                return Err(Ending::Disconnected);
            }
            self.await_reader().await?;
            match self.session.check(&header) {
                Ok(()) => self.hand_over(header).await?,
                Err(refusal) => self.refuse(&header, refusal).await?,
            }
        }
    }

    fn next_header(&mut self) -> Result<RequestHeader, Ending> {
        let header = RequestHeader::parse(self.receiver.received()).map_err(|found| {
            Ending::Violation(format!("a request begins with {found:#010x} instead of the magic number"))
        })?;
        self.receiver.consume(RequestHeader::BYTES);
        Ok(header)
    }

    /// Waits until the client has taken enough of what it was sent.
    async fn await_reader(&self) -> Result<(), Ending> {
        let (connection, limit) = (&self.session.connection, self.config.send_queue_bytes_max);
        if connection.queued_bytes() < limit {
            return Ok(());
        }
        self.session.counters.count(|statistics| statistics.pauses_for_replies += 1);
        connection.send_room(limit).await.map_err(Ending::Broken)
    }

    async fn hand_over(&mut self, header: RequestHeader) -> Result<(), Ending> {
        let has_range = !matches!(header.command, Command::Flush);
        if has_range && header.length == 0 {
            self.session.answer_done(&header);
            return Ok(());
        }
        let data_bytes = match header.command {
            Command::Read | Command::Write => u64::from(header.length),
            _ => 0,
        };
        let admission = match self.in_flight.try_admit(data_bytes) {
            Some(admission) => admission,
            None => {
                self.session.counters.count(|statistics| statistics.pauses_for_requests += 1);
                self.in_flight.admit(data_bytes).await
            }
        };
        let data = self.take_data(&header).await?;
        self.session.counters.count(|statistics| statistics.requests_in_flight += 1);
        if self.session.workers.give(Job { header, data, admission }) {
            self.platform.spawn(Rc::clone(&self.session).work());
        }
        Ok(())
    }

    async fn take_data(&mut self, header: &RequestHeader) -> Result<Option<Buffer>, Ending> {
        if header.command != Command::Write {
            return Ok(None);
        }
        self.receiver.take(header.length as usize, self.platform.buffers()).await.map(Some)
    }

    async fn refuse(&mut self, header: &RequestHeader, refusal: Refusal) -> Result<(), Ending> {
        if header.command == Command::Write {
            let (length, max) = (header.length, self.config.discard_bytes_max);
            if length > max {
                let text = format!("a write of {length} bytes is refused, and longer than {max} to skip");
                return Err(Ending::Violation(text));
            }
            self.receiver.discard(u64::from(length)).await?;
        }
        self.session.refuse(header, refusal);
        Ok(())
    }

    /// Completes when all that was in flight is answered. What the client asks for meanwhile is taken off the connection
    /// and forgotten: one that is closed with bytes unread can lose answers that are on their way.
    async fn drained_unheard(&mut self) {
        let in_flight = Rc::clone(&self.in_flight);
        let drained = pin!(in_flight.drained());
        let unheard = pin!(self.receiver.discard(u64::MAX));
        if let Either::Right((_, drained)) = select(drained, unheard).await {
            drained.await;
        }
    }

    /// Gives a client the time to take the last answers.
    async fn send_rest(&self) {
        let deadline = self.platform.now() + self.config.linger;
        // Whether all were taken or not, closing is what comes next.
        let _ = before(&self.platform, deadline, self.session.connection.send_room(1)).await;
    }
}

impl<P: Platform, D> Drop for Transmission<P, D> {
    fn drop(&mut self) {
        // Also where this task is given up: the workers that have a request finish it.
        self.session.connection.close();
        self.session.workers.close();
    }
}

#[cfg(test)]
#[path = "transmission_tests.rs"]
mod tests;
