//! Making a store on a drive, and attaching one that is there: who the drive is, which cache drive it goes with, and its start
//! from what a recovery has found (see `recovery`).
//!
//! Invariant: nothing is written to a drive that may be somebody else's, and nothing but superblocks and torn roots before all
//! of its state is known.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use spandrel_platform::sync::{Queue, Signal};
use spandrel_platform::{Drive, Platform};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{ClusterId, DriveId, Load, NodeId, SlabGeometry, Version};

use crate::ahead::AheadWrites;
use crate::cache_drive::CacheArea;
use crate::cache_policy::CachePolicy;
use crate::error::{AttachError, StoreError};
use crate::foreign;
use crate::format::cache::Binding;
use crate::format::root::{JournalPosition, Root};
use crate::format::superblock::Superblock;
use crate::journal_state::JournalState;
use crate::layout::Layout;
use crate::media::Media;
use crate::recovery::Recovery;
use crate::statistics::StoreStatistics;
use crate::store::{DriveStore, Inner, SlabSlot};
use crate::superblock_copies::{find_superblock, renew_superblocks, write_superblock};

/// No drive is attached so often without a root that tells. An attach that gives a journal up takes a number so far above the
/// root's: groups of others may stand anywhere where it goes on, and to look for them would be to read all of that.
const ATTACHES_UNSEEN_MAX: u64 = 1 << 20;

/// Who a new drive is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatOptions {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node that the drive is given to.
    pub node: NodeId,
    /// The drive's new identity.
    pub drive: DriveId,
    /// The pool's slab size.
    pub slab_geometry: SlabGeometry,
}

/// Who a drive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveIdentity {
    /// Its unchanging facts.
    pub superblock: Superblock,
    /// The newest revision of the cluster state that it has seen; zero if no root of it can be read.
    pub state_revision: u64,
    /// The area of a cache drive that it is bound to. The error says that no root can be read, so that it is not known.
    pub binding: Result<Option<Binding>, String>,
}

/// The cache drive with which a drive is attached.
#[derive(Clone)]
pub enum CacheChoice<D> {
    /// None. A drive that is bound to one is refused.
    None,
    /// This area: the one that the drive is bound to or, if it is bound to none, a new one.
    Bound(CacheArea<D>),
    /// The area that the drive is bound to, for the last time: nothing of it is named any more.
    Unbind(CacheArea<D>),
    /// The same, and a new one that it goes on with.
    Move(CacheArea<D>, CacheArea<D>),
    /// The area that the drive is bound to is lost: the drive goes on with what it holds itself, and with a new area if there
    /// is one. A drive that is bound to none is attached all the same.
    Lost(Option<CacheArea<D>>),
}

/// How a drive is attached.
pub struct AttachOptions<D> {
    /// The highest attach number that anybody has seen of the drive, zero if nobody has: one that was attached less often is
    /// an old image, and refused unchanged. Its number must not rise, or it would pass for the drive itself after a few
    /// attempts.
    pub attach_number_known: u64,
    /// The cache drive.
    pub cache: CacheChoice<D>,
    /// How many bytes of the drive's maps are in memory at most, about; all of them if none. A drive with a cache drive needs
    /// all of them until it is attached.
    pub map_memory_bytes_max: Option<u64>,
}

impl<D> AttachOptions<D> {
    /// With this cache drive, or none; nobody has seen the drive, and all of its maps are in memory.
    pub fn with_cache(cache: CacheChoice<D>) -> Self {
        Self { attach_number_known: 0, cache, map_memory_bytes_max: None }
    }
}

/// What an attach found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachReport {
    /// Whether the drive was attached without the area that it was bound to.
    pub area_lost: bool,
    /// Journal groups that were replayed.
    pub groups_replayed: u64,
    /// Blocks whose last write is in doubt: their former content was kept.
    pub blocks_in_doubt: u64,
    /// Superblock copies, root copies, groups and map pages that were damaged.
    pub structures_damaged: u64,
    /// Blocks whose mapping was lost with a leaf or a slab root.
    pub blocks_lost: u64,
    /// Copies that the drive cannot prove whole, with the version up to which it can: by what this
    /// attach found, or an earlier one that no resync has followed.
    pub unproven: Vec<UnprovenCopy>,
}

/// A copy that may lack writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnprovenCopy {
    /// The copy.
    pub slot: SlabSlot,
    /// Everything at or below this version is there.
    pub proven: Version,
}

