//! Crashes, taking the volume and handing it over, fences and promises, roll-forward.
//!
//! Promises have no clock here. A promise is given when a fence is answered, and runs out at the
//! last moment: in the step in which its giver answers another fence. That is every order of events
//! that counts: a promise gives its holder possibilities and takes none away, so that one that ran out earlier,
//! or was given later, would leave fewer; and what the giver waits for is exactly that nobody counts on
//! a promise of its any more. Without a rule that makes it wait, the holder counts on.

use crate::OwnershipModel;
use crate::rules::Rule;
use crate::sets::{Block, NODES, NodeId, Set};
use crate::state::{Epoch, LegState, Milestone, Node, Owner, Phase, State, Version};

impl OwnershipModel {
    /// A process ends, and another one starts on the same drive.
    pub(crate) fn crash(&self, state: &State, node: NodeId) -> Option<State> {
        let mut next = *state;
        next.left.crashes = state.left.crashes.checked_sub(1)?;
        // Otherwise it has nothing to forget.
        let is_trusted = |other: NodeId| {
            other != node && state.owner(other).is_some_and(|owner| owner.promises.contains(node))
        };
        let is_fresh = state.nodes[node].is_fresh || (0..NODES).any(is_trusted);
        let crashed = &mut next.nodes[node];
        (crashed.owner, crashed.is_fresh, crashed.read_early) = (None, is_fresh, None);
        // The next process is another one: what is said of this one says nothing of it.
        crashed.given_up = None;
        if !self.rules.hold(Rule::FenceIsDurable) {
            crashed.epoch = 1;
        }
        (next.nodes != state.nodes).then_some(next)
    }

    /// Without the rule that membership is read after the volume is taken.
    pub(crate) fn read_early(&self, state: &State, node: NodeId) -> Option<State> {
        if self.rules.hold(Rule::ReadMembershipAgainAfterTaking) || !self.may_take(state, node) {
            return None;
        }
        let mut next = *state;
        next.nodes[node].read_early = Some(state.cluster);
        Some(next)
    }

    fn may_take(&self, state: &State, node: NodeId) -> bool {
        let owns = state.owner(node).is_some_and(|owner| owner.epoch == state.cluster.epoch);
        state.cluster.epoch < self.configuration.epochs && !owns
    }

    /// One transaction that compares what was read and raises the epoch. Any node may try at any time:
    /// whether the owner is silent is a matter of patience, not of safety.
    pub(crate) fn take(&self, state: &State, node: NodeId) -> Option<State> {
        if !self.may_take(state, node) {
            return None;
        }
        let mut next = *state;
        next.cluster.epoch += 1;
        // Whatever compares the former epoch can never be made any more.
        next.on_its_way = None;
        let mut seen = next.cluster;
        if !self.rules.hold(Rule::ReadMembershipAgainAfterTaking) {
            let read = state.nodes[node].read_early.filter(|read| read.epoch == state.cluster.epoch)?;
            seen.stale = read.stale;
        }
        next.nodes[node].read_early = None;
        next.nodes[node].owner = Some(Owner::new(seen));
        Some(next)
    }

    /// An owner hands the volume over: it stops, and the others hear that what they promised it counts no more. That
    /// all of them do is the hardest case: who does not hear it waits as for an owner that is silent.
    pub(crate) fn give_up(&self, state: &State, at: NodeId) -> Option<State> {
        let owner = state.owner(at)?;
        let mut next = *state;
        next.nodes[at].given_up = Some(owner.epoch);
        if self.rules.hold(Rule::StopBeforeHandingOver) {
            next.nodes[at].owner = None;
        }
        next.just = Some(Milestone::GivenUp);
        (next.nodes != state.nodes).then_some(next)
    }

    /// Whether what a process has given up stands for a promise to its ownership now.
    fn is_handed_over(&self, holder: &Node, epoch: Epoch) -> bool {
        let is_meant = |given_up| epoch <= given_up || !self.rules.hold(Rule::HandOverIsOfItsEpoch);
        holder.given_up.is_some_and(is_meant)
    }

    /// The first half of a fence: the epoch is recorded. A lower one is refused.
    pub(crate) fn fence(&self, state: &State, at: NodeId, node: NodeId) -> Option<State> {
        let owner = self.undisputed(state, at)?;
        if owner.epoch <= state.nodes[node].epoch || owner.promises.contains(node) {
            return None;
        }
        let mut next = *state;
        next.nodes[node].epoch = owner.epoch;
        Some(next)
    }

    /// The second half: promises to others have run out, and the owner gets the lists and the mark.
    pub(crate) fn answer_fence(&self, state: &State, at: NodeId, node: NodeId) -> Option<State> {
        let owner = self.undisputed(state, at)?;
        if owner.epoch != state.nodes[node].epoch || owner.promises.contains(node) {
            return None;
        }
        let mut next = *state;
        for holder in (0..NODES).filter(|holder| *holder != at) {
            let Some(former) = state.owner(holder).filter(|former| former.promises.contains(node)) else {
                continue;
            };
            let waited_for = if holder == node {
                self.rules.hold(Rule::StopOwnBeforeAnsweringFence)
            } else if state.nodes[node].is_fresh {
                self.rules.hold(Rule::FreshProcessAnswersNoFence)
            } else {
                self.rules.hold(Rule::WaitForPromisesBeforeAnsweringFence)
                    && !self.is_handed_over(&state.nodes[holder], former.epoch)
            };
            if waited_for {
                let former = next.owner_mut(holder);
                former.promises = former.promises.without(node);
                next.just = Some(Milestone::PromiseEnded);
            }
        }
        if state.nodes[node].is_fresh {
            next.nodes[node].is_fresh = false;
            next.just = Some(Milestone::FreshProcessFenced);
        }
        let mark = state.nodes[node].mark;
        let owner = next.owner_mut(at);
        owner.promises = owner.promises.with(node);
        if owner.phase == Phase::TakingOver {
            owner.inherited = owner.inherited.max(mark);
        }
        Some(next)
    }

