//! Moves what clients wrote from the area of a cache drive to the capacity drive.
//!
//! A batch is some blocks that lie near each other. They are read from the area, written to the capacity drive and flushed;
//! then a record says where each is now. The record counts for those blocks alone that are still mapped to where they were read
//! from: what a client has written meanwhile stays. Until the record is durable the block is read, and recovered, from the area.
//!
//! A spinning disk pays for each move of its head. What is moved to one is chosen in the order of the slabs and goes, block by
//! block, to the place behind the one before it in the slab if that is free, which mostly is where it was before it was written
//! anew: so what the disk holds one behind the other stays so. Other drives, and the cache drive, do best with few long reads and
//! writes. What is moved to one of these is chosen in the order in which it lies in the area, which is about that in which it
//! was written, and the blocks of a batch go to places one behind the other.
//!
//! Invariants:
//! - What a block is moved from is not given to another one before the record is durable, nor before the reading has ended.
//! - The record is queued when the data are durable on the capacity drive.
//! - Nothing is moved that does not match its checksum: it stays as it is, for a scrub or a read to heal.

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use spandrel_platform::{Buffer, Platform};
use spandrel_shared::checksum::BlockChecksum;
use spandrel_shared::{BLOCK_BYTES, PAGE_BLOCKS};

use crate::allocator::{Allocator, Run};
use crate::change::{Change, DataRun, MovedRun};
use crate::error::StoreError;
use crate::format::map::Mapping;
use crate::map_memory::PagePlace;
use crate::slab_copy::Page;
use crate::state::State;
use crate::store::Inner;

/// Blocks of a batch: 256 KiB, which the processor's own caches hold from the read to the write.
const BATCH_BLOCKS: usize = 64;

/// The same for a spinning disk, which is to get far with each flush: 1 MiB.
const DISK_BATCH_BLOCKS: usize = 256;

/// Pages that are looked through at a time at most, so that clients are served in between.
const PAGES_PER_LOOK: usize = 4096;

/// The same of blocks of the area.
const PLACES_PER_LOOK: u32 = 8 << 10;

/// After a look that found nothing: what else goes on has its turn.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// After a batch that could not be moved.
const PAUSE: Duration = Duration::from_millis(100);

/// A block that is to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    slab_slot: u32,
    block: u32,
    /// Where it is, in the area.
    from: Mapping,
}

/// Where the next look begins, in either order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cursor {
    page: PagePlace,
    /// A block of the area, by its number within it.
    place: u32,
}

/// The task that empties the area as far as it should be. Ends when the store fails.
pub(crate) async fn run<P: Platform>(inner: Rc<Inner<P>>) {
    let mut cursor = Cursor::default();
    let has_failed = || inner.failure.borrow().is_some();
    loop {
        inner.progress.wait_until(|| batches_wanted(&inner) > 0 || has_failed()).await;
        if has_failed() {
            return;
        }
        let spins = inner.cache.spins();
        let batch_blocks = if spins { DISK_BATCH_BLOCKS } else { BATCH_BLOCKS };
        let blocks_max = batches_wanted(&inner) * batch_blocks;
        let chosen = match spins {
            true => choose_by_slab(&inner.state.borrow(), &mut cursor.page, blocks_max),
            false => choose_by_age(&inner.state.borrow(), &mut cursor.place, blocks_max),
        };
        if chosen.is_empty() {
            // They are still to be found.
            inner.platform.sleep(LOOK_PAUSE).await;
            continue;
        }
        let batches = chosen.chunks(batch_blocks).map(|batch| move_batch(&inner, batch.to_vec()));
        let moved = join_all(batches).await;
        if moved.iter().any(|moved| *moved > 0) {
            inner.looks_in_vain.set(0);
            continue;
        }
        inner.looks_in_vain.set(inner.looks_in_vain.get() + 1);
        inner.progress.notify_all();
        // Nothing but blocks that cannot be moved now.
        let pause = std::pin::pin!(inner.platform.sleep(PAUSE));
        futures_util::future::select(pause, std::pin::pin!(inner.progress.wait_until(has_failed))).await;
    }
}

/// Wakes whoever waits for what a group has made of the area: the task that empties it, and who waits until nothing is left.
/// Most groups are of interest to neither.
pub(crate) fn area_changed<P: Platform>(inner: &Inner<P>) {
    let is_empty = inner.state.borrow().blocks_in_area() == 0;
    if is_empty || batches_wanted(inner) > 0 {
        inner.progress.notify_all();
    }
}

