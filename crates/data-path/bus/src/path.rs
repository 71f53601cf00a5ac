//! The connections of one session, a *path* each: nodes with several addresses keep one to each.
//!
//! Invariants:
//! - A path that is closed carries nothing any more, and is not among those that can be picked.
//! - What is sent in one turn travels together as far as it can: paths change by the quarter of a mebibyte,
//!   not by the request, since what leaves together costs a fraction of what leaves alone.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use spandrel_platform::Connection;

/// So much is sent on one path before it is the next one's turn, and so much more than elsewhere may be queued on it.
const SPREAD_BYTES: u64 = 256 << 10;

/// Signs of life that are asked for and not given at the same time: a peer that is not there for a day fills no memory.
const PINGS_MAX: u32 = 64;

/// One of the connections of a session.
pub(crate) struct Path<C> {
    /// Counted by the side that dials, from zero on.
    pub(crate) number: u32,
    pub(crate) connection: C,
    closed: Cell<bool>,
    /// What was sent on it and asked for, in bytes.
    carried_bytes: Cell<u64>,
    /// Whether anything has come since the last look.
    heard: Rc<Cell<bool>>,
    /// Looks since anything came, counted where another path was heard.
    silences: Cell<u32>,
    /// What was queued on it so far, about.
    sent_bytes: Cell<u64>,
    /// What waited in the queue at the last look, and what had been sent by then.
    looked_at: Cell<(u64, u64)>,
    /// How many tasks keep this side from reading.
    busy: Cell<u32>,
    /// Signs of life that were asked for and not given.
    pings: Cell<u32>,
    /// Requests that are done, and of which the other side is to be told here.
    done: RefCell<Vec<u64>>,
}

/// Says that this side does not read from a path at the moment.
pub(crate) struct Busy<C> {
    path: Rc<Path<C>>,
}

impl<C> Drop for Busy<C> {
    fn drop(&mut self) {
        self.path.busy.set(self.path.busy.get() - 1);
    }
}

impl<C: Connection> Path<C> {
    pub(crate) fn new(number: u32, connection: C) -> Rc<Self> {
        Rc::new(Self {
            number,
            connection,
            closed: Cell::new(false),
            carried_bytes: Cell::new(0),
            heard: Rc::new(Cell::new(true)),
            silences: Cell::new(0),
            sent_bytes: Cell::new(0),
            looked_at: Cell::default(),
            busy: Cell::new(0),
            pings: Cell::new(0),
            done: RefCell::default(),
        })
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.closed.get()
    }

    pub(crate) fn carried_bytes(&self) -> u64 {
        self.carried_bytes.get()
    }

    /// Notes what was sent on it, or asked for.
    pub(crate) fn carry(&self, bytes: u64) {
        self.carried_bytes.set(self.carried_bytes.get() + bytes);
    }

    /// Notes that bytes were queued on it.
    pub(crate) fn sends(&self, bytes: u64) {
        self.sent_bytes.set(self.sent_bytes.get() + bytes);
    }

    /// While what this returns is held, this side does not read from the path, for reasons of its own: that nothing
    /// comes says nothing.
    pub(crate) fn busy(self: &Rc<Self>) -> Busy<C> {
        self.busy.set(self.busy.get() + 1);
        Busy { path: Rc::clone(self) }
    }

    /// Whether one more sign of life may be asked for.
    pub(crate) fn may_ping(&self) -> bool {
        let may = self.pings.get() < PINGS_MAX;
        self.pings.set(self.pings.get() + u32::from(may));
        may
    }

    /// A sign of life was given. Returns false if none was asked for.
    pub(crate) fn ponged(&self) -> bool {
        let asked = self.pings.get();
        self.pings.set(asked.saturating_sub(1));
        asked > 0
    }

    /// Takes note of a request that is done. Returns whether it is the first one since those were taken that are.
    pub(crate) fn note_done(&self, sequence: u64) -> bool {
        let mut done = self.done.borrow_mut();
        done.push(sequence);
        done.len() == 1
    }

