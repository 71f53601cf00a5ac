//! A value whose changes are counted, so that what was found out of it can be kept until it may have changed.

use std::cell::{Cell, Ref, RefCell, RefMut};

/// A [`RefCell`] that counts how often its value was lent out to be changed.
#[derive(Debug, Default)]
pub(crate) struct Watched<T> {
    value: RefCell<T>,
    changes: Cell<u64>,
}

impl<T> Watched<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: RefCell::new(value), changes: Cell::new(0) }
    }

    pub(crate) fn borrow(&self) -> Ref<'_, T> {
        self.value.borrow()
    }

    pub(crate) fn borrow_mut(&self) -> RefMut<'_, T> {
        self.changes.set(self.changes.get() + 1);
        self.value.borrow_mut()
    }

    /// While this stays the same, so does the value, but for who has it lent out.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.get()
    }
}

#[cfg(test)]
#[path = "watched_tests.rs"]
mod tests;
