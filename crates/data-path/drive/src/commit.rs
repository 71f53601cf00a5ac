//! Group commit: how changes become durable.
//!
//! One task per drive takes all changes that wait, writes their data blocks and one journal group
//! at the same time, flushes once when all of that has completed, applies the records to the
//! state, and tells the waiters. (A drive that takes data without any waiting, as memory does, has got them before, when the
//! change was queued.) Meanwhile the next changes gather. So a busy drive pays one
//! journal write and one flush for many changes, and an idle one answers after one of each.
//!
//! Room. A checkpoint writes to the journal before it gives any of it back, and after a crash the
//! recovery does so once more. So ordinary groups stop while there is still room for both. Where a
//! drive is a file, its file system can be full: changes that it has no room for are refused, and
//! what their group has said of them already is taken back by the very next one. Groups that change leaves wait for a checkpoint, too, when
//! as many have changed since the last one as may be in memory (see `map_memory`).
//!
//! Closing. A last group that has rotted looks like one that a crash has cut off, and so does not count as
//! damage. So when a drive has come to rest, an empty group closes its journal: what rots before it is
//! damage that shows.
//!
//! Invariants:
//! - One group is under way at a time, so the arrival of a group proves that the one before it,
//!   and its data, were durable.
//! - A record is applied, and its waiter told, only after the flush.
//! - The journal never overwrites a group that the newest root on the drive still needs.
//! - The group behind one that lacked room for data says what is true instead.

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use spandrel_platform::sync::Queue;
use spandrel_platform::{Buffer, DriveError, DriveErrorKind, DriveOperation, Platform};
use spandrel_shared::{BLOCK_BYTES, Epoch};

use crate::change::{Change, DataRun, Urgency};
use crate::error::StoreError;
use crate::format::journal::{
    GROUP_BYTES_MAX, GROUP_HEADER_BYTES, GroupHeader, GroupWriter, LISTED_RECORD_BYTES, Record, record_bytes,
};
use crate::journal_state::JournalState;
use crate::layout::Layout;
use crate::map_memory::PagePlace;
use crate::media::Flushed;
use crate::state::State;
use crate::store::{Inner, PendingChanges};

/// Bytes of what takes the changes of one group back at most: if all their data are found missing, the records that say
/// so fit one group too.
const UNDO_BYTES_MAX: usize = GROUP_BYTES_MAX - GROUP_HEADER_BYTES;

/// Bytes of marks in one group at most, so that there is room for changes as well.
const MARK_BYTES_MAX: usize = GROUP_BYTES_MAX / 2;

/// Bytes of moves in one group, about: one more can begin below that.
const MOVE_BYTES_MAX: usize = GROUP_BYTES_MAX / 8;

/// Journal bytes that ordinary groups leave for one that takes back what lacked room.
const UNDO_RESERVE_BYTES: u64 = 2 * GROUP_BYTES_MAX as u64;

/// A journal that gets no group for so long is closed.
const CLOSE_AFTER: Duration = Duration::from_secs(1);

/// The commit task of a store. Ends when the store fails.
pub(crate) async fn run<P: Platform>(inner: Rc<Inner<P>>) {
    let mut pending = PendingChanges::new();
    loop {
        if pending.is_empty() && inner.moves.is_empty() {
            wait_for_work(&inner).await;
        }
        while let Some(change) = inner.queue.try_pop() {
            pending.push_back(change);
        }
        if let Some(failure) = inner.failure.borrow().clone() {
            pending.into_iter().for_each(|change| change.fail(failure.clone()));
            std::iter::from_fn(|| inner.moves.try_pop()).for_each(|change| change.fail(failure.clone()));
            return;
        }
        crate::map_memory::adopt_bound(&inner);
        // What undoes a group must follow it directly.
        let undoing = pending.front().is_some_and(|change| change.urgency == Urgency::Undo);
        if inner.checkpoint.borrow().is_requested() && !undoing {
            crate::checkpoint::begin(&inner, &mut pending);
        }
        match build_group(&inner, &mut pending) {
            Some(group) => {
                if let Err(error) = write_group(&inner, group, &mut pending).await {
                    inner.fail(StoreError::Failed(error.to_string()));
                }
            }
            None if !pending.is_empty() || !inner.moves.is_empty() => {
                wait_for_room(&inner, &mut pending).await
            }
            None => {}
        }
    }
}

