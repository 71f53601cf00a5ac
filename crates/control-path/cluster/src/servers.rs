//! Servers that become part of the cluster, and those that leave it for good.
//!
//! Invariants:
//! - No two servers have the same identity, name, or address and port. Every change here changes one record that all
//!   of them compare, so that two changes at once do not both count on the same name.
//! - Who has left never comes back under its identity.
//! - A node leaves only when no copy is promised on its drives, and nothing is promised on them meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use spandrel_shared::{DriveId, Error, NodeId, Place, ShardId, VolumeId};

use crate::keys::{self, StateKey};
use crate::records::{
    DriveRecord, NodeRecord, ServersRecord, Stored, TombstoneRecord, VolumeRecord, VolumeRoomRecord,
    WitnessRecord, decode, encode,
};
use crate::state::{ClusterState, PoolRoom, StateError, decode_group, expected_of, tombstone, unknown_node};
use crate::store::{Entry, Expected, Key, Selection, StateStore, Transaction, Value};

/// A server that wants to become part of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewServer {
    /// Its identity.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub addresses: Vec<SocketAddr>,
    /// The digest of its public key, in hexadecimal digits.
    pub key_digest: String,
    /// Whether it has no drives and only helps to keep the cluster's state.
    pub witness: bool,
    /// The time of day.
    pub now_unix_ms: u64,
}

/// A server of the cluster, of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownServer {
    /// Its identity.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub addresses: Vec<String>,
    /// The digest of its public key.
    pub key_digest: Option<String>,
    /// Whether it is a witness.
    pub witness: bool,
}

/// What is taken out of the cluster with a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRemoval {
    /// The server.
    pub server: KnownServer,
    /// Its drives: nothing is promised on them.
    pub drives: Vec<DriveId>,
}

impl<S: StateStore> ClusterState<S> {
    /// Makes a server part of the cluster. One that asks again, as it was and with the same key, is it already. A
    /// server needs `ports` ports, from that of each of its addresses on.
    ///
    /// Errors besides the store's: `SERVER_REFUSED`, `NAME_TAKEN`, `ADDRESS_TAKEN`.
    pub async fn admit_server(&self, new: &NewServer, ports: u16) -> Result<(), StateError> {
        let tombstone_key = StateKey::NodeTombstone(new.id).key();
        let selections = [
            Selection::prefix(keys::NODES),
            Selection::prefix(keys::WITNESSES),
            Selection::key(&StateKey::Servers.key()),
            Selection::key(&tombstone_key),
        ];
        let snapshot = self.snapshot(&selections).await?;
        let known = known_servers(&snapshot.groups[0], &snapshot.groups[1])?;
        if snapshot.entry(3).is_some() {
            return Err(refused(&new.name, "a server with its identity has left the cluster").into());
        }
        if let Some(same) = known.iter().find(|server| server.id == new.id) {
            return if new.is(same) {
                Ok(())
            } else {
                Err(refused(&new.name, "another server has its identity").into())
            };
        }
        check_free(new, &known, ports)?;
        let guard: Option<Stored<ServersRecord>> = snapshot.entry(2).map(decode).transpose()?;
        let (key, value) = new.record();
        let transaction = Transaction::new()
            .expect(&tombstone_key, Expected::Absent)
            .expect(&key, Expected::Absent)
            .put(&key, value);
        self.commit(change_of_servers(transaction, guard.as_ref())).await.map(drop)
    }

    /// Puts what a node says of itself in place of what was known of it, unless it has left.
    ///
    /// Error besides the store's: `SERVER_REMOVED`.
    pub async fn put_node(
        &self,
        node: NodeId,
        expected: Expected,
        record: NodeRecord,
    ) -> Result<(), StateError> {
        if self.is_removed(node).await? {
            return Err(removed(&record.name).into());
        }
        let key = StateKey::Node(node).key();
        let transaction = Transaction::new()
            .expect(&StateKey::NodeTombstone(node).key(), Expected::Absent)
            .expect(&key, expected)
            .put(&key, encode(&record));
        self.commit(transaction).await.map(drop)
    }

