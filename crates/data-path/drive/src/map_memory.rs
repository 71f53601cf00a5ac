//! How much of a drive's maps is in memory.
//!
//! A leaf takes 4 KiB of memory for each 2 MiB that are mapped. Where that is bounded, leaves that were not needed lately are
//! evicted, and read back when they are needed: a read waits for that, and of a change the leaves are read while its journal group is
//! written. What is evicted next is found by a second chance: of the leaves that may be evicted the one that was listed first,
//! unless it was needed since; then it is listed anew.
//!
//! A leaf that has changed since the last durable root stays until the next one: only then what stands on the drive is sure to be
//! what is in memory. So a checkpoint begins when half of the leaves that may be in memory have changed, and no group that
//! changes leaves is written when all of them have. What a journal has changed is in memory again after its replay: at most about twice the
//! bound, as what changes while a checkpoint runs can stand behind the place where the journal is read from.
//!
//! Where all that an evicted leaf maps is given up, as when a slab is removed, that waits for nothing: the leaf is read afterwards,
//! to see which blocks are free again. After a crash a recovery counts them.
//!
//! Invariants:
//! - Only what stands durably on the drive as it is in memory is evicted.
//! - A leaf that a group is about to change is not evicted. The commit task holds it; a bound holds from between two groups on.
//! - The mapping of a block whose leaf is evicted is never taken for a hole.
//! - The place of a leaf that is still to be read for what was given up with it is not used again.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use rustc_hash::FxHashSet;
use spandrel_platform::Platform;
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{BLOCK_BYTES, CopyId, PAGE_BLOCKS};

use crate::error::StoreError;
use crate::format::journal::Record;
use crate::format::map::{Leaf, Mapping, PagePointer, decode_leaf};
use crate::slab_copy::{Page, SlabCopy};
use crate::state::{State, release};
use crate::store::{Inner, SlabSlot};

/// Leaves that are looked at for each one that is to be evicted, before it is left for the next time. Most have been needed
/// since they were listed where memory is just too small.
const LOOKS_PER_LEAF: usize = 8;

/// Leaves that are looked at in one step towards a new bound, and pages that are listed in one.
const LOOKS_PER_STEP: usize = if cfg!(test) { 3 } else { 1024 };

/// Between two steps of long work others get a turn.
pub(crate) const STEP_INTERVAL: Duration = Duration::from_millis(1);

/// Leaves that are read at once.
const LEAVES_AT_ONCE: usize = 256;

/// Leaves of what was given up that are read at once.
const GIVEN_UP_AT_ONCE: usize = 64;

/// Leaves that one group may change in any case.
const GROUP_LEAVES_MIN: usize = 4;

/// A page of a slab copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PagePlace {
    /// The slab's slot.
    pub slab_slot: u32,
    /// The page within the slab.
    pub page: u32,
}

/// How a page counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageTally {
    /// Its leaf is in memory.
    pub in_memory: bool,
    /// So it is, and it has changed since the newest durable root.
    pub unsettled: bool,
    /// Its leaf is on the drive alone.
    pub evicted: bool,
}

/// How much of a drive's maps is in memory, and may be.
#[derive(Debug)]
pub struct MapMemory {
    leaves_max: Cell<usize>,
    /// What the bound is to be, from the next moment on between two groups.
    leaves_max_wished: Cell<usize>,
    leaves: Cell<usize>,
    unsettled: Cell<usize>,
    evicted: Cell<usize>,
    /// Pages whose leaves might be evicted when they were listed, each once. While there is no bound none are added.
    evictable: RefCell<VecDeque<Listed>>,
    /// Where the pages begin that were not listed while there was no bound; none once that is done.
    unlisted_from: Cell<Option<u32>>,
}

/// A page in the list, unless its slab has gone.
#[derive(Clone, Copy, Debug)]
struct Listed {
    place: PagePlace,
    copy: CopyId,
}

/// Leaves of which all that they map was given up, and that are still to be read for what that was.
#[derive(Default)]
pub struct GivenUp {
    leaves: VecDeque<PagePointer>,
    /// Where they stand.
    blocks: FxHashSet<u32>,
}

impl GivenUp {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    fn add(&mut self, leaf: PagePointer) {
        self.leaves.push_back(leaf);
        self.blocks.insert(leaf.block);
    }

    /// The first ones are read.
    fn remove_first(&mut self, count: usize) {
        for leaf in self.leaves.drain(..count) {
            self.blocks.remove(&leaf.block);
        }
    }

