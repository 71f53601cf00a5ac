//! The cache drives of a node, and which capacity drives are bound to them.
//!
//! Each capacity drive is bound to one cache drive, so that all of them have about as many. It stays bound until somebody
//! says otherwise: what its area holds stands nowhere else on this node.
//!
//! Invariants:
//! - A capacity drive is attached with the area that it is bound to, or not at all, as long as the cluster's state knows the
//!   cache drive. Once that is not part of the cluster any more, what was there alone is lost on this node, and the drive goes
//!   on without it.
//! - A cache drive's attach number is raised on the drive and in the cluster's state before an area of it is used.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use spandrel_cluster::store::StateStore;
use spandrel_cluster::{DriveRecord, DriveRole, DriveState, MediaClass, SettingsRecord};
use spandrel_drive::{
    AttachError, Binding, CacheArea, CacheChoice, CacheDrive, CacheFormatOptions, CacheSuperblock,
    DriveStore, Layout, Superblock,
};
use spandrel_platform::sync::{Lock, oneshot};
use spandrel_platform::{Drive, Platform, before};
use spandrel_shared::{BLOCK_BYTES, CacheMode, DriveId, Error};

use crate::drives::{know_drive, refusal};
use crate::parts::NodeParts;
use crate::stubborn::retry;

/// How long a cache drive, and whoever decides what becomes of it, may take to answer.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Why a cache drive does not work that has said nothing for that long.
const NO_ANSWER: &str = "it does not answer";

/// A cache drive that was given to the node.
pub(crate) struct NodeCache<P: Platform> {
    /// Where it is.
    pub(crate) location: String,
    pub(crate) size_bytes: u64,
    /// Who it says it is; `None` if it cannot say.
    pub(crate) superblock: Option<CacheSuperblock>,
    /// The drive, or why it is not used.
    pub(crate) cache: Result<CacheDrive<P>, String>,
    /// Whether it is to be taken out: nobody is bound to it any more.
    pub(crate) leaves: Cell<bool>,
    /// Whether it could not note who is bound to it: nobody is bound to it any more until it answers again.
    pub(crate) is_failing: Cell<bool>,
    /// Whether it was decided that it is taken out of use: nobody is bound to it any more, and who is leaves it.
    pub(crate) is_retired: Cell<bool>,
    /// Why it does not work any more, if it has died since it was attached.
    pub(crate) trouble: RefCell<Option<String>>,
    /// Whoever changes who is bound to it has it.
    changing: Rc<Lock>,
}

impl<P: Platform> NodeCache<P> {
    /// One that is not used, with the reason.
    pub(crate) fn unused(
        location: &str,
        size_bytes: u64,
        superblock: Option<CacheSuperblock>,
        why: String,
    ) -> Self {
        tracing::error!(location, "the cache drive is not used: {why}");
        Self::new(location, size_bytes, superblock, Err(why))
    }

    fn new(
        location: &str,
        size_bytes: u64,
        superblock: Option<CacheSuperblock>,
        cache: Result<CacheDrive<P>, String>,
    ) -> Self {
        let location = location.to_owned();
        Self {
            location,
            size_bytes,
            superblock,
            cache,
            leaves: Cell::default(),
            is_failing: Cell::default(),
            is_retired: Cell::default(),
            trouble: RefCell::default(),
            changing: Rc::default(),
        }
    }

    /// Why it is not used, or not for more drives, if it is not.
    pub(crate) fn failure(&self) -> Option<String> {
        let is_failing = || {
            let why = "it could not note who is bound to it, and is given to no further drive until it answers again";
            self.is_failing.get().then(|| why.to_owned())
        };
        self.cache.as_ref().err().cloned().or_else(|| self.trouble.borrow().clone()).or_else(is_failing)
    }

    /// Whether it works, as it was seen last.
    pub(crate) fn works(&self) -> bool {
        self.cache.is_ok() && self.trouble.borrow().is_none()
    }

