//! A session in which another node asks, over all the paths that it has here.
//!
//! Invariants:
//! - Requests are begun in the order in which they were sent, whichever paths brought them, and each once.
//! - A session lives as long as one of its paths.
//! - What is received and not begun when the session ends is never begun.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use spandrel_platform::{Buffer, Connection, Platform};

use crate::bus::Inner;
use crate::frame::{FrameKind, HEADER_BYTES, Header, Malformed, PAYLOAD_BYTES_MAX, Status, malformed};
use crate::frame::{TooLarge, payload_bytes};
use crate::order::{Order, Repeated, Standing};
use crate::path::{Path, Paths};
use crate::payload::{answer_bytes, request_is_whole, response_checksum, subject_of};
use crate::places::{Place, Places};
use crate::receiver::{Ending, FrameReceiver};
use crate::statistics::RequestKind;
use crate::{BusConfig, BusRequest, BusResponse, BusService, Peer};

/// Requests beyond the announced number, so that heartbeats, for which a peer asks no place, do not
/// wait behind others.
pub(crate) const REQUESTS_EXTRA: usize = 64;

/// A session in which another node asks.
pub(crate) struct AcceptedSession<P: Platform> {
    pub(crate) peer: Peer,
    pub(crate) version: u16,
    pub(crate) places: Rc<Places>,
    paths: Paths<P::Connection>,
    /// Paths from which something may still be read.
    receiving: Cell<usize>,
    order: RefCell<Order<Arrived<P>, Answer>>,
    /// The paths on which requests have come again that are not answered yet, by their numbers: the other side waits
    /// for the answers there.
    ways: RefCell<BTreeMap<u64, Rc<Path<P::Connection>>>>,
    /// Whether nothing that it asks is begun any more.
    ending: Cell<bool>,
}

/// A request that waits for its turn.
struct Arrived<P: Platform> {
    sequence: u64,
    path: Rc<Path<P::Connection>>,
    request: BusRequest,
    payload: Option<Buffer>,
    place: Place,
}

/// What a request came to.
#[derive(Clone)]
enum Answer {
    Served(BusResponse, Vec<Buffer>),
    Refused(Status),
}

impl<P: Platform> AcceptedSession<P> {
    /// A session with its first path. What is asked in it may come again on another one if `repeats`.
    pub(crate) fn new(
        peer: Peer,
        version: u16,
        repeats: bool,
        path: Rc<Path<P::Connection>>,
        config: &BusConfig,
    ) -> Rc<Self> {
        let requests_max = config.requests_max as usize + REQUESTS_EXTRA;
        Rc::new(Self {
            peer,
            version,
            places: Places::new(requests_max, config.request_bytes_max),
            paths: Paths::new(path),
            receiving: Cell::new(1),
            order: RefCell::new(Order::new(repeats, config.request_bytes_max)),
            ways: RefCell::default(),
            ending: Cell::new(false),
        })
    }

    /// Adds a path. Returns false if the session is over, or was not opened for several.
    pub(crate) fn add(&self, path: Rc<Path<P::Connection>>) -> bool {
        let may =
            !self.ending.get() && self.order.borrow().repeats() && self.paths.numbered(path.number).is_none();
        if may {
            self.paths.add(path);
            self.receiving.set(self.receiving.get() + 1);
        }
        may
    }

    /// Ends the session: nothing of it is begun any more.
    pub(crate) fn end(&self) {
        self.ending.set(true);
        self.places.close();
        self.paths.close_all();
        let unbegun = (self.order.borrow_mut().take_unbegun(), self.ways.take());
        drop(unbegun);
    }

    /// Nothing more is read from a path. Ends the session and returns true if it was the last one.
    pub(crate) fn lose(&self, path: &Path<P::Connection>) -> bool {
        self.paths.close(path);
        let receiving = self.receiving.get() - 1;
        self.receiving.set(receiving);
        if receiving == 0 {
            self.end();
        }
        receiving == 0
    }

    /// Has the requests that a path brings served until the path or the session ends.
    pub(crate) async fn receive<S: BusService>(
        self: &Rc<Self>,
        inner: &Rc<Inner<P>>,
        service: &Rc<S>,
        path: &Rc<Path<P::Connection>>,
        frames: &mut FrameReceiver<P>,
    ) -> Ending {
        let receipts = inner.receipts_of(self.peer.node);
        loop {
            let received = self.receive_frame(inner, service, path, frames).await;
            match received {
                Ok(()) => receipts.set(frames.received_at()),
                Err(ending) => return ending,
            }
        }
    }

