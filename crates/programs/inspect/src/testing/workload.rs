//! Random work on a store, with many requests under way, and what each block may hold afterwards.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use spandrel_drive::{SlabLayout, StoreError};
use spandrel_platform::Platform;
use spandrel_platform::sync::Signal;
use spandrel_platform_simulated::{Random, Room, SimulatedDrive, SimulatedPlatform};
use spandrel_shared::checksum::{BlockChecksum, crc32c};
use spandrel_shared::{BLOCK_BYTES, CopyId, Epoch, PAGE_BLOCKS, SlabIndex, Version, VolumeId};

use super::machine::{Machine, Seen, Store, View};

const SLAB_BLOCKS: u64 = 1024;
const AT_ONCE: usize = 8;

pub type SlabKey = (VolumeId, SlabIndex);

/// What a block may hold: what was answered last, or anything that was asked for since.
#[derive(Clone, Debug)]
struct BlockHistory {
    answered: Seen,
    open: Vec<Seen>,
}

#[derive(Clone, Debug, Default)]
struct VolumeHistory {
    epoch: u32,
    counter: u64,
    /// Every version, and whether it was answered.
    versions: BTreeMap<Version, bool>,
    fence_answered: u32,
    fence_asked: u32,
}

/// Everything that was asked and answered.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    blocks: BTreeMap<(SlabKey, u32), BlockHistory>,
    volumes: BTreeMap<VolumeId, VolumeHistory>,
    /// Slabs that were added, and answered.
    slabs: BTreeSet<SlabKey>,
    /// Slabs whose removal was asked for.
    leaving: BTreeSet<SlabKey>,
    pub answers: u64,
    pub refusals: u64,
}

impl Oracle {
    /// That a view is one that a crash may leave.
    pub fn judge(&self, view: &View) {
        for slab in &self.slabs {
            assert!(view.slabs.contains_key(slab) || self.leaving.contains(slab), "{slab:?} is there");
        }
        for ((slab, block), history) in &self.blocks {
            let Some(content) = view.slabs.get(slab) else { continue };
            let seen = content.blocks.get(block).copied().unwrap_or(Seen::Hole);
            let is_possible = seen == history.answered || history.open.contains(&seen);
            assert!(is_possible, "block {block} of {slab:?}: {seen:?} and not {history:?}");
        }
        for (slab, content) in &view.slabs {
            for block in content.blocks.keys() {
                assert!(self.blocks.contains_key(&(*slab, *block)), "block {block} of {slab:?} was written");
            }
        }
        for (volume, view) in &view.volumes {
            let history = &self.volumes[volume];
            assert!((history.fence_answered..=history.fence_asked).contains(&view.fence));
            let listed: BTreeSet<Version> = view.listed.iter().map(|write| write.version).collect();
            for (version, answered) in &history.versions {
                let covered = *version <= view.mark && !view.exceptions.contains(version);
                assert!(!covered || *answered, "{version} is open, and the mark covers it");
            }
            assert!(listed.iter().all(|version| history.versions.contains_key(version)));
        }
    }

    fn begin(&mut self, slab: SlabKey, first: u32, contents: &[Seen]) -> Version {
        for (block, content) in (first..).zip(contents) {
            let new = BlockHistory { answered: Seen::Hole, open: Vec::new() };
            self.blocks.entry((slab, block)).or_insert(new).open.push(*content);
        }
        let volume = self.volumes.entry(slab.0).or_default();
        volume.counter += 1;
        let version = Version::new(Epoch(volume.epoch), volume.counter);
        volume.versions.insert(version, false);
        version
    }

    fn answered(&mut self, slab: SlabKey, first: u32, contents: &[Seen], version: Version) {
        for (block, content) in (first..).zip(contents) {
            let history = self.blocks.get_mut(&(slab, block)).unwrap();
            *history = BlockHistory { answered: *content, open: Vec::new() };
        }
        self.volumes.get_mut(&slab.0).unwrap().versions.insert(version, true);
        self.answers += 1;
    }

    fn refused(&mut self, slab: SlabKey, first: u32, contents: &[Seen], version: Version) {
        for block in first..first + contents.len() as u32 {
            self.blocks.get_mut(&(slab, block)).unwrap().open.clear();
        }
        self.volumes.get_mut(&slab.0).unwrap().versions.insert(version, true);
        self.refusals += 1;
    }

