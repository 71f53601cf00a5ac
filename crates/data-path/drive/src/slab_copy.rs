//! A copy of a slab in memory: what is known of its pages, and their mappings, as far as these are there (see `map_memory`).

use std::cell::Cell;
use std::rc::Rc;

use spandrel_platform::prefetch;
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{CopyId, PAGE_BLOCKS, SlabIndex, Version};

use crate::format::map::{Leaf, Mapping, PageEntry, PagePointer};
use crate::format::root::SlabLayout;
use crate::map_memory::{MapMemory, PageTally, pages_within};
use crate::state::AreaBlocks;

/// A page of a slab copy.
#[derive(Default)]
pub struct Page {
    /// The mappings; `None` while nothing is mapped, or while the leaf is evicted.
    leaf: Option<Box<Leaf>>,
    /// Blocks of the page that are not unmapped.
    pub mapped: u16,
    /// Of these, blocks of which it is not known what they were mapped to.
    pub lost: u16,
    /// Blocks that are mapped to the area on a cache drive.
    pub in_area: u16,
    /// What the slab's root page says, or will say, of this page.
    pub entry: PageEntry,
    /// Whether the page differs from what the slab's root page on the drive says.
    pub dirty: bool,
    /// Whether its mappings differ from those of the leaf on the drive.
    leaf_dirty: bool,
    /// Whether they have changed since the newest durable root.
    unsettled: bool,
    /// Whether the leaf must stay in memory.
    is_held: bool,
    /// Whether its mappings were needed since it was last looked at for eviction.
    is_used: Cell<bool>,
    /// Whether it stands in the list of those that may be evicted.
    pub(crate) is_listed: bool,
}

impl Page {
    /// A page without a leaf.
    pub fn empty(entry: PageEntry) -> Self {
        Self { entry, ..Self::default() }
    }

    /// A page with a leaf as it was found on the drive. It does not count yet (see [`SlabCopy::put_pages`]).
    pub fn found(leaf: Box<Leaf>, entry: PageEntry) -> Self {
        let count =
            |counts: fn(&Mapping) -> bool| leaf.iter().filter(|mapping| counts(mapping)).count() as u16;
        let mapped = count(|mapping| *mapping != Mapping::NONE);
        let lost = count(|mapping| *mapping == Mapping::UNKNOWN);
        Self { leaf: (mapped > 0).then_some(leaf), mapped, lost, entry, ..Self::default() }
    }

    /// A page of which nothing is known but the entry, less the leaf that it names. It does not count yet.
    pub fn lost(entry: PageEntry) -> Self {
        let entry = PageEntry { leaf: PagePointer::NONE, ..entry };
        let leaf = Box::new([Mapping::UNKNOWN; PAGE_BLOCKS as usize]);
        Self { dirty: true, leaf_dirty: true, unsettled: true, ..Self::found(leaf, entry) }
    }

    /// The mappings, if they are in memory and not all holes.
    pub fn leaf(&self) -> Option<&Leaf> {
        self.leaf.as_deref()
    }

    /// Whether the mappings are on the drive alone.
    pub fn is_evicted(&self) -> bool {
        self.leaf.is_none() && self.mapped > 0
    }

    /// Whether the leaf on the drive is another one.
    pub fn is_leaf_dirty(&self) -> bool {
        self.leaf_dirty
    }

    /// Whether its leaf is in memory and stands on the drive durably as it is there. What leads to an area stays in memory.
    pub fn is_evictable(&self) -> bool {
        self.leaf.is_some() && !self.unsettled && self.in_area == 0
    }

    /// Whether its leaf was needed since this was asked last, or must stay.
    pub fn take_need(&self) -> bool {
        self.is_used.take() || self.is_held
    }

    /// The leaf stays in memory until [`Page::let_go`].
    pub fn hold(&mut self) {
        self.is_held = true;
    }

    /// The leaf need not stay in memory any more.
    pub fn let_go(&mut self) {
        self.is_held = false;
    }

    /// Changes what is counted of it.
    fn change<T>(&mut self, memory: &MapMemory, change: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.tally();
        let outcome = change(self);
        memory.recount(before, self.tally());
        outcome
    }

    /// How it counts.
    pub fn tally(&self) -> PageTally {
        let in_memory = self.leaf.is_some();
        PageTally { in_memory, unsettled: in_memory && self.unsettled, evicted: self.is_evicted() }
    }

    /// Keeps the leaf on the drive alone.
    pub fn evict(&mut self, memory: &MapMemory) {
        assert!(!self.unsettled && !self.entry.leaf.is_none(), "what is evicted stands on the drive");
        self.change(memory, |page| page.leaf = None);
    }

