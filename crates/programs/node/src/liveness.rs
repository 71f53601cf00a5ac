//! Who answers, and who has promised what: heartbeats between the nodes.
//!
//! Every node sends each other one a heartbeat four times a second. The answer is a promise: "for
//! 1.5 s I answer no fence against a volume that you own". This module moves the messages; the
//! rules are in the cluster crate's `promises`.
//!
//! Invariants:
//! - The clock is read before a heartbeat leaves, and again for each check of a promise.
//! - A fence is answered only when the promise giver says that it may be.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use spandrel_bus::{Bus, BusRequest, BusResponse, Heartbeat, HeartbeatAnswer, OwnedVolume};
use spandrel_cluster::VolumeOwner;
use spandrel_cluster::liveness::{OWNER_SILENCE_MAX, OwnerWatch};
use spandrel_cluster::promises::{Fence, Giver, HEARTBEAT_INTERVAL, Holder, Peer, Promise, PromiseTimes};
use spandrel_platform::sync::Signal;
use spandrel_platform::{Instant, Platform};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{DriveId, Epoch, ProcessIncarnation, ShardId, VolumeId};

use crate::watched::Watched;

/// A node that has not answered a heartbeat for so long is not reachable.
const SILENCE_MAX: Duration = Duration::from_millis(1000);

/// A session in which no heartbeat was answered for so long is ended: whoever waits for its answers
/// has waited long enough.
const SESSION_SILENCE_MAX: Duration = Duration::from_millis(1500);

/// A node that has sent no heartbeat for so long has ended the session in which it asks: nobody waits
/// for the answers to what it asked there.
const GONE_AFTER: Duration = Duration::from_millis(3000);

/// Heartbeats, promises, and what they tell. Cheap to clone; all clones are the same.
pub struct Liveness<P: Platform> {
    inner: Rc<Inner<P>>,
}

impl<P: Platform> Clone for Liveness<P> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

struct Inner<P: Platform> {
    platform: P,
    bus: Bus<P>,
    own: Peer,
    started: Instant,
    giver: Watched<Giver>,
    holder: Watched<Holder>,
    answered_at: RefCell<BTreeMap<ShardId, (Instant, ProcessIncarnation)>>,
    session_began: RefCell<BTreeMap<ShardId, Instant>>,
    /// When each node last asked anything here by itself, and which process of it.
    asked_at: RefCell<BTreeMap<ShardId, (Instant, ProcessIncarnation)>>,
    /// Notified when nodes have not asked for [`GONE_AFTER`].
    gone: Signal,
    owners: RefCell<OwnerWatch>,
    owned: RefCell<BTreeMap<VolumeId, Epoch>>,
    /// Notified when a promise comes, a session changes, or a fence overtakes an ownership.
    changed: Signal,
    /// Volumes of which drives here hold copies, since the drives were attached. What the copies hold now
    /// may be less than what their owners count on: a drive may lie, and its journal may have rotted. So
    /// nothing is promised until an owner has asked them by a fence, and has compared them with the others.
    newly_attached: RefCell<BTreeSet<VolumeId>>,
    /// Volumes of this node that another one has fenced here: their owners must stop.
    overtaken: RefCell<BTreeSet<(VolumeId, Epoch)>>,
}

impl<P: Platform> Liveness<P> {
    /// Starts to send heartbeats to all peers of the bus.
    pub fn start(platform: P, bus: Bus<P>) -> Self {
        let identity = bus.identity();
        let own = Peer { shard: identity.shard, incarnation: identity.incarnation };
        let times = PromiseTimes::default();
        let inner = Inner {
            giver: Watched::new(Giver::new(platform.now(), own, times)),
            holder: Watched::new(Holder::new(times)),
            started: platform.now(),
            platform,
            bus,
            own,
            answered_at: RefCell::default(),
            session_began: RefCell::default(),
            asked_at: RefCell::default(),
            gone: Signal::new(),
            owners: RefCell::new(OwnerWatch::new()),
            owned: RefCell::default(),
            changed: Signal::new(),
            overtaken: RefCell::default(),
            newly_attached: RefCell::default(),
        };
        let liveness = Self { inner: Rc::new(inner) };
        let platform = liveness.inner.platform.clone();
        platform.spawn(liveness.clone().watch_sessions());
        platform.spawn(liveness.clone().beat());
        liveness
    }

    /// This process.
    pub fn own(&self) -> Peer {
        self.inner.own
    }

    /// Notified when what this module says may have changed.
    pub fn changed(&self) -> &Signal {
        &self.inner.changed
    }

