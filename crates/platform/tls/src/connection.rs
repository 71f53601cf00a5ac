//! Connections that may be encrypted.
//!
//! The handshake goes on within `receive`, so that whoever accepts connections waits for nobody. What is sent before
//! its end is kept, and follows.
//!
//! Whatever the other side sends before it has proven who it is, little is kept of it.
//!
//! Invariants:
//! - Records leave in the order in which they were encrypted.
//! - Nothing of the application leaves before the other side has proven who it is.
//! - After an error or a close nothing more is sent. What had arrived before an error is received before it is told, and
//!   then every receive tells it; after a close nothing is received.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use spandrel_platform::sync::Signal;
use spandrel_platform::{Buffer, BufferPool, Connection, LinkError};

use crate::TlsSettings;
use crate::session::{Output, Session, Wait, explain};

/// Room for what arrives: some records of 16 KiB.
const ARRIVED_BYTES: usize = 128 << 10;

/// The most that may be left of what has arrived: a record and its header, and a message of the handshake in parts. More
/// is sent by nobody who means well.
const LEFT_BYTES_MAX: usize = 48 << 10;

/// The most that is encrypted into one buffer: with the headers of its records, and a further record where each of its
/// parts ends, it stays within the largest that is pooled, 1 MiB.
const PIECE_BYTES_MAX: usize = (1 << 20) - (8 << 10);

/// What encrypts to less than this is copied into the queue below instead of being given in a buffer of its own.
const COPIED_BYTES_MAX: usize = 1 << 10;

/// A connection of the platform below, encrypted or not.
pub enum TlsConnection<C: Connection> {
    /// As it is below.
    Plain(C),
    /// Encrypted.
    Secured(Rc<Secured<C>>),
}

impl<C: Connection> Clone for TlsConnection<C> {
    fn clone(&self) -> Self {
        match self {
            Self::Plain(connection) => Self::Plain(connection.clone()),
            Self::Secured(secured) => Self::Secured(Rc::clone(secured)),
        }
    }
}

/// All clones of an encrypted connection together: it closes when the last is dropped.
pub struct Secured<C: Connection> {
    connection: C,
    buffers: BufferPool,
    settings: Rc<TlsSettings>,
    state: RefCell<State>,
    /// Told when the handshake is over or the connection has ended.
    opened: Signal,
    /// Room for what arrives next. Not there while a receive waits.
    room: Cell<Vec<u8>>,
}

struct State {
    session: Session,
    /// Whether the handshake is over, so that this side may send.
    is_open: bool,
    /// What was sent before that.
    waiting: Vec<u8>,
    /// Whether the other side has ended the connection in order.
    is_over: bool,
    failure: Option<LinkError>,
    /// What has arrived from the wire and is not done with: the part of a record.
    arrived: Vec<u8>,
    /// Decrypted and not received yet: from `start` on.
    plain: Vec<u8>,
    start: usize,
}

/// Takes the room for what arrives for the time of a receive, and puts it back, whatever becomes of that.
struct Room<'a> {
    home: &'a Cell<Vec<u8>>,
    memory: Vec<u8>,
}

impl<'a> Room<'a> {
    fn from(home: &'a Cell<Vec<u8>>) -> Self {
        let mut memory = home.take();
        memory.resize(ARRIVED_BYTES, 0);
        Self { home, memory }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.home.set(std::mem::take(&mut self.memory));
    }
}

impl<C: Connection> TlsConnection<C> {
    /// An encrypted connection of the side that `session` is.
    pub(crate) fn secured(
        connection: C,
        session: Session,
        settings: Rc<TlsSettings>,
        buffers: BufferPool,
    ) -> Self {
        let state = State {
            session,
            is_open: false,
            waiting: Vec::new(),
            is_over: false,
            failure: None,
            arrived: Vec::new(),
            plain: Vec::new(),
            start: 0,
        };
        let secured = Secured {
            connection,
            buffers,
            settings,
            state: RefCell::new(state),
            opened: Signal::new(),
            room: Cell::default(),
        };
        // The side that connects speaks first.
        secured.advance(&mut secured.state.borrow_mut(), &mut []);
        Self::Secured(Rc::new(secured))
    }
}

