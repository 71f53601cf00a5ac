//! Virtual machines on nodes of a simulated world: where they run, and that none runs twice.

use spandrel_cluster::{
    PlacementReason, Stored, VmBoot, VmDiskBus, VmGoal, VmPlacement, VmPriority, VmRecord,
};
use spandrel_shared::VmId;
use spandrel_vm::disk::DiskName;

use super::tests::{on, serving, with_volume};
use super::*;
use crate::guests::{GuestEntry, GuestLog, Guests};

const GIB: u64 = 1 << 30;

fn vm_id() -> VmId {
    VmId::from_random(8, 8)
}

type State = ClusterState<SimulatedStore<SimulatedPlatform>>;

/// Does something in the cluster's state, on the machine for clients.
fn in_state<T: 'static>(nodes: &NodesWorld, ask: impl AsyncFnOnce(State) -> T + 'static) -> T {
    let state = ClusterState::new(nodes.state.client(u64::MAX, nodes.clients().platform()));
    nodes.clients().block_on(async move { ask(state).await }).expect("nothing stops the clients")
}

fn record(nodes: &NodesWorld) -> VmRecord {
    in_state(nodes, async |state| {
        let (_, stored) = state.vm_by_name("web").await.expect("a state that answers").expect("it was made");
        stored.record
    })
}

fn placement(nodes: &NodesWorld) -> Option<VmPlacement> {
    record(nodes).placement
}

fn set_goal(nodes: &NodesWorld, goal: VmGoal) {
    in_state(nodes, async move |state| {
        loop {
            let (vm, stored) =
                state.vm_by_name("web").await.expect("a state that answers").expect("it was made");
            let Stored { record, .. } = &stored;
            let changed = VmRecord { goal, ..record.clone() };
            if state.change_vm(vm, &stored, changed).await.is_ok() {
                return;
            }
        }
    });
}

/// Has a node look after virtual machines.
fn run_vms(nodes: &NodesWorld, index: usize, log: &Rc<GuestLog>) {
    let log = Rc::clone(log);
    on(nodes, index, async move |node, platform| {
        node.run_vms(Guests::new(node.clone(), platform, log, 2 * GIB));
    });
}

/// A world of three nodes with a virtual machine, which is to run, and what its guests do. The node that owns its disk.
fn with_vm(seed: u64) -> (NodesWorld, Rc<GuestLog>, usize) {
    let (nodes, created, owner) = with_volume(seed);
    let log = Rc::new(GuestLog::default());
    (0..nodes.count()).for_each(|index| run_vms(&nodes, index, &log));
    // Each is to know what the others have, or it would reckon otherwise than they do.
    let all_told = || {
        in_state(&nodes, async |state| {
            let alive = state.alive().await.expect("a state that answers");
            alive.values().filter(|stored| stored.record.vm_host.is_some()).count()
        })
    };
    assert_eq!(nodes.run_until(|| all_told() == 3), RunEnd::ConditionMet);
    assert_eq!(nodes.world.run_for(Duration::from_secs(1)), RunEnd::TimeOver);
    let made = in_state(&nodes, async move |state| {
        let record = VmRecord {
            name: "web".to_owned(),
            volume: created.volume,
            processors: 1,
            memory_bytes: GIB,
            boot: VmBoot::Disk,
            disk_bus: VmDiskBus::Nbd,
            priority: VmPriority::Medium,
            goal: VmGoal::Running,
            placement: None,
            migration: None,
            waits_because: None,
            last_run: 0,
            created_unix_ms: 1,
        };
        loop {
            match state.create_vm(vm_id(), &record).await {
                Err(StateError::Conflict) => {}
                outcome => return outcome,
            }
        }
    });
    made.expect("it can be made");
    (nodes, log, owner)
}

/// Waits until the guest of a run has written so often.
fn await_writes(nodes: &NodesWorld, log: &GuestLog, run: u64, writes: usize) {
    let disk = DiskName { vm: vm_id(), run };
    let end = nodes.world.run_until_within(PATIENCE, || log.writes(disk) >= writes);
    assert_eq!(end, RunEnd::ConditionMet, "run {run} does not write: {:?}", log.entries().last());
}

