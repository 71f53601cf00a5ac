//! What was written to each block of a volume, and the judge of what the blocks hold.
//!
//! Each block is a register. A read must find the newest content that was answered, or a newer one
//! that was asked for and not answered; and what a read has found holds from then on: what it did
//! not find can never come any more.

use std::fmt;

use crate::stamp::{Content, Stamp};

/// The writes of all blocks of a volume.
#[derive(Clone, Debug)]
pub struct History {
    seed: u64,
    blocks: Vec<BlockHistory>,
    answered_writes: u64,
}

#[derive(Clone, Debug, Default)]
struct BlockHistory {
    /// The newest content that must be there, by its sequence; zero for zeros.
    answered: u64,
    /// Newer ones that may be there.
    open: Vec<u64>,
    /// The newest sequence that was ever given.
    last: u64,
    in_flight: bool,
}

/// A block that does not hold what it must.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The block's number in the volume.
    pub block: u64,
    /// What is wrong.
    pub kind: ViolationKind,
    /// The sequence that was answered last; zero if none was.
    pub answered: u64,
    /// Newer ones that were asked for.
    pub open: Vec<u64>,
}

/// What can be wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// It holds an older content than was answered: that many writes were lost.
    Lost {
        /// What it holds: a sequence, or zero for zeros.
        found: u64,
    },
    /// It holds a content that was never asked for, or that a read had found to be gone.
    NeverWritten {
        /// Its sequence.
        found: u64,
    },
    /// It holds what was written to another block, or to another volume.
    OtherBlock(Stamp),
    /// It does not hold one content throughout.
    Broken(Content),
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { block, kind, answered, open } = self;
        write!(formatter, "block {block}: ")?;
        match kind {
            ViolationKind::Lost { found: 0 } => write!(formatter, "zeros")?,
            ViolationKind::Lost { found } | ViolationKind::NeverWritten { found } => {
                write!(formatter, "write {found}")?;
            }
            ViolationKind::OtherBlock(stamp) => write!(formatter, "{stamp}")?,
            ViolationKind::Broken(Content::Torn(first, second)) => {
                write!(formatter, "torn, part {first} and part {second}")?;
            }
            ViolationKind::Broken(content) => write!(formatter, "{content:?}")?,
        }
        write!(formatter, "; write {answered} was answered, {open:?} were asked for")
    }
}

impl std::error::Error for Violation {}

impl History {
    /// A volume of `block_count` blocks of zeros.
    pub fn new(seed: u64, block_count: u64) -> Self {
        let block_count = usize::try_from(block_count).expect("as many blocks as memory has room for");
        Self { seed, blocks: vec![BlockHistory::default(); block_count], answered_writes: 0 }
    }

    /// The volume has grown: behind its former end there are zeros.
    ///
    /// # Panics
    ///
    /// If it has become smaller.
    pub fn grow(&mut self, block_count: u64) {
        assert!(block_count >= self.block_count(), "a volume never becomes smaller");
        let block_count = usize::try_from(block_count).expect("as many blocks as memory has room for");
        self.blocks.resize(block_count, BlockHistory::default());
    }

    /// The volume has so many blocks: what was known of those behind them was given up by an operator.
    pub fn give_up_behind(&mut self, block_count: u64) {
        self.blocks.truncate(usize::try_from(block_count).expect("fewer than there are"));
    }

    /// How many blocks.
    pub fn block_count(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Blocks that were written, of all writes that were answered.
    pub fn answered_writes(&self) -> u64 {
        self.answered_writes
    }

    /// Whether a request for one of the blocks is under way.
    pub fn is_busy(&self, first: u64, count: u64) -> bool {
        self.range(first, count).iter().any(|block| block.in_flight)
    }

    /// How many writes of a block were asked for so far.
    pub fn writes_of(&self, block: u64) -> u64 {
        self.blocks[block as usize].last
    }

    fn range(&self, first: u64, count: u64) -> &[BlockHistory] {
        &self.blocks[first as usize..(first + count) as usize]
    }

    /// A write of a block goes out: the stamp that it must carry.
    ///
    /// # Panics
    ///
    /// If a request for the block is under way.
    pub fn issue(&mut self, block: u64) -> Stamp {
        let history = &mut self.blocks[block as usize];
        assert!(!history.in_flight, "two writes of block {block} are under way");
        history.in_flight = true;
        history.last += 1;
        history.open.push(history.last);
        Stamp { seed: self.seed, block, sequence: history.last }
    }

    /// The write that is under way to a block was answered.
    pub fn answered(&mut self, block: u64) {
        let history = &mut self.blocks[block as usize];
        assert!(history.in_flight, "no write of block {block} is under way");
        history.in_flight = false;
        history.answered = history.last;
        history.open.clear();
        self.answered_writes += 1;
    }

    /// The write that is under way to a block has failed, or its connection has broken: it may have
    /// been done or not.
    pub fn abandoned(&mut self, block: u64) {
        self.blocks[block as usize].in_flight = false;
    }

    /// Judges what a read of a block has found while no write of it was under way. From now on the
    /// block holds that.
    ///
    /// # Errors
    ///
    /// What the block must not hold.
    pub fn judge(&mut self, block: u64, content: Content) -> Result<(), Violation> {
        let seed = self.seed;
        let history = &mut self.blocks[block as usize];
        assert!(!history.in_flight, "a read beside a write of block {block} says nothing");
        let found = match content {
            Content::Zeros => Ok(0),
            Content::Whole(stamp) if stamp.seed == seed && stamp.block == block => Ok(stamp.sequence),
            Content::Whole(stamp) => Err(ViolationKind::OtherBlock(stamp)),
            broken => Err(ViolationKind::Broken(broken)),
        };
        let verdict = found.and_then(|found| {
            if found == history.answered || history.open.contains(&found) {
                Ok(found)
            } else if found < history.answered {
                Err(ViolationKind::Lost { found })
            } else {
                Err(ViolationKind::NeverWritten { found })
            }
        });
        match verdict {
            Ok(found) => {
                history.answered = found;
                history.open.clear();
                Ok(())
            }
            Err(kind) => {
                let (answered, open) = (history.answered, history.open.clone());
                Err(Violation { block, kind, answered, open })
            }
        }
    }
}