    /// Whether it works: asks the drive. The error says why it does not.
    pub(crate) async fn answers(&self, platform: &P) -> Result<(), String> {
        let cache = self.cache.as_ref().map_err(Clone::clone)?;
        let answer = before(platform, platform.now() + ANSWER_TIME_MAX, cache.check()).await;
        answer.ok_or(NO_ANSWER)?.map_err(|error| error.to_string())?;
        // As long as a change that took too long goes on, it is not known who is bound to it.
        if self.changing.try_take().is_some() {
            self.is_failing.set(false);
        }
        Ok(())
    }

    /// Changes who is bound to it. A change that takes too long goes on, and none overtakes it; those that have not begun by
    /// then are not made. Who is given an area then does not know of it, and gets it, or gives it back, later.
    async fn change<T: 'static>(
        &self,
        platform: &P,
        change: impl Future<Output = Result<T, AttachError>> + 'static,
    ) -> Result<T, String> {
        let (sender, changed) = oneshot();
        let (changing, is_given_up) = (Rc::clone(&self.changing), Rc::new(Cell::new(false)));
        let is_unwanted = Rc::clone(&is_given_up);
        platform.spawn(async move {
            let _changing = changing.take().await;
            if !is_unwanted.get() {
                sender.send(change.await);
            }
        });
        match before(platform, platform.now() + ANSWER_TIME_MAX, changed).await.flatten() {
            Some(Ok(changed)) => Ok(changed),
            Some(Err(error)) => {
                // That it has no room is no fault of it.
                self.is_failing.set(self.is_failing.get() || matches!(error, AttachError::Drive(_)));
                Err(error.to_string())
            }
            None => {
                is_given_up.set(true);
                self.is_failing.set(true);
                Err(NO_ANSWER.to_owned())
            }
        }
    }

    /// Gives a drive an area on which it has none that counts: one that another attempt has left is given back. `current` is
    /// what the drive is bound to now.
    pub(crate) async fn bind(
        &self,
        platform: &P,
        capacity: DriveId,
        current: Option<Binding>,
        chunks: u32,
    ) -> Result<CacheArea<P::Drive>, String> {
        let cache = self.cache.clone()?;
        self.change(platform, async move { bind_anew(&cache, capacity, current, chunks).await }).await
    }

    /// Gives back the area of a drive, which must not be in use.
    pub(crate) async fn unbind(&self, platform: &P, capacity: DriveId) -> Result<(), String> {
        let cache = self.cache.clone()?;
        self.change(platform, async move { cache.unbind(capacity).await }).await
    }

    /// Its identity, if it can say.
    pub(crate) fn id(&self) -> Option<DriveId> {
        self.superblock.as_ref().map(|superblock| superblock.drive)
    }
}

/// The same as [`map_bytes_max`] before anything is attached, when what is set may not have been seen yet. What cannot be read
/// keeps no drive from being used.
pub(crate) async fn map_bytes_max_at_attach<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    drives: usize,
) -> Option<u64> {
    if let Some(settings) = parts.view.settings() {
        return map_bytes_max(&settings, drives);
    }
    match retry(parts, || parts.state.settings()).await {
        Ok(stored) => stored.and_then(|stored| map_bytes_max(&stored.record, drives)),
        Err(error) => {
            tracing::warn!("{error}; until that is known, all maps are in memory");
            None
        }
    }
}

/// How many bytes of its maps each of so many drives of a node may have in memory; all of them if none.
fn map_bytes_max(settings: &SettingsRecord, drives: usize) -> Option<u64> {
    let bytes = settings.map_memory_bytes / drives.max(1) as u64;
    (settings.map_memory_bytes > 0).then_some(bytes)
}

