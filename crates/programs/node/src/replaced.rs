//! Removes copies on this node's drives whose places others have taken, or that were given up before they were built or
//! before the slabs came to count by which a volume was to grow.
//!
//! Their owner removes them at once, if it can. This finds those of which it could not: the node was away, the owner died, or
//! its request was broken off while a slow drive was making the copy.
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

use spandrel_cluster::records::VolumeRoomRecord;
use spandrel_cluster::store::{Revision, StateStore};
use spandrel_cluster::{Stored, VolumeMembership, VolumeRecord, VolumeState};
use spandrel_platform::Platform;
use spandrel_replica::CopyAddress;
use spandrel_shared::{DriveId, VolumeId};

use crate::node::NodeInner;
use crate::volumes::drop_copy;

/// How often it is looked whether a volume's copies are to be compared with the state. That is asked only then.
const INTERVAL: Duration = Duration::from_secs(5);

/// Copies from which nobody is served, with their drives.
type Strays = BTreeMap<VolumeId, Vec<(DriveId, CopyAddress)>>;

/// The volumes whose copies here are to be compared with the state.
///
/// A copy is taken out of the state together with the room that it was promised. So there is nothing to look for before
/// that has changed, unless more copies are here than were promised, or it happened before this process began.
struct Due {
    volumes: BTreeSet<VolumeId>,
    /// The room of all volumes, as it was when this was last brought up to date.
    rooms: BTreeMap<VolumeId, Revision>,
}

impl Due {
    /// Takes note of the copies that are here, and of the room that volumes were promised.
    fn note(
        &mut self,
        here: &BTreeMap<VolumeId, BTreeMap<DriveId, u32>>,
        rooms: &BTreeMap<VolumeId, Stored<VolumeRoomRecord>>,
    ) {
        for (volume, held) in here {
            let Some(room) = rooms.get(volume) else { continue };
            let is_changed = self.rooms.get(volume).is_some_and(|before| *before != room.revision);
            let is_more =
                |(drive, held): (&DriveId, &u32)| *held > room.record.slabs.get(drive).copied().unwrap_or(0);
            if is_changed || held.iter().any(is_more) {
                self.volumes.insert(*volume);
            }
        }
        self.volumes.retain(|volume| here.contains_key(volume));
        self.rooms = rooms.iter().map(|(volume, room)| (*volume, room.revision)).collect();
    }
}

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    /// Removes what was replaced, as long as the node runs.
    pub(crate) async fn drop_replaced_copies(self: Rc<Self>) {
        let here = self.copies_here(&self.strays());
        let mut due = Due { volumes: here.into_keys().collect(), rooms: BTreeMap::new() };
        let mut lacked: BTreeSet<CopyAddress> = BTreeSet::new();
        loop {
            self.parts.platform.sleep(INTERVAL).await;
            let strays = self.strays();
            due.note(&self.copies_here(&strays), &self.parts.view.rooms.borrow());
            let mut unknown = BTreeSet::new();
            // The state is asked for those alone of which it can say something.
            for volume in
                due.volumes.iter().copied().filter(|volume| self.is_settled(*volume)).collect::<Vec<_>>()
            {
                match self.unknown_copies(volume, &strays).await {
                    Some(copies) if copies.is_empty() => drop(due.volumes.remove(&volume)),
                    Some(copies) => unknown.extend(copies),
                    // It cannot be said yet.
                    None => {}
                }
            }
            for copy in unknown.intersection(&lacked) {
                drop_copy(&self.parts, *copy).await;
            }
            lacked = unknown;
        }
    }

    /// The copies on this node's drives from which nobody is served, by volume.
    fn strays(&self) -> Strays {
        let mut strays = Strays::new();
        for (drive, copy) in self.parts.replica.strays() {
            strays.entry(copy.volume).or_default().push((drive, copy));
        }
        strays
    }

    /// How many copies of each volume this node's drives hold.
    fn copies_here(&self, strays: &Strays) -> BTreeMap<VolumeId, BTreeMap<DriveId, u32>> {
        let volumes: BTreeSet<VolumeId> =
            self.parts.replica.drives().iter().flat_map(|store| store.volumes()).collect();
        let held = |volume: VolumeId| {
            let mut held = BTreeMap::new();
            let offered = self.parts.replica.copies_of(volume).into_iter().map(|copy| copy.drive);
            let strays = strays.get(&volume).into_iter().flatten().map(|(drive, _)| *drive);
            for drive in offered.chain(strays) {
                *held.entry(drive).or_insert(0) += 1;
            }
            (volume, held)
        };
        volumes.into_iter().map(held).collect()
    }

    /// Whether a volume is as the state says, as far as this node has seen it.
    fn is_settled(&self, volume: VolumeId) -> bool {
        let volumes = self.parts.view.volumes.borrow();
        volumes.get(&volume).is_some_and(|stored| is_certain(&stored.record, self.parts.cluster.generation))
    }

    /// The copies of a volume here that the state does not know, if that can be said.
    async fn unknown_copies(&self, volume: VolumeId, strays: &Strays) -> Option<Vec<CopyAddress>> {
        let offered = self.parts.replica.copies_of(volume).into_iter().map(|copy| copy.address);
        let strays = strays.get(&volume).into_iter().flatten().map(|(_, copy)| *copy);
        let here: Vec<CopyAddress> = offered.chain(strays).collect();
        let seen = self.parts.state.membership(volume).await.ok()??;
        let unknown = here.into_iter().filter(|copy| !is_known(&seen, *copy));
        is_certain(&seen.record, self.parts.cluster.generation).then(|| unknown.collect())
    }
}

/// Whether the copies that count are those that the state names.
fn is_certain(record: &VolumeRecord, generation: u32) -> bool {
    record.state == VolumeState::Ready && record.generation == generation
}

fn is_known(seen: &VolumeMembership, copy: CopyAddress) -> bool {
    // One that is to come is made before it counts.
    let set = seen.all_sets().nth(copy.slab.0 as usize);
    set.is_some_and(|set| set.members.iter().any(|member| member.copy == copy.copy))
}

#[cfg(test)]
#[path = "replaced_tests.rs"]
mod tests;
