//! Servers that are there and not reached: cut off in both directions or in one, alone or together with the client,
//! with and without a majority of those who keep the state. What is cut off answers nothing that others do not have;
//! whoever can goes on; and when all is healed, every client finds what it was answered.
//!
//! They need network namespaces, which only root may make; they say so where they are left out.

use std::time::Duration;

use spandrel_platform::Address;
use spandrel_process_cluster::{
    LoadOptions, LoadThread, Network, Networks, Program, Servers, ServersOptions,
};

const VOLUME_BYTES: u64 = 16 << 20;

/// Longer than any promise between nodes, any entry in the state that shows who is alive, and all that a client has
/// to wait for as long as somebody can go on: who has answered nothing for so long waits for the networks.
const SILENCE: Duration = Duration::from_secs(6);

/// Few requests, since several clients work beside each other.
const LOAD: LoadOptions = LoadOptions { in_flight: 4, write_blocks_max: 4, read_percent: 20 };

/// Servers with networks between them, unless this machine has none.
fn servers(nodes: usize, witness: bool, what: &str) -> Option<Servers> {
    let options = ServersOptions {
        nodes,
        witness,
        drive_size: "256M".to_owned(),
        drive_prefix: "volatile:".to_owned(),
    };
    let networks = Networks::between(&options.names(), &[Network::A], what)?;
    Some(Servers::start_in(networks, &Program::with_test_faults(), &options))
}

/// A volume that was made for a test, and a client that loads it at a node.
struct Volume {
    name: &'static str,
    load: LoadThread,
}

/// Makes a volume that `owner` owns, and loads it at `used`.
fn load(servers: &Servers, name: &'static str, copies: &str, owner: &str, used: &str) -> Volume {
    servers
        .must_run(owner, &["volume", "create", name, "--size", "16M", "--copies", copies, "--owner", owner]);
    let seed = name.bytes().fold(7, |seed, byte| seed * 31 + u64::from(byte));
    let load = LoadThread::start(servers.nbd_address(used), name, VOLUME_BYTES, seed, LOAD);
    load.await_answers(200);
    Volume { name, load }
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

/// Ends a load, and reads the volume at every node.
fn end(servers: &Servers, volume: Volume) {
    let nodes = servers.names().into_iter().filter(|name| name.starts_with('n'));
    let addresses: Vec<Address> = nodes.map(|node| servers.nbd_address(&node)).collect();
    let end = volume.load.end(&addresses);
    assert_eq!((end.failures, end.violations, end.broken), (vec![], vec![], None), "{}", volume.name);
}

/// Heals the networks, and waits until all is as it was, for the clients, too.
fn heal(servers: &Servers, volumes: Vec<Volume>) {
    servers.networks().heal();
    for volume in &volumes {
        volume.load.await_answers(200);
    }
    servers.await_health("n1");
    volumes.into_iter().for_each(|volume| end(servers, volume));
    for volume in ["inside", "outside"] {
        let deleted = servers.run("n1", &["volume", "delete", volume]);
        assert_eq!(deleted.status, Some(0), "{deleted:#?}");
    }
}

/// `lost`, the owner of both volumes among them, is cut off as `cut` does it, while one client writes there, at the
/// last of `lost`, and one elsewhere. Others take the volumes over: the client elsewhere goes on; the one inside is
/// answered nothing, and goes on when all is healed.
fn is_taken_over(servers: &Servers, lost: &[&str], cut: impl FnOnce(&Networks)) {
    let owner = lost[0];
    let others = servers.networks().others(lost);
    let elsewhere = others.iter().find(|name| name.starts_with('n')).expect("a node is left");
    let inside = load(servers, "inside", "3", owner, lost[lost.len() - 1]);
    let outside = load(servers, "outside", "3", owner, elsewhere);
    cut(servers.networks());
    for volume in [&inside, &outside] {
        await_taken(servers, elsewhere, volume.name, lost);
    }
    // What was taken over, and all that was promised before has run out, is never answered by the former owner.
    let answered = inside.load.answered();
    outside.load.await_answers(1000);
    inside.load.await_silence(SILENCE);
    assert_eq!(inside.load.answered(), answered, "a client was answered by an owner that was cut off");
    // Nobody was marked by those who are too few for that.
    for node in others.iter().filter(|name| name.starts_with('n')) {
        for state in copies_on(servers, elsewhere, "inside", node) {
            assert_eq!(state, "in-sync", "{node}");
        }
    }
    heal(servers, vec![inside, outside]);
}

#[test]
fn an_owner_that_is_cut_off_completes_nothing_and_others_go_on() {
    let Some(servers) = servers(3, false, "an owner that is cut off") else { return };
    let all = [Network::A];
    is_taken_over(&servers, &["n1"], |networks| networks.cut_off(&["n1"], &all));
    is_taken_over(&servers, &["n2"], |networks| networks.cut(&["n2"], &["n1", "n3"], &all));
    is_taken_over(&servers, &["n3"], |networks| networks.cut(&["n1", "n2"], &["n3"], &all));
}
