//! What clients did to single blocks, in the order in which it happened, for the judge of registers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use spandrel_platform::{Buffer, BufferPool};

use crate::register::{Operation, check};

/// Operations of all clients, by block.
#[derive(Default)]
pub struct History {
    operations: RefCell<BTreeMap<u64, Vec<Operation>>>,
    newest_value: Cell<u64>,
    clock: Cell<u64>,
}

impl History {
    fn moment(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    /// A value that was never written.
    pub fn value(&self) -> u64 {
        self.newest_value.set(self.newest_value.get() + 1);
        self.newest_value.get()
    }

    /// The value that was given out last.
    pub fn newest_value(&self) -> u64 {
        self.newest_value.get()
    }

    /// How many operations have begun.
    pub fn count(&self) -> usize {
        self.operations.borrow().values().map(Vec::len).sum()
    }

    /// How many operations were answered.
    pub fn answered(&self) -> usize {
        let operations = self.operations.borrow();
        operations.values().flatten().filter(|operation| operation.end.is_some()).count()
    }

    /// Records an operation that may never end; the number is for [`History::end`].
    pub fn begin(&self, block: u64, value: u64, is_write: bool) -> usize {
        let start = self.moment();
        let mut operations = self.operations.borrow_mut();
        let operations = operations.entry(block).or_default();
        operations.push(Operation { value, is_write, start, end: None });
        operations.len() - 1
    }

    /// An operation was answered; `value` is what a read found or a write wrote.
    pub fn end(&self, block: u64, number: usize, value: u64) {
        let end = Some(self.moment());
        if let Some(operations) = self.operations.borrow_mut().get_mut(&block) {
            operations[number] = Operation { value, end, ..operations[number] };
        }
    }

    /// Panics unless every block behaved like a register.
    pub fn check(&self, seed: u64) {
        for (block, operations) in &*self.operations.borrow() {
            if let Err(violation) = check(operations) {
                panic!("seed {seed}, block {block}: {violation:?}\n{operations:#?}");
            }
        }
    }
}

/// A block that holds `value` all over.
pub fn content(buffers: &BufferPool, value: u64) -> Buffer {
    let mut buffer = buffers.take(4096);
    for chunk in buffer.chunks_exact_mut(8) {
        chunk.copy_from_slice(&value.to_le_bytes());
    }
    buffer.freeze()
}

/// The value of a block. Panics on a block that holds more than one: it is torn.
pub fn value_of(bytes: &[u8]) -> u64 {
    let value = u64::from_le_bytes(std::array::from_fn(|index| bytes[index]));
    assert!(bytes.chunks_exact(8).all(|chunk| chunk == value.to_le_bytes()), "a torn block");
    value
}