/// Has the cache drives do what is set for the drives that are bound to them, and keeps copies of what is read in as much
/// memory as is set: each drive has the same part of it.
pub(crate) fn follow_settings<P: Platform, S: StateStore>(parts: &NodeParts<P, S>) {
    let Some(settings) = parts.view.settings() else { return };
    let stores = parts.replica.drives();
    // Those that are away for a moment keep their part.
    let own = parts.view.drives.borrow().values().filter(|stored| stored.record.node == parts.node()).count();
    let own = own.max(stores.len());
    let memory_bytes = settings.memory_cache_bytes / own.max(1) as u64;
    let map_bytes_max = map_bytes_max(&settings, own);
    for store in &stores {
        store.set_memory_cache(memory_bytes);
        store.allow_map_memory(map_bytes_max);
    }
    for store in parts.replica.drives().into_iter().filter(|store| store.binding().is_some()) {
        let media = parts.view.drives.borrow().get(&store.drive_id()).and_then(|stored| stored.record.media);
        store.set_spinning(media == Some(MediaClass::Hdd));
        let mode = mode_for(media, &settings);
        if store.cache_mode() != mode {
            tracing::info!(drive = %store.drive_id(), "its cache is used {mode} from now on");
            store.set_cache_mode(mode);
        }
    }
}

/// Has the cache drive of a drive that was attached do what is set, before clients ask anything of it: what they write must not
/// stand there alone where that is not wanted.
pub(crate) async fn set_first_mode<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    store: &DriveStore<P>,
    media: Option<MediaClass>,
) {
    if store.binding().is_none() {
        return;
    }
    let settings = match parts.view.settings() {
        Some(settings) => Ok(settings),
        None => {
            let settings = retry(parts, || parts.state.settings()).await;
            settings.map(|stored| stored.map(|stored| stored.record).unwrap_or_default())
        }
    };
    match settings {
        Ok(settings) => store.set_cache_mode(mode_for(media, &settings)),
        Err(error) => {
            tracing::error!("it is not known how the cache of {} is to be used: {error}", store.drive_id())
        }
    }
}

/// What a cache drive does for a capacity drive of this kind.
fn mode_for(media: Option<MediaClass>, settings: &SettingsRecord) -> CacheMode {
    match media {
        Some(MediaClass::Hdd) => settings.cache_mode_hdd,
        Some(MediaClass::Nvme | MediaClass::Ssd) | None => settings.cache_mode_ssd,
    }
}

/// Formats a cache drive if it is empty, and attaches it.
pub(crate) async fn join<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    location: &str,
    drive: P::Drive,
    superblock: Option<CacheSuperblock>,
    media: Option<MediaClass>,
) -> Result<NodeCache<P>, Error> {
    let platform = &parts.platform;
    let size_bytes = drive.geometry().size_bytes;
    let superblock = match superblock {
        Some(superblock) => superblock,
        None => {
            let options = CacheFormatOptions {
                cluster: parts.cluster.id,
                node: parts.node(),
                drive: DriveId::from_random(platform.random_u64(), platform.random_u64()),
            };
            CacheDrive::format(platform, &drive, options).await.map_err(|error| refusal(location, &error))?
        }
    };
    let unusable = |why: String| NodeCache::unused(location, size_bytes, Some(superblock.clone()), why);
    let size_on_drive = superblock.layout.size_blocks * BLOCK_BYTES as u64;
    let record = DriveRecord::new(parts.node(), DriveRole::Cache, size_on_drive, media);
    let known = match know_drive(parts, superblock.drive, record).await {
        // Nobody has told this node to forget it: it was away then.
        Err(error) if error.code == "DRIVE_REMOVED" => {
            let why = format!("{}: {}", error.why, error.next);
            return Ok(match leaving(platform, drive).await {
                Some(cache) => {
                    let cache = NodeCache::new(location, size_bytes, Some(superblock), Ok(cache));
                    cache.leaves.set(true);
                    cache
                }
                None => unusable(why),
            });
        }
        known => known?,
    };
    let cache = match CacheDrive::attach(platform, drive, known.attach_number).await {
        Ok(cache) => cache,
        Err(error @ (AttachError::Old { .. } | AttachError::Damaged(_) | AttachError::Drive(_))) => {
            return Ok(unusable(error.to_string()));
        }
        Err(error) => return Err(refusal(location, &error)),
    };
    let number = cache.attach_number();
    let noted =
        retry(parts, || parts.state.note_attach(superblock.drive, DriveRole::Cache, parts.node(), number));
    match noted.await {
        Ok(_) => {
            let cache = NodeCache::new(location, size_bytes, Some(superblock), Ok(cache));
            cache.is_retired.set(known.state != DriveState::Active);
            Ok(cache)
        }
        Err(error) => Ok(unusable(error.to_string())),
    }
}

