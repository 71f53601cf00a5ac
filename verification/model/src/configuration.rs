//! How large a world is explored: where the copies are, and how often what may happen.

use crate::rules::Rule;
use crate::sets::{BLOCKS_MAX, Block, NODES, NodeId, Set, Slab};

/// One slab: which blocks it has and which nodes hold copies. A slab is one page of a drive's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabLayout {
    /// Its blocks.
    pub blocks: Set,
    /// The nodes that hold copies.
    pub copies: Set,
}

/// A world to explore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// What it is called on the command line.
    pub name: &'static str,
    /// The volume's slabs.
    pub slabs: &'static [SlabLayout],
    /// How many blocks they have together.
    pub blocks: usize,
    /// The highest epoch. In the beginning node 0 owns the volume under epoch 1.
    pub epochs: u8,
    /// How many writes are begun.
    pub writes: u8,
    /// How many times a node crashes.
    pub crashes: u8,
    /// How many changes of membership lose their answer.
    pub lost_answers: u8,
    /// How many copies are marked stale.
    pub marks: u8,
    /// In which ways nodes and blocks can change places without anything else being different.
    pub symmetries: &'static [Symmetry],
}

/// Which node, which block and which slab takes the place of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symmetry {
    /// By node.
    pub nodes: [NodeId; NODES],
    /// By block.
    pub blocks: [Block; BLOCKS_MAX],
    /// By slab.
    pub slabs: [Slab; BLOCKS_MAX],
}

const fn symmetry(
    nodes: [NodeId; NODES],
    blocks: [Block; BLOCKS_MAX],
    slabs: [Slab; BLOCKS_MAX],
) -> Symmetry {
    Symmetry { nodes, blocks, slabs }
}

const ONE_BLOCK: [SlabLayout; 1] = [SlabLayout { blocks: Set::of([0]), copies: Set::of([0, 1, 2]) }];

const TWO_BLOCKS_IN_ONE_PAGE: [SlabLayout; 1] =
    [SlabLayout { blocks: Set::of([0, 1]), copies: Set::of([0, 1]) }];

const TWO_SLABS: [SlabLayout; 2] = [
    SlabLayout { blocks: Set::of([0]), copies: Set::of([0, 1]) },
    SlabLayout { blocks: Set::of([1]), copies: Set::of([1, 2]) },
];

const ALL_NODES_ALIKE: [Symmetry; 5] = [
    symmetry([0, 2, 1], [0, 1], [0, 1]),
    symmetry([1, 0, 2], [0, 1], [0, 1]),
    symmetry([1, 2, 0], [0, 1], [0, 1]),
    symmetry([2, 0, 1], [0, 1], [0, 1]),
    symmetry([2, 1, 0], [0, 1], [0, 1]),
];

impl Configuration {
    /// One block, three copies.
    pub const ONE_SLAB: Configuration = Configuration {
        name: "one-slab",
        slabs: &ONE_BLOCK,
        blocks: 1,
        epochs: 3,
        writes: 2,
        crashes: 1,
        lost_answers: 1,
        marks: 1,
        symmetries: &ALL_NODES_ALIKE,
    };

    /// The same, where copies are marked twice.
    pub const ONE_SLAB_TWO_MARKS: Configuration =
        Configuration { name: "one-slab-two-marks", epochs: 2, writes: 1, marks: 2, ..Self::ONE_SLAB };

    /// Two blocks that share a page of the map, on two nodes. The third node may own the volume.
    pub const ONE_PAGE: Configuration = Configuration {
        name: "one-page",
        slabs: &TWO_BLOCKS_IN_ONE_PAGE,
        blocks: 2,
        epochs: 2,
        writes: 2,
        crashes: 1,
        lost_answers: 1,
        marks: 2,
        symmetries: &[
            symmetry([1, 0, 2], [0, 1], [0, 1]),
            symmetry([0, 1, 2], [1, 0], [0, 1]),
            symmetry([1, 0, 2], [1, 0], [0, 1]),
        ],
    };

    /// Two slabs whose copy sets overlap in one node.
    pub const TWO_SLABS: Configuration = Configuration {
        name: "two-slabs",
        slabs: &TWO_SLABS,
        blocks: 2,
        epochs: 2,
        writes: 2,
        crashes: 1,
        lost_answers: 1,
        marks: 1,
        symmetries: &[symmetry([2, 1, 0], [1, 0], [1, 0])],
    };

