//! Serves requests from the drives of one node.
//!
//! A drive can come back without all that it had, while its node goes on: the cache drive that it was bound to is lost, or its
//! journal has rotted. An owner that had asked what its copies hold counts on the answer. So nobody is served from these copies
//! before a fence has told whoever heeds it what they can prove now.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use futures_util::future::join_all;
use rustc_hash::FxHashMap;
use spandrel_drive::{
    DamagedBlock, DriveStore, PageDescription, ReadPart, SlabDescription, SlabLayout, SlabSlot, StoreError,
    WriteUnderWay,
};
use spandrel_platform::sync::Signal;
use spandrel_platform::{Buffer, Platform};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::checksum::Checksums;
use spandrel_shared::{BLOCK_BYTES, CopyId, DriveId, Epoch, PAGE_BLOCKS, SlabIndex, Version, VolumeId};

use crate::copies::{Copies, CopyPlace};
use crate::request::{
    Authority, BlockState, ContentDigest, CopyAddress, GatheredCopy, Heeded, ListedWrite, Mark, NewCopy,
    PageState, PartDescription, ReplicaError, ReplicaRequest, ReplicaResponse,
};

type Answer = Result<(ReplicaResponse, Vec<Buffer>), ReplicaError>;

/// The copies on one node's drives. Cheap to clone; all clones are the same.
pub struct Replica<P: Platform> {
    inner: Rc<RefCell<Inner<P>>>,
    turns: Rc<Turns>,
}

impl<P: Platform> Clone for Replica<P> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner), turns: Rc::clone(&self.turns) }
    }
}

struct Inner<P: Platform> {
    drives: BTreeMap<DriveId, DriveStore<P>>,
    copies: Copies<LocalCopy<P>>,
    /// The highest epoch accepted for a volume: durable, or about to be.
    accepted: FxHashMap<VolumeId, Epoch>,
    /// Copies that their drives cannot prove whole, and of which no owner has been told that since these were added.
    untold: BTreeMap<CopyPlace, CopyId>,
}

/// The places at which a copy is being made or removed: one at a time, in the order of the requests. Two owners may each ask
/// for a copy of their own at the same place, and what is asked for later must find what came of the former.
#[derive(Default)]
struct Turns {
    /// Those who have or want a turn at each place, in order.
    queues: RefCell<BTreeMap<CopyPlace, VecDeque<u64>>>,
    asked: Cell<u64>,
    ended: Signal,
}

/// A turn at a place, or a place in the queue for one, until it is dropped.
struct Turn {
    turns: Rc<Turns>,
    place: CopyPlace,
    number: u64,
}

impl Turns {
    async fn at(self: &Rc<Self>, place: CopyPlace) -> Turn {
        let number = self.asked.get();
        self.asked.set(number + 1);
        self.queues.borrow_mut().entry(place).or_default().push_back(number);
        let turn = Turn { turns: Rc::clone(self), place, number };
        let is_first =
            || self.queues.borrow().get(&place).is_some_and(|queue| queue.front() == Some(&number));
        self.ended.wait_until(is_first).await;
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut queues = self.turns.queues.borrow_mut();
        if let Some(queue) = queues.get_mut(&self.place) {
            queue.retain(|number| *number != self.number);
            if queue.is_empty() {
                queues.remove(&self.place);
            }
        }
        drop(queues);
        self.turns.ended.notify_all();
    }
}

impl<P: Platform> Inner<P> {
    /// A copy that is here, whether anybody may be served from it or not.
    fn find_any(&self, address: CopyAddress) -> Option<LocalCopy<P>> {
        let offered = self.copies.find(address).map(|(_, copy)| copy.clone());
        let mut stores = self.drives.values();
        offered.or_else(|| {
            stores.find_map(|store| {
                let found = store.find_slab(address.volume, address.slab)?;
                let local = LocalCopy { store: store.clone(), slot: found.slot, copy: found.copy };
                (found.copy == address.copy).then_some(local)
            })
        })
    }
}

/// A write of a copy that was begun: gives its answer.
pub enum CopyWrite<P: Platform> {
    /// Its drive answers.
    Begun(WriteUnderWay<P>),
    /// It is what a resync copies.
    Fill(Pin<Box<dyn Future<Output = Result<(), StoreError>>>>),
    /// It was refused.
    Refused(ReplicaError),
}

