//! A volume as the clients of this node use it, wherever its owner is.
//!
//! A request goes to the owner on this node, or over the bus to the one on another. Whatever
//! happens to owners and connections meanwhile, it is repeated until an owner has answered it.
//!
//! All connections of this node's clients to one volume share an *attachment*, at the shard of the node that the volume's clients
//! are passed on to, and of all nodes' attachments one may write. A second one may be open, but reads only.
//!
//! Invariant: of the changes that come through one attachment, those that overlap are never under
//! way together. So a change that is repeated, because nobody knows whether it was made, undoes no
//! later one. A request names the ownership that it is for: one that was held up on its way, and has been
//! repeated elsewhere meanwhile, is refused when it arrives, since that ownership has ended by then.
//!
//! A volume's clients can be limited: their requests begin as evenly as that allows, at each node for itself.
//!
//! A volume can grow. A client sees how large it is when it connects; what it asks of blocks that its owner does not know
//! yet waits for the next owner.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use spandrel_bus::{
    BusError, BusRequest, BusResponse, ClientError, ClientErrorKind, ClientRequest, ClientResponse,
};
use spandrel_cluster::store::StateStore;
use spandrel_cluster::{StateError, StateKey, Stored, VolumeRecord, VolumeState, VolumeWriter};
use spandrel_platform::{Buffer, Platform, before};
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{BLOCK_BYTES, BlockRange, Epoch, IopsLimit, ShardId, VolumeId};
use spandrel_vm::disk::DiskName;
use spandrel_volume::{
    BlockDevice, DeviceError, DeviceErrorKind, DeviceLimits, Exports, Extent, OpenError, OwnerError,
    RangeLocks,
};

use crate::load::{Passing, VolumeLoads};
use crate::node::NodeInner;
use crate::ownership::{Ownership, VolumeAnswer, VolumeRefusal, VolumeRequest};
use crate::pacer::Place;
use crate::shards::turn_of;

/// How long a request that found no owner waits before it looks again, if nothing wakes it.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How long a client that opens a volume waits for another node's to have closed it: one command after
/// the other should find it free, although the right to write comes back a moment after the close.
const BUSY_PATIENCE: Duration = Duration::from_millis(300);

/// How long a client that opens a volume waits for the cluster's state to say how large it is: it is served without that.
const SIZE_WAIT_MAX: Duration = Duration::from_secs(1);

/// How often a request that waits for its turn under a limit looks whether that still holds.
const LIMIT_LOOK: Duration = Duration::from_millis(100);

/// The longest read or write.
const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// The volumes of the cluster, for a front-end of this node.
pub struct NodeExports<P: Platform, S: StateStore> {
    pub(crate) node: Rc<NodeInner<P, S>>,
}

impl<P: Platform, S: StateStore> Clone for NodeExports<P, S> {
    fn clone(&self) -> Self {
        Self { node: Rc::clone(&self.node) }
    }
}

/// [`NodeExports`] for the front-end of a shard, which has the clients of volumes whose turn it is, and no others.
#[derive(Clone)]
pub(crate) struct SharedExports<P: Platform, S: StateStore>(pub(crate) NodeExports<P, S>);

/// A volume that a client of this node has open.
pub struct NodeDevice<P: Platform, S: StateStore> {
    attachment: Rc<Attachment<P, S>>,
    read_only: bool,
}

impl<P: Platform, S: StateStore> Clone for NodeDevice<P, S> {
    fn clone(&self) -> Self {
        Self { attachment: Rc::clone(&self.attachment), read_only: self.read_only }
    }
}

