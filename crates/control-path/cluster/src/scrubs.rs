//! How far the scrub of each volume is: when each of its slabs was read last, and what was found.
//!
//! The owner of a volume keeps this in memory, and writes it here now and then, in one record for each volume. Slabs are
//! read one after the other, so neighbours have nearly the same date: dates are kept in runs of slabs, and where there
//! would be too many runs, neighbours whose dates are near each other share the older one.
//!
//! Invariants:
//! - A date is never later than the slab was read.
//! - Only the owner that the state names writes it, and no write of its is undone by an earlier one that comes late.
//! - It makes the state no newer: a state that was put back lacks some dates, and slabs are read once more. Nothing else
//!   depends on it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spandrel_shared::VolumeId;

use crate::changes::check_owner;
use crate::copy_sets::SLABS_MAX;
use crate::keys::{self, StateKey};
use crate::membership::VolumeMembership;
use crate::records::{Record, Stored, VolumeOwner, encode};
use crate::state::{ClusterState, StateError};
use crate::store::{Expected, Outcome, Revision, StateStore, Transaction};

/// The most runs of dates of a volume: in a period of four weeks each stands for five hours then.
const RUNS_MAX: usize = 128;

/// From here on slabs that were read and slabs that were not may share a date.
const ALIKE_S_MAX: u64 = 86_400;

/// The most slabs of which it is kept what is wrong with them. Of others only the totals tell.
const UNWELL_MAX: usize = 256;

/// When a slab was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlabDate {
    /// When all its copies were last read, if they ever were; else when it came into being.
    pub unix_s: u64,
    /// Whether they ever were.
    pub is_read: bool,
}

/// Slabs behind each other with the same date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, u64, bool)", into = "(u32, u64, bool)")]
pub struct DateRun {
    /// How many.
    pub slabs: u32,
    /// The date of each of them.
    pub date: SlabDate,
}

impl From<(u32, u64, bool)> for DateRun {
    fn from((slabs, unix_s, is_read): (u32, u64, bool)) -> Self {
        Self { slabs, date: SlabDate { unix_s, is_read } }
    }
}

impl From<DateRun> for (u32, u64, bool) {
    fn from(run: DateRun) -> Self {
        (run.slabs, run.date.unix_s, run.date.is_read)
    }
}

/// What scrubs of a volume have found in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubFindings {
    /// Since when it is counted.
    pub since_unix_s: u64,
    /// Blocks that were damaged, counted on each copy.
    pub blocks_damaged: u64,
    /// Of these, blocks that were healed.
    pub blocks_healed: u64,
    /// Blocks that were whole on every copy, but not the same on all.
    pub blocks_different: u64,
    /// Blocks that were damaged on every copy.
    pub blocks_lost: u64,
    /// Pages of which some copies lacked writes that they had confirmed.
    pub pages_lacking: u64,
}

impl ScrubFindings {
    /// Adds what was found since.
    pub fn add(&mut self, found: &ScrubFindings) {
        let add = |total: &mut u64, more: u64| *total = total.saturating_add(more);
        add(&mut self.blocks_damaged, found.blocks_damaged);
        add(&mut self.blocks_healed, found.blocks_healed);
        add(&mut self.blocks_different, found.blocks_different);
        add(&mut self.blocks_lost, found.blocks_lost);
        add(&mut self.pages_lacking, found.pages_lacking);
    }
}

/// What was wrong with a slab when it was read last, and could not be healed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnwellSlab {
    /// Which slab.
    pub slab: u32,
    /// Blocks that are whole on every copy, but not the same on all.
    pub blocks_different: u64,
    /// Blocks that are damaged on every copy.
    pub blocks_lost: u64,
}

/// How far the scrub of a volume is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubRecord {
    /// The dates of the slabs, in their order.
    dates: Vec<DateRun>,
    /// When the present pass began: what was read since is done in it.
    pub pass_began_unix_s: u64,
    /// How many passes have read everything.
    pub passes: u64,
    /// What was found.
    pub found: ScrubFindings,
    /// The slabs that were not well when they were read last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unwell: Vec<UnwellSlab>,
}

impl Record for ScrubRecord {
    const KIND: &'static str = "scrub of a volume";
    const FORMAT: u32 = 1;
    type Body = Self;

