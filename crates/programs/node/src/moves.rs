//! Moves copies of the volumes that this node owns: away from drives that are lost or on their way out, to those with
//! room; from fault domains that they share with others to ones of their own; and from drives that are filled more to those
//! that are filled less.
//!
//! Nobody gives orders to all owners: each looks at the pool and at its own volumes, now and then, and has the next few
//! copies built. That two do not count on the same room is for the cluster's state to see to; that together they do not
//! spread more than there is to spread, each sees to by beginning only its part.
//!
//! Invariants:
//! - Of one volume no more than [`MOVES_AT_ONCE`] copies are being built. The next ones are begun when these count.
//! - What is being built on a drive that leaves meanwhile, or that has not been usable for a while, is given up.
//! - Nothing is begun on a drive that is slow, unless nothing else has room. What was begun there goes on.
//! - Copies are spread only of volumes that lack nothing.
//! - No volume waits for another one's changes. Plans are made one at a time, and clients are served in between.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use spandrel_cluster::store::StateStore;
use spandrel_cluster::{DriveState, VolumeMembership};
use spandrel_platform::{Instant, Platform};
use spandrel_pool::{
    DriveRoom, MovesPlan, PlacedCopy, PlacedVolume, PoolView, UNEVEN_PER_MILLE, begin_moves,
    copies_to_even_out, even_per_mille, is_settled, part_of_one, plan_apart, plan_balance, plan_replacements,
    spread_per_mille,
};
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{ConfigurationVersion, DriveId, Move};
use spandrel_volume::{LegState, Phase};

use crate::node::NodeInner;
use crate::ownership::Ownership;
use crate::retire_slow::Decided;

/// How often each volume is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often they are looked at while copies of one are being built, so that the next ones follow soon.
const INTERVAL_WHILE_BUILDING: Duration = Duration::from_millis(100);

/// Clients are served between two plans.
const BETWEEN_PLANS: Duration = Duration::from_millis(1);

/// How long a drive may be away on which copies are being built.
const TARGET_AWAY_MAX: Duration = Duration::from_secs(60);

/// Copies of one volume that are built at the same time: enough that each drive of a pool has something to do, few
/// enough that little is lost if one is given up.
const MOVES_AT_ONCE: usize = 16;

/// For so long drives are filled unevenly before copies are spread: several drives often come one after the other.
const SETTLES_WITHIN: Duration = Duration::from_secs(60);

/// For so long nothing is planned anew if nothing has changed since there was nothing to move.
const REST: Duration = Duration::from_secs(60);

/// The same, if not all possibilities were looked at.
const REST_CUT_SHORT: Duration = Duration::from_secs(5);

/// For so long there is nothing to spread before a request to spread copies counts as carried out: others may have begun by
/// what they saw before, and what they move too much is heeded as long as it does not.
const CONFIRMED_AFTER: Duration = Duration::from_secs(3);

/// The same, if not all possibilities were looked at: others are looked at each time.
const CONFIRMED_AFTER_CUT_SHORT: Duration = Duration::from_secs(10 * 60);

/// For so long nothing more is changed after a change that was not made: at first, and at most after several of them.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(16));

/// For so long a request to spread copies is known to owners that take a volume over.
const OPTIMIZE_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How far the moves of one volume are.
#[derive(Default)]
pub(crate) struct Moving {
    rest: Option<Rest>,
    /// The request to spread copies that was carried out last.
    optimized: Option<u64>,
    /// Since when there has been nothing to spread, and nothing else to do, for a request that is not carried out yet.
    nothing_since: Option<(u64, Instant)>,
    /// Copies that should be elsewhere, and for which no drive has room or no other node is there.
    pub(crate) without_place: u64,
    /// Whether a change of the volume's copies is under way.
    is_changing: bool,
    /// How many plans there have been.
    plans: u64,
    /// How many changes in a row were not made, and until when nothing more is changed.
    failed: Option<(u32, Instant)>,
}

