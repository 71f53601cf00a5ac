//! The whole cluster dies at once, as by a power cut, and comes back with everything that it had
//! answered.
//!
//! The drives are volatile: what was not flushed dies with the process.

use std::time::Duration;

use spandrel_process_cluster::{
    Cluster, ClusterOptions, HistoryClient, LoadEnd, LoadOptions, Program, Random, Violation, ViolationKind,
};

const VOLUME_BYTES: u64 = 64 << 20;

/// Writes that are answered before the cluster may die.
const WRITES_MIN: u64 = 10_000;

/// A cluster with a new volume of three copies, and a client of it at its owner.
fn cluster_with_volume(drive_prefix: &str, seed: u64) -> (Cluster, HistoryClient) {
    let arguments =
        ["--nodes", "3", "--drives", "1", "--drive-size", "256M", "--slab-size", "4M", "--sparse"];
    let arguments = arguments.map(str::to_owned).to_vec();
    let options = ClusterOptions { arguments, drive_prefix: drive_prefix.to_owned() };
    let cluster = Cluster::start(Program::with_test_faults(), options);
    cluster.must_run(&["volume", "create", "v", "--size", "64M", "--copies", "3"]);
    let client = HistoryClient::new(cluster.nbd_address("n1"), "v", VOLUME_BYTES, seed);
    (cluster, client)
}

/// Loads the volume and kills the cluster at a random time after so many answered writes. The
/// answer of a write never waits for the killing.
fn load_and_kill(cluster: &Cluster, client: &mut HistoryClient, random: &Random, writes_min: u64) -> LoadEnd {
    let switch = cluster.kill_switch();
    let wanted = writes_min + random.below(2000);
    let delay = Duration::from_micros(random.below(5000));
    let end = client.load(LoadOptions::default(), move |answered| {
        if answered == wanted {
            let switch = switch.clone();
            std::thread::spawn(move || {
                std::thread::sleep(delay);
                switch.kill();
            });
        }
        true
    });
    let end = end.expect("a cluster that serves");
    assert!(end.writes_answered >= wanted && end.broken.is_some(), "{end:?}");
    assert_eq!(end.failures, Vec::<String>::new());
    assert_eq!(end.violations, []);
    end
}

fn assert_nothing_is_lost(round: usize, violations: &[Violation]) {
    let shown: Vec<String> = violations.iter().take(10).map(ToString::to_string).collect();
    assert!(violations.is_empty(), "round {round}: {} violations:\n{}", violations.len(), shown.join("\n"));
}

/// Twenty deaths, each in the middle of sixteen writes.
#[test]
fn a_killed_cluster_has_lost_nothing_that_it_had_answered() {
    let random = Random::new(1);
    let (mut cluster, mut client) = cluster_with_volume("volatile:", 1);
    let nodes = ["n1", "n2", "n3"];
    for round in 0..20 {
        client.use_address(cluster.nbd_address(nodes[round % nodes.len()]));
        let end = load_and_kill(&cluster, &mut client, &random, WRITES_MIN);
        assert_eq!(end.unanswered, LoadOptions::default().in_flight);
        cluster.kill();
        // What a crash leaves is never taken for damage.
        let drive = cluster.drive_file(nodes[round % nodes.len()], "d1");
        let inspected = cluster.run(&["drive", "inspect", drive.to_str().expect("a plain name")]);
        assert_eq!(inspected.status, Some(0), "round {round}: {inspected:#?}");
        cluster.restart();
        let violations = client.check().expect("a cluster that serves");
        assert_nothing_is_lost(round, &violations);
        let verified = cluster.run(&["volume", "verify", "v"]);
        assert_eq!(verified.status, Some(0), "round {round}: {verified:#?}");
    }
}

/// The judge sees drives that say they have flushed and have not.
#[test]
fn drives_that_lie_about_flushes_are_found_out() {
    let random = Random::new(2);
    let (mut cluster, mut client) = cluster_with_volume("volatile:", 2);
    // What was written so far is safe: only from here on the drives lie.
    cluster.stop();
    cluster.set_drive_prefix("volatile,skip-flush:");
    cluster.restart();
    load_and_kill(&cluster, &mut client, &random, 1000);
    cluster.set_drive_prefix("volatile:");
    cluster.restart();
    let violations = client.check().expect("a cluster that serves");
    let is_loss = |violation: &Violation| matches!(violation.kind, ViolationKind::Lost { .. });
    assert!(violations.iter().filter(|violation| is_loss(violation)).count() > 100, "{violations:?}");
}
