//! For how long drives have been away, and which of them nobody waits for any more.
//!
//! Each node counts for itself, by its monotonic clock, from when it saw a drive go. So no clock of another server and no
//! transaction matters, and a node that has just started gives every drive that is away its whole time once more.
//!
//! Nothing is decided for good here: a drive that comes back is used again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spandrel_cluster::SettingsRecord;
use spandrel_platform::Instant;
use spandrel_shared::{DriveId, NodeId};

use crate::view::ClusterView;

/// Since when drives have been away, as this node has seen it.
#[derive(Default)]
pub(crate) struct Absence {
    since: BTreeMap<DriveId, Instant>,
}

impl Absence {
    /// Takes note of who is away now.
    pub(crate) fn note(&mut self, view: &ClusterView, now: Instant) {
        let drives = view.drives.borrow();
        let is_away = |drive: &DriveId| {
            drives.get(drive).is_some_and(|stored| !view.shows_drive(stored.record.node, *drive))
        };
        self.since.retain(|drive, _| is_away(drive));
        for drive in drives.keys().filter(|drive| is_away(drive)) {
            self.since.entry(*drive).or_insert(now);
        }
    }

    /// The drives that are away, and for how long they have been.
    pub(crate) fn all(&self, now: Instant) -> impl Iterator<Item = (DriveId, Duration)> {
        self.since.iter().map(move |(drive, since)| (*drive, now.since(*since)))
    }

    /// The drives that have been away for as long as the settings say that they are waited for.
    ///
    /// A node that is in maintenance is waited for: somebody works on it.
    pub(crate) fn too_long(
        &self,
        view: &ClusterView,
        settings: &SettingsRecord,
        now: Instant,
    ) -> BTreeSet<DriveId> {
        let drives = view.drives.borrow();
        let mut of_node: BTreeMap<NodeId, (usize, usize)> = BTreeMap::new();
        for (drive, stored) in &*drives {
            let (all, away) = of_node.entry(stored.record.node).or_default();
            *all += 1;
            *away += usize::from(self.since.contains_key(drive));
        }
        let waited_s = |node: NodeId| {
            let (all, away) = of_node[&node];
            let is_together = !view.alive.borrow().contains_key(&node) || (away > 1 && 2 * away > all);
            if is_together { settings.rebuild_after_node_s } else { settings.rebuild_after_drive_s }
        };
        let is_too_long = |drive: &DriveId, away: Duration| {
            let Some(node) = drives.get(drive).map(|stored| stored.record.node) else { return false };
            !view.is_in_maintenance(node) && away >= Duration::from_secs(waited_s(node).into())
        };
        self.all(now).filter(|(drive, away)| is_too_long(drive, *away)).map(|(drive, _)| drive).collect()
    }
}

#[cfg(test)]
#[path = "absence_tests.rs"]
mod tests;