impl<C: Connection> Connection for TlsConnection<C> {
    async fn receive(&self, into: &mut [u8]) -> Result<usize, LinkError> {
        match self {
            Self::Plain(connection) => connection.receive(into).await,
            Self::Secured(secured) => secured.receive(into).await,
        }
    }

    fn send(&self, head: &[u8], body: &[Buffer]) {
        match self {
            Self::Plain(connection) => connection.send(head, body),
            Self::Secured(secured) => secured.send(head, body),
        }
    }

    fn queued_bytes(&self) -> usize {
        match self {
            Self::Plain(connection) => connection.queued_bytes(),
            Self::Secured(secured) => {
                secured.connection.queued_bytes() + secured.state.borrow().waiting.len()
            }
        }
    }

    async fn send_room(&self, limit: usize) -> Result<(), LinkError> {
        match self {
            Self::Plain(connection) => connection.send_room(limit).await,
            Self::Secured(secured) => secured.send_room(limit).await,
        }
    }

    fn close(&self) {
        match self {
            Self::Plain(connection) => connection.close(),
            Self::Secured(secured) => secured.close(),
        }
    }

    fn peer(&self) -> String {
        match self {
            Self::Plain(connection) => connection.peer(),
            Self::Secured(secured) => secured.connection.peer(),
        }
    }

    fn peer_name(&self) -> Option<String> {
        match self {
            Self::Plain(connection) => connection.peer_name(),
            // Who has proven to belong here and has no name of its own is nobody that anybody knows.
            Self::Secured(secured) => secured.state.borrow().session.holder(&secured.settings),
        }
    }

    fn is_within_process(&self) -> bool {
        matches!(self, Self::Plain(connection) if connection.is_within_process())
    }
}

impl<C: Connection> Secured<C> {
    async fn receive(&self, into: &mut [u8]) -> Result<usize, LinkError> {
        let mut room = Room::from(&self.room);
        loop {
            if let Some(received) = self.take_plain(into) {
                return received;
            }
            match self.connection.receive(&mut room.memory).await {
                // What comes of it is told above: first what has arrived, then how it has ended.
                Ok(count) if count > 0 => {
                    self.advance(&mut self.state.borrow_mut(), &mut room.memory[..count])
                }
                Ok(_) => self.wire_ended(&mut self.state.borrow_mut()),
                Err(error) => self.end(&mut self.state.borrow_mut(), error),
            }
        }
    }