/// What all clients of this node that have a volume open share.
pub(crate) struct Attachment<P: Platform, S: StateStore> {
    node: Rc<NodeInner<P, S>>,
    volume: VolumeId,
    /// The run of the virtual machine that it is for, if it is for one.
    run: Option<DiskName>,
    /// Whether that only moves to this node: it asks for the right to write with its first change, once it is here.
    waits_for_claim: Cell<bool>,
    number: u64,
    size_bytes: Cell<u64>,
    right: Cell<Right>,
    /// Held by changes from before they are sent until they are answered.
    changing: RangeLocks,
    /// What its clients may do at most, as it was when volumes had changed so often.
    iops_limit: Cell<(Option<u64>, Option<IopsLimit>)>,
    loads: Rc<VolumeLoads>,
}

/// What an attachment knows of its right to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    /// It was never given.
    None,
    /// It was given.
    Given,
    /// Another attachment has taken it. Not asked for again: changes from before may still be on
    /// their way, and must not pass with a right that came later.
    Lost,
}

/// A volume that a client wants to open.
#[derive(Clone, Copy)]
struct Found {
    volume: VolumeId,
    size_bytes: u64,
    /// The run of the virtual machine that it is the disk of, if it was named so.
    run: Option<DiskName>,
    /// Whether the virtual machine only moves to this node, and may not write yet.
    is_to_come: bool,
}

/// Where a volume's owner is.
enum Route<P: Platform, S: StateStore> {
    Here(Rc<Ownership<P, S>>),
    There(ShardId, Epoch),
    Nowhere,
}

/// Why a request was not carried out.
enum Failure {
    /// By this owner, or not for certain: it is to be repeated.
    Repeat,
    /// It lies outside of what the owner knows of the volume.
    OutOfRange(DeviceError),
    Final(DeviceError),
}

impl<P: Platform, S: StateStore> Exports for NodeExports<P, S> {
    type Device = NodeDevice<P, S>;

    fn names(&self) -> Vec<String> {
        let volumes = self.node.parts.view.volumes.borrow();
        let ready = volumes.values().filter(|stored| stored.record.state == VolumeState::Ready);
        let mut names: Vec<String> = ready.map(|stored| stored.record.name.clone()).collect();
        names.sort();
        names
    }

    async fn open(&self, name: &str) -> Result<NodeDevice<P, S>, OpenError> {
        let found = self.find(name).await?;
        Ok(self.attach(found).await?)
    }
}

impl<P: Platform, S: StateStore> Exports for SharedExports<P, S> {
    type Device = NodeDevice<P, S>;

    fn names(&self) -> Vec<String> {
        self.0.names()
    }

    async fn open(&self, name: &str) -> Result<NodeDevice<P, S>, OpenError> {
        let found = self.0.find(name).await?;
        let parts = &self.0.node.parts;
        let shard = turn_of(found.volume, parts.shards);
        if shard != parts.own.shard.number {
            return Err(OpenError::Elsewhere(shard.into()));
        }
        Ok(self.0.attach(found).await?)
    }
}

impl<P: Platform, S: StateStore> NodeExports<P, S> {
    async fn attach(&self, found: Found) -> Result<NodeDevice<P, S>, DeviceError> {
        let Found { volume, size_bytes, run, is_to_come } = found;
        // Whoever opens it by its name must not write to what a guest has in use.
        if run.is_none() && self.node.is_disk_in_use(volume) {
            let attachment = self.node.new_attachment(found);
            return Ok(NodeDevice { attachment, read_only: true });
        }
        let attachment = self.node.attachment(found);
        attachment.note_size(size_bytes);
        if is_to_come {
            // Before its first change, so that nobody else comes in between.
            let arriving = Rc::clone(&attachment);
            self.node.parts.platform.spawn(async move { drop(arriving.await_claim().await) });
            return Ok(NodeDevice { attachment, read_only: false });
        }
        let asks_owner = attachment.right.get() == Right::None;
        let read_only = !attachment.attach().await?;
        if read_only && run.is_some() {
            let detail =
                "another client has the disk open for writing, or may have: it is opened when that has ended";
            return Err(DeviceError::new(DeviceErrorKind::Busy, detail));
        }
        if read_only || !asks_owner {
            // No owner has said how large the volume is by now, and what is known here may lag behind.
            attachment.ask_size().await;
        }
        Ok(NodeDevice { attachment, read_only })
    }

