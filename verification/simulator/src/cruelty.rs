//! What the cruel runs of all worlds share: which seeds they run, how bits rot, and the proof that a
//! planted bug makes them fail.

use spandrel_platform_simulated::{Random, SimulatedDrive};
use spandrel_shared::canary::{self, Bug};

use crate::history::History;

/// Values that were written last, and of which some are therefore on the drives as what the
/// blocks hold now.
const NEWEST_VALUES: u64 = 40;

/// How many seeds to run: `SPANDREL_SEEDS`, for long runs by hand, or `default`.
pub(crate) fn seed_count(default: u64) -> u64 {
    number_in("SPANDREL_SEEDS").unwrap_or(default)
}

/// The first seed: `SPANDREL_SEED_FIRST`, to run one again.
pub(crate) fn seed_first() -> u64 {
    number_in("SPANDREL_SEED_FIRST").unwrap_or(0)
}

fn number_in(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Flips bits in blocks of a drive that hold what was written last. Returns in how many.
pub(crate) fn rot(drive: &SimulatedDrive, history: &History, random: &Random) -> u64 {
    let newest = history.newest_value().saturating_sub(NEWEST_VALUES)..=u64::MAX;
    let image = drive.snapshot();
    let mut flipped_blocks = 0;
    for block in (0..image.size_bytes()).step_by(4096) {
        let start = image.read_vec(block, 16);
        let value = u64::from_le_bytes(std::array::from_fn(|index| start[index]));
        let is_content = value != 0 && start[..8] == start[8..];
        if is_content && newest.contains(&value) && random.chance(700) {
            drive.flip_random_bit(block..block + 4096);
            flipped_blocks += 1;
        }
    }
    flipped_blocks
}

/// Whether a run fails within so many seeds while `bug` is planted.
pub(crate) fn catches(
    bug: Bug,
    seeds: u64,
    cruel_run: impl Fn(u64) -> u64 + std::panic::RefUnwindSafe,
) -> bool {
    let caught = |seed| {
        let run = std::panic::catch_unwind(|| {
            canary::plant(Some(bug));
            cruel_run(seed);
        });
        canary::plant(None);
        run.is_err()
    };
    (0..seeds).any(caught)
}
