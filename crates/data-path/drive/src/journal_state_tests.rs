use super::*;
use crate::test_support::small_slabs;

const SECTOR_BYTES: u32 = 512;

fn layout() -> Layout {
    Layout::for_drive(64 << 20, SECTOR_BYTES, small_slabs()).expect("it is large enough")
}

/// A journal in which the next group stands at `sector`, as after an attach.
fn journal_at(sector: u32, used_sectors: u64) -> JournalState {
    let next = JournalPosition { sector, lap: 3, sequence: 7, previous_checksum: 0, previous_sector: None };
    JournalState::new(next, used_sectors, 1)
}

#[test]
fn a_group_that_does_not_fit_before_the_end_stands_at_the_start_of_the_next_lap() {
    let layout = layout();
    let total = layout.journal_sectors();
    // Sectors before the end, bytes of the group, its place and lap, and what it takes of the journal.
    for (left, bytes, sector, lap, taken) in [
        (10, 512, total - 10, 3, 1),
        (10, 513, total - 10, 3, 2),
        (10, 5120, total - 10, 3, 10),
        (10, 5121, 0, 4, 10 + 11),
        (0, 512, 0, 4, 1),
    ] {
        let mut journal = journal_at(total - left, 5);
        assert_eq!(journal.place(bytes, &layout), sector, "{bytes} bytes, {left} sectors left");
        let sectors = bytes.div_ceil(SECTOR_BYTES as usize) as u32;
        assert_eq!((journal.next.sector, journal.next.lap), (sector + sectors, lap));
        assert_eq!(journal.used_sectors(), 5 + taken);
    }
}

/// A group can waste as much before the journal's end as it takes.
#[test]
fn a_group_needs_twice_its_room_and_leaves_the_reserve() {
    let layout = layout();
    let total = u64::from(layout.journal_sectors());
    for (bytes, reserve_bytes, needed) in
        [(512, 0, 2), (513, 0, 4), (512, 1, 3), (512, 1024, 4), (51_200, 51_200, 300)]
    {
        assert!(journal_at(0, total - needed).has_room(bytes, &layout, reserve_bytes));
        assert!(!journal_at(0, total - needed + 1).has_room(bytes, &layout, reserve_bytes));
        let mut journal = journal_at(0, total - needed + 1);
        journal.release_to(1);
        assert!(journal.has_room(bytes, &layout, reserve_bytes), "a checkpoint has given room back");
    }
}

#[test]
fn three_quarters_of_what_ordinary_groups_may_use_make_it_time_for_a_checkpoint() {
    let layout = layout();
    let reserve_bytes = 100 * u64::from(SECTOR_BYTES);
    let kept = 2 * (GROUP_BYTES_MAX as u64) / u64::from(SECTOR_BYTES) + 100;
    let ordinary = u64::from(layout.journal_sectors()) - kept;
    assert!(!journal_at(0, (3 * ordinary).div_ceil(4) - 1).is_filling_up(&layout, reserve_bytes));
    assert!(journal_at(0, (3 * ordinary).div_ceil(4)).is_filling_up(&layout, reserve_bytes));
}
