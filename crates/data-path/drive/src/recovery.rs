//! Attaching a drive: from the bytes that a crash may have left to a state that can be proven.
//!
//! 1. The superblock, from either of its two copies.
//! 2. The newest root that is whole, from four slots; each generation is held twice.
//! 3. The slab roots and leaves that the root names, each against its parent's checksum. What a
//!    damaged leaf mapped is *lost*: its blocks read as damaged until they are healed. A damaged
//!    slab root loses the slab's page versions too: that copy is proven for nothing.
//! 4. The journal from the root's position on, group by group, as long as the chain holds. All
//!    groups but the last are confirmed: their data were durable. The last one's data are read;
//!    a block that does not match keeps its former content, and the write is listed *in doubt*.
//! 5. Free blocks are those that no map and no page names.
//! 6. A checkpoint with a raised attach number is made before anything else is written. Until its
//!    root is durable, the drive is as it was: another recovery finds the same root and the same
//!    chain, and decides anew. It does not read what this one wrote behind the chain.
//!
//! A group that is whole but stands behind a gap in the chain proves that the journal was damaged
//! and not only cut off by a crash: then all copies on the drive are proven only up to the last
//! mark seen. When groups name a newer root than was found, the maps are lost and all copies start
//! from nothing. What is unreadable is damaged as well; but a drive that answers nothing any more has failed,
//! and the recovery ends there: nothing is written down of what it may hold whole (see `drive_check`).
//!
//! Where the drive is bound to a cache drive, the journal stands in its area there, and maps lead to blocks of it. If that drive
//! is lost, so is what was written behind the root, and each block that a leaf names in the area: copies are proven up to
//! the marks of the root then, as with a damaged journal. Whether the area is the one that the root was written with is
//! told by the binding's number and by the group before the root's position, which must still stand there, or the next one
//! behind it.
//!
//! What a copy is proven for stands in the root from then on: the next recovery finds
//! nothing damaged any more, and the copy still lacks what was lost, until a resync has made it whole.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures_util::future::join_all;
use spandrel_platform::sync::{Queue, Signal};
use spandrel_platform::{BufferMut, Drive, DriveError, Platform};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::checksum::BlockChecksum;
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{BLOCK_BYTES, ClusterId, DriveId, Load, NodeId, PAGE_BLOCKS, SlabGeometry, Version};

use crate::ahead::AheadWrites;
use crate::allocator::Allocator;
use crate::cache_drive::CacheArea;
use crate::cache_policy::CachePolicy;
use crate::commit::JournalState;
use crate::drive_check::read_place;
use crate::error::{AttachError, StoreError};
use crate::foreign;
use crate::format::FormatError;
use crate::format::cache::Binding;
use crate::format::journal::{Group, MappingRecord, Record, SlabAdd};
use crate::format::map::{Leaf, Mapping, PageEntry, PagePointer, decode_leaf, decode_slab_root};
use crate::format::root::{JournalPosition, Root, RootSlab};
use crate::format::superblock::Superblock;
use crate::journal_reader::JournalReader;
use crate::layout::{Layout, ROOT_SLOTS};
use crate::media::{Flushed, Media};
use crate::state::{Page, State};
use crate::statistics::StoreStatistics;
use crate::store::{DriveStore, Inner, SlabSlot};
use crate::volume_state::VolumeState;

/// No drive is attached so often without a root that tells. An attach that gives a journal up takes a number so far above the
/// root's: groups of others may stand anywhere where it goes on, and to look for them would be to read all of that.
const ATTACHES_UNSEEN_MAX: u64 = 1 << 20;

