//! The drives of a node: which of them join the pool, and what the cluster's state learns of them.
//!
//! Invariants:
//! - Before any drive is changed, all of them were looked at: one that carries something else, or
//!   belongs to somebody else, stops the start, and nothing has changed; or it is left out and stays as it is, where the
//!   node had it in use before.
//! - Of two images of one drive none is chosen: which of them has every write nobody can say, and attaching one makes the other
//!   one old for good.
//! - No copy on a drive is offered before the drive's attach number is raised on the drive and in the
//!   cluster's state. A drive whose number is lower than the state's is an old image and is left out.
//! - A cluster's state that is older than what a drive has seen stops the start before anything is changed,
//!   there or on a drive. What is left out is not asked.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use spandrel_cluster::records::DamageCounters;
use spandrel_cluster::store::{Expected, StateStore};
use spandrel_cluster::{DriveRecord, DriveRole, DriveState, MediaClass, StateError, StateKey, StateStamp};
use spandrel_drive::{
    AttachError, AttachOptions, AttachReport, Binding, CacheDrive, CacheSuperblock, DriveIdentity,
    DriveStore, FormatOptions, Superblock,
};
use spandrel_platform::{Drive, DriveErrorKind, Platform, before};
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{ClusterId, DriveId, Error, NodeId};

use crate::caches::{self, NodeCache, Wish};
use crate::node::{DriveAdded, DrivePlace, NodeInner};
use crate::parts::NodeParts;

/// How often what was found on the drives is told to the cluster's state.
const TELL_INTERVAL: Duration = Duration::from_secs(1);

/// How long adding a drive waits for the cluster's state to show it. It is in use all the same where that takes longer.
const DRIVE_SHOWN_MAX: Duration = Duration::from_secs(5);

/// How long a drive that is attached anew may be held by what was under way, and how often it is looked whether it still is.
const REOPENED_MAX: Duration = Duration::from_secs(10);
const REOPEN_RETRY: Duration = Duration::from_millis(50);

/// How long to wait before the cluster's state is asked again.
const STATE_RETRY: Duration = Duration::from_millis(100);

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

/// A drive that was given to the node.
pub(crate) struct NodeDrive<P: Platform> {
    /// Where it is.
    pub(crate) location: String,
    pub(crate) size_bytes: u64,
    /// Who it says it is; `None` if it cannot say.
    pub(crate) superblock: Option<Superblock>,
    /// Its store, or why it is not used.
    pub(crate) store: Result<DriveStore<P>, String>,
    /// The area of a cache drive that it is bound to, as far as is known.
    pub(crate) binding: Option<Binding>,
    /// Whether this run of the node had it in use, and has to attach it again.
    pub(crate) was_in_use: bool,
    /// What its attach found.
    pub(crate) report: AttachReport,
}

/// Why a drive is not in use that will be in a moment.
const BEING_ATTACHED: &str = "it is being attached anew";

impl<P: Platform> NodeDrive<P> {
    /// Whether it is not in use since it is being attached anew.
    pub(crate) fn is_being_attached(&self) -> bool {
        self.store.as_ref().is_err_and(|why| why == BEING_ATTACHED)
    }

    /// Its identity, if it can say.
    pub(crate) fn id(&self) -> Option<DriveId> {
        self.superblock.as_ref().map(|superblock| superblock.drive)
    }

    /// Whether its area is on this cache drive, as far as is known.
    pub(crate) fn is_bound_to(&self, cache: DriveId) -> bool {
        self.binding.is_some_and(|binding| binding.cache == cache)
    }
}

/// What a drive says that it is.
enum Identity {
    /// It is empty, and becomes this.
    Empty(DriveRole),
    Capacity(DriveIdentity),
    Cache(CacheSuperblock),
}

