//! How much is copied at the same time to bring copies back, by all owners of a node together.
//!
//! Whoever copies a piece takes a turn first. There are as many as the repair share says while clients ask something of the
//! node's volumes, and many more while nobody does: what is idle may as well be used. There is always one, so no repair
//! stands because of clients. Who takes long waits for something else than a drive, like a write or a node that is
//! about to be given up: its turn passes on meanwhile, so no volume's trouble holds up the repair of another.
//!
//! Invariant: turns are given in the order in which they were asked for.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use spandrel_platform::sync::{OneshotSender, oneshot};
use spandrel_platform::{Instant, Platform};
use spandrel_shared::{PIECES_WHILE_QUIET, RepairShare};

/// For how long clients have to be silent until repair takes all.
const QUIET_TIME: Duration = Duration::from_secs(1);

/// How long a turn lasts at most: much longer than a drive that is well takes for a piece.
const TURN_TIME_MAX: Duration = Duration::from_millis(500);

/// The turns of a node. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub struct RepairTurns {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    /// How many there are, as it was found last.
    at_once: Cell<usize>,
    /// How many are taken.
    taken: Cell<usize>,
    /// Who waits for one, the first first.
    waiting: RefCell<VecDeque<OneshotSender<Turn>>>,
    /// What clients have asked so far.
    client_requests: Cell<u64>,
    /// What that was when it was looked at last, and since when it has been that.
    quiet_since: Cell<Option<(u64, Instant)>>,
}

/// Leave to copy a piece. Passed on when it is dropped.
struct Turn {
    turns: RepairTurns,
}

impl RepairTurns {
    /// Takes note of a client's request.
    pub(crate) fn note_client(&self) {
        self.inner.client_requests.set(self.inner.client_requests.get() + 1);
    }

    /// Does `work`, the copying of one piece, when it is its turn, with this share of the work for repair.
    pub(crate) async fn in_turn<P: Platform, T>(
        &self,
        platform: &P,
        share: RepairShare,
        work: impl Future<Output = T>,
    ) -> T {
        let turn = self.take(platform.now(), share).await;
        match select(pin!(work), pin!(platform.sleep(TURN_TIME_MAX))).await {
            Either::Left((done, _)) => done,
            Either::Right(((), work)) => {
                drop(turn);
                work.await
            }
        }
    }

    async fn take(&self, now: Instant, share: RepairShare) -> Turn {
        let at_once = if self.is_quiet(now) { PIECES_WHILE_QUIET } else { share.pieces_at_once() };
        self.inner.at_once.set(at_once);
        let (sender, receiver) = oneshot();
        self.inner.waiting.borrow_mut().push_back(sender);
        self.give();
        receiver.await.expect("whoever waits stays in the queue until it is given a turn")
    }

    /// Whether no client has asked for anything for a while.
    fn is_quiet(&self, now: Instant) -> bool {
        let requests = self.inner.client_requests.get();
        let since = match self.inner.quiet_since.get() {
            Some((seen, since)) if seen == requests => since,
            _ => now,
        };
        self.inner.quiet_since.set(Some((requests, since)));
        now.since(since) >= QUIET_TIME
    }

    fn give(&self) {
        while self.inner.taken.get() < self.inner.at_once.get() {
            let Some(first) = self.inner.waiting.borrow_mut().pop_front() else { return };
            self.inner.taken.set(self.inner.taken.get() + 1);
            // If nobody waits for it any more, it comes back at once.
            first.send(Turn { turns: self.clone() });
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let taken = &self.turns.inner.taken;
        taken.set(taken.get() - 1);
        self.turns.give();
    }
}

#[cfg(test)]
#[path = "repair_turns_tests.rs"]
mod tests;
