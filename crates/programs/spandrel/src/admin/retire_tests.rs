use spandrel_shared::Version;

use super::*;
use crate::admin::testing::{drive_id, facts, node_id};

#[test]
fn a_refusal_shows_the_arithmetic() {
    let nodes = vec![("n1".to_owned(), 14), ("n2".to_owned(), 14), ("n3".to_owned(), 0)];
    let lack = Shortage { needed: 15, slabs: 5, copies: 3, room: 10, nodes };
    let error = needed("DRIVE_NEEDED", "drive n3-d1 is not retired", &lack);
    assert_eq!((error.code.as_str(), error.what.as_str()), ("DRIVE_NEEDED", "drive n3-d1 is not retired"));
    for words in
        ["of 5 slabs with 3 copies or more there are 15 copies", "room for 10 of these", "n1 14, n2 14, n3 0"]
    {
        assert!(error.why.contains(words), "{error}");
    }
}

/// After the state was put back, the newest copies may be on a drive on which it has nothing.
#[tokio::test]
async fn no_drive_is_taken_out_before_copies_were_compared() {
    let mut facts = facts().await;
    assert_eq!(facts.check_compared("drive n1/d1 is not removed"), Ok(()));
    facts.generation = 1;
    let error = facts.check_compared("drive n1/d1 is not removed").expect_err("not now");
    assert_eq!(error.code, "COPIES_NOT_COMPARED");
    assert!(error.why.contains("of v1") && error.next.contains("spandrel cluster settle"), "{error}");
}

#[tokio::test]
async fn what_nobody_else_has_is_not_waited_for_on_others() {
    let mut facts = facts().await;
    facts.nodes[2].report = None;
    let refused = |facts: &Facts| check_not_last("it stays", &facts.stakes_of_drive(drive_id(3))).err();
    assert_eq!(refused(&facts), None);
    facts.volumes[0].marks.extend([1, 2].map(|marked| (drive_id(marked), Version::ZERO)));
    let error = refused(&facts).expect("nothing can be built");
    assert_eq!(error.code, "LAST_COPY");
    assert!(error.why.contains("of parts of v1") && error.next.starts_with("bring it back"), "{error}");
}

/// Three copies on three nodes: the others have no place for what is on one of them.
#[tokio::test]
async fn a_node_that_may_run_is_not_taken_out_without_room_and_one_that_is_gone_is() {
    let mut facts = facts().await;
    let code = |facts: &Facts| facts.check_evacuation(&facts.nodes[2]).err().map(|error| error.code);
    assert_eq!(code(&facts).as_deref(), Some("NODE_NEEDED"));
    facts.nodes[2].report = None;
    assert_eq!(code(&facts).as_deref(), Some("NODE_NEEDED"), "it only does not answer");
    facts.nodes[2].is_alive = false;
    let reports = facts.nodes.iter_mut().filter_map(|node| node.report.as_mut());
    reports.for_each(|report| report.reachable.retain(|other| *other != node_id(3)));
    let warning = facts.check_evacuation(&facts.nodes[2]).expect("it is gone").expect("room is lacking");
    assert!(warning.contains("there are 6 copies"), "{warning}");
    facts.volumes[0].marks.extend([1, 2].map(|marked| (drive_id(marked), Version::ZERO)));
    assert_eq!(code(&facts).as_deref(), Some("LAST_COPY"));
}
