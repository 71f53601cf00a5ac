//! Volumes that grow under load, judged by what is kept.

use std::thread;
use std::time::{Duration, Instant};

use spandrel_process_cluster::{CommandOutput, LoadOptions, LoadThread, Program, Servers, ServersOptions};

const MIB: u64 = 1 << 20;

/// How long a growth may take to begin.
const PATIENCE: Duration = Duration::from_secs(60);

fn servers(nodes: usize) -> Servers {
    Servers::start(&Program::with_test_faults(), &ServersOptions::new(nodes, false))
}

fn get(servers: &Servers, on: &str) -> serde_json::Value {
    servers.must_run(on, &["volume", "get", "v", "-o", "json"]).json()
}

fn size_bytes(servers: &Servers, on: &str) -> u64 {
    get(servers, on)["size_bytes"].as_u64().expect("a number")
}

fn promised_bytes(status: &serde_json::Value) -> u64 {
    let drives = status["drives"].as_array().expect("a list");
    drives.iter().map(|drive| drive["promised_bytes"].as_u64().expect("a number")).sum()
}

fn verify(servers: &Servers) {
    let verified = servers.run("n1", &["volume", "verify", "v"]);
    assert_eq!(verified.status, Some(0), "{verified:#?}");
}

#[test]
fn a_volume_grows_under_load_and_clients_that_connect_anew_use_what_came() {
    let servers = servers(3);
    servers.create_volume("n1", "v", &["--size", "30M", "--copies", "3", "--owner", "n1"]);
    let load = LoadThread::start(servers.nbd_address("n1"), "v", 30 * MIB, 1, LoadOptions::default());
    load.await_answers(500);
    let would = servers.must_run("n3", &["volume", "resize", "v", "+18M", "--dry-run"]);
    for part in ["would grow from 30 MiB to 48 MiB", "4 slabs would come, in 3 copies each", "n2/"] {
        assert!(would.output.contains(part), "{part}: {would:?}");
    }
    assert_eq!(size_bytes(&servers, "n2"), 30 * MIB, "nothing was done");
    let grown = servers.must_run("n3", &["volume", "resize", "v", "+18M"]);
    assert!(grown.output.contains("has grown from 30 MiB to 48 MiB"), "{grown:?}");
    for node in ["n1", "n2", "n3"] {
        assert_eq!(size_bytes(&servers, node), 48 * MIB, "{node} shows it at once");
    }
    load.await_answers(500);
    load.move_to_grown(servers.nbd_address("n2"), 48 * MIB);
    load.await_answers(1000);
    // Within the last slab, then beyond it.
    servers.must_run("n1", &["volume", "resize", "v", "50M"]);
    let json = servers.must_run("n2", &["volume", "resize", "v", "100M", "-o", "json"]).json();
    assert_eq!(
        (json["former_bytes"].as_u64(), json["size_bytes"].as_u64()),
        (Some(50 * MIB), Some(100 * MIB))
    );
    assert_eq!(json["slabs"], 12, "{json:#}");
    load.move_to_grown(servers.nbd_address("n1"), 100 * MIB);
    load.await_answers(1000);
    let again = servers.must_run("n1", &["volume", "resize", "v", "100M"]);
    assert!(again.output.contains("has 100 MiB already"), "{again:?}");
    let end = load.end(&["n1", "n2", "n3"].map(|node| servers.nbd_address(node)));
    assert!(end.is_faultless(), "{end:?}");
    servers.await_health("n1");
    verify(&servers);
}

#[test]
fn what_cannot_be_is_refused_with_the_reason_and_changes_nothing() {
    let servers = servers(3);
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3"]);
    let before = servers.must_run("n1", &["status", "-o", "json"]).json();
    let refused = |size: &str, parts: &[&str]| {
        let refused = servers.run("n2", &["volume", "resize", "v", size]);
        assert_ne!(refused.status, Some(0), "{refused:?}");
        for part in parts {
            assert!(refused.errors.contains(part), "{part}: {refused:?}");
        }
    };
    refused("16M", &["SIZE_SMALLER", "a volume never shrinks", "32 MiB", "16 MiB"]);
    refused("33554433", &["SIZE_UNALIGNED", "make it 33558528 bytes"]);
    refused("+1T", &["POOL_FULL", "more slabs of 4 MiB", "are free", "let it grow by at most"]);
    let unknown = servers.run("n2", &["volume", "resize", "w", "+1M"]);
    assert!(unknown.errors.contains("VOLUME_NOT_FOUND"), "{unknown:?}");
    let after = servers.must_run("n1", &["status", "-o", "json"]).json();
    assert_eq!(promised_bytes(&after), promised_bytes(&before));
    assert_eq!(size_bytes(&servers, "n1"), 32 * MIB);
}

/// Two who add at the same time: what one of them has added is not taken for what the other one wanted.
#[test]
fn of_two_who_add_at_the_same_time_each_gets_it_or_is_told() {
    let servers = servers(3);
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n1"]);
    let add = |on: &'static str| servers.run(on, &["volume", "resize", "v", "+4M"]);
    let (one, other) = thread::scope(|scope| {
        let other = scope.spawn(|| add("n2"));
        (add("n1"), other.join().expect("the command ends"))
    });
    let mut added = 0;
    for told in [&one, &other] {
        match told.status {
            Some(0) => added += 1,
            _ => assert!(told.errors.contains("SIZE_CHANGED"), "{told:?}"),
        }
    }
    assert!(added > 0, "{one:?} {other:?}");
    assert_eq!(size_bytes(&servers, "n3"), (32 + 4 * added) * MIB, "{one:?} {other:?}");
}

