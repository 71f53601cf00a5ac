//! Connections: byte streams over TCP and unix sockets, and through memory between threads of this process.
//!
//! Sending queues; the loop flushes each connection once per turn with one vectored call. What is
//! not taken waits for the word that there is room again.
//!
//! Receiving from a socket asks the kernel only when it is known to have something: epoll reported it and no call
//! since has come back with less than it was asked for. A hang-up is reported once only, so from
//! then on every receive asks. (A peer that passes descriptors or urgent data makes the kernel
//! return less than it has; such a peer's data may wait for its next message. Nobody else is
//! affected, and none of our protocols does so.)
//!
//! Invariants:
//! - A connection stands at most once in the list of those to flush, and is there or waits for room
//!   whenever it has something queued.
//! - After a failure or a close nothing is queued any more.
//! - One connection's receiver takes no more than its share of a turn.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use spandrel_platform::sync::Signal;
use spandrel_platform::{Buffer, Connection, LinkError};

use crate::reactor::EventSource;
use crate::send_queue::SendQueue;
use crate::shard::{Shard, TurnBudget};
use crate::socket::link_error;
use crate::transport::Transport;

/// Pieces that one call sends.
const SLICES_PER_SEND: usize = 64;

/// Bytes that one connection sends in one turn before the others have theirs.
const SEND_BYTES_PER_TURN: usize = 4 << 20;

/// Bytes that one connection's receiver takes in one turn. Each call counts as at least
/// [`RECEIVE_CALL_BYTES`].
const RECEIVE_BYTES_PER_TURN: usize = 2 << 20;
const RECEIVE_CALL_BYTES: usize = 16 << 10;

const HANG_UP: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

/// A connection over TCP, a unix socket or memory.
#[derive(Clone)]
pub struct LinuxConnection {
    handle: Rc<Handle>,
}

/// A connection that no thread serves: closed when it is dropped.
pub struct DetachedConnection {
    /// None once it is served again.
    transport: Option<Transport>,
    peer: String,
}

impl DetachedConnection {
    pub(crate) fn new(transport: Transport, peer: String) -> Self {
        Self { transport: Some(transport), peer }
    }
}

impl fmt::Debug for DetachedConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("DetachedConnection").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Drop for DetachedConnection {
    fn drop(&mut self) {
        // Where it was served before a descriptor of it may be open yet.
        if let Some(transport) = &self.transport {
            transport.shut_down();
        }
    }
}

/// All clones of a connection together: it closes when the last is dropped.
struct Handle {
    stream: Rc<Stream>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stream.close();
    }
}

impl LinuxConnection {
    /// Takes over what is connected.
    pub(crate) fn new(shard: &Rc<Shard>, transport: Transport, peer: String) -> Result<Self, LinkError> {
        if let Transport::Tcp(socket) = &transport {
            rustix::net::sockopt::set_tcp_nodelay(socket, true).map_err(|error| link_error(error, &peer))?;
        }
        let stream = Rc::new(Stream {
            shard: Rc::clone(shard),
            transport,
            token: Cell::new(None),
            peer,
            incoming: Incoming::default(),
            outgoing: RefCell::default(),
            writable: Cell::new(true),
            listed: Cell::new(false),
            room: Signal::new(),
            end: RefCell::default(),
            closed: Cell::new(false),
        });
        if let Some(socket) = stream.transport.socket() {
            let source = Rc::downgrade(&stream) as Weak<dyn EventSource>;
            let token = shard
                .reactor
                .add(socket, source, stream.interest(false))
                .map_err(|error| link_error(error, &stream.peer))?;
            stream.token.set(Some(token));
        }
        Ok(Self { handle: Rc::new(Handle { stream }) })
    }

    /// Takes the connection along, if nothing is left to be sent. What was not received yet goes with it.
    pub(crate) fn detach(&self) -> Option<DetachedConnection> {
        let stream = &self.handle.stream;
        if stream.end.borrow().is_some() || !stream.outgoing.borrow().is_empty() {
            return None;
        }
        let transport = stream.transport.hand_over()?;
        // Not shut down: that would reach the other side.
        stream.closed.set(true);
        stream.finish(LinkError::Closed(format!("{}: another thread goes on with it", stream.peer)));
        stream.unwatch();
        Some(DetachedConnection::new(transport, stream.peer.clone()))
    }

    /// Goes on with a connection that was detached on any thread.
    pub(crate) fn attach(shard: &Rc<Shard>, mut detached: DetachedConnection) -> Result<Self, LinkError> {
        let transport = detached.transport.take().expect("nobody serves it");
        Self::new(shard, transport, detached.peer.clone())
    }
}

