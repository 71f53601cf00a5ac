use proptest::prelude::*;
use spandrel_shared::CopyId;

use super::*;
use crate::SlabLayout;
use crate::format::map::PageEntry;
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
    MappingRecord { slab_slot, first, counter, block, checksums: (0..count).collect() }
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
    assert!(slab.pages[1].leaf().is_none());
    assert_eq!(state.listed(volume(1)).len(), 2, "a heal is no write");
}

/// The root was written when the copy was there already that came last, and the journal begins with those before it.
#[test]
fn a_copy_is_found_again_when_the_journal_names_others_that_came_and_went_before_it() {
    let mut state = state();
    for record in [slab_add(2), Record::SlabRemove { slab_slot: 2 }, slab_add(0)] {
        state.apply(&record);
    }
    state.end_replay();
    assert_eq!(state.slab_slot(volume(1), SlabIndex(0)), Some(0));
    assert_eq!(state.slab_slot(volume(1), SlabIndex(1)), Some(1));
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
type SlabContent = (u32, CopyId, Vec<Mapping>, Vec<(Version, bool, u16, u16)>);

fn content(state: &State) -> Vec<SlabContent> {
    let slabs = state.slabs.iter().map(|(slot, slab)| {
        let mappings = (0..1024).map(|block| slab.mapping(block)).collect();
        let page = |page: &Page| (page.entry.version, page.entry.whole, page.mapped, page.lost);
        (slot, slab.copy, mappings, slab.pages.iter().map(page).collect())
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
            let mut pages = Vec::new();
            for page in 0..2 {
                let leaf_moment = moment(begin, slab_moment);
                let (leaf_state, root_state) = (at(leaf_moment), at(slab_moment));
                let leaf = leaf_state.slabs.get(slot).and_then(|slab| slab.pages[page].leaf().copied());
                let entry = root_state.slabs.get(slot).map(|slab| slab.pages[page].entry).unwrap_or_default();
                pages.push(leaf.map_or_else(|| Page::empty(entry), |leaf| Page::found(Box::new(leaf), entry)));
            }
            recovered.slabs.get_mut(slot).unwrap().put_pages(pages);
        }
        records[begin..].iter().flatten().for_each(|record| recovered.apply(record));
        prop_assert_eq!(content(&recovered), content(&live));
    }
}

#[test]
fn mapped_blocks_are_named_with_their_places_in_the_slab() {
    let mut state = state();
    state.apply(&Record::Write(mapping(0, 2, 2, 1)));
    state.apply(&Record::Write(mapping(0, 511, 3, 2)));
    let slab = state.slabs.get_mut(0).unwrap();
    slab.lose(512);
    assert_eq!(slab.mapping(512), Mapping::UNKNOWN);
    assert_eq!(slab.mapped_blocks(), [(2, 1100), (3, 1101), (511, 1200), (513, 1202)]);
    assert_eq!((slab.pages[0].mapped, slab.pages[1].mapped), (3, 2), "what is lost is not unmapped");
    assert_eq!((slab.pages[0].lost, slab.pages[1].lost), (0, 1));
    state.apply(&Record::Write(mapping(0, 512, 1, 3)));
    assert_eq!(state.slabs.get(0).unwrap().pages[1].lost, 0, "what is written is known again");
}

#[test]
fn a_copy_that_is_forgotten_is_empty_and_all_of_it_is_written_anew() {
    let mut state = state();
    state.apply(&Record::Write(mapping(0, 510, 4, 9)));
    let slab = state.slabs.get_mut(0).unwrap();
    slab.map = PagePointer { block: 50, checksum: 1 };
    slab.pages[1].entry.leaf = PagePointer { block: 51, checksum: 2 };
    slab.pages.iter_mut().for_each(|page| page.dirty = false);
    slab.dirty = false;
    slab.forget();
    assert!(slab.map.is_none() && slab.dirty);
    assert_eq!(slab.mapped_blocks(), []);
    for page in &slab.pages {
        assert_eq!((page.entry, page.mapped, page.dirty), (PageEntry::default(), 0, true));
    }
}

/// A page that was whole before the journal was damaged may not be so any more.
#[test]
fn pages_in_doubt_are_whole_no_more_and_keep_their_versions() {
    let mut state = state();
    let set = version(1, 7);
    state.apply(&Record::SetPageVersion { slab_slot: 0, page: 1, version: set, whole: true });
    let slab = state.slabs.get_mut(0).unwrap();
    assert!(slab.pages[1].entry.whole);
    slab.pages.iter_mut().for_each(|page| page.dirty = false);
    slab.dirty = false;
    slab.doubt_whole_pages();
    assert_eq!((slab.pages[1].entry.whole, slab.pages[1].entry.version), (false, set));
    assert!(slab.dirty && slab.pages[1].dirty && !slab.pages[0].dirty);
    slab.dirty = false;
    slab.doubt_whole_pages();
    assert!(!slab.dirty, "nothing is written for what has not changed");
}

/// A replay meets the record of a slab that the root names already.
#[test]
fn a_slab_that_is_there_already_stays_as_it_is() {
    let mut state = state();
    state.apply(&Record::Write(mapping(0, 0, 1, 9)));
    state.apply(&slab_add(0));
    assert_eq!(state.slabs.get(0).unwrap().mapped_blocks(), [(0, 1900)]);
    assert_eq!(state.volume(volume(1)).unwrap().slab_count, 2);
}

/// Its fence holds until then, so that a copy that comes back is not written by a former owner.
#[test]
fn a_volume_without_slabs_is_forgotten_unless_one_is_coming() {
    let mut state = state();
    assert_eq!(state.expect_slab(volume(1)), VOLUME_SLOT);
    (1..=5).for_each(|counter| state.apply(&Record::Write(mapping(0, 5, 1, counter))));
    // Writes that only memory has taken off the list count until the volume goes.
    state.note_mark(VOLUME_SLOT, version(0, 3), &[]);
    for slab_slot in [0, 1] {
        assert!(state.volume(volume(1)).is_some());
        state.apply(&Record::SlabRemove { slab_slot });
    }
    assert!(state.volume(volume(1)).is_none());
    assert_eq!(state.volume_ids().count(), 0);
    state.drop_empty_volumes();
    assert_eq!(state.volume_slot(volume(1)), Some(VOLUME_SLOT), "a slab is on its way");
    assert_eq!(state.listed_writes_max(), 3);
    state.expect_slab_no_more(VOLUME_SLOT);
    assert_eq!(state.volume_slot(volume(1)), Some(VOLUME_SLOT), "no checkpoint has begun");
    state.drop_empty_volumes();
    assert_eq!(state.volume_slot(volume(1)), None);
    assert!(state.volumes.get(VOLUME_SLOT).is_none());
    assert_eq!(state.listed_writes_max(), 0);
}

/// A root can name a volume twice, the empty slot behind the other one.
#[test]
fn after_a_replay_volumes_are_found_where_their_slabs_are_and_empty_slots_are_free() {
    let mut state = State::new(small_slabs());
    state.add_volume(1, volume(1));
    state.add_volume(2, volume(1));
    let Record::SlabAdd(add) = slab_add(2) else { unreachable!() };
    state.add_slab(&SlabAdd { volume_slot: 1, ..add });
    state.end_replay();
    assert_eq!(state.volume_slot(volume(1)), Some(1));
    assert_eq!(state.slab_slot(volume(1), add.slab), Some(2));
    assert_eq!([(); 3].map(|()| state.slabs.reserve()), [0, 1, 3]);
    assert_eq!([(); 3].map(|()| state.volumes.reserve()), [0, 2, 3]);
}

/// A page can change again while it is written, and can find no room.
#[test]
fn a_written_page_replaces_the_former_one_and_one_that_was_not_is_written_later() {
    let former = PagePointer { block: 51, checksum: 1 };
    let new = PagePointer { block: 52, checksum: 2 };
    for index in [Some(1), None] {
        for (dirty, written) in [(false, true), (false, false), (true, true), (true, false)] {
            let mut state = state();
            let mut allocator = Allocator::new(50, 60);
            assert!(allocator.take(51) && allocator.take(52));
            state.allocator = Some(allocator);
            let slab = state.slabs.get_mut(0).unwrap();
            slab.dirty = dirty;
            if index.is_some() {
                slab.pages[1].begin_write();
            }
            slab.pages[1].dirty = dirty;
            slab.pages[1].entry.leaf = former;
            slab.map = former;
            state.replace_page(0, index, new, written);
            let slab = state.slabs.get(0).unwrap();
            let case = format!("{index:?}, dirty {dirty}, written {written}");
            let there = if index.is_some() { slab.pages[1].entry.leaf } else { slab.map };
            assert_eq!(there, if written { new } else { former }, "{case}");
            assert_eq!(slab.dirty, dirty || !written, "{case}");
            let page_dirty = dirty || index.is_some() && !written;
            assert_eq!(slab.pages[1].dirty, page_dirty, "{case}");
            assert_eq!(state.retired_pages, if written { vec![51] } else { vec![] }, "{case}");
            let used = if written { 2 } else { 1 };
            assert_eq!(state.allocator.unwrap().used_blocks(), used, "{case}: what nothing names is free");
        }
    }
    // The slab has gone: nothing will name the page.
    let mut state = state();
    let mut allocator = Allocator::new(50, 60);
    assert!(allocator.take(52));
    state.allocator = Some(allocator);
    state.replace_page(9, None, new, true);
    assert_eq!(state.allocator.unwrap().used_blocks(), 0);
}
