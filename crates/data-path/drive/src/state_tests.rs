use proptest::prelude::*;

use super::*;
use crate::test_support::{copy, small_slabs, version, volume};

const VOLUME_SLOT: u32 = 3;

fn slab_add(slab_slot: u32) -> Record {
    Record::SlabAdd(SlabAdd {
        slab_slot,
        volume_slot: VOLUME_SLOT,
        slab: SlabIndex(slab_slot % 2),
        layout: SlabLayout::mirror(2, 0),
        copy: copy(slab_slot.into()),
        birth: Version::ZERO,
    })
}

fn mapping(slab_slot: u32, first: u32, count: u32, counter: u64) -> MappingRecord {
    let block = 1000 + counter as u32 * 100;
    MappingRecord { slab_slot, first, counter, block, former_block: 0, checksums: (0..count).collect() }
}

/// A state with slabs in slots 0 and 1.
fn state() -> State {
    let mut state = State::new(small_slabs());
    state.apply(&Record::VolumeAdd { volume_slot: VOLUME_SLOT, volume: volume(1) });
    state.apply(&slab_add(0));
    state.apply(&slab_add(1));
    state
}

#[test]
fn a_write_maps_raises_its_pages_and_is_listed() {
    let mut state = state();
    state.apply(&Record::RecordEpoch { volume_slot: VOLUME_SLOT, epoch: Epoch(2) });
    state.apply(&Record::Write(mapping(0, 510, 4, 9)));
    let slab = state.slabs.get(0).unwrap();
    assert_eq!(slab.mapping(513), Mapping { block: 1903, checksum: 3 });
    assert_eq!((slab.pages[0].mapped, slab.pages[1].mapped), (2, 2));
    assert_eq!((slab.pages[0].entry.version, slab.pages[1].entry.version), (version(2, 9), version(2, 9)));
    let listed =
        ListedWrite { version: version(2, 9), slab: SlabIndex(0), first: 510, count: 4, in_doubt: false };
    assert_eq!(state.listed(volume(1)), [listed]);

    state.apply(&Record::Heal(mapping(0, 510, 1, 0)));
    state.apply(&Record::Trim { slab_slot: 0, first: 511, count: 3, counter: 10 });
    let slab = state.slabs.get(0).unwrap();
    assert_eq!((slab.pages[0].mapped, slab.pages[1].mapped), (1, 0));
    assert_eq!(slab.pages[1].entry.version, version(2, 10), "an empty page keeps its version");
    assert!(slab.pages[1].leaf.is_none());
    assert_eq!(state.listed(volume(1)).len(), 2, "a heal is no write");
}

#[test]
fn what_lies_outside_or_is_gone_changes_nothing() {
    let mut state = state();
    for slot in [0, 9] {
        state.apply(&Record::Write(mapping(slot, 1023, 2, 1)));
        state.apply(&Record::Trim { slab_slot: slot, first: 1024, count: 1, counter: 1 });
        state.apply(&Record::SetPageVersion {
            slab_slot: slot,
            page: 2,
            version: version(1, 1),
            whole: true,
        });
    }
    state.apply(&Record::Fence { volume_slot: 77, epoch: Epoch(4) });
    state.apply(&Record::SlabRemove { slab_slot: 9 });
    assert_eq!(state.listed(volume(1)), []);
    assert_eq!(state.slabs.get(0).unwrap().mapped_blocks(), []);
}

#[test]
fn the_lists_of_all_volumes_are_counted() {
    let mut state = state();
    for counter in 1..=10 {
        state.apply(&Record::Write(mapping((counter % 2) as u32, 5, 1, counter)));
    }
    state.note_mark(VOLUME_SLOT, version(0, 4), &[]);
    assert_eq!(state.listed_writes_max(), 10, "the mark is not durable");
    let mark =
        Record::Mark { volume_slot: VOLUME_SLOT, mark: version(0, 4), exceptions: vec![version(0, 2)] };
    state.apply(&mark);
    assert_eq!(state.listed_writes_max(), 6);
    state.apply(&Record::SlabRemove { slab_slot: 0 });
    assert_eq!(state.listed_writes_max(), 3);
    state.apply(&Record::SlabRemove { slab_slot: 1 });
    state.drop_empty_volumes();
    assert_eq!(state.listed_writes_max(), 0);
}

/// A root can name a volume in the slot that it had and in the one that it has now.
#[test]
fn a_volume_that_came_back_is_found_in_its_new_slot() {
    for (former, new) in [(1, 2), (2, 1)] {
        let mut state = State::new(small_slabs());
        let add = |slab_slot, volume_slot| {
            let Record::SlabAdd(add) = slab_add(slab_slot) else { unreachable!() };
            Record::SlabAdd(SlabAdd { volume_slot, ..add })
        };
        state.apply(&Record::VolumeAdd { volume_slot: former, volume: volume(1) });
        state.apply(&Record::VolumeAdd { volume_slot: new, volume: volume(1) });
        state.apply(&add(7, new));
        // What stands in the journal behind the root's position.
        state.apply(&add(6, former));
        state.apply(&Record::SlabRemove { slab_slot: 6 });
        state.apply(&Record::VolumeAdd { volume_slot: new, volume: volume(1) });
        state.apply(&add(7, new));
        state.end_replay();
        assert_eq!(state.slab_slot(volume(1), SlabIndex(1)), Some(7));
        assert_eq!(state.volume_ids().collect::<Vec<_>>(), [volume(1)]);
    }
}

