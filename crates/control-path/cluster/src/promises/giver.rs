//! What this node has promised, and which fences wait for it.
//!
//! Invariants:
//! - The epoch known for a volume only grows.
//! - A fence is answered only when every promise that may still be counted for its volume by a
//!   former owner has run out, was handed over, or was this node's own and has been ended.

use std::collections::BTreeMap;

use spandrel_platform::Instant;
use spandrel_shared::{DriveId, Epoch, VolumeId};

use super::{Peer, Promise, PromiseTimes};

/// The promises that one process has given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Giver {
    me: Peer,
    times: PromiseTimes,
    /// Until when an earlier incarnation's promises may last.
    start_grace_until: Instant,
    /// The same for drives that were attached since: another node may have promised for them.
    drive_grace_until: BTreeMap<DriveId, Instant>,
    peers: BTreeMap<Peer, Given>,
    volumes: BTreeMap<VolumeId, Ownership>,
}

/// What one peer was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Given {
    /// Until when it may count on the newest promise.
    until: Instant,
    /// Volumes it must drop, each with the number of the exclusion and the epoch that was accepted.
    exclusions: BTreeMap<VolumeId, (u64, Epoch)>,
    exclusions_number: u64,
}

/// What this node knows of a volume's owners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Ownership {
    /// The highest epoch that was seen.
    epoch: Epoch,
    /// The highest epoch that is durable on every drive here with copies of the volume.
    durable: Epoch,
    /// Who asked to be accepted under that epoch; `None` if nobody did since the process started.
    owner: Option<Peer>,
    /// Whether it was answered that it is accepted.
    accepted: bool,
    /// When the owner may be answered.
    answer_at: Instant,
    /// Former owners that may still count a promise for this volume: until when, under which epoch.
    former: BTreeMap<Peer, (Instant, Epoch)>,
    /// Who has given the volume up last, with every epoch up to this one: what it sent before may come after.
    given_up: Option<(Peer, Epoch)>,
}

/// What becomes of a request to be accepted as a volume's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// A higher epoch is known, or another owner under this one; or who asks has given up this one.
    Refused {
        /// The epoch that is known.
        epoch: Epoch,
    },
    /// The epoch must now be made durable on every drive with copies of the volume, and that be told
    /// by [`Giver::epoch_durable`]. The fence is to be answered at `at`, no earlier, and only if
    /// [`Giver::may_answer`] says so then: a higher epoch may come first.
    Pending {
        /// When it may be answered.
        at: Instant,
        /// This process owns the volume under a lower epoch and must stop serving it first.
        stop_own: bool,
    },
}

impl Giver {
    /// The promises of `me`, whose process starts at `now`.
    pub fn new(now: Instant, me: Peer, times: PromiseTimes) -> Self {
        Self {
            me,
            times,
            start_grace_until: now + times.grace(),
            drive_grace_until: BTreeMap::new(),
            peers: BTreeMap::new(),
            volumes: BTreeMap::new(),
        }
    }

    /// Takes note that a drive was attached at `now`, and of the highest epochs that it remembers.
    pub fn drive_attached(
        &mut self,
        now: Instant,
        drive: DriveId,
        epochs: impl IntoIterator<Item = (VolumeId, Epoch)>,
    ) {
        self.drive_grace_until.insert(drive, now + self.times.grace());
        for (volume, epoch) in epochs {
            self.raise(volume, epoch);
            self.epoch_durable(volume, epoch);
        }
    }

    /// Forgets a drive that is no longer there.
    pub fn drive_detached(&mut self, drive: DriveId) {
        self.drive_grace_until.remove(&drive);
    }

    /// The highest epoch known for a volume.
    pub fn epoch(&self, volume: VolumeId) -> Epoch {
        self.volumes.get(&volume).map_or(Epoch::ZERO, |ownership| ownership.epoch)
    }

    /// A heartbeat of `from` arrived at `now`. Gives the promise that its answer carries.
    ///
    /// The heartbeat names the volumes that its sender owns and the highest exclusion number that
    /// it has taken note of. A volume whose epoch is durable here already is accepted as by
    /// [`Giver::fence`]; a higher epoch needs the fence itself, so that it is made durable.
    pub fn heartbeat(
        &mut self,
        now: Instant,
        from: Peer,
        owned: &[(VolumeId, Epoch)],
        exclusions_seen: u64,
    ) -> Promise {
        let accepted =
            owned.iter().copied().filter(|(volume, epoch)| self.accept(now, from, *volume, *epoch));
        let accepted = accepted.collect();
        let duration = self.times.duration;
        let given = self.peers.entry(from).or_default();
        given.until = given.until.max(now + duration);
        given.exclusions.retain(|_, (number, _)| *number > exclusions_seen);
        let exclusions = given.exclusions.iter().map(|(volume, (_, epoch))| (*volume, *epoch)).collect();
        Promise { duration, accepted, exclusions, exclusions_number: given.exclusions_number }
    }

