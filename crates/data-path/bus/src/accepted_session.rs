//! A session in which another node asks, over all the paths that it has here.
//!
//! Invariants:
//! - Requests are begun in the order in which they were sent, whichever paths brought them, and each once.
//! - A session lives as long as one of its paths.
//! - What is received and not begun when the session ends is never begun.
//! - What the other side can have this one hold in memory is bounded: paths, requests and their bytes, answers that are
//!   kept, and answers that wait to be taken.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use spandrel_platform::{Buffer, Connection, Platform, Workers};
use spandrel_replica::ReplicaResponse;

use crate::bus::Inner;
use crate::frame::{DONE_MAX, TooLarge, body_bytes, done_body, payload_bytes};
use crate::frame::{FrameKind, HEADER_BYTES, Header, Malformed, PAYLOAD_BYTES_MAX, Status, malformed};
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

/// A request's body up to this length is not counted: their number bounds those. What longer ones have more is, so that
/// it is bounded by the bytes of requests as payloads are.
const BODY_BYTES_UNCOUNTED: usize = 16 << 10;

/// Likewise of an answer that is kept.
const ANSWER_BODY_BYTES_UNCOUNTED: u64 = 1 << 10;

/// So many tasks that serve requests stay while there is nothing for them to do.
const WAITING_TASKS_MAX: usize = 256;

/// How often the paths of a session that has several are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// A path that was silent at so many looks while another one was not is closed: the other side has given it up, and what
/// it said of that was lost. Longer than the other side takes to find it silent, and to say so.
const SILENCES_MAX: u32 = 8;

/// A session in which another node asks.
pub(crate) struct AcceptedSession<P: Platform> {
    pub(crate) peer: Peer,
    pub(crate) version: u16,
    pub(crate) places: Rc<Places>,
    /// Places for the bodies of long requests.
    bodies: Rc<Places>,
    paths: Paths<P::Connection>,
    /// Paths from which something may still be read.
    receiving: Cell<usize>,
    /// Whether somebody looks for silent paths.
    watched: Cell<bool>,
    order: RefCell<Order<Arrived<P>, Answer>>,
    /// The paths on which requests have come again that are not answered yet, by their numbers: the other side waits
    /// for the answers there.
    ways: RefCell<BTreeMap<u64, Rc<Path<P::Connection>>>>,
    /// Requests whose turn it is, and the tasks that serve them.
    workers: Workers<Arrived<P>>,
    /// Whether nothing that it asks is begun any more.
    ending: Cell<bool>,
}

