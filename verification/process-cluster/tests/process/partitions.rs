//! Servers that are there and not reached: cut off in both directions or in one, alone or together with the client,
//! with and without a majority of those who keep the state. What is cut off answers nothing that others do not have;
//! whoever can goes on; and when all is healed, every client finds what it was answered.
//!
//! `SPANDREL_TEST_FULL=1` tries more ways to be cut off, and waits longer for what must not be answered.
//!
//! They need network namespaces, which only root may make; they say so where they are left out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spandrel_platform::Address;
use spandrel_process_cluster::{
    HistoryClient, LoadOptions, LoadThread, Meanwhile, Network, Networks, Next, Program, Servers,
    ServersOptions, is_full,
};

const VOLUME_BYTES: u64 = 16 << 20;

/// Longer than any promise between nodes, and than a client has to wait where somebody can go on. With
/// `SPANDREL_TEST_FULL=1` longer than the entries last that show who is alive, too.
fn silence() -> Duration {
    Duration::from_secs(if is_full() { 20 } else { 4 })
}

/// Few requests, since several clients work beside each other.
const LOAD: LoadOptions = LoadOptions { in_flight: 4, write_blocks_max: 4, read_percent: 20 };

/// Servers with networks between them, unless this machine has none.
fn servers(nodes: usize, witness: bool, what: &str) -> Option<Servers> {
    let options = ServersOptions::new(nodes, witness);
    let networks = Networks::between(&options.names(), &[Network::A], what)?;
    Some(Servers::start_in(networks, &Program::with_test_faults(), &options))
}

/// A volume that was made for a test, and a client that loads it at a node.
struct Volume {
    name: &'static str,
    load: LoadThread,
}

/// Makes a volume with copies on all nodes, or on three, that `owner` owns, and loads it at `used`.
fn load(servers: &Servers, name: &'static str, owner: &str, used: &str) -> Volume {
    let copies = copies(servers);
    servers
        .must_run(owner, &["volume", "create", name, "--size", "16M", "--copies", &copies, "--owner", owner]);
    let seed = name.bytes().fold(7, |seed, byte| seed * 31 + u64::from(byte));
    let load = LoadThread::start(servers.nbd_address(used), name, VOLUME_BYTES, seed, LOAD);
    load.await_answers(200);
    Volume { name, load }
}

/// How many copies volumes have: three, or on all nodes. So those who go on have one of every slab.
fn copies(servers: &Servers) -> String {
    nodes_of(servers).len().min(3).to_string()
}

fn nodes_of(servers: &Servers) -> Vec<String> {
    servers.names().into_iter().filter(|name| name.starts_with('n')).collect()
}

/// Waits until a node other than these serves a volume, as `seen` sees it.
fn await_taken(servers: &Servers, seen: &str, volume: &str, from: &[&str]) {
    let is_taken = |status: &serde_json::Value| {
        let volumes = status["volumes"].as_array().into_iter().flatten();
        let mut volumes = volumes.filter(|known| known["name"] == volume);
        volumes.next().is_some_and(|known| {
            known["is_serving"] == true && !from.iter().any(|node| known["owner"] == *node)
        })
    };
    servers.await_status(seen, "served by another node", is_taken);
}

/// The states of a volume's copies on a node, as `seen` sees them.
fn copies_on(servers: &Servers, seen: &str, volume: &str, node: &str) -> Vec<String> {
    let shown = servers.must_run(seen, &["volume", "get", volume, "-o", "json"]).json();
    let legs = shown["legs"].as_array().expect("a list").iter().filter(|leg| leg["node"] == node);
    legs.map(|leg| leg["state"].as_str().expect("a text").to_owned()).collect()
}

/// Heals the networks, waits until all is as it was, for the clients, too, and has the volumes read at every node.
fn heal(servers: &Servers, volumes: Vec<Volume>) {
    servers.networks().heal();
    for volume in &volumes {
        volume.load.await_answers(200);
    }
    servers.await_health("n1");
    // Volumes may be well before the state says again that each node lives, and the next one could not be placed yet. A
    // node knows of itself that it lives, so each is asked about the others.
    for node in nodes_of(servers) {
        servers.await_status(&node, "all there", |status| {
            let mut nodes = status["nodes"].as_array().into_iter().flatten();
            nodes.all(|node| node["status"]["health"] == "Healthy")
        });
    }
    for Volume { name, load } in volumes {
        let addresses: Vec<Address> =
            nodes_of(servers).iter().map(|node| servers.nbd_address(node)).collect();
        let end = load.end(&addresses);
        assert_eq!((end.failures, end.violations, end.broken), (vec![], vec![], None), "{name}");
        servers.delete_volume("n1", name);
    }
}

/// `lost`, the owner of both volumes first among them, is cut off as `cut` does it, while one client writes there, at
/// the last of `lost`, and one elsewhere. Others take the volumes over: the client elsewhere goes on; the one inside
/// is answered nothing, and goes on when all is healed.
fn is_taken_over(servers: &Servers, lost: &[&str], cut: impl FnOnce(&Networks)) {
    let (owner, used) = (lost[0], lost[lost.len() - 1]);
    let mut others = servers.networks().others(lost);
    others.retain(|name| name.starts_with('n'));
    let elsewhere = others[0];
    let inside = load(servers, "inside", owner, used);
    let outside = load(servers, "outside", owner, elsewhere);
    // A volume that is only read, where its owner is: that needs nobody else's copy.
    servers.create_volume(owner, "read", &["--size", "16M", "--copies", &copies(servers), "--owner", owner]);
    let reads = LoadOptions { in_flight: 1, read_percent: 100, ..LOAD };
    let read = LoadThread::start(servers.nbd_address(owner), "read", VOLUME_BYTES, 1, reads);
    read.await_answers(200);
    let read = Volume { name: "read", load: read };
    cut(servers.networks());
    for volume in [&inside, &outside, &read] {
        await_taken(servers, elsewhere, volume.name, lost);
    }
    // Another owner serves it, so all promises have run out.
    let answered = [inside.load.answered(), read.load.answered()];
    outside.load.await_answers(1000);
    inside.load.await_silence(silence());
    let later = [inside.load.answered(), read.load.answered()];
    assert_eq!(later, answered, "an owner that was cut off has answered clients");
    // Nobody was marked by those who are too few for that.
    for node in others {
        let copies = copies_on(servers, elsewhere, "inside", node);
        assert!(copies.iter().all(|state| state == "in-sync"), "{node}: {copies:?}");
    }
    heal(servers, vec![inside, outside, read]);
}

