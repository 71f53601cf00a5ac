//! Nodes as processes of their own: joined, killed one by one and in pairs while clients write, and judged by what they
//! have kept.
//!
//! `SPANDREL_TEST_FULL=1` loses all pairs of nodes, and has an owner stand still for ten times its promises.

use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use spandrel_process_cluster::{
    HistoryClient, LoadOptions, LoadThread, Meanwhile, Next, Program, Random, Servers, ServersOptions,
    is_full,
};

const VOLUME_BYTES: u64 = 32 << 20;

/// Ten times what nodes promise each other.
const TEN_PROMISES: Duration = Duration::from_secs(15);

fn servers(nodes: usize, witness: bool) -> Servers {
    let options = ServersOptions::new(nodes, witness);
    Servers::start(&Program::with_test_faults(), &options)
}

/// A new volume, owned by a node, and a client of it there.
fn client_of(servers: &Servers, node: &str, copies: &str, seed: u64) -> HistoryClient {
    servers.create_volume(node, "v", &["--size", "32M", "--copies", copies, "--owner", node]);
    HistoryClient::new(servers.nbd_address(node), "v", VOLUME_BYTES, seed)
}

/// Loads the volume until so many writes were answered. Nothing may fail.
fn load(client: &mut HistoryClient, writes: u64) {
    let end = client
        .load(LoadOptions::default(), move |answered| if answered < writes { Next::GoOn } else { Next::End })
        .expect("a cluster that serves");
    assert_eq!((&end.failures, &end.violations, &end.broken), (&Vec::new(), &Vec::new(), &None));
}

/// Loads the volume, and has something happen in the middle of that. The client goes on to so many writes, unless the
/// node that it uses is lost.
fn load_while(client: &mut HistoryClient, writes: u64, is_lost: bool, what: impl FnOnce() + 'static) {
    let mut what: Option<Box<dyn FnOnce()>> = Some(Box::new(what));
    let next = move |answered| match what.take() {
        Some(what) if answered >= writes / 2 => Next::AndLater(Duration::from_micros(300), what),
        Some(later) => {
            what = Some(later);
            Next::GoOn
        }
        None if answered < writes => Next::GoOn,
        None => Next::End,
    };
    let end = client.load(LoadOptions::default(), next).expect("a cluster that serves");
    assert_eq!((&end.failures, &end.violations), (&Vec::new(), &Vec::new()));
    assert_eq!(end.broken.is_some(), is_lost, "{end:?}");
    assert_eq!(end.unanswered > 0, is_lost, "{end:?}");
}

fn assert_nothing_is_lost(client: &mut HistoryClient) {
    let violations = client.check().expect("a cluster that serves");
    assert!(violations.is_empty(), "{violations:?}");
}

/// Cuts the power of these servers while a client writes at `used`, and has it go on at `then`.
fn lose(servers: &mut Servers, client: &mut HistoryClient, lost: &[&str], used: &str, then: &str) {
    client.use_address(servers.nbd_address(used));
    let switch = servers.power_switch(lost);
    load_while(client, 2000, lost.contains(&used), move || switch.cut());
    lost.iter().for_each(|name| servers.kill(name));
    client.use_address(servers.nbd_address(then));
    load(client, 1000);
    assert_nothing_is_lost(client);
    servers.restart_together(lost);
    servers.await_health(then);
}

#[test]
fn three_nodes_go_on_without_any_one_of_them() {
    let mut servers = servers(3, false);
    let mut client = client_of(&servers, "n1", "3", 1);
    for (lost, used, then) in [("n1", "n1", "n2"), ("n2", "n3", "n3"), ("n3", "n1", "n2")] {
        lose(&mut servers, &mut client, &[lost], used, then);
    }
    // The owner together with the member of etcd that leads.
    let leader = servers.state_leader("n1");
    let other = if leader == "n1" { "n2" } else { "n1" };
    servers.must_run(other, &["volume", "move", "v", "--owner", &leader]);
    lose(&mut servers, &mut client, &[&leader], other, other);
    let verified = servers.run("n1", &["volume", "verify", "v"]);
    assert_eq!(verified.status, Some(0), "{verified:#?}");
}