impl<P: Platform> Future for CopyWrite<P> {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let written = match &mut *self {
            Self::Begun(write) => ready!(Pin::new(write).poll(context)),
            Self::Fill(fill) => ready!(fill.as_mut().poll(context)),
            Self::Refused(error) => return Poll::Ready(Err(error.clone())),
        };
        Poll::Ready(written.map_err(ReplicaError::from).and_then(|()| done()))
    }
}

struct LocalCopy<P: Platform> {
    store: DriveStore<P>,
    slot: SlabSlot,
    copy: CopyId,
}

impl<P: Platform> Clone for LocalCopy<P> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), slot: self.slot, copy: self.copy }
    }
}

/// A copy on this node, for lists and checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyDescription {
    /// The copy.
    pub address: CopyAddress,
    /// The drive that holds it.
    pub drive: DriveId,
    /// Blocks that hold data.
    pub mapped_blocks: u32,
}

impl<P: Platform> Replica<P> {
    /// A node without drives.
    pub fn new() -> Self {
        let inner = Inner {
            drives: BTreeMap::new(),
            copies: Copies::default(),
            accepted: FxHashMap::default(),
            untold: BTreeMap::new(),
        };
        Self { inner: Rc::new(RefCell::new(inner)), turns: Rc::default() }
    }

    /// Offers the copies of a drive that was attached.
    pub fn add_drive(&self, store: DriveStore<P>) {
        let mut inner = self.inner.borrow_mut();
        for volume in store.volumes() {
            let accepted = inner.accepted.entry(volume).or_default();
            *accepted = (*accepted).max(store.fence_epoch(volume));
        }
        for slab in store.slabs() {
            let place = (slab.volume, slab.slab, store.drive_id());
            if store.proven(slab.slot).is_some() {
                inner.untold.insert(place, slab.copy);
            }
            let local = LocalCopy { store: store.clone(), slot: slab.slot, copy: slab.copy };
            inner.copies.insert(place, slab.copy, local);
        }
        inner.drives.insert(store.drive_id(), store);
    }

    /// Offers the copies of a drive no more.
    pub fn remove_drive(&self, drive: DriveId) {
        let mut inner = self.inner.borrow_mut();
        inner.copies.remove_drive(drive);
        inner.untold.retain(|(_, _, holder), _| *holder != drive);
        inner.drives.remove(&drive);
    }

    /// The node's drives, in the order of their identities.
    pub fn drives(&self) -> Vec<DriveStore<P>> {
        self.inner.borrow().drives.values().cloned().collect()
    }

    /// Whether a drive is one of these.
    pub fn has_drive(&self, drive: DriveId) -> bool {
        self.inner.borrow().drives.contains_key(&drive)
    }

    /// The highest epoch that was accepted for a volume.
    pub fn accepted_epoch(&self, volume: VolumeId) -> Epoch {
        self.inner.borrow().accepted.get(&volume).copied().unwrap_or(Epoch::ZERO)
    }

    /// The node's copies of a volume, in the order of its slabs.
    pub fn copies_of(&self, volume: VolumeId) -> Vec<CopyDescription> {
        let inner = self.inner.borrow();
        inner.copies.of_volume(volume).filter_map(|(slab, _, copy)| describe(volume, slab, copy)).collect()
    }

    /// The copies that are here, and from which nobody is served: who had them made went away meanwhile, or their drive had no
    /// room to note which other owners are refused.
    pub fn strays(&self) -> Vec<(DriveId, CopyAddress)> {
        let inner = self.inner.borrow();
        let mut offered: BTreeMap<DriveId, usize> = BTreeMap::new();
        inner.copies.places().for_each(|(_, _, drive)| *offered.entry(*drive).or_default() += 1);
        let mut strays = Vec::new();
        for (drive, store) in &inner.drives {
            // Mostly nothing has to be compared.
            if store.slab_count() == offered.get(drive).copied().unwrap_or(0) {
                continue;
            }
            let is_offered = |place: &CopyPlace, copy: CopyId| inner.copies.at(place) == Some(copy);
            let copies = store.slab_copies().into_iter();
            let strayed = copies.filter(|(volume, slab, copy)| !is_offered(&(*volume, *slab, *drive), *copy));
            strays.extend(strayed.map(|(volume, slab, copy)| (*drive, CopyAddress { volume, slab, copy })));
        }
        strays
    }

    /// Whether a copy is here, in exactly this incarnation.
    pub fn has_copy(&self, address: CopyAddress) -> bool {
        self.find(address).is_ok()
    }

