use std::collections::BTreeSet;

use spandrel_platform::BufferPool;

use super::*;
use crate::Random;

const SECTOR: usize = 512;

fn write_of(offset: u64, fill: u8, sectors: usize) -> PendingWrite {
    let pool = BufferPool::default();
    PendingWrite::new(offset, &[pool.copy_of(&vec![fill; sectors * SECTOR]).freeze()])
}

fn storage(volatile_cache: bool) -> Storage {
    Storage::new(DriveImage::new(64 << 10), SECTOR, volatile_cache)
}

fn complete(storage: &mut Storage, number: u64, write: PendingWrite) {
    storage.begin_write(number, write);
    storage.complete_write(number);
}

/// The first byte of each of the first `count` sectors, in every crash image.
fn all_outcomes(storage: &Storage, count: u64) -> BTreeSet<Vec<u8>> {
    let sectors: usize = storage.unflushed_writes().iter().map(|write| write.sectors).sum();
    (0_u32..1 << sectors)
        .map(|subset| {
            let mut next = 0;
            let image = storage.crash_image(&mut |_, _| {
                next += 1;
                subset & (1 << (next - 1)) != 0
            });
            assert_eq!(next, sectors, "the choice is asked once per sector");
            (0..count).map(|sector| image.read_vec(sector * SECTOR as u64, 1)[0]).collect()
        })
        .collect()
}

#[test]
fn without_a_flush_every_subset_of_completed_writes_can_be_left() {
    let mut storage = storage(true);
    for number in 0..3 {
        complete(&mut storage, number, write_of(number * 512, 1 + number as u8, 1));
    }
    let outcomes = all_outcomes(&storage, 3);
    let expected: BTreeSet<Vec<u8>> = (0..8)
        .map(|subset| (0..3).map(|n| if subset & (1 << n) != 0 { n + 1 } else { 0 }).collect())
        .collect();
    assert_eq!(outcomes, expected, "a later write may be kept while an earlier one is lost");
    assert_eq!(storage.current().read_vec(1024, 1), [3], "reads see what is only in the cache");
}

#[test]
fn a_write_is_torn_at_every_sector() {
    let mut storage = storage(true);
    complete(&mut storage, 0, write_of(0, 7, 4));
    assert_eq!(all_outcomes(&storage, 4).len(), 16);
    let image = storage.crash_image(&mut |_, sector| sector == 2);
    assert_eq!(image.read_vec(2 * 512, 512), [7; 512], "a sector is whole or absent");
    assert_eq!(image.read_vec(0, 1024), [0; 1024]);
}

#[test]
fn a_flush_covers_exactly_the_writes_that_completed_before_it_began() {
    let mut storage = storage(true);
    complete(&mut storage, 0, write_of(0, 1, 1));
    storage.begin_write(1, write_of(512, 2, 1));
    let flush = storage.begin_flush();
    storage.complete_write(1);
    assert_eq!(all_outcomes(&storage, 2).len(), 4, "a flush in flight covers nothing");
    storage.complete_flush(flush);
    assert_eq!(all_outcomes(&storage, 2), BTreeSet::from([vec![1, 0], vec![1, 2]]));
    let flush = storage.begin_flush();
    storage.complete_flush(flush);
    assert_eq!(all_outcomes(&storage, 2), BTreeSet::from([vec![1, 2]]));
    assert_eq!(storage.durable(), storage.current());
}

#[test]
fn of_two_writes_to_one_sector_the_later_wins_if_kept() {
    let mut storage = storage(true);
    complete(&mut storage, 0, write_of(0, 1, 1));
    complete(&mut storage, 1, write_of(0, 2, 1));
    assert_eq!(all_outcomes(&storage, 1), BTreeSet::from([vec![0], vec![1], vec![2]]));
    let flush = storage.begin_flush();
    complete(&mut storage, 2, write_of(0, 3, 1));
    storage.complete_flush(flush);
    assert_eq!(all_outcomes(&storage, 1), BTreeSet::from([vec![2], vec![3]]));
}

