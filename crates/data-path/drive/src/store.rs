//! The store on one drive: what the replica asks of it.
//!
//! Reads look a block up in the map in memory, read it and check it. Changes allocate blocks,
//! queue their record, and return when the record and its data are durable (see `commit`). The
//! map changes only then.
//!
//! Invariants:
//! - A change that returned `Ok` survives a power cut from then on.
//! - A change is whole or absent, block by block.
//! - After a failed write or flush the store does nothing more: what is on the drive is known
//!   again only after a recovery.
//!
//! What the caller must keep: changes of the same block do not overlap in time, nor do a change
//! and a read whose result matters. The owner's range locks see to that.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use smallvec::smallvec;
use spandrel_platform::sync::{OneshotReceiver, Queue, Signal, oneshot};
use spandrel_platform::{Buffer, Platform, before};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::checksum::Checksums;
use spandrel_shared::{
    BLOCK_BYTES, CacheMode, CopyId, DriveId, Epoch, Load, PAGE_BLOCKS, SlabIndex, Version, VolumeId,
};

use crate::ahead::{AheadRange, AheadTurn, AheadWrites};
use crate::allocator::{Allocator, AreaUse};
use crate::cache_drive::CacheArea;
use crate::cache_policy::{CachePolicy, CacheUse};
use crate::change::{Change, DataRun, Waiter};
use crate::error::StoreError;
use crate::format::cache::Binding;
use crate::format::journal::{MappingRecord, RECORD_BLOCKS_MAX, Record, SlabAdd};
use crate::format::map::Mapping;
use crate::format::root::SlabLayout;
use crate::format::superblock::Superblock;
use crate::journal_state::JournalState;
use crate::layout::Layout;
use crate::media::{Flushed, Media};
use crate::read_cache::Arriving;
use crate::state::{ListedWrite, State};
use crate::statistics::StoreStatistics;
use crate::write_under_way::WriteUnderWay;

/// Copies of a volume whose doubt is recorded in one change: a group holds several of these.
const DOUBTED_AT_ONCE: usize = 1024;

/// Longer data are written with their group, where they could be written when they come.
const AT_ONCE_BYTES_MAX: usize = 32 << 10;

/// How long a store with the planted bug [`Bug::AnswerBeforeDurable`] waits: less than a drive takes.
const CANARY_PATIENCE: Duration = Duration::from_micros(10);

/// After so many looks in a row at what is in the area, of which nothing could be moved, a drain gives up.
const LOOKS_IN_VAIN_MAX: u32 = 10;

/// The longest single write: a block less than 4 MiB. Its records, and those that take it back, fit one journal group even if no two of its
/// blocks find places behind each other.
pub const WRITE_BLOCKS_MAX: u32 = 1023;

/// A drive that is attached. Cheap to clone; all clones are the same store.
pub struct DriveStore<P: Platform> {
    pub(crate) inner: Rc<Inner<P>>,
}

impl<P: Platform> Clone for DriveStore<P> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

pub(crate) struct Inner<P: Platform> {
    pub(crate) platform: P,
    pub(crate) media: Media<P::Drive>,
    pub(crate) superblock: Superblock,
    /// Where things lie: as the superblock says, but for the journal of a drive that is bound to a cache drive.
    pub(crate) layout: Layout,
    pub(crate) state: RefCell<State>,
    pub(crate) journal: RefCell<JournalState>,
    pub(crate) queue: Queue<Change>,
    /// Slabs of which a copy is on its way to the journal.
    pub(crate) adding: RefCell<BTreeSet<(VolumeId, SlabIndex)>>,
    /// Changes that say where blocks have been moved to.
    pub(crate) moves: Queue<Change>,
    /// What is written past the cache.
    pub(crate) ahead: AheadWrites,
    /// Copies of what was read, on their way to the area.
    pub(crate) arriving: Queue<Arriving>,
    pub(crate) cache: CachePolicy,
    /// How often in a row blocks were found in the area of which none could be moved.
    pub(crate) looks_in_vain: Cell<u32>,
    /// Notified when a checkpoint is asked for, begins or ends, when the journal is not closed any more, when another bound for the map is
    /// wished for, holds or is kept, when something is given up or free for it, and when the store fails.
    pub(crate) progress: Signal,
    pub(crate) checkpoint: RefCell<crate::checkpoint::CheckpointState>,
    pub(crate) failure: RefCell<Option<StoreError>>,
    /// The store's own tasks that have not ended.
    pub(crate) tasks: Cell<u32>,
    pub(crate) statistics: RefCell<StoreStatistics>,
    /// What is asked of the drive: reads, and writes with their flushes.
    pub(crate) load: Load,
    pub(crate) attach_number: u64,
    pub(crate) state_revision: Cell<u64>,
}

/// One slab copy, as a caller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabDescription {
    /// The handle for requests.
    pub slot: SlabSlot,
    /// The volume.
    pub volume: VolumeId,
    /// Which slab of the volume.
    pub slab: SlabIndex,
    /// The identity of this copy.
    pub copy: CopyId,
    /// How the slab's parts are laid out.
    pub layout: SlabLayout,
    /// Blocks that hold data.
    pub mapped_blocks: u32,
}

/// Names a slab copy of this store, from its creation to its removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlabSlot(pub(crate) u32);

