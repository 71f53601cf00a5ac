use std::cell::Cell;

use spandrel_cluster::records::{VolumeRoomRecord, decode};
use spandrel_cluster::store::{Expected, Selection};
use spandrel_cluster::{DriveState, SettingsRecord, StateKey, VolumeRecord, VolumeState};
use spandrel_node::LegReport;
use spandrel_volume::{BlockDevice, DeviceErrorKind, Exports, OpenError, ScrubReport};

use super::*;
use crate::history::{BLOCK_SECTORS, content, value_of};

const VOLUME_BYTES: u64 = 2 * SLAB_BYTES;

/// Waits for what a client sees of a node.
pub(super) fn on<T: 'static>(
    nodes: &NodesWorld,
    index: usize,
    ask: impl AsyncFnOnce(SimulatedNode, SimulatedPlatform) -> T + 'static,
) -> T {
    let process = nodes.process(index).expect("started");
    let (node, platform) = (nodes.node(index).expect("up"), process.platform());
    process.block_on(async move { ask(node, platform).await }).expect("nothing stops the node")
}

fn joined(parts: &[spandrel_platform::Buffer]) -> Vec<u8> {
    let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
    parts.concat()
}

pub(super) fn healthy(nodes: &NodesWorld) -> bool {
    let reports: Vec<_> = (0..nodes.count()).filter_map(|index| Some(nodes.node(index)?.report())).collect();
    let mut serving = reports.iter().flat_map(|report| &report.owned).filter(|owned| owned.is_serving);
    let in_sync =
        |owned: &spandrel_node::OwnedVolumeReport| owned.legs.iter().all(|leg| leg.state == "in-sync");
    reports.len() == nodes.count() && serving.clone().count() == 1 && serving.all(in_sync)
}

pub(super) fn await_health(nodes: &NodesWorld, seed: u64) {
    let end = nodes.run_until(|| healthy(nodes));
    assert_eq!(end, RunEnd::ConditionMet, "seed {seed}: not healthy again: {:#?}", ownerships(nodes));
}

#[test]
fn a_volume_is_served_by_every_node() {
    let nodes = NodesWorld::new(1, 3);
    nodes.create_volume(0, "v", VOLUME_BYTES, 3).expect("there is room");
    on(&nodes, 1, async |node, platform| {
        let device = node.exports().open("v").await.expect("it is there");
        device.write(4096, content(platform.buffers(), 7, BLOCK_SECTORS)).await.expect("it serves");
        let half = platform.buffers().copy_of(&[9; 512]).freeze();
        device.write(8192 + 512, half).await.expect("parts of blocks too");
    });
    for index in 0..3 {
        let read = on(&nodes, index, async |node, _| {
            let device = node.exports().open("v").await.expect("it is there");
            joined(&device.read(4096, 8192).await.expect("it serves"))
        });
        assert_eq!(value_of(&read[..4096]), Ok(7));
        assert_eq!((read[4096 + 511], read[4096 + 512], read[4096 + 1024]), (0, 9, 0));
    }
    assert_eq!(on(&nodes, 2, async |node, _| node.exports().names()), ["v"]);
    let missing =
        on(&nodes, 2, async |node, _| node.exports().open("w").await.err().expect("no such volume"));
    assert!(
        matches!(&missing, OpenError::Failed(error) if error.kind == DeviceErrorKind::NotFound),
        "{missing}"
    );
}

/// The place of a node among those of its world.
pub(super) fn index_of(node: NodeId) -> usize {
    (0..16).find(|index| node_id(*index) == node).expect("it is a node of this world")
}

/// A world of three nodes with a volume in three copies, and the node that owns it.
pub(super) fn with_volume(seed: u64) -> (NodesWorld, VolumeCreated, usize) {
    let nodes = NodesWorld::new(seed, 3);
    let created = nodes.create_volume(0, "v", VOLUME_BYTES, 3).expect("there is room");
    let owner = index_of(created.owner);
    (nodes, created, owner)
}

