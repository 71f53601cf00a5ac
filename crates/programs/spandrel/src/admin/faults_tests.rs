use spandrel_cluster::DriveState;
use spandrel_node::DriveAway;
use spandrel_shared::Version;

use super::*;
use crate::admin::testing::*;

fn faults(facts: &Facts) -> Vec<Fault> {
    faults_with(facts, &[])
}

/// Without what it says of the pool's reserve: three small drives have none.
fn faults_with(facts: &Facts, members: &[StateMember]) -> Vec<Fault> {
    let mut faults = facts.faults(members, 10_009);
    faults.retain(|fault| fault.kind != "pool.reserve");
    faults
}

/// The kinds of faults, and what has them.
fn kinds(facts: &Facts) -> Vec<String> {
    faults(facts).into_iter().map(|fault| format!("{} of {}", fault.kind, fault.object)).collect()
}

#[tokio::test]
async fn a_fault_is_there_as_long_as_its_cause() {
    let mut facts = facts().await;
    assert_eq!(kinds(&facts), Vec::<String>::new());
    facts.nodes[2].report.as_mut().expect("it runs").drives[0].failure = Some("no answer".to_owned());
    let found = faults(&facts);
    assert_eq!(kinds(&facts), ["drive.not-usable of drive n3/d1", "volume.needs-repair of volume v1"]);
    assert_eq!((found[0].severity, found[0].place.as_deref()), (Severity::Major, Some("n3: /x/n3/d1.drive")));
    assert!(found[0].reason.contains("no answer") && !found[0].actions.is_empty(), "{found:?}");
    facts.nodes[2].report.as_mut().expect("it runs").drives[0].failure = None;
    assert_eq!(kinds(&facts), Vec::<String>::new());
}

#[tokio::test]
async fn a_node_that_is_down_hides_its_drives_and_its_vote() {
    let mut facts = facts().await;
    facts.nodes[2].report = None;
    let away = DriveAway { drive: drive_id(3), away_ms: 60_000, is_waited_for: true, left_ms: Some(1000) };
    facts.nodes[0].report.as_mut().expect("it runs").drives_away = vec![away];
    let member = |number: u64, runs| StateMember {
        name: format!("n{number}"),
        server: Some(node_id(number)),
        runs,
        votes: true,
        leads: number == 1,
        endpoints: vec![format!("https://10.0.0.{number}:7443")],
    };
    let members = [member(1, true), member(2, true), member(3, false)];
    let found = faults_with(&facts, &members);
    let kinds: Vec<&str> = found.iter().map(|fault| fault.kind.as_str()).collect();
    assert_eq!(kinds, ["server.down", "volume.needs-repair"], "{found:?}");
    assert_eq!((found[0].since_ms, found[0].place.as_deref()), (Some(60_000), Some("10.0.0.3:7440")));

    let witness = StateMember { name: "w".to_owned(), ..member(9, false) };
    let found = faults_with(&facts, &[member(1, true), member(2, true), witness]);
    let state = found.iter().find(|fault| fault.kind == "state.member").expect("the witness is no node");
    assert_eq!((state.object.as_str(), state.severity), ("server w", Severity::Major));
    assert!(state.reason.contains("2 of 3 that vote run"), "{state:?}");
}

#[tokio::test]
async fn the_most_severe_come_first() {
    let mut facts = facts().await;
    pause(&mut facts, 1);
    facts.nodes[2].report.as_mut().expect("it runs").drives[0].blocks_damaged = 2;
    for marked in [1, 2] {
        facts.volumes[0].marks.insert(drive_id(marked), Version::ZERO);
    }
    facts.room.drives.get_mut(&drive_id(3)).expect("it is there").state = DriveState::Failed;
    let severities: Vec<Severity> = faults(&facts).iter().map(|fault| fault.severity).collect();
    assert_eq!(severities.first(), Some(&Severity::Critical), "{:?}", faults(&facts));
    assert!(severities.is_sorted_by(|one, next| one >= next), "{severities:?}");
    assert!(kinds(&facts).contains(&"server.maintenance of node n2".to_owned()), "{:?}", kinds(&facts));
}

#[tokio::test]
async fn a_pool_without_room_for_repairs_or_place_for_copies_says_so() {
    let mut tight = facts().await;
    tight.room.volumes.values_mut().for_each(|room| room.slabs.values_mut().for_each(|slabs| *slabs = 13));
    tight.nodes[0].report.as_mut().expect("it runs").owned[0].copies_without_place = 3;
    let found = tight.faults(&[], 10_009);
    let reserve = found.iter().find(|fault| fault.kind == "pool.reserve").expect("little is free");
    assert!(reserve.reason.contains("12 MiB are free, and 168 MiB should be"), "{reserve:?}");
    let place = found.iter().find(|fault| fault.kind == "pool.place").expect("copies wait");
    assert!(place.reason.starts_with("3 copies of slabs"), "{place:?}");
}

