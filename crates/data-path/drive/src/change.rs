//! A change: what becomes durable as a whole, what it does to the state then, and what takes it back.
//!
//! Invariants:
//! - What a change says is made part of the state when it is durable, and not before.
//! - Places that were taken for a change are named by its records once it is durable, or free again.
//! - Whoever waits for a change is told how it ended.

use smallvec::smallvec;
use spandrel_platform::Buffer;
use spandrel_platform::sync::{OneshotReceiver, OneshotSender, oneshot};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{CopyId, Epoch, PAGE_BLOCKS, Version};

use crate::allocator::{Allocator, Run};
use crate::error::StoreError;
use crate::format::journal::{MappingRecord, RECORD_BLOCKS_MAX, Record, record_bytes};
use crate::format::map::Mapping;
use crate::map_memory::pages_changed_in_part;
use crate::state::State;

/// Bytes of a record of those that take a change back.
const UNDO_RECORD_BYTES: usize = 32;

/// Data blocks at consecutive places.
pub(crate) struct DataRun {
    pub(crate) block: u32,
    pub(crate) data: Buffer,
}

/// Something that becomes durable as a whole, in one group.
pub(crate) struct Change {
    pub(crate) records: Vec<Record>,
    pub(crate) data: Vec<DataRun>,
    /// Whether its records name blocks that were allocated for it.
    names_new_blocks: bool,
    /// Whether what these will hold is written with its group.
    pub(crate) brings_data: bool,
    /// Whether it moves blocks.
    is_move: bool,
    /// Which, and from where, until its group is made.
    moves: Vec<MovedRun>,
    /// The epoch that the counters in `records` belong to.
    pub(crate) epoch: Option<(u32, Epoch)>,
    pub(crate) urgency: Urgency,
    done: Option<Waiter>,
}

/// Blocks of a slab that lie one behind the other, there and where they have been moved to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MovedRun {
    pub(crate) slab_slot: u32,
    pub(crate) copy: CopyId,
    pub(crate) first: u32,
    /// The first physical block that holds them now.
    pub(crate) block: u32,
    /// What they were mapped to when they were read.
    pub(crate) former: Vec<Mapping>,
}

impl MovedRun {
    pub(crate) fn to(&self) -> Run {
        Run { first: self.block, count: self.former.len() as u32 }
    }

    /// Whether a block of a slab, and the place that was taken for it, lie behind these, and one record can name them all.
    pub(crate) fn is_continued_by(&self, slab_slot: u32, block: u32, to: u32) -> bool {
        let count = self.former.len() as u32;
        count < RECORD_BLOCKS_MAX
            && (slab_slot, block, to) == (self.slab_slot, self.first + count, self.block + count)
    }

    /// What is said of those blocks that are still where they were read, and the places that were taken for the others.
    fn still_there(&self, state: &State) -> (Vec<Record>, Vec<Run>) {
        let slab = state.slabs.get(self.slab_slot).filter(|slab| slab.copy == self.copy);
        let is_there = |(block, former): (u32, &Mapping)| {
            // What is mapped to the area is in memory.
            let is_same = slab.is_some_and(|slab| slab.mapping_in_memory(block) == Some(*former));
            if !is_same {
                witness::reached(Rare::DestageMetNewer);
            }
            is_same || canary::is_planted(Bug::DestageOverNewer)
        };
        let there: Vec<bool> = (self.first..).zip(&self.former).map(is_there).collect();
        let (mut records, mut unneeded, mut done) = (Vec::new(), Vec::new(), 0);
        for part in there.chunk_by(|one, other| one == other) {
            let (at, count) = (done as u32, part.len() as u32);
            let run = Run { first: self.block + at, count };
            if part[0] && slab.is_some() {
                let former = &self.former[done..done + part.len()];
                records.push(Record::Heal(MappingRecord {
                    slab_slot: self.slab_slot,
                    first: self.first + at,
                    counter: 0,
                    block: run.first,
                    checksums: former.iter().map(|mapping| mapping.checksum).collect(),
                }));
            } else {
                unneeded.push(run);
            }
            done += part.len();
        }
        (records, unneeded)
    }
}

