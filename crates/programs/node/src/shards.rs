//! The shards of a node: each a [`Node`](crate::Node) on a thread of its own, with a part of the node's drives and volumes. Here is
//! which of them has what where nothing else decides it, and the order in which they start.

use std::future::Future;

use futures_util::future::join_all;
use spandrel_shared::{Error, VolumeId};

/// The most shards that a node may have.
pub const SHARDS_MAX: u8 = 32;

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