/// Has a volume of n1 begin to grow while n4 stands still, which is to hold some of what comes, and does something as soon
/// as the growth is written down. n4 is waited for for five seconds then.
fn while_it_grows(servers: &Servers, act: impl FnOnce()) -> CommandOutput {
    servers.must_run("n2", &["volume", "move", "v", "--owner", "n1"]);
    servers.signal("n4", "-STOP");
    thread::scope(|scope| {
        let resize = scope.spawn(|| servers.run("n2", &["volume", "resize", "v", "+64M"]));
        let deadline = Instant::now() + PATIENCE;
        while !servers.log("n1").contains("step_bytes=100663296") {
            assert!(Instant::now() < deadline, "n1 does not begin: {}", servers.log("n1"));
            // tidy-allow(sleep): until a deadline, what a process has logged can only be asked for.
            thread::sleep(Duration::from_millis(20));
        }
        act();
        resize.join().expect("the command ends")
    })
}

fn is_at_rest(status: &serde_json::Value) -> bool {
    status["volumes"][0]["grows_to_bytes"].is_null()
}

/// The next owner goes on with what the former one has begun.
#[test]
fn the_owner_is_killed_while_a_volume_grows() {
    let mut servers = servers(4);
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n1"]);
    let load = LoadThread::start(servers.nbd_address("n2"), "v", 32 * MIB, 2, LoadOptions::default());
    load.await_answers(500);
    let told = while_it_grows(&servers, || {
        servers.kill_now("n1");
        servers.signal("n4", "-CONT");
    });
    servers.await_status("n2", "the growth has ended", is_at_rest);
    let size_bytes = size_bytes(&servers, "n2");
    match told.status {
        Some(0) => assert_eq!(size_bytes, 96 * MIB, "{told:?}"),
        _ => assert!([32 * MIB, 96 * MIB].contains(&size_bytes), "{told:?}"),
    }
    servers.kill_process("n1");
    servers.restart("n1");
    servers.await_health("n2");
    let grown = servers.must_run("n3", &["volume", "resize", "v", "96M"]);
    load.move_to_grown(servers.nbd_address("n2"), 96 * MIB);
    load.await_answers(1000);
    let end = load.end(&["n1", "n2", "n3", "n4"].map(|node| servers.nbd_address(node)));
    assert!(end.is_faultless(), "{end:?} {grown:?}");
    verify(&servers);
}

/// A node that does not make its copies: all is taken back, and nothing of it is left.
#[test]
fn a_copys_node_is_killed_while_a_volume_grows() {
    let mut servers = servers(4);
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n1"]);
    let before = promised_bytes(&servers.must_run("n1", &["status", "-o", "json"]).json());
    let load = LoadThread::start(servers.nbd_address("n1"), "v", 32 * MIB, 3, LoadOptions::default());
    load.await_answers(500);
    let told = while_it_grows(&servers, || {
        let told = servers.must_run("n2", &["explain", "volume", "v"]);
        assert!(told.output.contains("it grows from 32 MiB to 96 MiB"), "{told:?}");
        servers.kill_now("n4");
    });
    assert!(told.errors.contains("COPY_NOT_MADE") && told.errors.contains("node n4"), "{told:?}");
    assert!(told.errors.contains("the volume keeps the size that it has"), "{told:?}");
    assert_eq!(size_bytes(&servers, "n2"), 32 * MIB);
    let status = servers.must_run("n1", &["status", "-o", "json"]).json();
    assert!(is_at_rest(&status) && promised_bytes(&status) == before, "{status:#}");
    servers.kill_process("n4");
    servers.restart("n4");
    servers.await_health("n1");
    load.await_answers(500);
    servers.must_run("n1", &["volume", "resize", "v", "+64M"]);
    load.move_to_grown(servers.nbd_address("n3"), 96 * MIB);
    load.await_answers(1000);
    let end = load.end(&["n1", "n2", "n3", "n4"].map(|node| servers.nbd_address(node)));
    assert!(end.is_faultless(), "{end:?}");
    verify(&servers);
}

/// A volume that is deleted while it grows is gone with all that was to come.
#[test]
fn a_volume_is_deleted_while_it_grows() {
    let servers = servers(4);
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n1"]);
    let told = while_it_grows(&servers, || {
        servers.must_run("n1", &["volume", "delete", "v", "--yes"]);
        servers.signal("n4", "-CONT");
    });
    assert_ne!(told.status, Some(0), "{told:?}");
    servers.await_status("n1", "nothing is promised", |status| {
        status["volumes"].as_array().is_some_and(Vec::is_empty) && promised_bytes(status) == 0
    });
    servers.create_volume("n1", "v", &["--size", "96M", "--copies", "3"]);
    servers.await_health("n1");
    verify(&servers);
}
