//! Checkpoints: what the journal says is written into the maps, so that its tail can be reused.
//!
//! A checkpoint begins between two groups, at a journal position P. What is not in the maps (the
//! lists of writes above the marks) is said again in the groups from P on. Then the dirty leaves
//! and slab roots are written to free blocks while new groups go on, and at last a root that
//! names P. From then on the former root, the pages only it named, and the journal before P are
//! free. A crash before that finds the former root untouched.
//!
//! Where the drive is a file whose file system is full, a checkpoint can fail for lack of room. Then
//! nothing has changed but the journal, and the next one tries again.
//!
//! A page written meanwhile may already hold a mapping from a group behind P. That does no harm:
//! records say what is, not what changes, and all of them from P on are applied again.
//!
//! Invariants:
//! - Pages hold durable mappings only, because the state does.
//! - The root is written when all pages that it names are durable.
//! - Slots freed before P, and no others, are given out again when the root is durable.

use std::rc::Rc;

use futures_util::future::join_all;
use spandrel_platform::sync::OneshotReceiver;
use spandrel_platform::{BufferMut, DriveError, Platform};
use spandrel_shared::BLOCK_BYTES;
use spandrel_shared::canary::{self, Bug};

use crate::allocator::{Run, Runs};
use crate::cache_drive::CacheArea;
use crate::change::{Change, Waiter};
use crate::error::StoreError;
use crate::format::journal::{GROUP_BYTES_MAX, Record, record_bytes};
use crate::format::map::{PageEntry, PagePointer, encode_leaf, encode_slab_root};
use crate::format::root::{JournalPosition, Root, RootSlab, RootVolume};
use crate::layout::Layout;
use crate::map_memory::STEP_INTERVAL;
use crate::media::Flushed;
use crate::slab_copy::SlabCopy;
use crate::state::State;
use crate::store::{Inner, PendingChanges};

/// Pages that are written before other work gets a turn.
const PAGES_PER_STEP: usize = 256;

/// Pages that are seen to when a root is durable before other work gets a turn.
const PAGES_SETTLED_PER_STEP: usize = if cfg!(test) { 2 } else { 4096 };

/// Bytes of records in one change: a group holds some of them.
const CHANGE_BYTES: usize = GROUP_BYTES_MAX / 4;

/// Who asked for a checkpoint and how far it is. Checkpoints are counted from one.
#[derive(Default)]
pub(crate) struct CheckpointState {
    /// The last one that somebody wants.
    wanted: u64,
    /// The last one that has ended.
    ended: u64,
    /// How that one ended.
    outcome: Option<StoreError>,
    /// The next one is under way.
    running: bool,
    /// The commit task is to begin it between two groups.
    requested: bool,
    begun: Option<Beginning>,
}

impl CheckpointState {
    pub(crate) fn is_requested(&self) -> bool {
        self.requested
    }

    /// Whether none is under way, and nobody wants one.
    #[cfg(test)]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.wanted == self.ended
    }

    /// How many have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    /// Whether one that ended after the `ended`th found no room on the drive.
    pub(crate) fn lacked_room_since(&self, ended: u64) -> bool {
        self.ended > ended && self.outcome == Some(StoreError::NoRoom)
    }

    /// The first one that begins from now on.
    fn next(&self) -> u64 {
        self.ended + 1 + u64::from(self.running)
    }
}

/// The state at position P, as far as it changes afterwards in ways the root must not see.
struct Beginning {
    position: JournalPosition,
    tail: u64,
    volumes: Vec<RootVolume>,
    freed_slab_slots: Vec<u32>,
    freed_volume_slots: Vec<u32>,
    said_again: Vec<OneshotReceiver<Result<(), StoreError>>>,
}

/// Asks for a checkpoint because the journal fills up, unless one is under way.
pub(crate) fn wish<P: Platform>(inner: &Inner<P>) {
    let mut checkpoint = inner.checkpoint.borrow_mut();
    if !checkpoint.running && checkpoint.wanted == checkpoint.ended {
        checkpoint.wanted += 1;
        drop(checkpoint);
        inner.progress.notify_all();
    }
}

/// Waits for a checkpoint that begins from now on. The task makes it, so a caller that stops
/// waiting stops nothing.
pub(crate) async fn checkpoint<P: Platform>(inner: &Inner<P>) -> Result<(), StoreError> {
    inner.check()?;
    let number = {
        let mut checkpoint = inner.checkpoint.borrow_mut();
        let number = checkpoint.next();
        checkpoint.wanted = checkpoint.wanted.max(number);
        number
    };
    inner.progress.notify_all();
    inner
        .progress
        .wait_until(|| inner.checkpoint.borrow().ended >= number || inner.failure.borrow().is_some())
        .await;
    inner.check()?;
    inner.checkpoint.borrow().outcome.clone().map_or(Ok(()), Err)
}

