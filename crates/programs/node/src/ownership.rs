//! Which volumes this node owns: it takes those that nobody serves, and gives up those that
//! somebody else has taken.
//!
//! The rules are few: a volume is taken by its preferred owner if it has none, by the node whose
//! former process owned it, and by any node if its owner has been silent for 1.5 s; each time only
//! by a node that reaches an in-sync copy of every slab. Of several that try at once the cluster's
//! state lets one succeed, and the others then see its epoch. A node in maintenance lets all others go first.
//!
//! Invariants:
//! - An owner begins with what the state shows after it was taken, read linearizably.
//! - An ownership that was overtaken, in the state or by a fence here, is deposed.

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeSet;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::select;
use futures_util::lock::Mutex;
use spandrel_cluster::liveness::OWNER_SILENCE_MAX;
use spandrel_cluster::promises::Peer;
use spandrel_cluster::store::{Revision, StateStore};
use spandrel_cluster::{Member, Stored, VolumeMembership, VolumeRecord, VolumeState, VolumeWriter};
use spandrel_platform::{Buffer, Instant, Platform, before};
use spandrel_replica::CopyAddress;
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{NodeId, SlabIndex, VolumeId};
use spandrel_volume::{Extent, Leg, LegId, MembershipError, Owner, OwnerError, Phase};

use crate::context::NodeContext;
use crate::handover::BeingTaken;
use crate::load::{Passing, VolumeLoads};
use crate::moves::Moving;
use crate::node::NodeInner;
use crate::scrub::Scrubbing;
use crate::stubborn::retry_store;
use crate::writers::Writers;

/// How often volumes are looked at while one of them needs a new owner or is being taken. One whose record changes is looked at at
/// once. As long as all have owners that are heard of, nothing has to be looked at before the first of these could have been silent
/// for too long.
const INTERVAL: Duration = Duration::from_millis(50);

/// Nodes that see an owner fall silent do not all try at the same moment.
const STAGGER_MAX_MS: u64 = 50;

/// How much longer a node waits that holds no in-sync copy itself: those that do serve reads
/// without a network.
const WITHOUT_COPY_DELAY: Duration = Duration::from_millis(500);

/// How long a front-end that may write from now on waits for what its predecessor has begun, before
/// it has to ask again.
const FORMER_WRITER_WAIT_MAX: Duration = Duration::from_secs(1);

/// How long a front-end that wants to write waits for a sign of life of the one that may, before it has to ask again.
const WRITER_ANSWER_WAIT_MAX: Duration = Duration::from_secs(1);

/// How long a node in maintenance waits for others to take a volume that nobody serves. They need to see its owner
/// silent, their own delays, and one transaction.
///
/// A volume that no other node can take is served by this one after all: whoever put it into maintenance saw that the
/// others could do without it, so something else has been lost since, and clients that wait for as long as the
/// maintenance lasts would be worse off than with an owner that is about to go. It is handed over as soon as another
/// node can take it.
const MAINTENANCE_DELAY: Duration = Duration::from_secs(3);

/// An ownership of this process.
pub(crate) struct Ownership<P: Platform, S: StateStore> {
    pub(crate) owner: Owner<NodeContext<P, S>>,
    pub(crate) context: NodeContext<P, S>,
    writers: Writers,
    /// The front-end elsewhere that the volume is about to follow.
    pub(crate) followed: Cell<Option<VolumeWriter>>,
    /// The front-end that the volume does not follow: it was moved here while that one could write.
    pub(crate) left: Cell<Option<VolumeWriter>>,
    /// How far its copies are that are moved.
    pub(crate) moving: RefCell<Moving>,
    /// Held by whoever makes the volume larger.
    pub(crate) growing: Mutex<()>,
    /// How far its scrub is.
    pub(crate) scrubbing: Scrubbing,
    loads: Rc<VolumeLoads>,
    /// What the state's revision was when it began.
    since: Revision,
}

/// What a front-end asks of a volume.
#[derive(Clone, Debug)]
pub(crate) enum VolumeRequest {
    Read { offset: u64, length: u32 },
    Write { offset: u64, data: Buffer },
    WriteZeroes { offset: u64, length: u64 },
    Trim { offset: u64, length: u64 },
    Extents { offset: u64, length: u64 },
}