/// Map pages that are read at the same time.
const PAGES_AT_ONCE: usize = 256;

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

    /// Attaches a drive that was formatted: recovers its state and makes it ready for requests.
    ///
    /// `attach_number_known` is the highest attach number that anybody has seen of the drive, zero if
    /// nobody has: one that was attached less often is an old image, and refused unchanged. Its number must
    /// not rise, or it would pass for the drive itself after a few attempts.
    pub async fn attach(
        platform: &P,
        drive: P::Drive,
        attach_number_known: u64,
    ) -> Result<(Self, AttachReport), AttachError> {
        Self::attach_with(platform, drive, attach_number_known, CacheChoice::None).await
    }

    /// The same with a cache drive.
    pub async fn attach_with(
        platform: &P,
        drive: P::Drive,
        attach_number_known: u64,
        cache: CacheChoice<P::Drive>,
    ) -> Result<(Self, AttachReport), AttachError> {
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
        for block in &found.damaged_blocks {
            write_superblock(platform, &drive, &found.superblock, *block).await?;
        }
        recovery.clear_torn_roots(root.generation + 1).await?;
        recovery.state.end_replay();
        recovery.count_free_blocks()?;
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

async fn write_superblock<P: Platform>(
    platform: &P,
    drive: &P::Drive,
    superblock: &Superblock,
    block: u32,
) -> Result<(), DriveError> {
    let mut buffer = platform.buffers().take(BLOCK_BYTES);
    superblock.encode(&mut buffer);
    drive.write(Layout::offset_of(block), vec![buffer.freeze()]).await
}

struct FoundSuperblock {
    superblock: Superblock,
    damaged_blocks: Vec<u32>,
}

/// The superblock from its first copy, or from the second at the drive's end.
async fn find_superblock<P: Platform>(
    platform: &P,
    drive: &P::Drive,
) -> Result<FoundSuperblock, AttachError> {
    let geometry = drive.geometry();
    let last_block = (geometry.size_bytes / BLOCK_BYTES as u64).saturating_sub(1);
    let first = read_superblock(platform, drive, 0).await;
    // A drive that has grown holds the second copy where its end was.
    let second_block = first.as_ref().map_or(last_block, |first| u64::from(first.layout.data_end_block()));
    let second = read_superblock(platform, drive, second_block).await;
    // Where the drive reads the other one, it may have answered nothing for a moment.
    let (first, second) = match (first, second) {
        (Err(SuperblockFault::Drive(_)), second @ Ok(_)) => {
            (read_superblock(platform, drive, 0).await, second)
        }
        (first @ Ok(_), Err(SuperblockFault::Drive(_))) => {
            (first, read_superblock(platform, drive, second_block).await)
        }
        both => both,
    };
    let (superblock, damaged_blocks) = match (first, second) {
        (Ok(first), Ok(second)) if first == second => (first, Vec::new()),
        (Ok(first), _) => {
            let block = first.layout.data_end_block();
            (first, vec![block])
        }
        (Err(_), Ok(second)) => (second, vec![0]),
        (Err(first), Err(second)) => return Err(no_superblock(platform, drive, first, second).await?),
    };
    if !superblock.layout.fits(geometry) {
        let needed = u64::from(superblock.layout.size_blocks) * BLOCK_BYTES as u64;
        return Err(AttachError::Size(format!(
            "the drive has {} bytes in sectors of {}; it was formatted with {needed} in sectors of {}",
            geometry.size_bytes, geometry.sector_bytes, superblock.layout.sector_bytes
        )));
    }
    Ok(FoundSuperblock { superblock, damaged_blocks })
}

/// Why a copy of the superblock could not be had.
enum SuperblockFault {
    Format(FormatError),
    Drive(DriveError),
}

async fn read_superblock<P: Platform>(
    platform: &P,
    drive: &P::Drive,
    block: u64,
) -> Result<Superblock, SuperblockFault> {
    let offset = block * BLOCK_BYTES as u64;
    if offset + BLOCK_BYTES as u64 > drive.geometry().size_bytes {
        return Err(SuperblockFault::Format(FormatError::Inconsistent));
    }
    let buffer = drive.read(offset, platform.buffers().take(BLOCK_BYTES)).await;
    let superblock = Superblock::decode(&buffer.map_err(SuperblockFault::Drive)?);
    superblock.map_err(SuperblockFault::Format)
}

async fn no_superblock<P: Platform>(
    platform: &P,
    drive: &P::Drive,
    first: SuperblockFault,
    second: SuperblockFault,
) -> Result<AttachError, DriveError> {
    use SuperblockFault::{Drive, Format};
    for fault in [&first, &second] {
        if let Format(FormatError::Newer { version, unknown_features }) = fault {
            return Ok(AttachError::Newer(format!(
                "the drive's format is version {version} with unknown features {unknown_features:#x}; \
                 this program knows version {}",
                crate::format::superblock::FORMAT_VERSION
            )));
        }
    }
    match (first, second) {
        (Format(FormatError::Magic), Format(FormatError::Magic | FormatError::Inconsistent)) => {
            let what = foreign::recognize_content(platform, drive).await?;
            Ok(what.map_or(AttachError::Empty, AttachError::Foreign))
        }
        (Drive(error), _) | (_, Drive(error)) => Err(error),
        _ => Ok(AttachError::Damaged("both copies of the superblock are damaged".to_owned())),
    }
}

/// What the replay leaves for the store to go on with.
struct Replay {
    next: JournalPosition,
    used_sectors: u64,
    /// Above that of every attach that has left its mark in the journal that it goes on in, so that its groups are never
    /// taken for this one's.
    attach_number: u64,
}

impl Replay {
    /// The journal goes on at the beginning of another one.
    fn move_journal(&mut self) {
        let JournalPosition { sequence, lap, previous_checksum, .. } = self.next;
        self.next =
            JournalPosition { sequence, sector: 0, lap: lap + 1, previous_checksum, previous_sector: None };
        self.used_sectors = 0;
    }
}

struct Recovery<'a, P: Platform> {
    platform: &'a P,
    media: Media<P::Drive>,
    superblock: &'a Superblock,
    layout: Layout,
    state: State,
    /// Root slots that hold neither a root nor zeros.
    torn_root_slots: Vec<u32>,
    /// Slabs whose root page is lost.
    lost_slab_roots: Vec<u32>,
    /// Whether a mapping can be older than the reuse of its block.
    may_be_older: bool,
    report: AttachReport,
}