/// The task that makes the checkpoints. Ends when the store fails.
pub(crate) async fn run<P: Platform>(inner: Rc<Inner<P>>) {
    loop {
        let is_wanted = || inner.checkpoint.borrow().wanted > inner.checkpoint.borrow().ended;
        inner.progress.wait_until(|| is_wanted() || inner.failure.borrow().is_some()).await;
        if inner.failure.borrow().is_some() {
            return;
        }
        inner.checkpoint.borrow_mut().running = true;
        let outcome = make(&inner).await.err();
        if let Some(error) = outcome.clone().filter(|error| *error != StoreError::NoRoom) {
            inner.fail(error);
        }
        let mut checkpoint = inner.checkpoint.borrow_mut();
        checkpoint.running = false;
        checkpoint.ended += 1;
        let has_room = outcome.is_none();
        checkpoint.outcome = outcome;
        drop(checkpoint);
        // What has changed meanwhile can be more than a bound allows that was set meanwhile.
        if has_room && inner.state.borrow().map_memory.is_filling_up() {
            wish(&inner);
        }
        inner.progress.notify_all();
    }
}

async fn make<P: Platform>(inner: &Inner<P>) -> Result<(), StoreError> {
    if inner.checkpoint.borrow().outcome == Some(StoreError::NoRoom) {
        // As long as the drive has no room, attempts must not fill the journal.
        write_leaves(inner).await?;
        write_slab_roots(inner).await?;
    }
    inner.checkpoint.borrow_mut().requested = true;
    inner.progress.notify_all();
    inner
        .progress
        .wait_until(|| inner.checkpoint.borrow().begun.is_some() || inner.failure.borrow().is_some())
        .await;
    inner.check()?;
    let begun = inner.checkpoint.borrow_mut().begun.take();
    let mut beginning = begun.ok_or_else(|| StoreError::Failed("a checkpoint did not begin".to_owned()))?;
    let result = write_maps(inner, &mut beginning).await;
    let mut state = inner.state.borrow_mut();
    let (slabs, volumes) = (beginning.freed_slab_slots, beginning.freed_volume_slots);
    if result.is_ok() {
        state.slabs.end_quarantine(slabs);
        state.volumes.end_quarantine(volumes);
    } else {
        state.slabs.return_quarantined(slabs);
        state.volumes.return_quarantined(volumes);
    }
    result
}

/// Fixes position P between two groups: called by the commit task.
pub(crate) fn begin<P: Platform>(inner: &Inner<P>, pending: &mut PendingChanges) {
    let mut state = inner.state.borrow_mut();
    let journal = inner.journal.borrow();
    state.drop_empty_volumes();
    let mut said_again = Vec::new();
    // In front of all that waits, in their own order.
    for records in split(state.records_behind_root()).into_iter().rev() {
        let (waiter, receiver) = Waiter::new();
        pending.push_front(Change::records(records).for_checkpoint().awaited_by(waiter));
        said_again.push(receiver);
    }
    let beginning = Beginning {
        position: journal.next,
        tail: journal.head(),
        volumes: state.volumes.iter_mut().map(|(slot, volume)| volume.begin_checkpoint(slot)).collect(),
        freed_slab_slots: state.slabs.take_quarantined(),
        freed_volume_slots: state.volumes.take_quarantined(),
        said_again,
    };
    let mut checkpoint = inner.checkpoint.borrow_mut();
    checkpoint.requested = false;
    checkpoint.begun = Some(beginning);
    inner.progress.notify_all();
}

/// Splits records into changes. One record can be longer than is usual for a change.
fn split(records: Vec<Record>) -> Vec<Vec<Record>> {
    let mut changes: Vec<Vec<Record>> = Vec::new();
    let mut bytes = 0;
    for record in records {
        let more = record_bytes(&record);
        bytes += more;
        match changes.last_mut() {
            Some(last) if bytes <= CHANGE_BYTES => last.push(record),
            _ => {
                bytes = more;
                changes.push(vec![record]);
            }
        }
    }
    changes
}

async fn write_maps<P: Platform>(inner: &Inner<P>, beginning: &mut Beginning) -> Result<(), StoreError> {
    for said in join_all(beginning.said_again.drain(..)).await {
        said.unwrap_or_else(|| inner.check())?;
    }
    write_leaves(inner).await?;
    write_slab_roots(inner).await?;
    write_root(inner, beginning).await?;
    // There is room in the journal again.
    inner.progress.notify_all();
    settle_pages(inner).await;
    Ok(())
}

