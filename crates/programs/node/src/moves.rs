//! Moves copies of the volumes that this node owns: away from drives that are lost or on their way out, to those with
//! room; and from drives that are filled more to those that are filled less.
//!
//! Nobody gives orders to all owners: each looks at the pool and at its own volumes, now and then, and has the next few
//! copies built. That two do not count on the same room is for the cluster's state to see to.
//!
//! Invariants:
//! - Of one volume no more than [`MOVES_AT_ONCE`] copies are being built. The next ones are begun when these count.
//! - What is being built on a drive that leaves meanwhile, or that has not been usable for a while, is given up.
//! - Copies are spread only of volumes that lack nothing.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use spandrel_cluster::store::StateStore;
use spandrel_cluster::{DriveState, VolumeMembership};
use spandrel_platform::{Instant, Platform};
use spandrel_pool::{
    MovesPlan, PlacedCopy, PlacedVolume, PoolView, UNEVEN_PER_MILLE, plan_balance, plan_replacements,
    spread_per_mille,
};
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{ConfigurationVersion, DriveId, Move};
use spandrel_volume::{LegState, Phase};

use crate::node::NodeInner;
use crate::ownership::Ownership;
use crate::volumes::pool_view;

/// How often each volume is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a drive may be away on which copies are being built.
const TARGET_AWAY_MAX: Duration = Duration::from_secs(60);

/// Copies of one volume that are built at the same time: enough that each drive of a pool has something to do, few
/// enough that little is lost if one is given up.
const MOVES_AT_ONCE: usize = 16;

/// So even is a pool before copies are not spread by themselves any more. When that begins: [`UNEVEN_PER_MILLE`].
const SPREAD_ENDS_PER_MILLE: u32 = 10;

/// For so long drives are filled unevenly before copies are spread: several drives often come one after the other.
const SETTLES_WITHIN: Duration = Duration::from_secs(60);

/// For so long a request to spread copies is known to owners that take a volume over.
const OPTIMIZE_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How far the moves of one volume are.
#[derive(Default)]
pub(crate) struct Moving {
    /// What the last plan was made from, if it had nothing to move: as long as that is the same, another one would not
    /// either.
    at_rest: Option<Basis>,
    /// The request to spread copies that was carried out last.
    optimized: Option<u64>,
    /// Copies that should be elsewhere, and for which no drive has room or no other node is there.
    pub(crate) without_place: u64,
}

/// What a plan depends on.
#[derive(Clone, PartialEq, Eq)]
struct Basis {
    /// See [`ClusterView::changes`](crate::view::ClusterView::changes).
    pool: u64,
    volume: ConfigurationVersion,
    leaving: BTreeSet<DriveId>,
}

/// Whether drives are filled unevenly. It is looked at when the pool has changed.
#[derive(Default)]
struct Evenness {
    judged: Option<u64>,
    uneven_since: Option<Instant>,
}

impl Evenness {
    /// Judges the pool, if it has changed since.
    fn judge(&mut self, changes: u64, now: Instant, pool: impl FnOnce() -> PoolView) {
        if self.judged.replace(changes) == Some(changes) {
            return;
        }
        let limit = if self.uneven_since.is_some() { SPREAD_ENDS_PER_MILLE } else { UNEVEN_PER_MILLE };
        let is_uneven = spread_per_mille(&pool()) > limit;
        self.uneven_since = if is_uneven { self.uneven_since.or(Some(now)) } else { None };
    }

    /// Whether it is so uneven, and for so long, that copies are to be spread.
    fn is_lost(&self, now: Instant) -> bool {
        self.uneven_since.is_some_and(|since| now.since(since) >= SETTLES_WITHIN)
    }
}

