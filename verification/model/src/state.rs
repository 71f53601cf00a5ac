//! What a state of the world consists of. Every field is what some part of the program remembers;
//! [`History`] alone is what an observer outside remembers, to judge by.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::configuration::Configuration;
use crate::sets::{BLOCKS_MAX, Block, NODES, NodeId, Set};

/// The number of an ownership. Who has which epoch is never in doubt: the cluster's state gives each
/// once.
pub type Epoch = u8;

/// Names one write: its owner's epoch, and a counter. A block's content is the version of the write
/// that it comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u8);

const COUNTERS: u8 = 8;

impl Version {
    /// What a block holds that was never written.
    pub const ZERO: Version = Version(0);

    /// The write `counter` of the owner under `epoch`.
    pub fn new(epoch: Epoch, counter: u8) -> Self {
        assert!(counter < COUNTERS, "a configuration has fewer writes than that");
        Version(epoch * COUNTERS + counter)
    }

    /// The epoch of its owner.
    pub fn epoch(self) -> Epoch {
        self.0 / COUNTERS
    }

    /// Its place among the writes of its owner.
    pub fn counter(self) -> u8 {
        self.0 % COUNTERS
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.epoch(), self.counter())
    }
}

/// The whole world at one moment.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// What the cluster's state says of the volume.
    pub cluster: Membership,
    /// A change of membership whose answer was lost, and that may still be made. It compares the
    /// membership that stood when it was sent, so any other change ends it.
    pub on_its_way: Option<Change>,
    /// The nodes.
    pub nodes: [Node; NODES],
    /// What clients have seen.
    pub history: History,
    /// What may still happen.
    pub left: Left,
    /// What the last step was, where that is worth noticing. No part of the state's identity, so it
    /// may only show that something can happen, never that something cannot.
    pub just: Option<Milestone>,
}

/// The volume as the cluster's state has it.
///
/// There is no configuration version here: it is there to be compared, and the model compares what
/// it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Membership {
    /// The epoch of the owner.
    pub epoch: Epoch,
    /// The copies that may lack writes, and the version up to which each is complete.
    pub stale: [Option<Version>; NODES],
}

/// A change of membership, made by the volume's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// The copies of a node may lack writes above a version from now on.
    MarkStale(NodeId, Version),
    /// The copies of a node are complete.
    Promote(NodeId),
}

/// One node: its copies, its process, and what that owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    /// The highest epoch that its copies have accepted; durable.
    pub epoch: Epoch,
    /// The newest mark that it was told; durable.
    pub mark: Version,
    /// Its copies, by block; durable.
    pub blocks: [BlockCopy; BLOCKS_MAX],
    /// The process has started since it last answered a fence: it knows of no promise.
    pub is_fresh: bool,
    /// The ownership of its process.
    pub owner: Option<Owner>,
    /// It has told the others that promises to it count no more, up to this epoch. That makes a difference only without
    /// [`Rule::StopBeforeHandingOver`](crate::rules::Rule::StopBeforeHandingOver) or
    /// [`Rule::HandOverIsOfItsEpoch`](crate::rules::Rule::HandOverIsOfItsEpoch).
    pub given_up: Option<Epoch>,
    /// A membership that it read before it took the volume; only without
    /// [`Rule::ReadMembershipAgainAfterTaking`](crate::rules::Rule::ReadMembershipAgainAfterTaking).
    pub read_early: Option<Membership>,
}

/// A copy of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockCopy {
    /// The write whose content it holds.
    pub version: Version,
    /// The write stands in the list of those above the mark. What a resync copied does not.
    pub is_listed: bool,
}

/// One ownership, as its process knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// Its number.
    pub epoch: Epoch,
    /// What it does.
    pub phase: Phase,
    /// The nodes that have accepted it and whose promise it counts on.
    pub promises: Set,
    /// How far the copies of each node take part.
    pub legs: [LegState; NODES],
    /// While it takes over: the newest mark that the fenced copies knew.
    pub inherited: Version,
    /// The counter of its next write.
    pub next_counter: u8,
    /// The write under way on each block.
    pub writes: [Option<Write>; BLOCKS_MAX],
    /// A change of membership of which it does not know whether it is made.
    pub unknown: Option<Change>,
}

/// What an owner does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Fences, gathers, rolls forward.
    TakingOver,
    /// Serves.
    Serving,
}

/// How far the copies of a node take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LegState {
    /// They hold every answered write: every write waits for them, reads may use them.
    InSync,
    /// They may lack writes.
    Stale,
    /// They get every new write, but nobody waits for them and nobody reads them.
    Joining {
        /// The slabs of which the page is still to be copied; none before the pages were compared.
        to_copy: Option<Set>,
    },
    /// Every write waits for them, but nobody reads them: their promotion is sent, or will be.
    Promoting,
}

impl LegState {
    /// Whether a write is complete only with its answer, and its node's promise is needed.
    pub fn is_needed(self) -> bool {
        matches!(self, LegState::InSync | LegState::Promoting)
    }
}

/// A write under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Write {
    /// Its version.
    pub version: Version,
    /// The nodes that it was sent to.
    pub sent: Set,
    /// Those of them that it waits for, unless they are marked.
    pub awaited: Set,
    /// Those where it has not arrived yet, and perhaps never will.
    pub in_flight: Set,
}