#[test]
fn all_servers_that_end_together_come_back_with_everything() {
    let mut servers = servers(3, false);
    let mut client = client_of(&servers, "n1", "3", 2);
    let random = Random::new(2);
    let all = ["n1", "n2", "n3"];
    for _ in 0..2 {
        let switch = servers.power_switch(&all);
        load_while(&mut client, 1000 + random.below(1000), true, move || switch.cut());
        all.iter().for_each(|name| servers.kill(name));
        servers.restart_together(&all);
        assert_nothing_is_lost(&mut client);
        servers.await_health("n2");
    }
    // In order, too: the last ones are left by those that keep the state with them.
    load(&mut client, 1000);
    servers.stop_together(&all);
    servers.restart_together(&all);
    assert_nothing_is_lost(&mut client);
    // Told twice, it does not wait until the node is left in order.
    servers.stop_at_once("n3");
    client.use_address(servers.nbd_address("n1"));
    assert_nothing_is_lost(&mut client);
}

#[test]
fn two_nodes_and_a_witness_go_on_without_either() {
    let mut servers = servers(2, true);
    let mut client = client_of(&servers, "n1", "2", 3);
    for (lost, used, then) in [("n1", "n1", "n2"), ("n2", "n1", "n1"), ("w", "n2", "n2")] {
        lose(&mut servers, &mut client, &[lost], used, then);
    }
}

#[test]
fn four_nodes_and_a_witness_go_on_without_any_two_nodes() {
    let mut servers = servers(4, true);
    let mut client = client_of(&servers, "n1", "3", 4);
    // The pair, the node that is used meanwhile, and the one that is used then.
    let pairs = [
        (["n1", "n2"], "n1", "n3"),
        (["n3", "n4"], "n2", "n2"),
        (["n2", "n3"], "n4", "n1"),
        (["n1", "n3"], "n3", "n2"),
        (["n2", "n4"], "n1", "n3"),
        (["n1", "n4"], "n2", "n2"),
    ];
    for (lost, used, then) in pairs.into_iter().take(if is_full() { 6 } else { 3 }) {
        lose(&mut servers, &mut client, &lost, used, then);
    }
}

#[test]
fn an_owner_that_is_silent_for_long_completes_nothing_when_it_comes_back() {
    let servers = Arc::new(servers(3, false));
    let mut client = client_of(&servers, "n1", "3", 5);
    let woken = Arc::new(Mutex::new(None));
    let (silent, waking) = (Arc::clone(&servers), Arc::clone(&woken));
    // The owner's node stands still with writes under way, and goes on when another one owns the volume.
    load_while(&mut client, 2000, false, move || {
        silent.signal("n1", "-STOP");
        let wake = std::thread::spawn(move || {
            let is_served_elsewhere = |status: &serde_json::Value| {
                let volume = &status["volumes"][0];
                volume["is_serving"] == true && volume["owner"] != "n1"
            };
            let stopped_at = Instant::now();
            silent.await_status("n2", "served by another node", is_served_elsewhere);
            let for_long = |_: &serde_json::Value| !is_full() || stopped_at.elapsed() >= TEN_PROMISES;
            silent.await_status("n2", "silent for ten promises", for_long);
            silent.signal("n1", "-CONT");
        });
        *waking.lock().expect("nobody panics with the lock") = Some(wake);
    });
    let wake = woken.lock().expect("nobody panics with the lock").take().expect("it was begun");
    wake.join().expect("it has come to its end");
    assert_ne!(servers.owner("n2", "v").as_deref(), Some("n1"));
    for node in ["n1", "n2"] {
        client.use_address(servers.nbd_address(node));
        assert_nothing_is_lost(&mut client);
        load(&mut client, 500);
    }
    servers.await_health("n1");
    assert_nothing_is_lost(&mut client);
}

