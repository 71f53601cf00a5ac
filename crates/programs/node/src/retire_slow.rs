//! Retires drives that were slow again and again, if that is set.
//!
//! Each node goes by what the owners on it have met, and looks once a second.
//!
//! Invariants:
//! - One drive at a time is retired: none while another one still holds copies that have to go elsewhere. Nodes that know
//!   the same of two drives choose the same one.
//! - None is retired for whose copies the others have no room.
//! - What somebody has decided counts: when a drive is used again that was retired, it is as if it had never been slow.

use std::collections::BTreeSet;

use spandrel_cluster::DriveState;
use spandrel_cluster::store::StateStore;
use spandrel_platform::{Instant, Platform};
use spandrel_pool::{Demand, DriveRoom, PoolView, check_room_without};
use spandrel_shared::DriveId;

use crate::node::NodeInner;

/// A drive that was slow so often, with less than an hour in between, is retired.
const SLOW_TIMES_MAX: u32 = 3;

/// What this node has seen of decisions about drives.
#[derive(Default)]
pub(crate) struct Decided {
    not_active: BTreeSet<DriveId>,
}

impl Decided {
    /// Takes note of what is decided now. The drives that are used again, and were not before.
    fn note(&mut self, drives: impl Iterator<Item = (DriveId, DriveState)>) -> Vec<DriveId> {
        let (active, others): (Vec<_>, Vec<_>) = drives.partition(|(_, state)| *state == DriveState::Active);
        let before = std::mem::take(&mut self.not_active);
        self.not_active = others.into_iter().map(|(drive, _)| drive).collect();
        active.into_iter().map(|(drive, _)| drive).filter(|drive| before.contains(drive)).collect()
    }
}

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    /// Retires a drive that was slow again and again, if that is set and one may be. Copies are `leaving` these anyway.
    pub(crate) async fn retire_slow_drive(
        &self,
        decided: &mut Decided,
        leaving: &BTreeSet<DriveId>,
        now: Instant,
    ) {
        let view = &self.parts.view;
        let used_again = {
            let drives = view.drives.borrow();
            decided.note(drives.iter().map(|(drive, stored)| (*drive, stored.record.state)))
        };
        for drive in used_again {
            self.parts.slow_drives.forget(drive);
        }
        if !view.settings().is_some_and(|settings| settings.retire_slow) {
            return;
        }
        let slow = self.parts.slow_drives.present(now).into_iter();
        let slow_often = slow.filter(|(_, slow)| slow.times >= SLOW_TIMES_MAX).map(|(drive, _)| drive);
        let is_active = |drive: &DriveId| {
            view.drives.borrow().get(drive).is_some_and(|stored| stored.record.state == DriveState::Active)
        };
        let Some(drive) = slow_often.filter(is_active).find(|drive| !leaving.contains(drive)) else { return };
        let demands: Vec<Demand> = {
            let volumes = view.volumes.borrow();
            let demand = |slabs: u32, copies| Demand { slabs: u64::from(slabs), copies };
            let records = volumes.values().map(|stored| &stored.record);
            records.map(|record| demand(record.slab_count(), record.copies)).collect()
        };
        let checked = check(&self.pool_view(), leaving, drive, &demands);
        if let Err(why) = checked {
            tracing::debug!(%drive, "the drive was slow {SLOW_TIMES_MAX} times, and is not retired: {why}");
            return;
        }
        match self.parts.state.decide_drive(drive, DriveState::Retired).await {
            Ok(()) => {
                tracing::warn!(%drive, "the drive was slow {SLOW_TIMES_MAX} times within hours, and is retired");
            }
            Err(error) => tracing::debug!(%drive, "the slow drive is not retired yet: {error}"),
        }
    }
}

/// Whether a drive may be retired while copies are `leaving` others.
fn check(
    pool: &PoolView,
    leaving: &BTreeSet<DriveId>,
    drive: DriveId,
    demands: &[Demand],
) -> Result<(), String> {
    let is_being_emptied = |other: &&DriveRoom| leaving.contains(&other.drive) && other.slabs_used > 0;
    if let Some(other) = pool.drives.iter().find(is_being_emptied) {
        return Err(format!("copies have to go from drive {} first", other.drive));
    }
    let without = leaving.iter().copied().chain([drive]).collect();
    check_room_without(pool, &without, demands)
        .map_err(|lack| format!("the other drives have room for {} of {} copies", lack.room, lack.needed))
}

#[cfg(test)]
#[path = "retire_slow_tests.rs"]
mod tests;
