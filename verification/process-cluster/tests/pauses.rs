//! How long clients wait when something is lost: four nodes and a witness, a client that writes with sixteen requests
//! under way, and the longest time in which none of them is answered.
//!
//! `SPANDREL_TEST_FULL=1 cargo test -p spandrel-process-cluster --test pauses -- --nocapture` measures each loss
//! twenty times and prints a table; otherwise each happens once. `SPANDREL_TEST_LOSS=TwoNodes` measures that one alone.
//! No time is judged: machines differ.
//!
//! Each server is in two networks, where namespaces can be made; else the loss of a network is left out.

use std::sync::Arc;
use std::time::Duration;

use spandrel_process_cluster::{
    HistoryClient, LoadOptions, Network, Networks, Next, Program, Servers, ServersOptions,
};

const VOLUME_BYTES: u64 = 32 << 20;

/// Writes before and after a loss.
const WRITES: u64 = 1500;

/// What is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The process of a node with copies.
    Copy,
    /// A node with copies falls silent.
    SilentCopy,
    /// The owner's server, with its member of etcd.
    Owner,
    /// The same, when its member of etcd leads.
    OwnerAndLeader,
    /// Two nodes at once, the owner's and that of etcd's leader among them.
    TwoNodes,
    /// The member of etcd that leads.
    StateLeader,
    /// Nothing: the volume is handed over.
    HandOver,
    /// One of the two networks, for a node with copies.
    PathOfCopy,
    /// The same, for the owner; the client is elsewhere.
    PathOfOwner,
    /// One of the two networks, for all.
    Path,
}

const LOSSES: [Loss; 10] = [
    Loss::Copy,
    Loss::SilentCopy,
    Loss::Owner,
    Loss::OwnerAndLeader,
    Loss::TwoNodes,
    Loss::StateLeader,
    Loss::HandOver,
    Loss::PathOfCopy,
    Loss::PathOfOwner,
    Loss::Path,
];

impl Loss {
    fn needs_networks(self) -> bool {
        matches!(self, Self::PathOfCopy | Self::PathOfOwner | Self::Path)
    }
}

/// The nodes other than `node`, the client's, in their order.
fn others(node: &str) -> Vec<&'static str> {
    ["n1", "n2", "n3", "n4"].into_iter().filter(|other| *other != node).collect()
}

/// Has a loss happen in the middle of a load; of this network, if it is of one. The longest pause.
fn measure(servers: &Arc<Servers>, client: &mut HistoryClient, loss: Loss, network: Network) -> Duration {
    let leader = match loss {
        // The witness is no node.
        Loss::TwoNodes => lead_on_a_node(servers),
        _ => servers.state_leader("n1"),
    };
    if loss == Loss::OwnerAndLeader && leader != "w" {
        servers.must_run("n1", &["volume", "move", "v", "--owner", &leader]);
    }
    let owner = servers.owner("n1", "v").expect("a node owns it");
    // The client's node is never lost. Copies are elsewhere, or there as well.
    let [first, second, third] = others(&owner)[..] else {
        panic!("there are four nodes, and {owner} is one")
    };
    let (used, lost) = match loss {
        Loss::Copy | Loss::SilentCopy => (&*owner, vec![first]),
        Loss::StateLeader => (&*owner, vec![]),
        Loss::Owner => (first, vec![&*owner]),
        // Two servers, if it is the witness that leads.
        Loss::OwnerAndLeader if leader == "w" => (first, vec![&*owner, "w"]),
        Loss::OwnerAndLeader => (first, vec![&*owner]),
        Loss::TwoNodes if leader == owner => (first, vec![&*owner, second]),
        Loss::TwoNodes if leader == first => (second, vec![&*owner, first]),
        Loss::TwoNodes => (first, vec![&*owner, &*leader]),
        Loss::HandOver | Loss::PathOfCopy | Loss::Path => (&*owner, vec![]),
        Loss::PathOfOwner => (first, vec![]),
    };
    client.use_address(servers.nbd_address(used));
    let switch = servers.power_switch(&lost);
    let at = Arc::clone(servers);
    let happens = move || match loss {
        Loss::Copy => at.kill_now(first),
        Loss::SilentCopy => at.signal(first, "-STOP"),
        Loss::Owner | Loss::OwnerAndLeader | Loss::TwoNodes => switch.cut(),
        Loss::StateLeader => at.kill_etcd(&leader),
        Loss::PathOfCopy => at.networks().cut_off(&[first], &[network]),
        Loss::PathOfOwner => at.networks().cut_off(&[&owner], &[network]),
        Loss::Path => at.networks().cut_whole(network),
        Loss::HandOver => _ = at.must_run(first, &["volume", "move", "v", "--owner", third]),
    };
    let mut happens = Some(happens);
    let next = move |answered| match answered {
        WRITES => {
            let happens = happens.take().expect("it happens once");
            // On a thread of its own: the client goes on meanwhile.
            Next::AndLater(Duration::ZERO, Box::new(move || drop(std::thread::spawn(happens))))
        }
        _ if answered >= 4 * WRITES => Next::End,
        _ => Next::GoOn,
    };
    let end = client.load(LoadOptions::default(), next).expect("a cluster that serves");
    assert_eq!((&end.failures, &end.violations, &end.broken), (&Vec::new(), &Vec::new(), &None), "{loss:?}");
    if loss == Loss::SilentCopy {
        servers.signal(first, "-CONT");
    }
    if loss.needs_networks() {
        // Nor does anybody who asks how it is see a node as lost, once its server asks etcd over the other network.
        for node in ["n1", "n4"] {
            let all_up = |status: &serde_json::Value| {
                let nodes = status["nodes"].as_array();
                let up = serde_json::json!(["Up"]);
                nodes.is_some_and(|nodes| nodes.iter().all(|node| node["status"]["operational"] == up))
            };
            servers.await_status(node, "of all nodes while a network is cut", all_up);
        }
        servers.networks().heal();
    }
    end.pause_max
}