/// What a page holds, as resync and the comparison of copies see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageDescription {
    /// The highest version written in the page.
    pub version: Version,
    /// On a copy that is not in sync: whether resync has made the page whole.
    pub whole: bool,
    /// Blocks of the page that hold data, or did: what is lost counts.
    pub mapped_blocks: u16,
    /// Blocks of which it is not known any more what they held.
    pub lost_blocks: u16,
}

/// What the map says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Nothing is stored; it reads as zeros.
    Hole,
    /// Data with this address-mixed checksum.
    Data(u32),
    /// What was stored is not known any more.
    Lost,
}

impl<P: Platform> DriveStore<P> {
    pub(crate) fn start(inner: Rc<Inner<P>>) -> Self {
        let store = Self { inner };
        store.spawn(crate::commit::run(Rc::clone(&store.inner)));
        store.spawn(crate::checkpoint::run(Rc::clone(&store.inner)));
        store
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let inner = Rc::clone(&self.inner);
        inner.tasks.set(inner.tasks.get() + 1);
        self.inner.platform.spawn(async move {
            task.await;
            inner.tasks.set(inner.tasks.get() - 1);
            inner.progress.notify_all();
        });
    }

    /// Stops all work, as it is, and completes when nothing is under way on the drive any more. `reason` is
    /// what later requests are told.
    pub async fn stop(&self, reason: &str) {
        self.inner.failure.borrow_mut().get_or_insert_with(|| StoreError::Failed(reason.to_owned()));
        self.inner.progress.notify_all();
        self.inner.progress.wait_until(|| self.inner.tasks.get() == 0).await;
    }

    /// The drive.
    pub fn drive_id(&self) -> DriveId {
        self.inner.superblock.drive
    }

    /// The drive's unchanging facts.
    pub fn superblock(&self) -> &Superblock {
        &self.inner.superblock
    }

    /// The number of this attach: above that of each one before.
    pub fn attach_number(&self) -> u64 {
        self.inner.attach_number
    }

    /// The newest revision of the cluster state that the drive has seen.
    pub fn state_revision(&self) -> u64 {
        self.inner.state_revision.get()
    }

    /// Remembers a newer revision of the cluster state, from the next checkpoint on.
    pub fn note_state_revision(&self, revision: u64) {
        self.inner.state_revision.set(self.inner.state_revision.get().max(revision));
    }

    /// Why the store has stopped working, if it has.
    pub fn failure(&self) -> Option<StoreError> {
        self.inner.failure.borrow().clone()
    }

    /// What the store has done since it was attached.
    pub fn statistics(&self) -> StoreStatistics {
        *self.inner.statistics.borrow()
    }

    /// What is asked of the drive: reads, and writes with their flushes.
    pub fn load(&self) -> &Load {
        &self.inner.load
    }

    /// What the cache drive is used for from now on; nothing if the drive is bound to none. What was written to it is moved
    /// to the capacity drive if it caches no writes any more.
    pub fn set_cache_mode(&self, mode: CacheMode) {
        self.inner.cache.set_mode(mode);
        let are_left = self.inner.with_allocator(|allocator| {
            allocator.keep_copies(mode.caches_reads());
            allocator.drop_unwanted_copies()
        });
        if are_left {
            self.spawn(crate::read_cache::drop_unwanted(Rc::clone(&self.inner)));
        }
        self.inner.progress.notify_all();
    }

    /// Whether the capacity drive is a spinning disk, which decides in which order, and to where, the area is emptied. It is
    /// taken for none before this is said.
    pub fn set_spinning(&self, spins: bool) {
        self.inner.cache.set_spinning(spins);
    }

    /// Keeps copies of what is read in so much memory from now on, in none if that is less than a block. What was kept in
    /// another amount is forgotten.
    pub fn set_memory_cache(&self, bytes: u64) {
        let blocks = (bytes / BLOCK_BYTES as u64).min(u64::from(u32::MAX / 2)) as u32;
        self.inner.with_allocator(|allocator| allocator.keep_in_memory(blocks));
    }

    /// How much memory holds copies of what is read, in bytes.
    pub fn memory_cached_bytes(&self) -> u64 {
        let blocks =
            self.inner.with_allocator(|allocator| allocator.in_memory().map_or(0, |copies| copies.count()));
        u64::from(blocks) * BLOCK_BYTES as u64
    }

    /// What the cache drive is used for.
    pub fn cache_mode(&self) -> CacheMode {
        self.inner.cache.mode()
    }

    /// The area on a cache drive that the drive is bound to.
    pub fn binding(&self) -> Option<Binding> {
        self.inner.media.area().map(CacheArea::binding)
    }

    /// Whether the cache drive has not done something that it was asked since the drive was attached: a store that has failed
    /// may work again with one that does.
    pub fn has_cache_failed(&self) -> bool {
        self.inner.media.has_area_failed()
    }

    /// How full that area is; all zeros if there is none.
    pub fn cache_use(&self) -> CacheUse {
        self.inner.cache_use()
    }