/// The volume as a client of a node has it.
pub(super) fn open_at(nodes: &NodesWorld, index: usize) -> impl BlockDevice + use<> {
    on(nodes, index, async |node, _| node.exports().open("v").await.expect("it is there"))
}

/// The node that owns the only volume and serves it.
pub(super) fn serving(nodes: &NodesWorld) -> Option<usize> {
    ownerships(nodes)
        .into_iter()
        .find(|(_, owned)| owned.iter().any(|volume| volume.is_serving))
        .map(|(node, _)| node)
}

/// Servers with two networks between them. A client writes while the way between two servers is cut on one of them:
/// nobody is told, no copy is marked stale, and it goes on within a second.
#[test]
fn the_loss_of_one_of_two_networks_costs_a_client_a_moment_and_no_copy() {
    for seed in 0..12 {
        let mut config = NodesConfig::simple(seed, 3);
        config.world.network.networks = 2;
        let nodes = NodesWorld::with_config(seed, &config);
        nodes.create_volume(0, "v", VOLUME_BYTES, 3).expect("there is room");
        await_health(&nodes, seed);
        let epochs =
            || -> Vec<_> { ownerships(&nodes).values().flatten().map(|owned| owned.epoch).collect() };
        let (network, began) = ((seed % 2) as u8, epochs());
        for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
            nodes.world.cut_network(network, nodes.host(from), nodes.host(to));
            let pause = on(&nodes, from, async move |node, platform| {
                let device = node.exports().open("v").await.expect("it is there");
                let began = platform.now();
                let mut pause = Duration::ZERO;
                while platform.now().since(began) < Duration::from_secs(3) {
                    let asked = platform.now();
                    device.write(0, content(platform.buffers(), 7, BLOCK_SECTORS)).await.expect("it serves");
                    pause = pause.max(platform.now().since(asked));
                }
                pause
            });
            assert!(pause < Duration::from_secs(1), "seed {seed}, from {from} to {to}: {pause:?}");
            let marked: u64 = ownerships(&nodes).values().flatten().map(|owned| owned.legs_marked).sum();
            assert_eq!((marked, epochs()), (0, began.clone()), "seed {seed}, from {from} to {to}");
            assert!(healthy(&nodes), "seed {seed}, from {from} to {to}: {:#?}", ownerships(&nodes));
        }
    }
}

#[test]
fn a_deletion_whose_node_died_is_finished_by_others() {
    let nodes = NodesWorld::new(13, 3);
    let volume = nodes.create_volume(0, "v", SLAB_BYTES, 3).expect("there is room").volume;
    let process = nodes.process(0).expect("up");
    let cluster = ClusterState::new(nodes.state.client(99, process.platform()));
    let begun = process.block_on(async move {
        // The first step of a deletion, and no more.
        let key = StateKey::Volume(volume);
        loop {
            let stored = cluster.get::<VolumeRecord>(&key).await?.expect("it is there");
            let (owner, epoch) = (None, stored.record.epoch.next());
            let record = VolumeRecord { state: VolumeState::Deleting, owner, epoch, ..stored.record.clone() };
            match cluster.put(&key, Expected::ModifiedAt(stored.revision), record).await {
                Err(StateError::Conflict) => {}
                outcome => return outcome.map(drop),
            }
        }
    });
    assert_eq!(begun, Ok(Ok(())));
    let end = nodes.world.run_until_within(4 * PATIENCE, || {
        (0..3).all(|index| nodes.node(index).expect("up").report().drives[0].volumes.is_empty())
    });
    assert_eq!(end, RunEnd::ConditionMet, "its copies are removed once the state has forgotten it");
}