/// What was written before the root may be evicted from now on. Step by step: after writes at random places it is nearly all.
async fn settle_pages<P: Platform>(inner: &Inner<P>) {
    loop {
        inner.state.borrow_mut().settle_pages(PAGES_SETTLED_PER_STEP);
        if inner.state.borrow().pages_written.is_empty() {
            return;
        }
        inner.progress.notify_all();
        inner.platform.sleep(STEP_INTERVAL).await;
    }
}

/// Writes every dirty leaf to a new place.
async fn write_leaves<P: Platform>(inner: &Inner<P>) -> Result<(), StoreError> {
    let dirty: Vec<(u32, u32)> = {
        let state = inner.state.borrow();
        let slabs = state.slabs.iter().filter(|(_, slab)| slab.dirty);
        slabs
            .flat_map(|(slot, slab)| {
                let pages = (0..).zip(&slab.pages).filter(|(_, page)| page.dirty);
                pages.map(move |(page, _)| (slot, page))
            })
            .collect()
    };
    for step in dirty.chunks(PAGES_PER_STEP) {
        let mut batch = PageBatch::allocate(inner, step.len())?;
        let mut written = Vec::with_capacity(step.len());
        for (slot, index) in step {
            let mut state = inner.state.borrow_mut();
            let Some(slab) = state.slabs.get_mut(*slot) else { continue };
            let page = &mut slab.pages[*index as usize];
            if !page.is_leaf_dirty() {
                // If its entry has changed, that is for the slab's root page to say.
                page.dirty = false;
                continue;
            }
            assert!(!page.is_evicted(), "what is evicted has not changed");
            let pointer = match page.leaf() {
                Some(leaf) => batch.add(|block| encode_leaf(leaf, block)),
                None => PagePointer::NONE,
            };
            page.begin_write();
            written.push((*slot, *index, pointer));
        }
        let result = batch.write(inner).await;
        let mut state = inner.state.borrow_mut();
        for (slot, index, pointer) in written {
            state.replace_page(slot, Some(index), pointer, result.is_ok());
        }
        result?;
    }
    Ok(())
}

/// Writes the root page of every slab of which any page has changed.
async fn write_slab_roots<P: Platform>(inner: &Inner<P>) -> Result<(), StoreError> {
    let dirty: Vec<u32> = {
        let state = inner.state.borrow();
        state.slabs.iter().filter(|(_, slab)| slab.dirty).map(|(slot, _)| slot).collect()
    };
    for step in dirty.chunks(PAGES_PER_STEP) {
        let mut batch = PageBatch::allocate(inner, step.len())?;
        let mut written = Vec::with_capacity(step.len());
        for slot in step {
            let mut state = inner.state.borrow_mut();
            let Some(slab) = state.slabs.get_mut(*slot) else { continue };
            let entries: Vec<PageEntry> = slab.pages.iter().map(|page| page.entry).collect();
            // A page that changed after its leaf was written is for the next checkpoint.
            slab.dirty = slab.pages.iter().any(|page| page.dirty);
            written.push((*slot, batch.add(|block| encode_slab_root(&entries, block))));
        }
        let result = batch.write(inner).await;
        let mut state = inner.state.borrow_mut();
        for (slot, pointer) in written {
            state.replace_page(slot, None, pointer, result.is_ok());
        }
        result?;
    }
    Ok(())
}

/// Writes the root and, when it is durable, frees what only the former one needed.
async fn write_root<P: Platform>(inner: &Inner<P>, beginning: &Beginning) -> Result<(), StoreError> {
    let (bytes, generation, mut retired) = {
        let mut state = inner.state.borrow_mut();
        let generation = inner.journal.borrow().root_generation + 1;
        let root = Root {
            drive: inner.superblock.drive,
            generation,
            attach_number: inner.attach_number,
            state_revision: inner.state_revision.get(),
            journal: beginning.position,
            binding: inner.media.area().map(CacheArea::binding),
            volumes: with_later_volumes(beginning.volumes.clone(), &state),
            slabs: state.slabs.iter().map(|(slot, slab)| to_root(slot, slab)).collect(),
        };
        (root.encode(), generation, std::mem::take(&mut state.retired_pages))
    };
    if let Err(error) = write_twins(inner, generation, &bytes).await {
        // A twin may be there nevertheless, and name what the state does not any more.
        inner.state.borrow_mut().retired_pages.extend(retired);
        return Err(error);
    }
    let mut journal = inner.journal.borrow_mut();
    journal.root_generation = generation;
    journal.release_to(beginning.tail);
    let mut state = inner.state.borrow_mut();
    for volume in &beginning.volumes {
        state.change_volume(volume.slot, |state| state.root_is_durable(volume));
    }
    let unread = state.given_up.take_unread(&mut retired);
    state.retired_pages.extend(unread);
    drop(state);
    inner.with_allocator(|allocator| {
        for block in retired {
            allocator.free_now(Run { first: block, count: 1 });
        }
    });
    inner.statistics.borrow_mut().checkpoints += 1;
    Ok(())
}

