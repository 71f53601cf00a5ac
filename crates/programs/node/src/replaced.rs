//! Removes copies on this node's drives whose places others have taken, or that were given up before they were built.
//!
//! Their owner removes them at once, if it can. This finds those of which it could not: the node was away, or the owner
//! died.
//!
//! Invariants:
//! - A copy is in the cluster's state before it is made. So one that was here already when the state was read, and is not
//!   in it, will never count again: identities are not given out twice.
//! - Nothing is removed by a state that was put back, before the volume's owner has compared all copies: that state may
//!   not know the copies that count.
//! - What is under way to a copy when it is replaced has time to come back: a copy is removed when the state has lacked
//!   it for [`INTERVAL`].

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use spandrel_cluster::store::StateStore;
use spandrel_cluster::{VolumeMembership, VolumeState};
use spandrel_platform::Platform;
use spandrel_replica::{CopyAddress, ReplicaError, ReplicaRequest};
use spandrel_shared::VolumeId;

use crate::node::NodeInner;

/// How often the copies here are counted. The state is asked only if there are more than it should have.
const INTERVAL: Duration = Duration::from_secs(5);

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    /// Removes what was replaced, as long as the node runs.
    pub(crate) async fn drop_replaced_copies(self: Rc<Self>) {
        let mut lacked: BTreeSet<CopyAddress> = BTreeSet::new();
        loop {
            self.parts.platform.sleep(INTERVAL).await;
            let mut unknown = BTreeSet::new();
            for volume in self.volumes_with_more_copies() {
                unknown.extend(self.unknown_copies(volume).await);
            }
            for copy in unknown.intersection(&lacked) {
                match self.parts.replica.serve(ReplicaRequest::RemoveCopy { copy: *copy }, None).await {
                    // Its owner was faster.
                    Ok(_) | Err(ReplicaError::NotFound) => {}
                    Err(error) => tracing::warn!(volume = %copy.volume, "a replaced copy remains: {error}"),
                }
            }
            lacked = unknown;
        }
    }

    /// The volumes of which a drive here holds more copies than it was promised.
    fn volumes_with_more_copies(&self) -> BTreeSet<VolumeId> {
        let rooms = self.parts.view.rooms.borrow();
        let mut volumes = BTreeSet::new();
        for volume in self.parts.replica.drives().iter().flat_map(|store| store.volumes()) {
            let mut here = BTreeMap::new();
            for copy in self.parts.replica.copies_of(volume) {
                *here.entry(copy.drive).or_insert(0_u32) += 1;
            }
            let Some(room) = rooms.get(&volume) else { continue };
            let promised = |drive| room.record.slabs.get(drive).copied().unwrap_or(0);
            if here.iter().any(|(drive, count)| *count > promised(drive)) {
                volumes.insert(volume);
            }
        }
        volumes
    }

    /// The copies of a volume here that the state does not know.
    async fn unknown_copies(&self, volume: VolumeId) -> Vec<CopyAddress> {
        let here = self.parts.replica.copies_of(volume);
        let Ok(Some(seen)) = self.parts.state.membership(volume).await else { return Vec::new() };
        let is_certain = seen.record.state == VolumeState::Ready
            && seen.record.generation == self.parts.cluster.generation;
        let unknown = here.into_iter().map(|copy| copy.address).filter(|copy| !is_known(&seen, *copy));
        if is_certain { unknown.collect() } else { Vec::new() }
    }
}

fn is_known(seen: &VolumeMembership, copy: CopyAddress) -> bool {
    let set = seen.sets.get(copy.slab.0 as usize);
    set.is_some_and(|set| set.members.iter().any(|member| member.copy == copy.copy))
}
