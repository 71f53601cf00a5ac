//! Promises between nodes: what keeps two owners of a volume from ever serving at once.
//!
//! Nodes exchange heartbeats. With its answer to each, node B promises node A: for a while I answer
//! no fence against a volume that you own. A *fence* is a new owner's request to be accepted under
//! a higher epoch. An owner answers nothing of a volume without a live promise of every node that
//! holds an in-sync copy, and a new owner answers nothing before all those nodes have answered its
//! fence; so the two never overlap.
//!
//! Both sides are kept here as pure logic, told of every message and of the time: [`Giver`] is
//! what B has promised, [`Holder`] is what A may count on. Nothing of it is durable.
//!
//! Why it is safe:
//! - B counts a promise from the receipt of the heartbeat, A from before its sending and with a
//!   [margin](PromiseTimes::holder_duration) for the drift of clocks. So A's end comes first,
//!   however long the messages were on their way.
//! - A promise counts for a volume only if this incarnation of B has accepted A's epoch of it. So a
//!   fence has to wait only for those whose epoch this incarnation has accepted, and for what an
//!   earlier incarnation may have promised: the grace after a start.
//! - From a fence on, B excludes the volume from every further promise to the former owner. The
//!   exclusion travels with each answer until A has said that it took note, and A drops the volume
//!   before the promise that comes with it counts.
//! - A remembers exclusions, so that an acceptance that was overtaken on its way changes nothing.

mod giver;
mod holder;

use std::time::Duration;

use spandrel_shared::{Epoch, ProcessIncarnation, ShardId, VolumeId};

pub use giver::{Fence, Giver};
pub use holder::{HeartbeatNumbers, Holder};

/// How often a node sends a heartbeat to each other one.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);

/// How long a promise lasts.
pub const PROMISE_DURATION: Duration = Duration::from_millis(1500);

/// How long a promise lasts, and how much of it clocks may spoil.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PromiseTimes {
    /// How long a promise lasts, as its giver counts.
    pub duration: Duration,
    /// What clocks may drift apart during a promise, in parts per million of it.
    pub drift_ppm: u32,
    /// What is taken off besides, for the clocks' granularity.
    pub slack: Duration,
}

impl Default for PromiseTimes {
    /// A promise of 1.5 s; 1 % and 10 ms for the clocks. Clocks of machines drift by 0.01 % at most
    /// while they are kept by NTP, and by 0.05 % if they are not.
    fn default() -> Self {
        Self { duration: PROMISE_DURATION, drift_ppm: 10_000, slack: Duration::from_millis(10) }
    }
}

impl PromiseTimes {
    /// What a promise may lose by drift and granularity.
    pub fn margin(&self) -> Duration {
        let drift = self.duration.as_nanos() * u128::from(self.drift_ppm) / 1_000_000;
        self.slack + Duration::from_nanos(u64::try_from(drift).unwrap_or(u64::MAX))
    }

    /// How long the holder counts on a promise of `promised`, from before it sent the heartbeat. No
    /// longer than on one of its own length: the margin and the grace are made for that.
    pub fn holder_duration(&self, promised: Duration) -> Duration {
        promised.min(self.duration).saturating_sub(self.margin())
    }

    /// How long a process that has just started, or that has just attached a drive, answers no
    /// fence: what its former incarnation, or the drive's former node, may have promised.
    pub fn grace(&self) -> Duration {
        self.duration + self.margin()
    }
}

/// One run of a node's shard: who gives and holds promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// The shard.
    pub shard: ShardId,
    /// Its process.
    pub incarnation: ProcessIncarnation,
}

/// What a heartbeat's answer says about promises.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Promise {
    /// How long no fence is answered, from the heartbeat's receipt on.
    pub duration: Duration,
    /// Of the volumes that the heartbeat named: those whose epoch this incarnation has accepted.
    pub accepted: Vec<(VolumeId, Epoch)>,
    /// Volumes on which a higher epoch was accepted, and that epoch.
    pub exclusions: Vec<(VolumeId, Epoch)>,
    /// The number of the newest exclusion: what the holder names once it has taken note.
    pub exclusions_number: u64,
}

#[cfg(test)]
#[path = "promises_tests.rs"]
mod tests;
