//! What stands on a drive is consistent: nothing is damaged, no physical block has two owners, and none is
//! leaked.

use std::collections::BTreeMap;

use spandrel_inspect::{DamageKind, Inspection, Structure};
use spandrel_shared::BLOCK_BYTES;

/// Looks at a drive of which nothing is expected to be damaged.
///
/// # Errors
///
/// What is damaged, or has two owners.
pub fn check(inspection: &Inspection) -> Result<(), String> {
    let name = inspection.path.display();
    if let Some(damage) = inspection.damage.iter().find(|damage| !damage.by_crash) {
        return Err(format!("{name}: {} damaged: {}", damage.kind.name(), damage.detail));
    }
    check_owners(inspection)
}

/// Looks for physical blocks with two owners, also on a drive that is damaged.
///
/// # Errors
///
/// Which block has which owners.
pub fn check_owners(inspection: &Inspection) -> Result<(), String> {
    let name = inspection.path.display();
    let mut owners: BTreeMap<u64, String> = BTreeMap::new();
    let pages = map_pages(inspection).map(|page| (page.offset_bytes, format!("{page:?}")));
    let blocks = inspection.blocks.iter().map(|block| (block.offset_bytes, format!("{block:?}")));
    for (offset, owner) in pages.chain(blocks) {
        let block = offset / BLOCK_BYTES as u64;
        if let Some(former) = owners.insert(block, owner) {
            return Err(format!(
                "{name}: physical block {block} has two owners: {former} and {}",
                owners[&block]
            ));
        }
    }
    Ok(())
}

/// Compares the blocks that a store counts as used with those that something live names: data and map pages.
/// The store must be idle.
///
/// # Errors
///
/// How many are leaked, or used although they count as free.
pub fn check_used(inspection: &Inspection, blocks_used: u64) -> Result<(), String> {
    let named = (map_pages(inspection).count() + inspection.blocks.len()) as u64;
    if blocks_used == named {
        return Ok(());
    }
    Err(format!("{}: {blocks_used} blocks count as used, and {named} are named", inspection.path.display()))
}

/// The structures that stand among the data.
fn map_pages(inspection: &Inspection) -> impl Iterator<Item = &Structure> {
    let is_page = |kind| matches!(kind, DamageKind::SlabRoot | DamageKind::Leaf);
    inspection.structures.iter().filter(move |structure| is_page(structure.kind))
}

#[cfg(test)]
#[path = "structure_tests.rs"]
mod tests;