    /// Moves all that is in the area to the capacity drive, and lets no write go there until the drive is attached anew, or
    /// [`Self::stop_draining`] is called. Completes when nothing is left, or much of what is left cannot be moved: there is no room
    /// for it, or it does not match its checksums and has to be healed first. Returns how many blocks are left.
    pub async fn drain_cache(&self) -> Result<u32, StoreError> {
        let inner = &self.inner;
        inner.cache.set_draining(true);
        // What was placed in the area before is counted when it has been applied.
        self.inner.ahead.settle().await;
        self.commit_records(Vec::new()).await?;
        inner.looks_in_vain.set(0);
        inner.progress.notify_all();
        let is_stuck = || inner.looks_in_vain.get() >= LOOKS_IN_VAIN_MAX;
        let is_done =
            || inner.state.borrow().blocks_in_area() == 0 || inner.failure.borrow().is_some() || is_stuck();
        inner.progress.wait_until(is_done).await;
        inner.check()?;
        Ok(inner.state.borrow().blocks_in_area())
    }

    /// What a drain began is over: writes may go to the area again, and what is there stays as long as it may.
    pub fn stop_draining(&self) {
        self.inner.cache.set_draining(false);
    }

    /// Blocks of data and map pages in use.
    pub fn used_blocks(&self) -> u32 {
        self.inner.with_allocator(|allocator| allocator.used_blocks())
    }

    /// The slab copies on the drive, in the order of their slots.
    pub fn slabs(&self) -> Vec<SlabDescription> {
        let state = self.inner.state.borrow();
        state.slabs.iter().filter_map(|(slot, _)| describe(&state, slot)).collect()
    }

    /// How many slab copies are on the drive.
    pub fn slab_count(&self) -> usize {
        self.inner.state.borrow().slabs.len()
    }

    /// Which slab copies are on the drive, in the order of their slots.
    pub fn slab_copies(&self) -> Vec<(VolumeId, SlabIndex, CopyId)> {
        let state = self.inner.state.borrow();
        let volume = |slot: u32| state.volumes.get(slot).map(|volume| volume.volume);
        let copies = state.slabs.iter();
        copies.filter_map(|(_, slab)| Some((volume(slab.volume_slot)?, slab.slab, slab.copy))).collect()
    }

    /// The copy of a volume's slab, if the drive holds one.
    pub fn find_slab(&self, volume: VolumeId, slab: SlabIndex) -> Option<SlabDescription> {
        let state = self.inner.state.borrow();
        describe(&state, state.slab_slot(volume, slab)?)
    }

    /// The volumes of which the drive holds slabs, in the order of their identities.
    pub fn volumes(&self) -> Vec<VolumeId> {
        self.inner.state.borrow().volume_ids().collect()
    }

    /// Whether the drive holds slabs of a volume.
    pub fn holds(&self, volume: VolumeId) -> bool {
        self.inner.state.borrow().volume(volume).is_some()
    }

    /// The lowest epoch that the drive accepts for a volume; zero if it does not know the volume.
    pub fn fence_epoch(&self, volume: VolumeId) -> Epoch {
        self.inner.state.borrow().volume(volume).map_or(Epoch::ZERO, |volume| volume.fence_epoch)
    }

    /// The newest mark that is known of a volume.
    pub fn mark(&self, volume: VolumeId) -> Version {
        self.inner.state.borrow().volume(volume).map_or(Version::ZERO, |volume| volume.mark())
    }

    /// The writes of a volume above its mark or among its exceptions, in the order of versions.
    pub fn listed(&self, volume: VolumeId) -> Vec<ListedWrite> {
        self.inner.state.borrow().listed(volume)
    }

    /// The versions below the mark that are not complete, in order.
    pub fn listed_exceptions(&self, volume: VolumeId) -> Vec<Version> {
        self.inner.state.borrow().volume(volume).map_or(Vec::new(), |volume| volume.exceptions().to_vec())
    }

    /// Learns that every write of a volume at or below `mark`, but for `exceptions`, is complete
    /// on all in-sync copies. It becomes durable with some later group: a drive that lost a mark
    /// only lists more writes.
    pub fn note_mark(&self, volume: VolumeId, mark: Version, exceptions: &[Version]) {
        let mut state = self.inner.state.borrow_mut();
        if let Some(slot) = state.volume_slot(volume) {
            state.note_mark(slot, mark, exceptions);
        }
    }

    /// Durably refuses epochs below `epoch` for a volume from now on. When it returns, every change
    /// that was asked for before it is durable, also if the epoch is nothing new.
    pub async fn fence(&self, volume: VolumeId, epoch: Epoch) -> Result<(), StoreError> {
        self.inner.ahead.settle().await;
        let volume_slot = self.inner.state.borrow().volume_slot(volume).ok_or(StoreError::NotFound)?;
        self.commit_records(vec![Record::Fence { volume_slot, epoch }]).await
    }