    fn to_body(&self) -> Self {
        self.clone()
    }

    fn from_body(body: Self) -> Result<Self, String> {
        let slabs: u64 = body.dates.iter().map(|run| u64::from(run.slabs)).sum();
        if slabs >= u64::from(SLABS_MAX) {
            return Err(format!("it has dates of {slabs} slabs, more than can be numbered"));
        }
        Ok(body)
    }
}

impl ScrubRecord {
    /// The record of a volume none of whose slabs was ever read.
    pub fn of_new_volume(slabs: u32, created_unix_s: u64) -> Self {
        let date = SlabDate { unix_s: created_unix_s, is_read: false };
        let found = ScrubFindings { since_unix_s: created_unix_s, ..ScrubFindings::default() };
        Self {
            dates: vec![DateRun { slabs, date }],
            pass_began_unix_s: created_unix_s,
            found,
            ..Self::default()
        }
    }

    /// A record with these dates, and of these slabs that were not well.
    pub fn new(
        dates: impl IntoIterator<Item = SlabDate>,
        unwell: impl IntoIterator<Item = UnwellSlab>,
        found: ScrubFindings,
    ) -> Self {
        let unwell = unwell.into_iter().take(UNWELL_MAX).collect();
        Self { dates: runs_of(dates), unwell, found, ..Self::default() }
    }

    /// The dates of the first `slabs` slabs, as far as it has them.
    pub fn dates(&self, slabs: u32) -> impl Iterator<Item = SlabDate> + '_ {
        let each = self.dates.iter().flat_map(|run| std::iter::repeat_n(run.date, run.slabs as usize));
        each.take(slabs as usize)
    }

    /// The slabs that were not well when they were read last.
    pub fn unwell(&self) -> &[UnwellSlab] {
        &self.unwell
    }

    /// What there is to say of a volume of so many slabs.
    pub fn summary(&self, slabs: u32) -> ScrubSummary {
        let mut summary = ScrubSummary {
            slabs,
            pass_began_unix_s: self.pass_began_unix_s,
            passes: self.passes,
            found: self.found,
            ..ScrubSummary::default()
        };
        // What has come since is not read yet.
        let new = SlabDate { unix_s: self.pass_began_unix_s, is_read: false };
        let mut left = slabs;
        for run in self.dates.iter().copied().chain([DateRun { slabs, date: new }]) {
            let count = run.slabs.min(left);
            left -= count;
            summary.count(count, run.date, run.date.unix_s >= self.pass_began_unix_s);
        }
        self.unwell.iter().for_each(|unwell| summary.count_unwell(unwell));
        summary
    }
}

/// What there is to say of the scrub of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubSummary {
    /// The volume's slabs.
    pub slabs: u32,
    /// Of these, those that were read in the present pass.
    pub slabs_done: u32,
    /// Those that never were.
    pub slabs_never_read: u32,
    /// The oldest date: when that slab was read, or came into being. Absent if there are no slabs.
    pub oldest_unix_s: Option<u64>,
    /// When a slab was read last; absent if none ever was.
    pub newest_unix_s: Option<u64>,
    /// When the present pass began.
    pub pass_began_unix_s: u64,
    /// How many passes have read everything.
    pub passes: u64,
    /// What was found in total.
    pub found: ScrubFindings,
    /// Blocks that differed when they were read last.
    pub blocks_different_now: u64,
    /// Blocks that were lost when they were read last.
    pub blocks_lost_now: u64,
}

impl ScrubSummary {
    /// Counts slabs of a date, and whether they are done in the present pass.
    pub fn count(&mut self, slabs: u32, date: SlabDate, is_done: bool) {
        if slabs == 0 {
            return;
        }
        self.oldest_unix_s = Some(self.oldest_unix_s.map_or(date.unix_s, |oldest| oldest.min(date.unix_s)));
        if date.is_read {
            self.newest_unix_s = self.newest_unix_s.max(Some(date.unix_s));
            self.slabs_done += if is_done { slabs } else { 0 };
        } else {
            self.slabs_never_read += slabs;
        }
    }

