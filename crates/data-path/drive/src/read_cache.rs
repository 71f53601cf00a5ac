//! Keeps copies of what is read in the area of a cache drive.
//!
//! What a read has found on the capacity drive, and checked, is written to free places of the area by the way: nobody waits
//! for it, and when there is much of that to do the rest is left out. Which copies stay is the business of `read_index`.
//!
//! Copies are known in memory alone: after a start there are none, and places that held some are free.
//!
//! Invariants:
//! - A copy is looked up only when it has been written, and only as long as its block is not given up.
//! - What is read from a copy is checked as everything is. If it does not match, the copy goes, and the block is read where it
//!   is.

use std::rc::Rc;

use futures_util::future::{join_all, select};
use spandrel_platform::{Buffer, Platform};
use spandrel_shared::BLOCK_BYTES;

use crate::allocator::Run;
use crate::change::DataRun;
use crate::commit::merge;
use crate::layout::Layout;
use crate::map_memory::STEP_INTERVAL;
use crate::store::Inner;

/// Longer reads are not copied, in blocks: 256 KiB. Capacity drives are good at those.
pub(crate) const CACHED_READ_BLOCKS_MAX: u32 = 64;

/// Copies that are being written at most; what is read beyond that is copied when it is read again.
const ARRIVING_MAX: usize = 1024;

/// A copy that is being written.
pub(crate) struct Arriving {
    block: u32,
    place: u32,
    data: Buffer,
}

/// Where blocks are to be read that lie behind each other on the capacity drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) run: Run,
    /// Where their copies begin, if they have some that lie behind each other too.
    pub(crate) place: Option<u32>,
}

impl<P: Platform> Inner<P> {
    /// Where to read these blocks of the capacity drive.
    pub(crate) fn pieces(&self, run: Run) -> Vec<Piece> {
        self.with_allocator(|allocator| {
            let mut pieces: Vec<Piece> = Vec::with_capacity(1);
            for block in run.first..run.first + run.count {
                let place = allocator.copy_of(block);
                match pieces.last_mut() {
                    Some(last) if last.place.map(|first| first + last.run.count) == place => {
                        last.run.count += 1;
                    }
                    _ => pieces.push(Piece { run: Run { first: block, count: 1 }, place }),
                }
            }
            pieces
        })
    }

    /// Begins to copy what blocks of the capacity drive hold, unless there is too much to do. The blocks are mapped.
    pub(crate) fn keep_copies(&self, first: u32, data: &Buffer) {
        let count = (data.len() / BLOCK_BYTES) as u32;
        if count > CACHED_READ_BLOCKS_MAX || self.arriving.len() + count as usize > ARRIVING_MAX {
            return;
        }
        // Their places are taken at once: if one of them is given up from here on, it gets no copy.
        let taken = self.with_allocator(|allocator| {
            let blocks = (first..first + count).zip(0..);
            blocks
                .filter_map(|(block, at)| Some((block, allocator.begin_copy(block)?, at)))
                .collect::<Vec<_>>()
        });
        for (block, place, at) in taken {
            let data = data.slice(at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES);
            self.arriving.push(Arriving { block, place, data });
        }
    }

    pub(crate) fn drop_copies(&self, run: Run) {
        self.with_allocator(|allocator| {
            (run.first..run.first + run.count).for_each(|block| allocator.drop_copy(block));
        });
    }
}

/// The task that writes copies. Ends when the store fails.
pub(crate) async fn run<P: Platform>(inner: Rc<Inner<P>>) {
    let has_failed = || inner.failure.borrow().is_some();
    while !has_failed() {
        let failed = std::pin::pin!(inner.progress.wait_until(has_failed));
        select(std::pin::pin!(inner.arriving.wait_not_empty()), failed).await;
        let mut arriving: Vec<Arriving> = std::iter::from_fn(|| inner.arriving.try_pop()).collect();
        arriving.sort_by_key(|copy| copy.place);
        write_copies(&inner, arriving).await;
    }
}

/// The task that drops copies that are not wanted any more, in steps between which others have their turn. Ends with the last
/// one, and when the store fails.
pub(crate) async fn drop_unwanted<P: Platform>(inner: Rc<Inner<P>>) {
    while inner.failure.borrow().is_none()
        && inner.with_allocator(|allocator| allocator.drop_unwanted_copies())
    {
        inner.platform.sleep(STEP_INTERVAL).await;
    }
}

/// Writes copies, which are in the order of their places.
async fn write_copies<P: Platform>(inner: &Inner<P>, arriving: Vec<Arriving>) {
    let runs = arriving.iter().map(|copy| DataRun { block: copy.place, data: copy.data.clone() }).collect();
    let writes = merge(runs).into_iter().map(|(place, parts)| async move {
        let end = place + parts.len() as u32;
        let outcome = inner.write_drive(Layout::offset_of(place), parts).await;
        if let Err(error) = &outcome {
            tracing::warn!(drive = %inner.superblock.drive, "what was read is not kept on the cache drive: {error}");
        }
        (end, outcome.is_ok())
    });
    let mut ends = join_all(writes).await.into_iter().peekable();
    inner.with_allocator(|allocator| {
        for copy in &arriving {
            while ends.peek().is_some_and(|(end, _)| *end <= copy.place) {
                ends.next();
            }
            let is_written = ends.peek().is_some_and(|(_, is_written)| *is_written);
            allocator.end_copy(copy.block, copy.place, is_written);
        }
    });
    inner.statistics.borrow_mut().cache_fills += arriving.len() as u64;
}

#[cfg(test)]
#[path = "read_cache_tests.rs"]
mod tests;
