//! The sessions in which this node asks: one task per peer dials it for as long as it is a peer.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use futures_util::future::{Either, select};
use spandrel_platform::sync::Queue;
use spandrel_platform::{Address, Buffer, Connection, Instant, Platform, TaskHandle, before};
use spandrel_shared::{NodeId, ProcessIncarnation};

use crate::bus::{Inner, SessionInfo};
use crate::calls::{Calls, Outcome, PLACES_MAX};
use crate::frame::{FrameKind, HEADER_BYTES, Header, Malformed, Status, malformed};
use crate::hello::{Hello, VERSION_MIN, refusal_text};
use crate::payload::response_is_whole;
use crate::places::Places;
use crate::receiver::{Ending, FrameReceiver};
use crate::{BusError, BusResponse};

/// A node that is dialled.
pub(crate) struct DialledNode<P: Platform> {
    node: NodeId,
    addresses: RefCell<Vec<Address>>,
    /// Counts the attempts, so that each goes to the next address.
    attempts: Cell<usize>,
    session: RefCell<Option<Rc<DialledSession<P>>>>,
    /// Something has come in that makes an attempt worth while now.
    hurry: Queue<()>,
    /// Why the last attempts failed, so that it is logged once.
    failure: RefCell<String>,
    task: RefCell<Option<TaskHandle>>,
}

/// A session in which this node asks.
pub(crate) struct DialledSession<P: Platform> {
    pub(crate) connection: P::Connection,
    pub(crate) info: SessionInfo,
    pub(crate) version: u16,
    pub(crate) calls: Rc<Calls>,
    /// What the peer admits at the same time.
    pub(crate) places: Rc<Places>,
    /// Held by the one call that is about to be sent, so that all are sent in their order.
    pub(crate) turn: Rc<Places>,
    node: Weak<DialledNode<P>>,
}

impl<P: Platform> DialledNode<P> {
    /// Begins to dial `node`.
    pub(crate) fn start(inner: &Rc<Inner<P>>, node: NodeId, addresses: Vec<Address>) -> Rc<Self> {
        let dialled = Rc::new(Self {
            node,
            addresses: RefCell::new(addresses),
            attempts: Cell::new(0),
            session: RefCell::default(),
            hurry: Queue::new(),
            failure: RefCell::default(),
            task: RefCell::default(),
        });
        let task = inner.platform.spawn(dial(Rc::clone(inner), Rc::clone(&dialled)));
        *dialled.task.borrow_mut() = Some(task);
        dialled
    }

    pub(crate) fn stop(&self, inner: &Inner<P>) {
        if let Some(session) = self.session() {
            session.end(inner);
        }
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }

    pub(crate) fn set_addresses(&self, addresses: Vec<Address>) {
        if *self.addresses.borrow() != addresses {
            *self.addresses.borrow_mut() = addresses;
            self.hurry();
        }
    }

    /// Has the next attempt made at once.
    fn hurry(&self) {
        if self.hurry.is_empty() {
            self.hurry.push(());
        }
    }

    /// The peer has come to this node by itself, so it can most likely be reached. If another run of
    /// its process was dialled, that one is no more.
    pub(crate) fn peer_came(&self, inner: &Inner<P>, incarnation: ProcessIncarnation) {
        self.hurry();
        if let Some(session) = self.session()
            && session.info.incarnation != incarnation
        {
            session.end(inner);
        }
    }

    pub(crate) fn session(&self) -> Option<Rc<DialledSession<P>>> {
        self.session.borrow().clone()
    }

    /// Logs why the peer cannot be reached, if that is news.
    fn report(&self, failure: String) {
        let mut last = self.failure.borrow_mut();
        if *last != failure {
            tracing::warn!(node = %self.node, "no session with the node: {failure}");
            *last = failure;
        }
    }
}

impl<P: Platform> DialledSession<P> {
    /// Ends the session: no call is sent in it any more, and the unanswered ones end.
    pub(crate) fn end(&self, inner: &Inner<P>) {
        self.connection.close();
        let Some(node) = self.node.upgrade() else { return };
        let mut present = node.session.borrow_mut();
        let ended = present.take_if(|session| std::ptr::eq(&**session, self));
        drop(present);
        if ended.is_none() {
            return;
        }
        self.places.close();
        self.calls.end();
        inner.changes.notify_all();
    }

