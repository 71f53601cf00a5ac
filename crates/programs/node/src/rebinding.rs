//! Binds capacity drives to other cache drives when drives have come or gone.
//!
//! A binding lasts as long as a drive is attached. So one that is to change is emptied first, and then its capacity drive is
//! attached anew: owners see it go for a moment, and bring up to date what was written meanwhile. One drive at a time.
//!
//! A drive whose cache drive is gone for good is attached without it, as soon as the cluster's state says so.
//!
//! Invariants:
//! - Nothing is unbound that holds what the capacity drive does not, unless its cache drive was taken out of the cluster.
//! - Areas become smaller only for drives that have none: what is even enough stays.

use std::rc::Rc;
use std::time::Duration;

use spandrel_cluster::store::StateStore;
use spandrel_drive::{Binding, DriveStore};
use spandrel_platform::Platform;
use spandrel_shared::{DriveId, Error};

use crate::caches::{self, NodeCache};
use crate::drives::{self, NodeDrive};
use crate::node::NodeInner;

/// How often the bindings are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A cache drive, as far as it matters who is bound to it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bound {
    /// How many chunks each drive should have at most.
    share: u32,
    free_chunks: u32,
    /// The drives with their chunks.
    drives: Vec<(DriveId, u32)>,
}

/// The drive whose binding is to be made anew, so that all have about as much; none if all is well.
fn next(caches: &[Bound], unbound: &[DriveId]) -> Option<DriveId> {
    let has_room = caches.iter().any(|cache| cache.free_chunks > 0);
    if let Some(drive) = unbound.first() {
        let all = || caches.iter().flat_map(|cache| cache.drives.iter().map(|drive| (drive, cache.share)));
        let over = || all().filter(|((_, chunks), share)| chunks > share);
        return match has_room {
            true => Some(*drive),
            false => over().max_by_key(|((_, chunks), share)| chunks - share).map(|((drive, _), _)| *drive),
        };
    }
    let fullest = caches.iter().max_by_key(|cache| cache.drives.len())?;
    let emptiest =
        caches.iter().filter(|cache| cache.free_chunks > 0).min_by_key(|cache| cache.drives.len())?;
    let is_even = fullest.drives.len() <= emptiest.drives.len() + 1;
    if is_even { None } else { fullest.drives.last().map(|(drive, _)| *drive) }
}

/// Keeps the bindings of a node as they should be. Never completes.
pub(crate) async fn keep_even<P: Platform, S: StateStore>(node: Rc<NodeInner<P, S>>) {
    loop {
        node.parts.platform.sleep(LOOK_INTERVAL).await;
        go_on(&node).await;
    }
}

/// Does what there is to do next with the bindings of a node, if anything.
async fn go_on<P: Platform, S: StateStore>(node: &NodeInner<P, S>) {
    if let Some(location) = waiting(node).await {
        if let Err(why) = drives::attach_anew(node, &location).await {
            tracing::warn!(location, "it is not in use yet: {why}");
        }
        return;
    }
    if node.parts.caches.borrow().iter().any(|cache| cache.leaves.get()) {
        return;
    }
    if let Some(drive) = next_of(node)
        && let Err(error) = rebind(node, drive).await
    {
        tracing::warn!("{error}");
    }
}

/// Where a drive is that can be used again: its cache drive was taken out of the cluster, or has come.
async fn waiting<P: Platform, S: StateStore>(node: &NodeInner<P, S>) -> Option<String> {
    let bound: Vec<(String, DriveId, bool)> = {
        let drives = node.drives.borrow();
        let does_not_work =
            |drive: &&Rc<NodeDrive<P>>| drive.store.as_ref().map_or(true, |store| store.failure().is_some());
        let describe = |drive: &Rc<NodeDrive<P>>| {
            Some((drive.location.clone(), drive.binding?.cache, drive.store.is_err()))
        };
        drives.iter().filter(does_not_work).filter_map(describe).collect()
    };
    for (location, cache, was_never_attached) in bound {
        if matches!(node.parts.state.is_drive_removed(cache).await, Ok(true)) {
            node.parts.caches.borrow_mut().retain(|known| known.id() != Some(cache));
            return Some(location);
        }
        let is_there = cache_of(node, cache).is_some_and(|known| known.cache.is_ok());
        if was_never_attached && is_there {
            return Some(location);
        }
    }
    None
}

