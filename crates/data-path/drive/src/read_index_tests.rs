use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use spandrel_platform_simulated::Random;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(u32),
    Hit(u32),
    Remove(u32),
    Evict,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few blocks, so that they meet; some of them far away from the others.
    let block = (0_u32..60).prop_map(|block| if block < 50 { block } else { u32::MAX - 1 - block });
    let step = prop_oneof![
        4 => block.clone().prop_map(Step::Insert),
        4 => block.clone().prop_map(Step::Hit),
        2 => block.prop_map(Step::Remove),
        1 => Just(Step::Evict),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    #[test]
    fn copies_are_where_they_were_put(steps in steps()) {
        let (first, places) = (1000, 32_u32);
        let mut index = ReadIndex::new(first, first + places);
        let mut copies: BTreeMap<u32, u32> = BTreeMap::new();
        let mut free: Vec<u32> = (first..first + places).collect();
        for step in steps {
            match step {
                Step::Insert(block) if !copies.contains_key(&block) => {
                    if free.is_empty() {
                        let evicted = index.evict().expect("it is full");
                        prop_assert_eq!(copies.remove(&evicted.block), Some(evicted.place));
                        free.push(evicted.place);
                    }
                    let place = free.swap_remove(block as usize % free.len());
                    index.insert(block, place);
                    copies.insert(block, place);
                }
                Step::Insert(_) => {}
                Step::Hit(block) => prop_assert_eq!(index.hit(block), copies.get(&block).copied()),
                Step::Remove(block) => {
                    let place = copies.remove(&block);
                    prop_assert_eq!(index.remove(block), place);
                    free.extend(place);
                }
                Step::Evict => {
                    let evicted = index.evict();
                    prop_assert_eq!(evicted.is_none(), copies.is_empty());
                    if let Some(evicted) = evicted {
                        prop_assert_eq!(copies.remove(&evicted.block), Some(evicted.place));
                        free.push(evicted.place);
                    }
                }
            }
            prop_assert_eq!(index.count(), copies.len());
            let queued: Vec<u32> = index.small.iter().chain(&index.main).copied().collect();
            let places: BTreeSet<u32> = queued.iter().map(|index| first + index).collect();
            prop_assert_eq!(places.len(), queued.len(), "a place is queued once");
            prop_assert!(copies.values().all(|place| places.contains(place)), "and each copy is");
        }
        for block in (0..60).chain(u32::MAX - 60..u32::MAX) {
            prop_assert_eq!(index.holds(block), copies.contains_key(&block));
        }
    }
}

/// A cache of so many blocks: reads a block, and makes a copy of what has none.
struct Cache {
    index: ReadIndex,
    free: Vec<u32>,
    hits: u32,
}

impl Cache {
    fn new(places: u32) -> Self {
        Self { index: ReadIndex::new(0, places), free: (0..places).collect(), hits: 0 }
    }

    fn read(&mut self, block: u32) {
        if self.index.hit(block).is_some() {
            self.hits += 1;
            return;
        }
        let place = self.free.pop().unwrap_or_else(|| self.index.evict().expect("it is full").place);
        self.index.insert(block, place);
    }
}

#[test]
fn a_scan_drives_nothing_out_that_is_read_often() {
    let mut cache = Cache::new(1000);
    for _ in 0..4 {
        (0..800).for_each(|block| cache.read(block));
    }
    (10_000..60_000).for_each(|block| cache.read(block));
    cache.hits = 0;
    (0..800).for_each(|block| cache.read(block));
    assert!(cache.hits >= 780, "{} of 800 are still there", cache.hits);
}

#[test]
fn what_comes_back_soon_stays() {
    let mut cache = Cache::new(1000);
    (0..1000).for_each(|block| cache.read(block));
    // They leave the small queue, and are remembered.
    (5000..5400).for_each(|block| cache.read(block));
    let mut back = Vec::new();
    for block in 0..1000 {
        if cache.index.remembers(block) {
            cache.read(block);
            let index = cache.index.slots[cache.index.find(block).expect("it was read")];
            // Each one that comes back drives another one out, which may be remembered in its own place.
            if cache.index.marks[index as usize].is_main() {
                back.push(block);
            }
        }
    }
    assert!(back.len() > 500, "{}", back.len());
    (20_000..22_000).for_each(|block| cache.read(block));
    assert!(
        back.iter().all(|block| cache.index.holds(*block)),
        "none of {} is driven out by a scan",
        back.len()
    );
}

#[test]
fn a_working_set_that_is_too_large_loses_a_part_of_itself_and_not_all() {
    let (mut cache, random) = (Cache::new(1000), Random::new(1));
    for round in 0..20 {
        if round == 10 {
            cache.hits = 0;
        }
        (0..2000).for_each(|_| cache.read(random.below(2000) as u32));
    }
    assert!(cache.hits > 5000, "{} hits of 20000", cache.hits);
}

/// A write waits for it.
#[test]
fn to_drive_one_out_passes_few_over_even_if_all_are_read_often() {
    let places = 10_000;
    let mut cache = Cache::new(places);
    for _ in 0..4 {
        (0..places).for_each(|block| cache.read(block));
    }
    let bits = |cache: &Cache| cache.index.marks.iter().map(|mark| mark.bits).collect::<Vec<_>>();
    for round in 0..500 {
        let before = bits(&cache);
        cache.index.evict().expect("it is full");
        let changed = before.iter().zip(bits(&cache)).filter(|(before, after)| **before != *after).count();
        assert!(changed <= 65, "{changed} in round {round}");
    }
}

#[test]
fn memory_stays_below_four_gib_for_each_tib() {
    let places = 100_000;
    let mut cache = Cache::new(places);
    (0..3 * places).for_each(|block| cache.read(block));
    let ReadIndex { blocks, marks, slots, small, main, ghosts, .. } = &cache.index;
    let words = blocks.len() + slots.len() + small.len() + main.len() + ghosts.len();
    let bytes = 4 * words + size_of_val(&marks[..]);
    assert!(bytes <= 16 * places as usize, "{} bytes for a block", bytes as f64 / f64::from(places));
}
