//! The scrub that goes on by itself finds what is damaged on any but the last good copy, heals it and counts it; and it
//! finds copies that differ, though each of them is whole.
//!
//! What it says of itself is compared with what was done to the drives, and never with what another scrub finds.

use spandrel_cluster::ScrubSummary;

/// Whether passes that have read everything since `before` have found and healed so many damaged blocks, and nothing
/// else.
///
/// # Errors
///
/// What was not found, not healed, or found too much.
pub fn check_damage(flipped: u64, before: &ScrubSummary, after: &ScrubSummary) -> Result<(), String> {
    let damaged = after.found.blocks_damaged - before.found.blocks_damaged;
    let healed = after.found.blocks_healed - before.found.blocks_healed;
    let others = after.found.blocks_different + after.found.blocks_lost + after.found.pages_lacking
        - before.found.blocks_different
        - before.found.blocks_lost
        - before.found.pages_lacking;
    match (damaged, healed, others) == (flipped, flipped, 0) {
        true => Ok(()),
        false => Err(format!("bits flipped in {flipped} blocks; before {before:?}; and then {after:?}")),
    }
}

/// Whether the last pass has found so many blocks that differ between copies, and no lost ones.
///
/// # Errors
///
/// How many it has found.
pub fn check_difference(different: u64, after: &ScrubSummary) -> Result<(), String> {
    match (after.blocks_different_now, after.blocks_lost_now) == (different, 0) {
        true => Ok(()),
        false => Err(format!("{different} blocks differ between copies, and a pass says {after:?}")),
    }
}

/// Whether nothing was found that no fault can cause: copies in sync never differ, and lack nothing unless a drive has
/// lied.
///
/// # Errors
///
/// What was found.
pub fn check_without_cause(was_damaged: bool, found: &ScrubSummary) -> Result<(), String> {
    let is_caused = was_damaged || found.found.pages_lacking == 0;
    match found.found.blocks_different == 0 && is_caused {
        true => Ok(()),
        false => Err(format!("in-sync copies differ: {found:?}")),
    }
}

#[cfg(test)]
#[path = "scrubbed_tests.rs"]
mod tests;