    /// The volume of a name. Asks the cluster's state about a name that is not known here yet, and about the run of a
    /// virtual machine, which may be over.
    async fn find(&self, name: &str) -> Result<Found, DeviceError> {
        match name.parse() {
            Ok(disk) => self.find_disk(disk).await,
            Err(()) => self.find_volume(name).await,
        }
    }

    async fn find_disk(&self, disk: DiskName) -> Result<Found, DeviceError> {
        let found = self.node.disk_of_run(disk).await.map_err(state_failed)?;
        let (volume, is_to_come) = found.ok_or_else(|| {
            let detail =
                format!("this node has not claimed the virtual machine {} by run {}", disk.vm, disk.run);
            DeviceError::new(DeviceErrorKind::NotFound, detail)
        })?;
        let stored: Option<Stored<VolumeRecord>> =
            self.node.parts.state.get(&StateKey::Volume(volume)).await.map_err(state_failed)?;
        let size_bytes = stored.map(|stored| stored.record.size_bytes);
        let size_bytes = size_bytes.ok_or_else(|| {
            DeviceError::new(DeviceErrorKind::NotFound, format!("there is no volume {volume}"))
        })?;
        Ok(Found { volume, size_bytes, run: Some(disk), is_to_come })
    }

    async fn find_volume(&self, name: &str) -> Result<Found, DeviceError> {
        let parts = &self.node.parts;
        let not_found =
            || DeviceError::new(DeviceErrorKind::NotFound, format!("there is no volume {name:?}"));
        let known = {
            let volumes = parts.view.volumes.borrow();
            let mut named = volumes.iter().filter(|(_, stored)| stored.record.name == name);
            named
                .find(|(_, stored)| stored.record.state == VolumeState::Ready)
                .map(|(volume, stored)| (*volume, stored.record.size_bytes))
        };
        if let Some((volume, size_bytes)) = known {
            return Ok(Found { volume, size_bytes, run: None, is_to_come: false });
        }
        let volume = parts.state.volume_by_name(name).await.map_err(state_failed)?.ok_or_else(not_found)?;
        let stored =
            parts.state.get::<VolumeRecord>(&StateKey::Volume(volume)).await.map_err(state_failed)?;
        match stored {
            Some(stored) if stored.record.state == VolumeState::Ready => {
                Ok(Found { volume, size_bytes: stored.record.size_bytes, run: None, is_to_come: false })
            }
            _ => Err(not_found()),
        }
    }
}

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    /// Has attachments give way whose runs are over, as long as the node runs: whatever has opened them may not know it.
    pub(crate) async fn end_runs(self: Rc<Self>) {
        loop {
            let changed = self.parts.view.changed.notified();
            let attachments: Vec<_> =
                self.attachments.borrow().values().filter_map(std::rc::Weak::upgrade).collect();
            for attachment in attachments {
                let Some(disk) = attachment.run.filter(|_| attachment.right.get() != Right::Lost) else {
                    continue;
                };
                // What was seen may lag behind.
                if self.run_seen(disk).is_none() && matches!(self.disk_of_run(disk).await, Ok(None)) {
                    tracing::info!(vm = %disk.vm, run = disk.run, "the disk is closed: the run is over");
                    attachment.lose_right();
                }
            }
            changed.await;
        }
    }

    /// The attachment of this node's clients to a volume, made if there is none. A run of a virtual machine has one of its own,
    /// which takes the place of any other.
    fn attachment(self: &Rc<Self>, found: Found) -> Rc<Attachment<P, S>> {
        let Found { volume, run, .. } = found;
        let mut attachments = self.attachments.borrow_mut();
        attachments.retain(|_, attachment| attachment.strong_count() > 0);
        let present = attachments.get(&volume).and_then(std::rc::Weak::upgrade);
        let is_the_same =
            |present: &Rc<Attachment<P, S>>| present.right.get() != Right::Lost && present.run == run;
        if let Some(present) = present.filter(is_the_same) {
            return present;
        }
        let attachment = self.new_attachment(found);
        attachments.insert(volume, Rc::downgrade(&attachment));
        attachment
    }

    /// An attachment of its own: other clients do not share it.
    fn new_attachment(self: &Rc<Self>, found: Found) -> Rc<Attachment<P, S>> {
        let Found { volume, size_bytes, run, is_to_come } = found;
        Rc::new(Attachment {
            node: Rc::clone(self),
            volume,
            run,
            waits_for_claim: Cell::new(is_to_come),
            number: self.parts.platform.random_u64(),
            size_bytes: Cell::new(size_bytes),
            right: Cell::new(Right::None),
            changing: RangeLocks::default(),
            iops_limit: Cell::default(),
            loads: self.loads.of(volume),
        })
    }

    /// Whether one of this node's attachments has this number.
    pub(crate) fn has_attachment(&self, number: u64) -> bool {
        let attachments = self.attachments.borrow();
        attachments
            .values()
            .any(|attachment| attachment.upgrade().is_some_and(|attachment| attachment.number == number))
    }

    /// Gives a right to write back that one of this node's attachments had, or may get from a request
    /// that is still on its way: as long as this node lives, nobody else can take it. Goes on until an
    /// owner has said that it is done; what is not given back when the node stops counts as lost.
    async fn give_back(&self, volume: VolumeId, writer: VolumeWriter) {
        loop {
            let given_back = match self.route(volume) {
                Route::Here(ownership) => ownership.release(writer).await.is_ok(),
                Route::There(owner, epoch) => {
                    let request = ClientRequest::Detach { volume, attachment: writer.attachment };
                    let request = BusRequest::Client(epoch, request);
                    let answer = self.parts.bus.call(owner, request, Vec::new()).await;
                    matches!(answer, Ok((BusResponse::Client(Ok(_)), _)))
                }
                Route::Nowhere => false,
            };
            if given_back || self.wait_for_owner(volume).await.is_err() {
                return;
            }
        }
    }

    /// Waits until another owner may be found. Fails when there will be none.
    async fn wait_for_owner(&self, volume: VolumeId) -> Result<(), DeviceError> {
        if self.stopping.get() {
            return Err(DeviceError::new(DeviceErrorKind::Stopping, "the node is stopping"));
        }
        let is_known = self.parts.view.volumes.borrow().contains_key(&volume);
        if !is_known {
            let tombstone = StateKey::VolumeTombstone(volume).key();
            let selection = [spandrel_cluster::store::Selection::key(&tombstone)];
            let read = self.parts.state.store();
            if let Ok(snapshot) = read.read(&selection).await
                && snapshot.entry(0).is_some()
            {
                return Err(DeviceError::new(DeviceErrorKind::NotFound, "the volume was deleted"));
            }
        }
        let changed = std::pin::pin!(self.ownerships_changed.notified());
        let later = std::pin::pin!(self.parts.platform.sleep(LOOK_AGAIN));
        futures_util::future::select(changed, later).await;
        Ok(())
    }

    fn route(&self, volume: VolumeId) -> Route<P, S> {
        if let Some(ownership) = self.ownership(volume) {
            return Route::Here(ownership);
        }
        let volumes = self.parts.view.volumes.borrow();
        let record = volumes.get(&volume).map(|stored| &stored.record);
        match record.and_then(|record| Some((record.owner?, record.epoch))) {
            Some((owner, epoch))
                if owner.shard != self.parts.own.shard && self.parts.bus.session(owner.shard).is_some() =>
            {
                Route::There(owner.shard, epoch)
            }
            _ => Route::Nowhere,
        }
    }
}