impl Identity {
    fn drive(&self) -> Option<DriveId> {
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

    fn is_cache(&self) -> bool {
        matches!(self, Self::Empty(DriveRole::Cache) | Self::Cache(_))
    }
}

/// A drive that was opened and looked at.
struct Found<D> {
    location: String,
    drive: D,
    identity: Identity,
    media: Option<MediaClass>,
}

/// How drives are attached.
pub(crate) struct Attaching<D> {
    /// See [`NodeConfig::leaves_unfit_drives_out`](crate::NodeConfig::leaves_unfit_drives_out).
    pub(crate) leaves_unfit_out: bool,
    /// What becomes of their bindings.
    pub(crate) wish: Wish<D>,
    /// Any other drive is refused, and so is an empty one.
    pub(crate) only: Option<DriveId>,
}

impl<D> Attaching<D> {
    /// Whatever drives these are.
    pub(crate) fn any(leaves_unfit_out: bool) -> Self {
        Self { leaves_unfit_out, wish: Wish::Keep, only: None }
    }
}

/// Drives that were looked at, and nothing was changed.
pub(crate) struct Looked<P: Platform> {
    found: Vec<Found<P::Drive>>,
    /// Those that cannot be used.
    unfit: Vec<Rc<NodeDrive<P>>>,
    stamp: StateStamp,
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

/// Formats those of the drives that are empty and attaches all: cache drives first, as others
/// may be bound to them. After an error none of them is in use, so that the start can be tried again.
pub(crate) async fn attach_all<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    places: &[DrivePlace],
    looked: Looked<P>,
    attaching: Attaching<P::Drive>,
) -> Result<Vec<Rc<NodeDrive<P>>>, Error> {
    let Looked { found, unfit: mut drives, stamp } = looked;
    let caches = parts.caches.borrow().clone();
    if let Err(error) = attach_found(parts, found, stamp, &mut drives, &attaching).await {
        detach_all(&drives).await;
        let is_new = |cache: &Rc<NodeCache<P>>| !caches.iter().any(|known| Rc::ptr_eq(known, cache));
        parts.caches.borrow_mut().retain(|cache| !is_new(cache));
        return Err(error);
    }
    let is_cache = |drive: &Rc<NodeDrive<P>>| {
        let is_it = |place: &DrivePlace| place.role == DriveRole::Cache && place.location == drive.location;
        drive.store.is_err() && places.iter().any(is_it)
    };
    let (unused, mut drives): (Vec<_>, Vec<_>) = drives.into_iter().partition(is_cache);
    let unused = unused.iter().filter_map(|drive| {
        let why = drive.store.as_ref().err()?;
        Some(Rc::new(NodeCache::unused(&drive.location, drive.size_bytes, None, why.clone())))
    });
    parts.caches.borrow_mut().extend(unused);
    parts.caches.borrow_mut().sort_by(|one, other| one.location.cmp(&other.location));
    drives.sort_by(|one, other| one.location.cmp(&other.location));
    Ok(drives)
}

/// Looks at drives and attaches them, while the node runs.
async fn look_and_attach<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    places: &[DrivePlace],
    attaching: Attaching<P::Drive>,
) -> Result<Vec<Rc<NodeDrive<P>>>, Error> {
    let looked = look_at_all(parts, places, &attaching).await?;
    attach_all(parts, places, looked, attaching).await
}

async fn attach_found<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    found: Vec<Found<P::Drive>>,
    stamp: StateStamp,
    drives: &mut Vec<Rc<NodeDrive<P>>>,
    attaching: &Attaching<P::Drive>,
) -> Result<(), Error> {
    let leaves_unfit_out = attaching.leaves_unfit_out;
    let (caches, found): (Vec<_>, Vec<_>) = found.into_iter().partition(|found| found.identity.is_cache());
    for Found { location, drive, identity, media } in caches {
        let superblock = match identity {
            Identity::Cache(superblock) => Some(superblock),
            _ => None,
        };
        match caches::join(parts, &location, drive, superblock, media).await {
            Ok(cache) => parts.caches.borrow_mut().push(Rc::new(cache)),
            Err(error) => drives.push(Rc::new(left_out(&location, error, leaves_unfit_out)?)),
        }
    }
    let capacity_drives = parts.replica.drives().len() + found.len();
    for drive in found {
        let location = drive.location.clone();
        let drive = match join(parts, drive, attaching.wish.clone(), capacity_drives).await {
            Ok(drive) => Rc::new(drive),
            Err(error) => Rc::new(left_out(&location, error, leaves_unfit_out)?),
        };
        let seen = drive.store.as_ref().map_or(0, DriveStore::state_revision);
        drives.push(drive);
        // A root that could not be read before could be read now.
        stamp.check_not_older(StateStamp(seen))?;
    }
    for store in drives.iter().filter_map(|drive| drive.store.as_ref().ok()) {
        store.note_state_revision(stamp.0);
    }
    Ok(())
}

