//! What a node sees of its cache drives: which are on their way out, dead or missing, which have been full for long, and which
//! drives have gone without one. Those that are missed for too long are given up.
//!
//! A cache drive that is gone keeps the drives bound to it from being used, as it may come back. It is waited for as long as
//! any drive of the pool that is away; then what it held alone is given up, and these drives are brought up to date from other
//! nodes.
//!
//! Invariants:
//! - Nothing is given up of which nobody else has a whole copy, on a drive that is there.
//! - Only the node itself gives its cache drives up: while it is down nobody knows how they are, and nothing would be gained.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use spandrel_cluster::store::StateStore;
use spandrel_cluster::{DriveState, StateError, VolumeMembership};
use spandrel_platform::{Instant, Platform, before};
use spandrel_shared::{DriveId, Error};

use crate::absence::{Absence, Known};
use crate::caches::{self, ANSWER_TIME_MAX};
use crate::node::NodeInner;
use crate::parts::NodeParts;
use crate::stubborn::state_error;

/// How often it is looked.
const INTERVAL: Duration = Duration::from_secs(1);

/// An area that was full counts as full until less of it is in use, per mille: it is emptied while clients fill it.
const FULL_UNTIL_PER_MILLE: u64 = 700;

/// What was seen so far.
#[derive(Default)]
pub(crate) struct CacheWatch {
    /// Since when cache drives of this node have been away.
    pub(crate) absence: RefCell<Absence>,
    /// Since when there has been hardly room in the areas of these drives.
    full: RefCell<BTreeMap<DriveId, Instant>>,
    /// Since when these drives have gone without a cache drive, though the node has one.
    without: RefCell<BTreeMap<DriveId, Instant>>,
}

impl CacheWatch {
    /// For how long the area of a drive has been full.
    pub(crate) fn full(&self, drive: DriveId, now: Instant) -> Option<Duration> {
        self.full.borrow().get(&drive).map(|since| now.since(*since))
    }

    /// For how long a drive has gone without a cache drive, though the node has one.
    pub(crate) fn without(&self, drive: DriveId, now: Instant) -> Option<Duration> {
        self.without.borrow().get(&drive).map(|since| now.since(*since))
    }
}

/// Watches the cache drives of a node. Never completes.
pub(crate) async fn keep_watching<P: Platform, S: StateStore>(node: Rc<NodeInner<P, S>>) {
    let platform = node.parts.platform.clone();
    loop {
        platform.sleep(INTERVAL).await;
        if node.stopping.get() {
            continue;
        }
        follow_decisions(&node);
        look_at_troubled(&node).await;
        let now = platform.now();
        note_absence(&node, now);
        note_use(&node, now);
        give_up_missed(&node, now).await;
    }
}

/// Takes note of which cache drives are on their way out.
fn follow_decisions<P: Platform, S: StateStore>(node: &NodeInner<P, S>) {
    let known = node.parts.view.caches.borrow();
    for cache in node.parts.caches.borrow().iter() {
        if let Some(stored) = cache.id().and_then(|id| known.get(&id)) {
            cache.is_retired.set(stored.record.state != DriveState::Active);
        }
    }
}

/// Asks those cache drives whether they work behind which a drive has failed, or that did not do what they were asked before.
async fn look_at_troubled<P: Platform, S: StateStore>(node: &NodeInner<P, S>) {
    let platform = &node.parts.platform;
    let caches = node.parts.caches.borrow().clone();
    for known in caches {
        let (Some(id), true) = (known.id(), known.cache.is_ok()) else { continue };
        if known.failure().is_none() && !has_failed_behind(node, id) {
            continue;
        }
        let trouble = known.answers(platform).await.err();
        if let (Some(trouble), None) = (&trouble, &*known.trouble.borrow()) {
            tracing::error!(location = known.location, "the cache drive does not work any more: {trouble}");
        }
        known.trouble.replace(trouble);
    }
}