/// What is asked of the former owner while it stands still, it reads when it goes on; by then another one has answered
/// writes.
#[test]
fn an_owner_that_was_silent_for_long_reads_nothing_stale() {
    let servers = Arc::new(servers(3, false));
    let mut client = client_of(&servers, "n1", "3", 10);
    load(&mut client, 1000);
    assert_eq!(servers.owner("n2", "v").as_deref(), Some("n1"));

    let (stop, wake) = (Arc::clone(&servers), Arc::clone(&servers));
    let stopped_at = Instant::now();
    let meanwhile = Meanwhile {
        begin: Box::new(move || stop.signal("n1", "-STOP")),
        address: servers.nbd_address("n2"),
        next: Box::new(move |answered| {
            let is_long = !is_full() || stopped_at.elapsed() >= TEN_PROMISES;
            if answered >= 4000 && is_long { Next::End } else { Next::GoOn }
        }),
        end: Box::new(move || wake.signal("n1", "-CONT")),
    };
    let (end, violations) = client.check_after(meanwhile).expect("a cluster that serves");
    assert!(end.is_faultless(), "{end:?}");
    assert!(violations.is_empty(), "{violations:?}");
    servers.await_health("n1");
    assert_nothing_is_lost(&mut client);
}

#[test]
fn the_loss_of_etcds_members_stops_nobody_who_needs_no_change() {
    let servers = servers(3, false);
    let mut client = client_of(&servers, "n1", "3", 6);
    // Its keeper starts each again.
    for name in servers.names() {
        assert!(servers.kill_etcd(&name), "{name}");
        load(&mut client, 500);
    }
    for name in servers.names() {
        servers.kill_etcd(&name);
    }
    load(&mut client, 2000);
    servers.await_health("n3");
    assert_nothing_is_lost(&mut client);
}

#[test]
fn a_volume_moves_while_it_is_written_and_when_its_node_is_stopped() {
    let mut servers = servers(3, false);
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n1"]);
    let load = LoadThread::start(servers.nbd_address("n2"), "v", VOLUME_BYTES, 7, LoadOptions::default());
    for to in ["n3", "n2", "n1"] {
        load.await_answers(500);
        let moved = servers.must_run("n2", &["volume", "move", "v", "--owner", to]);
        assert!(moved.output.contains(to), "{moved:?}");
        assert_eq!(servers.owner("n3", "v").as_deref(), Some(to));
    }
    load.await_answers(500);
    servers.stop("n1");
    // It was handed over, as once before: nobody had to take it.
    let owner = servers.owner("n2", "v");
    assert!(owner.as_deref().is_some_and(|owner| owner != "n1"), "{owner:?}");
    let log = servers.log("n1");
    assert_eq!(log.matches("handing the volume over").count(), 2, "{log}");
    assert!(!log.contains("VOLUME_NOT_MOVED"), "{log}");
    load.await_answers(500);
    servers.restart("n1");
    servers.await_health("n2");
    let end = load.end(&["n1", "n2", "n3"].map(|node| servers.nbd_address(node)));
    assert!(end.is_faultless(), "{end:?}");
}

#[test]
fn all_nodes_are_restarted_one_after_the_other_under_a_client_that_moves_along() {
    let mut servers = servers(3, false);
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n1"]);
    let load = LoadThread::start(servers.nbd_address("n1"), "v", VOLUME_BYTES, 8, LoadOptions::default());
    load.await_answers(500);
    for (node, next) in [("n1", "n2"), ("n2", "n3"), ("n3", "n1")] {
        load.move_to(servers.nbd_address(next));
        servers.stop(node);
        load.await_answers(500);
        servers.restart(node);
        servers.await_health(next);
    }
    let all = ["n1", "n2", "n3"].map(|node| servers.nbd_address(node));
    let end = load.end(&all);
    assert!(end.is_faultless(), "{end:?}");
}

/// How long a node's client has to write until its volume follows it there, and more.
const FOLLOWS_FOR_SURE: Duration = Duration::from_secs(8);

