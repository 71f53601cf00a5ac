//! Cache drives that leave: retired ones are emptied, and dead ones are given up by themselves.

use spandrel_cluster::{DriveState, VolumeMembership};
use spandrel_node::CacheDriveReport;
use spandrel_platform_simulated::Repeat;
use spandrel_shared::witness::{self, Rare};

use super::*;

fn cache_report(nodes: &NodesWorld, index: usize, cache: DriveId) -> Option<CacheDriveReport> {
    report(nodes, index)?.caches.into_iter().find(|known| known.drive == Some(cache))
}

/// The cache drive at this place of a node.
fn cache_at(nodes: &NodesWorld, index: usize, place: usize) -> DriveId {
    let location = nodes.caches(index)[place].name();
    let caches = report(nodes, index).unwrap().caches;
    caches.iter().find(|cache| cache.location == location).and_then(|cache| cache.drive).expect("it is used")
}

fn all_work(nodes: &NodesWorld, index: usize) -> bool {
    report(nodes, index).is_some_and(|report| report.drives.iter().all(|drive| drive.failure.is_none()))
}

/// Which cache drives the drives of a node have.
fn bound_to(nodes: &NodesWorld, index: usize) -> Vec<DriveId> {
    caches_of(nodes, index).iter().map(|cache| cache.drive).collect()
}