/// A client at the owner goes on while other servers are cut off as `cut` does it.
fn goes_on(servers: &Servers, owner: &str, cut: impl FnOnce(&Networks)) {
    let volume = load(servers, "inside", owner, owner);
    cut(servers.networks());
    volume.load.await_answers(2000);
    heal(servers, vec![volume]);
}

const A: [Network; 1] = [Network::A];

#[test]
fn an_owner_that_is_cut_off_completes_nothing_and_others_go_on() {
    let Some(servers) = servers(3, false, "an owner that is cut off") else { return };
    is_taken_over(&servers, &["n1"], |networks| networks.cut_off(&["n1"], &A));
    // Nobody hears it; and it hears nobody.
    is_taken_over(&servers, &["n2"], |networks| networks.cut(&["n2"], &["n1", "n3"], &A));
    if is_full() {
        is_taken_over(&servers, &["n3"], |networks| networks.cut(&["n1", "n2"], &["n3"], &A));
    }
}

/// It stands still meanwhile, so that it cannot see its promises run out, and nobody's fence reaches it.
#[test]
fn an_owner_that_wakes_up_cut_off_reads_nothing_that_others_have_written_over() {
    let Some(servers) = servers(3, false, "an owner that wakes up cut off") else { return };
    let servers = Arc::new(servers);
    servers.create_volume("n1", "v", &["--size", "16M", "--copies", "3", "--owner", "n1"]);
    let mut client = HistoryClient::new(servers.nbd_address("n1"), "v", VOLUME_BYTES, 3);
    let until = |writes| move |answered| if answered < writes { Next::GoOn } else { Next::End };
    let end = client.load(LoadOptions::default(), until(1000)).expect("a cluster that serves");
    assert!(end.is_faultless(), "{end:?}");

    let (cut, woken) = (Arc::clone(&servers), Arc::clone(&servers));
    let meanwhile = Meanwhile {
        begin: Box::new(move || {
            cut.signal("n1", "-STOP");
            cut.networks().cut_off(&["n1"], &A);
        }),
        address: servers.nbd_address("n2"),
        next: Box::new(until(4000)),
        end: Box::new(move || {
            woken.signal("n1", "-CONT");
            // It answers when it is reached again, and whoever asks it hears what the others have.
            std::thread::spawn(move || {
                let woken_at = Instant::now();
                let for_long = |_: &serde_json::Value| woken_at.elapsed() >= silence();
                woken.await_status("n2", "awake for long", for_long);
                woken.networks().heal();
            });
        }),
    };
    let (end, violations) = client.check_after(meanwhile).expect("a cluster that serves");
    assert!(end.is_faultless(), "{end:?}");
    assert!(violations.is_empty(), "{violations:?}");
    servers.await_health("n1");
}

#[test]
fn a_copy_that_is_cut_off_stops_nobody() {
    let Some(servers) = servers(3, false, "a copy that is cut off") else { return };
    goes_on(&servers, "n1", |networks| networks.cut_off(&["n3"], &A));
    // From the owner alone; the third node reaches both.
    goes_on(&servers, "n1", |networks| networks.cut(&["n1"], &["n2"], &A));
    if is_full() {
        goes_on(&servers, "n2", |networks| networks.cut(&["n1"], &["n2"], &A));
        goes_on(&servers, "n3", |networks| {
            networks.cut(&["n1"], &["n3"], &A);
            networks.cut(&["n3"], &["n1"], &A);
        });
    }
}

#[test]
fn a_client_that_is_cut_off_together_with_the_owner_is_answered_nothing_that_others_do_not_have() {
    let Some(servers) = servers(4, true, "a client that is cut off with the owner") else { return };
    is_taken_over(&servers, &["n1", "n2"], |networks| networks.cut_off(&["n1", "n2"], &A));
}

#[test]
fn two_nodes_that_are_without_the_witness_and_each_other_answer_nothing() {
    let Some(servers) = servers(2, true, "two nodes without their witness") else { return };
    goes_on(&servers, "n1", |networks| networks.cut_off(&["w"], &A));
    is_taken_over(&servers, &["n2"], |networks| networks.cut_off(&["n2"], &A));
    let (first, second) = (load(&servers, "inside", "n1", "n1"), load(&servers, "outside", "n2", "n2"));
    for server in ["n1", "n2", "w"] {
        servers.networks().cut_off(&[server], &A);
    }
    for volume in [&first, &second] {
        volume.load.await_silence(silence());
    }
    let answered = [first.load.answered(), second.load.answered()];
    // It stays so; both wait for longer than it takes to take a volume over.
    first.load.await_silence(silence());
    assert_eq!([first.load.answered(), second.load.answered()], answered);
    heal(&servers, vec![first, second]);
}