    /// Without the rule that excludes fenced volumes, a promise is renewed after another owner was
    /// accepted.
    pub(crate) fn heartbeat(&self, state: &State, at: NodeId, node: NodeId) -> Option<State> {
        let owner = state.owner(at)?;
        if self.rules.hold(Rule::ExcludeFencedVolumes)
            || owner.phase == Phase::TakingOver
            || owner.epoch >= state.nodes[node].epoch
            || owner.promises.contains(node)
        {
            return None;
        }
        let mut next = *state;
        let owner = next.owner_mut(at);
        owner.promises = owner.promises.with(node);
        Some(next)
    }

    /// One block goes to one copy that lacks what another one lists. It is a write under its former
    /// version, and like all of them it carries the owner's mark.
    pub(crate) fn roll_forward(
        &self,
        state: &State,
        at: NodeId,
        block: Block,
        node: NodeId,
    ) -> Option<State> {
        let owner = self.undisputed(state, at)?;
        if owner.phase != Phase::TakingOver
            || owner.legs[node] != LegState::InSync
            || !self.accepts(state, owner, node)
            || !self.is_fenced(owner)
        {
            return None;
        }
        let newest = self.in_question(state, owner, block)?;
        if state.nodes[node].blocks[block].version == newest {
            return None;
        }
        let mark = self.mark(state, owner);
        let mut next = *state;
        next.nodes[node].write(block, newest);
        next.nodes[node].note_mark(mark);
        next.just = Some(Milestone::RolledForward);
        Some(next)
    }

    /// Ends the take-over.
    pub(crate) fn serve(&self, state: &State, at: NodeId) -> Option<State> {
        let owner = self.undisputed(state, at)?;
        let is_rolled_forward = (0..self.configuration.blocks).all(|block| {
            let newest = self.in_question(state, owner, block);
            newest.is_none_or(|newest| {
                let mut copies = self.gathered(owner, block).iter();
                copies.all(|node| state.nodes[node].blocks[block].version == newest)
            })
        });
        if owner.phase != Phase::TakingOver
            || !self.is_fenced(owner)
            || self.rules.hold(Rule::RollForwardBeforeServing) && !is_rolled_forward
        {
            return None;
        }
        let mut next = *state;
        let inherits = (0..self.configuration.blocks).any(|block| {
            let newest = self.in_question(state, owner, block);
            newest.is_some_and(|newest| newest > state.history.seen[block])
        });
        next.just = inherits.then_some(Milestone::InheritedUnanswered);
        let owner = next.owner_mut(at);
        (owner.phase, owner.inherited) = (Phase::Serving, Version::ZERO);
        Some(next)
    }

    /// Whether enough copies have answered the fence.
    fn is_fenced(&self, owner: &Owner) -> bool {
        if self.rules.hold(Rule::FenceEveryCopyBeforeServing) {
            return owner.promises.covers(owner.in_sync());
        }
        let fenced = owner.in_sync().and(owner.promises);
        self.configuration.slabs.iter().all(|slab| !slab.copies.and(fenced).is_empty())
    }

    /// The in-sync copies of a block whose lists the owner has.
    fn gathered(&self, owner: &Owner, block: Block) -> Set {
        self.configuration.slab_of(block).copies.and(owner.in_sync()).and(owner.promises)
    }

    /// The newest write to a block that a list names beyond the mark.
    fn in_question(&self, state: &State, owner: &Owner, block: Block) -> Option<Version> {
        let copies = self.gathered(owner, block).iter().map(|node| state.nodes[node].blocks[block]);
        copies.filter(|copy| copy.is_listed && copy.version > owner.inherited).map(|copy| copy.version).max()
    }

    /// The mark that an owner's messages carry. It is named by the newest write that it covers and that
    /// any copy holds: what covers the same writes is the same mark.
    pub(crate) fn mark(&self, state: &State, owner: &Owner) -> Version {
        if owner.phase == Phase::TakingOver && self.rules.hold(Rule::MarkMustNotMoveUntilRolledForward) {
            return owner.inherited;
        }
        let held = state.nodes.iter().flat_map(|node| node.blocks).map(|copy| copy.version);
        held.filter(|version| *version <= owner.own_mark()).max().unwrap_or_default()
    }

    /// The owner, if the cluster's state names no newer one. One that was overtaken goes on as long as it
    /// does not know; but until a copy has accepted the newer epoch, all it can do there is what it
    /// could have done before, and then nothing. Only what it answers is another matter.
    pub(crate) fn undisputed<'a>(&self, state: &'a State, at: NodeId) -> Option<&'a Owner> {
        state.owner(at).filter(|owner| owner.epoch == state.cluster.epoch)
    }

    /// The same, if it serves.
    pub(crate) fn serving<'a>(&self, state: &'a State, at: NodeId) -> Option<&'a Owner> {
        self.undisputed(state, at).filter(|owner| owner.phase == Phase::Serving)
    }

    /// Whether a node's copies do what comes under an owner's epoch.
    pub(crate) fn accepts(&self, state: &State, owner: &Owner, node: NodeId) -> bool {
        let known = state.nodes[node].epoch;
        known == owner.epoch || known > owner.epoch && !self.rules.hold(Rule::RefuseLowerEpochs)
    }
}