    /// What is decrypted, or how the connection has ended. None if more must arrive first.
    fn take_plain(&self, into: &mut [u8]) -> Option<Result<usize, LinkError>> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let left = &state.plain[state.start..];
        if left.is_empty() {
            return match &state.failure {
                Some(failure) => Some(Err(failure.clone())),
                None => state.is_over.then_some(Ok(0)),
            };
        }
        let count = left.len().min(into.len());
        into[..count].copy_from_slice(&left[..count]);
        state.start += count;
        if state.start == state.plain.len() {
            state.plain.clear();
            state.start = 0;
        }
        Some(Ok(count))
    }

    /// The wire has ended. That this was not said first matters to nobody: what runs above knows its own ends.
    fn wire_ended(&self, state: &mut State) {
        if state.is_open {
            state.is_over = true;
            return;
        }
        let why = "the other side closed before it had proven who it is: it may not speak TLS, not accept this side's \
                   certificate, or have no place for another connection";
        self.fail(state, why);
    }

    async fn send_room(&self, limit: usize) -> Result<(), LinkError> {
        let has_room = || {
            let state = self.state.borrow();
            state.is_open || state.failure.is_some() || state.waiting.len() < limit.max(1)
        };
        self.opened.wait_until(has_room).await;
        let failure = self.state.borrow().failure.clone();
        match failure {
            Some(failure) => Err(failure),
            None => self.connection.send_room(limit).await,
        }
    }

    /// Moves the session on with what has newly arrived as far as it gets, and sends what it has to say.
    fn advance(&self, state: &mut State, new: &mut [u8]) {
        if state.failure.is_some() {
            return;
        }
        // Mostly nothing was left, and nothing need be moved.
        let mut whole = std::mem::take(&mut state.arrived);
        let arrived = if whole.is_empty() {
            new
        } else {
            whole.extend_from_slice(new);
            &mut whole[..]
        };
        let mut output = Output { wire: Vec::new(), plain: std::mem::take(&mut state.plain) };
        let (done, wait) = state.session.advance(arrived, &mut output);
        state.arrived = arrived[done..].to_vec();
        state.plain = output.plain;
        if !output.wire.is_empty() {
            self.connection.send(&output.wire, &[]);
        }
        match wait {
            Err(error) => self.fail(state, &explain(&error)),
            Ok(_) if state.arrived.len() > LEFT_BYTES_MAX => {
                self.fail(state, "it sends messages of the handshake in too many parts");
            }
            Ok(Wait::Over) => state.is_over = true,
            Ok(Wait::Open) if !state.is_open => {
                state.is_open = true;
                self.opened.notify_all();
                let waiting = std::mem::take(&mut state.waiting);
                self.encrypt(state, &[&waiting]);
            }
            Ok(Wait::Open | Wait::Handshake) => {}
        }
    }

    fn fail(&self, state: &mut State, why: &str) {
        let error = LinkError::Closed(format!("{}: {why}", self.connection.peer()));
        self.end(state, error);
        self.connection.close();
    }

    /// The connection has ended, for the reason `error`, unless it had before.
    fn end(&self, state: &mut State, error: LinkError) {
        state.failure.get_or_insert(error);
        state.waiting = Vec::new();
        state.arrived = Vec::new();
        self.opened.notify_all();
    }

    fn send(&self, head: &[u8], body: &[Buffer]) {
        let mut state = self.state.borrow_mut();
        if state.failure.is_some() || state.is_over {
            return;
        }
        if !state.is_open {
            state.waiting.extend_from_slice(head);
            body.iter().for_each(|part| state.waiting.extend_from_slice(part));
            return;
        }
        let parts = std::iter::once(head).chain(body.iter().map(|part| &**part));
        // Pieces that fit into pooled buffers, whatever is sent: a larger buffer would be made for each.
        let mut piece: Vec<&[u8]> = Vec::new();
        let mut left = PIECE_BYTES_MAX;
        for mut part in parts {
            while part.len() > left {
                let (now, later) = part.split_at(left);
                piece.push(now);
                self.encrypt(&mut state, &piece);
                piece.clear();
                (part, left) = (later, PIECE_BYTES_MAX);
            }
            piece.push(part);
            left -= part.len();
        }
        self.encrypt(&mut state, &piece);
    }

    /// Encrypts what the application sends, and gives it to the connection below.
    fn encrypt(&self, state: &mut State, parts: &[&[u8]]) {
        // What the protocol itself has to say, such as new keys, goes first.
        self.advance(state, &mut []);
        if state.failure.is_some() {
            return;
        }
        let parts = parts.iter().filter(|part| !part.is_empty());
        let bytes: usize = parts.clone().map(|part| Session::wire_bytes(part.len())).sum();
        if bytes == 0 {
            return;
        }
        let mut wire = self.buffers.take(bytes);
        let mut end = 0;
        for part in parts {
            match state.session.encrypt(&mut state.arrived, part, &mut wire[end..]) {
                Ok(count) => end += count,
                Err(error) => {
                    self.fail(state, &explain(&error));
                    return;
                }
            }
        }
        if end <= COPIED_BYTES_MAX {
            self.connection.send(&wire[..end], &[]);
        } else {
            wire.truncate(end);
            self.connection.send(&[], &[wire.freeze()]);
        }
    }

    fn close(&self) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if state.failure.is_none() {
            if state.is_open {
                let farewell = state.session.close(&mut state.arrived);
                self.connection.send(&farewell, &[]);
            }
            state.plain = Vec::new();
            state.start = 0;
            let why = format!("{}: closed by this side", self.connection.peer());
            self.end(state, LinkError::Closed(why));
        }
        self.connection.close();
    }
}

impl<C: Connection> Drop for Secured<C> {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