    /// Counts a slab that was not well when it was read last.
    pub fn count_unwell(&mut self, unwell: &UnwellSlab) {
        self.blocks_different_now = self.blocks_different_now.saturating_add(unwell.blocks_different);
        self.blocks_lost_now = self.blocks_lost_now.saturating_add(unwell.blocks_lost);
    }

    /// For how many seconds the slab was not read that has waited longest.
    pub fn age_s(&self, now_unix_s: u64) -> u64 {
        self.oldest_unix_s.map_or(0, |oldest| now_unix_s.saturating_sub(oldest))
    }

    /// Whether slabs wait for much longer than they should, if each is to be read within `period_s`: more than one and a
    /// half periods. Never, if that is not done by itself.
    pub fn is_late(&self, period_s: u32, now_unix_s: u64) -> bool {
        period_s > 0 && 2 * self.age_s(now_unix_s) > 3 * u64::from(period_s)
    }
}

/// Dates as runs, not more than [`RUNS_MAX`] of them.
fn runs_of(dates: impl IntoIterator<Item = SlabDate>) -> Vec<DateRun> {
    let mut runs = joined(dates.into_iter().map(|date| DateRun { slabs: 1, date }), 0);
    let mut apart_s = 1;
    while runs.len() > RUNS_MAX {
        runs = joined(runs.into_iter(), apart_s);
        apart_s = apart_s.saturating_mul(2);
    }
    runs
}

/// Joins neighbours whose dates are no more than `apart_s` seconds apart. They get the oldest date, and count as read if
/// all of them are.
fn joined(runs: impl Iterator<Item = DateRun>, apart_s: u64) -> Vec<DateRun> {
    let mut joined: Vec<DateRun> = Vec::new();
    let mut newest_unix_s: u64 = 0;
    for run in runs {
        if let Some(last) = joined.last_mut() {
            let oldest = last.date.unix_s.min(run.date.unix_s);
            let spread_s = newest_unix_s.max(run.date.unix_s) - oldest;
            let are_alike = last.date.is_read == run.date.is_read || apart_s >= ALIKE_S_MAX;
            if spread_s <= apart_s && are_alike {
                newest_unix_s = newest_unix_s.max(run.date.unix_s);
                last.slabs += run.slabs;
                last.date = SlabDate { unix_s: oldest, is_read: last.date.is_read && run.date.is_read };
                continue;
            }
        }
        newest_unix_s = run.date.unix_s;
        joined.push(run);
    }
    joined
}

impl<S: StateStore> ClusterState<S> {
    /// How far the scrub of a volume is; none if nothing was ever read.
    pub async fn scrub(&self, volume: VolumeId) -> Result<Option<Stored<ScrubRecord>>, StateError> {
        self.get(&StateKey::Scrub(volume)).await
    }

    /// How far the scrubs of all volumes are of which anything was ever read.
    pub async fn scrubs(&self) -> Result<BTreeMap<VolumeId, Stored<ScrubRecord>>, StateError> {
        self.list(keys::SCRUBS).await
    }

    /// Writes down how far the scrub of a volume is. `known` is the revision of what stands there. Returns the new one.
    ///
    /// `Conflict` if the volume has changed since it was `seen`, or something else stands there: after an unknown outcome
    /// that may be what was written then. Refused with `NOT_OWNER` if `seen` shows another owner.
    pub async fn note_scrub(
        &self,
        owner: VolumeOwner,
        seen: &VolumeMembership,
        known: Option<Revision>,
        record: &ScrubRecord,
    ) -> Result<Revision, StateError> {
        check_owner(owner, seen)?;
        let (volume, key) = (StateKey::Volume(seen.volume).key(), StateKey::Scrub(seen.volume).key());
        let transaction = Transaction::new()
            .expect(&volume, Expected::ModifiedAt(seen.revision))
            .expect(&key, known.map_or(Expected::Absent, Expected::ModifiedAt))
            .put(&key, encode(record));
        // Not by `commit`, which would make the state newer.
        match self.store().transact(transaction).await? {
            Outcome::Committed { revision } => Ok(revision),
            Outcome::Conflict { .. } => Err(StateError::Conflict),
        }
    }
}

#[cfg(test)]
#[path = "scrubs_tests.rs"]
mod tests;