/// A cache drive that was taken out of the cluster, if drives may have something there yet: it is used until that was moved.
/// Nobody knows any more how often it was attached; each drive tells by its journal whether its area is the right one.
async fn leaving<P: Platform>(platform: &P, drive: P::Drive) -> Option<CacheDrive<P>> {
    match CacheDrive::attach(platform, drive, 0).await {
        Ok(cache) if !cache.bound().is_empty() => Some(cache),
        Ok(_) | Err(_) => None,
    }
}

/// What becomes of the binding of a drive that is attached.
#[derive(Clone)]
pub(crate) enum Wish<D> {
    /// It stays as it is; a drive without one gets one if there is room.
    Keep,
    /// The drive lets go of the area that it has, which is empty, and goes on with this one, or without any.
    Change(Option<CacheArea<D>>),
}

/// With which area a capacity drive is attached; or why it cannot be, as what it holds is only whole with a cache drive that
/// is not there. `capacity_drives` is how many this node has.
pub(crate) async fn choose<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    capacity: &Superblock,
    binding: Result<Option<Binding>, String>,
    wish: Wish<P::Drive>,
    capacity_drives: usize,
) -> Result<Result<CacheChoice<P::Drive>, String>, Error> {
    let caches = parts.caches.borrow().clone();
    // A drive of which no root can be read is refused with that, and stays bound to whatever it is.
    let Ok(binding) = binding else { return Ok(Ok(CacheChoice::None)) };
    let bind = || bind(&parts.platform, &caches, capacity, capacity_drives);
    let Some(binding) = binding else {
        let area = match wish {
            Wish::Change(next) => next,
            Wish::Keep => bind().await,
        };
        return Ok(Ok(area.map_or(CacheChoice::None, CacheChoice::Bound)));
    };
    let not_used = |why: String| {
        Err(format!(
            "what it holds is only whole together with the cache drive {}, which is not used: {why}",
            binding.cache
        ))
    };
    let present = caches.iter().find(|cache| cache.id() == Some(binding.cache));
    if let Some((known, cache)) = present.and_then(|present| Some((present, present.cache.as_ref().ok()?))) {
        // One that hangs would be waited for by whoever attaches drives, for ever.
        if let Err(why) = known.answers(&parts.platform).await {
            return Ok(not_used(why));
        }
        return Ok(Ok(match (cache.area(capacity.drive), wish) {
            (Some(area), Wish::Keep) if area.binding() == binding => CacheChoice::Bound(area),
            (Some(area), Wish::Change(None)) if area.binding() == binding => CacheChoice::Unbind(area),
            (Some(area), Wish::Change(Some(next))) if area.binding() == binding => {
                CacheChoice::Move(area, next)
            }
            // The area was given up, and the drive has not been attached since.
            _ => CacheChoice::Lost(bind().await),
        }));
    }
    if retry(parts, || parts.state.is_drive_removed(binding.cache)).await? {
        tracing::warn!(
            drive = %capacity.drive,
            "the cache drive {} that it was bound to was taken out of the cluster: what was there alone is brought back from \
             other nodes",
            binding.cache
        );
        return Ok(Ok(CacheChoice::Lost(bind().await)));
    }
    Ok(not_used(match present.map(|present| &present.cache) {
        Some(Err(why)) => why.clone(),
        _ => "it is not there".to_owned(),
    }))
}