    /// Whether a node has answered lately.
    pub fn is_reachable(&self, shard: ShardId) -> bool {
        if shard == self.inner.own.shard {
            return true;
        }
        let now = self.inner.platform.now();
        let answered = self.answered_at(shard);
        self.inner.bus.session(shard).is_some() && answered.is_some_and(|at| now.since(at) < SILENCE_MAX)
    }

    fn answered_at(&self, shard: ShardId) -> Option<Instant> {
        self.inner.answered_at.borrow().get(&shard).map(|(at, _)| *at)
    }

    /// Whether a process lives: it has answered after `asked`. It does not if its node has not answered for 1.5 s, or
    /// another process of it has after `asked`. `None` as long as neither is known.
    pub fn lives(&self, peer: Peer, asked: Instant) -> Option<bool> {
        let now = self.inner.platform.now();
        let (at, incarnation) = match self.inner.answered_at.borrow().get(&peer.shard) {
            Some(answered) => *answered,
            // Nothing was heard of it since this process has started.
            None => (self.inner.started, peer.incarnation),
        };
        if now.since(at) >= OWNER_SILENCE_MAX {
            return Some(false);
        }
        // What was heard before may be of a process that was there before this one.
        (at > asked).then_some(incarnation == peer.incarnation)
    }

    /// The other shards that have answered lately.
    pub fn reachable(&self) -> BTreeSet<ShardId> {
        self.inner.bus.peers().into_iter().filter(|shard| self.is_reachable(*shard)).collect()
    }

    /// When the owner that the cluster's state has shown since `shown_since` will have been silent
    /// for so long that its volume may be taken, if nothing more is heard of it.
    pub fn owner_silent_at(
        &self,
        volume: VolumeId,
        owner: VolumeOwner,
        epoch: Epoch,
        shown_since: Instant,
    ) -> Instant {
        let owner = Peer { shard: owner.shard, incarnation: owner.incarnation };
        self.inner.owners.borrow().silent_at(volume, owner, epoch, shown_since)
    }

    /// Whether `shard` has promised, right now, to answer no fence against this ownership.
    pub fn is_promised(&self, shard: ShardId, volume: VolumeId, epoch: Epoch) -> bool {
        if shard == self.inner.own.shard {
            return self.inner.giver.borrow().epoch(volume) <= epoch;
        }
        let now = self.inner.platform.now();
        self.inner.holder.borrow().is_promised(now, shard, volume, epoch)
    }

    /// Until when, exclusively, all of these have; none if one of them has not. It stays so until
    /// [`Self::promise_changes`] says something else.
    pub fn all_promised_until(&self, shards: &[ShardId], volume: VolumeId, epoch: Epoch) -> Option<Instant> {
        let own = self.inner.own.shard;
        if shards.contains(&own) && self.inner.giver.borrow().epoch(volume) > epoch {
            return None;
        }
        let others = shards.iter().copied().filter(|shard| *shard != own);
        self.inner.holder.borrow().all_promised_until(others, volume, epoch)
    }

    /// Differs from before when what is promised may do so, to this node or by it.
    pub fn promise_changes(&self) -> (u64, u64) {
        (self.inner.giver.changes(), self.inner.holder.changes())
    }

    /// This node serves a volume from now on, or does not any more: the next heartbeats say so.
    pub fn set_owned(&self, volume: VolumeId, epoch: Option<Epoch>) {
        match epoch {
            Some(epoch) => self.inner.owned.borrow_mut().insert(volume, epoch),
            None => {
                self.inner.holder.borrow_mut().give_up(volume);
                self.inner.owned.borrow_mut().remove(&volume)
            }
        };
    }

    /// `peer`, the process with which there was a session when it was asked, answered a fence: it
    /// accepts the ownership.
    pub fn fence_answered(&self, peer: Peer, volume: VolumeId, epoch: Epoch) {
        self.inner.holder.borrow_mut().fence_answered(peer, volume, epoch);
        self.inner.changed.notify_all();
    }

    /// The process of `shard` with which there is a session.
    pub fn peer(&self, shard: ShardId) -> Option<Peer> {
        let session = self.inner.bus.session(shard)?;
        Some(Peer { shard, incarnation: session.incarnation })
    }

    /// A volume was deleted: nothing of it needs to be remembered.
    pub fn volume_deleted(&self, volume: VolumeId) {
        self.inner.giver.borrow_mut().volume_deleted(volume);
        self.inner.owners.borrow_mut().volume_deleted(volume);
    }

