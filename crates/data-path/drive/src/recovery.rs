//! Attaching a drive: from the bytes that a crash may have left to a state that can be proven.
//!
//! 1. The superblock, from either of its two copies.
//! 2. The newest root that is whole, from four slots; each generation is held twice.
//! 3. The slab roots and leaves that the root names, each against its parent's checksum. What a
//!    damaged leaf mapped is *lost*: its blocks read as damaged until they are healed. A damaged
//!    slab root loses the slab's page versions too: that copy is proven for nothing.
//! 4. The journal from the root's position on, group by group, as long as the chain holds. All
//!    groups but the last are confirmed: their data were durable. The last one's data are read;
//!    a block that does not match keeps its former content, and the write is listed *in doubt*.
//! 5. Free blocks are those that no map and no page names.
//! 6. A checkpoint with a raised attach number is made before anything else is written. Until its
//!    root is durable, the drive is as it was: another recovery finds the same root and the same
//!    chain, and decides anew. It does not read what this one wrote behind the chain.
//!
//! A group that is whole but stands behind a gap in the chain proves that the journal was damaged
//! and not only cut off by a crash: then all copies on the drive are proven only up to the last
//! mark seen. When groups name a newer root than was found, the maps are lost and all copies start
//! from nothing. What is unreadable is damaged as well; but a drive that answers nothing any more has failed,
//! and the recovery ends there: nothing is written down of what it may hold whole (see `drive_check`).
//!
//! Where the drive is bound to a cache drive, the journal stands in its area there, and maps lead to blocks of it. If that drive
//! is lost, so is what was written behind the root, and each block that a leaf names in the area: copies are proven up to
//! the marks of the root then, as with a damaged journal. Whether the area is the one that the root was written with is
//! told by the binding's number and by the group before the root's position, which must still stand there, or the next one
//! behind it.
//!
//! What a copy is proven for stands in the root from then on: the next recovery finds
//! nothing damaged any more, and the copy still lacks what was lost, until a resync has made it whole.

use futures_util::future::join_all;
use spandrel_platform::{BufferMut, DriveError, Platform};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::checksum::BlockChecksum;
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{BLOCK_BYTES, PAGE_BLOCKS, Version};

use crate::allocator::Allocator;
use crate::attach::{AttachReport, UnprovenCopy};
use crate::cache_drive::CacheArea;
use crate::drive_check::read_place;
use crate::error::AttachError;
use crate::format::FormatError;
use crate::format::journal::{Group, MappingRecord, Record, SlabAdd};
use crate::format::map::{Leaf, PageEntry, PagePointer, decode_leaf, decode_slab_root};
use crate::format::root::{JournalPosition, Root, RootSlab};
use crate::format::superblock::Superblock;
use crate::journal_reader::JournalReader;
use crate::layout::{Layout, ROOT_SLOTS};
use crate::map_memory::PagePlace;
use crate::media::{Flushed, Media};
use crate::slab_copy::{Page, physical_blocks};
use crate::state::State;
use crate::store::SlabSlot;
use crate::volume_state::VolumeState;

/// Map pages that are read at the same time.
const PAGES_AT_ONCE: usize = 256;

/// Groups of the journal that are applied at the same time, so that the leaves that they change are read at the same time.
const GROUPS_AT_ONCE: usize = 64;

/// What the replay leaves for the store to go on with.
pub(crate) struct Replay {
    pub(crate) next: JournalPosition,
    pub(crate) used_sectors: u64,
    /// Above that of every attach that has left its mark in the journal that it goes on in, so that its groups are never
    /// taken for this one's.
    pub(crate) attach_number: u64,
}

impl Replay {
    /// The journal goes on at the beginning of another one.
    pub(crate) fn move_journal(&mut self) {
        let JournalPosition { sequence, lap, previous_checksum, .. } = self.next;
        self.next =
            JournalPosition { sequence, sector: 0, lap: lap + 1, previous_checksum, previous_sector: None };
        self.used_sectors = 0;
    }
}