#[test]
fn a_node_that_is_drained_under_load_owns_nothing_until_it_is_resumed() {
    let mut servers = servers(3, false);
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n1"]);
    for number in 1..=5 {
        let name = format!("w{number}");
        servers
            .must_run("n1", &["volume", "create", &name, "--size", "4M", "--copies", "3", "--owner", "n1"]);
    }
    let owns_nothing = |servers: &Servers| {
        let details = servers.must_run("n3", &["node", "get", "n1", "-o", "json"]).json();
        assert_eq!(details["volumes_owned"], serde_json::json!([]), "{details}");
        assert_eq!(details["maintenance"]["volumes_left"], serde_json::json!([]), "{details}");
    };
    let load = LoadThread::start(servers.nbd_address("n1"), "v", VOLUME_BYTES, 12, LoadOptions::default());
    load.await_answers(500);

    let yes = servers.must_run("n2", &["node", "safe-to-stop", "n1"]);
    assert!(yes.output.starts_with("yes: node n1 may be switched off"), "{yes:?}");
    assert!(yes.output.contains("of 6 volumes with copies there each part keeps 2"), "{yes:?}");
    assert!(yes.output.contains("votes    2 of 3"), "{yes:?}");
    let would = servers.must_run("n2", &["node", "drain", "n1", "--dry-run"]);
    assert!(would.output.contains("6 volumes: v w1 w2 w3 w4 w5"), "{would:?}");
    assert_eq!(servers.owner("n2", "v").as_deref(), Some("n1"), "nothing was done");
    servers.must_run("n2", &["node", "drain", "n1"]);
    owns_nothing(&servers);
    let others = ["n2", "n3"].map(|node| {
        let details = servers.must_run("n2", &["node", "get", node, "-o", "json"]).json();
        details["volumes_owned"].as_array().map_or(0, Vec::len)
    });
    assert!(others.iter().all(|owned| *owned >= 2), "they share what there is: {others:?}");
    let list = servers.must_run("n2", &["node", "list"]);
    assert!(list.output.contains("Paused"), "{list:?}");

    // Its client goes on writing there, which would have the volume come back.
    let drained_at = Instant::now();
    while drained_at.elapsed() < FOLLOWS_FOR_SURE {
        load.await_answers(200);
        owns_nothing(&servers);
    }
    let refused = servers.run("n2", &["volume", "move", "v", "--owner", "n1"]);
    assert!(refused.errors.contains("NODE_IN_MAINTENANCE"), "{refused:?}");
    let refused = servers.run("n2", &["volume", "create", "x", "--size", "4M", "--owner", "n1"]);
    assert!(refused.errors.contains("NODE_IN_MAINTENANCE"), "{refused:?}");
    servers.create_volume("n2", "x", &["--size", "4M"]);
    owns_nothing(&servers);

    // The volume comes back to the client that has been there all the time.
    servers.must_run("n2", &["node", "resume", "n1"]);
    let is_back = |status: &serde_json::Value| {
        let volumes = status["volumes"].as_array();
        volumes.is_some_and(|volumes| volumes.iter().any(|v| v["name"] == "v" && v["owner"] == "n1"))
    };
    servers.await_status("n2", "back at n1", is_back);
    servers.must_run("n2", &["node", "drain", "n1"]);
    owns_nothing(&servers);

    // It stays so over a start anew, and when another node is lost.
    load.move_to(servers.nbd_address("n3"));
    servers.stop("n1");
    load.await_answers(500);
    servers.restart("n1");
    servers.await_health("n3");
    servers.kill("n2");
    let refused = servers.run_once_available("n3", &["node", "drain", "n3"]);
    assert!(refused.errors.contains("NODE_NEEDED") && refused.errors.contains("n2 is down"), "{refused:?}");
    let all_at_n3 = |status: &serde_json::Value| {
        let volumes = status["volumes"].as_array();
        volumes.is_some_and(|volumes| volumes.iter().all(|volume| volume["owner"] == "n3"))
    };
    servers.await_status("n3", "owned by n3", all_at_n3);
    owns_nothing(&servers);
    servers.restart("n2");
    servers.await_health("n3");

    servers.must_run("n2", &["node", "resume", "n1"]);
    servers.must_run("n2", &["volume", "move", "v", "--owner", "n1"]);
    assert_eq!(servers.owner("n3", "v").as_deref(), Some("n1"));
    let end = load.end(&["n1", "n2", "n3"].map(|node| servers.nbd_address(node)));
    assert!(end.is_faultless(), "{end:?}");
}

