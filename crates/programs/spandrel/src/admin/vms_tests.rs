use spandrel_cluster::store::Revision;
use spandrel_cluster::{VmBoot, VmDiskBus, VmPlacement, VmPriority};

use super::*;
use crate::admin::testing::{node_id, volume_id};

const GIB: u64 = 1 << 30;

fn vm_id() -> VmId {
    VmId::from_random(5, 1)
}

fn record(goal: VmGoal, on: Option<u64>) -> VmRecord {
    let reason = PlacementReason::NodeLost { node: node_id(3) };
    VmRecord {
        name: "web".to_owned(),
        volume: volume_id(),
        processors: 2,
        memory_bytes: GIB,
        boot: VmBoot::Disk,
        disk_bus: VmDiskBus::Nbd,
        priority: VmPriority::High,
        goal,
        placement: on.map(|node| VmPlacement { node: node_id(node), run: 4, since_unix_ms: 7, reason }),
        migration: None,
        waits_because: None,
        last_run: 4,
        created_unix_ms: 1,
    }
}

/// A cluster of three nodes, two of which run virtual machines.
fn facts(record: &VmRecord, report: Option<VmCondition>) -> VmFacts {
    let host = VmHost { memory_bytes: 2 * GIB, accelerator: "tcg".to_owned() };
    let of_host = report.map(|condition| VmReport { vm: vm_id(), run: Some(4), condition, failure: None });
    let stored = Stored { record: record.clone(), revision: Revision(1) };
    VmFacts {
        vms: [(vm_id(), stored)].into(),
        volumes: [(volume_id(), "disk1".to_owned())].into(),
        nodes: (1..=3).map(|number| (node_id(number), format!("n{number}"))).collect(),
        in_maintenance: BTreeSet::new(),
        hosts: (1..=2).map(|number| (node_id(number), host.clone())).collect(),
        reports: of_host.map(|report| (node_id(1), vec![report])).into_iter().collect(),
    }
}

fn state(record: &VmRecord, report: Option<VmCondition>) -> (VmState, Option<String>) {
    let status = facts(record, report).status(vm_id(), record);
    (status.state, status.why)
}

#[test]
fn how_one_is_follows_from_what_it_is_to_do_and_what_its_node_says() {
    let running = record(VmGoal::Running, Some(1));
    assert_eq!(state(&running, Some(VmCondition::Running)), (VmState::Running, None));
    assert_eq!(state(&running, Some(VmCondition::Starting)), (VmState::Starting, None));
    let paused = VmCondition::Paused("no room".to_owned());
    assert_eq!(state(&running, Some(paused)), (VmState::Paused, Some("no room".to_owned())));
    assert_eq!(state(&running, None).0, VmState::Unknown);
    assert_eq!(state(&record(VmGoal::Running, Some(3)), None).0, VmState::Waiting, "its node is gone");
    assert_eq!(state(&record(VmGoal::Off, Some(1)), Some(VmCondition::Running)).0, VmState::Stopping);
    assert_eq!(state(&record(VmGoal::Off, None), None), (VmState::Off, None));
    let waits = state(&record(VmGoal::Running, None), None);
    assert_eq!(waits, (VmState::Waiting, Some("a node is about to claim it".to_owned())));
}

#[test]
fn a_node_says_what_it_has_and_how_many_more_it_takes() {
    let mut facts = facts(&record(VmGoal::Running, Some(1)), None);
    let memory_bytes = facts.vms[&vm_id()].record.memory_bytes;
    let host = facts.host_status(node_id(1));
    assert_eq!((host.node.as_str(), host.vms.len()), ("n1", 1));
    assert_eq!((host.memory_bytes, host.memory_left_bytes), (2 * GIB, 2 * GIB - memory_bytes));
    assert_eq!(facts.host_status(node_id(2)).takes(GIB), 2);
    assert_eq!(host.takes(GIB), (2 * GIB - memory_bytes) / GIB);
    facts.in_maintenance.insert(node_id(2));
    let host = facts.host_status(node_id(2));
    assert_eq!((host.memory_left_bytes, host.takes(GIB)), (2 * GIB, 0));
}