    /// Whether `from` is accepted as owner under `epoch`, if that epoch is durable already.
    fn accept(&mut self, now: Instant, from: Peer, volume: VolumeId, epoch: Epoch) -> bool {
        let known = |ownership: &Ownership| ownership.epoch == epoch && ownership.durable == epoch;
        if !self.volumes.get(&volume).is_some_and(known) {
            return false;
        }
        let Fence::Pending { .. } = self.fence(now, from, volume, epoch) else { return false };
        self.may_answer(now, from, volume, epoch)
    }

    /// `from` asks to be accepted as the owner of `volume` under `epoch`. At once the volume is left
    /// out of every further promise to others, and lower epochs are refused.
    pub fn fence(&mut self, now: Instant, from: Peer, volume: VolumeId, epoch: Epoch) -> Fence {
        let known = self.epoch(volume);
        let usurped = |owner: &Ownership| epoch == known && owner.owner.is_some_and(|owner| owner != from);
        let given_up =
            |owner: &Ownership| owner.given_up.is_some_and(|(by, up_to)| by == from && epoch <= up_to);
        let refused = |owner: &Ownership| usurped(owner) || given_up(owner);
        if epoch < known || epoch == Epoch::ZERO || self.volumes.get(&volume).is_some_and(refused) {
            return Fence::Refused { epoch: known };
        }
        let former = if epoch > known { self.raise(volume, epoch) } else { None };
        let grace = self.grace_until();
        let ownership = self.volumes.entry(volume).or_default();
        ownership.owner = Some(from);
        // What it may count on as a former owner is no obstacle to itself.
        ownership.former.remove(&from);
        ownership.former.retain(|_, (until, _)| *until > now);
        let waits = ownership.former.values().map(|(until, _)| *until);
        ownership.answer_at = waits.fold(grace, Instant::max);
        Fence::Pending { at: ownership.answer_at, stop_own: former == Some(self.me) && from != self.me }
    }

    /// The epoch is durable on every drive here with copies of the volume.
    pub fn epoch_durable(&mut self, volume: VolumeId, epoch: Epoch) {
        let ownership = self.volumes.entry(volume).or_default();
        ownership.durable = ownership.durable.max(epoch);
    }

    /// Whether the fence of `from` may be answered at `now`. If so, it counts as accepted from here
    /// on: the caller answers.
    pub fn may_answer(&mut self, now: Instant, from: Peer, volume: VolumeId, epoch: Epoch) -> bool {
        let Some(ownership) = self.volumes.get_mut(&volume) else { return false };
        let current = ownership.owner == Some(from) && ownership.epoch == epoch;
        if current && ownership.durable >= epoch && now >= ownership.answer_at {
            ownership.accepted = true;
        }
        current && ownership.accepted
    }

    /// `from` says that it has given up `volume` and every epoch of it up to `epoch`: no promise to
    /// it stands in the way of a fence on that volume any more. Returns whether a pending fence may
    /// be answered earlier than was said.
    pub fn handed_over(&mut self, from: Peer, volume: VolumeId, epoch: Epoch) -> bool {
        let grace = self.grace_until();
        let Some(ownership) = self.volumes.get_mut(&volume) else { return false };
        if ownership.owner == Some(from) && ownership.epoch <= epoch {
            (ownership.owner, ownership.accepted) = (None, false);
        }
        ownership.given_up = Some((from, epoch));
        ownership.former.retain(|peer, (_, held)| *peer != from || *held > epoch);
        let before = ownership.answer_at;
        let waits = ownership.former.values().map(|(until, _)| *until);
        ownership.answer_at = waits.fold(grace, Instant::max);
        ownership.answer_at < before
    }

    /// Forgets a volume that was deleted.
    pub fn volume_deleted(&mut self, volume: VolumeId) {
        self.volumes.remove(&volume);
    }

    /// Until when no fence is answered because of what others may have promised before.
    fn grace_until(&self) -> Instant {
        self.drive_grace_until.values().copied().fold(self.start_grace_until, Instant::max)
    }

    /// Takes note of a higher epoch: the owner so far becomes a former one, from whose further
    /// promises the volume is excluded. Returns it.
    fn raise(&mut self, volume: VolumeId, epoch: Epoch) -> Option<Peer> {
        let ownership = self.volumes.entry(volume).or_default();
        if epoch <= ownership.epoch {
            return None;
        }
        let lower = std::mem::replace(&mut ownership.epoch, epoch);
        let owner = ownership.owner.take();
        let was_accepted = std::mem::take(&mut ownership.accepted);
        let former = owner.filter(|_| was_accepted)?;
        if former == self.me {
            return Some(former);
        }
        let given = self.peers.entry(former).or_default();
        ownership.former.insert(former, (given.until, lower));
        given.exclusions_number += 1;
        given.exclusions.insert(volume, (given.exclusions_number, epoch));
        Some(former)
    }
}
