//! What a drive knows of a volume: its fence, its mark, and the writes that the mark does not
//! cover.
//!
//! A new owner asks for that list when it takes over. Invariants:
//! - The list holds every write that was applied and is above the mark or among its exceptions.
//!   It may hold others.
//! - Entries of one version and slab do not overlap. A write is one entry, however many records it
//!   took.

use std::collections::BTreeMap;

use spandrel_shared::{Epoch, Version, VolumeId};

use crate::format::journal::{MARK_EXCEPTIONS_MAX, Record};
use crate::format::root::RootVolume;

/// After this many writes of a volume its mark is recorded again. A drive that crashes lists at
/// most about so many writes that need not be listed.
const MARK_RECORD_INTERVAL: u32 = 64;

/// Orders listed writes by version; the slab's slot and the first block tell parts apart.
pub type ListKey = (Version, u32, u32);

/// What is known of a listed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListValue {
    /// How many blocks.
    pub count: u32,
    /// Whether the data were found missing, so that the former content was kept.
    pub in_doubt: bool,
}

/// A volume of which the drive holds slabs.
pub struct VolumeState {
    /// The volume.
    pub volume: VolumeId,
    /// Lower epochs are refused.
    pub fence_epoch: Epoch,
    /// The epoch of the counters in the records that were applied last.
    pub record_epoch: Epoch,
    /// Slabs of the volume on this drive.
    pub slab_count: u32,
    /// Slabs of which a record is on its way to the journal.
    pub slabs_coming: u32,
    mark: Version,
    /// The versions below the mark that are not complete, in order; all of them, also those that
    /// this drive has not seen.
    exceptions: Vec<Version>,
    /// The newest mark that is in the journal or the root.
    recorded_mark: Version,
    writes_since_mark: u32,
    list: BTreeMap<ListKey, ListValue>,
    /// Writes that left the list by marks that only memory holds: a crash brings them back.
    forgotten: usize,
    /// How many of them the next root covers.
    forgotten_at_checkpoint: usize,
}

impl VolumeState {
    /// A volume of which nothing is known yet.
    pub fn new(volume: VolumeId) -> Self {
        Self {
            volume,
            fence_epoch: Epoch::ZERO,
            record_epoch: Epoch::ZERO,
            slab_count: 0,
            slabs_coming: 0,
            mark: Version::ZERO,
            exceptions: Vec::new(),
            recorded_mark: Version::ZERO,
            writes_since_mark: 0,
            list: BTreeMap::new(),
            forgotten: 0,
            forgotten_at_checkpoint: 0,
        }
    }

    /// Takes over what a root says of the volume.
    pub fn restore(&mut self, root: &RootVolume) {
        self.fence_epoch = root.fence_epoch;
        self.record_epoch = root.record_epoch;
        self.mark = root.mark;
        self.recorded_mark = root.mark;
    }

    /// What a root says of the volume. It has no room for exceptions, so it names a lower mark
    /// without any; a record behind it in the journal brings the real one.
    pub fn begin_checkpoint(&mut self, slot: u32) -> RootVolume {
        self.forgotten_at_checkpoint = self.forgotten;
        RootVolume {
            slot,
            volume: self.volume,
            fence_epoch: self.fence_epoch,
            record_epoch: self.record_epoch,
            mark: self.proven(),
        }
    }

    /// The root that says so is durable.
    pub fn root_is_durable(&mut self, root: &RootVolume) {
        self.recorded_mark = self.recorded_mark.max(root.mark);
        self.forgotten = self.forgotten.saturating_sub(self.forgotten_at_checkpoint);
    }

    /// The newest mark known.
    pub fn mark(&self) -> Version {
        self.mark
    }

    /// The versions below the mark that are not complete, in order.
    pub fn exceptions(&self) -> &[Version] {
        &self.exceptions
    }

    /// The highest version below which the mark excepts nothing.
    pub fn proven(&self) -> Version {
        match self.exceptions.first() {
            Some(exception) => Version::new(exception.epoch, exception.counter.saturating_sub(1)),
            None => self.mark,
        }
    }

    /// Learns of a mark: writes at or below it, but for the exceptions, leave the list. An older
    /// mark changes nothing, and at an equal mark the shorter list of exceptions holds.
    pub fn note_mark(&mut self, mark: Version, exceptions: &[Version]) {
        if mark < self.mark {
            return;
        }
        if mark > self.mark || exceptions.len() < self.exceptions.len() {
            self.mark = mark;
            self.exceptions.clear();
            self.exceptions.extend_from_slice(exceptions);
            self.exceptions.sort_unstable();
        }
        if self.exceptions.is_empty() {
            while let Some(oldest) = self.list.first_entry().filter(|oldest| oldest.key().0 <= self.mark) {
                oldest.remove();
                self.forgotten += 1;
            }
            return;
        }
        let below = self.list.range(..=(self.mark, u32::MAX, u32::MAX));
        let complete =
            below.map(|(key, _)| *key).filter(|key| self.exceptions.binary_search(&key.0).is_err());
        for key in complete.collect::<Vec<_>>() {
            self.list.remove(&key);
            self.forgotten += 1;
        }
    }

