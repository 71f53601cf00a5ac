//! A session in which this node asks, over all the paths that it has to the other one.
//!
//! Invariants:
//! - A session lives as long as one of its paths; what was sent on one that is lost is sent again on another, under
//!   the same number, as fast as that takes it.
//! - A path that gives no sign of life while another one does is lost. If none does, it is not for the bus to say
//!   what that means.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Duration;

use spandrel_platform::sync::Signal;
use spandrel_platform::{Buffer, Connection, Platform};
use spandrel_replica::ReplicaResponse;
use spandrel_shared::ShardId;

use crate::bus::{Inner, SessionInfo};
use crate::calls::{Answer, Calls, Outcome, Sent};
use crate::dialler::DialledPeer;
use crate::frame::{FrameKind, HEADER_BYTES, Header, Malformed, Status, TooLarge, malformed, read_done};
use crate::path::{Path, Paths};
use crate::payload::{answer_bytes, request_checksum, response_is_whole, subject_of};
use crate::places::{Closed, Place, Places};
use crate::receiver::{Ending, FrameReceiver};
use crate::statistics::RequestKind;
use crate::{BusError, BusRequest, BusResponse};

/// How often each path of a session that has several is asked for a sign of life.
const PING_INTERVAL: Duration = Duration::from_millis(125);

/// A path that owes as many signs of life, while another one gives them, is lost.
const SILENCES_MAX: u32 = 4;

/// Lost paths that are told of again when another one is lost or joins. The other side finds older ones by their
/// silence.
const LOST_TOLD_MAX: usize = 8;

/// A session in which this node asks.
pub(crate) struct DialledSession<P: Platform> {
    pub(crate) info: SessionInfo,
    pub(crate) version: u16,
    /// Whether it may have more than one path, ever.
    pub(crate) repeats: bool,
    pub(crate) paths: Paths<P::Connection>,
    /// How many paths it has had.
    pub(crate) path_count: Cell<u32>,
    /// The numbers of the paths that it has lost last.
    pub(crate) lost: RefCell<VecDeque<u32>>,
    /// The calls that are to be sent again.
    pub(crate) repeats_due: RefCell<BTreeSet<u64>>,
    /// Told when there are some.
    pub(crate) repeats_told: Signal,
    pub(crate) calls: Rc<Calls>,
    /// What the peer admits at the same time.
    pub(crate) places: Rc<Places>,
    /// Held by the one call that is about to be sent, so that all are sent in their order.
    pub(crate) turn: Rc<Places>,
    pub(crate) peer: Weak<DialledPeer<P>>,
    /// Why it is over, once it is.
    pub(crate) ending: RefCell<Option<Ending>>,
    /// Told when it is over.
    pub(crate) over: Signal,
}

impl<P: Platform> DialledSession<P> {
    /// Ends the session: no call is sent in it any more, and the unanswered ones end.
    pub(crate) fn end(&self, inner: &Inner<P>, ending: Ending) {
        if self.is_over() {
            return;
        }
        *self.ending.borrow_mut() = Some(ending);
        self.paths.close_all();
        if let Some(peer) = self.peer.upgrade() {
            peer.forget(self);
        }
        self.places.close();
        self.calls.end();
        self.over.notify_all();
        inner.changes.notify_all();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.ending.borrow().is_some()
    }

    /// The number of a new path.
    pub(crate) fn next_path(&self) -> u32 {
        let next = self.path_count.get();
        self.path_count.set(next.wrapping_add(1).max(1));
        next
    }

    /// A path's connection has ended, or is given up: what was sent on it is sent again on the others. Without
    /// another one the session is over.
    pub(crate) fn lose(&self, inner: &Inner<P>, path: &Path<P::Connection>, ending: Ending) {
        if !self.paths.close(path) || self.is_over() {
            return;
        }
        if self.paths.is_empty() || matches!(ending, Ending::Malformed(_)) {
            return self.end(inner, ending);
        }
        inner.counters.paths_lost.add(1);
        let mut lost = self.lost.borrow_mut();
        lost.push_front(path.number);
        lost.truncate(LOST_TOLD_MAX);
        drop(lost);
        self.paths.all().iter().for_each(|other| self.tell_lost(inner, other));
        let (heartbeats, others) = self.calls.sent_on(path.number);
        // Nodes are judged by them: they wait for nothing.
        for sequence in heartbeats {
            if let Some(other) = self.paths.pick() {
                self.repeat(inner, &other, sequence);
            }
        }
        self.repeats_due.borrow_mut().extend(others);
        self.repeats_told.notify_all();
    }