/// A request that waits for its turn.
struct Arrived<P: Platform> {
    sequence: u64,
    path: Rc<Path<P::Connection>>,
    request: BusRequest,
    payload: Option<Buffer>,
    places: (Place, Option<Place>),
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
            bodies: Places::new(requests_max, config.request_bytes_max),
            paths: Paths::new(path),
            receiving: Cell::new(1),
            watched: Cell::new(false),
            order: RefCell::new(Order::new(repeats, requests_max, config.request_bytes_max)),
            ways: RefCell::default(),
            workers: Workers::new(WAITING_TASKS_MAX),
            ending: Cell::new(false),
        })
    }

    /// Whether paths can be added: it is not over, and was opened for several.
    pub(crate) fn may_have_paths(&self) -> bool {
        !self.ending.get() && self.order.borrow().repeats()
    }

    /// Adds a path to a session that may have some. Returns false if it has as many as it may, or one of that number.
    pub(crate) fn add(self: &Rc<Self>, inner: &Rc<Inner<P>>, path: &Rc<Path<P::Connection>>) -> bool {
        // Paths that are closed count until nothing is received on them any more: they still hold memory. The other
        // side may have lost some of which it is not known here yet.
        let paths_max = inner.config.paths_max.max(1).saturating_mul(2);
        if self.receiving.get() >= paths_max || self.paths.numbered(path.number).is_some() {
            return false;
        }
        self.paths.add(Rc::clone(path));
        self.receiving.set(self.receiving.get() + 1);
        if !self.watched.replace(true) {
            inner.platform.spawn(Rc::clone(self).watch_paths(Rc::clone(inner)));
        }
        true
    }

    /// Closes the paths on which nothing comes while others are in use, as long as there are several.
    async fn watch_paths(self: Rc<Self>, inner: Rc<Inner<P>>) {
        while self.paths.all().len() > 1 {
            inner.platform.sleep(LOOK_INTERVAL).await;
            for path in self.paths.silent(SILENCES_MAX) {
                let (node, session) = (self.peer.shard, self.peer.session);
                tracing::info!(%node, session, from = path.connection.peer(), "path closed: nothing comes any more");
                self.paths.close(&path);
            }
        }
        self.watched.set(false);
    }

    /// Ends the session: nothing of it is begun any more.
    pub(crate) fn end(&self) {
        self.ending.set(true);
        self.places.close();
        self.bodies.close();
        self.paths.close_all();
        self.workers.close();
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
        let receipts = inner.receipts_of(self.peer.shard);
        frames.tell(path.heard());
        frames.share_payloads();
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
                self.room(inner, path).await?;
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
        frames.skip_payload(header).await?;
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
        self.room(inner, path).await?;
        let repeated = self.order.borrow().repeated(sequence);
        match repeated {
            Repeated::Answered(answer) => self.send_answer(inner, path, sequence, &answer),
            // A path that is closed by now is not where it came last.
            Repeated::Open if !path.is_open() => {}
            Repeated::Open => _ = self.ways.borrow_mut().insert(sequence, Rc::clone(path)),
            // The other side would wait for ever: its calls end, and whoever made them decides.
            Repeated::Gone => self.end(),
            Repeated::Over => {}
        }
        Ok(())
    }

    /// Completes when a path has room for an answer. Nothing is read from it until then.
    async fn room(&self, inner: &Inner<P>, path: &Rc<Path<P::Connection>>) -> Result<(), Ending> {
        path.connection.send_room(inner.config.queued_bytes_max).await.map_err(Ending::Broken)
    }

    async fn receive_request<S: BusService>(
        self: &Rc<Self>,
        inner: &Rc<Inner<P>>,
        service: &Rc<S>,
        path: &Rc<Path<P::Connection>>,
        frames: &mut FrameReceiver<P>,
        header: &Header,
    ) -> Result<(), Ending> {
        let long_body = match header.body_bytes.saturating_sub(BODY_BYTES_UNCOUNTED) {
            0 => None,
            bytes => {
                let _busy = path.busy();
                Some(self.bodies.take(bytes as u64).await.map_err(|_| Ending::Closed)?)
            }
        };
        let request = match postcard::take_from_bytes::<BusRequest>(frames.body(header).await?) {
            Ok((request, [])) => Some(request),
            _ => None,
        };
        if request.as_ref().is_some_and(|request| subject_of(request) != header.subject) {
            return Err(malformed("a request whose header speaks of something else").into());
        }
        let asked_bytes = request.as_ref().map_or(0, answer_bytes);
        let busy = path.busy();
        let place = self.places.take((header.payload_bytes as u64).saturating_add(asked_bytes)).await;
        let place = place.map_err(|_| Ending::Closed)?;
        drop(busy);
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
            let (node, kind) = (self.peer.shard, RequestKind::of(&request));
            tracing::warn!(%node, ?kind, "a payload was damaged on its way here");
            return self.refuse(inner, service, path, sequence, Status::PayloadDamaged).await;
        }
        let places = (place, long_body);
        let arrived = Arrived { sequence, path: Rc::clone(path), request, payload, places };
        // A heartbeat overtakes whatever is missing before it.
        let (overtakes, waits) = match arrived.request {
            BusRequest::Heartbeat(_) => (Some(arrived), None),
            _ => (None, Some(arrived)),
        };
        let is_new = self.order.borrow_mut().put(sequence, waits);
        if !is_new {
            // It has come on another path meanwhile.
            drop(overtakes);
            return self.answer_again(inner, path, sequence).await;
        }
        if let Some(arrived) = overtakes {
            self.begin(inner, service, arrived);
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
        if self.workers.give(arrived) {
            inner.platform.spawn(Rc::clone(self).work(Rc::clone(inner), Rc::clone(service)));
        }
    }

    /// Serves requests until the session has ended.
    async fn work<S: BusService>(self: Rc<Self>, inner: Rc<Inner<P>>, service: Rc<S>) {
        while let Some(arrived) = self.workers.next().await {
            self.serve(&inner, &service, arrived).await;
        }
    }

    /// Has one request served and answers it.
    async fn serve<S: BusService>(
        self: &Rc<Self>,
        inner: &Rc<Inner<P>>,
        service: &Rc<S>,
        arrived: Arrived<P>,
    ) {
        if self.ending.get() {
            return;
        }
        let Arrived { sequence, path, request, payload, places } = arrived;
        let kind = RequestKind::of(&request);
        inner.counters.request_served(kind);
        let (response, payload) = service.serve(self.peer, request, payload).await;
        let answer = Answer::Served(response, payload);
        if self.order.borrow().repeats() {
            self.order.borrow_mut().keep(sequence, answer.bytes(), || answer.clone());
        }
        let path = self.ways.borrow_mut().remove(&sequence).unwrap_or(path);
        if let Some(path) = self.way_for(inner, kind, path).await {
            match &answer {
                Answer::Served(BusResponse::Replica(Ok(ReplicaResponse::Done)), _) => {
                    self.tell_done(inner, &path, sequence);
                }
                _ => self.send_answer(inner, &path, sequence, &answer),
            }
        }
        drop(places);
    }

    /// Tells that a request is done. What else is done by the tasks that are ready now is told with it: a group of writes that
    /// has become durable is one frame, and not one for each write.
    fn tell_done(self: &Rc<Self>, inner: &Rc<Inner<P>>, path: &Rc<Path<P::Connection>>, sequence: u64) {
        if !path.note_done(sequence) {
            return;
        }
        let (session, sender, path) = (Rc::clone(self), Rc::clone(inner), Rc::clone(path));
        inner.platform.spawn(async move {
            let header = Header::new(FrameKind::Done, session.version, session.peer.session, 0);
            let done = path.take_done();
            // Whoever gave the path up asks again elsewhere, and is given the answer that is kept.
            for sequences in done.chunks(DONE_MAX).filter(|_| path.is_open()) {
                let body = done_body(sequences);
                sender.send_raw(&path.connection, header, &body);
                sender.counters.answers_joined.add(sequences.len() as u64 - 1);
                path.sends((HEADER_BYTES + body.len()) as u64);
            }
        });
    }

    /// The path for an answer, once it has room: the one that its request came on, if it is open.
    async fn way_for(
        &self,
        inner: &Inner<P>,
        kind: RequestKind,
        mut path: Rc<Path<P::Connection>>,
    ) -> Option<Rc<Path<P::Connection>>> {
        // Those of heartbeats overtake what waits here.
        let ahead = if kind == RequestKind::Heartbeat { 2 } else { 1 };
        let queued_bytes_max = inner.config.queued_bytes_max.saturating_mul(ahead);
        loop {
            if !path.is_open() {
                path = self.paths.pick()?;
            }
            if path.connection.queued_bytes() < queued_bytes_max {
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
        match sent {
            Ok(()) => path.sends((HEADER_BYTES + header.payload_bytes) as u64),
            Err(TooLarge) => self.send_answer(inner, path, sequence, &Answer::Refused(Status::TooLarge)),
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
        self.room(inner, path).await?;
        self.send_answer(inner, path, sequence, &Answer::Refused(status));
        Ok(())
    }
}

impl Answer {
    /// The bytes that it holds, about; none if it is short.
    fn bytes(&self) -> u64 {
        let Answer::Served(response, payload) = self else { return 0 };
        let payload_bytes: u64 = payload.iter().map(|part| part.len() as u64).sum();
        let body_bytes = body_bytes(response);
        payload_bytes + if body_bytes > ANSWER_BODY_BYTES_UNCOUNTED { body_bytes } else { 0 }
    }
}

#[cfg(test)]
#[path = "accepted_session_tests.rs"]
mod tests;