#[test]
fn a_request_that_cannot_be_answered_keeps_no_node_from_coming_back() {
    let (nodes, _, owner) = with_volume(14);
    let (client, absent) = ((owner + 1) % 3, (owner + 2) % 3);
    let device = open_at(&nodes, client);
    // No copy can be marked stale, so the write waits for the one that is away.
    nodes.state.set_outage(true);
    nodes.stop(absent, true);
    let answered = Rc::new(Cell::new(false));
    let (told, process) = (Rc::clone(&answered), nodes.process(client).expect("up"));
    let platform = process.platform();
    process.spawn(async move {
        device
            .write(0, content(platform.buffers(), 3, BLOCK_SECTORS))
            .await
            .expect("it is repeated until it is done");
        told.set(true);
    });
    assert_eq!(nodes.world.run_for(Duration::from_millis(200)), RunEnd::TimeOver);
    nodes.world.break_connections(nodes.host(client), nodes.host(owner));
    assert_eq!(nodes.world.run_for(Duration::from_secs(20)), RunEnd::TimeOver);
    let reaches =
        |from: usize, to: usize| nodes.node(from).expect("up").report().reachable.contains(&node_id(to));
    assert!(reaches(client, owner) && reaches(owner, client), "they have sessions again");
    assert!(!answered.get(), "a copy in sync is away");
    nodes.state.set_outage(false);
    assert_eq!(nodes.world.run_until_within(PATIENCE, || answered.get()), RunEnd::ConditionMet);
}

#[test]
fn bad_volumes_are_refused_and_leave_nothing() {
    let nodes = NodesWorld::new(3, 3);
    let refused = |name: &str, size_bytes, copies| {
        nodes.create_volume(0, name, size_bytes, copies).expect_err("it is refused").code
    };
    assert_eq!(refused("", SLAB_BYTES, 3), "NAME_INVALID");
    assert_eq!(refused("v", 0, 3), "SIZE_ZERO");
    assert_eq!(refused("v", 5000, 3), "SIZE_UNALIGNED");
    assert_eq!(refused("v", 1 << 40, 3), "POOL_FULL");
    assert_eq!(refused("v", SLAB_BYTES, 4), "COPIES_INVALID");
    nodes.create_volume(0, "v", SLAB_BYTES, 3).expect("there is room");
    assert_eq!(refused("v", SLAB_BYTES, 3), "VOLUME_EXISTS");
    let used = |index: usize| nodes.node(index).expect("up").report().drives[0].volumes.len();
    assert_eq!([used(0), used(1), used(2)], [1, 1, 1]);
    on(&nodes, 1, async |node, _| node.delete_volume("v").await.expect("it is there"));
    assert_eq!([used(0), used(1), used(2)], [0, 0, 0]);
    let gone = on(&nodes, 1, async |node, _| node.delete_volume("v").await.expect_err("it is gone"));
    assert_eq!(gone.code, "VOLUME_NOT_FOUND");
    nodes.create_volume(0, "v", SLAB_BYTES, 3).expect("the name and the room are free again");
}

#[test]
fn a_node_that_was_away_drops_the_copies_of_deleted_volumes() {
    let nodes = NodesWorld::new(4, 3);
    nodes.create_volume(0, "v", SLAB_BYTES, 3).expect("there is room");
    nodes.stop(2, true);
    on(&nodes, 0, async |node, _| node.delete_volume("v").await.expect("it is there"));
    nodes.start(2);
    let end =
        nodes.run_until(|| nodes.node(2).is_some_and(|node| node.report().drives[0].volumes.is_empty()));
    assert_eq!(end, RunEnd::ConditionMet);
}

#[test]
fn an_orderly_stop_of_all_nodes_loses_nothing() {
    let nodes = NodesWorld::new(5, 3);
    nodes.create_volume(0, "v", VOLUME_BYTES, 3).expect("there is room");
    on(&nodes, 1, async |node, platform| {
        let device = node.exports().open("v").await.expect("it is there");
        device.write(0, content(platform.buffers(), 5, BLOCK_SECTORS)).await.expect("it serves");
    });
    (0..3).for_each(|index| nodes.stop_in_order(index));
    (0..3).for_each(|index| nodes.start(index));
    await_health(&nodes, 5);
    let read = on(&nodes, 2, async |node, _| {
        let device = node.exports().open("v").await.expect("it is there");
        joined(&device.read(0, 4096).await.expect("it serves"))
    });
    assert_eq!(value_of(&read), Ok(5));
}

