//! One simulated TCP connection: two endpoints and the wire each way.
//!
//! What a process queues leaves when its turn ends, as far as the socket buffers have room: that
//! room is taken by bytes on the wire and bytes that the receiver has not read, and is given back
//! over the link of the other direction. On a wire, segments arrive in order; only the first is
//! planned as an event. A segment whose link is cut, or whose receiver has no power, waits there
//! with all behind it.
//!
//! How connections end:
//! - `close` (also: the last handle is dropped) sends the queue as far as there is room, then
//!   that it is closed. If bytes were left unread, the other side sees a broken connection, as
//!   kernels have it.
//! - The crash of a process loses its queue. Its kernel closes the connection; whether the other
//!   side sees an end in order (zero bytes) or a broken connection, and how much of what was on
//!   the wire it still gets in the latter case, the seed picks.
//! - With a power cut an endpoint is gone without a word. What is sent to it waits for the power;
//!   then, as to any endpoint that is no more, the answer is that the connection is broken.
//! - A break: both ends see it at once. Some first part of what was on the wire has arrived.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use spandrel_platform::{Buffer, Connection, LinkError};

use crate::byte_queue::ByteQueue;
use crate::events::{Event, EventKey};
use crate::host::HostState;
use crate::network::{Link, NetworkCounters, Place};
use crate::process::{End, ProcessState};
use crate::trace::Kind;
use crate::world::Shared;

/// Which end: 0 is the one that connected, 1 the one that listened.
pub(crate) type Side = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The call has not been answered; on the listening side: not arrived.
    Connecting,
    Open,
    /// Closed by its own process.
    Closed,
    /// Its process has ended.
    Gone,
}

/// What an endpoint knows of the other side's end, once it has read all that came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    InOrder,
    Broken,
    Refused,
}

struct Endpoint {
    host: Rc<HostState>,
    /// Whose it is; on the listening side `None` until the call arrives.
    process: RefCell<Option<Rc<ProcessState>>>,
    state: Cell<State>,
    ending: Cell<Option<Ending>>,
    /// Queued, and not with the kernel.
    outgoing: RefCell<ByteQueue>,
    /// Whether the process will send at the end of its turn.
    unsent: Cell<bool>,
    incoming: RefCell<ByteQueue>,
    reader: Cell<Option<Waker>>,
    writers: RefCell<Vec<Waker>>,
    /// The other side's address.
    peer: String,
}

enum Segment {
    Call,
    Answer,
    Data(ByteQueue),
    Close,
    Reset,
}

impl Segment {
    fn bytes(&self) -> usize {
        if let Segment::Data(bytes) = self { bytes.len() } else { 0 }
    }

    /// A number for the trace and a word for the timeline.
    fn kind(&self) -> (u64, &'static str) {
        match self {
            Segment::Call => (1, "call"),
            Segment::Answer => (2, "answer to the call"),
            Segment::Data(_) => (3, "data"),
            Segment::Close => (4, "close"),
            Segment::Reset => (5, "reset"),
        }
    }
}

/// The way from one endpoint to the other.
struct Wire {
    link: Rc<Link>,
    /// Each with the time from which on it may arrive, and not before those ahead of it.
    segments: RefCell<VecDeque<(u64, Segment)>>,
    event: Cell<Option<EventKey>>,
    /// Whether the first segment waits for the link or for power.
    blocked: Cell<bool>,
    /// The sending kernel is gone: what isn't on its way now will not be repeated.
    sender_lost: Cell<bool>,
    reset_sent: Cell<bool>,
    /// Bytes on the wire or not yet read.
    outstanding: Cell<usize>,
    /// Room that the sender doesn't know of yet, and the event that tells it.
    credit: Cell<usize>,
    credit_event: Cell<bool>,
    /// Room that the sender cannot be told of, the other direction being cut.
    held_credit: Cell<usize>,
}

impl Wire {
    /// The sender's host has no power any more.
    fn lose_sender(&self) {
        self.sender_lost.set(true);
        if self.blocked.get() {
            self.segments.take();
            self.reset_sent.set(false);
        }
    }
}