/// That there was nothing to move.
struct Rest {
    basis: Basis,
    until: Instant,
}

/// What a plan depends on.
#[derive(Clone, PartialEq, Eq)]
struct Basis {
    /// See [`ClusterView::changes`](crate::view::ClusterView::changes).
    pool: u64,
    volume: ConfigurationVersion,
    leaving: BTreeSet<DriveId>,
    /// Whether the volume is to be evened out.
    evens_out: bool,
}

impl Moving {
    /// Whether there was nothing to move, and there will not be now either.
    fn is_at_rest(&self, basis: &Basis, now: Instant) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.basis == *basis && now < rest.until)
    }

    /// Whether the volume's copies are to be spread over drives that are filled unevenly.
    fn is_to_be_evened_out(&self, wanted: &Wanted) -> bool {
        wanted.spread || wanted.optimize.is_some() && wanted.optimize != self.optimized
    }

    /// Whether a change that was not made is not long enough ago.
    fn is_pausing(&self, now: Instant) -> bool {
        self.failed.is_some_and(|(_, until)| now < until)
    }

    /// Takes note that a change is over. What is refused once, as others were faster, is soon tried again; what is refused
    /// again and again, less and less often.
    fn note_change(&mut self, is_made: bool, now: Instant) {
        self.is_changing = false;
        let failed = self.failed.map_or(0, |(failed, _)| failed);
        let pause = PAUSE.1.min(PAUSE.0 * 2_u32.saturating_pow(failed));
        self.failed = (!is_made).then(|| (failed.saturating_add(1), now + pause));
    }

    /// Nobody knows whose turn it is to begin, so each looks again soon: else the last copies would be moved late.
    fn shorten_rest(&mut self, until: Instant) {
        if let Some(rest) = &mut self.rest {
            rest.until = rest.until.min(until);
        }
    }

    /// Takes note of a plan. Those that find nothing to spread for a while carry the request out that copies be spread, if
    /// there is one.
    fn note(&mut self, plan: &MovesPlan, basis: Basis, now: Instant, spreads_for: Option<u64>) {
        self.plans += 1;
        self.without_place = plan.without_place;
        self.rest = None;
        let mut confirmed_after = CONFIRMED_AFTER;
        if plan.moves.is_empty() {
            let mut time = REST;
            if plan.is_cut_short {
                (time, confirmed_after) = (REST_CUT_SHORT, CONFIRMED_AFTER_CUT_SHORT);
            }
            self.rest = Some(Rest { basis, until: now + time });
        }
        self.note_request(spreads_for.filter(|_| plan.moves.is_empty()), now, confirmed_after);
    }

    /// Takes note of the request for which there is nothing to spread at this moment, if there is one.
    fn note_request(&mut self, request: Option<u64>, now: Instant, confirmed_after: Duration) {
        let unchanged = self.nothing_since.filter(|(since_request, _)| Some(*since_request) == request);
        self.nothing_since = request.map(|request| unchanged.unwrap_or((request, now)));
        let Some((request, since)) = self.nothing_since else { return };
        if now.since(since) >= confirmed_after {
            self.optimized = Some(request);
        } else {
            self.shorten_rest(since + confirmed_after);
        }
    }
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
        let pool = pool();
        let limit = if self.uneven_since.is_some() { even_per_mille(&pool) } else { UNEVEN_PER_MILLE };
        let is_uneven = spread_per_mille(&pool) > limit;
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
    /// Whether copies that share a fault domain are moved apart.
    apart: bool,
    /// The request to spread them, if there is one.
    optimize: Option<u64>,
}

/// The pool as it is when all is built that is planned at a moment.
struct Pool {
    /// Without the drives that are slow.
    view: PoolView,
    /// These: they are taken where nothing else has room, as a copy on a slow drive is better than none.
    slow: BTreeSet<DriveId>,
    /// What it was made from: see [`ClusterView::changes`](crate::view::ClusterView::changes).
    changes: u64,
    /// How many more copies this node may begin to spread.
    to_spread: u64,
    /// Whether one could be spread, and others are to begin.
    is_others_turn: bool,
}

