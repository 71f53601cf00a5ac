//! What a drive holds, judged as an attach would judge it, without changing anything.
//!
//! 1. The superblock, from either of its two copies.
//! 2. The newest whole root.
//! 3. The slab roots and leaves that it names, each against its parent's checksum. What a damaged
//!    leaf mapped is lost; with a damaged slab root the page versions are lost as well.
//! 4. The journal from the root's position on. Of its last group the data are read: a block that
//!    does not match keeps its former content, and the write is listed in doubt.
//! 5. Every physical block has one owner.
//!
//! Of a drive that is bound to a cache drive, the journal stands in its area there, and blocks are numbered on behind those of
//! the drive. If the area is lost, so is what stood behind the root, and each block that a map names there. The same holds
//! for the journal of an area of another time: one in which neither the group before the root's position nor the next one is
//! where it was.
//!
//! Whatever is not as it must be is named as damage; where a crash can have left it, that is said.

use std::collections::BTreeSet;
use std::ops::Range;

use spandrel_shared::checksum::BlockChecksum;
use spandrel_shared::{BLOCK_BYTES, PAGE_BLOCKS, Version};

use crate::cache_drive::Area;
use crate::chain::{Behind, Chain, JournalPlace, PlacedGroup};
use crate::inspection::{
    CacheReport, CacheState, Damage, DamageKind, JournalReport, Phase, Progress, RootSlotReport,
    RootSlotState, Structure, SuperblockCopy,
};
use crate::journal::{Record, Run, SlabAdd};
use crate::map::{LEAF_FORMAT, Leaf, Mapping, PageEntry, parse_leaf, parse_slab_root};
use crate::root::{Binding, PagePointer, Root, RootSlab, RootSlot};
use crate::source::{PlacedArea, Reader, Source, offset_of};
use crate::state::{Page, Slab, State};
use crate::superblock::{ROOT_SLOTS, SIZE_BLOCKS_MAX, Superblock, SuperblockFault};

const MISMATCH: &str = "it does not match its parent's checksum";

/// What was found.
pub(crate) struct Recovered {
    pub superblock: Superblock,
    pub superblock_copies: Vec<SuperblockCopy>,
    pub root_slots: Vec<RootSlotReport>,
    pub root: Option<Root>,
    pub cache: Option<CacheReport>,
    pub journal: JournalReport,
    pub state: State,
    pub damage: Vec<Damage>,
    /// Live structures, if they were asked for.
    pub structures: Vec<Structure>,
    /// Blocks whose last write was judged by its data, as (slab's slot, block).
    pub last_group_blocks: BTreeSet<(u32, u32)>,
    /// Slabs whose root page is lost, by slot.
    lost_slab_roots: BTreeSet<u32>,
    /// Whether a mapping can be older than the reuse of its block.
    may_be_older: bool,
}

/// Why there is no superblock to begin with.
pub(crate) enum NoSuperblock {
    /// Neither copy is there.
    Absent,
    Damaged(String),
    Newer {
        version: u32,
        unknown_features: u64,
    },
}

/// The cache drive that a drive is bound to by its newest root; none if it is bound to none, or nothing says so.
pub(crate) fn binding_of(source: &dyn Source) -> Option<(Superblock, Binding)> {
    let reader = Reader::new(source, None);
    let superblock = find_superblock(reader).ok()?.superblock;
    let roots = (0..ROOT_SLOTS).filter_map(|slot| match read_root(reader, &superblock, slot) {
        RootSlot::Whole(root) => Some(root),
        RootSlot::Empty | RootSlot::Damaged(_) => None,
    });
    let newest = roots.max_by_key(|root| root.generation)?;
    newest.binding.map(|binding| (superblock, binding))
}

fn read_root(reader: Reader<'_>, superblock: &Superblock, slot: u32) -> RootSlot {
    let slot_bytes = superblock.root_slot_blocks as usize * BLOCK_BYTES;
    match reader.bytes(offset_of(superblock.root_slot(slot)), slot_bytes) {
        Ok(bytes) => RootSlot::parse(&bytes, superblock.drive),
        Err(why) => RootSlot::Damaged(why),
    }
}

