//! The shards of a node: each a [`Node`](crate::Node) on a thread of its own, with a part of the node's drives and volumes. Here is
//! which of them has what where nothing else decides it, and where they wait for each other as they start and stop.
//!
//! Invariants, of the shards of a process together:
//! - Nothing on a drive or in the cluster's state is changed before all drives of all shards were looked at.
//! - Nobody is served before the drives of all shards are in use.
//! - In a stop no volume is handed over before all clients were answered, and no drive is let go of before all volumes were handed
//!   over.
//! - A drive is in use at one shard, which is the same one until the process ends. Of two that say that they are the same drive
//!   none comes into use with a start.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use futures_util::future::join_all;
use spandrel_frontend::Exchange;
use spandrel_shared::{DriveId, Error, VolumeId};

/// The most shards that a node may have.
pub const SHARDS_MAX: u8 = 32;

/// What one shard has to do with the other shards of its process, besides what it says to them as to any other. `D` is a
/// connection on its way from one to another. Dropped, the shard is gone for the others.
pub struct Siblings<D> {
    /// The ways that NBD clients take.
    pub(crate) exchange: Exchange<D>,
    pub(crate) homes: DriveHomes,
    pub(crate) presence: Presence,
}

impl<D> Siblings<D> {
    /// Those of the `count` shards of a process, in the order of their numbers.
    pub fn among(count: u8) -> Vec<Self> {
        let homes = DriveHomes::default();
        let meeting = Arc::new(Mutex::new(Meeting { stages: vec![None; count.into()], wakers: Vec::new() }));
        let shard = |(number, exchange)| Self {
            exchange,
            homes: homes.clone(),
            presence: Presence { number, meeting: Arc::clone(&meeting) },
        };
        Exchange::among(count.into()).into_iter().enumerate().map(shard).collect()
    }

    /// Which shard has each drive.
    pub fn homes(&self) -> &DriveHomes {
        &self.homes
    }
}

/// Where the shards of a process wait for each other, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// All drives were looked at.
    Looked,
    /// Those that several shards have found are left out.
    Judged,
    /// They are in use.
    Attached,
    /// It stops, and no virtual machine of the node runs any more.
    MachinesEnded,
    /// All clients are answered.
    Answered,
    /// All volumes were handed over.
    HandedOver,
    /// It was refused, or has ended.
    Gone,
}

struct Meeting {
    /// What each shard has reached.
    stages: Vec<Option<Stage>>,
    wakers: Vec<Waker>,
}

/// One shard among those of its process. Dropped, it is gone.
pub(crate) struct Presence {
    number: usize,
    meeting: Arc<Mutex<Meeting>>,
}

impl Presence {
    /// Waits until all shards have come as far. False if one of them is gone.
    pub(crate) async fn reach(&self, stage: Stage) -> bool {
        self.note(stage);
        poll_fn(|context| {
            let mut meeting = self.meeting();
            if meeting.stages.iter().all(|reached| *reached >= Some(stage)) {
                return Poll::Ready(!meeting.stages.contains(&Some(Stage::Gone)));
            }
            if !meeting.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                meeting.wakers.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    fn note(&self, stage: Stage) {
        let wakers = {
            let mut meeting = self.meeting();
            meeting.stages[self.number] = Some(stage);
            std::mem::take(&mut meeting.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn meeting(&self) -> MutexGuard<'_, Meeting> {
        self.meeting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.note(Stage::Gone);
    }
}

/// Which shard of a process has each drive that was ever attached there. It keeps it until the process ends: what it has promised of
/// the drive binds no other shard.
#[derive(Clone, Debug, Default)]
pub struct DriveHomes(Arc<Mutex<BTreeMap<DriveId, Home>>>);

#[derive(Clone, Copy, Debug)]
struct Home {
    shard: u8,
    /// Whether another shard has found something that says that it is the same drive.
    is_contested: bool,
}

impl DriveHomes {
    /// Has the drive belong to this shard, if it belongs to none. Whether it does.
    pub(crate) fn claim(&self, drive: DriveId, shard: u8) -> bool {
        let mut homes = self.homes();
        let home = homes.entry(drive).or_insert(Home { shard, is_contested: false });
        home.is_contested |= home.shard != shard;
        home.shard == shard
    }

    /// Whether several shards have found the drive.
    pub(crate) fn is_contested(&self, drive: DriveId) -> bool {
        self.homes().get(&drive).is_some_and(|home| home.is_contested)
    }

    /// The shard that has a drive, if one has.
    pub fn of(&self, drive: DriveId) -> Option<u8> {
        self.homes().get(&drive).map(|home| home.shard)
    }

    fn homes(&self) -> MutexGuard<'_, BTreeMap<DriveId, Home>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a shard does not start whose sibling does not: that one says more.
const SIBLING_REFUSED: &str = "SIBLING_REFUSED";

pub(crate) fn sibling_refused(node: &str) -> Error {
    let next = "look for what the other one says";
    Error::new(SIBLING_REFUSED, format!("node {node} does not start"), "another shard of it does not", next)
}

/// Which of a node's `shards` has the clients of a volume, and the volume where nothing speaks for another one: they take turns,
/// as identities are random.
pub(crate) fn turn_of(volume: VolumeId, shards: u8) -> u8 {
    let [.., last] = volume.to_bytes();
    last % shards
}

/// What the shard with number `number` of `shards` gets of what they take by turns.
pub fn by_turns<T>(all: impl IntoIterator<Item = T>, number: u8, shards: u8) -> impl Iterator<Item = T> {
    all.into_iter().skip(usize::from(number)).step_by(usize::from(shards))
}

/// Starts the shards of a node, which wait for each other. If one is refused all are: those that have started are stopped.
///
/// # Errors
///
/// Why one of them was refused.
pub async fn start_shards<Config, Shard, Starting, Stopping>(
    configs: impl IntoIterator<Item = Config>,
    start: impl Fn(Config) -> Starting,
    stop: impl Fn(Shard) -> Stopping,
) -> Result<Vec<Shard>, Error>
where
    Starting: Future<Output = Result<Shard, Error>>,
    Stopping: Future<Output = ()>,
{
    let (mut shards, mut refusals) = (Vec::new(), Vec::new());
    for started in join_all(configs.into_iter().map(start)).await {
        match started {
            Ok(shard) => shards.push(shard),
            Err(error) => refusals.push(error),
        }
    }
    // What makes the others refuse says more than that they do.
    match refusals.into_iter().min_by_key(|error| error.code == SIBLING_REFUSED) {
        None => Ok(shards),
        Some(error) => {
            join_all(shards.into_iter().map(stop)).await;
            Err(error)
        }
    }
}

#[cfg(test)]
#[path = "shards_tests.rs"]
mod tests;
