//! Which physical blocks are free, and when a block that was given up may be used again.
//!
//! Next-fit over a bitmap: consecutive requests get consecutive blocks as long as free space is
//! contiguous, so that the writes of one group merge into few large ones. There is one bitmap for each medium.
//!
//! What nobody needs of an area can hold copies of what is read: they give way to whatever else is to stand there, and go when
//! the block of which they are copies is given up. So do copies in memory.
//!
//! Invariants:
//! - A block is handed out once, until it is released.
//! - A released data block is handed out again only when every read that was under way at its
//!   release has ended: such a read may still look at it.
//! - A block of which there is a copy is not free.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::witness::{self, Rare};

use crate::memory_cache::MemoryCache;
use crate::read_index::ReadIndex;

/// What was taken for one write: as a rule one run.
pub type Runs = SmallVec<[Run; 2]>;

/// Consecutive physical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// The first block.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// Words of the bitmap that are searched for one run that is long enough, before a request is
/// served in pieces.
const SEARCH_WORDS: usize = 256;

/// One block of the area in this many stays free of copies, so that a write finds room without waiting for reads of these.
const FREE_SHARE: u32 = 64;

/// Copies that are dropped at once when they are not wanted any more: nobody else does anything meanwhile. The areas of tests
/// are small.
const DROPPED_AT_ONCE: u32 = if cfg!(test) { 32 } else { 1024 };

/// The free blocks of a store.
pub struct Allocator {
    /// Of the capacity drive.
    capacity: Region,
    /// Of the area on the cache drive, if there is one.
    area: Option<Region>,
    /// What the area holds copies of; `None` while what is read is not kept there, and nothing is left of it.
    copies: Option<Copies>,
    /// What memory holds copies of, if it does.
    in_memory: Option<MemoryCache>,
    reads: ReadTickets,
    /// Blocks that wait for reads, with the ticket that must end first.
    released: VecDeque<(u64, Run)>,
}

impl Allocator {
    /// All blocks of the capacity drive from `first_block` up to, but without, `end_block` are free.
    pub fn new(first_block: u32, end_block: u32) -> Self {
        let capacity = Region::new(first_block, end_block);
        Self {
            capacity,
            area: None,
            copies: None,
            in_memory: None,
            reads: ReadTickets::default(),
            released: VecDeque::new(),
        }
    }

    /// The same with those of an area, which lie behind those of the capacity drive.
    pub fn with_area(self, first_block: u32, end_block: u32) -> Self {
        assert!(first_block >= self.capacity.end_block, "an area lies behind the capacity drive");
        Self { area: Some(Region::new(first_block, end_block)), ..self }
    }

    /// Blocks of the capacity drive that can be handed out now.
    #[cfg(test)]
    pub fn free_blocks(&self) -> u32 {
        self.capacity.free_blocks
    }

    /// Blocks of the capacity drive that are neither free nor waiting for reads to end.
    pub fn used_blocks(&self) -> u32 {
        let waiting = self.released.iter().filter(|(_, run)| self.capacity.contains(run));
        self.capacity.taken_blocks() - waiting.map(|(_, run)| run.count).sum::<u32>()
    }

    /// How the blocks of the area are used.
    pub fn area_blocks(&self) -> AreaUse {
        let Some(area) = &self.area else { return AreaUse::default() };
        let copies = self.copies.as_ref().map_or(0, |copies| copies.index.count() as u32);
        AreaUse { total: area.block_count(), free: area.free_blocks, copies }
    }

    /// Takes a certain block, as recovery does. False if it is not free or there is no such block.
    pub fn take(&mut self, block: u32) -> bool {
        let run = Run { first: block, count: 1 };
        self.region_of(&run).is_some_and(|region| region.take(block))
    }

    /// Takes `count` blocks of the capacity drive in as few runs as is cheap to find, leaving at least `keep` free.
    /// `None`, and nothing changes, if there are too few.
    pub fn allocate(&mut self, count: u32, keep: u32) -> Option<Runs> {
        self.capacity.allocate(count, keep)
    }

    /// The same of the area. Copies give way.
    pub fn allocate_in_area(&mut self, count: u32, keep: u32) -> Option<Runs> {
        self.evict_copies(count.saturating_add(keep));
        self.area.as_mut()?.allocate(count, keep)
    }