impl<P: Platform> DriveStore<P> {
    /// Makes an empty store on a drive that carries nothing. Refuses a drive on which anything
    /// is recognised, or on which the places that the store uses first are not all zeros.
    pub async fn format(
        platform: &P,
        drive: &P::Drive,
        options: FormatOptions,
    ) -> Result<Superblock, AttachError> {
        let geometry = drive.geometry();
        let layout = Layout::for_drive(geometry.size_bytes, geometry.sector_bytes, options.slab_geometry)
            .ok_or_else(|| too_small(geometry.size_bytes, options.slab_geometry))?;
        if let Some(what) = foreign::recognize(platform, drive, &layout).await? {
            return Err(AttachError::Foreign(what));
        }
        let superblock = Superblock {
            cluster: options.cluster,
            node: options.node,
            drive: options.drive,
            layout,
            created_unix_ms: platform.unix_time().0,
        };
        let root = Root {
            drive: options.drive,
            generation: 1,
            attach_number: 0,
            state_revision: 0,
            journal: JournalPosition {
                sequence: 1,
                sector: 0,
                lap: 0,
                previous_checksum: 0,
                previous_sector: None,
            },
            binding: None,
            volumes: Vec::new(),
            slabs: Vec::new(),
        };
        let root = platform.buffers().copy_of(&root.encode()).freeze();
        for slot in Layout::root_slots_of(1) {
            drive.write(Layout::offset_of(layout.root_slot(slot)), vec![root.clone()]).await?;
        }
        // The superblock comes last: without it the drive is still empty.
        drive.flush().await?;
        for block in [layout.data_end_block(), 0] {
            write_superblock(platform, drive, &superblock, block).await?;
        }
        drive.flush().await?;
        Ok(superblock)
    }

    /// Reads who a drive is and what it has seen, without changing anything.
    pub async fn identify(platform: &P, drive: &P::Drive) -> Result<DriveIdentity, AttachError> {
        let superblock = find_superblock(platform, drive).await?.superblock;
        let media = Media::new(drive.clone(), None, &superblock.layout, platform.buffers().clone());
        let (state_revision, binding) = match Recovery::new(platform, media, &superblock).find_root().await {
            Ok((root, _)) => (root.state_revision, Ok(root.binding)),
            Err(error @ (AttachError::Newer(_) | AttachError::Drive(_))) => return Err(error),
            Err(error) => (0, Err(error.to_string())),
        };
        Ok(DriveIdentity { superblock, state_revision, binding })
    }

    /// Attaches a drive that was formatted: recovers its state and makes it ready for requests. It has no cache drive, and all
    /// of its maps are in memory.
    pub async fn attach(
        platform: &P,
        drive: P::Drive,
        attach_number_known: u64,
    ) -> Result<(Self, AttachReport), AttachError> {
        let options = AttachOptions { attach_number_known, ..AttachOptions::with_cache(CacheChoice::None) };
        Self::attach_with(platform, drive, options).await
    }

    /// The same with more to choose.
    pub async fn attach_with(
        platform: &P,
        drive: P::Drive,
        options: AttachOptions<P::Drive>,
    ) -> Result<(Self, AttachReport), AttachError> {
        let AttachOptions { attach_number_known, cache, map_memory_bytes_max } = options;
        let found = find_superblock(platform, &drive).await?;
        // What a crashed process had written may not be durable yet, and is judged below.
        drive.flush().await?;
        if let CacheChoice::Bound(area) | CacheChoice::Unbind(area) | CacheChoice::Move(area, _) = &cache {
            area.drive().flush().await?;
        }

        let media = Media::new(drive.clone(), None, &found.superblock.layout, platform.buffers().clone());
        let mut recovery = Recovery::new(platform, media, &found.superblock);
        recovery.report.structures_damaged = found.damaged_blocks.len() as u64;
        let (root, lacks_twin) = recovery.find_root().await?;
        if recovery.torn_root_slots.len() > 1 || lacks_twin {
            witness::reached(Rare::RootTorn);
        }
        let stand = Stand::choose(root.binding, cache)?;
        recovery.stand_on(&drive, stand.found)?;
        recovery.check_position(&root)?;
        // What leads to an area is found in the leaves, and counted.
        if root.binding.is_none() && stand.next.is_none() {
            recovery.state.bound_map_memory(map_memory_bytes_max);
        }
        recovery.load_maps(&root).await?;
        let is_continued = !stand.is_lost && recovery.is_area_of(&root).await?;
        let mut replay = match is_continued {
            true => recovery.replay(&root, lacks_twin).await?,
            false => recovery.replay_nothing(&root, stand.is_lost),
        };
        let attach_number_found = replay.attach_number - 1;
        if attach_number_found < attach_number_known && !canary::is_planted(Bug::TrustOldImage) {
            return Err(AttachError::Old { found: attach_number_found, known: attach_number_known });
        }
        if stand.moves {
            recovery.leave_area()?;
            if stand.next.is_some() {
                witness::reached(Rare::DriveBound);
            }
            recovery.stand_on(&drive, stand.next)?;
            replay.move_journal();
        }
        if !is_continued {
            replay.attach_number += ATTACHES_UNSEEN_MAX;
        }
        renew_superblocks(platform, &drive, &found).await?;
        recovery.clear_torn_roots(root.generation + 1).await?;
        recovery.state.end_replay();
        recovery.count_free_blocks().await?;
        // What is in an area is counted by now: its leaves stay.
        recovery.state.map_memory.wish_for(map_memory_bytes_max);
        recovery.report_unproven();
        let Recovery { state, report, media, layout, .. } = recovery;
        let statistics =
            StoreStatistics { structures_damaged: report.structures_damaged, ..StoreStatistics::default() };
        let inner = Inner {
            platform: platform.clone(),
            media,
            layout,
            superblock: found.superblock,
            state: RefCell::new(state),
            journal: RefCell::new(JournalState::new(replay.next, replay.used_sectors, root.generation)),
            queue: Queue::new(),
            adding: RefCell::default(),
            moves: Queue::new(),
            ahead: AheadWrites::default(),
            arriving: Queue::new(),
            progress: Signal::new(),
            checkpoint: RefCell::default(),
            cache: CachePolicy::default(),
            looks_in_vain: Cell::new(0),
            failure: RefCell::new(None),
            tasks: Cell::new(0),
            statistics: RefCell::new(statistics),
            load: Load::default(),
            attach_number: replay.attach_number,
            state_revision: Cell::new(root.state_revision),
        };
        let store = Self::start(Rc::new(inner));
        if let Err(error) = store.checkpoint_attach(&replay.next).await {
            store.stop("it could not be attached").await;
            return Err(error.into());
        }
        store.spawn(crate::commit::close_at_rest(Rc::clone(&store.inner)));
        store.spawn(crate::map_memory::free_given_up(Rc::clone(&store.inner)));
        store.spawn(crate::map_memory::keep_bound(Rc::clone(&store.inner)));
        if store.inner.layout.area_blocks > 0 {
            store.spawn(crate::destage::run(Rc::clone(&store.inner)));
            store.spawn(crate::read_cache::run(Rc::clone(&store.inner)));
        }
        Ok((store, report))
    }
}

