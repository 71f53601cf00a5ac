//! What this node may count on: the promises that others gave it.
//!
//! Invariants:
//! - A promise of a peer counts for a volume and epoch only if that incarnation of the peer has
//!   accepted them and named no higher epoch since.
//! - A promise ends here before it ends where it was given.

use std::collections::BTreeMap;
use std::time::Duration;

use spandrel_platform::Instant;
use spandrel_shared::{Epoch, ProcessIncarnation, ShardId, VolumeId};

use super::{Peer, Promise, PromiseTimes};

/// Heartbeats of which the sending time is remembered. One whose answer takes longer than so many
/// intervals brings no promise that is still alive.
const HEARTBEATS_IN_FLIGHT_MAX: usize = 64;

/// The promises that one process holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    times: PromiseTimes,
    peers: BTreeMap<ShardId, Held>,
}

/// What one peer has promised.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    incarnation: ProcessIncarnation,
    until: Instant,
    /// When the heartbeats that were not answered yet were sent.
    sent: BTreeMap<u64, Instant>,
    last_number: u64,
    /// The volumes that the promise counts for, with the epoch that was accepted.
    accepted: BTreeMap<VolumeId, Epoch>,
    /// The highest epoch that an exclusion named for a volume: nothing below is accepted.
    excluded: BTreeMap<VolumeId, Epoch>,
    exclusions_seen: u64,
}

impl Held {
    fn new(incarnation: ProcessIncarnation) -> Self {
        Self {
            incarnation,
            until: Instant::default(),
            sent: BTreeMap::new(),
            last_number: 0,
            accepted: BTreeMap::new(),
            excluded: BTreeMap::new(),
            exclusions_seen: 0,
        }
    }
}

/// What a heartbeat must say besides the volumes that its sender owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatNumbers {
    /// Names the heartbeat, for its answer.
    pub number: u64,
    /// The highest exclusion number of the receiver that was taken note of.
    pub exclusions_seen: u64,
}

impl Holder {
    /// No promises.
    pub fn new(times: PromiseTimes) -> Self {
        Self { times, peers: BTreeMap::new() }
    }

    /// A session with `peer` began. Its acceptances must be said again; if it is another
    /// incarnation than before, nothing of the former one counts any more.
    pub fn session_started(&mut self, peer: Peer) {
        let held = self.peers.entry(peer.shard).or_insert_with(|| Held::new(peer.incarnation));
        if held.incarnation != peer.incarnation {
            // Heartbeats keep their numbers, so that no late answer is taken for a new one's.
            *held = Held { last_number: held.last_number, ..Held::new(peer.incarnation) };
        }
        held.accepted.clear();
        held.sent.clear();
    }

    /// A heartbeat is about to be sent to `shard`. Its clock reading must be taken before anything
    /// of it leaves. `None` without a session.
    pub fn heartbeat_sent(&mut self, now: Instant, shard: ShardId) -> Option<HeartbeatNumbers> {
        let held = self.peers.get_mut(&shard)?;
        held.last_number += 1;
        held.sent.insert(held.last_number, now);
        if held.sent.len() > HEARTBEATS_IN_FLIGHT_MAX {
            held.sent.pop_first();
        }
        Some(HeartbeatNumbers { number: held.last_number, exclusions_seen: held.exclusions_seen })
    }

    /// The answer of `peer` to heartbeat `number`. Ignored if it is not of the current session's
    /// incarnation or not expected.
    pub fn answered(&mut self, peer: Peer, number: u64, promise: &Promise) {
        let Some(held) = self.peers.get_mut(&peer.shard) else { return };
        if held.incarnation != peer.incarnation {
            return;
        }
        let Some(sent) = held.sent.remove(&number) else { return };
        // The exclusions come before everything else: they hold for this very promise.
        for (volume, epoch) in &promise.exclusions {
            let excluded = held.excluded.entry(*volume).or_default();
            *excluded = (*excluded).max(*epoch);
        }
        held.exclusions_seen = held.exclusions_seen.max(promise.exclusions_number);
        for (volume, epoch) in &promise.accepted {
            let accepted = held.accepted.entry(*volume).or_default();
            *accepted = (*accepted).max(*epoch);
        }
        let excluded = &held.excluded;
        held.accepted.retain(|volume, epoch| excluded.get(volume).is_none_or(|higher| *epoch >= *higher));
        let duration = self.times.holder_duration(promise.duration);
        if duration > Duration::ZERO {
            held.until = held.until.max(sent + duration);
        }
    }

    /// `peer` answered a fence: it accepts this node under `epoch`. Counts like an acceptance in a
    /// heartbeat's answer.
    pub fn fence_answered(&mut self, peer: Peer, volume: VolumeId, epoch: Epoch) {
        let Some(held) = self.peers.get_mut(&peer.shard) else { return };
        let overtaken = held.excluded.get(&volume).is_some_and(|higher| epoch < *higher);
        if held.incarnation == peer.incarnation && !overtaken {
            let accepted = held.accepted.entry(volume).or_default();
            *accepted = (*accepted).max(epoch);
        }
    }

    /// This node gave the volume up, or was told that another one owns it: nothing counts for it
    /// any more.
    pub fn give_up(&mut self, volume: VolumeId) {
        for held in self.peers.values_mut() {
            held.accepted.remove(&volume);
        }
    }

    /// Whether `shard` promises at `now` to answer no fence against this ownership.
    pub fn is_promised(&self, now: Instant, shard: ShardId, volume: VolumeId, epoch: Epoch) -> bool {
        self.promised_until(shard, volume, epoch).is_some_and(|until| now < until)
    }

    /// Until when, exclusively, all of `shards` promise to answer no fence against this ownership:
    /// `None` if one of them promises nothing. With no nodes at all there is no end.
    ///
    /// This changes only with a message. An owner keeps it for each of its volumes and needs one
    /// comparison with a fresh clock reading before each answer.
    pub fn all_promised_until(
        &self,
        shards: impl IntoIterator<Item = ShardId>,
        volume: VolumeId,
        epoch: Epoch,
    ) -> Option<Instant> {
        let end = Instant::from_nanoseconds(u64::MAX);
        let mut untils = shards.into_iter().map(|shard| self.promised_until(shard, volume, epoch));
        untils.try_fold(end, |earliest, until| until.map(|until| earliest.min(until)))
    }

    fn promised_until(&self, shard: ShardId, volume: VolumeId, epoch: Epoch) -> Option<Instant> {
        let held = self.peers.get(&shard)?;
        (held.accepted.get(&volume) == Some(&epoch)).then_some(held.until)
    }
}
