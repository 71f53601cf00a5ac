use spandrel_node::{DriveAway, LegReport};
use spandrel_shared::Version;

use super::*;
use crate::admin::testing::*;

/// The third drive's copies are being built on a fourth one, in a node of its own.
async fn with_a_move() -> Facts {
    let mut facts = facts().await;
    let mut node = node_report(4);
    node.owned.clear();
    facts.nodes.push(known_node(4, node));
    facts.room.drives.insert(drive_id(4), drive_record(4));
    facts.drive_names.insert(drive_id(4), "n4/d1".to_owned());
    let volume = &mut facts.volumes[0];
    volume.nodes.insert(drive_id(4), node_id(4));
    for set in &mut volume.sets {
        let former = *set.on(drive_id(3)).expect("it has a copy");
        set.members.push(Member { drive: drive_id(4), building: true, ..former });
    }
    let owner = facts.nodes[0].report.as_mut().expect("it runs");
    owner.owned[0].legs.push(LegReport {
        is_building: true,
        resync_pages: Some((1, 4)),
        resync_copied_bytes: 1 << 21,
        resync_ms: 500,
        ..leg(4, "joining")
    });
    facts
}

#[tokio::test]
async fn a_pool_at_rest_does_nothing() {
    let details = facts().await.pool_details(&SettingsRecord::default());
    assert_eq!(details.jobs, []);
    assert_eq!((details.copies_to_replace, details.copies_to_spread), (0, 0));
    assert_eq!(details.fullest.map(|fill| fill.promised_per_mille), Some(1000 * 2 / 14));
}

#[tokio::test]
async fn copies_that_go_to_an_empty_drive_are_a_rebalance() {
    let details = with_a_move().await.pool_details(&SettingsRecord::default());
    let [job] = &details.jobs[..] else { panic!("{:?}", details.jobs) };
    assert_eq!((job.kind, job.drive.as_str(), job.slabs), (JobKind::Rebalance, "n4/d1", 2));
    assert_eq!((job.bytes_per_second(), job.left_ms()), (Some(1 << 22), Some(1500)));
}

#[tokio::test]
async fn copies_that_make_up_for_others_are_a_regeneration() {
    let kind = |facts: &Facts| facts.pool_details(&SettingsRecord::default()).jobs[0].kind;
    let mut stale = with_a_move().await;
    stale.volumes[0].marks.insert(drive_id(3), Version::ZERO);
    assert_eq!(kind(&stale), JobKind::Regeneration);
    let mut retired = with_a_move().await;
    retired.room.drives.get_mut(&drive_id(3)).expect("it is there").state = DriveState::Retired;
    assert_eq!(kind(&retired), JobKind::Regeneration);
    assert_eq!(
        retired.pool_details(&SettingsRecord::default()).copies_to_replace,
        0,
        "all of them are being built"
    );
    let mut away = with_a_move().await;
    let missed = |is_waited_for| DriveAway { drive: drive_id(3), away_ms: 5, is_waited_for, left_ms: None };
    away.nodes[1].report.as_mut().expect("it runs").drives_away = vec![missed(true)];
    assert_eq!(kind(&away), JobKind::Rebalance, "it is waited for");
    away.nodes[1].report.as_mut().expect("it runs").drives_away = vec![missed(false)];
    assert_eq!(kind(&away), JobKind::Regeneration);
}

#[tokio::test]
async fn copies_wait_that_have_no_other_place() {
    let mut facts = facts().await;
    facts.room.drives.get_mut(&drive_id(3)).expect("it is there").state = DriveState::Retired;
    facts.nodes[0].report.as_mut().expect("it runs").owned[0].copies_without_place = 2;
    let details = facts.pool_details(&SettingsRecord::default());
    assert_eq!((details.copies_to_replace, details.copies_without_place), (2, 2));
}

/// Two thirds of the copies can go to a new drive; what lies with the owner stays there.
#[tokio::test]
async fn an_empty_drive_makes_a_pool_uneven() {
    let mut facts = with_a_move().await;
    for set in &mut facts.volumes[0].sets {
        set.members.retain(|member| !member.building);
    }
    facts.nodes[0].report.as_mut().expect("it runs").owned[0].legs.truncate(3);
    facts.room.drives.values_mut().for_each(|drive| drive.slabs_promised_max = 8);
    let details = facts.pool_details(&SettingsRecord::default());
    assert_eq!(details.emptiest.map(|fill| fill.drive).as_deref(), Some("n4/d1"));
    assert_eq!(details.copies_to_spread, 1);
    assert_eq!(facts.volumes()[0].status.to_string(), "Healthy (Suboptimal)");
}

#[tokio::test]
async fn a_shorter_time_is_told_with_what_is_over_at_once() {
    let mut facts = facts().await;
    facts.nodes[2].report = None;
    let away = spandrel_node::DriveAway {
        drive: drive_id(3),
        away_ms: 1_200_000,
        is_waited_for: true,
        left_ms: None,
    };
    facts.nodes[0].report.as_mut().expect("it runs").drives_away = vec![away];
    let before = SettingsRecord::default();
    let changed = |change: PoolSettingsChange| {
        let mut after = before.clone();
        apply(&change, &mut after);
        facts.given_up_at_once(&before, &after)
    };
    assert_eq!(changed(PoolSettingsChange { retire_slow: Some(true), ..Default::default() }), [""; 0]);
    // Its node is away, too.
    assert_eq!(
        changed(PoolSettingsChange { rebuild_after_drive_s: Some(60), ..Default::default() }),
        [""; 0]
    );
    assert_eq!(
        changed(PoolSettingsChange { rebuild_after_node_s: Some(600), ..Default::default() }),
        ["n3/d1 has been away for 20 min: its 2 copies of slabs are built elsewhere at once then"]
    );
}

#[test]
fn memory_that_a_server_does_not_have_is_not_promised() {
    assert_eq!(check_memory(0, 1 << 30), Ok(()));
    assert_eq!(check_memory(800 << 20, 1000 << 20), Ok(()));
    let refused = check_memory(801 << 20, 1000 << 20).unwrap_err();
    assert_eq!(refused.code, "MEMORY_TOO_SMALL");
    assert!(refused.next.contains("800 MiB"), "{}", refused.next);
    for bytes in [1, 1024, (1 << 20) - 1] {
        assert_eq!(check_memory(bytes, 1 << 30).unwrap_err().code, "MEMORY_CACHE_TOO_SMALL");
    }
    assert_eq!(check_memory(1 << 20, 1 << 30), Ok(()));
    assert!(memory_of_this_server() > 64 << 20);
}

#[test]
fn maps_have_all_the_memory_that_they_need_or_enough_to_work_with() {
    for bytes in [0, 16 << 20, 8 << 30] {
        assert_eq!(check_map_memory(bytes, 10 << 30), Ok(()));
    }
    let refused = check_map_memory(9 << 30, 10 << 30).unwrap_err();
    assert_eq!(refused.code, "MEMORY_TOO_SMALL");
    assert!(
        refused.why.contains("9 GiB of memory for the maps") && refused.next.contains("8 GiB"),
        "{refused}"
    );
    for bytes in [1, 4096, (16 << 20) - 1] {
        let refused = check_map_memory(bytes, 10 << 30).unwrap_err();
        assert_eq!(refused.code, "MAP_MEMORY_TOO_SMALL");
        assert!(refused.next.contains("16 MiB"), "{}", refused.next);
    }
}
