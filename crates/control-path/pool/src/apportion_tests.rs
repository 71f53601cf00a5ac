use proptest::prelude::*;

use super::*;

fn shares(of: &[(u64, u64)]) -> Vec<Share> {
    of.iter().map(|(weight, limit)| Share { weight: *weight, limit: *limit }).collect()
}

#[test]
fn parts_are_in_proportion() {
    assert_eq!(apportion(12, &shares(&[(1, 99), (2, 99), (3, 99)])), Some(vec![2, 4, 6]));
    assert_eq!(apportion(0, &shares(&[(1, 9), (2, 9)])), Some(vec![0, 0]));
    assert_eq!(apportion(0, &[]), Some(vec![]));
}

#[test]
fn what_does_not_divide_goes_to_the_largest_fraction_then_the_largest_weight() {
    assert_eq!(apportion(10, &shares(&[(1, 99), (1, 99), (1, 99)])), Some(vec![4, 3, 3]));
    // 1.43 and 3.57: the second is nearer to its next whole number.
    assert_eq!(apportion(5, &shares(&[(2, 99), (5, 99)])), Some(vec![1, 4]));
    // 0.5 and 1.5: the larger weight.
    assert_eq!(apportion(2, &shares(&[(1, 99), (3, 99)])), Some(vec![0, 2]));
}

#[test]
fn what_a_full_place_cannot_take_the_others_share() {
    assert_eq!(apportion(12, &shares(&[(1, 1), (1, 99), (2, 99)])), Some(vec![1, 4, 7]));
    // The second is full only because the first was.
    assert_eq!(apportion(12, &shares(&[(8, 1), (2, 4), (2, 99)])), Some(vec![1, 4, 7]));
    assert_eq!(apportion(6, &shares(&[(1, 2), (1, 2), (1, 2)])), Some(vec![2, 2, 2]));
    assert_eq!(apportion(7, &shares(&[(1, 2), (1, 2), (1, 2)])), None);
    assert_eq!(apportion(1, &shares(&[(0, 0)])), None);
}

proptest! {
    /// Against the definition: with some factor f, each part is the rounded f × weight, or its limit.
    #[test]
    fn every_part_is_its_proportion_or_its_limit(
        of in prop::collection::vec((1_u64..1000, 0_u64..1000), 1..20),
        fill in 0_u64..=1000,
    ) {
        let shares = shares(&of);
        let room: u64 = shares.iter().map(|share| share.limit).sum();
        let count = room * fill / 1000;
        let parts = apportion(count, &shares).unwrap();
        prop_assert_eq!(parts.iter().sum::<u64>(), count);
        let below_limit = |index: &usize| parts[*index] < shares[*index].limit;
        for index in 0..shares.len() {
            prop_assert!(parts[index] <= shares[index].limit);
        }
        for low in (0..shares.len()).filter(below_limit) {
            for high in 0..shares.len() {
                // If `high` has more for its weight than `low`, then by rounding alone.
                let (low_share, high_share) = (&shares[low], &shares[high]);
                let excess = parts[high].saturating_sub(1) * low_share.weight;
                prop_assert!(excess <= (parts[low] + 1) * high_share.weight, "{parts:?} of {shares:?}");
            }
        }
    }
}