    /// Puts a node into maintenance, since the time of day that is given, or takes it out again. `seen` are all nodes as
    /// whoever decided that has seen them.
    ///
    /// Errors besides the store's: `NODE_UNKNOWN`; a conflict if any node has changed since: two nodes that are put into
    /// maintenance at once could each count on the other one.
    pub async fn set_maintenance(
        &self,
        node: NodeId,
        since_unix_ms: Option<u64>,
        seen: &BTreeMap<NodeId, Stored<NodeRecord>>,
    ) -> Result<(), StateError> {
        let stored = seen.get(&node).ok_or_else(|| unknown_node(&node.to_string()))?;
        if stored.record.maintenance_since_unix_ms == since_unix_ms {
            return Ok(());
        }
        let mut transaction = Transaction::new();
        for (other, stored) in seen {
            transaction =
                transaction.expect(&StateKey::Node(*other).key(), Expected::ModifiedAt(stored.revision));
        }
        let record = NodeRecord { maintenance_since_unix_ms: since_unix_ms, ..stored.record.clone() };
        self.commit(transaction.put(&StateKey::Node(node).key(), encode(&record))).await.map(drop)
    }

    /// Says where a node stands. `Conflict` if its record changes at the same time.
    ///
    /// Errors besides the store's: `NODE_UNKNOWN`.
    pub async fn set_place(
        &self,
        node: NodeId,
        change: impl FnOnce(&mut Place),
    ) -> Result<Place, StateError> {
        let key = StateKey::Node(node);
        let stored: Option<Stored<NodeRecord>> = self.get(&key).await?;
        let stored = stored.ok_or_else(|| unknown_node(&node.to_string()))?;
        let mut record = stored.record;
        change(&mut record.place);
        Ok(self.put(&key, Expected::ModifiedAt(stored.revision), record).await?.record.place)
    }

    /// Whether a server has left the cluster.
    pub async fn is_removed(&self, server: NodeId) -> Result<bool, StateError> {
        let tombstone = self.get::<TombstoneRecord>(&StateKey::NodeTombstone(server)).await?;
        Ok(tombstone.is_some())
    }