impl<'a, P: Platform> Recovery<'a, P> {
    fn new(platform: &'a P, media: Media<P::Drive>, superblock: &'a Superblock) -> Self {
        let layout = superblock.layout;
        let state = State::new(layout.slab_geometry);
        let report = AttachReport::default();
        let (torn_root_slots, lost_slab_roots, may_be_older) = (Vec::new(), Vec::new(), false);
        Self {
            platform,
            media,
            superblock,
            layout,
            state,
            torn_root_slots,
            lost_slab_roots,
            may_be_older,
            report,
        }
    }

    /// As [`read_place`].
    async fn read(&self, offset: u64, length: usize) -> Result<Result<BufferMut, DriveError>, DriveError> {
        let read = read_place(self.platform, &self.media, &self.layout, offset, length).await?;
        if let Err(error) = &read {
            tracing::warn!(drive = %self.superblock.drive, "{error}");
        }
        Ok(read)
    }

    /// The newest whole root, and whether its twin is not whole.
    async fn find_root(&mut self) -> Result<(Root, bool), AttachError> {
        let slot_bytes = self.layout.root_slot_blocks as usize * BLOCK_BYTES;
        let mut roots = Vec::new();
        let mut failure = None;
        for slot in 0..ROOT_SLOTS {
            let root = match self.read(Layout::offset_of(self.layout.root_slot(slot)), slot_bytes).await? {
                Ok(bytes) if bytes.iter().all(|byte| *byte == 0) => continue,
                Ok(bytes) => match Root::decode(&bytes, self.superblock.drive) {
                    Ok(root) => Some(root),
                    // Whole, so not to be cleared away.
                    Err(FormatError::Newer { version, .. }) => {
                        return Err(AttachError::Newer(format!("its maps have leaves of format {version}")));
                    }
                    Err(_) => None,
                },
                Err(error) => {
                    failure = Some(error);
                    None
                }
            };
            match root {
                Some(root) => roots.push(root),
                None => self.torn_root_slots.push(slot),
            }
        }
        let newest = roots.iter().max_by_key(|root| root.generation).cloned();
        let newest = newest.ok_or_else(|| {
            let why = failure.map_or_else(String::new, |error| format!(": {error}"));
            AttachError::Damaged(format!("no root of the drive's maps is whole{why}"))
        })?;
        let twins = roots.iter().filter(|root| root.generation == newest.generation).count();
        Ok((newest, twins < 2))
    }

