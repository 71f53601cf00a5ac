//! Which blocks of a capacity drive have a copy in the area of a cache drive, and which copy goes first: S3-FIFO.
//!
//! What is read for the first time enters a small queue, and leaves it soon unless it is read again: so a scan of a whole
//! volume drives nothing out that is read often. What was read again moves on to the main queue, where it stays as long as it
//! is read in between. What has left the small queue is remembered for a while, and enters the main queue if it comes back.
//!
//! Copies are of physical blocks. What such a block holds does not change until it is freed, and then its copy is dropped: no
//! write has to look for copies.
//!
//! Memory: about 15 bytes for each block of the area, so that a TiB of cache takes less than 4 GiB.
//!
//! Invariants:
//! - A block has one copy at most, and a place holds one.
//! - A place stands in the queues once at most. It stays there when its copy is dropped: one that holds nothing is passed over,
//!   and a copy that has come there since is put at the end when its turn comes.
//! - A call passes over few copies, however many there are, and over each dropped one once.

use std::collections::VecDeque;

/// A block that is cached nowhere, and a place that holds nothing.
const NONE: u32 = u32::MAX;

/// The hits of a copy that are counted: so often it stays in the main queue without being read again.
const HITS_MAX: u8 = 3;

/// Hits in the small queue from which on a copy moves to the main one.
const HITS_TO_STAY: u8 = 2;

/// Copies that are passed over in search of one to drive out. Where all are read often, the next one has to go.
const PASSED_OVER_MAX: u32 = 64;

/// One copy in this many is in the small queue.
const SMALL_SHARE: usize = 10;

/// One block is remembered for so many places.
const GHOST_SHARE: usize = 4;

/// Slots for each ten places.
const SLOTS_PER_TEN: usize = 13;

/// See the module.
pub struct ReadIndex {
    /// The first block of the area; places are counted from it.
    first_place: u32,
    /// The block that is copied at each place.
    blocks: Vec<u32>,
    /// What is known of the copy at each place, and of the place.
    marks: Vec<Mark>,
    /// Places, in the order of the hashes of their blocks, each at the first free slot behind.
    slots: Vec<u32>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    /// Blocks whose copies left the small queue, each where its hash says, until another one comes there.
    ghosts: Vec<u32>,
    count: usize,
}

#[derive(Clone, Copy, Default)]
struct Mark {
    /// Hits of the copy; its queue; and where the place stands in the queues. In one byte.
    bits: u8,
}

/// Where a place stands in the queues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Queued {
    No,
    /// In that of its copy, or of the one that it held last.
    Yes,
    /// Where a former copy stood.
    Formerly,
}

impl Mark {
    const HITS: u8 = 0b11;
    const MAIN: u8 = 1 << 7;
    const QUEUED: u8 = 1 << 6;
    const FORMERLY: u8 = 1 << 5;

    fn new(hits: u8, is_main: bool, queued: Queued) -> Self {
        let main = if is_main { Self::MAIN } else { 0 };
        let queued = match queued {
            Queued::No => 0,
            Queued::Yes => Self::QUEUED,
            Queued::Formerly => Self::QUEUED | Self::FORMERLY,
        };
        Self { bits: hits | main | queued }
    }

    fn hits(self) -> u8 {
        self.bits & Self::HITS
    }

    fn is_main(self) -> bool {
        self.bits & Self::MAIN != 0
    }

    fn queued(self) -> Queued {
        match (self.bits & Self::QUEUED != 0, self.bits & Self::FORMERLY != 0) {
            (false, _) => Queued::No,
            (true, false) => Queued::Yes,
            (true, true) => Queued::Formerly,
        }
    }

    /// The mark behind one more hit.
    fn hit(self) -> Self {
        Self::new(HITS_MAX.min(self.hits() + 1), self.is_main(), self.queued())
    }

    /// What becomes of a copy that is passed over when its turn in a queue comes; none if it goes.
    fn passed_over(self, is_small: bool) -> Option<Self> {
        if self.queued() == Queued::Formerly {
            return Some(Self::new(self.hits(), self.is_main(), Queued::Yes));
        }
        let hits_left = self.hits().checked_sub(if is_small { HITS_TO_STAY } else { 1 })?;
        Some(Self::new(if is_small { 0 } else { hits_left }, true, Queued::Yes))
    }
}

/// A copy that was driven out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// The block of which it was a copy.
    pub block: u32,
    /// Where in the area it stood.
    pub place: u32,
}

impl ReadIndex {
    /// No copies yet, in an area of blocks from `first_place` up to, but without, `end_place`.
    pub fn new(first_place: u32, end_place: u32) -> Self {
        let places = (end_place - first_place) as usize;
        Self {
            first_place,
            blocks: vec![NONE; places],
            marks: vec![Mark::default(); places],
            slots: vec![NONE; places * SLOTS_PER_TEN / 10 + 1],
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: vec![NONE; places / GHOST_SHARE + 1],
            count: 0,
        }
    }

