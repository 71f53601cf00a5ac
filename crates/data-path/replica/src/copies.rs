//! The copies that a node offers: in the order of their places, and by their addresses, by which they are asked for.
//!
//! Invariant: both say the same; no address stands at two places.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use spandrel_shared::{CopyId, DriveId, SlabIndex, VolumeId};

use crate::request::CopyAddress;

/// Of which slab it is a copy, and on which drive.
pub(crate) type CopyPlace = (VolumeId, SlabIndex, DriveId);

/// The copies, with what is known of each.
pub(crate) struct Copies<T> {
    /// A slab has at most one copy on a drive; on a node it can have two, while one of them takes the other's place.
    by_place: BTreeMap<CopyPlace, CopyId>,
    by_address: FxHashMap<CopyAddress, (DriveId, T)>,
}

impl<T> Default for Copies<T> {
    fn default() -> Self {
        Self { by_place: BTreeMap::new(), by_address: FxHashMap::default() }
    }
}

impl<T> Copies<T> {
    /// The copy of this address.
    pub(crate) fn find(&self, address: CopyAddress) -> Option<(DriveId, &T)> {
        self.by_address.get(&address).map(|(drive, copy)| (*drive, copy))
    }

    /// Which copy stands at a place.
    pub(crate) fn at(&self, place: &CopyPlace) -> Option<CopyId> {
        self.by_place.get(place).copied()
    }

    /// The places of all copies, in order.
    pub(crate) fn places(&self) -> impl Iterator<Item = &CopyPlace> {
        self.by_place.keys()
    }

    /// The copies of a volume, in the order of its slabs.
    pub(crate) fn of_volume(&self, volume: VolumeId) -> impl Iterator<Item = (SlabIndex, CopyId, &T)> {
        let first = (volume, SlabIndex(0), DriveId::from_bytes([0; 16]));
        let last = (volume, SlabIndex(u32::MAX), DriveId::from_bytes([0xff; 16]));
        let places = self.by_place.range(first..=last);
        places
            .filter_map(|(place, id)| Some((place.1, *id, &self.by_address.get(&address_of(place, *id))?.1)))
    }

    /// Puts a copy at its place, instead of any that stands there.
    pub(crate) fn insert(&mut self, place: CopyPlace, id: CopyId, copy: T) {
        self.remove(&place);
        let (volume, slab, drive) = place;
        if let Some((elsewhere, _)) = self.by_address.insert(address_of(&place, id), (drive, copy)) {
            self.by_place.remove(&(volume, slab, elsewhere));
        }
        self.by_place.insert(place, id);
    }

    /// Takes the copy at a place away.
    pub(crate) fn remove(&mut self, place: &CopyPlace) -> Option<(CopyId, T)> {
        let id = self.by_place.remove(place)?;
        self.by_address.remove(&address_of(place, id)).map(|(_, copy)| (id, copy))
    }

    /// Takes all copies of a drive away.
    pub(crate) fn remove_drive(&mut self, drive: DriveId) {
        self.by_place.retain(|(_, _, holder), _| *holder != drive);
        self.by_address.retain(|_, (holder, _)| *holder != drive);
    }
}

fn address_of((volume, slab, _): &CopyPlace, copy: CopyId) -> CopyAddress {
    CopyAddress { volume: *volume, slab: *slab, copy }
}

#[cfg(test)]
#[path = "copies_tests.rs"]
mod tests;
