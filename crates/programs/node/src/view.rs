//! What the node knows of the cluster's state: nodes, living processes and volumes, kept up to date
//! by watches.
//!
//! It may lag behind the state. So it tells where to look and when to try, and every decision is
//! checked again by a transaction.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::rc::Rc;
use std::str::FromStr;

use spandrel_cluster::records::{Record, decode};
use spandrel_cluster::store::{Revision, StateStore};
use spandrel_cluster::{AliveRecord, Mirror, NodeRecord, Stored, VolumeRecord, keys};
use spandrel_platform::sync::Signal;
use spandrel_platform::{Instant, Platform};
use spandrel_shared::{Epoch, NodeId, VolumeId};

/// A part of the cluster's state, as this node saw it last.
pub(crate) struct ClusterView {
    pub(crate) nodes: RefCell<BTreeMap<NodeId, Stored<NodeRecord>>>,
    pub(crate) alive: RefCell<BTreeMap<NodeId, Stored<AliveRecord>>>,
    pub(crate) volumes: RefCell<BTreeMap<VolumeId, Stored<VolumeRecord>>>,
    /// Nodes that were alive at any time since this process started.
    pub(crate) seen: RefCell<BTreeSet<NodeId>>,
    /// Since when each volume's ownership has been shown as it is.
    shown_since: RefCell<BTreeMap<VolumeId, (Epoch, Instant)>>,
    revision: Cell<Revision>,
    /// Notified when anything here changes.
    pub(crate) changed: Signal,
}

impl ClusterView {
    /// A view that is empty until its watches have read the state.
    pub(crate) fn new() -> Self {
        Self {
            nodes: RefCell::default(),
            alive: RefCell::default(),
            volumes: RefCell::default(),
            seen: RefCell::default(),
            shown_since: RefCell::default(),
            revision: Cell::new(Revision::ZERO),
            changed: Signal::new(),
        }
    }

    /// The newest revision that was seen.
    pub(crate) fn revision(&self) -> Revision {
        self.revision.get()
    }

    /// The nodes that the state shows alive.
    pub(crate) fn alive_nodes(&self) -> BTreeSet<NodeId> {
        self.alive.borrow().keys().copied().collect()
    }

    /// Whether the state shows this entry of a node that is alive.
    pub(crate) fn shows_alive(&self, node: NodeId, entry: &AliveRecord) -> bool {
        self.alive.borrow().get(&node).is_some_and(|stored| stored.record == *entry)
    }

    /// Since when the state has shown the volume's ownership of this epoch. `None` if it has shown
    /// another one last: this view may lag behind what was read.
    pub(crate) fn shown_since(&self, volume: VolumeId, epoch: Epoch) -> Option<Instant> {
        let shown = self.shown_since.borrow();
        shown.get(&volume).filter(|(shown, _)| *shown == epoch).map(|(_, since)| *since)
    }

    /// Keeps the view up to date. Never completes.
    pub(crate) async fn follow<P: Platform, S: StateStore>(self: Rc<Self>, platform: P, store: S) {
        let nodes = follow_part(&platform, &store, keys::NODES, |records, revision| {
            *self.nodes.borrow_mut() = records;
            self.note_change(revision);
        });
        let alive = follow_part(&platform, &store, keys::ALIVE, |records, revision| {
            self.seen.borrow_mut().extend(records.keys().copied());
            *self.alive.borrow_mut() = records;
            self.note_change(revision);
        });
        let volumes = follow_part(&platform, &store, keys::VOLUMES, |records, revision| {
            self.note_volumes(platform.now(), records);
            self.note_change(revision);
        });
        futures_util::future::join3(nodes, alive, volumes).await;
    }

    fn note_volumes(&self, now: Instant, records: BTreeMap<VolumeId, Stored<VolumeRecord>>) {
        let mut shown = self.shown_since.borrow_mut();
        shown.retain(|volume, _| records.contains_key(volume));
        for (volume, stored) in &records {
            let entry = shown.entry(*volume).or_insert((stored.record.epoch, now));
            if entry.0 != stored.record.epoch {
                *entry = (stored.record.epoch, now);
            }
        }
        drop(shown);
        *self.volumes.borrow_mut() = records;
    }

    fn note_change(&self, revision: Revision) {
        self.revision.set(self.revision.get().max(revision));
        self.changed.notify_all();
    }
}

/// Hands over all records below a prefix whenever one of them has changed.
async fn follow_part<P: Platform, S: StateStore, I, T>(
    platform: &P,
    store: &S,
    prefix: &str,
    mut take: impl FnMut(BTreeMap<I, Stored<T>>, Revision),
) where
    I: FromStr + Ord + Display,
    T: Record,
{
    let mut mirror = Mirror::new(platform.clone(), store.clone(), prefix);
    loop {
        mirror.changed().await;
        let mut records = BTreeMap::new();
        for entry in mirror.entries() {
            let Ok(identity) = entry.key.as_str()[prefix.len()..].parse() else { continue };
            match decode(entry) {
                Ok(stored) => {
                    records.insert(identity, stored);
                }
                // What this version cannot read it leaves to the nodes that can.
                Err(error) => tracing::error!("{error}"),
            }
        }
        take(records, mirror.revision());
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