impl<P: Platform> DriveStore<P> {
    /// Makes the root of this attach durable. If it has an area, it names a group there, which tells this area from an image of
    /// another time: before the first answer, not only from the next checkpoint on.
    async fn checkpoint_attach(&self, begun_at: &JournalPosition) -> Result<(), StoreError> {
        self.checkpoint().await?;
        if self.inner.layout.area_blocks > 0 && begun_at.previous_sector.is_none() {
            crate::commit::write_empty(&self.inner).await?;
            self.checkpoint().await?;
        }
        Ok(())
    }
}

/// On which area a drive is found, and on which one it goes on.
struct Stand<D> {
    found: Option<CacheArea<D>>,
    next: Option<CacheArea<D>>,
    /// Whether these differ.
    moves: bool,
    is_lost: bool,
}

impl<D: Drive> Stand<D> {
    fn choose(bound: Option<Binding>, choice: CacheChoice<D>) -> Result<Self, AttachError> {
        let is_bound_to = |area: &CacheArea<D>| bound == Some(area.binding());
        let same = |area: CacheArea<D>| Self {
            found: Some(area.clone()),
            next: Some(area),
            moves: false,
            is_lost: false,
        };
        let from = |found, next| Self { found, next, moves: true, is_lost: false };
        Ok(match (bound, choice) {
            (None, CacheChoice::None | CacheChoice::Lost(None)) => {
                Self { found: None, next: None, moves: false, is_lost: false }
            }
            (None, CacheChoice::Bound(area) | CacheChoice::Lost(Some(area))) => from(None, Some(area)),
            (Some(_), CacheChoice::Bound(area)) if is_bound_to(&area) => same(area),
            (Some(_), CacheChoice::Unbind(area)) if is_bound_to(&area) => from(Some(area), None),
            (Some(_), CacheChoice::Move(area, next)) if is_bound_to(&area) => from(Some(area), Some(next)),
            (Some(_), CacheChoice::Lost(next)) => Self { is_lost: true, ..from(None, next) },
            (Some(binding), _) => {
                return Err(AttachError::Cache(format!(
                    "the drive is bound to the cache drive {}, which is not there: what it holds is only whole with that one",
                    binding.cache
                )));
            }
            (None, CacheChoice::Unbind(_) | CacheChoice::Move(..)) => {
                return Err(AttachError::Cache("the drive is bound to no cache drive".to_owned()));
            }
        })
    }
}

fn too_small(size_bytes: u64, geometry: SlabGeometry) -> AttachError {
    AttachError::Size(format!(
        "the drive has {size_bytes} bytes, too few for one slab of {} bytes with its journal and 4 % kept free",
        geometry.slab_bytes()
    ))
}