/// What becomes of a volume's copies next.
enum Change {
    /// What is being built on these is given up.
    Abandon(Vec<DriveId>),
    Build(Vec<Move>),
}

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    /// Moves what has to be moved, as long as the node runs.
    pub(crate) async fn keep_moving(self: Rc<Self>) {
        let platform = &self.parts.platform;
        let mut evenness = Evenness::default();
        let mut is_building = false;
        let mut decided = Decided::default();
        let mut looked_at = None;
        loop {
            platform.sleep(if is_building { INTERVAL_WHILE_BUILDING } else { INTERVAL }).await;
            let now = platform.now();
            let is_due = looked_at.is_none_or(|looked_at: Instant| now.since(looked_at) >= INTERVAL);
            if is_due {
                looked_at = Some(now);
                self.absence.borrow_mut().note(&self.parts.view, now);
                self.parts.repair_turns.look(now);
                evenness.judge(self.parts.view.changes(), now, || self.pool_view());
            }
            let wanted = self.wanted(now, evenness.is_lost(now));
            if is_due {
                self.retire_slow_drive(&mut decided, &wanted.leaving, now).await;
            }
            let ownerships: Vec<_> = self.ownerships.borrow().values().cloned().collect();
            let mut pool = None;
            is_building = false;
            for ownership in ownerships {
                let plans = ownership.moving.borrow().plans;
                if let Some(change) = self.next_change(&ownership, &wanted, &mut pool) {
                    self.begin_change(&ownership, change);
                }
                is_building |= ownership.moving.borrow().is_changing
                    || ownership.owner.legs().keys().any(|leg| leg.is_building);
                if ownership.moving.borrow().plans > plans {
                    platform.sleep(BETWEEN_PLANS).await;
                }
            }
        }
    }

    fn wanted(&self, now: Instant, is_uneven: bool) -> Wanted {
        let view = &self.parts.view;
        let absence = self.absence.borrow();
        // Nothing is missed as long as it is not known how long it is waited for.
        let settings = view.settings();
        let missed = settings.as_ref().map(|settings| absence.too_long(settings, now));
        let mut leaving = missed.unwrap_or_default();
        let misses_drives = !leaving.is_empty();
        let drives = view.drives.borrow();
        let others = drives.iter().filter(|(_, stored)| stored.record.state != DriveState::Active);
        leaving.extend(others.map(|(drive, _)| *drive));
        let away = absence.all(now).filter(|(_, away)| *away >= TARGET_AWAY_MAX).map(|(drive, _)| drive);
        let today_ms = self.parts.platform.unix_time().0;
        let is_new =
            |since_ms: &u64| u128::from(today_ms.saturating_sub(*since_ms)) < OPTIMIZE_AGE_MAX.as_millis();
        let nodes = view.nodes.borrow();
        let are_labelled = nodes.values().any(|stored| !stored.record.place.is_unknown());
        let balances = settings.as_ref().is_some_and(|settings| settings.balance);
        Wanted {
            misses_drives,
            useless: away.chain(leaving.iter().copied()).collect(),
            leaving,
            spread: is_uneven && balances,
            apart: are_labelled && balances,
            optimize: settings.and_then(|settings| settings.optimize_since_unix_ms).filter(is_new),
        }
    }

    /// What becomes of a volume's copies next, if anything does and nothing is under way.
    fn next_change(
        &self,
        ownership: &Ownership<P, S>,
        wanted: &Wanted,
        pool: &mut Option<Pool>,
    ) -> Option<Change> {
        let now = self.parts.platform.now();
        let is_busy = |moving: &Moving| moving.is_changing || moving.is_pausing(now);
        if ownership.owner.phase() != Phase::Serving || is_busy(&ownership.moving.borrow()) {
            ownership.moving.borrow_mut().nothing_since = None;
            return None;
        }
        let legs = ownership.owner.legs();
        let building: Vec<DriveId> = legs.keys().filter(|leg| leg.is_building).map(|leg| leg.drive).collect();
        if !building.is_empty() {
            ownership.moving.borrow_mut().nothing_since = None;
            let useless: Vec<DriveId> =
                building.into_iter().filter(|drive| wanted.useless.contains(drive)).collect();
            return (!useless.is_empty()).then_some(Change::Abandon(useless));
        }
        let is_concerned = legs.keys().any(|leg| wanted.leaving.contains(&leg.drive));
        if !is_concerned {
            ownership.moving.borrow_mut().without_place = 0;
            let lacks_nothing = legs.values().all(|leg| leg.state == LegState::InSync);
            if !lacks_nothing {
                ownership.moving.borrow_mut().nothing_since = None;
            }
            let is_to_be_spread = wanted.apart || ownership.moving.borrow().is_to_be_evened_out(wanted);
            if !lacks_nothing || !is_to_be_spread {
                return None;
            }
        }
        let moves = self.next_moves(ownership, wanted, pool, is_concerned);
        (!moves.is_empty()).then_some(Change::Build(moves))
    }

    /// Which copies are moved next: those that have to, those that lie too close together, or those that lie unevenly.
    /// Nothing if nothing has changed since there was nothing to move.
    fn next_moves(
        &self,
        ownership: &Ownership<P, S>,
        wanted: &Wanted,
        pool: &mut Option<Pool>,
        replaces: bool,
    ) -> Vec<Move> {
        let (seen, now) = (ownership.seen(), self.parts.platform.now());
        // What has changed since the round began is for the next one: this plan does not know it.
        let pool_changes = pool.as_ref().map_or_else(|| self.parts.view.changes(), |pool| pool.changes);
        let mut moving = ownership.moving.borrow_mut();
        let evens_out = !replaces && moving.is_to_be_evened_out(wanted);
        let basis = Basis {
            pool: pool_changes,
            volume: seen.record.configuration,
            leaving: wanted.leaving.clone(),
            evens_out,
        };
        if moving.is_at_rest(&basis, now) {
            return Vec::new();
        }
        let pool = pool.get_or_insert_with(|| self.pool());
        let volume = placed(&seen);
        let (plan, is_others_turn) = match replaces {
            true => (plan_replacing(pool, &volume, &wanted.leaving, moving.plans), false),
            false => plan_spreading(pool, &volume, evens_out, moving.plans),
        };
        let spreads_for = carried_out(&pool.view, wanted, replaces || is_others_turn);
        begin_moves(&mut pool.view, &volume, &plan.moves);
        moving.note(&plan, basis, now, spreads_for);
        if is_others_turn {
            moving.shorten_rest(now + INTERVAL);
        }
        if !plan.moves.is_empty() && replaces && wanted.misses_drives {
            witness::reached(Rare::CopiesMissed);
        }
        plan.moves
    }

    /// Has a change of a volume's copies made, and says so until it is.
    fn begin_change(&self, ownership: &Rc<Ownership<P, S>>, change: Change) {
        let (ownership, platform) = (Rc::clone(ownership), self.parts.platform.clone());
        ownership.moving.borrow_mut().is_changing = true;
        self.parts.platform.spawn(async move {
            let is_made = match change {
                Change::Abandon(drives) => {
                    let mut all = true;
                    for drive in drives {
                        all &= ownership.owner.abandon(drive).await;
                    }
                    all
                }
                Change::Build(moves) => ownership.owner.build(moves).await,
            };
            ownership.moving.borrow_mut().note_change(is_made, platform.now());
        });
    }

    /// The pool as this node sees it, and this node's part of what is to be spread in it.
    fn pool(&self) -> Pool {
        let (view, slow) = self.without_slow_drives();
        let changes = self.parts.view.changes();
        let owners = self.parts.view.alive.borrow().len() as u64;
        let to_spread = part_of_one(copies_to_even_out(&view), owners, self.parts.platform.random_u64());
        Pool { view, slow, changes, to_spread, is_others_turn: false }
    }

    /// The pool as this node sees it, without the drives that are slow.
    pub(crate) fn pool_view(&self) -> PoolView {
        self.without_slow_drives().0
    }

    /// The same, and the drives that it leaves out: they are slow, as far as this node knows, or rest for having been.
    fn without_slow_drives(&self) -> (PoolView, BTreeSet<DriveId>) {
        let mut view = self.parts.view.pool(self.parts.cluster.slab_bytes);
        let slow = self.parts.slow_drives.present(self.parts.platform.now()).into_keys().collect();
        let left_out = place_nothing_on(&mut view, &slow);
        (view, left_out)
    }
}

