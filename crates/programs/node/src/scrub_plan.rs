//! When which slab of a volume is read: the plan of one ownership, without anything that is done.
//!
//! All slabs are read once in a period, at equal distances, the one first that has waited longest. Where the oldest has
//! waited for longer than a period, as after a time in which nobody owned the volume, they are read twice as fast.
//!
//! A pass has read each slab once. Those that cannot be read are put off, and tried again when all others were; a pass
//! that has lasted for a period ends without them, and they are the first of the next one.
//!
//! Invariants:
//! - Only a slab of which all copies were checked gets a date.
//! - What is done in a pass is not told from dates: the time of day may jump.

use std::collections::BTreeMap;
use std::time::Duration;

use spandrel_cluster::{ScrubFindings, ScrubRecord, ScrubSummary, SlabDate, UnwellSlab};
use spandrel_platform::Instant;
use spandrel_shared::SlabIndex;
use spandrel_volume::ScrubReport;

/// A slab that could not be read is tried again after this part of a period, or after an hour.
const PUT_OFF_PART: u32 = 16;
const PUT_OFF_MAX: Duration = Duration::from_secs(60 * 60);

/// Now, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// For what is waited for.
    pub(crate) instant: Instant,
    /// For dates.
    pub(crate) unix_s: u64,
}

/// What is planned for a slab.
#[derive(Clone, Copy, Debug)]
struct PlannedSlab {
    date: SlabDate,
    /// Whether it was read in this pass.
    is_done: bool,
    /// Whether it could not be read in this pass so far.
    is_put_off: bool,
    /// Until when it is put off.
    put_off_until: Option<Instant>,
    /// Pages of which copies lacked writes, as far as it was read by this ownership since it was read as a whole.
    pages_lacking: u64,
}

impl PlannedSlab {
    fn new(date: SlabDate) -> Self {
        Self { date, is_done: false, is_put_off: false, put_off_until: None, pages_lacking: 0 }
    }

    fn is_left(&self, now: Now) -> bool {
        !self.is_done && self.put_off_until.is_none_or(|until| until <= now.instant)
    }
}

/// When the slabs of a volume are read.
pub(crate) struct ScrubPlan {
    slabs: Vec<PlannedSlab>,
    pass_began_unix_s: u64,
    passes: u64,
    found: ScrubFindings,
    unwell: BTreeMap<u32, UnwellSlab>,
    /// When a slab was begun last, and how long before that, if that was by another ownership.
    rests_since: Instant,
    rested_before: Duration,
    /// Counts what has changed.
    changes: u64,
}

impl ScrubPlan {
    /// The plan for a volume of so many slabs, of which the state says this; nothing if none was ever read.
    pub(crate) fn new(record: Option<&ScrubRecord>, slabs: u32, created_unix_s: u64, now: Now) -> Self {
        let of_new = ScrubRecord::of_new_volume(slabs, created_unix_s.min(now.unix_s));
        let record = record.unwrap_or(&of_new);
        let planned = |date: SlabDate| {
            // A date that is yet to come is of a clock that was wrong: it says nothing.
            let is_possible = date.unix_s <= now.unix_s;
            let date = if is_possible { date } else { SlabDate { unix_s: now.unix_s, is_read: false } };
            let is_done = date.is_read && date.unix_s >= record.pass_began_unix_s;
            PlannedSlab { is_done, ..PlannedSlab::new(date) }
        };
        let planned: Vec<PlannedSlab> = record.dates(slabs).map(planned).collect();
        let newest = planned.iter().map(|slab| slab.date.unix_s).max().unwrap_or(now.unix_s);
        let mut plan = Self {
            slabs: planned,
            pass_began_unix_s: record.pass_began_unix_s,
            passes: record.passes,
            found: record.found,
            unwell: record.unwell().iter().map(|unwell| (unwell.slab, *unwell)).collect(),
            rests_since: now.instant,
            rested_before: Duration::from_secs(now.unix_s - newest),
            changes: 0,
        };
        plan.fit(slabs, now);
        plan
    }

    /// The volume has so many slabs now.
    pub(crate) fn fit(&mut self, slabs: u32, now: Now) {
        if self.slabs.len() == slabs as usize {
            return;
        }
        let date = SlabDate { unix_s: now.unix_s, is_read: false };
        self.slabs.resize(slabs as usize, PlannedSlab::new(date));
        self.unwell.retain(|slab, _| *slab < slabs);
        self.changes += 1;
    }

    /// How often something has changed that the state is to be told.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether everything was read in this pass.
    pub(crate) fn is_pass_over(&self) -> bool {
        self.slabs.iter().all(|slab| slab.is_done)
    }

    /// The time from one slab to the next.
    pub(crate) fn interval(&self, period: Duration, now: Now) -> Duration {
        let slabs = u32::try_from(self.slabs.len()).unwrap_or(u32::MAX).max(1);
        let oldest = self.slabs.iter().map(|slab| slab.date.unix_s).min().unwrap_or(now.unix_s);
        let is_late = now.unix_s.saturating_sub(oldest) > period.as_secs();
        period / slabs / if is_late { 2 } else { 1 }
    }

    /// For how long a slab should have been begun already; none if it is not time yet, or if all that is left is put off.
    pub(crate) fn is_due_for(&self, period: Duration, now: Now) -> Option<Duration> {
        let rested = now.instant.since(self.rests_since) + self.rested_before;
        let due_for = rested.checked_sub(self.interval(period, now))?;
        (self.is_to_begin_pass(period, now) || self.oldest_left(now).is_some()).then_some(due_for)
    }

