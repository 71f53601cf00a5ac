//! How much room the pool has, and how much of it can be used.
//!
//! A slab of a volume with three copies takes room on three nodes. Where nodes differ in size, the
//! largest may have room left for which there are no partners: it is *stranded*. The *reserve* is
//! room that should stay free, so that what a lost drive held can be written anew elsewhere at
//! once, without waiting for a replacement. It is advice: nothing is refused for its sake.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use spandrel_shared::{DriveId, NodeId};

use crate::view::{DriveRoom, PoolView};

/// The reserve is the largest drive's room as often as there are nodes, but no more often than
/// this.
pub const RESERVE_DRIVES_MAX: usize = 4;

/// The room of one node, in slab copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpace {
    /// The node.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// What its drives hold when full.
    pub total: u64,
    /// What is promised to volumes.
    pub used: u64,
    /// What can be promised now. Nothing on drives that are offline.
    pub free: u64,
}

/// The room of the pool, in slab copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Per node with drives, in the order of their identities.
    pub nodes: Vec<NodeSpace>,
    /// What should stay free for repairs.
    pub reserve: u64,
}

impl Space {
    /// The room of a pool.
    pub fn of(view: &PoolView) -> Self {
        let by_node = view.by_node();
        let with_drives = by_node.iter().filter(|node| !node.drives.is_empty());
        let nodes: Vec<NodeSpace> = with_drives
            .map(|node| NodeSpace {
                node: node.room.node,
                name: node.room.name.clone(),
                total: node.drives.iter().map(|drive| u64::from(drive.slabs_total)).sum(),
                used: node.drives.iter().map(|drive| u64::from(drive.slabs_used)).sum(),
                free: node.slabs_free(),
            })
            .collect();
        let largest_drive = by_node.iter().map(|node| node.largest_drive_slabs()).max().unwrap_or(0);
        let reserve = nodes.len().min(RESERVE_DRIVES_MAX) as u64 * largest_drive;
        Self { nodes, reserve }
    }

    /// What all drives hold when full.
    pub fn total(&self) -> u64 {
        self.nodes.iter().map(|node| node.total).sum()
    }

    /// What is promised to volumes.
    pub fn used(&self) -> u64 {
        self.nodes.iter().map(|node| node.used).sum()
    }

    /// What can be promised now.
    pub fn free(&self) -> u64 {
        self.nodes.iter().map(|node| node.free).sum()
    }

    /// How many more slabs fit, each with `copies` copies on different nodes.
    pub fn usable_slabs(&self, copies: u8) -> u64 {
        usable_slabs(&self.nodes.iter().map(|node| node.free).collect::<Vec<_>>(), copies)
    }

    /// How many more slabs fit without touching the reserve.
    pub fn advised_slabs(&self, copies: u8) -> u64 {
        if copies == 0 {
            return 0;
        }
        let above_reserve = self.free().saturating_sub(self.reserve);
        self.usable_slabs(copies).min(above_reserve / u64::from(copies))
    }

    /// Per node, the free room that no slab with `copies` copies can use, because the other nodes
    /// are full before.
    pub fn stranded(&self, copies: u8) -> Vec<(&NodeSpace, u64)> {
        let usable = self.usable_slabs(copies);
        let above = self.nodes.iter().filter(|node| node.free > usable);
        above.map(|node| (node, node.free - usable)).collect()
    }
}

