//! The bus of a node: what it asks of others, and what it answers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;

use futures_util::future::join_all;
use serde::Serialize;
use spandrel_platform::sync::Signal;
use spandrel_platform::{Address, Buffer, Connection, Instant, Platform};
use spandrel_shared::{Load, ProcessIncarnation, ShardId};

use crate::acceptor::{AcceptedPeer, Hellos};
use crate::call::Call;
use crate::dialled_session::DialledSession;
use crate::dialler::DialledPeer;
use crate::frame::{FrameScratch, Header, TooLarge};
use crate::receiver::Ending;
use crate::statistics::{BusStatistics, Counters};
use crate::{BusConfig, BusError, BusIdentity, BusRequest, BusResponse, BusService};

/// A session that this node dialled: it asks, the peer answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The session, by this process's count. A later session has a higher number.
    pub session: u32,
    /// The run of the peer's process.
    pub incarnation: ProcessIncarnation,
    /// How many shards that has.
    pub shards: u8,
}

/// The bus of a node. Cheap to clone; all clones are the same bus.
pub struct Bus<P: Platform> {
    inner: Rc<Inner<P>>,
}

impl<P: Platform> Clone for Bus<P> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

/// What the bus's tasks share.
pub(crate) struct Inner<P: Platform> {
    pub(crate) platform: P,
    pub(crate) identity: BusIdentity,
    pub(crate) config: BusConfig,
    pub(crate) counters: Counters,
    /// What other nodes are asked for: reads and writes of copies and volumes.
    pub(crate) load: Rc<Load>,
    pub(crate) dialled: RefCell<BTreeMap<ShardId, Rc<DialledPeer<P>>>>,
    pub(crate) accepted: RefCell<BTreeMap<ShardId, Rc<AcceptedPeer<P>>>>,
    /// When anything was last received from a peer, in either direction's session.
    last_received: RefCell<BTreeMap<ShardId, Rc<Cell<Instant>>>>,
    /// Told when a dialled session begins or ends.
    pub(crate) changes: Signal,
    session_count: Cell<u32>,
    scratch: RefCell<FrameScratch>,
    pub(crate) stopping: Cell<bool>,
    pub(crate) stop_signal: Signal,
    /// Connections that have not come to a session yet.
    pub(crate) hellos: RefCell<Hellos<P>>,
    /// The last reason for which each peer was refused, so that it is logged once.
    pub(crate) refusals: RefCell<BTreeMap<ShardId, String>>,
}

impl<P: Platform> Bus<P> {
    /// A bus that knows nobody.
    pub fn new(platform: P, identity: BusIdentity, config: BusConfig) -> Self {
        let inner = Inner {
            platform,
            identity,
            config,
            counters: Counters::default(),
            load: Rc::default(),
            dialled: RefCell::default(),
            accepted: RefCell::default(),
            last_received: RefCell::default(),
            changes: Signal::new(),
            session_count: Cell::new(0),
            scratch: RefCell::default(),
            stopping: Cell::new(false),
            stop_signal: Signal::new(),
            hellos: RefCell::default(),
            refusals: RefCell::default(),
        };
        Self { inner: Rc::new(inner) }
    }

    /// Who this bus is.
    pub fn identity(&self) -> BusIdentity {
        self.inner.identity
    }

    /// Dials a shard, now and whenever its session breaks, until it is removed: at all its addresses, each of which
    /// becomes a path of the session. New addresses of a known peer count from the next session on.
    pub fn set_peer(&self, peer: ShardId, addresses: Vec<Address>) {
        let inner = &self.inner;
        if inner.stopping.get() || peer == inner.identity.shard {
            return;
        }
        if let Some(known) = inner.dialled.borrow().get(&peer) {
            known.set_addresses(addresses);
            return;
        }
        let dialled = DialledPeer::start(inner, peer, addresses);
        inner.dialled.borrow_mut().insert(peer, dialled);
    }

    /// Stops dialling `peer`; its session ends. It may still ask.
    pub fn remove_peer(&self, peer: ShardId) {
        let removed = self.inner.dialled.borrow_mut().remove(&peer);
        if let Some(dialled) = removed {
            dialled.stop(&self.inner);
        }
    }

    /// Stops dialling `peer` and ends the session in which it asks, also one for which it waits. Where nodes prove who
    /// they are, it gets no new one.
    pub fn expel(&self, peer: ShardId) {
        self.remove_peer(peer);
        let accepted = self.inner.accepted.borrow().get(&peer).cloned();
        if let Some(accepted) = accepted {
            accepted.expel();
        }
    }

    /// The peers that are dialled, in the order of their identities.
    pub fn peers(&self) -> Vec<ShardId> {
        self.inner.dialled.borrow().keys().copied().collect()
    }

    /// Ends the session with `peer` as if its connection had broken, and dials it anew: for one
    /// that is silent.
    pub fn break_session(&self, peer: ShardId) {
        if let Some(session) = self.inner.session(peer) {
            session.end(&self.inner, Ending::Ended);
        }
    }

