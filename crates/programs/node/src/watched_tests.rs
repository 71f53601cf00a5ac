use super::*;

#[test]
fn whoever_may_change_the_value_is_counted_and_who_looks_at_it_is_not() {
    let watched = Watched::new(3);
    let before = watched.changes();
    assert_eq!(*watched.borrow(), 3);
    assert_eq!(watched.changes(), before);
    *watched.borrow_mut() += 1;
    let after = watched.changes();
    assert_ne!(after, before);
    assert_eq!((*watched.borrow(), watched.changes()), (4, after));
}