/// A node takes a volume that it is given, and the state falls silent `delay` after that was decided there: how long the
/// node takes to stop in order.
fn stop_while_taking(seed: u64, delay: Duration) -> Duration {
    let (nodes, created, owner) = with_volume(seed);
    let (to, volume) = ((owner + 1) % 3, created.volume);
    assert_eq!(nodes.run_until(|| serving(&nodes) == Some(owner)), RunEnd::ConditionMet);
    let node = nodes.node(owner).expect("up");
    nodes.process(owner).expect("up").spawn(async move { drop(node.hand_over(volume, node_id(to)).await) });
    let is_taken = || {
        let seen = nodes.state.inspect(&[Selection::key(&StateKey::Volume(volume).key())]);
        let stored = decode::<VolumeRecord>(seen.entry(0).expect("it is there")).expect("a record");
        stored.record.owner.is_some_and(|owner| owner.shard.node == node_id(to))
    };
    assert_eq!(nodes.world.run_until_within(PATIENCE, is_taken), RunEnd::ConditionMet);
    assert_eq!(nodes.world.run_for(delay), RunEnd::TimeOver);
    nodes.state.set_outage(true);
    let (stopped, began) = (Rc::new(Cell::new(false)), nodes.world.now());
    let (node, ended) = (nodes.node(to).expect("up"), Rc::clone(&stopped));
    nodes.process(to).expect("up").spawn(async move {
        node.stop().await;
        ended.set(true);
    });
    let end = nodes.world.run_until_within(PATIENCE, || stopped.get());
    assert_eq!(end, RunEnd::ConditionMet, "it waits for the state, which fell silent after {delay:?}");
    nodes.world.now() - began
}

#[test]
fn a_node_stops_although_the_state_falls_silent_while_it_takes_a_volume() {
    let moments = (0..8).flat_map(|seed| (0..10).map(move |step| (seed, step * Duration::from_micros(250))));
    let stops = moments.map(|(seed, delay)| stop_while_taking(seed, delay));
    let longest = stops.max().expect("there are some");
    assert!(longest < Duration::from_secs(20), "{longest:?}");
    assert!(
        longest > Duration::from_secs(4),
        "{longest:?}: none of them fell silent while it was waited for"
    );
}

/// What the volume's owner finds.
fn scrub_of(nodes: &NodesWorld, volume: spandrel_shared::VolumeId) -> ScrubReport {
    let owns = |index: &usize| {
        let node = nodes.node(*index);
        node.is_some_and(|node| node.report().owned.iter().any(|owned| owned.volume == volume))
    };
    let owner = (0..nodes.count()).find(owns).expect("somebody owns it");
    on(nodes, owner, async move |node, _| {
        node.scrub_volume(volume, true, |_| {}).await.expect("it owns the volume")
    })
}

#[test]
fn a_scrub_says_which_copies_it_could_not_check() {
    let nodes = NodesWorld::new(41, 3);
    let volume = nodes.create_volume(0, "v", VOLUME_BYTES, 3).expect("there is room").volume;
    await_health(&nodes, 41);
    let owner = (0..3).find(|index| !nodes.node(*index).expect("up").report().owned.is_empty());
    let away = (owner.expect("it is owned") + 1) % 3;
    assert_eq!(scrub_of(&nodes, volume), ScrubReport { blocks_checked: 3 * 2048, ..ScrubReport::default() });
    nodes.stop(away, true);
    let marked = || ownerships(&nodes).values().flatten().any(|owned| owned.legs_marked > 0);
    assert_eq!(nodes.run_until(marked), RunEnd::ConditionMet);
    let report = scrub_of(&nodes, volume);
    assert_eq!((report.blocks_checked, report.pieces_unchecked, report.gave_up), (2 * 2048, 8, false));
}