    /// Clears what a crash has left of roots where those of `generation` will stand. A recovery
    /// that did not come to its end may have begun to write a root there that differs from the next
    /// one in few sectors. If that were torn as well, the pieces of both could add up to the older
    /// one, whose pages and groups are overwritten by then.
    async fn clear_torn_roots(&self, generation: u64) -> Result<(), DriveError> {
        let pair = Layout::root_slots_of(generation);
        let torn: Vec<u32> =
            self.torn_root_slots.iter().copied().filter(|slot| pair.contains(slot)).collect();
        for slot in &torn {
            let zeros =
                self.platform.buffers().take_zeroed(self.layout.root_slot_blocks as usize * BLOCK_BYTES);
            self.media.write(Layout::offset_of(self.layout.root_slot(*slot)), vec![zeros.freeze()]).await?;
        }
        if !torn.is_empty() {
            self.media.flush(Flushed::All).await?;
        }
        Ok(())
    }

    /// Reads and writes with this area from now on, or without one.
    fn stand_on(&mut self, drive: &P::Drive, area: Option<CacheArea<P::Drive>>) -> Result<(), AttachError> {
        let layout = self.superblock.layout;
        self.layout = match &area {
            None => layout,
            Some(area) => layout.with_area(area.blocks(), area.sector_bytes()).ok_or_else(|| {
                let (blocks, journal) = (area.blocks(), layout.journal_blocks);
                AttachError::Size(format!(
                    "an area of {blocks} blocks is too small for a journal of {journal}"
                ))
            })?,
        };
        self.media = Media::new(drive.clone(), area, &self.layout, self.platform.buffers().clone());
        Ok(())
    }

    /// Whether the area that the drive is bound to is the one that the root was written with. Refused if that cannot be said:
    /// all that it holds would be given up.
    async fn is_area_of(&self, root: &Root) -> Result<bool, AttachError> {
        if root.binding.is_none() || canary::is_planted(Bug::TrustOldCache) {
            return Ok(true);
        }
        let mut reader = JournalReader::new(self.platform, &self.media, self.layout, root);
        reader.is_continued().await?.ok_or_else(|| {
            AttachError::Cache(
                "the journal on the cache drive cannot be read where it tells whether it is the right one"
                    .to_owned(),
            )
        })
    }

    /// Goes on without what was written behind the root, and without what the maps name in the area if that is lost. In an area
    /// of another time some blocks are still what their checksums say, and the others show.
    fn replay_nothing(&mut self, root: &Root, is_lost: bool) -> Replay {
        tracing::error!(
            drive = %self.superblock.drive,
            "the cache drive that the drive was bound to is {}: what it held is missing",
            if is_lost { "lost" } else { "an image of another time" }
        );
        witness::reached(if is_lost { Rare::CacheLost } else { Rare::CacheOfAnotherTime });
        self.report.area_lost = true;
        let slabs = self.state.slabs.iter_mut().filter(|_| is_lost);
        for (_, slab) in slabs {
            let named: Vec<(u32, u32)> = slab.mapped_blocks();
            let first = self.superblock.layout.size_blocks;
            for (block, _) in named.into_iter().filter(|(_, physical)| *physical >= first) {
                slab.lose(block);
                self.report.blocks_lost += 1;
            }
        }
        self.prove_no_lost_slabs();
        self.prove_only_marks();
        let mut replay =
            Replay { next: root.journal, used_sectors: 0, attach_number: root.attach_number + 1 };
        replay.move_journal();
        replay
    }

    /// Refuses to leave an area of which blocks are named.
    fn leave_area(&self) -> Result<(), AttachError> {
        let first = self.superblock.layout.size_blocks;
        let mut slabs = self.state.slabs.iter();
        let is_named =
            slabs.any(|(_, slab)| slab.mapped_blocks().iter().any(|(_, physical)| *physical >= first));
        match is_named {
            true => {
                Err(AttachError::Cache("the drive's area on its cache drive still holds data".to_owned()))
            }
            false => Ok(()),
        }
    }

    async fn load_maps(&mut self, root: &Root) -> Result<(), AttachError> {
        for volume in &root.volumes {
            self.check_slot(volume.slot)?;
            self.state.add_volume(volume.slot, volume.volume);
            if let Some(state) = self.state.volumes.get_mut(volume.slot) {
                state.restore(volume);
            }
        }
        for slab in &root.slabs {
            self.check_slot(slab.slot)?;
            self.state.add_slab(&SlabAdd {
                slab_slot: slab.slot,
                volume_slot: slab.volume_slot,
                slab: slab.slab,
                layout: slab.layout,
                copy: slab.copy,
                birth: slab.birth,
            });
            self.load_slab(slab).await?;
        }
        Ok(())
    }

