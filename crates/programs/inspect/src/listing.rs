//! The writes of a volume that its mark does not cover, as a replay of the journal finds them.
//!
//! Kept as runs of blocks for each write and slab, and cut and joined run by run.

use std::collections::BTreeMap;

use spandrel_shared::Version;

/// Blocks of one write in one slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedRun {
    pub first: u32,
    /// Behind the last block.
    pub end: u32,
    /// Whether the data were found missing.
    pub in_doubt: bool,
}

/// The list of one volume, and its mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    pub mark: Version,
    /// Versions below the mark that are not complete, in order.
    pub exceptions: Vec<Version>,
    /// By version and slab's slot: runs in order, apart from each other or unlike.
    runs: BTreeMap<(Version, u32), Vec<ListedRun>>,
}

impl Listing {
    /// A list without writes.
    pub fn at(mark: Version) -> Self {
        Self { mark, ..Self::default() }
    }

    /// Blocks are listed as part of a write, in the place of what the list said of them.
    pub fn add(&mut self, version: Version, slab_slot: u32, run: ListedRun) {
        self.remove(version, slab_slot, run.first, run.end);
        let runs = self.runs.entry((version, slab_slot)).or_default();
        let place = runs.partition_point(|other| other.first < run.first);
        runs.insert(place, run);
        runs.dedup_by(|next, before| {
            let joins = before.end == next.first && before.in_doubt == next.in_doubt;
            if joins {
                before.end = next.end;
            }
            joins
        });
    }

    /// Blocks are no part of a write.
    pub fn remove(&mut self, version: Version, slab_slot: u32, first: u32, end: u32) {
        let Some(runs) = self.runs.remove(&(version, slab_slot)) else { return };
        let left = |run: ListedRun| {
            let before = ListedRun { end: run.end.min(first), ..run };
            let behind = ListedRun { first: run.first.max(end), ..run };
            [before, behind].into_iter().filter(|run| run.first < run.end)
        };
        let runs: Vec<ListedRun> = runs.into_iter().flat_map(left).collect();
        if !runs.is_empty() {
            self.runs.insert((version, slab_slot), runs);
        }
    }

    /// Every write at or below `mark`, but for `exceptions`, is complete: it leaves the list. An
    /// older mark changes nothing; at an equal one the shorter list of exceptions holds.
    pub fn note_mark(&mut self, mark: Version, exceptions: &[Version]) {
        if mark < self.mark {
            return;
        }
        if mark > self.mark || exceptions.len() < self.exceptions.len() {
            self.mark = mark;
            self.exceptions = exceptions.to_vec();
            self.exceptions.sort_unstable();
        }
        let (mark, exceptions) = (self.mark, &self.exceptions);
        self.runs.retain(|(version, _), _| *version > mark || exceptions.binary_search(version).is_ok());
    }

    /// The highest version below which the mark excepts nothing.
    pub fn proven(&self) -> Version {
        match self.exceptions.first() {
            Some(first) => Version::new(first.epoch, first.counter.saturating_sub(1)),
            None => self.mark,
        }
    }

    /// A slab is gone.
    pub fn forget_slab(&mut self, slab_slot: u32) {
        self.runs.retain(|(_, slot), _| *slot != slab_slot);
    }

    /// All runs: version, slab's slot, run; in the order of versions.
    pub fn iter(&self) -> impl Iterator<Item = (Version, u32, ListedRun)> + '_ {
        self.runs.iter().flat_map(|((version, slot), runs)| runs.iter().map(|run| (*version, *slot, *run)))
    }
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