fn batches_wanted<P: Platform>(inner: &Inner<P>) -> usize {
    inner.cache.destages(inner.cache_use())
}

/// The next blocks that are in the area, in the order in which they lie there, until there are enough or much was looked
/// through.
fn choose_by_age(state: &State, cursor: &mut u32, blocks_max: usize) -> Vec<Candidate> {
    let mut chosen = Vec::new();
    let count = state.area.count();
    for _ in 0..count.min(PLACES_PER_LOOK) {
        if chosen.len() >= blocks_max {
            break;
        }
        let user = state.user_of_area(*cursor);
        chosen.extend(user.map(|(slab_slot, block, from)| Candidate { slab_slot, block, from }));
        *cursor = (*cursor + 1) % count;
    }
    chosen
}

/// The next blocks that are in the area, in the order in which they lie in their slabs: whole pages, until there are enough
/// or many were looked through.
fn choose_by_slab(state: &State, cursor: &mut PagePlace, blocks_max: usize) -> Vec<Candidate> {
    let from = *cursor;
    let mut chosen = Vec::new();
    let ahead = pages_from(state, from.slab_slot).filter(|(at, _)| *at >= from);
    let behind = pages_from(state, 0).take_while(|(at, _)| *at < from);
    for (looked_at, (at, page)) in ahead.chain(behind).enumerate() {
        if chosen.len() >= blocks_max || looked_at >= PAGES_PER_LOOK {
            *cursor = at;
            break;
        }
        let Some(leaf) = page.leaf().filter(|_| page.in_area > 0) else { continue };
        let blocks = (at.page * PAGE_BLOCKS..).zip(leaf.iter());
        let in_area = blocks.filter(|(_, mapping)| state.area.holds(**mapping));
        chosen.extend(in_area.map(|(block, from)| Candidate { slab_slot: at.slab_slot, block, from: *from }));
    }
    chosen
}

/// The pages of a slab and of those behind it, in order.
fn pages_from(state: &State, slab_slot: u32) -> impl Iterator<Item = (PagePlace, &Page)> {
    state.slabs.iter_from(slab_slot).flat_map(|(slab_slot, slab)| {
        (0..).zip(&slab.pages).map(move |(page, entry)| (PagePlace { slab_slot, page }, entry))
    })
}

/// Moves a batch, and returns how many blocks of it were written to the capacity drive and named by a record that came.
async fn move_batch<P: Platform>(inner: &Inner<P>, mut batch: Vec<Candidate>) -> usize {
    batch.sort_by_key(|candidate| (candidate.slab_slot, candidate.block));
    let data = read_batch(inner, &batch).await;
    let good = batch.into_iter().zip(data).filter_map(|(candidate, data)| Some((candidate, data?)));
    let Some((runs, data)) = place(inner, good.collect()) else { return 0 };
    if runs.is_empty() {
        return 0;
    }
    let blocks = runs.iter().map(|run| run.former.len()).sum();
    if let Err(error) = inner.write_durably(data).await {
        give_back(inner, &runs);
        if error != StoreError::NoRoom {
            inner.fail(error);
        }
        return 0;
    }
    inner.statistics.borrow_mut().blocks_destaged += blocks as u64;
    match inner.submit_move(Change::moving(runs)) {
        Ok(moved) => match moved.await {
            Some(Ok(())) => blocks,
            _ => 0,
        },
        Err(_) => 0,
    }
}

fn give_back<P: Platform>(inner: &Inner<P>, runs: &[MovedRun]) {
    inner.with_allocator(|allocator| runs.iter().for_each(|run| allocator.free_now(run.to())));
}

