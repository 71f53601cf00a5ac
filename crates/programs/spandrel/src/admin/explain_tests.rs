use spandrel_node::LegReport;
use spandrel_shared::Version;

use super::*;
use crate::admin::testing::*;

fn settings() -> SettingsRecord {
    SettingsRecord::default()
}

fn volume(facts: &Facts) -> Explanation {
    facts.explain_volume("v1", &settings()).expect("it is there")
}

fn node(facts: &Facts, index: usize) -> Explanation {
    let node = &facts.nodes[index];
    facts.explain_node(node, &facts.safety(node, &[]).against, 10_009)
}

/// The third node does not answer, and the others have seen that for a minute.
async fn without_n3() -> Facts {
    let mut facts = facts().await;
    facts.nodes[2].report = None;
    let away =
        DriveAway { drive: drive_id(3), away_ms: 60_000, is_waited_for: true, left_ms: Some(3_540_000) };
    facts.nodes[0].report.as_mut().expect("it runs").drives_away = vec![away];
    facts
}

fn has(lines: &[String], words: &str) -> bool {
    lines.iter().any(|line| line.contains(words))
}

/// The operational states that it names.
fn states(explanation: &Explanation) -> String {
    explanation.status.operational_text()
}

#[tokio::test]
async fn what_is_well_is_told_so() {
    let facts = facts().await;
    let told = volume(&facts);
    assert_eq!((states(&told).as_str(), told.since_ms, told.must_not.len()), ("OK", None, 0));
    assert_eq!(told.why, ["each of its 2 slabs has 3 copies in sync, on different nodes of n1, n2, n3"]);
    let told = node(&facts, 0);
    assert_eq!((states(&told).as_str(), told.must_not.len()), ("Up", 0));
    assert_eq!(told.why, ["it runs, owns 1 volume and uses 1 of 1 drive"]);
    let told = facts.explain_drive("n2/d1").expect("it is there");
    assert_eq!((states(&told).as_str(), told.must_not.len()), ("OK", 0));
    assert!(has(&told.why, "8 MiB of it is promised to volumes (14 %)"), "{told:?}");
    let told = facts.explain_pool(&settings());
    assert_eq!(states(&told), "OK");
    assert!(has(&told.why, "24 MiB of 168 MiB are promised"), "{told:?}");
}

#[tokio::test]
async fn copies_that_are_away_and_current_make_a_volume_incomplete() {
    let told = volume(&without_n3().await);
    assert_eq!((states(&told).as_str(), told.since_ms), ("Incomplete", Some(60_000)));
    assert!(has(&told.why, "2 copies of slabs on n3/d1 cannot be reached; nothing was written"), "{told:?}");
    assert!(has(&told.doing, "if it stays away, what it holds is built elsewhere in 59 min"), "{told:?}");
    assert!(has(&told.may, "bring n3 back") && has(&told.may, "spandrel drive retire n3/d1"), "{told:?}");
}

#[tokio::test]
async fn copies_that_lack_writes_make_a_volume_degraded() {
    let mut facts = without_n3().await;
    facts.volumes[0].marks.insert(drive_id(3), Version::ZERO);
    let told = volume(&facts);
    assert_eq!(states(&told), "Degraded");
    assert!(has(&told.why, "2 copies of slabs on n3/d1 lack writes"), "{told:?}");
    facts.volumes[0].marks.insert(drive_id(2), Version::ZERO);
    let told = volume(&facts);
    assert!(has(&told.must_not, "switch off n1: no other node that runs has a copy in sync"), "{told:?}");
    pause(&mut facts, 2);
    assert!(has(&volume(&facts).doing, "n3/d1 is waited for: its node is in maintenance"));
}

#[tokio::test]
async fn copies_that_are_brought_up_to_date_are_told_with_the_time_they_take() {
    let mut facts = facts().await;
    facts.volumes[0].marks.insert(drive_id(3), Version::ZERO);
    let owner = facts.nodes[0].report.as_mut().expect("it runs");
    owner.owned[0].legs[2] = LegReport {
        resync_pages: Some((1, 4)),
        resync_copied_bytes: 1 << 21,
        resync_ms: 500,
        ..leg(3, "joining")
    };
    let told = volume(&facts);
    assert_eq!((states(&told).as_str(), told.left_ms), ("Degraded, In Service", Some(1500)));
    assert!(has(&told.why, "lack writes that were answered while it was away, and is back"), "{told:?}");
    assert!(has(&told.doing, "Repair of volume v1: 2 slabs on n3/d1, 25 % done, 2 s left"), "{told:?}");
}

