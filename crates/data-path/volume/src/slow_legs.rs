//! What an owner does about legs that answer slowly: each write waits for them.
//!
//! It says so of their drives, and takes one of them out after the other. Nobody is suspected for being slow: whether a leg
//! is taken out is decided at the moment when its mark is asked for, by what holds then.
//!
//! Invariants:
//! - A leg is taken out for slowness only if of each of its slabs two other copies stay that are in sync, can be reached,
//!   have promised, are under no suspicion and are not slow themselves: one that is slow is better than none.
//! - As long as a leg is in doubt for anything else, none is taken out for slowness.
//! - Its copies rest, and that is counted, from when the mark is made, and only if it is.

use std::time::Duration;

use futures_util::FutureExt;
use spandrel_platform::{Instant, Platform};
use spandrel_shared::witness::{self, Rare};

use crate::context::{AskError, OwnerContext};
use crate::membership::{Leg, LegId, LegState, Member};
use crate::owner::OwnerInner;
use crate::pace::{Kind, Measurement, Slowness};

/// A leg that has been slow for so long is taken out, if there are enough others.
const SLOW_MAX: Duration = Duration::from_secs(3);

/// A leg that is to be taken out as it is slow.
#[derive(Clone, Copy)]
pub(crate) struct SlowLeg {
    pub(crate) leg: LegId,
    pub(crate) slowness: Slowness,
}

impl SlowLeg {
    /// Why, for people.
    pub(crate) fn reason(&self) -> String {
        format!("its drive has answered slowly for {} s", self.slowness.duration().as_secs())
    }
}

impl<C: OwnerContext> OwnerInner<C> {
    /// A tenth of a second is over.
    pub(crate) fn tick(&self, now: Instant) {
        self.ticks.set(self.ticks.get() + 1);
        self.ticked.notify_all();
        self.hedge_budget.note_tick();
        self.paces.tick(now, |leg| self.leg_state(*leg).is_needed());
        for slow in self.legs_slow_for_long(now) {
            self.context.slow_drives().note(slow.leg.drive, slow.slowness);
        }
    }

    /// The legs in sync that have been slow for so long that nobody need wait for them any more.
    fn legs_slow_for_long(&self, now: Instant) -> impl Iterator<Item = SlowLeg> {
        let is_long = |slowness: &Slowness| slowness.seen >= 2 && slowness.duration() >= SLOW_MAX;
        let slow = self.paces.slow_legs(now).into_iter().filter(move |(_, slowness)| is_long(slowness));
        slow.filter(|(leg, _)| self.leg_state(*leg) == LegState::InSync)
            .map(|(leg, slowness)| SlowLeg { leg, slowness })
    }

    /// The leg that is to be taken out now as it is slow, if one is.
    pub(crate) fn slow_leg_to_take_out(&self) -> Option<SlowLeg> {
        let can_be_counted_on = |id: LegId, leg: &Leg| {
            leg.state == LegState::InSync
                && self.context.is_reachable(leg.shard)
                && self.context.is_promised(leg.shard, self.volume, self.epoch)
                && !self.suspects.borrow().contains_key(&id)
                && !self.paces.is_slow(id)
        };
        let mut slow = self.legs_slow_for_long(self.context.platform().now());
        slow.find(|slow| self.has_two_beside(slow.leg, can_be_counted_on))
    }

    /// A leg was taken out as it was slow.
    pub(crate) fn note_taken_out(&self, slow: &SlowLeg) {
        witness::reached(Rare::SlowCopiesTakenOut);
        let now = self.context.platform().now();
        self.context.slow_drives().begin_rest(slow.leg.drive, slow.slowness, now);
    }

    /// Whether each slab of which a leg has a copy has two more that count.
    pub(crate) fn has_two_beside(&self, leg: LegId, counts: impl Fn(LegId, &Leg) -> bool) -> bool {
        let membership = self.membership.borrow();
        let legs = self.legs.borrow();
        let does_count = |member: &&Member| {
            let id = member.leg();
            id.drive != leg.drive && legs.get(&id).is_some_and(|leg| counts(id, leg))
        };
        let mut concerned =
            membership.slabs.iter().filter(|members| members.iter().any(|member| member.leg() == leg));
        concerned.all(|members| members.iter().filter(does_count).count() >= 2)
    }

    /// Begins to measure a request that is about to be sent to a copy, if it is due: see
    /// [`Paces::begin`](crate::pace::Paces::begin).
    pub(crate) fn begin_measurement(
        &self,
        member: &Member,
        kind: Kind,
        pause_ticks: u64,
    ) -> Option<Measurement> {
        self.paces.begin(member, kind, pause_ticks, || self.context.platform().now())
    }

    /// The answer of a copy, whose time is taken if it is measured. (An `async fn` would hold what it awaits twice.)
    pub(crate) fn measured<T>(
        &self,
        measurement: Option<Measurement>,
        asked: impl Future<Output = Result<T, AskError>>,
    ) -> impl Future<Output = Result<T, AskError>> {
        asked.inspect(move |answer| {
            let Some(measurement) = measurement else { return };
            match answer {
                Ok(_) => measurement.answered(self.context.platform().now()),
                Err(_) => measurement.failed(),
            }
        })
    }
}
