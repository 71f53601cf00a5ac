//! Dividing a number of copies among places in proportion to their room.

/// A place among which something is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// What its part is in proportion to. Not zero where the limit is not.
    pub(crate) weight: u64,
    /// The most that it can take.
    pub(crate) limit: u64,
}

/// Divides `count` among `shares` in proportion to their weights, except that none gets more than
/// its limit; what it cannot take, the others share. `None` if the limits are too low together.
///
/// What does not divide evenly goes one each to those with the largest fraction, then to those with
/// the larger weight, then to the earlier ones. So parts of equal weight that are below their
/// limits differ by one at most.
pub(crate) fn apportion(count: u64, shares: &[Share]) -> Option<Vec<u64>> {
    let room: u128 = shares.iter().map(|share| u128::from(share.limit)).sum();
    if room < u128::from(count) {
        return None;
    }
    let mut parts = vec![0; shares.len()];
    let mut open: Vec<usize> = (0..shares.len()).filter(|index| shares[*index].limit > 0).collect();
    let mut left = u128::from(count);
    let mut weights = total_weight(shares, &open);
    loop {
        // Who cannot take its proportion takes its limit, and the others' proportions grow.
        let (full, rest): (Vec<usize>, Vec<usize>) = open.iter().partition(|index| {
            let Share { weight, limit } = shares[**index];
            left * u128::from(weight) >= u128::from(limit) * weights
        });
        if full.is_empty() {
            break;
        }
        for index in full {
            parts[index] = shares[index].limit;
            left -= u128::from(shares[index].limit);
        }
        open = rest;
        weights = total_weight(shares, &open);
    }
    // All proportions are below the limits now, so rounding one up stays within its limit.
    let product = |index: usize| left * u128::from(shares[index].weight);
    for &index in &open {
        parts[index] =
            u64::try_from(product(index) / weights).expect("it is below a limit, which has 64 bits");
    }
    let given: u128 = open.iter().map(|index| u128::from(parts[*index])).sum();
    let fewer_than_open = usize::try_from(left - given).expect("each place leaves less than one");
    open.sort_by_key(|index| (std::cmp::Reverse((product(*index) % weights, shares[*index].weight)), *index));
    for &index in &open[..fewer_than_open] {
        parts[index] += 1;
    }
    Some(parts)
}

fn total_weight(shares: &[Share], indexes: &[usize]) -> u128 {
    indexes.iter().map(|index| u128::from(shares[*index].weight)).sum()
}

#[cfg(test)]
#[path = "apportion_tests.rs"]
mod tests;