/// Reads a drive.
pub(crate) fn recover(
    reader: Reader<'_>,
    list_structures: bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Recovered, NoSuperblock> {
    let found = find_superblock(reader)?;
    let mut recovery = Recovery {
        reader,
        list_structures,
        recovered: Recovered {
            state: State::new(found.superblock.slab_geometry),
            superblock: found.superblock,
            superblock_copies: found.copies,
            root_slots: Vec::new(),
            root: None,
            cache: None,
            journal: JournalReport::default(),
            damage: Vec::new(),
            structures: Vec::new(),
            last_group_blocks: BTreeSet::new(),
            lost_slab_roots: BTreeSet::new(),
            may_be_older: false,
        },
    };
    recovery.note_superblocks();
    if let Some(root) = recovery.find_root() {
        recovery.load_maps(&root, progress);
        progress(Progress { phase: Phase::Journal, done: 0, total: 1 });
        recovery.note_cache(&root);
        match recovery.recovered.cache.as_ref().map(|cache| cache.state) {
            None | Some(CacheState::Present) => recovery.replay(&root),
            Some(CacheState::AnotherTime | CacheState::Absent) => recovery.replay_nothing(&root),
        }
        progress(Progress { phase: Phase::Journal, done: 1, total: 1 });
        recovery.recovered.state.drop_empty_volumes();
        recovery.check_owners();
        recovery.recovered.root = Some(root);
    }
    Ok(recovery.recovered)
}

struct FoundSuperblock {
    superblock: Superblock,
    copies: Vec<SuperblockCopy>,
}

fn find_superblock(reader: Reader<'_>) -> Result<FoundSuperblock, NoSuperblock> {
    let read = |offset_bytes: u64| match reader.bytes(offset_bytes, BLOCK_BYTES) {
        _ if offset_bytes + BLOCK_BYTES as u64 > reader.size_bytes() => Err(SuperblockFault::Absent),
        Ok(block) => Superblock::parse(&block),
        Err(why) => Err(SuperblockFault::Damaged(why)),
    };
    let first = read(0);
    // On a drive that has grown, the second copy stands where the end was.
    let end_block = (reader.size_bytes() / BLOCK_BYTES as u64).saturating_sub(1);
    let at_end = end_block * BLOCK_BYTES as u64;
    let second_offset = first.as_ref().map_or(at_end, |first| offset_of(first.last_block()));
    let second = read(second_offset);
    let superblock = match (&first, &second) {
        (Ok(superblock), _) | (Err(_), Ok(superblock)) => superblock.clone(),
        (Err(SuperblockFault::Newer { version, unknown_features }), _)
        | (_, Err(SuperblockFault::Newer { version, unknown_features })) => {
            return Err(NoSuperblock::Newer { version: *version, unknown_features: *unknown_features });
        }
        (Err(SuperblockFault::Absent), Err(SuperblockFault::Absent)) => return Err(NoSuperblock::Absent),
        (Err(SuperblockFault::Damaged(why)), _) | (_, Err(SuperblockFault::Damaged(why))) => {
            return Err(NoSuperblock::Damaged(why.clone()));
        }
    };
    let copy = |offset_bytes: u64, found: &Result<Superblock, SuperblockFault>| {
        let fault = match found {
            Ok(found) if *found == superblock => None,
            Ok(_) => Some("it differs from the first copy".to_owned()),
            Err(SuperblockFault::Absent) => Some("it is no superblock".to_owned()),
            Err(SuperblockFault::Damaged(why)) => Some(why.clone()),
            Err(SuperblockFault::Newer { version, .. }) => Some(format!("it is of format {version}")),
        };
        SuperblockCopy { offset_bytes, fault }
    };
    let copies = vec![copy(0, &first), copy(second_offset, &second)];
    Ok(FoundSuperblock { superblock, copies })
}

struct Recovery<'a> {
    reader: Reader<'a>,
    list_structures: bool,
    recovered: Recovered,
}