impl Connection for LinuxConnection {
    async fn receive(&self, into: &mut [u8]) -> Result<usize, LinkError> {
        assert!(!into.is_empty(), "a receive needs room for at least one byte");
        poll_fn(|context| self.handle.stream.poll_receive(into, context)).await
    }

    fn send(&self, head: &[u8], body: &[Buffer]) {
        self.handle.stream.send(head, body);
    }

    fn queued_bytes(&self) -> usize {
        self.handle.stream.outgoing.borrow().bytes()
    }

    async fn send_room(&self, limit: usize) -> Result<(), LinkError> {
        let stream = &self.handle.stream;
        // Fewer than zero bytes are never queued: the nearest that can be had is none.
        let limit = limit.max(1);
        let room = || stream.end.borrow().is_some() || stream.outgoing.borrow().bytes() < limit;
        stream.room.wait_until(room).await;
        match &*stream.end.borrow() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    fn close(&self) {
        self.handle.stream.close();
    }

    fn peer(&self) -> String {
        self.handle.stream.peer.clone()
    }

    fn is_within_process(&self) -> bool {
        matches!(self.handle.stream.transport, Transport::Memory(_))
    }
}

/// One connection's transport and what is queued for it.
pub(crate) struct Stream {
    shard: Rc<Shard>,
    transport: Transport,
    /// A socket's place in the epoll set; none unless it is registered.
    token: Cell<Option<u64>>,
    peer: String,
    incoming: Incoming,
    outgoing: RefCell<SendQueue>,
    /// False from a send that was not taken whole until there is room.
    writable: Cell<bool>,
    /// Whether it stands in the list of those to flush.
    listed: Cell<bool>,
    /// Told when the queue gets shorter or the connection ends.
    room: Signal,
    /// Why nothing can be sent any more.
    end: RefCell<Option<LinkError>>,
    /// Whether this side has closed, so that nothing is received any more either.
    closed: Cell<bool>,
}

/// The receiving side's state.
#[derive(Default)]
struct Incoming {
    readable: Cell<bool>,
    hung_up: Cell<bool>,
    waiter: Cell<Option<Waker>>,
    budget: TurnBudget,
}

impl Incoming {
    fn wake(&self) {
        if let Some(waiter) = self.waiter.take() {
            waiter.wake();
        }
    }
}

/// How far a flush got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flushed {
    /// Nothing is queued any more.
    All,
    /// No more is taken for now.
    Full,
    /// The connection's share of the turn is used up.
    Share,
}