/// Has a node's member of etcd lead, and none of a witness: which one.
fn lead_on_a_node(servers: &Servers) -> String {
    loop {
        let leader = servers.state_leader("n1");
        if leader != "w" {
            return leader;
        }
        servers.kill_etcd("w");
        servers.await_state_members("n1");
    }
}

fn median(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() / 2]
}

#[test]
fn clients_go_on_after_every_loss() {
    let runs = if std::env::var_os("SPANDREL_TEST_FULL").is_some() { 20 } else { 1 };
    let options = ServersOptions {
        nodes: 4,
        witness: true,
        drive_size: "256M".to_owned(),
        drive_prefix: String::new(),
        init_arguments: Vec::new(),
    };
    let program = Program::with_test_faults();
    let networks = Networks::between(&options.names(), &Network::BOTH, "the loss of a network");
    let in_networks = networks.is_some();
    let started = match networks {
        Some(networks) => Servers::start_in(networks, &program, &options),
        None => Servers::start(&program, &options),
    };
    let mut servers = Arc::new(started);
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n1"]);
    let mut client = HistoryClient::new(servers.nbd_address("n1"), "v", VOLUME_BYTES, 8);
    println!("{:<14}  {:>9}  {:>9}", "LOSS", "MEDIAN ms", "WORST ms");
    let only = std::env::var("SPANDREL_TEST_LOSS").ok();
    let is_wanted = |loss: &Loss| {
        (in_networks || !loss.needs_networks())
            && only.as_ref().is_none_or(|only| *only == format!("{loss:?}"))
    };
    assert!(only.is_none() || LOSSES.iter().any(is_wanted), "no such loss: {only:?}");
    for loss in LOSSES.into_iter().filter(is_wanted) {
        let mut pauses = Vec::new();
        // Each network in turn: nodes use one of them at a time.
        let runs = if loss.needs_networks() { runs.max(2) } else { runs };
        for network in Network::BOTH.into_iter().cycle().take(runs) {
            pauses.push(measure(&servers, &mut client, loss, network));
            Servers::restore(&mut servers);
        }
        pauses.sort();
        let worst = pauses.last().copied().unwrap_or_default();
        let name = format!("{loss:?}");
        println!("{name:<14}  {:>9}  {:>9}", median(&pauses).as_millis(), worst.as_millis());
    }
    let violations = client.check().expect("a cluster that serves");
    assert!(violations.is_empty(), "{violations:?}");
}