    /// Serves one request. `payload` is the data that come with it.
    pub async fn serve(&self, request: ReplicaRequest, payload: Option<Buffer>) -> Answer {
        match request {
            write @ ReplicaRequest::Write { .. } => self.begin_write(write, payload).await,
            ReplicaRequest::Read { copy, authority, first, count } => {
                let local = self.authorize(copy, authority)?;
                let parts = local.store.read(local.slot, first, count).await?;
                Ok(describe_parts(parts))
            }
            // What is seldom asked would make the task of each write as large as it is, and each is moved to where tasks are.
            seldom => Box::pin(self.serve_seldom(seldom, payload)).await,
        }
    }

    /// Begins to serve a write. With the first look at what this returns, at the latest, it is refused or stands in line at its drive.
    ///
    /// # Panics
    ///
    /// It is another request.
    pub fn begin_write(&self, request: ReplicaRequest, payload: Option<Buffer>) -> CopyWrite<P> {
        let ReplicaRequest::Write { copy, authority, mark, first, version, checksums } = request else {
            unreachable!("only writes are begun like this")
        };
        let local = match self.authorize(copy, authority) {
            Ok(local) => local,
            Err(error) => return CopyWrite::Refused(error),
        };
        local.note_mark(copy.volume, &mark);
        let Some(data) = payload else { return CopyWrite::Refused(ReplicaError::DamagedOnArrival) };
        if version == Version::ZERO {
            let fill = async move { local.fill(first, data, checksums).await };
            return CopyWrite::Fill(Box::pin(fill));
        }
        CopyWrite::Begun(local.store.begin_write(local.slot, first, version, data, checksums))
    }

    async fn serve_seldom(&self, request: ReplicaRequest, payload: Option<Buffer>) -> Answer {
        match request {
            ReplicaRequest::Write { .. } | ReplicaRequest::Read { .. } => {
                unreachable!("reads and writes are served before")
            }
            ReplicaRequest::Check { copy, authority, first, count } => {
                let local = self.authorize(copy, authority)?;
                let parts = local.store.read_mapped(local.slot, first, count).await?;
                let (descriptions, _) = describe_parts(parts);
                Ok((descriptions, Vec::new()))
            }
            ReplicaRequest::Trim { copy, authority, mark, first, count, version } => {
                let local = self.authorize(copy, authority)?;
                local.note_mark(copy.volume, &mark);
                local.trim(first, count, version).await?;
                done()
            }
            ReplicaRequest::Heal { copy, authority, block, token, checksum } => {
                let local = self.authorize(copy, authority)?;
                let good = match (payload, checksum) {
                    (Some(data), Some(checksum)) => Some((data, checksum)),
                    (None, None) => None,
                    _ => return Err(ReplicaError::DamagedOnArrival),
                };
                local.store.heal(local.slot, DamagedBlock::from_token(block, token), good).await?;
                done()
            }
            ReplicaRequest::Fence { volume, epoch, heeds, .. } => self.fence(volume, epoch, &heeds).await,
            ReplicaRequest::NoteMark { volume, authority, mark } => {
                self.check_epoch(volume, authority)?;
                for store in self.drives().iter().filter(|store| !self.has_untold(volume, store.drive_id())) {
                    store.note_mark(volume, mark.version, &mark.exceptions);
                }
                done()
            }
            ReplicaRequest::Pages { copy, authority } => {
                let local = self.authorize(copy, authority)?;
                let pages = local.store.pages(local.slot)?;
                Ok((ReplicaResponse::Pages(pages.iter().map(PageState::from).collect()), Vec::new()))
            }
            ReplicaRequest::BlockStates { copy, authority, first, count } => {
                let local = self.authorize(copy, authority)?;
                let states = local.store.block_states(local.slot, first, count).await?;
                let states = states.into_iter().map(BlockState::from).collect();
                Ok((ReplicaResponse::BlockStates(states), Vec::new()))
            }
            ReplicaRequest::Digests { copy, authority, first, count } => {
                let local = self.authorize(copy, authority)?;
                let parts = local.store.read_mapped(local.slot, first, count).await?;
                Ok((ReplicaResponse::Digests(digests_of(&parts)), Vec::new()))
            }
            ReplicaRequest::SetPageVersion { copy, authority, page, version, whole } => {
                let local = self.authorize(copy, authority)?;
                local.store.set_page_version(local.slot, page, version, whole).await?;
                done()
            }
            ReplicaRequest::Lose { copy, authority, block } => {
                let local = self.authorize(copy, authority)?;
                local.store.lose(local.slot, block).await?;
                done()
            }
            ReplicaRequest::Prove { copy, authority } => {
                let local = self.authorize(copy, authority)?;
                local.store.prove(local.slot).await?;
                done()
            }
            ReplicaRequest::Doubt { volume, drive, authority, proven } => {
                self.check_epoch(volume, authority)?;
                let store = self.inner.borrow().drives.get(&drive).cloned().ok_or(ReplicaError::NotFound)?;
                store.doubt(volume, proven).await?;
                done()
            }
            ReplicaRequest::AddCopy(new) => self.add_copy(new).await,
            ReplicaRequest::RemoveCopy { copy } => self.remove_copy(copy).await,
        }
    }

