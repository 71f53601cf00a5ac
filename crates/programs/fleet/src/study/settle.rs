//! When what is measured is steady: rates that have stopped changing, and caches that hold what they will.

use crate::meter::CacheReading;

/// Rates that differ by less count as the same, in percent.
const RATE_CHANGE_PERCENT_MAX: f64 = 5.0;

/// How many standard deviations of chance count as no change, where I/Os are few.
const DEVIATIONS_MAX: f64 = 2.0;

/// A pass that hits so much more or less than the one before, in percent of all, has changed something.
const HIT_CHANGE_MAX: f64 = 1.0;

/// From here on there is nothing left to be copied.
const HIT_PERCENT_WARM: f64 = 99.0;

/// Whether the rate has settled, from how many I/Os were done in each window of equal length: the last two windows have about
/// as many as the two before.
pub(super) fn is_steady(windows: &[u64]) -> bool {
    let [.., first, second, third, fourth] = windows else { return false };
    let (before, after) = ((first + second) as f64, (third + fourth) as f64);
    if after == 0.0 {
        return false;
    }
    // The counts of what comes at random vary by their square root.
    let by_chance = DEVIATIONS_MAX * (before + after).sqrt();
    (after - before).abs() <= by_chance.max(before * RATE_CHANGE_PERCENT_MAX / 100.0)
}

/// Whether the caches have settled, from how much of each pass over the working set they had, in percent: nearly all, or no
/// more than in the pass before.
pub(super) fn is_warm(hit_percents: &[f64]) -> bool {
    match hit_percents {
        [.., last] if *last >= HIT_PERCENT_WARM => true,
        [.., before, last] => (last - before).abs() < HIT_CHANGE_MAX,
        _ => false,
    }
}

/// Whether caches are emptied as fast as they are filled, from what they have done since they were clean: they have moved as
/// much as stands there alone.
pub(super) fn is_emptied_as_filled(since_clean: &CacheReading) -> bool {
    since_clean.destaged_bytes > 0 && since_clean.destaged_bytes >= since_clean.dirty_bytes
}

#[cfg(test)]
#[path = "settle_tests.rs"]
mod tests;