#[test]
fn a_scrub_ends_although_a_slab_has_no_copy_within_reach() {
    let nodes = NodesWorld::new(42, 3);
    let volume = nodes.create_volume(0, "v", 3 * SLAB_BYTES, 1).expect("there is room").volume;
    await_health(&nodes, 42);
    let reports: Vec<_> = (0..3).map(|index| nodes.node(index).expect("up").report()).collect();
    let holds =
        |index: &usize| !reports[*index].drives[0].volumes.is_empty() && reports[*index].owned.is_empty();
    let holder = (0..3).find(holds).expect("the slabs are not all on the owner's node");
    nodes.stop(holder, true);
    assert!(scrub_of(&nodes, volume).gave_up);
}

#[test]
fn nothing_is_placed_on_a_drive_that_has_failed() {
    let nodes = NodesWorld::new(43, 3);
    nodes.create_volume(0, "v", VOLUME_BYTES, 3).expect("there is room");
    nodes.drive(2).die();
    on(&nodes, 0, async |node, platform| {
        let device = node.exports().open("v").await.expect("it is there");
        device.write(4096, content(platform.buffers(), 7, BLOCK_SECTORS)).await.expect("two copies are left");
    });
    let placed = || match nodes.create_volume(0, "three", SLAB_BYTES, 3) {
        Ok(_) => panic!("the drive takes no copies"),
        Err(error) => error.code == "TOO_FEW_NODES",
    };
    for _ in 0..10 {
        if placed() {
            nodes.create_volume(0, "two", SLAB_BYTES, 2).expect("the other drives do");
            return;
        }
        assert_eq!(nodes.world.run_for(Duration::from_secs(1)), RunEnd::TimeOver);
    }
    panic!("the drive still counts as usable");
}

/// Nodes that come back together do not take each other for gone only because they are not connected
/// yet.
#[test]
fn a_restart_of_all_nodes_marks_nobody() {
    for seed in 50..60 {
        let nodes = NodesWorld::new(seed, 3);
        nodes.create_volume(0, "v", VOLUME_BYTES, 3).expect("there is room");
        await_health(&nodes, seed);
        (0..3).for_each(|index| nodes.stop(index, true));
        (0..3).for_each(|index| nodes.start(index));
        await_health(&nodes, seed);
        let marked: Vec<u64> = ownerships(&nodes).values().flatten().map(|owned| owned.legs_marked).collect();
        assert_eq!(marked, [0], "seed {seed}");
    }
}

/// Its drives work as soon as it runs, and yet nothing is served with its copies before it was asked what they hold.
#[test]
fn copies_of_a_node_that_was_killed_are_silent_until_its_new_process_was_asked_or_they_are_stale() {
    let mut silent_in = 0;
    for seed in 60..70 {
        let nodes = NodesWorld::new(seed, 3);
        nodes.create_volume(0, "v", VOLUME_BYTES, 3).expect("there is room");
        await_health(&nodes, seed);
        let owner =
            (0..3).find(|index| nodes.node(*index).is_some_and(|node| !node.report().owned.is_empty()));
        let owner = owner.expect("somebody owns it");
        let killed = (owner + 1) % 3;
        let former = nodes.node(killed).expect("up").report().incarnation;
        nodes.stop(killed, false);
        nodes.start(killed);
        let is_silent = Cell::new(false);
        let is_over = || {
            let runs = nodes.node(killed).map(|node| node.report()).filter(|report| {
                report.incarnation != former && report.drives.iter().any(|drive| drive.drive.is_some())
            });
            let Some(report) = nodes.node(owner).map(|node| node.report()).filter(|_| runs.is_some()) else {
                return false;
            };
            let legs: Vec<_> = report.owned.iter().flat_map(|owned| &owned.legs).collect();
            let of_killed = || legs.iter().filter(|leg| leg.node == node_id(killed));
            is_silent.set(is_silent.get() || of_killed().any(|leg| leg.is_silent));
            // Nobody can have asked it before there is a session with it: what its owner says of its copies must not pass for whole.
            let may_be_asked = report.reachable.contains(&node_id(killed));
            let is_whole = of_killed().all(|leg| !leg.is_silent && leg.state == "in-sync");
            assert!(may_be_asked || !is_whole, "seed {seed}: {legs:?}");
            is_whole || of_killed().any(|leg| leg.state == "stale")
        };
        assert_eq!(nodes.run_until(is_over), RunEnd::ConditionMet, "seed {seed}");
        silent_in += u32::from(is_silent.get());
        await_health(&nodes, seed);
        let legs = ownerships(&nodes).into_values().flatten().flat_map(|owned| owned.legs);
        assert!(legs.into_iter().all(|leg| !leg.is_silent), "seed {seed}");
    }
    assert!(silent_in > 0, "no owner has met it");
}