    /// Takes a server out of the cluster for good, or says what stands against that; with `dry_run` nothing is done.
    /// No error if it was done before: then nothing is given.
    ///
    /// Errors besides the store's: `NODE_RUNNING` if it is a node that runs and has drives, `NODE_HOLDS_COPIES`,
    /// `LAST_NODE`.
    pub async fn remove_server(
        &self,
        server: NodeId,
        now_unix_ms: u64,
        dry_run: bool,
    ) -> Result<Option<ServerRemoval>, StateError> {
        let room = self.pool_room().await?;
        let key = StateKey::Node(server).key();
        let witness_key = StateKey::Witness(server).key();
        let selections = [
            Selection::prefix(keys::NODES),
            Selection::prefix(keys::WITNESSES),
            Selection::key(&StateKey::Servers.key()),
            Selection::prefix(&keys::alive_of(server)),
            Selection::prefix(keys::VOLUMES),
            Selection::prefix(keys::CACHES),
        ];
        let snapshot = self.snapshot(&selections).await?;
        let known = known_servers(&snapshot.groups[0], &snapshot.groups[1])?;
        let Some(leaving) = known.iter().find(|known| known.id == server).cloned() else { return Ok(None) };
        let guard: Option<Stored<ServersRecord>> = snapshot.entry(2).map(decode).transpose()?;
        let is_alive = !snapshot.groups[3].is_empty();
        let own = room.drives.iter().filter(|(_, drive)| drive.node == server);
        let drives: Vec<DriveId> = own.map(|(drive, _)| *drive).collect();
        if !leaving.witness && known.iter().all(|other| other.witness || other.id == server) {
            return Err(last_node(&leaving.name).into());
        }
        check_holds_nothing(&leaving.name, &drives, &room, &snapshot.groups[4])?;
        if is_alive && !drives.is_empty() {
            return Err(runs(&leaving.name).into());
        }
        let removal = ServerRemoval { server: leaving.clone(), drives: drives.clone() };
        if dry_run {
            return Ok(Some(removal));
        }
        let key = if leaving.witness { witness_key } else { key };
        let mut entries = snapshot.groups[0].iter().chain(&snapshot.groups[1]);
        let entry = entries.find(|entry| entry.key == key).expect("it was decoded from there");
        let mut transaction = Transaction::new()
            .expect(&key, Expected::ModifiedAt(entry.modified))
            .delete(&key)
            .delete(&StateKey::Awake(server).key())
            .put(&StateKey::NodeTombstone(server).key(), tombstone(&leaving.name, now_unix_ms));
        let shards = if leaving.witness { 0 } else { decode::<NodeRecord>(entry)?.record.shards() };
        let shards = ShardId::all(server, shards).map(|shard| StateKey::Alive(shard).key());
        let known = snapshot.groups[3].iter().map(|entry| entry.key.clone());
        for key in shards.chain(known).collect::<BTreeSet<Key>>() {
            transaction = match drives.is_empty() {
                true => transaction.delete(&key),
                // One that has started meanwhile may use its drives.
                false => transaction.expect(&key, Expected::Absent),
            };
        }
        let caches: BTreeMap<DriveId, Stored<DriveRecord>> = decode_group(keys::CACHES, &snapshot.groups[5])?;
        let caches = caches.iter().filter(|(_, stored)| stored.record.node == server);
        let caches = caches.map(|(drive, _)| StateKey::CacheDrive(*drive));
        for key in drives.into_iter().map(StateKey::Drive).chain(caches) {
            let (StateKey::Drive(drive) | StateKey::CacheDrive(drive)) = key else { continue };
            transaction = transaction
                .delete(&key.key())
                .put(&StateKey::DriveTombstone(drive).key(), tombstone(&leaving.name, now_unix_ms));
        }
        self.commit(change_of_servers(room.promise(transaction), guard.as_ref())).await?;
        Ok(Some(removal))
    }
}

/// Refuses to go on if copies are promised on a node's drives.
fn check_holds_nothing(
    name: &str,
    drives: &[DriveId],
    room: &PoolRoom,
    volumes: &[Entry],
) -> Result<(), Error> {
    let holds = |promised: &VolumeRoomRecord| {
        drives.iter().any(|drive| promised.slabs.get(drive).is_some_and(|slabs| *slabs > 0))
    };
    let held: Vec<&VolumeId> =
        room.volumes.iter().filter(|(_, room)| holds(room)).map(|(volume, _)| volume).collect();
    if held.is_empty() {
        return Ok(());
    }
    let volumes: BTreeMap<VolumeId, Stored<VolumeRecord>> = decode_group(keys::VOLUMES, volumes)?;
    let name_of = |id: &&VolumeId| match volumes.get(*id) {
        Some(volume) => volume.record.name.clone(),
        None => id.to_string(),
    };
    Err(holds_copies(name, &held.iter().map(name_of).collect::<Vec<_>>()))
}

impl NewServer {
    fn record(&self) -> (Key, Value) {
        let (name, key_digest) = (self.name.clone(), self.key_digest.clone());
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let joined_unix_ms = self.now_unix_ms;
        if self.witness {
            let record = WitnessRecord { name, addresses, joined_unix_ms, key_digest };
            (StateKey::Witness(self.id).key(), encode(&record))
        } else {
            let record = NodeRecord {
                name,
                addresses,
                further_shards: Vec::new(),
                joined_unix_ms,
                key_digest: Some(key_digest),
                maintenance_since_unix_ms: None,
                place: Place::default(),
                unknown: Default::default(),
            };
            (StateKey::Node(self.id).key(), encode(&record))
        }
    }

    /// Whether it is this one, which has asked before.
    fn is(&self, known: &KnownServer) -> bool {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let as_known = (&known.name, &known.addresses, known.key_digest.as_ref(), known.witness);
        as_known == (&self.name, &addresses, Some(&self.key_digest), self.witness)
    }
}