/// Completes when a change is queued, or something else is to be done between two groups.
async fn wait_for_work<P: Platform>(inner: &Inner<P>) {
    let notified = inner.progress.notified();
    if is_called(inner) {
        return;
    }
    let queued = std::pin::pin!(inner.queue.wait_not_empty());
    let moving = std::pin::pin!(inner.moves.wait_not_empty());
    let queued = futures_util::future::select(queued, moving);
    futures_util::future::select(queued, std::pin::pin!(notified)).await;
}

/// Whether the commit task has something to do that is no change.
fn is_called<P: Platform>(inner: &Inner<P>) -> bool {
    inner.checkpoint.borrow().is_requested()
        || !inner.state.borrow().map_memory.is_bound_adopted()
        || inner.failure.borrow().is_some()
}

/// A group on its way to the drive.
struct OutgoingGroup {
    journal: Buffer,
    sector: u32,
    sequence: u64,
    changes: Vec<Change>,
    /// The pages that its records change: their leaves stay in memory. None where all do.
    pages: Vec<PagePlace>,
    /// Where the journal stood before.
    before: JournalState,
}

impl OutgoingGroup {
    /// Whether it only closes the journal. Marks may be in it: a drive that loses one lists more writes.
    fn is_closing(&self) -> bool {
        let mut records = self.changes.iter().flat_map(|change| &change.records);
        records.all(|record| matches!(record, Record::Mark { .. }))
    }
}

/// Takes as many changes as fit into one group. `None` if nothing waits or the journal has no room.
fn build_group<P: Platform>(inner: &Inner<P>, pending: &mut PendingChanges) -> Option<OutgoingGroup> {
    let layout = &inner.layout;
    if (pending.is_empty() && inner.moves.is_empty()) || !has_room_for(inner, pending) {
        return None;
    }
    let mut journal = inner.journal.borrow_mut();
    let before = journal.clone();
    let changes = take_changes(&mut inner.state.borrow_mut(), pending, &inner.moves);
    let length = GROUP_HEADER_BYTES + changes.iter().map(Change::journal_bytes).sum::<usize>();
    assert!(length <= GROUP_BYTES_MAX, "a group of {length} bytes could not be read back");
    let sector = journal.place(length, layout);
    let header = GroupHeader {
        sequence: journal.next.sequence,
        previous_checksum: journal.next.previous_checksum,
        lap: journal.next.lap,
        attach_number: inner.attach_number,
        root_generation: journal.root_generation,
        confirmed_sequence: journal.confirmed_sequence,
    };
    let mut writer = GroupWriter::new(header.lap);
    for record in changes.iter().flat_map(|change| &change.records) {
        writer.push(record);
    }
    let (bytes, checksum) = writer.finish(&header, inner.superblock.drive);
    assert_eq!(bytes.len(), length, "records take the bytes that were counted");
    journal.next.sequence += 1;
    journal.next.previous_checksum = checksum;

    let padded = bytes.len().next_multiple_of(layout.sector_bytes as usize);
    let mut buffer = inner.platform.buffers().take(padded);
    buffer[..bytes.len()].copy_from_slice(&bytes);
    buffer[bytes.len()..].fill(0);
    let mut state = inner.state.borrow_mut();
    let pages = state.pages_of_all(changes.iter().flat_map(|change| &change.records));
    state.hold_leaves(&pages);
    Some(OutgoingGroup {
        journal: buffer.freeze(),
        sector,
        sequence: header.sequence,
        changes,
        pages,
        before,
    })
}

/// Whether the next group finds room in the journal, and what its first change changes in memory.
fn has_room_for<P: Platform>(inner: &Inner<P>, pending: &PendingChanges) -> bool {
    let mut urgent = pending.iter().take_while(|change| change.urgency != Urgency::Ordinary).peekable();
    // What undoes a change can be without records, if its slab has gone.
    let (bytes, reserve_bytes) = match urgent.peek() {
        None => {
            let state = inner.state.borrow();
            // Moves come first.
            let changes_leaves =
                || !inner.moves.is_empty() || pending.front().is_some_and(|change| change.leaves_max() > 0);
            if state.map_memory.group_leaves_max() == 0 && changes_leaves() {
                return false;
            }
            (GROUP_BYTES_MAX, reserve_bytes(&state))
        }
        Some(_) => {
            let bytes: usize = urgent.map(Change::journal_bytes).sum();
            (GROUP_BYTES_MAX.min(GROUP_HEADER_BYTES + bytes), 0)
        }
    };
    inner.journal.borrow().has_room(bytes, &inner.layout, reserve_bytes)
}

