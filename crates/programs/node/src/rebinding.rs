//! Binds capacity drives to other cache drives when drives have come or gone.
//!
//! A binding lasts as long as a drive is attached. So one that is to change is emptied first, and then its capacity drive is
//! attached anew: owners see it go for a moment, and bring up to date what was written meanwhile. One drive at a time, and only
//! while nobody needs it: others hold whole copies of all that is on it. That is asked before it is emptied, which may take
//! hours, and again right before it is detached.
//!
//! A drive whose cache drive is gone for good is attached without it, as soon as the cluster's state says so. A cache drive that
//! is retired is emptied in the same way, one drive after the other, whenever nobody needs that one.
//!
//! Invariants:
//! - Nothing is unbound that holds what the capacity drive does not, unless its cache drive was taken out of the cluster.
//! - Areas become smaller only for drives that have none: what is even enough stays.
//! - One binding is changed at a time; see [`Bindings::changing`].

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use spandrel_cluster::store::StateStore;
use spandrel_drive::{Binding, CacheArea, DriveStore};
use spandrel_platform::sync::Lock;
use spandrel_platform::{Platform, before};
use spandrel_shared::{DriveId, Error};

use crate::attempts::Attempts;
use crate::cache_watch::{answered, is_needed};
use crate::caches::{self, NodeCache, Wish};
use crate::drives::{self, NodeDrive};
use crate::node::NodeInner;

/// How often the bindings are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long nothing may be moved while a drive is emptied, before that is given up for now.
const DRAIN_PAUSE_MAX: Duration = Duration::from_secs(60);

/// How long somebody waits for a cache drive to be let go of; it goes on without that one.
const LET_GO_MAX: Duration = Duration::from_secs(5);

/// Why nothing can be moved to a drive.
const NOT_IN_USE: &str = "it is not in use";

/// What is being done with the bindings of a node.
#[derive(Default)]
pub(crate) struct Bindings {
    /// Whoever changes bindings, or gives cache drives up, has it.
    pub(crate) changing: Lock,
    /// What was attempted, by where the capacity drive is, or by the identity of the cache drive.
    pub(crate) attempts: Attempts,
}

/// A cache drive, as far as it matters who is bound to it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bound {
    cache: DriveId,
    /// How many chunks each drive should have at most.
    share: u32,
    /// The drives with their chunks.
    drives: Vec<(DriveId, u32)>,
    /// The drives of the node for which there is room: what would not hold a drive's journal is none.
    has_room_for: BTreeSet<DriveId>,
    /// Those for which there is room if their whole share is free.
    has_share_for: BTreeSet<DriveId>,
}

/// The drives whose bindings are to be made anew, so that all have about as much, and to which cache drive; none if they have to
/// be unbound from where they are first. Each of them alone is a step: the best comes first. Nothing if all is well.
fn next(caches: &[Bound], unbound: &[DriveId]) -> Vec<(DriveId, Option<DriveId>)> {
    let target = |drive: DriveId| emptiest(caches, drive);
    let (to_bind, waiting): (Vec<DriveId>, Vec<DriveId>) =
        unbound.iter().partition(|drive| target(**drive).is_some());
    let mut by_fullness: Vec<&Bound> = caches.iter().collect();
    by_fullness.sort_by_key(|cache| Reverse(cache.drives.len()));
    let bound =
        by_fullness.into_iter().flat_map(|cache| cache.drives.iter().rev().map(move |of| (cache, of)));
    let is_uneven = |from: &Bound, drive: DriveId| {
        target(drive).is_some_and(|target| from.drives.len() > target.drives.len() + 1)
    };
    let to_move = bound.filter(|(cache, (drive, _))| is_uneven(cache, *drive)).map(|(_, (drive, _))| *drive);
    let steps = to_bind.into_iter().chain(to_move);
    let steps = steps.map(|drive| (drive, target(drive).map(|target| target.cache)));
    steps.chain(giving_way(caches, &waiting).into_iter().map(|drive| (drive, None))).collect()
}