/// Gives a capacity drive an area of the cache drive to which the fewest are bound. `None` if there is none with room.
async fn bind<P: Platform>(
    platform: &P,
    caches: &[Rc<NodeCache<P>>],
    capacity: &Superblock,
    capacity_drives: usize,
) -> Option<CacheArea<P::Drive>> {
    let usable = usable(caches);
    // One that was given to it already, but for a drive that was not attached after that.
    let former = usable.iter().find_map(|cache| cache.area(capacity.drive));
    if let Some(former) = former.filter(|area| capacity.layout.with_area(area.blocks(), 512).is_some()) {
        return Some(former);
    }
    let room =
        |cache: &CacheDrive<P>| cache.free_chunks().min(share_of(cache, capacity_drives, usable.len()));
    let mut with_room: Vec<_> =
        usable.iter().filter(|cache| fits(cache, room(cache), &capacity.layout)).collect();
    with_room.sort_by_key(|cache| (cache.bound().len(), cache.superblock().drive));
    for cache in with_room {
        let known = caches.iter().find(|known| known.id() == Some(cache.superblock().drive))?;
        // The drive is bound to none, or what it was bound to counts for nothing any more.
        match known.bind(platform, capacity.drive, None, room(cache)).await {
            Ok(area) => return Some(area),
            Err(why) => tracing::warn!(drive = %capacity.drive, "it gets no part of a cache drive: {why}"),
        }
    }
    None
}

/// See [`NodeCache::bind`].
async fn bind_anew<P: Platform>(
    cache: &CacheDrive<P>,
    capacity: DriveId,
    current: Option<Binding>,
    chunks: u32,
) -> Result<CacheArea<P::Drive>, AttachError> {
    let former = cache.area(capacity).map(|area| area.binding());
    if former.is_some() && former == current {
        return Err(AttachError::Cache("the drive is bound to this cache drive already".to_owned()));
    }
    if former.is_some() {
        cache.unbind(capacity).await?;
    }
    cache.bind(capacity, chunks).await
}

/// Whether so many chunks of a cache drive hold the journal of a drive, and something beside it.
pub(crate) fn fits<P: Platform>(cache: &CacheDrive<P>, chunks: u32, layout: &Layout) -> bool {
    let of = &cache.superblock().layout;
    let blocks = u64::from(chunks) * u64::from(of.chunk_blocks);
    layout.with_area(blocks, of.sector_bytes).is_some()
}

/// Gives back what cache drives keep for a drive that has been attached without it.
pub(crate) async fn let_go_elsewhere<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    capacity: DriveId,
    binding: Option<Binding>,
) {
    let caches = parts.caches.borrow().clone();
    for known in caches.iter().filter(|known| known.works()) {
        let area = known.cache.as_ref().ok().and_then(|cache| cache.area(capacity));
        let is_stale = area.is_some_and(|area| Some(area.binding()) != binding);
        if is_stale && let Err(why) = known.unbind(&parts.platform, capacity).await {
            tracing::warn!(drive = %capacity, "a cache drive keeps room for it that it does not use: {why}");
        }
    }
}

/// Notes which of these cache drives were taken out of the cluster. The state is asked about those alone that it does not show
/// any more, or not yet.
pub(crate) async fn follow_removals<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    caches: impl Iterator<Item = DriveId>,
) {
    for cache in caches {
        let is_shown = parts.view.caches.borrow().contains_key(&cache);
        let is_known = parts.caches_removed.borrow().contains(&cache);
        if !is_shown && !is_known && matches!(parts.state.is_drive_removed(cache).await, Ok(true)) {
            tracing::warn!(%cache, "the cache drive was taken out of the cluster");
            parts.caches_removed.borrow_mut().insert(cache);
        }
    }
}

/// The cache drives that are in use, and stay so.
pub(crate) fn usable<P: Platform>(caches: &[Rc<NodeCache<P>>]) -> Vec<CacheDrive<P>> {
    let is_staying =
        |cache: &&Rc<NodeCache<P>>| !cache.leaves.get() && !cache.is_failing.get() && !cache.is_retired.get();
    let staying = caches.iter().filter(is_staying);
    staying.filter_map(|cache| cache.cache.as_ref().ok()).cloned().collect()
}

/// How many chunks of a cache drive each of its drives gets, where a node has so many capacity drives and cache drives.
pub(crate) fn share_of<P: Platform>(
    cache: &CacheDrive<P>,
    capacity_drives: usize,
    cache_drives: usize,
) -> u32 {
    let sharing = capacity_drives.div_ceil(cache_drives.max(1)).max(1) as u32;
    (cache.superblock().layout.chunk_count / sharing).max(1)
}

#[cfg(test)]
#[path = "caches_tests.rs"]
mod tests;