/// Journal bytes that ordinary groups must not use: for a group that takes back the one before it,
/// and for what a checkpoint says again, now and once more in a recovery. Half of it can be lost
/// at the ring's end.
fn reserve_bytes(state: &State) -> u64 {
    let listed_bytes = (state.listed_writes_max() * LISTED_RECORD_BYTES) as u64;
    UNDO_RESERVE_BYTES + 4 * listed_bytes + 4 * BLOCK_BYTES as u64
}

/// The next group's changes, each behind a record of its epoch where that is not the current one.
/// Urgent ones have a group to themselves, so that they use no more room than was kept for them.
fn take_changes(state: &mut State, pending: &mut PendingChanges, moves: &Queue<Change>) -> Vec<Change> {
    let is_urgent = |change: &Change| change.urgency != Urgency::Ordinary;
    let urgent = pending.front().is_some_and(is_urgent);
    let mut changes = if urgent { Vec::new() } else { mark_changes(state) };
    if !urgent {
        changes.extend(take_moves(state, moves));
    }
    let mut bytes = GROUP_HEADER_BYTES + changes.iter().map(Change::journal_bytes).sum::<usize>();
    let mut undo_bytes = 0;
    // What takes a group back changes the same leaves as that one.
    let leaves_max = if urgent { usize::MAX } else { state.map_memory.group_leaves_max() };
    let mut leaves = 0;
    let mut epochs: Vec<(u32, Epoch)> = Vec::new();
    while let Some(change) = pending.front().filter(|change| is_urgent(change) == urgent) {
        let epoch_record =
            change.epoch.and_then(|(slot, epoch)| switch_epoch(state, &mut epochs, slot, epoch));
        let more = change.journal_bytes() + epoch_record.as_ref().map_or(0, record_bytes);
        undo_bytes += change.undo_bytes_max();
        let leaves_before = leaves;
        leaves += if leaves_max < usize::MAX { change.leaves_max() } else { 0 };
        let are_too_many_leaves = leaves > leaves_max && (leaves_before > 0 || leaves_max == 0);
        if bytes + more > GROUP_BYTES_MAX || undo_bytes > UNDO_BYTES_MAX || are_too_many_leaves {
            // A switch that is not recorded now is found to be missing again in the next group.
            break;
        }
        bytes += more;
        changes.extend(epoch_record.map(|record| Change::records(vec![record])));
        changes.extend(pending.pop_front());
    }
    changes
}

/// Changes that move blocks, with what they say by now. They come before whatever else changes blocks in the group, so they
/// say it of what the state knows.
fn take_moves(state: &mut State, moves: &Queue<Change>) -> Vec<Change> {
    let mut taken = Vec::new();
    let mut bytes = 0;
    while bytes < MOVE_BYTES_MAX
        && let Some(mut change) = moves.try_pop()
    {
        change.settle_moves(state);
        bytes += change.journal_bytes();
        taken.push(change);
    }
    taken
}

/// The record that makes `epoch` the volume's epoch of counters, unless it is that already.
fn switch_epoch(
    state: &State,
    epochs: &mut Vec<(u32, Epoch)>,
    volume_slot: u32,
    epoch: Epoch,
) -> Option<Record> {
    let in_group = epochs.iter_mut().find(|(slot, _)| *slot == volume_slot);
    let current = match &in_group {
        Some((_, current)) => *current,
        None => state.volumes.get(volume_slot)?.record_epoch,
    };
    if current == epoch {
        return None;
    }
    match in_group {
        Some((_, current)) => *current = epoch,
        None => epochs.push((volume_slot, epoch)),
    }
    Some(Record::RecordEpoch { volume_slot, epoch })
}

/// Records of the marks of those volumes that have had many writes since the last one.
fn mark_changes(state: &mut State) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut bytes = 0;
    while let Some(volume_slot) = state.marks_due.pop_front() {
        let mark = state.change_volume(volume_slot, |volume| volume.mark_to_record(volume_slot)).flatten();
        let Some(mark) = mark else { continue };
        bytes += record_bytes(&mark);
        if bytes > MARK_BYTES_MAX {
            state.marks_due.push_front(volume_slot);
            break;
        }
        changes.push(Change::records(vec![mark]));
    }
    changes
}

/// How far a group got.
enum Arrival {
    Whole,
    /// The group is durable; for some of its data there was no room.
    WithoutData,
    /// There was no room for the group itself.
    Refused,
}