fn run_now(nodes: &NodesWorld) -> u64 {
    placement(nodes).expect("some node has claimed it").run
}

#[test]
fn a_virtual_machine_starts_where_its_disk_is_owned_and_ends_when_it_is_to() {
    let (nodes, log, owner) = with_vm(1003000);
    await_writes(&nodes, &log, 1, 100);
    let placed = placement(&nodes).expect("it was claimed");
    assert_eq!((placed.node, placed.run, placed.reason), (node_id(owner), 1, PlacementReason::Started));
    set_goal(&nodes, VmGoal::Off);
    assert_eq!(nodes.run_until(|| placement(&nodes).is_none()), RunEnd::ConditionMet);
    let ended = log.entries().len();
    assert_eq!(nodes.world.run_for(Duration::from_secs(5)), RunEnd::TimeOver);
    assert_eq!(log.entries().len(), ended, "nothing runs any more");
    set_goal(&nodes, VmGoal::Running);
    await_writes(&nodes, &log, 2, 100);
    assert_eq!(log.check(), Ok(()));
}

#[test]
fn one_whose_node_loses_its_power_runs_elsewhere_with_all_that_was_answered() {
    for seed in 1003010..1003016 {
        let (nodes, log, owner) = with_vm(seed);
        await_writes(&nodes, &log, 1, 100);
        nodes.stop(owner, true);
        await_writes(&nodes, &log, 2, 100);
        let placed = placement(&nodes).expect("it was claimed");
        assert_ne!(placed.node, node_id(owner), "seed {seed}");
        assert_eq!(placed.reason, PlacementReason::NodeLost { node: node_id(owner) }, "seed {seed}");
        assert_eq!(log.check(), Ok(()), "seed {seed}");
        // Its disk follows it, once copies are in sync again.
        nodes.start(owner);
        let follows = || serving(&nodes).map(node_id) == Some(placed.node);
        assert_eq!(nodes.run_until(follows), RunEnd::ConditionMet, "seed {seed}");
        assert_eq!(run_now(&nodes), 2, "seed {seed}: it stays where it is");
        assert_eq!(log.check(), Ok(()), "seed {seed}");
    }
}

/// Cut off from everybody, the guest runs on for as long as nobody tells it otherwise, and what it writes is not answered.
#[test]
fn one_that_is_cut_off_writes_nothing_once_it_runs_elsewhere() {
    for seed in 1003020..1003026 {
        let (nodes, log, owner) = with_vm(seed);
        await_writes(&nodes, &log, 1, 100);
        nodes.world.isolate(nodes.host(owner));
        nodes.state.set_cut_off(owner as u64, true);
        await_writes(&nodes, &log, 2, 100);
        assert_eq!(log.check(), Ok(()), "seed {seed}");
        nodes.world.heal_all();
        nodes.state.set_cut_off(owner as u64, false);
        let is_ended = || nodes.report(owner).is_some_and(|report| report.vms.is_empty());
        assert_eq!(nodes.run_until(is_ended), RunEnd::ConditionMet, "seed {seed}: what was cut off ends");
        let before = log.writes(DiskName { vm: vm_id(), run: 2 });
        await_writes(&nodes, &log, 2, before + 1000);
        assert_eq!(log.check(), Ok(()), "seed {seed}");
    }
}

