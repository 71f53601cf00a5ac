//! The copies of a slab are kept as far apart as there is room for.
//!
//! The planner's rule, said in another way: of each slab it is counted over how many sites, racks and chassis its copies
//! are spread. If one copy could go to a drive with room on a node of its own, and they were spread more widely then, it
//! should have gone there. Every copy is tried with every drive.

use std::collections::{BTreeMap, BTreeSet};

use spandrel_cluster::{CopySet, VolumeMembership};
use spandrel_shared::{DriveId, NodeId, Place};

/// A drive of the pool, when all is up.
#[derive(Clone, Debug)]
pub struct PoolDrive {
    /// Its node.
    pub node: NodeId,
    /// Where that stands.
    pub place: Place,
    /// Copies of slabs that it holds at most.
    pub slabs_max: u32,
    /// Whether copies can be placed on it.
    pub is_usable: bool,
}

/// Sites, racks and chassis, the widest first.
const KINDS: usize = 3;

/// The kinds of labels by which domains are told apart.
struct Kinds {
    /// Those of which every node with drives has a label.
    known: Vec<usize>,
    /// Those of them of which there are enough.
    counting: Vec<usize>,
}

/// What all have in common that are in one domain of a kind; none where nobody knows. A wider label tells domains apart
/// only if all nodes have it.
fn domain_of<'a>(place: &'a Place, kind: usize, known: &[usize]) -> Option<Vec<&'a str>> {
    let labels = [&place.site, &place.rack, &place.chassis].map(|label| label.as_deref());
    let wider = known.iter().filter(|wider| **wider < kind).filter_map(|wider| labels[*wider]);
    labels[kind].map(|own| wider.chain([own]).collect())
}

/// Looks at all slabs of all volumes, when no copy is on its way.
///
/// # Errors
///
/// A copy that could be farther from the others.
pub fn check(volumes: &[VolumeMembership], drives: &BTreeMap<DriveId, PoolDrive>) -> Result<(), String> {
    let mut used: BTreeMap<DriveId, u32> = BTreeMap::new();
    let sets = || volumes.iter().flat_map(VolumeMembership::all_sets);
    for member in sets().flat_map(|set| &set.members) {
        *used.entry(member.drive).or_default() += 1;
    }
    let has_room = |drive: &DriveId, known: &PoolDrive| {
        known.is_usable && used.get(drive).copied().unwrap_or(0) < known.slabs_max
    };
    let with_room: Vec<DriveId> =
        drives.iter().filter(|(drive, known)| has_room(drive, known)).map(|(drive, _)| *drive).collect();
    for volume in volumes {
        let kinds = Kinds::of(drives, usize::from(volume.record.copies));
        for (set, slab) in volume.sets.iter().zip(0..) {
            if let Some((from, to)) = farther(set, drives, &with_room, &kinds) {
                return Err(format!(
                    "volume {}, slab {slab}: its copy on {from} could be on {to}, farther from the others",
                    volume.record.name
                ));
            }
        }
    }
    Ok(())
}

impl Kinds {
    /// Those that tell so many copies apart.
    fn of(drives: &BTreeMap<DriveId, PoolDrive>, copies: usize) -> Self {
        let is_known =
            |kind: &usize| drives.values().all(|drive| domain_of(&drive.place, *kind, &[]).is_some());
        let known: Vec<usize> = (0..KINDS).filter(is_known).collect();
        let has_enough = |kind: &usize| {
            let usable = drives.values().filter(|drive| drive.is_usable);
            let domains = usable.map(|drive| domain_of(&drive.place, *kind, &known)).collect::<BTreeSet<_>>();
            domains.len() >= copies
        };
        let counting = known.iter().copied().filter(has_enough).collect();
        Self { known, counting }
    }
}

/// A copy of a slab and a drive where it would be farther from the others.
fn farther(
    set: &CopySet,
    drives: &BTreeMap<DriveId, PoolDrive>,
    with_room: &[DriveId],
    kinds: &Kinds,
) -> Option<(DriveId, DriveId)> {
    let holders: Vec<DriveId> = set.members.iter().map(|member| member.drive).collect();
    let now = spread(&holders, drives, kinds)?;
    holders.iter().enumerate().find_map(|(index, from)| {
        let would_be = |to: &&DriveId| {
            let mut then = holders.clone();
            then[index] = **to;
            let nodes: BTreeSet<NodeId> = then.iter().map(|drive| drives[drive].node).collect();
            nodes.len() == then.len() && spread(&then, drives, kinds) > Some(now.clone())
        };
        with_room.iter().find(would_be).map(|to| (*from, *to))
    })
}

/// Over how many domains of each kind that counts drives are spread; none if one of them is unknown.
fn spread(holders: &[DriveId], drives: &BTreeMap<DriveId, PoolDrive>, kinds: &Kinds) -> Option<Vec<usize>> {
    let places: Option<Vec<&Place>> =
        holders.iter().map(|drive| drives.get(drive).map(|known| &known.place)).collect();
    let places = places?;
    let domains = |kind: &usize| {
        places.iter().map(|place| domain_of(place, *kind, &kinds.known)).collect::<BTreeSet<_>>().len()
    };
    Some(kinds.counting.iter().map(domains).collect())
}

#[cfg(test)]
#[path = "apart_tests.rs"]
mod tests;