/// What is to be done with the pool's copies at a moment.
struct Wanted {
    /// Copies are moved away from these.
    leaving: BTreeSet<DriveId>,
    /// Whether some of them have been away for too long.
    misses_drives: bool,
    /// Nothing more is built on these.
    useless: BTreeSet<DriveId>,
    /// Whether drives are filled so unevenly that copies are spread.
    spread: bool,
    /// The request to spread them, if there is one.
    optimize: Option<u64>,
}

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    /// Moves what has to be moved, as long as the node runs.
    pub(crate) async fn keep_moving(self: Rc<Self>) {
        let mut evenness = Evenness::default();
        loop {
            self.parts.platform.sleep(INTERVAL).await;
            let now = self.parts.platform.now();
            evenness.judge(self.parts.view.changes(), now, || self.pool_view());
            let wanted = self.wanted(now, evenness.is_lost(now));
            let ownerships: Vec<_> = self.ownerships.borrow().values().cloned().collect();
            for ownership in ownerships {
                if ownership.owner.phase() == Phase::Serving {
                    self.move_copies(&ownership, &wanted).await;
                }
            }
        }
    }

    fn wanted(&self, now: Instant, is_uneven: bool) -> Wanted {
        let view = &self.parts.view;
        let settings = view.settings();
        let mut absence = self.absence.borrow_mut();
        absence.note(view, now);
        let mut leaving = absence.too_long(view, &settings, now);
        let misses_drives = !leaving.is_empty();
        let drives = view.drives.borrow();
        let others = drives.iter().filter(|(_, stored)| stored.record.state != DriveState::Active);
        leaving.extend(others.map(|(drive, _)| *drive));
        let away = absence.all(now).filter(|(_, away)| *away >= TARGET_AWAY_MAX).map(|(drive, _)| drive);
        let today_ms = self.parts.platform.unix_time().0;
        let is_new =
            |since_ms: &u64| u128::from(today_ms.saturating_sub(*since_ms)) < OPTIMIZE_AGE_MAX.as_millis();
        Wanted {
            misses_drives,
            useless: away.chain(leaving.iter().copied()).collect(),
            leaving,
            spread: settings.balance && is_uneven,
            optimize: settings.optimize_since_unix_ms.filter(is_new),
        }
    }

    /// Has the next copies of a volume built, if none are.
    async fn move_copies(&self, ownership: &Ownership<P, S>, wanted: &Wanted) {
        let legs = ownership.owner.legs();
        let building: Vec<DriveId> = legs.keys().filter(|leg| leg.is_building).map(|leg| leg.drive).collect();
        for drive in building.iter().filter(|drive| wanted.useless.contains(drive)) {
            ownership.owner.abandon(*drive).await;
        }
        if !building.is_empty() {
            return;
        }
        let is_concerned = legs.keys().any(|leg| wanted.leaving.contains(&leg.drive));
        if !is_concerned {
            ownership.moving.borrow_mut().without_place = 0;
        }
        let lacks_nothing = legs.values().all(|leg| leg.state == LegState::InSync);
        let moves = match is_concerned {
            true => self.next_moves(ownership, wanted, true),
            false if lacks_nothing && self.is_to_be_spread(ownership, wanted) => {
                self.next_moves(ownership, wanted, false)
            }
            false => Vec::new(),
        };
        if !moves.is_empty() {
            ownership.owner.build(moves).await;
        }
    }

    fn is_to_be_spread(&self, ownership: &Ownership<P, S>, wanted: &Wanted) -> bool {
        let is_asked = wanted.optimize.is_some() && wanted.optimize != ownership.moving.borrow().optimized;
        wanted.spread || is_asked
    }

    /// Which copies are moved next: those that have to, or those that lie unevenly. Nothing if nothing has changed since
    /// there was nothing to move.
    fn next_moves(&self, ownership: &Ownership<P, S>, wanted: &Wanted, replaces: bool) -> Vec<Move> {
        let seen = ownership.seen();
        let basis = Basis {
            pool: self.parts.view.changes(),
            volume: seen.record.configuration,
            leaving: wanted.leaving.clone(),
        };
        let mut moving = ownership.moving.borrow_mut();
        if moving.at_rest.as_ref() == Some(&basis) {
            return Vec::new();
        }
        let (pool, volume) = (self.pool_view(), placed(&seen));
        let plan = if replaces {
            plan_replacements(&pool, &volume, &wanted.leaving, MOVES_AT_ONCE)
        } else {
            MovesPlan { moves: plan_balance(&pool, &volume, MOVES_AT_ONCE), without_place: 0 }
        };
        moving.without_place = plan.without_place;
        if !plan.moves.is_empty() {
            match replaces {
                true if wanted.misses_drives => witness::reached(Rare::CopiesMissed),
                true => {}
                false => witness::reached(Rare::CopiesSpread),
            }
        }
        let moves = plan.moves;
        moving.at_rest = moves.is_empty().then_some(basis);
        if moves.is_empty() && !replaces {
            moving.optimized = wanted.optimize;
        }
        moves
    }

    /// The pool as this node sees it.
    fn pool_view(&self) -> PoolView {
        let view = &self.parts.view;
        let owned = view.volumes_owned();
        let owned = |node| owned.get(&node).map_or(0, |count| u32::try_from(*count).unwrap_or(u32::MAX));
        let (nodes, alive) = (view.nodes.borrow(), view.alive.borrow());
        pool_view(self.parts.cluster.slab_bytes, &nodes, &alive, &view.room(), owned)
    }
}

/// A volume's copies, for plans.
pub fn placed(seen: &VolumeMembership) -> PlacedVolume {
    let copy = |member: &spandrel_cluster::Member| PlacedCopy {
        part: member.part,
        drive: member.drive,
        is_whole: seen.is_in_sync(member),
        is_building: member.building,
    };
    let slabs = seen.sets.iter().map(|set| set.members.iter().map(copy).collect());
    PlacedVolume { owner: seen.record.preferred_owner, slabs: slabs.collect() }
}

#[cfg(test)]
#[path = "moves_tests.rs"]
mod tests;
