//! The front-ends of one ownership that write, or did until another one took their place.
//!
//! Invariants:
//! - The right to write changes hands one change at a time, in the order in which that was asked for.
//! - Whoever gets the right can wait for what others have begun: a long change of a front-end that was
//!   replaced must not reach blocks that its successor has written.
//! - Who has said that it leaves keeps nobody from writing, whether the cluster's state says so yet or not.

use std::cell::{Cell, RefCell};

use spandrel_cluster::VolumeWriter;
use spandrel_platform::sync::Signal;
use spandrel_shared::BlockRange;
use spandrel_volume::{RangeGuard, RangeLocks};

/// The front-ends of one ownership.
#[derive(Default)]
pub(crate) struct Writers {
    /// Held alone by whoever changes who may write.
    turns: RangeLocks,
    /// The changes that are under way, by who began them.
    under_way: RefCell<Vec<(VolumeWriter, u64)>>,
    /// Notified when a front-end has no change under way any more.
    ended: Signal,
    /// The one that may write, if it has said that it leaves. An attachment never comes back.
    left: Cell<Option<VolumeWriter>>,
}

/// A change that is under way, until this is dropped.
pub(crate) struct Change<'a> {
    writers: &'a Writers,
    writer: VolumeWriter,
}

impl Writers {
    /// Waits until nobody else changes who may write.
    pub(crate) async fn turn(&self) -> RangeGuard {
        self.turns.exclusive(BlockRange::new(0, 1)).await
    }

    /// `writer`, which may write, says that it leaves.
    pub(crate) fn leaves(&self, writer: VolumeWriter) {
        self.left.set(Some(writer));
    }

    /// Whether `writer` has said that it leaves.
    pub(crate) fn has_left(&self, writer: VolumeWriter) -> bool {
        self.left.get() == Some(writer)
    }

    /// A change by `writer` begins.
    pub(crate) fn begin(&self, writer: VolumeWriter) -> Change<'_> {
        let mut under_way = self.under_way.borrow_mut();
        match under_way.iter_mut().find(|(other, _)| *other == writer) {
            Some((_, count)) => *count += 1,
            None => under_way.push((writer, 1)),
        }
        Change { writers: self, writer }
    }

    /// Completes when no change by anybody but `writer` is under way.
    pub(crate) async fn others_ended(&self, writer: VolumeWriter) {
        let only_own = || self.under_way.borrow().iter().all(|(other, _)| *other == writer);
        self.ended.wait_until(only_own).await;
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut under_way = self.writers.under_way.borrow_mut();
        let Some(place) = under_way.iter().position(|(other, _)| *other == self.writer) else { return };
        under_way[place].1 -= 1;
        if under_way[place].1 > 0 {
            return;
        }
        under_way.swap_remove(place);
        drop(under_way);
        self.writers.ended.notify_all();
    }
}

#[cfg(test)]
#[path = "writers_tests.rs"]
mod tests;