/// The drives that have more than their share where that would do for one that waits, those with the most first. Nobody gives
/// way who would wait himself then.
fn giving_way(caches: &[Bound], waiting: &[DriveId]) -> Vec<DriveId> {
    let would_help = |cache: &&Bound| waiting.iter().any(|drive| cache.has_share_for.contains(drive));
    let over = caches.iter().filter(would_help).flat_map(|cache| {
        let over = cache.drives.iter().filter(|(_, chunks)| *chunks > cache.share);
        let over = over.filter(|(drive, _)| cache.has_share_for.contains(drive));
        over.map(|(drive, chunks)| (chunks - cache.share, *drive))
    });
    let mut over: Vec<(u32, DriveId)> = over.collect();
    over.sort_by_key(|(excess, _)| Reverse(*excess));
    over.into_iter().map(|(_, drive)| drive).collect()
}

/// The cache drive with room for a drive to which the fewest are bound.
fn emptiest(caches: &[Bound], drive: DriveId) -> Option<&Bound> {
    let with_room = caches.iter().filter(|cache| cache.has_room_for.contains(&drive));
    with_room.min_by_key(|cache| cache.drives.len())
}

/// Keeps the bindings of a node as they should be. Never completes.
pub(crate) async fn keep_even<P: Platform, S: StateStore>(node: Rc<NodeInner<P, S>>) {
    let platform = node.parts.platform.clone();
    loop {
        platform.sleep(LOOK_INTERVAL).await;
        if node.stopping.get() {
            continue;
        }
        let _changing = node.bindings.changing.take().await;
        node.bindings.attempts.keep_only(&wanted(&node), platform.now());
        caches::follow_removals(&node.parts, caches_known(&node).into_iter()).await;
        // What a cache drive that is to go still holds for a drive is there only as long as that drive can be attached with it.
        bring_back(&node).await;
        release_removed(&node).await;
        free_unused_areas(&node).await;
        empty_retired(&node).await;
        take_step(&node).await;
    }
}

/// Makes one binding anew, if one is to be. What cannot be made now keeps no other one.
async fn take_step<P: Platform, S: StateStore>(node: &NodeInner<P, S>) {
    let platform = &node.parts.platform;
    for (drive, target) in next_of(node) {
        let Some((location, _)) = place_of(node, drive) else { continue };
        if node.bindings.attempts.is_due(&location, platform.now()) {
            let rebinding = rebind(node, drive, target, Asked::ByNobody);
            node.bindings.attempts.make(platform, &location, rebinding).await;
            return;
        }
    }
}

/// What is to be done, as attempts at it are called: drives are to be attached, emptied or bound anew, and cache drives are
/// missed or to be let go of.
fn wanted<P: Platform, S: StateStore>(node: &NodeInner<P, S>) -> BTreeSet<String> {
    let leaving = retired(node).into_iter().flat_map(|cache| working_behind(node, cache));
    let next = next_of(node).into_iter().map(|(drive, _)| drive);
    let places = leaving.chain(next).filter_map(|drive| place_of(node, drive)).map(|(location, _)| location);
    let removed = node.parts.caches_removed.borrow();
    let absence = node.cache_watch.absence.borrow();
    let missed = absence.all(node.parts.platform.now()).map(|(cache, _)| cache);
    let caches = removed.iter().copied().chain(missed).map(|cache| cache.to_string());
    let waiting = waiting(node).into_iter().map(|(location, _)| location);
    waiting.chain(places).chain(caches).collect()
}