/// Writes both copies of a root, when all that it names is durable.
async fn write_twins<P: Platform>(inner: &Inner<P>, generation: u64, bytes: &[u8]) -> Result<(), StoreError> {
    let layout = &inner.layout;
    let slot_bytes = layout.root_slot_blocks as usize * BLOCK_BYTES;
    assert!(bytes.len() <= slot_bytes, "a root of {} bytes in a slot of {slot_bytes}", bytes.len());
    flush(inner).await?;
    let buffer = inner.platform.buffers().copy_of(bytes).freeze();
    inner.statistics.borrow_mut().map_bytes += 2 * bytes.len() as u64;
    let twins = Layout::root_slots_of(generation)
        .map(|slot| inner.write_drive(Layout::offset_of(layout.root_slot(slot)), vec![buffer.clone()]));
    for written in join_all(twins).await {
        written.map_err(|error| StoreError::from_drive(&error))?;
    }
    flush(inner).await
}

/// The volumes at P, and those that came later: the slabs in the root may belong to them. A
/// record behind P brings a later one again; that changes nothing.
fn with_later_volumes(mut volumes: Vec<RootVolume>, state: &State) -> Vec<RootVolume> {
    for (slot, volume) in state.volumes.iter() {
        if let Err(place) = volumes.binary_search_by_key(&slot, |volume| volume.slot) {
            volumes.insert(place, RootVolume::new(slot, volume.volume));
        }
    }
    volumes
}

fn to_root(slot: u32, slab: &SlabCopy) -> RootSlab {
    RootSlab {
        slot,
        volume_slot: slab.volume_slot,
        slab: slab.slab,
        layout: slab.layout,
        copy: slab.copy,
        birth: slab.birth,
        map: slab.map,
        proven: slab.proven.filter(|_| !canary::is_planted(Bug::ForgetUnproven)),
    }
}

/// A flush that fails has lost what was written before, for whatever reason.
async fn flush<P: Platform>(inner: &Inner<P>) -> Result<(), StoreError> {
    inner.flush_drive(Flushed::All).await.map_err(|error| StoreError::Failed(error.to_string()))
}

/// Map pages on their way to freshly allocated places.
struct PageBatch {
    runs: Runs,
    buffers: Vec<BufferMut>,
    used: usize,
}

impl PageBatch {
    fn allocate<P: Platform>(inner: &Inner<P>, pages: usize) -> Result<Self, StoreError> {
        let runs = inner.with_allocator(|allocator| allocator.allocate(pages as u32, 0));
        let runs = runs.ok_or(StoreError::NoRoom)?;
        let take = |run: &Run| inner.platform.buffers().take(run.count as usize * BLOCK_BYTES);
        Ok(Self { buffers: runs.iter().map(take).collect(), runs, used: 0 })
    }

    /// Fills the next page by `encode`, which returns its checksum.
    fn add(&mut self, encode: impl FnOnce(&mut [u8]) -> u32) -> PagePointer {
        let mut index = self.used;
        self.used += 1;
        for (run, buffer) in self.runs.iter().zip(&mut self.buffers) {
            if index < run.count as usize {
                let checksum = encode(&mut buffer[index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES]);
                return PagePointer { block: run.first + index as u32, checksum };
            }
            index -= run.count as usize;
        }
        unreachable!("as many pages were allocated as are added");
    }

    /// Writes the pages that were added and gives the places of the others back.
    async fn write<P: Platform>(self, inner: &Inner<P>) -> Result<(), StoreError> {
        let mut left = self.used;
        let mut writes = Vec::new();
        for (run, mut buffer) in self.runs.into_iter().zip(self.buffers) {
            let used = left.min(run.count as usize);
            left -= used;
            if used < run.count as usize {
                let unused = Run { first: run.first + used as u32, count: run.count - used as u32 };
                inner.with_allocator(|allocator| allocator.free_now(unused));
            }
            if used > 0 {
                buffer.truncate(used * BLOCK_BYTES);
                inner.statistics.borrow_mut().map_bytes += buffer.len() as u64;
                writes.push(inner.write_drive(Layout::offset_of(run.first), vec![buffer.freeze()]));
            }
        }
        // All have ended before the first failure counts: none may still be under way to a place
        // that is given back.
        let written: Vec<Result<(), DriveError>> = join_all(writes).await;
        written
            .into_iter()
            .collect::<Result<(), DriveError>>()
            .map_err(|error| StoreError::from_drive(&error))
    }
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;
