//! What a drive holds: its volumes and slab copies, and how a journal record changes them.
//!
//! Records name slabs and volumes by slots. A record whose slab or volume is not there, or whose
//! blocks lie outside the slab, changes nothing: the root was written later than the place where
//! it lets the journal begin, so it may know of removals that the journal still tells of.

use std::collections::{BTreeMap, BTreeSet};

use spandrel_shared::{CopyId, Epoch, PAGE_BLOCKS, SlabGeometry, SlabIndex, Version, VolumeId};

use crate::journal::{Record, Run, SlabAdd};
use crate::listing::{ListedRun, Listing};
use crate::map::{Leaf, Mapping};
use crate::root::{PagePointer, RootVolume, SlabLayout};

/// A volume of which the drive holds slabs.
pub struct Volume {
    pub volume: VolumeId,
    pub fence_epoch: Epoch,
    /// The epoch of the counters in records.
    pub record_epoch: Epoch,
    pub listing: Listing,
}

/// A copy of a slab.
pub struct Slab {
    pub volume_slot: u32,
    pub slab: SlabIndex,
    pub layout: SlabLayout,
    pub copy: CopyId,
    pub birth: Version,
    /// The slab root that the drive's root names.
    pub map: PagePointer,
    pub pages: Vec<Page>,
    /// Everything at or below this version is there, where the drive cannot prove more.
    pub proven: Option<Version>,
}

/// A page of a slab's copy.
#[derive(Default)]
pub struct Page {
    /// The mappings; `None` while nothing is mapped.
    pub leaf: Option<Box<Leaf>>,
    /// The leaf that the slab root names.
    pub pointer: PagePointer,
    pub version: Version,
    pub whole: bool,
}

impl Page {
    /// Blocks of which something is stored, or was.
    pub fn mapped_blocks(&self) -> u32 {
        let leaf = self.leaf.iter().flat_map(|leaf| leaf.iter());
        leaf.filter(|mapping| **mapping != Mapping::NONE).count() as u32
    }
}

impl Slab {
    /// Lets the copy count as whole up to `version` at most.
    pub fn prove_only(&mut self, version: Version) {
        self.proven = Some(self.proven.map_or(version, |proven| proven.min(version)));
    }

    pub fn set_mapping(&mut self, block: u32, mapping: Mapping) {
        let page = &mut self.pages[(block / PAGE_BLOCKS) as usize];
        if page.leaf.is_none() && mapping == Mapping::NONE {
            return;
        }
        let leaf = page.leaf.get_or_insert_with(|| Box::new([Mapping::NONE; PAGE_BLOCKS as usize]));
        leaf[(block % PAGE_BLOCKS) as usize] = mapping;
    }

    /// Every block of which something is stored, or was, with what it is mapped to.
    pub fn mapped(&self) -> impl Iterator<Item = (u32, Mapping)> + '_ {
        let pages = (0..).step_by(PAGE_BLOCKS as usize).zip(&self.pages);
        let leaves = pages.filter_map(|(first, page)| Some((first, page.leaf.as_ref()?)));
        leaves
            .flat_map(|(first, leaf): (u32, _)| (first..).zip(leaf.iter().copied()))
            .filter(|(_, mapping)| *mapping != Mapping::NONE)
    }

    fn contains(&self, first: u32, count: u32) -> bool {
        let blocks = self.pages.len() as u64 * u64::from(PAGE_BLOCKS);
        count > 0 && u64::from(first) + u64::from(count) <= blocks
    }

    fn raise_versions(&mut self, first: u32, count: u32, version: Version) {
        let pages = first / PAGE_BLOCKS..=(first + count - 1) / PAGE_BLOCKS;
        for page in &mut self.pages[*pages.start() as usize..=*pages.end() as usize] {
            page.version = page.version.max(version);
        }
    }
}

