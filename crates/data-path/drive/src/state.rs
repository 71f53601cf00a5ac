//! A drive's state in memory: its slab copies with their maps, its volumes, its free blocks.
//!
//! [`State::apply`] is the only way in which a journal record changes it, both when a group has
//! become durable and when the journal is replayed. So a drive that was recovered is in the
//! state it would have been in without the crash.
//!
//! Invariants:
//! - Only durable records are applied. What the maps say is on the drive.
//! - A physical block belongs to one mapping or one map page, or is free.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use rustc_hash::FxHashMap;
use spandrel_shared::{Epoch, PAGE_BLOCKS, SlabGeometry, SlabIndex, Version, VolumeId};

use crate::allocator::{Allocator, Run};
use crate::format::journal::{MappingRecord, Record, SlabAdd};
use crate::format::map::{Mapping, PagePointer};
use crate::layout::Layout;
use crate::map_memory::{GivenUp, MapMemory, PagePlace, is_page_within, pages_within};
use crate::slab_copy::{Page, SlabCopy};
use crate::slot_table::SlotTable;
use crate::volume_state::{ListKey, ListValue, VolumeState};

/// The physical blocks that are data blocks of the area on a cache drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaBlocks {
    first: u32,
    end: u32,
}

impl AreaBlocks {
    /// There is no area.
    pub const NONE: Self = Self { first: u32::MAX, end: u32::MAX };

    /// Whether a mapping leads to the area.
    pub fn holds(&self, mapping: Mapping) -> bool {
        self.place(mapping).is_some()
    }

    /// To which block within the area a mapping leads, if it does.
    pub fn place(&self, mapping: Mapping) -> Option<u32> {
        let block = mapping.physical().filter(|block| (self.first..self.end).contains(block));
        block.map(|block| block - self.first)
    }

    /// How many they are.
    pub fn count(&self) -> u32 {
        self.end - self.first
    }
}

/// A write above the mark: what a new owner asks for when it takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedWrite {
    /// The write's version.
    pub version: Version,
    /// The slab.
    pub slab: SlabIndex,
    /// The first block within the slab.
    pub first: u32,
    /// How many blocks.
    pub count: u32,
    /// Whether its data were found missing, so that the former content was kept.
    pub in_doubt: bool,
}

/// What a drive holds.
pub struct State {
    geometry: SlabGeometry,
    /// The slab copies.
    pub slabs: SlotTable<SlabCopy>,
    /// How much of their maps is in memory.
    pub map_memory: Rc<MapMemory>,
    /// The volumes.
    pub volumes: SlotTable<VolumeState>,
    /// Where each slab's copy is. Looked up, never iterated.
    slab_index: FxHashMap<(u32, SlabIndex), u32>,
    volume_index: BTreeMap<VolumeId, u32>,
    /// The free blocks; `None` while the journal is replayed, when nothing is freed yet.
    pub allocator: Option<Allocator>,
    /// Map pages that the newest root on the drive may name, but the state does not any more.
    pub retired_pages: Vec<u32>,
    /// Pages whose leaves were written since the newest durable root.
    pub pages_written: Vec<PagePlace>,
    /// Leaves that were evicted when all that they map was given up, and are still to be read for what that was. These blocks, and
    /// their own, are not free until then.
    pub given_up: GivenUp,
    /// Volumes whose mark should be recorded again, for the commit task.
    pub marks_due: VecDeque<u32>,
    /// Writes that the lists of all volumes may hold after a crash.
    listed_writes_max: usize,
    /// The area on a cache drive, once what is in it was counted.
    pub area: AreaBlocks,
    /// Blocks that are mapped to it.
    blocks_in_area: u32,
    /// For each block of the area the slot of a slab and the block of it that was mapped there last. Whether it still is, the
    /// map knows.
    area_users: Vec<(u32, u32)>,
}

impl State {
    /// An empty drive.
    pub fn new(geometry: SlabGeometry) -> Self {
        Self {
            geometry,
            slabs: SlotTable::default(),
            map_memory: Rc::default(),
            volumes: SlotTable::default(),
            slab_index: FxHashMap::default(),
            volume_index: BTreeMap::new(),
            allocator: None,
            retired_pages: Vec::new(),
            pages_written: Vec::new(),
            given_up: GivenUp::default(),
            marks_due: VecDeque::new(),
            listed_writes_max: 0,
            area: AreaBlocks::NONE,
            blocks_in_area: 0,
            area_users: Vec::new(),
        }
    }