    /// A drive was attached; its epochs count, and fences wait for what others may have promised
    /// for it. Nothing is promised for the volumes that `epochs` names until their owners have asked what
    /// the drive's copies hold.
    pub fn drive_attached(&self, drive: DriveId, epochs: impl IntoIterator<Item = (VolumeId, Epoch)>) {
        let now = self.inner.platform.now();
        let epochs: Vec<(VolumeId, Epoch)> = epochs.into_iter().collect();
        self.inner.newly_attached.borrow_mut().extend(epochs.iter().map(|(volume, _)| *volume));
        self.inner.giver.borrow_mut().drive_attached(now, drive, epochs);
    }

    /// `from` gives a volume up, with every epoch up to `epoch`.
    pub fn handed_over(&self, from: Peer, volume: VolumeId, epoch: Epoch) {
        self.inner.giver.borrow_mut().handed_over(from, volume, epoch);
        self.inner.changed.notify_all();
    }

    /// Admits a fence of `from`: from here on the volume is left out of promises to others.
    /// `Err` is the epoch that is known: a higher one, or this one if `from` has given it up.
    pub fn begin_fence(&self, from: Peer, volume: VolumeId, epoch: Epoch) -> Result<(), Epoch> {
        let now = self.inner.platform.now();
        match self.inner.giver.borrow_mut().fence(now, from, volume, epoch) {
            Fence::Refused { epoch } => return Err(epoch),
            Fence::Pending { stop_own: true, .. } => {
                self.inner.overtaken.borrow_mut().insert((volume, epoch));
            }
            Fence::Pending { .. } => {}
        }
        self.inner.changed.notify_all();
        Ok(())
    }

    /// Ownerships of this node that were fenced here, as (volume, the epoch that overtook them).
    pub fn take_overtaken(&self) -> Vec<(VolumeId, Epoch)> {
        std::mem::take(&mut *self.inner.overtaken.borrow_mut()).into_iter().collect()
    }

    /// The fence's epoch is durable here. Completes when the fence may be answered, with `Err` if
    /// a higher epoch came first.
    pub async fn may_answer_fence(&self, from: Peer, volume: VolumeId, epoch: Epoch) -> Result<(), Epoch> {
        self.inner.giver.borrow_mut().epoch_durable(volume, epoch);
        loop {
            let changed = self.inner.changed.notified();
            let now = self.inner.platform.now();
            let at = {
                let mut giver = self.inner.giver.borrow_mut();
                let may_answer = giver.may_answer(now, from, volume, epoch);
                if may_answer || canary::is_planted(Bug::AnswerFenceAtOnce) {
                    return Ok(());
                }
                match giver.fence(now, from, volume, epoch) {
                    Fence::Refused { epoch } => return Err(epoch),
                    Fence::Pending { at, .. } => at,
                }
            };
            witness::reached(Rare::FenceWaited);
            // If the time has come and it still may not be answered, only a message can change that.
            let at = if at > now { at } else { now + HEARTBEAT_INTERVAL };
            let sleep = std::pin::pin!(self.inner.platform.sleep_until(at));
            futures_util::future::select(std::pin::pin!(changed), sleep).await;
        }
    }

    /// An owner compares the copies of a volume here with the others, or counts on none of them.
    pub fn copies_settled(&self, volume: VolumeId) {
        self.inner.newly_attached.borrow_mut().remove(&volume);
    }

    /// Completes when `peer` has gone, which asks something now: it has sent no heartbeat for 3 s, or
    /// another process of its node has come.
    pub async fn gone(&self, peer: Peer) {
        self.note_asking(peer);
        let has_gone = || {
            let asked_at = self.inner.asked_at.borrow();
            let heard = asked_at.get(&peer.shard);
            heard.is_none_or(|(at, incarnation)| {
                *incarnation != peer.incarnation || self.inner.platform.now().since(*at) > GONE_AFTER
            })
        };
        self.inner.gone.wait_until(has_gone).await;
    }

    /// A process that asks something is there, if nothing is known of it yet.
    fn note_asking(&self, peer: Peer) {
        let now = self.inner.platform.now();
        let mut asked_at = self.inner.asked_at.borrow_mut();
        let heard = asked_at.entry(peer.shard).or_insert((now, peer.incarnation));
        if heard.1 != peer.incarnation {
            *heard = (now, peer.incarnation);
        }
    }

    fn tell_who_has_gone(&self) {
        let now = self.inner.platform.now();
        if self.inner.asked_at.borrow().values().any(|(at, _)| now.since(*at) > GONE_AFTER) {
            self.inner.gone.notify_all();
        }
    }

