//! The shards of a node: each a [`Node`](crate::Node) on a thread of its own, with a part of the node's drives and volumes. Here is
//! which of them has what where nothing else decides it, and the order in which they start.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use spandrel_frontend::Exchange;
use spandrel_shared::{DriveId, Error, VolumeId};

/// The most shards that a node may have.
pub const SHARDS_MAX: u8 = 32;

/// What one shard has to do with the other shards of its process, besides what it says to them as to any other. All clones are
/// the same shard's. `D` is a connection on its way from one to another.
pub struct Siblings<D> {
    /// The ways that NBD clients take.
    pub(crate) exchange: Exchange<D>,
    pub(crate) homes: DriveHomes,
}

impl<D> Clone for Siblings<D> {
    fn clone(&self) -> Self {
        Self { exchange: self.exchange.clone(), homes: self.homes.clone() }
    }
}

impl<D> Siblings<D> {
    /// Those of the `count` shards of a process, in the order of their numbers.
    pub fn among(count: u8) -> Vec<Self> {
        let homes = DriveHomes::default();
        let each = Exchange::among(count.into()).into_iter();
        each.map(|exchange| Self { exchange, homes: homes.clone() }).collect()
    }

    /// Which shard has each drive.
    pub fn homes(&self) -> &DriveHomes {
        &self.homes
    }
}

/// Which shard of a process has each drive that was ever attached there. It keeps it until the process ends: what it has promised of
/// the drive binds no other shard. And of two that say that they are the same drive only one may be in use.
#[derive(Clone, Debug, Default)]
pub struct DriveHomes(Arc<Mutex<BTreeMap<DriveId, u8>>>);

impl DriveHomes {
    /// Has the drive belong to this shard, if it belongs to none. Else the one that has it.
    pub(crate) fn claim(&self, drive: DriveId, shard: u8) -> Result<(), u8> {
        let mut homes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *homes.entry(drive).or_insert(shard) {
            home if home == shard => Ok(()),
            home => Err(home),
        }
    }

    /// The shard that has a drive, if one has.
    pub fn of(&self, drive: DriveId) -> Option<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&drive).copied()
    }
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

/// Starts the shards of a node, in the order of their numbers: the first one before the others. Where it is refused, for example
/// by a cluster's state that is older than its drives, nothing is changed by any of them. If another one is refused, those that
/// have started are stopped.
///
/// # Errors
///
/// What the first one says that was refused.
pub async fn start_shards<Config, Shard, Starting, Stopping>(
    configs: impl IntoIterator<Item = Config>,
    start: impl Fn(Config) -> Starting,
    stop: impl Fn(Shard) -> Stopping,
) -> Result<Vec<Shard>, Error>
where
    Starting: Future<Output = Result<Shard, Error>>,
    Stopping: Future<Output = ()>,
{
    let mut configs = configs.into_iter();
    let Some(first) = configs.next() else { return Ok(Vec::new()) };
    let mut shards = vec![start(first).await?];
    let mut refused = None;
    for started in join_all(configs.map(start)).await {
        match started {
            Ok(shard) => shards.push(shard),
            Err(error) => {
                refused.get_or_insert(error);
            }
        }
    }
    match refused {
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
