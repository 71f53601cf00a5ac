//! The guardian of an ownership: takes legs out that fail or fall silent, tells idle copies the mark, and has
//! brought back what legs lack.
//!
//! A leg is marked only when something needs it that it does not give: a write or read its answer, a
//! request its node's promise. The mark is a transaction of the cluster state; until it is made,
//! whatever needs the leg waits. When all legs are in doubt, the one that is most likely to come back
//! stays. The guardian itself waits for nothing: neither for a copy nor for the cluster's state.
//!
//! An ownership that can neither go on with a node nor without it ends by itself, and a new one asks all nodes
//! what they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::lock::OwnedMutexGuard;
use spandrel_platform::{Instant, Platform};
use spandrel_replica::ReplicaRequest;
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{DriveId, ShardId, Version};

use crate::context::OwnerContext;
use crate::membership::{Leg, LegId, LegState, Membership, MembershipChange, MembershipError};
use crate::owner::{OwnerInner, Phase};
use crate::slow_legs::SlowLeg;

/// How often the guardian looks, if nothing wakes it earlier.
const INTERVAL: Duration = Duration::from_millis(100);

/// A node whose promise is missing for so long is taken out.
pub const SILENCE_MAX: Duration = Duration::from_millis(1000);

/// The ownership ends when the promise of a reachable node that cannot be taken out is missing for so long: longer
/// than a node that has only been slow for a moment.
const LAST_COPY_SILENCE_MAX: Duration = Duration::from_millis(2000);

/// The ownership ends when the promise of a reachable node that was to be taken out is missing for so long: the
/// cluster's state has had time for more than one attempt.
const CHANGE_MAX: Duration = Duration::from_secs(5);

/// A read or write that is under way for so long has met a silent copy. It is noticed after once or
/// twice as long.
const OVERDUE: Duration = Duration::from_secs(3);

/// How long the guardian waits before it tries to take something out again.
const RETRY: Duration = Duration::from_millis(50);

/// Works until the owner is deposed.
pub(crate) async fn guard<C: OwnerContext>(owner: Rc<OwnerInner<C>>) {
    let platform = owner.context.platform().clone();
    let mut missing_since: BTreeMap<ShardId, Instant> = BTreeMap::new();
    let mut looked_at = platform.now();
    let mut ticked_at = looked_at;
    loop {
        let changed = owner.changed.notified();
        match owner.phase.get() {
            Phase::Deposed => return,
            Phase::TakingOver => {}
            Phase::Serving => {
                if platform.now().since(looked_at) >= OVERDUE {
                    looked_at = platform.now();
                    owner.looks.set(owner.looks.get() + 1);
                    owner.changed.notify_all();
                }
                if platform.now().since(ticked_at) >= INTERVAL {
                    ticked_at = platform.now();
                    owner.tick(ticked_at);
                    owner.tell_idle_mark();
                }
                let silent = owner.silent_shards(&mut missing_since);
                let mut doubtful = owner.doubtful_legs(&silent);
                let slow = if doubtful.is_empty() { owner.slow_leg_to_take_out() } else { None };
                let slow = slow.filter(|slow| {
                    let is_left_unmarked = canary::is_planted(Bug::LeaveSlowUnmarked);
                    if is_left_unmarked {
                        owner.set_leg_state(slow.leg, LegState::Stale);
                    }
                    !is_left_unmarked
                });
                doubtful.extend(slow.map(|slow| slow.leg));
                if doubtful.is_empty() {
                    owner.forget_refusal();
                } else if let Some(turn) = owner.membership_turn.try_lock_owned() {
                    let marks = owner.marks_for(owner.fall_back_if_building(doubtful));
                    if owner.must_begin_anew(&silent, |leg| match marks.contains_key(&leg.drive) {
                        true => CHANGE_MAX,
                        false => LAST_COPY_SILENCE_MAX,
                    }) {
                        return owner.depose();
                    }
                    owner.take_out(marks, slow, turn);
                    platform.sleep(RETRY).await;
                } else if owner.must_begin_anew(&silent, |_| CHANGE_MAX) {
                    // A change of membership is on its way and does not end.
                    return owner.depose();
                }
                crate::resync::start_where_needed(&owner);
                crate::lost::heal_where_needed(&owner);
            }
        }
        let interval = std::pin::pin!(platform.sleep(INTERVAL));
        futures_util::future::select(std::pin::pin!(changed), interval).await;
    }
}

impl<C: OwnerContext> OwnerInner<C> {
    /// Nothing waits for a change of membership: the next one that is refused is told again.
    fn forget_refusal(&self) {
        let waits = |leg: &Leg| leg.state == LegState::Promoting;
        if self.resync.borrow().is_empty() && !self.legs.borrow().values().any(waits) {
            self.refusal.forget();
        }
    }

