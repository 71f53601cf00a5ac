//! What stands at the places that a node was given: opened and looked at, and nothing is changed. What is none of the node's drives
//! is refused here, or left out.

use std::rc::Rc;

use spandrel_cluster::store::StateStore;
use spandrel_cluster::{DriveRole, MediaClass, StateStamp};
use spandrel_drive::{AttachError, CacheDrive, CacheSuperblock, DriveIdentity, DriveStore};
use spandrel_platform::{Drive, DriveErrorKind, Platform};
use spandrel_shared::{ClusterId, DriveId, Error, NodeId};

use super::{Attaching, NodeDrive, broken, refusal, refused};
use crate::node::DrivePlace;
use crate::parts::NodeParts;
use crate::stubborn::{retry_store, state_error};

/// What tells that what stands at a place is none of the node's drives, or not all of one, or used by others.
const UNFIT: [&str; 8] = [
    "CACHE_WITH_SHARDS",
    "DRIVE_ATTACHED_TWICE",
    "DRIVE_FAILED",
    "DRIVE_IN_FOREIGN_USE",
    "DRIVE_NOT_OPENED",
    "DRIVE_OF_OTHER_CLUSTER",
    "DRIVE_OF_OTHER_NODE",
    "DRIVE_TOO_SMALL",
];

/// What a drive says that it is.
pub(super) enum Identity {
    /// It is empty, and becomes this.
    Empty(DriveRole),
    Capacity(DriveIdentity),
    Cache(CacheSuperblock),
}

impl Identity {
    pub(super) fn drive(&self) -> Option<DriveId> {
        match self {
            Self::Empty(_) => None,
            Self::Capacity(identity) => Some(identity.superblock.drive),
            Self::Cache(superblock) => Some(superblock.drive),
        }
    }

    /// The cluster and the node that it belongs to.
    fn owner(&self) -> Option<(ClusterId, NodeId)> {
        match self {
            Self::Empty(_) => None,
            Self::Capacity(DriveIdentity { superblock, .. }) => Some((superblock.cluster, superblock.node)),
            Self::Cache(superblock) => Some((superblock.cluster, superblock.node)),
        }
    }

    pub(super) fn is_cache(&self) -> bool {
        matches!(self, Self::Empty(DriveRole::Cache) | Self::Cache(_))
    }
}

/// A drive that was opened and looked at.
pub(super) struct Found<D> {
    pub(super) location: String,
    pub(super) drive: D,
    pub(super) identity: Identity,
    pub(super) media: Option<MediaClass>,
}

/// Drives that were looked at, and nothing was changed.
pub(crate) struct Looked<P: Platform> {
    pub(super) found: Vec<Found<P::Drive>>,
    /// Those that cannot be used.
    pub(super) unfit: Vec<Rc<NodeDrive<P>>>,
    pub(super) stamp: StateStamp,
}

