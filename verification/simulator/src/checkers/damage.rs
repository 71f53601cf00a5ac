//! Damage to any block on any but the last good copy is found, healed and reported.
//!
//! On an idle and healthy volume it is known which physical blocks are live. So when bits flip in some of
//! them, a scrub must find exactly these, heal all of them, and count them for the drive.

use std::collections::{BTreeMap, BTreeSet};

use spandrel_inspect::{Inspection, LiveBlock};
use spandrel_platform_simulated::{Random, SimulatedDrive};
use spandrel_shared::{BLOCK_BYTES, DriveId, VolumeId};
use spandrel_volume::ScrubReport;

/// Flips a bit in some live blocks of a volume on a drive. Returns how many blocks.
pub fn flip_live_blocks(
    drive: &SimulatedDrive,
    inspection: &Inspection,
    volume: VolumeId,
    blocks_max: usize,
    random: &Random,
) -> u64 {
    let live: Vec<&LiveBlock> = inspection.blocks.iter().filter(|block| block.volume == volume).collect();
    if live.is_empty() {
        return 0;
    }
    let chosen: BTreeSet<u64> =
        (0..blocks_max).map(|_| live[random.index(live.len())].offset_bytes).collect();
    for offset in &chosen {
        drive.flip_random_bit(*offset..offset + BLOCK_BYTES as u64);
    }
    chosen.len() as u64
}

/// Whether a scrub found what was flipped, by drive, and nothing else, and healed it.
///
/// # Errors
///
/// What it missed, or found too much.
pub fn check(flipped: &BTreeMap<DriveId, u64>, report: &ScrubReport) -> Result<(), String> {
    if report.damaged != *flipped {
        return Err(format!("bits flipped in {flipped:?} blocks, and a scrub found {:?}", report.damaged));
    }
    let all: u64 = flipped.values().sum();
    if report.blocks_healed != all {
        return Err(format!("a scrub found {all} damaged blocks and healed {}", report.blocks_healed));
    }
    Ok(())
}

#[cfg(test)]
#[path = "damage_tests.rs"]
mod tests;
