//! The drives of a node: which of them join the pool (`found` are those that may), and what the cluster's state learns of them
//! (`told`).
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

mod found;
mod told;

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use spandrel_cluster::store::StateStore;
use spandrel_cluster::{DriveRecord, DriveRole, MediaClass, StateStamp};
use spandrel_drive::{
    AttachError, AttachOptions, AttachReport, Binding, DriveStore, FormatOptions, Superblock,
};
use spandrel_platform::{Drive, Platform, before};
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{BLOCK_BYTES, DriveId, Error, NodeId};

use self::found::{Found, Identity, Looked, left_out};
pub(crate) use self::found::{leave_contested_out, look_at_all};
pub(crate) use self::told::{keep_told, know_drive, tell_damage, tell_stamp};
use crate::caches::{self, NodeCache, Wish};
use crate::node::{DriveAdded, DrivePlace, NodeInner};
use crate::parts::NodeParts;
use crate::stubborn::retry;

/// How long adding a drive waits for the cluster's state to show it. It is in use all the same where that takes longer.
const DRIVE_SHOWN_MAX: Duration = Duration::from_secs(5);

/// How long a drive that is attached anew may be held by what was under way, and how often it is looked whether it still is.
const REOPENED_MAX: Duration = Duration::from_secs(10);

const REOPEN_RETRY: Duration = Duration::from_millis(50);

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
    let record = capacity_record(parts.node(), &superblock, media);
    let known = match know_drive(parts, superblock.drive, record).await {
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
        // The other shards have about as many.
        map_memory_bytes_max: caches::map_bytes_max_at_attach(
            parts,
            capacity_drives * usize::from(parts.shards),
        )
        .await,
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

/// What the cluster's state is to know of a capacity drive.
fn capacity_record(node: NodeId, superblock: &Superblock, media: Option<MediaClass>) -> DriveRecord {
    let layout = &superblock.layout;
    let size_bytes = u64::from(layout.size_blocks) * BLOCK_BYTES as u64;
    DriveRecord {
        blocks_usable: u64::from(layout.data_blocks()),
        slabs_promised_max: layout.promised_slabs(),
        ..DriveRecord::new(node, DriveRole::Capacity, size_bytes, media)
    }
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