impl<P: Platform, S: StateStore> Attachment<P, S> {
    fn writer(&self) -> VolumeWriter {
        let own = self.node.parts.own;
        VolumeWriter { shard: own.shard, incarnation: own.incarnation, attachment: self.number }
    }

    /// Takes note of how large the volume is, as far as somebody knew: it never becomes smaller. Clients that are
    /// connected go by what they were told.
    fn note_size(&self, size_bytes: u64) {
        self.size_bytes.set(self.size_bytes.get().max(size_bytes));
    }

    /// Asks the cluster's state how large the volume is, if it answers soon.
    async fn ask_size(&self) {
        let parts = &self.node.parts;
        let key = StateKey::Volume(self.volume);
        let asked = parts.state.get::<VolumeRecord>(&key);
        let answer = before(&parts.platform, parts.platform.now() + SIZE_WAIT_MAX, asked).await;
        if let Some(Ok(Some(stored))) = answer {
            self.note_size(stored.record.size_bytes);
        }
    }

    /// Whether a request is one that the volume can carry out, as large as it is known to be.
    fn is_within(&self, request: &VolumeRequest) -> bool {
        let (offset, length) = request.range();
        length > 0 && offset.checked_add(length).is_some_and(|end| end <= self.size_bytes.get())
    }

    /// Asks for the right to write, if it was not given yet. `false` if another attachment has it.
    async fn attach(&self) -> Result<bool, DeviceError> {
        // Since when each answer was that another one has it.
        let mut busy_since = None;
        loop {
            if self.right.get() == Right::None && self.is_replaced() {
                self.right.set(Right::Lost);
            }
            if self.right.get() != Right::None {
                return Ok(self.right.get() == Right::Given);
            }
            let attached = match self.node.route(self.volume) {
                Route::Here(ownership) => match ownership.admit(&self.node, self.writer()).await {
                    Ok(()) => {
                        self.note_size(ownership.owner.size_bytes());
                        self.take_right().await?;
                        continue;
                    }
                    Err(refusal) => Err(refused_here(&self.node, refusal)),
                },
                Route::There(owner, epoch) => {
                    let request = ClientRequest::Attach { volume: self.volume, attachment: self.number };
                    match self.ask(owner, epoch, request, Vec::new()).await {
                        Ok((ClientResponse::Attached { size_bytes }, _)) => {
                            self.note_size(size_bytes);
                            self.take_right().await?;
                            continue;
                        }
                        Ok(_) => Err(Failure::Final(unfit_answer())),
                        Err(failure) => Err(failure),
                    }
                }
                Route::Nowhere => Err(Failure::Repeat),
            };
            match attached {
                Err(Failure::Final(error)) if error.kind == DeviceErrorKind::Busy => {
                    let now = self.node.parts.platform.now();
                    if now.since(*busy_since.get_or_insert(now)) >= BUSY_PATIENCE {
                        return Ok(false);
                    }
                    self.node.wait_for_owner(self.volume).await?;
                }
                Err(Failure::Final(error) | Failure::OutOfRange(error)) => return Err(error),
                Err(Failure::Repeat) | Ok(()) => {
                    busy_since = None;
                    self.node.wait_for_owner(self.volume).await?;
                }
            }
        }
    }