/// What of the journal's last room a change may use, and what may come before it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    Ordinary,
    /// It lets a checkpoint go on.
    Checkpoint,
    /// It takes back what the group before said. Nothing comes between.
    Undo,
}

/// Who waits for a change, and what it is told when the change is durable.
pub(crate) struct Waiter {
    sender: OneshotSender<Result<(), StoreError>>,
    answer: Result<(), StoreError>,
}

impl Waiter {
    pub(crate) fn new() -> (Self, OneshotReceiver<Result<(), StoreError>>) {
        let (sender, receiver) = oneshot();
        (Self { sender, answer: Ok(()) }, receiver)
    }
}

impl Change {
    pub(crate) fn records(records: Vec<Record>) -> Self {
        Self {
            records,
            data: Vec::new(),
            names_new_blocks: false,
            brings_data: false,
            is_move: false,
            moves: Vec::new(),
            epoch: None,
            urgency: Urgency::Ordinary,
            done: None,
        }
    }

    /// A change that says where blocks have been moved to. What it says is settled when its group is made.
    pub(crate) fn moving(moves: Vec<MovedRun>) -> Self {
        Self { moves, is_move: true, names_new_blocks: true, ..Self::records(Vec::new()) }
    }

    /// A change that takes back what another one did, and then refuses that other one.
    fn taking_back(records: Vec<Record>, refused: Option<Waiter>) -> Self {
        let done = refused.map(|waiter| Waiter { answer: Err(StoreError::NoRoom), ..waiter });
        Self { done, urgency: Urgency::Undo, ..Self::records(records) }
    }

    pub(crate) fn for_checkpoint(self) -> Self {
        Self { urgency: Urgency::Checkpoint, ..self }
    }

    pub(crate) fn with_data(self, data: Vec<DataRun>) -> Self {
        Self { data, names_new_blocks: true, brings_data: true, ..self }
    }

    /// What the blocks that its records name will hold is written already, and as durable as its group when that is.
    pub(crate) fn with_written_data(self) -> Self {
        Self { names_new_blocks: true, ..self }
    }

    pub(crate) fn in_epoch(mut self, volume_slot: u32, epoch: Epoch) -> Self {
        self.epoch = Some((volume_slot, epoch));
        self
    }

    pub(crate) fn awaited_by(mut self, waiter: Waiter) -> Self {
        self.done = Some(waiter);
        self
    }

    pub(crate) fn finish(self) {
        if let Some(waiter) = self.done {
            waiter.sender.send(waiter.answer);
        }
    }

    pub(crate) fn fail(self, error: StoreError) {
        if let Some(waiter) = self.done {
            waiter.sender.send(Err(error));
        }
    }

