//! One request to another node, from its sending to the judgement of its answer.
//!
//! Mostly it can be sent at once, and is then no more than a number that waits for an answer. Where as much is unanswered as the
//! other node admits, or too much is queued, it waits in line first.
//!
//! Invariant: requests to one node are sent in the order in which they were begun, but for heartbeats.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use spandrel_platform::{Buffer, Platform};
use spandrel_shared::load::Operation;
use spandrel_shared::{Load, ShardId};

use crate::bus::Inner;
use crate::calls::{Answer, Outcome};
use crate::dialled_session::DialledSession;
use crate::frame::{PAYLOAD_BYTES_MAX, TooLarge, payload_bytes};
use crate::payload::{Expected, answer_bytes};
use crate::places::{Closed, Place};
use crate::statistics::begin;
use crate::{BusError, BusRequest, BusResponse};

/// A request that was asked: gives its answer, as [`Bus::call`](crate::Bus::call) does. Who drops it waits no longer.
///
/// It is to be awaited at once, or dropped: one that still stands in line has all later requests to the node stand behind it.
#[must_use = "what is asked later waits behind it"]
pub struct Call<P: Platform> {
    stage: Stage<P>,
}

enum Stage<P: Platform> {
    /// In line.
    Waiting(Pin<Box<dyn Future<Output = Result<Sent<P>, BusError>>>>),
    Sent(Sent<P>),
    /// It was not sent; nothing once that was told.
    Failed(Option<BusError>),
}

/// A request that is on its way, or being served.
struct Sent<P: Platform> {
    inner: Rc<Inner<P>>,
    answer: Answer,
    asked: Asked,
}

/// What is known of a request while its answer is awaited.
struct Asked {
    expected: Expected,
    sent_bytes: u64,
    operation: Option<Operation<Rc<Load>>>,
}

impl<P: Platform> Call<P> {
    pub(crate) fn begin(
        inner: &Rc<Inner<P>>,
        peer: ShardId,
        request: BusRequest,
        payload: Vec<Buffer>,
    ) -> Self {
        let stage = Stage::begin(inner, peer, request, payload);
        Self { stage: stage.unwrap_or_else(|error| Stage::Failed(Some(error))) }
    }
}

impl<P: Platform> Stage<P> {
    fn begin(
        inner: &Rc<Inner<P>>,
        peer: ShardId,
        request: BusRequest,
        payload: Vec<Buffer>,
    ) -> Result<Self, BusError> {
        let session = inner.session(peer).ok_or(BusError::NotConnected)?;
        let asked_bytes = answer_bytes(&request);
        let sent_bytes = payload_bytes(&payload).map_err(|TooLarge| BusError::TooLarge)? as u64;
        if asked_bytes > PAYLOAD_BYTES_MAX as u64 {
            return Err(BusError::TooLarge);
        }
        let operation = begin(&inner.load, &request);
        let asked = Asked { expected: Expected::of(&request), sent_bytes, operation };
        if matches!(request, BusRequest::Heartbeat(_)) {
            return Ok(Self::Sent(Sent::new(inner, &session, request, payload, None, asked)?));
        }
        let bytes = sent_bytes + asked_bytes;
        if let Some(place) = session.try_place(inner, bytes) {
            return Ok(Self::Sent(Sent::new(inner, &session, request, payload, Some(place), asked)?));
        }
        let inner = Rc::clone(inner);
        let mut waiting: Pin<Box<dyn Future<Output = _>>> = Box::pin(async move {
            let _turn = session.turn.take(0).await.map_err(|Closed| BusError::NotConnected)?;
            let place = session.place(&inner, bytes).await?;
            Sent::new(&inner, &session, request, payload, Some(place), asked)
        });
        // From here on it stands in line, before whatever is begun later. Whoever awaits it says then whom to wake.
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(sent) => sent.map(Self::Sent),
            Poll::Pending => Ok(Self::Waiting(waiting)),
        }
    }
}

impl<P: Platform> Sent<P> {
    fn new(
        inner: &Rc<Inner<P>>,
        session: &DialledSession<P>,
        request: BusRequest,
        payload: Vec<Buffer>,
        place: Option<Place>,
        asked: Asked,
    ) -> Result<Self, BusError> {
        let answer = session.ask(inner, request, payload, place)?;
        Ok(Self { inner: Rc::clone(inner), answer, asked })
    }

    /// Judges what has come.
    fn judge(&mut self, outcome: Outcome) -> Result<(BusResponse, Vec<Buffer>), BusError> {
        let Asked { expected, sent_bytes, operation } = &mut self.asked;
        let (response, payload) = match outcome {
            Err(BusError::DamagedOnArrival) => (expected.damaged_on_arrival()?, None),
            outcome => outcome?,
        };
        match expected.judge(&response, payload) {
            Ok(parts) => {
                if let Some(operation) = operation.take() {
                    let received_bytes: usize = parts.iter().map(|part| part.len()).sum();
                    operation.done(*sent_bytes + received_bytes as u64);
                }
                Ok((response, parts))
            }
            Err(error) => {
                self.inner.counters.payloads_damaged.add(u64::from(error == BusError::AnswerDamaged));
                Err(error)
            }
        }
    }
}

impl<P: Platform> Future for Call<P> {
    type Output = Result<(BusResponse, Vec<Buffer>), BusError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Stage::Waiting(waiting) = &mut self.stage {
            self.stage = match ready!(waiting.as_mut().poll(context)) {
                Ok(sent) => Stage::Sent(sent),
                Err(error) => Stage::Failed(Some(error)),
            };
        }
        match &mut self.stage {
            Stage::Sent(sent) => {
                let outcome = ready!(Pin::new(&mut sent.answer).poll(context));
                Poll::Ready(sent.judge(outcome))
            }
            Stage::Failed(error) => Poll::Ready(Err(error.take().unwrap_or(BusError::SessionLost))),
            Stage::Waiting(_) => unreachable!("it has just become another one"),
        }
    }
}

#[cfg(test)]
#[path = "call_tests.rs"]
mod tests;
