//! Bringing a stale leg back.

use crate::OwnershipModel;
use crate::changes::is_complete;
use crate::requests::is_promised;
use crate::rules::Rule;
use crate::sets::{Block, NodeId, Set, Slab};
use crate::state::{BlockCopy, Change, LegState, Milestone, Owner, State, Write};

impl OwnershipModel {
    /// From now on the leg gets every new write. Its node has accepted the epoch.
    pub(crate) fn join(&self, state: &State, at: NodeId, node: NodeId) -> Option<State> {
        let owner = self.serving(state, at)?;
        if owner.legs[node] != LegState::Stale || !owner.promises.contains(node) {
            return None;
        }
        let mut next = *state;
        next.owner_mut(at).legs[node] = LegState::Joining { to_copy: None };
        Some(next)
    }

    /// Finds the pages that either side has changed since the leg was complete, and those in which
    /// the two do not hold the same version. While writes are under way, the in-sync copies may differ: each
    /// may be the one that is asked. The program waits for more: for every write that began before the leg
    /// joined, though it may have been sent to the leg.
    pub(crate) fn compare_pages(
        &self,
        state: &State,
        at: NodeId,
        node: NodeId,
        asked: NodeId,
    ) -> Option<State> {
        let owner = self.serving(state, at)?;
        let LegState::Joining { to_copy: None } = owner.legs[node] else { return None };
        let is_drained = self.writes_on(owner, node).all(|write| write.sent.contains(node));
        if self.rules.hold(Rule::DrainBeforeComparingPages) && !is_drained
            || !self.accepts(state, owner, node)
            || !owner.in_sync().contains(asked)
        {
            return None;
        }
        let since = state.cluster.stale[node].unwrap_or_default();
        let mut to_copy = Set::EMPTY;
        for slab in self.configuration.slabs_on(node).iter() {
            let blocks = self.configuration.slabs[slab].blocks;
            let source = state.nodes[self.source(state, owner, slab, asked)?].page_version(blocks);
            let own = state.nodes[node].page_version(blocks);
            let both_sides = self.rules.hold(Rule::ResyncLooksAtBothSides);
            if source > since || both_sides && (own > since || own != source) {
                to_copy = to_copy.with(slab);
            }
        }
        let mut next = *state;
        next.owner_mut(at).legs[node] = LegState::Joining { to_copy: Some(to_copy) };
        Some(next)
    }

    /// Copies a page that no write can change meanwhile. What is copied has no version of its own: the
    /// copy does not list it.
    pub(crate) fn copy_page(&self, state: &State, at: NodeId, node: NodeId, slab: Slab) -> Option<State> {
        let owner = self.serving(state, at)?;
        let LegState::Joining { to_copy: Some(to_copy) } = owner.legs[node] else { return None };
        let is_locked = |block: Block| owner.writes[block].is_some();
        if !to_copy.contains(slab)
            || self.configuration.blocks_of(slab).any(is_locked)
            || !self.accepts(state, owner, node)
            || !is_promised(owner)
        {
            return None;
        }
        // All that are in sync hold the same, as no write is under way.
        let source = self.source(state, owner, slab, at)?;
        let mut next = *state;
        for block in self.configuration.blocks_of(slab) {
            let version = state.nodes[source].blocks[block].version;
            next.nodes[node].blocks[block] = BlockCopy { version, is_listed: false };
        }
        next.owner_mut(at).legs[node] = LegState::Joining { to_copy: Some(to_copy.without(slab)) };
        next.just = Some(Milestone::Copied);
        Some(next)
    }

    /// The leg was silent, or has missed a message: it is as stale as before.
    pub(crate) fn fall_back(&self, state: &State, at: NodeId, node: NodeId) -> Option<State> {
        let owner = self.serving(state, at)?;
        match owner.legs[node] {
            LegState::Joining { .. } => {}
            LegState::Promoting if owner.unknown != Some(Change::Promote(node)) => {}
            _ => return None,
        }
        let mut next = *state;
        next.owner_mut(at).legs[node] = LegState::Stale;
        Some(next)
    }

    /// From now on new writes wait for the leg.
    pub(crate) fn begin_promotion(&self, state: &State, at: NodeId, node: NodeId) -> Option<State> {
        let owner = self.serving(state, at)?;
        if !is_complete(owner, node) || !self.rules.hold(Rule::PromotionCountsAsInSync) {
            return None;
        }
        let mut next = *state;
        next.owner_mut(at).legs[node] = LegState::Promoting;
        Some(next)
    }

    /// The in-sync copy that a slab is read from: that of `preferred` if there is one.
    fn source(&self, state: &State, owner: &Owner, slab: Slab, preferred: NodeId) -> Option<NodeId> {
        let in_sync = self.configuration.slabs[slab].copies.and(owner.in_sync());
        let mut readable = in_sync.iter().filter(|node| self.accepts(state, owner, *node));
        if in_sync.contains(preferred) && self.accepts(state, owner, preferred) {
            Some(preferred)
        } else {
            readable.next()
        }
    }

    /// The writes under way on slabs of which a node has copies.
    pub(crate) fn writes_on<'a>(&self, owner: &'a Owner, node: NodeId) -> impl Iterator<Item = &'a Write> {
        let configuration = self.configuration;
        let writes =
            owner.writes.iter().enumerate().filter_map(|(block, write)| Some((block, write.as_ref()?)));
        writes
            .filter(move |(block, _)| configuration.slab_of(*block).copies.contains(node))
            .map(|(_, write)| write)
    }
}