    /// The same with one owner more, for one write.
    pub const TWO_SLABS_THREE_EPOCHS: Configuration =
        Configuration { name: "two-slabs-three-epochs", epochs: 3, writes: 1, ..Self::TWO_SLABS };

    /// What the tests explore.
    pub const EXPLORED: [Configuration; 5] = [
        Self::ONE_SLAB,
        Self::ONE_SLAB_TWO_MARKS,
        Self::ONE_PAGE,
        Self::TWO_SLABS,
        Self::TWO_SLABS_THREE_EPOCHS,
    ];

    /// What takes minutes, to be explored by hand after a change of the rules.
    pub const LARGE: [Configuration; 3] = [
        Configuration { name: "one-slab-large", writes: 2, ..Self::ONE_SLAB_TWO_MARKS },
        Configuration { name: "one-page-large", epochs: 3, crashes: 2, marks: 1, ..Self::ONE_PAGE },
        Configuration { name: "two-slabs-large", writes: 2, ..Self::TWO_SLABS_THREE_EPOCHS },
    ];

    /// All configurations.
    pub fn every() -> impl Iterator<Item = Configuration> {
        Self::EXPLORED.into_iter().chain(Self::LARGE)
    }

    /// What they are called.
    pub fn names() -> Vec<&'static str> {
        Self::every().map(|configuration| configuration.name).collect()
    }

    /// A small world in which it shows when a rule is missing.
    pub fn showing(rule: Rule) -> Configuration {
        use Rule::*;
        let (world, [epochs, writes, crashes, lost_answers, marks]) = match rule {
            MarkBeforeAnswer | ReadsWaitForWrites => (Self::ONE_SLAB, [1, 1, 0, 0, 0]),
            WritesGoToJoiningCopies
            | JoiningCopyFallsBack
            | DrainBeforeComparingPages
            | DrainBeforePromotion => (Self::ONE_SLAB, [1, 1, 0, 0, 1]),
            UnknownMarkIsNotMade | SettleByTransaction | PromotionCountsAsInSync => {
                (Self::ONE_SLAB, [1, 1, 0, 1, 1])
            }
            ExcludeFencedVolumes
            | CheckPromisesBeforeWriteAnswer
            | RefuseLowerEpochs
            | FenceEveryCopyBeforeServing
            | RollForwardBeforeServing => (Self::ONE_SLAB, [2, 1, 0, 0, 0]),
            WaitForPromisesBeforeAnsweringFence
            | StopBeforeHandingOver
            | CheckPromisesBeforeReadAnswer
            | ReadMembershipAgainAfterTaking
            | MarkMustNotMoveUntilRolledForward
            | ResyncLooksAtBothSides => (Self::ONE_SLAB, [2, 1, 0, 0, 1]),
            HandOverIsOfItsEpoch => (Self::ONE_SLAB, [3, 0, 0, 0, 1]),
            StaleSinceIsTheMark => (Self::ONE_PAGE, [1, 2, 0, 0, 1]),
            NeverMarkTheLastCopy => (Self::ONE_PAGE, [1, 1, 0, 0, 2]),
            ChangesCompareConfiguration => (Self::ONE_PAGE, [1, 1, 0, 1, 2]),
            StopOwnBeforeAnsweringFence => (Self::ONE_PAGE, [2, 1, 0, 0, 1]),
            FreshProcessAnswersNoFence => (Self::ONE_PAGE, [2, 1, 1, 0, 1]),
            FenceIsDurable => (Self::ONE_PAGE, [2, 2, 1, 0, 1]),
        };
        Configuration { epochs, writes, crashes, lost_answers, marks, ..world }
    }

    /// The slab of a block.
    pub fn slab_of(&self, block: Block) -> &SlabLayout {
        self.slabs
            .iter()
            .find(|slab| slab.blocks.contains(block))
            .expect("every block of a configuration is in one of its slabs")
    }

    /// The slabs of which a node holds copies.
    pub fn slabs_on(&self, node: NodeId) -> Set {
        Set::filter(self.slabs.len(), |slab| self.slabs[slab].copies.contains(node))
    }

    /// The blocks of a slab.
    pub fn blocks_of(&self, slab: Slab) -> impl Iterator<Item = Block> {
        self.slabs[slab].blocks.iter()
    }

    /// The nodes that hold copies of anything.
    pub fn holders(&self) -> Set {
        Set::filter(NODES, |node| !self.slabs_on(node).is_empty())
    }
}
