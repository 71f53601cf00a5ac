//! Connections: byte streams over TCP and unix sockets.
//!
//! Sending queues; the loop flushes each connection once per turn with one vectored call. What the
//! kernel does not take waits for its word that there is room again.
//!
//! Receiving asks the kernel only when it is known to have something: epoll reported it and no call
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
use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown};
use spandrel_platform::sync::Signal;
use spandrel_platform::{Buffer, Connection, LinkError};

use crate::reactor::EventSource;
use crate::send_queue::SendQueue;
use crate::shard::{Shard, TurnBudget};
use crate::socket::link_error;

/// Pieces that one call sends.
const SLICES_PER_SEND: usize = 64;

/// Bytes that one connection sends in one turn before the others have theirs.
const SEND_BYTES_PER_TURN: usize = 4 << 20;

/// Bytes that one connection's receiver takes in one turn. Each call counts as at least
/// [`RECEIVE_CALL_BYTES`].
const RECEIVE_BYTES_PER_TURN: usize = 2 << 20;
const RECEIVE_CALL_BYTES: usize = 16 << 10;

const HANG_UP: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

/// How a connection's room to send is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// The kernel reports room only after it had none, so it is watched for from the start.
    Tcp,
    /// The kernel reports room after every message that the peer takes, so it is watched for only
    /// while it is needed.
    Unix,
}

/// A connection over TCP or a unix socket.
#[derive(Clone)]
pub struct LinuxConnection {
    handle: Rc<Handle>,
}

/// A connection that no thread serves: closed when it is dropped.
#[derive(Debug)]
pub struct DetachedConnection {
    /// None once it is served again.
    socket: Option<OwnedFd>,
    kind: StreamKind,
    peer: String,
}

impl Drop for DetachedConnection {
    fn drop(&mut self) {
        // Where it was served before a descriptor of it may be open yet.
        if let Some(socket) = &self.socket {
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
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
    /// Takes over a connected socket, which must be non-blocking.
    pub(crate) fn new(
        shard: &Rc<Shard>,
        socket: OwnedFd,
        kind: StreamKind,
        peer: String,
    ) -> Result<Self, LinkError> {
        if kind == StreamKind::Tcp {
            rustix::net::sockopt::set_tcp_nodelay(&socket, true).map_err(|error| link_error(error, &peer))?;
        }
        let stream = Rc::new(Stream {
            shard: Rc::clone(shard),
            socket,
            token: Cell::new(None),
            kind,
            peer,
            incoming: Incoming::default(),
            outgoing: RefCell::default(),
            writable: Cell::new(true),
            listed: Cell::new(false),
            room: Signal::new(),
            end: RefCell::default(),
            closed: Cell::new(false),
        });
        let source = Rc::downgrade(&stream) as Weak<dyn EventSource>;
        let token = shard
            .reactor
            .add(&stream.socket, source, stream.interest(false))
            .map_err(|error| link_error(error, &stream.peer))?;
        stream.token.set(Some(token));
        Ok(Self { handle: Rc::new(Handle { stream }) })
    }

    /// Takes the socket along, if nothing is left to be sent. What was not received yet is with the kernel.
    pub(crate) fn detach(&self) -> Option<DetachedConnection> {
        let stream = &self.handle.stream;
        if stream.end.borrow().is_some() || !stream.outgoing.borrow().is_empty() {
            return None;
        }
        let socket = rustix::io::fcntl_dupfd_cloexec(&stream.socket, 0).ok()?;
        // Not shut down: that would reach the other side.
        stream.closed.set(true);
        stream.finish(LinkError::Closed(format!("{}: another thread goes on with it", stream.peer)));
        if let Some(token) = stream.token.take() {
            stream.shard.reactor.remove(&stream.socket, token);
        }
        Some(DetachedConnection { socket: Some(socket), kind: stream.kind, peer: stream.peer.clone() })
    }

    /// Goes on with a connection that was detached on any thread.
    pub(crate) fn attach(shard: &Rc<Shard>, mut detached: DetachedConnection) -> Result<Self, LinkError> {
        let socket = detached.socket.take().expect("nobody serves it");
        Self::new(shard, socket, detached.kind, detached.peer.clone())
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
}

/// One socket and what is queued for it.
pub(crate) struct Stream {
    shard: Rc<Shard>,
    socket: OwnedFd,
    /// Its place in the epoll set; none until it is registered.
    token: Cell<Option<u64>>,
    kind: StreamKind,
    peer: String,
    incoming: Incoming,
    outgoing: RefCell<SendQueue>,
    /// False from a send that the kernel did not take whole until it reports room.
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
    /// The kernel takes no more for now.
    Full,
    /// The connection's share of the turn is used up.
    Share,
}

impl Stream {
    fn poll_receive(&self, into: &mut [u8], context: &Context<'_>) -> Poll<Result<usize, LinkError>> {
        let incoming = &self.incoming;
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
            match rustix::io::read(&self.socket, &mut *into) {
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

    /// Offers the front of the queue to the kernel: how much that was, and how much it took.
    fn send_once(&self, outgoing: &SendQueue) -> (usize, Result<usize, Errno>) {
        let mut slices = [IoSlice::new(&[]); SLICES_PER_SEND];
        let (count, offered) = outgoing.gather(&mut slices);
        let mut control = SendAncillaryBuffer::default();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = rustix::net::sendmsg(&self.socket, &slices[..count], &mut control, flags);
        self.shard.counters.sends.add(1);
        self.shard.counters.sent_bytes.add(sent.map_or(0, |count| count as u64));
        (offered, sent)
    }

    /// What the epoll set watches for.
    fn interest(&self, needs_room: bool) -> EventFlags {
        let receiving = EventFlags::IN | EventFlags::RDHUP;
        match self.kind {
            StreamKind::Tcp => receiving | EventFlags::OUT,
            StreamKind::Unix if needs_room => receiving | EventFlags::OUT,
            StreamKind::Unix => receiving,
        }
    }

    /// Waits for the kernel's word that there is room again.
    fn watch_for_room(&self) {
        self.writable.set(false);
        self.watch(true);
    }

    fn watch(&self, needs_room: bool) {
        if let (StreamKind::Unix, Some(token)) = (self.kind, self.token.get())
            && let Err(error) = self.shard.reactor.change(&self.socket, token, self.interest(needs_room))
        {
            self.finish(self.broken(error));
        }
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
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
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
            self.writable.set(true);
            self.watch(false);
            self.list();
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(token) = self.token.get() {
            self.shard.reactor.remove(&self.socket, token);
        }
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
