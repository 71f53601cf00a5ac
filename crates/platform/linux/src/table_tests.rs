use super::*;

#[test]
fn a_late_key_does_not_find_the_slots_next_value() {
    let mut table = Table::default();
    let first = table.insert("first");
    assert_eq!(table.remove(first), Some("first"));
    let second = table.insert("second");
    assert_ne!(first, second, "the slot is used again under another key");
    assert_eq!((table.get(first), table.get(second)), (None, Some(&"second")));
    assert_eq!(table.remove(first), None);
    assert_eq!(table.len(), 1);
}

#[test]
fn keys_leave_the_top_bit_free() {
    let mut table = Table::default();
    let key = table.insert(1);
    table.slots[0].generation = GENERATION_MASK;
    assert_eq!(table.get(key), None);
    let last = u64::from(GENERATION_MASK) << 32;
    assert_eq!(table.remove(last), Some(1));
    assert_eq!(table.insert(2), 0, "generations start again");
    assert_eq!(last >> 63, 0);
}

#[test]
fn unknown_keys_find_nothing() {
    let mut table = Table::<u8>::default();
    assert_eq!(table.get_mut(77), None);
    assert_eq!(table.remove(u64::MAX), None);
    assert!(table.is_empty());
}