    /// Asks `peer`, and brings its answer: for what was read from a copy one buffer for each `Data`
    /// part, for other data one buffer.
    ///
    /// Requests to one peer are sent, arrive and begin to be served in the order in which their
    /// futures are first polled; only heartbeats overtake others. If as much is unanswered as the
    /// peer admits, they wait. A call waits for its answer as long as the session lasts; who waits
    /// shorter drops the future, and the request may be carried out all the same.
    ///
    /// # Errors
    ///
    /// See [`BusError`], above all [`BusError::NotConnected`], at once, and [`BusError::SessionLost`].
    pub fn call(
        &self,
        peer: ShardId,
        request: BusRequest,
        payload: Vec<Buffer>,
    ) -> impl Future<Output = Result<(BusResponse, Vec<Buffer>), BusError>> + use<P> {
        let bus = self.clone();
        async move { bus.begin_call(peer, request, payload).await }
    }

    /// The same, sent when this returns, or in line for it behind those that were asked before.
    pub fn begin_call(&self, peer: ShardId, request: BusRequest, payload: Vec<Buffer>) -> Call<P> {
        Call::begin(&self.inner, peer, request, payload)
    }

    /// The present session with `peer`.
    pub fn session(&self, peer: ShardId) -> Option<SessionInfo> {
        self.inner.session(peer).map(|session| session.info)
    }

    /// The paths of the present session with `peer`: where each leads, and how many bytes were sent on it or asked for.
    pub fn paths(&self, peer: ShardId) -> Vec<(String, u64)> {
        let paths = self.inner.session(peer).map_or_else(Vec::new, |session| session.paths.all());
        paths.iter().map(|path| (path.connection.peer(), path.carried_bytes())).collect()
    }

    /// Has the connection of one of the paths end.
    #[cfg(test)]
    pub(crate) fn close_path(&self, peer: ShardId, index: usize) {
        let session = self.inner.session(peer).expect("there is a session");
        session.paths.all()[index].connection.close();
    }

    /// Told whenever the session with any peer begins or ends; [`Bus::session`] says how it is.
    pub fn changes(&self) -> &Signal {
        &self.inner.changes
    }

    /// When anything was last received from `peer`, in a session of either direction.
    pub fn last_received(&self, peer: ShardId) -> Option<Instant> {
        self.inner.last_received.borrow().get(&peer).map(|at| at.get())
    }

    /// Calls to `peer` that are unanswered in the present session, given up or not.
    pub fn unanswered(&self, peer: ShardId) -> usize {
        self.inner.session(peer).map_or(0, |session| session.calls.unanswered())
    }

    /// What other nodes are asked for: reads and writes of copies and volumes, from when they are asked until they have
    /// answered. Heartbeats, marks and what else keeps a cluster together is not among it.
    pub fn load(&self) -> &Load {
        &self.inner.load
    }

    /// What the bus has done so far.
    pub fn statistics(&self) -> BusStatistics {
        self.inner.counters.snapshot()
    }

    /// Accepts other nodes' connections from `listener` and has `service` answer, until the bus
    /// stops or the future is dropped; sessions that were accepted go on in the latter case.
    pub fn serve<S: BusService>(
        &self,
        listener: P::Listener,
        service: S,
    ) -> impl Future<Output = ()> + use<P, S> {
        crate::acceptor::serve(Rc::clone(&self.inner), listener, Rc::new(service))
    }

    /// Ends all sessions, accepts and dials nobody any more, and completes when every request that
    /// was being served has ended.
    pub async fn stop(&self) {
        let inner = &self.inner;
        inner.stopping.set(true);
        inner.stop_signal.notify_all();
        for peer in self.peers() {
            self.remove_peer(peer);
        }
        let accepted: Vec<_> = inner.accepted.borrow().values().cloned().collect();
        // All at once, so that none is ended only when another one is over: whoever waits for an answer is told.
        join_all(accepted.iter().map(|peer| peer.ended())).await;
    }
}

impl<P: Platform> Inner<P> {
    pub(crate) fn session(&self, peer: ShardId) -> Option<Rc<DialledSession<P>>> {
        self.dialled.borrow().get(&peer)?.session()
    }

    /// The number of a new session.
    pub(crate) fn next_session(&self) -> u32 {
        let next = self.session_count.get().checked_add(1);
        let next = next.expect("four billion connections of one process do not happen");
        self.session_count.set(next);
        next
    }

    /// Queues a frame with a serialized body.
    pub(crate) fn send(
        &self,
        connection: &P::Connection,
        header: Header,
        body: &impl Serialize,
        payload: &[Buffer],
    ) -> Result<(), TooLarge> {
        let mut scratch = self.scratch.borrow_mut();
        scratch.write_body(header.kind, body)?;
        self.finish(connection, &mut scratch, header, payload);
        Ok(())
    }

    /// Queues a frame whose body is bytes already.
    pub(crate) fn send_raw(&self, connection: &P::Connection, header: Header, body: &[u8]) {
        let mut scratch = self.scratch.borrow_mut();
        scratch.write_raw_body(body);
        self.finish(connection, &mut scratch, header, &[]);
    }

    fn finish(
        &self,
        connection: &P::Connection,
        scratch: &mut FrameScratch,
        header: Header,
        payload: &[Buffer],
    ) {
        let head = scratch.seal(header);
        self.counters.sent(head.len() + header.payload_bytes);
        connection.send(head, payload);
    }

    /// Where it is noted when something is received from `peer`.
    pub(crate) fn receipts_of(&self, peer: ShardId) -> Rc<Cell<Instant>> {
        let mut all = self.last_received.borrow_mut();
        Rc::clone(all.entry(peer).or_insert_with(|| Rc::new(Cell::new(self.platform.now()))))
    }
}

#[cfg(test)]
#[path = "bus_tests.rs"]
mod tests;