    /// Whether a newer attachment of this node's clients has taken the place of this one.
    fn is_replaced(&self) -> bool {
        let newest = self.node.attachments.borrow().get(&self.volume).and_then(std::rc::Weak::upgrade);
        newest.is_some_and(|newest| newest.number != self.number)
    }

    /// The owner has given the right to write. A virtual machine's is used only if its claim holds after that: whoever claims
    /// it later has to take the right away first. If it does not hold, the right is given back.
    async fn take_right(&self) -> Result<(), DeviceError> {
        let Some(disk) = self.run else {
            self.right.set(Right::Given);
            return Ok(());
        };
        loop {
            match self.node.disk_of_run(disk).await {
                Ok(Some((volume, false))) if volume == self.volume => {
                    self.right.set(Right::Given);
                    return Ok(());
                }
                Ok(_) => {
                    self.lose_right();
                    return Ok(());
                }
                // Nothing is written by a claim that may be over.
                Err(_) => self.node.wait_for_owner(self.volume).await?,
            }
        }
    }

    /// The claim is over that it was for: it never writes again, and others need not wait for it.
    fn lose_right(&self) {
        self.right.set(Right::Lost);
        let (node, volume, writer) = (Rc::clone(&self.node), self.volume, self.writer());
        self.node.parts.platform.spawn(async move { node.give_back(volume, writer).await });
    }