    /// A truthful mark: everything at or below it is answered, but for the exceptions.
    fn mark(&self, volume: VolumeId, random: &Random) -> Option<(Version, Vec<Version>)> {
        let versions = &self.volumes.get(&volume)?.versions;
        let mark = *versions.keys().nth(random.index(versions.len().max(1)))?;
        let open = versions.range(..=mark).filter(|(_, answered)| !**answered);
        Some((mark, open.map(|(version, _)| *version).collect()))
    }
}

/// Random work.
pub struct Workload {
    platform: SimulatedPlatform,
    store: Store,
    random: Random,
    pub oracle: Rc<RefCell<Oracle>>,
    busy: Rc<RefCell<Vec<(SlabKey, u32, u32)>>>,
    ended: Rc<Signal>,
    copies: u64,
    drive: SimulatedDrive,
}

impl Workload {
    pub fn new(machine: &Machine, store: Store, seed: u64) -> Self {
        let (platform, drive) = (machine.process().platform(), machine.drive.clone());
        let random = Random::stream(seed, "workload", 0);
        Self {
            platform,
            store,
            random,
            oracle: Rc::default(),
            busy: Rc::default(),
            ended: Rc::default(),
            copies: 0,
            drive,
        }
    }

    /// Works for so many steps and awaits all answers.
    pub async fn run(mut self, steps: usize) {
        for (volume, slab) in [(1, 0), (1, 1), (2, 0)] {
            self.add((VolumeId::from_bytes([0x90 + volume; 16]), SlabIndex(slab))).await;
        }
        for _ in 0..steps {
            self.ended.wait_until(|| self.busy.borrow().len() < AT_ONCE).await;
            match self.random.below(100) {
                0..70 => self.write(),
                70..82 => self.trim(),
                82..86 => self.checkpoint(),
                86..91 => self.note_mark(),
                91..94 => self.raise_epoch().await,
                94..96 => self.set_page().await,
                96..98 => self.replace_slab().await,
                98 => self.fill_file_system().await,
                _ => self.join().await,
            }
        }
        self.join().await;
    }

    /// The file system under the drive is full for a while: what finds no room has not happened.
    async fn fill_file_system(&self) {
        self.drive.set_room(Room::OnlyOverwrites);
        for _ in 0..self.random.between(1, 6) {
            if self.random.chance(700) {
                self.write()
            } else {
                self.trim()
            }
            if self.random.chance(200) {
                self.checkpoint();
            }
        }
        self.join().await;
        self.drive.set_room(Room::Enough);
    }

    async fn join(&self) {
        self.ended.wait_until(|| self.busy.borrow().is_empty()).await;
    }

    async fn add(&mut self, slab: SlabKey) {
        self.copies += 1;
        let copy = CopyId::from_random(0x1000, self.copies);
        let layout = SlabLayout::mirror(3, 1);
        {
            let mut oracle = self.oracle.borrow_mut();
            let volume = oracle.volumes.entry(slab.0).or_default();
            volume.epoch = volume.epoch.max(1);
        }
        self.store.add_slab(slab.0, slab.1, layout, copy, Version::ZERO).await.unwrap();
        self.oracle.borrow_mut().slabs.insert(slab);
    }

    fn any_slab(&self) -> SlabKey {
        let oracle = self.oracle.borrow();
        *oracle.slabs.iter().nth(self.random.index(oracle.slabs.len())).unwrap()
    }

    /// Blocks of a slab that nothing is under way to; often the same few.
    fn any_blocks(&self) -> Option<(SlabKey, u32, u32)> {
        let slab = self.any_slab();
        let bound = if self.random.chance(700) { 24 } else { SLAB_BLOCKS };
        let near_page_end = if self.random.chance(300) { u64::from(PAGE_BLOCKS) - 8 } else { 0 };
        let first = (near_page_end + self.random.below(bound)).min(SLAB_BLOCKS - 1);
        let count = if self.random.chance(600) { 1 } else { self.random.between(1, 12) };
        let count = count.min(SLAB_BLOCKS - first);
        let (first, count) = (first as u32, count as u32);
        let overlaps = |(other, start, length): &(SlabKey, u32, u32)| {
            *other == slab && *start < first + count && first < start + length
        };
        (!self.busy.borrow().iter().any(overlaps)).then_some((slab, first, count))
    }