/// What all nodes have asked of the cluster's state: reads, transactions, and what keeps leases alive.
fn asked_of_the_state(nodes: &NodesWorld) -> (u64, u64, u64) {
    let requests = (0..nodes.count()).map(|index| nodes.node(index).expect("up").state_requests());
    requests.fold((0, 0, 0), |(reads, transactions, leases), requests| {
        (reads + requests.reads, transactions + requests.transactions, leases + requests.lease_renewals)
    })
}

#[test]
fn who_reads_and_writes_asks_the_clusters_state_nothing() {
    const PAUSE: Duration = Duration::from_millis(20);
    let nodes = NodesWorld::new(1, 4);
    let operations = Rc::new(Cell::new(0_u64));
    for index in 0..nodes.count() {
        let name = format!("v{index}");
        nodes.create_volume(index, &name, SLAB_BYTES, 3).expect("there is room");
        let (node, process) = (nodes.node(index).expect("up"), nodes.process(index).expect("started"));
        let (platform, operations) = (process.platform(), Rc::clone(&operations));
        process.spawn(async move {
            let device = node.exports().open(&name).await.expect("it is there");
            for turn in 1.. {
                let offset = turn * 37 % (SLAB_BYTES / 4096) * 4096;
                let data = content(platform.buffers(), turn, BLOCK_SECTORS);
                device.write(offset, data).await.expect("it serves");
                let read = joined(&device.read(offset, 4096).await.expect("it serves"));
                assert_eq!(value_of(&read), Ok(turn));
                operations.set(operations.get() + 2);
                platform.sleep(PAUSE).await;
            }
        });
    }
    // Volumes follow their writers first.
    assert_eq!(nodes.world.run_for(Duration::from_secs(15)), RunEnd::TimeOver);
    let (before, operations_before) = (asked_of_the_state(&nodes), operations.get());
    assert_eq!(nodes.world.run_for(Duration::from_secs(60)), RunEnd::TimeOver);
    let (after, done) = (asked_of_the_state(&nodes), operations.get() - operations_before);
    assert!(done > 1000, "{done} operations are no load");
    assert_eq!((after.0, after.1), (before.0, before.1), "reads and transactions");
    // Each node says twice a second that it lives.
    let renewed = after.2 - before.2;
    assert!((4 * 100..=4 * 121).contains(&renewed), "leases were renewed {renewed} times");
    // Whoever opens a volume asks who may write: that is seen.
    on(&nodes, 0, async |node, _| drop(node.exports().open("v1").await));
    nodes.create_volume(0, "another", SLAB_BYTES, 3).expect("there is room");
    let now = asked_of_the_state(&nodes);
    assert!(now.0 > after.0 && now.1 > after.1, "a new volume: {after:?}, {now:?}");
}