/// Opens, formats if it is empty, and attaches one more drive. One that does not work is refused. `None` if it is a cache
/// drive.
pub(crate) async fn attach_one<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    place: DrivePlace,
) -> Result<Option<Rc<NodeDrive<P>>>, Error> {
    let drives = look_and_attach(parts, std::slice::from_ref(&place), Attaching::any(false)).await?;
    let failure = match drives.first() {
        Some(drive) => drive.store.as_ref().err().cloned(),
        None => {
            let is_it = |cache: &&Rc<NodeCache<P>>| cache.location == place.location;
            let failure = parts
                .caches
                .borrow()
                .iter()
                .find(is_it)
                .and_then(|cache| cache.cache.as_ref().err().cloned());
            if failure.is_some() {
                parts.caches.borrow_mut().retain(|cache| cache.location != place.location);
            }
            failure
        }
    };
    match failure {
        None => Ok(drives.into_iter().next()),
        Some(why) => Err(refused("DRIVE_FAILED", &place.location, why, "replace the drive, or leave it out")),
    }
}

/// See [`Node::add_drive`](crate::Node::add_drive).
pub(crate) async fn add<P: Platform, S: StateStore>(
    node: &NodeInner<P, S>,
    place: DrivePlace,
) -> Result<DriveAdded, Error> {
    let location = place.location.clone();
    // It is given to the node anew.
    node.let_go.borrow_mut().retain(|known| *known != location);
    // One after the other: a copy of a drive must not come in beside it.
    let attaching = node.attaching.take().await;
    if has_in_use(node, &location) {
        let next = "look at the drives with `spandrel drive list`";
        return Err(refused("DRIVE_IN_USE", &location, "this node has it already", next));
    }
    // One that did not work before is there, too.
    node.parts.caches.borrow_mut().retain(|cache| cache.location != location);
    let attached = attach_one(&node.parts, place).await;
    drop(attaching);
    let drive = attached?;
    if node.stopping.get() {
        detach_all(drive.as_slice()).await;
        let next = "nothing: the node takes the drive into use when it starts again";
        return Err(refused("NODE_STOPPING", &location, "the node is being stopped", next));
    }
    // One that did not work before is there, too.
    node.drives.borrow_mut().retain(|known| known.location != location);
    let Some(drive) = drive else { return Ok(cache_added(node, &location)) };
    let added = DriveAdded { drive: drive.id(), role: DriveRole::Capacity, size_bytes: drive.size_bytes };
    take_in(node, drive);
    if let Some(drive) = added.drive {
        let parts = &node.parts;
        let is_shown = || parts.view.shows_drive(parts.node(), drive);
        let deadline = parts.platform.now() + DRIVE_SHOWN_MAX;
        before(&parts.platform, deadline, parts.view.changed.wait_until(is_shown)).await;
    }
    Ok(added)
}

fn has_in_use<P: Platform, S: StateStore>(node: &NodeInner<P, S>, location: &str) -> bool {
    let has = |drive: &Rc<NodeDrive<P>>| drive.location == location && drive.store.is_ok();
    let has_cache =
        node.parts.caches.borrow().iter().any(|cache| cache.location == location && cache.cache.is_ok());
    has_cache || node.drives.borrow().iter().any(has)
}

fn cache_added<P: Platform, S: StateStore>(node: &NodeInner<P, S>, location: &str) -> DriveAdded {
    let caches = node.parts.caches.borrow();
    let cache = caches.iter().find(|cache| cache.location == location);
    DriveAdded {
        drive: cache.and_then(|cache| cache.id()),
        role: DriveRole::Cache,
        size_bytes: cache.map_or(0, |cache| cache.size_bytes),
    }
}

/// Takes an attached drive among those of the node, and offers its copies.
fn take_in<P: Platform, S: StateStore>(node: &NodeInner<P, S>, drive: Rc<NodeDrive<P>>) {
    offer(&node.parts, &drive);
    {
        let mut attached = node.drives.borrow_mut();
        attached.push(drive);
        attached.sort_by(|one, other| one.location.cmp(&other.location));
    }
    node.drives_changed.notify_all();
}