/// Writes a group and its data, flushes, applies the records and tells the waiters. The leaves that these change are read back
/// meanwhile, as far as they are evicted.
async fn write_group<P: Platform>(
    inner: &Inner<P>,
    mut group: OutgoingGroup,
    pending: &mut PendingChanges,
) -> Result<(), DriveError> {
    let is_closing = group.is_closing();
    let pages = std::mem::take(&mut group.pages);
    let (arrival, loaded) =
        futures_util::future::join(send_group(inner, &mut group), inner.load_held(&pages)).await;
    if let Err(error) = loaded {
        inner.fail(error);
        return Ok(());
    }
    let undone = match arrival? {
        Arrival::Refused => {
            inner.state.borrow_mut().let_go_of_leaves(&pages);
            return refuse_group(inner, group);
        }
        Arrival::Whole => Vec::new(),
        Arrival::WithoutData => {
            let brings_data = |change: &mut Change| change.brings_data;
            group.changes.extract_if(.., brings_data).collect()
        }
    };
    inner.journal.borrow_mut().confirmed_sequence = group.sequence;
    note_closing(inner, is_closing);
    let mut state = inner.state.borrow_mut();
    for change in &group.changes {
        change.apply(&mut state);
    }
    let reserve_bytes = reserve_bytes(&state);
    // In front of all that waits, in their own order.
    for change in undone.into_iter().rev() {
        pending.push_front(change.undo(&mut state));
    }
    state.let_go_of_leaves(&pages);
    state.evict_leaves(0);
    let is_map_filling_up = state.map_memory.is_filling_up();
    // Others see to what is left.
    let is_left = !state.given_up.is_empty() || state.map_memory.is_to_shrink();
    drop(state);
    if is_left {
        inner.progress.notify_all();
    }
    for change in group.changes {
        change.finish();
    }
    if inner.layout.area_blocks > 0 {
        crate::destage::area_changed(inner);
    }
    if is_map_filling_up || inner.journal.borrow().is_filling_up(&inner.layout, reserve_bytes) {
        crate::checkpoint::wish(inner);
    }
    Ok(())
}

fn note_closing<P: Platform>(inner: &Inner<P>, is_closed: bool) {
    let was_closed = std::mem::replace(&mut inner.journal.borrow_mut().is_closed, is_closed);
    if was_closed && !is_closed {
        inner.progress.notify_all();
    }
}

/// The task that closes the journal whenever the drive has come to rest. Ends when the store fails.
pub(crate) async fn close_at_rest<P: Platform>(inner: Rc<Inner<P>>) {
    let has_failed = || inner.failure.borrow().is_some();
    loop {
        inner.progress.wait_until(|| !inner.journal.borrow().is_closed || has_failed()).await;
        let sequence = inner.journal.borrow().next.sequence;
        let rest = std::pin::pin!(inner.platform.sleep(CLOSE_AFTER));
        futures_util::future::select(rest, std::pin::pin!(inner.progress.wait_until(has_failed))).await;
        if has_failed() {
            return;
        }
        if inner.journal.borrow().next.sequence != sequence {
            continue;
        }
        if close(&inner).await == Err(StoreError::NoRoom) {
            // The next group makes it worth another attempt.
            inner.journal.borrow_mut().is_closed = true;
        }
    }
}

/// Closes the journal, if it is not closed.
pub(crate) async fn close<P: Platform>(inner: &Inner<P>) -> Result<(), StoreError> {
    if inner.journal.borrow().is_closed {
        return Ok(());
    }
    write_empty(inner).await
}

/// Writes a group that changes nothing.
pub(crate) async fn write_empty<P: Platform>(inner: &Inner<P>) -> Result<(), StoreError> {
    let written = inner.submit(Change::records(Vec::new()))?;
    written.await.unwrap_or_else(|| inner.check())
}

