//! The sessions in which other nodes ask.
//!
//! Each node has at most one. A newer hello of the same node ends the older session: its connection
//! is closed, what was received and not begun is dropped, and only when every request of it that is
//! being served has ended is the newer session welcomed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use spandrel_platform::sync::Signal;
use spandrel_platform::{Buffer, Connection, Listener, Platform, TaskHandle, before};
use spandrel_shared::ProcessIncarnation;

use crate::bus::Inner;
use crate::frame::{FrameKind, HEADER_BYTES, Header, Malformed, PAYLOAD_BYTES_MAX, Status, malformed};
use crate::frame::{TooLarge, payload_bytes};
use crate::hello::{Hello, Refusal, RefusalStatus, VERSION_MIN};
use crate::payload::{answer_bytes, request_is_whole, response_checksum, subject_of};
use crate::places::{Place, Places};
use crate::receiver::{Ending, FrameReceiver};
use crate::statistics::RequestKind;
use crate::{BusRequest, BusResponse, BusService, Peer};

/// The rest after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Requests beyond the announced number, so that heartbeats, for which a peer asks no place, do not
/// wait behind others.
const REQUESTS_EXTRA: usize = 64;

/// Nodes whose refusals are remembered.
const REFUSALS_MAX: usize = 256;

/// A node that has asked for a session.
pub(crate) struct AcceptedNode<P: Platform> {
    /// The newest hello.
    newest: Cell<Option<(ProcessIncarnation, u32)>>,
    /// The session that was welcomed last, until it is over.
    session: RefCell<Option<Rc<AcceptedSession<P>>>>,
    /// Told when either changes.
    changed: Signal,
}

/// A session in which another node asks.
struct AcceptedSession<P: Platform> {
    connection: P::Connection,
    peer: Peer,
    version: u16,
    places: Rc<Places>,
    /// Whether nothing that it asks is begun any more.
    ending: Cell<bool>,
}

impl<P: Platform> AcceptedNode<P> {
    fn new() -> Rc<Self> {
        Rc::new(Self { newest: Cell::new(None), session: RefCell::default(), changed: Signal::new() })
    }

    /// Ends the node's session and completes when it is over.
    pub(crate) async fn ended(&self) {
        if let Some(session) = &*self.session.borrow() {
            session.end();
        }
        self.changed.wait_until(|| self.session.borrow().is_none()).await;
    }

    /// Makes a hello the newest one, unless a newer one of the same process has come.
    fn claim(&self, claim: (ProcessIncarnation, u32)) -> bool {
        let newer = |(incarnation, session)| incarnation == claim.0 && session >= claim.1;
        if self.newest.get().is_some_and(newer) {
            return false;
        }
        self.newest.set(Some(claim));
        self.changed.notify_all();
        true
    }
}

impl<P: Platform> AcceptedSession<P> {
    fn end(&self) {
        self.ending.set(true);
        self.places.close();
        self.connection.close();
    }
}

/// Accepts connections until the bus stops.
pub(crate) async fn serve<P: Platform, S: BusService>(
    inner: Rc<Inner<P>>,
    listener: P::Listener,
    service: Rc<S>,
) {
    let accepting = accept(Rc::clone(&inner), listener, service);
    let _accepting = AbortOnDrop(inner.platform.spawn(accepting));
    inner.stop_signal.wait_until(|| inner.stopping.get()).await;
}

