//! Accepts connections and sees each one through its life, or to another thread's server.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use spandrel_platform::sync::Signal;
use spandrel_platform::{Connection, LinkError, Listener, Platform, Workers};
use spandrel_volume::Exports;

use super::NbdConfig;
use super::exchange::{Exchange, Passage};
use super::negotiation::{Agreement, Negotiation, NegotiationEnd, Progress, Sides};
use super::receiver::{Ending, Receiver};
use super::requests::Session;
use super::stop::StopSignal;
use super::transmission::Transmission;
use crate::statistics::{Counters, FrontendStatistics};

/// How long to wait when a connection could not be accepted, for example for lack of file
/// descriptors: they are lacking for a while.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// So many tasks of a connection that serve its requests stay while there is nothing for them to do.
const WAITING_TASKS_MAX: usize = 256;

/// Serves volumes to NBD clients. Cheap to clone; all clones are the same server.
///
/// Each connection opens its volume by itself and holds it until nothing of the connection is in
/// flight any more; whether one volume may be open more than once is for the exports to say.
pub struct NbdServer<P: Platform, E: Exports> {
    inner: Rc<Inner<P, E>>,
}

struct Inner<P: Platform, E> {
    platform: P,
    exports: E,
    config: NbdConfig,
    exchange: Exchange<P::Detached>,
    stop: StopSignal,
    /// Connections whose tasks have not ended.
    live: Cell<usize>,
    ended: Signal,
    counters: Counters,
}

impl<P: Platform, E: Exports> Clone for NbdServer<P, E> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

impl<P: Platform, E: Exports> NbdServer<P, E> {
    /// A server of the volumes in `exports`, the only one of its process. It listens nowhere yet.
    pub fn new(platform: P, exports: E, config: NbdConfig) -> Self {
        Self::one_of_several(platform, exports, config, Exchange::alone())
    }

    /// The same, where other threads have servers as well: clients of volumes that belong to these go there.
    pub fn one_of_several(
        platform: P,
        exports: E,
        config: NbdConfig,
        exchange: Exchange<P::Detached>,
    ) -> Self {
        let inner = Inner {
            platform,
            exports,
            config,
            exchange,
            stop: StopSignal::default(),
            live: Cell::new(0),
            ended: Signal::new(),
            counters: Counters::default(),
        };
        Self { inner: Rc::new(inner) }
    }

