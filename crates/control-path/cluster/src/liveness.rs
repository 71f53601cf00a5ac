//! Who lives, as far as this node can tell: its own shards, and the owners of volumes.
//!
//! Pure bookkeeping: it is told what happened and when.

use std::collections::BTreeMap;
use std::time::Duration;

use spandrel_platform::Instant;
use spandrel_shared::{Epoch, VolumeId};

use crate::promises::Peer;

/// How long an entry in the cluster's state that says that a node lives outlasts its node.
///
/// If so many nodes are lost at once that those left cannot mark copies before the entries of the others expire, clients
/// wait for that. When etcd's leader is among the lost, there is an election first (1 to 2 s, unless votes are split); then
/// the new leader gives every entry this time anew, and one election timeout (1 s) more, and looks every 0.5 s which have
/// expired. So this is as short as renewals allow.
pub const ALIVE_TIME_TO_LIVE: Duration = Duration::from_secs(3);

/// How long an owner must be silent before another node may take its volume.
pub const OWNER_SILENCE_MAX: Duration = Duration::from_millis(1500);

/// How long a shard may leave a heartbeat unanswered before the node counts as dead.
pub const SHARD_SILENCE_MAX: Duration = Duration::from_millis(750);

/// Whether every shard of this node has answered lately. While one has not, the node is to ask for no promises and to renew
/// nothing: a stuck shard is a dead node. Nobody asks yet: the program starts one shard for each node.
#[derive(Clone, Debug)]
pub struct ShardWatch {
    answered: Vec<Instant>,
}

impl ShardWatch {
    /// A node of `shards` shards, all of which count as answering at `now`.
    pub fn new(now: Instant, shards: usize) -> Self {
        Self { answered: vec![now; shards] }
    }

    /// Shard `shard` answered a heartbeat that was sent to it at `sent`.
    pub fn answered(&mut self, sent: Instant, shard: usize) {
        self.answered[shard] = self.answered[shard].max(sent);
    }

    /// Whether all shards have answered a heartbeat that is no older than [`SHARD_SILENCE_MAX`].
    pub fn all_alive(&self, now: Instant) -> bool {
        self.silent_since(now).is_none()
    }

    /// The shard that has been silent for longest, if for too long, and since when.
    pub fn silent_since(&self, now: Instant) -> Option<(usize, Instant)> {
        let silent = self.answered.iter().copied().enumerate();
        let oldest = silent.min_by_key(|(_, answered)| *answered)?;
        (now.since(oldest.1) > SHARD_SILENCE_MAX).then_some(oldest)
    }
}

/// When each owner was last heard of. An owner is silent if no heartbeat names its volume with the
/// process and epoch that the cluster's state shows: a node that lives but no longer serves a
/// volume is silent for that volume.
#[derive(Clone, Debug, Default)]
pub struct OwnerWatch {
    heard: BTreeMap<VolumeId, (Peer, Epoch, Instant)>,
}

impl OwnerWatch {
    /// Nothing heard yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A heartbeat of `from`, which names the volumes that it owns, was received at `now`.
    pub fn heartbeat(&mut self, now: Instant, from: Peer, owned: &[(VolumeId, Epoch)]) {
        for (volume, epoch) in owned {
            let heard = self.heard.entry(*volume).or_insert((from, *epoch, now));
            if *epoch >= heard.1 {
                *heard = (from, *epoch, now);
            }
        }
    }

    /// When the owner that the state shows will have been silent for so long that its volume may be
    /// taken, if nothing more is heard of it. `shown_since` is when this node first saw that owner in the
    /// state: nobody is silent before there was time to hear of it.
    pub fn silent_at(&self, volume: VolumeId, owner: Peer, epoch: Epoch, shown_since: Instant) -> Instant {
        let last = match self.heard.get(&volume) {
            Some((from, heard_epoch, at)) if *from == owner && *heard_epoch == epoch => {
                (*at).max(shown_since)
            }
            _ => shown_since,
        };
        last + OWNER_SILENCE_MAX
    }

    /// Forgets a volume that was deleted.
    pub fn volume_deleted(&mut self, volume: VolumeId) {
        self.heard.remove(&volume);
    }
}

#[cfg(test)]
#[path = "liveness_tests.rs"]
mod tests;