    /// Sends a call again that was sent on a path that is lost, unless its answer has come meanwhile.
    fn repeat(&self, inner: &Inner<P>, path: &Path<P::Connection>, sequence: u64) {
        let Some(sent) = self.calls.sent(sequence) else { return };
        let sent = Sent { path: path.number, ..sent };
        // What has fitted into a frame once fits again.
        if self.send(inner, path, sequence, &sent).is_ok() {
            inner.counters.requests_repeated.add(1);
            self.calls.keep(sequence, sent);
        }
    }

    /// Sends what was sent on lost paths again, in its order, until the session is over. It waits for room as calls do,
    /// so that heartbeats do not stand behind all of it.
    pub(crate) async fn repeat_lost(&self, inner: &Inner<P>) {
        let queued_bytes_max = inner.config.queued_bytes_max;
        loop {
            self.repeats_told.wait_until(|| !self.repeats_due.borrow().is_empty()).await;
            let Some(path) = self.paths.pick() else { return };
            if path.connection.queued_bytes() >= queued_bytes_max {
                if let Err(error) = path.connection.send_room(queued_bytes_max).await {
                    self.lose(inner, &path, Ending::Broken(error));
                }
                continue;
            }
            let next = self.repeats_due.borrow_mut().pop_first();
            if let Some(sequence) = next {
                self.repeat(inner, &path, sequence);
            }
        }
    }

    /// Says on a path which others are lost: also those of which it was said before, on paths that may have been lost
    /// with it.
    pub(crate) fn tell_lost(&self, inner: &Inner<P>, path: &Path<P::Connection>) {
        for number in &*self.lost.borrow() {
            let lost = Header::new(FrameKind::PathLost, self.version, self.info.session, (*number).into());
            inner.send_raw(&path.connection, lost, &[]);
        }
    }

    /// Gives up the paths that are silent while others are not, until the session is over.
    pub(crate) async fn watch_paths(&self, inner: &Inner<P>, peer: ShardId) {
        loop {
            inner.platform.sleep(PING_INTERVAL).await;
            for path in self.paths.silent(SILENCES_MAX) {
                tracing::warn!(node = %peer, to = path.connection.peer(), "a path is silent: the others go on without it");
                self.lose(inner, &path, Ending::Silent);
            }
            let paths = self.paths.all();
            for path in paths.iter().filter(|path| paths.len() > 1 && path.may_ping()) {
                let ping = Header::new(FrameKind::Ping, self.version, self.info.session, 0);
                inner.send_raw(&path.connection, ping, &[]);
            }
        }
    }

    /// Brings answers to their calls until the path ends.
    pub(crate) async fn receive(
        &self,
        inner: &Inner<P>,
        peer: ShardId,
        path: &Path<P::Connection>,
        frames: &mut FrameReceiver<P>,
    ) -> Ending {
        let receipts = inner.receipts_of(peer);
        frames.tell(path.heard());
        loop {
            match self.receive_answer(inner, path, frames).await {
                Ok(()) => receipts.set(frames.received_at()),
                Err(ending) => return ending,
            }
        }
    }

    async fn receive_answer(
        &self,
        inner: &Inner<P>,
        path: &Path<P::Connection>,
        frames: &mut FrameReceiver<P>,
    ) -> Result<(), Ending> {
        let header = frames.header().await?;
        self.check(&header)?;
        let body = frames.body(&header).await?;
        let frame_bytes = HEADER_BYTES + header.body_bytes + header.payload_bytes;
        if header.kind == FrameKind::Pong {
            inner.counters.received(frame_bytes);
            let asked = path.ponged();
            return if asked {
                Ok(())
            } else {
                Err(malformed("a sign of life that was not asked for").into())
            };
        }
        if header.kind == FrameKind::Done {
            inner.counters.received(frame_bytes);
            return Ok(self.settle_done(body)?);
        }
        if !self.calls.is_open(header.sequence) {
            // It has come before.
            frames.skip_payload(&header).await?;
            inner.counters.received(frame_bytes);
            return Ok(());
        }
        let response = read_response(&header, body)?;
        let payload = frames.payload(&header).await?;
        inner.counters.received(frame_bytes);
        let outcome = outcome_of(response, &header, payload);
        if outcome.as_ref().is_err_and(|error| *error == BusError::AnswerDamaged) {
            inner.counters.payloads_damaged.add(1);
        }
        self.calls.settle(header.sequence, outcome);
        Ok(())
    }