    /// Adds an empty copy of a slab, in place of any former one. Durable when it returns. Once it is on its way to the journal
    /// it comes also if nobody waits for it.
    pub async fn add_slab(
        &self,
        volume: VolumeId,
        slab: SlabIndex,
        layout: SlabLayout,
        copy: CopyId,
        birth: Version,
    ) -> Result<SlabSlot, StoreError> {
        // Two on their way would get two slots, and only one of them would be found again.
        self.slab_settled(volume, slab).await;
        // Its slot may be another one's soon: what is being written to the former copy must have been queued.
        let former = self.inner.state.borrow().slab_slot(volume, slab);
        let _turn = self.turn_of(former.map(AheadRange::whole)).await;
        self.slab_settled(volume, slab).await;
        self.inner.check()?;
        // From here on nothing is waited for before the records are queued: they come in the order of the requests.
        let mut records = Vec::new();
        let (volume_slot, slab_slot) = {
            let mut state = self.inner.state.borrow_mut();
            if let Some(former) = state.slab_slot(volume, slab) {
                if state.slabs.get(former).is_some_and(|former| former.copy == copy) {
                    return Ok(SlabSlot(former));
                }
                records.push(Record::SlabRemove { slab_slot: former });
            } else if state.slabs.taken() as u32 >= self.inner.layout.slab_count_max {
                return Err(StoreError::NoRoom);
            }
            // Known at once, so that slabs added together share the volume's slot.
            let volume_slot = state.expect_slab(volume);
            (volume_slot, state.slabs.reserve())
        };
        records.push(Record::VolumeAdd { volume_slot, volume });
        records.push(Record::SlabAdd(SlabAdd { slab_slot, volume_slot, slab, layout, copy, birth }));
        let durable = self.inner.submit(Change::records(records));
        self.inner.adding.borrow_mut().insert((volume, slab));
        let (sender, added) = oneshot();
        let store = self.clone();
        self.spawn(async move {
            let outcome = match durable {
                Ok(durable) => durable.await.unwrap_or_else(|| Err(store.stopped())),
                Err(error) => Err(error),
            };
            if outcome.is_err() {
                let mut state = store.inner.state.borrow_mut();
                state.slabs.give_back(slab_slot);
                state.expect_slab_no_more(volume_slot);
            }
            store.inner.adding.borrow_mut().remove(&(volume, slab));
            sender.send(outcome.map(|()| SlabSlot(slab_slot)));
        });
        added.await.unwrap_or_else(|| Err(self.stopped()))
    }

    /// Completes when no copy of a slab is on its way to the journal, or the store has failed.
    pub async fn slab_settled(&self, volume: VolumeId, slab: SlabIndex) {
        let inner = &self.inner;
        let is_settled =
            || inner.failure.borrow().is_some() || !inner.adding.borrow().contains(&(volume, slab));
        inner.progress.wait_until(is_settled).await;
    }

    /// Gives a slab copy and its room up. Durable when it returns.
    pub async fn remove_slab(&self, slot: SlabSlot) -> Result<(), StoreError> {
        if self.inner.state.borrow().slabs.get(slot.0).is_none() {
            return Err(StoreError::NotFound);
        }
        let _turn = self.turn_of(Some(AheadRange::whole(slot.0))).await;
        self.commit_records(vec![Record::SlabRemove { slab_slot: slot.0 }]).await
    }

    /// Writes whole blocks from `first` on under `version`. `data` is as many blocks as there are
    /// `checksums` (address-mixed).
    pub async fn write(
        &self,
        slot: SlabSlot,
        first: u32,
        version: Version,
        data: Buffer,
        checksums: Checksums,
    ) -> Result<(), StoreError> {
        self.begin_write(slot, first, version, data, checksums).await
    }

    /// The same; when this returns, the write stands in line for the journal, or is refused. On a drive that is bound to a cache
    /// drive it begins when what this returns is awaited.
    pub fn begin_write(
        &self,
        slot: SlabSlot,
        first: u32,
        version: Version,
        data: Buffer,
        checksums: Checksums,
    ) -> WriteUnderWay<P> {
        assert_eq!(data.len(), checksums.len() * BLOCK_BYTES, "one checksum a block");
        assert!(version.counter > 0, "versions count from one");
        let is_in_turns = self.inner.layout.area_blocks > 0;
        if is_in_turns || canary::is_planted(Bug::AnswerBeforeDurable) {
            let store = self.clone();
            return WriteUnderWay::in_turn(async move {
                store.write_blocks(slot, first, Some(version), data, checksums).await
            });
        }
        match self.queue_write(slot, first, Some(version), data, checksums) {
            Ok(Queued::InLine(durable)) => WriteUnderWay::in_line(durable, self.clone()),
            Ok(Queued::Ahead(..)) => unreachable!("nothing is written ahead without a cache drive"),
            Err(error) => WriteUnderWay::refused(error),
        }
    }

    /// Replaces one block that was found damaged: `damaged` is what a read or scrub reported. The
    /// good content is `data` with its checksum, or a hole. Does nothing, and returns false, if
    /// the map names something else by now.
    pub async fn heal(
        &self,
        slot: SlabSlot,
        damaged: DamagedBlock,
        good: Option<(Buffer, u32)>,
    ) -> Result<bool, StoreError> {
        let turn = self.turn(slot, damaged.block, 1).await;
        self.inner.load_blocks(slot, damaged.block, 1).await?;
        {
            let state = self.inner.state.borrow();
            let slab = state.slabs.get(slot.0).ok_or(StoreError::NotFound)?;
            let is_there = slab.contains(damaged.block, 1) && slab.mapping(damaged.block) == damaged.mapping;
            if !is_there {
                return Ok(false);
            }
        }
        if canary::is_planted(Bug::HealOverNewer) {
            self.inner.platform.sleep(Duration::from_millis(1000)).await;
        }
        match good {
            Some((data, checksum)) => {
                self.write_in_turn(turn, slot, damaged.block, None, data, smallvec![checksum]).await?;
            }
            None => {
                let trim = Record::Trim { slab_slot: slot.0, first: damaged.block, count: 1, counter: 0 };
                self.commit_records(vec![trim]).await?;
            }
        }
        self.inner.statistics.borrow_mut().blocks_healed += 1;
        Ok(true)
    }

