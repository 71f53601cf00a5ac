//! How busy nodes say they are, compared with what their clients have done and how long they have waited.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use spandrel_node::NodeLoad;
use spandrel_platform::{Instant, Platform};
use spandrel_platform_simulated::{RunEnd, SimulatedPlatform};
use spandrel_shared::{BLOCK_BYTES, LoadCounts};
use spandrel_volume::{BlockDevice, Exports};

use crate::history::{BLOCK_SECTORS, content};
use crate::nodes::{NodesWorld, SLAB_BYTES, SimulatedNode, ownerships};

const VOLUME_BYTES: u64 = 2 * SLAB_BYTES;

/// Requests that are under way at once, less those whose client thinks.
const AT_ONCE: u64 = 6;

/// How long a client thinks at most before its next request.
const THINKS_US_MAX: u64 = 8000;

/// What clients have seen.
#[derive(Default)]
struct Seen {
    reads: Cell<u64>,
    writes: Cell<u64>,
    /// How long all requests have taken together.
    took: Cell<Duration>,
    waiting: Cell<u64>,
    /// When the last request was answered, or the first of those that wait was sent.
    moved: Cell<Instant>,
    pause_max: Cell<Duration>,
    is_over: Cell<bool>,
    clients_left: Cell<u64>,
}

impl Seen {
    fn sent(&self, now: Instant) {
        if self.waiting.get() == 0 {
            self.moved.set(now);
        }
        self.waiting.set(self.waiting.get() + 1);
    }

    fn answered(&self, sent: Instant, now: Instant) {
        self.waiting.set(self.waiting.get() - 1);
        self.took.set(self.took.get() + now.since(sent));
        self.pause_max.set(self.pause_max.get().max(now.since(self.moved.replace(now))));
    }

    fn done(&self) -> u64 {
        self.reads.get() + self.writes.get()
    }
}

/// Has clients of a node read and write the volume `v`, each in blocks of its own, until it is over.
fn begin_load(nodes: &NodesWorld, index: usize) -> Rc<Seen> {
    let seen = Rc::new(Seen::default());
    let (process, node) = (nodes.process(index).expect("started"), nodes.node(index).expect("up"));
    for client in 0..AT_ONCE {
        seen.clients_left.set(seen.clients_left.get() + 1);
        process.spawn(load(node.clone(), process.platform(), Rc::clone(&seen), client));
    }
    seen
}

async fn load(node: SimulatedNode, platform: SimulatedPlatform, seen: Rc<Seen>, client: u64) {
    let device = node.exports().open("v").await.expect("it is there");
    let offset = client * BLOCK_BYTES as u64;
    while !seen.is_over.get() {
        platform.sleep(Duration::from_micros(platform.random_u64() % THINKS_US_MAX)).await;
        let sent = platform.now();
        seen.sent(sent);
        let count = if platform.random_u64().is_multiple_of(2) {
            device.read(offset, BLOCK_BYTES as u32).await.expect("it serves");
            &seen.reads
        } else {
            let data = content(platform.buffers(), client + 1, BLOCK_SECTORS);
            device.write(offset, data).await.expect("it serves");
            &seen.writes
        };
        seen.answered(sent, platform.now());
        count.set(count.get() + 1);
    }
    seen.clients_left.set(seen.clients_left.get() - 1);
}

fn end_load(nodes: &NodesWorld, seen: &Seen) {
    seen.is_over.set(true);
    assert_eq!(nodes.run_until(|| seen.clients_left.get() == 0), RunEnd::ConditionMet);
}

fn serving(nodes: &NodesWorld) -> Option<usize> {
    let serves = |owned: &[spandrel_node::OwnedVolumeReport]| owned.iter().any(|volume| volume.is_serving);
    ownerships(nodes).into_iter().find(|(_, owned)| serves(owned)).map(|(node, _)| node)
}

/// A world with a volume in three copies, and who serves it.
fn with_volume(seed: u64, count: usize) -> (NodesWorld, usize) {
    let nodes = NodesWorld::new(seed, count);
    nodes.create_volume(0, "v", VOLUME_BYTES, 3).expect("there is room");
    assert_eq!(nodes.run_until(|| serving(&nodes).is_some()), RunEnd::ConditionMet);
    let owner = serving(&nodes).expect("somebody serves it");
    (nodes, owner)
}

fn loads(nodes: &NodesWorld) -> Vec<NodeLoad> {
    (0..nodes.count()).filter_map(|index| Some(nodes.node(index)?.load())).collect()
}

/// What all nodes have counted of one layer.
fn sum<'a>(loads: &'a [NodeLoad], layer: impl Fn(&'a NodeLoad) -> Vec<&'a LoadCounts>) -> LoadCounts {
    let mut sum = LoadCounts::default();
    for counts in loads.iter().flat_map(layer) {
        for (all, one) in [(&mut sum.reads, counts.reads), (&mut sum.writes, counts.writes)] {
            all.done += one.done;
            all.bytes += one.bytes;
            all.in_flight += one.in_flight;
            all.in_flight_us += one.in_flight_us;
        }
    }
    sum
}

fn mean_us(counts: &LoadCounts) -> f64 {
    (counts.reads.in_flight_us + counts.writes.in_flight_us) as f64 / counts.done() as f64
}

fn longest_pause_ms(loads: &[NodeLoad]) -> Option<u64> {
    let volumes = loads.iter().flat_map(|load| &load.volumes);
    volumes.filter_map(|volume| volume.longest_pause).map(|pause| pause.length_ms).max()
}