pub(crate) struct Recovery<'a, P: Platform> {
    platform: &'a P,
    pub(crate) media: Media<P::Drive>,
    superblock: &'a Superblock,
    pub(crate) layout: Layout,
    pub(crate) state: State,
    /// Root slots that hold neither a root nor zeros.
    pub(crate) torn_root_slots: Vec<u32>,
    /// Slabs whose root page is lost.
    lost_slab_roots: Vec<u32>,
    /// Whether a mapping can be older than the reuse of its block.
    may_be_older: bool,
    pub(crate) report: AttachReport,
}

impl<'a, P: Platform> Recovery<'a, P> {
    pub(crate) fn new(platform: &'a P, media: Media<P::Drive>, superblock: &'a Superblock) -> Self {
        let layout = superblock.layout;
        let state = State::new(layout.slab_geometry);
        let report = AttachReport::default();
        let (torn_root_slots, lost_slab_roots, may_be_older) = (Vec::new(), Vec::new(), false);
        Self {
            platform,
            media,
            superblock,
            layout,
            state,
            torn_root_slots,
            lost_slab_roots,
            may_be_older,
            report,
        }
    }

    /// As [`read_place`].
    async fn read(&self, offset: u64, length: usize) -> Result<Result<BufferMut, DriveError>, DriveError> {
        let read = read_place(self.platform, &self.media, &self.layout, offset, length).await?;
        if let Err(error) = &read {
            tracing::warn!(drive = %self.superblock.drive, "{error}");
        }
        Ok(read)
    }

    /// The newest whole root, and whether its twin is not whole.
    pub(crate) async fn find_root(&mut self) -> Result<(Root, bool), AttachError> {
        let slot_bytes = self.layout.root_slot_blocks as usize * BLOCK_BYTES;
        let mut roots = Vec::new();
        let mut failure = None;
        for slot in 0..ROOT_SLOTS {
            let root = match self.read(Layout::offset_of(self.layout.root_slot(slot)), slot_bytes).await? {
                Ok(bytes) if bytes.iter().all(|byte| *byte == 0) => continue,
                Ok(bytes) => match Root::decode(&bytes, self.superblock.drive) {
                    Ok(root) => Some(root),
                    // Whole, so not to be cleared away.
                    Err(FormatError::Newer { version, .. }) => {
                        return Err(AttachError::Newer(format!("its maps have leaves of format {version}")));
                    }
                    Err(_) => None,
                },
                Err(error) => {
                    failure = Some(error);
                    None
                }
            };
            match root {
                Some(root) => roots.push(root),
                None => self.torn_root_slots.push(slot),
            }
        }
        let newest = roots.iter().max_by_key(|root| root.generation).cloned();
        let newest = newest.ok_or_else(|| {
            let why = failure.map_or_else(String::new, |error| format!(": {error}"));
            AttachError::Damaged(format!("no root of the drive's maps is whole{why}"))
        })?;
        let twins = roots.iter().filter(|root| root.generation == newest.generation).count();
        Ok((newest, twins < 2))
    }

    /// Clears what a crash has left of roots where those of `generation` will stand. A recovery
    /// that did not come to its end may have begun to write a root there that differs from the next
    /// one in few sectors. If that were torn as well, the pieces of both could add up to the older
    /// one, whose pages and groups are overwritten by then.
    pub(crate) async fn clear_torn_roots(&self, generation: u64) -> Result<(), DriveError> {
        let pair = Layout::root_slots_of(generation);
        let torn: Vec<u32> =
            self.torn_root_slots.iter().copied().filter(|slot| pair.contains(slot)).collect();
        for slot in &torn {
            let zeros =
                self.platform.buffers().take_zeroed(self.layout.root_slot_blocks as usize * BLOCK_BYTES);
            self.media.write(Layout::offset_of(self.layout.root_slot(*slot)), vec![zeros.freeze()]).await?;
        }
        if !torn.is_empty() {
            self.media.flush(Flushed::All).await?;
        }
        Ok(())
    }

