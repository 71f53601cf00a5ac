//! A list that is filled during a turn and emptied at one point of it.
//!
//! What is added while the list is being emptied waits for the next time. The memory is kept, so
//! that a busy turn allocates nothing for its lists.

use std::cell::RefCell;

/// Items of the present turn.
pub(crate) struct Batch<T> {
    items: RefCell<Vec<T>>,
    /// The list's other memory, empty except while it is being emptied.
    spare: RefCell<Vec<T>>,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self { items: RefCell::default(), spare: RefCell::default() }
    }
}

impl<T> Batch<T> {
    pub(crate) fn push(&self, item: T) {
        self.items.borrow_mut().push(item);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.borrow().is_empty()
    }

    /// Takes the items that are there out, in order.
    pub(crate) fn for_each(&self, mut serve: impl FnMut(T)) {
        if self.is_empty() {
            return;
        }
        let mut items = self.items.replace(self.spare.take());
        for item in items.drain(..) {
            serve(item);
        }
        self.spare.replace(items);
    }

    /// Drops the items.
    pub(crate) fn clear(&self) {
        drop(self.items.take());
    }
}