#[test]
fn those_are_to_move_away_that_can_and_find_room() {
    let left = |record: &VmRecord, report| !facts(record, report).to_move_from(node_id(1)).is_empty();
    let running = record(VmGoal::Running, Some(1));
    assert!(left(&running, Some(VmCondition::Running)));
    assert!(left(&running, None), "nobody knows better");
    assert!(!left(&record(VmGoal::Off, Some(1)), Some(VmCondition::Running)), "it ends");
    assert!(!left(&record(VmGoal::Running, Some(2)), Some(VmCondition::Running)), "it is elsewhere");
    let large = VmRecord { memory_bytes: 3 * GIB, ..running.clone() };
    assert!(!left(&large, Some(VmCondition::Running)), "no other node has room");
    let paused = || Some(VmCondition::Paused("it was stopped".to_owned()));
    assert!(!left(&running, paused()));
    assert!(!left(&running, Some(VmCondition::Failed("it ended".to_owned()))));
    assert!(left(&running.moving(node_id(2), 7), paused()), "it stands still before it goes on there");
    let mut failing = facts(&running, Some(VmCondition::Starting));
    assert_eq!(failing.to_move_from(node_id(1)), ["web"], "it is about to run");
    let report = &mut failing.reports.get_mut(&node_id(1)).expect("it was given")[0];
    report.failure = Some("there is no file K".to_owned());
    assert_eq!(failing.to_move_from(node_id(1)), [""; 0]);
}

#[test]
fn why_one_could_not_be_started_is_told_wherever_it_is_tried_next() {
    let failed = PlacementReason::StartFailed { node: node_id(2) };
    let report = |condition, failure: Option<&str>| VmReport {
        vm: vm_id(),
        run: None,
        condition,
        failure: failure.map(str::to_owned),
    };
    let of = |record: &VmRecord| {
        let mut facts = facts(record, Some(VmCondition::Starting));
        facts.reports.insert(node_id(2), vec![report(VmCondition::Starting, Some("there is no file K"))]);
        let status = facts.status(vm_id(), record);
        (status.state, status.why)
    };
    let why = Some("node n2 could not start it: there is no file K".to_owned());
    let waits = VmRecord { waits_because: Some(failed.clone()), ..record(VmGoal::Running, None) };
    assert_eq!(of(&waits), (VmState::Waiting, why.clone()));
    let mut starts = record(VmGoal::Running, Some(1));
    starts.placement.as_mut().expect("it is placed").reason = failed;
    assert_eq!(of(&starts), (VmState::Starting, why));
    assert_eq!(of(&record(VmGoal::Running, Some(1))), (VmState::Starting, None), "that is another matter");
}

#[test]
fn it_is_told_where_one_is_and_why_there() {
    let running = record(VmGoal::Running, Some(1));
    let status = facts(&running, Some(VmCondition::Running)).status(vm_id(), &running);
    assert_eq!(status.node.as_deref(), Some("n1"));
    assert_eq!(status.node_because.as_deref(), Some("node n3 was lost"));
    assert_eq!((status.volume.as_str(), status.accelerator.as_deref()), ("disk1", Some("tcg")));
}

#[test]
fn one_that_no_node_could_ever_run_is_not_started() {
    let small = record(VmGoal::Off, None);
    assert_eq!(facts(&small, None).check_host(&small), Ok(()));
    let large = VmRecord { memory_bytes: 3 * GIB, ..small.clone() };
    assert_eq!(facts(&large, None).check_host(&large).unwrap_err().code, "VM_WITHOUT_HOST");
    let waiting = VmRecord { goal: VmGoal::Running, ..large };
    let (_, why) = state(&waiting, None);
    assert!(why.as_deref().is_some_and(|why| why.contains("no node has more than 2 GiB left")), "{why:?}");
    let without = VmFacts { hosts: BTreeMap::new(), ..facts(&small, None) };
    assert_eq!(without.check_host(&small).unwrap_err().code, "VM_WITHOUT_HOST");
}
