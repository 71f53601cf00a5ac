use std::cell::Cell;

use spandrel_cluster::store::Expected;
use spandrel_cluster::{StateError, StateKey, VolumeRecord, VolumeState};
use spandrel_platform_simulated::Random;
use spandrel_shared::canary::Bug;
use spandrel_volume::{BlockDevice, DeviceErrorKind, Exports, ScrubReport};

use super::*;
use crate::cruelty::{catches, rot, seed_count, seed_first};
use crate::history::{History, content, value_of};

const VOLUME_BYTES: u64 = 2 * SLAB_BYTES;

/// Few blocks, so that operations meet: some in either slab.
const BLOCKS: [u64; 6] = [0, 1, 2, 600, 1023, 1024];

/// Waits for what a client sees of a node.
fn on<T: 'static>(
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

fn healthy(nodes: &NodesWorld) -> bool {
    let reports: Vec<_> = (0..nodes.count()).filter_map(|index| Some(nodes.node(index)?.report())).collect();
    let mut serving = reports.iter().flat_map(|report| &report.owned).filter(|owned| owned.is_serving);
    let in_sync =
        |owned: &spandrel_node::OwnedVolumeReport| owned.legs.iter().all(|leg| leg.state == "in-sync");
    reports.len() == nodes.count() && serving.clone().count() == 1 && serving.all(in_sync)
}

fn await_health(nodes: &NodesWorld, seed: u64) {
    let end = nodes.run_until(|| healthy(nodes));
    assert_eq!(end, RunEnd::ConditionMet, "seed {seed}: not healthy again: {:#?}", ownerships(nodes));
}

#[test]
fn a_volume_is_served_by_every_node() {
    let nodes = NodesWorld::new(1, 3);
    nodes.create_volume(0, "v", VOLUME_BYTES, 3).expect("there is room");
    on(&nodes, 1, async |node, platform| {
        let device = node.exports().open("v").await.expect("it is there");
        device.write(4096, content(platform.buffers(), 7)).await.expect("it serves");
        let half = platform.buffers().copy_of(&[9; 512]).freeze();
        device.write(8192 + 512, half).await.expect("parts of blocks too");
    });
    for index in 0..3 {
        let read = on(&nodes, index, async |node, _| {
            let device = node.exports().open("v").await.expect("it is there");
            joined(&device.read(4096, 8192).await.expect("it serves"))
        });
        assert_eq!(value_of(&read[..4096]), 7);
        assert_eq!((read[4096 + 511], read[4096 + 512], read[4096 + 1024]), (0, 9, 0));
    }
    assert_eq!(on(&nodes, 2, async |node, _| node.exports().names()), ["v"]);
    let missing =
        on(&nodes, 2, async |node, _| node.exports().open("w").await.err().expect("no such volume"));
    assert_eq!(missing.kind, DeviceErrorKind::NotFound);
}

#[test]
fn one_node_writes_at_a_time() {
    let nodes = NodesWorld::new(2, 3);
    nodes.create_volume(0, "v", VOLUME_BYTES, 3).expect("there is room");
    let first = on(&nodes, 0, async |node, _| node.exports().open("v").await.expect("it is there"));
    let second = on(&nodes, 1, async |node, _| node.exports().open("v").await.expect("it is there"));
    assert!(!first.limits().read_only);
    assert!(second.limits().read_only, "somebody else writes");
    let refused = on(&nodes, 1, async move |_, platform| {
        second.write(0, content(platform.buffers(), 1)).await.expect_err("it may only read")
    });
    assert_eq!(refused.kind, DeviceErrorKind::ReadOnly);
    drop(first);
    let end = nodes.run_until(|| {
        let owned = ownerships(&nodes);
        owned.values().flatten().all(|volume| volume.writer.is_none())
    });
    assert_eq!(end, RunEnd::ConditionMet, "the right to write comes back");
    let third = on(&nodes, 2, async |node, _| node.exports().open("v").await.expect("it is there"));
    assert!(!third.limits().read_only);
}