    /// Takes those of map pages that no root names any more out that are still to be read.
    pub fn take_unread(&self, pages: &mut Vec<u32>) -> Vec<u32> {
        pages.extract_if(.., |page| self.blocks.contains(page)).collect()
    }
}

impl Default for MapMemory {
    fn default() -> Self {
        Self {
            leaves_max: Cell::new(usize::MAX),
            leaves_max_wished: Cell::new(usize::MAX),
            leaves: Cell::new(0),
            unsettled: Cell::new(0),
            evicted: Cell::new(0),
            evictable: RefCell::default(),
            unlisted_from: Cell::new(None),
        }
    }
}

impl MapMemory {
    /// As many leaves as fit into `bytes_max`, or all of them, once [`Self::adopt_bound`] is called.
    pub fn wish_for(&self, bytes_max: Option<u64>) {
        let leaves_max = bytes_max.map(|bytes| usize::try_from(bytes / BLOCK_BYTES as u64));
        let leaves_max = leaves_max.map_or(usize::MAX, |leaves| leaves.unwrap_or(usize::MAX).max(1));
        self.leaves_max_wished.set(leaves_max);
    }

    /// Whether the bound that is wished for holds.
    pub fn is_bound_adopted(&self) -> bool {
        self.leaves_max_wished == self.leaves_max
    }

    /// The bound that is wished for holds from now on. Only while no group is written.
    pub fn adopt_bound(&self) {
        let was_bounded = self.is_bounded();
        self.leaves_max.set(self.leaves_max_wished.get());
        if self.is_bounded() && !was_bounded {
            self.unlisted_from.set(Some(0));
        }
    }

    fn is_bounded(&self) -> bool {
        self.leaves_max.get() < usize::MAX
    }

    /// How many bytes of leaves may be in memory; all of them if none.
    #[cfg(test)]
    pub fn bytes_max(&self) -> Option<u64> {
        let leaves_max = self.leaves_max_wished.get();
        (leaves_max < usize::MAX).then(|| leaves_max as u64 * BLOCK_BYTES as u64)
    }

    /// Whether all leaves are in memory, and stay there until another bound is adopted.
    fn is_whole(&self) -> bool {
        !self.is_bounded() && self.evicted.get() == 0
    }

    /// How many pages count as what.
    #[cfg(test)]
    pub fn counted(&self) -> [usize; 3] {
        [&self.leaves, &self.unsettled, &self.evicted].map(Cell::get)
    }

    /// Leaves in memory.
    pub fn leaves(&self) -> usize {
        self.leaves.get()
    }

    /// Whether leaves are to be evicted to make room for `more`, and some may be.
    fn is_full(&self, more: usize) -> bool {
        self.leaves.get().saturating_add(more) > self.leaves_max.get() && !self.evictable.borrow().is_empty()
    }

    /// Whether there is something to be done towards the bound.
    pub fn is_to_shrink(&self) -> bool {
        self.is_full(0) || self.unlisted_from.get().is_some()
    }

    /// Whether so many leaves have changed that it is time for a checkpoint.
    pub fn is_filling_up(&self) -> bool {
        self.unsettled.get() > self.leaves_max.get() / 2
    }

    /// How many leaves the next group may change, about: all if there is no bound, none if a checkpoint must come first.
    pub fn group_leaves_max(&self) -> usize {
        match self.leaves_max.get() {
            usize::MAX => usize::MAX,
            max if self.unsettled.get() >= max => 0,
            max => (max / 8).max(GROUP_LEAVES_MIN),
        }
    }

    /// A page counts differently from now on.
    pub fn recount(&self, before: PageTally, after: PageTally) {
        if before == after {
            return;
        }
        let counted = [
            (&self.leaves, before.in_memory, after.in_memory),
            (&self.unsettled, before.unsettled, after.unsettled),
            (&self.evicted, before.evicted, after.evicted),
        ];
        for (counter, before, after) in counted {
            counter.set(counter.get() + usize::from(after) - usize::from(before));
        }
    }
}

impl State {
    /// From now on so many bytes of leaves are in memory at most, about, or all of them. Only while no group is written.
    pub fn bound_map_memory(&mut self, bytes_max: Option<u64>) {
        self.map_memory.wish_for(bytes_max);
        self.map_memory.adopt_bound();
    }

    /// The page at a place, if there is one.
    pub fn page_mut(&mut self, place: PagePlace) -> Option<&mut Page> {
        self.slabs.get_mut(place.slab_slot)?.pages.get_mut(place.page as usize)
    }

