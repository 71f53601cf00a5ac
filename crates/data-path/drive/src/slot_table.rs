//! A table whose places are named in journal records and map entries.
//!
//! Invariants:
//! - A slot that was freed is not given out before a checkpoint that began later has ended, since
//!   until then a replay may meet records that were written for its former holder.
//! - A slot that was reserved is inserted or given back.

use std::collections::BTreeSet;

/// Entries by slot.
pub struct SlotTable<T> {
    slots: Vec<Option<T>>,
    occupied: usize,
    free: Vec<u32>,
    /// Chosen for entries that a record on its way to the journal will bring.
    reserved: BTreeSet<u32>,
    /// Freed since the last checkpoint began; given out again after the next one.
    quarantined: Vec<u32>,
}

impl<T> Default for SlotTable<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            occupied: 0,
            free: Vec::new(),
            reserved: BTreeSet::new(),
            quarantined: Vec::new(),
        }
    }
}

impl<T> SlotTable<T> {
    /// What stands at `slot`.
    pub fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// What stands at `slot`.
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// All that stands in the table, in ascending slots.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.iter_from(0)
    }

    /// What stands at `first` and behind it, in ascending slots.
    pub fn iter_from(&self, first: u32) -> impl Iterator<Item = (u32, &T)> {
        let slots = self.slots.get(first as usize..).unwrap_or_default();
        (first..).zip(slots).filter_map(|(slot, entry)| Some((slot, entry.as_ref()?)))
    }

    /// All that stands in the table, in ascending slots.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        (0..).zip(&mut self.slots).filter_map(|(slot, entry)| Some((slot, entry.as_mut()?)))
    }

    /// All slots lie below this one.
    pub fn end(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Entries that are there.
    pub fn len(&self) -> usize {
        self.occupied
    }

    /// Entries that are there or for which a slot is reserved.
    pub fn taken(&self) -> usize {
        self.occupied + self.reserved.len()
    }

    /// Chooses a slot for a new entry, which [`SlotTable::insert`] brings later.
    pub fn reserve(&mut self) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.reserved.insert(slot);
        slot
    }

    /// Gives a reserved slot back: its entry does not come.
    pub fn give_back(&mut self, slot: u32) {
        if self.reserved.remove(&slot) {
            self.free.push(slot);
        }
    }

    /// Puts an entry into `slot`, which may lie behind the table's end.
    pub fn insert(&mut self, slot: u32, entry: T) {
        let index = slot as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        self.reserved.remove(&slot);
        self.occupied += usize::from(self.slots[index].is_none());
        self.slots[index] = Some(entry);
    }

    /// Takes the entry at `slot` out.
    pub fn remove(&mut self, slot: u32) -> Option<T> {
        let entry = self.slots.get_mut(slot as usize)?.take()?;
        self.occupied -= 1;
        self.quarantined.push(slot);
        Some(entry)
    }

    /// The slots that were freed before a checkpoint that begins now.
    pub fn take_quarantined(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.quarantined)
    }

    /// The checkpoint has not come to its end: its slots wait for the next one.
    pub fn return_quarantined(&mut self, slots: Vec<u32>) {
        self.quarantined.extend(slots);
    }

    /// Gives slots out again.
    pub fn end_quarantine(&mut self, slots: Vec<u32>) {
        self.free.extend(slots);
    }

    /// After a recovery: every empty slot can be given out once the first checkpoint has ended.
    pub fn rebuild_free(&mut self) {
        self.quarantined.clear();
        self.free = (0..self.slots.len() as u32).rev().filter(|slot| self.get(*slot).is_none()).collect();
    }
}

#[cfg(test)]
#[path = "slot_table_tests.rs"]
mod tests;
