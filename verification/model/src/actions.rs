//! The steps of the world: what they are called, and which may be thought of in a state.
//!
//! Whether a step is possible, the step itself decides (see `take_over`, `requests`, `changes`,
//! `resync`): so every condition stands once, beside what it guards.

use std::fmt;

use crate::configuration::Configuration;
use crate::sets::{Block, NODES, NodeId, Slab};
use crate::state::State;

/// A step. `owner` is the node whose ownership takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the fields are the nodes, blocks and slabs that the texts below name")]
pub enum Action {
    /// A process ends and starts anew, with nothing but what its drive holds.
    Crash { node: NodeId },
    /// A node reads the membership before it takes the volume.
    ReadEarly { node: NodeId },
    /// A node becomes the volume's owner under the next epoch.
    Take { node: NodeId },
    /// An owner stops, and tells the others that what they promised it counts no more.
    GiveUp { owner: NodeId },
    /// A node's copies accept the owner's epoch, durably, and refuse lower ones from now on.
    Fence { owner: NodeId, node: NodeId },
    /// Promises to others have run out; the fence is answered, with a promise.
    AnswerFence { owner: NodeId, node: NodeId },
    /// A node that has accepted a higher epoch promises once more.
    Heartbeat { owner: NodeId, node: NodeId },
    /// A copy gets a block that a former owner left incomplete.
    RollForward { owner: NodeId, block: Block, node: NodeId },
    /// The take-over is at its end.
    Serve { owner: NodeId },
    /// A write gets its version and is sent.
    BeginWrite { owner: NodeId, block: Block },
    /// A write arrives at a node, and is durable there.
    DeliverWrite { owner: NodeId, block: Block, node: NodeId },
    /// A write is answered.
    CompleteWrite { owner: NodeId, block: Block },
    /// A copy serves a read, and it is answered.
    Read { owner: NodeId, block: Block, node: NodeId },
    /// The copies are told the mark.
    NoteMark { owner: NodeId },
    /// The owner marks the copies of a node stale; or the answer is lost.
    MarkStale { owner: NodeId, node: NodeId, is_lost: bool },
    /// A change is made whose answer was lost before.
    MakeLate,
    /// The owner finds out what became of a change, or makes sure that nothing will.
    Settle { owner: NodeId },
    /// A stale leg begins to get the new writes.
    Join { owner: NodeId, node: NodeId },
    /// The owner finds the pages in which a joining leg may differ.
    ComparePages { owner: NodeId, node: NodeId, source: NodeId },
    /// A page is copied to a joining leg.
    CopyPage { owner: NodeId, node: NodeId, slab: Slab },
    /// A joining leg gives up.
    FallBack { owner: NodeId, node: NodeId },
    /// A leg is complete: from now on every write waits for it.
    BeginPromotion { owner: NodeId, node: NodeId },
    /// The owner takes the stale mark from a leg; or the answer is lost.
    Promote { owner: NodeId, node: NodeId, is_lost: bool },
}

/// The steps that may be possible in `state`.
pub fn candidates(configuration: &Configuration, state: &State, actions: &mut Vec<Action>) {
    for node in 0..NODES {
        actions.extend([Action::Crash { node }, Action::ReadEarly { node }, Action::Take { node }]);
    }
    actions.push(Action::MakeLate);
    for owner in (0..NODES).filter(|node| state.owner(*node).is_some()) {
        actions.extend([Action::Serve { owner }, Action::NoteMark { owner }, Action::Settle { owner }]);
        actions.push(Action::GiveUp { owner });
        for block in 0..configuration.blocks {
            actions.extend([Action::BeginWrite { owner, block }, Action::CompleteWrite { owner, block }]);
            for node in configuration.slab_of(block).copies.iter() {
                actions.extend([
                    Action::DeliverWrite { owner, block, node },
                    Action::RollForward { owner, block, node },
                    Action::Read { owner, block, node },
                ]);
            }
        }
        for node in configuration.holders().iter() {
            actions.extend([
                Action::Fence { owner, node },
                Action::AnswerFence { owner, node },
                Action::Heartbeat { owner, node },
                Action::MarkStale { owner, node, is_lost: false },
                Action::MarkStale { owner, node, is_lost: true },
                Action::Join { owner, node },
                Action::FallBack { owner, node },
                Action::BeginPromotion { owner, node },
                Action::Promote { owner, node, is_lost: false },
                Action::Promote { owner, node, is_lost: true },
            ]);
            let holders = configuration.holders().iter();
            actions.extend(holders.map(|source| Action::ComparePages { owner, node, source }));
            let slabs = configuration.slabs_on(node);
            actions.extend(slabs.iter().map(|slab| Action::CopyPage { owner, node, slab }));
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Action::*;
        let lost =
            |is_lost: &bool| if *is_lost { "; the answer is lost, whether it is made is open" } else { "" };
        match self {
            Crash { node } => write!(formatter, "node {node} crashes and starts anew"),
            ReadEarly { node } => write!(formatter, "node {node} reads the membership, to take the volume"),
            Take { node } => write!(formatter, "node {node} takes the volume"),
            GiveUp { owner } => {
                write!(formatter, "owner {owner} gives the volume up; what was promised to it counts no more")
            }
            Fence { owner, node } => {
                write!(formatter, "owner {owner} fences node {node}: lower epochs are refused there")
            }
            AnswerFence { owner, node } => {
                write!(
                    formatter,
                    "node {node} answers owner {owner}'s fence, and promises to answer no other"
                )
            }
            Heartbeat { owner, node } => {
                write!(
                    formatter,
                    "node {node} promises owner {owner} once more, though it has accepted another"
                )
            }
            RollForward { owner, block, node } => {
                write!(formatter, "owner {owner} rolls block {block} forward to node {node}")
            }
            Serve { owner } => write!(formatter, "owner {owner} ends its take-over and serves"),
            BeginWrite { owner, block } => write!(formatter, "owner {owner} begins a write to block {block}"),
            DeliverWrite { owner, block, node } => {
                write!(formatter, "owner {owner}'s write to block {block} arrives at node {node}")
            }
            CompleteWrite { owner, block } => {
                write!(formatter, "owner {owner} answers the write to block {block}: done")
            }
            Read { owner, block, node } => {
                write!(formatter, "owner {owner} answers a read of block {block} with what node {node} holds")
            }
            NoteMark { owner } => write!(formatter, "owner {owner} tells the copies its mark"),
            MarkStale { owner, node, is_lost } => {
                write!(formatter, "owner {owner} marks node {node}'s copies stale{}", lost(is_lost))
            }
            MakeLate => write!(formatter, "the change whose answer was lost is made"),
            Settle { owner } => write!(formatter, "owner {owner} settles the change whose answer was lost"),
            Join { owner, node } => write!(formatter, "owner {owner} lets node {node}'s copies join"),
            ComparePages { owner, node, source } => {
                write!(
                    formatter,
                    "owner {owner} compares the pages of node {node}'s copies with node {source}'s"
                )
            }
            CopyPage { owner, node, slab } => {
                write!(formatter, "owner {owner} copies the page of slab {slab} to node {node}")
            }
            FallBack { owner, node } => {
                write!(formatter, "owner {owner} lets node {node}'s copies fall back")
            }
            BeginPromotion { owner, node } => {
                write!(formatter, "owner {owner} finds node {node}'s copies complete; writes wait for them")
            }
            Promote { owner, node, is_lost } => {
                write!(formatter, "owner {owner} promotes node {node}'s copies{}", lost(is_lost))
            }
        }
    }
}