    /// The leaf of a page may be evicted from now on, if it is in memory and stands on the drive.
    pub fn list_evictable(&mut self, place: PagePlace) {
        let memory = Rc::clone(&self.map_memory);
        let Some(slab) = self.slabs.get_mut(place.slab_slot).filter(|_| memory.is_bounded()) else { return };
        let (copy, page) = (slab.copy, &mut slab.pages[place.page as usize]);
        if page.is_listed || !page.is_evictable() {
            return;
        }
        page.is_listed = true;
        memory.evictable.borrow_mut().push_back(Listed { place, copy });
        // What was given up, or has changed, stays in the list until its turn has come, or half of it could be such.
        let listed = memory.evictable.borrow().len();
        if listed > 2 * memory.leaves.get() + LOOKS_PER_STEP {
            let listed = memory.evictable.take();
            let evictable = listed.into_iter().filter(|listed| self.is_evictable(listed)).collect();
            memory.evictable.replace(evictable);
        }
    }

    /// Whether the leaf of a page that was listed can still be evicted. If not, the page is listed no more.
    fn is_evictable(&mut self, listed: &Listed) -> bool {
        let slab = self.slabs.get_mut(listed.place.slab_slot).filter(|slab| slab.copy == listed.copy);
        let Some(slab) = slab else { return false };
        let page = &mut slab.pages[listed.place.page as usize];
        page.is_listed = page.is_evictable();
        page.is_listed
    }

    /// Lists some of the pages that were not listed while there was no bound.
    fn list_more(&mut self) {
        let memory = Rc::clone(&self.map_memory);
        let Some(first) = memory.unlisted_from.take() else { return };
        let mut pages = 0;
        for slab_slot in first..self.slabs.end() {
            if pages >= LOOKS_PER_STEP {
                memory.unlisted_from.set(Some(slab_slot));
                return;
            }
            let of_slab = self.slabs.get(slab_slot).map_or(0, |slab| slab.pages.len());
            (0..of_slab as u32).for_each(|page| self.list_evictable(PagePlace { slab_slot, page }));
            pages += of_slab + 1;
        }
    }

    /// Evicts leaves until there is room for `more`, as far as some are found soon.
    pub fn evict_leaves(&mut self, more: usize) {
        self.evict_among(more, LOOKS_PER_LEAF * more.max(LOOKS_PER_LEAF));
    }

    fn evict_among(&mut self, more: usize, looks_max: usize) {
        let memory = Rc::clone(&self.map_memory);
        for _ in 0..looks_max {
            if !memory.is_full(more) {
                return;
            }
            let Some(listed) = memory.evictable.borrow_mut().pop_front() else { return };
            // If it has changed, it is listed again when that is on the drive.
            if !self.is_evictable(&listed) {
                continue;
            }
            let Some(page) = self.page_mut(listed.place) else { continue };
            if page.take_need() {
                memory.evictable.borrow_mut().push_back(listed);
                continue;
            }
            page.is_listed = false;
            page.evict(&memory);
            witness::reached(Rare::LeafEvicted);
        }
    }

    /// The leaves of these pages stay in memory until [`State::let_go_of_leaves`].
    pub fn hold_leaves(&mut self, places: &[PagePlace]) {
        for place in places {
            self.page_mut(*place).expect("its pages are held while the slab is there").hold();
        }
    }

    /// What [`State::hold_leaves`] began has ended. A slab can have been removed by the group that its pages were held for; its
    /// slot is not another one's before a checkpoint.
    pub fn let_go_of_leaves(&mut self, places: &[PagePlace]) {
        for place in places {
            if let Some(page) = self.page_mut(*place) {
                page.let_go();
            }
        }
    }

    /// The pages whose leaves must be in memory for a record to be applied: those of which it changes a part.
    fn pages_of(&self, record: &Record) -> Vec<PagePlace> {
        let Some((slab_slot, first, count)) = blocks_of(record) else { return Vec::new() };
        if !self.slabs.get(slab_slot).is_some_and(|slab| slab.contains(first, count)) {
            return Vec::new();
        }
        pages_changed_in_part(record).into_iter().map(|page| PagePlace { slab_slot, page }).collect()
    }