/// Leaves some drives out of all plans, and returns those that would not have been otherwise. What is on them stays there.
fn place_nothing_on(view: &mut PoolView, drives: &BTreeSet<DriveId>) -> BTreeSet<DriveId> {
    let is_left_out = |room: &&mut DriveRoom| room.is_online && drives.contains(&room.drive);
    let leave_out = |room: &mut DriveRoom| {
        room.is_online = false;
        room.drive
    };
    view.drives.iter_mut().filter(is_left_out).map(leave_out).collect()
}

/// The request to spread copies that a plan carries out if it finds nothing to move and was not made `for_others`: for a
/// repair, or for owners whose turn it is. What is on its way may not arrive, or be too much together: whoever finds nothing
/// to spread meanwhile may find something then.
fn carried_out(view: &PoolView, wanted: &Wanted, for_others: bool) -> Option<u64> {
    wanted.optimize.filter(|_| !for_others && is_settled(view))
}

/// What is built anew of a volume that lacks something: on slow drives only what has no other place.
fn plan_replacing(pool: &Pool, volume: &PlacedVolume, leaving: &BTreeSet<DriveId>, turn: u64) -> MovesPlan {
    let plan = plan_replacements(&pool.view, volume, leaving, MOVES_AT_ONCE, turn);
    if plan.without_place == 0 || !plan.moves.is_empty() || pool.slow.is_empty() {
        return plan;
    }
    let mut view = pool.view.clone();
    view.drives.iter_mut().for_each(|room| room.is_online |= pool.slow.contains(&room.drive));
    plan_replacements(&view, volume, leaving, MOVES_AT_ONCE, turn)
}

