use std::collections::BTreeSet;

use super::*;

#[test]
fn a_stream_repeats_and_differs_from_all_others() {
    let numbers = |seed, purpose, number| {
        let mut random = Random::stream(seed, purpose, number);
        [random.next(), random.next(), random.next()]
    };
    assert_eq!(numbers(1, 2, 3), numbers(1, 2, 3));
    let mut seen = BTreeSet::new();
    for seed in 0..10 {
        for purpose in 0..10 {
            for number in 0..10 {
                seen.extend(numbers(seed, purpose, number));
            }
        }
    }
    assert_eq!(seen.len(), 3000, "no two streams share a number at their beginnings");
}

#[test]
fn below_is_uniform() {
    let mut random = Random::stream(7, 0, 0);
    let mut counts = [0_u32; 10];
    for _ in 0..100_000 {
        counts[random.below(10) as usize] += 1;
    }
    // Ten thousand each is expected; the standard deviation is 95.
    assert!(counts.iter().all(|count| count.abs_diff(10_000) < 475), "{counts:?}");
    assert_eq!(random.below(1), 0);
}
