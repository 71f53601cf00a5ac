//! What stands on a drive is consistent: nothing is damaged, no physical block has two owners, and none is
//! leaked.

use std::collections::BTreeMap;

use spandrel_inspect::{DamageKind, Inspection, LiveBlock, Place, Structure};
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

/// What a store counts as used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Blocks of the drive itself.
    pub on_drive: u64,
    /// Blocks of its area on a cache drive.
    pub in_area: u64,
    /// Those of the area that count as holding what the drive does not.
    pub dirty: u64,
}

/// Compares the blocks that a store counts as used with those that something live names: data and map pages.
/// The store must be idle.
///
/// # Errors
///
/// How many are leaked, or used although they count as free.
pub fn check_used(inspection: &Inspection, used: Used) -> Result<(), String> {
    let is_in_area = |block: &&LiveBlock| matches!(inspection.place_of(block.offset_bytes), Place::Cache(_));
    let in_area = inspection.blocks.iter().filter(is_in_area).count() as u64;
    let on_drive = (map_pages(inspection).count() + inspection.blocks.len()) as u64 - in_area;
    let counts = [
        ("of the drive count as used", used.on_drive, on_drive),
        ("of its area count as used", used.in_area, in_area),
        ("count as dirty", used.dirty, in_area),
    ];
    let wrong = counts.into_iter().find(|(_, counted, named)| counted != named);
    wrong.map_or(Ok(()), |(what, counted, named)| {
        Err(format!("{}: {counted} blocks {what}, and {named} are named", inspection.path.display()))
    })
}

/// The structures that stand among the data.
fn map_pages(inspection: &Inspection) -> impl Iterator<Item = &Structure> {
    let is_page = |kind| matches!(kind, DamageKind::SlabRoot | DamageKind::Leaf);
    inspection.structures.iter().filter(move |structure| is_page(structure.kind))
}

#[cfg(test)]
#[path = "structure_tests.rs"]
mod tests;