struct AbortOnDrop(TaskHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn accept<P: Platform, S: BusService>(inner: Rc<Inner<P>>, listener: P::Listener, service: Rc<S>) {
    let mut failing = false;
    loop {
        match listener.accept().await {
            Ok(connection) => {
                failing = false;
                if inner.hellos.get() >= inner.config.hellos_max {
                    tracing::warn!(from = connection.peer(), "closed: too many connections say no hello");
                    connection.close();
                    continue;
                }
                let welcoming = HelloPlace::take(&inner);
                inner.platform.spawn(welcome(Rc::clone(&inner), connection, Rc::clone(&service), welcoming));
            }
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!("no connection can be accepted on {}: {error}", listener.address());
                }
                inner.platform.sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One of the places for connections that have not come to a session yet.
struct HelloPlace<P: Platform>(Rc<Inner<P>>);

impl<P: Platform> HelloPlace<P> {
    fn take(inner: &Rc<Inner<P>>) -> Self {
        inner.hellos.set(inner.hellos.get() + 1);
        Self(Rc::clone(inner))
    }
}

impl<P: Platform> Drop for HelloPlace<P> {
    fn drop(&mut self) {
        self.0.hellos.set(self.0.hellos.get() - 1);
    }
}

/// Serves one connection, from its hello to its end.
async fn welcome<P: Platform, S: BusService>(
    inner: Rc<Inner<P>>,
    connection: P::Connection,
    service: Rc<S>,
    hello_place: HelloPlace<P>,
) {
    let mut frames = FrameReceiver::new(&inner.platform, connection.clone());
    let deadline = inner.platform.now() + inner.config.hello_timeout;
    let (hello, number) = match before(&inner.platform, deadline, read_hello(&inner, &mut frames)).await {
        Some(Ok(hello)) => hello,
        Some(Err(Ending::Malformed(reason))) => {
            inner.counters.connections_malformed.add(1);
            tracing::warn!(from = connection.peer(), "closed: {reason}");
            return;
        }
        Some(Err(_)) | None => return,
    };
    let (node, session) = match open(&inner, &connection, &hello, number).await {
        Ok(opened) => opened,
        Err(refusal) => {
            refuse(&inner, &connection, &hello, number, &refusal);
            return;
        }
    };
    drop(hello_place);
    frames.widen();
    let ending = session.receive(&inner, &service, &mut frames).await;
    session.end();
    if let Ending::Malformed(reason) = &ending {
        inner.counters.connections_malformed.add(1);
        tracing::warn!(node = %session.peer.node, session = number, "accepted session ends: {reason}");
    } else {
        tracing::info!(node = %session.peer.node, session = number, "accepted session ends: {ending}");
    }
    drop(frames);
    session.places.emptied().await;
    service.session_ended(session.peer);
    node.session.take();
    node.changed.notify_all();
}

async fn read_hello<P: Platform>(
    inner: &Inner<P>,
    frames: &mut FrameReceiver<P>,
) -> Result<(Hello, u32), Ending> {
    let header = frames.header().await?;
    if header.kind != FrameKind::Hello {
        return Err(malformed("the first frame is no hello").into());
    }
    let hello = Hello::decode(frames.body(&header).await?)?;
    inner.counters.received(HEADER_BYTES + header.body_bytes);
    Ok((hello, header.session))
}

type Opened<P> = (Rc<AcceptedNode<P>>, Rc<AcceptedSession<P>>);

/// Ends the former session of the node, then welcomes the new one.
async fn open<P: Platform>(
    inner: &Rc<Inner<P>>,
    connection: &P::Connection,
    hello: &Hello,
    number: u32,
) -> Result<Opened<P>, Refusal> {
    let proven = connection.peer_name();
    let version = hello.judge(&inner.identity, proven.as_deref())?;
    // A certificate outlives the time for which its holder belongs to the cluster.
    if proven.is_some() && !inner.dialled.borrow().contains_key(&hello.node) {
        let reason = format!("node {} does not know node {}", inner.identity.node, hello.node);
        return Err(Refusal { status: RefusalStatus::Node, reason });
    }
    let node = {
        let mut accepted = inner.accepted.borrow_mut();
        Rc::clone(accepted.entry(hello.node).or_insert_with(AcceptedNode::new))
    };
    let claim = (hello.incarnation, number);
    let superseded = || Refusal {
        status: RefusalStatus::Superseded,
        reason: "a newer session of the same node has come".to_owned(),
    };
    if !node.claim(claim) {
        return Err(superseded());
    }
    if let Some(former) = &*node.session.borrow() {
        former.end();
    }
    let newest = || node.newest.get() == Some(claim);
    node.changed.wait_until(|| !newest() || node.session.borrow().is_none()).await;
    if !newest() {
        return Err(superseded());
    }
    if inner.stopping.get() {
        let reason = format!("node {} stops", inner.identity.node);
        return Err(Refusal { status: RefusalStatus::Stopping, reason });
    }
    let config = &inner.config;
    let session = Rc::new(AcceptedSession {
        connection: connection.clone(),
        peer: Peer { node: hello.node, incarnation: hello.incarnation, session: number },
        version,
        places: Places::new(config.requests_max as usize + REQUESTS_EXTRA, config.request_bytes_max),
        ending: Cell::new(false),
    });
    *node.session.borrow_mut() = Some(Rc::clone(&session));
    let own = Hello::new(&inner.identity, config, hello.node);
    inner.send_raw(connection, Header::new(FrameKind::Welcome, version, number, 0), &own.encode());
    inner.counters.sessions_accepted.add(1);
    inner.refusals.borrow_mut().remove(&hello.node);
    tracing::info!(node = %hello.node, session = number, "session accepted");
    let dialled = inner.dialled.borrow().get(&hello.node).cloned();
    if let Some(dialled) = dialled {
        dialled.peer_came(inner, hello.incarnation);
    }
    Ok((node, session))
}

fn refuse<P: Platform>(
    inner: &Inner<P>,
    connection: &P::Connection,
    hello: &Hello,
    number: u32,
    refusal: &Refusal,
) {
    inner.counters.hellos_refused.add(1);
    let mut header = Header::new(FrameKind::Refusal, VERSION_MIN, number, 0);
    header.status = refusal.status as u8;
    inner.send_raw(connection, header, refusal.reason.as_bytes());
    connection.close();
    let mut refusals = inner.refusals.borrow_mut();
    if refusals.get(&hello.node) == Some(&refusal.reason) {
        return;
    }
    tracing::warn!(from = connection.peer(), "refused: {}", refusal.reason);
    if refusals.len() >= REFUSALS_MAX {
        refusals.clear();
    }
    refusals.insert(hello.node, refusal.reason.clone());
}

impl<P: Platform> AcceptedSession<P> {
    /// Has requests served until the connection or the session ends.
    async fn receive<S: BusService>(
        self: &Rc<Self>,
        inner: &Rc<Inner<P>>,
        service: &Rc<S>,
        frames: &mut FrameReceiver<P>,
    ) -> Ending {
        let receipts = inner.receipts_of(self.peer.node);
        let mut last_sequence = 0;
        loop {
            let received = self.receive_request(inner, service, frames, &mut last_sequence).await;
            match received {
                Ok(()) => receipts.set(frames.received_at()),
                Err(ending) => return ending,
            }
        }
    }

    async fn receive_request<S: BusService>(
        self: &Rc<Self>,
        inner: &Rc<Inner<P>>,
        service: &Rc<S>,
        frames: &mut FrameReceiver<P>,
        last_sequence: &mut u64,
    ) -> Result<(), Ending> {
        let header = frames.header().await?;
        self.check(&header, *last_sequence)?;
        *last_sequence = header.sequence;
        let request = match postcard::take_from_bytes::<BusRequest>(frames.body(&header).await?) {
            Ok((request, [])) => Some(request),
            _ => None,
        };
        if request.as_ref().is_some_and(|request| subject_of(request) != header.subject) {
            return Err(malformed("a request whose header speaks of something else").into());
        }
        let asked_bytes = request.as_ref().map_or(0, answer_bytes);
        let place = self.places.take((header.payload_bytes as u64).saturating_add(asked_bytes)).await;
        let place = place.map_err(|_| Ending::Closed)?;
        let payload = frames.payload(&header).await?;
        if self.ending.get() {
            return Err(Ending::Closed);
        }
        inner.counters.received(HEADER_BYTES + header.body_bytes + header.payload_bytes);
        let Some(request) = request else {
            return self.refuse(inner, &header, Status::NotUnderstood).await;
        };
        if asked_bytes > PAYLOAD_BYTES_MAX as u64 {
            return self.refuse(inner, &header, Status::TooLarge).await;
        }
        if !request_is_whole(&request, header.payload_checksum, payload.as_ref()) {
            inner.counters.payloads_damaged.add(1);
            let (node, kind) = (self.peer.node, RequestKind::of(&request));
            tracing::warn!(%node, ?kind, "a payload was damaged on its way here");
            return self.refuse(inner, &header, Status::PayloadDamaged).await;
        }
        let service = Rc::clone(service);
        let work = Rc::clone(self).serve(Rc::clone(inner), service, header.sequence, request, payload, place);
        inner.platform.spawn(work);
        Ok(())
    }

    fn check(&self, header: &Header, last_sequence: u64) -> Result<(), Malformed> {
        if header.kind != FrameKind::Request {
            return Err(malformed("a frame that is no request where the other side asks"));
        }
        if header.version != self.version || header.session != self.peer.session {
            return Err(malformed("a request of another session or version"));
        }
        if header.sequence <= last_sequence {
            return Err(malformed("a request whose sequence number does not grow"));
        }
        Ok(())
    }

    /// Has one request served and answers it.
    async fn serve<S: BusService>(
        self: Rc<Self>,
        inner: Rc<Inner<P>>,
        service: Rc<S>,
        sequence: u64,
        request: BusRequest,
        payload: Option<Buffer>,
        place: Place,
    ) {
        if self.ending.get() {
            return;
        }
        let kind = RequestKind::of(&request);
        inner.counters.request_served(kind);
        let (response, payload) = service.serve(self.peer, request, payload).await;
        let queued_bytes_max = inner.config.queued_bytes_max;
        if kind != RequestKind::Heartbeat
            && self.connection.queued_bytes() >= queued_bytes_max
            && self.connection.send_room(queued_bytes_max).await.is_err()
        {
            return;
        }
        self.answer(&inner, sequence, &response, &payload);
        drop(place);
    }

    fn answer(&self, inner: &Inner<P>, sequence: u64, response: &BusResponse, payload: &[Buffer]) {
        let mut header = Header::new(FrameKind::Answer, self.version, self.peer.session, sequence);
        let sent = payload_bytes(payload).and_then(|bytes| {
            header.payload_bytes = bytes;
            header.payload_checksum = response_checksum(response, payload);
            inner.send(&self.connection, header, response, payload)
        });
        if let Err(TooLarge) = sent {
            self.send_status(inner, sequence, Status::TooLarge);
        }
    }

    /// Answers that a request is not served. Nothing more is read until that has room, so that
    /// a peer that only asks fills no memory.
    async fn refuse(&self, inner: &Inner<P>, request: &Header, status: Status) -> Result<(), Ending> {
        let room = self.connection.send_room(inner.config.queued_bytes_max).await;
        room.map_err(Ending::Broken)?;
        self.send_status(inner, request.sequence, status);
        Ok(())
    }

    fn send_status(&self, inner: &Inner<P>, sequence: u64, status: Status) {
        let mut header = Header::new(FrameKind::Answer, self.version, self.peer.session, sequence);
        header.status = status as u8;
        inner.send_raw(&self.connection, header, &[]);
    }
}

#[cfg(test)]
#[path = "acceptor_tests.rs"]
mod tests;
