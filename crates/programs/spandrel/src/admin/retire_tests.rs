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
    let refused = |facts: &Facts| facts.check_not_last("it stays", &[drive_id(3)].into()).err();
    assert_eq!(refused(&facts), None);
    facts.volumes[0].marks.extend([1, 2].map(|marked| (drive_id(marked), Version::ZERO)));
    let error = refused(&facts).expect("nothing can be built");
    assert_eq!(error.code, "LAST_COPY");
    assert!(error.why.contains("of parts of v1") && error.next.starts_with("bring it back"), "{error}");
}

/// A node that begins anew while another one is gone for good has everything, and whoever deletes the volume then loses it.
#[tokio::test]
async fn nobody_is_told_to_delete_what_a_drive_has_that_is_away_for_a_moment() {
    let mut facts = facts().await;
    let next = |facts: &Facts| {
        let refused = facts.check_not_last("it stays", &[drive_id(3)].into());
        refused.expect_err("nothing is there to build from").next
    };
    // n3 has burnt down, n2 begins anew, and what n1 has is stale.
    (facts.nodes[1].report, facts.nodes[2].report) = (None, None);
    facts.volumes[0].marks.extend([1, 3].map(|marked| (drive_id(marked), Version::ZERO)));
    let waits = next(&facts);
    assert!(waits.contains("wait for n2/d1") && waits.contains("delete nothing"), "{waits}");
    assert!(!waits.contains("backup") && !waits.contains("n1/d1"), "{waits}");
    facts.volumes[0].marks.insert(drive_id(2), Version::ZERO);
    let lost = next(&facts);
    assert!(lost.contains("n1/d1, n2/d1 has of it lacks writes") && lost.contains("restore v1"), "{lost}");
    // Of one slab n2 has all, of the other one nobody has.
    facts.volumes[0].marks.remove(&drive_id(2));
    facts.volumes[0].sets[1].members.retain(|member| member.drive != drive_id(2));
    let both = next(&facts);
    assert!(both.contains("wait for n2/d1") && both.contains("bring this back, too"), "{both}");
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

/// Nothing would ever come of what is on the other drive, and whoever waits for the node to be empty would wait for ever.
#[tokio::test]
async fn a_node_that_runs_is_not_taken_out_if_a_drive_of_it_is_dead_that_has_the_last_copy() {
    let mut facts = facts().await;
    let mut second = facts.room.drives[&drive_id(3)].clone();
    second.slabs_promised_max = 0;
    facts.room.drives.insert(drive_id(4), second);
    let report = facts.nodes[2].report.as_mut().expect("it runs");
    report.drives[0].failure = Some("no answer".to_owned());
    report.drives.push(spandrel_node::DriveReport { drive: Some(drive_id(4)), ..Default::default() });
    let code = |facts: &Facts| facts.check_evacuation(&facts.nodes[2]).err().map(|error| error.code);
    assert_eq!(code(&facts).as_deref(), Some("NODE_NEEDED"), "the others have all of it, and no room");
    facts.volumes[0].marks.extend([1, 2].map(|marked| (drive_id(marked), Version::ZERO)));
    assert_eq!(code(&facts).as_deref(), Some("LAST_COPY"));
}

/// What is to come to a volume that grows has its places already, and its copies are moved like all others.
#[tokio::test]
async fn room_is_asked_for_what_is_to_come_too() {
    let mut facts = facts().await;
    facts.volumes[0].record.copies = 1;
    let drives = BTreeSet::from([drive_id(3)]);
    assert_eq!(check_room(&facts, &drives).err(), None);
    facts.volumes[0].record.grows_to_bytes = Some(100 * facts.geometry.slab_bytes());
    assert_eq!(check_room(&facts, &drives).expect_err("there is none for all").slabs, 100);
}