    /// The same of several records, each page once. None where all leaves are in memory anyway.
    pub fn pages_of_all<'r>(&self, records: impl Iterator<Item = &'r Record>) -> Vec<PagePlace> {
        if self.map_memory.is_whole() {
            return Vec::new();
        }
        let mut places: Vec<PagePlace> = records.flat_map(|record| self.pages_of(record)).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Those of the pages whose leaves are evicted, and where these stand.
    pub fn evicted(&self, places: &[PagePlace]) -> Vec<(PagePlace, PagePointer)> {
        let leaf = |place: &PagePlace| {
            let page = self.slabs.get(place.slab_slot)?.pages.get(place.page as usize)?;
            page.is_evicted().then_some((*place, page.entry.leaf))
        };
        places.iter().filter_map(leaf).collect()
    }

    /// Takes a leaf that was read from `pointer`, if the page still lacks that one. Returns false if what was read is no leaf:
    /// nothing is known of the page's blocks then.
    pub fn take_leaf(&mut self, place: PagePlace, pointer: PagePointer, leaf: Option<Box<Leaf>>) -> bool {
        let memory = Rc::clone(&self.map_memory);
        let Some(slab) = self.slabs.get_mut(place.slab_slot) else { return true };
        let Some(page) = slab.pages.get_mut(place.page as usize) else { return true };
        if !page.is_evicted() || page.entry.leaf != pointer {
            return true;
        }
        match leaf {
            Some(leaf) => {
                page.put(leaf, &memory);
                witness::reached(Rare::LeafReadBack);
                self.list_evictable(place);
                true
            }
            None => {
                page.lose_all(&memory);
                slab.dirty = true;
                false
            }
        }
    }

    /// What a leaf that is evicted maps is given up. Without an allocator nothing is freed: a recovery counts afterwards.
    pub fn give_up(&mut self, leaf: PagePointer) {
        if self.allocator.is_some() {
            self.given_up.add(leaf);
        }
    }
}

/// The blocks that a record changes: a slab's slot, the first one, and how many.
fn blocks_of(record: &Record) -> Option<(u32, u32, u32)> {
    match record {
        Record::Write(mapping) | Record::Heal(mapping) => {
            Some((mapping.slab_slot, mapping.first, mapping.count()))
        }
        Record::Trim { slab_slot, first, count, .. } => Some((*slab_slot, *first, *count)),
        _ => None,
    }
}

/// The pages of which a record changes a part and keeps the rest: all of what it writes, and of what it trims the first and the
/// last one if they go beyond that.
pub fn pages_changed_in_part(record: &Record) -> Vec<u32> {
    let Some((_, first, count)) = blocks_of(record) else { return Vec::new() };
    let is_whole = |page: u32| matches!(record, Record::Trim { .. }) && is_page_within(page, first, count);
    pages_within(first, count).filter(|page| !is_whole(*page)).collect()
}

/// The pages in which `count` blocks from `first` on lie.
pub fn pages_within(first: u32, count: u32) -> RangeInclusive<u32> {
    first / PAGE_BLOCKS..=(first + count - 1) / PAGE_BLOCKS
}

/// Whether all blocks of a page are among `count` blocks from `first` on.
pub fn is_page_within(page: u32, first: u32, count: u32) -> bool {
    first <= page * PAGE_BLOCKS && (page + 1) * PAGE_BLOCKS <= first + count
}

/// Has as many leaves as are wished for in memory, from between two groups on: called by the commit task.
pub(crate) fn adopt_bound<P: Platform>(inner: &Inner<P>) {
    let memory = Rc::clone(&inner.state.borrow().map_memory);
    if memory.is_bound_adopted() {
        return;
    }
    memory.adopt_bound();
    if memory.is_filling_up() {
        crate::checkpoint::wish(inner);
    }
    inner.progress.notify_all();
}

/// The task that evicts what is too much for the bound step by step, where no request is there to do it: after a bound was set, or
/// a checkpoint has ended. Ends when the store fails.
pub(crate) async fn keep_bound<P: Platform>(inner: Rc<Inner<P>>) {
    let has_failed = || inner.failure.borrow().is_some();
    loop {
        let is_to_shrink = || inner.state.borrow().map_memory.is_to_shrink();
        inner.progress.wait_until(|| is_to_shrink() || has_failed()).await;
        if has_failed() {
            return;
        }
        {
            let mut state = inner.state.borrow_mut();
            state.list_more();
            state.evict_among(0, LOOKS_PER_STEP);
        }
        if !is_to_shrink() {
            inner.progress.notify_all();
        }
        inner.platform.sleep(STEP_INTERVAL).await;
    }
}