pub(crate) struct ConnectionState {
    id: u64,
    shared: Rc<Shared>,
    place: Place,
    endpoints: [Endpoint; 2],
    /// By sending side.
    wires: [Wire; 2],
}

impl ConnectionState {
    pub(crate) fn new(
        process: &Rc<ProcessState>,
        host: Rc<HostState>,
        id: u64,
        place: Place,
        links: [Rc<Link>; 2],
        peers: [String; 2],
    ) -> Rc<Self> {
        let [listener, caller] = peers;
        let endpoint = |host, process, peer| Endpoint {
            host,
            process: RefCell::new(process),
            state: Cell::new(State::Connecting),
            ending: Cell::new(None),
            outgoing: RefCell::default(),
            unsent: Cell::new(false),
            incoming: RefCell::default(),
            reader: Cell::new(None),
            writers: RefCell::default(),
            peer,
        };
        let wire = |link| Wire {
            link,
            segments: RefCell::default(),
            event: Cell::new(None),
            blocked: Cell::new(false),
            sender_lost: Cell::new(false),
            reset_sent: Cell::new(false),
            outstanding: Cell::new(0),
            credit: Cell::new(0),
            credit_event: Cell::new(false),
            held_credit: Cell::new(0),
        };
        Rc::new(Self {
            id,
            shared: Rc::clone(&process.shared),
            place,
            endpoints: [
                endpoint(Rc::clone(&process.host), Some(Rc::clone(process)), listener),
                endpoint(host, None, caller),
            ],
            wires: links.map(wire),
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Sender, receiver and number, for the timeline.
    pub(crate) fn describe(&self, side: Side) -> String {
        let name = |side: Side| {
            let process = self.endpoints[side].process.borrow();
            process.as_ref().map_or_else(|| self.endpoints[side].host.name.clone(), |p| p.name.clone())
        };
        format!("connection {} {} -> {}", self.id, name(side), name(1 - side))
    }

    pub(crate) fn joins(&self, a: &HostState, b: &HostState) -> bool {
        let [first, second] = [&self.endpoints[0].host, &self.endpoints[1].host];
        let pair = (first.number, second.number);
        pair == (a.number, b.number) || pair == (b.number, a.number)
    }

    pub(crate) fn is_remote(&self) -> bool {
        self.endpoints[0].host.number != self.endpoints[1].host.number
    }

    /// Begins to connect.
    pub(crate) fn call(self: &Rc<Self>) {
        if !self.is_stopped(0) {
            self.put(0, Segment::Call);
        }
    }

    /// Sends what the process has queued, as far as there is room.
    pub(crate) fn transmit(self: &Rc<Self>, side: Side) {
        let endpoint = &self.endpoints[side];
        endpoint.unsent.set(false);
        if !endpoint.can_send() || self.is_stopped(side) {
            return;
        }
        let wire = &self.wires[side];
        let config = &self.shared.network.config;
        let room = config.socket_buffer_bytes.saturating_sub(wire.outstanding.get());
        let mut leaving = endpoint.outgoing.borrow_mut().split_front(room);
        if leaving.is_empty() {
            return;
        }
        wire.outstanding.set(wire.outstanding.get() + leaving.len());
        let numbers = [self.id << 1 | side as u64, leaving.len() as u64, leaving.digest()];
        self.shared.record(Kind::Send, numbers, || {
            format!("{}: {} bytes leave", self.describe(side), leaving.len())
        });
        if self.is_remote() {
            let counters = &self.shared.network.counters;
            let NetworkCounters { sends, bytes } = counters.get();
            let bytes = bytes + leaving.len() as u64;
            counters.set(NetworkCounters { sends: sends + 1, bytes });
        }
        let random = &self.shared.network.random;
        if leaving.len() > 1 && random.chance(config.split_per_mille) {
            let first = leaving.split_front(1 + random.index(leaving.len() - 1));
            self.put(side, Segment::Data(first));
        }
        self.put(side, Segment::Data(leaving));
        endpoint.wake_writers();
    }

    /// The first segment from `side` has arrived.
    pub(crate) fn deliver(self: &Rc<Self>, side: Side) {
        let wire = &self.wires[side];
        wire.event.set(None);
        let receiver = &self.endpoints[1 - side];
        if wire.link.cut.get() {
            wire.blocked.set(true);
            if wire.sender_lost.get() {
                wire.lose_sender();
            }
            wire.link.block(Rc::clone(self), side);
            return;
        }
        if !receiver.host.is_powered() {
            wire.blocked.set(true);
            receiver.host.block(Rc::clone(self), side);
            return;
        }
        let first = wire.segments.borrow_mut().pop_front();
        let Some((_, segment)) = first else { return };
        let (kind, word) = segment.kind();
        let bytes = segment.bytes();
        self.shared.record(Kind::Deliver, [self.id << 1 | side as u64, kind, bytes as u64], || {
            format!("{}: {word} arrives ({bytes} bytes)", self.describe(side))
        });
        self.arrive(1 - side, segment);
        self.plan_delivery(side);
    }

    fn arrive(self: &Rc<Self>, side: Side, segment: Segment) {
        let endpoint = &self.endpoints[side];
        let over = matches!(endpoint.state.get(), State::Closed | State::Gone);
        match segment {
            Segment::Call => self.arrive_call(),
            Segment::Answer => {
                if endpoint.state.get() == State::Connecting {
                    endpoint.state.set(State::Open);
                    endpoint.wake_reader();
                }
            }
            Segment::Data(_) if over => self.reset(side),
            Segment::Data(bytes) => {
                endpoint.incoming.borrow_mut().append(bytes);
                endpoint.wake_reader();
            }
            Segment::Close => {
                if !over && endpoint.ending.get().is_none() {
                    endpoint.ending.set(Some(Ending::InOrder));
                    endpoint.wake_reader();
                }
            }
            Segment::Reset => {
                let refused = endpoint.state.get() == State::Connecting;
                self.end_of_other(side, if refused { Ending::Refused } else { Ending::Broken });
            }
        }
    }

    fn arrive_call(self: &Rc<Self>) {
        let host = self.endpoints[1].host.number;
        let Some(listener) = self.shared.network.listener(host, &self.place) else {
            self.reset(1);
            return;
        };
        *self.endpoints[1].process.borrow_mut() = Some(Rc::clone(listener.process()));
        self.endpoints[1].state.set(State::Open);
        self.put(1, Segment::Answer);
        listener.arrive(Rc::clone(self));
    }

    /// What waits on the wire from `side` may move again.
    pub(crate) fn unblock(self: &Rc<Self>, side: Side) {
        let wire = &self.wires[side];
        wire.blocked.set(false);
        let arrival = wire.link.arrival(self.shared.now(), 0, &self.shared.network.random);
        if let Some((time, _)) = wire.segments.borrow_mut().front_mut() {
            *time = (*time).max(arrival);
        }
        self.plan_delivery(side);
    }

    /// The sender at `side` learns of the room that the reader made.
    pub(crate) fn credit(self: &Rc<Self>, side: Side) {
        let wire = &self.wires[side];
        wire.credit_event.set(false);
        wire.outstanding.set(wire.outstanding.get().saturating_sub(wire.credit.take()));
        self.transmit(side);
    }

    /// As [`Self::credit`], for room that a cut link had held back.
    pub(crate) fn release_credit(self: &Rc<Self>, side: Side) {
        let wire = &self.wires[side];
        wire.credit.set(wire.credit.get() + wire.held_credit.take());
        self.credit(side);
    }

    /// Its reader at `side` has taken `bytes`.
    fn give_credit(self: &Rc<Self>, side: Side, bytes: usize) {
        let sender = 1 - side;
        let wire = &self.wires[sender];
        let back = &self.wires[side].link;
        if back.cut.get() {
            if wire.held_credit.get() == 0 {
                back.hold_credit(Rc::clone(self), sender);
            }
            wire.held_credit.set(wire.held_credit.get() + bytes);
        } else if self.endpoints[sender].outgoing.borrow().is_empty() {
            // Nobody waits for the room, so that when exactly it is there shows nowhere.
            wire.outstanding.set(wire.outstanding.get().saturating_sub(bytes));
        } else {
            wire.credit.set(wire.credit.get() + bytes);
            if !wire.credit_event.replace(true) {
                let at = back.arrival(self.shared.now(), 0, &self.shared.network.random);
                self.shared.plan(at, Event::Credit(Rc::clone(self), sender));
            }
        }
    }

    fn close(self: &Rc<Self>, side: Side) {
        let endpoint = &self.endpoints[side];
        // Whoever ends a stopped process ends its connections too, in the way of that end.
        if self.is_stopped(side) || !matches!(endpoint.state.get(), State::Open | State::Connecting) {
            return;
        }
        self.transmit(side);
        let connecting = endpoint.state.replace(State::Closed) == State::Connecting;
        let unread = !endpoint.incoming.take().is_empty();
        endpoint.outgoing.take();
        if matches!(endpoint.ending.get(), None | Some(Ending::InOrder)) {
            self.put(side, if unread || connecting { Segment::Reset } else { Segment::Close });
        }
        endpoint.wake_reader();
        endpoint.wake_writers();
    }

    pub(crate) fn process_ended(self: &Rc<Self>, process: &Rc<ProcessState>, end: End) {
        for side in [0, 1] {
            let endpoint = &self.endpoints[side];
            let owned = endpoint.process.borrow().as_ref().is_some_and(|owner| Rc::ptr_eq(owner, process));
            if owned {
                self.endpoint_ended(side, end);
            }
        }
    }

    fn endpoint_ended(self: &Rc<Self>, side: Side, end: End) {
        let endpoint = &self.endpoints[side];
        let wire = &self.wires[side];
        let state = endpoint.state.replace(State::Gone);
        endpoint.outgoing.take();
        let unread = !endpoint.incoming.take().is_empty();
        if end == End::PowerCut {
            wire.lose_sender();
            return;
        }
        let open = matches!(state, State::Open | State::Connecting);
        if !open || !matches!(endpoint.ending.get(), None | Some(Ending::InOrder)) {
            return;
        }
        let random = &self.shared.network.random;
        if state == State::Open && !unread && random.chance(500) {
            self.put(side, Segment::Close);
            return;
        }
        if random.chance(500) {
            let kept = self.first_part_of_wire(side);
            *wire.segments.borrow_mut() = kept;
        }
        self.reset(side);
    }

    /// A host has lost its power, and with it what its processes have sent. A call that is still on its way
    /// there meets the next process.
    pub(crate) fn power_lost(&self, host: &Rc<HostState>) {
        for side in [0, 1] {
            let endpoint = &self.endpoints[side];
            if Rc::ptr_eq(&endpoint.host, host) && endpoint.process.borrow().is_some() {
                self.wires[side].lose_sender();
            }
        }
    }

    /// An endpoint that a power cut took answers, by its host's new kernel, a sender that still
    /// has something to say.
    pub(crate) fn power_returned(self: &Rc<Self>, host: &Rc<HostState>) {
        for side in [0, 1] {
            let endpoint = &self.endpoints[side];
            let sender = &self.endpoints[1 - side];
            let lost = endpoint.state.get() == State::Gone && Rc::ptr_eq(&endpoint.host, host);
            if lost && sender.can_send() && !sender.outgoing.borrow().is_empty() {
                self.reset(side);
            }
        }
    }

    /// Breaks the connection for both ends, some first part of what is on its way having arrived.
    pub(crate) fn break_now(self: &Rc<Self>) {
        for side in [0, 1] {
            let wire = &self.wires[side];
            let receiver = &self.endpoints[1 - side];
            let passable = !wire.link.cut.get() && !wire.blocked.get();
            let arrived = if passable { self.first_part_of_wire(side) } else { VecDeque::new() };
            wire.segments.take();
            if receiver.state.get() == State::Open && receiver.ending.get().is_none() {
                for (_, segment) in arrived {
                    if let Segment::Data(bytes) = segment {
                        receiver.incoming.borrow_mut().append(bytes);
                    }
                }
            }
        }
        for side in [0, 1] {
            self.end_of_other(side, Ending::Broken);
        }
    }

    /// Takes what is on the wire from `side`, cut off at a random byte.
    fn first_part_of_wire(&self, side: Side) -> VecDeque<(u64, Segment)> {
        let mut segments = self.wires[side].segments.take();
        let bytes: usize = segments.iter().map(|(_, segment)| segment.bytes()).sum();
        let mut left = self.shared.network.random.index(bytes + 1);
        let mut kept = VecDeque::new();
        while let Some((time, segment)) = segments.pop_front() {
            match segment {
                Segment::Data(mut bytes) if bytes.len() > left => {
                    let first = bytes.split_front(left);
                    if !first.is_empty() {
                        kept.push_back((time, Segment::Data(first)));
                    }
                    return kept;
                }
                segment => {
                    left -= segment.bytes();
                    kept.push_back((time, segment));
                }
            }
        }
        kept
    }

    /// Tells the other side, once, that this side knows of no such connection.
    fn reset(self: &Rc<Self>, side: Side) {
        if !self.wires[side].reset_sent.replace(true) {
            self.wires[side].sender_lost.set(false);
            self.put(side, Segment::Reset);
        }
    }

    fn end_of_other(&self, side: Side, ending: Ending) {
        let endpoint = &self.endpoints[side];
        if matches!(endpoint.state.get(), State::Closed | State::Gone) {
            return;
        }
        endpoint.ending.set(Some(ending));
        endpoint.outgoing.take();
        endpoint.wake_reader();
        endpoint.wake_writers();
    }

    fn put(self: &Rc<Self>, side: Side, segment: Segment) {
        let wire = &self.wires[side];
        let arrival = wire.link.arrival(self.shared.now(), segment.bytes(), &self.shared.network.random);
        wire.segments.borrow_mut().push_back((arrival, segment));
        self.plan_delivery(side);
    }

    fn plan_delivery(self: &Rc<Self>, side: Side) {
        let wire = &self.wires[side];
        if wire.blocked.get() || wire.event.get().is_some() {
            return;
        }
        let first = wire.segments.borrow().front().map(|(time, _)| *time);
        if let Some(time) = first {
            let key = self.shared.plan(time, Event::Deliver(Rc::clone(self), side));
            wire.event.set(Some(key));
        }
    }

    fn is_stopped(&self, side: Side) -> bool {
        self.endpoints[side].process.borrow().as_ref().is_none_or(|process| process.is_stopped())
    }

    fn poll_receive(
        self: &Rc<Self>,
        side: Side,
        into: &mut [u8],
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, LinkError>> {
        let endpoint = &self.endpoints[side];
        if self.is_stopped(side) {
            return Poll::Pending;
        }
        if endpoint.state.get() == State::Closed {
            return Poll::Ready(Err(LinkError::Closed("it was closed on this side".to_owned())));
        }
        let available = endpoint.incoming.borrow().len();
        if available > 0 {
            let network = &self.shared.network;
            let split = network.random.chance(network.config.split_per_mille);
            let most = if split { 1 + network.random.index(available) } else { available };
            let length = into.len().min(most);
            let bytes = endpoint.incoming.borrow_mut().read(&mut into[..length]);
            self.give_credit(side, bytes);
            return Poll::Ready(Ok(bytes));
        }
        match endpoint.ending.get() {
            Some(Ending::InOrder) => Poll::Ready(Ok(0)),
            Some(_) => Poll::Ready(Err(endpoint.broken())),
            None => {
                endpoint.reader.set(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }

    fn poll_established(&self, context: &mut Context<'_>) -> Poll<Result<(), LinkError>> {
        let endpoint = &self.endpoints[0];
        if self.is_stopped(0) {
            return Poll::Pending;
        }
        match (endpoint.state.get(), endpoint.ending.get()) {
            (_, Some(Ending::Refused)) => {
                Poll::Ready(Err(LinkError::Refused(format!("nobody listens on {}", endpoint.peer))))
            }
            (State::Connecting, None) => {
                endpoint.reader.set(Some(context.waker().clone()));
                Poll::Pending
            }
            (State::Connecting, Some(_)) => Poll::Ready(Err(endpoint.broken())),
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl Endpoint {
    /// Whether what is queued here may ever reach the other side.
    fn can_send(&self) -> bool {
        self.state.get() == State::Open && matches!(self.ending.get(), None | Some(Ending::InOrder))
    }

    fn broken(&self) -> LinkError {
        LinkError::Closed(format!("the connection to {} is broken", self.peer))
    }

    fn wake_reader(&self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }

    fn wake_writers(&self) {
        for waker in self.writers.take() {
            waker.wake();
        }
    }
}

impl Drop for ConnectionState {
    fn drop(&mut self) {
        self.shared.network.forget(self.id);
    }
}

/// A simulated connection. Cheap to clone.
#[derive(Clone)]
pub struct SimulatedConnection {
    handle: Rc<Handle>,
}

/// Closes the endpoint when the last clone is dropped.
struct Handle {
    connection: Rc<ConnectionState>,
    side: Side,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.connection.close(self.side);
    }
}

impl SimulatedConnection {
    pub(crate) fn new(connection: Rc<ConnectionState>, side: Side) -> Self {
        Self { handle: Rc::new(Handle { connection, side }) }
    }

    pub(crate) async fn established(&self) -> Result<(), LinkError> {
        poll_fn(|context| self.handle.connection.poll_established(context)).await
    }

    fn endpoint(&self) -> &Endpoint {
        &self.handle.connection.endpoints[self.handle.side]
    }
}

impl Connection for SimulatedConnection {
    async fn receive(&self, into: &mut [u8]) -> Result<usize, LinkError> {
        assert!(!into.is_empty(), "a receive into nothing could not tell data from the end");
        poll_fn(|context| self.handle.connection.poll_receive(self.handle.side, into, context)).await
    }

    fn send(&self, head: &[u8], body: &[Buffer]) {
        let endpoint = self.endpoint();
        let process = endpoint.process.borrow();
        let Some(process) = process.as_ref() else { return };
        if !endpoint.can_send() {
            return;
        }
        let mut outgoing = endpoint.outgoing.borrow_mut();
        outgoing.push_copy(head);
        for buffer in body {
            outgoing.push_shared(buffer.clone());
        }
        if !outgoing.is_empty() && !endpoint.unsent.replace(true) {
            process.send_after_turn(Rc::clone(&self.handle.connection), self.handle.side);
        }
    }

    fn queued_bytes(&self) -> usize {
        self.endpoint().outgoing.borrow().len()
    }

    async fn send_room(&self, limit: usize) -> Result<(), LinkError> {
        poll_fn(|context| {
            let endpoint = self.endpoint();
            if self.handle.connection.is_stopped(self.handle.side) {
                return Poll::Pending;
            }
            if !endpoint.can_send() {
                return Poll::Ready(Err(endpoint.broken()));
            }
            if endpoint.outgoing.borrow().len() < limit {
                return Poll::Ready(Ok(()));
            }
            endpoint.writers.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn close(&self) {
        self.handle.connection.close(self.handle.side);
    }

    fn peer(&self) -> String {
        self.endpoint().peer.clone()
    }

    fn peer_name(&self) -> Option<String> {
        self.handle.connection.endpoints[1 - self.handle.side].host.proven_name.borrow().clone()
    }
}

impl fmt::Debug for SimulatedConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SimulatedConnection({})", self.handle.connection.describe(self.handle.side))
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
