use spandrel_shared::Version;

use super::*;
use crate::admin::testing::*;

#[tokio::test]
async fn a_node_is_drained_only_if_others_have_everything_in_sync() {
    let refused = |facts: &Facts| facts.check_drain(&facts.nodes[0]).err();
    assert!(refused(&facts().await).is_none());

    let mut without_one = facts().await;
    without_one.nodes[1].report = None;
    assert!(refused(&without_one).is_none(), "n3 has everything");
    without_one.volumes[0].marks.insert(drive_id(3), Version::ZERO);
    let error = refused(&without_one).expect("n3 is stale");
    assert_eq!(error.code, "NODE_NEEDED");
    assert!(error.why.contains("v1") && error.why.contains("n2 is down"), "{error}");

    let mut paused = facts().await;
    pause(&mut paused, 1);
    paused.nodes[2].report.as_mut().expect("it runs").drives[0].failure = Some("no answer".to_owned());
    let error = refused(&paused).expect("n3 has no drive");
    assert!(error.why.contains("n2 is in maintenance") && !error.why.contains("n3"), "{error}");

    let mut silent = facts().await;
    silent.nodes[1].report = None;
    silent.nodes[0].report.as_mut().expect("it runs").owned[0].legs[2].is_silent = true;
    let error = refused(&silent).expect("n3 has just started");
    assert!(error.why.contains("n3 does not stand by its copies"), "{error}");

    let mut given_up = facts().await;
    given_up.nodes[1].report = None;
    given_up.volumes[0].lost.insert(drive_id(3));
    assert!(refused(&given_up).is_some(), "what is on n3's drive is being built anew elsewhere");

    let mut unsettled = facts().await;
    unsettled.generation = 1;
    assert!(refused(&unsettled).is_some(), "nobody knows which copies are in sync");

    // Each part counts by itself.
    let mut parts = facts().await;
    parts.volumes[0].sets[1].members.truncate(1);
    assert!(refused(&parts).is_some());
    let holder = parts.volumes[0].sets[1].members[0].drive;
    for (node, drive) in [(0, 1), (1, 2), (2, 3)] {
        let is_needed = parts.check_drain(&parts.nodes[node]).is_err();
        assert_eq!(is_needed, drive_id(drive) == holder, "only of what a node has itself it may be the last");
    }

    // Somebody may ask again whether it can be switched off by now.
    let mut lost_since = without_one;
    pause(&mut lost_since, 0);
    let error = refused(&lost_since).expect("n3 is stale");
    assert!(
        error.what.contains("in maintenance") && error.what.contains("must not be switched off"),
        "{error}"
    );
}

#[tokio::test]
async fn a_node_is_drained_only_if_a_majority_of_the_votes_stays() {
    let facts = facts().await;
    let member = |number: u64, runs: bool| StateMember {
        name: format!("n{number}"),
        server: Some(node_id(number)),
        runs,
        votes: true,
        leads: number == 1,
        endpoints: Vec::new(),
    };
    let check = |facts: &Facts, members: &[StateMember]| facts.check_votes(&facts.nodes[0], members);
    let three = [member(1, true), member(2, true), member(3, true)];
    assert_eq!(check(&facts, &three), Ok(()));
    assert_eq!(check(&facts, &[]), Ok(()), "others keep the state");

    let alone = check(&facts, &three[..1]).expect_err("nobody else has a vote");
    assert_eq!(alone.code, "STATE_MAJORITY_NEEDED");
    let without_vote = [member(2, true), StateMember { votes: false, ..member(1, true) }];
    assert_eq!(check(&facts, &without_vote), Ok(()), "it has none itself");

    // A witness is no node, and only says that it runs.
    let with_witness =
        |runs| [member(1, true), member(2, true), StateMember { name: "w".into(), ..member(9, runs) }];
    assert_eq!(check(&facts, &with_witness(true)), Ok(()));
    let error = check(&facts, &with_witness(false)).expect_err("only n2 would be left");
    assert!(error.why.contains("1 would be left") && error.why.ends_with(": w"), "{error}");

    let mut paused = facts;
    pause(&mut paused, 1);
    let error = check(&paused, &three).expect_err("n2 may be switched off at any time");
    assert!(error.why.ends_with(": n2"), "{error}");
}

#[tokio::test]
async fn a_node_that_nobody_misses_may_be_switched_off() {
    let mut facts = facts().await;
    let safety = facts.safety(&facts.nodes[1], &[]);
    assert!(safety.is_safe(), "{safety:?}");
    assert_eq!((safety.volumes[0].volume.as_str(), safety.volumes[0].copies_left), ("v1", 2));
    assert_eq!((safety.votes, safety.copies_held), (None, 2));
    let lack = safety.shortage.expect("three copies need three nodes");
    assert!(lack.contains("6 copies") && lack.contains("room for 4"), "{lack}");
    facts.nodes[2].report = None;
    assert_eq!(facts.safety(&facts.nodes[1], &[]).volumes[0].copies_left, 1);
}

#[tokio::test]
async fn a_node_that_is_missed_is_told_with_all_reasons() {
    let mut facts = facts().await;
    for marked in [1, 3] {
        facts.volumes[0].marks.insert(drive_id(marked), Version::ZERO);
    }
    let member = StateMember {
        name: "n2".to_owned(),
        server: Some(node_id(2)),
        runs: true,
        votes: true,
        leads: true,
        endpoints: Vec::new(),
    };
    let safety = facts.safety(&facts.nodes[1], &[member]);
    assert!(!safety.is_safe());
    let codes: Vec<&str> = safety.against.iter().map(|error| error.code.as_str()).collect();
    assert_eq!(codes, ["NODE_NEEDED", "STATE_MAJORITY_NEEDED"]);
    assert!(safety.against.iter().all(|error| !error.next.contains("--force")), "{safety:?}");
    assert_eq!(safety.votes, Some(VotesLeft { all: 1, left: 0 }));
    assert!(facts.safety(&facts.nodes[0], &[]).volumes.is_empty(), "its copies are stale");
}

#[tokio::test]
async fn a_witness_that_the_others_need_is_not_taken_out() {
    let facts = facts().await;
    let member = |number: u64, runs| StateMember {
        name: format!("s{number}"),
        server: Some(node_id(number)),
        runs,
        votes: true,
        leads: false,
        endpoints: Vec::new(),
    };
    let check = |members: &[StateMember]| facts.check_removal_of_witness("w", node_id(9), members);
    assert_eq!(
        check(&[member(1, true), member(2, true), member(9, false)]),
        Ok(()),
        "it is gone, the others stay"
    );
    let refused =
        check(&[member(1, true), member(2, false), member(9, true)]).expect_err("one of three is left");
    assert_eq!(refused.code, "STATE_MAJORITY_NEEDED");
    assert_eq!(refused.what, "witness w is not taken out of the cluster");
    assert_eq!(check(&[member(1, true)]), Ok(()), "it has no vote");
}