    /// Reads and writes with this area from now on, or without one.
    pub(crate) fn stand_on(
        &mut self,
        drive: &P::Drive,
        area: Option<CacheArea<P::Drive>>,
    ) -> Result<(), AttachError> {
        let layout = self.superblock.layout;
        self.layout = match &area {
            None => layout,
            Some(area) => layout.with_area(area.blocks(), area.sector_bytes()).ok_or_else(|| {
                let (blocks, journal) = (area.blocks(), layout.journal_blocks);
                AttachError::Size(format!(
                    "an area of {blocks} blocks is too small for a journal of {journal}"
                ))
            })?,
        };
        self.media = Media::new(drive.clone(), area, &self.layout, self.platform.buffers().clone());
        Ok(())
    }

    /// Whether the area that the drive is bound to is the one that the root was written with. Refused if that cannot be said:
    /// all that it holds would be given up.
    pub(crate) async fn is_area_of(&self, root: &Root) -> Result<bool, AttachError> {
        if root.binding.is_none() || canary::is_planted(Bug::TrustOldCache) {
            return Ok(true);
        }
        let mut reader = JournalReader::new(self.platform, &self.media, self.layout, root);
        reader.is_continued().await?.ok_or_else(|| {
            AttachError::Cache(
                "the journal on the cache drive cannot be read where it tells whether it is the right one"
                    .to_owned(),
            )
        })
    }

    /// Goes on without what was written behind the root, and without what the maps name in the area if that is lost. In an area
    /// of another time some blocks are still what their checksums say, and the others show.
    pub(crate) fn replay_nothing(&mut self, root: &Root, is_lost: bool) -> Replay {
        tracing::error!(
            drive = %self.superblock.drive,
            "the cache drive that the drive was bound to is {}: what it held is missing",
            if is_lost { "lost" } else { "an image of another time" }
        );
        witness::reached(if is_lost { Rare::CacheLost } else { Rare::CacheOfAnotherTime });
        self.report.area_lost = true;
        let slabs = self.state.slabs.iter_mut().filter(|_| is_lost);
        for (_, slab) in slabs {
            let named: Vec<(u32, u32)> = slab.mapped_blocks();
            let first = self.superblock.layout.size_blocks;
            for (block, _) in named.into_iter().filter(|(_, physical)| *physical >= first) {
                slab.lose(block);
                self.report.blocks_lost += 1;
            }
        }
        self.prove_no_lost_slabs();
        self.prove_only_marks();
        let mut replay =
            Replay { next: root.journal, used_sectors: 0, attach_number: root.attach_number + 1 };
        replay.move_journal();
        replay
    }

    /// Refuses to leave an area of which blocks are named.
    pub(crate) fn leave_area(&self) -> Result<(), AttachError> {
        let first = self.superblock.layout.size_blocks;
        let mut slabs = self.state.slabs.iter();
        let is_named =
            slabs.any(|(_, slab)| slab.mapped_blocks().iter().any(|(_, physical)| *physical >= first));
        match is_named {
            true => {
                Err(AttachError::Cache("the drive's area on its cache drive still holds data".to_owned()))
            }
            false => Ok(()),
        }
    }

    pub(crate) async fn load_maps(&mut self, root: &Root) -> Result<(), AttachError> {
        for volume in &root.volumes {
            self.check_slot(volume.slot)?;
            self.state.add_volume(volume.slot, volume.volume);
            if let Some(state) = self.state.volumes.get_mut(volume.slot) {
                state.restore(volume);
            }
        }
        for slab in &root.slabs {
            self.check_slot(slab.slot)?;
            self.state.add_slab(&SlabAdd {
                slab_slot: slab.slot,
                volume_slot: slab.volume_slot,
                slab: slab.slab,
                layout: slab.layout,
                copy: slab.copy,
                birth: slab.birth,
            });
            self.load_slab(slab).await?;
        }
        Ok(())
    }

