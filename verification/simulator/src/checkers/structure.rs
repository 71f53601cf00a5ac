//! What stands on a drive is consistent: nothing is damaged, and no physical block has two owners. That none
//! is leaked is not judged yet: [`blocks_named`] would have to be what the store counts as used.

use std::collections::BTreeMap;

use spandrel_inspect::{Inspection, Structure};
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

/// Blocks that something live names: data and map pages.
pub fn blocks_named(inspection: &Inspection) -> u64 {
    (map_pages(inspection).count() + inspection.blocks.len()) as u64
}

/// The structures that stand among the data.
fn map_pages(inspection: &Inspection) -> impl Iterator<Item = &Structure> {
    let data_offset = inspection.superblock.data_offset_bytes;
    inspection.structures.iter().filter(move |structure| structure.offset_bytes >= data_offset)
}

#[cfg(test)]
#[path = "structure_tests.rs"]
mod tests;