#[test]
fn every_layer_counts_what_clients_do_and_the_latency_follows_from_what_is_under_way() {
    for seed in 1..5 {
        let (nodes, owner) = with_volume(seed, 3);
        // At the owner's node, and at another one.
        let client = if seed % 2 == 0 { owner } else { (owner + 1) % 3 };
        let seen = begin_load(&nodes, client);
        assert_eq!(nodes.world.run_for(Duration::from_secs(20)), RunEnd::TimeOver);
        let busy = loads(&nodes);
        let waiting = sum(&busy, |load| load.volumes.iter().map(|volume| &volume.frontend).collect());
        assert_eq!(waiting.in_flight(), seen.waiting.get(), "seed {seed}");
        end_load(&nodes, &seen);
        assert_eq!(nodes.world.run_for(Duration::from_secs(1)), RunEnd::TimeOver);
        let loads = loads(&nodes);
        let frontend = sum(&loads, |load| load.volumes.iter().map(|volume| &volume.frontend).collect());
        let owner = sum(&loads, |load| load.volumes.iter().map(|volume| &volume.owner).collect());
        let bus = sum(&loads, |load| vec![&load.bus]);
        let drives = sum(&loads, |load| load.drives.iter().map(|drive| &drive.load).collect());
        assert_eq!(
            (frontend.reads.done, frontend.writes.done),
            (seen.reads.get(), seen.writes.get()),
            "seed {seed}"
        );
        assert_eq!(frontend.reads.bytes, seen.reads.get() * BLOCK_BYTES as u64, "seed {seed}");
        assert_eq!(owner.done(), frontend.done(), "seed {seed}: no owner was lost");
        // Each write goes to two other copies at least, and to three drives.
        assert!(bus.writes.done >= 2 * seen.writes.get(), "seed {seed}: {bus:?}");
        assert!(bus.writes.bytes >= 2 * frontend.writes.bytes, "seed {seed}: {bus:?}");
        assert!(drives.writes.bytes > 3 * frontend.writes.bytes, "seed {seed}: {drives:?}");
        assert!(drives.reads.done > 0 && drives.reads.bytes == drives.reads.done * BLOCK_BYTES as u64);
        for layer in [&frontend, &owner, &bus, &drives] {
            assert_eq!(layer.in_flight(), 0, "seed {seed}: nothing is under way any more");
        }
        let true_us = seen.took.get().as_micros() as f64 / seen.done() as f64;
        let off = mean_us(&frontend) / true_us - 1.0;
        assert!(off.abs() < 0.15, "seed {seed}: {} us instead of {true_us}", mean_us(&frontend));
        assert!(
            mean_us(&owner) < mean_us(&frontend) * 1.15,
            "seed {seed}: the way to the owner takes time, too"
        );
        // The volume follows its client, and that is the longest pause there is.
        let (told_ms, true_ms) = (longest_pause_ms(&loads), seen.pause_max.get().as_millis() as u64);
        match told_ms {
            Some(told_ms) => {
                assert!(told_ms.abs_diff(true_ms) <= 100, "seed {seed}: {told_ms} instead of {true_ms} ms")
            }
            None => assert!(true_ms <= 200, "seed {seed}: {true_ms} ms were missed"),
        }
    }
}

#[test]
fn the_pause_after_the_owners_death_is_told_as_its_clients_have_seen_it() {
    for seed in 1..5 {
        let (nodes, owner) = with_volume(seed, 4);
        let client = (owner + 1) % 4;
        let seen = begin_load(&nodes, client);
        let done = |count: u64| seen.done() >= count;
        assert_eq!(nodes.run_until(|| done(500)), RunEnd::ConditionMet);
        seen.pause_max.set(Duration::ZERO);
        nodes.stop(owner, true);
        let pause = |nodes: &NodesWorld| {
            let load = nodes.node(client).expect("up").load();
            load.volumes.iter().find_map(|volume| volume.longest_pause)
        };
        let goes_on = nodes.run_until(|| pause(&nodes).is_some_and(|pause| pause.ended_ms_ago.is_none()));
        assert_eq!(goes_on, RunEnd::ConditionMet, "seed {seed}: it shows while it goes on");
        assert_eq!(
            nodes.run_until(|| serving(&nodes).is_some_and(|serving| serving != owner)),
            RunEnd::ConditionMet
        );
        let before = seen.done();
        assert_eq!(nodes.run_until(|| done(before + 500)), RunEnd::ConditionMet);
        let told = pause(&nodes).expect("it is remembered");
        let (told_ms, true_ms) = (told.length_ms, seen.pause_max.get().as_millis() as u64);
        assert!(true_ms > 500, "seed {seed}: an owner is missed for longer: {true_ms} ms");
        assert!(told_ms.abs_diff(true_ms) <= 100, "seed {seed}: {told_ms} ms instead of {true_ms}");
        assert!(told.ended_ms_ago.is_some(), "seed {seed}: it is over");
        // Only what its own clients wait for: nobody has waited elsewhere.
        let elsewhere = (0..4).filter(|index| *index != client).filter_map(|index| nodes.node(index));
        let mut pauses =
            elsewhere.flat_map(|node| node.load().volumes).filter_map(|volume| volume.longest_pause);
        assert_eq!(pauses.next(), None, "seed {seed}");
        // Five minutes later nobody talks of it any more.
        end_load(&nodes, &seen);
        assert_eq!(nodes.world.run_for(Duration::from_secs(301)), RunEnd::TimeOver);
        assert_eq!(pause(&nodes), None, "seed {seed}");
    }
}