    /// The needed nodes whose promise has been missing for too long, and for how long.
    fn silent_shards(&self, missing_since: &mut BTreeMap<ShardId, Instant>) -> BTreeMap<ShardId, Duration> {
        let now = self.context.platform().now();
        let needed = self.needed_shards();
        missing_since.retain(|shard, _| needed.contains(shard));
        let mut silent = BTreeMap::new();
        for shard in needed {
            if self.context.is_promised(shard, self.volume, self.epoch) {
                missing_since.remove(&shard);
                continue;
            }
            let since = *missing_since.entry(shard).or_insert(now);
            // A broken connection is certain at once; silence takes a while to be told from delay.
            if !self.context.is_reachable(shard) || now.since(since) >= SILENCE_MAX {
                silent.insert(shard, now.since(since));
            }
        }
        silent
    }

    /// Whether a node that is there gives no promise for so long that it will not by itself: a process
    /// that has just started promises nothing for its copies before an owner has asked what they hold. The same holds of
    /// a drive that came back without all that it had. If they cannot be marked, since a slab has no other copy in sync
    /// or the cluster's state does not answer, a new ownership has to ask. `patience` says how long a leg may take.
    fn must_begin_anew(
        &self,
        silent: &BTreeMap<ShardId, Duration>,
        patience: impl Fn(&LegId) -> Duration,
    ) -> bool {
        let (legs, suspects) = (self.legs.borrow(), self.suspects.borrow());
        let now = self.context.platform().now();
        let untold_for = |id: &LegId, leg: &Leg| {
            let has_told = self.is_accepted_by_present_process(*id, leg.shard);
            suspects.get(id).filter(|_| !has_told).map(|suspicion| now.since(suspicion.since))
        };
        legs.iter().filter(|(_, leg)| leg.state.is_needed() && self.context.is_reachable(leg.shard)).any(
            |(id, leg)| {
                let waited_for = silent.get(&leg.shard).copied().max(untold_for(id, leg));
                waited_for.is_some_and(|waited_for| waited_for >= patience(id))
            },
        )
    }

    /// The needed legs that have failed, or whose node is silent.
    fn doubtful_legs(&self, silent: &BTreeMap<ShardId, Duration>) -> BTreeSet<LegId> {
        let legs = self.legs.borrow();
        let mut suspects = self.suspects.borrow_mut();
        suspects.retain(|id, _| legs.get(id).is_some_and(|leg| leg.state.is_needed()));
        let doubtful = legs.iter().filter(|(id, leg)| {
            leg.state.is_needed() && (suspects.contains_key(id) || silent.contains_key(&leg.shard))
        });
        doubtful.map(|(id, _)| *id).collect()
    }

    /// Has those of the legs that are being built begin anew, and returns the drives of the others. Whoever calls has the
    /// turn: no promotion is on its way, so the cluster's state calls them built in no case.
    fn fall_back_if_building(&self, legs: BTreeSet<LegId>) -> BTreeSet<DriveId> {
        let (building, standing): (Vec<_>, Vec<_>) = legs.into_iter().partition(|leg| leg.is_building);
        for leg in building {
            self.suspects.borrow_mut().remove(&leg);
            self.set_leg_state(leg, LegState::Stale);
        }
        standing.into_iter().map(|leg| leg.drive).collect()
    }

    /// Which of the drives can be marked stale, and since when: not those that hold the last in-sync copy of a slab.
    fn marks_for(&self, mut drives: BTreeSet<DriveId>) -> BTreeMap<DriveId, Version> {
        let membership = self.membership.borrow();
        let mut by_hope: Vec<DriveId> = drives.iter().copied().collect();
        by_hope.sort_by_key(|drive| self.hope_for(*drive));
        while !membership.may_mark(&drives) {
            // One leg fewer may do: the one that is most likely to answer again. The last one alone may
            // be the last copy of a slab: then the volume waits for it.
            let Some(kept) = by_hope.pop() else { break };
            drives.remove(&kept);
        }
        let since = self.versions.borrow().mark().complete_up_to();
        drives.into_iter().map(|drive| (drive, since)).collect()
    }

    /// Marks legs stale, without waiting for it. `slow` is the one of them that only answers slowly.
    fn take_out(
        self: &Rc<Self>,
        marks: BTreeMap<DriveId, Version>,
        slow: Option<SlowLeg>,
        turn: OwnedMutexGuard<()>,
    ) {
        if !marks.is_empty() {
            // A suspicion may be gone when the mark is made.
            let suspected = |drive: &DriveId| {
                let suspects = self.suspects.borrow();
                suspects.get(&LegId::standing(*drive)).map(|suspicion| suspicion.reason.clone())
            };
            let reason = |drive: &DriveId| suspected(drive).or_else(|| slow.map(|slow| slow.reason()));
            let reasons = marks.keys().filter_map(|drive| Some((*drive, reason(drive)?))).collect();
            let owner = Rc::clone(self);
            self.context.platform().spawn(async move {
                let change = MembershipChange::MarkStale(marks);
                if owner.change_in_turn(&turn, change, &reasons).await
                    && let Some(slow) = slow
                {
                    // Nothing was awaited since the leg is out: no resync has begun.
                    owner.note_taken_out(&slow);
                }
            });
        }
    }