    /// Brings answers to their calls until the connection ends.
    async fn receive(&self, inner: &Inner<P>, node: NodeId, mut frames: FrameReceiver<P>) -> Ending {
        let receipts = inner.receipts_of(node);
        loop {
            match self.receive_answer(inner, &mut frames).await {
                Ok(()) => receipts.set(frames.received_at()),
                Err(ending) => return ending,
            }
        }
    }

    async fn receive_answer(&self, inner: &Inner<P>, frames: &mut FrameReceiver<P>) -> Result<(), Ending> {
        let header = frames.header().await?;
        self.check(&header)?;
        let response = read_response(&header, frames.body(&header).await?)?;
        let payload = frames.payload(&header).await?;
        inner.counters.received(HEADER_BYTES + header.body_bytes + header.payload_bytes);
        let outcome = outcome_of(response, &header, payload);
        if outcome.as_ref().is_err_and(|error| *error == BusError::AnswerDamaged) {
            inner.counters.payloads_damaged.add(1);
        }
        self.calls.settle(header.sequence, outcome);
        Ok(())
    }

    fn check(&self, header: &Header) -> Result<(), Malformed> {
        if header.kind != FrameKind::Answer {
            return Err(malformed("a frame that is no answer where this side asks"));
        }
        if header.version != self.version || header.session != self.info.session {
            return Err(malformed("an answer of another session or version"));
        }
        if !self.calls.is_open(header.sequence) {
            return Err(malformed("an answer to a question that was not asked"));
        }
        Ok(())
    }
}

/// The body of an answer; the error is what its call comes to instead.
fn read_response(header: &Header, body: &[u8]) -> Result<Result<BusResponse, BusError>, Malformed> {
    let status = Status::from_byte(header.status);
    if status != Some(Status::Answered) && !(body.is_empty() && header.payload_bytes == 0) {
        return Err(malformed("an answer that says that it has no content, and has"));
    }
    Ok(match status {
        Some(Status::Answered) => match postcard::take_from_bytes(body) {
            Ok((response, [])) => Ok(response),
            _ => Err(BusError::AnswerUnfit("it is not understood")),
        },
        Some(Status::NotUnderstood) => Err(BusError::NotUnderstood),
        Some(Status::PayloadDamaged) => Err(BusError::DamagedOnArrival),
        Some(Status::TooLarge) => Err(BusError::TooLarge),
        None => Err(BusError::AnswerUnfit("its status is not known")),
    })
}

fn outcome_of(response: Result<BusResponse, BusError>, header: &Header, payload: Option<Buffer>) -> Outcome {
    let response = response?;
    if !response_is_whole(&response, header.payload_checksum, payload.as_ref()) {
        return Err(BusError::AnswerDamaged);
    }
    Ok((response, payload))
}

/// The pauses between attempts that fail: each about twice as long as the one before.
struct Pauses {
    next: Duration,
}

impl Pauses {
    fn take<P: Platform>(&mut self, inner: &Inner<P>) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(inner.config.retry_pause_max);
        // Nodes that lost each other at the same time do not come back at the same time.
        let half = pause / 2;
        let spread_ns = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
        half + Duration::from_nanos(inner.platform.random_u64() % spread_ns)
    }
}

/// Dials a node again and again.
async fn dial<P: Platform>(inner: Rc<Inner<P>>, node: Rc<DialledNode<P>>) {
    let mut pauses = Pauses { next: inner.config.retry_pause_min };
    loop {
        while node.hurry.try_pop().is_some() {}
        if let Some((session, frames)) = attempt_all(&inner, &node).await {
            let began = inner.platform.now();
            hold(&inner, &node, session, frames).await;
            if inner.platform.now().since(began) >= inner.config.retry_pause_max {
                pauses.next = inner.config.retry_pause_min;
                continue;
            }
        }
        let pause = std::pin::pin!(inner.platform.sleep(pauses.take(&inner)));
        let hurry = std::pin::pin!(node.hurry.pop());
        if let Either::Right(_) = select(pause, hurry).await {
            pauses.next = inner.config.retry_pause_min;
        }
    }
}