impl VolumeRequest {
    /// The bytes that it concerns: first and how many.
    pub(crate) fn range(&self) -> (u64, u64) {
        match self {
            VolumeRequest::Read { offset, length } => (*offset, u64::from(*length)),
            VolumeRequest::Write { offset, data } => (*offset, data.len() as u64),
            VolumeRequest::WriteZeroes { offset, length }
            | VolumeRequest::Trim { offset, length }
            | VolumeRequest::Extents { offset, length } => (*offset, *length),
        }
    }

    /// The bytes that it changes: first and how many. `None` if it changes nothing.
    pub(crate) fn changes(&self) -> Option<(u64, u64)> {
        match self {
            VolumeRequest::Read { .. } | VolumeRequest::Extents { .. } => None,
            VolumeRequest::Write { .. } | VolumeRequest::WriteZeroes { .. } | VolumeRequest::Trim { .. } => {
                Some(self.range())
            }
        }
    }
}

/// What became of a [`VolumeRequest`].
pub(crate) enum VolumeAnswer {
    Done,
    Data(Vec<Buffer>),
    Extents(Vec<Extent>),
}

/// Why an owner did not do what a front-end asked.
pub(crate) enum VolumeRefusal {
    /// Another front-end may write, or none may without attaching first. Nothing changed.
    Busy(Option<VolumeWriter>),
    /// The owner is not ready for it, or the cluster's state could not be changed. Ask again.
    NotNow,
    Owner(OwnerError),
}