#[tokio::test]
async fn a_volume_without_copies_that_can_be_reached_waits_for_them() {
    let mut facts = without_n3().await;
    for marked in [1, 2] {
        facts.volumes[0].marks.insert(drive_id(marked), Version::ZERO);
    }
    let told = volume(&facts);
    assert!(states(&told).starts_with("Detached - Incomplete"), "{told:?}");
    assert!(
        has(&told.why, "of 2 slabs no whole copy can be reached: their reads and writes wait"),
        "{told:?}"
    );
    assert!(has(&told.must_not, "wipe or replace n3/d1"), "{told:?}");
}

#[tokio::test]
async fn a_volume_that_has_lost_data_is_told_so() {
    let mut facts = facts().await;
    for marked in [1, 2] {
        facts.volumes[0].marks.insert(drive_id(marked), Version::ZERO);
    }
    facts.room.drives.get_mut(&drive_id(3)).expect("it is there").state = DriveState::Failed;
    let told = volume(&facts);
    assert!(states(&told).starts_with("No Redundancy"), "{told:?}");
    assert!(has(&told.why, "of 2 slabs no copy is left") && has(&told.may, "from a backup"), "{told:?}");
    assert!(has(&told.why, "on n3/d1 are lost: the drive was given up"), "{told:?}");
}

#[tokio::test]
async fn a_volume_that_nobody_serves_is_about_to_start() {
    let mut facts = facts().await;
    facts.nodes[0].report.as_mut().expect("it runs").owned[0].is_serving = false;
    let told = volume(&facts);
    assert_eq!(states(&told), "Starting");
    assert!(has(&told.doing, "a node that has a copy takes it over"), "{told:?}");
}

#[tokio::test]
async fn copies_that_lie_unevenly_are_spread_or_wait_to_be() {
    let mut facts = facts().await;
    let mut report = node_report(4);
    report.owned.clear();
    facts.nodes.push(known_node(4, report));
    facts.room.drives.insert(drive_id(4), drive_record(4));
    facts.room.drives.values_mut().for_each(|drive| drive.slabs_promised_max = 8);
    let told = volume(&facts);
    assert_eq!(states(&told), "Suboptimal");
    assert!(
        has(&told.why, "unevenly, by up to 25 %") && has(&told.doing, "spread by themselves"),
        "{told:?}"
    );
    let off = SettingsRecord { balance: false, ..settings() };
    let told = facts.explain_volume("v1", &off).expect("it is there");
    assert!(has(&told.doing, "switched off") && has(&told.may, "`spandrel pool optimize`"), "{told:?}");
}

#[tokio::test]
async fn copies_without_another_place_are_told() {
    let mut facts = without_n3().await;
    let owner = facts.nodes[0].report.as_mut().expect("it runs");
    owner.owned[0].copies_without_place = 2;
    owner.drives_away[0].is_waited_for = false;
    let told = volume(&facts);
    assert!(
        has(&told.doing, "n3/d1 is not waited for any more") && has(&told.doing, "copies wait"),
        "{told:?}"
    );
    assert!(has(&told.may, "add drives or nodes"), "{told:?}");
}