    /// Makes whole blocks from `first` on what a resync's source holds: a hole without data, as many
    /// blocks as there are `checksums` otherwise. That is no write of the volume: it is not listed, and
    /// the versions of the pages stay. Only for copies that are not in sync.
    pub async fn fill(
        &self,
        slot: SlabSlot,
        first: u32,
        count: u32,
        data: Option<(Buffer, Checksums)>,
    ) -> Result<(), StoreError> {
        let Some((data, checksums)) = data else {
            let _turn = self.turn(slot, first, count).await;
            self.inner.volume_of(slot, first, count)?;
            let trim = Record::Trim { slab_slot: slot.0, first, count, counter: 0 };
            return self.commit_records(vec![trim]).await;
        };
        assert_eq!(data.len(), checksums.len() * BLOCK_BYTES, "one checksum a block");
        assert_eq!(checksums.len(), count as usize, "as many checksums as blocks");
        self.write_blocks(slot, first, None, data, checksums).await
    }

    /// Forgets what one block holds: it reads as damaged until it is written or healed. For copies
    /// whose source has lost the block too, so that no older content is taken for it.
    pub async fn lose(&self, slot: SlabSlot, block: u32) -> Result<(), StoreError> {
        let _turn = self.turn(slot, block, 1).await;
        self.inner.volume_of(slot, block, 1)?;
        self.commit_records(vec![Record::Heal(MappingRecord::lost(slot.0, block))]).await
    }

    /// Unmaps `count` blocks from `first` on under `version`: they read as zeros.
    pub async fn trim(
        &self,
        slot: SlabSlot,
        first: u32,
        count: u32,
        version: Version,
    ) -> Result<(), StoreError> {
        assert!(version.counter > 0, "versions count from one");
        let _turn = self.turn(slot, first, count).await;
        let volume_slot = self.inner.volume_of(slot, first, count)?;
        self.inner.check_list()?;
        let record = Record::Trim { slab_slot: slot.0, first, count, counter: version.counter };
        self.commit(Change::records(vec![record]).in_epoch(volume_slot, version.epoch)).await
    }

    /// Says that a page is now what its resync source holds.
    pub async fn set_page_version(
        &self,
        slot: SlabSlot,
        page: u32,
        version: Version,
        whole: bool,
    ) -> Result<(), StoreError> {
        self.inner.volume_of(slot, page * PAGE_BLOCKS, PAGE_BLOCKS)?;
        self.commit_records(vec![Record::SetPageVersion { slab_slot: slot.0, page, version, whole }]).await
    }

    /// The version up to which a slab copy lacks no write, if a recovery found that it may lack some.
    pub fn proven(&self, slot: SlabSlot) -> Option<Version> {
        self.inner.state.borrow().slabs.get(slot.0).and_then(|slab| slab.proven)
    }

    /// From now on the copies of a volume are sure to hold writes only up to `version`, if they were sure of more: an
    /// owner is about to bring them up to date, and gives them newer writes before older ones. Durable when it
    /// returns.
    pub async fn doubt(&self, volume: VolumeId, version: Version) -> Result<(), StoreError> {
        loop {
            // Anew each time: slots may have come to other copies meanwhile.
            let surer: Vec<Record> = {
                let state = self.inner.state.borrow();
                let volume_slot = state.volume_slot(volume);
                let copies = state.slabs.iter().filter(|(_, slab)| Some(slab.volume_slot) == volume_slot);
                let surer = copies.filter(|(_, slab)| slab.proven.is_none_or(|proven| proven > version));
                surer
                    .take(DOUBTED_AT_ONCE)
                    .map(|(slab_slot, _)| Record::Doubted { slab_slot, version })
                    .collect()
            };
            if surer.is_empty() {
                return Ok(());
            }
            self.commit_records(surer).await?;
        }
    }

    /// A resync has made a slab copy whole: what recoveries found before counts no more. Durable when it
    /// returns.
    pub async fn prove(&self, slot: SlabSlot) -> Result<(), StoreError> {
        if self.inner.state.borrow().slabs.get(slot.0).ok_or(StoreError::NotFound)?.proven.is_none() {
            return Ok(());
        }
        self.commit_records(vec![Record::Proven { slab_slot: slot.0 }]).await
    }

    /// The pages of a slab copy, in order.
    pub fn pages(&self, slot: SlabSlot) -> Result<Vec<PageDescription>, StoreError> {
        let state = self.inner.state.borrow();
        let slab = state.slabs.get(slot.0).ok_or(StoreError::NotFound)?;
        let describe = |page: &crate::slab_copy::Page| PageDescription {
            version: page.entry.version,
            whole: page.entry.whole,
            mapped_blocks: page.mapped,
            lost_blocks: if canary::is_planted(Bug::ConcealLost) { 0 } else { page.lost },
        };
        Ok(slab.pages.iter().map(describe).collect())
    }

    /// From now on so many bytes of the drive's maps are in memory at most, about, or all of them: see `map_memory`.
    pub fn allow_map_memory(&self, bytes_max: Option<u64>) {
        self.inner.state.borrow().map_memory.wish_for(bytes_max);
        self.inner.progress.notify_all();
    }