/// Attaches the drive at a location anew, since what it is bound to has changed. Owners see it go for that long. If it is not in
/// use then, the error says why. Nobody may hold the drive meanwhile.
pub(crate) async fn attach_anew<P: Platform, S: StateStore>(
    node: &NodeInner<P, S>,
    location: &str,
    wish: Wish<P::Drive>,
) -> Result<(), String> {
    let _attaching = node.attaching.take().await;
    let is_it = |known: &Rc<NodeDrive<P>>| known.location == location;
    let former = node.drives.borrow().iter().find(|known| is_it(known)).cloned();
    let Some(former) = former else { return Err("the node does not have it any more".to_owned()) };
    let (id, size_bytes, superblock, binding) =
        (former.id(), former.size_bytes, former.superblock.clone(), former.binding);
    let left = |why: String| {
        Rc::new(NodeDrive {
            location: location.to_owned(),
            size_bytes,
            superblock: superblock.clone(),
            store: Err(why),
            binding,
            was_in_use: true,
            report: AttachReport::default(),
        })
    };
    // It is one of the node's drives all the time: whoever asks who is bound to a cache drive must find it.
    let put = |drive: &Rc<NodeDrive<P>>| {
        let mut drives = node.drives.borrow_mut();
        let place = drives.iter_mut().find(|known| is_it(known));
        let is_there = place.map(|known| *known = Rc::clone(drive)).is_some();
        drop(drives);
        node.drives_changed.notify_all();
        is_there
    };
    put(&left(BEING_ATTACHED.to_owned()));
    if let Some(id) = id {
        node.parts.replica.remove_drive(id);
        // What the new store counts begins anew.
        node.damage_told.borrow_mut().remove(&id);
    }
    detach_all(std::slice::from_ref(&former)).await;
    drop(former);
    let drive = match attach_when_free(&node.parts, location, wish, id).await {
        Ok(Some(drive)) if drive.store.is_ok() => drive,
        Ok(Some(drive)) => left(why_unused(&drive)),
        Ok(None) => left("it is a cache drive now".to_owned()),
        Err(error) => left(error.why),
    };
    if !put(&drive) {
        detach_all(std::slice::from_ref(&drive)).await;
        return Err("it was taken out of the pool meanwhile".to_owned());
    }
    offer(&node.parts, &drive);
    drive.store.as_ref().map(|_| ()).map_err(Clone::clone)
}

/// Attaches the drive at a location that must be this one. A request that is under way may hold it yet, for a while.
async fn attach_when_free<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    location: &str,
    wish: Wish<P::Drive>,
    only: Option<DriveId>,
) -> Result<Option<Rc<NodeDrive<P>>>, Error> {
    let place = DrivePlace::capacity(location.to_owned());
    let deadline = parts.platform.now() + REOPENED_MAX;
    loop {
        let options = Attaching { leaves_unfit_out: false, wish: wish.clone(), only };
        let attached = look_and_attach(parts, std::slice::from_ref(&place), options).await;
        let is_open = attached.as_ref().is_err_and(|error| error.code == "DRIVE_NOT_OPENED");
        if !is_open || parts.platform.now() >= deadline {
            return attached.map(|drives| drives.into_iter().next());
        }
        parts.platform.sleep(REOPEN_RETRY).await;
    }
}

fn why_unused<P: Platform>(drive: &NodeDrive<P>) -> String {
    drive.store.as_ref().err().cloned().unwrap_or_default()
}

/// Offers the copies on a drive to owners, from now on.
pub(crate) fn offer<P: Platform, S: StateStore>(parts: &NodeParts<P, S>, drive: &NodeDrive<P>) {
    let Ok(store) = &drive.store else { return };
    // One that was empty has its identity only now, and nobody else can have that.
    let _ = parts.homes.claim(store.drive_id(), parts.own.shard.number);
    let epochs = store.volumes().into_iter().map(|volume| (volume, store.fence_epoch(volume)));
    parts.liveness.drive_attached(store.drive_id(), epochs);
    parts.replica.add_drive(store.clone());
}

