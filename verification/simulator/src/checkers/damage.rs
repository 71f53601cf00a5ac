//! Damage to any block on any but the last good copy is found, healed and reported.
//!
//! On an idle and healthy volume it is known which physical blocks are live. So when bits flip in some of
//! them, a scrub must find exactly these, heal all of them, and count them for the drive.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use spandrel_inspect::{Inspection, LiveBlock};
use spandrel_platform_simulated::Random;
use spandrel_shared::{BLOCK_BYTES, DriveId, VolumeId};
use spandrel_volume::ScrubReport;

use crate::inspection::Media;

/// Of so many blocks that were written last, some are damaged, and others show that the writes came later.
const NEWEST_BLOCKS: usize = 16;

/// Flips a bit in some live blocks of a volume on a drive. Returns how many blocks.
pub fn flip_live_blocks(
    media: Media<'_>,
    inspection: &Inspection,
    volume: VolumeId,
    blocks_max: usize,
    random: &Random,
) -> u64 {
    let live: Vec<&LiveBlock> = inspection.blocks.iter().filter(|block| block.volume == volume).collect();
    flip_some(media, inspection, &live, blocks_max, random)
}

/// Flips a bit in some of the live blocks of a volume that clients have written last. Those of the journal's
/// last group are left alone: a damaged one looks as if the power had gone before it was written.
/// Returns how many blocks.
pub fn flip_newest_blocks(
    media: Media<'_>,
    inspection: &Inspection,
    volume: VolumeId,
    random: &Random,
) -> u64 {
    let images = media.snapshot();
    let of_volume = inspection.blocks.iter().filter(|block| block.volume == volume && !block.in_last_group);
    let mut live: Vec<&LiveBlock> = of_volume.collect();
    // Every sector begins with the number of the write that it is of.
    live.sort_by_cached_key(|block| {
        let start = images.read(inspection, block.offset_bytes, 8);
        Reverse(u64::from_le_bytes(std::array::from_fn(|index| start[index])))
    });
    live.truncate(NEWEST_BLOCKS);
    flip_some(media, inspection, &live, NEWEST_BLOCKS / 2, random)
}

fn flip_some(
    media: Media<'_>,
    inspection: &Inspection,
    live: &[&LiveBlock],
    blocks_max: usize,
    random: &Random,
) -> u64 {
    if live.is_empty() {
        return 0;
    }
    let chosen: BTreeSet<u64> =
        (0..blocks_max).map(|_| live[random.index(live.len())].offset_bytes).collect();
    for offset in &chosen {
        media.flip(inspection, *offset, BLOCK_BYTES as u64, random);
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

/// The same where some of what was flipped may be healed already: it is then the same on all copies.
///
/// # Errors
///
/// What a scrub found too much, or did not heal; copies that differ.
pub fn check_rest(flipped: &BTreeMap<DriveId, u64>, report: &ScrubReport) -> Result<(), String> {
    if report.blocks_different > 0 {
        return Err(format!(
            "bits flipped in {flipped:?} blocks, and then {} blocks differ",
            report.blocks_different
        ));
    }
    if report.damaged.iter().any(|(drive, found)| flipped.get(drive).is_none_or(|flipped| found > flipped)) {
        return Err(format!("bits flipped in {flipped:?} blocks, and a scrub found {:?}", report.damaged));
    }
    check(&report.damaged, report)
}

#[cfg(test)]
#[path = "damage_tests.rs"]
mod tests;