/// What stands where the candidates are, as far as it matches its checksum.
async fn read_batch<P: Platform>(inner: &Inner<P>, batch: &[Candidate]) -> Vec<Option<Buffer>> {
    let ticket = inner.with_allocator(Allocator::begin_read);
    let mut order: Vec<usize> = (0..batch.len()).collect();
    order.sort_by_key(|index| batch[*index].from.block);
    let is_next = |one: &usize, other: &usize| batch[*one].from.block + 1 == batch[*other].from.block;
    let reads = order.chunk_by(is_next).map(|run| async move {
        let blocks = read_each(inner, batch[run[0]].from.block, run.len() as u32).await;
        run.iter().copied().zip(blocks).collect::<Vec<_>>()
    });
    let mut data = vec![None; batch.len()];
    for (index, block) in join_all(reads).await.into_iter().flatten() {
        data[index] = block;
    }
    inner.with_allocator(|allocator| allocator.end_read(ticket));
    let state = inner.state.borrow();
    for (candidate, data) in batch.iter().zip(&mut data) {
        let slab = state.slabs.get(candidate.slab_slot);
        let checksum = slab.and_then(|slab| {
            let volume = state.volumes.get(slab.volume_slot)?;
            Some(BlockChecksum::new(volume.volume, slab.slab))
        });
        let matches = |data: &Buffer, checksum: &BlockChecksum| {
            checksum.of(candidate.block, data) == candidate.from.checksum
        };
        if !data.as_ref().zip(checksum.as_ref()).is_some_and(|(data, checksum)| matches(data, checksum)) {
            *data = None;
        }
    }
    data
}

/// Blocks that lie behind each other, with one read; if that fails, one by one, so that a bad sector costs one block.
async fn read_each<P: Platform>(inner: &Inner<P>, first: u32, count: u32) -> Vec<Option<Buffer>> {
    if let Some(data) = inner.read_blocks(first, count).await {
        return (0..count as usize)
            .map(|at| Some(data.slice(at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES)))
            .collect();
    }
    match count {
        1 => vec![None],
        _ => join_all((first..first + count).map(|block| inner.read_blocks(block, 1))).await,
    }
}

/// Takes places on the capacity drive for these blocks, which lie in the order of their slabs. `None` if there is no room.
fn place<P: Platform>(
    inner: &Inner<P>,
    mut blocks: Vec<(Candidate, Buffer)>,
) -> Option<(Vec<MovedRun>, Vec<DataRun>)> {
    let mut state = inner.state.borrow_mut();
    blocks.retain(|(candidate, _)| state.slabs.get(candidate.slab_slot).is_some());
    let keep = inner.layout.checkpoint_reserve_blocks();
    let places = match inner.cache.spins() {
        true => places_in_slabs(&mut state, &blocks, keep)?,
        false => allocator_of(&mut state).allocate(blocks.len() as u32, keep)?.into_vec(),
    };
    let places = places.into_iter().flat_map(|run| run.first..run.first + run.count);
    let (mut runs, mut data): (Vec<MovedRun>, _) = (Vec::new(), Vec::with_capacity(blocks.len()));
    for ((candidate, content), block) in blocks.into_iter().zip(places) {
        data.push(DataRun { block, data: content });
        match runs.last_mut().filter(|run| run.is_continued_by(candidate.slab_slot, candidate.block, block)) {
            Some(run) => run.former.push(candidate.from),
            None => runs.push(MovedRun {
                slab_slot: candidate.slab_slot,
                copy: state.slabs.get(candidate.slab_slot)?.copy,
                first: candidate.block,
                block,
                former: vec![candidate.from],
            }),
        }
    }
    Some((runs, data))
}

/// For each stretch of blocks that lie one behind the other in their slab the places behind that of the block before it, if
/// these are free.
fn places_in_slabs(state: &mut State, blocks: &[(Candidate, Buffer)], keep: u32) -> Option<Vec<Run>> {
    let is_next = |one: &(Candidate, Buffer), other: &(Candidate, Buffer)| {
        one.0.slab_slot == other.0.slab_slot && one.0.block + 1 == other.0.block
    };
    let mut places: Vec<Run> = Vec::new();
    for stretch in blocks.chunk_by(is_next) {
        let (first, count) = (stretch[0].0, stretch.len() as u32);
        let slab = state.slabs.get(first.slab_slot)?;
        let before = first.block.checked_sub(1).and_then(|before| slab.mapping_in_memory(before));
        let behind = before.filter(|before| !state.area.holds(*before)).and_then(|before| before.physical());
        let wanted = behind.map(|behind| Run { first: behind + 1, count });
        let allocator = allocator_of(state);
        match wanted.filter(|wanted| allocator.take_run(*wanted, keep)) {
            Some(run) => places.push(run),
            None => match allocator.allocate(count, keep) {
                Some(runs) => places.extend(runs),
                None => {
                    places.into_iter().for_each(|run| allocator.free_now(run));
                    return None;
                }
            },
        }
    }
    Some(places)
}

fn allocator_of(state: &mut State) -> &mut Allocator {
    state.allocator.as_mut().expect("an attached store has its free blocks counted")
}

#[cfg(test)]
#[path = "destage_tests.rs"]
mod tests;