    /// Whether copies of what is read are kept in the area from now on. If not, those that are there go step by step, with
    /// [`Self::drop_unwanted_copies`].
    pub fn keep_copies(&mut self, keeps: bool) {
        match (&mut self.copies, &self.area) {
            (Some(copies), _) => copies.are_wanted = keeps,
            (None, Some(area)) if keeps => {
                let index = ReadIndex::new(area.first_block, area.end_block);
                self.copies = Some(Copies { index, arriving: FxHashMap::default(), are_wanted: true });
            }
            _ => {}
        }
    }

    /// Drops some of the copies that are not wanted any more. Returns whether there are more.
    pub fn drop_unwanted_copies(&mut self) -> bool {
        for _ in 0..DROPPED_AT_ONCE {
            let Some(copies) = self.copies.as_mut().filter(|copies| !copies.are_wanted) else { return false };
            match copies.index.evict() {
                Some(evicted) => self.release(Run { first: evicted.place, count: 1 }),
                None => self.copies = None,
            }
        }
        true
    }

    /// Keeps copies of what is read in so much memory from now on; in none, if that is zero blocks.
    pub fn keep_in_memory(&mut self, blocks: u32) {
        let room = self.in_memory.as_ref().map_or(0, MemoryCache::room_blocks);
        if room != blocks {
            self.in_memory = (blocks > 0).then(|| MemoryCache::new(blocks));
        }
    }

    /// The copies in memory, if there are to be any.
    pub fn in_memory(&mut self) -> Option<&mut MemoryCache> {
        self.in_memory.as_mut()
    }

    /// Where in the area the copy of a block stands; that counts as a use of it.
    pub fn copy_of(&mut self, block: u32) -> Option<u32> {
        self.copies.as_mut()?.index.hit(block)
    }

    /// Takes a place in the area for a copy of a block of the capacity drive. None if there is a copy already, or no room now.
    pub fn begin_copy(&mut self, block: u32) -> Option<u32> {
        let copies = self.copies.as_ref().filter(|copies| copies.are_wanted)?;
        if copies.index.holds(block) || copies.arriving.contains_key(&block) {
            return None;
        }
        let area = self.area.as_ref()?;
        let keep = area.block_count() / FREE_SHARE;
        if area.free_blocks <= keep {
            self.evict_copies(area.free_blocks + 1);
        }
        let place = self.area.as_mut()?.allocate(1, keep / 2)?[0].first;
        self.copies.as_mut()?.arriving.insert(block, place);
        Some(place)
    }

    /// The copy has been written, or could not be.
    pub fn end_copy(&mut self, block: u32, place: u32, is_written: bool) {
        if let Some(copies) = &mut self.copies
            && copies.arriving.get(&block) == Some(&place)
        {
            copies.arriving.remove(&block);
            if is_written && copies.are_wanted {
                copies.index.insert(block, place);
                return;
            }
        }
        // Nobody has been told of the place yet.
        self.free_now(Run { first: place, count: 1 });
    }

    /// A block of the capacity drive holds what stands at `place` in the area, and the mapping that led there leads there no
    /// more: it stays as a copy, if there are any.
    pub fn release_as_copy(&mut self, place: u32, block: u32) {
        let has_room =
            self.area.as_ref().is_some_and(|area| area.free_blocks > area.block_count() / FREE_SHARE);
        match self.copies.as_mut().filter(|copies| has_room && copies.are_wanted) {
            Some(copies) => {
                copies.index.insert(block, place);
                // No mapping leads there any more: nobody would ask for it.
                self.in_memory.iter_mut().for_each(|in_memory| in_memory.drop_copy(place));
            }
            None => self.release(Run { first: place, count: 1 }),
        }
    }

    /// Drops the copy of a block, if there is one.
    pub fn drop_copy(&mut self, block: u32) {
        let Some(copies) = &mut self.copies else { return };
        // One that is still being written is not wanted any more; its place is freed when it has been.
        copies.arriving.remove(&block);
        if let Some(place) = copies.index.remove(block) {
            self.release(Run { first: place, count: 1 });
        }
    }

    /// Drops all copies of blocks that are given up.
    fn drop_all_copies(&mut self, run: Run) {
        if self.copies.is_some() && self.capacity.contains(&run) {
            (run.first..run.first + run.count).for_each(|block| self.drop_copy(block));
        }
        if let Some(in_memory) = &mut self.in_memory {
            (run.first..run.first + run.count).for_each(|block| in_memory.drop_copy(block));
        }
    }