#[test]
fn a_node_that_is_needed_is_drained_by_force_alone_and_a_witness_knows_how_it_is() {
    let servers = servers(2, true);
    servers.create_volume("n1", "two", &["--size", "4M", "--copies", "2", "--owner", "n1"]);
    // Where the only copy of a volume lies is the pool's decision: of two it puts one on each node.
    let is_on_n1 = |name: &&str| {
        servers.create_volume("n1", name, &["--size", "4M", "--copies", "1", "--owner", "n1"]);
        let volume = servers.must_run("n1", &["volume", "get", name, "-o", "json"]).json();
        volume["legs"][0]["drive"].as_str().is_some_and(|drive| drive.starts_with("n1/"))
    };
    let one = ["one", "another"].into_iter().find(is_on_n1).expect("one is there");
    let refused = servers.run("n2", &["node", "drain", "n1"]);
    assert!(refused.errors.contains("NODE_NEEDED"), "{refused:?}");
    let no = servers.run("n2", &["node", "safe-to-stop", "n1"]);
    assert_eq!(no.status, Some(1), "{no:?}");
    assert!(no.output.starts_with("no: node n1 must not be switched off"), "{no:?}");
    assert!(no.output.contains(&format!("of all parts of {one}")), "{no:?}");
    let forced = servers.must_run("n2", &["node", "drain", "n1", "--force", "--timeout", "60"]);
    assert!(forced.output.contains(&format!("owns only what cannot do without it ({one})")), "{forced:?}");
    assert!(forced.errors.contains(&format!("of all parts of {one}")), "{forced:?}");
    assert_eq!(servers.owner("n2", "two").as_deref(), Some("n2"));
    let unforced = servers.run("n2", &["node", "drain", "n1"]);
    assert!(unforced.errors.contains("must not be switched off"), "{unforced:?}");

    let drained = |status: &serde_json::Value| {
        let operational = |node: usize| &status["nodes"][node]["status"]["operational"];
        *operational(0) == serde_json::json!(["Draining"]) && *operational(1) == serde_json::json!(["Up"])
    };
    servers.await_status("w", "known to the witness", drained);
    servers.must_run("w", &["node", "resume", "n1"]);
}

/// What signals cannot do to a node: its drive fails, is full, or says it has flushed and has not.
#[test]
fn a_drive_that_fails_lies_or_has_no_room_costs_nobody_anything() {
    let mut servers = servers(3, false);
    let mut client = client_of(&servers, "n1", "3", 9);
    load(&mut client, 1000);
    // Superblocks, roots and journal at the start are left alone, so that the drive can be taken up again.
    let data = format!("{}-{}", 4_u64 << 20, 256_u64 << 20);
    let faults = [
        ("fail-read", format!("fail-read={data}")),
        ("fail-write", format!("fail-write={data}")),
        ("no-room", format!("no-room={data}")),
        ("skip-flush", "skip-flush=50".to_owned()),
    ];
    for (name, fault) in faults {
        servers.stop("n2");
        let log = servers.directory("n2").join("log/spandrel.log");
        std::fs::remove_file(&log).expect("it has logged");
        servers.set_drive_prefix("n2", &format!("volatile,{fault}:"));
        servers.restart("n2");
        let has_struck = || {
            let logged = std::fs::read_to_string(&log).expect("it logs");
            logged.contains(&format!("planted fault: {name}"))
        };
        // A copy's drive, and the owner's own; once its node's start is got over, as far as the fault lets it.
        for (owner, used) in [("n1", "n3"), ("n2", "n2")] {
            let is_whole = |status: &serde_json::Value| status["volumes"][0]["status"]["health"] == "Healthy";
            servers.await_status("n1", "whole or hit", |status| is_whole(status) || has_struck());
            servers.must_run("n3", &["volume", "move", "v", "--owner", owner]);
            client.use_address(servers.nbd_address(used));
            load(&mut client, 1000);
            assert_nothing_is_lost(&mut client);
        }
        assert!(has_struck(), "{name} had no effect");
        servers.kill("n2");
        servers.set_drive_prefix("n2", "volatile:");
        servers.restart("n2");
        servers.await_health("n2");
        client.use_address(servers.nbd_address("n2"));
        assert_nothing_is_lost(&mut client);
        let verified = servers.run("n1", &["volume", "verify", "v"]);
        assert_eq!(verified.status, Some(0), "{name}: {verified:#?}");
    }
}

