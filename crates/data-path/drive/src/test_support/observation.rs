//! What a store shows of itself: everything that the oracle judges, and whether its blocks are
//! accounted for.

use std::collections::{BTreeMap, BTreeSet};

use spandrel_shared::{BLOCK_BYTES, CopyId, Epoch, Version, VolumeId};

use super::{SlabKey, Store};
use crate::format::map::Mapping;
use crate::map_memory::PageTally;
use crate::{BlockState, DamagedBlock, ListedWrite, PageDescription, ReadPart, SlabSlot};

/// The content of a block, named by a number that all of its bytes follow from.
pub type Content = u64;

/// The bytes of a content.
pub fn fill(content: Content, block: &mut [u8]) {
    let mut word = content;
    for bytes in block.chunks_exact_mut(8) {
        bytes.copy_from_slice(&word.to_le_bytes());
        word = (word ^ (word >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9).wrapping_add(content);
    }
}

/// The content that a block holds, if it is all of one.
pub fn content_of(block: &[u8]) -> Option<Content> {
    let content = Content::from_le_bytes(block[..8].try_into().unwrap());
    let mut expected = [0; BLOCK_BYTES];
    fill(content, &mut expected);
    (expected == block).then_some(content)
}

/// What a read says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing is stored.
    Hole,
    /// A whole content.
    Content(Content),
    /// It cannot be had from this drive.
    Damaged(DamagedBlock),
}

impl Seen {
    pub fn is_damaged(self) -> bool {
        matches!(self, Seen::Damaged(_))
    }

    /// Not even the map says what was stored.
    pub fn is_lost(self) -> bool {
        matches!(self, Seen::Damaged(block) if block.mapping == Mapping::UNKNOWN)
    }
}

/// What a store shows of a slab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlabObservation {
    pub slot: SlabSlot,
    pub copy: CopyId,
    /// One entry a block.
    pub blocks: Vec<Seen>,
    pub pages: Vec<PageDescription>,
}

/// What a store shows of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeObservation {
    pub fence: Epoch,
    pub mark: Version,
    pub exceptions: Vec<Version>,
    pub listed: Vec<ListedWrite>,
}

/// What a store shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    pub attach_number: u64,
    pub volumes: BTreeMap<VolumeId, VolumeObservation>,
    pub slabs: BTreeMap<SlabKey, SlabObservation>,
}

/// Reads all that there is.
pub async fn observe(store: &Store) -> Observation {
    let mut slabs = BTreeMap::new();
    for slab in store.slabs() {
        assert_eq!(store.find_slab(slab.volume, slab.slab), Some(slab), "a slab is found by its name");
        let pages = store.pages(slab.slot).unwrap();
        let blocks = read_all(store, slab.slot, pages.len() as u32 * spandrel_shared::PAGE_BLOCKS).await;
        let mapped = blocks.iter().filter(|seen| **seen != Seen::Hole).count();
        assert_eq!(slab.mapped_blocks as usize, mapped, "mapped blocks are counted");
        for (page, blocks) in pages.iter().zip(blocks.chunks(spandrel_shared::PAGE_BLOCKS as usize)) {
            let lost = blocks.iter().filter(|seen| seen.is_lost()).count();
            assert_eq!(usize::from(page.lost_blocks), lost, "lost blocks are counted");
        }
        let observation = SlabObservation { slot: slab.slot, copy: slab.copy, blocks, pages };
        let former = slabs.insert((slab.volume, slab.slab), observation);
        assert!(former.is_none(), "a slab has one copy");
    }
    let volumes = store.volumes().into_iter().map(|volume| {
        let observation = VolumeObservation {
            fence: store.fence_epoch(volume),
            mark: store.mark(volume),
            exceptions: store.listed_exceptions(volume),
            listed: store.listed(volume),
        };
        (volume, observation)
    });
    Observation { attach_number: store.attach_number(), volumes: volumes.collect(), slabs }
}