    /// Waits until the virtual machine that it is for is here, and asks for the right to write then. Whoever had it before has
    /// stopped by then, and leaves.
    async fn await_claim(&self) -> Result<(), DeviceError> {
        let Some(disk) = self.run.filter(|_| self.waits_for_claim.get()) else { return Ok(()) };
        let view = &self.node.parts.view;
        loop {
            let changed = view.changed.notified();
            match self.node.run_seen(disk) {
                Some(true) => break,
                Some(false) => changed.await,
                None => {
                    let detail = format!("the virtual machine {} is not here by run {}", disk.vm, disk.run);
                    return Err(DeviceError::new(DeviceErrorKind::Busy, detail));
                }
            }
        }
        while !self.attach().await? {
            if self.node.run_seen(disk).is_none() || self.right.get() == Right::Lost {
                return Err(DeviceError::new(DeviceErrorKind::Busy, "another one writes to the disk"));
            }
        }
        self.waits_for_claim.set(false);
        Ok(())
    }

    /// What clients may do at most, as far as this node knows.
    fn iops_limit(&self) -> Option<IopsLimit> {
        let view = &self.node.parts.view;
        let (seen, limit) = self.iops_limit.get();
        if seen == Some(view.volume_changes()) {
            return limit;
        }
        let limit = view.volumes.borrow().get(&self.volume).and_then(|stored| stored.record.iops_limit);
        self.iops_limit.set((Some(view.volume_changes()), limit));
        limit
    }

    /// The place of a request in the row of those that wait for a limit; none if clients are not limited.
    fn place_in_row(&self, request: &VolumeRequest) -> Option<Place> {
        let limit = self.iops_limit()?;
        let bytes = match request {
            VolumeRequest::Read { length, .. } => u64::from(*length),
            VolumeRequest::Write { data, .. } => data.len() as u64,
            // They move no data.
            VolumeRequest::WriteZeroes { .. } => 0,
            VolumeRequest::Trim { .. } | VolumeRequest::Extents { .. } => return None,
        };
        Some(self.loads.pacer.admit(self.node.parts.platform.now(), limit, bytes))
    }

    /// Waits until a request may begin; no longer than clients are limited, and not while the node stops.
    async fn pace(&self, place: Place) {
        let platform = &self.node.parts.platform;
        while let Some(limit) = self.iops_limit().filter(|_| !self.node.stopping.get()) {
            let now = platform.now();
            let moment = self.loads.pacer.moment(now, limit, place);
            if moment <= now {
                return;
            }
            platform.sleep_until(moment.min(now + LIMIT_LOOK)).await;
        }
        if self.iops_limit().is_none() {
            self.loads.pacer.end_row();
        }
    }

    /// Has a request carried out by whoever owns the volume.
    async fn perform(&self, request: VolumeRequest) -> Result<VolumeAnswer, DeviceError> {
        let begin = || Passing::begin(&self.loads.frontend, &request);
        // A limit is the user's will: what a request waits for it, itself or behind another one of the same blocks, counts neither as
        // latency of the storage nor as a pause.
        let passing = self.iops_limit().is_none().then(begin);
        let _turn = match request.changes() {
            Some((offset, length)) => {
                Some(self.changing.exclusive(BlockRange::covering(offset, length)).await)
            }
            None => None,
        };
        // With the turn: a change that waits here must not come behind a later one of the same blocks.
        if let Some(place) = self.place_in_row(&request) {
            self.pace(place).await;
        }
        let passing = passing.unwrap_or_else(begin);
        passing.end(self.perform_until_answered(&request).await)
    }