    /// The blocks that were allocated for it.
    fn allocated(&self) -> impl Iterator<Item = Run> + '_ {
        let records = if self.names_new_blocks { &self.records[..] } else { &[] };
        records.iter().filter_map(|record| match record {
            Record::Write(mapping) | Record::Heal(mapping) => Some(run_of(mapping)),
            _ => None,
        })
    }

    /// Bytes of the records that take it back, at most: see [`undo_records`].
    pub(crate) fn undo_bytes_max(&self) -> usize {
        let records = if self.brings_data { &self.records[..] } else { &[] };
        let undo_records_max = |record: &Record| match record {
            // The list can have an entry for each block.
            Record::Write(mapping) => blocks_and_pages(mapping) + 1 + mapping.count() as usize,
            Record::Heal(mapping) => blocks_and_pages(mapping),
            _ => 0,
        };
        records.iter().map(|record| undo_records_max(record) * UNDO_RECORD_BYTES).sum()
    }

    pub(crate) fn journal_bytes(&self) -> usize {
        self.records.iter().map(record_bytes).sum()
    }

    /// Leaves that must be in memory for it, at most.
    pub(crate) fn leaves_max(&self) -> usize {
        self.records.iter().map(|record| pages_changed_in_part(record).len()).sum()
    }

    /// Frees the places that were taken for it.
    pub(crate) fn free(&self, allocator: &mut Allocator) {
        let moved = self.moves.iter().map(MovedRun::to);
        self.allocated().chain(moved).for_each(|run| allocator.free_now(run));
    }

    /// Settles what it says of the blocks that it moves, from what the state says of them now.
    pub(crate) fn settle_moves(&mut self, state: &mut State) {
        for run in std::mem::take(&mut self.moves) {
            let (records, unneeded) = run.still_there(state);
            self.records.extend(records);
            let allocator = state.allocator.as_mut().expect("an attached store has its free blocks counted");
            unneeded.into_iter().for_each(|run| allocator.free_now(run));
        }
    }

    /// Makes its records, which are durable, part of the state.
    pub(crate) fn apply(&self, state: &mut State) {
        for record in &self.records {
            if self.names_new_blocks
                && let Record::Write(mapping) | Record::Heal(mapping) = record
                && state.slabs.get(mapping.slab_slot).is_none()
                && let Some(allocator) = &mut state.allocator
            {
                // The slab was removed while its data were on their way.
                allocator.free_now(run_of(mapping));
                continue;
            }
            match record {
                Record::Heal(mapping) if self.is_move => state.apply_move(mapping),
                _ => state.apply(record),
            }
        }
    }

    /// The change that takes it back: its records are durable, and data of it are missing. They
    /// were not applied, so the state says what is true instead, and no recovery shall see them
    /// without that. The waiter is told when this is durable.
    pub(crate) fn undo(self, state: &mut State) -> Self {
        let epoch = self.epoch.map(|(_, epoch)| epoch);
        let records = self.records.iter().flat_map(|record| match record {
            Record::Write(mapping) => undo_records(state, mapping, epoch),
            Record::Heal(mapping) => undo_records(state, mapping, None),
            _ => Vec::new(),
        });
        let records: Vec<Record> = records.collect();
        let bytes: usize = records.iter().map(record_bytes).sum();
        assert!(bytes <= self.undo_bytes_max(), "{bytes} bytes take a change back, and were not counted on");
        if let Some(allocator) = &mut state.allocator {
            self.free(allocator);
        }
        Self::taking_back(records, self.done)
    }
}

fn run_of(mapping: &MappingRecord) -> Run {
    Run { first: mapping.block, count: mapping.count() }
}

/// The blocks of a mapping, and the pages that they lie in.
fn blocks_and_pages(mapping: &MappingRecord) -> usize {
    let (first, last) = (mapping.first, mapping.first + mapping.count() - 1);
    (mapping.count() + 1 + last / PAGE_BLOCKS - first / PAGE_BLOCKS) as usize
}

/// The records that make the blocks of `mapping` what the state says they are, their pages and, for
/// a write, the list as well.
fn undo_records(state: &State, mapping: &MappingRecord, epoch: Option<Epoch>) -> Vec<Record> {
    let slab_slot = mapping.slab_slot;
    let Some(slab) = state.slabs.get(slab_slot) else { return Vec::new() };
    let block_record = |block| match slab.mapping(block) {
        Mapping::NONE => Record::Trim { slab_slot, first: block, count: 1, counter: 0 },
        former => Record::Heal(MappingRecord {
            slab_slot,
            first: block,
            counter: 0,
            block: former.block,
            checksums: smallvec![former.checksum],
        }),
    };
    let (first, end) = (mapping.first, mapping.first + mapping.count());
    let mut records: Vec<Record> = (first..end).map(block_record).collect();
    for page in first / PAGE_BLOCKS..=(end - 1) / PAGE_BLOCKS {
        let entry = slab.pages[page as usize].entry;
        records.push(Record::SetPageVersion { slab_slot, page, version: entry.version, whole: entry.whole });
    }
    if let (Some(epoch), Some(volume)) = (epoch, state.volumes.get(slab.volume_slot)) {
        let key = (Version::new(epoch, mapping.counter), slab_slot, first);
        records.extend(volume.listing_records(key, mapping.count()));
    }
    records
}