    async fn receive_frame<S: BusService>(
        self: &Rc<Self>,
        inner: &Rc<Inner<P>>,
        service: &Rc<S>,
        path: &Rc<Path<P::Connection>>,
        frames: &mut FrameReceiver<P>,
    ) -> Result<(), Ending> {
        let header = frames.header().await?;
        self.check(&header)?;
        match header.kind {
            FrameKind::Ping => {
                inner.counters.received(HEADER_BYTES);
                let room = path.connection.send_room(inner.config.queued_bytes_max).await;
                room.map_err(Ending::Broken)?;
                let pong = Header::new(FrameKind::Pong, self.version, self.peer.session, 0);
                inner.send_raw(&path.connection, pong, &[]);
                return Ok(());
            }
            FrameKind::PathLost => {
                inner.counters.received(HEADER_BYTES);
                self.close_lost(header.sequence, path.number);
                return Ok(());
            }
            _ => {}
        }
        let standing = self.order.borrow().standing(header.sequence);
        match standing {
            Standing::New => self.receive_request(inner, service, path, frames, &header).await,
            Standing::Repeated => self.receive_again(inner, path, frames, &header).await,
            Standing::Wrong => Err(malformed("a request whose sequence number is not the next one").into()),
        }
    }

    fn check(&self, header: &Header) -> Result<(), Malformed> {
        if !matches!(header.kind, FrameKind::Request | FrameKind::Ping | FrameKind::PathLost) {
            return Err(malformed("a frame that is no request where the other side asks"));
        }
        if header.version != self.version || header.session != self.peer.session {
            return Err(malformed("a request of another session or version"));
        }
        Ok(())
    }

    /// The other side has given a path up: nothing that it has left here is waited for.
    fn close_lost(&self, number: u64, over: u32) {
        let lost = u32::try_from(number).ok().filter(|number| *number != over);
        if let Some(lost) = lost.and_then(|number| self.paths.numbered(number)) {
            self.paths.close(&lost);
        }
    }

    /// A request that has come before.
    async fn receive_again(
        &self,
        inner: &Inner<P>,
        path: &Rc<Path<P::Connection>>,
        frames: &mut FrameReceiver<P>,
        header: &Header,
    ) -> Result<(), Ending> {
        frames.body(header).await?;
        frames.payload(header).await?;
        inner.counters.received(HEADER_BYTES + header.body_bytes + header.payload_bytes);
        self.answer_again(inner, path, header.sequence).await
    }

    /// Answers a request that has come again, or has its answer sent where it came last.
    async fn answer_again(
        &self,
        inner: &Inner<P>,
        path: &Rc<Path<P::Connection>>,
        sequence: u64,
    ) -> Result<(), Ending> {
        // Whoever asks again and again fills no memory.
        let room = path.connection.send_room(inner.config.queued_bytes_max).await;
        room.map_err(Ending::Broken)?;
        let repeated = self.order.borrow().repeated(sequence);
        match repeated {
            Repeated::Answered(answer) => self.send_answer(inner, path, sequence, &answer),
            Repeated::Open => _ = self.ways.borrow_mut().insert(sequence, Rc::clone(path)),
            // The other side would wait for ever: its calls end, and whoever made them decides.
            Repeated::Gone => self.end(),
            Repeated::Over => {}
        }
        Ok(())
    }

    async fn receive_request<S: BusService>(
        self: &Rc<Self>,
        inner: &Rc<Inner<P>>,
        service: &Rc<S>,
        path: &Rc<Path<P::Connection>>,
        frames: &mut FrameReceiver<P>,
        header: &Header,
    ) -> Result<(), Ending> {
        let request = match postcard::take_from_bytes::<BusRequest>(frames.body(header).await?) {
            Ok((request, [])) => Some(request),
            _ => None,
        };
        if request.as_ref().is_some_and(|request| subject_of(request) != header.subject) {
            return Err(malformed("a request whose header speaks of something else").into());
        }
        let asked_bytes = request.as_ref().map_or(0, answer_bytes);
        let place = self.places.take((header.payload_bytes as u64).saturating_add(asked_bytes)).await;
        let place = place.map_err(|_| Ending::Closed)?;
        let payload = frames.payload(header).await?;
        if self.ending.get() {
            return Err(Ending::Closed);
        }
        inner.counters.received(HEADER_BYTES + header.body_bytes + header.payload_bytes);
        let sequence = header.sequence;
        let Some(request) = request else {
            return self.refuse(inner, service, path, sequence, Status::NotUnderstood).await;
        };
        if asked_bytes > PAYLOAD_BYTES_MAX as u64 {
            return self.refuse(inner, service, path, sequence, Status::TooLarge).await;
        }
        if !request_is_whole(&request, header.payload_checksum, payload.as_ref()) {
            inner.counters.payloads_damaged.add(1);
            let (node, kind) = (self.peer.node, RequestKind::of(&request));
            tracing::warn!(%node, ?kind, "a payload was damaged on its way here");
            return self.refuse(inner, service, path, sequence, Status::PayloadDamaged).await;
        }
        let arrived = Arrived { sequence, path: Rc::clone(path), request, payload, place };
        if matches!(arrived.request, BusRequest::Heartbeat(_)) {
            // It overtakes whatever is missing before it.
            if self.order.borrow_mut().put(sequence, None) {
                self.begin(inner, service, arrived);
            }
        } else {
            // It may have come on another path meanwhile.
            let is_new = self.order.borrow_mut().put(sequence, Some(arrived));
            if !is_new {
                return self.answer_again(inner, path, sequence).await;
            }
        }
        self.begin_ready(inner, service);
        Ok(())
    }