/// All that a drive holds.
pub struct State {
    geometry: SlabGeometry,
    /// By slot.
    pub volumes: BTreeMap<u32, Volume>,
    /// By slot.
    pub slabs: BTreeMap<u32, Slab>,
    /// Map pages of slabs that the journal removes: the root still names them.
    pub retired_pages: Vec<u32>,
}

impl State {
    pub fn new(geometry: SlabGeometry) -> Self {
        Self { geometry, volumes: BTreeMap::new(), slabs: BTreeMap::new(), retired_pages: Vec::new() }
    }

    /// What a root says of a volume.
    pub fn restore_volume(&mut self, root: &RootVolume) {
        let listing = Listing::at(root.mark);
        let volume = Volume {
            volume: root.volume,
            fence_epoch: root.fence_epoch,
            record_epoch: root.record_epoch,
            listing,
        };
        self.volumes.insert(root.slot, volume);
    }

    /// The volume's slab on this drive.
    pub fn find(&self, volume: VolumeId, slab: SlabIndex) -> Option<&Slab> {
        let belongs = |candidate: &&Slab| {
            candidate.slab == slab && self.volume_of(candidate).is_some_and(|owner| owner.volume == volume)
        };
        self.slabs.values().find(belongs)
    }

    /// The volume that a slab is part of.
    pub fn volume_of(&self, slab: &Slab) -> Option<&Volume> {
        self.volumes.get(&slab.volume_slot)
    }