    fn check(&self, header: &Header) -> Result<(), Malformed> {
        if !matches!(header.kind, FrameKind::Answer | FrameKind::Done | FrameKind::Pong) {
            return Err(malformed("a frame that is no answer where this side asks"));
        }
        if header.version != self.version || header.session != self.info.session {
            return Err(malformed("an answer of another session or version"));
        }
        if header.kind == FrameKind::Answer { self.check_asked(header.sequence) } else { Ok(()) }
    }

    fn check_asked(&self, sequence: u64) -> Result<(), Malformed> {
        // An answer may come a second time when its request was sent a second time.
        let was_asked = match self.repeats {
            true => self.calls.was_begun(sequence),
            false => self.calls.is_open(sequence),
        };
        if was_asked { Ok(()) } else { Err(malformed("an answer to a question that was not asked")) }
    }

    /// Brings the calls their answer of which a body says that they are done.
    fn settle_done(&self, body: &[u8]) -> Result<(), Malformed> {
        for sequence in read_done(body)? {
            self.check_asked(sequence)?;
            self.calls.settle(sequence, Ok((BusResponse::Replica(Ok(ReplicaResponse::Done)), None)));
        }
        Ok(())
    }

    /// A place for a request with `bytes` of payload, once the peer admits it and not too much is
    /// queued before it.
    pub(crate) async fn place(&self, inner: &Inner<P>, bytes: u64) -> Result<Place, BusError> {
        let queued_bytes_max = inner.config.queued_bytes_max;
        let place = self.places.take(bytes).await.map_err(|Closed| BusError::NotConnected)?;
        loop {
            let path = self.paths.pick().ok_or(BusError::NotConnected)?;
            if path.connection.queued_bytes() < queued_bytes_max {
                return Ok(place);
            }
            // There may be another one. It must not be picked again: it would fail again at once.
            if let Err(error) = path.connection.send_room(queued_bytes_max).await {
                self.lose(inner, &path, Ending::Broken(error));
            }
        }
    }

    /// The same if that is so now, and no other call is about to be sent.
    pub(crate) fn try_place(&self, inner: &Inner<P>, bytes: u64) -> Option<Place> {
        let path = self.paths.pick()?;
        let is_free = self.turn.is_idle() && path.connection.queued_bytes() < inner.config.queued_bytes_max;
        if is_free { self.places.try_take(bytes) } else { None }
    }

    /// Sends a request.
    pub(crate) fn ask(
        &self,
        inner: &Inner<P>,
        request: BusRequest,
        payload: Vec<Buffer>,
        place: Option<Place>,
    ) -> Result<Answer, BusError> {
        let path = self.paths.pick().ok_or(BusError::NotConnected)?;
        let kind = RequestKind::of(&request);
        let answer = self.calls.begin(place)?;
        let sent = Sent { request, payload, path: path.number };
        if self.send(inner, &path, answer.sequence(), &sent).is_err() {
            answer.withdraw();
            return Err(BusError::TooLarge);
        }
        if self.repeats {
            self.calls.keep(answer.sequence(), sent);
        }
        inner.counters.request_sent(kind);
        Ok(answer)
    }

    fn send(
        &self,
        inner: &Inner<P>,
        path: &Path<P::Connection>,
        sequence: u64,
        sent: &Sent,
    ) -> Result<(), TooLarge> {
        let mut header = Header::new(FrameKind::Request, self.version, self.info.session, sequence);
        header.subject = subject_of(&sent.request);
        header.payload_bytes = sent.payload.iter().map(|part| part.len()).sum();
        header.payload_checksum = request_checksum(&sent.request, &sent.payload);
        inner.send(&path.connection, header, &sent.request, &sent.payload)?;
        let sent_bytes = (HEADER_BYTES + header.payload_bytes) as u64;
        path.sends(sent_bytes);
        path.carry(sent_bytes + answer_bytes(&sent.request));
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

#[cfg(test)]
#[path = "dialled_session_tests.rs"]
mod tests;