/// Attaches drives that can be used again: their cache drives were taken out of the cluster, have come or work again, or it did
/// not work the last time.
async fn bring_back<P: Platform, S: StateStore>(node: &NodeInner<P, S>) {
    let (attempts, platform) = (&node.bindings.attempts, &node.parts.platform);
    for (location, cache) in waiting(node) {
        let known = cache.filter(|_| attempts.is_due(&location, platform.now()));
        let known = known.and_then(|cache| cache_of(node, cache));
        // What is under way on one that hangs would be waited for.
        if let Some(known) = known
            && known.answers(platform).await.is_err()
        {
            continue;
        }
        let attaching = async {
            let attached = drives::attach_anew(node, &location, Wish::Keep).await;
            attached.map_err(|why| not_rebound(&location, why))
        };
        // It may fail again at the first write.
        attempts.make_on_trial(platform, &location, attaching).await;
    }
}

/// Where those drives are, and what each is bound to. What has failed by itself stays as it is, with a cache drive or without one.
fn waiting<P: Platform, S: StateStore>(node: &NodeInner<P, S>) -> Vec<(String, Option<DriveId>)> {
    let drives = node.drives.borrow();
    let bound_to = |drive: &Rc<NodeDrive<P>>| drive.binding.map(|binding| binding.cache);
    let can_come = |drive: &&Rc<NodeDrive<P>>| {
        let cache = bound_to(drive);
        let is_removed = cache.is_some_and(|cache| node.parts.caches_removed.borrow().contains(&cache));
        let works = || cache.and_then(|cache| cache_of(node, cache)).is_some_and(|known| known.works());
        match &drive.store {
            Ok(store) => store.failure().is_some() && (is_removed || store.has_cache_failed() && works()),
            Err(_) if cache.is_some() => is_removed || works(),
            Err(_) => drive.was_in_use,
        }
    };
    drives.iter().filter(can_come).map(|drive| (drive.location.clone(), bound_to(drive))).collect()
}

/// The cache drives that the node has, and that its drives are bound to.
fn caches_known<P: Platform, S: StateStore>(node: &NodeInner<P, S>) -> BTreeSet<DriveId> {
    let bound = node.drives.borrow();
    let bound = bound.iter().filter_map(|drive| Some(drive.binding?.cache));
    bound.chain(node.parts.caches.borrow().iter().filter_map(|cache| cache.id())).collect()
}

/// Gives back the areas of capacity drives that work without them, and of those that were taken out of the cluster, whether the
/// node had them then or not.
async fn free_unused_areas<P: Platform, S: StateStore>(node: &NodeInner<P, S>) {
    let parts = &node.parts;
    let bindings: Vec<_> = working(node).iter().map(|store| (store.drive_id(), store.binding())).collect();
    for (drive, binding) in bindings {
        caches::let_go_elsewhere(parts, drive, binding).await;
    }
    for (cache, drive) in areas_of_unknown(node) {
        if !matches!(answered(parts, parts.state.is_drive_removed(drive)).await, Ok(true)) {
            continue;
        }
        // Nobody attaches it meanwhile.
        let _attaching = node.attaching.take().await;
        if store_of(node, drive).is_some() || node.leaving.borrow().contains(&drive) {
            continue;
        }
        let Some(known) = cache_of(node, cache) else { continue };
        if let Err(why) = known.unbind(&parts.platform, drive).await {
            tracing::warn!(%drive, "a cache drive keeps room for it, though it was taken out of the pool: {why}");
        }
    }
}

/// The areas, by cache drive and capacity drive, of drives that the cluster's state does not show: not any more, or not yet.
fn areas_of_unknown<P: Platform, S: StateStore>(node: &NodeInner<P, S>) -> Vec<(DriveId, DriveId)> {
    let (caches, shown) = (node.parts.caches.borrow(), node.parts.view.drives.borrow());
    let working = caches.iter().filter(|cache| cache.works()).filter_map(|cache| cache.cache.as_ref().ok());
    let areas =
        working.flat_map(|cache| cache.bound().into_iter().map(|drive| (cache.superblock().drive, drive)));
    areas.filter(|(_, drive)| !shown.contains_key(drive)).collect()
}