    /// Does what a record says.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Write(run) => self.apply_run(run, true),
            Record::Heal(run) => self.apply_run(run, false),
            Record::Trim { slab_slot, first, count, counter } => {
                self.apply_trim(*slab_slot, *first, *count, *counter);
            }
            Record::Listed { slab_slot, first, count, version, in_doubt } => {
                self.list(*slab_slot, *first, *count, *version, *in_doubt);
            }
            Record::Unlisted { slab_slot, first, count, version } => {
                if self.holds(*slab_slot, *first, *count)
                    && let Some(volume) = self.volume_of_slot(*slab_slot)
                {
                    volume.listing.remove(*version, *slab_slot, *first, first + count);
                }
            }
            Record::CounterEpoch { volume_slot, epoch } => {
                if let Some(volume) = self.volumes.get_mut(volume_slot) {
                    volume.record_epoch = *epoch;
                }
            }
            Record::Fence { volume_slot, epoch } => {
                if let Some(volume) = self.volumes.get_mut(volume_slot) {
                    volume.fence_epoch = volume.fence_epoch.max(*epoch);
                }
            }
            Record::Mark { volume_slot, mark, exceptions } => {
                if let Some(volume) = self.volumes.get_mut(volume_slot) {
                    volume.listing.note_mark(*mark, exceptions);
                }
            }
            Record::SetPageVersion { slab_slot, page, version, whole } => {
                let slab = self.slabs.get_mut(slab_slot);
                if let Some(page) = slab.and_then(|slab| slab.pages.get_mut(*page as usize)) {
                    (page.version, page.whole) = (*version, *whole);
                }
            }
            Record::VolumeAdd { volume_slot, volume } => self.add_volume(*volume_slot, *volume),
            Record::SlabAdd(add) => self.add_slab(add),
            Record::SlabRemove { slab_slot } => self.remove_slab(*slab_slot),
            Record::Proven { slab_slot } => {
                if let Some(slab) = self.slabs.get_mut(slab_slot) {
                    slab.proven = None;
                }
            }
            Record::Doubted { slab_slot, version } => {
                if let Some(slab) = self.slabs.get_mut(slab_slot) {
                    slab.proven = Some(slab.proven.map_or(*version, |proven| proven.min(*version)));
                }
            }
        }
    }

    fn add_volume(&mut self, slot: u32, volume: VolumeId) {
        if self.volumes.get(&slot).is_some_and(|present| present.volume == volume) {
            return;
        }
        let (fence_epoch, record_epoch) = (Epoch::ZERO, Epoch::ZERO);
        self.volumes.insert(slot, Volume { volume, fence_epoch, record_epoch, listing: Listing::default() });
    }

    /// Adds an empty copy, unless it is there already or its volume is not.
    pub fn add_slab(&mut self, add: &SlabAdd) {
        let is_there = self.slabs.get(&add.slab_slot).is_some_and(|present| present.copy == add.copy);
        if is_there || !self.volumes.contains_key(&add.volume_slot) {
            return;
        }
        let mut pages = Vec::new();
        pages.resize_with(self.geometry.slab_pages() as usize, Page::default);
        let slab = Slab {
            volume_slot: add.volume_slot,
            slab: add.slab,
            layout: add.layout,
            copy: add.copy,
            birth: add.birth,
            map: PagePointer::default(),
            pages,
            proven: None,
        };
        self.slabs.insert(add.slab_slot, slab);
    }

    fn remove_slab(&mut self, slab_slot: u32) {
        let Some(slab) = self.slabs.remove(&slab_slot) else { return };
        let pointers = slab.pages.iter().map(|page| page.pointer).chain([slab.map]);
        self.retired_pages.extend(pointers.filter(|page| !page.is_none()).map(|page| page.block));
        if let Some(volume) = self.volumes.get_mut(&slab.volume_slot) {
            volume.listing.forget_slab(slab_slot);
        }
    }

    fn apply_run(&mut self, run: &Run, is_write: bool) {
        let count = run.checksums.len() as u32;
        let Some(slab) = self.slabs.get_mut(&run.slab_slot) else { return };
        if !slab.contains(run.first, count) {
            return;
        }
        for (block, mapping) in run.mappings() {
            slab.set_mapping(block, mapping);
        }
        if is_write {
            self.note_write(run.slab_slot, run.first, count, run.counter);
        }
    }

    fn apply_trim(&mut self, slab_slot: u32, first: u32, count: u32, counter: u64) {
        let Some(slab) = self.slabs.get_mut(&slab_slot) else { return };
        if !slab.contains(first, count) {
            return;
        }
        for block in first..first + count {
            slab.set_mapping(block, Mapping::NONE);
        }
        // With counter zero it takes a write back, and is none itself.
        if counter > 0 {
            self.note_write(slab_slot, first, count, counter);
        }
    }

    /// A write or trim of the volume: its version counts for its pages, and it is listed.
    fn note_write(&mut self, slab_slot: u32, first: u32, count: u32, counter: u64) {
        let Some(slab) = self.slabs.get_mut(&slab_slot) else { return };
        let epoch = self.volumes.get(&slab.volume_slot).map_or(Epoch::ZERO, |volume| volume.record_epoch);
        let version = Version::new(epoch, counter);
        slab.raise_versions(first, count, version);
        self.list(slab_slot, first, count, version, false);
    }

    /// Lists blocks of a write.
    pub fn list(&mut self, slab_slot: u32, first: u32, count: u32, version: Version, in_doubt: bool) {
        if self.holds(slab_slot, first, count)
            && let Some(volume) = self.volume_of_slot(slab_slot)
        {
            let run = ListedRun { first, end: first + count, in_doubt };
            volume.listing.add(version, slab_slot, run);
        }
    }

    /// Whether there is a slab with these blocks.
    fn holds(&self, slab_slot: u32, first: u32, count: u32) -> bool {
        self.slabs.get(&slab_slot).is_some_and(|slab| slab.contains(first, count))
    }

    fn volume_of_slot(&mut self, slab_slot: u32) -> Option<&mut Volume> {
        let volume_slot = self.slabs.get(&slab_slot)?.volume_slot;
        self.volumes.get_mut(&volume_slot)
    }

    /// Forgets the volumes of which no slab is there, as a drive does that is attached.
    pub fn drop_empty_volumes(&mut self) {
        let with_slabs: BTreeSet<u32> = self.slabs.values().map(|slab| slab.volume_slot).collect();
        self.volumes.retain(|slot, _| with_slabs.contains(slot));
    }
}