    /// Begins what it is the turn of.
    fn begin_ready<S: BusService>(self: &Rc<Self>, inner: &Rc<Inner<P>>, service: &Rc<S>) {
        loop {
            let ready = self.order.borrow_mut().take_ready();
            let Some(arrived) = ready else { return };
            self.begin(inner, service, arrived);
        }
    }

    fn begin<S: BusService>(self: &Rc<Self>, inner: &Rc<Inner<P>>, service: &Rc<S>, arrived: Arrived<P>) {
        let work = Rc::clone(self).serve(Rc::clone(inner), Rc::clone(service), arrived);
        inner.platform.spawn(work);
    }

    /// Has one request served and answers it.
    async fn serve<S: BusService>(self: Rc<Self>, inner: Rc<Inner<P>>, service: Rc<S>, arrived: Arrived<P>) {
        if self.ending.get() {
            return;
        }
        let Arrived { sequence, path, request, payload, place } = arrived;
        let kind = RequestKind::of(&request);
        inner.counters.request_served(kind);
        let (response, payload) = service.serve(self.peer, request, payload).await;
        let answer = Answer::Served(response, payload);
        self.order.borrow_mut().keep(sequence, answer.bytes(), || answer.clone());
        let path = self.ways.borrow_mut().remove(&sequence).unwrap_or(path);
        if let Some(path) = self.way_for(&inner, kind, path).await {
            self.send_answer(&inner, &path, sequence, &answer);
        }
        drop(place);
    }

    /// The path for an answer, once it has room: the one that its request came on, if it is open.
    async fn way_for(
        &self,
        inner: &Inner<P>,
        kind: RequestKind,
        mut path: Rc<Path<P::Connection>>,
    ) -> Option<Rc<Path<P::Connection>>> {
        let queued_bytes_max = inner.config.queued_bytes_max;
        loop {
            if !path.is_open() {
                path = self.paths.pick()?;
            }
            if kind == RequestKind::Heartbeat || path.connection.queued_bytes() < queued_bytes_max {
                return Some(path);
            }
            if path.connection.send_room(queued_bytes_max).await.is_err() {
                self.paths.close(&path);
            }
        }
    }

    fn send_answer(&self, inner: &Inner<P>, path: &Path<P::Connection>, sequence: u64, answer: &Answer) {
        let mut header = Header::new(FrameKind::Answer, self.version, self.peer.session, sequence);
        let (response, payload) = match answer {
            Answer::Served(response, payload) => (response, payload),
            Answer::Refused(status) => {
                header.status = *status as u8;
                return inner.send_raw(&path.connection, header, &[]);
            }
        };
        let sent = payload_bytes(payload).and_then(|bytes| {
            header.payload_bytes = bytes;
            header.payload_checksum = response_checksum(response, payload);
            inner.send(&path.connection, header, response, payload)
        });
        if let Err(TooLarge) = sent {
            self.send_answer(inner, path, sequence, &Answer::Refused(Status::TooLarge));
        }
    }

    /// Answers that a request is not served. Nothing more is read until that has room, so that
    /// a peer that only asks fills no memory.
    async fn refuse<S: BusService>(
        self: &Rc<Self>,
        inner: &Rc<Inner<P>>,
        service: &Rc<S>,
        path: &Rc<Path<P::Connection>>,
        sequence: u64,
        status: Status,
    ) -> Result<(), Ending> {
        if !self.order.borrow_mut().put(sequence, None) {
            // It came whole on another path.
            return self.answer_again(inner, path, sequence).await;
        }
        self.order.borrow_mut().keep(sequence, 0, || Answer::Refused(status));
        self.begin_ready(inner, service);
        let room = path.connection.send_room(inner.config.queued_bytes_max).await;
        room.map_err(Ending::Broken)?;
        self.send_answer(inner, path, sequence, &Answer::Refused(status));
        Ok(())
    }
}

impl Answer {
    /// The bytes that it holds beside itself.
    fn bytes(&self) -> u64 {
        match self {
            Answer::Served(_, payload) => payload.iter().map(|part| part.len() as u64).sum(),
            Answer::Refused(_) => 0,
        }
    }
}

#[cfg(test)]
#[path = "accepted_session_tests.rs"]
mod tests;