    /// Refuses a root that lets the journal go on behind its end.
    pub(crate) fn check_position(&self, root: &Root) -> Result<(), AttachError> {
        let (sector, end) = (root.journal.sector, self.layout.journal_sectors());
        if sector <= end {
            return Ok(());
        }
        Err(AttachError::Damaged(format!("the journal of {end} sectors goes on at sector {sector}")))
    }

    /// Refuses a slot that no store has given out: the tables are as long as the highest one.
    fn check_slot(&self, slot: u32) -> Result<(), AttachError> {
        if slot < self.layout.slots_max() {
            return Ok(());
        }
        Err(AttachError::Damaged(format!("slot {slot} lies beyond what the drive can hold")))
    }

    fn check_slots(&self, group: &Group) -> Result<(), AttachError> {
        group.records.iter().try_for_each(|record| match record {
            Record::VolumeAdd { volume_slot, .. } => self.check_slot(*volume_slot),
            Record::SlabAdd(add) => self.check_slot(add.slab_slot),
            _ => Ok(()),
        })
    }

    async fn load_slab(&mut self, root: &RootSlab) -> Result<(), AttachError> {
        let page_count = self.layout.slab_geometry.slab_pages();
        let entries = if root.map.is_none() {
            vec![PageEntry::default(); page_count as usize]
        } else {
            match self.read_page(root.map).await? {
                Some(page) => decode_slab_root(&page, root.map.checksum, page_count),
                None => None,
            }
            .unwrap_or_default()
        };
        let lost_root = entries.len() != page_count as usize;
        let pages = if lost_root {
            self.report.structures_damaged += 1;
            self.report.blocks_lost += u64::from(page_count) * u64::from(PAGE_BLOCKS);
            self.lost_slab_roots.push(root.slot);
            (0..page_count).map(|_| Page::lost(PageEntry::default())).collect()
        } else {
            self.load_leaves(entries).await?
        };
        let Some(slab) = self.state.slabs.get_mut(root.slot) else {
            return Err(AttachError::Damaged(format!("slab {} belongs to no volume of the root", root.slab)));
        };
        slab.map = root.map;
        slab.proven = root.proven;
        slab.dirty = root.map.is_none() || pages.iter().any(|page: &Page| page.dirty);
        slab.put_pages(pages);
        for page in 0..page_count {
            self.state.list_evictable(PagePlace { slab_slot: root.slot, page });
        }
        self.state.evict_leaves(page_count as usize);
        Ok(())
    }

    async fn load_leaves(&mut self, entries: Vec<PageEntry>) -> Result<Vec<Page>, AttachError> {
        let mut pages = Vec::with_capacity(entries.len());
        for step in entries.chunks(PAGES_AT_ONCE) {
            let reads = step.iter().map(|entry| async {
                if entry.leaf.is_none() { Ok(None) } else { self.read_leaf(entry.leaf).await }
            });
            let leaves: Result<Vec<Option<Box<Leaf>>>, DriveError> =
                join_all(reads).await.into_iter().collect();
            for (entry, leaf) in step.iter().zip(leaves?) {
                pages.push(match leaf {
                    _ if entry.leaf.is_none() => Page::empty(*entry),
                    Some(leaf) => Page::found(leaf, *entry),
                    None => {
                        self.count_lost_page();
                        Page::lost(*entry)
                    }
                });
            }
        }
        Ok(pages)
    }

    /// A leaf is damaged: of its page only what the parent says is known.
    fn count_lost_page(&mut self) {
        self.report.structures_damaged += 1;
        self.report.blocks_lost += u64::from(PAGE_BLOCKS);
    }