    /// Bytes of the drive's maps that are in memory.
    pub fn map_memory_bytes(&self) -> u64 {
        self.inner.state.borrow().map_memory.leaves() as u64 * BLOCK_BYTES as u64
    }

    /// What the map says of `count` blocks from `first` on. None of them is read.
    pub async fn block_states(
        &self,
        slot: SlabSlot,
        first: u32,
        count: u32,
    ) -> Result<Vec<BlockState>, StoreError> {
        self.inner.load_blocks(slot, first, count).await?;
        let state = self.inner.state.borrow();
        let slab = state.slabs.get(slot.0).ok_or(StoreError::NotFound)?;
        if !slab.contains(first, count) {
            return Err(StoreError::NotFound);
        }
        let describe = |block| {
            let mapping = slab.mapping(block);
            match mapping {
                Mapping::NONE => BlockState::Hole,
                Mapping::UNKNOWN => BlockState::Lost,
                Mapping { checksum, .. } => BlockState::Data(checksum),
            }
        };
        Ok((first..first + count).map(describe).collect())
    }

    /// Writes all dirty map pages and a root, and gives the journal's tail back.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        crate::checkpoint::checkpoint(&self.inner).await
    }

    /// Ends the work on the drive in order, so that the next attach has next to nothing to replay, and the journal
    /// is closed.
    /// When it returns, nothing is under way on the drive. Requests that have not ended by then, and
    /// later ones, fail; the drive may hold what they asked for or not.
    pub async fn detach(&self) -> Result<(), StoreError> {
        let checkpoint = self.checkpoint().await;
        let result = checkpoint.and(crate::commit::close(&self.inner).await);
        self.stop("it was detached").await;
        result
    }

    async fn write_blocks(
        &self,
        slot: SlabSlot,
        first: u32,
        version: Option<Version>,
        data: Buffer,
        checksums: Checksums,
    ) -> Result<(), StoreError> {
        let turn = self.turn(slot, first, checksums.len() as u32).await;
        self.write_in_turn(turn, slot, first, version, data, checksums).await
    }

    async fn write_in_turn(
        &self,
        turn: Option<AheadTurn>,
        slot: SlabSlot,
        first: u32,
        version: Option<Version>,
        data: Buffer,
        checksums: Checksums,
    ) -> Result<(), StoreError> {
        match self.queue_write(slot, first, version, data, checksums)? {
            Queued::InLine(durable) => {
                // Whoever waits for its turn comes behind it.
                drop(turn);
                self.await_durable(durable).await
            }
            Queued::Ahead(change, writes) => self.commit_ahead(turn, change, writes).await,
        }
    }

    /// Takes blocks for a write, and puts it in line for the journal if its data go there with its group.
    fn queue_write(
        &self,
        slot: SlabSlot,
        first: u32,
        version: Option<Version>,
        data: Buffer,
        checksums: Checksums,
    ) -> Result<Queued, StoreError> {
        assert!(checksums.len() <= WRITE_BLOCKS_MAX as usize, "{} blocks in one write", checksums.len());
        let count = checksums.len() as u32;
        let volume_slot = self.inner.volume_of(slot, first, count)?;
        if version.is_some() {
            self.inner.check_list()?;
        }
        let mut placed = self.place(slot, first, version, &data, checksums)?;
        self.inner.statistics.borrow_mut().blocks_written += u64::from(count);
        let change = Change::records(placed.records);
        let change = match version {
            Some(version) => change.in_epoch(volume_slot, version.epoch),
            None => change,
        };
        if placed.goes_ahead {
            return Ok(Queued::Ahead(change.with_written_data(), placed.writes));
        }
        // What is on the drive before its group is written is as good as what goes there with it.
        placed.writes.retain(|run| !self.inner.write_at_once(run));
        let change = match placed.writes.is_empty() {
            true => change.with_written_data(),
            false => change.with_data(placed.writes),
        };
        self.inner.submit(change).map(Queued::InLine)
    }

    /// Waits for whoever changes these blocks already; see `ahead`.
    async fn turn(&self, slot: SlabSlot, first: u32, count: u32) -> Option<AheadTurn> {
        self.turn_of(Some(AheadRange { slab_slot: slot.0, first, count })).await
    }

    async fn turn_of(&self, range: Option<AheadRange>) -> Option<AheadTurn> {
        // Where nothing is written ahead, changes are queued as they come.
        match range.filter(|_| self.inner.layout.area_blocks > 0) {
            Some(range) => Some(self.inner.ahead.turn(range).await),
            None => None,
        }
    }

    /// Writes data before their records are queued. It goes on if the caller does not wait.
    async fn commit_ahead(
        &self,
        turn: Option<AheadTurn>,
        change: Change,
        data: Vec<DataRun>,
    ) -> Result<(), StoreError> {
        let inner = Rc::clone(&self.inner);
        inner.check()?;
        let (waiter, durable) = Waiter::new();
        let change = change.awaited_by(waiter);
        self.spawn(async move {
            match inner.write_durably(data).await.and_then(|()| inner.check()) {
                Ok(()) => inner.queue.push(change),
                Err(StoreError::NoRoom) => crate::commit::refuse(&inner, change),
                Err(error) => {
                    inner.fail(error.clone());
                    change.fail(error);
                }
            }
            drop(turn);
        });
        self.await_durable(durable).await
    }

    /// Takes physical blocks for `data` and says in records what they will hold.
    fn place(
        &self,
        slot: SlabSlot,
        first: u32,
        version: Option<Version>,
        data: &Buffer,
        mut checksums: Checksums,
    ) -> Result<Placed, StoreError> {
        let keep = self.inner.layout.checkpoint_reserve_blocks();
        let count = checksums.len() as u32;
        let area = self.inner.cache_use();
        let mut state = self.inner.state.borrow_mut();
        let State { slabs, allocator, .. } = &mut *state;
        // Before blocks are taken: from here on nothing fails, so they belong to the change.
        let slab = slabs.get(slot.0).ok_or(StoreError::NotFound)?;
        slab.prefetch_mapping(first);
        let allocator = allocator.as_mut().expect("an attached store has its free blocks counted");
        // What repairs a copy is not what clients will ask for next.
        let may_cache = version.is_some() && self.inner.cache.takes_write(count, area);
        // What copies gave way for may still be read from.
        let in_area = if may_cache { allocator.allocate_in_area(count, 0) } else { None };
        let is_cached = in_area.is_some();
        let runs = in_area.or_else(|| allocator.allocate(count, keep)).ok_or(StoreError::NoRoom)?;
        let goes_ahead = area.blocks_total > 0 && !is_cached;
        let mut placed = Placed {
            records: Vec::with_capacity(runs.len()),
            writes: Vec::with_capacity(runs.len()),
            goes_ahead,
        };
        let mut done = 0;
        for run in runs {
            placed.writes.push(DataRun { block: run.first, data: slice_blocks(data, done, run.count) });
            let mut within = 0;
            while within < run.count {
                let length = (run.count - within).min(RECORD_BLOCKS_MAX);
                let of_record = if length == count {
                    std::mem::take(&mut checksums)
                } else {
                    checksums[done as usize..(done + length) as usize].into()
                };
                let record = MappingRecord {
                    slab_slot: slot.0,
                    first: first + done,
                    counter: version.map_or(0, |version| version.counter),
                    block: run.first + within,
                    checksums: of_record,
                };
                placed.records.push(if version.is_some() {
                    Record::Write(record)
                } else {
                    Record::Heal(record)
                });
                within += length;
                done += length;
            }
        }
        if canary::is_planted(Bug::ReuseBeforeDurable)
            && let Some(block) = slab.mapping_in_memory(first).and_then(Mapping::physical)
        {
            placed.writes.push(DataRun { block, data: slice_blocks(data, 0, 1) });
        }
        Ok(placed)
    }

    async fn commit_records(&self, records: Vec<Record>) -> Result<(), StoreError> {
        self.commit(Change::records(records)).await
    }

    async fn commit(&self, change: Change) -> Result<(), StoreError> {
        let durable = self.inner.submit(change)?;
        self.await_durable(durable).await
    }

    async fn await_durable(
        &self,
        durable: OneshotReceiver<Result<(), StoreError>>,
    ) -> Result<(), StoreError> {
        let outcome = if canary::is_planted(Bug::AnswerBeforeDurable) {
            // Time passes all the same: somebody may ask again until the change has had its effect.
            let platform = &self.inner.platform;
            let patience = platform.now() + CANARY_PATIENCE;
            before(platform, patience, durable).await.unwrap_or(Some(Ok(())))
        } else {
            durable.await
        };
        outcome.unwrap_or_else(|| Err(self.stopped()))
    }

    /// What is told of a change that ended without an answer.
    pub(crate) fn stopped(&self) -> StoreError {
        self.failure().unwrap_or_else(|| StoreError::Failed("the store has stopped".to_owned()))
    }
}