/// The settings are damaged, say: everything else is told all the same, and that they could not be read.
#[tokio::test]
async fn what_cannot_be_read_of_the_state_is_told_beside_the_rest() {
    let mut facts = facts().await;
    facts.nodes[2].report.as_mut().expect("it runs").drives[0].failure = Some("no answer".to_owned());
    facts.unreadable.push(Error::new(
        "STATE_DAMAGED",
        "the settings cannot be used",
        "no JSON",
        "restore a backup",
    ));
    let found = faults(&facts);
    assert_eq!(
        kinds(&facts),
        [
            "state.unreadable of cluster's state",
            "drive.not-usable of drive n3/d1",
            "volume.needs-repair of volume v1"
        ]
    );
    assert!(found[0].reason.contains("the settings cannot be used: no JSON"), "{found:?}");
    assert_eq!(found[0].actions, ["restore a backup"]);
}

/// What follows from the cache drive is not told of the drives behind it, nor of its own while the node is down.
#[tokio::test]
async fn a_cache_drive_that_is_missing_old_or_dead_is_a_fault_and_its_drives_are_none() {
    for (failure, kind) in [
        (None, "cache.lost-communication"),
        (Some("it does not answer"), "cache.not-usable"),
        (Some("it is an old image"), "cache.metadata"),
    ] {
        let mut facts = cached_facts().await;
        assert_eq!(kinds(&facts), Vec::<String>::new());
        lose_cache(&mut facts, failure);
        let found = faults(&facts);
        assert_eq!(
            kinds(&facts),
            [format!("{kind} of drive n1/c1"), "volume.needs-repair of volume v1".to_owned()]
        );
        assert_eq!((found[0].severity, found[0].since_ms), (Severity::Major, Some(60_000)), "{found:?}");
        assert!(found[0].place.as_deref().is_some_and(|place| place.starts_with("n1")), "{found:?}");
        facts.nodes[0].report = None;
        assert!(!kinds(&facts).iter().any(|kind| kind.starts_with("cache")), "{:?}", kinds(&facts));
    }
}

#[tokio::test]
async fn a_cache_drive_on_its_way_out_is_told_and_more_so_if_it_cannot_be_emptied() {
    let mut facts = cached_facts().await;
    facts.caches.get_mut(&cache_id()).expect("it is there").state = DriveState::Retired;
    assert_eq!(kinds(&facts), ["cache.draining of drive n1/c1"]);
    let mut told = facts.nodes[0].report.clone().expect("it runs");
    let stuck = Error::new("CACHE_NOT_DRAINED", "drive x keeps it", "there is no room", "make room");
    told.caches[0].obstacle = Some(stuck);
    facts.nodes[0].report = Some(told.clone());
    let found = faults(&facts);
    assert_eq!((found[0].kind.as_str(), found[0].severity), ("cache.failed-drain", Severity::Warning));
    assert!(
        found[0].reason.contains("no room") && found[0].actions.contains(&"make room".to_owned()),
        "{found:?}"
    );
    told.caches[0].obstacle = None;
    (told.drives[0].bound_to, told.drives[0].cache) = (None, None);
    facts.nodes[0].report = Some(told);
    assert_eq!(kinds(&facts), ["cache.retired of drive n1/c1"]);
}

#[tokio::test]
async fn a_cache_that_is_full_for_long_is_a_fault_and_so_is_having_none_for_long() {
    let mut facts = cached_facts().await;
    let full = |facts: &mut Facts, full_ms| {
        let drive = &mut facts.nodes[0].report.as_mut().expect("it runs").drives[0];
        drive.cache.as_mut().expect("it is bound").full_ms = Some(full_ms);
    };
    full(&mut facts, FULL_FOR_LONG_MS - 1);
    assert_eq!(kinds(&facts), Vec::<String>::new(), "a burst");
    full(&mut facts, FULL_FOR_LONG_MS);
    assert_eq!(kinds(&facts), ["cache.full of drive n1/d1"]);
    let drive = &mut facts.nodes[0].report.as_mut().expect("it runs").drives[0];
    (drive.bound_to, drive.cache) = (None, None);
    drive.without_cache_ms = Some(WITHOUT_FOR_LONG_MS - 1);
    assert_eq!(kinds(&facts), Vec::<String>::new());
    facts.nodes[0].report.as_mut().expect("it runs").drives[0].without_cache_ms = Some(WITHOUT_FOR_LONG_MS);
    let found = faults(&facts);
    assert_eq!(kinds(&facts), ["cache.unbound of drive n1/d1"]);
    assert_eq!(found[0].since_ms, Some(WITHOUT_FOR_LONG_MS), "{found:?}");
}

#[tokio::test]
async fn a_volume_that_nobody_serves_yet_is_no_fault_while_it_is_new() {
    let mut facts = facts().await;
    facts.nodes[0].report.as_mut().expect("it runs").owned.clear();
    facts.volumes[0].record.created_unix_ms = facts.gathered_unix_ms;
    assert_eq!(kinds(&facts), Vec::<String>::new());
    facts.gathered_unix_ms += NEW_FOR_MS - 1;
    assert_eq!(kinds(&facts), Vec::<String>::new());
    facts.gathered_unix_ms += 1;
    assert_eq!(kinds(&facts), ["volume.starting of volume v1"]);
    facts.volumes[0].record.created_unix_ms = facts.gathered_unix_ms + 1;
    assert_eq!(kinds(&facts), ["volume.starting of volume v1"], "of a clock that is ahead");
}