    /// Takes the requests that are done.
    pub(crate) fn take_done(&self) -> Vec<u64> {
        self.done.take()
    }

    /// Whether the other side has taken something of a long queue since the last look. While it does, what would have
    /// it give a sign of life waits in that queue. A short one tells nothing: it may have gone to this side's kernel.
    fn has_moved(&self) -> bool {
        let (queued, sent) = (self.connection.queued_bytes() as u64, self.sent_bytes.get());
        let (queued_before, sent_before) = self.looked_at.replace((queued, sent));
        queued_before >= SPREAD_BYTES && queued_before + (sent - sent_before) > queued
    }

    /// What is set whenever anything has come, be it a part of a frame.
    pub(crate) fn heard(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.heard)
    }
}

/// The paths of a session that are open.
pub(crate) struct Paths<C> {
    open: RefCell<Vec<Rc<Path<C>>>>,
    /// The path in use, and what it had carried when its turn began.
    turn: Cell<(usize, u64)>,
}

impl<C: Connection> Paths<C> {
    pub(crate) fn new(first: Rc<Path<C>>) -> Self {
        Self { open: RefCell::new(vec![first]), turn: Cell::default() }
    }

    pub(crate) fn add(&self, path: Rc<Path<C>>) {
        self.open.borrow_mut().push(path);
        self.turn.set((0, 0));
    }

    /// Closes a path. Returns false if it was closed before.
    pub(crate) fn close(&self, path: &Path<C>) -> bool {
        self.open.borrow_mut().retain(|open| !std::ptr::eq(&**open, path));
        self.turn.set((0, 0));
        path.connection.close();
        !path.closed.replace(true)
    }

    pub(crate) fn close_all(&self) {
        for path in self.all() {
            self.close(&path);
        }
    }

    pub(crate) fn all(&self) -> Vec<Rc<Path<C>>> {
        self.open.borrow().clone()
    }

    pub(crate) fn numbered(&self, number: u32) -> Option<Rc<Path<C>>> {
        self.open.borrow().iter().find(|path| path.number == number).cloned()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// Looks who was heard since the last look. Returns the paths that were silent at so many looks, one after the
    /// other, at which another one was not. If all are silent, that says nothing of any; and nothing is said of one
    /// whose queue moves, or which this side does not read.
    pub(crate) fn silent(&self, looks: u32) -> Vec<Rc<Path<C>>> {
        let all = self.all();
        let heard: Vec<bool> = all.iter().map(|path| path.heard.take()).collect();
        let any_is_heard = heard.contains(&true);
        for (path, heard) in all.iter().zip(heard) {
            let lives = path.has_moved() || heard || path.busy.get() > 0;
            let silences = if lives { 0 } else { path.silences.get() + u32::from(any_is_heard) };
            path.silences.set(silences);
        }
        all.into_iter().filter(|path| path.silences.get() >= looks).collect()
    }

    /// The path on which to send next; `None` if none is open.
    pub(crate) fn pick(&self) -> Option<Rc<Path<C>>> {
        let open = self.open.borrow();
        if open.len() < 2 {
            return open.first().cloned();
        }
        let queued = |index: usize| open[index].connection.queued_bytes() as u64;
        let (index, since) = self.turn.get();
        let others = (1..open.len()).map(|step| (index + step) % open.len());
        let next = others.min_by_key(|other| queued(*other))?;
        if let Some(current) = open.get(index) {
            let (here, there) = (queued(index), queued(next));
            let is_its_turn = current.carried_bytes().saturating_sub(since) < SPREAD_BYTES;
            if (is_its_turn && here <= there + SPREAD_BYTES) || there > here + SPREAD_BYTES {
                return Some(Rc::clone(current));
            }
        }
        self.turn.set((next, open[next].carried_bytes()));
        Some(Rc::clone(&open[next]))
    }
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