/// Serves a session until it ends.
async fn hold<P: Platform>(
    inner: &Inner<P>,
    node: &DialledNode<P>,
    session: Rc<DialledSession<P>>,
    frames: FrameReceiver<P>,
) {
    node.failure.borrow_mut().clear();
    tracing::info!(node = %node.node, session = session.info.session, "session begins");
    inner.counters.sessions_dialled.add(1);
    *node.session.borrow_mut() = Some(Rc::clone(&session));
    inner.changes.notify_all();
    let ending = session.receive(inner, node.node, frames).await;
    session.end(inner);
    if matches!(ending, Ending::Malformed(_)) {
        inner.counters.connections_malformed.add(1);
        tracing::warn!(node = %node.node, session = session.info.session, "session ends: {ending}");
    } else {
        tracing::info!(node = %node.node, session = session.info.session, "session ends: {ending}");
    }
}

type Opened<P> = (Rc<DialledSession<P>>, FrameReceiver<P>);

/// Tries each address once.
async fn attempt_all<P: Platform>(inner: &Rc<Inner<P>>, node: &Rc<DialledNode<P>>) -> Option<Opened<P>> {
    let mut failures = Vec::new();
    let count = node.addresses.borrow().len();
    for _ in 0..count {
        let address = {
            let addresses = node.addresses.borrow();
            let Some(index) = node.attempts.get().checked_rem(addresses.len()) else { break };
            addresses[index].clone()
        };
        node.attempts.set(node.attempts.get().wrapping_add(1));
        match attempt(inner, node, &address).await {
            Ok(opened) => return Some(opened),
            Err(failure) => failures.push(format!("{address}: {failure}")),
        }
    }
    // The order changes from attempt to attempt.
    failures.sort();
    node.report(if failures.is_empty() { "no address is known".to_owned() } else { failures.join("; ") });
    None
}

async fn attempt<P: Platform>(
    inner: &Rc<Inner<P>>,
    node: &Rc<DialledNode<P>>,
    address: &Address,
) -> Result<Opened<P>, String> {
    let connection = inner.platform.connect(address).await.map_err(|error| error.to_string())?;
    let number = inner.next_session();
    let header = Header::new(FrameKind::Hello, VERSION_MIN, number, 0);
    let hello = Hello::new(&inner.identity, &inner.config, node.node);
    inner.send_raw(&connection, header, &hello.encode());
    let mut frames = FrameReceiver::new(&inner.platform, connection.clone());
    let deadline: Instant = inner.platform.now() + inner.config.hello_timeout;
    let welcomed = before(&inner.platform, deadline, read_welcome(inner, &mut frames, number)).await;
    let welcome = match welcomed {
        Some(Ok(welcome)) => welcome?,
        Some(Err(ending)) => return Err(ending.to_string()),
        None => return Err("no answer to the hello".to_owned()),
    };
    let proven = connection.peer_name();
    let version = welcome.judge(&inner.identity, proven.as_deref()).map_err(|refusal| refusal.reason)?;
    if welcome.node != node.node {
        return Err(format!("node {} answers there", welcome.node));
    }
    frames.widen();
    inner.receipts_of(node.node).set(frames.received_at());
    let session = DialledSession {
        connection,
        info: SessionInfo { session: number, incarnation: welcome.incarnation },
        version,
        calls: Rc::default(),
        places: Places::new((welcome.requests_max as usize).min(PLACES_MAX), welcome.request_bytes_max),
        turn: Places::new(1, 0),
        node: Rc::downgrade(node),
    };
    Ok((Rc::new(session), frames))
}

/// The welcome, or why there is none.
async fn read_welcome<P: Platform>(
    inner: &Inner<P>,
    frames: &mut FrameReceiver<P>,
    session: u32,
) -> Result<Result<Hello, String>, Ending> {
    let header = frames.header().await?;
    let body = frames.body(&header).await?;
    inner.counters.received(HEADER_BYTES + header.body_bytes);
    match header.kind {
        FrameKind::Welcome if header.session == session => Ok(Ok(Hello::decode(body)?)),
        FrameKind::Refusal => Ok(Err(format!("refused: {}", refusal_text(body)))),
        _ => Err(malformed("neither welcome nor refusal").into()),
    }
}

#[cfg(test)]
#[path = "dialler_tests.rs"]
mod tests;