    /// Asks one owner after the other, until one has answered.
    async fn perform_until_answered(&self, request: &VolumeRequest) -> Result<VolumeAnswer, DeviceError> {
        loop {
            let outcome = match self.node.route(self.volume) {
                Route::Here(ownership) => {
                    let carried_out = ownership.carry_out(self.writer(), request.clone()).await;
                    carried_out.map_err(|refusal| refused_here(&self.node, refusal))
                }
                Route::There(owner, epoch) => self.perform_there(owner, epoch, request).await,
                Route::Nowhere => Err(Failure::Repeat),
            };
            match outcome {
                Ok(answer) => return Ok(answer),
                Err(Failure::Final(error)) => {
                    if error.kind == DeviceErrorKind::Busy {
                        self.right.set(Right::Lost);
                    }
                    return Err(error);
                }
                // The volume has grown, and its owner is about to begin anew with that.
                Err(Failure::OutOfRange(error)) if !self.is_within(request) => return Err(error),
                Err(Failure::Repeat | Failure::OutOfRange(_)) => {
                    if request.changes().is_some() {
                        witness::reached(Rare::ChangeRepeated);
                    }
                    self.node.wait_for_owner(self.volume).await?;
                }
            }
        }
    }

    async fn perform_there(
        &self,
        owner: ShardId,
        epoch: Epoch,
        request: &VolumeRequest,
    ) -> Result<VolumeAnswer, Failure> {
        let (volume, attachment) = (self.volume, self.number);
        let (request, payload) = match request.clone() {
            VolumeRequest::Read { offset, length } => {
                (ClientRequest::Read { volume, offset, length }, Vec::new())
            }
            VolumeRequest::Write { offset, data } => {
                (ClientRequest::Write { volume, attachment, offset }, vec![data])
            }
            VolumeRequest::WriteZeroes { offset, length } => {
                let keep_allocated = false;
                let zeroes =
                    ClientRequest::WriteZeroes { volume, attachment, offset, length, keep_allocated };
                (zeroes, Vec::new())
            }
            VolumeRequest::Trim { offset, length } => {
                (ClientRequest::Trim { volume, attachment, offset, length }, Vec::new())
            }
            VolumeRequest::Extents { offset, length } => {
                (ClientRequest::Extents { volume, offset, length }, Vec::new())
            }
        };
        let (response, parts) = self.ask(owner, epoch, request, payload).await?;
        match response {
            ClientResponse::Done => Ok(VolumeAnswer::Done),
            ClientResponse::Data => Ok(VolumeAnswer::Data(parts)),
            ClientResponse::Extents(states) => {
                let extents = states
                    .into_iter()
                    .map(|state| Extent { length: state.length, allocated: state.allocated });
                Ok(VolumeAnswer::Extents(extents.collect()))
            }
            ClientResponse::Attached { .. } => Err(Failure::Final(unfit_answer())),
        }
    }

    async fn ask(
        &self,
        owner: ShardId,
        epoch: Epoch,
        request: ClientRequest,
        payload: Vec<Buffer>,
    ) -> Result<(ClientResponse, Vec<Buffer>), Failure> {
        match self.node.parts.bus.call(owner, BusRequest::Client(epoch, request), payload).await {
            Ok((BusResponse::Client(Ok(response)), parts)) => Ok((response, parts)),
            Ok((BusResponse::Client(Err(error)), _)) => Err(refused_there(error)),
            Ok(_) => Err(Failure::Final(unfit_answer())),
            Err(BusError::TooLarge) => {
                let detail = "the request is larger than nodes can exchange";
                Err(Failure::Final(DeviceError::new(DeviceErrorKind::Invalid, detail)))
            }
            // The session is gone, or something was damaged on the way: the same bytes again do no harm.
            Err(_) => Err(Failure::Repeat),
        }
    }
}

