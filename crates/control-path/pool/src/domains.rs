//! Fault domains: which nodes fail together, and at which level the copies of a slab can be kept apart.
//!
//! A level counts only if every node with drives has its label: of one without nobody knows what it shares. For the same
//! reason a label tells domains of narrower levels apart only if all of these nodes have it: a rack without a site may be
//! that of the same name at any site. The copies of a
//! slab are kept apart at the widest level that has enough domains; where that has no room, at the next one. Different
//! nodes they are on in any case.

use std::collections::{BTreeMap, BTreeSet};

use spandrel_shared::canary::{self, Bug};
use spandrel_shared::{FaultDomain, NodeId};

use crate::turns::mix;
use crate::view::{DriveRoom, NodeRoom, PoolView};

/// What fails as a whole, with its drives in the order of their nodes' and their own identities.
pub(crate) struct Domain<'a> {
    /// Sixty-four bits that differ between domains of a level.
    pub(crate) salt: u64,
    pub(crate) drives: Vec<(&'a NodeRoom, &'a DriveRoom)>,
}

impl Domain<'_> {
    /// Slab copies that may still be placed on each of its drives.
    pub(crate) fn drives_free(&self) -> impl Iterator<Item = u64> {
        self.drives.iter().map(|(node, drive)| if node.is_online { u64::from(drive.slabs_free()) } else { 0 })
    }

    /// Slab copies that may still be placed in it.
    pub(crate) fn slabs_free(&self) -> u64 {
        self.drives_free().sum()
    }
}

impl PoolView {
    /// The levels at which so many copies can be kept apart, the widest first. The last one is that of nodes.
    pub fn levels(&self, copies: u8) -> Vec<FaultDomain> {
        let with_drives: BTreeSet<NodeId> = self.drives.iter().map(|drive| drive.node).collect();
        let nodes = || self.nodes.iter().filter(|node| with_drives.contains(&node.node));
        let kinds = self.kinds_known();
        let has_enough = |level: &FaultDomain| {
            let paths: Option<Vec<String>> = nodes().map(|node| node.place.path(*level, &kinds)).collect();
            let paths = paths.unwrap_or_default();
            let usable = nodes().zip(paths).filter(|(node, _)| self.takes_copies(node));
            usable.map(|(_, path)| path).collect::<BTreeSet<String>>().len() >= usize::from(copies.max(1))
        };
        let counts = |level: &FaultDomain| !canary::is_planted(Bug::IgnoreLabels) && has_enough(level);
        let labelled = FaultDomain::LABELLED.into_iter().filter(counts);
        labelled.chain([FaultDomain::Node]).collect()
    }

    /// The kinds of labels that all nodes with drives have.
    fn kinds_known(&self) -> Vec<FaultDomain> {
        let with_drives: BTreeSet<NodeId> = self.drives.iter().map(|drive| drive.node).collect();
        let nodes = || self.nodes.iter().filter(|node| with_drives.contains(&node.node));
        let have_all = |kind: &FaultDomain| nodes().all(|node| node.place.label(*kind).is_some());
        FaultDomain::LABELLED.into_iter().filter(have_all).collect()
    }

    /// Whether a node has drives on which copies may be placed at all.
    fn takes_copies(&self, node: &NodeRoom) -> bool {
        let mut drives = self.drives.iter().filter(|drive| drive.node == node.node);
        node.is_online && drives.any(|drive| drive.is_online && drive.slabs_total > 0)
    }

    /// The domain that each node is in, as a number.
    pub(crate) fn domains(&self, level: FaultDomain) -> BTreeMap<NodeId, usize> {
        let mut paths: BTreeMap<String, usize> = BTreeMap::new();
        let mut domains = BTreeMap::new();
        let kinds = self.kinds_known();
        for node in &self.nodes {
            let path = node.place.path(level, &kinds).unwrap_or_else(|| node.node.to_string());
            let number = paths.len();
            domains.insert(node.node, *paths.entry(path).or_insert(number));
        }
        domains
    }

    /// The domains of a level with their drives, in the order of their first nodes' identities.
    pub(crate) fn by_domain(&self, level: FaultDomain) -> Vec<Domain<'_>> {
        let (numbers, kinds) = (self.domains(level), self.kinds_known());
        let mut domains: BTreeMap<usize, Domain<'_>> = BTreeMap::new();
        let mut order = Vec::new();
        for node in self.by_node() {
            let number = numbers[&node.room.node];
            let domain = domains.entry(number).or_insert_with(|| {
                order.push(number);
                let salt = match node.room.place.path(level, &kinds) {
                    None => salt_of_identity(node.room.node.to_bytes()),
                    Some(path) => path.bytes().fold(0, |salt, byte| mix(salt ^ u64::from(byte))),
                };
                Domain { salt, drives: Vec::new() }
            });
            domain.drives.extend(node.drives.iter().map(|drive| (node.room, *drive)));
        }
        order.into_iter().filter_map(|number| domains.remove(&number)).collect()
    }
}

/// Sixty-four bits that differ between identities.
pub(crate) fn salt_of_identity(identity: [u8; 16]) -> u64 {
    let identity = u128::from_le_bytes(identity);
    mix(mix(identity as u64) ^ (identity >> 64) as u64)
}

#[cfg(test)]
#[path = "domains_tests.rs"]
mod tests;
