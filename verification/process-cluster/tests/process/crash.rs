//! The whole cluster dies at once, as by a power cut, and comes back with everything that it had
//! answered.
//!
//! The drives are volatile: what was not flushed dies with the process.

use std::time::Duration;

use spandrel_process_cluster::{
    Cluster, ClusterOptions, HistoryClient, LoadEnd, LoadOptions, Next, Program, Random, Violation,
    ViolationKind,
};

const VOLUME_BYTES: u64 = 64 << 20;

/// Requests that are answered before the cluster may die.
const REQUESTS_MIN: u64 = 10_000;

/// What a cluster is like.
#[derive(Clone, Copy)]
struct Shape {
    nodes: u32,
    /// Copies of the volume.
    copies: u32,
    /// Drives of each node.
    drives: u32,
    /// Cache drives of each node.
    caches: u32,
    /// The most shards of a node. It may have another number of them at each start.
    shards_max: u64,
}

const THREE_NODES: Shape = Shape { nodes: 3, copies: 3, drives: 1, caches: 0, shards_max: 1 };

/// A cluster with a new volume, and a client of it.
fn cluster_with_volume(shape: Shape, drive_prefix: &str, seed: u64) -> (Cluster, HistoryClient) {
    let (nodes, drives) = (shape.nodes.to_string(), shape.drives.to_string());
    let mut arguments =
        vec!["--nodes", &nodes, "--drives", &drives, "--drive-size", "96M", "--slab-size", "4M", "--sparse"];
    let caches = shape.caches.to_string();
    if shape.caches > 0 {
        arguments.extend(["--cache-drives", &caches, "--cache-drive-size", "64M"]);
    }
    let arguments = arguments.into_iter().map(str::to_owned).collect();
    let options = ClusterOptions { arguments, drive_prefix: drive_prefix.to_owned() };
    let cluster = Cluster::start(Program::with_test_faults(), options);
    cluster.must_run(&["volume", "create", "v", "--size", "64M", "--copies", &shape.copies.to_string()]);
    let client = HistoryClient::new(cluster.nbd_address("n1"), "v", VOLUME_BYTES, seed);
    (cluster, client)
}

/// Loads the volume and kills the cluster at a random time after so many answered requests.
fn load_and_kill(
    cluster: &Cluster,
    client: &mut HistoryClient,
    random: &Random,
    requests_min: u64,
) -> LoadEnd {
    let switch = cluster.kill_switch();
    let wanted = requests_min + random.below(2000);
    let after = Duration::from_micros(random.below(5000));
    let end = client.load(LoadOptions::default(), move |answered| {
        if answered != wanted {
            return Next::GoOn;
        }
        let switch = switch.clone();
        Next::AndLater(after, Box::new(move || switch.kill()))
    });
    let end = end.expect("a cluster that serves");
    assert!(end.answered >= wanted && end.broken.is_some(), "{end:?}");
    assert_eq!(end.failures, Vec::<String>::new());
    assert_eq!(end.violations, []);
    end
}

fn assert_nothing_is_lost(round: usize, violations: &[Violation]) {
    let shown: Vec<String> = violations.iter().take(10).map(ToString::to_string).collect();
    assert!(violations.is_empty(), "round {round}: {} violations:\n{}", violations.len(), shown.join("\n"));
}

/// Kills a cluster so many times, each time in the middle of sixteen writes, and judges what it has
/// kept.
fn kill_again_and_again(shape: Shape, rounds: usize, seed: u64) {
    let random = Random::new(seed);
    let (mut cluster, mut client) = cluster_with_volume(shape, "volatile:", seed);
    let nodes: Vec<String> = (1..=shape.nodes).map(|number| format!("n{number}")).collect();
    for (round, node) in nodes.iter().cycle().take(rounds).enumerate() {
        client.use_address(cluster.nbd_address(node));
        let end = load_and_kill(&cluster, &mut client, &random, REQUESTS_MIN);
        assert_eq!(end.unanswered, LoadOptions::default().in_flight);
        cluster.kill();
        // What a crash leaves is never taken for damage.
        let inspected = cluster.inspect(&cluster.drive_file(node, "d1"), &[]);
        assert_eq!(inspected.status, Some(0), "round {round}: {inspected:#?}");
        if shape.shards_max > 1 {
            cluster.set_shards(1 + random.below(shape.shards_max));
        }
        if round % 3 == 0 {
            // It dies once more while it comes back.
            cluster.restart_and_kill(Duration::from_micros(random.below(1_600_000)));
        }
        cluster.restart();
        let violations = client.check().expect("a cluster that serves");
        assert_nothing_is_lost(round, &violations);
        cluster.await_health();
        let verified = cluster.run(&["volume", "verify", "v"]);
        assert_eq!(verified.status, Some(0), "round {round}: {verified:#?}");
    }
}

/// Ten deaths of three nodes that hold a copy each.
#[test]
fn three_nodes_that_die_together_lose_nothing_that_they_had_answered() {
    kill_again_and_again(THREE_NODES, 10, 1);
}

/// Ten deaths of four nodes, of which two hold each slab.
#[test]
fn four_nodes_that_die_together_lose_nothing_that_they_had_answered() {
    kill_again_and_again(Shape { nodes: 4, copies: 2, ..THREE_NODES }, 10, 2);
}

/// The same with nodes of several threads, and of another number of them at each start.
#[test]
fn nodes_of_several_shards_that_die_together_lose_nothing_that_they_had_answered() {
    kill_again_and_again(Shape { drives: 3, shards_max: 3, ..THREE_NODES }, 8, 5);
}

/// The same with what was written last on cache drives.
#[test]
fn three_cached_nodes_that_die_together_lose_nothing_that_they_had_answered() {
    kill_again_and_again(Shape { caches: 1, ..THREE_NODES }, 10, 4);
}

/// The judge sees drives that say they have flushed and have not.
#[test]
fn drives_that_lie_about_flushes_are_found_out() {
    let random = Random::new(3);
    let (mut cluster, mut client) = cluster_with_volume(THREE_NODES, "volatile:", 3);
    // What was written so far is safe: the drives lie from a moment on when they are in use again. Had they
    // lied about their attach, they would be refused as old images of themselves.
    cluster.stop();
    cluster.set_drive_prefix("volatile,skip-flush=50:");
    cluster.restart();
    load_and_kill(&cluster, &mut client, &random, 1000);
    cluster.set_drive_prefix("volatile:");
    cluster.restart();
    let violations = client.check().expect("a cluster that serves");
    let is_loss = |violation: &Violation| matches!(violation.kind, ViolationKind::Lost { .. });
    assert!(violations.iter().filter(|violation| is_loss(violation)).count() > 100, "{violations:?}");
}