#[test]
fn a_write_in_flight_is_open_even_without_a_cache() {
    let mut storage = storage(false);
    complete(&mut storage, 0, write_of(0, 1, 1));
    storage.begin_write(1, write_of(512, 2, 2));
    assert_eq!(storage.unflushed_writes(), [UnflushedWrite { offset: 512, sectors: 2, completed: false }]);
    let outcomes = all_outcomes(&storage, 3);
    assert_eq!(
        outcomes,
        BTreeSet::from([vec![1, 0, 0], vec![1, 2, 0], vec![1, 0, 2], vec![1, 2, 2]]),
        "a completed write is durable at once"
    );
}

#[test]
fn after_a_process_crash_only_the_interrupted_write_is_open() {
    let mut storage = storage(true);
    complete(&mut storage, 0, write_of(0, 1, 1));
    storage.begin_write(1, write_of(512, 2, 2));
    storage.interrupt_write(1);
    storage.complete_write(1);
    assert_eq!(storage.current().read_vec(512, 1), [0], "an interrupted write no longer completes");
    storage.settle_interrupted(&mut |write, sector| {
        assert_eq!(write, 0);
        sector == 1
    });
    let read = |offset| storage.current().read_vec(offset, 1)[0];
    assert_eq!((read(0), read(512), read(1024)), (1, 0, 2));
    let outcomes = all_outcomes(&storage, 3);
    assert_eq!(outcomes.len(), 4, "what was kept is still unflushed: {outcomes:?}");
}

#[test]
fn a_failed_write_may_leave_any_sector() {
    let mut storage = storage(false);
    storage.begin_write(0, write_of(0, 5, 3));
    storage.fail_write(0, &mut |sector| sector != 1);
    let sectors: Vec<u8> = (0..3).map(|sector| storage.current().read_vec(sector * 512, 1)[0]).collect();
    assert_eq!(sectors, [5, 0, 5]);
}

#[test]
fn a_flipped_bit_stays_flipped_in_cache_and_on_the_medium() {
    let mut storage = storage(true);
    complete(&mut storage, 0, write_of(0, 1, 1));
    storage.flip_bit(3, 1);
    storage.flip_bit(5000, 0);
    let flush = storage.begin_flush();
    storage.complete_flush(flush);
    assert_eq!(storage.durable().read_vec(2, 3), [1, 3, 1]);
    assert_eq!(storage.durable().read_vec(5000, 1), [1]);
    assert_eq!(storage.durable(), storage.current());
}

#[test]
fn of_two_unflushed_writes_the_newer_takes_the_flip() {
    let mut storage = storage(true);
    complete(&mut storage, 0, write_of(0, 1, 1));
    complete(&mut storage, 1, write_of(0, 2, 1));
    storage.flip_bit(0, 7);
    assert_eq!(all_outcomes(&storage, 1), BTreeSet::from([vec![0], vec![1], vec![0x82]]));
    assert_eq!(storage.current().read_vec(0, 2), [0x82, 2]);
}

#[test]
fn writes_from_many_parts_at_any_offset_land_as_one() {
    let random = Random::new(5);
    let pool = BufferPool::default();
    for _ in 0..200 {
        let parts: Vec<Buffer> = (0..random.below(6))
            .map(|_| {
                let mut part = pool.take(random.below(20) as usize * SECTOR);
                part.fill_with(|| random.next_u64() as u8);
                part.freeze()
            })
            .collect();
        let joined: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
        let offset = random.below(40) * SECTOR as u64;
        let mut image = DriveImage::new(128 << 10);
        PendingWrite::new(offset, &parts).apply(&mut image);
        let mut expected = DriveImage::new(128 << 10);
        expected.write(offset, &joined);
        assert_eq!(image, expected);
    }
}