/// Writes a group and its data at the same time, and flushes.
async fn send_group<P: Platform>(inner: &Inner<P>, group: &mut OutgoingGroup) -> Result<Arrival, DriveError> {
    let layout = &inner.layout;
    let mut data: Vec<DataRun> = group.changes.iter_mut().flat_map(|change| change.data.drain(..)).collect();
    count_bytes(inner, &data, group);
    let journal_offset = Layout::offset_of(layout.journal_first_block)
        + u64::from(group.sector) * u64::from(layout.sector_bytes);
    let journal_write = inner.write_drive(journal_offset, vec![group.journal.clone()]);
    let (journal, data) = if data.is_empty() {
        (journal_write.await, Vec::new())
    } else {
        data.sort_by_key(|run| run.block);
        let data_writes = join_all(
            merge(data).into_iter().map(|(block, parts)| inner.write_drive(Layout::offset_of(block), parts)),
        );
        futures_util::future::join(journal_write, data_writes).await
    };
    let mut arrival = Arrival::Whole;
    for result in data {
        if lacks_room(result)? {
            arrival = Arrival::WithoutData;
        }
    }
    if lacks_room(journal)? {
        return Ok(Arrival::Refused);
    }
    // Of a store that is bound to a cache drive, both the data and the journal are there: see `ahead` for what is not.
    let media = if layout.area_blocks > 0 { Flushed::Area } else { Flushed::Capacity };
    inner.flush_drive(media).await?;
    Ok(arrival)
}

/// Tells a lack of room from other failures.
pub(crate) fn lacks_room(result: Result<(), DriveError>) -> Result<bool, DriveError> {
    match result {
        Ok(()) => Ok(false),
        Err(error) if error.kind == DriveErrorKind::NoRoom => Ok(true),
        Err(error) => Err(error),
    }
}

/// Nothing of the group is in the journal: its place is free for the next one, and nothing has
/// changed. Only what would have undone the group before cannot be left out.
fn refuse_group<P: Platform>(inner: &Inner<P>, group: OutgoingGroup) -> Result<(), DriveError> {
    if group.changes.iter().any(|change| change.urgency == Urgency::Undo) {
        return Err(DriveError {
            kind: DriveErrorKind::NoRoom,
            operation: DriveOperation::Write,
            offset: Layout::offset_of(inner.layout.journal_first_block),
            detail: "no room to take a change back that lacked room".to_owned(),
        });
    }
    inner.journal.borrow_mut().go_back_to(group.before);
    group.changes.into_iter().for_each(|change| refuse(inner, change));
    Ok(())
}

/// Answers a change of which nothing was written, or nothing that counts.
pub(crate) fn refuse<P: Platform>(inner: &Inner<P>, change: Change) {
    inner.with_allocator(|allocator| change.free(allocator));
    change.fail(StoreError::NoRoom);
}

/// Joins writes that lie behind each other: what was allocated together goes out together.
pub(crate) fn merge(runs: Vec<DataRun>) -> Vec<(u32, Vec<Buffer>)> {
    let mut merged: Vec<(u32, Vec<Buffer>)> = Vec::new();
    let mut end = 0;
    for run in runs {
        let blocks = (run.data.len() / BLOCK_BYTES) as u32;
        match merged.last_mut() {
            Some((_, parts)) if run.block == end => parts.push(run.data),
            _ => merged.push((run.block, vec![run.data])),
        }
        end = run.block + blocks;
    }
    merged
}

fn count_bytes<P: Platform>(inner: &Inner<P>, data: &[DataRun], group: &OutgoingGroup) {
    let mut statistics = inner.statistics.borrow_mut();
    statistics.groups += 1;
    statistics.journal_bytes += group.journal.len() as u64;
    statistics.data_bytes += data.iter().map(|run| run.data.len() as u64).sum::<u64>();
    statistics.journal_laps = u64::from(inner.journal.borrow().next.lap);
}

/// Completes when the next change's group has room in the journal and may change leaves, or something else is to be done first. If
/// a checkpoint finds no room on the drive, the changes that wait are refused.
async fn wait_for_room<P: Platform>(inner: &Inner<P>, pending: &mut PendingChanges) {
    let ended_before = inner.checkpoint.borrow().ended();
    loop {
        let notified = inner.progress.notified();
        if has_room_for(inner, pending) || is_called(inner) {
            return;
        }
        if inner.checkpoint.borrow().lacked_room_since(ended_before) {
            let is_ordinary = |change: &Change| change.urgency == Urgency::Ordinary;
            let (refused, kept): (PendingChanges, _) = pending.drain(..).partition(is_ordinary);
            *pending = kept;
            let moves = std::iter::from_fn(|| inner.moves.try_pop());
            refused.into_iter().chain(moves).for_each(|change| refuse(inner, change));
            return;
        }
        crate::checkpoint::wish(inner);
        notified.await;
    }
}

#[cfg(test)]
#[path = "commit_tests.rs"]
mod tests;