/// Lets go of cache drives that were taken out of the cluster: those that work are emptied first.
async fn release_removed<P: Platform, S: StateStore>(node: &NodeInner<P, S>) {
    let platform = &node.parts.platform;
    let removed: Vec<DriveId> = node.parts.caches_removed.borrow().iter().copied().collect();
    for cache in removed {
        let Some(known) = cache_of(node, cache) else { continue };
        let releasing = release_one_removed(node, cache, &known);
        if node.bindings.attempts.make(platform, &cache.to_string(), releasing).await.is_some() {
            node.let_go.borrow_mut().push(known.location.clone());
            node.drives_changed.notify_all();
        }
    }
}

/// Lets go of one of them, unless drives are bound to it yet that work, or that could be attached with it.
async fn release_one_removed<P: Platform, S: StateStore>(
    node: &NodeInner<P, S>,
    cache: DriveId,
    known: &NodeCache<P>,
) -> Result<(), Error> {
    let works = known.answers(&node.parts.platform).await.is_ok();
    if works && let Some(location) = could_come(node, known) {
        return Err(not_rebound(&location, "it is to be attached with the one that it has first".to_owned()));
    }
    if works || !working_behind(node, cache).is_empty() {
        release_alone(node, cache, true).await?;
    }
    node.parts.caches.borrow_mut().retain(|known| known.id() != Some(cache));
    Ok(())
}

/// A drive that is not in use, has its area on this cache drive, and has not been tried in vain for long.
fn could_come<P: Platform, S: StateStore>(node: &NodeInner<P, S>, cache: &NodeCache<P>) -> Option<String> {
    let Ok(of) = &cache.cache else { return None };
    let drives = node.drives.borrow();
    let has_area = |drive: &&Rc<NodeDrive<P>>| {
        let area = drive.id().and_then(|id| of.area(id)).map(|area| area.binding());
        drive.store.is_err() && drive.binding.is_some() && area == drive.binding
    };
    let mut waiting = drives.iter().filter(has_area).map(|drive| drive.location.clone());
    waiting.find(|location| !node.bindings.attempts.are_in_vain(location))
}

/// Has a cache drive let go of that was taken out of the cluster, and waits for a moment whether that is so.
pub(crate) async fn let_go<P: Platform, S: StateStore>(node: &NodeInner<P, S>, cache: DriveId) -> LetGo {
    let Some(known) = cache_of(node, cache) else { return LetGo::NotThere };
    node.parts.caches_removed.borrow_mut().insert(cache);
    let is_gone = || cache_of(node, cache).is_none();
    let platform = &node.parts.platform;
    // Whoever keeps the bindings lets go of it: now, or when what stands there has been moved.
    let gone = before(platform, platform.now() + LET_GO_MAX, node.drives_changed.wait_until(is_gone)).await;
    match gone {
        Some(()) => LetGo::Done(known.location.clone()),
        None => LetGo::NotYet,
    }
}

/// What came of a request to let go of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LetGo {
    /// It is not used any more; it is there.
    Done(String),
    /// The node lets go of it by itself, when what stands on it has been moved.
    NotYet,
    /// The node does not have it.
    NotThere,
}

/// Has a drive leave the cache drives that are retired, if one can. What does not work stays bound: nothing can be
/// moved to it, and it is given up with the cache drive.
async fn empty_retired<P: Platform, S: StateStore>(node: &NodeInner<P, S>) {
    let behind = retired(node)
        .into_iter()
        .flat_map(|cache| working_behind(node, cache).into_iter().map(move |drive| (cache, drive)));
    for (cache, drive) in behind {
        // Somebody may have thought better of it while another drive was being moved.
        let Some((location, _)) = place_of(node, drive).filter(|_| is_retired(node, cache)) else { continue };
        let target = emptiest(&bound_of_all(node), drive).map(|emptiest| emptiest.cache);
        let leaving = rebind(node, drive, target, Asked::ToEmpty(cache));
        // One that cannot leave now keeps no other one.
        if node.bindings.attempts.make(&node.parts.platform, &location, leaving).await == Some(Rebound::Done)
        {
            return;
        }
    }
}