    /// A mark is in the journal.
    pub fn mark_is_recorded(&mut self, mark: Version) {
        self.recorded_mark = self.recorded_mark.max(mark);
        self.forgotten = 0;
        self.forgotten_at_checkpoint = 0;
    }

    /// A record of the mark, if the journal holds only an older one. None if the mark excepts
    /// more than a record can say: the drive then goes on with the older one, and lists more.
    pub fn mark_to_record(&mut self, volume_slot: u32) -> Option<Record> {
        self.writes_since_mark = 0;
        if self.mark > self.recorded_mark { self.mark_record(volume_slot) } else { None }
    }

    fn mark_record(&self, volume_slot: u32) -> Option<Record> {
        (self.exceptions.len() <= MARK_EXCEPTIONS_MAX).then(|| Record::Mark {
            volume_slot,
            mark: self.mark,
            exceptions: self.exceptions.clone(),
        })
    }

    /// Lists a write, or one that was found in doubt. Returns whether it is time to record the
    /// mark again.
    pub fn list_write(&mut self, key: ListKey, value: ListValue) -> bool {
        self.writes_since_mark += 1;
        let is_due = self.writes_since_mark == MARK_RECORD_INTERVAL;
        let (version, slab_slot, first) = key;
        // Most come in the order of their versions: nothing that is listed has to do with them.
        if self.list.last_key_value().is_none_or(|(last, _)| *last < (version, slab_slot, 0)) {
            self.list.insert(key, value);
            return is_due;
        }
        self.unlist(key, value.count);
        let (mut start, mut end) = (first, first + value.count);
        // Pieces of one write are one entry.
        let before = self.list.range((version, slab_slot, 0)..key).next_back();
        if let Some(((_, _, other), before)) = before
            && other + before.count == first
            && before.in_doubt == value.in_doubt
        {
            start = *other;
        }
        if let Some(behind) = self.list.get(&(version, slab_slot, end)).copied()
            && behind.in_doubt == value.in_doubt
        {
            self.list.remove(&(version, slab_slot, end));
            end += behind.count;
        }
        self.list.insert((version, slab_slot, start), ListValue { count: end - start, ..value });
        is_due
    }

    /// Takes `count` blocks from the key's on off the list, as far as they are on it.
    pub fn unlist(&mut self, key: ListKey, count: u32) {
        let (version, slab_slot, first) = key;
        let end = first + count;
        for (start, other) in self.listed_within(key, count) {
            let other_end = start + other.count;
            self.list.remove(&(version, slab_slot, start));
            if start < first {
                self.list.insert((version, slab_slot, start), ListValue { count: first - start, ..other });
            }
            if other_end > end {
                self.list.insert((version, slab_slot, end), ListValue { count: other_end - end, ..other });
            }
        }
    }

    /// Records that make a list say of `count` blocks from the key's on what this one says.
    pub fn listing_records(&self, key: ListKey, count: u32) -> Vec<Record> {
        let (version, slab_slot, first) = key;
        let mut records = vec![Record::Unlisted { slab_slot, first, count, version }];
        records.extend(self.listed_within(key, count).into_iter().map(|(start, value)| {
            let (first, end) = (start.max(first), (start + value.count).min(first + count));
            Record::Listed { slab_slot, first, count: end - first, version, in_doubt: value.in_doubt }
        }));
        records
    }

    /// The entries that have a part in `count` blocks from the key's on, by their first blocks.
    fn listed_within(&self, key: ListKey, count: u32) -> Vec<(u32, ListValue)> {
        let (version, slab_slot, first) = key;
        let before = self.list.range((version, slab_slot, 0)..(version, slab_slot, first + count));
        let overlapping = before.filter(|((_, _, start), value)| start + value.count > first);
        overlapping.map(|((_, _, start), value)| (*start, *value)).collect()
    }

    /// Takes the writes to a slab off the list.
    pub fn forget_slab(&mut self, slab_slot: u32) {
        self.list.retain(|(_, slot, _), _| *slot != slab_slot);
    }

    /// Writes that the list may hold after a crash.
    pub fn list_length_max(&self) -> usize {
        self.list.len() + self.forgotten
    }

    /// The list, in the order of versions.
    pub fn list(&self) -> &BTreeMap<ListKey, ListValue> {
        &self.list
    }

    /// What neither the maps nor the root hold, as records for the journal behind a checkpoint:
    /// the list, and a mark that excepts something.
    pub fn records_behind_root(&self, volume_slot: u32) -> impl Iterator<Item = Record> {
        let listed = self.list.iter().map(|((version, slab_slot, first), value)| Record::Listed {
            slab_slot: *slab_slot,
            first: *first,
            count: value.count,
            version: *version,
            in_doubt: value.in_doubt,
        });
        let mark = if self.exceptions.is_empty() { None } else { self.mark_record(volume_slot) };
        listed.chain(mark)
    }
}

#[cfg(test)]
#[path = "volume_state_tests.rs"]
mod tests;