fn has_failed_behind<P: Platform, S: StateStore>(node: &NodeInner<P, S>, cache: DriveId) -> bool {
    let drives = node.drives.borrow();
    let mut behind = drives.iter().filter(|drive| drive.is_bound_to(cache));
    // One that could not be attached may lack it, too.
    behind.any(|drive| drive.store.as_ref().map_or(true, |store| store.failure().is_some()))
}

fn note_absence<P: Platform, S: StateStore>(node: &NodeInner<P, S>, now: Instant) {
    let parts = &node.parts;
    let caches = parts.caches.borrow();
    let works = |drive: DriveId| {
        let known = caches.iter().find(|cache| cache.id() == Some(drive));
        known.is_some_and(|cache| cache.works())
    };
    let own: Vec<Known> = {
        let known = parts.view.caches.borrow();
        let own = known.iter().filter(|(_, stored)| stored.record.node == parts.node());
        let known = own.map(|(drive, stored)| Known {
            drive: *drive,
            node: parts.node(),
            is_active: stored.record.state == DriveState::Active,
            is_away: !works(*drive),
        });
        known.collect()
    };
    node.cache_watch.absence.borrow_mut().note_all(&own, &parts.view, now);
}

fn note_use<P: Platform, S: StateStore>(node: &NodeInner<P, S>, now: Instant) {
    let has_caches = !caches::usable(&node.parts.caches.borrow()).is_empty();
    let (mut full, mut without) = (BTreeMap::new(), BTreeMap::new());
    let watch = &node.cache_watch;
    for store in node.parts.replica.drives().iter().filter(|store| store.failure().is_none()) {
        let drive = store.drive_id();
        let since =
            |known: &RefCell<BTreeMap<DriveId, Instant>>| known.borrow().get(&drive).copied().unwrap_or(now);
        if store.binding().is_none() {
            if has_caches {
                without.insert(drive, since(&watch.without));
            }
            continue;
        }
        let used = store.cache_use();
        let was_full = watch.full.borrow().contains_key(&drive);
        if used.spills() || was_full && used.used_per_mille() > FULL_UNTIL_PER_MILLE {
            full.insert(drive, since(&watch.full));
        }
    }
    watch.full.replace(full);
    watch.without.replace(without);
}

/// Gives cache drives up that are away for too long, and for which drives wait.
async fn give_up_missed<P: Platform, S: StateStore>(node: &NodeInner<P, S>, now: Instant) {
    // Nothing is missed as long as it is not known how long it is waited for.
    let Some(settings) = node.parts.view.settings() else { return };
    let missed = node.cache_watch.absence.borrow().too_long(&settings, now);
    for cache in missed {
        let name = cache.to_string();
        if !has_waiting(node, cache) {
            continue;
        }
        // As long as bindings are being changed, it is not certain who is bound to it.
        let Some(_changing) = node.bindings.changing.try_take() else { return };
        node.bindings.attempts.make(&node.parts.platform, &name, give_up(node, cache)).await;
    }
}

/// Whether a drive of the node is not in use, and waits for a cache drive.
fn has_waiting<P: Platform, S: StateStore>(node: &NodeInner<P, S>, cache: DriveId) -> bool {
    let drives = node.drives.borrow();
    let mut behind = drives.iter().filter(|drive| drive.is_bound_to(cache));
    behind.any(|drive| {
        !drive.is_being_attached() && drive.store.as_ref().map_or(true, |store| store.failure().is_some())
    })
}

/// The drives of the node that are bound to a cache drive, or of which it is not known that they are not. The error is one that
/// is bound to it and works.
fn behind<P: Platform, S: StateStore>(
    node: &NodeInner<P, S>,
    cache: DriveId,
) -> Result<BTreeSet<DriveId>, DriveId> {
    let parts = &node.parts;
    let drives = node.drives.borrow();
    let mut behind = BTreeSet::new();
    for (id, stored) in parts.view.drives.borrow().iter() {
        if stored.record.node != parts.node() {
            continue;
        }
        let known = drives.iter().find(|drive| drive.id() == Some(*id));
        let bound_to = known.and_then(|drive| drive.binding).map(|binding| binding.cache);
        let works =
            known.is_some_and(|drive| drive.store.as_ref().is_ok_and(|store| store.failure().is_none()));
        let was_in_use = known.is_some_and(|drive| drive.store.is_ok());
        match bound_to {
            Some(bound_to) if bound_to == cache && works => return Err(*id),
            Some(bound_to) if bound_to == cache => _ = behind.insert(*id),
            Some(_) => {}
            // One that was attached says that it is bound to none; of any other one nobody knows.
            None if was_in_use => {}
            None => _ = behind.insert(*id),
        }
    }
    Ok(behind)
}

