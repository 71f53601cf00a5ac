//! Changes of membership: marking copies, promoting them, and answers that are lost.
//!
//! A change is one transaction that compares the volume's epoch and configuration version. An
//! ownership sees the membership as its legs show it; if the cluster's state shows another one, the
//! comparison fails.

use crate::OwnershipModel;
use crate::rules::Rule;
use crate::sets::{NODES, NodeId};
use crate::state::{Broken, Change, LegState, Milestone, Owner, Phase, State, Version};

impl OwnershipModel {
    /// Marks the copies of a node stale. Who may do so is not asked: a majority keeps a node that is
    /// cut off from being first, and the transaction decides.
    pub(crate) fn mark_stale(&self, state: &State, at: NodeId, node: NodeId, is_lost: bool) -> Option<State> {
        let owner = state.owner(at)?;
        if !owner.legs[node].is_needed() || !self.may_change(state, owner, is_lost) {
            return None;
        }
        let others = owner.in_sync().without(node);
        let mut slabs = self.configuration.slabs_on(node).iter();
        if self.rules.hold(Rule::NeverMarkTheLastCopy)
            && !slabs.all(|slab| !self.configuration.slabs[slab].copies.and(others).is_empty())
        {
            return None;
        }
        let since = match owner.phase {
            Phase::Serving if !self.rules.hold(Rule::StaleSinceIsTheMark) => owner.newest(),
            _ => self.mark(state, owner),
        };
        let mut next = *state;
        next.left.marks = state.left.marks.checked_sub(1)?;
        let change = Change::MarkStale(node, since);
        if is_lost {
            self.lose_answer(&mut next, at, change);
            if !self.rules.hold(Rule::UnknownMarkIsNotMade) {
                next.owner_mut(at).legs[node] = LegState::Stale;
            }
        } else {
            self.make(&mut next, change);
            next.owner_mut(at).unknown = None;
            next.owner_mut(at).legs[node] = LegState::Stale;
        }
        Some(next)
    }

    /// Takes the stale mark from the copies of a node.
    pub(crate) fn promote(&self, state: &State, at: NodeId, node: NodeId, is_lost: bool) -> Option<State> {
        let owner = state.owner(at)?;
        let is_ready = if self.rules.hold(Rule::PromotionCountsAsInSync) {
            owner.legs[node] == LegState::Promoting
        } else {
            is_complete(owner, node)
        };
        let mut under_way = self.writes_on(owner, node);
        let is_drained = under_way.all(|write| write.awaited.contains(node));
        if !is_ready
            || owner.unknown.is_some()
            || !self.may_change(state, owner, is_lost)
            || self.rules.hold(Rule::DrainBeforePromotion) && !is_drained
        {
            return None;
        }
        let mut next = *state;
        if is_lost {
            self.lose_answer(&mut next, at, Change::Promote(node));
        } else {
            self.make(&mut next, Change::Promote(node));
            next.owner_mut(at).legs[node] = LegState::InSync;
        }
        Some(next)
    }

    /// A change is made after all, if nothing has been since it was sent.
    pub(crate) fn make_late(&self, state: &State) -> Option<State> {
        let change = state.on_its_way?;
        let mut next = *state;
        next.on_its_way = None;
        self.make(&mut next, change);
        next.just = Some(Milestone::MadeLate);
        Some(next)
    }

    /// A transaction that compares what the lost one compared: if it is made, the other one never
    /// will be; if not, membership is read.
    pub(crate) fn settle(&self, state: &State, at: NodeId) -> Option<State> {
        let owner = state.owner(at)?;
        let change = owner.unknown?;
        if owner.epoch != state.cluster.epoch {
            return None;
        }
        let mut next = *state;
        if shows(state, change) {
            let (Change::MarkStale(node, _) | Change::Promote(node)) = change;
            let is_mark = matches!(change, Change::MarkStale(..));
            next.owner_mut(at).legs[node] = if is_mark { LegState::Stale } else { LegState::InSync };
            next.just = Some(Milestone::SettledMade);
        } else {
            if self.rules.hold(Rule::SettleByTransaction) {
                next.on_its_way = None;
            }
            next.just = Some(Milestone::SettledNever);
        }
        next.owner_mut(at).unknown = None;
        Some(next)
    }

    /// Whether an owner's transaction would find what it compares.
    fn may_change(&self, state: &State, owner: &Owner, is_lost: bool) -> bool {
        let shown = |node: NodeId| state.cluster.stale[node].is_none();
        let as_seen = (0..NODES).all(|node| shown(node) == (owner.legs[node] == LegState::InSync));
        let may_lose = state.left.lost_answers > 0 && state.on_its_way.is_none() && owner.unknown.is_none();
        owner.epoch == state.cluster.epoch && as_seen && (!is_lost || may_lose)
    }

    fn lose_answer(&self, next: &mut State, at: NodeId, change: Change) {
        next.left.lost_answers -= 1;
        next.on_its_way = Some(change);
        next.owner_mut(at).unknown = Some(change);
    }

    fn make(&self, next: &mut State, change: Change) {
        if self.rules.hold(Rule::ChangesCompareConfiguration) {
            next.on_its_way = None;
        }
        match change {
            Change::MarkStale(node, since) => {
                let former = next.cluster.stale[node].unwrap_or(since);
                next.cluster.stale[node] = Some(since.min(former));
                next.just = Some(Milestone::Marked);
            }
            Change::Promote(node) => {
                next.cluster.stale[node] = None;
                next.just = Some(Milestone::Promoted);
                if !self.holds_what_was_seen(next, node) {
                    next.history.broken = Some(Broken::IncompletePromotion);
                }
            }
        }
    }

    /// Whether the copies of a node hold every write that a client has seen.
    pub(crate) fn holds_what_was_seen(&self, state: &State, node: NodeId) -> bool {
        let lacks = |block| {
            let seen: Version = state.history.seen[block];
            self.configuration.slab_of(block).copies.contains(node)
                && state.nodes[node].blocks[block].version < seen
        };
        !(0..self.configuration.blocks).any(lacks)
    }
}

/// Whether the cluster's state shows what a change asks for.
fn shows(state: &State, change: Change) -> bool {
    match change {
        Change::MarkStale(node, since) => state.cluster.stale[node].is_some_and(|mark| mark <= since),
        Change::Promote(node) => state.cluster.stale[node].is_none(),
    }
}

/// Whether a joining leg has got all it lacked.
pub(crate) fn is_complete(owner: &Owner, node: NodeId) -> bool {
    let LegState::Joining { to_copy: Some(to_copy) } = owner.legs[node] else {
        return false;
    };
    to_copy.is_empty()
}