#[test]
fn volumes_can_be_made_everywhere_at_once() {
    let config = NodesConfig {
        drive: SimulatedDriveConfig { size_bytes: 256 << 20, ..SimulatedDriveConfig::default() },
        ..NodesConfig::simple(1, 4)
    };
    let nodes = NodesWorld::with_config(1, &config);
    let made: Rc<RefCell<Vec<Result<VolumeCreated, Error>>>> = Rc::default();
    let creators = 24;
    for number in 0..creators {
        let index = number % nodes.count();
        let (node, process) = (nodes.node(index).expect("up"), nodes.process(index).expect("started"));
        let made = Rc::clone(&made);
        process.spawn(async move {
            let creation = VolumeCreation {
                name: format!("v{number}"),
                size_bytes: SLAB_BYTES,
                copies: Some(3),
                owner: None,
            };
            let created = node.create_volume(&creation).await;
            made.borrow_mut().push(created);
        });
    }
    assert_eq!(nodes.run_until(|| made.borrow().len() == creators), RunEnd::ConditionMet);
    let refused: Vec<Error> = made.take().into_iter().filter_map(Result::err).collect();
    assert_eq!(refused, [], "the pool has room for all");
}

/// Four nodes with a volume, of which one was stopped for good and the drive given up on which it held copies: they
/// were built anew elsewhere. With that node and its drive.
fn after_a_loss() -> (NodesWorld, usize, DriveId) {
    let nodes = NodesWorld::new(17, 4);
    nodes.create_volume(0, "v", VOLUME_BYTES, 3).expect("there is room");
    await_health(&nodes, 17);
    on(&nodes, 0, async |node, platform| {
        let device = node.exports().open("v").await.expect("it is there");
        device.write(4096, content(platform.buffers(), 7, BLOCK_SECTORS)).await.expect("it serves");
    });
    let legs = || -> Vec<LegReport> {
        ownerships(&nodes).into_values().flatten().flat_map(|owned| owned.legs).collect()
    };
    let elsewhere = legs().into_iter().find(|leg| leg.node != node_id(0)).expect("it has copies elsewhere");
    let drive = elsewhere.drive;
    let lost = index_of(elsewhere.node);
    nodes.stop(lost, true);
    nodes.decide_drive(drive, DriveState::Failed);
    let is_rebuilt = || {
        let legs = legs();
        !legs.is_empty() && legs.iter().all(|leg| !leg.is_building && leg.drive != drive)
    };
    let end = nodes.world.run_until_within(PATIENCE, is_rebuilt);
    assert_eq!(end, RunEnd::ConditionMet, "{:#?}", ownerships(&nodes));
    (nodes, lost, drive)
}

fn await_no_copies(nodes: &NodesWorld, index: usize) {
    let is_empty = || {
        let report = nodes.node(index).map(|node| node.report());
        report.is_some_and(|report| report.drives.iter().all(|drive| drive.volumes.is_empty()))
    };
    let end = nodes.world.run_until_within(PATIENCE, is_empty);
    assert_eq!(end, RunEnd::ConditionMet, "what others have taken the places of is removed");
}

/// A drive that was given up is built anew elsewhere, by itself; what its node still holds counts for nothing.
#[test]
fn what_a_lost_drive_held_is_built_anew_elsewhere() {
    let (nodes, lost, _) = after_a_loss();
    let reader = (1..4).find(|index| *index != lost).expect("there are four");
    let read = on(&nodes, reader, async |node, _| {
        let device = node.exports().open("v").await.expect("it is there");
        joined(&device.read(4096, 4096).await.expect("it serves"))
    });
    assert_eq!(value_of(&read), Ok(7));
    nodes.start(lost);
    await_no_copies(&nodes, lost);
}