    /// Drops so many copies that `wanted` blocks of the area are free, or will be when the reads that are under way have ended.
    fn evict_copies(&mut self, wanted: u32) {
        let free = self.area.as_ref().map_or(0, |area| area.free_blocks);
        for _ in free..wanted {
            let Some(evicted) = self.copies.as_mut().and_then(|copies| copies.index.evict()) else { return };
            self.release(Run { first: evicted.place, count: 1 });
        }
    }

    /// Blocks of which there is a copy although they are free: there are none.
    #[cfg(test)]
    pub fn copies_of_free_blocks(&self) -> Vec<u32> {
        let copies = self.copies.iter().flat_map(|copies| copies.index.blocks());
        let is_free = |block: &u32| self.capacity.is_free(*block - self.capacity.first_block);
        copies.filter(is_free).collect()
    }

    /// Takes these blocks of the capacity drive if all of them are free, and at least `keep` others.
    pub fn take_run(&mut self, run: Run, keep: u32) -> bool {
        self.capacity.free_blocks >= run.count.saturating_add(keep) && self.capacity.take_run(run)
    }

    /// Gives blocks back that no read can be looking at.
    pub fn free_now(&mut self, run: Run) {
        self.region_of(&run).unwrap_or_else(|| panic!("blocks {run:?} are not data blocks")).set_free(run);
    }

    /// Gives blocks back once the reads that are under way now have ended.
    pub fn release(&mut self, run: Run) {
        if !canary::is_planted(Bug::CopyOutlivesBlock) {
            self.drop_all_copies(run);
        }
        if self.reads.none_open() {
            self.free_now(run);
        } else {
            witness::reached(Rare::PinnedWhileReplaced);
            self.released.push_back((self.reads.next, run));
        }
    }

    /// A read begins: blocks released from now on wait for it.
    pub fn begin_read(&mut self) -> u64 {
        self.reads.open()
    }

    /// The read with `ticket` has ended.
    pub fn end_read(&mut self, ticket: u64) {
        self.reads.close(ticket);
        let oldest_open = self.reads.first;
        while let Some((barrier, run)) = self.released.front().copied() {
            if barrier > oldest_open {
                break;
            }
            self.released.pop_front();
            self.free_now(run);
        }
    }

    fn region_of(&mut self, run: &Run) -> Option<&mut Region> {
        let mut regions = [Some(&mut self.capacity), self.area.as_mut()].into_iter().flatten();
        regions.find(|region| region.contains(run))
    }
}

/// Copies of blocks of the capacity drive in the area.
struct Copies {
    index: ReadIndex,
    /// Blocks whose copies are being written, and where.
    arriving: FxHashMap<u32, u32>,
    /// If not, no more of them come, and those that are there are about to go.
    are_wanted: bool,
}

/// How the blocks of an area are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AreaUse {
    /// All of them.
    pub total: u32,
    /// Those that can be handed out now.
    pub free: u32,
    /// Those that hold copies, which give way.
    pub copies: u32,
}

/// The free blocks of one medium.
struct Region {
    first_block: u32,
    end_block: u32,
    /// One bit a block, set when free. Bit 0 of word 0 is `first_block`.
    words: Vec<u64>,
    /// One bit a word of `words`, set when that word has a free block.
    summary: Vec<u64>,
    free_blocks: u32,
    cursor: u32,
}

impl Region {
    fn new(first_block: u32, end_block: u32) -> Self {
        let count = (end_block - first_block) as usize;
        let mut region = Self {
            first_block,
            end_block,
            words: vec![0; count.div_ceil(64)],
            summary: vec![0; count.div_ceil(64 * 64)],
            free_blocks: 0,
            cursor: 0,
        };
        region.set_free(Run { first: first_block, count: count as u32 });
        region
    }

    fn contains(&self, run: &Run) -> bool {
        run.first >= self.first_block && run.first < self.end_block && run.count <= self.end_block - run.first
    }

    fn taken_blocks(&self) -> u32 {
        self.block_count() - self.free_blocks
    }

    fn is_free(&self, index: u32) -> bool {
        self.words[index as usize / 64] & (1 << (index % 64)) != 0
    }

    fn take(&mut self, block: u32) -> bool {
        self.take_run(Run { first: block, count: 1 })
    }