/// One change in a list that makes sense as a journal: slots are not used again.
fn random_record(
    kind: u8,
    slot: u32,
    first: u32,
    count: u32,
    counter: u64,
    next_slot: &mut u32,
) -> Vec<Record> {
    let (first, count) = (first.min(1023), count.min(1024 - first.min(1023)));
    match kind {
        0..=3 => vec![Record::Write(mapping(slot, first, count, counter))],
        4 => vec![Record::Heal(mapping(slot, first, count, counter))],
        5 | 6 => vec![Record::Trim { slab_slot: slot, first, count, counter }],
        7 => {
            let set = version(first, u64::from(count));
            vec![Record::SetPageVersion {
                slab_slot: slot,
                page: first / 512,
                version: set,
                whole: count % 2 == 0,
            }]
        }
        8 => vec![Record::RecordEpoch { volume_slot: VOLUME_SLOT, epoch: Epoch(count) }],
        _ => {
            // Replaces the copy of the same slab.
            *next_slot += 2;
            let new = *next_slot + slot % 2;
            let add = Record::VolumeAdd { volume_slot: VOLUME_SLOT, volume: volume(1) };
            vec![Record::SlabRemove { slab_slot: slot }, add, slab_add(new)]
        }
    }
}

/// All that a slab's root and leaves say, block by block and page by page.
type SlabContent = (u32, CopyId, Vec<Mapping>, Vec<(Version, bool, u16)>);

fn content(state: &State) -> Vec<SlabContent> {
    let slabs = state.slabs.iter().map(|(slot, slab)| {
        let mappings = (0..1024).map(|block| slab.mapping(block)).collect();
        let pages =
            slab.pages.iter().map(|page| (page.entry.version, page.entry.whole, page.mapped)).collect();
        (slot, slab.copy, mappings, pages)
    });
    slabs.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A checkpoint begins at a place in the journal and writes pages while the journal goes on. So
    /// each page stands for another moment behind that place, each slab root for a later one, and
    /// the table of slabs for the last. Replaying all records over that gives the present state.
    #[test]
    fn a_replay_over_pages_of_different_moments_gives_the_present(
        steps in prop::collection::vec((0_u8..10, any::<prop::sample::Index>(), 0_u32..1100, 1_u32..40), 1..30),
        begin in any::<prop::sample::Index>(),
        moments in prop::collection::vec(any::<prop::sample::Index>(), 64),
    ) {
        let mut records = Vec::new();
        let mut live = state();
        let mut next_slot = 1;
        for (step, counter) in steps.iter().zip(1..) {
            let slots: Vec<u32> = live.slabs.iter().map(|(slot, _)| slot).collect();
            let slot = slots[step.1.index(slots.len())];
            let more = random_record(step.0, slot, step.2, step.3, counter, &mut next_slot);
            more.iter().for_each(|record| live.apply(record));
            records.push(more);
        }
        let begin = begin.index(records.len() + 1);
        let at = |moment: usize| {
            let mut state = state();
            records[..moment].iter().flatten().for_each(|record| state.apply(record));
            state
        };
        let mut moments = moments.into_iter();
        let mut moment = |from: usize, to: usize| from + moments.next().map_or(0, |index| index.index(to - from + 1));

        let root_moment = moment(begin, records.len());
        let beginning = at(begin);
        let mut recovered = State::new(small_slabs());
        recovered.add_volume(VOLUME_SLOT, volume(1));
        recovered.change_volume(VOLUME_SLOT, |volume| {
            volume.record_epoch = beginning.volumes.get(VOLUME_SLOT).unwrap().record_epoch;
        });
        for (slot, slab) in at(root_moment).slabs.iter() {
            let Record::SlabAdd(add) = slab_add(slot) else { unreachable!() };
            recovered.add_slab(&SlabAdd { copy: slab.copy, slab: slab.slab, ..add });
            let slab_moment = moment(begin, root_moment);
            for page in 0..2 {
                let leaf_moment = moment(begin, slab_moment);
                let (mut leaf_state, root_state) = (at(leaf_moment), at(slab_moment));
                let target = &mut recovered.slabs.get_mut(slot).unwrap().pages[page];
                if let Some(slab) = leaf_state.slabs.get_mut(slot) {
                    target.mapped = slab.pages[page].mapped;
                    target.leaf = slab.pages[page].leaf.take();
                }
                if let Some(slab) = root_state.slabs.get(slot) {
                    target.entry = slab.pages[page].entry;
                }
            }
        }
        records[begin..].iter().flatten().for_each(|record| recovered.apply(record));
        prop_assert_eq!(content(&recovered), content(&live));
    }
}