/// Whoever takes a drive out of the pool tells its node, and may not be heard.
#[test]
fn a_node_lets_go_of_a_drive_that_was_taken_out_by_itself() {
    let (nodes, lost, drive) = after_a_loss();
    nodes.start(lost);
    await_no_copies(&nodes, lost);
    let state = ClusterState::new(nodes.state.client(u64::MAX, nodes.clients().platform()));
    let removed = nodes.clients().block_on(async move {
        loop {
            match state.remove_drive(drive, "the drive", 1, false).await {
                Err(StateError::Conflict) => {}
                outcome => return outcome,
            }
        }
    });
    assert_eq!(removed, Ok(Ok(())));
    let location = nodes.node(lost).expect("up").report().drives[0].location.clone();
    let told = on(&nodes, lost, async |node, _| node.drives_let_go().await);
    assert_eq!(told, [location], "whoever gives it its drives hears of it");
    assert!(nodes.node(lost).expect("up").report().drives.is_empty());
}

/// A drive that is promised as many copies as it holds may hold others than these: those to come are not made yet.
#[test]
fn copies_to_come_do_not_hide_replaced_ones() {
    let (nodes, lost, drive) = after_a_loss();
    let state = ClusterState::new(nodes.state.client(u64::MAX, nodes.clients().platform()));
    let promised = nodes.clients().block_on(async move {
        let volume = *state.volumes().await.expect("it answers").keys().next().expect("there is one");
        let key = StateKey::VolumeRoom(volume);
        let mut room = state.get::<VolumeRoomRecord>(&key).await.expect("it answers").expect("it has some");
        room.record.slabs.insert(drive, 100);
        state.put(&key, Expected::ModifiedAt(room.revision), room.record).await.map(|_| ())
    });
    assert_eq!(promised, Ok(Ok(())));
    nodes.start(lost);
    await_no_copies(&nodes, lost);
}

/// What a server held that is away for longer than the pool waits is built anew on the others. It comes back with copies
/// that count no more, which go, and is filled again when it stays.
#[test]
fn a_server_that_stays_away_is_made_up_for_and_filled_again() {
    let settings =
        SettingsRecord { rebuild_after_drive_s: 1, rebuild_after_node_s: 30, ..SettingsRecord::default() };
    let drive = SimulatedDriveConfig { size_bytes: 64 << 20, ..SimulatedDriveConfig::default() };
    let nodes = NodesWorld::with_config(19, &NodesConfig { drive, settings, ..NodesConfig::simple(19, 4) });
    nodes.create_volume(0, "v", 6 * SLAB_BYTES, 2).expect("there is room");
    await_health(&nodes, 19);
    let copies_on = |index: usize| {
        let report = nodes.node(index).map(|node| node.report());
        let volumes = report.map_or(0, |report| report.drives.iter().map(|drive| drive.volumes.len()).sum());
        let legs = ownerships(&nodes).into_values().flatten().flat_map(|owned| owned.legs);
        let legs: Vec<LegReport> = legs.filter(|leg| leg.node == node_id(index)).collect();
        (volumes, legs)
    };
    let lost = (1..4).find(|index| !copies_on(*index).1.is_empty()).expect("it has copies elsewhere");
    nodes.stop(lost, true);
    let stopped = nodes.world.now();
    let is_rebuilt = || !ownerships(&nodes).is_empty() && copies_on(lost).1.is_empty();
    let end = nodes.world.run_until_within(PATIENCE, is_rebuilt);
    assert_eq!(end, RunEnd::ConditionMet, "{:#?}", ownerships(&nodes));
    assert!(nodes.world.now().saturating_sub(stopped) > Duration::from_secs(30), "it is waited for");
    nodes.start(lost);
    let is_empty = || nodes.is_up(lost) && copies_on(lost) == (0, Vec::new());
    assert_eq!(
        nodes.world.run_until_within(PATIENCE, is_empty),
        RunEnd::ConditionMet,
        "what it held is gone"
    );
    let is_filled = || copies_on(lost).1.iter().any(|leg| !leg.is_building && leg.state == "in-sync");
    let end = nodes.world.run_until_within(PATIENCE, is_filled);
    assert_eq!(end, RunEnd::ConditionMet, "{:#?}", ownerships(&nodes));
}
