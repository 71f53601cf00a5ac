use super::*;
use crate::checkers::testing::{drive_id, leg, marked, owned, report, volume};

fn drives(nodes: &[usize]) -> BTreeSet<DriveId> {
    nodes.iter().map(|node| drive_id(*node)).collect()
}

#[test]
fn a_volume_that_is_served_with_all_copies_in_sync_has_come_back() {
    let reports =
        [report(0, vec![owned(true, vec![leg(0, "in-sync"), leg(1, "in-sync")])]), report(1, vec![])];
    assert_eq!(check(&volume(&[&[0, 1]]), &reports, &drives(&[0, 1])), Ok(()));
}

#[test]
fn a_volume_needs_one_node_that_serves_it() {
    let serving = || vec![owned(true, vec![leg(0, "in-sync")])];
    let volume = volume(&[&[0, 1]]);
    let lacks = |reports: &[NodeReport]| check(&volume, reports, &drives(&[0, 1])).expect_err("no one owner");
    assert!(lacks(&[report(0, vec![])]).contains("nobody serves it"));
    assert!(lacks(&[report(0, vec![owned(false, vec![])])]).contains("nobody serves it"));
    assert!(lacks(&[report(0, serving()), report(1, serving())]).contains("more than one"));
}

#[test]
fn a_copy_that_is_not_in_sync_is_found_where_its_drive_is_there() {
    for state in ["stale", "joining", "promoting"] {
        let reports = [report(0, vec![owned(true, vec![leg(0, "in-sync"), leg(1, state)])])];
        let lacking = check(&volume(&[&[0, 1]]), &reports, &drives(&[0, 1])).expect_err("it is not back");
        assert!(lacking.contains(state), "{lacking}");
        assert_eq!(check(&volume(&[&[0, 1]]), &reports, &drives(&[0])), Ok(()));
    }
}

#[test]
fn a_mark_that_stays_in_the_state_is_found() {
    let reports = [report(0, vec![owned(true, vec![leg(0, "in-sync"), leg(1, "in-sync")])])];
    let lacking = check(&marked(volume(&[&[0, 1]]), 1), &reports, &drives(&[0, 1])).expect_err("a mark");
    assert!(lacking.contains("still marked"), "{lacking}");
}

#[test]
fn a_volume_must_come_back_where_each_slab_has_a_copy_in_sync() {
    let volume = volume(&[&[0, 1], &[1, 2]]);
    assert!(must_come_back(&volume, &drives(&[1])));
    assert!(must_come_back(&volume, &drives(&[0, 2])));
    assert!(!must_come_back(&volume, &drives(&[0])), "slab 1 is not there");
    assert!(!must_come_back(&marked(volume, 2), &drives(&[0, 2])), "slab 1 is stale there");
}

#[test]
fn drives_that_have_failed_are_not_usable() {
    let mut reports = [report(0, vec![]), report(1, vec![]), report(2, vec![])];
    reports[1].drives[0].failure = Some("it answers nothing".to_owned());
    reports[2].drives[0].drive = None;
    assert_eq!(usable_drives(&reports), drives(&[0]));
}

#[test]
fn a_growth_that_does_not_end_is_found() {
    let reports = [report(0, vec![owned(true, vec![leg(0, "in-sync"), leg(1, "in-sync")])])];
    let mut volume = volume(&[&[0, 1]]);
    volume.record.grows_to_bytes = Some(volume.record.size_bytes + 4096);
    let lacking = check(&volume, &reports, &drives(&[0, 1])).expect_err("it grows");
    assert!(lacking.contains("does not end"), "{lacking}");
}