impl Stream {
    fn poll_receive(&self, into: &mut [u8], context: &Context<'_>) -> Poll<Result<usize, LinkError>> {
        let incoming = &self.incoming;
        if let Transport::Memory(stream) = &self.transport {
            let polled = stream.borrow().as_ref().map(|stream| stream.poll_receivable(context));
            incoming.readable.set(polled.is_some_and(|polled| polled.is_ready()));
        }
        if incoming.readable.get() && !self.closed.get() {
            let turn = self.shard.turn();
            if !incoming.budget.is_left(turn, RECEIVE_BYTES_PER_TURN) {
                self.shard.defer(context.waker().clone());
                return Poll::Pending;
            }
            match self.receive_now(into) {
                // The end of the stream says less than the reason why it ended.
                Ok(0) => return Poll::Ready(self.end.borrow().clone().map_or(Ok(0), Err)),
                Ok(count) => {
                    incoming.budget.spend(turn, count.max(RECEIVE_CALL_BYTES));
                    if count < into.len() && !incoming.hung_up.get() {
                        incoming.readable.set(false);
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(Errno::AGAIN) => incoming.readable.set(false),
                Err(error) => {
                    let error = self.broken(error);
                    self.finish(error.clone());
                    return Poll::Ready(Err(error));
                }
            }
        }
        if let Some(end) = &*self.end.borrow() {
            return Poll::Ready(Err(end.clone()));
        }
        incoming.waiter.set(Some(context.waker().clone()));
        Poll::Pending
    }

    fn receive_now(&self, into: &mut [u8]) -> Result<usize, Errno> {
        loop {
            self.shard.counters.receives.add(1);
            match self.transport.receive(into) {
                Err(Errno::INTR) => {}
                Ok(count) => {
                    self.shard.counters.received_bytes.add(count as u64);
                    return Ok(count);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn send(self: &Rc<Self>, head: &[u8], body: &[Buffer]) {
        if self.end.borrow().is_some() {
            return;
        }
        self.outgoing.borrow_mut().push(head, body);
        self.list();
    }

    /// Puts it into the list of those to flush, if there is anything to do.
    fn list(self: &Rc<Self>) {
        if self.writable.get() && !self.outgoing.borrow().is_empty() && !self.listed.replace(true) {
            self.shard.add_sender(Rc::clone(self));
        }
    }

    /// Sends what is queued, at the end of a turn.
    pub(crate) fn flush_in_turn(self: Rc<Self>) {
        self.listed.set(false);
        let before = self.outgoing.borrow().bytes();
        match self.flush() {
            Ok(Flushed::All) => {}
            Ok(Flushed::Share) => self.list(),
            Ok(Flushed::Full) => self.watch_for_room(),
            Err(error) => self.finish(self.broken(error)),
        }
        if self.outgoing.borrow().bytes() < before {
            self.room.notify_all();
        }
    }

    fn flush(&self) -> Result<Flushed, Errno> {
        let mut outgoing = self.outgoing.borrow_mut();
        let mut sent_bytes = 0;
        while !outgoing.is_empty() {
            if sent_bytes >= SEND_BYTES_PER_TURN {
                return Ok(Flushed::Share);
            }
            let (offered, sent) = self.send_once(&outgoing);
            match sent {
                Ok(count) => {
                    outgoing.consume(count);
                    sent_bytes += count;
                    if count < offered {
                        return Ok(Flushed::Full);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Flushed::Full),
                Err(error) => return Err(error),
            }
        }
        Ok(Flushed::All)
    }

    /// Offers the front of the queue: how much that was, and how much was taken.
    fn send_once(&self, outgoing: &SendQueue) -> (usize, Result<usize, Errno>) {
        let mut slices = [IoSlice::new(&[]); SLICES_PER_SEND];
        let (count, offered) = outgoing.gather(&mut slices);
        let sent = self.transport.send(&slices[..count]);
        self.shard.counters.sends.add(1);
        self.shard.counters.sent_bytes.add(sent.map_or(0, |count| count as u64));
        (offered, sent)
    }

    /// What the epoll set watches a socket for.
    fn interest(&self, needs_room: bool) -> EventFlags {
        let receiving = EventFlags::IN | EventFlags::RDHUP;
        match self.transport {
            Transport::Tcp(_) => receiving | EventFlags::OUT,
            Transport::Unix(_) if needs_room => receiving | EventFlags::OUT,
            Transport::Unix(_) | Transport::Memory(_) => receiving,
        }
    }

    /// Goes on sending once there is room again.
    fn watch_for_room(self: &Rc<Self>) {
        self.writable.set(false);
        if let Transport::Memory(_) = self.transport {
            let stream = Rc::clone(self);
            self.shard.executor.spawn(async move {
                poll_fn(|context| stream.poll_room_in_memory(context)).await;
                stream.has_room();
            });
        } else {
            self.watch(true);
        }
    }

    fn poll_room_in_memory(&self, context: &Context<'_>) -> Poll<()> {
        match &self.transport {
            Transport::Memory(stream) => {
                stream.borrow().as_ref().map_or(Poll::Ready(()), |stream| stream.poll_room(context))
            }
            Transport::Tcp(_) | Transport::Unix(_) => Poll::Ready(()),
        }
    }

    fn watch(&self, needs_room: bool) {
        if let (Transport::Unix(socket), Some(token)) = (&self.transport, self.token.get())
            && let Err(error) = self.shard.reactor.change(socket, token, self.interest(needs_room))
        {
            self.finish(self.broken(error));
        }
    }

    fn unwatch(&self) {
        if let (Some(socket), Some(token)) = (self.transport.socket(), self.token.take()) {
            self.shard.reactor.remove(socket, token);
        }
    }

    fn has_room(self: &Rc<Self>) {
        self.writable.set(true);
        self.list();
    }

    fn broken(&self, error: Errno) -> LinkError {
        match link_error(error, &self.peer) {
            LinkError::Other(detail) | LinkError::Refused(detail) => LinkError::Closed(detail),
            error => error,
        }
    }

    /// Ends the connection, for the reason `error`, unless it has ended before.
    fn finish(&self, error: LinkError) {
        {
            let mut end = self.end.borrow_mut();
            if end.is_some() {
                return;
            }
            *end = Some(error);
        }
        self.outgoing.borrow_mut().clear();
        self.incoming.wake();
        self.room.notify_all();
    }

    fn close(&self) {
        if self.closed.replace(true) {
            return;
        }
        // Whatever goes wrong from here on, nobody is left to be told.
        while self.writable.get() && self.flush() == Ok(Flushed::Share) {}
        self.finish(LinkError::Closed(format!("{}: closed by this side", self.peer)));
        self.transport.shut_down();
    }
}

impl EventSource for Stream {
    fn on_events(self: Rc<Self>, events: EventFlags) {
        if events.intersects(EventFlags::IN | HANG_UP) {
            self.incoming.readable.set(true);
            if events.intersects(HANG_UP) {
                self.incoming.hung_up.set(true);
            }
            self.incoming.wake();
        }
        if events.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR) && !self.writable.get() {
            self.watch(false);
            self.has_room();
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.unwatch();
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