/// What an observer of all clients knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct History {
    /// By block: the newest write that was answered, or seen by a read that was answered.
    pub seen: [Version; BLOCKS_MAX],
    /// The highest epoch under which a read or write was answered.
    pub answered_under: Epoch,
    /// What must never happen, and did.
    pub broken: Option<Broken>,
}

/// What must never happen in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Broken {
    /// A read was answered with an older content than a client had seen before it began.
    OldContent,
    /// A request was answered under an epoch after one was under a higher epoch.
    TwoOwners,
    /// A copy was promoted that lacks what a client has seen.
    IncompletePromotion,
}

/// What may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Left {
    /// Writes to begin.
    pub writes: u8,
    /// Crashes.
    pub crashes: u8,
    /// Answers of the cluster's state that are lost.
    pub lost_answers: u8,
    /// Copies that are marked stale.
    pub marks: u8,
}

/// Steps that an exploration must have met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// A take-over gave a copy what it lacked.
    RolledForward,
    /// A take-over ended with an unanswered write of a former owner on all copies.
    InheritedUnanswered,
    /// A fence ended a promise on which a former owner still counted.
    PromiseEnded,
    /// An owner gave the volume up.
    GivenUp,
    /// A process that had just started answered a fence.
    FreshProcessFenced,
    /// A copy was marked.
    Marked,
    /// A page was copied.
    Copied,
    /// A copy was promoted.
    Promoted,
    /// A change was made after its answer was lost.
    MadeLate,
    /// A transaction settled that a lost change is made.
    SettledMade,
    /// A transaction settled that a lost change will never be made.
    SettledNever,
    /// A read was answered after a take-over.
    ReadAfterTakeOver,
}

impl State {
    /// The beginning: node 0 serves an empty volume under epoch 1, and all copies are in sync.
    pub fn beginning(configuration: &Configuration) -> Self {
        let holders = configuration.holders();
        let mut cluster = Membership { epoch: 1, stale: [None; NODES] };
        let mut nodes = [Node::default(); NODES];
        for (number, node) in nodes.iter_mut().enumerate() {
            if holders.contains(number) {
                node.epoch = 1;
            } else {
                // Nothing is asked of it.
                cluster.stale[number] = Some(Version::ZERO);
            }
        }
        let mut owner = Owner::new(cluster);
        owner.phase = Phase::Serving;
        owner.promises = holders;
        nodes[0].owner = Some(owner);
        State {
            cluster,
            on_its_way: None,
            nodes,
            history: History::default(),
            left: Left {
                writes: configuration.writes,
                crashes: configuration.crashes,
                lost_answers: configuration.lost_answers,
                marks: configuration.marks,
            },
            just: None,
        }
    }

    /// The ownership of a node's process.
    pub fn owner(&self, node: NodeId) -> Option<&Owner> {
        self.nodes[node].owner.as_ref()
    }

    /// The same, to be changed, where a step has found that there is one.
    pub fn owner_mut(&mut self, node: NodeId) -> &mut Owner {
        self.nodes[node].owner.as_mut().expect("the step begins with a look at this ownership")
    }

    /// All that tells this state from others.
    pub(crate) fn identity(&self) -> (&Membership, &Option<Change>, &[Node; NODES], &History, &Left) {
        (&self.cluster, &self.on_its_way, &self.nodes, &self.history, &self.left)
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for State {}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl Owner {
    /// An ownership that begins with what the cluster's state says.
    pub fn new(membership: Membership) -> Self {
        let leg = |mark: Option<Version>| if mark.is_some() { LegState::Stale } else { LegState::InSync };
        Owner {
            epoch: membership.epoch,
            phase: Phase::TakingOver,
            promises: Set::EMPTY,
            legs: membership.stale.map(leg),
            inherited: Version::ZERO,
            next_counter: 1,
            writes: [None; BLOCKS_MAX],
            unknown: None,
        }
    }

    /// The legs that are in sync.
    pub fn in_sync(&self) -> Set {
        Set::filter(NODES, |node| self.legs[node] == LegState::InSync)
    }

    /// The legs that writes wait for, and whose nodes' promises are needed.
    pub fn needed(&self) -> Set {
        Set::filter(NODES, |node| self.legs[node].is_needed())
    }

    /// The newest version that it has given.
    pub fn newest(&self) -> Version {
        Version::new(self.epoch, self.next_counter - 1)
    }

    /// The version below which its writes are complete on every in-sync copy, as if there were none
    /// of earlier owners.
    pub fn own_mark(&self) -> Version {
        let under_way = self.writes.iter().flatten().map(|write| write.version.counter());
        Version::new(self.epoch, under_way.fold(self.next_counter, u8::min) - 1)
    }
}

impl Node {
    /// The highest version in a page.
    pub fn page_version(&self, blocks: Set) -> Version {
        blocks.iter().map(|block| self.blocks[block].version).max().unwrap_or_default()
    }

    /// Takes a write, a roll-forward's too.
    pub fn write(&mut self, block: Block, version: Version) {
        self.blocks[block] = BlockCopy { version, is_listed: version > self.mark };
    }

    /// Takes note of a mark: what it covers leaves the list.
    pub fn note_mark(&mut self, mark: Version) {
        self.mark = self.mark.max(mark);
        for copy in &mut self.blocks {
            copy.is_listed &= copy.version > self.mark;
        }
    }
}