    /// How many copies there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Where the copy of a block stands; that counts as a hit.
    pub fn hit(&mut self, block: u32) -> Option<u32> {
        let index = self.slots[self.find(block)?];
        let mark = &mut self.marks[index as usize];
        *mark = mark.hit();
        Some(self.first_place + index)
    }

    /// The blocks that have copies.
    #[cfg(test)]
    pub fn blocks(&self) -> impl Iterator<Item = u32> + '_ {
        self.blocks.iter().copied().filter(|block| *block != NONE)
    }

    /// Whether a block has a copy.
    pub fn holds(&self, block: u32) -> bool {
        self.find(block).is_some()
    }

    /// Whether a copy of a block was driven out of the small queue lately.
    pub fn remembers(&self, block: u32) -> bool {
        self.ghosts[position(block, self.ghosts.len())] == block
    }

    /// Remembers a block of which no copy is made now.
    pub fn remember(&mut self, block: u32) {
        let ghost = position(block, self.ghosts.len());
        self.ghosts[ghost] = block;
    }

    /// A copy of a block stands at a place from now on. It has none yet, and the place holds none.
    pub fn insert(&mut self, block: u32, place: u32) {
        let index = place - self.first_place;
        assert!(self.blocks[index as usize] == NONE && !self.holds(block), "block {block} at {place}");
        let is_main = self.remembers(block);
        self.blocks[index as usize] = block;
        let is_queued = self.marks[index as usize].queued() != Queued::No;
        let mut slot = position(block, self.slots.len());
        while self.slots[slot] != NONE {
            slot = self.next(slot);
        }
        self.slots[slot] = index;
        self.count += 1;
        if is_queued {
            self.marks[index as usize] = Mark::new(0, is_main, Queued::Formerly);
        } else {
            self.enqueue(index, Mark::new(0, is_main, Queued::Yes));
        }
    }

    /// Puts a place at the end of its copy's queue.
    fn enqueue(&mut self, index: u32, mark: Mark) {
        self.marks[index as usize] = mark;
        if mark.is_main() { self.main.push_back(index) } else { self.small.push_back(index) }
    }

    /// Drops the copy of a block, if there is one, and returns its place.
    pub fn remove(&mut self, block: u32) -> Option<u32> {
        let slot = self.find(block)?;
        let index = self.slots[slot];
        self.blocks[index as usize] = NONE;
        self.close_gap(slot);
        self.count -= 1;
        Some(self.first_place + index)
    }

    /// Drops the copy that goes first; none if there is none.
    pub fn evict(&mut self) -> Option<Evicted> {
        let mut passed_over = 0;
        loop {
            let is_small_full = self.small.len() * SMALL_SHARE >= self.count || self.main.is_empty();
            let is_small = is_small_full && !self.small.is_empty();
            let index = if is_small { self.small.pop_front() } else { self.main.pop_front() }?;
            let block = self.blocks[index as usize];
            let mark = std::mem::take(&mut self.marks[index as usize]);
            if block == NONE {
                continue;
            }
            if passed_over < PASSED_OVER_MAX
                && let Some(mark) = mark.passed_over(is_small)
            {
                passed_over += 1;
                self.enqueue(index, mark);
                continue;
            }
            if is_small {
                self.remember(block);
            }
            let place = self.remove(block).expect("it is there");
            return Some(Evicted { block, place });
        }
    }

    /// The slot of a block's copy.
    fn find(&self, block: u32) -> Option<usize> {
        let mut slot = position(block, self.slots.len());
        loop {
            match self.slots[slot] {
                NONE => return None,
                index if self.blocks[index as usize] == block => return Some(slot),
                _ => slot = self.next(slot),
            }
        }
    }

    fn next(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }

    /// Empties a slot, and moves those behind it up that would not be found any more.
    fn close_gap(&mut self, mut gap: usize) {
        let mut slot = gap;
        loop {
            slot = self.next(slot);
            let index = self.slots[slot];
            if index == NONE {
                break;
            }
            let wanted = position(self.blocks[index as usize], self.slots.len());
            // Whether the place that it should have lies cyclically behind the gap, up to where it is.
            let stays = match gap <= slot {
                true => gap < wanted && wanted <= slot,
                false => gap < wanted || wanted <= slot,
            };
            if !stays {
                self.slots[gap] = index;
                gap = slot;
            }
        }
        self.slots[gap] = NONE;
    }
}

/// A block's place among so many.
fn position(block: u32, count: usize) -> usize {
    // Fibonacci hashing: neighbours are spread evenly.
    let hash = block.wrapping_mul(0x9E37_79B1);
    ((u64::from(hash) * count as u64) >> 32) as usize
}

#[cfg(test)]
#[path = "read_index_tests.rs"]
mod tests;