    /// The copy, if the asking owner is the one that was accepted last.
    fn authorize(&self, copy: CopyAddress, authority: Authority) -> Result<LocalCopy<P>, ReplicaError> {
        self.check_epoch(copy.volume, authority)?;
        let inner = self.inner.borrow();
        let (drive, local) = inner.copies.find(copy).ok_or(ReplicaError::NotFound)?;
        let is_untold = || inner.untold.get(&(copy.volume, copy.slab, drive)) == Some(&copy.copy);
        if !inner.untold.is_empty() && is_untold() { Err(ReplicaError::Untold) } else { Ok(local.clone()) }
    }

    fn has_untold(&self, volume: VolumeId, drive: DriveId) -> bool {
        self.inner.borrow().untold.keys().any(|(untold, _, holder)| (*untold, *holder) == (volume, drive))
    }

    fn check_epoch(&self, volume: VolumeId, authority: Authority) -> Result<(), ReplicaError> {
        let epoch = self.accepted_epoch(volume);
        let right = authority.epoch == epoch || canary::is_planted(Bug::SkipFence);
        if right { Ok(()) } else { Err(ReplicaError::Fenced { epoch }) }
    }

    fn find(&self, address: CopyAddress) -> Result<LocalCopy<P>, ReplicaError> {
        let inner = self.inner.borrow();
        inner.copies.find(address).map(|(_, local)| local.clone()).ok_or(ReplicaError::NotFound)
    }

    /// Accepts an epoch and tells what the copies know. When this returns, every change that was
    /// accepted under a lower epoch is durable and listed, or refused.
    async fn fence(&self, volume: VolumeId, epoch: Epoch, heeds: &Heeded) -> Answer {
        {
            let mut inner = self.inner.borrow_mut();
            let accepted = inner.accepted.entry(volume).or_default();
            if *accepted > epoch {
                return Err(ReplicaError::Fenced { epoch: *accepted });
            }
            *accepted = epoch;
        }
        let stores: Vec<DriveStore<P>> = {
            let inner = self.inner.borrow();
            let holding = |store: &&DriveStore<P>| store.holds(volume);
            inner.drives.values().filter(holding).cloned().collect()
        };
        let fenced = join_all(stores.iter().map(|store| store.fence(volume, epoch))).await;
        // A drive that failed is not among the answers: its copies count as absent.
        let fenced = stores.iter().zip(&fenced).filter(|(_, result)| result.is_err());
        let failed: Vec<DriveId> = fenced.map(|(store, _)| store.drive_id()).collect();
        let works = |store: &DriveStore<P>| store.failure().is_none() && !failed.contains(&store.drive_id());
        let working = self.drives().into_iter().filter(works).map(|store| store.drive_id());
        let working: Vec<DriveId> = working.collect();
        if self.accepted_epoch(volume) > epoch {
            return Err(ReplicaError::Fenced { epoch: self.accepted_epoch(volume) });
        }
        let gathered = self.gather(volume, &working);
        let is_told = |copy: CopyId| gathered.iter().any(|told| told.copy == copy) && heeds.includes(copy);
        self.inner.borrow_mut().untold.retain(|(untold, ..), copy| *untold != volume || !is_told(*copy));
        Ok((ReplicaResponse::Gathered(gathered, working), Vec::new()))
    }

