//! Writes and reads, and the mark.
//!
//! A message may be on its way for any time, or for ever: its arrival is a step that may come late or
//! never. So a partition needs no state of its own.

use crate::OwnershipModel;
use crate::rules::Rule;
use crate::sets::{Block, NODES, NodeId, Set};
use crate::state::{Broken, Change, LegState, Milestone, Owner, Phase, State, Write};

impl OwnershipModel {
    /// A write gets its version and goes to every copy that takes part.
    pub(crate) fn begin_write(&self, state: &State, at: NodeId, block: Block) -> Option<State> {
        let owner = self.serving(state, at)?;
        if owner.writes[block].is_some() {
            return None;
        }
        let copies = self.configuration.slab_of(block).copies;
        let is_written = |node: NodeId| match owner.legs[node] {
            LegState::Stale => false,
            LegState::Joining { .. } => self.rules.hold(Rule::WritesGoToJoiningCopies),
            LegState::InSync | LegState::Promoting => true,
        };
        let sent = copies.and(Set::filter(NODES, is_written));
        let mut next = *state;
        next.left.writes = state.left.writes.checked_sub(1)?;
        let owner = next.owner_mut(at);
        let version = crate::state::Version::new(owner.epoch, owner.next_counter);
        owner.next_counter += 1;
        owner.writes[block] =
            Some(Write { version, sent, awaited: sent.and(owner.needed()), in_flight: sent });
        Some(next)
    }

    /// A write arrives; the copy does it if it comes under the epoch that it has accepted.
    pub(crate) fn deliver_write(
        &self,
        state: &State,
        at: NodeId,
        block: Block,
        node: NodeId,
    ) -> Option<State> {
        let owner = state.owner(at)?;
        let write = owner.writes[block].filter(|write| write.in_flight.contains(node))?;
        if !self.accepts(state, owner, node) {
            return None;
        }
        let mut next = *state;
        next.nodes[node].write(block, write.version);
        next.owner_mut(at).writes[block] = Some(Write { in_flight: write.in_flight.without(node), ..write });
        Some(next)
    }

    /// A write is answered when no needed copy is awaited any more, and all promises are live.
    pub(crate) fn complete_write(&self, state: &State, at: NodeId, block: Block) -> Option<State> {
        let owner = state.owner(at)?;
        let write = owner.writes[block]?;
        let lacking = write.awaited.and(write.in_flight).and(owner.needed());
        let is_complete = if self.rules.hold(Rule::MarkBeforeAnswer) {
            lacking.is_empty()
        } else {
            // Who does not answer is simply left out.
            !write.awaited.minus(write.in_flight).is_empty()
        };
        let is_promised = is_promised(owner) || !self.rules.hold(Rule::CheckPromisesBeforeWriteAnswer);
        if !is_complete || !is_promised {
            return None;
        }
        let mut next = *state;
        let owner = next.owner_mut(at);
        owner.writes[block] = None;
        self.note_missed(owner, write);
        answer(&mut next, at);
        let seen = &mut next.history.seen[block];
        *seen = (*seen).max(write.version);
        Some(next)
    }

    /// What has not arrived at a copy by now never will: a message that comes late to a leg that is not in
    /// sync makes no difference, as it comes before everything that is sent to it later. A leg that was to
    /// become complete falls back.
    fn note_missed(&self, owner: &mut Owner, write: Write) {
        if !self.rules.hold(Rule::JoiningCopyFallsBack) {
            return;
        }
        for node in write.in_flight.iter() {
            match &mut owner.legs[node] {
                leg @ LegState::Joining { .. } => *leg = LegState::Stale,
                leg @ LegState::Promoting
                    if !write.awaited.contains(node) && owner.unknown != Some(Change::Promote(node)) =>
                {
                    *leg = LegState::Stale;
                }
                _ => {}
            }
        }
    }

    /// A read, from its beginning to its answer. One that begins earlier or whose answer takes longer may
    /// be given the same content or older, so this is the hardest case. That its owner may be overtaken
    /// between the copy's answer and its own makes no difference either: if it could answer then, it
    /// could read then.
    pub(crate) fn read(&self, state: &State, at: NodeId, block: Block, node: NodeId) -> Option<State> {
        let owner = state.owner(at)?;
        if owner.phase != Phase::Serving
            || owner.legs[node] != LegState::InSync
            || !self.accepts(state, owner, node)
            || owner.writes[block].is_some() && self.rules.hold(Rule::ReadsWaitForWrites)
            || !is_promised(owner) && self.rules.hold(Rule::CheckPromisesBeforeReadAnswer)
        {
            return None;
        }
        let version = state.nodes[node].blocks[block].version;
        let mut next = *state;
        if owner.epoch > 1 {
            next.just = Some(Milestone::ReadAfterTakeOver);
        }
        answer(&mut next, at);
        let seen = &mut next.history.seen[block];
        if version < *seen {
            next.history.broken = Some(Broken::OldContent);
        }
        *seen = (*seen).max(version);
        Some(next)
    }

    /// The copies learn the mark, with a write or when the volume is idle. That all do so at once is no
    /// loss: a mark that only some know counts at a take-over if one of those is asked, as if all knew it,
    /// and otherwise as if nobody did.
    pub(crate) fn note_mark(&self, state: &State, at: NodeId) -> Option<State> {
        let owner = self.serving(state, at)?;
        let mark = self.mark(state, owner);
        let mut next = *state;
        for node in (0..NODES).filter(|node| owner.legs[*node] != LegState::Stale) {
            if self.accepts(state, owner, node) {
                next.nodes[node].note_mark(mark);
            }
        }
        (next.nodes != state.nodes).then_some(next)
    }
}

/// Whether every needed node's promise is live.
pub(crate) fn is_promised(owner: &Owner) -> bool {
    owner.promises.covers(owner.needed())
}

/// An owner answers a request.
fn answer(state: &mut State, at: NodeId) {
    let epoch = state.owner_mut(at).epoch;
    if epoch < state.history.answered_under {
        state.history.broken = Some(Broken::TwoOwners);
    }
    state.history.answered_under = state.history.answered_under.max(epoch);
}