impl<P: Platform, S: StateStore> Ownership<P, S> {
    /// The volume as the state showed it last.
    pub(crate) fn seen(&self) -> Ref<'_, VolumeMembership> {
        self.context.seen()
    }

    /// The front-end that may write.
    pub(crate) fn writer(&self) -> Option<VolumeWriter> {
        self.context.writer()
    }

    /// Lets `writer` write from now on, and nobody else, unless another front-end does that still
    /// lives. When this returns, nothing that others began to change is under way any more.
    pub(crate) async fn admit(
        &self,
        node: &NodeInner<P, S>,
        writer: VolumeWriter,
    ) -> Result<(), VolumeRefusal> {
        // A front-end has one attachment to a volume at a time: a newer one takes its place.
        let same_process = |present: &VolumeWriter| {
            (present.shard, present.incarnation) == (writer.shard, writer.incarnation)
        };
        loop {
            let present = self.writer();
            if let Some(present) = present.filter(|present| !same_process(present)) {
                // Nobody's turn: the present one may be about to leave, and must be able to say so.
                match node.lives(present).await {
                    // It may have left, and could not say so to an owner that was not there.
                    Some(true) if self.owner.phase() != Phase::Serving => return Err(VolumeRefusal::NotNow),
                    Some(true) if self.writer() == Some(present) && !self.writers.has_left(present) => {
                        return Err(VolumeRefusal::Busy(Some(present)));
                    }
                    Some(_) => {}
                    None => return Err(VolumeRefusal::NotNow),
                }
            }
            let _turn = self.writers.turn().await;
            if self.writer() == Some(writer) {
                break;
            }
            if self.writer() != present {
                continue;
            }
            self.replace_writer(present, Some(writer)).await?;
            if present.is_some() {
                witness::reached(Rare::WriterReplaced);
            }
            if self.writer() == Some(writer) {
                break;
            }
        }
        let platform = &node.parts.platform;
        let deadline = platform.now() + FORMER_WRITER_WAIT_MAX;
        let ended = before(platform, deadline, self.writers.others_ended(writer)).await;
        ended.ok_or(VolumeRefusal::NotNow)
    }

    /// `writer` is gone.
    pub(crate) async fn release(&self, writer: VolumeWriter) -> Result<(), VolumeRefusal> {
        if self.writer() == Some(writer) {
            self.writers.leaves(writer);
        }
        let _turn = self.writers.turn().await;
        while self.writer() == Some(writer) {
            self.replace_writer(Some(writer), None).await?;
        }
        Ok(())
    }

    async fn replace_writer(
        &self,
        present: Option<VolumeWriter>,
        writer: Option<VolumeWriter>,
    ) -> Result<(), VolumeRefusal> {
        match self.context.replace_writer(present, writer).await {
            Ok(_) => Ok(()),
            Err(MembershipError::NotOwner) => {
                self.owner.depose();
                Err(VolumeRefusal::Owner(OwnerError::Deposed))
            }
            Err(MembershipError::Refused(_) | MembershipError::Unavailable(_)) => Err(VolumeRefusal::NotNow),
        }
    }

    /// Carries a front-end's request out.
    pub(crate) async fn carry_out(
        &self,
        writer: VolumeWriter,
        request: VolumeRequest,
    ) -> Result<VolumeAnswer, VolumeRefusal> {
        // One that was replaced is not admitted again: it may repeat what it does not know to be
        // done, and must not undo what was written since.
        let admitted = self.writer() == Some(writer) || canary::is_planted(Bug::LostWriterGoesOn);
        if request.changes().is_some() && !admitted {
            witness::reached(Rare::LostWriterRefused);
            return Err(VolumeRefusal::Busy(self.writer()));
        }
        let _change = request.changes().map(|_| self.writers.begin(writer));
        let passing = Passing::begin(&self.loads.owner, &request);
        let done = |()| VolumeAnswer::Done;
        let owner = &self.owner;
        let answer = match request {
            VolumeRequest::Write { offset, data } => owner.write(offset, data).await.map(done),
            VolumeRequest::Read { offset, length } => {
                owner.read(offset, length).await.map(VolumeAnswer::Data)
            }
            VolumeRequest::WriteZeroes { offset, length } => {
                owner.write_zeroes(offset, length).await.map(done)
            }
            VolumeRequest::Trim { offset, length } => owner.trim(offset, length).await.map(done),
            VolumeRequest::Extents { offset, length } => {
                owner.extents(offset, length).await.map(VolumeAnswer::Extents)
            }
        };
        passing.end(answer.map_err(VolumeRefusal::Owner))
    }
}

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    /// The ownership of a volume, if this process has it and nobody has taken it away.
    pub(crate) fn ownership(&self, volume: VolumeId) -> Option<Rc<Ownership<P, S>>> {
        let ownerships = self.ownerships.borrow();
        let ownership = ownerships.get(&volume)?;
        (ownership.owner.phase() != Phase::Deposed).then(|| Rc::clone(ownership))
    }

    /// Whether a front-end is there now: what was heard of its node before says nothing about that. `None` if that
    /// does not show within a while.
    async fn lives(&self, writer: VolumeWriter) -> Option<bool> {
        if writer.shard == self.parts.own.shard {
            let is_this_process = writer.incarnation == self.parts.own.incarnation;
            return Some(is_this_process && self.has_attachment(writer.attachment));
        }
        let (platform, liveness) = (&self.parts.platform, &self.parts.liveness);
        let peer = Peer { shard: writer.shard, incarnation: writer.incarnation };
        let asked = platform.now();
        let deadline = asked + WRITER_ANSWER_WAIT_MAX;
        loop {
            let heard = liveness.changed().notified();
            if let Some(lives) = liveness.lives(peer, asked) {
                return Some(lives);
            }
            before(platform, deadline, heard).await?;
        }
    }

    /// Gives volumes up that others have fenced here, as long as the node runs.
    pub(crate) async fn give_way(self: Rc<Self>) {
        loop {
            let heard = self.parts.liveness.changed().notified();
            for (volume, epoch) in self.parts.liveness.take_overtaken() {
                if let Some(ownership) = self.ownership(volume)
                    && ownership.owner.epoch() < epoch
                {
                    ownership.owner.depose();
                }
            }
            heard.await;
        }
    }

    /// Takes volumes, and gives up those that the state shows overtaken, as long as the node runs.
    pub(crate) async fn keep_ownerships(self: Rc<Self>) {
        let parts = &self.parts;
        let mut look_at_all_at = Some(parts.platform.now());
        loop {
            let seen = parts.view.changed.notified();
            let ended = self.ownerships_changed.notified();
            self.drop_deleted();
            if parts.view.take_drives_changed_shard() {
                self.drop_misdirected();
            }
            if self.ownership_ended.take() {
                // It is not taken up again on the spot.
                let soon = parts.platform.now() + INTERVAL;
                look_at_all_at = Some(look_at_all_at.map_or(soon, |at| at.min(soon)));
            }
            let mut to_look_at = parts.view.take_changed_volumes();
            if look_at_all_at.is_some_and(|at| parts.platform.now() >= at) {
                to_look_at = parts.view.volumes.borrow().keys().copied().collect();
                look_at_all_at = None;
            }
            for (volume, delay) in self.volumes_to_take(&to_look_at) {
                parts.platform.spawn(Rc::clone(&self).take(volume, delay));
            }
            look_at_all_at = look_at_all_at.into_iter().chain(self.look_again_at(&to_look_at)).min();
            let changed = pin!(select(seen, ended));
            match look_at_all_at {
                Some(at) => drop(before(&parts.platform, at, changed).await),
                None => drop(changed.await),
            }
        }
    }

    /// When volumes have to be looked at again that were looked at now, if nothing changes.
    fn look_again_at(&self, looked_at: &BTreeSet<VolumeId>) -> Option<Instant> {
        let soon = self.parts.platform.now() + INTERVAL;
        let is_unsettled = !self.being_taken.borrow().is_empty()
            || !self.held_back.borrow().is_empty()
            || !self.parts.view.knows_nodes();
        if is_unsettled {
            return Some(soon);
        }
        let volumes = self.parts.view.volumes.borrow();
        let known = looked_at.iter().filter_map(|volume| Some((*volume, &volumes.get(volume)?.record)));
        let ready = known.filter(|(_, record)| record.state == VolumeState::Ready);
        // This node's own are looked at when they end.
        let of_others = ready.filter(|(volume, _)| self.ownership(*volume).is_none());
        let due = of_others.map(|(volume, record)| match self.is_first_to_take(volume, record) {
            true => soon,
            false => self.may_be_taken_at(volume, record).map_or(soon, |at| at.max(soon)),
        });
        due.min()
    }

    /// Whether this shard takes a volume that it does not serve without waiting for others.
    fn is_first_to_take(&self, volume: VolumeId, record: &VolumeRecord) -> bool {
        let own = self.parts.own.shard;
        match record.owner {
            // A former process of this shard, or this one after an ownership that ended.
            Some(owner) => owner.shard == own,
            None => {
                record.preferred_owner == Some(own.node)
                    && self.parts.view.shard_by_turns(own.node, volume) == own
            }
        }
    }

    /// The earliest time at which this node may take another one's volume: its owner, or the lack of one, has then been silent for
    /// [`OWNER_SILENCE_MAX`]. None if it is not known since when the state shows it so.
    fn may_be_taken_at(&self, volume: VolumeId, record: &VolumeRecord) -> Option<Instant> {
        let shown_since = self.parts.view.shown_since(volume, record.epoch)?;
        Some(match record.owner {
            Some(owner) => self.parts.liveness.owner_silent_at(volume, owner, record.epoch, shown_since),
            None => shown_since + OWNER_SILENCE_MAX,
        })
    }

    /// Ends the ownerships of volumes that are gone or being deleted.
    fn drop_deleted(&self) {
        let volumes = self.parts.view.volumes.borrow();
        self.held_back.borrow_mut().retain(|volume, _| volumes.contains_key(volume));
        self.follow_pauses.borrow_mut().retain(|volume, _| volumes.contains_key(volume));
        let seen_up_to = self.parts.view.revision();
        for (volume, ownership) in self.ownerships.borrow().iter() {
            let stored = volumes.get(volume);
            let is_ready = stored.is_some_and(|stored| stored.record.state == VolumeState::Ready);
            if !is_ready && seen_up_to > ownership.since {
                ownership.owner.depose();
            }
        }
    }

    /// Ends the ownerships that ask for copies where their drives are not served any more: the next ones ask elsewhere.
    fn drop_misdirected(&self) {
        for ownership in self.ownerships.borrow().values() {
            let is_elsewhere =
                |(id, leg): (&LegId, &Leg)| self.parts.shard_of(leg.shard.node, id.drive) != leg.shard;
            if ownership.owner.legs().iter().any(is_elsewhere) {
                ownership.owner.depose();
            }
        }
    }

    /// Those of some volumes that this node should take now, and how long it should let others go first.
    fn volumes_to_take(&self, to_look_at: &BTreeSet<VolumeId>) -> Vec<(VolumeId, Duration)> {
        if self.stopping.get() {
            return Vec::new();
        }
        let volumes = self.parts.view.volumes.borrow();
        let being_taken = self.being_taken.borrow();
        let known = to_look_at.iter().filter_map(|volume| Some((*volume, volumes.get(volume)?)));
        let candidates = known.filter(|(volume, stored)| {
            stored.record.state == VolumeState::Ready && !being_taken.contains(volume)
        });
        candidates.filter_map(|(volume, stored)| Some((volume, self.claim(volume, stored)?))).collect()
    }

    /// Whether this node should take a volume, and after which delay. Deposes an own ownership that
    /// the state shows overtaken.
    fn claim(&self, volume: VolumeId, stored: &Stored<VolumeRecord>) -> Option<Duration> {
        let record = &stored.record;
        let own = self.parts.own;
        if let Some(ownership) = self.ownership(volume) {
            let epoch = ownership.owner.epoch();
            let overtaken = record.epoch > epoch || (record.epoch == epoch && record.owner != Some(own));
            if !overtaken {
                self.held_back.borrow_mut().remove(&volume);
                return None;
            }
            ownership.owner.depose();
        }
        let view = &self.parts.view;
        if !view.knows_nodes() {
            return None;
        }
        let delay = self.delay_of_claim(volume, record);
        // An ownership of this process that ended is taken up again also in maintenance: it could not be handed over.
        let lets_others_go_first = view.is_in_maintenance(own.shard.node) && record.owner != Some(own);
        let mut held_back = self.held_back.borrow_mut();
        if delay.is_none() || !lets_others_go_first {
            held_back.remove(&volume);
            return delay;
        }
        // Nothing is begun meanwhile: whoever hands the volume to this node need not wait for that.
        let now = self.parts.platform.now();
        let since = *held_back.entry(volume).or_insert(now);
        delay.filter(|_| now.since(since) >= MAINTENANCE_DELAY)
    }

    /// After which delay this node takes a volume that it does not own, if it should: as if it were not in maintenance.
    fn delay_of_claim(&self, volume: VolumeId, record: &VolumeRecord) -> Option<Duration> {
        if self.is_first_to_take(volume, record) {
            return Some(Duration::ZERO);
        }
        let is_due = self.parts.platform.now() >= self.may_be_taken_at(volume, record)?;
        let stagger = || Duration::from_millis(self.parts.platform.random_u64() % STAGGER_MAX_MS);
        is_due.then(stagger)
    }

    fn take(self: Rc<Self>, volume: VolumeId, delay: Duration) -> impl Future<Output = ()> {
        // From now on, not from its first turn on.
        let being_taken = BeingTaken::begin(&self, volume);
        async move {
            let Some(_being_taken) = being_taken else { return };
            let _ = self.take_later(volume, delay).await;
        }
    }

    async fn take_later(self: &Rc<Self>, volume: VolumeId, delay: Duration) -> Option<()> {
        if delay > Duration::ZERO {
            self.parts.platform.sleep(delay).await;
            // Where an owner of many volumes was lost, all nodes would ask the state for all of them.
            let shown = self.parts.view.volumes.borrow().get(&volume).cloned()?;
            self.claim(volume, &shown)?;
        }
        self.try_take(volume).await
    }

    async fn try_take(self: &Rc<Self>, volume: VolumeId) -> Option<()> {
        let state = &self.parts.state;
        let seen = state.membership(volume).await.ok()??;
        if seen.record.owner.is_some_and(|owner| owner.shard.node != self.parts.node())
            && !self.has_in_sync_copy(&seen)
        {
            self.parts.platform.sleep(WITHOUT_COPY_DELAY).await;
        }
        let stored = Stored { record: seen.record.clone(), revision: seen.revision };
        if !self.reaches_every_slab(&seen) {
            return None;
        }
        // While this node waited, another one may have taken it, or the owner may have come back.
        self.claim(volume, &stored)?;
        self.take_seen(seen).await
    }

    /// Takes a volume that is as it was `seen`, and begins to own it.
    pub(crate) async fn take_seen(self: &Rc<Self>, seen: VolumeMembership) -> Option<()> {
        let (state, volume) = (&self.parts.state, seen.volume);
        let stored = Stored { record: seen.record, revision: seen.revision };
        let taken = state.take_volume(volume, &stored, self.parts.own).await.ok()?;
        let now = retry_store(&self.parts, || state.membership(volume)).await.ok()??;
        if now.record.owner != Some(self.parts.own) || now.record.epoch != taken.record.epoch {
            return None;
        }
        self.begin(now);
        Some(())
    }

    fn has_in_sync_copy(&self, seen: &VolumeMembership) -> bool {
        let nodes: Option<BTreeSet<NodeId>> = seen.in_sync_nodes();
        nodes.is_some_and(|nodes| nodes.contains(&self.parts.node()))
    }

    /// Whether an in-sync copy of every slab is within reach, as far as is known.
    pub(crate) fn reaches_every_slab(&self, seen: &VolumeMembership) -> bool {
        // Marks of an older state say nothing: its owner finds out which copies count.
        let is_settled = seen.record.generation == self.parts.cluster.generation;
        seen.sets.iter().zip(0..).all(|(set, slab)| {
            let counts = |member: &&Member| !is_settled || seen.is_in_sync(member);
            set.members.iter().filter(counts).any(|member| {
                let Some(node) = seen.nodes.get(&member.drive) else { return false };
                let shard = self.parts.shard_of(*node, member.drive);
                if shard != self.parts.own.shard {
                    return self.parts.liveness.is_reachable(shard);
                }
                let copy = CopyAddress { volume: seen.volume, slab: SlabIndex(slab), copy: member.copy };
                self.parts.replica.has_copy(copy)
            })
        })
    }

    /// Begins to own a volume that the state shows as this process's.
    pub(crate) fn begin(self: &Rc<Self>, now: VolumeMembership) {
        let (volume, epoch) = (now.volume, now.record.epoch);
        if self.stopping.get() {
            return;
        }
        tracing::info!(volume = now.record.name, epoch = epoch.0, "taking the volume over");
        let membership = self.parts.membership_of(&now);
        let since = now.read_at;
        let grows = now.record.grows_to_bytes.is_some();
        let context = NodeContext::new(self.parts.clone(), now);
        let owner = Owner::start(context.clone(), membership);
        let ownership = Rc::new(Ownership {
            owner,
            context,
            writers: Writers::default(),
            followed: Cell::default(),
            left: Cell::default(),
            moving: RefCell::default(),
            growing: Mutex::default(),
            scrubbing: Scrubbing::default(),
            loads: self.loads.of(volume),
            since,
        });
        let former = self.ownerships.borrow_mut().insert(volume, Rc::clone(&ownership));
        if let Some(former) = former {
            former.owner.depose();
        }
        self.parts.liveness.set_owned(volume, Some(epoch));
        self.ownerships_changed.notify_all();
        // It may have come here because its client's node could not have it for a while.
        if let Some(writer) = ownership.writer() {
            self.follow(&ownership, volume, writer);
        }
        if grows {
            self.parts.platform.spawn(Rc::clone(self).resume_growth(Rc::clone(&ownership)));
        }
        self.parts.platform.spawn(Rc::clone(self).learn_scrub(Rc::clone(&ownership)));
        self.parts.platform.spawn(Rc::clone(self).see_it_end(volume, ownership));
    }

    /// Forgets an ownership once it is deposed.
    async fn see_it_end(self: Rc<Self>, volume: VolumeId, ownership: Rc<Ownership<P, S>>) {
        ownership.owner.deposed().await;
        self.end_ownership(volume, &ownership);
    }

    /// Ends an ownership and forgets it. It answers nothing from now on.
    pub(crate) fn end_ownership(&self, volume: VolumeId, ownership: &Rc<Ownership<P, S>>) {
        ownership.owner.depose();
        let mut ownerships = self.ownerships.borrow_mut();
        if ownerships.get(&volume).is_some_and(|present| Rc::ptr_eq(present, ownership)) {
            ownerships.remove(&volume);
            self.parts.liveness.set_owned(volume, None);
            self.ownership_ended.set(true);
        }
        drop(ownerships);
        self.ownerships_changed.notify_all();
    }
}