    /// How likely a leg is to answer again soon. If all are in doubt, the best one must stay: the volume
    /// waits for it.
    fn hope_for(&self, drive: DriveId) -> u8 {
        let leg = LegId::standing(drive);
        let shard = self.legs.borrow().get(&leg).map(|leg| leg.shard);
        let drive_failed = self.suspects.borrow().get(&leg).is_some_and(|suspect| suspect.drive_failed);
        match shard {
            _ if drive_failed => 0,
            Some(shard) if shard == self.context.shard() => 3,
            Some(shard) if self.context.is_reachable(shard) => 2,
            _ => 1,
        }
    }

    /// Marks legs stale since given versions; the caller knows that slabs keep in-sync copies.
    pub(crate) async fn mark_since(&self, marks: BTreeMap<DriveId, Version>) -> bool {
        self.change(MembershipChange::MarkStale(marks)).await
    }

    /// Asks for a change of membership and takes over what the state says afterwards. One at a time: a mark of
    /// which the owner has just been told might be taken off by a promotion that is still on its way, and the
    /// owner would answer writes without a leg that the state calls in sync.
    pub(crate) async fn change(&self, change: MembershipChange) -> bool {
        let turn = Arc::clone(&self.membership_turn).lock_owned().await;
        if self.is_deposed() {
            return false;
        }
        // While this waited for its turn, others may have taken the places of the last copies there.
        if let MembershipChange::MarkStale(marks) = &change
            && marks.keys().any(|drive| !self.legs.borrow().contains_key(&LegId::standing(*drive)))
        {
            return false;
        }
        if let MembershipChange::Promote(leg) = change
            && !self.may_promote(leg)
        {
            return false;
        }
        self.change_in_turn(&turn, change, &BTreeMap::new()).await
    }

    /// `reasons` says why legs are marked stale, as far as that is known.
    async fn change_in_turn(
        &self,
        _turn: &OwnedMutexGuard<()>,
        change: MembershipChange,
        reasons: &BTreeMap<DriveId, String>,
    ) -> bool {
        if let MembershipChange::MarkStale(marks) = &change
            && canary::is_planted(Bug::AnswerBeforeMark)
        {
            marks.keys().for_each(|drive| self.set_leg_state(LegId::standing(*drive), LegState::Stale));
        }
        match self.context.change_membership(change.clone()).await {
            Ok(membership) => {
                self.refusal.forget();
                self.adopt(membership, &change, reasons);
                true
            }
            Err(MembershipError::NotOwner) => {
                if matches!(change, MembershipChange::MarkStale(_)) {
                    witness::reached(Rare::MarkLostToTakeOver);
                }
                self.depose();
                false
            }
            Err(MembershipError::Refused(reason) | MembershipError::Unavailable(reason)) => {
                if self.refusal.is_to_be_told(&reason) {
                    tracing::warn!(volume = %self.volume, "membership not changed yet: {reason}");
                }
                // The next one may have its turn.
                self.changed.notify_all();
                false
            }
        }
    }

    fn adopt(&self, membership: Membership, change: &MembershipChange, reasons: &BTreeMap<DriveId, String>) {
        if let MembershipChange::Promote(leg) = change
            && self.leg_state(*leg) != LegState::Promoting
        {
            // Writes may have been answered without it. Nothing takes a leg out while its promotion is on its
            // way; if something did, a new ownership has to compare the copies.
            tracing::error!(volume = %self.volume, %leg, "promoted, though the leg had fallen out: begins anew");
            return self.depose();
        }
        self.tell_change(change, reasons);
        self.adopt_legs(&membership, change);
        let former = std::mem::replace(&mut *self.membership.borrow_mut(), membership);
        let may_remove = match change {
            MembershipChange::Promote(leg) => leg.is_building,
            MembershipChange::Abandon(_) => true,
            _ => false,
        };
        // All slabs are looked at for what is gone.
        if may_remove {
            self.remove_replaced(&former);
        }
        self.changed.notify_all();
    }

