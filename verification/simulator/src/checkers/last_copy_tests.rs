use super::*;
use crate::checkers::testing::{marked, volume};

#[test]
fn one_copy_in_sync_of_each_slab_is_enough() {
    assert_eq!(check(&volume(&[&[0, 1], &[1, 2]])), Ok(()));
    assert_eq!(check(&marked(volume(&[&[0, 1], &[1, 2]]), 1)), Ok(()));
}

#[test]
fn a_slab_without_a_copy_in_sync_is_found() {
    let found = check(&marked(marked(volume(&[&[0, 1], &[1, 2]]), 1), 2)).expect_err("slab 1 has none");
    assert!(found.contains("no copy of slab 1 "), "{found}");
}

#[test]
fn a_copy_that_is_being_built_does_not_count() {
    let mut volume = marked(volume(&[&[0, 1]]), 0);
    assert_eq!(check(&volume), Ok(()));
    volume.sets[0].members[1].building = true;
    assert!(check(&volume).is_err());
}
