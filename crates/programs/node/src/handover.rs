//! Moving a volume from its owner to another node, without waiting for promises to run out: when somebody wants it, when
//! the owner's node is stopped or goes into maintenance, and when a client elsewhere writes to it.
//!
//! The owner stops first: from then on it answers nothing of the volume. Then it tells the others that what they have
//! promised it counts no more, and asks one of them to take the volume, which does so by the usual transaction. Front-ends
//! repeat at the new owner what the former one has not answered. Whatever goes wrong on the way is a take-over
//! like any other: nothing depends on a message that arrives.
//!
//! Invariants:
//! - Nobody is told that a volume was given up before its owner here is deposed.
//! - While a hand-over is under way, this node does not take the volume itself.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{join_all, select};
use futures_util::stream;
use futures_util::{FutureExt as _, StreamExt as _};
use spandrel_bus::{BusRequest, BusResponse, GivenUp, OwnedVolume};
use spandrel_cluster::promises::Peer;
use spandrel_cluster::store::StateStore;
use spandrel_cluster::{VolumeMembership, VolumeWriter};
use spandrel_platform::{Instant, Platform, before};
use spandrel_shared::knob::{self, Knob};
use spandrel_shared::{Error, NodeId, ShardId, VolumeId};
use spandrel_volume::{Leg, LegId, LegState};

use crate::node::{Node, NodeInner};
use crate::ownership::Ownership;

/// How long a node has had a client that writes when its volumes come to it: not every client that looks in is worth a
/// move.
const FOLLOW_AFTER_MS: u64 = 5000;

/// The longest pause between attempts to have a volume follow its client: each lets the client wait.
const FOLLOW_PAUSE_MAX: Duration = Duration::from_secs(300);

/// How long a node may take to take a volume. It needs one transaction for it.
const TAKE_TIME_MAX: Duration = Duration::from_secs(3);

/// How many volumes a node in maintenance hands over at a time: each pauses for a transaction.
const DRAINED_AT_ONCE: usize = 8;

/// How long a node in maintenance keeps a volume that it could not hand over before it tries again: each attempt lets
/// its clients wait.
const DRAIN_PAUSE_MIN: Duration = Duration::from_secs(1);
const DRAIN_PAUSE_MAX: Duration = Duration::from_secs(16);

/// How many volumes each node is being given, which the state does not show yet.
#[derive(Default)]
struct Given(RefCell<BTreeMap<NodeId, u64>>);

impl Given {
    fn count(&self, to: ShardId) {
        *self.0.borrow_mut().entry(to.node).or_default() += 1;
    }

    fn to(&self, node: NodeId) -> u64 {
        self.0.borrow().get(&node).copied().unwrap_or(0)
    }
}

/// A volume that a node in maintenance could not hand over.
struct Kept {
    again_at: Instant,
    /// How long to wait after the next attempt.
    pause: Duration,
    /// Those that did not take it. They are tried when there is no other.
    refused_by: BTreeSet<ShardId>,
    /// Whether it was said that there is no other.
    is_told: bool,
}

/// A volume that is being taken, or handed over, by this node: nobody else here begins to take it.
pub(crate) struct BeingTaken<P: Platform, S: StateStore> {
    node: Rc<NodeInner<P, S>>,
    volume: VolumeId,
}

impl<P: Platform, S: StateStore> BeingTaken<P, S> {
    /// None if it is already.
    pub(crate) fn begin(node: &Rc<NodeInner<P, S>>, volume: VolumeId) -> Option<Self> {
        let is_free = node.being_taken.borrow_mut().insert(volume);
        is_free.then(|| Self { node: Rc::clone(node), volume })
    }
}

impl<P: Platform, S: StateStore> Drop for BeingTaken<P, S> {
    fn drop(&mut self) {
        self.node.being_taken.borrow_mut().remove(&self.volume);
    }
}