#[tokio::test]
async fn a_drive_says_what_is_the_matter_with_it() {
    let told = |facts: &Facts| facts.explain_drive("n3/d1").expect("it is there");
    let lost = told(&without_n3().await);
    assert_eq!((states(&lost).as_str(), lost.since_ms), ("Lost Communication", Some(60_000)));
    assert!(has(&lost.may, "spandrel explain node n3") && has(&lost.doing, "is waited for"), "{lost:?}");

    let mut facts = facts().await;
    facts.room.drives.get_mut(&drive_id(3)).expect("it is there").state = DriveState::Retired;
    let retired = told(&facts);
    assert_eq!(states(&retired), "Removing From Pool");
    assert!(has(&retired.doing, "is built elsewhere: 2 copies of slabs to go"), "{retired:?}");

    let mut failed = facts_with_report(|report| report.failure = Some("no answer".to_owned())).await;
    assert_eq!(states(&told(&failed)), "Not Usable");
    assert!(has(&told(&failed).why, "does not use it: no answer"), "{:?}", told(&failed));
    failed.room.drives.get_mut(&drive_id(3)).expect("it is there").state = DriveState::Failed;
    let given_up = told(&failed);
    assert_eq!(states(&given_up), "Failed Media, Not Usable");
    assert!(has(&given_up.may, "takes it off the list"), "{given_up:?}");

    let old =
        facts_with_report(|report| report.failure = Some("DRIVE_IS_OLD: an old image".to_owned())).await;
    assert_eq!(states(&told(&old)), "Stale Metadata");

    let damaged = facts_with_report(|report| report.blocks_damaged = 2).await;
    assert_eq!(states(&told(&damaged)), "IO Error");
    assert!(has(&told(&damaged).why, "blocks on it are damaged"), "{:?}", told(&damaged));
}

/// Facts with another report of the third drive.
async fn facts_with_report(change: impl FnOnce(&mut spandrel_node::DriveReport)) -> Facts {
    let mut facts = facts().await;
    change(&mut facts.nodes[2].report.as_mut().expect("it runs").drives[0]);
    facts
}

#[tokio::test]
async fn a_drive_with_the_only_copies_must_stay() {
    let mut facts = facts().await;
    for marked in [1, 2] {
        facts.volumes[0].marks.insert(drive_id(marked), Version::ZERO);
    }
    let told = facts.explain_drive("n3/d1").expect("it is there");
    assert!(
        has(&told.must_not, "it has the only whole copies that can be reached of parts of v1"),
        "{told:?}"
    );
    assert!(facts.explain_drive("n2/d1").expect("it is there").must_not.is_empty());
}

#[tokio::test]
async fn a_node_that_is_down_says_what_hangs_on_it() {
    let mut facts = without_n3().await;
    let told = node(&facts, 2);
    assert_eq!((states(&told).as_str(), told.since_ms), ("Down", Some(60_000)));
    assert!(has(&told.why, "2 copies of slabs are on its 1 drive"), "{told:?}");
    assert!(has(&told.doing, "the node is waited for; if it stays away, what it holds is built"), "{told:?}");
    assert!(has(&told.may, "spandrel node remove n3") && told.must_not.is_empty(), "{told:?}");
    facts.volumes[0].marks.insert(drive_id(2), Version::ZERO);
    assert!(has(&node(&facts, 2).must_not, "switch off n1 too: v1 would wait"), "{:?}", node(&facts, 2));
}

#[tokio::test]
async fn a_node_says_how_it_is_cut_off_or_in_maintenance() {
    let mut isolated = facts().await;
    isolated.nodes[1].report.as_mut().expect("it runs").reachable.clear();
    let told = node(&isolated, 1);
    assert_eq!(states(&told), "Isolated");
    assert!(has(&told.may, "look at its network"), "{told:?}");

    let mut draining = facts().await;
    pause(&mut draining, 0);
    let told = node(&draining, 0);
    assert_eq!(states(&told), "Draining");
    assert!(
        has(&told.doing, "it hands them over: v1") && has(&told.must_not, "before it owns none"),
        "{told:?}"
    );

    let mut paused = facts().await;
    pause(&mut paused, 1);
    let told = node(&paused, 1);
    assert_eq!((states(&told).as_str(), told.since_ms), ("Paused", Some(10_000)));
    assert!(has(&told.may, "spandrel node resume n2"), "{told:?}");
}

#[tokio::test]
async fn a_pool_names_the_drives_that_are_missing() {
    let mut facts = without_n3().await;
    let told = facts.explain_pool(&settings());
    assert_eq!(states(&told), "Degraded");
    assert!(has(&told.why, "drive n3/d1 is Warning (Lost Communication)"), "{told:?}");
    assert!(has(&told.may, "spandrel explain drive n3/d1"), "{told:?}");
    facts.nodes[1].report = None;
    assert_eq!(states(&facts.explain_pool(&settings())), "Incomplete");
}
