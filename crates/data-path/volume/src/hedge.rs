//! Reads that do not wait for a slow copy: one that takes a fifth of a second is sent to a second copy as well, and the
//! answer that comes first counts.
//!
//! The other one is not waited for; but what was to be measured is measured to its end, or until it is overdue, in a task
//! of its own that holds no lock. So help hides no drive that is slow, and none that hangs. A leg that reads avoid as it is
//! slow gets one of them now and then, for which nobody waits: that shows when it is well again.
//!
//! Invariants:
//! - A second copy is asked for a client, never for repair: what is not urgent does not double the load.
//! - Of a hundred reads no more than five are sent a second time, but for a few, and those that wait for a copy that is slow
//!   while others are not: where all copies have too much to do, they do not get more.
//! - No copy that is slow itself is asked for help.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use futures_util::future::Either;
use spandrel_platform::Platform;
use spandrel_platform::sync::{OneshotReceiver, oneshot};
use spandrel_shared::DriveId;
use spandrel_shared::geometry::SlabRange;
use spandrel_shared::witness::{self, Rare};

use crate::context::{AskError, OwnerContext};
use crate::membership::{LegState, Member};
use crate::owner::OwnerInner;
use crate::pace::{DUE_TICKS, Kind, Measurement};
use crate::read::CopyPart;

/// After so many of the guardian's tenths of a second a read is sent to a second copy as well.
const HEDGE_TICKS: u64 = 2;

/// One of so many reads may be sent a second time.
const READS_PER_HEDGE: u32 = 20;

/// So many may be sent a second time in a row.
const HEDGES_IN_A_ROW: u32 = 8;

/// So many tenths of a second after a read of a leg one that helps is measured: each is.
const HELP_TICKS: u64 = 0;

/// So many tenths of a second after a read of a slow leg that reads avoid one is sent to it for nobody.
const PROBE_TICKS: u64 = 10;

type ReadAnswer = Result<Vec<CopyPart>, AskError>;

/// How many reads may be sent a second time yet.
pub(crate) struct HedgeBudget {
    /// In parts of one, of which there are as many as [`READS_PER_HEDGE`].
    parts: Cell<u32>,
}

impl Default for HedgeBudget {
    fn default() -> Self {
        Self { parts: Cell::new(HEDGES_IN_A_ROW * READS_PER_HEDGE) }
    }
}

impl HedgeBudget {
    fn note_read(&self) {
        self.parts.set((self.parts.get() + 1).min(HEDGES_IN_A_ROW * READS_PER_HEDGE));
    }

    /// A tenth of a second counts like a read: so those of a volume that has few are helped as well.
    pub(crate) fn note_tick(&self) {
        self.note_read();
    }

    fn take(&self) -> bool {
        let left = self.parts.get().checked_sub(READS_PER_HEDGE);
        self.parts.set(left.unwrap_or(self.parts.get()));
        left.is_some()
    }
}

impl<C: OwnerContext> OwnerInner<C> {
    /// Reads from `first`, and, if that takes long, from another in-sync copy as well.
    pub(crate) async fn ask_one_or_two(
        &self,
        first: Member,
        piece: SlabRange,
        failed: &BTreeSet<DriveId>,
    ) -> (Member, ReadAnswer) {
        self.hedge_budget.note_read();
        let begun = self.ticks.get();
        let asked = std::pin::pin!(self.ask_to_read(first, piece));
        let helper = Cell::new(None);
        let late = std::pin::pin!(self.ticked.wait_until(|| {
            let is_late = self.ticks.get() >= begun + HEDGE_TICKS;
            helper.set(if is_late { self.helper(first, piece, failed) } else { None });
            helper.get().is_some()
        }));
        let (asked, second) = match futures_util::future::select(asked, late).await {
            Either::Left((answer, _)) => return (first, answer),
            Either::Right(((), asked)) => (asked, helper.get().expect("it is late when there is one")),
        };
        witness::reached(Rare::HedgedRead);
        let measurement = self.begin_measurement(&second, Kind::Read, HELP_TICKS);
        let beside = std::pin::pin!(self.ask_maybe_measured(second, piece, measurement));
        match futures_util::future::select(asked, beside).await {
            Either::Left((Err(error), beside)) => {
                self.note_failure(piece.slab, &first, &error);
                (second, beside.await)
            }
            Either::Right((Err(error), asked)) => {
                self.note_failure(piece.slab, &second, &error);
                (first, asked.await)
            }
            Either::Left((answer, _)) => (first, answer),
            Either::Right((answer, _)) => (second, answer),
        }
    }

    /// The copy that helps with a read for which `first` takes long, if one may now. Where `first` alone is slow, new reads
    /// avoid it: so those that wait there are no load that grows, and each is helped.
    fn helper(&self, first: Member, piece: SlabRange, failed: &BTreeSet<DriveId>) -> Option<Member> {
        let may_help = |drive: DriveId| drive != first.drive && !failed.contains(&drive);
        let second = self.nearest(piece.slab, may_help)?;
        let is_alone = || self.paces.is_slow(first.leg());
        let may_help = !self.paces.is_slow(second.leg()) && (is_alone() || self.hedge_budget.take());
        may_help.then_some(second)
    }

    /// Reads from a copy. Measures that if it is due, and then how slow ones do as well that are avoided.
    pub(crate) async fn ask_to_read(&self, member: Member, piece: SlabRange) -> ReadAnswer {
        let measurement = self.begin_measurement(&member, Kind::Read, DUE_TICKS);
        if measurement.is_some() {
            self.probe_slow(member, piece);
        }
        self.ask_maybe_measured(member, piece, measurement).await
    }

    async fn ask_maybe_measured(
        &self,
        member: Member,
        piece: SlabRange,
        measurement: Option<Measurement>,
    ) -> ReadAnswer {
        match measurement {
            None => self.ask_read_while_in_sync(&member, piece, None).await,
            Some(measurement) => {
                let answer = self.read_to_the_end(member, piece, measurement);
                let gone = || Err(AskError::Unreachable("the ownership has ended".to_owned()));
                match answer {
                    Some(answer) => answer.await.unwrap_or_else(gone),
                    None => gone(),
                }
            }
        }
    }

    /// Reads from the slow copies that were left out for `chosen`, for which nobody waits.
    fn probe_slow(&self, chosen: Member, piece: SlabRange) {
        for (member, state) in self.members(piece.slab) {
            let is_avoided = member.drive != chosen.drive
                && state == LegState::InSync
                && self.paces.is_slow(member.leg())
                && self.context.is_reachable(member.shard);
            if is_avoided && let Some(measurement) = self.begin_measurement(&member, Kind::Read, PROBE_TICKS)
            {
                witness::reached(Rare::SlowCopyProbed);
                // What it says is noted where it ends.
                drop(self.read_to_the_end(member, piece, measurement));
            }
        }
    }

    /// Reads from a copy, whether or not anybody waits for that to its end. None while the owner is being dropped.
    fn read_to_the_end(
        &self,
        member: Member,
        piece: SlabRange,
        measurement: Measurement,
    ) -> Option<OneshotReceiver<ReadAnswer>> {
        let owner: Rc<Self> = self.own_handle()?;
        let (sender, receiver) = oneshot();
        self.context.platform().spawn(async move {
            let answer = owner.ask_read_while_in_sync(&member, piece, Some(measurement)).await;
            if let Err(error) = &answer {
                owner.note_failure(piece.slab, &member, error);
            }
            sender.send(answer);
        });
        Some(receiver)
    }
}

#[cfg(test)]
#[path = "hedge_tests.rs"]
mod tests;
