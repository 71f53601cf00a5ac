//! Moves copies of the volumes that this node owns: away from drives that are lost or on their way out, to those with
//! room.
//!
//! Nobody gives orders to all owners: each looks at the pool and at its own volumes, now and then, and has the next few
//! copies built. That two do not count on the same room is for the cluster's state to see to.
//!
//! Invariants:
//! - Of one volume no more than [`MOVES_AT_ONCE`] copies are being built. The next ones are begun when these count.
//! - What is being built on a drive that leaves meanwhile is given up.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use spandrel_cluster::store::StateStore;
use spandrel_cluster::{DriveState, VolumeMembership};
use spandrel_platform::Platform;
use spandrel_pool::{PlacedCopy, PlacedVolume, PoolView, plan_replacements};
use spandrel_shared::DriveId;
use spandrel_volume::Phase;

use crate::node::NodeInner;
use crate::ownership::Ownership;
use crate::volumes::pool_view;

/// How often each volume is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// Copies of one volume that are built at the same time: enough that each drive of a pool has something to do, few
/// enough that little is lost if one is given up.
const MOVES_AT_ONCE: usize = 16;

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    /// Moves what has to be moved, as long as the node runs.
    pub(crate) async fn keep_moving(self: Rc<Self>) {
        loop {
            self.parts.platform.sleep(INTERVAL).await;
            let leaving = self.leaving_drives();
            let ownerships: Vec<_> = self.ownerships.borrow().values().cloned().collect();
            for ownership in ownerships {
                let is_concerned = ownership.seen().drives().iter().any(|drive| leaving.contains(drive));
                if is_concerned && ownership.owner.phase() == Phase::Serving {
                    self.move_copies(&ownership, &leaving).await;
                }
            }
        }
    }

    /// The drives that copies are to be moved away from.
    fn leaving_drives(&self) -> BTreeSet<DriveId> {
        let drives = self.parts.view.drives.borrow();
        let leaving = drives.iter().filter(|(_, stored)| stored.record.state != DriveState::Active);
        leaving.map(|(drive, _)| *drive).collect()
    }

    /// Has the next copies of a volume built, if none are.
    async fn move_copies(&self, ownership: &Ownership<P, S>, leaving: &BTreeSet<DriveId>) {
        let building = building_drives(&ownership.seen());
        for drive in building.intersection(leaving) {
            ownership.owner.abandon(*drive).await;
        }
        if !building.is_empty() {
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

/// The drives on which copies are being built.
fn building_drives(seen: &VolumeMembership) -> BTreeSet<DriveId> {
    let members = seen.sets.iter().flat_map(|set| &set.members);
    members.filter(|member| member.building).map(|member| member.drive).collect()
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
