//! How much is copied at the same time to bring copies back, by all owners of a node together.
//!
//! Whoever copies takes a turn first, for some pieces that lie behind each other. Together there are as many pieces as the
//! repair share says while clients ask something of the node's volumes, and many more while nobody does: what is idle may as
//! well be used. But the drives may be those of volumes that other nodes serve: so there are more only as long as turns do not
//! take long. Where there are many, a turn is for several pieces, which cost little more than one. There is always one, so no
//! repair stands because of clients. Who takes long waits for something else than a drive, like a write or a node that is
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

/// While clients are quiet there is one piece more for each turn that took less than this,
const TURN_TIME_SHORT: Duration = Duration::from_millis(50);

/// and half as many when one took more than this: who else uses the drive then waits for that long.
const TURN_TIME_LONG: Duration = Duration::from_millis(100);

/// How long a turn lasts at most: much longer than a drive that is well takes for a piece.
const TURN_TIME_MAX: Duration = Duration::from_millis(500);

/// How many pieces there are at least while clients are quiet.
const PIECES_WHILE_QUIET_MIN: usize = 16;

/// Blocks of a piece: 64 KiB.
const PIECE_BLOCKS: u32 = 16;

/// A turn is for one of so many parts of all pieces, so that several are under way at any time,
const TURNS_AT_ONCE_MIN: usize = 16;

/// and for 512 KiB at most.
const PIECES_PER_TURN_MAX: usize = 8;

/// The turns of a node. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub struct RepairTurns {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    /// How many pieces there are, as it was found last.
    at_once: Cell<usize>,
    /// How many are taken.
    taken: Cell<usize>,
    /// Who waits for a turn, the first first.
    waiting: RefCell<VecDeque<Waiting>>,
    /// What clients have asked so far.
    client_requests: Cell<u64>,
    /// What that was when it was looked at last, and since when it has been that.
    quiet_since: Cell<Option<(u64, Instant)>>,
    /// By how many pieces there are more than at least while clients are quiet, and when they were halved last.
    more_while_quiet: Cell<usize>,
    halved: Cell<Option<Instant>>,
    /// Whether turns are being given: those that come back meanwhile are given by whoever does that.
    is_giving: Cell<bool>,
}

/// Somebody who wants to copy so many pieces.
struct Waiting {
    pieces: usize,
    sender: OneshotSender<Turn>,
}

/// Leave to copy so many pieces. Passed on when it is dropped.
struct Turn {
    turns: RepairTurns,
    pieces: usize,
}

impl RepairTurns {
    /// Takes note of a client's request.
    pub(crate) fn note_client(&self) {
        self.inner.client_requests.set(self.inner.client_requests.get() + 1);
    }

    /// Does `work`, the copying of at most `blocks` blocks that lie behind each other, when it is its turn, with this share of
    /// the work for repair. It is told how many it may copy.
    pub(crate) async fn in_turn<P: Platform, T>(
        &self,
        platform: &P,
        share: RepairShare,
        blocks: u32,
        work: impl AsyncFnOnce(u32) -> T,
    ) -> T {
        let turn = self.take(platform.now(), share, blocks.div_ceil(PIECE_BLOCKS) as usize).await;
        let begun = platform.now();
        let work = work(blocks.min(turn.pieces as u32 * PIECE_BLOCKS));
        let (work, turn_ends) = (pin!(work), pin!(platform.sleep(TURN_TIME_MAX)));
        let worked = select(work, turn_ends).await;
        self.note_turn(begun, platform.now());
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

    /// What a turn was for is done, or has taken as long as a turn lasts.
    fn note_turn(&self, begun: Instant, now: Instant) {
        let (took, more) = (now.since(begun), self.inner.more_while_quiet.get());
        let may_halve = self.inner.halved.get().is_none_or(|halved| begun >= halved);
        if took < TURN_TIME_SHORT {
            self.inner.more_while_quiet.set((more + 1).min(PIECES_WHILE_QUIET - PIECES_WHILE_QUIET_MIN));
        } else if took > TURN_TIME_LONG && may_halve {
            // Those that were under way with it tell nothing new.
            self.inner.halved.set(Some(now));
            self.inner.more_while_quiet.set(more / 2);
        }
    }

    async fn take(&self, now: Instant, share: RepairShare, pieces: usize) -> Turn {
        let while_quiet = PIECES_WHILE_QUIET_MIN + self.inner.more_while_quiet.get();
        self.inner.at_once.set(if self.is_quiet(now) { while_quiet } else { share.pieces_at_once() });
        let (sender, receiver) = oneshot();
        self.inner.waiting.borrow_mut().push_back(Waiting { pieces, sender });
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
        while let Some((sender, pieces)) = self.next_given() {
            self.inner.taken.set(self.inner.taken.get() + pieces);
            // If nobody waits for it any more, it comes back at once.
            sender.send(Turn { turns: self.clone(), pieces });
        }
        self.inner.is_giving.set(false);
    }

    /// Who is given a turn now, and for how many pieces.
    fn next_given(&self) -> Option<(OneshotSender<Turn>, usize)> {
        let (at_once, taken) = (self.inner.at_once.get(), self.inner.taken.get());
        let pieces_max = (at_once / TURNS_AT_ONCE_MIN).clamp(1, PIECES_PER_TURN_MAX);
        let mut waiting = self.inner.waiting.borrow_mut();
        let pieces = waiting.front()?.pieces.min(pieces_max);
        if taken + pieces > at_once {
            return None;
        }
        Some((waiting.pop_front()?.sender, pieces))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let taken = &self.turns.inner.taken;
        taken.set(taken.get() - self.pieces);
        self.turns.give();
    }
}

#[cfg(test)]
#[path = "repair_turns_tests.rs"]
mod tests;