impl Recovery<'_> {
    fn superblock(&self) -> &Superblock {
        &self.recovered.superblock
    }

    fn note_structure(&mut self, structure: Structure) {
        if self.list_structures {
            self.recovered.structures.push(structure);
        }
    }

    fn note_superblocks(&mut self) {
        for copy in self.recovered.superblock_copies.clone() {
            let (kind, length) = (DamageKind::Superblock, BLOCK_BYTES as u64);
            self.note_structure(Structure::new(kind, copy.offset_bytes, length));
            if let Some(fault) = copy.fault {
                self.recovered.damage.push(Damage::of_structure(kind, copy.offset_bytes, length, fault));
            }
        }
    }

    /// The newest whole root. Slots that are not whole are judged when the journal has been read.
    fn find_root(&mut self) -> Option<Root> {
        let mut roots: Vec<Root> = Vec::new();
        for slot in 0..ROOT_SLOTS {
            let offset_bytes = offset_of(self.superblock().root_slot(slot));
            let found = read_root(self.reader, self.superblock(), slot);
            let state = match &found {
                RootSlot::Empty => RootSlotState::Empty,
                RootSlot::Whole(root) => RootSlotState::Whole { generation: root.generation },
                RootSlot::Damaged(why) => RootSlotState::Damaged { why: why.clone() },
            };
            self.recovered.root_slots.push(RootSlotReport { slot, offset_bytes, state });
            if let RootSlot::Whole(root) = found {
                roots.push(*root);
            }
        }
        let newest = roots.into_iter().max_by_key(|root| root.generation);
        match &newest {
            Some(root) => {
                let (generation, length) = (root.generation, root.length_bytes as u64);
                for report in self.recovered.root_slots.clone() {
                    if report.state == (RootSlotState::Whole { generation }) {
                        self.note_structure(Structure::new(DamageKind::Root, report.offset_bytes, length));
                    }
                }
            }
            None => self.note_root_slots(None, u64::MAX),
        }
        newest
    }

    /// Names the root slots that are not as they should be. `named_generation` is the newest root
    /// that a group of the journal names.
    fn note_root_slots(&mut self, root: Option<&Root>, named_generation: u64) {
        let slot_bytes = u64::from(self.superblock().root_slot_blocks) * BLOCK_BYTES as u64;
        for report in self.recovered.root_slots.clone() {
            let is_twin =
                root.is_some_and(|root| Superblock::root_slots_of(root.generation).contains(&report.slot));
            let why = match &report.state {
                RootSlotState::Damaged { why } => why.clone(),
                RootSlotState::Whole { generation }
                    if root.is_some_and(|root| root.generation == *generation) =>
                {
                    continue;
                }
                RootSlotState::Whole { .. } | RootSlotState::Empty if is_twin => {
                    "it is not the twin of the newest root".to_owned()
                }
                // The superblock is written when the first root is durable.
                RootSlotState::Empty
                    if root.is_none() && Superblock::root_slots_of(1).contains(&report.slot) =>
                {
                    "it holds no root, though the superblock was written after one".to_owned()
                }
                _ => continue,
            };
            // A crash while a root was being written leaves no group behind that names it.
            let newest = root.map_or(0, |root| root.generation);
            let by_crash = if is_twin { named_generation < newest } else { named_generation <= newest };
            let damage = Damage::of_structure(DamageKind::Root, report.offset_bytes, slot_bytes, why);
            self.recovered.damage.push(Damage { by_crash, ..damage });
        }
    }

    fn load_maps(&mut self, root: &Root, progress: &mut dyn FnMut(Progress)) {
        for volume in &root.volumes {
            self.recovered.state.restore_volume(volume);
        }
        let total = root.slabs.len() as u64;
        for (done, slab) in (0..).zip(&root.slabs) {
            progress(Progress { phase: Phase::Maps, done, total });
            self.recovered.state.add_slab(&SlabAdd {
                slab_slot: slab.slot,
                volume_slot: slab.volume_slot,
                slab: slab.slab,
                layout: slab.layout,
                birth: slab.birth,
                copy: slab.copy,
            });
            self.load_slab(slab);
        }
        progress(Progress { phase: Phase::Maps, done: total, total });
    }

    fn load_slab(&mut self, root: &RootSlab) {
        let volume = self.recovered.state.volumes.get(&root.volume_slot).map(|volume| volume.volume);
        let Some(volume) = volume else {
            let why = format!("slab {} in slot {} belongs to no volume of the root", root.slab, root.slot);
            self.recovered.damage.push(Damage::contradiction(why));
            return;
        };
        let name = |damage: Damage| Damage { volume: Some(volume), slab: Some(root.slab), ..damage };
        let page_count = self.superblock().slab_geometry.slab_pages();
        let entries = if root.map.is_none() {
            Ok(vec![PageEntry::default(); page_count as usize])
        } else {
            let structure =
                Structure::new(DamageKind::SlabRoot, offset_of(root.map.block), BLOCK_BYTES as u64);
            self.note_structure(Structure { volume: Some(volume), slab: Some(root.slab), ..structure });
            self.read_page(root.map).and_then(|block| {
                let entries = parse_slab_root(&block, root.map.checksum, page_count);
                entries.ok_or_else(|| MISMATCH.to_owned())
            })
        };
        let entries = if root.leaf_format == LEAF_FORMAT {
            entries
        } else {
            Err(format!("its leaves are of format {}, which is not understood", root.leaf_format))
        };
        let mut lost_root = None;
        let entries = entries.unwrap_or_else(|why| {
            let offset_bytes = offset_of(root.map.block);
            let length = BLOCK_BYTES as u64;
            lost_root = Some(name(Damage::of_structure(DamageKind::SlabRoot, offset_bytes, length, why)));
            Vec::new()
        });
        let mut pages = Vec::with_capacity(entries.len());
        for (page, entry) in (0..).zip(entries) {
            pages.push(self.load_page(page, entry, &name));
        }
        let Some(slab) = self.recovered.state.slabs.get_mut(&root.slot) else { return };
        (slab.map, slab.proven) = (root.map, root.proven);
        if lost_root.is_some() {
            self.recovered.lost_slab_roots.insert(root.slot);
            pages.resize_with(page_count as usize, || Page { leaf: Some(lost_leaf()), ..Page::default() });
        }
        slab.pages = pages;
        self.recovered.damage.extend(lost_root);
    }

    fn load_page(&mut self, page: u32, entry: PageEntry, name: &impl Fn(Damage) -> Damage) -> Page {
        let loaded = Page { leaf: None, pointer: entry.leaf, version: entry.version, whole: entry.whole };
        if entry.leaf.is_none() {
            return loaded;
        }
        let (offset_bytes, length) = (offset_of(entry.leaf.block), BLOCK_BYTES as u64);
        let damage = name(Damage::of_structure(DamageKind::Leaf, offset_bytes, length, String::new()));
        let structure = Structure::new(DamageKind::Leaf, offset_bytes, length);
        let (volume, slab) = (damage.volume, damage.slab);
        self.note_structure(Structure { volume, slab, page: Some(page), ..structure });
        let leaf = self
            .read_page(entry.leaf)
            .and_then(|block| parse_leaf(&block, entry.leaf.checksum).ok_or_else(|| MISMATCH.to_owned()));
        match leaf {
            Ok(leaf) => Page { leaf: Some(leaf), ..loaded },
            Err(detail) => {
                self.recovered.damage.push(Damage { page: Some(page), detail, ..damage });
                Page { leaf: Some(lost_leaf()), pointer: PagePointer::default(), ..loaded }
            }
        }
    }

    fn read_page(&self, pointer: PagePointer) -> Result<Vec<u8>, String> {
        if !self.superblock().is_data_block(pointer.block) {
            return Err("its place lies outside the data blocks".to_owned());
        }
        self.reader.block(pointer.block)
    }

    /// Where the journal stands.
    fn journal_place(&self) -> JournalPlace {
        let superblock = self.superblock();
        let (first_block, sector_bytes) = match self.reader.area() {
            None => (superblock.journal_first_block, superblock.sector_bytes),
            Some(placed) => (superblock.size_blocks, superblock.sector_bytes.max(placed.area.sector_bytes)),
        };
        JournalPlace { first_block, blocks: superblock.journal_blocks, sector_bytes }
    }

    /// Judges the area that the drive is bound to, if it is.
    fn note_cache(&mut self, root: &Root) {
        let Some(Binding { cache, number }) = root.binding else { return };
        let area = self.reader.area().map(|placed| placed.area);
        let state = match area {
            None => CacheState::Absent,
            Some(_) => {
                let place = self.journal_place();
                match Chain::new(self.reader, self.superblock().drive, place, root).is_continued() {
                    Ok(true) => CacheState::Present,
                    Ok(false) => CacheState::AnotherTime,
                    // Whether it is the right one cannot be said.
                    Err(why) => {
                        let (offset, length) = (offset_of(place.first_block), u64::from(place.sector_bytes));
                        let damage = Damage::of_structure(DamageKind::JournalGroup, offset, length, why);
                        self.recovered.damage.push(damage);
                        CacheState::Present
                    }
                }
            }
        };
        let offset_bytes = offset_of(self.superblock().size_blocks);
        self.recovered.cache = Some(CacheReport {
            cache,
            number,
            state,
            offset_bytes,
            size_bytes: area.map_or(0, Area::size_bytes),
            chunk_bytes: area.map_or(0, Area::chunk_bytes),
            chunk_offsets_bytes: area.map_or_else(Vec::new, |area| area.chunks().to_vec()),
        });
    }

    /// Goes on without what was written behind the root, and without what the maps name in the area if that is not there.
    fn replay_nothing(&mut self, root: &Root) {
        let is_absent = self.reader.area().is_none();
        let what = match is_absent {
            true => "the cache drive that the drive is bound to is not there: what it holds is missing",
            false => {
                "the cache drive that the drive is bound to is an image of another time: its journal is missing"
            }
        };
        let offset = offset_of(self.superblock().size_blocks);
        self.recovered.damage.push(Damage::of_structure(DamageKind::Cache, offset, 0, what.to_owned()));
        let first = self.superblock().size_blocks;
        for slab in self.recovered.state.slabs.values_mut().filter(|_| is_absent) {
            let named =
                slab.mapped().filter(|(_, mapping)| mapping.physical().is_some_and(|block| block >= first));
            let named: Vec<u32> = named.map(|(block, _)| block).collect();
            named.into_iter().for_each(|block| slab.set_mapping(block, Mapping::LOST));
        }
        self.recovered.journal.first_sequence = root.journal.sequence;
        self.note_root_slots(Some(root), 0);
        self.prove_no_lost_slabs();
        self.prove_only_marks();
    }

    /// Applies the journal from the root's position on, and judges what stands behind its end.
    fn replay(&mut self, root: &Root) {
        let place = self.journal_place();
        let mut chain = Chain::new(self.reader, self.superblock().drive, place, root);
        let first_sequence = chain.next_sequence();
        let mut last: Option<PlacedGroup> = None;
        let mut named_generation = 0;
        while let Some(group) = chain.next() {
            named_generation = named_generation.max(group.group.header.root_generation);
            let length = group.group.header.length_bytes as u64;
            let structure = Structure::new(DamageKind::JournalGroup, group.offset_bytes, length);
            self.note_structure(Structure { sequence: Some(group.group.header.sequence), ..structure });
            if let Some(confirmed) = last.replace(group) {
                confirmed.group.records.iter().for_each(|record| self.recovered.state.apply(record));
            }
        }
        if let Some(last) = &last {
            self.judge(last);
        }
        let behind = chain.look_behind();
        self.recovered.journal = JournalReport {
            offset_bytes: offset_of(place.first_block),
            size_bytes: u64::from(place.blocks) * BLOCK_BYTES as u64,
            used_bytes: chain.used_bytes(),
            first_sequence,
            groups: chain.next_sequence() - first_sequence,
            groups_cut_off: behind.groups_cut_off,
            blocks_in_doubt: self.recovered.journal.blocks_in_doubt,
        };
        self.note_journal_damage(&behind, chain.next_sequence());
        let newest = named_generation.max(behind.root_generation);
        self.note_root_slots(Some(root), newest);
        self.prove_no_lost_slabs();
        if behind.gap {
            self.prove_only_marks();
        }
        if newest > root.generation {
            self.forget_everything(root.generation, newest);
        }
    }

    fn note_journal_damage(&mut self, behind: &Behind, next_sequence: u64) {
        for group in &behind.damaged {
            let (offset, length) = (group.offset_bytes, group.length_bytes);
            let damage = Damage::of_structure(DamageKind::JournalGroup, offset, length, group.why.clone());
            // Only the very last group can be under way when a crash comes. A higher number than its
            // own stands in no group that was ever written at this end of the chain.
            let by_crash = !behind.gap && group.sequence == Some(next_sequence);
            self.recovered.damage.push(Damage { sequence: group.sequence, by_crash, ..damage });
        }
    }

    /// The last group's data need not have been durable: block by block, what is not there did not
    /// happen.
    fn judge(&mut self, last: &PlacedGroup) {
        for record in &last.group.records {
            let (is_write, run) = match record {
                Record::Write(run) => (true, run),
                Record::Heal(run) => (false, run),
                other => {
                    self.recovered.state.apply(other);
                    continue;
                }
            };
            for (block, mapping) in run.mappings() {
                self.judge_block(run, block, mapping, is_write);
            }
        }
    }

    fn judge_block(&mut self, run: &Run, block: u32, mapping: Mapping, is_write: bool) {
        let state = &mut self.recovered.state;
        let Some(slab) = state.slabs.get(&run.slab_slot) else { return };
        let Some(volume) = state.volume_of(slab) else { return };
        let checksum = BlockChecksum::new(volume.volume, slab.slab);
        let version = Version::new(volume.record_epoch, run.counter);
        let is_there = match mapping.physical() {
            // A heal that takes a write back can name no block; it needs no data.
            None => true,
            Some(physical) => {
                self.recovered.last_group_blocks.insert((run.slab_slot, block));
                let data = self.reader.block(physical);
                data.is_ok_and(|data| checksum.of(block, &data) == mapping.checksum)
            }
        };
        let single =
            Run { first: block, physical: mapping.block, checksums: vec![mapping.checksum], ..run.clone() };
        if is_there {
            state.apply(&if is_write { Record::Write(single) } else { Record::Heal(single) });
            return;
        }
        self.recovered.journal.blocks_in_doubt += 1;
        if is_write {
            state.list(run.slab_slot, block, 1, version, true);
        }
    }

    /// Writes above the last mark seen may be missing, and what said that a page is not whole any
    /// more.
    fn prove_only_marks(&mut self) {
        self.recovered.may_be_older = true;
        let state = &mut self.recovered.state;
        for slab in state.slabs.values_mut() {
            slab.pages.iter_mut().for_each(|page| page.whole = false);
            let volume = state.volumes.get(&slab.volume_slot);
            let proven = volume.map_or(Version::ZERO, |volume| volume.listing.proven());
            slab.prove_only(proven);
        }
    }

    /// What a slab's root page named is lost, also if the journal says that the copy was made whole.
    fn prove_no_lost_slabs(&mut self) {
        let Recovered { lost_slab_roots, state, may_be_older, .. } = &mut self.recovered;
        *may_be_older |= !lost_slab_roots.is_empty();
        for slot in lost_slab_roots.iter() {
            if let Some(slab) = state.slabs.get_mut(slot) {
                slab.prove_only(Version::ZERO);
            }
        }
    }

    /// The newest root is gone, and with it all that its maps held: what an older one names may
    /// have been overwritten since.
    fn forget_everything(&mut self, generation: u64, newest: u64) {
        self.recovered.may_be_older = true;
        for slab in self.recovered.state.slabs.values_mut() {
            slab.pages.iter_mut().for_each(|page| *page = Default::default());
            slab.map = PagePointer::default();
            slab.prove_only(Version::ZERO);
        }
        self.recovered.damage.push(Damage::contradiction(format!(
            "the journal names root generation {newest}, and the newest root there is has generation \
             {generation}: the maps are lost, and every copy counts as empty"
        )));
    }

    /// That no two mappings or map pages name one physical block. Where the journal is damaged, a
    /// mapping can be older than another one's use of its block: then it is lost.
    fn check_owners(&mut self) {
        let superblock = self.recovered.superblock.clone();
        let mut owners = Owners::new(&superblock, self.reader.area());
        let state = &mut self.recovered.state;
        let mut pages = state.retired_pages.clone();
        for slab in state.slabs.values() {
            let pointers = slab.pages.iter().map(|page| page.pointer).chain([slab.map]);
            pages.extend(pointers.filter(|page| !page.is_none()).map(|page| page.block));
        }
        let mut damage = Vec::new();
        for block in pages {
            if !owners.take(block) {
                damage.push(Damage::contradiction(format!("two map pages name physical block {block}")));
            }
        }
        let may_be_older = self.recovered.may_be_older;
        for (slot, slab) in &mut state.slabs {
            let taken_twice: Vec<(u32, u32)> = slab
                .mapped()
                .filter_map(|(block, mapping)| Some((block, mapping.physical()?)))
                .filter(|(_, physical)| !owners.take(*physical))
                .collect();
            for (block, physical) in taken_twice {
                slab.set_mapping(block, Mapping::LOST);
                if !may_be_older {
                    let slab: &Slab = slab;
                    damage.push(Damage::contradiction(format!(
                        "physical block {physical} has two owners, one block {block} of slab {} in slot {slot}",
                        slab.slab
                    )));
                }
            }
        }
        self.recovered.damage.extend(damage);
    }
}