    /// Refuses a root that lets the journal go on behind its end.
    fn check_position(&self, root: &Root) -> Result<(), AttachError> {
        let (sector, end) = (root.journal.sector, self.layout.journal_sectors());
        if sector <= end {
            return Ok(());
        }
        Err(AttachError::Damaged(format!("the journal of {end} sectors goes on at sector {sector}")))
    }

    /// Refuses a slot that no store has given out: the tables are as long as the highest one.
    fn check_slot(&self, slot: u32) -> Result<(), AttachError> {
        if slot < self.layout.slots_max() {
            return Ok(());
        }
        Err(AttachError::Damaged(format!("slot {slot} lies beyond what the drive can hold")))
    }

    fn check_slots(&self, group: &Group) -> Result<(), AttachError> {
        group.records.iter().try_for_each(|record| match record {
            Record::VolumeAdd { volume_slot, .. } => self.check_slot(*volume_slot),
            Record::SlabAdd(add) => self.check_slot(add.slab_slot),
            _ => Ok(()),
        })
    }

    async fn load_slab(&mut self, root: &RootSlab) -> Result<(), AttachError> {
        let page_count = self.layout.slab_geometry.slab_pages();
        let entries = if root.map.is_none() {
            vec![PageEntry::default(); page_count as usize]
        } else {
            match self.read_page(root.map).await? {
                Some(page) => decode_slab_root(&page, root.map.checksum, page_count),
                None => None,
            }
            .unwrap_or_default()
        };
        let lost_root = entries.len() != page_count as usize;
        let mut pages = if lost_root {
            self.report.structures_damaged += 1;
            self.lost_slab_roots.push(root.slot);
            (0..page_count).map(|_| self.lost_page(PageEntry::default())).collect()
        } else {
            self.load_leaves(entries).await?
        };
        let Some(slab) = self.state.slabs.get_mut(root.slot) else {
            return Err(AttachError::Damaged(format!("slab {} belongs to no volume of the root", root.slab)));
        };
        slab.map = root.map;
        slab.proven = root.proven;
        slab.dirty = root.map.is_none() || pages.iter().any(|page: &Page| page.dirty);
        std::mem::swap(&mut slab.pages, &mut pages);
        Ok(())
    }

    async fn load_leaves(&mut self, entries: Vec<PageEntry>) -> Result<Vec<Page>, AttachError> {
        let mut pages = Vec::with_capacity(entries.len());
        for step in entries.chunks(PAGES_AT_ONCE) {
            let reads = step.iter().map(|entry| async {
                if entry.leaf.is_none() { Ok(None) } else { self.read_page(entry.leaf).await }
            });
            let blocks: Result<Vec<Option<BufferMut>>, DriveError> =
                join_all(reads).await.into_iter().collect();
            for (entry, block) in step.iter().zip(blocks?) {
                pages.push(if entry.leaf.is_none() {
                    Page { entry: *entry, ..Page::default() }
                } else {
                    match block.and_then(|block| decode_leaf(&block, entry.leaf.checksum)) {
                        Some(leaf) => page_of(leaf, *entry, false),
                        None => {
                            self.report.structures_damaged += 1;
                            self.lost_page(*entry)
                        }
                    }
                });
            }
        }
        Ok(pages)
    }

    /// A page of which only the parent's entry is known.
    fn lost_page(&mut self, entry: PageEntry) -> Page {
        self.report.blocks_lost += u64::from(PAGE_BLOCKS);
        let entry = PageEntry { leaf: PagePointer::NONE, ..entry };
        page_of(Box::new([Mapping::UNKNOWN; PAGE_BLOCKS as usize]), entry, true)
    }

    /// The block of a map page, or `None` if it cannot be read or lies outside the data blocks.
    async fn read_page(&self, pointer: PagePointer) -> Result<Option<BufferMut>, DriveError> {
        if !(self.layout.data_first_block..self.layout.data_end_block()).contains(&pointer.block) {
            return Ok(None);
        }
        Ok(self.read(Layout::offset_of(pointer.block), BLOCK_BYTES).await?.ok())
    }