/// Opens drives of a node and looks at them.
pub(crate) async fn look_at_all<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    places: &[DrivePlace],
    attaching: &Attaching<P::Drive>,
) -> Result<Looked<P>, Error> {
    let leaves_unfit_out = attaching.leaves_unfit_out;
    let mut found = Vec::new();
    let mut drives = Vec::new();
    for place in places {
        match look_at(parts, place).await {
            Ok(Ok(drive)) => found.push(drive),
            Ok(Err(broken)) => drives.push(Rc::new(broken)),
            Err(error) => drives.push(Rc::new(left_out(&place.location, error, leaves_unfit_out)?)),
        }
    }
    let caches = parts.caches.borrow().clone();
    let used = parts.replica.drives().into_iter().map(|store| store.drive_id());
    let used: Vec<DriveId> = used.chain(caches.iter().filter_map(|cache| cache.id())).collect();
    let (found, twins) = without_twins(found, &used);
    for (location, drive) in twins {
        let error = attached_twice(&location, drive);
        drives.push(Rc::new(left_out(&location, error, leaves_unfit_out)?));
    }
    let is_elsewhere = |found: &Found<P::Drive>| {
        found.identity.drive().filter(|drive| !parts.homes.claim(*drive, parts.own.shard.number))
    };
    let found = leave_out(found, &mut drives, leaves_unfit_out, |found| {
        is_elsewhere(found).map(|drive| has_other_shard(&found.location, drive))
    })?;
    let found = leave_out(found, &mut drives, leaves_unfit_out, |found| {
        (parts.shards > 1 && found.identity.is_cache())
            .then(|| cache_with_shards(&found.location, parts.shards))
    })?;
    if let (Some(only), Some(other)) =
        (attaching.only, found.iter().find(|found| found.identity.drive() != attaching.only))
    {
        let why = format!("something else stands there than the drive {only}");
        return Err(refused(
            "DRIVE_CHANGED",
            &other.location,
            why,
            "put the drive back, or add the other one",
        ));
    }
    let stamp = check_state_is_not_older(parts, &found).await?;
    Ok(Looked { found, unfit: drives, stamp })
}

/// Leaves those out of which another shard has found the like: which of them has every write is not known.
pub(crate) fn leave_contested_out<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    looked: &mut Looked<P>,
    attaching: &Attaching<P::Drive>,
) -> Result<(), Error> {
    let found = std::mem::take(&mut looked.found);
    looked.found = leave_out(found, &mut looked.unfit, attaching.leaves_unfit_out, |found| {
        let drive = found.identity.drive().filter(|drive| parts.homes.is_contested(*drive))?;
        Some(attached_twice(&found.location, drive))
    })?;
    Ok(())
}

/// Those against which nothing speaks. The others become unfit, or are an error where that is none.
fn leave_out<P: Platform>(
    all: Vec<Found<P::Drive>>,
    unfit: &mut Vec<Rc<NodeDrive<P>>>,
    leaves_unfit_out: bool,
    against: impl Fn(&Found<P::Drive>) -> Option<Error>,
) -> Result<Vec<Found<P::Drive>>, Error> {
    let mut fit = Vec::new();
    for found in all {
        match against(&found) {
            None => fit.push(found),
            Some(error) => unfit.push(Rc::new(left_out(&found.location, error, leaves_unfit_out)?)),
        }
    }
    Ok(fit)
}

/// A drive that cannot be used, if it is left out for that.
pub(super) fn left_out<P: Platform>(
    location: &str,
    error: Error,
    leaves_unfit_out: bool,
) -> Result<NodeDrive<P>, Error> {
    let is_unfit = UNFIT.contains(&error.code.as_str());
    if leaves_unfit_out && is_unfit { Ok(broken(location, 0, None, error.why)) } else { Err(error) }
}

/// Opens a drive and reads who it is. An error stops the node; a drive that does not work is left
/// out.
async fn look_at<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    place: &DrivePlace,
) -> Result<Result<Found<P::Drive>, NodeDrive<P>>, Error> {
    let DrivePlace { location, role, media } = place;
    let drive = match parts.platform.open_drive(location).await {
        Ok(drive) => drive,
        Err(error) if error.kind == DriveErrorKind::Medium => {
            return Ok(Err(broken(location, 0, None, error.to_string())));
        }
        Err(error) => {
            let next = "check that the path is right, that this user may read and write it, and that no other \
                        program uses it";
            return Err(refused("DRIVE_NOT_OPENED", location, error.to_string(), next));
        }
    };
    let size_bytes = drive.geometry().size_bytes;
    let identity = match identify(&parts.platform, &drive, *role).await {
        Ok(identity) => identity,
        Err(error @ (AttachError::Drive(_) | AttachError::Damaged(_))) => {
            return Ok(Err(broken(location, size_bytes, None, error.to_string())));
        }
        Err(error) => return Err(refusal(location, &error)),
    };
    if let Some(owner) = identity.owner() {
        check_owner(parts, location, owner)?;
    }
    Ok(Ok(Found { location: location.to_owned(), drive, identity, media: *media }))
}

