use std::collections::BTreeSet;

use super::*;

#[test]
fn a_freed_slot_waits_for_the_checkpoint_that_began_after() {
    let mut table = SlotTable::default();
    let slot = table.reserve();
    table.insert(slot, 'a');
    let early = table.take_quarantined();
    table.remove(slot);
    table.end_quarantine(early);
    assert_ne!(table.reserve(), slot, "the checkpoint began before");
    let later = table.take_quarantined();
    table.return_quarantined(later);
    let later = table.take_quarantined();
    assert_ne!(table.reserve(), slot, "the checkpoint has not ended");
    table.end_quarantine(later);
    assert_eq!(table.reserve(), slot);
}

#[test]
fn reserved_slots_count_and_can_be_given_back() {
    let mut table = SlotTable::default();
    let (first, second) = (table.reserve(), table.reserve());
    assert_eq!(table.taken(), 2);
    table.insert(first, 'a');
    assert_eq!(table.taken(), 2);
    table.give_back(second);
    table.give_back(second);
    assert_eq!(table.taken(), 1);
    assert_eq!(table.reserve(), second);
    table.insert(second, 'b');
    let entries: Vec<(u32, &char)> = table.iter().collect();
    assert_eq!(entries, [(0, &'a'), (1, &'b')]);
}

#[test]
fn after_a_recovery_every_empty_slot_is_given_out_once() {
    let mut table = SlotTable::default();
    for slot in [7, 2] {
        table.insert(slot, slot);
    }
    table.remove(2);
    table.rebuild_free();
    let given: BTreeSet<u32> = (0..8).map(|_| table.reserve()).collect();
    assert_eq!(given, BTreeSet::from([0, 1, 2, 3, 4, 5, 6, 8]));
}