    /// A leaf, or none if there is none where it should be.
    async fn read_leaf(&self, pointer: PagePointer) -> Result<Option<Box<Leaf>>, DriveError> {
        Ok(self.read_page(pointer).await?.and_then(|block| decode_leaf(&block, pointer.checksum)))
    }

    /// The block of a map page, or `None` if it cannot be read or lies outside the data blocks.
    async fn read_page(&self, pointer: PagePointer) -> Result<Option<BufferMut>, DriveError> {
        if !(self.layout.data_first_block..self.layout.data_end_block()).contains(&pointer.block) {
            return Ok(None);
        }
        Ok(self.read(Layout::offset_of(pointer.block), BLOCK_BYTES).await?.ok())
    }

    /// Applies the journal from the root's position on.
    pub(crate) async fn replay(&mut self, root: &Root, lacks_twin: bool) -> Result<Replay, AttachError> {
        let media = self.media.clone();
        let mut reader = JournalReader::new(self.platform, &media, self.layout, root);
        let (mut confirmed, mut last): (Vec<Group>, Option<Group>) = (Vec::new(), None);
        let mut newest_generation = 0;
        while let Some(group) = reader.next().await? {
            self.check_slots(&group)?;
            newest_generation = newest_generation.max(group.header.root_generation);
            let Some(group) = last.replace(group) else { continue };
            if canary::is_planted(Bug::RollDamageBack) {
                self.judge(&group).await?;
                continue;
            }
            confirmed.push(group);
            if confirmed.len() == GROUPS_AT_ONCE {
                self.apply_confirmed(&std::mem::take(&mut confirmed)).await?;
            }
        }
        self.apply_confirmed(&confirmed).await?;
        if let Some(group) = last.filter(|_| !canary::is_planted(Bug::RollLastGroupBack)) {
            self.report.groups_replayed += 1;
            self.judge(&group).await?;
            if self.report.blocks_in_doubt > 0 {
                witness::reached(Rare::JournalTailTorn);
            }
        }
        // The twin of a root that groups name was durable: it did not just miss its write.
        self.report.structures_damaged += u64::from(lacks_twin && newest_generation == root.generation);
        self.prove_no_lost_slabs();
        let behind = reader.look_behind().await?;
        if behind.gap {
            self.report.structures_damaged += 1;
            self.prove_only_marks();
            // What shows that must still be there if this recovery does not come to its end.
            reader.skip(&behind);
        }
        if newest_generation.max(behind.root_generation) > root.generation {
            self.report.structures_damaged += 1;
            self.prove_nothing();
        }
        Ok(Replay {
            next: reader.position(),
            used_sectors: reader.used_sectors(),
            attach_number: root.attach_number.max(behind.attach_number) + 1,
        })
    }

    async fn apply_confirmed(&mut self, groups: &[Group]) -> Result<(), DriveError> {
        self.report.groups_replayed += groups.len() as u64;
        let records = || groups.iter().flat_map(|group| &group.records);
        self.read_back(records()).await?;
        records().for_each(|record| self.state.apply(record));
        Ok(())
    }