    /// Answers a heartbeat of another node.
    pub fn answer(&self, from: Peer, heartbeat: &Heartbeat) -> HeartbeatAnswer {
        let now = self.inner.platform.now();
        self.inner.asked_at.borrow_mut().insert(from.shard, (now, from.incarnation));
        let owned: Vec<(VolumeId, Epoch)> =
            heartbeat.owned.iter().map(|owned| (owned.volume, owned.epoch)).collect();
        let newly_attached = self.inner.newly_attached.borrow();
        let promisable: Vec<_> =
            owned.iter().copied().filter(|(volume, _)| !newly_attached.contains(volume)).collect();
        drop(newly_attached);
        let promise =
            self.inner.giver.borrow_mut().heartbeat(now, from, &promisable, heartbeat.exclusions_seen);
        self.inner.owners.borrow_mut().heartbeat(now, from, &owned);
        let to_wire = |volumes: Vec<(VolumeId, Epoch)>| {
            volumes.into_iter().map(|(volume, epoch)| OwnedVolume { volume, epoch }).collect()
        };
        HeartbeatAnswer {
            promise_ms: promise.duration.as_millis() as u64,
            accepted: to_wire(promise.accepted),
            exclusions: to_wire(promise.exclusions),
            exclusions_number: promise.exclusions_number,
        }
    }

    /// Tells the promise holder of each new session.
    async fn watch_sessions(self) {
        let mut known: BTreeMap<ShardId, u32> = BTreeMap::new();
        loop {
            let changed = self.inner.bus.changes().notified();
            for shard in self.inner.bus.peers() {
                match self.inner.bus.session(shard) {
                    Some(session) if known.get(&shard) != Some(&session.session) => {
                        known.insert(shard, session.session);
                        self.inner.session_began.borrow_mut().insert(shard, self.inner.platform.now());
                        let peer = Peer { shard, incarnation: session.incarnation };
                        self.inner.holder.borrow_mut().session_started(peer);
                        self.send_heartbeat(shard);
                    }
                    Some(_) => {}
                    None => {
                        known.remove(&shard);
                    }
                }
            }
            self.inner.changed.notify_all();
            changed.await;
        }
    }

    async fn beat(self) {
        loop {
            self.tell_who_has_gone();
            for shard in self.inner.bus.peers() {
                self.end_silent_session(shard);
                self.send_heartbeat(shard);
            }
            self.inner.platform.sleep(HEARTBEAT_INTERVAL).await;
        }
    }

    fn end_silent_session(&self, shard: ShardId) {
        let began = self.inner.session_began.borrow().get(&shard).copied();
        let Some(heard) = began.max(self.answered_at(shard)) else { return };
        if self.inner.platform.now().since(heard) > SESSION_SILENCE_MAX
            && self.inner.bus.session(shard).is_some()
        {
            tracing::warn!(node = %shard, "the node is silent: its session is ended");
            self.inner.bus.break_session(shard);
        }
    }

    fn send_heartbeat(&self, shard: ShardId) {
        let Some(session) = self.inner.bus.session(shard) else { return };
        let peer = Peer { shard, incarnation: session.incarnation };
        let now = self.inner.platform.now();
        let Some(numbers) = self.inner.holder.borrow_mut().heartbeat_sent(now, shard) else { return };
        let owned = self.inner.owned.borrow();
        let heartbeat = Heartbeat {
            number: numbers.number,
            owned: owned
                .iter()
                .map(|(volume, epoch)| OwnedVolume { volume: *volume, epoch: *epoch })
                .collect(),
            exclusions_seen: numbers.exclusions_seen,
        };
        drop(owned);
        let call = self.inner.bus.call(shard, BusRequest::Heartbeat(heartbeat), Vec::new());
        let liveness = self.clone();
        self.inner.platform.spawn(async move {
            if let Ok((BusResponse::Heartbeat(answer), _)) = call.await {
                liveness.take_promise(peer, numbers.number, answer);
            }
        });
    }

    fn take_promise(&self, peer: Peer, number: u64, answer: HeartbeatAnswer) {
        let from_wire = |volumes: Vec<OwnedVolume>| {
            volumes.into_iter().map(|owned| (owned.volume, owned.epoch)).collect()
        };
        let promise = Promise {
            duration: Duration::from_millis(answer.promise_ms),
            accepted: from_wire(answer.accepted),
            exclusions: from_wire(answer.exclusions),
            exclusions_number: answer.exclusions_number,
        };
        self.inner.holder.borrow_mut().answered(peer, number, &promise);
        let answered = (self.inner.platform.now(), peer.incarnation);
        self.inner.answered_at.borrow_mut().insert(peer.shard, answered);
        self.inner.changed.notify_all();
    }
}

#[cfg(test)]
#[path = "liveness_tests.rs"]
mod tests;