/// Ends the use of a drive whose copies count no more. Returns where it is, if the node has it.
pub(crate) async fn let_go<P: Platform, S: StateStore>(
    node: &NodeInner<P, S>,
    drive: DriveId,
) -> Option<String> {
    let is_it = |known: &Rc<NodeDrive<P>>| {
        known.superblock.as_ref().is_some_and(|superblock| superblock.drive == drive)
    };
    let known = node.drives.borrow().iter().find(|known| is_it(known)).cloned()?;
    node.drives.borrow_mut().retain(|known| !is_it(known));
    node.parts.replica.remove_drive(drive);
    node.drives_changed.notify_all();
    // Whoever keeps the bindings gives its areas back after that.
    node.leaving.borrow_mut().insert(drive);
    detach_all(std::slice::from_ref(&known)).await;
    node.leaving.borrow_mut().remove(&drive);
    Some(known.location.clone())
}

/// Ends the work on all drives in order. One that cannot end it so is recovered at its next attach.
pub(crate) async fn detach_all<P: Platform>(drives: &[Rc<NodeDrive<P>>]) {
    let detaching = drives.iter().map(async |drive| {
        if let Ok(store) = &drive.store
            && let Err(error) = store.detach().await
        {
            tracing::error!(location = drive.location, drive = %store.drive_id(), "not left in order: {error}");
        }
    });
    join_all(detaching).await;
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

/// Formats a drive if it is empty, and attaches it.
async fn join<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    found: Found<P::Drive>,
    wish: Wish<P::Drive>,
    capacity_drives: usize,
) -> Result<NodeDrive<P>, Error> {
    let Found { location, drive, identity, media } = found;
    let size_bytes = drive.geometry().size_bytes;
    let (superblock, binding) = match identity {
        Identity::Capacity(identity) => (identity.superblock, identity.binding),
        Identity::Empty(_) | Identity::Cache(_) => {
            let platform = &parts.platform;
            let options = FormatOptions {
                cluster: parts.cluster.id,
                node: parts.node(),
                drive: DriveId::from_random(platform.random_u64(), platform.random_u64()),
                slab_geometry: parts.cluster.slab_bytes,
            };
            let formatted = DriveStore::format(platform, &drive, options).await;
            (formatted.map_err(|error| refusal(&location, &error))?, Ok(None))
        }
    };
    let known = match know_drive(parts, &superblock, media).await {
        // Nobody has told this node to forget it: it was away then.
        Err(error) if error.code == "DRIVE_REMOVED" => {
            return Ok(broken(
                &location,
                size_bytes,
                Some(superblock),
                format!("{}: {}", error.why, error.next),
            ));
        }
        known => known?,
    };
    let bound_to = binding.clone().ok().flatten();
    let unused = |why: String| {
        let broken = broken(&location, size_bytes, Some(superblock.clone()), why);
        NodeDrive { binding: bound_to, ..broken }
    };
    let choice = caches::choose(parts, &superblock, binding, wish, capacity_drives).await?;
    let choice = match choice {
        Ok(choice) => choice,
        Err(why) => return Ok(unused(why)),
    };
    let options = AttachOptions {
        attach_number_known: known.attach_number,
        cache: choice,
        map_memory_bytes_max: caches::map_bytes_max_at_attach(parts, capacity_drives).await,
    };
    let attached = DriveStore::attach_with(&parts.platform, drive, options).await;
    let (store, report) = match attached {
        Ok(attached) => attached,
        // It stays as it is, for a person to look at.
        Err(error @ AttachError::Old { .. }) => {
            witness::reached(Rare::OldImageRefused);
            return Ok(unused(error.to_string()));
        }
        Err(error @ (AttachError::Damaged(_) | AttachError::Drive(_) | AttachError::Cache(_))) => {
            return Ok(unused(error.to_string()));
        }
        Err(error) => return Err(refusal(&location, &error)),
    };
    caches::let_go_elsewhere(parts, superblock.drive, store.binding()).await;
    tell_what_was_found(&location, &report);
    let noted = retry(parts, || {
        let number = store.attach_number();
        parts.state.note_attach(superblock.drive, DriveRole::Capacity, parts.node(), number)
    });
    let store = match noted.await {
        Ok(_) => {
            caches::set_first_mode(parts, &store, known.media).await;
            Ok(store)
        }
        // Somebody else has attached it meanwhile: nothing on it may be offered.
        Err(error) => {
            tracing::error!("{error}");
            store.stop("somebody else has attached the drive").await;
            Err(error.to_string())
        }
    };
    let binding = store.as_ref().map_or(bound_to, DriveStore::binding);
    let was_in_use = store.is_ok();
    Ok(NodeDrive { location, size_bytes, superblock: Some(superblock), store, binding, was_in_use, report })
}