/// A drive that does everything, and slowly: its copies are taken out, what it is is said, and it comes back when it is well.
#[test]
fn a_drive_that_is_slow_holds_nobody_up_for_long() {
    let mut options = ServersOptions::new(3, false);
    options.drive_prefix = "volatile,slow-flush=700:".to_owned();
    let servers = Servers::start(&Program::with_test_faults(), &options);
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n1"]);
    let load = LoadThread::start(servers.nbd_address("n1"), "v", VOLUME_BYTES, 19, LoadOptions::default());
    load.await_answers(1000);
    let slow = PathBuf::from(format!("{}.slow", servers.drive_file("n2").display()));
    std::fs::write(&slow, "").expect("the directory can be written to");
    let leg_of_n2 = |status: &serde_json::Value| {
        let legs = status["volumes"][0]["legs"].as_array().cloned().unwrap_or_default();
        legs.iter()
            .find(|leg| leg["node"] == "n2")
            .map_or(serde_json::Value::Null, |leg| leg["state"].clone())
    };
    servers.await_status("n1", "without the slow copy", |status| leg_of_n2(status) == "stale");
    load.await_answers(2000);
    let told = servers.must_run("n1", &["explain", "drive", "n2/n2"]);
    assert!(told.output.contains("Abnormal Latency"), "{told:?}");
    assert!(told.output.contains("taken out 1 time; they are brought back in"), "{told:?}");
    let faults = servers.must_run("n1", &["fault", "list"]);
    assert!(faults.output.contains("n2/n2") && faults.output.contains("drive.slow"), "{faults:?}");
    std::fs::remove_file(&slow).expect("it is there");
    // It rests for a minute.
    servers.await_health("n1");
    let end = load.end(&["n1", "n2", "n3"].map(|node| servers.nbd_address(node)));
    assert!(end.is_faultless(), "{end:?}");
    let verified = servers.run("n1", &["volume", "verify", "v"]);
    assert_eq!(verified.status, Some(0), "{verified:#?}");
}

#[test]
fn a_service_manager_is_told_when_a_node_serves_and_when_it_stops() {
    let mut servers = servers(1, false);
    servers.stop("n1");
    let directory = servers.directory("n1");
    let told = UnixDatagram::bind(directory.join("notify.sock")).expect("a new socket");
    told.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a socket");
    servers.set_variable(
        "n1",
        "NOTIFY_SOCKET",
        directory.join("notify.sock").to_str().expect("a plain name"),
    );
    let (ready, is_ready) = channel();
    let manager = std::thread::spawn(move || {
        let mut message = [0; 1024];
        loop {
            let length = told.recv(&mut message).expect("it can be received");
            match &message[..length] {
                // Whoever waited for that may come now.
                b"READY=1" => {
                    let sockets = ["admin.sock", "nbd.sock"].map(|name| directory.join(name));
                    let _ = ready.send(sockets.map(|socket| UnixStream::connect(socket).is_ok()));
                }
                b"STOPPING=1" => return,
                _ => {}
            }
        }
    });
    servers.restart("n1");
    let serves = is_ready.recv_timeout(Duration::from_secs(60)).expect("it has said that it is ready");
    assert_eq!(serves, [true; 2], "it serves when it says so");
    assert!(!manager.is_finished(), "it does not stop yet");
    servers.stop("n1");
    manager.join().expect("it has said that it stops");
}