async fn give_up<P: Platform, S: StateStore>(node: &NodeInner<P, S>, cache: DriveId) -> Result<(), Error> {
    let parts = &node.parts;
    // Whatever changes of it from here on, as by an attach, keeps it from being given up.
    let Some(seen) = answered(parts, parts.state.cache_drive(cache)).await? else { return Ok(()) };
    let name = seen.record.name.clone().unwrap_or_else(|| cache.to_string());
    let needed = |why: String| {
        let next = "bring it back, or bring back the other copies; it is looked at again";
        Error::new("CACHE_NEEDED", format!("the cache drive {name} is not given up"), why, next)
    };
    let behind = behind(node, cache).map_err(|drive| needed(format!("the drive {drive} works with it")))?;
    for volume in answered(parts, parts.state.volumes()).await?.into_keys() {
        let Some(membership) = answered(parts, parts.state.membership(volume)).await? else { continue };
        if membership.record.generation != parts.cluster.generation {
            return Err(needed(
                "the cluster's state was put back, and not all copies were compared yet".to_owned(),
            ));
        }
        if is_needed(parts, &membership, &behind) {
            let why = format!(
                "nobody else has whole copies of all that the drives bound to it hold of {}",
                membership.record.name
            );
            return Err(needed(why));
        }
    }
    if answers(node, cache).await {
        return Err(needed("it answers again".to_owned()));
    }
    let today_ms = parts.platform.unix_time().0;
    // Not once more without another look: what was true before may not be then.
    answered(parts, parts.state.remove_cache_drive(cache, &seen, &name, today_ms)).await?;
    tracing::warn!(
        "the cache drive {name} was away for too long, and is given up: the drives bound to it go on without it, and are \
         brought up to date from other nodes"
    );
    Ok(())
}

/// What the cluster's state answers, if it does so soon.
pub(crate) async fn answered<P: Platform, S: StateStore, T>(
    parts: &NodeParts<P, S>,
    asked: impl Future<Output = Result<T, StateError>>,
) -> Result<T, Error> {
    match before(&parts.platform, parts.platform.now() + ANSWER_TIME_MAX, asked).await {
        Some(answer) => answer.map_err(state_error),
        None => Err(Error::new(
            "STATE_UNAVAILABLE",
            "the cache drives stay as they are",
            "the cluster's state does not answer",
            "nothing: it is asked again",
        )),
    }
}

/// Whether a cache drive that was taken for dead is one that can be used.
async fn answers<P: Platform, S: StateStore>(node: &NodeInner<P, S>, cache: DriveId) -> bool {
    let known = node.parts.caches.borrow().iter().find(|known| known.id() == Some(cache)).cloned();
    match known {
        Some(known) => known.answers(&node.parts.platform).await.is_ok(),
        None => false,
    }
}

/// Whether nobody but these drives has a whole copy of some part of a volume, on a drive that is there.
pub(crate) fn is_needed<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    membership: &VolumeMembership,
    drives: &BTreeSet<DriveId>,
) -> bool {
    let is_there = |drive: DriveId| {
        let node = membership.nodes.get(&drive);
        node.is_some_and(|node| parts.view.shows_drive(*node, drive)) && !membership.lost.contains(&drive)
    };
    membership.sets.iter().any(|set| {
        let mut others = set.members.iter().filter(|member| !drives.contains(&member.drive));
        let concerns = set.members.iter().any(|member| !member.building && drives.contains(&member.drive));
        concerns && !others.any(|member| membership.is_in_sync(member) && is_there(member.drive))
    })
}