    /// The slab to read now, if there is one that can be; a new pass begins if the last one is over.
    pub(crate) fn begin_next(
        &mut self,
        period: Duration,
        now: Now,
        can_be_read: impl Fn(SlabIndex) -> bool,
    ) -> Option<SlabIndex> {
        if self.is_to_begin_pass(period, now) {
            self.begin_pass(now);
        }
        let mut next = self.oldest_left(now)?;
        if !can_be_read(next) {
            // Others will be like it: all are looked at, once.
            let slabs = (0..self.slabs.len() as u32).map(SlabIndex);
            for slab in slabs.filter(|slab| !can_be_read(*slab)) {
                self.put_off(slab, period, now);
            }
            next = self.oldest_left(now)?;
        }
        (self.rests_since, self.rested_before) = (now.instant, Duration::ZERO);
        Some(next)
    }

    /// Everything is to be read anew.
    pub(crate) fn begin_pass(&mut self, now: Now) {
        self.pass_began_unix_s = now.unix_s;
        for slab in &mut self.slabs {
            (slab.is_done, slab.is_put_off) = (false, false);
        }
    }

    /// A pass is over when everything was read, or after a period if only that is left which cannot be.
    fn is_to_begin_pass(&self, period: Duration, now: Now) -> bool {
        let lasted_s = now.unix_s.saturating_sub(self.pass_began_unix_s);
        let was_all_tried = || self.slabs.iter().all(|slab| slab.is_done || slab.is_put_off);
        self.is_pass_over() || (lasted_s > period.as_secs() && was_all_tried())
    }

    fn oldest_left(&self, now: Now) -> Option<SlabIndex> {
        let left = (0..).zip(&self.slabs).filter(|(_, slab)| slab.is_left(now));
        let first = left.min_by_key(|(index, slab)| (slab.is_put_off, slab.date.unix_s, *index));
        first.map(|(index, _)| SlabIndex(index))
    }

    /// A slab was read: this was found. If that was not all of it, what was read is read again when the rest is tried: then only
    /// what was healed counts, and what had not been found before.
    pub(crate) fn note(&mut self, slab: SlabIndex, found: &ScrubReport, period: Duration, now: Now) {
        let (is_whole, was_over) = (found.is_whole(), self.is_pass_over());
        let Some(planned) = self.slabs.get_mut(slab.0 as usize) else { return };
        let lacking_before = planned.pages_lacking;
        planned.pages_lacking = lacking_before.max(found.pages_lacking);
        if is_whole {
            *planned = PlannedSlab {
                is_done: true,
                ..PlannedSlab::new(SlabDate { unix_s: now.unix_s, is_read: true })
            };
        }
        let if_whole = |blocks: u64| if is_whole { blocks } else { 0 };
        let added = ScrubFindings {
            since_unix_s: self.found.since_unix_s,
            blocks_damaged: if is_whole { found.blocks_damaged() } else { found.blocks_healed },
            blocks_healed: found.blocks_healed,
            blocks_different: if_whole(found.blocks_different),
            blocks_lost: if_whole(found.blocks_lost),
            pages_lacking: found.pages_lacking.saturating_sub(lacking_before),
        };
        self.found.add(&added);
        let is_new = self.note_unwell(slab, found) || added.blocks_healed + added.pages_lacking > 0;
        self.changes += u64::from(is_whole || is_new);
        self.passes += u64::from(!was_over && self.is_pass_over());
        if !is_whole {
            self.put_off(slab, period, now);
        }
    }

    /// Takes note of what is wrong with a slab, and returns whether it was not known. If not all of it was read, what is known
    /// of the rest stays; and what is damaged on all copies that could be read may be whole on another one.
    fn note_unwell(&mut self, slab: SlabIndex, found: &ScrubReport) -> bool {
        let unknown = UnwellSlab { slab: slab.0, ..UnwellSlab::default() };
        let known = self.unwell.get(&slab.0).copied().unwrap_or(unknown);
        let (blocks_different, blocks_lost) = match found.is_whole() {
            true => (found.blocks_different, found.blocks_lost),
            false => (found.blocks_different.max(known.blocks_different), known.blocks_lost),
        };
        let unwell = UnwellSlab { blocks_different, blocks_lost, ..known };
        if blocks_different + blocks_lost > 0 {
            self.unwell.insert(slab.0, unwell);
        } else {
            self.unwell.remove(&slab.0);
        }
        unwell != known
    }

    /// A slab cannot be read now.
    pub(crate) fn put_off(&mut self, slab: SlabIndex, period: Duration, now: Now) {
        if let Some(planned) = self.slabs.get_mut(slab.0 as usize) {
            planned.is_put_off = true;
            planned.put_off_until = Some(now.instant + (period / PUT_OFF_PART).min(PUT_OFF_MAX));
        }
    }

    /// What the state is to be told.
    pub(crate) fn record(&self) -> ScrubRecord {
        let dates = self.slabs.iter().map(|slab| slab.date);
        let mut record = ScrubRecord::new(dates, self.unwell.values().copied(), self.found);
        (record.pass_began_unix_s, record.passes) = (self.pass_began_unix_s, self.passes);
        record
    }

    /// What there is to say.
    pub(crate) fn summary(&self) -> ScrubSummary {
        let mut summary = ScrubSummary {
            slabs: self.slabs.len() as u32,
            pass_began_unix_s: self.pass_began_unix_s,
            passes: self.passes,
            found: self.found,
            ..ScrubSummary::default()
        };
        self.slabs.iter().for_each(|slab| summary.count(1, slab.date, slab.is_done));
        self.unwell.values().for_each(|unwell| summary.count_unwell(unwell));
        summary
    }
}

#[cfg(test)]
#[path = "scrub_plan_tests.rs"]
mod tests;