#[test]
fn a_node_logs_for_programs_if_it_is_told_to() {
    let mut servers = servers(1, false);
    servers.stop("n1");
    let log = servers.directory("n1").join("log/spandrel.log");
    std::fs::remove_file(&log).expect("it has logged");
    servers.set_variable("n1", "SPANDREL_LOG_FORMAT", "json");
    servers.restart("n1");
    servers.create_volume("n1", "v", &["--size", "4M", "--copies", "1"]);
    servers.stop("n1");
    let text = std::fs::read_to_string(&log).expect("it has logged");
    let mut taken = false;
    for line in text.lines() {
        let line: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(line["node"], "n1", "{line}");
        assert!(["time", "level", "target", "message"].iter().all(|key| line[key].is_string()), "{line}");
        taken |= line["fields"]["volume"] == "v" && line["fields"]["epoch"] == 1;
    }
    assert!(taken, "{text}");
}

#[test]
fn a_drive_that_carried_something_is_taken_once_it_was_cleaned() {
    let servers = servers(1, false);
    let (own, other) = (servers.drive_file("n1"), servers.drive_file("other"));
    let own = own.to_str().expect("a plain name");
    let refused = servers.run("n1", &["drive", "clean", own, "--yes"]);
    assert!(refused.errors.contains("DRIVE_OF_NODE"), "{refused:?}");

    std::fs::write(&other, vec![0x5A; 64 << 20]).expect("there is room");
    let other = other.to_str().expect("a plain name");
    let refused = servers.run("n1", &["drive", "add", other]);
    assert!(refused.errors.contains("DRIVE_IN_FOREIGN_USE"), "{refused:?}");
    assert!(refused.errors.contains("spandrel drive clean"), "it says what to do next: {refused:?}");
    servers.must_run("n1", &["drive", "clean", other, "--yes"]);
    servers.must_run("n1", &["drive", "add", other]);
    let refused = servers.run("n1", &["drive", "clean", other, "--yes"]);
    assert!(refused.errors.contains("DRIVE_OF_NODE"), "{refused:?}");
}

/// What stands where a drive should be keeps no node from starting: its other drives are needed. And a drive is called by
/// its name also while its node is down, by servers that have never heard of it.
#[test]
fn a_node_starts_without_a_drive_in_whose_place_something_else_stands() {
    let mut servers = servers(3, false);
    let second = servers.directory("n2").with_file_name("second.drive");
    let empty = || {
        let file = std::fs::File::create(&second).expect("there is room");
        file.set_len(128 << 20).expect("there is room");
    };
    empty();
    servers.must_run("n2", &["drive", "add", second.to_str().expect("a plain name")]);
    servers.create_volume("n1", "v", &["--size", "16M", "--copies", "3"]);
    servers.await_health("n1");

    servers.stop("n2");
    std::fs::write(&second, vec![0x5A; 64 << 20]).expect("there is room");
    servers.stop("n1");
    servers.restart("n1");
    let listed = servers.run_once_available("n1", &["drive", "get", "n2/second", "-o", "json"]).json();
    assert_eq!((&listed["name"], &listed["node"]), (&"n2/second".into(), &"n2".into()), "{listed:#}");

    servers.restart("n2");
    let await_drives = |servers: &Servers, count: u64| {
        servers.await_status("n1", "n2 serves with its drives that are there", |status| {
            let node = status["nodes"].as_array().expect("a list").iter().find(|node| node["name"] == "n2");
            node.expect("it is known")["drives_usable"] == count
        });
    };
    await_drives(&servers, 1);
    assert!(servers.log("n2").contains("the drive is not used"), "{}", servers.log("n2"));
    servers.must_run("n1", &["drive", "remove", "n2/second", "--yes"]);
    let settings = std::fs::read_to_string(servers.directory("n2").join("node.json")).expect("it is there");
    assert!(
        settings.contains("n2.drive") && !settings.contains("second"),
        "it is looked for no more: {settings}"
    );

    // An empty drive that is put where one was lost is called like it.
    empty();
    servers.must_run("n2", &["drive", "add", second.to_str().expect("a plain name")]);
    let lost = servers.must_run("n1", &["drive", "get", "n2/second", "-o", "json"]).json();
    servers.stop("n2");
    empty();
    servers.restart("n2");
    await_drives(&servers, 2);
    for command in [&["drive", "get", "n2/second"][..], &["explain", "drive", "n2/second"]] {
        let refused = servers.run("n1", command);
        assert!(refused.errors.contains("DRIVE_NAME_AMBIGUOUS"), "{refused:?}");
    }
    servers.must_run("n1", &["drive", "remove", lost["id"].as_str().expect("it has one"), "--yes"]);
    servers.must_run("n1", &["drive", "get", "n2/second"]);
    servers.stop("n2");
    servers.restart("n2");
    await_drives(&servers, 2);

    // Of two images of one drive none is used. The right one is taken up when it is given anew.
    servers.stop("n2");
    let aside = second.with_file_name("aside");
    std::fs::rename(&second, &aside).expect("it is there");
    std::fs::copy(servers.drive_file("n2"), &second).expect("there is room");
    servers.restart("n2");
    assert!(servers.log("n2").contains("and so does another one"), "{}", servers.log("n2"));
    await_drives(&servers, 0);
    std::fs::rename(&aside, &second).expect("it is there");
    for path in [&second, &servers.drive_file("n2")] {
        servers.must_run("n2", &["drive", "add", path.to_str().expect("a plain name")]);
    }
    await_drives(&servers, 2);
    servers.await_health("n1");
}