/// Its node cannot tell the state that it is alive, but serves its guest: another one claims it, and must not run it beside.
#[test]
fn one_whose_node_only_lost_the_state_is_not_started_beside_itself() {
    for seed in 1003030..1003036 {
        let (nodes, log, owner) = with_vm(seed);
        await_writes(&nodes, &log, 1, 100);
        nodes.state.set_cut_off(owner as u64, true);
        assert_eq!(nodes.run_until(|| run_now(&nodes) > 1), RunEnd::ConditionMet, "seed {seed}");
        assert_eq!(nodes.world.run_for(Duration::from_secs(20)), RunEnd::TimeOver);
        assert_eq!(log.check(), Ok(()), "seed {seed}");
        let has_started = |entry: &GuestEntry| matches!(entry, GuestEntry::Found(disk, _) if disk.run > 1);
        assert!(!log.entries().iter().any(has_started), "seed {seed}: its disk is in use");
        nodes.state.set_cut_off(owner as u64, false);
        let end = nodes.world.run_until_within(PATIENCE, || log.entries().iter().any(has_started));
        assert_eq!(end, RunEnd::ConditionMet, "seed {seed}: it is started once the former one has ended");
        assert_eq!(nodes.world.run_for(Duration::from_secs(5)), RunEnd::TimeOver);
        assert_eq!(log.check(), Ok(()), "seed {seed}");
    }
}

#[test]
fn a_node_that_stops_in_order_leaves_what_it_runs_to_others() {
    for seed in 1003040..1003044 {
        let (nodes, log, owner) = with_vm(seed);
        await_writes(&nodes, &log, 1, 100);
        nodes.stop_in_order(owner);
        let began = nodes.world.now();
        await_writes(&nodes, &log, 2, 1);
        let took = nodes.world.now() - began;
        assert!(took < Duration::from_secs(3), "seed {seed}: {took:?}, though nobody had to be missed");
        let placed = placement(&nodes).expect("it was claimed");
        assert_eq!(placed.reason, PlacementReason::NodeStopped { node: node_id(owner) }, "seed {seed}");
        assert_eq!(log.check(), Ok(()), "seed {seed}");
    }
}

fn move_to(nodes: &NodesWorld, index: usize) {
    in_state(nodes, async move |state| {
        loop {
            let (vm, stored) =
                state.vm_by_name("web").await.expect("a state that answers").expect("it was made");
            let moving = stored.record.moving(node_id(index), 1);
            if state.change_vm(vm, &stored, moving).await.is_ok() {
                return;
            }
        }
    });
}

#[test]
fn one_that_moves_goes_on_where_it_was_and_its_disk_with_it() {
    for seed in 1003060..1003066 {
        let (nodes, log, owner) = with_vm(seed);
        await_writes(&nodes, &log, 1, 100);
        for (to, run) in [((owner + 1) % 3, 2), (owner, 3)] {
            move_to(&nodes, to);
            await_writes(&nodes, &log, run, 200);
            let placed = placement(&nodes).expect("it runs");
            assert_eq!((placed.node, placed.run), (node_id(to), run), "seed {seed}");
            assert_eq!(log.check(), Ok(()), "seed {seed}");
            let follows = || serving(&nodes) == Some(to);
            assert_eq!(nodes.run_until(follows), RunEnd::ConditionMet, "seed {seed}");
        }
        let failed = log.entries().iter().any(|entry| matches!(entry, GuestEntry::Failed(_)));
        assert!(!failed, "seed {seed}: no request fails");
        let arrived = log.entries().iter().filter(|entry| matches!(entry, GuestEntry::Arrived(..))).count();
        assert_eq!(arrived, 2, "seed {seed}: it was never started anew");
    }
}