    /// Applies the journal from the root's position on.
    async fn replay(&mut self, root: &Root, lacks_twin: bool) -> Result<Replay, AttachError> {
        let media = self.media.clone();
        let mut reader = JournalReader::new(self.platform, &media, self.layout, root);
        let mut last: Option<Group> = None;
        let mut newest_generation = 0;
        while let Some(group) = reader.next().await? {
            self.check_slots(&group)?;
            newest_generation = newest_generation.max(group.header.root_generation);
            let Some(confirmed) = last.replace(group) else { continue };
            if canary::is_planted(Bug::RollDamageBack) {
                self.judge(&confirmed).await?;
                continue;
            }
            self.apply_confirmed(&confirmed);
        }
        if let Some(group) = last.filter(|_| !canary::is_planted(Bug::RollLastGroupBack)) {
            self.report.groups_replayed += 1;
            self.judge(&group).await?;
            if self.report.blocks_in_doubt > 0 {
                witness::reached(Rare::JournalTailTorn);
            }
        }
        // The twin of a root that groups name was durable: it did not just miss its write.
        self.report.structures_damaged += u64::from(lacks_twin && newest_generation == root.generation);
        self.prove_no_lost_slabs();
        let behind = reader.look_behind().await?;
        if behind.gap {
            self.report.structures_damaged += 1;
            self.prove_only_marks();
            // What shows that must still be there if this recovery does not come to its end.
            reader.skip(&behind);
        }
        if newest_generation.max(behind.root_generation) > root.generation {
            self.report.structures_damaged += 1;
            self.prove_nothing();
        }
        Ok(Replay {
            next: reader.position(),
            used_sectors: reader.used_sectors(),
            attach_number: root.attach_number.max(behind.attach_number) + 1,
        })
    }

    fn apply_confirmed(&mut self, group: &Group) {
        self.report.groups_replayed += 1;
        for record in &group.records {
            self.state.apply(record);
        }
    }

    /// Applies the last group block by block, as far as its data are there.
    async fn judge(&mut self, group: &Group) -> Result<(), DriveError> {
        for record in &group.records {
            let (Record::Write(mapping) | Record::Heal(mapping)) = record else {
                self.state.apply(record);
                continue;
            };
            let is_write = matches!(record, Record::Write(_));
            let matches = self.data_matches(mapping).await?;
            for part in parts_of(mapping, &matches) {
                self.apply_part(part, is_write);
            }
        }
        Ok(())
    }

    /// Applies a part of a record whose data are there, or lists it as in doubt.
    fn apply_part(&mut self, part: RecordPart, is_write: bool) {
        let record = part.record;
        if part.matches {
            self.state.apply(&if is_write { Record::Write(record) } else { Record::Heal(record) });
            return;
        }
        self.report.blocks_in_doubt += u64::from(record.count());
        let volume_slot = self.state.slabs.get(record.slab_slot).map(|slab| slab.volume_slot);
        if let Some(volume) = volume_slot.and_then(|slot| self.state.volumes.get(slot))
            && is_write
        {
            let version = Version::new(volume.record_epoch, record.counter);
            let (slab_slot, first, count) = (record.slab_slot, record.first, record.count());
            self.state.apply(&Record::Listed { slab_slot, first, count, version, in_doubt: true });
        }
    }

    /// For each block of a record: whether its data are on the drive.
    async fn data_matches(&self, mapping: &MappingRecord) -> Result<Vec<bool>, DriveError> {
        let mut matches = vec![false; mapping.checksums.len()];
        let Some(slab) = self.state.slabs.get(mapping.slab_slot) else {
            // Removed in a later group; nothing is applied.
            return Ok(vec![true; mapping.checksums.len()]);
        };
        let Some(volume) = self.state.volumes.get(slab.volume_slot) else { return Ok(matches) };
        let checksum = BlockChecksum::new(volume.volume, slab.slab);
        for ((block, mapping), matches) in mapping.mappings().zip(&mut matches) {
            // A heal that undoes a write may name no block; it needs no data.
            let Some(physical) = mapping.physical() else {
                *matches = true;
                continue;
            };
            if let Ok(data) = self.read(Layout::offset_of(physical), BLOCK_BYTES).await? {
                *matches =
                    checksum.of(block, &data) == mapping.checksum || canary::is_planted(Bug::TrustTornTail);
            }
        }
        Ok(matches)
    }