#[test]
fn a_drive_that_another_server_uses_is_not_cleaned() {
    let mut servers = servers(2, false);
    let listed: serde_json::Value =
        serde_json::from_str(&servers.must_run("n1", &["drive", "list", "-o", "json"]).output).expect("JSON");
    let drives = listed.as_array().expect("a list");
    let drive = drives.iter().find(|drive| drive["node"] == "n2").expect("each node has one");
    let id = drive["id"].as_str().expect("it is known").to_owned();
    servers.stop("n2");
    // What nobody has open, and no settings of n1 name.
    let path = servers.drive_file("n2");
    let path = path.to_str().expect("a plain name");
    for options in [&["--yes"][..], &["--dry-run"], &["--yes", "--drive-id", &id]] {
        let refused = servers.run("n1", &[&["drive", "clean", path], options].concat());
        assert!(refused.errors.contains("DRIVE_IN_CLUSTER"), "{refused:?}");
        assert!(refused.errors.contains(&id) && refused.errors.contains("node remove n2"), "{refused:?}");
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while servers.run("n1", &["node", "remove", "n2", "--dry-run"]).status != Some(0) {
        assert!(Instant::now() < deadline, "its sign of life runs out");
    }
    servers.must_run("n1", &["node", "remove", "n2", "--yes"]);
    let refused = servers.run("n1", &["drive", "clean", path, "--yes"]);
    assert!(refused.errors.contains("DRIVE_ID_NEEDED"), "{refused:?}");
    assert!(refused.errors.contains("does not count on"), "{refused:?}");
    servers.must_run("n1", &["drive", "clean", path, "--yes", "--drive-id", &id]);
    servers.must_run("n1", &["drive", "add", path]);
}

#[test]
fn a_drive_that_is_in_use_is_not_taken_a_second_time() {
    let servers = servers(1, false);
    let (drive, copy) = (servers.drive_file("n1"), servers.drive_file("copy"));
    std::fs::copy(&drive, &copy).expect("it can be copied");
    for (path, code) in [(&copy, "DRIVE_ATTACHED_TWICE"), (&drive, "DRIVE_IN_USE")] {
        let refused = servers.run("n1", &["drive", "add", path.to_str().expect("a plain name")]);
        assert!(refused.errors.contains(code), "{refused:?}");
    }
    let missing = servers.run("n1", &["drive", "add", "/nowhere"]);
    assert!(missing.errors.contains("DRIVE_NOT_OPENED"), "{missing:?}");
    let settings = std::fs::read_to_string(servers.directory("n1").join("node.json")).expect("it is there");
    assert!(!settings.contains("copy") && !settings.contains("nowhere"), "{settings}");
}