    fn gather(&self, volume: VolumeId, drives: &[DriveId]) -> Vec<GatheredCopy> {
        let inner = self.inner.borrow();
        let answering =
            inner.copies.of_volume(volume).filter(|(.., copy)| drives.contains(&copy.store.drive_id()));
        let mut lists: BTreeMap<DriveId, Vec<spandrel_drive::ListedWrite>> = BTreeMap::new();
        answering
            .map(|(slab, _, copy)| {
                let drive = copy.store.drive_id();
                let list = lists.entry(drive).or_insert_with(|| copy.store.listed(volume));
                let pages = copy.store.pages(copy.slot).unwrap_or_default();
                let listed = list.iter().filter(|write| write.slab == slab);
                let listed = listed.flat_map(|write| what_stands(write, &pages));
                GatheredCopy {
                    slab,
                    copy: copy.copy,
                    drive,
                    mark: Mark {
                        version: copy.store.mark(volume),
                        exceptions: copy.store.listed_exceptions(volume),
                    },
                    listed: listed.collect(),
                    proven: copy.store.proven(copy.slot),
                }
            })
            .collect()
    }

    async fn add_copy(&self, new: NewCopy) -> Answer {
        let (volume, slab) = (new.copy.volume, new.copy.slab);
        let key = (volume, slab, new.drive);
        let _turn = self.turns.at(key).await;
        if self.find(new.copy).is_ok() {
            return done();
        }
        let store = self.inner.borrow().drives.get(&new.drive).cloned().ok_or(ReplicaError::NotFound)?;
        // One whose owner has given up waiting.
        store.slab_settled(volume, slab).await;
        // A copy that an owner of old asks for may have been replaced by the one that is here.
        let accepted = self.accepted_epoch(volume);
        if new.epoch < accepted {
            return Err(ReplicaError::Fenced { epoch: accepted });
        }
        let layout = SlabLayout::mirror(new.copies, new.part);
        let birth = Version::new(new.epoch, 0);
        // In the place of what is there: nothing of it remains.
        let added = self.without_copy(key, store.add_slab(volume, slab, layout, new.copy.copy, birth));
        let slot = added.await?;
        let local = LocalCopy { store, slot, copy: new.copy.copy };
        // A volume's first slab on a drive must not forget what other drives of the node accepted.
        let accepted = self.accepted_epoch(volume);
        local.store.fence(volume, accepted).await?;
        // A removal that was on its way may have come before the fence.
        if !local.is_on_its_drive(volume, slab) {
            return Err(ReplicaError::NotFound);
        }
        if self.hold(key, local) { done() } else { Err(ReplicaError::NotFound) }
    }

    async fn remove_copy(&self, copy: CopyAddress) -> Answer {
        let find = || self.inner.borrow().find_any(copy).ok_or(ReplicaError::NotFound);
        if find().is_err() {
            // One that is on its way is found when it has come.
            let stores = self.drives();
            join_all(stores.iter().map(|store| store.slab_settled(copy.volume, copy.slab))).await;
        }
        let key = (copy.volume, copy.slab, find()?.store.drive_id());
        let _turn = self.turns.at(key).await;
        // Another one may have taken its place meanwhile.
        let local = find()?;
        self.without_copy(key, local.store.remove_slab(local.slot)).await?;
        done()
    }

    /// Offers a copy, unless its drive was taken away meanwhile. Returns whether it is offered.
    fn hold(&self, place: CopyPlace, copy: LocalCopy<P>) -> bool {
        let mut inner = self.inner.borrow_mut();
        let is_here = inner.drives.contains_key(&place.2);
        if is_here {
            inner.copies.insert(place, copy.copy, copy);
        }
        is_here
    }

    /// Does what takes a copy off its drive. Nobody is served from it meanwhile, and only if it stays, as the drive had no
    /// room to note that it goes, afterwards.
    async fn without_copy<T>(
        &self,
        place: CopyPlace,
        removal: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let former = self.inner.borrow_mut().copies.remove(&place);
        let removed = removal.await;
        if removed.is_ok() {
            self.inner.borrow_mut().untold.remove(&place);
        }
        if let (Err(StoreError::NoRoom), Some(former)) = (&removed, former)
            && self.inner.borrow().copies.at(&place).is_none()
        {
            self.hold(place, former.1);
        }
        removed
    }
}

impl<P: Platform> Default for Replica<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform> LocalCopy<P> {
    /// Whether its slot is still that of this copy.
    fn is_on_its_drive(&self, volume: VolumeId, slab: SlabIndex) -> bool {
        let found = self.store.find_slab(volume, slab);
        found.is_some_and(|found| (found.slot, found.copy) == (self.slot, self.copy))
    }

    fn note_mark(&self, volume: VolumeId, mark: &Mark) {
        self.store.note_mark(volume, mark.version, &mark.exceptions);
    }