#[test]
fn drives_leave_a_cache_drive_that_is_retired_for_another_one_and_come_back() {
    let nodes = cached(20, 2, 2);
    write_all(&nodes, 0, 100);
    let (leaving, other) = (cache_at(&nodes, 1, 0), cache_at(&nodes, 1, 1));
    nodes.decide_drive(leaving, DriveState::Retired);
    let has_left = || bound_to(&nodes, 1) == [other; 2];
    assert_eq!(nodes.run_until(has_left), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    assert_eq!(cache_report(&nodes, 1, leaving).unwrap().bound, []);
    await_health(&nodes);
    assert_eq!(read_all(&nodes, 1), values(100));
    nodes.stop(1, true);
    nodes.start(1);
    await_health(&nodes);
    assert_eq!(bound_to(&nodes, 1), [other; 2], "it is retired also after a start");
    nodes.decide_drive(leaving, DriveState::Active);
    let is_even = || bound_to(&nodes, 1).contains(&leaving) && bound_to(&nodes, 1).contains(&other);
    assert_eq!(nodes.run_until(is_even), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    await_health(&nodes);
    assert_eq!(read_all(&nodes, 1), values(100));
}

#[test]
fn a_retired_cache_drive_keeps_what_is_needed_and_is_let_go_of_when_it_is_removed() {
    let nodes = cached(21, 2, 1);
    write_all(&nodes, 0, 100);
    let leaving = cache_id(&nodes, 1);
    nodes.stop(0, true);
    nodes.stop(2, true);
    let is_alone = || report(&nodes, 1).is_some_and(|report| report.alive == [node_id(1)]);
    assert_eq!(nodes.run_until(is_alone), RunEnd::ConditionMet);
    nodes.decide_drive(leaving, DriveState::Retired);
    let waits = || cache_report(&nodes, 1, leaving).is_some_and(|cache| cache.obstacle.is_some());
    assert_eq!(nodes.run_until(waits), RunEnd::ConditionMet);
    assert_eq!(bound_to(&nodes, 1).len(), 2, "nobody else has what these hold");
    nodes.start(0);
    nodes.start(2);
    let is_empty = || all_work(&nodes, 1) && bound_to(&nodes, 1).is_empty();
    assert_eq!(nodes.run_until(is_empty), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    remove_cache(&nodes, leaving);
    let (node, process) = (nodes.node(1).unwrap(), nodes.process(1).unwrap());
    let let_go = process.block_on(async move { node.drives_let_go().await });
    assert_eq!(let_go, Ok(vec![nodes.caches(1)[0].name().to_owned()]));
    assert!(report(&nodes, 1).unwrap().caches.is_empty());
    await_health(&nodes);
    assert_eq!(read_all(&nodes, 1), values(100));
}

/// For how many milliseconds a node has missed a cache drive.
fn missed_ms(nodes: &NodesWorld, index: usize, cache: DriveId) -> Option<u64> {
    let report = report(nodes, index)?;
    report.caches_away.iter().find(|away| away.drive == cache).map(|away| away.away_ms)
}

#[test]
fn a_cache_drive_that_is_missed_for_too_long_is_given_up_once_others_have_all_copies() {
    let nodes = cached(22, 2, 1);
    nodes.change_settings(|settings| settings.rebuild_after_drive_s = 5);
    write_all(&nodes, 0, 100);
    let lost = cache_id(&nodes, 1);
    (0..3).for_each(|index| nodes.stop(index, true));
    nodes.caches(1)[0].pull_out();
    nodes.start(1);
    let is_over = || missed_ms(&nodes, 1, lost).is_some_and(|away_ms| away_ms > 10_000);
    assert_eq!(nodes.run_until(is_over), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    assert!(!all_work(&nodes, 1), "what is there alone may be needed");
    nodes.start(0);
    nodes.start(2);
    let is_given_up = || all_work(&nodes, 1) && missed_ms(&nodes, 1, lost).is_none();
    assert_eq!(nodes.run_until(is_given_up), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    await_health(&nodes);
    assert_eq!(read_all(&nodes, 1), values(100));
}

#[test]
fn a_cache_drive_that_dies_is_waited_for_and_then_given_up() {
    let nodes = cached(23, 2, 1);
    nodes.change_settings(|settings| settings.rebuild_after_drive_s = 10);
    write_all(&nodes, 0, 100);
    let dying = cache_id(&nodes, 1);
    nodes.caches(1)[0].die();
    write_all(&nodes, 0, 200);
    let is_seen = || missed_ms(&nodes, 1, dying).is_some();
    assert_eq!(nodes.run_until(is_seen), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    assert!(cache_report(&nodes, 1, dying).unwrap().failure.is_some());
    assert!(report(&nodes, 1).unwrap().drives.iter().all(|drive| drive.bound_to == Some(dying)));
    let is_given_up = || all_work(&nodes, 1) && cache_report(&nodes, 1, dying).is_none();
    assert_eq!(nodes.run_until(is_given_up), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    await_health(&nodes);
    assert_eq!(read_all(&nodes, 1), values(200));
}

/// A volume of one copy that is on a drive of node `index`, the only one there, and the place of that drive.
fn made_alone(nodes: &NodesWorld, index: usize) -> (String, usize) {
    for number in 0..20 {
        let name = format!("alone-{number}");
        let made = nodes.create_volume(index, &name, SLAB_BYTES, 1).expect("there is room");
        let snapshot = nodes.state.inspect(&VolumeMembership::selections(made.volume));
        let membership = VolumeMembership::decode(made.volume, &snapshot).unwrap().unwrap();
        let drive = membership.sets[0].members[0].drive;
        let own = report(nodes, index).unwrap().drives.into_iter().find(|own| own.drive == Some(drive));
        let place = |own: DriveReport| {
            nodes.drives(index).iter().position(|known| known.name() == own.location).unwrap()
        };
        if let Some(place) = own.map(place) {
            return (name, place);
        }
    }
    panic!("no copy has come to node {index}");
}

/// The same, written to.
fn written_alone(nodes: &NodesWorld, index: usize) -> (String, usize) {
    let (name, place) = made_alone(nodes, index);
    write_to(nodes, index, &name, 500);
    assert!(caches_of(nodes, index).iter().any(|cache| cache.blocks_dirty > 0));
    (name, place)
}

fn await_works(nodes: &NodesWorld, index: usize) {
    let works = || nodes.is_up(index) && all_work(nodes, index);
    assert_eq!(nodes.run_until(works), RunEnd::ConditionMet, "{:?}", report(nodes, index));
}

#[test]
fn a_cache_drive_is_not_given_up_while_a_drive_is_missing_that_may_need_it() {
    let nodes = cached(24, 2, 1);
    nodes.change_settings(|settings| settings.rebuild_after_drive_s = 5);
    let lost = cache_id(&nodes, 1);
    let (name, place) = written_alone(&nodes, 1);
    nodes.stop(1, true);
    nodes.caches(1)[0].pull_out();
    nodes.drives(1)[place].pull_out();
    nodes.start(1);
    let is_over = || missed_ms(&nodes, 1, lost).is_some_and(|away_ms| away_ms > 30_000);
    assert_eq!(nodes.run_until(is_over), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    assert!(
        is_known(&nodes, lost),
        "the other drive could go on without it, but nobody has what the missing one holds"
    );
    nodes.stop(1, true);
    nodes.caches(1)[0].plug_in();
    nodes.drives(1)[place].plug_in();
    nodes.start(1);
    await_works(&nodes, 1);
    assert_eq!(read_from(&nodes, 1, &name), values(500));
}

/// Whether the cluster's state knows a cache drive.
fn is_known(nodes: &NodesWorld, cache: DriveId) -> bool {
    let key = StateKey::CacheDrive(cache).key();
    nodes.state.inspect(&[Selection::key(&key)]).entry(0).is_some()
}

#[test]
fn what_stands_on_a_cache_drive_that_was_taken_out_while_its_node_was_down_is_moved_first() {
    let nodes = cached(25, 2, 1);
    let leaving = cache_id(&nodes, 1);
    let (name, _) = written_alone(&nodes, 1);
    nodes.stop(1, true);
    remove_cache(&nodes, leaving);
    nodes.start(1);
    await_works(&nodes, 1);
    let is_gone = || all_work(&nodes, 1) && report(&nodes, 1).unwrap().caches.is_empty();
    assert_eq!(nodes.run_until(is_gone), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    assert!(caches_of(&nodes, 1).is_empty());
    assert_eq!(read_from(&nodes, 1, &name), values(500), "nobody else has it");
    nodes.caches(1)[0].pull_out();
    nodes.stop(1, true);
    nodes.start(1);
    await_works(&nodes, 1);
    assert_eq!(read_from(&nodes, 1, &name), values(500));
}

#[test]
fn a_drive_stays_where_it_is_when_its_cache_drive_is_used_again_while_another_one_is_emptied() {
    let nodes = cached(26, 3, 1);
    write_all(&nodes, 0, 100);
    witness::take_reached();
    let cache = cache_id(&nodes, 1);
    for _ in 0..20 {
        nodes.decide_drive(cache, DriveState::Retired);
        let one_has_left = || bound_to(&nodes, 1).len() < 3;
        assert_eq!(nodes.run_until(one_has_left), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
        nodes.decide_drive(cache, DriveState::Active);
        let all_are_back = || all_work(&nodes, 1) && bound_to(&nodes, 1) == [cache; 3];
        assert_eq!(nodes.run_until(all_are_back), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    }
    await_health(&nodes);
    assert_eq!(read_all(&nodes, 1), values(100));
    let reached = Rare::ALL.into_iter().zip(witness::take_reached());
    let lost = reached.filter(|(rare, count)| *rare == Rare::CacheLost && *count > 0).count();
    assert_eq!(lost, 0, "no drive has gone on without what it had there");
}

/// Others have whole copies when its drive begins to be emptied, and none when that has ended.
#[test]
fn a_drive_that_is_needed_when_it_has_been_emptied_stays_where_it_is() {
    let nodes = cached(27, 1, 1);
    write_all(&nodes, 0, 100);
    let cache = cache_id(&nodes, 1);
    let asked = nodes.drives(1)[0].counters().writes;
    // It takes what is moved to it when the others are gone.
    nodes.drives(1)[0].fall_silent();
    nodes.decide_drive(cache, DriveState::Retired);
    let is_being_emptied = || nodes.drives(1)[0].counters().writes > asked;
    assert_eq!(nodes.run_until(is_being_emptied), RunEnd::ConditionMet);
    nodes.stop(0, true);
    nodes.stop(2, true);
    let is_alone = || report(&nodes, 1).is_some_and(|report| report.alive == [node_id(1)]);
    assert_eq!(nodes.run_until(is_alone), RunEnd::ConditionMet);
    nodes.drives(1)[0].revive();
    let obstacle = || cache_report(&nodes, 1, cache).and_then(|cache| cache.obstacle);
    assert_eq!(nodes.run_until(|| obstacle().is_some()), RunEnd::ConditionMet);
    assert_eq!(obstacle().unwrap().code, "CACHE_NOT_CHANGED");
    assert_eq!(bound_to(&nodes, 1), [cache], "nobody else has what it holds");
    nodes.start(0);
    nodes.start(2);
    let has_left = || all_work(&nodes, 1) && bound_to(&nodes, 1).is_empty();
    assert_eq!(nodes.run_until(has_left), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    await_health(&nodes);
    assert_eq!(read_all(&nodes, 1), values(100));
}

#[test]
fn nothing_is_told_of_a_cache_drive_that_is_used_again_while_it_is_emptied() {
    let nodes = cached(28, 1, 1);
    write_all(&nodes, 0, 100);
    let cache = cache_id(&nodes, 1);
    let asked = nodes.drives(1)[0].counters().writes;
    nodes.drives(1)[0].fall_silent();
    nodes.decide_drive(cache, DriveState::Retired);
    let is_being_emptied = || nodes.drives(1)[0].counters().writes > asked;
    assert_eq!(nodes.run_until(is_being_emptied), RunEnd::ConditionMet);
    nodes.decide_drive(cache, DriveState::Active);
    assert_eq!(nodes.run_until(|| !nodes.is_deciding()), RunEnd::ConditionMet);
    // What is on its way to the drive has not arrived when the node has seen that.
    let clock = nodes.clients().platform();
    let seen_by = clock.now() + Duration::from_secs(10);
    assert_eq!(nodes.run_until(|| clock.now() >= seen_by), RunEnd::ConditionMet);
    nodes.drives(1)[0].revive();
    let is_used_again = || {
        write_all(&nodes, 0, 200);
        caches_of(&nodes, 1).iter().any(|cache| cache.blocks_dirty > 0)
    };
    assert_eq!(nodes.run_until(is_used_again), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    let report = report(&nodes, 1).unwrap();
    assert_eq!((&report.caches[0].obstacle, &report.drives[0].cache_obstacle), (&None, &None));
}

#[test]
fn drives_come_back_when_their_cache_drive_has_failed_for_a_moment() {
    let nodes = cached(29, 2, 1);
    write_all(&nodes, 0, 100);
    let has_failed = || !all_work(&nodes, 1);
    nodes.caches(1)[0].fail_writes(.., Repeat::Once);
    let is_noticed = || {
        write_all(&nodes, 0, 200);
        has_failed()
    };
    assert_eq!(nodes.run_until(is_noticed), RunEnd::ConditionMet);
    let is_back = || all_work(&nodes, 1) && caches_of(&nodes, 1).len() == 2;
    assert_eq!(nodes.run_until(is_back), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    await_health(&nodes);
    assert_eq!(read_all(&nodes, 1), values(200));
}

#[test]
fn a_drive_that_has_failed_by_itself_stays_as_it_is_as_one_without_a_cache_drive_does() {
    let nodes = cached(30, 1, 1);
    write_all(&nodes, 0, 100);
    let failing = report(&nodes, 1).unwrap().drives[0].drive;
    nodes.drives(1)[0].fail_writes(.., Repeat::Once);
    // What is in its area has to be moved to it.
    nodes.change_settings(|settings| settings.cache_mode_ssd = CacheMode::Off);
    let is_away_for_long = || {
        let away = report(&nodes, 1).map(|report| report.drives_away).unwrap_or_default();
        away.iter().any(|away| Some(away.drive) == failing && away.away_ms > 20_000)
    };
    assert_eq!(nodes.run_until(is_away_for_long), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    assert!(!all_work(&nodes, 1), "it may fail again at any time");
}

#[test]
fn the_area_of_a_drive_that_was_taken_out_while_its_node_lacked_it_is_given_to_others() {
    let nodes = cached(31, 3, 1);
    let cache = cache_id(&nodes, 1);
    let is_empty = |drive: &DriveReport| drive.volumes.is_empty();
    let lost = report(&nodes, 1).unwrap().drives.into_iter().find(is_empty).expect("two hold the two slabs");
    let place = nodes.drives(1).iter().position(|known| known.name() == lost.location).unwrap();
    nodes.stop(1, true);
    nodes.drives(1)[place].pull_out();
    let lost = lost.drive.unwrap();
    let state = ClusterState::new(nodes.state.client(u64::MAX, nodes.clients.platform()));
    let removed = nodes.clients.block_on(async move { state.remove_drive(lost, "a drive", 1, false).await });
    assert_eq!(removed, Ok(Ok(())));
    nodes.start(1);
    let has_area = || cache_report(&nodes, 1, cache).is_none_or(|cache| cache.bound.contains(&lost));
    assert_eq!(nodes.run_until(|| !has_area()), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    await_health(&nodes);
    let bound = cache_report(&nodes, 1, cache).unwrap().bound;
    assert_eq!(bound.len(), 2, "the others keep theirs");
}

/// The first drive that waits for one may not be away for a moment.
#[test]
fn a_drive_that_has_the_only_copy_of_a_volume_keeps_no_other_one_from_a_new_cache_drive() {
    let worlds = (32..).map(|seed| cached(seed, 2, 0));
    let mut made = worlds.map(|nodes| (made_alone(&nodes, 1), nodes));
    let ((name, _), nodes) = made.find(|((_, place), _)| *place == 0).expect("it is one of two");
    write_to(&nodes, 1, &name, 500);
    let config = SimulatedDriveConfig { size_bytes: 8 << 20, ..SimulatedDriveConfig::default() };
    nodes.world.add_drive("late cache", config).attach_to(nodes.host(1));
    let (node, process) = (nodes.node(1).unwrap(), nodes.process(1).unwrap());
    let place = GivenDrive::cache("late cache".to_owned());
    let added = process.block_on(async move { node.add_drive(place).await });
    assert!(matches!(added, Ok(Ok(_))), "{added:?}");
    assert_eq!(nodes.run_until(|| caches_of(&nodes, 1).len() == 1), RunEnd::ConditionMet);
    let is_told = || {
        let drives = report(&nodes, 1).map(|report| report.drives).unwrap_or_default();
        let waiting = drives.into_iter().find(|drive| drive.location == nodes.drives(1)[0].name());
        let obstacle =
            waiting.filter(|drive| drive.bound_to.is_none()).and_then(|drive| drive.cache_obstacle);
        obstacle.is_some_and(|obstacle| obstacle.why.contains("restarted"))
    };
    assert_eq!(nodes.run_until(is_told), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    assert_eq!(read_from(&nodes, 1, &name), values(500));
}