    /// The journal is damaged: writes above the last mark seen, and exceptions below it, may be
    /// missing, and so may be what said that a page is not whole any more.
    fn prove_only_marks(&mut self) {
        self.may_be_older = true;
        for (_, slab) in self.state.slabs.iter_mut() {
            slab.doubt_whole_pages();
            let volume = self.state.volumes.get(slab.volume_slot);
            slab.prove_only(volume.map_or(Version::ZERO, VolumeState::proven));
        }
    }

    /// What the journal says of a slab whose root page is lost does not bring back what that named, even
    /// if it says that a resync had made the copy whole.
    fn prove_no_lost_slabs(&mut self) {
        self.may_be_older |= !self.lost_slab_roots.is_empty();
        for slot in &self.lost_slab_roots {
            if let Some(slab) = self.state.slabs.get_mut(*slot) {
                slab.prove_only(Version::ZERO);
            }
        }
    }

    /// The newest root is lost, and with it all that its maps held. What an older root names may
    /// have been overwritten since, so every copy starts empty.
    fn prove_nothing(&mut self) {
        self.may_be_older = true;
        for (_, slab) in self.state.slabs.iter_mut() {
            slab.forget();
            slab.prove_only(Version::ZERO);
        }
    }

    fn report_unproven(&mut self) {
        let unproven = self.state.slabs.iter().filter_map(|(slot, slab)| {
            slab.proven.map(|proven| UnprovenCopy { slot: SlabSlot(slot), proven })
        });
        self.report.unproven = unproven.collect();
    }

    /// Takes every block that a map or a page names; the rest is free. Where the journal is
    /// damaged, a mapping can be older than another one's reuse of its block: it is lost then.
    fn count_free_blocks(&mut self) -> Result<(), AttachError> {
        let mut allocator = Allocator::new(self.layout.data_first_block, self.layout.data_end_block());
        if self.layout.area_blocks > 0 {
            allocator = allocator.with_area(self.layout.area_first_block(), self.layout.area_end_block());
        }
        let mut pages: Vec<u32> = self.state.retired_pages.clone();
        for (_, slab) in self.state.slabs.iter() {
            let leaves = slab.pages.iter().map(|page| page.entry.leaf);
            pages.extend(leaves.chain([slab.map]).filter(|page| !page.is_none()).map(|page| page.block));
        }
        for page in pages {
            if !allocator.take(page) {
                return Err(AttachError::Damaged(format!("two map pages name physical block {page}")));
            }
        }
        for (_, slab) in self.state.slabs.iter_mut() {
            for (block, physical) in slab.mapped_blocks() {
                if allocator.take(physical) {
                    continue;
                }
                if !self.may_be_older {
                    return Err(AttachError::Damaged(format!("physical block {physical} has two owners")));
                }
                slab.lose(block);
                self.report.blocks_lost += 1;
            }
        }
        self.state.allocator = Some(allocator);
        self.state.count_area(&self.layout);
        Ok(())
    }
}

/// A run of blocks of a record that share the fate of their data.
struct RecordPart {
    record: MappingRecord,
    matches: bool,
}

fn parts_of(mapping: &MappingRecord, matches: &[bool]) -> Vec<RecordPart> {
    let mut parts = Vec::new();
    let mut start = 0;
    while start < matches.len() {
        let length =
            matches[start..].iter().take_while(|matches_too| **matches_too == matches[start]).count();
        let offset = start as u32;
        let record = MappingRecord {
            first: mapping.first + offset,
            block: mapping.block + offset,
            checksums: mapping.checksums[start..start + length].into(),
            ..mapping.clone()
        };
        parts.push(RecordPart { record, matches: matches[start] });
        start += length;
    }
    parts
}

fn page_of(leaf: Box<Leaf>, entry: PageEntry, dirty: bool) -> Page {
    let count = |counts: fn(&Mapping) -> bool| leaf.iter().filter(|mapping| counts(mapping)).count() as u16;
    let mapped = count(|mapping| *mapping != Mapping::NONE);
    let lost = count(|mapping| *mapping == Mapping::UNKNOWN);
    Page { leaf: (mapped > 0).then_some(leaf), mapped, lost, in_area: 0, entry, dirty }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