/// It has moved and writes nothing for long, and its node loses the state and nothing else: it has the right to write all the same,
/// so that what another node claims waits.
#[test]
fn one_that_has_moved_and_is_idle_is_not_started_beside_itself() {
    for seed in 1003130..1003136 {
        let (nodes, log, owner) = with_vm(seed);
        await_writes(&nodes, &log, 1, 50);
        log.set_pause(Duration::from_secs(15));
        let to = (owner + 1) % 3;
        move_to(&nodes, to);
        let has_arrived = |entry: &GuestEntry| matches!(entry, GuestEntry::Arrived(disk, _) if disk.run == 2);
        let end = nodes.world.run_until_within(PATIENCE, || log.entries().iter().any(has_arrived));
        assert_eq!(end, RunEnd::ConditionMet, "seed {seed}");
        assert_eq!(nodes.world.run_for(Duration::from_secs(2)), RunEnd::TimeOver);
        nodes.state.set_cut_off(to as u64, true);
        assert_eq!(nodes.run_until(|| run_now(&nodes) > 2), RunEnd::ConditionMet, "seed {seed}");
        assert_eq!(nodes.world.run_for(Duration::from_secs(40)), RunEnd::TimeOver);
        let has_started = |entry: &GuestEntry| matches!(entry, GuestEntry::Found(disk, _) if disk.run > 2);
        assert!(!log.entries().iter().any(has_started), "seed {seed}: its disk is in use");
        assert!(log.writes(DiskName { vm: vm_id(), run: 2 }) > 0, "seed {seed}: it goes on");
        nodes.state.set_cut_off(to as u64, false);
        let end = nodes.world.run_until_within(PATIENCE, || log.entries().iter().any(has_started));
        assert_eq!(end, RunEnd::ConditionMet, "seed {seed}");
        assert_eq!(nodes.world.run_for(Duration::from_secs(60)), RunEnd::TimeOver);
        assert_eq!(log.check(), Ok(()), "seed {seed}");
    }
}

/// The node from which it moves, or the one to which, loses its power at any moment of that.
#[test]
fn one_whose_move_is_cut_short_runs_once_with_all_that_was_answered() {
    for seed in 1003070..1003110_u64 {
        let (nodes, log, owner) = with_vm(seed);
        await_writes(&nodes, &log, 1, 50);
        let to = (owner + 1) % 3;
        move_to(&nodes, to);
        assert_eq!(nodes.world.run_for(Duration::from_millis(seed % 20 * 25)), RunEnd::TimeOver);
        nodes.stop(if seed.is_multiple_of(2) { owner } else { to }, true);
        let is_settled = || {
            let record = record(&nodes);
            let disk = |run| DiskName { vm: vm_id(), run };
            record.migration.is_none()
                && record.placement.is_some_and(|placement| {
                    nodes.is_up((0..3).find(|index| node_id(*index) == placement.node).expect("a node"))
                        && log.writes(disk(placement.run)) > 200
                })
        };
        assert_eq!(nodes.run_until(is_settled), RunEnd::ConditionMet, "seed {seed}: {:?}", record(&nodes));
        assert_eq!(log.check(), Ok(()), "seed {seed}");
    }
}

#[test]
fn from_a_node_in_maintenance_they_move_away_without_a_start() {
    let (nodes, log, owner) = with_vm(1003120);
    await_writes(&nodes, &log, 1, 100);
    nodes.set_maintenance(owner, true);
    await_writes(&nodes, &log, 2, 200);
    let placed = placement(&nodes).expect("it runs");
    assert_eq!(placed.reason, PlacementReason::Moved { node: node_id(owner) });
    assert_eq!(log.check(), Ok(()));
}

/// A client of the node that opens the disk by the volume's name reads it, and nothing else.
#[test]
fn the_disk_of_one_that_runs_is_only_read_by_others_of_its_node() {
    use spandrel_volume::{BlockDevice as _, Exports as _};
    let (nodes, log, owner) = with_vm(1003050);
    await_writes(&nodes, &log, 1, 100);
    on(&nodes, owner, async |node, platform| {
        let device = node.exports().open("v").await.expect("it is there");
        assert!(device.limits().read_only);
        device.read(0, 4096).await.expect("it is served");
        let write = crate::history::content(platform.buffers(), 7, crate::history::BLOCK_SECTORS);
        device.write(0, write).await.expect_err("its guest writes");
        let disk = DiskName { vm: vm_id(), run: 2 };
        assert!(node.exports().open(&disk.to_string()).await.is_err(), "no such run");
    });
    let before = log.writes(DiskName { vm: vm_id(), run: 1 });
    await_writes(&nodes, &log, 1, before + 100);
    assert_eq!(log.check(), Ok(()));
}
