//! Drives that hold everybody up, as the owners on one node have met them: which are slow now, and for how long their
//! copies rest before they are brought back.
//!
//! A drive that was found slow is often slow again. So its copies are not brought back at once, and after each time later
//! than after the one before. Nobody needs to forget a drive by hand: what was long ago does not count.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use spandrel_platform::Instant;
use spandrel_shared::DriveId;
use spandrel_shared::knob::{self, Knob};

use crate::pace::Slowness;

/// For how long the copies on a slow drive rest the first time, in milliseconds. Twice as long after each further time.
const REST_MS: u64 = 60_000;

/// The longest rest, as a multiple of the first one.
const REST_FACTOR_MAX: u32 = 16;

/// After so long without having been slow again a drive counts as one that never was.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

/// The slow drives that a node knows of. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub struct SlowDrives {
    drives: Rc<RefCell<BTreeMap<DriveId, SlowDrive>>>,
}

/// A drive that was slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowDrive {
    /// How often its copies were taken out for that, with less than an hour in between.
    pub times: u32,
    /// Since when it has been slow without a break.
    pub since: Instant,
    /// Until when that was seen.
    pub last: Instant,
    /// Until when its copies are not brought back.
    pub rests_until: Instant,
}

impl SlowDrives {
    /// An owner has found a drive slow.
    pub(crate) fn note(&self, drive: DriveId, slowness: Slowness) {
        let Slowness { since, until, .. } = slowness;
        let mut drives = self.drives.borrow_mut();
        let fresh = SlowDrive { times: 0, since, last: until, rests_until: until };
        let known = drives.entry(drive).or_insert(fresh);
        if until.since(known.last) >= FORGOTTEN_AFTER {
            *known = fresh;
        }
        // Another owner, or the same one a moment ago, has seen the same.
        if known.last < since {
            known.since = since;
        }
        known.last = known.last.max(until);
    }

    /// Copies on the drive were taken out because of that: they rest from now on.
    pub(crate) fn begin_rest(&self, drive: DriveId, slowness: Slowness, now: Instant) {
        self.note(drive, slowness);
        let mut drives = self.drives.borrow_mut();
        let Some(slow) = drives.get_mut(&drive) else { return };
        // What several owners find at the same time is one time.
        if slow.times > 0 && now < slow.rests_until {
            return;
        }
        slow.times += 1;
        let factor = (1_u32 << (slow.times - 1).min(16)).min(REST_FACTOR_MAX);
        let rest = Duration::from_millis(knob::value(Knob::SlowDriveRest, REST_MS));
        slow.rests_until = now + rest * factor;
    }

    /// Somebody has decided that the drive is used again: what it was before does not count.
    pub fn forget(&self, drive: DriveId) {
        self.drives.borrow_mut().remove(&drive);
    }

    /// Whether copies on the drive are not to be brought back yet.
    pub(crate) fn rests(&self, drive: DriveId, now: Instant) -> bool {
        self.drives.borrow().get(&drive).is_some_and(|slow| slow.times > 0 && now < slow.rests_until)
    }

    /// The drives that are slow now, or rest for having been.
    pub fn present(&self, now: Instant) -> BTreeMap<DriveId, SlowDrive> {
        let drives = self.drives.borrow();
        let is_present =
            |slow: &SlowDrive| now < slow.rests_until || now.since(slow.last) < Duration::from_secs(10);
        drives.iter().filter(|(_, slow)| is_present(slow)).map(|(drive, slow)| (*drive, *slow)).collect()
    }
}

#[cfg(test)]
#[path = "slow_drives_tests.rs"]
mod tests;