    /// Counts what is mapped to the area of a cache drive, and goes on counting. A recovery does so when it knows all.
    pub fn count_area(&mut self, layout: &Layout) {
        if layout.area_blocks == 0 {
            return;
        }
        let area = AreaBlocks { first: layout.area_first_block(), end: layout.area_end_block() };
        (self.area, self.blocks_in_area) = (area, 0);
        self.area_users = vec![(0, 0); area.count() as usize];
        for (slab_slot, slab) in self.slabs.iter_mut() {
            for (first, page) in (0..).step_by(PAGE_BLOCKS as usize).zip(&mut slab.pages) {
                assert!(!page.is_evicted(), "what leads to an area is counted while all is in memory");
                let mut in_area = 0;
                for (block, mapping) in (first..).zip(page.leaf().into_iter().flatten()) {
                    if let Some(place) = area.place(*mapping) {
                        in_area += 1;
                        self.area_users[place as usize] = (slab_slot, block);
                    }
                }
                page.in_area = in_area;
                self.blocks_in_area += u32::from(page.in_area);
            }
        }
    }

    /// Which block of which slab, by its slot, is mapped to a block of the area, by its number within it; and how.
    pub fn user_of_area(&self, place: u32) -> Option<(u32, u32, Mapping)> {
        let (slab_slot, block) = self.area_users[place as usize];
        let slab = self.slabs.get(slab_slot).filter(|slab| slab.contains(block, 1))?;
        // What is mapped to the area is in memory.
        let mapping = slab.mapping_in_memory(block)?;
        (self.area.place(mapping) == Some(place)).then_some((slab_slot, block, mapping))
    }

    /// Blocks that are mapped to the area of a cache drive.
    pub fn blocks_in_area(&self) -> u32 {
        self.blocks_in_area
    }

    /// The slot of a volume, also of one whose last slab was removed lately.
    pub fn volume_slot(&self, volume: VolumeId) -> Option<u32> {
        self.volume_index.get(&volume).copied()
    }

    /// The state of a volume that has slabs.
    pub fn volume(&self, volume: VolumeId) -> Option<&VolumeState> {
        self.volumes.get(self.volume_slot(volume)?).filter(|volume| volume.slab_count > 0)
    }

    /// The slot of a volume's slab.
    pub fn slab_slot(&self, volume: VolumeId, slab: SlabIndex) -> Option<u32> {
        self.slab_index.get(&(self.volume_slot(volume)?, slab)).copied()
    }