fn next_of<P: Platform, S: StateStore>(node: &NodeInner<P, S>) -> Option<DriveId> {
    let drives = node.drives.borrow();
    let working = drives.iter().filter_map(|drive| drive.store.as_ref().ok());
    let working: Vec<&DriveStore<P>> = working.filter(|store| store.failure().is_none()).collect();
    let usable = caches::usable(&node.parts.caches.borrow());
    let bound = usable.iter().map(|cache| Bound {
        share: caches::share_of(cache, working.len(), usable.len()),
        free_chunks: cache.free_chunks(),
        drives: cache.bound_chunks(),
    });
    let unbound = working.iter().filter(|store| store.binding().is_none()).map(|store| store.drive_id());
    next(&bound.collect::<Vec<_>>(), &unbound.collect::<Vec<_>>())
}

/// Gives a drive another binding, or one at all: what was in its area is moved to it first.
async fn rebind<P: Platform, S: StateStore>(node: &NodeInner<P, S>, drive: DriveId) -> Result<(), Error> {
    let Some((location, binding)) = place_of(node, drive) else { return Ok(()) };
    if let Some(former) = binding.and_then(|binding| cache_of(node, binding.cache)) {
        unbind(node, drive, &former).await?;
    }
    drives::attach_anew(node, &location).await.map_err(|why| not_rebound(&location, why))
}

/// Empties the area of a drive, and lets go of it.
async fn unbind<P: Platform, S: StateStore>(
    node: &NodeInner<P, S>,
    drive: DriveId,
    cache: &Rc<NodeCache<P>>,
) -> Result<(), Error> {
    let Some((location, _)) = place_of(node, drive) else { return Ok(()) };
    let failed = |why: String| not_rebound(&location, why);
    let store =
        node.drives.borrow().iter().find(|known| known.id() == Some(drive)).map(|it| it.store.clone());
    match store {
        Some(Ok(store)) => store.drain_cache().await.map_err(|error| failed(error.to_string()))?,
        Some(Err(why)) => return Err(failed(why)),
        None => return Ok(()),
    }
    let left_before = cache.leaves.replace(true);
    let attached = drives::attach_anew(node, &location).await;
    cache.leaves.set(left_before);
    attached.map_err(failed)?;
    match &cache.cache {
        Ok(cache) => cache.unbind(drive).await.map_err(|error| failed(error.to_string())),
        Err(_) => Ok(()),
    }
}

/// Where a drive of the node is, and what it is bound to.
fn place_of<P: Platform, S: StateStore>(
    node: &NodeInner<P, S>,
    drive: DriveId,
) -> Option<(String, Option<Binding>)> {
    let drives = node.drives.borrow();
    let known = drives.iter().find(|known| known.id() == Some(drive))?;
    Some((known.location.clone(), known.binding))
}

fn not_rebound(location: &str, why: String) -> Error {
    let next = "look at the drive with `spandrel explain drive`, and try again";
    Error::new("CACHE_NOT_CHANGED", format!("drive {location} does not get another cache drive"), why, next)
}

fn cache_of<P: Platform, S: StateStore>(node: &NodeInner<P, S>, cache: DriveId) -> Option<Rc<NodeCache<P>>> {
    node.parts.caches.borrow().iter().find(|known| known.id() == Some(cache)).cloned()
}

/// See [`Node::release_cache`](crate::Node::release_cache).
pub(crate) async fn release<P: Platform, S: StateStore>(
    node: &NodeInner<P, S>,
    drive: DriveId,
) -> Result<bool, Error> {
    let Some(cache) = cache_of(node, drive).filter(|cache| cache.cache.is_ok()) else { return Ok(false) };
    cache.leaves.set(true);
    let is_bound = |known: &&Rc<NodeDrive<P>>| known.binding.map(|binding| binding.cache) == Some(drive);
    let bound: Vec<DriveId> =
        node.drives.borrow().iter().filter(is_bound).filter_map(|known| known.id()).collect();
    for bound in bound {
        if let Err(error) = unbind(node, bound, &cache).await {
            cache.leaves.set(false);
            return Err(error);
        }
    }
    node.parts.caches.borrow_mut().retain(|known| known.id() != Some(drive));
    Ok(true)
}

#[cfg(test)]
#[path = "rebinding_tests.rs"]
mod tests;
