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

use spandrel_cluster::store::{Revision, StateStore};
use spandrel_cluster::{VolumeMembership, VolumeState};
use spandrel_platform::Platform;
use spandrel_replica::{CopyAddress, ReplicaError, ReplicaRequest};
use spandrel_shared::VolumeId;

use crate::node::NodeInner;

/// How often it is looked whether a volume's copies are to be compared with the state.
const INTERVAL: Duration = Duration::from_secs(5);

/// When a volume was found to have no copies here that the state lacks. A copy is taken out of the state together with
/// the room that it was promised, so there is nothing to look for until that changes; or until copies are made here, which
/// may come later than what took them out.
#[derive(PartialEq, Eq)]
struct Compared {
    room: Revision,
    copies: usize,
}

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    /// Removes what was replaced, as long as the node runs.
    pub(crate) async fn drop_replaced_copies(self: Rc<Self>) {
        let mut compared: BTreeMap<VolumeId, Compared> = BTreeMap::new();
        let mut lacked: BTreeSet<CopyAddress> = BTreeSet::new();
        loop {
            self.parts.platform.sleep(INTERVAL).await;
            let here = self.copies_here();
            compared.retain(|volume, _| here.contains_key(volume));
            let mut unknown = BTreeSet::new();
            for (volume, now) in here {
                if compared.get(&volume) == Some(&now) {
                    continue;
                }
                match self.unknown_copies(volume).await {
                    Some(copies) if copies.is_empty() => drop(compared.insert(volume, now)),
                    Some(copies) => unknown.extend(copies),
                    // It cannot be said yet.
                    None => {}
                }
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

    /// The volumes with copies here, as far as it is known what they were promised.
    fn copies_here(&self) -> BTreeMap<VolumeId, Compared> {
        let (replica, rooms) = (&self.parts.replica, self.parts.view.rooms.borrow());
        let volumes: BTreeSet<VolumeId> = replica.drives().iter().flat_map(|store| store.volumes()).collect();
        let compared = |volume: VolumeId| {
            let room = rooms.get(&volume)?.revision;
            Some((volume, Compared { room, copies: replica.copies_of(volume).len() }))
        };
        volumes.into_iter().filter_map(compared).collect()
    }

    /// The copies of a volume here that the state does not know, if that can be said.
    async fn unknown_copies(&self, volume: VolumeId) -> Option<Vec<CopyAddress>> {
        let here = self.parts.replica.copies_of(volume);
        let seen = self.parts.state.membership(volume).await.ok()??;
        let is_certain = seen.record.state == VolumeState::Ready
            && seen.record.generation == self.parts.cluster.generation;
        let unknown = here.into_iter().map(|copy| copy.address).filter(|copy| !is_known(&seen, *copy));
        is_certain.then(|| unknown.collect())
    }
}

fn is_known(seen: &VolumeMembership, copy: CopyAddress) -> bool {
    let set = seen.sets.get(copy.slab.0 as usize);
    set.is_some_and(|set| set.members.iter().any(|member| member.copy == copy.copy))
}