#[test]
fn a_right_to_write_that_is_given_back_while_nobody_owns_the_volume_is_free() {
    let nodes = NodesWorld::new(12, 3);
    let created = nodes.create_volume(0, "v", VOLUME_BYTES, 3).expect("there is room");
    let owner = (0..3).find(|index| node_id(*index) == created.owner).expect("a node owns it");
    let (client, other) = ((owner + 1) % 3, (owner + 2) % 3);
    let device = on(&nodes, client, async |node, _| node.exports().open("v").await.expect("it is there"));
    assert!(!device.limits().read_only);
    nodes.stop(owner, true);
    assert_eq!(nodes.world.run_for(Duration::from_millis(100)), RunEnd::TimeOver);
    drop(device);
    let writable = Rc::new(Cell::new(false));
    let (node, platform) = (nodes.node(other).expect("up"), nodes.process(other).expect("up").platform());
    let found = Rc::clone(&writable);
    nodes.process(other).expect("up").spawn(async move {
        while !found.get() {
            let device = node.exports().open("v").await.expect("it is there");
            found.set(!device.limits().read_only);
            platform.sleep(Duration::from_millis(100)).await;
        }
    });
    let end = nodes.world.run_until_within(PATIENCE, || writable.get());
    assert_eq!(end, RunEnd::ConditionMet, "the node that gave it back lives, and cannot keep it");
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
    let nodes = NodesWorld::new(14, 3);
    let created = nodes.create_volume(0, "v", VOLUME_BYTES, 3).expect("there is room");
    let owner = (0..3).find(|index| node_id(*index) == created.owner).expect("a node owns it");
    let (client, absent) = ((owner + 1) % 3, (owner + 2) % 3);
    let device = on(&nodes, client, async |node, _| node.exports().open("v").await.expect("it is there"));
    // No copy can be marked stale, so the write waits for the one that is away.
    nodes.state.set_outage(true);
    nodes.stop(absent, true);
    let answered = Rc::new(Cell::new(false));
    let (told, process) = (Rc::clone(&answered), nodes.process(client).expect("up"));
    let platform = process.platform();
    process.spawn(async move {
        device.write(0, content(platform.buffers(), 3)).await.expect("it is repeated until it is done");
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
        device.write(0, content(platform.buffers(), 5)).await.expect("it serves");
    });
    (0..3).for_each(|index| nodes.stop_in_order(index));
    (0..3).for_each(|index| nodes.start(index));
    await_health(&nodes, 5);
    let read = on(&nodes, 2, async |node, _| {
        let device = node.exports().open("v").await.expect("it is there");
        joined(&device.read(0, 4096).await.expect("it serves"))
    });
    assert_eq!(value_of(&read), 5);
}

/// A client of a node: it writes and reads as long as its node lives.
async fn client(
    node: SimulatedNode,
    platform: SimulatedPlatform,
    history: Rc<History>,
    stop: Rc<Cell<bool>>,
    random: Random,
) {
    while !stop.get() {
        let Ok(device) = node.exports().open("v").await else {
            platform.sleep(Duration::from_millis(5)).await;
            continue;
        };
        // Open for a while, then given to others.
        for _ in 0..random.between(5, 60) {
            if stop.get() {
                break;
            }
            let block = BLOCKS[random.index(BLOCKS.len())];
            if random.chance(600) && !device.limits().read_only {
                let value = history.value();
                let number = history.begin(block, value, true);
                if device.write(block * 4096, content(platform.buffers(), value)).await.is_ok() {
                    history.end(block, number, value);
                }
            } else {
                let number = history.begin(block, 0, false);
                if let Ok(parts) = device.read(block * 4096, 4096).await {
                    history.end(block, number, value_of(&joined(&parts)));
                }
            }
            platform.sleep(Duration::from_micros(random.between(0, 2000))).await;
        }
    }
}