/// The cache drives that are to be emptied.
fn retired<P: Platform, S: StateStore>(node: &NodeInner<P, S>) -> Vec<DriveId> {
    let caches = node.parts.caches.borrow();
    caches.iter().filter(|cache| cache.is_retired.get()).filter_map(|cache| cache.id()).collect()
}

/// What came of an attempt to change a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rebound {
    Done,
    /// It is not wanted any more, and stays as it was.
    NotMeant,
}

/// Who wants a binding to be changed. Where somebody does, volumes that have one copy wait for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Nobody: all should have about as much.
    ByNobody,
    /// Somebody who has this cache drive emptied, and may think better of it.
    ToEmpty(DriveId),
    /// Somebody who waits until a cache drive is let go of.
    ToRelease,
}

impl Asked {
    fn is_meant<P: Platform, S: StateStore>(self, node: &NodeInner<P, S>) -> bool {
        match self {
            Self::ByNobody | Self::ToRelease => true,
            Self::ToEmpty(cache) => is_retired(node, cache),
        }
    }
}

/// The drives that work and are bound to a cache drive.
fn working_behind<P: Platform, S: StateStore>(node: &NodeInner<P, S>, cache: DriveId) -> Vec<DriveId> {
    let works = |drive: &&Rc<NodeDrive<P>>| {
        drive.is_bound_to(cache) && drive.store.as_ref().is_ok_and(|store| store.failure().is_none())
    };
    node.drives.borrow().iter().filter(works).filter_map(|drive| drive.id()).collect()
}

fn next_of<P: Platform, S: StateStore>(node: &NodeInner<P, S>) -> Vec<(DriveId, Option<DriveId>)> {
    let unbound: Vec<DriveId> = {
        let working = working(node).into_iter();
        working.filter(|store| store.binding().is_none()).map(|store| store.drive_id()).collect()
    };
    next(&bound_of_all(node), &unbound)
}

/// The drives of the node that work.
fn working<P: Platform, S: StateStore>(node: &NodeInner<P, S>) -> Vec<DriveStore<P>> {
    let drives = node.drives.borrow();
    let attached = drives.iter().filter_map(|drive| drive.store.as_ref().ok());
    attached.filter(|store| store.failure().is_none()).cloned().collect()
}

/// Who is bound to the cache drives that are in use, and stay so.
fn bound_of_all<P: Platform, S: StateStore>(node: &NodeInner<P, S>) -> Vec<Bound> {
    let working = working(node);
    let usable = caches::usable(&node.parts.caches.borrow());
    let bound = usable.iter().map(|cache| {
        let id = cache.superblock().drive;
        let is_bound = |(drive, _): &(DriveId, u32)| {
            let mut stores = working.iter().filter(|store| store.drive_id() == *drive);
            stores.any(|store| store.binding().is_some_and(|binding| binding.cache == id))
        };
        let share = caches::share_of(cache, working.len(), usable.len());
        let fitting = |chunks: u32| {
            let fits = |store: &&DriveStore<P>| caches::fits(cache, chunks, &store.superblock().layout);
            working.iter().filter(fits).map(DriveStore::drive_id).collect()
        };
        Bound {
            cache: id,
            share,
            drives: cache.bound_chunks().into_iter().filter(is_bound).collect(),
            has_room_for: fitting(cache.free_chunks().min(share)),
            has_share_for: fitting(share),
        }
    });
    bound.collect()
}