/// How far a write has come.
enum Queued {
    /// It is in line for the journal, with its data.
    InLine(OneshotReceiver<Result<(), StoreError>>),
    /// Its data are to be written first.
    Ahead(Change, Vec<DataRun>),
}

/// Where data go, and what is said of them.
struct Placed {
    records: Vec<Record>,
    writes: Vec<DataRun>,
    /// Whether they are written before their records are queued.
    goes_ahead: bool,
}

/// A block whose content is not what its checksum says, and what the map named when that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedBlock {
    /// The block within the slab.
    pub block: u32,
    pub(crate) mapping: Mapping,
}

impl DamagedBlock {
    /// What the map named, as a number that another node can send back.
    pub fn token(&self) -> u64 {
        u64::from(self.mapping.block) << 32 | u64::from(self.mapping.checksum)
    }

    /// The damaged block that [`DamagedBlock::token`] was made of.
    pub fn from_token(block: u32, token: u64) -> Self {
        Self { block, mapping: Mapping { block: (token >> 32) as u32, checksum: token as u32 } }
    }
}

impl<P: Platform> Inner<P> {
    /// Fails if the store has failed.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match &*self.failure.borrow() {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    /// Refuses writes while too many are above the marks for a checkpoint to say them all again.
    fn check_list(&self) -> Result<(), StoreError> {
        let full = self.state.borrow().listed_writes_max() >= self.layout.listed_writes_max();
        if full { Err(StoreError::NoRoom) } else { Ok(()) }
    }

    /// Stops all work: what is on the drive is not known any more.
    pub(crate) fn fail(&self, error: StoreError) {
        if self.failure.borrow().is_none() {
            tracing::error!(drive = %self.superblock.drive, "{error}; its copies are not used any more");
            *self.failure.borrow_mut() = Some(error);
        }
        self.progress.notify_all();
    }