    /// Has the leaves in memory that records change. What has changed stays there (see `map_memory`).
    async fn read_back<'r>(&mut self, records: impl Iterator<Item = &'r Record>) -> Result<(), DriveError> {
        let places = self.state.pages_of_all(records);
        self.state.evict_leaves(places.len());
        let evicted = self.state.evicted(&places);
        for step in evicted.chunks(PAGES_AT_ONCE) {
            let leaves = join_all(step.iter().map(|(_, pointer)| self.read_leaf(*pointer))).await;
            for ((place, pointer), leaf) in step.iter().zip(leaves) {
                if !self.state.take_leaf(*place, *pointer, leaf?) {
                    self.count_lost_page();
                }
            }
        }
        Ok(())
    }

    /// Applies the last group block by block, as far as its data are there.
    async fn judge(&mut self, group: &Group) -> Result<(), DriveError> {
        self.read_back(group.records.iter()).await?;
        for record in &group.records {
            let (Record::Write(mapping) | Record::Heal(mapping)) = record else {
                self.state.apply(record);
                continue;
            };
            let is_write = matches!(record, Record::Write(_));
            let matches = self.data_matches(mapping).await?;
            for part in parts_of(mapping, &matches) {
                self.apply_part(part, is_write);
            }
        }
        Ok(())
    }

    /// Applies a part of a record whose data are there, or lists it as in doubt.
    fn apply_part(&mut self, part: RecordPart, is_write: bool) {
        let record = part.record;
        if part.matches {
            self.state.apply(&if is_write { Record::Write(record) } else { Record::Heal(record) });
            return;
        }
        self.report.blocks_in_doubt += u64::from(record.count());
        let volume_slot = self.state.slabs.get(record.slab_slot).map(|slab| slab.volume_slot);
        if let Some(volume) = volume_slot.and_then(|slot| self.state.volumes.get(slot))
            && is_write
        {
            let version = Version::new(volume.record_epoch, record.counter);
            let (slab_slot, first, count) = (record.slab_slot, record.first, record.count());
            self.state.apply(&Record::Listed { slab_slot, first, count, version, in_doubt: true });
        }
    }

    /// For each block of a record: whether its data are on the drive.
    async fn data_matches(&self, mapping: &MappingRecord) -> Result<Vec<bool>, DriveError> {
        let mut matches = vec![false; mapping.checksums.len()];
        let Some(slab) = self.state.slabs.get(mapping.slab_slot) else {
            // Removed in a later group; nothing is applied.
            return Ok(vec![true; mapping.checksums.len()]);
        };
        let Some(volume) = self.state.volumes.get(slab.volume_slot) else { return Ok(matches) };
        let checksum = BlockChecksum::new(volume.volume, slab.slab);
        for ((block, mapping), matches) in mapping.mappings().zip(&mut matches) {
            // A heal that undoes a write may name no block; it needs no data.
            let Some(physical) = mapping.physical() else {
                *matches = true;
                continue;
            };
            if let Ok(data) = self.read(Layout::offset_of(physical), BLOCK_BYTES).await? {
                *matches =
                    checksum.of(block, &data) == mapping.checksum || canary::is_planted(Bug::TrustTornTail);
            }
        }
        Ok(matches)
    }

    /// The journal is damaged: writes above the last mark seen, and exceptions below it, may be
    /// missing, and so may be what said that a page is not whole any more.
    fn prove_only_marks(&mut self) {
        self.may_be_older = true;
        for (_, slab) in self.state.slabs.iter_mut() {
            slab.doubt_whole_pages();
            let volume = self.state.volumes.get(slab.volume_slot);
            slab.prove_only(volume.map_or(Version::ZERO, VolumeState::proven));
        }
    }

    /// What the journal says of a slab whose root page is lost does not bring back what that named, even
    /// if it says that a resync had made the copy whole.
    fn prove_no_lost_slabs(&mut self) {
        self.may_be_older |= !self.lost_slab_roots.is_empty();
        for slot in &self.lost_slab_roots {
            if let Some(slab) = self.state.slabs.get_mut(*slot) {
                slab.prove_only(Version::ZERO);
            }
        }
    }

    /// The newest root is lost, and with it all that its maps held. What an older root names may
    /// have been overwritten since, so every copy starts empty.
    fn prove_nothing(&mut self) {
        self.may_be_older = true;
        for (_, slab) in self.state.slabs.iter_mut() {
            slab.forget();
            slab.prove_only(Version::ZERO);
        }
    }

    pub(crate) fn report_unproven(&mut self) {
        let unproven = self.state.slabs.iter().filter_map(|(slot, slab)| {
            slab.proven.map(|proven| UnprovenCopy { slot: SlabSlot(slot), proven })
        });
        self.report.unproven = unproven.collect();
    }

    /// Every block of a slab copy that has a physical one, as (block within the slab, physical block). Leaves that are evicted are
    /// read for that, and not kept.
    async fn blocks_of(&mut self, slot: u32) -> Result<Vec<(u32, u32)>, AttachError> {
        let pages = self.layout.slab_geometry.slab_pages();
        let places: Vec<PagePlace> = (0..pages).map(|page| PagePlace { slab_slot: slot, page }).collect();
        let evicted = self.state.evicted(&places);
        let mut blocks = Vec::new();
        for step in evicted.chunks(PAGES_AT_ONCE) {
            let leaves = join_all(step.iter().map(|(_, pointer)| self.read_leaf(*pointer))).await;
            for ((place, pointer), leaf) in step.iter().zip(leaves) {
                match leaf? {
                    Some(leaf) => blocks.extend(physical_blocks(place.page, &leaf)),
                    // It was whole when the maps were loaded.
                    None => {
                        self.state.take_leaf(*place, *pointer, None);
                        self.count_lost_page();
                    }
                }
            }
        }
        let Some(slab) = self.state.slabs.get(slot) else { return Ok(blocks) };
        let in_memory = (0..pages).filter(|page| !slab.pages[*page as usize].is_evicted());
        blocks.extend(in_memory.flat_map(|page| slab.mapped_blocks_of(page)));
        blocks.sort_unstable();
        Ok(blocks)
    }

    /// Takes every block that a map or a page names; the rest is free. Where the journal is
    /// damaged, a mapping can be older than another one's reuse of its block: it is lost then.
    pub(crate) async fn count_free_blocks(&mut self) -> Result<(), AttachError> {
        let mut allocator = Allocator::new(self.layout.data_first_block, self.layout.data_end_block());
        if self.layout.area_blocks > 0 {
            allocator = allocator.with_area(self.layout.area_first_block(), self.layout.area_end_block());
        }
        let mut pages: Vec<u32> = self.state.retired_pages.clone();
        for (_, slab) in self.state.slabs.iter() {
            let leaves = slab.pages.iter().map(|page| page.entry.leaf);
            pages.extend(leaves.chain([slab.map]).filter(|page| !page.is_none()).map(|page| page.block));
        }
        for page in pages {
            if !allocator.take(page) {
                return Err(AttachError::Damaged(format!("two map pages name physical block {page}")));
            }
        }
        let slots: Vec<u32> = self.state.slabs.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            for (block, physical) in self.blocks_of(slot).await? {
                if allocator.take(physical) {
                    continue;
                }
                if !self.may_be_older {
                    return Err(AttachError::Damaged(format!("physical block {physical} has two owners")));
                }
                let lost = [Record::Heal(MappingRecord::lost(slot, block))];
                self.read_back(lost.iter()).await?;
                lost.iter().for_each(|record| self.state.apply(record));
                self.report.blocks_lost += 1;
            }
        }
        self.state.allocator = Some(allocator);
        self.state.count_area(&self.layout);
        Ok(())
    }
}

/// A run of blocks of a record that share the fate of their data.
struct RecordPart {
    record: MappingRecord,
    matches: bool,
}

fn parts_of(mapping: &MappingRecord, matches: &[bool]) -> Vec<RecordPart> {
    let mut parts = Vec::new();
    let mut start = 0;
    while start < matches.len() {
        let length =
            matches[start..].iter().take_while(|matches_too| **matches_too == matches[start]).count();
        let offset = start as u32;
        let record = MappingRecord {
            first: mapping.first + offset,
            block: mapping.block + offset,
            checksums: mapping.checksums[start..start + length].into(),
            ..mapping.clone()
        };
        parts.push(RecordPart { record, matches: matches[start] });
        start += length;
    }
    parts
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