/// The leaf of a page of which nothing is known any more.
fn lost_leaf() -> Box<Leaf> {
    Box::new([Mapping::LOST; PAGE_BLOCKS as usize])
}

/// Which data blocks have an owner, on the drive and in its area.
struct Owners {
    data: [Range<u32>; 2],
    first: u32,
    taken: Vec<u64>,
}

impl Owners {
    fn new(superblock: &Superblock, area: Option<PlacedArea<'_>>) -> Self {
        let on_drive = superblock.data_first_block..superblock.last_block();
        let in_area = area.map_or(0..0, |placed| {
            let blocks = (placed.area.size_bytes() / BLOCK_BYTES as u64)
                .min(u64::from(SIZE_BLOCKS_MAX - superblock.size_blocks)) as u32;
            superblock.size_blocks + superblock.journal_blocks.min(blocks)..superblock.size_blocks + blocks
        });
        let (first, end) = (on_drive.start, on_drive.end.max(in_area.end));
        Self { data: [on_drive, in_area], first, taken: vec![0; (end - first).div_ceil(64) as usize] }
    }

    /// Gives a block its owner; false if it has one or is no data block.
    fn take(&mut self, block: u32) -> bool {
        if !self.data.iter().any(|data| data.contains(&block)) {
            return false;
        }
        let index = block - self.first;
        let word = &mut self.taken[(index / 64) as usize];
        let bit = 1 << (index % 64);
        let was_free = *word & bit == 0;
        *word |= bit;
        was_free
    }
}