    /// Queues a change; the receiver tells when it is durable.
    pub(crate) fn submit(
        &self,
        change: Change,
    ) -> Result<OneshotReceiver<Result<(), StoreError>>, StoreError> {
        self.check()?;
        let (waiter, receiver) = Waiter::new();
        self.queue.push(change.awaited_by(waiter));
        Ok(receiver)
    }

    /// Queues a change that says where blocks have been moved to.
    pub(crate) fn submit_move(
        &self,
        change: Change,
    ) -> Result<OneshotReceiver<Result<(), StoreError>>, StoreError> {
        self.check()?;
        let (waiter, receiver) = Waiter::new();
        self.moves.push(change.awaited_by(waiter));
        Ok(receiver)
    }

    /// How full the area on the cache drive is; all zeros if there is none.
    pub(crate) fn cache_use(&self) -> CacheUse {
        let state = self.state.borrow();
        let area = state.allocator.as_ref().map_or_else(AreaUse::default, Allocator::area_blocks);
        CacheUse {
            blocks_total: area.total,
            blocks_free: area.free + area.copies,
            blocks_dirty: state.blocks_in_area(),
            blocks_copied: area.copies,
        }
    }

    /// Writes data blocks of the capacity drive and waits until they are durable.
    pub(crate) async fn write_durably(&self, mut data: Vec<DataRun>) -> Result<(), StoreError> {
        self.statistics.borrow_mut().data_bytes += data.iter().map(|run| run.data.len() as u64).sum::<u64>();
        data.sort_by_key(|run| run.block);
        let writes = crate::commit::merge(data).into_iter();
        let writes = writes.map(|(block, parts)| self.write_drive(Layout::offset_of(block), parts));
        let written = join_all(writes).await.into_iter().collect::<Result<(), _>>();
        written.map_err(|error| StoreError::from_drive(&error))?;
        if canary::is_planted(Bug::DestageUnflushed) {
            return Ok(());
        }
        // A flush that fails has lost what was written before, for whatever reason.
        let flushed = self.flush_drive(Flushed::Capacity).await;
        flushed.map_err(|error| StoreError::Failed(error.to_string()))
    }

    pub(crate) fn with_allocator<T>(&self, use_it: impl FnOnce(&mut crate::allocator::Allocator) -> T) -> T {
        let mut state = self.state.borrow_mut();
        use_it(state.allocator.as_mut().expect("an attached store has its free blocks counted"))
    }

    /// The volume's slot of a slab, after a check that the blocks lie within it.
    pub(crate) fn volume_of(&self, slot: SlabSlot, first: u32, count: u32) -> Result<u32, StoreError> {
        let state = self.state.borrow();
        let slab = state.slabs.get(slot.0).ok_or(StoreError::NotFound)?;
        if !slab.contains(first, count) {
            return Err(StoreError::NotFound);
        }
        Ok(slab.volume_slot)
    }

    /// Writes data before their group, if their drive takes them without any waiting. Returns whether it did.
    fn write_at_once(&self, run: &DataRun) -> bool {
        // What is long would hold up what other nodes are sent in this turn.
        if run.data.len() > AT_ONCE_BYTES_MAX {
            return false;
        }
        // A drive that has failed may be another process's by now.
        if self.failure.borrow().is_some()
            || !self.media.write_at_once(Layout::offset_of(run.block), &run.data)
        {
            return false;
        }
        let bytes = run.data.len() as u64;
        self.load.begin_write().done(bytes);
        let mut statistics = self.statistics.borrow_mut();
        statistics.writes += 1;
        statistics.data_bytes += bytes;
        true
    }

    pub(crate) async fn write_drive(
        &self,
        offset: u64,
        parts: Vec<Buffer>,
    ) -> Result<(), spandrel_platform::DriveError> {
        self.statistics.borrow_mut().writes += 1;
        let operation = self.load.begin_write();
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let outcome = self.media.write(offset, parts).await;
        operation.done(bytes);
        outcome
    }

    /// Makes writes durable that have completed on these media, where that needs a flush.
    pub(crate) async fn flush_drive(&self, media: Flushed) -> Result<(), spandrel_platform::DriveError> {
        if !self.media.needs_flush(media) || canary::is_planted(Bug::SkipFlush) {
            return Ok(());
        }
        let operation = self.load.begin_write();
        let outcome = self.media.flush(media).await;
        operation.done(0);
        self.statistics.borrow_mut().flushes += outcome?;
        Ok(())
    }
}

fn slice_blocks(data: &Buffer, first: u32, count: u32) -> Buffer {
    data.slice(first as usize * BLOCK_BYTES..(first + count) as usize * BLOCK_BYTES)
}

fn describe(state: &State, slot: u32) -> Option<SlabDescription> {
    let slab = state.slabs.get(slot)?;
    let volume = state.volumes.get(slab.volume_slot)?;
    Some(SlabDescription {
        slot: SlabSlot(slot),
        volume: volume.volume,
        slab: slab.slab,
        copy: slab.copy,
        layout: slab.layout,
        mapped_blocks: slab.pages.iter().map(|page| u32::from(page.mapped)).sum(),
    })
}

/// Changes that wait for their group, oldest first.
pub(crate) type PendingChanges = VecDeque<Change>;

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