/// Against an oracle that keeps, per sector, the set of contents that a power cut may leave.
#[test]
fn random_runs_leave_only_what_the_rules_allow_and_all_of_it() {
    const SECTORS: u64 = 6;
    for seed in 0..60 {
        let random = Random::new(seed);
        let mut storage = storage(true);
        // Per sector: what is certain, and then the completed writes, oldest first.
        let mut possible: Vec<Vec<(u64, u8)>> = vec![vec![(0, 0)]; SECTORS as usize];
        let mut flushes: Vec<(u64, u64)> = Vec::new();
        let mut completions = 1;
        for number in 0..40 {
            match random.below(4) {
                0 | 1 => {
                    let sector = random.below(SECTORS);
                    complete(&mut storage, number, write_of(sector * 512, number as u8 + 1, 1));
                    possible[sector as usize].push((completions, number as u8 + 1));
                    completions += 1;
                }
                2 => flushes.push((storage.begin_flush(), completions)),
                _ => {
                    let Some((begun, before)) = flushes.pop() else { continue };
                    storage.complete_flush(begun);
                    for contents in &mut possible {
                        // None if a later flush has completed already.
                        let certain = contents.iter().rposition(|(at, _)| *at < before);
                        contents.drain(..certain.unwrap_or(0));
                    }
                }
            }
        }
        for (sector, contents) in (0..).zip(&possible) {
            let allowed: BTreeSet<u8> = contents.iter().map(|(_, fill)| *fill).collect();
            let seen: BTreeSet<u8> = (0..400)
                .map(|_| storage.crash_image(&mut |_, _| random.chance(500)).read_vec(sector * 512, 1)[0])
                .collect();
            assert!(seen.is_subset(&allowed), "seed {seed}: {seen:?} of {allowed:?}");
            let newest = storage.crash_image(&mut |_, _| true).read_vec(sector * 512, 1)[0];
            assert_eq!(Some(newest), contents.last().map(|(_, fill)| *fill), "seed {seed}");
            let oldest = storage.crash_image(&mut |_, _| false).read_vec(sector * 512, 1)[0];
            assert_eq!(Some(oldest), contents.first().map(|(_, fill)| *fill), "seed {seed}");
        }
    }
}

#[test]
fn a_failed_flush_loses_what_it_was_to_make_durable_and_no_later_one_brings_it_back() {
    let mut storage = storage(true);
    complete(&mut storage, 0, write_of(0, 1, 1));
    let begun = storage.begin_flush();
    storage.complete_flush(begun);
    complete(&mut storage, 1, write_of(0, 2, 2));
    complete(&mut storage, 2, write_of(1024, 3, 1));
    storage.begin_write(3, write_of(1536, 4, 1));
    let begun = storage.begin_flush();
    storage.fail_flush(&mut |write, sector| (write, sector) == (0, 1));
    let seen =
        |storage: &Storage| (0..4).map(|n| storage.current().read_vec(n * 512, 1)[0]).collect::<Vec<_>>();
    assert_eq!(seen(&storage), [1, 2, 0, 0], "of the first write one sector is kept, of the second none");
    storage.complete_write(3);
    storage.complete_flush(begun);
    assert_eq!(
        all_outcomes(&storage, 4),
        [vec![1, 2, 0, 0], vec![1, 2, 0, 4]].into(),
        "what comes later is as ever"
    );
    let begun = storage.begin_flush();
    storage.complete_flush(begun);
    assert_eq!(all_outcomes(&storage, 4), [vec![1, 2, 0, 4]].into());
}

#[test]
fn without_a_volatile_cache_a_failed_flush_loses_nothing() {
    let mut storage = storage(false);
    complete(&mut storage, 0, write_of(0, 1, 1));
    storage.fail_flush(&mut |_, _| false);
    assert_eq!(storage.current().read_vec(0, 1), [1]);
}
