//! How evenly a pool is filled, and how much has to move until it is.
//!
//! A copy that is being built elsewhere is counted there, and not where it still is: else what is under way would be
//! planned once more. Drives on which nothing may be placed do not count.

use crate::view::{DriveRoom, PoolView};

/// Above this difference ([`spread_per_mille`]) a pool is filled unevenly. New volumes make a smaller one, as one copy of
/// each slab lies with the owner: that is not worth copying anything.
pub const UNEVEN_PER_MILLE: u32 = 150;

/// Up to this difference a pool is filled evenly, if its drives hold enough copies to tell.
const EVEN_PER_MILLE: u32 = 10;

/// The drives on which copies may be placed.
fn drives_filled(view: &PoolView) -> Vec<DriveRoom> {
    let by_node = view.by_node();
    let nodes = by_node.iter().filter(|node| node.room.is_online && !node.room.is_in_maintenance);
    let drives = nodes.flat_map(|node| &node.drives).filter(|drive| drive.is_online && drive.slabs_total > 0);
    drives.map(|drive| **drive).collect()
}

/// By how many thousandths of their size the fullest and the emptiest drive differ.
pub fn spread_per_mille(view: &PoolView) -> u32 {
    let drives = drives_filled(view);
    let shares =
        drives.iter().map(|drive| 1000 * u64::from(drive.slabs_kept()) / u64::from(drive.slabs_total));
    let (least, most) =
        shares.fold((u64::MAX, 0), |(least, most), share| (least.min(share), most.max(share)));
    u32::try_from(most.saturating_sub(least)).unwrap_or(u32::MAX)
}

/// Up to this difference ([`spread_per_mille`]) nothing has to move: a hundredth of a drive's size, or two copies on the
/// smallest drive where that is more.
pub fn even_per_mille(view: &PoolView) -> u32 {
    let smallest = drives_filled(view).iter().map(|drive| drive.slabs_total).min();
    smallest.map_or(EVEN_PER_MILLE, |slabs| EVEN_PER_MILLE.max(2000_u32.div_ceil(slabs)))
}

/// How many copies would have to move for all drives to be filled alike. Fewer may be able to: those of a slab stay on
/// different nodes, and what lies with a volume's owner stays with it.
pub fn copies_to_even_out(view: &PoolView) -> u64 {
    let drives = drives_filled(view);
    let total: u64 = drives.iter().map(|drive| u64::from(drive.slabs_total)).sum();
    let kept: u64 = drives.iter().map(|drive| u64::from(drive.slabs_kept())).sum();
    let (mut above, mut below) = (0, 0);
    for drive in &drives {
        let (share, own) = (kept * u64::from(drive.slabs_total), u64::from(drive.slabs_kept()));
        above += own.saturating_sub(share.div_ceil(total));
        below += (share / total).saturating_sub(own);
    }
    above.max(below)
}

/// Whether nothing is being spread: no copy on these drives gives its place to one that is being built. What leaves a drive
/// on which nothing may be placed is counted where it goes, and may take long.
pub fn is_settled(view: &PoolView) -> bool {
    drives_filled(view).iter().all(|drive| drive.slabs_leaving == 0)
}

/// How many of `copies` one of so many owners moves, if all of them look at the same time and none sees what the others
/// begin: its part, so that they do not move too much together. A part of one copy is one now and then, as `random` says.
pub fn part_of_one(copies: u64, owners: u64, random: u64) -> u64 {
    let owners = owners.max(1);
    copies / owners + u64::from(random % owners < copies % owners)
}

#[cfg(test)]
#[path = "evenness_tests.rs"]
mod tests;