/// What a drive says that it is, whatever it was taken for.
async fn identify<P: Platform>(
    platform: &P,
    drive: &P::Drive,
    role: DriveRole,
) -> Result<Identity, AttachError> {
    match CacheDrive::identify(platform, drive).await {
        Ok(superblock) => return Ok(Identity::Cache(superblock)),
        Err(AttachError::Empty) => {}
        Err(error) => return Err(error),
    }
    match DriveStore::identify(platform, drive).await {
        Ok(identity) => Ok(Identity::Capacity(identity)),
        Err(AttachError::Empty) => Ok(Identity::Empty(role)),
        Err(error) => Err(error),
    }
}

/// Those that are there once and not in use by this shard; and where the others are, and which drive each says that it is: second
/// paths to one drive, or images of it.
fn without_twins<D>(found: Vec<Found<D>>, used: &[DriveId]) -> (Vec<Found<D>>, Vec<(String, DriveId)>) {
    let id = |found: &Found<D>| found.identity.drive();
    let ids: Vec<DriveId> = found.iter().filter_map(id).chain(used.iter().copied()).collect();
    let is_once = |drive: DriveId| ids.iter().filter(|known| **known == drive).count() == 1;
    let (once, twins): (Vec<_>, Vec<_>) = found.into_iter().partition(|found| id(found).is_none_or(is_once));
    let twins = twins.into_iter().filter_map(|twin| id(&twin).map(|drive| (twin.location, drive)));
    (once, twins.collect())
}

/// Whether a drive of this cluster and node belongs here.
fn check_owner<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    location: &str,
    (cluster, node): (ClusterId, NodeId),
) -> Result<(), Error> {
    let next = "give the node its own drives; a drive that is to change its place must be removed from its \
                pool and wiped first";
    if cluster != parts.cluster.id {
        let why = format!("it belongs to the cluster {cluster}, not to {}", parts.cluster.id);
        return Err(refused("DRIVE_OF_OTHER_CLUSTER", location, why, next));
    }
    if node != parts.node() {
        let why = format!("it belongs to node {}", parts.name_of(node));
        return Err(refused("DRIVE_OF_OTHER_NODE", location, why, next));
    }
    Ok(())
}

/// The state's stamp, if no drive has seen a newer one.
async fn check_state_is_not_older<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    found: &[Found<P::Drive>],
) -> Result<StateStamp, Error> {
    let stamp = retry_store(parts, || parts.state.stamp()).await.map_err(state_error)?.unwrap_or_default();
    for found in found {
        if let Identity::Capacity(identity) = &found.identity {
            stamp.check_not_older(StateStamp(identity.state_revision))?;
        }
    }
    Ok(stamp)
}

fn attached_twice(location: &str, drive: DriveId) -> Error {
    let why = format!(
        "it says that it is the drive {drive}, and so does another one of this node; which of them has every write is not \
         known"
    );
    let next = "give each drive once, by one of its names; take copies of a drive away, or wipe them";
    refused("DRIVE_ATTACHED_TWICE", location, why, next)
}

fn has_other_shard(location: &str, drive: DriveId) -> Error {
    let why = format!(
        "it says that it is the drive {drive}, which another thread of this node has, or had, and may have made promises of"
    );
    let next = "if it is a second path to a drive, or an image of it, take it away; else start the node anew";
    refused("DRIVE_ATTACHED_TWICE", location, why, next)
}

fn cache_with_shards(location: &str, shards: u8) -> Error {
    let why = format!(
        "it is a cache drive, and the node has {shards} shards: a cache drive belongs to one thread with all drives that it \
         caches for"
    );
    refused("CACHE_WITH_SHARDS", location, why, "run the node without --shards, or without cache drives")
}