    fn take_run(&mut self, run: Run) -> bool {
        let start = run.first.wrapping_sub(self.first_block);
        let is_free = self.contains(&run) && (start..start + run.count).all(|index| self.is_free(index));
        if is_free {
            self.clear_free(start, run.count);
        }
        is_free
    }

    fn allocate(&mut self, count: u32, keep: u32) -> Option<Runs> {
        if self.free_blocks < count.saturating_add(keep) {
            return None;
        }
        let mut runs = Runs::new();
        let mut missing = count;
        if missing > 1
            && let Some(start) = self.find_whole_run(missing)
        {
            self.cursor = start;
        }
        while missing > 0 {
            let start = self.next_free(self.cursor).expect("as many blocks are free as were counted");
            let length = self.run_length(start, missing);
            self.clear_free(start, length);
            self.cursor = start + length;
            runs.push(Run { first: self.first_block + start, count: length });
            missing -= length;
        }
        Some(runs)
    }

    fn block_count(&self) -> u32 {
        self.end_block - self.first_block
    }

    /// The first free index at or behind `from`, wrapping around.
    fn next_free(&self, from: u32) -> Option<u32> {
        let from = if from >= self.block_count() { 0 } else { from };
        self.next_free_before_end(from).or_else(|| self.next_free_before_end(0))
    }

    fn next_free_before_end(&self, from: u32) -> Option<u32> {
        let word = from as usize / 64;
        let rest = self.words.get(word)? & (u64::MAX << (from % 64));
        if rest != 0 {
            return Some(word as u32 * 64 + rest.trailing_zeros());
        }
        let next = word + 1;
        let mut summary_word = next / 64;
        let mut bits = self.summary.get(summary_word)? & (u64::MAX << (next % 64));
        while bits == 0 {
            summary_word += 1;
            bits = *self.summary.get(summary_word)?;
        }
        let word = summary_word * 64 + bits.trailing_zeros() as usize;
        Some(word as u32 * 64 + self.words[word].trailing_zeros())
    }

    /// How many blocks from `start` on are free, up to `limit`.
    fn run_length(&self, start: u32, limit: u32) -> u32 {
        let end = self.block_count().min(start.saturating_add(limit));
        let mut index = start;
        while index < end {
            let free = (self.words[index as usize / 64] >> (index % 64)).trailing_ones();
            if free == 0 {
                break;
            }
            index += free;
            if !index.is_multiple_of(64) {
                break;
            }
        }
        index.min(end) - start
    }

    /// The start of a run of at least `count` blocks not far behind the cursor.
    fn find_whole_run(&self, count: u32) -> Option<u32> {
        let mut searched = 0;
        let mut from = self.cursor;
        while searched < SEARCH_WORDS {
            let start = self.next_free(from)?;
            let length = self.run_length(start, count);
            if length == count {
                return Some(start);
            }
            searched += 1 + length as usize / 64;
            from = start + length;
        }
        None
    }

    fn clear_free(&mut self, start: u32, count: u32) {
        for index in start..start + count {
            let word = index as usize / 64;
            debug_assert!(self.words[word] & (1 << (index % 64)) != 0);
            self.words[word] &= !(1 << (index % 64));
            if self.words[word] == 0 {
                self.summary[word / 64] &= !(1 << (word % 64));
            }
        }
        self.free_blocks -= count;
    }

    fn set_free(&mut self, run: Run) {
        let start = run.first - self.first_block;
        for index in start..start + run.count {
            let word = index as usize / 64;
            assert!(self.words[word] & (1 << (index % 64)) == 0, "block {} is freed twice", run.first);
            self.words[word] |= 1 << (index % 64);
            self.summary[word / 64] |= 1 << (word % 64);
        }
        self.free_blocks += run.count;
    }
}

/// The reads that are under way, numbered in the order of their beginnings.
#[derive(Default)]
struct ReadTickets {
    /// The oldest read that has not ended; equal to `next` if there is none.
    first: u64,
    next: u64,
    /// For each ticket from `first` on: whether it has ended.
    ended: VecDeque<bool>,
}

impl ReadTickets {
    fn none_open(&self) -> bool {
        self.first == self.next
    }

    fn open(&mut self) -> u64 {
        self.next += 1;
        self.ended.push_back(false);
        self.next - 1
    }

    fn close(&mut self, ticket: u64) {
        self.ended[(ticket - self.first) as usize] = true;
        while self.ended.front() == Some(&true) {
            self.ended.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
#[path = "allocator_tests.rs"]
mod tests;