impl<P: Platform, S: StateStore> Drop for Attachment<P, S> {
    /// Gives the right to write back, so that another node need not wait.
    fn drop(&mut self) {
        let (node, volume, writer) = (Rc::clone(&self.node), self.volume, self.writer());
        self.node.parts.platform.spawn(async move { node.give_back(volume, writer).await });
    }
}

fn refused_here<P: Platform, S: StateStore>(node: &NodeInner<P, S>, refusal: VolumeRefusal) -> Failure {
    match refusal {
        VolumeRefusal::Owner(OwnerError::Deposed) | VolumeRefusal::NotNow => Failure::Repeat,
        VolumeRefusal::Owner(error @ OwnerError::Invalid(_)) => Failure::OutOfRange(error.into()),
        VolumeRefusal::Owner(error) => Failure::Final(error.into()),
        VolumeRefusal::Busy(writer) => {
            let detail = node.parts.describe_writer(writer);
            Failure::Final(DeviceError::new(DeviceErrorKind::Busy, detail))
        }
    }
}

fn refused_there(error: ClientError) -> Failure {
    let kind = match error.kind {
        ClientErrorKind::NotOwner { .. } | ClientErrorKind::WrongIncarnation { .. } => {
            return Failure::Repeat;
        }
        ClientErrorKind::Busy => DeviceErrorKind::Busy,
        ClientErrorKind::Invalid => {
            return Failure::OutOfRange(DeviceError::new(DeviceErrorKind::Invalid, error.detail));
        }
        ClientErrorKind::NoRoom => DeviceErrorKind::NoRoom,
        ClientErrorKind::Failed => DeviceErrorKind::Failed,
    };
    Failure::Final(DeviceError::new(kind, error.detail))
}

fn state_failed(error: StateError) -> DeviceError {
    DeviceError::new(DeviceErrorKind::Failed, format!("the cluster's state: {error}"))
}

fn unfit_answer() -> DeviceError {
    DeviceError::new(DeviceErrorKind::Failed, "the owner's answer does not fit the request")
}

impl<P: Platform, S: StateStore> NodeDevice<P, S> {
    async fn change(&self, request: VolumeRequest) -> Result<(), DeviceError> {
        if self.read_only {
            let detail = "another node's client has the volume open for writing";
            return Err(DeviceError::new(DeviceErrorKind::ReadOnly, detail));
        }
        if self.attachment.waits_for_claim.get() {
            self.attachment.await_claim().await?;
        }
        self.attachment.perform(request).await.map(|_| ())
    }
}

impl<P: Platform, S: StateStore> BlockDevice for NodeDevice<P, S> {
    fn limits(&self) -> DeviceLimits {
        DeviceLimits {
            size_bytes: self.attachment.size_bytes.get(),
            request_bytes_min: 512,
            request_bytes_preferred: BLOCK_BYTES as u32,
            request_bytes_max: REQUEST_BYTES_MAX,
            read_only: self.read_only,
        }
    }

    async fn read(&self, offset: u64, length: u32) -> Result<Vec<Buffer>, DeviceError> {
        match self.attachment.perform(VolumeRequest::Read { offset, length }).await? {
            VolumeAnswer::Data(parts) => Ok(parts),
            _ => Err(unfit_answer()),
        }
    }

    async fn write(&self, offset: u64, data: Buffer) -> Result<(), DeviceError> {
        self.change(VolumeRequest::Write { offset, data }).await
    }

    async fn write_zeroes(&self, offset: u64, length: u64, _keep_allocated: bool) -> Result<(), DeviceError> {
        self.change(VolumeRequest::WriteZeroes { offset, length }).await
    }

    async fn trim(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.change(VolumeRequest::Trim { offset, length }).await
    }

    /// Every answered change is durable already.
    async fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    async fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, DeviceError> {
        match self.attachment.perform(VolumeRequest::Extents { offset, length }).await? {
            VolumeAnswer::Extents(extents) => Ok(extents),
            _ => Err(unfit_answer()),
        }
    }
}