/// The task that reads the leaves of what was given up, and frees it. Ends when the store fails.
pub(crate) async fn free_given_up<P: Platform>(inner: Rc<Inner<P>>) {
    let has_failed = || inner.failure.borrow().is_some();
    loop {
        inner.progress.wait_until(|| !inner.state.borrow().given_up.is_empty() || has_failed()).await;
        if has_failed() {
            return;
        }
        let pointers: Vec<PagePointer> =
            inner.state.borrow().given_up.leaves.iter().take(GIVEN_UP_AT_ONCE).copied().collect();
        let Ok(leaves) = inner.read_leaves(&pointers).await else { return };
        let mut state = inner.state.borrow_mut();
        // Others have come behind them meanwhile.
        state.given_up.remove_first(pointers.len());
        for (pointer, leaf) in pointers.into_iter().zip(leaves) {
            if leaf.is_none() {
                inner
                    .report_damaged_leaf(pointer, "the blocks that it mapped are free after the next attach");
            }
            for mapping in leaf.iter().flat_map(|leaf| leaf.iter()) {
                release(&mut state.allocator, *mapping, Mapping::NONE);
            }
        }
        drop(state);
        inner.progress.notify_all();
    }
}

impl<P: Platform> Inner<P> {
    /// Has the leaves of `count` blocks from `first` on in memory when it returns, and until something is waited for.
    pub(crate) async fn load_blocks(&self, slot: SlabSlot, first: u32, count: u32) -> Result<(), StoreError> {
        while let Some(leaves) = self.leaves_to_load(slot, first, count) {
            self.load(leaves).await?;
        }
        Ok(())
    }

    /// If a leaf of these blocks is evicted: where all of them stand, as those in memory may be evicted while that one is read.
    fn leaves_to_load(
        &self,
        slot: SlabSlot,
        first: u32,
        count: u32,
    ) -> Option<Vec<(PagePlace, PagePointer)>> {
        let state = self.state.borrow();
        if state.map_memory.is_whole() || canary::is_planted(Bug::EvictedIsHole) {
            return None;
        }
        let slab: &SlabCopy = state.slabs.get(slot.0).filter(|slab| slab.contains(first, count))?;
        let page = |page: u32| &slab.pages[page as usize];
        if !pages_within(first, count).any(|index| page(index).is_evicted()) {
            return None;
        }
        let on_drive = pages_within(first, count).filter(|index| !page(*index).entry.leaf.is_none());
        let leaf = |index| (PagePlace { slab_slot: slot.0, page: index }, page(index).entry.leaf);
        Some(on_drive.map(leaf).collect())
    }

    /// Has the leaves of pages in memory that are held there.
    pub(crate) async fn load_held(&self, places: &[PagePlace]) -> Result<(), StoreError> {
        loop {
            let evicted = self.state.borrow().evicted(places);
            if evicted.is_empty() {
                return Ok(());
            }
            self.load(evicted).await?;
        }
    }

    /// Reads leaves, and puts those back that are evicted, all at once.
    async fn load(&self, wanted: Vec<(PagePlace, PagePointer)>) -> Result<(), StoreError> {
        let pointers: Vec<PagePointer> = wanted.iter().map(|(_, pointer)| *pointer).collect();
        let leaves = self.read_leaves(&pointers).await?;
        let mut state = self.state.borrow_mut();
        state.evict_leaves(wanted.len());
        for ((place, pointer), leaf) in wanted.into_iter().zip(leaves) {
            if !state.take_leaf(place, pointer, leaf) {
                self.report_damaged_leaf(pointer, "what its page held is lost here");
            }
        }
        Ok(())
    }

    async fn read_leaves(&self, pointers: &[PagePointer]) -> Result<Vec<Option<Box<Leaf>>>, StoreError> {
        self.statistics.borrow_mut().leaves_read += pointers.len() as u64;
        let mut leaves = Vec::with_capacity(pointers.len());
        for step in pointers.chunks(LEAVES_AT_ONCE) {
            for leaf in join_all(step.iter().map(|pointer| self.read_leaf(*pointer))).await {
                leaves.push(leaf?);
            }
        }
        Ok(leaves)
    }

    /// A leaf, or none if there is none where it should be, also when it is read once more.
    async fn read_leaf(&self, pointer: PagePointer) -> Result<Option<Box<Leaf>>, StoreError> {
        for _ in 0..2 {
            let operation = self.load.begin_read();
            let block = self.read_block(pointer.block).await;
            operation.done(BLOCK_BYTES as u64);
            if let Some(leaf) = block?.and_then(|block| decode_leaf(&block, pointer.checksum)) {
                return Ok(Some(leaf));
            }
        }
        Ok(None)
    }

    fn report_damaged_leaf(&self, pointer: PagePointer, what_follows: &str) {
        let (drive, block) = (self.superblock.drive, pointer.block);
        tracing::error!(%drive, physical = block, "a leaf of the map is damaged: {what_follows}");
        self.statistics.borrow_mut().structures_damaged += 1;
    }
}

#[cfg(test)]
#[path = "map_memory_tests.rs"]
mod tests;