    /// Puts the leaf back that was evicted.
    pub fn put(&mut self, leaf: Box<Leaf>, memory: &MapMemory) {
        let mapped = leaf.iter().filter(|mapping| **mapping != Mapping::NONE).count();
        assert_eq!(mapped, usize::from(self.mapped), "a leaf comes back as it was");
        self.change(memory, |page| page.leaf = Some(leaf));
    }

    /// The leaf that was evicted cannot be had any more.
    pub fn lose_all(&mut self, memory: &MapMemory) {
        self.change(memory, |page| {
            page.leaf = Some(Box::new([Mapping::UNKNOWN; PAGE_BLOCKS as usize]));
            (page.mapped, page.lost) = (PAGE_BLOCKS as u16, PAGE_BLOCKS as u16);
            page.leaf_changes();
        });
    }

    /// What the leaf that is evicted maps is given up.
    fn give_up(&mut self, memory: &MapMemory) {
        assert!(self.is_evicted(), "what is in memory is released block by block");
        self.change(memory, |page| {
            (page.mapped, page.lost) = (0, 0);
            page.leaf_changes();
        });
    }

    /// The mappings differ from those on the drive now.
    fn leaf_changes(&mut self) {
        (self.dirty, self.leaf_dirty, self.unsettled) = (true, true, true);
    }

    /// The leaf is on its way to the drive, and the page's entry with it. What changes from now on is for the next time.
    pub fn begin_write(&mut self) {
        (self.dirty, self.leaf_dirty) = (false, false);
    }

    /// The leaf has not come to the drive.
    pub fn refuse_write(&mut self) {
        self.leaf_changes();
    }

    /// A root is durable that was written when the leaf had come to the drive: if it has not changed since, it stands there.
    pub fn settle(&mut self, memory: &MapMemory) {
        self.change(memory, |page| page.unsettled = page.leaf_dirty);
    }
}

/// A copy of a slab.
pub struct SlabCopy {
    /// Its volume's slot.
    pub volume_slot: u32,
    /// Which slab of the volume.
    pub slab: SlabIndex,
    /// How the slab's parts are laid out.
    pub layout: SlabLayout,
    /// The identity of this copy.
    pub copy: CopyId,
    /// The version at which this copy began.
    pub birth: Version,
    /// The slab's root page on the drive.
    pub map: PagePointer,
    /// The pages, in order.
    pub pages: Vec<Page>,
    /// Whether any page is dirty, or the root page is not on the drive yet.
    pub dirty: bool,
    /// If a recovery found that the copy may lack writes: the version up to which it lacks none, until a
    /// resync has made it whole.
    pub proven: Option<Version>,
    /// Counts the drive's leaves in memory.
    pub map_memory: Rc<MapMemory>,
}

impl SlabCopy {
    /// The mapping of `block`, whose leaf is in memory.
    ///
    /// # Panics
    ///
    /// If the leaf is evicted: what is not known must not pass for a hole.
    pub fn mapping(&self, block: u32) -> Mapping {
        self.mapping_in_memory(block).expect("a leaf is read back before it is asked")
    }

    /// The mapping of `block`, if its leaf is in memory.
    pub fn mapping_in_memory(&self, block: u32) -> Option<Mapping> {
        let page = &self.pages[(block / PAGE_BLOCKS) as usize];
        match &page.leaf {
            Some(leaf) => Some(leaf[(block % PAGE_BLOCKS) as usize]),
            None => (page.mapped == 0 || canary::is_planted(Bug::EvictedIsHole)).then_some(Mapping::NONE),
        }
    }

    /// The mappings of these blocks were needed: their leaves are evicted later than others.
    pub(crate) fn note_use(&self, first: u32, count: u32) {
        pages_within(first, count).for_each(|page| self.pages[page as usize].is_used.set(true));
    }

    /// What the leaf of a page that is evicted maps is given up. Returns where it stands.
    pub(crate) fn give_up(&mut self, page: u32) -> PagePointer {
        self.dirty = true;
        let page = &mut self.pages[page as usize];
        page.give_up(&self.map_memory);
        page.entry.leaf
    }

    /// Brings the mapping of `block` into the caches, as it is changed soon.
    pub(crate) fn prefetch_mapping(&self, block: u32) {
        if let Some(leaf) = &self.pages[(block / PAGE_BLOCKS) as usize].leaf {
            prefetch(&leaf[(block % PAGE_BLOCKS) as usize]);
        }
    }