/// Gives a drive another binding, or takes away the one that it has: what was in its area is moved to it first.
async fn rebind<P: Platform, S: StateStore>(
    node: &NodeInner<P, S>,
    drive: DriveId,
    target: Option<DriveId>,
    asked: Asked,
) -> Result<Rebound, Error> {
    let Some((location, binding)) = place_of(node, drive) else { return Ok(Rebound::NotMeant) };
    if target.is_some() && target == binding.map(|binding| binding.cache) {
        return Ok(Rebound::Done);
    }
    let failed = |why: String| not_rebound(&location, why);
    let store = store_of(node, drive).ok_or_else(|| failed(NOT_IN_USE.to_owned()))?;
    let preparing = async {
        is_not_needed(node, drive, asked).await.map_err(failed)?;
        if binding.is_some() {
            let drained = drained(&node.parts.platform, &store, || asked.is_meant(node)).await;
            if drained.map_err(|why| not_drained(&location, why))? == Rebound::NotMeant {
                return Ok(None);
            }
            // Others may have come to need it meanwhile.
            is_not_needed(node, drive, asked).await.map_err(failed)?;
        }
        let Some(target) = target else { return Ok(Some(Wish::Change(None))) };
        let area = area_for(node, drive, target).await.map_err(failed)?;
        Ok(Some(Wish::Change(Some(area))))
    };
    let prepared = preparing.await;
    if !matches!(prepared, Ok(Some(_))) {
        store.stop_draining();
    }
    drop(store);
    let Some(wish) = prepared? else { return Ok(Rebound::NotMeant) };
    drives::attach_anew(node, &location, wish).await.map_err(failed)?;
    Ok(Rebound::Done)
}

/// An area for a drive of a cache drive that it is not bound to. That is seen to before the drive is detached.
async fn area_for<P: Platform, S: StateStore>(
    node: &NodeInner<P, S>,
    drive: DriveId,
    target: DriveId,
) -> Result<CacheArea<P::Drive>, String> {
    let cache = cache_of(node, target).ok_or("the cache drive is not there any more")?;
    let usable = caches::usable(&node.parts.caches.borrow());
    let Some(of) = usable.iter().find(|of| of.superblock().drive == target) else {
        return Err("the cache drive is not used any more".to_owned());
    };
    let capacity_drives = node.parts.replica.drives().len();
    let share = caches::share_of(of, capacity_drives, usable.len());
    let current = place_of(node, drive).and_then(|(_, binding)| binding);
    let bound = cache.bind(&node.parts.platform, drive, current, share).await;
    bound.map_err(|why| format!("the cache drive gives it no area: {why}"))
}

/// Whether all that is on a drive is whole elsewhere, on drives that are there: then nobody waits while it is away. Where
/// somebody has asked, what has no other copies counts as well: it would never be. The cluster's state must answer in any case:
/// a drive is not attached without it.
async fn is_not_needed<P: Platform, S: StateStore>(
    node: &NodeInner<P, S>,
    drive: DriveId,
    asked: Asked,
) -> Result<(), String> {
    let parts = &node.parts;
    let store = store_of(node, drive).ok_or(NOT_IN_USE)?;
    let (volumes, is_unbound) = (store.volumes(), store.binding().is_none());
    drop(store);
    answered(parts, parts.state.stamp()).await.map_err(|error| error.why)?;
    for volume in volumes {
        let membership = answered(parts, parts.state.membership(volume)).await.map_err(|error| error.why)?;
        let Some(membership) = membership else { continue };
        let is_alone = membership.record.copies == 1;
        if is_alone && asked != Asked::ByNobody || !is_needed(parts, &membership, &[drive].into()) {
            continue;
        }
        return Err(match is_alone {
            true => alone(&membership.record.name, is_unbound),
            false => "nobody else has whole copies of all that is on it".to_owned(),
        });
    }
    Ok(())
}

/// Why a drive stays as it is that has the only copy of a volume, and what helps.
fn alone(volume: &str, is_unbound: bool) -> String {
    let helps = if is_unbound { "; it gets a cache drive when its node is restarted" } else { "" };
    format!("the volume {volume} has one copy, which is on it and would be away for a moment{helps}")
}