    /// Accepts connections from `listener` until the server stops, which is `Ok`, or until the
    /// listener is closed. May run for several listeners at once.
    pub async fn serve(&self, listener: P::Listener) -> Result<(), LinkError> {
        let stop = self.inner.stop.listen();
        let mut stopped = pin!(stop.stopped());
        loop {
            let accepted = match select(stopped.as_mut(), pin!(listener.accept())).await {
                Either::Left(_) => return Ok(()),
                Either::Right((accepted, _)) => accepted,
            };
            match accepted {
                Ok(connection) => self.admit(connection, None),
                Err(error @ LinkError::Closed(_)) => return Err(error),
                Err(error) => {
                    tracing::warn!(address = %listener.address(), %error, "NBD connection not accepted");
                    self.inner.platform.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Goes on with the clients that other servers of this process pass on, until this one stops.
    pub async fn serve_passed_on(&self) {
        let stop = self.inner.stop.listen();
        let mut stopped = pin!(stop.stopped());
        while let Either::Right((Some(passage), _)) =
            select(stopped.as_mut(), pin!(self.inner.exchange.next())).await
        {
            let Passage { connection, progress, unanswered } = passage;
            match self.inner.platform.attach(connection) {
                Ok(connection) => self.admit(connection, Some((progress, unanswered))),
                Err(error) => tracing::warn!(%error, "NBD connection lost on its way between threads"),
            }
        }
        self.inner.exchange.close();
    }

    /// Stops: no more connections are accepted, requests in flight end, then the connections are closed, with
    /// whatever was asked for later unanswered: a client that waits for the next server asks that for it. Completes
    /// when all are closed, which takes at most [`NbdConfig::stop_grace`].
    pub async fn stop(&self) {
        self.inner.stop.raise();
        self.inner.ended.wait_until(|| self.inner.live.get() == 0).await;
    }

    /// What the server has done so far.
    pub fn statistics(&self) -> FrontendStatistics {
        self.inner.counters.snapshot()
    }

    /// Takes a connection, and with it what was said and what was received on it before.
    fn admit(&self, connection: P::Connection, before: Option<(Progress, Vec<u8>)>) {
        let inner = &self.inner;
        let live = inner.live.get();
        if live >= inner.config.connections_max || inner.stop.is_raised() {
            inner.counters.count(|statistics| statistics.connections_rejected += 1);
            tracing::warn!(peer = %connection.peer(), open = live, "NBD connection rejected: too many are open");
            connection.close();
            return;
        }
        inner.live.set(live + 1);
        inner.counters.count(|statistics| {
            statistics.connections += 1;
            statistics.connections_accepted += u64::from(before.is_none());
        });
        let presence = Presence { inner: Rc::clone(inner) };
        inner.platform.spawn(async move { presence.inner.see_through(connection, before).await });
    }
}

impl<P: Platform, E: Exports> Inner<P, E> {
    /// Serves one connection to its end, or until the server has waited long enough for it.
    async fn see_through(&self, connection: P::Connection, before: Option<(Progress, Vec<u8>)>) {
        let stop = self.stop.listen();
        let patience = async {
            stop.stopped().await;
            self.platform.sleep(self.config.stop_grace).await;
        };
        let conversation = self.converse(connection.clone(), before);
        match select(pin!(conversation), pin!(patience)).await {
            Either::Left((Ok(()), _)) => {}
            Either::Left((Err(end), _)) => {
                self.note_end(&connection, &end);
                if end == NegotiationEnd::PassedOn {
                    return;
                }
            }
            Either::Right(_) => {
                tracing::warn!(peer = %connection.peer(), "NBD connection closed with requests in flight");
            }
        }
        connection.close();
    }

    fn note_end(&self, connection: &P::Connection, end: &NegotiationEnd) {
        let peer = connection.peer();
        if let NegotiationEnd::Refused(reason) = end {
            self.counters.count(|statistics| statistics.negotiations_refused += 1);
            tracing::warn!(%peer, %reason, "NBD negotiation refused");
        } else {
            tracing::debug!(%peer, %end, "NBD negotiation ended");
        }
    }

    /// Serves a connection until it is over, or ends without an agreement.
    async fn converse(
        &self,
        connection: P::Connection,
        before: Option<(Progress, Vec<u8>)>,
    ) -> Result<(), NegotiationEnd> {
        let mut receiver = Receiver::new(connection.clone(), self.stop.listen(), self.platform.buffers());
        let (progress, received) = match before {
            Some((progress, received)) => (progress, received),
            None => (Progress::begin(self.platform.now(), &self.config), Vec::new()),
        };
        receiver.put_back(&received);
        let sides = Sides {
            platform: &self.platform,
            exports: &self.exports,
            config: &self.config,
            counters: &self.counters,
            exchange: &self.exchange,
            connection: &connection,
        };
        let agreement = Negotiation::new(sides, &mut receiver, progress).run().await?;
        self.transmit(connection, receiver, agreement).await;
        Ok(())
    }

    /// Serves a client that has chosen its volume.
    async fn transmit(
        &self,
        connection: P::Connection,
        receiver: Receiver<P::Connection>,
        agreement: Agreement<E::Device>,
    ) {
        let peer = connection.peer();
        let volume = agreement.name;
        tracing::info!(%peer, volume, structured = agreement.structured, "NBD client attached");
        let session = Session {
            connection,
            device: agreement.device,
            structured: agreement.structured,
            allocation_context: agreement.allocation_context,
            request_bytes_max: agreement.request_bytes_max,
            workers: Workers::new(WAITING_TASKS_MAX),
            counters: self.counters.clone(),
        };
        let transmission = Transmission::new(self.platform.clone(), self.config.clone(), receiver, session);
        match transmission.run().await {
            Ending::Violation(reason) => tracing::warn!(%peer, volume, reason, "NBD client detached"),
            ending => tracing::info!(%peer, volume, ?ending, "NBD client detached"),
        }
    }
}

/// Counts a connection as long as its task lives.
struct Presence<P: Platform, E> {
    inner: Rc<Inner<P, E>>,
}

impl<P: Platform, E> Drop for Presence<P, E> {
    fn drop(&mut self) {
        let inner = &self.inner;
        inner.live.set(inner.live.get() - 1);
        inner.counters.count(|statistics| statistics.connections -= 1);
        inner.ended.notify_all();
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