/// What is spread of a volume that lacks nothing: what lies closer together than it could and, if the pool is to be evened
/// out, what lies unevenly. Also whether something could be spread, and it is the turn of others to begin.
fn plan_spreading(pool: &mut Pool, volume: &PlacedVolume, evens_out: bool, turn: u64) -> (MovesPlan, bool) {
    let apart = plan_apart(&pool.view, volume, MOVES_AT_ONCE, turn);
    if !apart.moves.is_empty() {
        witness::reached(Rare::CopiesMovedApart);
    }
    if !apart.moves.is_empty() || !evens_out {
        return (apart, false);
    }
    let spread_max = usize::try_from(pool.to_spread).unwrap_or(MOVES_AT_ONCE).min(MOVES_AT_ONCE);
    let others_begin = spread_max == 0 && copies_to_even_out(&pool.view) > 0;
    if others_begin && pool.is_others_turn {
        return (apart, true);
    }
    let balance = plan_balance(&pool.view, volume, if others_begin { 1 } else { spread_max }, turn);
    let is_cut_short = apart.is_cut_short || balance.is_cut_short;
    if others_begin {
        pool.is_others_turn = !balance.moves.is_empty();
        return (MovesPlan { is_cut_short, ..apart }, pool.is_others_turn);
    }
    pool.to_spread = pool.to_spread.saturating_sub(balance.moves.len() as u64);
    if !balance.moves.is_empty() {
        witness::reached(Rare::CopiesSpread);
    }
    (MovesPlan { is_cut_short, ..balance }, false)
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
