//! Which blocks a leg that is not in sync may have missed, as far as this owner knows.
//!
//! By versions it can be told only page by page. But an owner that has seen a leg fall out knows block by block what the leg may
//! lack: the writes that were under way then, and all that came since. The same holds of a page that a resync has made
//! whole. So a resync copies these blocks and no others, and one that is interrupted goes on where it was.
//!
//! This is the memory of one ownership. The next one, and this one where it becomes too much, knows nothing of a page, and
//! has the contents compared.
//!
//! Invariant: of a page that is known, every block whose content the leg may lack as writes went on is listed, from before
//! the write is sent until it was copied. What a drive has lost by itself is not listed.

use std::cell::RefCell;
use std::collections::BTreeMap;

use spandrel_shared::geometry::SlabRange;
use spandrel_shared::{PAGE_BLOCKS, SlabIndex};

use crate::membership::LegId;

/// Pages that are remembered of one leg: some 100 MiB of memory, if every one of them has missed something.
const PAGES_MAX: usize = 1 << 20;

const WORDS: usize = PAGE_BLOCKS as usize / 64;

/// A set of blocks of one page, by their number in the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockSet {
    /// A bit for each block. None while the set is empty, which most are.
    bits: Option<Box<[u64; WORDS]>>,
}

impl BlockSet {
    pub(crate) fn insert(&mut self, block: u32) {
        let bits = self.bits.get_or_insert_default();
        bits[block as usize / 64] |= 1 << (block % 64);
    }

    pub(crate) fn contains(&self, block: u32) -> bool {
        self.bits.as_ref().is_some_and(|bits| bits[block as usize / 64] & (1 << (block % 64)) != 0)
    }

    fn extend(&mut self, other: &BlockSet) {
        for block in (0..PAGE_BLOCKS).filter(|block| other.contains(*block)) {
            self.insert(block);
        }
    }

    /// The blocks in stretches that follow each other: the first, and how many.
    pub(crate) fn stretches(&self) -> Vec<(u32, u32)> {
        let mut stretches: Vec<(u32, u32)> = Vec::new();
        for block in (0..PAGE_BLOCKS).filter(|block| self.contains(*block)) {
            match stretches.last_mut() {
                Some((first, count)) if *first + *count == block => *count += 1,
                _ => stretches.push((block, 1)),
            }
        }
        stretches
    }
}

/// What is known of a page of a leg.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MissedInPage {
    /// Whether `blocks` are all that the leg can have missed.
    pub(crate) is_known: bool,
    /// Blocks that it may have missed.
    pub(crate) blocks: BlockSet,
}

/// A page that is being copied. What was taken is missed again, unless all of it was copied: also if whoever copies is
/// stopped half way.
pub(crate) struct TakenPage<'a> {
    from: &'a MissedBlocks,
    leg: LegId,
    slab: SlabIndex,
    page: u32,
    /// What was known.
    pub(crate) missed: MissedInPage,
    is_whole: bool,
}

impl TakenPage<'_> {
    /// All of it was copied.
    pub(crate) fn made_whole(mut self) {
        self.is_whole = true;
    }
}

impl Drop for TakenPage<'_> {
    fn drop(&mut self) {
        self.from.change(self.leg, self.slab, self.page, |page| match self.is_whole {
            true => page.is_known = true,
            false => page.blocks.extend(&self.missed.blocks),
        });
    }
}

/// What the legs may have missed.
#[derive(Default)]
pub(crate) struct MissedBlocks {
    legs: RefCell<BTreeMap<LegId, MissedByLeg>>,
}

struct MissedByLeg {
    /// Whether a page that is not listed is known to have missed nothing.
    others_are_known: bool,
    /// None if that became too many: nothing is known then until the leg is in sync.
    pages: Option<BTreeMap<(SlabIndex, u32), MissedInPage>>,
}

impl MissedByLeg {
    fn new(others_are_known: bool) -> Self {
        Self { others_are_known, pages: Some(BTreeMap::new()) }
    }

    fn page(&mut self, slab: SlabIndex, page: u32) -> Option<&mut MissedInPage> {
        let pages = self.pages.as_mut()?;
        if pages.len() >= PAGES_MAX && !pages.contains_key(&(slab, page)) {
            self.pages = None;
            return None;
        }
        let unlisted = MissedInPage { is_known: self.others_are_known, blocks: BlockSet::default() };
        Some(self.pages.as_mut()?.entry((slab, page)).or_insert(unlisted))
    }

    fn note(&mut self, piece: SlabRange) {
        for page in piece.first / PAGE_BLOCKS..piece.end().div_ceil(PAGE_BLOCKS) {
            let start = page * PAGE_BLOCKS;
            let blocks = piece.first.max(start)..piece.end().min(start + PAGE_BLOCKS);
            let Some(missed) = self.page(piece.slab, page) else { return };
            blocks.for_each(|block| missed.blocks.insert(block - start));
        }
    }
}

impl MissedBlocks {
    /// A leg that was in sync is not any more: it may lack the writes that are under way, and nothing else yet.
    pub(crate) fn begin(&self, leg: LegId, under_way: impl Iterator<Item = SlabRange>) {
        let mut missed = MissedByLeg::new(true);
        under_way.for_each(|piece| missed.note(piece));
        self.legs.borrow_mut().insert(leg, missed);
    }

    /// From now on notes what a leg may miss of which nothing was known so far.
    pub(crate) fn follow(&self, leg: LegId) {
        self.legs.borrow_mut().entry(leg).or_insert_with(|| MissedByLeg::new(false));
    }

    /// These blocks are about to be written.
    pub(crate) fn note(&self, piece: SlabRange) {
        for missed in self.legs.borrow_mut().values_mut() {
            missed.note(piece);
        }
    }

    /// A leg lacks something that this owner has not seen: nothing is known of its pages any more, but that what is noted may be
    /// missing.
    pub(crate) fn distrust(&self, leg: LegId) {
        if let Some(missed) = self.legs.borrow_mut().get_mut(&leg) {
            missed.others_are_known = false;
            missed.pages.iter_mut().flat_map(BTreeMap::values_mut).for_each(|page| page.is_known = false);
        }
    }

    /// Takes what is known of a page that is about to be copied. What is noted of it from now on is noted anew.
    pub(crate) fn take(&self, leg: LegId, slab: SlabIndex, page: u32) -> TakenPage<'_> {
        let take = |page: &mut MissedInPage| MissedInPage {
            is_known: page.is_known,
            blocks: std::mem::take(&mut page.blocks),
        };
        let missed = self.change(leg, slab, page, take).unwrap_or_default();
        TakenPage { from: self, leg, slab, page, missed, is_whole: false }
    }

    fn change<T>(
        &self,
        leg: LegId,
        slab: SlabIndex,
        page: u32,
        change: impl FnOnce(&mut MissedInPage) -> T,
    ) -> Option<T> {
        self.legs.borrow_mut().get_mut(&leg)?.page(slab, page).map(change)
    }

    /// Forgets all legs but those that `is_kept`: others are in sync, or gone.
    pub(crate) fn retain(&self, is_kept: impl Fn(LegId) -> bool) {
        self.legs.borrow_mut().retain(|leg, _| is_kept(*leg));
    }
}

#[cfg(test)]
#[path = "missed_tests.rs"]
mod tests;