    fn write(&self) {
        let Some((slab, first, count)) = self.any_blocks() else { return };
        let mut data = vec![0; count as usize * BLOCK_BYTES];
        for block in data.chunks_exact_mut(BLOCK_BYTES) {
            let content = self.random.next_u64();
            block.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&content.to_le_bytes()));
        }
        let contents = data.chunks_exact(BLOCK_BYTES).map(|block| Seen::Data(crc32c(block)));
        let contents: Vec<Seen> = contents.collect();
        let checksum = BlockChecksum::new(slab.0, slab.1);
        let blocks = (first..).zip(data.chunks_exact(BLOCK_BYTES));
        let checksums = blocks.map(|(block, data)| checksum.of(block, data)).collect();
        let buffer = self.platform.buffers().copy_of(&data).freeze();
        let (store, slot) = (self.store.clone(), self.slot(slab));
        self.carry_out(slab, first, contents, move |version| async move {
            store.write(slot, first, version, buffer, checksums).await
        });
    }

    fn trim(&self) {
        let Some((slab, first, count)) = self.any_blocks() else { return };
        let (store, slot) = (self.store.clone(), self.slot(slab));
        let contents = vec![Seen::Hole; count as usize];
        self.carry_out(slab, first, contents, move |version| async move {
            store.trim(slot, first, count, version).await
        });
    }

    fn slot(&self, slab: SlabKey) -> spandrel_drive::SlabSlot {
        self.store.find_slab(slab.0, slab.1).expect("only slabs that are there are used").slot
    }

    fn carry_out<F: Future<Output = Result<(), StoreError>> + 'static>(
        &self,
        slab: SlabKey,
        first: u32,
        contents: Vec<Seen>,
        ask: impl FnOnce(Version) -> F,
    ) {
        let version = self.oracle.borrow_mut().begin(slab, first, &contents);
        let asked = ask(version);
        let entry = (slab, first, contents.len() as u32);
        self.busy.borrow_mut().push(entry);
        let (oracle, busy, ended) = (Rc::clone(&self.oracle), Rc::clone(&self.busy), Rc::clone(&self.ended));
        // Some come late, so that versions do not reach the store in their order.
        let late = if self.random.chance(300) { self.random.below(500) } else { 0 };
        let platform = self.platform.clone();
        self.platform.spawn(async move {
            if late > 0 {
                platform.sleep(Duration::from_micros(late)).await;
            }
            match asked.await {
                Ok(()) => oracle.borrow_mut().answered(slab, first, &contents, version),
                Err(StoreError::NoRoom) => oracle.borrow_mut().refused(slab, first, &contents, version),
                Err(error) => panic!("{error}"),
            }
            busy.borrow_mut().retain(|other| *other != entry);
            ended.notify_all();
        });
    }

    fn checkpoint(&self) {
        let store = self.store.clone();
        self.platform.spawn(async move {
            let result = store.checkpoint().await;
            assert!(matches!(result, Ok(()) | Err(StoreError::NoRoom)), "{result:?}");
        });
    }

    fn note_mark(&self) {
        let volume = self.any_slab().0;
        let mark = self.oracle.borrow().mark(volume, &self.random);
        if let Some((mark, exceptions)) = mark {
            self.store.note_mark(volume, mark, &exceptions);
        }
    }

    /// A new owner: nothing is under way then, and its versions are higher.
    async fn raise_epoch(&self) {
        self.join().await;
        let volume = self.any_slab().0;
        let epoch = {
            let mut oracle = self.oracle.borrow_mut();
            let history = oracle.volumes.get_mut(&volume).unwrap();
            (history.epoch, history.counter) = (history.epoch + 1, 0);
            history.fence_asked = history.epoch;
            history.epoch
        };
        self.store.fence(volume, Epoch(epoch)).await.unwrap();
        self.oracle.borrow_mut().volumes.get_mut(&volume).unwrap().fence_answered = epoch;
    }

    async fn set_page(&self) {
        self.join().await;
        let slab = self.any_slab();
        let version = self.oracle.borrow_mut().begin(slab, 0, &[]);
        let (page, whole) = (self.random.below(2) as u32, self.random.chance(700));
        self.store.set_page_version(self.slot(slab), page, version, whole).await.unwrap();
        self.oracle.borrow_mut().answered(slab, 0, &[], version);
    }

    /// A slab goes, and perhaps an empty one comes in its place.
    async fn replace_slab(&mut self) {
        self.join().await;
        let slab = self.any_slab();
        if self.oracle.borrow().slabs.iter().filter(|(volume, _)| *volume == slab.0).count() < 2 {
            return self.add((slab.0, SlabIndex(slab.1.0 + 1))).await;
        }
        self.oracle.borrow_mut().leaving.insert(slab);
        self.store.remove_slab(self.slot(slab)).await.unwrap();
        let mut oracle = self.oracle.borrow_mut();
        oracle.slabs.remove(&slab);
        oracle.leaving.remove(&slab);
        oracle.blocks.retain(|(other, _), _| *other != slab);
    }
}
