use spandrel_node::LegReport;
use spandrel_shared::Version;

use super::*;
use crate::admin::api::Severity;
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
async fn a_volume_that_grows_is_told_so() {
    let mut facts = facts().await;
    assert!(!has(&volume(&facts).doing, "grows"));
    facts.volumes[0].record.grows_to_bytes = Some(12 << 20);
    facts.volumes[0].to_come = vec![facts.volumes[0].sets[0].clone()];
    let told = volume(&facts);
    assert!(
        has(&told.doing, "it grows from 8 MiB to 12 MiB: copies of 1 further slab are being made"),
        "{told:?}"
    );
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
async fn a_node_names_its_drives_that_are_not_well() {
    let mut facts = facts().await;
    facts.room.drives.get_mut(&drive_id(3)).expect("it is there").state = DriveState::Retired;
    let told = node(&facts, 2);
    assert!(has(&told.why, "drive n3/d1 is Warning (Removing From Pool)"), "{told:?}");
    assert!(has(&told.may, "`spandrel explain drive n3/d1`"), "{told:?}");
    assert!(!has(&node(&facts, 1).why, "drive "), "its own are well");
    facts.nodes[2].report = None;
    assert!(!has(&node(&facts, 2).why, "n3/d1 is"), "that it is down says it for all of them");
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
async fn copies_whose_node_has_just_started_make_a_volume_incomplete() {
    let mut facts = facts().await;
    let owner = facts.nodes[0].report.as_mut().expect("it runs");
    owner.owned[0].legs[2].is_silent = true;
    let told = volume(&facts);
    assert_eq!(states(&told), "Incomplete");
    assert!(
        has(&told.why, "2 copies of slabs on n3/d1 are current, but its node does not stand"),
        "{told:?}"
    );
    assert!(has(&told.doing, "n3/d1 is waited for; within seconds"), "{told:?}");
    let owner = facts.nodes[0].report.as_mut().expect("it runs");
    owner.owned[0].legs[1].is_silent = true;
    assert!(
        has(&volume(&facts).must_not, "switch off n1: no other node"),
        "the others cannot stand in for it"
    );
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
    assert!(
        has(&told.why, "lack writes that were answered without them, and are brought up to date"),
        "{told:?}"
    );
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
    assert!(has(&told.must_not, "pull, wipe or replace n1/d1, n2/d1, n3/d1"), "{told:?}");
    assert!(has(&told.doing, "n3/d1 is waited for: nothing is built elsewhere"), "{told:?}");
    assert!(has(&told.may, "bring n3 back") && !has(&told.may, "retire"), "{told:?}");
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
    assert!(has(&told.must_not, "pull, wipe or replace n1/d1, n2/d1, n3/d1"), "{told:?}");
    assert!(has(&told.why, "on n3/d1 are lost: the drive was given up"), "{told:?}");
}

#[tokio::test]
async fn a_volume_that_nobody_serves_is_about_to_start() {
    let mut facts = facts().await;
    facts.nodes[0].report.as_mut().expect("it runs").owned[0].is_serving = false;
    let told = volume(&facts);
    assert_eq!(states(&told), "Starting");
    assert!(has(&told.why, "it has just been made, or its owner is gone"), "{told:?}");
    assert!(has(&told.doing, "a node that has a copy takes it, within seconds"), "{told:?}");
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
    assert!(has(&told(&old).why, "does not use it: DRIVE_IS_OLD: an old image"), "{:?}", told(&old));

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
async fn copies_that_share_a_rack_say_so_as_long_as_they_can_move() {
    let mut facts = facts().await;
    let racks = |facts: &mut Facts, racks: [&str; 3]| {
        for (node, rack) in facts.nodes.iter_mut().zip(racks) {
            node.record.as_mut().expect("it is known").place.rack = Some(rack.to_owned());
        }
    };
    racks(&mut facts, ["a", "b", "c"]);
    assert_eq!(states(&volume(&facts)), "OK");
    // Two racks are not enough for three copies, so nodes are what keeps them apart.
    racks(&mut facts, ["a", "a", "b"]);
    assert_eq!(states(&volume(&facts)), "OK");
    // Of two copies both are in rack a, and there is room in b.
    facts.volumes[0].record.copies = 2;
    for set in &mut facts.volumes[0].sets {
        set.members.retain(|member| member.drive != drive_id(3));
    }
    let told = volume(&facts);
    assert_eq!(states(&told), "Suboptimal");
    assert!(has(&told.why, "share a site, rack or chassis"), "{told:?}");
    assert!(has(&told.doing, "move apart by themselves"), "{told:?}");
}

#[tokio::test]
async fn a_slow_drive_says_what_its_slowness_leads_to() {
    for (times, rest_left_ms, doing) in [
        (0, 0, "writes wait for it"),
        (1, 0, "taken out 1 time, and are brought back"),
        (2, 90_000, "taken out 2 times; they are brought back in 1 min 30 s, or when they are needed"),
    ] {
        let mut facts = facts().await;
        let owner = facts.nodes[0].report.as_mut().expect("it runs");
        owner.drives_slow = vec![DriveSlow { drive: drive_id(3), slow_ms: 4000, times, rest_left_ms }];
        let told = facts.explain_drive("n3/d1").expect("it is there");
        assert_eq!(states(&told), "Abnormal Latency");
        assert!(has(&told.why, "ten times as long as those of others, for 4 s"), "{told:?}");
        assert!(has(&told.doing, doing), "{told:?}");
        assert!(has(&told.may, "spandrel drive remove n3/d1"), "{told:?}");
        assert_eq!(states(&facts.explain_drive("n2/d1").expect("it is there")), "OK");
    }
}

/// Copies that rest as their drive was slow are not said to be brought up to date; and nobody is told to take a slow drive
/// out on which something hangs.
#[tokio::test]
async fn copies_that_rest_are_said_to_and_a_slow_drive_that_is_needed_is_not_given_up() {
    let mut facts = facts().await;
    for (rest_left_ms, why) in [
        (0, "lack writes that were answered without them, and are brought up to date"),
        (
            90_000,
            "lack writes that were answered without them, as it is slow; they are brought up to date in 1 min 30 s, or",
        ),
    ] {
        facts.volumes[0].marks = [(drive_id(3), Version::ZERO)].into();
        let owner = facts.nodes[0].report.as_mut().expect("it runs");
        owner.drives_slow = vec![DriveSlow { drive: drive_id(3), slow_ms: 4000, times: 1, rest_left_ms }];
        let told = volume(&facts);
        assert!(has(&told.why, why), "{told:?}");
        assert!(has(&facts.explain_drive("n3/d1").expect("it is there").may, "drive remove n3/d1"));
        facts.volumes[0].marks = [(drive_id(2), Version::ZERO)].into();
        let told = facts.explain_drive("n3/d1").expect("it is there");
        assert!(!has(&told.may, "drive remove"), "{told:?}");
    }
}

#[tokio::test]
async fn a_drive_with_the_only_copies_must_stay() {
    let mut facts = facts().await;
    for marked in [1, 2] {
        facts.volumes[0].marks.insert(drive_id(marked), Version::ZERO);
    }
    let told = facts.explain_drive("n3/d1").expect("it is there");
    assert!(
        has(&told.must_not, "pull, wipe or replace it: no other copies of parts of v1 are whole"),
        "{told:?}"
    );
    let told = facts.explain_drive("n2/d1").expect("it is there");
    assert!(has(&told.must_not, "replace it yet: other copies of v1 are away, out of date"), "{told:?}");
}

#[tokio::test]
async fn a_node_that_is_down_says_what_hangs_on_it() {
    let mut facts = without_n3().await;
    let told = node(&facts, 2);
    assert_eq!((states(&told).as_str(), told.since_ms), ("Down", Some(60_000)));
    assert!(has(&told.why, "2 copies of slabs are on its 1 drive"), "{told:?}");
    assert!(has(&told.doing, "the node is waited for; if it stays away, what it holds is built"), "{told:?}");
    assert!(has(&told.may, "start it: `spandrel node start n3`") && told.must_not.is_empty(), "{told:?}");
    facts.are_servers = true;
    assert!(has(&node(&facts, 2).may, "start it: `spandrel node run` on its server"));
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
    let told = facts.explain_pool(&settings());
    assert_eq!(states(&told), "Incomplete");
    assert!(has(&told.must_not, "before most are back"), "{told:?}");
}

/// What nobody may be told to do to a drive that is called so, or to its node.
fn gives_up(advice: &str, drive: &str, node: &str) -> bool {
    let of_drive = [format!("drive remove {drive}"), format!("drive retire {drive}")];
    let of_node = format!("node remove {node}");
    of_drive.iter().any(|words| advice.contains(words)) || advice.contains(&of_node)
}

/// Of three copies each is whole or not, each drive works, is retired or given up, and can be reached, is broken or away
/// with its node; and all of that may be so before the copies were compared.
#[tokio::test]
async fn nobody_is_told_to_give_up_what_no_other_drive_has() {
    let states = [DriveState::Active, DriveState::Retired, DriveState::Failed];
    // A number for each drive: whether it is whole, its state, and how it is reached.
    let kinds: u64 = 2 * 3 * 3;
    let mut told_of = 0;
    let mut facts = facts().await;
    for number in 0..kinds.pow(3) {
        let of_drive = |drive: u64| (number / kinds.pow(drive as u32 - 1)) % kinds;
        facts.generation = u32::from(number % 97 == 0);
        let is_settled = facts.generation == 0;
        facts.volumes[0].marks.clear();
        facts.nodes = (1..=3).map(|number| known_node(number, node_report(number))).collect();
        for drive in 1..=3 {
            let kind = of_drive(drive);
            if kind % 2 == 1 {
                facts.volumes[0].marks.insert(drive_id(drive), Version::ZERO);
            }
            facts.room.drives.get_mut(&drive_id(drive)).expect("it is there").state =
                states[(kind / 2 % 3) as usize];
            match kind / 6 {
                0 => {}
                1 => {
                    let report = facts.nodes[drive as usize - 1].report.as_mut().expect("it runs");
                    report.drives[0].failure = Some("no answer".to_owned());
                }
                _ => {
                    let node = &mut facts.nodes[drive as usize - 1];
                    (node.report, node.is_alive) = (None, false);
                    let others = facts.nodes.iter_mut().filter_map(|other| other.report.as_mut());
                    others.for_each(|report| report.reachable.retain(|other| *other != node_id(drive)));
                }
            }
        }
        let helps =
            |drive: u64| of_drive(drive) % 2 == 0 && of_drive(drive) / 2 % 3 < 2 && of_drive(drive) / 6 == 0;
        let has_all = |drive: u64| of_drive(drive) % 2 == 0 && of_drive(drive) / 2 % 3 < 2;
        let volume = volume(&facts);
        let faults = facts.faults(&[], 10_009);
        for drive in 1..=3 {
            let (name, node_name) = (format!("n{drive}/d1"), format!("n{drive}"));
            let others = (1..=3).filter(|other| *other != drive && helps(*other)).count();
            let of_drive = facts.explain_drive(&name).expect("it is there");
            let of_node = node(&facts, drive as usize - 1);
            let mut advice: Vec<&String> =
                volume.may.iter().chain(&of_drive.may).chain(&of_node.may).collect();
            advice.extend(faults.iter().flat_map(|fault| &fault.actions));
            let gives_up = |line: &&&String| gives_up(line, &name, &node_name);
            if let Err(error) = facts.check_not_last("it stays", &[drive_id(drive)].into()) {
                let is_elsewhere = (1..=3).any(|other| other != drive && has_all(other));
                assert_eq!(error.next.contains("backup"), !is_elsewhere, "{number}: {error}");
                assert_eq!(error.next.contains("delete nothing"), is_elsewhere, "{number}: {error}");
            }
            let found: Vec<_> = advice.iter().filter(gives_up).collect();
            if others == 0 || !is_settled {
                assert!(found.is_empty(), "{number}: {found:?}");
                assert!(has(&of_drive.must_not, "pull, wipe or replace it"), "{number}: {of_drive:?}");
                assert!(
                    !has(&of_drive.may, "replace it") && !has(&of_drive.may, "pull"),
                    "{number}: {of_drive:?}"
                );
            } else if others == 1 {
                assert!(found.iter().all(|line| line.contains("retire")), "{number}: {found:?}");
                assert!(has(&of_drive.must_not, "pull, wipe or replace it yet"), "{number}: {of_drive:?}");
                assert!(
                    !has(&of_drive.may, "replace it") && !has(&of_drive.may, "pull"),
                    "{number}: {of_drive:?}"
                );
            } else {
                told_of += found.len();
            }
        }
    }
    assert!(told_of > 100, "whoever may do something is told so: {told_of}");
}

#[tokio::test]
async fn a_volume_whose_state_was_put_back_is_no_case_for_repairs() {
    let mut facts = without_n3().await;
    facts.generation = 1;
    let told = volume(&facts);
    assert!(
        has(&told.why, "the cluster's state was put back") && has(&told.may, "spandrel cluster settle"),
        "{told:?}"
    );
    assert!(has(&told.must_not, "any drive or server: it may have what counts"), "{told:?}");
    assert!(!has(&told.doing, "within seconds") && !has(&told.may, "retire"), "{told:?}");
    let owner = facts.nodes[0].report.as_mut().expect("it runs");
    owner.owned[0].waits_for =
        Some(format!("drive {} holds more: `settle --without-growth VOLUME`", drive_id(3)));
    let told = volume(&facts);
    assert!(has(&told.why, "it waits: drive n3/d1 holds more: `settle --without-growth v1`"), "{told:?}");
    let faults = facts.faults(&[], 10_009);
    let told = faults.iter().find(|fault| fault.kind == "volume.not-compared").expect("it is one");
    assert!(told.severity == Severity::Critical && told.reason.contains("n3/d1 holds more"), "{told:?}");
    let pool = facts.explain_pool(&settings());
    assert!(has(&pool.why, "was put back") && has(&pool.must_not, "before that is over"), "{pool:?}");
}

#[tokio::test]
async fn several_troubles_of_a_volume_are_all_told() {
    let mut both = without_n3().await;
    both.volumes[0].marks.insert(drive_id(2), Version::ZERO);
    let told = volume(&both);
    assert_eq!(states(&told), "Degraded, Incomplete");
    assert!(
        has(&told.why, "on n2/d1 lack writes") && has(&told.why, "on n3/d1 cannot be reached"),
        "{told:?}"
    );

    let mut lost = facts().await;
    for marked in [1, 2, 3] {
        lost.volumes[0].marks.insert(drive_id(marked), Version::ZERO);
    }
    let owner = lost.nodes[0].report.as_mut().expect("it runs");
    owner.owned[0].legs[2] = leg(3, "joining");
    let told = volume(&lost);
    assert_eq!(states(&told), "No Redundancy, Degraded, In Service");
    assert!(has(&told.why, "data is lost") && has(&told.why, "are being brought up to date"), "{told:?}");
}

/// It is missing, though its server runs.
#[tokio::test]
async fn a_drive_that_its_node_runs_without_is_looked_for() {
    let mut facts = facts().await;
    facts.nodes[2].report.as_mut().expect("it runs").drives.clear();
    let told = facts.explain_drive("n3/d1").expect("it is there");
    assert_eq!(states(&told), "Lost Communication");
    assert!(has(&told.why, "n3 runs without it") && has(&told.may, "look at its cables"), "{told:?}");
    assert!(!has(&told.may, "spandrel explain"), "that says no more: {told:?}");
}

/// A drive whose identity cannot be read may be one of the pool's.
#[tokio::test]
async fn a_drive_that_cannot_be_read_is_told_and_not_to_be_wiped() {
    let mut facts = facts().await;
    let report = facts.nodes[2].report.as_mut().expect("it runs");
    report.drives[0].drive = None;
    report.drives[0].failure = Some("superblocks are damaged".to_owned());
    let told = facts.explain_drive("n3/?").expect("it is shown");
    assert_eq!(states(&told), "Not Usable");
    assert!(
        has(&told.why, "superblocks are damaged") && has(&told.may, "drive inspect /x/n3/d1.drive"),
        "{told:?}"
    );
    assert!(has(&told.must_not, "it may be one of them, damaged"), "{told:?}");
    let faults = facts.faults(&[], 10_009);
    assert!(
        faults.iter().any(|fault| fault.object == "drive n3/?" && !fault.must_not.is_empty()),
        "{faults:?}"
    );
    assert_eq!(facts.explain_drive("n9/d1").expect_err("there is none").code, "DRIVE_NOT_FOUND");
}

/// The same without a volume.
async fn emptied() -> Facts {
    let mut facts = facts().await;
    facts.volumes.clear();
    facts.room.volumes.clear();
    facts
}

#[tokio::test]
async fn a_retired_drive_is_pulled_when_it_is_empty() {
    let mut facts = facts().await;
    facts.room.drives.get_mut(&drive_id(3)).expect("it is there").state = DriveState::Retired;
    let told = facts.explain_drive("n3/d1").expect("it is there");
    assert!(has(&told.must_not, "pull or wipe it before it is empty"), "{told:?}");
    assert!(!has(&told.may, "drive remove") && has(&told.may, "retire --undo n3/d1"), "{told:?}");
    // It works all the same.
    assert_eq!(states(&facts.explain_pool(&settings())), "OK");
    let mut empty = emptied().await;
    empty.room.drives = facts.room.drives.clone();
    let told = empty.explain_drive("n3/d1").expect("it is there");
    assert!(has(&told.may, "`spandrel drive remove n3/d1`, and pull it then"), "{told:?}");
    assert!(told.must_not.is_empty(), "{told:?}");
}

#[tokio::test]
async fn a_node_that_is_down_is_taken_out_only_if_nothing_hangs_on_it() {
    let mut facts = without_n3().await;
    // The state shows that it has run until a moment ago.
    let told = node(&facts, 2);
    assert!(
        has(&told.why, "it does not answer, though it has run") && !has(&told.may, "node remove"),
        "{told:?}"
    );
    facts.nodes[2].is_alive = false;
    facts
        .nodes
        .iter_mut()
        .filter_map(|node| node.report.as_mut())
        .for_each(|report| report.reachable.clear());
    assert!(has(&node(&facts, 2).may, "spandrel node remove n3"), "{:?}", node(&facts, 2));
    pause(&mut facts, 2);
    let told = node(&facts, 2);
    assert_eq!(states(&told), "Down, Paused");
    assert!(has(&told.doing, "its node is in maintenance"), "{told:?}");
    facts.volumes[0].marks.extend([1, 2].map(|marked| (drive_id(marked), Version::ZERO)));
    let told = node(&facts, 2);
    assert!(!has(&told.may, "node remove"), "{told:?}");
    assert!(
        has(&told.must_not, "take it out of the cluster or wipe its drives: no other copies"),
        "{told:?}"
    );
    assert!(has(&told.doing, "nothing is built elsewhere as long as"), "{told:?}");
}