    fn tell_change(&self, change: &MembershipChange, reasons: &BTreeMap<DriveId, String>) {
        let mut suspects = self.suspects.borrow_mut();
        let mut statistics = self.statistics.borrow_mut();
        match change {
            MembershipChange::MarkStale(marks) => {
                for (drive, since) in marks {
                    suspects.remove(&LegId::standing(*drive));
                    let reason = reasons.get(drive).map_or("its node is silent", String::as_str);
                    tracing::warn!(volume = %self.volume, %drive, since = %since, "copies marked stale: {reason}");
                }
                statistics.legs_marked += marks.len() as u64;
            }
            MembershipChange::Promote(leg) => {
                if leg.is_building {
                    witness::reached(Rare::CopiesBuilt);
                }
                let what = if leg.is_building { "copies built" } else { "copies in sync again" };
                tracing::info!(volume = %self.volume, drive = %leg.drive, "{what}");
                statistics.legs_promoted += 1;
            }
            MembershipChange::Build(moves) => {
                tracing::info!(volume = %self.volume, copies = moves.len(), "copies are being built");
            }
            MembershipChange::Abandon(drive) => {
                witness::reached(Rare::CopiesAbandoned);
                tracing::info!(volume = %self.volume, %drive, "copies that were being built are given up");
            }
            MembershipChange::Settle(_) => {}
        }
    }

    /// Takes over which legs there are now, and how far each takes part.
    fn adopt_legs(&self, membership: &Membership, change: &MembershipChange) {
        let present = membership.legs();
        let mut legs = self.legs.borrow().to_map();
        let mut set = |leg: LegId, state: LegState| {
            let shard = *present.get(&leg)?;
            legs.insert(leg, Leg { shard, state }).map(|former| former.state)
        };
        match change {
            MembershipChange::MarkStale(marks) => {
                for (drive, since) in marks {
                    let leg = LegId::standing(*drive);
                    let former = set(leg, LegState::Stale);
                    self.note_marked(leg, former, *since);
                }
            }
            MembershipChange::Promote(leg) => {
                let standing = LegId::standing(leg.drive);
                let beside = set(standing, LegState::InSync);
                let mut accepted_by = self.accepted_by.borrow_mut();
                // What stood there already has told for itself, or has not.
                if let (None, Some(process)) = (beside, accepted_by.get(leg).copied()) {
                    accepted_by.insert(standing, process);
                }
            }
            MembershipChange::Settle(stale) => {
                for leg in present.keys().filter(|leg| !leg.is_building) {
                    let is_stale = stale.contains(&leg.drive);
                    let _ = set(*leg, if is_stale { LegState::Stale } else { LegState::InSync });
                }
            }
            MembershipChange::Build(_) | MembershipChange::Abandon(_) => {}
        }
        legs.retain(|leg, _| present.contains_key(leg));
        self.accepted_by.borrow_mut().retain(|leg, _| present.contains_key(leg));
        for (leg, shard) in present {
            legs.entry(leg).or_insert(Leg { shard, state: LegState::Stale });
        }
        self.missed.retain(|leg| legs.get(&leg).is_some_and(|leg| leg.state != LegState::InSync));
        self.legs.borrow_mut().replace(legs);
    }

    /// From now on it is known what a leg may miss that was in sync and is marked as of this ownership's own versions. What it lacks
    /// from before that nobody has seen: so it is as long as a take-over has not compared the copies, where one was found to
    /// lack what it had confirmed, and where a drive proves less than it had.
    fn note_marked(&self, leg: LegId, former: Option<LegState>, since: Version) {
        let is_serving = self.phase.get() == Phase::Serving;
        if former == Some(LegState::InSync) && is_serving && since.epoch == self.epoch {
            let versions = self.versions.borrow();
            let is_forgetful = canary::is_planted(Bug::ForgetUnderWay);
            self.missed.begin(leg, versions.under_way().filter(|_| !is_forgetful));
        } else {
            self.missed.distrust(leg);
        }
    }

    /// Tells all copies the mark once the volume has been at rest. Nobody waits for the answers: one that
    /// is silent must not keep the guardian from marking it.
    fn tell_idle_mark(&self) {
        let is_complete = || {
            let versions = self.versions.borrow();
            versions.mark().version == versions.newest()
        };
        if !self.idle_mark.look(is_complete) {
            return;
        }
        let mark = self.versions.borrow().mark();
        let (volume, authority) = (self.volume, self.authority());
        for shard in self.needed_shards() {
            let is_known = |(id, leg): (&LegId, &Leg)| {
                leg.shard != shard
                    || !leg.state.is_needed()
                    || self.is_accepted_by_present_process(*id, shard)
            };
            if !self.legs.borrow().iter().all(is_known) {
                continue;
            }
            let request = ReplicaRequest::NoteMark { volume, authority, mark: mark.clone() };
            let context = self.context.clone();
            self.context.platform().spawn(async move {
                // A copy that misses a mark only lists more writes at the next take-over.
                let _ = context.ask(shard, request, None).await;
            });
        }
    }
}
