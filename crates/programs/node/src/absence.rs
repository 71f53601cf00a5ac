//! For how long drives have been away, and which of them nobody waits for any more.
//!
//! Each node counts for itself, by its monotonic clock, from when it saw a drive go. So no clock of another server and no
//! transaction matters, and a node that has just started gives every drive that is away its whole time once more.
//!
//! Nothing is decided for good here: a drive that comes back is used again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spandrel_cluster::{DriveRecord, DriveState, SettingsRecord, Stored};
use spandrel_platform::Instant;
use spandrel_shared::{DriveId, NodeId};

use crate::view::ClusterView;

/// A drive of the cluster, as far as it matters whether it is away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) drive: DriveId,
    pub(crate) node: NodeId,
    /// Whether it is to stay.
    pub(crate) is_active: bool,
    pub(crate) is_away: bool,
}

/// Since when drives have been away, as this node has seen it.
#[derive(Default)]
pub(crate) struct Absence {
    drives: BTreeMap<DriveId, Away>,
}

/// A drive that is away.
#[derive(Clone, Copy)]
struct Away {
    since: Instant,
    /// The same, without the time in which its node was in maintenance: somebody works on it.
    missed_since: Instant,
    /// Since when its node has been there with most of its other drives: then it is the drive that has failed. `None`
    /// while it is away with its node.
    alone_since: Option<Instant>,
}

impl Absence {
    /// Takes note of which drives that hold copies are away now.
    pub(crate) fn note(&mut self, view: &ClusterView, now: Instant) {
        let known = |(drive, stored): (&DriveId, &Stored<DriveRecord>)| Known {
            drive: *drive,
            node: stored.record.node,
            is_active: stored.record.state == DriveState::Active,
            is_away: !view.shows_drive(stored.record.node, *drive),
        };
        let drives: Vec<Known> = view.drives.borrow().iter().map(known).collect();
        self.note_all(&drives, view, now);
    }

    /// Takes note of which of these drives are away now: all of their kind of each node.
    pub(crate) fn note_all(&mut self, drives: &[Known], view: &ClusterView, now: Instant) {
        let away: BTreeMap<DriveId, NodeId> =
            drives.iter().filter(|known| known.is_away).map(|known| (known.drive, known.node)).collect();
        self.drives.retain(|drive, _| away.contains_key(drive));
        let together = away_together(drives, view);
        for (drive, node) in away {
            let before = self.drives.get(&drive).copied();
            let mut away = before.unwrap_or(Away { since: now, missed_since: now, alone_since: None });
            let is_in_maintenance = view.is_in_maintenance(node);
            if is_in_maintenance {
                away.missed_since = now;
            }
            let is_alone = !is_in_maintenance && !together.contains(&node);
            away.alone_since = is_alone.then(|| away.alone_since.unwrap_or(now));
            self.drives.insert(drive, away);
        }
    }

    /// The drives that are away, and for how long they have been.
    pub(crate) fn all(&self, now: Instant) -> impl Iterator<Item = (DriveId, Duration)> {
        self.drives.iter().map(move |(drive, away)| (*drive, now.since(away.since)))
    }

    /// For how long the drives that are away are waited for yet, by the settings and as it was noted last.
    pub(crate) fn waits(&self, settings: &SettingsRecord, now: Instant) -> BTreeMap<DriveId, Duration> {
        let left = |away: &Away| {
            let (since, waited_s) = match away.alone_since {
                Some(since) => (since, settings.rebuild_after_drive_s),
                None => (away.missed_since, settings.rebuild_after_node_s),
            };
            Duration::from_secs(waited_s.into()).saturating_sub(now.since(since))
        };
        self.drives.iter().map(|(drive, away)| (*drive, left(away))).collect()
    }

    /// The drives that nobody waits for any more.
    pub(crate) fn too_long(&self, settings: &SettingsRecord, now: Instant) -> BTreeSet<DriveId> {
        let waits = self.waits(settings, now).into_iter();
        waits.filter(|(_, left)| left.is_zero()).map(|(drive, _)| drive).collect()
    }
}

/// The nodes that are away, or of whose drives most are, several of them. Those that are on their way out do not count.
fn away_together(drives: &[Known], view: &ClusterView) -> BTreeSet<NodeId> {
    let mut of_node: BTreeMap<NodeId, (usize, usize)> = BTreeMap::new();
    for known in drives {
        let (all, away) = of_node.entry(known.node).or_default();
        let counts = usize::from(known.is_active);
        *all += counts;
        *away += counts * usize::from(known.is_away);
    }
    let alive = view.alive_nodes();
    let is_together = |(node, (all, away)): &(NodeId, (usize, usize))| {
        !alive.contains(node) || (*away > 1 && 2 * away > *all)
    };
    of_node.into_iter().filter(is_together).map(|(node, _)| node).collect()
}

#[cfg(test)]
#[path = "absence_tests.rs"]
mod tests;