/// Has a transaction fail if servers have come or gone since `guard` was read.
fn change_of_servers(transaction: Transaction, guard: Option<&Stored<ServersRecord>>) -> Transaction {
    let key = StateKey::Servers.key();
    let changes = guard.map_or(0, |guard| guard.record.changes) + 1;
    transaction.expect(&key, expected_of(guard)).put(&key, encode(&ServersRecord { changes }))
}

fn known_servers(nodes: &[Entry], witnesses: &[Entry]) -> Result<Vec<KnownServer>, Error> {
    let nodes: BTreeMap<NodeId, Stored<NodeRecord>> = decode_group(keys::NODES, nodes)?;
    let witnesses: BTreeMap<NodeId, Stored<WitnessRecord>> = decode_group(keys::WITNESSES, witnesses)?;
    let nodes = nodes.into_iter().map(|(id, Stored { record, .. })| KnownServer {
        id,
        name: record.name,
        addresses: record.addresses,
        key_digest: record.key_digest,
        witness: false,
    });
    let witnesses = witnesses.into_iter().map(|(id, Stored { record, .. })| KnownServer {
        id,
        name: record.name,
        addresses: record.addresses,
        key_digest: Some(record.key_digest),
        witness: true,
    });
    Ok(nodes.chain(witnesses).collect())
}

/// Refuses who would take the name or an address of another server.
fn check_free(new: &NewServer, known: &[KnownServer], ports: u16) -> Result<(), Error> {
    if known.iter().any(|other| other.name == new.name) {
        return Err(Error::new(
            "NAME_TAKEN",
            format!("no server can join as {:?}", new.name),
            "another one of the cluster has this name",
            "choose another name with --node-name; if that server is gone for good, remove it first (`spandrel node \
             remove`, `spandrel witness remove`)",
        ));
    }
    let overlaps = |address: &String| {
        let theirs: Option<SocketAddr> = address.parse().ok();
        let is_same = |own: &&SocketAddr| {
            theirs.is_some_and(|theirs| own.ip() == theirs.ip() && own.port().abs_diff(theirs.port()) < ports)
        };
        new.addresses.iter().any(|own| is_same(&own))
    };
    if let Some(other) = known.iter().find(|other| other.addresses.iter().any(overlaps)) {
        return Err(Error::new(
            "ADDRESS_TAKEN",
            format!("the server {} cannot join", new.name),
            format!("the server {} has one of its addresses and ports", other.name),
            "choose another address, or a port at least four away, with --listen",
        ));
    }
    Ok(())
}

fn refused(name: &str, why: &str) -> Error {
    Error::new(
        "SERVER_REFUSED",
        format!("the server {name} cannot join"),
        why,
        "let it join anew, from an empty directory",
    )
}

/// The error that a server has left the cluster.
pub fn removed(name: &str) -> Error {
    Error::new(
        "SERVER_REMOVED",
        format!("the server {name} does not belong to the cluster any more"),
        "it was removed",
        "if it is to belong to a cluster again, let it join anew, from an empty directory; its drives are as it left \
         them, and are taken only when they are empty",
    )
}

fn last_node(name: &str) -> Error {
    Error::new(
        "LAST_NODE",
        format!("the node {name} is not removed"),
        "it is the only one of the cluster",
        "a cluster ends when its nodes are stopped and their directories deleted",
    )
}

fn holds_copies(name: &str, volumes: &[String]) -> Error {
    Error::new(
        "NODE_HOLDS_COPIES",
        format!("the node {name} is not removed"),
        format!("its drives are to hold copies of the volumes {}", volumes.join(", ")),
        "bring the node back, or delete these volumes; moving copies to other nodes is not possible yet",
    )
}

fn runs(name: &str) -> Error {
    Error::new(
        "NODE_RUNNING",
        format!("the node {name} is not removed"),
        "it runs, or has run until some seconds ago, and has drives",
        "stop it first, on its server: end `spandrel node run`, with Ctrl-C or `systemctl stop`",
    )
}

#[cfg(test)]
#[path = "servers_tests.rs"]
mod tests;
