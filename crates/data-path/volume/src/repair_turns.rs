//! How much is copied at the same time to bring copies back, by all owners of a node together.
//!
//! Whoever copies a piece takes a turn first. There are as many as the repair share says while clients ask something of the
//! node's volumes, and many more while nobody does: what is idle may as well be used. But the drives may be those of volumes
//! that other nodes serve: so there are more only as long as pieces do not take long. There is always one, so no repair
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

/// While clients are quiet there is one turn more for each piece that took less than this,
const PIECE_TIME_SHORT: Duration = Duration::from_millis(50);

/// and half as many when one took more than this: who else uses the drive then waits for that long.
const PIECE_TIME_LONG: Duration = Duration::from_millis(100);

/// How long a turn lasts at most: much longer than a drive that is well takes for a piece.
const TURN_TIME_MAX: Duration = Duration::from_millis(500);

/// How many turns there are at least while clients are quiet.
const PIECES_WHILE_QUIET_MIN: usize = 8;

/// Blocks of a piece at most: 64 KiB, as clients wait for a piece that is being copied where they want to write,
const PIECE_BLOCKS_MAX: u32 = 16;

/// and 512 KiB while none asks for anything: a piece costs nearly the same, however large it is.
const PIECE_BLOCKS_WHILE_QUIET_MAX: u32 = 128;

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
    /// By how many turns there are more than at least while clients are quiet, and when they were halved last.
    more_while_quiet: Cell<usize>,
    halved: Cell<Option<Instant>>,
    /// Whether turns are being given: those that come back meanwhile are given by whoever does that.
    is_giving: Cell<bool>,
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
        let begun = platform.now();
        let (work, turn_ends) = (pin!(work), pin!(platform.sleep(TURN_TIME_MAX)));
        let worked = select(work, turn_ends).await;
        self.note_piece(begun, platform.now());
        match worked {
            Either::Left((done, _)) => done,
            Either::Right(((), work)) => {
                drop(turn);
                work.await
            }
        }
    }

    /// To be called now and then, so that it is known for how long clients have been silent when a repair begins.
    pub fn look(&self, now: Instant) {
        self.is_quiet(now);
    }

    /// How many blocks the pieces have at most that are begun now.
    pub(crate) fn piece_blocks_max(&self, now: Instant) -> u32 {
        if self.is_quiet(now) { PIECE_BLOCKS_WHILE_QUIET_MAX } else { PIECE_BLOCKS_MAX }
    }

    /// A piece was copied, or has taken as long as a turn lasts.
    fn note_piece(&self, begun: Instant, now: Instant) {
        let (took, more) = (now.since(begun), self.inner.more_while_quiet.get());
        let may_halve = self.inner.halved.get().is_none_or(|halved| begun >= halved);
        if took < PIECE_TIME_SHORT {
            self.inner.more_while_quiet.set((more + 1).min(PIECES_WHILE_QUIET - PIECES_WHILE_QUIET_MIN));
        } else if took > PIECE_TIME_LONG && may_halve {
            // Those that were under way with it tell nothing new.
            self.inner.halved.set(Some(now));
            self.inner.more_while_quiet.set(more / 2);
        }
    }

    async fn take(&self, now: Instant, share: RepairShare) -> Turn {
        let while_quiet = PIECES_WHILE_QUIET_MIN + self.inner.more_while_quiet.get();
        self.inner.at_once.set(if self.is_quiet(now) { while_quiet } else { share.pieces_at_once() });
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
        if self.inner.is_giving.replace(true) {
            return;
        }
        while self.inner.taken.get() < self.inner.at_once.get() {
            let Some(first) = self.inner.waiting.borrow_mut().pop_front() else { break };
            self.inner.taken.set(self.inner.taken.get() + 1);
            // If nobody waits for it any more, it comes back at once.
            first.send(Turn { turns: self.clone() });
        }
        self.inner.is_giving.set(false);
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