/// Says what an attach has found damaged, and what becomes of it.
fn tell_what_was_found(location: &str, report: &AttachReport) {
    if report.structures_damaged > 0 || report.blocks_lost > 0 {
        tracing::warn!(
            location,
            "the drive's superblock, root, journal or maps were found damaged in {} places; {} blocks of \
             which it does not know any more what they held are read from other copies and healed",
            report.structures_damaged,
            report.blocks_lost
        );
    }
    if !report.unproven.is_empty() {
        tracing::warn!(
            location,
            "the drive cannot prove that {} copies on it hold every write: they are brought up to date from \
             other nodes before they count again",
            report.unproven.len()
        );
    }
}

/// Makes sure that the cluster's state knows a drive. Returns what it knows.
async fn know_drive<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    superblock: &Superblock,
    media: Option<MediaClass>,
) -> Result<DriveRecord, Error> {
    let record = DriveRecord {
        node: parts.node(),
        role: DriveRole::Capacity,
        size_bytes: u64::from(superblock.layout.size_blocks) * spandrel_shared::BLOCK_BYTES as u64,
        blocks_usable: u64::from(superblock.layout.data_blocks()),
        slabs_promised_max: superblock.layout.promised_slabs(),
        attach_number: 0,
        state: DriveState::Active,
        damage: DamageCounters::default(),
        media,
        name: None,
    };
    let known = retry(parts, || parts.state.add_drive(superblock.drive, record.clone())).await?;
    Ok(known.record)
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

/// Repeats an attempt that could not reach the store, or whose outcome is not known: it must have
/// the same effect as once.
pub(crate) async fn retry_store<P: Platform, S: StateStore, T, F>(
    parts: &NodeParts<P, S>,
    attempt: impl Fn() -> F,
) -> Result<T, StateError>
where
    F: Future<Output = Result<T, StateError>>,
{
    loop {
        match attempt().await {
            Err(StateError::Store(error)) => {
                tracing::warn!("the cluster's state: {error}; trying again");
                parts.platform.sleep(STATE_RETRY).await;
            }
            outcome => return outcome,
        }
    }
}

/// The same, also repeating what met a change by somebody else.
pub(crate) async fn retry<P: Platform, S: StateStore, T, F>(
    parts: &NodeParts<P, S>,
    attempt: impl Fn() -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, StateError>>,
{
    loop {
        match retry_store(parts, &attempt).await {
            Err(StateError::Conflict) => {}
            outcome => return outcome.map_err(state_error),
        }
    }
}

/// The error that a person sees.
pub(crate) fn state_error(error: StateError) -> Error {
    match error {
        StateError::Refused(error) => error,
        error => Error::new(
            "STATE_UNAVAILABLE",
            "the cluster's state could not be changed",
            error.to_string(),
            "try again; if it stays so, look whether the cluster's state is reachable",
        ),
    }
}

/// Tells the cluster's state what the drives know, and the drives what the state knows, now and then. Never completes.
pub(crate) async fn keep_told<P: Platform, S: StateStore>(node: Rc<NodeInner<P, S>>) {
    let parts = &node.parts;
    loop {
        parts.platform.sleep(TELL_INTERVAL).await;
        caches::follow_settings(parts);
        tell_damage(parts, &node.damage_told).await;
        tell_stamp(parts);
        let_go_of_removed(&node).await;
    }
}

/// Lets go of drives that were taken out of the pool, if nobody could tell this node.
async fn let_go_of_removed<P: Platform, S: StateStore>(node: &NodeInner<P, S>) {
    let drives: Vec<DriveId> =
        node.drives.borrow().iter().filter_map(|drive| Some(drive.superblock.as_ref()?.drive)).collect();
    for drive in drives {
        // The state is asked about those alone that it does not show any more, or not yet.
        let is_shown = node.parts.view.drives.borrow().contains_key(&drive);
        if !is_shown && matches!(node.parts.state.is_drive_removed(drive).await, Ok(true)) {
            tracing::warn!(%drive, "the drive was taken out of the pool, and is not used any more");
            if let Some(location) = let_go(node, drive).await {
                node.let_go.borrow_mut().push(location);
                node.drives_changed.notify_all();
            }
        }
    }
}

/// Tells the drives how new the state is.
pub(crate) fn tell_stamp<P: Platform, S: StateStore>(parts: &NodeParts<P, S>) {
    let Some(revision) = parts.view.changed_for_good() else { return };
    let stamp = StateStamp::new(parts.cluster.generation, revision);
    for store in parts.replica.drives() {
        store.note_state_revision(stamp.0);
    }
}

/// Adds what was found since the last time to what the state counts. `told` is what was added so
/// far, by drive.
pub(crate) async fn tell_damage<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    told: &RefCell<BTreeMap<DriveId, u64>>,
) {
    for store in parts.replica.drives() {
        let drive = store.drive_id();
        let statistics = store.statistics();
        let found = statistics.blocks_damaged + statistics.structures_damaged;
        // A store that was attached anew begins to count anew.
        let before = told.borrow().get(&drive).copied().filter(|before| *before <= found).unwrap_or(0);
        if found == before {
            continue;
        }
        let key = StateKey::Drive(drive);
        let Ok(Some(stored)) = parts.state.get::<DriveRecord>(&key).await else { continue };
        let mut record = stored.record;
        record.damage.checksum_failures += found - before;
        // Counted twice at worst, if the outcome of this is unknown: it is advice, not truth.
        if parts.state.put(&key, Expected::ModifiedAt(stored.revision), record).await.is_ok() {
            told.borrow_mut().insert(drive, found);
        }
    }
}

fn broken<P: Platform>(
    location: &str,
    size_bytes: u64,
    superblock: Option<Superblock>,
    why: String,
) -> NodeDrive<P> {
    tracing::error!(location, "the drive is not used: {why}");
    let report = AttachReport::default();
    let (location, store) = (location.to_owned(), Err(why));
    NodeDrive { location, size_bytes, superblock, store, binding: None, was_in_use: false, report }
}

/// A drive that cannot be used, if it is left out for that.
fn left_out<P: Platform>(
    location: &str,
    error: Error,
    leaves_unfit_out: bool,
) -> Result<NodeDrive<P>, Error> {
    let is_unfit = UNFIT.contains(&error.code.as_str());
    if leaves_unfit_out && is_unfit { Ok(broken(location, 0, None, error.why)) } else { Err(error) }
}

pub(crate) fn refused(code: &str, location: &str, why: impl Into<String>, next: &str) -> Error {
    Error::new(code, format!("drive {location} cannot be used"), why, next)
}

pub(crate) fn refusal(location: &str, error: &AttachError) -> Error {
    let (code, next) = match error {
        AttachError::Empty | AttachError::Drive(_) => ("DRIVE_FAILED", "replace the drive, or leave it out"),
        AttachError::Foreign(_) => (
            "DRIVE_IN_FOREIGN_USE",
            "choose another drive; if nothing on this one is needed any more, wipe it first with `spandrel drive clean`",
        ),
        AttachError::WrongIdentity(_) => ("DRIVE_OF_OTHER_NODE", "give the node its own drives"),
        AttachError::Newer(_) => ("DRIVE_FORMAT_NEWER", "run the newer version of spandrel on this node"),
        AttachError::Old { .. } => {
            ("DRIVE_IS_OLD", "attach the drive itself, or remove it from the pool and add it again, empty")
        }
        AttachError::Size(_) => ("DRIVE_TOO_SMALL", "choose a larger drive, or smaller slabs for the pool"),
        AttachError::Cache(_) => ("DRIVE_CACHE_MISSING", "give the node the cache drive as well"),
        AttachError::Damaged(_) => {
            ("DRIVE_DAMAGED", "keep the drive as it is and look at it with `spandrel drive inspect`")
        }
    };
    refused(code, location, error.to_string(), next)
}
