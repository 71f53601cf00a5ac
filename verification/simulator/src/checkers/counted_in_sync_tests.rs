use spandrel_node::OwnedVolumeReport;
use spandrel_shared::Epoch;

use super::*;
use crate::checkers::testing::{self, leg, marked, volume};

/// The report of an owner that takes its second copy for `state`.
fn report(epoch: u32, is_serving: bool, state: &str) -> NodeReport {
    let owned = testing::owned(is_serving, vec![leg(0, "in-sync"), leg(1, state)]);
    testing::report(0, vec![OwnedVolumeReport { epoch: Epoch(epoch), ..owned }])
}

#[test]
fn a_copy_that_is_left_out_is_marked() {
    let unmarked = volume(&[&[0, 1]]);
    for state in ["stale", "joining"] {
        let refused = check(&unmarked, &[report(1, true, state)]);
        assert!(refused.is_err_and(|what| what.contains(state)));
        assert_eq!(check(&marked(unmarked.clone(), 1), &[report(1, true, state)]), Ok(()));
    }
    for state in ["in-sync", "promoting"] {
        assert_eq!(check(&unmarked, &[report(1, true, state)]), Ok(()));
    }
}

#[test]
fn only_the_owner_that_serves_counts() {
    let unmarked = volume(&[&[0, 1]]);
    assert_eq!(check(&unmarked, &[report(1, false, "stale")]), Ok(()), "it is taking over");
    assert_eq!(check(&unmarked, &[report(0, true, "stale")]), Ok(()), "another one has followed it");
}
