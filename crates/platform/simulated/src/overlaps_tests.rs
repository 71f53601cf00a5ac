use super::*;
use crate::Random;

/// Against a plain list, for as long as no write overlaps anything: after that it has said so.
#[test]
fn finds_the_first_overlap_and_nothing_before() {
    let mut found = 0;
    for seed in 0..500 {
        let random = Random::new(seed);
        let mut overlaps = Overlaps::default();
        let mut in_flight: Vec<(u64, Extent, bool)> = Vec::new();
        for operation in 0..40 {
            if random.chance(500) && !in_flight.is_empty() {
                let (ended, extent, _) = in_flight.swap_remove(random.index(in_flight.len()));
                overlaps.end(ended, extent.start);
                continue;
            }
            let start = random.below(200);
            let extent = Extent { start, end: start + 1 + random.below(6) };
            let is_write = random.chance(300);
            let expected =
                in_flight.iter().any(|(_, other, write)| (is_write || *write) && other.overlaps(&extent));
            let overlap = if is_write {
                overlaps.begin_write(operation, extent)
            } else {
                overlaps.begin_read(operation, extent)
            };
            assert_eq!(overlap, expected, "seed {seed}, operation {operation}");
            if overlap {
                found += 1;
                break;
            }
            in_flight.push((operation, extent, is_write));
        }
    }
    assert!((100..500).contains(&found), "{found} overlaps");
}