struct Run {
    nodes: NodesWorld,
    volume: spandrel_shared::VolumeId,
    history: Rc<History>,
    stop: Rc<Cell<bool>>,
    random: Random,
    seed: u64,
    /// Which runs of each node have clients.
    clients_of: RefCell<BTreeMap<usize, u64>>,
    /// The drive on which bits have flipped that may not have been healed yet.
    rotten: Cell<Option<usize>>,
    flipped_blocks: Cell<u64>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let nodes = NodesWorld::new(seed, 3);
        let volume = nodes.create_volume(0, "v", VOLUME_BYTES, 3).expect("there is room").volume;
        let run = Self {
            nodes,
            volume,
            history: Rc::default(),
            stop: Rc::default(),
            random: Random::stream(seed, "faults", 0),
            seed,
            clients_of: RefCell::default(),
            rotten: Cell::new(None),
            flipped_blocks: Cell::new(0),
        };
        run.give_clients();
        run
    }

    /// Two clients for each node that has come up.
    fn give_clients(&self) {
        for index in 0..self.nodes.count() {
            let (Some(node), Some(process)) = (self.nodes.node(index), self.nodes.process(index)) else {
                continue;
            };
            let incarnation = process.incarnation();
            if self.clients_of.borrow_mut().insert(index, incarnation) == Some(incarnation) {
                continue;
            }
            for number in 0..2 {
                let random =
                    Random::stream(self.seed, "client", incarnation * 100 + index as u64 * 10 + number);
                let (history, stop) = (Rc::clone(&self.history), Rc::clone(&self.stop));
                process.spawn(client(node.clone(), process.platform(), history, stop, random));
            }
        }
    }

    fn run_for(&self, milliseconds: u64) {
        let end = self.nodes.world.run_for(Duration::from_millis(milliseconds));
        assert_eq!(end, RunEnd::TimeOver, "the world goes on");
        self.give_clients();
    }

    /// Something breaks, or comes back.
    fn one_fault(&self) {
        let nodes = &self.nodes;
        let index = self.random.index(nodes.count());
        let other = (index + 1 + self.random.index(nodes.count() - 1)) % nodes.count();
        let spared = self.rotten.get().is_some_and(|rotten| rotten != index);
        let started = (0..nodes.count()).filter(|index| nodes.is_started(*index)).count();
        match self.random.below(18) {
            0..3 if !spared && nodes.is_up(index) && started > 1 => {
                nodes.stop(index, self.random.chance(500))
            }
            3..6 if !nodes.is_started(index) => nodes.start(index),
            6 if self.rotten.get().is_none() => (0..nodes.count()).for_each(|index| nodes.stop(index, true)),
            7 => nodes.world.cut(nodes.host(index), nodes.host(other)),
            8 => nodes.world.cut_one_way(nodes.host(index), nodes.host(other)),
            9 => nodes.world.heal_all(),
            10 => {
                nodes.world.break_connections(nodes.host(index), nodes.host(other));
            }
            11 => nodes.state.set_outage(self.random.chance(300)),
            12 => nodes.state.set_faults(Faults {
                request_lost_per_mille: self.random.below(100) as u32,
                answer_lost_per_mille: self.random.below(100) as u32,
                request_late_per_mille: self.random.below(50) as u32,
                ..Faults::default()
            }),
            13 => {
                if let Some(process) = nodes.process(index) {
                    process.pause(Duration::from_millis(self.random.between(1, 4000)));
                }
            }
            // A drive that hangs while its node lives, for longer than anybody waits at most.
            14 => {
                let drive = nodes.drive(index).clone();
                drive.fall_silent();
                let time = Duration::from_millis(self.random.between(1, 20_000));
                nodes.world.after(time, move |_| drive.revive());
            }
            15 => nodes.drive(index).set_latency_factor(self.random.between(1, 200) as u32),
            _ if self.rotten.get().is_none() && healthy(nodes) => self.rot(index),
            _ => self.scrub_away(),
        }
    }

    /// Flips bits in blocks of one drive that hold what was written last.
    fn rot(&self, index: usize) {
        self.rotten.set(Some(index));
        let flipped = rot(self.nodes.drive(index), &self.history, &self.random);
        self.flipped_blocks.set(self.flipped_blocks.get() + flipped);
    }

    /// Scrubs the volume; if that came to its end, no damage is left.
    fn scrub_away(&self) {
        if healthy(&self.nodes)
            && let Some(report) = self.scrub()
            && report.pieces_unchecked == 0
            && report.damaged.values().sum::<u64>() == report.blocks_healed
            && healthy(&self.nodes)
        {
            self.rotten.set(None);
        }
    }

    fn scrub(&self) -> Option<ScrubReport> {
        let owns = |index: &usize| {
            self.nodes
                .node(*index)
                .is_some_and(|node| node.report().owned.iter().any(|owned| owned.is_serving))
        };
        let index = (0..self.nodes.count()).find(owns)?;
        let (node, process, volume) = (self.nodes.node(index)?, self.nodes.process(index)?, self.volume);
        let scrubbed = process.block_on(async move { node.scrub_volume(volume, true, |_| {}).await });
        scrubbed.ok()?.ok()
    }

    /// All faults end; everything is healthy again, all copies are the same, and nobody read what
    /// they should not have.
    fn converge(&self) {
        let (nodes, seed) = (&self.nodes, self.seed);
        nodes.world.heal_all();
        nodes.state.set_outage(false);
        nodes.state.set_faults(Faults::default());
        for index in 0..nodes.count() {
            nodes.drive(index).clear_faults();
            match nodes.process(index) {
                Some(process) => process.resume(),
                None => nodes.start(index),
            }
        }
        await_health(nodes, seed);
        self.give_clients();
        let answered = self.history.answered();
        let progress = || self.history.answered() > answered + 10;
        assert_eq!(nodes.run_until(progress), RunEnd::ConditionMet, "seed {seed}: no I/O");
        self.stop.set(true);
        self.run_for(500);
        await_health(nodes, seed);
        // The first scrub heals.
        for is_healed in [false, true] {
            let report = self.scrub().expect("nothing disturbs the owner");
            assert_eq!(report.blocks_different, 0, "seed {seed}: copies differ");
            assert_eq!(report.pieces_unchecked, 0, "seed {seed}");
            assert!(report.blocks_checked >= 3 * VOLUME_BYTES / 4096, "seed {seed}");
            assert!(!is_healed || report.damaged.is_empty(), "seed {seed}: {report:?} after healing");
        }
        self.history.check(seed);
    }
}

