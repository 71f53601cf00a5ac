//! How long clients wait when something is lost: four nodes and a witness, a client that writes with sixteen requests
//! under way, the longest time in which none of them is answered, and the longest that any of them waits.
//!
//! `SPANDREL_TEST_FULL=1 cargo test -p spandrel-process-cluster --test process -- pauses:: --nocapture` measures each
//! loss twenty times and prints a table; otherwise each happens once. `SPANDREL_TEST_LOSS=TwoNodes` measures that one alone.
//! No time is judged: machines differ. That the loss has happened is.
//!
//! Each server is in two networks, where namespaces can be made; else the loss of a network is left out.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use spandrel_process_cluster::{
    HistoryClient, LoadOptions, Network, Networks, Next, Program, Servers, ServersOptions, is_full,
};

const VOLUME_BYTES: u64 = 32 << 20;

/// Writes before a loss, and behind it at least.
const WRITES: u64 = 1500;

/// How long the client goes on behind a loss, at least: with `SPANDREL_TEST_FULL=1` until the entries of what is lost have
/// expired, too.
fn watched() -> Duration {
    if is_full() { Duration::from_secs(4) } else { Duration::from_millis(500) }
}

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

    /// Whether the volume has another owner then.
    fn changes_owner(self) -> bool {
        matches!(self, Self::Owner | Self::OwnerAndLeader | Self::TwoNodes | Self::HandOver)
    }
}

/// The nodes other than `node`, the client's, in their order.
fn others(node: &str) -> Vec<&'static str> {
    ["n1", "n2", "n3", "n4"].into_iter().filter(|other| *other != node).collect()
}

/// The thread of something that happens, as soon as it does.
type Thread = Rc<RefCell<Option<JoinHandle<()>>>>;

/// Something that happens once, in the middle of a load, while the client goes on.
struct Happening {
    act: Option<Box<dyn FnOnce() + Send>>,
    thread: Thread,
    /// When it was seen to have happened, and how much was answered by then.
    over: Option<(Instant, u64)>,
}

impl Happening {
    fn new(act: impl FnOnce() + Send + 'static, thread: &Thread) -> Self {
        Self { act: Some(Box::new(act)), thread: Rc::clone(thread), over: None }
    }

    /// What the client does next, after so many answers.
    fn next(&mut self, answered: u64) -> Next {
        if let Some((at, answered_then)) = self.over {
            let is_enough = at.elapsed() >= watched() && answered >= answered_then + WRITES;
            return if is_enough { Next::End } else { Next::GoOn };
        }
        let mut thread = self.thread.borrow_mut();
        if answered >= WRITES
            && let Some(act) = self.act.take()
        {
            // On a thread of its own: the client goes on meanwhile.
            *thread = Some(std::thread::spawn(act));
        } else if thread.as_ref().is_some_and(JoinHandle::is_finished) {
            self.over = Some((Instant::now(), answered));
        }
        Next::GoOn
    }
}

/// How long a client has waited.
#[derive(Clone, Copy)]
struct Waited {
    /// The longest time in which nothing was answered.
    pause: Duration,
    /// The longest time from a request to its answer.
    request: Duration,
}

/// Has a loss happen in the middle of a load; of this network, if it is of one.
fn measure(servers: &Arc<Servers>, client: &mut HistoryClient, loss: Loss, network: Network) -> Waited {
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
    let (used, owner_before) = (used.to_owned(), owner.clone());
    let switch = servers.power_switch(&lost);
    let at = Arc::clone(servers);
    let happens = move || match loss {
        Loss::Copy => at.kill_now(first),
        Loss::SilentCopy => at.signal(first, "-STOP"),
        Loss::Owner | Loss::OwnerAndLeader | Loss::TwoNodes => switch.cut(),
        Loss::StateLeader => assert!(at.kill_etcd(&leader), "the leader runs"),
        Loss::PathOfCopy => at.networks().cut_off(&[first], &[network]),
        Loss::PathOfOwner => at.networks().cut_off(&[&owner], &[network]),
        Loss::Path => at.networks().cut_whole(network),
        Loss::HandOver => _ = at.must_run(first, &["volume", "move", "v", "--owner", third]),
    };
    let thread = Thread::default();
    let mut happening = Happening::new(happens, &thread);
    let next = move |answered| happening.next(answered);
    let end = client.load(LoadOptions::default(), next).expect("a cluster that serves");
    assert_eq!((&end.failures, &end.violations, &end.broken), (&Vec::new(), &Vec::new(), &None), "{loss:?}");
    let happened = thread.take().expect("it has begun");
    happened.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    if loss == Loss::Copy {
        assert!(!servers.is_running(first), "{loss:?}");
    }
    if loss.changes_owner() {
        assert_ne!(servers.owner(&used, "v"), Some(owner_before), "{loss:?}");
    }
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
    Waited { pause: end.pause_max, request: end.wait_max }
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

/// Of these times, the one in the middle and the longest, in milliseconds.
fn median_and_worst(times: impl Iterator<Item = Duration>) -> (u128, u128) {
    let mut times: Vec<u128> = times.map(|time| time.as_millis()).collect();
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() - 1])
}

#[test]
fn clients_go_on_after_every_loss() {
    let runs = if is_full() { 20 } else { 1 };
    let options = ServersOptions { drive_prefix: String::new(), ..ServersOptions::new(4, true) };
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
    println!("{:<14}  {:^19}  {:^19}", "", "NOTHING ANSWERED", "ONE REQUEST");
    println!("{:<14}  {:>9}  {:>8}  {:>9}  {:>8}", "LOSS", "MEDIAN ms", "WORST ms", "MEDIAN ms", "WORST ms");
    let only = std::env::var("SPANDREL_TEST_LOSS").ok();
    let is_wanted = |loss: &Loss| {
        (in_networks || !loss.needs_networks())
            && only.as_ref().is_none_or(|only| *only == format!("{loss:?}"))
    };
    assert!(only.is_none() || LOSSES.iter().any(is_wanted), "no such loss: {only:?}");
    for loss in LOSSES.into_iter().filter(is_wanted) {
        let mut waited = Vec::new();
        // Each network in turn: what is under way when one is cut may be in either.
        let runs = if loss.needs_networks() { runs.max(2) } else { runs };
        for network in Network::BOTH.into_iter().cycle().take(runs) {
            waited.push(measure(&servers, &mut client, loss, network));
            Servers::restore(&mut servers);
        }
        let (median, worst) = median_and_worst(waited.iter().map(|waited| waited.pause));
        let (median_one, worst_one) = median_and_worst(waited.iter().map(|waited| waited.request));
        let name = format!("{loss:?}");
        println!("{name:<14}  {median:>9}  {worst:>8}  {median_one:>9}  {worst_one:>8}");
    }
    let violations = client.check().expect("a cluster that serves");
    assert!(violations.is_empty(), "{violations:?}");
}