    /// Sets the mapping of `block`, whose leaf is in memory, and returns the former one.
    pub(crate) fn set_mapping(&mut self, block: u32, mapping: Mapping, area: AreaBlocks) -> Mapping {
        let page = &mut self.pages[(block / PAGE_BLOCKS) as usize];
        assert!(!page.is_evicted(), "a leaf is read back before it is changed");
        if page.leaf.is_none() && mapping == Mapping::NONE {
            return Mapping::NONE;
        }
        if page.leaf.is_none() && page.entry.version > Version::ZERO {
            witness::reached(Rare::PageReusedAfterTrim);
        }
        let before = page.tally();
        let leaf = page.leaf.get_or_insert_with(|| Box::new([Mapping::NONE; PAGE_BLOCKS as usize]));
        let former = std::mem::replace(&mut leaf[(block % PAGE_BLOCKS) as usize], mapping);
        page.mapped += u16::from(mapping != Mapping::NONE);
        page.mapped -= u16::from(former != Mapping::NONE);
        page.lost += u16::from(mapping == Mapping::UNKNOWN);
        page.lost -= u16::from(former == Mapping::UNKNOWN);
        page.in_area += u16::from(area.holds(mapping));
        page.in_area -= u16::from(area.holds(former));
        if page.mapped == 0 {
            page.leaf = None;
        }
        page.is_used.set(true);
        page.leaf_changes();
        self.map_memory.recount(before, page.tally());
        self.dirty = true;
        former
    }

    pub(crate) fn raise_versions(&mut self, first: u32, count: u32, version: Version) {
        for page in pages_within(first, count) {
            let page = &mut self.pages[page as usize];
            if page.entry.version < version {
                page.entry.version = version;
                page.dirty = true;
                self.dirty = true;
            }
        }
    }

    /// Takes these pages for its own, in place of those that it has.
    pub fn put_pages(&mut self, pages: Vec<Page>) {
        pages.iter().for_each(|page| self.map_memory.recount(PageTally::default(), page.tally()));
        self.leave();
        self.pages = pages;
    }

    /// Its pages count no more: it is forgotten.
    pub(crate) fn leave(&self) {
        self.pages.iter().for_each(|page| self.map_memory.recount(page.tally(), PageTally::default()));
    }

    /// Starts anew: empty, with no version. The pages on the drive are given up without being
    /// freed, as a recovery counts free blocks afterwards.
    pub fn forget(&mut self) {
        self.map = PagePointer::NONE;
        let empty = || Page { dirty: true, leaf_dirty: true, unsettled: true, ..Page::default() };
        self.put_pages(self.pages.iter().map(|_| empty()).collect());
        self.dirty = true;
    }

    /// Lets the copy count as whole up to `version` at most.
    pub fn prove_only(&mut self, version: Version) {
        self.proven = Some(self.proven.map_or(version, |proven| proven.min(version)));
    }

    /// Takes no page for whole any more.
    pub fn doubt_whole_pages(&mut self) {
        for page in self.pages.iter_mut().filter(|page| page.entry.whole) {
            page.entry.whole = false;
            page.dirty = true;
            self.dirty = true;
        }
    }

    /// Every block that has a physical one, as (block within the slab, physical block). All leaves are in memory.
    pub fn mapped_blocks(&self) -> Vec<(u32, u32)> {
        (0..self.pages.len() as u32).flat_map(|page| self.mapped_blocks_of(page)).collect()
    }

    /// The same of one page, whose leaf is in memory.
    pub fn mapped_blocks_of(&self, page: u32) -> Vec<(u32, u32)> {
        let of_page = &self.pages[page as usize];
        assert!(!of_page.is_evicted(), "a leaf is read back before it is asked");
        of_page.leaf.as_deref().map_or_else(Vec::new, |leaf| physical_blocks(page, leaf))
    }

    /// Forgets what `block` was mapped to: it reads as damaged. Only while what is in the area is not counted yet.
    pub fn lose(&mut self, block: u32) {
        self.set_mapping(block, Mapping::UNKNOWN, AreaBlocks::NONE);
    }

    /// Whether `count` blocks from `first` on lie within the slab.
    pub fn contains(&self, first: u32, count: u32) -> bool {
        let blocks = self.pages.len() as u64 * u64::from(PAGE_BLOCKS);
        count > 0 && u64::from(first) + u64::from(count) <= blocks
    }
}

/// Every block of a page that has a physical one, as (block within the slab, physical block).
pub(crate) fn physical_blocks(page: u32, leaf: &Leaf) -> Vec<(u32, u32)> {
    let blocks = (page * PAGE_BLOCKS..).zip(leaf.iter());
    blocks.filter_map(|(block, mapping)| Some((block, mapping.physical()?))).collect()
}