/// One run under faults. Returns the blocks in which a bit was flipped.
fn cruel_run(seed: u64) -> u64 {
    let run = Run::new(seed);
    run.run_for(50);
    for _ in 0..12 {
        run.one_fault();
        run.run_for(run.random.between(1, 1500));
    }
    run.converge();
    run.flipped_blocks.get()
}

#[test]
fn a_thousand_cruel_runs_of_whole_nodes_lose_and_tear_nothing() {
    let seeds = seed_count(1000);
    let flipped_blocks: u64 = (seed_first()..seed_first() + seeds).map(cruel_run).sum();
    assert!(seeds < 1000 || flipped_blocks > seeds / 4, "{flipped_blocks}: bit rot hits what is read");
}

#[test]
fn whole_nodes_that_answer_before_it_is_durable_are_caught() {
    assert!(catches(Bug::AnswerBeforeDurable, 300, cruel_run));
}

#[test]
fn whole_nodes_that_skip_the_fence_are_caught() {
    assert!(catches(Bug::SkipFence, 300, cruel_run));
}

#[test]
fn whole_nodes_that_trust_a_bad_checksum_are_caught() {
    assert!(catches(Bug::TrustBadChecksum, 300, cruel_run));
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
        device.write(4096, content(platform.buffers(), 7)).await.expect("two copies are left");
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