/// Moves all that is in the area of a drive to it, as long as that goes on and is meant.
async fn drained<P: Platform>(
    platform: &P,
    store: &DriveStore<P>,
    is_meant: impl Fn() -> bool,
) -> Result<Rebound, String> {
    let mut draining = std::pin::pin!(store.drain_cache());
    let (mut left_before, mut moved_at) = (u32::MAX, platform.now());
    loop {
        match before(platform, platform.now() + LOOK_INTERVAL, draining.as_mut()).await {
            Some(Ok(0)) => return Ok(Rebound::Done),
            Some(Ok(left)) => {
                return Err(format!(
                    "{left} blocks on the cache drive cannot be moved: there is no room, or they are damaged"
                ));
            }
            Some(Err(error)) => return Err(error.to_string()),
            None if !is_meant() => return Ok(Rebound::NotMeant),
            None => {}
        }
        let left = store.cache_use().blocks_dirty;
        if left < left_before {
            (left_before, moved_at) = (left, platform.now());
        } else if platform.now().since(moved_at) > DRAIN_PAUSE_MAX {
            return Err(format!(
                "nothing of {left} blocks on the cache drive was moved for {} s",
                DRAIN_PAUSE_MAX.as_secs()
            ));
        }
    }
}

/// The store of a drive of the node that is in use.
fn store_of<P: Platform, S: StateStore>(node: &NodeInner<P, S>, drive: DriveId) -> Option<DriveStore<P>> {
    let drives = node.drives.borrow();
    let known = drives.iter().find(|known| known.id() == Some(drive));
    known.and_then(|known| known.store.as_ref().ok()).cloned()
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
    let next = "look at the drive with `spandrel explain drive`; it is tried again";
    Error::new("CACHE_NOT_CHANGED", format!("drive {location} does not get another cache drive"), why, next)
}

fn not_drained(location: &str, why: String) -> Error {
    let next = "look at the drive with `spandrel explain drive`; where blocks are damaged, `spandrel scrub` heals them; where \
                there is no room, add drives or delete volumes; it is tried again";
    let what = format!("drive {location} keeps what it has on its cache drive");
    Error::new("CACHE_NOT_DRAINED", what, why, next)
}

fn cache_of<P: Platform, S: StateStore>(node: &NodeInner<P, S>, cache: DriveId) -> Option<Rc<NodeCache<P>>> {
    node.parts.caches.borrow().iter().find(|known| known.id() == Some(cache)).cloned()
}

fn is_retired<P: Platform, S: StateStore>(node: &NodeInner<P, S>, cache: DriveId) -> bool {
    cache_of(node, cache).is_some_and(|known| known.is_retired.get())
}

/// See [`Node::release_cache`](crate::Node::release_cache).
pub(crate) async fn release<P: Platform, S: StateStore>(
    node: &NodeInner<P, S>,
    drive: DriveId,
) -> Result<bool, Error> {
    let _changing = node.bindings.changing.take().await;
    release_alone(node, drive, false).await
}

/// The same. Once it was taken out of the cluster, what it holds for drives that do not work counts for nothing.
async fn release_alone<P: Platform, S: StateStore>(
    node: &NodeInner<P, S>,
    drive: DriveId,
    is_removed: bool,
) -> Result<bool, Error> {
    let Some(cache) = cache_of(node, drive) else { return Ok(false) };
    let Ok(of) = &cache.cache else { return Ok(false) };
    cache.leaves.set(true);
    let outcome = async {
        let working = working_behind(node, drive);
        for bound in of.bound().into_iter().filter(|bound| !is_removed || working.contains(bound)) {
            if place_of(node, bound).is_none() {
                let why = "it is not there, and its area may hold data".to_owned();
                return Err(not_rebound(&bound.to_string(), why));
            }
            rebind(node, bound, None, Asked::ToRelease).await?;
        }
        Ok(())
    };
    if let Err(error) = outcome.await {
        cache.leaves.set(is_removed);
        return Err(error);
    }
    node.parts.caches.borrow_mut().retain(|known| known.id() != Some(drive));
    node.drives_changed.notify_all();
    Ok(true)
}

#[cfg(test)]
#[path = "rebinding_tests.rs"]
mod tests;
