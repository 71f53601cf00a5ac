//! What is known of the pool when a plan is made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spandrel_shared::{DriveId, NodeId, Place, SlabGeometry};

/// A node of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRoom {
    /// The node.
    pub node: NodeId,
    /// Its name, for texts.
    pub name: String,
    /// Whether it is alive. Nothing is placed on a node that is not.
    pub is_online: bool,
    /// How many volumes it owns.
    pub volumes_owned: u32,
    /// Where it stands.
    #[serde(default)]
    pub place: Place,
    /// Whether it is about to be switched off: it should own no volumes, and copies are placed on it only where the
    /// other nodes do not suffice.
    #[serde(default)]
    pub is_in_maintenance: bool,
}

/// A capacity drive of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveRoom {
    /// The drive.
    pub drive: DriveId,
    /// The node that it is in: its narrowest fault domain.
    pub node: NodeId,
    /// Slab copies that may be placed on it, those that are there included.
    pub slabs_total: u32,
    /// Slab copies that are promised already, whether anything is stored in them or not.
    pub slabs_used: u32,
    /// Those of them that give their room back when the copies are built that take their places.
    #[serde(default)]
    pub slabs_leaving: u32,
    /// Whether new copies may be placed on it: it works, and is neither retired nor on its way out.
    pub is_online: bool,
}

impl DriveRoom {
    /// Slab copies that will be promised on it when what is being built is.
    pub fn slabs_kept(&self) -> u32 {
        self.slabs_used.saturating_sub(self.slabs_leaving)
    }

    /// Slab copies that may still be placed on it.
    pub fn slabs_free(&self) -> u32 {
        if self.is_online { self.slabs_total.saturating_sub(self.slabs_used) } else { 0 }
    }
}

/// The pool at one moment. The order of nodes and drives makes no difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolView {
    /// The pool's slab size.
    pub geometry: SlabGeometry,
    /// All nodes.
    pub nodes: Vec<NodeRoom>,
    /// All capacity drives. One whose node is not among `nodes` does not count.
    pub drives: Vec<DriveRoom>,
}

/// A node with its drives, both in the order of their identities.
pub(crate) struct NodeDrives<'a> {
    pub(crate) room: &'a NodeRoom,
    pub(crate) drives: Vec<&'a DriveRoom>,
}

impl NodeDrives<'_> {
    /// Slab copies that may still be placed on the node.
    pub(crate) fn slabs_free(&self) -> u64 {
        if !self.room.is_online {
            return 0;
        }
        self.drives.iter().map(|drive| u64::from(drive.slabs_free())).sum()
    }

    /// The slab copies of the node's largest drive.
    pub(crate) fn largest_drive_slabs(&self) -> u64 {
        self.drives.iter().map(|drive| u64::from(drive.slabs_total)).max().unwrap_or(0)
    }
}

impl PoolView {
    /// The same pool without room on nodes that are in maintenance; none if no node is.
    pub(crate) fn without_maintenance(&self) -> Option<Self> {
        if !self.nodes.iter().any(|node| node.is_in_maintenance) {
            return None;
        }
        let mut view = self.clone();
        view.nodes.iter_mut().for_each(|node| node.is_online &= !node.is_in_maintenance);
        Some(view)
    }

    /// The nodes with their drives.
    pub(crate) fn by_node(&self) -> Vec<NodeDrives<'_>> {
        let mut nodes: BTreeMap<NodeId, NodeDrives<'_>> = BTreeMap::new();
        for room in &self.nodes {
            nodes.insert(room.node, NodeDrives { room, drives: Vec::new() });
        }
        for drive in &self.drives {
            if let Some(node) = nodes.get_mut(&drive.node) {
                node.drives.push(drive);
            }
        }
        let mut nodes: Vec<NodeDrives<'_>> = nodes.into_values().collect();
        for node in &mut nodes {
            node.drives.sort_by_key(|drive| drive.drive);
        }
        nodes
    }
}
