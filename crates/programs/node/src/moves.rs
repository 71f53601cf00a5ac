//! Moves copies of the volumes that this node owns: away from drives that are lost or on their way out, to those with
//! room.
//!
//! Nobody gives orders to all owners: each looks at the pool and at its own volumes, now and then, and has the next few
//! copies built. That two do not count on the same room is for the cluster's state to see to.
//!
//! Invariants:
//! - Of one volume no more than [`MOVES_AT_ONCE`] copies are being built. The next ones are begun when these count.
//! - What is being built on a drive that leaves meanwhile, or that has not been usable for a while, is given up.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use spandrel_cluster::store::StateStore;
use spandrel_cluster::{DriveState, VolumeMembership};
use spandrel_platform::{Instant, Platform};
use spandrel_pool::{PlacedCopy, PlacedVolume, PoolView, plan_replacements};
use spandrel_shared::DriveId;
use spandrel_volume::Phase;

use crate::node::NodeInner;
use crate::ownership::Ownership;
use crate::volumes::pool_view;

/// How often each volume is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a drive may be away on which copies are being built.
const TARGET_AWAY_MAX: Duration = Duration::from_secs(60);

/// Copies of one volume that are built at the same time: enough that each drive of a pool has something to do, few
/// enough that little is lost if one is given up.
const MOVES_AT_ONCE: usize = 16;

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    /// Moves what has to be moved, as long as the node runs.
    pub(crate) async fn keep_moving(self: Rc<Self>) {
        let mut away_since: BTreeMap<DriveId, Instant> = BTreeMap::new();
        loop {
            self.parts.platform.sleep(INTERVAL).await;
            let leaving = self.leaving_drives();
            let away = self.drives_away(&mut away_since);
            let ownerships: Vec<_> = self.ownerships.borrow().values().cloned().collect();
            for ownership in ownerships {
                if ownership.owner.phase() == Phase::Serving {
                    self.move_copies(&ownership, &leaving, &away).await;
                }
            }
        }
    }

    /// The drives that have been away for so long that nobody waits for what is being built on them.
    fn drives_away(&self, away_since: &mut BTreeMap<DriveId, Instant>) -> BTreeSet<DriveId> {
        let (view, now) = (&self.parts.view, self.parts.platform.now());
        let drives = view.drives.borrow();
        let is_away = |drive: &DriveId| {
            drives.get(drive).is_none_or(|stored| !view.shows_drive(stored.record.node, *drive))
        };
        away_since.retain(|drive, _| is_away(drive));
        for drive in drives.keys().filter(|drive| is_away(drive)) {
            away_since.entry(*drive).or_insert(now);
        }
        let long = away_since.iter().filter(|(_, since)| now.since(**since) >= TARGET_AWAY_MAX);
        long.map(|(drive, _)| *drive).collect()
    }

    /// The drives that copies are to be moved away from.
    fn leaving_drives(&self) -> BTreeSet<DriveId> {
        let drives = self.parts.view.drives.borrow();
        let leaving = drives.iter().filter(|(_, stored)| stored.record.state != DriveState::Active);
        leaving.map(|(drive, _)| *drive).collect()
    }

    /// Has the next copies of a volume built, if none are.
    async fn move_copies(
        &self,
        ownership: &Ownership<P, S>,
        leaving: &BTreeSet<DriveId>,
        away: &BTreeSet<DriveId>,
    ) {
        let legs = ownership.owner.legs();
        let building: Vec<DriveId> = legs.keys().filter(|leg| leg.is_building).map(|leg| leg.drive).collect();
        for drive in building.iter().filter(|drive| leaving.contains(drive) || away.contains(drive)) {
            ownership.owner.abandon(*drive).await;
        }
        let is_concerned = legs.keys().any(|leg| leaving.contains(&leg.drive));
        if !building.is_empty() || !is_concerned {
            return;
        }
        let plan = plan_replacements(&self.pool_view(), &placed(&ownership.seen()), leaving, MOVES_AT_ONCE);
        if !plan.moves.is_empty() {
            ownership.owner.build(plan.moves).await;
        }
    }

    /// The pool as this node sees it.
    fn pool_view(&self) -> PoolView {
        let view = &self.parts.view;
        let owned = view.volumes_owned();
        let owned = |node| owned.get(&node).map_or(0, |count| u32::try_from(*count).unwrap_or(u32::MAX));
        let (nodes, alive) = (view.nodes.borrow(), view.alive.borrow());
        pool_view(self.parts.cluster.slab_bytes, &nodes, &alive, &view.room(), owned)
    }
}

/// A volume's copies, for plans.
fn placed(seen: &VolumeMembership) -> PlacedVolume {
    let copy = |member: &spandrel_cluster::Member| PlacedCopy {
        part: member.part,
        drive: member.drive,
        is_whole: seen.is_in_sync(member),
        is_building: member.building,
    };
    let slabs = seen.sets.iter().map(|set| set.members.iter().map(copy).collect());
    PlacedVolume { owner: seen.record.preferred_owner, slabs: slabs.collect() }
}