    /// All volumes that have slabs, in the order of their identities.
    pub fn volume_ids(&self) -> impl Iterator<Item = VolumeId> + '_ {
        let with_slabs = |slot: &u32| self.volumes.get(*slot).is_some_and(|volume| volume.slab_count > 0);
        self.volume_index.iter().filter(move |(_, slot)| with_slabs(slot)).map(|(volume, _)| *volume)
    }

    /// Puts a volume into its slot, unless it is there already.
    pub fn add_volume(&mut self, slot: u32, volume: VolumeId) {
        if self.volumes.get(slot).is_none_or(|present| present.volume != volume) {
            self.volumes.insert(slot, VolumeState::new(volume));
        }
        self.volume_index.insert(volume, slot);
    }

    /// A slab of `volume` is on its way to the journal. Returns the volume's slot, which it keeps
    /// at least until the slab has come or is expected no more.
    pub fn expect_slab(&mut self, volume: VolumeId) -> u32 {
        let slot = self.volume_slot(volume).unwrap_or_else(|| {
            let slot = self.volumes.reserve();
            self.add_volume(slot, volume);
            slot
        });
        self.change_volume(slot, |volume| volume.slabs_coming += 1);
        slot
    }

    /// The slab does not come.
    pub fn expect_slab_no_more(&mut self, volume_slot: u32) {
        self.change_volume(volume_slot, |volume| volume.slabs_coming -= 1);
    }

    /// Forgets volumes of which no slab is left and none is on its way. A checkpoint does so when
    /// it begins; until then such a volume keeps its fence.
    pub fn drop_empty_volumes(&mut self) {
        let is_empty = |volume: &VolumeState| volume.slab_count == 0 && volume.slabs_coming == 0;
        let empty: Vec<u32> =
            self.volumes.iter().filter(|(_, volume)| is_empty(volume)).map(|(slot, _)| slot).collect();
        for slot in empty {
            let Some(volume) = self.volumes.remove(slot) else { continue };
            self.listed_writes_max -= volume.list_length_max();
            // A replay can find a volume in its former and in its new slot.
            if self.volume_index.get(&volume.volume) == Some(&slot) {
                self.volume_index.remove(&volume.volume);
            }
        }
    }

    /// Puts an empty slab copy into its slot, unless it is there already.
    pub fn add_slab(&mut self, add: &SlabAdd) {
        if self.slabs.get(add.slab_slot).is_some_and(|present| present.copy == add.copy) {
            return;
        }
        let Some(volume) = self.volumes.get_mut(add.volume_slot) else { return };
        volume.slab_count += 1;
        volume.slabs_coming = volume.slabs_coming.saturating_sub(1);
        let mut pages = Vec::new();
        pages.resize_with(self.geometry.slab_pages() as usize, Page::default);
        let slab = SlabCopy {
            volume_slot: add.volume_slot,
            slab: add.slab,
            layout: add.layout,
            copy: add.copy,
            birth: add.birth,
            map: PagePointer::NONE,
            pages,
            dirty: true,
            proven: None,
            map_memory: Rc::clone(&self.map_memory),
        };
        if let Some(former) = self.slabs.get(add.slab_slot) {
            former.leave();
        }
        self.slabs.insert(add.slab_slot, slab);
        self.slab_index.insert((add.volume_slot, add.slab), add.slab_slot);
    }

    /// Learns of a volume's mark.
    pub fn note_mark(&mut self, volume_slot: u32, mark: Version, exceptions: &[Version]) {
        self.change_volume(volume_slot, |volume| volume.note_mark(mark, exceptions));
    }

    /// Does what `record` says. Records of slabs and volumes that are not there (the slab was
    /// removed before the root was written, and after the place where it lets the journal begin)
    /// change nothing.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Write(mapping) => self.apply_mapping(mapping, true, release),
            Record::Heal(mapping) => self.apply_mapping(mapping, false, release),
            Record::Trim { slab_slot, first, count, counter } => {
                self.apply_trim(*slab_slot, *first, *count, *counter);
            }
            Record::Listed { slab_slot, first, count, version, in_doubt } => {
                self.list_write(*slab_slot, *first, *count, *version, *in_doubt);
            }
            Record::Unlisted { slab_slot, first, count, version } => {
                let slab = self.slabs.get(*slab_slot).filter(|slab| slab.contains(*first, *count));
                if let Some(volume_slot) = slab.map(|slab| slab.volume_slot) {
                    let key = (*version, *slab_slot, *first);
                    self.change_volume(volume_slot, |volume| volume.unlist(key, *count));
                }
            }
            Record::RecordEpoch { volume_slot, epoch } => {
                self.change_volume(*volume_slot, |volume| volume.record_epoch = *epoch);
            }
            Record::Fence { volume_slot, epoch } => {
                self.change_volume(*volume_slot, |volume| {
                    volume.fence_epoch = volume.fence_epoch.max(*epoch)
                });
            }
            Record::Mark { volume_slot, mark, exceptions } => {
                self.note_mark(*volume_slot, *mark, exceptions);
                self.change_volume(*volume_slot, |volume| volume.mark_is_recorded(*mark));
            }
            Record::SetPageVersion { slab_slot, page, version, whole } => {
                if let Some(slab) = self.slabs.get_mut(*slab_slot)
                    && let Some(entry) = slab.pages.get_mut(*page as usize)
                {
                    entry.entry.version = *version;
                    entry.entry.whole = *whole;
                    entry.dirty = true;
                    slab.dirty = true;
                }
            }
            Record::VolumeAdd { volume_slot, volume } => self.add_volume(*volume_slot, *volume),
            Record::SlabAdd(add) => self.add_slab(add),
            Record::SlabRemove { slab_slot } => self.remove_slab(*slab_slot),
            Record::Proven { slab_slot } => {
                if let Some(slab) = self.slabs.get_mut(*slab_slot) {
                    slab.proven = None;
                }
            }
            Record::Doubted { slab_slot, version } => {
                if let Some(slab) = self.slabs.get_mut(*slab_slot) {
                    slab.prove_only(*version);
                }
            }
        }
    }

    /// Does what a record says of blocks that hold the same as before elsewhere: on the capacity drive instead of the area.
    pub fn apply_move(&mut self, record: &MappingRecord) {
        self.apply_mapping(record, false, release_as_copy);
    }

    fn apply_mapping(
        &mut self,
        record: &MappingRecord,
        is_write: bool,
        release: impl Fn(&mut Option<Allocator>, Mapping, Mapping),
    ) {
        let Some(slab) = self.slabs.get_mut(record.slab_slot) else { return };
        if !slab.contains(record.first, record.count()) {
            return;
        }
        let area = self.area;
        for (block, mapping) in record.mappings() {
            let former = slab.set_mapping(block, mapping, area);
            if let Some(place) = area.place(mapping) {
                self.blocks_in_area += 1;
                self.area_users[place as usize] = (record.slab_slot, block);
            }
            self.blocks_in_area -= u32::from(area.holds(former));
            release(&mut self.allocator, former, mapping);
        }
        if is_write {
            let epoch = self.volumes.get(slab.volume_slot).map_or(Epoch::ZERO, |volume| volume.record_epoch);
            let version = Version::new(epoch, record.counter);
            slab.raise_versions(record.first, record.count(), version);
            self.list_write(record.slab_slot, record.first, record.count(), version, false);
        }
    }

    fn apply_trim(&mut self, slab_slot: u32, first: u32, count: u32, counter: u64) {
        let Some(slab) = self.slabs.get_mut(slab_slot) else { return };
        if !slab.contains(first, count) {
            return;
        }
        let mut given_up = Vec::new();
        for page in pages_within(first, count) {
            if slab.pages[page as usize].is_evicted() && is_page_within(page, first, count) {
                given_up.push(slab.give_up(page));
                continue;
            }
            let of_page = page * PAGE_BLOCKS..(page + 1) * PAGE_BLOCKS;
            for block in of_page.start.max(first)..of_page.end.min(first + count) {
                let former = slab.set_mapping(block, Mapping::NONE, self.area);
                self.blocks_in_area -= u32::from(self.area.holds(former));
                release(&mut self.allocator, former, Mapping::NONE);
            }
        }
        // Counter zero undoes a write that found no room: it is no write of the volume.
        if counter > 0 {
            let epoch = self.volumes.get(slab.volume_slot).map_or(Epoch::ZERO, |volume| volume.record_epoch);
            let version = Version::new(epoch, counter);
            slab.raise_versions(first, count, version);
            self.list_write(slab_slot, first, count, version, false);
        }
        given_up.into_iter().for_each(|leaf| self.give_up(leaf));
    }

    fn list_write(&mut self, slab_slot: u32, first: u32, count: u32, version: Version, in_doubt: bool) {
        let slab = self.slabs.get(slab_slot).filter(|slab| slab.contains(first, count));
        let Some(volume_slot) = slab.map(|slab| slab.volume_slot) else { return };
        let entry = ((version, slab_slot, first), ListValue { count, in_doubt });
        let due = self.change_volume(volume_slot, |volume| volume.list_write(entry.0, entry.1));
        if due == Some(true) {
            self.marks_due.push_back(volume_slot);
        }
    }

    /// Changes what is known of a volume; its list is counted anew.
    pub fn change_volume<T>(&mut self, slot: u32, change: impl FnOnce(&mut VolumeState) -> T) -> Option<T> {
        let volume = self.volumes.get_mut(slot)?;
        let before = volume.list_length_max();
        let result = change(volume);
        self.listed_writes_max = self.listed_writes_max + volume.list_length_max() - before;
        Some(result)
    }

    fn remove_slab(&mut self, slab_slot: u32) {
        let Some(slab) = self.slabs.remove(slab_slot) else { return };
        let place = (slab.volume_slot, slab.slab);
        if self.slab_index.get(&place) == Some(&slab_slot) {
            self.slab_index.remove(&place);
        }
        slab.leave();
        for page in &slab.pages {
            if page.is_evicted() {
                self.give_up(page.entry.leaf);
            }
            self.blocks_in_area -= u32::from(page.in_area);
            for mapping in page.leaf().into_iter().flatten() {
                release(&mut self.allocator, *mapping, Mapping::NONE);
            }
            if !page.entry.leaf.is_none() {
                self.retired_pages.push(page.entry.leaf.block);
            }
        }
        if !slab.map.is_none() {
            self.retired_pages.push(slab.map.block);
        }
        self.change_volume(slab.volume_slot, |volume| {
            volume.slab_count -= 1;
            volume.forget_slab(slab_slot);
        });
    }

    /// A new map page of a slab was written: the leaf of its page `index`, or its root page. If that
    /// failed for lack of room, the former page holds on and the change is for the next checkpoint.
    pub fn replace_page(&mut self, slot: u32, index: Option<u32>, pointer: PagePointer, written: bool) {
        let mut unneeded = pointer;
        if let Some(slab) = self.slabs.get_mut(slot) {
            let place = match index {
                Some(index) => {
                    let page = &mut slab.pages[index as usize];
                    match written {
                        true => self.pages_written.push(PagePlace { slab_slot: slot, page: index }),
                        false => page.refuse_write(),
                    }
                    &mut page.entry.leaf
                }
                None => &mut slab.map,
            };
            slab.dirty |= !written;
            if written {
                let former = std::mem::replace(place, pointer);
                self.retired_pages.extend((!former.is_none()).then_some(former.block));
                unneeded = PagePointer::NONE;
            }
        }
        // Not even the next root will name it.
        if let (Some(allocator), false) = (&mut self.allocator, unneeded.is_none()) {
            allocator.free_now(Run { first: unneeded.block, count: 1 });
        }
    }

    /// A root is durable that names all pages that were written before: so many of them are seen to.
    pub fn settle_pages(&mut self, count: usize) {
        let memory = Rc::clone(&self.map_memory);
        let left = self.pages_written.len().saturating_sub(count);
        for place in self.pages_written.split_off(left) {
            if let Some(page) = self.page_mut(place) {
                page.settle(&memory);
                self.list_evictable(place);
            }
        }
    }

    /// The writes of a volume above its mark or among its exceptions.
    pub fn listed(&self, volume: VolumeId) -> Vec<ListedWrite> {
        let Some(state) = self.volume(volume) else { return Vec::new() };
        let entry = |(key, value): (&ListKey, &ListValue)| {
            let slab = self.slabs.get(key.1)?;
            Some(ListedWrite {
                version: key.0,
                slab: slab.slab,
                first: key.2,
                count: value.count,
                in_doubt: value.in_doubt,
            })
        };
        state.list().iter().filter_map(entry).collect()
    }

    /// Writes that the lists of all volumes may hold after a crash.
    pub fn listed_writes_max(&self) -> usize {
        self.listed_writes_max
    }

    /// What neither the maps nor the root hold, as records for the journal behind a checkpoint.
    pub fn records_behind_root(&self) -> Vec<Record> {
        self.volumes.iter().flat_map(|(slot, volume)| volume.records_behind_root(slot)).collect()
    }

    /// After a replay: forgets volumes without slabs, and makes every empty slot free.
    pub fn end_replay(&mut self) {
        self.drop_empty_volumes();
        self.volume_index = self.volumes.iter().map(|(slot, volume)| (volume.volume, slot)).collect();
        // A copy that came and went before the one that the root knows has taken that one's place in the index with it.
        self.slab_index =
            self.slabs.iter().map(|(slot, slab)| ((slab.volume_slot, slab.slab), slot)).collect();
        self.slabs.rebuild_free();
        self.volumes.rebuild_free();
    }
}

pub(crate) fn release(allocator: &mut Option<Allocator>, former: Mapping, new: Mapping) {
    if let (Some(allocator), Some(block)) = (allocator, former.physical())
        && former.block != new.block
    {
        allocator.release(Run { first: block, count: 1 });
    }
}

/// What was moved can stay as a copy where it was.
fn release_as_copy(allocator: &mut Option<Allocator>, former: Mapping, new: Mapping) {
    if let (Some(allocator), Some(place), Some(block)) = (allocator, former.physical(), new.physical()) {
        allocator.release_as_copy(place, block);
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