    /// Writes what a resync copies.
    async fn fill(&self, first: u32, data: Buffer, checksums: Checksums) -> Result<(), StoreError> {
        let count = checksums.len() as u32;
        self.store.fill(self.slot, first, count, Some((data, checksums))).await
    }

    /// Without a version, it is what a resync copies.
    async fn trim(&self, first: u32, count: u32, version: Version) -> Result<(), StoreError> {
        if version == Version::ZERO {
            return self.store.fill(self.slot, first, count, None).await;
        }
        self.store.trim(self.slot, first, count, version).await
    }
}

/// The parts of a listed write that its copy still holds. A resync gives a page the version of its source,
/// which may be lower than that of a write that only this copy had: what was copied stands there now.
fn what_stands(write: &spandrel_drive::ListedWrite, pages: &[PageDescription]) -> Vec<ListedWrite> {
    let end = write.first + write.count;
    let stands = |page: &u32| {
        let version = pages.get(*page as usize).map(|page| page.version);
        write.in_doubt || version.is_none_or(|version| version >= write.version)
    };
    let part = |page: u32| {
        let first = write.first.max(page * PAGE_BLOCKS);
        let count = end.min((page + 1) * PAGE_BLOCKS) - first;
        ListedWrite { first, count, ..ListedWrite::from(write) }
    };
    (write.first / PAGE_BLOCKS..end.div_ceil(PAGE_BLOCKS)).filter(stands).map(part).collect()
}

fn done() -> Answer {
    Ok((ReplicaResponse::Done, Vec::new()))
}

fn describe<P: Platform>(volume: VolumeId, slab: SlabIndex, copy: &LocalCopy<P>) -> Option<CopyDescription> {
    let description: SlabDescription = copy.store.find_slab(volume, slab)?;
    Some(CopyDescription {
        address: CopyAddress { volume, slab, copy: copy.copy },
        drive: copy.store.drive_id(),
        mapped_blocks: description.mapped_blocks,
    })
}

fn digests_of(parts: &[ReadPart]) -> Vec<Option<ContentDigest>> {
    let mut digests = Vec::new();
    for part in parts {
        match part {
            ReadPart::Hole { count } => digests.extend((0..*count).map(|_| None)),
            ReadPart::Data { data, .. } => {
                digests.extend(data.chunks_exact(BLOCK_BYTES).map(|block| Some(ContentDigest::of(block))));
            }
            ReadPart::Damaged(_) => digests.push(None),
        }
    }
    digests
}

fn describe_parts(parts: Vec<ReadPart>) -> (ReplicaResponse, Vec<Buffer>) {
    let mut payload = Vec::new();
    let mut descriptions = Vec::with_capacity(parts.len());
    for part in parts {
        descriptions.push(match part {
            ReadPart::Hole { count } => PartDescription::Hole(count),
            ReadPart::Data { data, checksums } => {
                payload.push(data);
                PartDescription::Data(checksums)
            }
            ReadPart::Damaged(damaged) => {
                PartDescription::Damaged { block: damaged.block, token: damaged.token() }
            }
        });
    }
    (ReplicaResponse::Parts(descriptions), payload)
}

impl From<StoreError> for ReplicaError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoRoom => ReplicaError::NoRoom,
            StoreError::NotFound => ReplicaError::NotFound,
            StoreError::Failed(detail) => ReplicaError::DriveFailed(detail),
        }
    }
}

impl From<&spandrel_drive::ListedWrite> for ListedWrite {
    fn from(write: &spandrel_drive::ListedWrite) -> Self {
        Self { version: write.version, first: write.first, count: write.count, in_doubt: write.in_doubt }
    }
}

impl From<&spandrel_drive::PageDescription> for PageState {
    fn from(page: &spandrel_drive::PageDescription) -> Self {
        Self {
            version: page.version,
            whole: page.whole,
            mapped_blocks: page.mapped_blocks,
            lost_blocks: page.lost_blocks,
        }
    }
}

impl From<spandrel_drive::BlockState> for BlockState {
    fn from(state: spandrel_drive::BlockState) -> Self {
        match state {
            spandrel_drive::BlockState::Hole => BlockState::Hole,
            spandrel_drive::BlockState::Data(checksum) => BlockState::Data(checksum),
            spandrel_drive::BlockState::Lost => BlockState::Lost,
        }
    }
}

#[cfg(test)]
#[path = "replica_tests.rs"]
mod tests;
