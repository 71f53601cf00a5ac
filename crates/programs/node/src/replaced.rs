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
use spandrel_shared::{DriveId, VolumeId};

use crate::node::NodeInner;

/// How often it is looked whether a volume's copies are to be compared with the state. That is asked only then.
const INTERVAL: Duration = Duration::from_secs(5);

/// The volumes whose copies here are to be compared with the state.
///
/// A copy is taken out of the state together with the room that it was promised. So there is nothing to look for before
/// that has changed, unless more copies are here than were promised, or it happened before this process began.
struct Due {
    volumes: BTreeSet<VolumeId>,
    /// The room of all volumes, as it was when this was last brought up to date.
    rooms: BTreeMap<VolumeId, Revision>,
}

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    /// Removes what was replaced, as long as the node runs.
    pub(crate) async fn drop_replaced_copies(self: Rc<Self>) {
        let mut due = Due { volumes: self.volumes_here(), rooms: BTreeMap::new() };
        let mut lacked: BTreeSet<CopyAddress> = BTreeSet::new();
        loop {
            self.parts.platform.sleep(INTERVAL).await;
            self.look_for_replaced(&mut due);
            let mut unknown = BTreeSet::new();
            for volume in due.volumes.clone() {
                match self.unknown_copies(volume).await {
                    Some(copies) if copies.is_empty() => drop(due.volumes.remove(&volume)),
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

    fn volumes_here(&self) -> BTreeSet<VolumeId> {
        self.parts.replica.drives().iter().flat_map(|store| store.volumes()).collect()
    }

    fn look_for_replaced(&self, due: &mut Due) {
        let (here, rooms) = (self.volumes_here(), self.parts.view.rooms.borrow());
        let promised = |volume: VolumeId, drive| {
            let room = rooms.get(&volume)?;
            Some(room.record.slabs.get(&drive).copied().unwrap_or(0))
        };
        for volume in &here {
            let mut held = BTreeMap::new();
            for copy in self.parts.replica.copies_of(*volume) {
                *held.entry(copy.drive).or_insert(0_u32) += 1;
            }
            let is_changed = rooms
                .get(volume)
                .is_some_and(|room| due.rooms.get(volume).is_some_and(|before| *before != room.revision));
            let is_more =
                |(drive, held): (&DriveId, &u32)| promised(*volume, *drive).is_some_and(|most| *held > most);
            if is_changed || held.iter().any(is_more) {
                due.volumes.insert(*volume);
            }
        }
        due.volumes.retain(|volume| here.contains(volume));
        due.rooms = rooms.iter().map(|(volume, room)| (*volume, room.revision)).collect();
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
