use std::collections::BTreeMap;

use spandrel_shared::Epoch;

use super::*;

fn version(counter: u64) -> Version {
    Version::new(Epoch(1), counter)
}

fn run(first: u32, end: u32, in_doubt: bool) -> ListedRun {
    ListedRun { first, end, in_doubt }
}

/// Every listing of small ranges gives, block by block, what a map of single blocks gives, and in
/// as few runs as there can be.
#[test]
fn runs_are_what_single_blocks_are() {
    let mut state = 7_u32;
    let mut random = |bound: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % bound
    };
    let mut listing = Listing::default();
    let mut oracle: BTreeMap<(Version, u32, u32), bool> = BTreeMap::new();
    for step in 0..5000 {
        let (version, slot) = (version(u64::from(random(3))), random(2));
        let first = random(12);
        let end = first + 1 + random(6);
        let in_doubt = random(3) == 0;
        if random(3) == 0 {
            listing.remove(version, slot, first, end);
            (first..end).for_each(|block| {
                oracle.remove(&(version, slot, block));
            });
        } else {
            listing.add(version, slot, run(first, end, in_doubt));
            oracle.extend((first..end).map(|block| ((version, slot, block), in_doubt)));
        }
        let blocks: BTreeMap<_, _> = listing
            .iter()
            .flat_map(|(version, slot, run)| {
                (run.first..run.end).map(move |block| ((version, slot, block), run.in_doubt))
            })
            .collect();
        assert_eq!(blocks, oracle, "step {step}");
        let edges = oracle.iter().filter(|((version, slot, block), in_doubt)| {
            *block == 0 || oracle.get(&(*version, *slot, block - 1)) != Some(in_doubt)
        });
        assert_eq!(listing.iter().count(), edges.count(), "step {step}");
    }
}

#[test]
fn a_mark_takes_off_what_it_covers_and_nothing_else() {
    let mut listing = Listing::default();
    for counter in 1..=5 {
        listing.add(version(counter), 0, run(0, 1, false));
    }
    listing.note_mark(version(4), &[version(3), version(2)]);
    let left: Vec<Version> = listing.iter().map(|(version, _, _)| version).collect();
    assert_eq!(left, [version(2), version(3), version(5)]);
    assert_eq!(listing.proven(), version(1));
    listing.note_mark(version(3), &[]);
    assert_eq!(listing.mark, version(4), "an older mark changes nothing");
    listing.note_mark(version(4), &[version(3)]);
    assert_eq!(listing.proven(), version(2), "at an equal mark the shorter list holds");
    let left: Vec<Version> = listing.iter().map(|(version, _, _)| version).collect();
    assert_eq!(left, [version(3), version(5)]);
    listing.forget_slab(0);
    assert_eq!(listing.iter().count(), 0);
}