/// Reads `count` blocks from the first on.
pub async fn read_all(store: &Store, slot: SlabSlot, count: u32) -> Vec<Seen> {
    let states = store.block_states(slot, 0, count).await.unwrap();
    let mut seen = Vec::with_capacity(count as usize);
    for part in store.read(slot, 0, count).await.unwrap() {
        match part {
            ReadPart::Hole { count } => seen.extend((0..count).map(|_| Seen::Hole)),
            ReadPart::Damaged(damaged) => {
                assert_eq!(damaged.block as usize, seen.len(), "damage is reported where it is");
                seen.push(Seen::Damaged(damaged));
            }
            ReadPart::Data { data, checksums } => {
                assert_eq!(data.len(), checksums.len() * BLOCK_BYTES);
                for (block, checksum) in data.chunks_exact(BLOCK_BYTES).zip(checksums) {
                    assert_eq!(states[seen.len()], BlockState::Data(checksum));
                    let content = content_of(block);
                    seen.push(Seen::Content(content.expect("a block that is read is whole")));
                }
            }
        }
    }
    assert_eq!(seen.len(), count as usize, "a read returns what was asked");
    for (state, seen) in states.iter().zip(&seen) {
        assert_eq!(*state == BlockState::Hole, *seen == Seen::Hole);
    }
    seen
}

/// As [`check_ownership`], also where leaves of the maps are evicted: they are read back for it.
pub async fn check_ownership_of_all(store: &Store) {
    let bytes_max = store.inner.state.borrow().map_memory.bytes_max();
    bound(store, None).await;
    let is_at_rest =
        || store.inner.checkpoint.borrow().is_at_rest() && store.inner.state.borrow().given_up.is_empty();
    store.inner.progress.wait_until(is_at_rest).await;
    for slab in store.slabs() {
        let blocks = store.pages(slab.slot).unwrap().len() as u32 * spandrel_shared::PAGE_BLOCKS;
        store.inner.load_blocks(slab.slot, 0, blocks).await.unwrap();
    }
    check_ownership(store);
    check_map_memory(store);
    bound(store, bytes_max).await;
}

/// Completes when so much of the maps is in memory at most.
pub async fn bound(store: &Store, bytes_max: Option<u64>) {
    store.allow_map_memory(bytes_max);
    let is_done = || store.inner.state.borrow().map_memory.is_bound_adopted();
    store.inner.progress.wait_until(is_done).await;
}

/// Counts what is in memory of the maps, and compares.
pub fn check_map_memory(store: &Store) {
    let state = store.inner.state.borrow();
    let tallies: Vec<PageTally> =
        state.slabs.iter().flat_map(|(_, slab)| &slab.pages).map(|page| page.tally()).collect();
    let count = |counts: fn(&PageTally) -> bool| tallies.iter().filter(|tally| counts(tally)).count();
    let counted =
        [count(|tally| tally.in_memory), count(|tally| tally.unsettled), count(|tally| tally.evicted)];
    assert_eq!(state.map_memory.counted(), counted, "leaves in memory, unsettled, evicted");
}

/// Checks that every block of the drive has one owner or is free, and none is lost. The store
/// must be at rest, and all of its maps in memory.
pub fn check_ownership(store: &Store) {
    let state = store.inner.state.borrow();
    let layout = store.inner.layout;
    let (mut owned, mut owned_in_area) = (BTreeSet::new(), 0);
    let mut own = |block: u32, owner: &str| {
        let is_in_area = layout.is_in_area(block) && owner == "data block";
        let is_in_place = (layout.data_first_block..layout.data_end_block()).contains(&block) || is_in_area;
        assert!(is_in_place, "{owner} {block}");
        owned_in_area += usize::from(is_in_area);
        assert!(owned.insert(block), "physical block {block} has two owners, one a {owner}");
    };
    for (_, slab) in state.slabs.iter() {
        slab.mapped_blocks().into_iter().for_each(|(_, physical)| own(physical, "data block"));
        let leaves = slab.pages.iter().map(|page| page.entry.leaf);
        for page in leaves.chain([slab.map]).filter(|page| !page.is_none()) {
            own(page.block, "map page");
        }
    }
    state.retired_pages.iter().for_each(|block| own(*block, "retired page"));
    let copied = state.allocator.as_ref().map(|allocator| allocator.copies_of_free_blocks());
    assert_eq!(copied, Some(Vec::new()), "copies of blocks that are free");
    drop(state);
    let used = store.cache_use();
    assert_eq!(used.blocks_dirty as usize, owned_in_area);
    assert_eq!(
        (used.blocks_total - used.blocks_free) as usize,
        owned_in_area,
        "blocks of the area are not free"
    );
    let on_capacity = owned.len() - owned_in_area;
    assert_eq!(store.used_blocks() as usize, on_capacity, "blocks that nothing names are not free");
}