impl<P: Platform, S: StateStore> Node<P, S> {
    /// Hands a volume that this node owns over to another node, and returns when that one owns it. Clients go on.
    ///
    /// Errors: `NOT_OWNER`, `NODE_IN_MAINTENANCE`, `OWNER_OFFLINE` if the other node does not answer; nothing has changed
    /// then.
    /// `VOLUME_NOT_MOVED` if it did not take the volume; then whoever can takes it, this node most likely.
    pub async fn hand_over(&self, volume: VolumeId, to: NodeId) -> Result<(), Error> {
        // Where its clients on that node are, or would be.
        let to = self.inner.parts.view.shard_by_turns(to, volume);
        self.inner.hand_over(volume, to, true).await
    }
}

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    async fn hand_over(self: &Rc<Self>, volume: VolumeId, to: ShardId, stay: bool) -> Result<(), Error> {
        if to.node != self.parts.node() && self.parts.view.is_in_maintenance(to.node) {
            let name = self.parts.name_of(to.node);
            return Err(Error::new(
                "NODE_IN_MAINTENANCE",
                format!("volume {} is not moved to node {name}", self.volume_name(volume)),
                "the node is in maintenance, and takes no volumes",
                format!(
                    "choose another node, or take it out of maintenance with `spandrel node resume {name}`"
                ),
            ));
        }
        self.pass_on(volume, to, stay).await
    }

    /// What people call a volume.
    fn volume_name(&self, volume: VolumeId) -> String {
        let volumes = self.parts.view.volumes.borrow();
        volumes.get(&volume).map_or_else(|| volume.to_string(), |stored| stored.record.name.clone())
    }

    /// Hands a volume over, also to a node in maintenance.
    async fn pass_on(self: &Rc<Self>, volume: VolumeId, to: ShardId, stay: bool) -> Result<(), Error> {
        let refuse = |code: &str, why: String, next: &str| {
            let what = format!(
                "volume {} is not moved to node {}",
                self.volume_name(volume),
                self.parts.name_of(to.node)
            );
            Error::new(code, what, why, next)
        };
        let not_owner = || {
            let why = format!("node {} does not own it", self.config.name);
            refuse("NOT_OWNER", why, "try again: the owner is asked then")
        };
        let ownership = self.ownership(volume).ok_or_else(not_owner)?;
        if to == self.parts.own.shard {
            if stay {
                ownership.left.set(ownership.writer());
            }
            return Ok(());
        }
        if !self.parts.liveness.is_reachable(to) {
            let why = format!("it does not answer node {}, which owns the volume", self.config.name);
            return Err(refuse("OWNER_OFFLINE", why, "start the node, or choose another one"));
        }
        self.tell_scrub_in_time(&ownership).await;
        let ownership = self.ownership(volume).ok_or_else(not_owner)?;
        let _being_taken = BeingTaken::begin(self, volume).ok_or_else(not_owner)?;
        let ended = OwnedVolume { volume, epoch: ownership.owner.epoch() };
        self.end_ownership(volume, &ownership);
        tracing::info!(%volume, epoch = ended.epoch.0, to = self.parts.name_of(to.node), "handing the volume over");
        let others = self.parts.bus.peers().into_iter().filter(|peer| *peer != to);
        let given_up = |take: bool| GivenUp { ownership: ended, take, stay };
        let telling = join_all(others.map(|peer| self.tell_given_up(peer, given_up(false))));
        let taking = self.tell_given_up(to, given_up(true));
        let (taken, _) = futures_util::future::join(taking, telling).await;
        if taken {
            return Ok(());
        }
        let why = "it did not take the volume: it may not reach a copy of each part, or is being stopped"
            .to_owned();
        Err(refuse("VOLUME_NOT_MOVED", why, "look at the volume with `spandrel volume get`, and try again"))
    }

    /// Tells a node that a volume was given up. Whether it has taken it.
    async fn tell_given_up(&self, peer: ShardId, given_up: GivenUp) -> bool {
        let deadline = self.parts.platform.now() + TAKE_TIME_MAX;
        let call = self.parts.bus.call(peer, BusRequest::GivenUp(given_up), Vec::new());
        let answer = before(&self.parts.platform, deadline, call).await;
        matches!(answer, Some(Ok((BusResponse::GivenUp { taken: true }, _))))
    }

    /// `from` has given a volume up. Whether this node owns it now.
    pub(crate) async fn given_up(self: &Rc<Self>, from: Peer, given_up: GivenUp) -> bool {
        let OwnedVolume { volume, epoch } = given_up.ownership;
        self.parts.liveness.handed_over(from, volume, epoch);
        if !given_up.take || self.stopping.get() {
            return false;
        }
        let Some(_being_taken) = BeingTaken::begin(self, volume) else { return false };
        let Ok(Some(seen)) = self.parts.state.membership(volume).await else { return false };
        let is_former = |owner: spandrel_cluster::VolumeOwner| {
            (owner.shard, owner.incarnation) == (from.shard, from.incarnation)
        };
        if !seen.record.owner.is_some_and(is_former) || seen.record.epoch != epoch {
            return false;
        }
        // The former owner may not know yet that this node is in maintenance. One that nobody else can take is taken.
        let view = &self.parts.view;
        let could_take =
            |shard: &ShardId| shard.node != from.shard.node && !view.is_in_maintenance(shard.node);
        if view.is_in_maintenance(self.parts.node()) && self.copies_in_sync(&seen).keys().any(could_take) {
            return false;
        }
        if !self.reaches_every_slab(&seen) || self.take_seen(seen).await.is_none() {
            return false;
        }
        if given_up.stay
            && let Some(ownership) = self.ownership(volume)
        {
            ownership.left.set(ownership.writer());
        }
        true
    }

    /// Has a volume come to the node whose client may write to it from now on, unless it leaves again soon.
    pub(crate) fn follow(
        self: &Rc<Self>,
        ownership: &Rc<Ownership<P, S>>,
        volume: VolumeId,
        writer: VolumeWriter,
    ) {
        if writer.shard == self.parts.own.shard || ownership.followed.replace(Some(writer)) == Some(writer) {
            return;
        }
        let (node, ownership) = (Rc::clone(self), Rc::clone(ownership));
        self.parts.platform.spawn(async move {
            let first = Duration::from_millis(knob::value(Knob::FollowAfter, FOLLOW_AFTER_MS));
            loop {
                let refused = node.follow_pauses.borrow().get(&volume).copied();
                let pause = refused.filter(|(client, _)| *client == writer).map_or(first, |(_, pause)| pause);
                node.parts.platform.sleep(pause).await;
                let is_owned = node.ownership(volume).is_some_and(|present| Rc::ptr_eq(&present, &ownership));
                let is_meant = ownership.writer() == Some(writer) && ownership.left.get() != Some(writer);
                if !is_owned || !is_meant || node.stopping.get() {
                    return;
                }
                // Its copies are brought up to date, or it comes back from maintenance, or the volume is to stay here for now: later,
                // then.
                if !node.can_follow(volume, &ownership, writer) {
                    continue;
                }
                let Ok(Some(seen)) = node.parts.state.membership(volume).await else { continue };
                // What is known here may lag behind what an operator was told.
                if seen.record.is_pinned {
                    continue;
                }
                let copies = node.copies_in_sync(&seen);
                // Reads are as near there as here.
                if of_node(&copies, writer.shard.node) < of_node(&copies, node.parts.node()) {
                    return;
                }
                match node.hand_over(volume, writer.shard, false).await {
                    Err(error) if error.code == "VOLUME_NOT_MOVED" => {
                        tracing::info!("{error}");
                        let longer = (pause * 2).min(FOLLOW_PAUSE_MAX);
                        // Whoever owns it next looks for the client again.
                        node.follow_pauses.borrow_mut().insert(volume, (writer, longer));
                        return;
                    }
                    Err(error) => tracing::info!("{error}"),
                    Ok(()) => {
                        node.follow_pauses.borrow_mut().remove(&volume);
                        return;
                    }
                }
            }
        });
    }

    /// Whether a volume may go to its client's node now, as far as is known here: without asking the cluster's state,
    /// since this is looked at again and again.
    fn can_follow(&self, volume: VolumeId, ownership: &Ownership<P, S>, writer: VolumeWriter) -> bool {
        let view = &self.parts.view;
        let lags = |(id, leg): (&LegId, &Leg)| {
            !id.is_building && leg.shard.node == writer.shard.node && leg.state != LegState::InSync
        };
        let is_pinned = view.volumes.borrow().get(&volume).is_some_and(|stored| stored.record.is_pinned);
        !is_pinned
            && self.parts.liveness.is_reachable(writer.shard)
            && view.shows_process(writer.shard, writer.incarnation)
            && !view.is_in_maintenance(writer.shard.node)
            && !ownership.owner.legs().iter().any(lags)
    }

    /// Hands all volumes over that this node owns, each to the node that is best for it. For a stop in order: one
    /// that nobody takes now is taken when this node is gone.
    pub(crate) async fn hand_all_over(self: &Rc<Self>) {
        let volumes: Vec<VolumeId> = self.ownerships.borrow().keys().copied().collect();
        let given = Given::default();
        let moves = volumes.into_iter().map(async |volume| {
            let seen = self.parts.state.membership(volume).await;
            let Ok(Some(seen)) = seen else { return };
            let Some(to) = self.successor(&seen, &given, |_| true) else { return };
            given.count(to);
            if let Err(error) = self.pass_on(volume, to, false).await {
                // As it is where all nodes stop together.
                tracing::info!("{error}");
            }
        });
        let deadline = self.parts.platform.now() + TAKE_TIME_MAX;
        before(&self.parts.platform, deadline, join_all(moves)).await;
    }

    /// Hands over what this node owns, for as long as the state shows it in maintenance. Never completes.
    pub(crate) async fn stay_drained(self: Rc<Self>) {
        let (platform, view) = (&self.parts.platform, &self.parts.view);
        let mut kept: BTreeMap<VolumeId, Kept> = BTreeMap::new();
        loop {
            let seen = view.changed.notified();
            let owned = self.ownerships_changed.notified();
            if !view.is_in_maintenance(self.parts.node()) {
                kept.clear();
                seen.await;
                continue;
            }
            let now = platform.now();
            let is_due = |volume: &VolumeId| kept.get(volume).is_none_or(|kept| kept.again_at <= now);
            let volumes: Vec<VolumeId> = self.ownerships.borrow().keys().copied().filter(is_due).collect();
            let given = Given::default();
            let moves = volumes.into_iter().map(|volume| {
                let earlier = kept.remove(&volume);
                self.drain(volume, earlier, &given).map(move |kept| (volume, kept))
            });
            let moves: Vec<_> = moves.collect();
            let mut moves = stream::iter(moves).buffer_unordered(DRAINED_AT_ONCE);
            while let Some((volume, still)) = moves.next().await {
                kept.extend(still.map(|still| (volume, still)));
            }
            drop(moves);
            let (seen, owned) = (pin!(seen), pin!(owned));
            let _ = before(platform, platform.now() + DRAIN_PAUSE_MIN, select(seen, owned)).await;
        }
    }

    /// Hands a volume over to a node that is not in maintenance: the best one of those that have not refused it. Returns
    /// when to try again, if it is not gone from here.
    async fn drain(self: &Rc<Self>, volume: VolumeId, kept: Option<Kept>, given: &Given) -> Option<Kept> {
        let (platform, view) = (&self.parts.platform, &self.parts.view);
        let mut kept = kept.unwrap_or(Kept {
            again_at: platform.now(),
            pause: DRAIN_PAUSE_MIN,
            refused_by: BTreeSet::new(),
            is_told: false,
        });
        // It may have been taken out of maintenance while others were handed over.
        if !view.is_in_maintenance(self.parts.node()) {
            return None;
        }
        if let Ok(Some(seen)) = self.parts.state.membership(volume).await {
            let may_take = |shard: ShardId| !view.is_in_maintenance(shard.node);
            let untried = |shard: ShardId| may_take(shard) && !kept.refused_by.contains(&shard);
            let successor = self.successor(&seen, given, untried).or_else(|| {
                // All have refused it: from the best one on again.
                kept.refused_by.clear();
                self.successor(&seen, given, may_take)
            });
            if let Some(to) = successor {
                given.count(to);
                match self.pass_on(volume, to, false).await {
                    Ok(()) => return None,
                    Err(error) => tracing::warn!("{error}"),
                }
                kept.refused_by.insert(to);
            } else if !kept.is_told {
                kept.is_told = true;
                tracing::warn!(volume = seen.record.name, "the volume stays here: no other node can take it");
            }
        }
        kept.again_at = platform.now() + kept.pause;
        kept.pause = (kept.pause * 2).min(DRAIN_PAUSE_MAX);
        Some(kept)
    }

    /// The shard of another node that serves a volume best after this one: one that is not in maintenance if there is any, the
    /// one with its writer, else the one of whose node most copies are in sync, and of these the one whose node owns the fewest volumes.
    fn successor(
        &self,
        seen: &VolumeMembership,
        given: &Given,
        may_take: impl Fn(ShardId) -> bool,
    ) -> Option<ShardId> {
        let mut copies = self.copies_in_sync(seen);
        copies.retain(|shard, _| shard.node != self.parts.node() && may_take(*shard));
        let writer = seen.record.writer.map(|writer| writer.shard);
        let (view, owned) = (&self.parts.view, self.parts.view.volumes_owned());
        let rank = |(shard, count): &(ShardId, u64)| {
            let owned = owned.get(&shard.node).copied().unwrap_or(0) + given.to(shard.node);
            let of_node = of_node(&copies, shard.node);
            (!view.is_in_maintenance(shard.node), Some(*shard) == writer, of_node, Reverse(owned), *count)
        };
        copies.clone().into_iter().max_by_key(rank).map(|(shard, _)| shard)
    }

    /// How many copies in sync each shard has that can be reached.
    fn copies_in_sync(&self, seen: &VolumeMembership) -> BTreeMap<ShardId, u64> {
        let mut copies: BTreeMap<ShardId, u64> = BTreeMap::new();
        for member in seen.sets.iter().flat_map(|set| &set.members).filter(|member| seen.is_in_sync(member)) {
            let node = seen.nodes.get(&member.drive).copied();
            let shard = node.map(|node| self.parts.shard_of(node, member.drive));
            if let Some(shard) = shard.filter(|shard| self.parts.liveness.is_reachable(*shard)) {
                *copies.entry(shard).or_default() += 1;
            }
        }
        copies
    }
}

/// How many of these copies are on a node.
fn of_node(copies: &BTreeMap<ShardId, u64>, node: NodeId) -> u64 {
    copies.iter().filter(|(shard, _)| shard.node == node).map(|(_, count)| *count).sum()
}