/// How many slabs fit, each with `copies` copies on different nodes, where the nodes have room for
/// `free` copies each.
///
/// A node holds at most one copy of a slab, so of S slabs it takes no more than S copies. That the
/// nodes together can take all copies is not only needed but enough: filling the nodes one after
/// the other, and going back to the first slab behind the last, never meets a slab twice on one
/// node.
pub fn usable_slabs(free: &[u64], copies: u8) -> u64 {
    if copies == 0 {
        return 0;
    }
    let copies = u128::from(copies);
    let fits = |slabs: u64| {
        let taken: u128 = free.iter().map(|free| u128::from((*free).min(slabs))).sum();
        taken >= copies * u128::from(slabs)
    };
    let total: u128 = free.iter().map(|free| u128::from(*free)).sum();
    // If some number of slabs fits, so does every lower one: halve towards the highest.
    let (mut fitting, mut highest) = (0, u64::try_from(total / copies).unwrap_or(u64::MAX));
    while fitting < highest {
        let middle = fitting + (highest - fitting).div_ceil(2);
        if fits(middle) {
            fitting = middle;
        } else {
            highest = middle - 1;
        }
    }
    fitting
}

/// Slabs that need room: how many, each with so many copies on different nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// How many slabs.
    pub slabs: u64,
    /// How many copies of each.
    pub copies: u8,
}

/// That there is no room for all slabs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    /// How many slab copies these slabs have that do not all find room; others may.
    pub needed: u64,
    /// The slabs that have them.
    pub slabs: u64,
    /// How many copies each of these has at least.
    pub copies: u8,
    /// How many slab copies of so many slabs find room, as no node takes two of a slab.
    pub room: u64,
    /// How many slab copies each node has room for, those that are there already included.
    pub nodes: Vec<(String, u64)>,
}

/// Whether the pool without the drives that are `leaving` has room for all of these slabs. A drive that is not online
/// keeps what it holds, and takes nothing more.
///
/// Slabs with more copies are harder to place, so they are counted first. Each k of them have so many copies in all, and a
/// node takes no more than k of these, as it holds at most one of each. That all nodes together can take them, for every
/// k, is not only needed but enough (the theorem of Gale and Ryser). Between the corners of both sides, where the copies of
/// a further slab are fewer or a node is full, neither bends: so it is looked at there alone.
///
/// # Errors
///
/// What lacks room.
pub fn check_room_without(
    view: &PoolView,
    leaving: &BTreeSet<DriveId>,
    demands: &[Demand],
) -> Result<(), Shortage> {
    let room = |drive: &DriveRoom| match drive.is_online {
        true => u64::from(drive.slabs_total),
        false => u64::from(drive.slabs_used),
    };
    let by_node = view.by_node().into_iter().map(|node| {
        let staying = node.drives.iter().filter(|drive| !leaving.contains(&drive.drive));
        (node.room.name.clone(), staying.map(|drive| room(drive)).sum::<u64>())
    });
    let nodes: Vec<(String, u64)> = by_node.collect();
    let mut demands: Vec<Demand> = demands.iter().filter(|demand| demand.slabs > 0).copied().collect();
    demands.sort_by_key(|demand| std::cmp::Reverse(demand.copies));
    let ends = demands.iter().scan(0, |end, demand| {
        *end += demand.slabs;
        Some(*end)
    });
    let all: u64 = demands.iter().map(|demand| demand.slabs).sum();
    let corners = ends.chain(nodes.iter().map(|(_, room)| *room)).filter(|slabs| (1..=all).contains(slabs));
    for slabs in corners.collect::<BTreeSet<u64>>() {
        let (needed, copies) = copies_of_first(&demands, slabs);
        let room = nodes.iter().map(|(_, room)| (*room).min(slabs)).sum();
        if needed > room {
            return Err(Shortage { needed, slabs, copies, room, nodes });
        }
    }
    Ok(())
}

/// How many copies the first so many slabs have in all, and the last one of them.
fn copies_of_first(demands: &[Demand], slabs: u64) -> (u64, u8) {
    let (mut left, mut needed, mut copies) = (slabs, 0, 0);
    for demand in demands {
        let taken = left.min(demand.slabs);
        if taken == 0 {
            break;
        }
        needed += taken * u64::from(demand.copies);
        left -= taken;
        copies = demand.copies;
    }
    (needed, copies)
}

#[cfg(test)]
#[path = "space_tests.rs"]
mod tests;
