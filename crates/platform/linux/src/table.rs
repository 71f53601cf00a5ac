//! Values under keys that the kernel, or another thread, carries and brings back.
//!
//! A key names a slot and the slot's generation, so that a late key of a value that is gone finds
//! nothing instead of the slot's next value. Keys never use the top bit: those above are free for
//! other uses.

const GENERATION_MASK: u32 = 0x7fff_ffff;

/// A growing array of values with stable keys.
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Table<T> {
    /// Adds a value and returns its key.
    pub(crate) fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            u32::try_from(self.slots.len() - 1).expect("memory ends before four billion slots")
        });
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        u64::from(slot.generation) << 32 | u64::from(index)
    }

    /// The value under `key`, if it is still there.
    pub(crate) fn get(&self, key: u64) -> Option<&T> {
        let (index, generation) = split(key);
        self.slots.get(index).filter(|slot| slot.generation == generation)?.value.as_ref()
    }

    /// The value under `key`, if it is still there.
    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let (index, generation) = split(key);
        self.slots.get_mut(index).filter(|slot| slot.generation == generation)?.value.as_mut()
    }

    /// Takes the value under `key` out, if it is still there.
    pub(crate) fn remove(&mut self, key: u64) -> Option<T> {
        let (index, generation) = split(key);
        let slot = self.slots.get_mut(index).filter(|slot| slot.generation == generation)?;
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        self.free.push(u32::try_from(index).expect("an index comes from a key's lower half"));
        Some(value)
    }

    /// Values that are there.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether no value is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn split(key: u64) -> (usize, u32) {
    let index = usize::try_from(key & u64::from(u32::MAX)).expect("32 bits fit a usize");
    let generation = u32::try_from(key >> 32).expect("the upper half has 32 bits");
    (index, generation)
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
